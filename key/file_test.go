package key_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/key"
)

// goldenFile is the key file of the example, made with Python's cryptography
// package and json.dumps. Node's crypto reads the private texts as well.
const goldenFile = `{
  "version": 1,
  "identityPublic": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
  "identityPrivate": "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g",
  "encryptionPublic": "hSDwCYkwp1R0i33ctD73Wg2_Og0mOBr066SpjqqbTmo",
  "encryptionPrivate": "MC4CAQAwBQYDK2VuBCIEIHcHbQpzGKV9PBbBclGyZkXfTC+H68CZKrF3+6UduSwq",
  "encryptionSig": "riCNFoYvRD0ItAiXuXF7CXzSVsJpMx6v39wmnXbixm5yqoKPuZO67RMe4GALQUCMjJc0DCStmEU23zsd1GXBAQ",
  "createdAt": 1785499200123
}
`

// fileFields are the members of a key file as any JSON reader sees them.
func fileFields(t testing.TB, content []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(content, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// wantSameKeys compares what the keys do, since they cannot be compared.
func wantSameKeys(t testing.TB, what string, got, want key.DeviceKeys) {
	t.Helper()
	if got.Identity() != want.Identity() || got.Signer().Public() != want.Signer().Public() || got.Opener().Public() != want.Opener().Public() {
		t.Errorf("%s: these are other keys", what)
		return
	}
	if sign(t, got.Signer(), []byte("m")) != sign(t, want.Signer(), []byte("m")) {
		t.Errorf("%s: another key signs", what)
	}
	b := must(want.Identity().Sealing().Seal(bytes.NewReader(counted32()), []byte("m")))(t)
	if m, err := got.Opener().Open(b); err != nil || string(m) != "m" {
		t.Errorf("%s: another key opens: %v", what, err)
	}
}

func wantFileRefused(t testing.TB, what string, content []byte) {
	t.Helper()
	k, err := key.ParseFile[key.DeviceRole](content)
	wantKind(t, what, err, key.ErrFile)
	if !k.IsZero() || !k.Created().IsZero() || !k.Signer().Public().IsZero() || !k.Opener().Public().IsZero() || !k.Identity().IsZero() {
		t.Errorf("%s: an error came with keys", what)
	}
}

func TestGoldenFile(t *testing.T) {
	content := must(key.MarshalFile(exampleKeys(t)))(t)
	if string(content) != goldenFile {
		t.Errorf("the file is\n%s, want\n%s", content, goldenFile)
	}
	k := must(key.ParseFile[key.DeviceRole]([]byte(goldenFile)))(t)
	wantSameKeys(t, "golden file", k, exampleKeys(t))
	if !k.Created().Equal(created) || k.Created().Location() != time.UTC {
		t.Errorf("created %v, want %v", k.Created(), created)
	}
}

// A role is not in the file: which keys are whose is the caller's to know.
func TestFileOfASiteIsTheSame(t *testing.T) {
	site := must(key.ParseFile[key.SiteRole]([]byte(goldenFile)))(t)
	if got := must(key.MarshalFile(site))(t); string(got) != goldenFile {
		t.Errorf("the file is\n%s, want\n%s", got, goldenFile)
	}
}

func TestPrivateTextsArePKCS8(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "seed")
		secret := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "secret")
		at := time.UnixMilli(rapid.Int64Range(1, 1<<53-1).Draw(rt, "created"))
		k := must(key.NewKeys[key.DeviceRole](bytes.NewReader(append(bytes.Clone(seed), secret...)), at))(t)
		content := must(key.MarshalFile(k))(t)
		m := fileFields(t, content)

		der := must(base64.StdEncoding.DecodeString(m["identityPrivate"].(string)))(t)
		signing, ok := must(x509.ParsePKCS8PrivateKey(der))(t).(ed25519.PrivateKey)
		if !ok || !bytes.Equal(signing.Seed(), seed) {
			rt.Fatalf("identityPrivate is another key")
		}
		der = must(base64.StdEncoding.DecodeString(m["encryptionPrivate"].(string)))(t)
		sealing, ok := must(x509.ParsePKCS8PrivateKey(der))(t).(*ecdh.PrivateKey)
		if !ok || sealing.Curve() != ecdh.X25519() || !bytes.Equal(sealing.Bytes(), secret) {
			rt.Fatalf("encryptionPrivate is another key")
		}
		want := fmt.Sprintf("{\n  \"version\": 1,\n  \"identityPublic\": %q,\n  \"identityPrivate\": %q,\n  \"encryptionPublic\": %q,\n  \"encryptionPrivate\": %q,\n  \"encryptionSig\": %q,\n  \"createdAt\": %d\n}\n",
			base64.RawURLEncoding.EncodeToString(signing.Public().(ed25519.PublicKey)),
			base64.StdEncoding.EncodeToString(must(x509.MarshalPKCS8PrivateKey(signing))(t)),
			base64.RawURLEncoding.EncodeToString(sealing.PublicKey().Bytes()),
			base64.StdEncoding.EncodeToString(must(x509.MarshalPKCS8PrivateKey(sealing))(t)),
			base64.RawURLEncoding.EncodeToString(ed25519.Sign(signing, boundMessage(base64.RawURLEncoding.EncodeToString(sealing.PublicKey().Bytes())))),
			at.UnixMilli())
		if string(content) != want {
			rt.Fatalf("the file is\n%s, want\n%s", content, want)
		}
		read := must(key.ParseFile[key.DeviceRole](content))(t)
		wantSameKeys(t, "round trip", read, k)
		if !read.Created().Equal(at) {
			rt.Fatalf("created %v, want %v", read.Created(), at)
		}
		if again := must(key.MarshalFile(read))(t); !bytes.Equal(again, content) {
			rt.Fatalf("written again it is\n%s, want\n%s", again, content)
		}
	})
}

func TestMarshalFileRefusesWhatCouldNotBeRead(t *testing.T) {
	if content, err := key.MarshalFile(key.DeviceKeys{}); err == nil || content != nil {
		t.Errorf("no keys: %q, %v", content, err)
	}
	for _, at := range []time.Time{{}, time.UnixMilli(0), time.UnixMilli(-1), time.UnixMilli(1 << 53)} {
		k := must(key.NewKeys[key.DeviceRole](bytes.NewReader(make([]byte, 64)), at))(t)
		if content, err := key.MarshalFile(k); err == nil || content != nil {
			t.Errorf("created %v: %q, %v", at, content, err)
		}
	}
}

// The same members spelled otherwise are the same file: JSON is read as data.
func TestOtherSpellingsOfAFile(t *testing.T) {
	m := fileFields(t, []byte(goldenFile))
	compact := must(json.Marshal(m))(t) // in the order of the names
	for what, content := range map[string]string{
		"compact":         string(compact),
		"tabs":            strings.ReplaceAll(goldenFile, "  ", "\t"),
		"CRLF":            strings.ReplaceAll(goldenFile, "\n", "\r\n"),
		"escaped text":    strings.Replace(goldenFile, "11qY", `\u0031\u0031qY`, 1),
		"escaped name":    strings.Replace(goldenFile, "identityPublic", `identity\u0050ublic`, 1),
		"escaped slash":   strings.Replace(goldenFile, "/Vpg", `\/Vpg`, 1),
		"exponent":        strings.Replace(goldenFile, "1785499200123", "1.785499200123e12", 1),
		"version 1.0":     strings.Replace(goldenFile, `"version": 1`, `"version": 1.0`, 1),
		"as large as may": goldenFile + strings.Repeat(" ", key.MaxFile-len(goldenFile)),
	} {
		if content == goldenFile {
			t.Errorf("%s: the example is the golden file", what)
		}
		k, err := key.ParseFile[key.DeviceRole]([]byte(content))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got := must(key.MarshalFile(k))(t); string(got) != goldenFile {
			t.Errorf("%s: written again it is\n%s", what, got)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	replace := func(from, to string) string {
		t.Helper()
		if strings.Count(goldenFile, from) != 1 {
			t.Fatalf("%q is not once in the file", from)
		}
		return strings.Replace(goldenFile, from, to, 1)
	}
	// with returns the golden file with other values. Its spelling is another
	// one, which TestOtherSpellingsOfAFile shows to be fine.
	with := func(changes map[string]any) string {
		m := fileFields(t, []byte(goldenFile))
		for name, v := range changes {
			if m[name] == nil || reflect.DeepEqual(m[name], v) {
				t.Fatalf("%s is not changed", name)
			}
			m[name] = v
		}
		return string(must(json.Marshal(m))(t))
	}
	p8 := func(private any) string {
		return base64.StdEncoding.EncodeToString(must(x509.MarshalPKCS8PrivateKey(private))(t))
	}
	golden := fileFields(t, []byte(goldenFile))
	other := fileFields(t, must(key.MarshalFile(otherKeys(t, 1)))(t))
	signing := ed25519.NewKeyFromSeed(unhex(t, seedHex))
	der := must(base64.StdEncoding.DecodeString(golden["identityPrivate"].(string)))(t)
	b64 := base64.StdEncoding.EncodeToString

	damaged := map[string]string{
		"nothing":        "",
		"a space":        " ",
		"null":           "null",
		"a list":         "[" + goldenFile + "]",
		"a text":         strconv.Quote("keys"),
		"no member":      "{}",
		"cut":            goldenFile[:len(goldenFile)/2],
		"last brace cut": strings.TrimRight(goldenFile, "}\n"),
		"twice":          goldenFile + goldenFile,
		"text after":     goldenFile + "x",
		"zero bytes":     strings.Repeat("\x00", len(goldenFile)),
		"zero after":     goldenFile + "\x00",
		"BOM":            "\ufeff" + goldenFile,
		"UTF-16":         "\xff\xfe" + strings.Join(strings.Split(goldenFile, ""), "\x00"),
		"too large":      goldenFile + strings.Repeat(" ", key.MaxFile-len(goldenFile)+1),
		"unknown name":   replace(`"version": 1,`, `"version": 1, "note": "x",`),
		"unknown last":   replace(`1785499200123`, `1785499200123, "x": 0`),
		"name twice":     replace(`"version": 1,`, `"version": 1, "version": 1,`),
		"upper case":     replace(`"version"`, `"Version"`),
		"nested":         replace(`"version": 1`, `"version": [1]`),
		"invalid UTF-8":  replace(`11qY`, "\xff1qY"),
		"lone surrogate": replace(`11qY`, `\ud8001qY`),

		"version 0":       replace(`"version": 1`, `"version": 0`),
		"version 2":       replace(`"version": 1`, `"version": 2`),
		"version 1.5":     replace(`"version": 1`, `"version": 1.5`),
		"version -1":      replace(`"version": 1`, `"version": -1`),
		"version text":    replace(`"version": 1`, `"version": "1"`),
		"created 0":       replace("1785499200123", "0"),
		"created -1":      replace("1785499200123", "-1"),
		"created half":    replace("1785499200123", "1785499200123.5"),
		"created 2^53":    replace("1785499200123", "9007199254740992"),
		"created endless": replace("1785499200123", "1e400"),
		"created text":    replace("1785499200123", `"1785499200123"`),

		"publics swapped":            with(map[string]any{"identityPublic": sealingText, "encryptionPublic": signingText}),
		"privates swapped":           with(map[string]any{"identityPrivate": golden["encryptionPrivate"], "encryptionPrivate": golden["identityPrivate"]}),
		"pairs swapped":              with(map[string]any{"identityPublic": sealingText, "encryptionPublic": signingText, "identityPrivate": golden["encryptionPrivate"], "encryptionPrivate": golden["identityPrivate"]}),
		"another's signing pair":     with(map[string]any{"identityPublic": other["identityPublic"], "identityPrivate": other["identityPrivate"]}),
		"another's sealing pair":     with(map[string]any{"encryptionPublic": other["encryptionPublic"], "encryptionPrivate": other["encryptionPrivate"]}),
		"another's bound sealing":    with(map[string]any{"encryptionPublic": other["encryptionPublic"], "encryptionPrivate": other["encryptionPrivate"], "encryptionSig": other["encryptionSig"]}),
		"another's publics":          with(map[string]any{"identityPublic": other["identityPublic"], "encryptionPublic": other["encryptionPublic"], "encryptionSig": other["encryptionSig"]}),
		"another's privates":         with(map[string]any{"identityPrivate": other["identityPrivate"], "encryptionPrivate": other["encryptionPrivate"]}),
		"seed in both, right prefix": with(map[string]any{"encryptionPrivate": p8(must(ecdh.X25519().NewPrivateKey(unhex(t, seedHex)))(t))}),
		"bound, but not this one": with(map[string]any{
			"encryptionPublic": other["encryptionPublic"],
			"encryptionSig":    base64.RawURLEncoding.EncodeToString(ed25519.Sign(signing, boundMessage(other["encryptionPublic"].(string)))),
		}),
		"bound as bytes": with(map[string]any{
			"encryptionSig": base64.RawURLEncoding.EncodeToString(ed25519.Sign(signing, append([]byte("byollm/v1/encryption-key:"), unhex(t, sealingHex)...))),
		}),

		// A zero public half is what no private half at all would have.
		"zero sealing key": with(map[string]any{
			"encryptionPublic": strings.Repeat("A", 43), "encryptionPrivate": "",
			"encryptionSig": base64.RawURLEncoding.EncodeToString(ed25519.Sign(signing, boundMessage(strings.Repeat("A", 43)))),
		}),
		"zero sealing key, other private": with(map[string]any{
			"encryptionPublic": strings.Repeat("A", 43), "encryptionPrivate": b64([]byte("no key")),
			"encryptionSig": base64.RawURLEncoding.EncodeToString(ed25519.Sign(signing, boundMessage(strings.Repeat("A", 43)))),
		}),

		"private alone, no PKCS#8":  with(map[string]any{"identityPrivate": b64(unhex(t, seedHex))}),
		"private and public":        with(map[string]any{"identityPrivate": b64(signing)}),
		"private a byte short":      with(map[string]any{"identityPrivate": b64(der[:47])}),
		"private a byte long":       with(map[string]any{"identityPrivate": b64(append(der[:48:48], 0))}),
		"private with attributes":   with(map[string]any{"identityPrivate": b64(append([]byte{0x30, 0x30}, append(bytes.Clone(der[2:]), 0xa0, 0)...))}),
		"private in base64url":      with(map[string]any{"identityPrivate": base64.URLEncoding.EncodeToString(der)}),
		"private in hex":            with(map[string]any{"identityPrivate": fmt.Sprintf("%x", der)}),
		"private in PEM":            with(map[string]any{"identityPrivate": "-----BEGIN PRIVATE KEY-----\n" + b64(der) + "\n-----END PRIVATE KEY-----\n"}),
		"private with newline":      with(map[string]any{"identityPrivate": b64(der) + "\n"}),
		"private with CRLF inside":  with(map[string]any{"identityPrivate": b64(der)[:32] + "\r\n" + b64(der)[32:]}),
		"private with a space":      with(map[string]any{"identityPrivate": b64(der) + " "}),
		"private padded":            with(map[string]any{"identityPrivate": b64(der) + "===="}),
		"sealing in base64url":      with(map[string]any{"encryptionPrivate": strings.NewReplacer("+", "-", "/", "_").Replace(golden["encryptionPrivate"].(string))}),
		"sealing with newline":      with(map[string]any{"encryptionPrivate": golden["encryptionPrivate"].(string) + "\n"}),
		"public padded":             with(map[string]any{"identityPublic": signingText + "="}),
		"public in base64":          with(map[string]any{"identityPublic": strings.NewReplacer("-", "+", "_", "/").Replace(signingText)}),
		"public with newline":       with(map[string]any{"encryptionPublic": sealingText + "\n"}),
		"signature padded":          with(map[string]any{"encryptionSig": bindingText + "=="}),
		"signature cut":             with(map[string]any{"encryptionSig": bindingText[:85]}),
		"signature with other bits": with(map[string]any{"encryptionSig": bindingText[:85] + "R"}),
		"fingerprint for a public":  with(map[string]any{"identityPublic": fingerprintText}),
	}
	for _, name := range []string{"version", "identityPublic", "identityPrivate", "encryptionPublic", "encryptionPrivate", "encryptionSig", "createdAt"} {
		damaged[name+" null"] = with(map[string]any{name: nil})
		damaged[name+" true"] = with(map[string]any{name: true})
		damaged[name+" empty"] = with(map[string]any{name: ""})
		damaged[name+" a list"] = with(map[string]any{name: []any{golden[name]}})
		m := fileFields(t, []byte(goldenFile))
		delete(m, name)
		damaged[name+" absent"] = string(must(json.Marshal(m))(t))
		if golden[name] != other[name] { // version and time are the same for all
			damaged[name+" of another"] = with(map[string]any{name: other[name]})
		}
	}
	for what, content := range damaged {
		wantFileRefused(t, what, []byte(content))
	}
	wantFileRefused(t, "nil", nil)
	// Control: the other file is good as a whole.
	must(key.ParseFile[key.DeviceRole](must(json.Marshal(other))(t)))(t)
}

// TestEveryChangedByte turns over each bit of the file, and puts in bytes that
// mean something in JSON. What is still read must be the same file in another
// spelling, but for the time.
func TestEveryChangedByte(t *testing.T) {
	t.Parallel() // slow under the race detector
	want := fileFields(t, []byte(goldenFile))
	delete(want, "createdAt")
	read := 0
	for i := range goldenFile {
		changes := []byte{0, ' ', '\n', '"', '\\', 'A', '='}
		for bit := range 8 {
			changes = append(changes, goldenFile[i]^1<<bit)
		}
		for _, c := range changes {
			if c == goldenFile[i] {
				continue
			}
			content := []byte(goldenFile)
			content[i] = c
			k, err := key.ParseFile[key.DeviceRole](content)
			if err != nil {
				wantFileRefused(t, fmt.Sprintf("byte %d as %q", i, c), content)
				continue
			}
			read++
			got := fileFields(t, content)
			delete(got, "createdAt")
			// X25519 does not use five bits of a private key, so a file that
			// differs there holds the same key.
			if private := got["encryptionPrivate"].(string); samePrivate(t, private) {
				got["encryptionPrivate"] = want["encryptionPrivate"]
			}
			if !reflect.DeepEqual(got, want) || k.Identity() != exampleKeys(t).Identity() {
				t.Errorf("byte %d as %q is read", i, c)
			}
		}
	}
	if read == 0 {
		t.Error("not even a space for a line break is read, so the test shows little")
	}
	for n := range len(goldenFile) - 2 { // the last two are a brace and a line break
		wantFileRefused(t, fmt.Sprintf("%d bytes", n), []byte(goldenFile[:n]))
	}
}

// The log should say what is damaged, so the cause is kept.
func TestErrFileKeepsTheCause(t *testing.T) {
	for from, c := range map[string]struct {
		to    string
		cause error
	}{
		`"version": 1`: {`"version": 2`, exact.ErrRange},
		`createdAt`:    {`CreatedAt`, exact.ErrMissing},
		signingText:    {signingText[1:], key.ErrText},
		bindingText:    {bindingText[:80] + "AAAAAQ", key.ErrBinding},
	} {
		content := strings.Replace(goldenFile, from, c.to, 1)
		_, err := key.ParseFile[key.DeviceRole]([]byte(content))
		if !errors.Is(err, key.ErrFile) || !errors.Is(err, c.cause) {
			t.Errorf("%s for %s: %v with the cause %v, want %v", c.to, from, err, errors.Unwrap(err), c.cause)
		}
	}
}

// samePrivate reports whether the PKCS#8 text holds the example's X25519 key but
// for the bits that RFC 7748 sets and clears before use.
func samePrivate(t testing.TB, text string) bool {
	t.Helper()
	private := must(x509.ParsePKCS8PrivateKey(must(base64.StdEncoding.DecodeString(text))(t)))(t).(*ecdh.PrivateKey)
	got, want := private.Bytes(), unhex(t, secretHex)
	for _, b := range [][]byte{got, want} {
		b[0] &= 248
		b[31] = b[31]&127 | 64
	}
	return bytes.Equal(got, want)
}

// What the cause of a refusal says goes to a log, so it must not quote the file.
func TestErrFileQuotesNothing(t *testing.T) {
	const canary = "canary-5fb3"
	for what, content := range map[string]string{
		"name":        strings.Replace(goldenFile, "createdAt", canary, 1),
		"more":        strings.Replace(goldenFile, "{", `{"`+canary+`": 1,`, 1),
		"public":      strings.Replace(goldenFile, signingText, canary, 1),
		"private":     strings.Replace(goldenFile, "MC4CAQAwBQYDK2VwBCIE", canary, 1),
		"syntax":      canary + goldenFile,
		"after":       goldenFile + canary,
		"same name":   strings.Replace(goldenFile, "{", `{"`+canary+`": 1, "`+canary+`": 1,`, 1),
		"wrong type":  strings.Replace(goldenFile, `"version": 1`, `"version": "`+canary+`"`, 1),
		"a signature": strings.Replace(goldenFile, bindingText, canary+bindingText[len(canary):], 1),
	} {
		if !strings.Contains(content, canary) {
			t.Errorf("%s: the text was not planted", what)
		}
		_, err := key.ParseFile[key.DeviceRole]([]byte(content))
		wantKind(t, what, err, key.ErrFile)
		type unwrapper interface{ Unwrap() error }
		for e := err; e != nil; {
			if text := fmt.Sprintf("%v %+v", e, e); strings.Contains(text, canary) {
				t.Errorf("%s: an error quotes the file: %s", what, text)
			}
			u, ok := e.(unwrapper)
			if !ok {
				break
			}
			e = u.Unwrap()
		}
	}
}
