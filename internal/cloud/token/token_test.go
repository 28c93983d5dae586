package token_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/wire/zone"
)

var now = time.Date(2026, 12, 1, 15, 0, 0, 0, time.UTC) // 1796137200

const unix = 1796137200 // date -d 2026-12-01T15:00:00Z +%s

func random(seed byte) *rand.ChaCha8 { return rand.NewChaCha8([32]byte{seed}) }

// folder is a data folder with keys. A system that keeps nobody out has none.
func folder(t testing.TB, seed byte) (string, *token.Keys) {
	t.Helper()
	dir := t.TempDir()
	k, err := token.Open(dir, random(seed), now)
	if errors.Is(err, keyfile.ErrPlatform) {
		t.Skip("no key is kept on this system")
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, k
}

// key is a key file, read apart from the code.
type key struct {
	Purpose, Issuer, PublicKey, PrivateKey string
	private                                ed25519.PrivateKey
}

func readKey(t testing.TB, path string) key {
	t.Helper()
	var k key
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &k); err != nil {
		t.Fatal(err)
	}
	seed, err := base64.RawURLEncoding.DecodeString(k.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	k.private = ed25519.NewKeyFromSeed(seed)
	return k
}

func (k key) kid() string {
	sum := sha256.Sum256(k.private.Public().(ed25519.PublicKey))
	return encode(sum[:12])
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign makes a token of any header and any claims.
func (k key) sign(header, claims string) string {
	text := encode([]byte(header)) + "." + encode([]byte(claims))
	return text + "." + encode(ed25519.Sign(k.private, []byte(text)))
}

func TestO25TokensAreWhatTheirRuleSays(t *testing.T) {
	dir, k := folder(t, 1)
	o, m := readKey(t, filepath.Join(dir, token.OperatorFile)), readKey(t, filepath.Join(dir, token.MachineFile))
	if o.Issuer == m.Issuer || o.PrivateKey == m.PrivateKey {
		t.Error("both kinds have one key")
	}
	person, claims, err := k.Operator("ada.l", 7, now.Add(900*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	want := o.sign(`{"alg":"EdDSA","kid":"`+o.kid()+`","typ":"operator+jwt"}`,
		fmt.Sprintf(`{"iss":"%s","aud":"zone-operator","sub":"ada.l","gen":7,"iat":%d,"exp":%d}`, o.Issuer, unix, unix+12*3600))
	if person.Reveal() != want {
		t.Errorf("\n got %s\nwant %s", person.Reveal(), want)
	}
	if claims != (token.Claims{Operator: "ada.l", Generation: 7, IssuedAt: unix * 1000, ExpiresAt: (unix + 12*3600) * 1000}) {
		t.Errorf("%+v", claims)
	}
	machine, claims, err := k.Machine("web", "main", 0, now)
	if err != nil {
		t.Fatal(err)
	}
	want = m.sign(`{"alg":"EdDSA","kid":"`+m.kid()+`","typ":"machine+jwt"}`,
		fmt.Sprintf(`{"iss":"%s","aud":"zone-machine","sub":"web","org":"main","gen":0,"iat":%d,"exp":%d}`, m.Issuer, unix, unix+3600))
	if machine.Reveal() != want {
		t.Errorf("\n got %s\nwant %s", machine.Reveal(), want)
	}
	if claims != (token.Claims{Service: "web", Organization: "main", IssuedAt: unix * 1000, ExpiresAt: (unix + 3600) * 1000}) {
		t.Errorf("%+v", claims)
	}
	for what, s := range map[string]zone.Secret{"person": person, "machine": machine} {
		got, err := k.Read(s, now)
		if err != nil || (got.Operator == "") != (what == "machine") || (got.Service == "") != (what == "person") {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		if len(s.Reveal()) > zone.MaxToken/2 {
			t.Errorf("%s: a token has %d bytes", what, len(s.Reveal()))
		}
	}
	longest := strings.Repeat("a", zone.MaxID)
	s, _, err := k.Machine(zone.ServiceID(longest), zone.OrganizationID(longest), 1<<53-1, now)
	if got, err2 := k.Read(s, now); err != nil || err2 != nil || string(got.Service) != longest {
		t.Errorf("the longest ids: %v, %v", err, err2)
	}
	for _, bad := range []zone.OperatorID{"", "A", "a\"b"} {
		if s, _, err := k.Operator(bad, 1, now); err == nil || !s.IsZero() {
			t.Errorf("a token for %q", bad)
		}
	}
	if s, _, err := k.Operator("a", -1, now); err == nil || !s.IsZero() {
		t.Error("a token of generation -1")
	}
}

// A token is over at its exp exactly, and one from the future waits until a minute
// is left.
func TestO25TokensEndOnTime(t *testing.T) {
	_, k := folder(t, 2)
	person, _, _ := k.Operator("a", 1, now)
	machine, _, _ := k.Machine("a", "b", 1, now)
	for _, c := range []struct {
		what  string
		token zone.Secret
		after time.Duration
		want  error
	}{
		{"person, at once", person, 0, nil},
		{"person, at the end", person, 12*time.Hour - time.Nanosecond, nil},
		{"person, over", person, 12 * time.Hour, token.ErrExpired},
		{"person, long over", person, 1000 * 24 * time.Hour, token.ErrExpired},
		{"person, clock set back a little", person, -time.Minute, nil},
		{"person, clock set back", person, -time.Minute - time.Nanosecond, token.ErrEarly},
		{"machine, at the end", machine, time.Hour - time.Nanosecond, nil},
		{"machine, over", machine, time.Hour, token.ErrExpired},
		{"machine, clock set back", machine, -time.Hour, token.ErrEarly},
	} {
		if _, err := k.Read(c.token, now.Add(c.after)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}

func TestO25HostileTokens(t *testing.T) {
	dir, k := folder(t, 3)
	o, m := readKey(t, filepath.Join(dir, token.OperatorFile)), readKey(t, filepath.Join(dir, token.MachineFile))
	_, others := folder(t, 4)
	good := `{"alg":"EdDSA","kid":"` + o.kid() + `","typ":"operator+jwt"}`
	goodM := `{"alg":"EdDSA","kid":"` + m.kid() + `","typ":"machine+jwt"}`
	claims := fmt.Sprintf(`{"iss":"%s","aud":"zone-operator","sub":"admin","gen":1,"iat":%d,"exp":%d}`, o.Issuer, unix, unix+3600)
	claimsM := fmt.Sprintf(`{"iss":"%s","aud":"zone-machine","sub":"web","org":"main","gen":1,"iat":%d,"exp":%d}`, m.Issuer, unix, unix+3600)
	for _, text := range []string{o.sign(good, claims), m.sign(goodM, claimsM)} {
		if _, err := k.Read(zone.Conceal(text), now); err != nil {
			t.Fatalf("the control is refused: %v", err)
		}
	}
	replace := func(s, old, new string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("%q is not in %q", old, s)
		}
		return strings.Replace(s, old, new, 1)
	}
	hs256 := func(secret []byte, header string) string {
		text := encode([]byte(header)) + "." + encode([]byte(claims))
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(text))
		return text + "." + encode(h.Sum(nil))
	}
	public := o.private.Public().(ed25519.PublicKey)
	der, _ := x509.MarshalPKIXPublicKey(public)
	body := encode([]byte(claims))
	signed := o.sign(good, claims)
	parts := strings.Split(signed, ".")
	foreign, _, _ := others.Operator("admin", 1, now)

	hostile := map[string]string{
		"nothing":                   "",
		"dots":                      "..",
		"many dots":                 strings.Repeat(".", zone.MaxToken),
		"huge":                      signed + strings.Repeat("A", 1<<20),
		"too long, else good":       o.sign(good, replace(claims, `{"iss"`, `{`+strings.Repeat(" ", 1500)+`"iss"`)),
		"alg none":                  encode([]byte(`{"alg":"none","typ":"operator+jwt"}`)) + "." + body + ".",
		"alg none, its kid":         encode([]byte(replace(good, "EdDSA", "none"))) + "." + body + ".",
		"alg None, a signature":     o.sign(replace(good, "EdDSA", "None"), claims),
		"good header, no signature": parts[0] + "." + parts[1] + ".",
		"HS256 by the public key":   hs256(public, replace(good, "EdDSA", "HS256")),
		"HS256 by its base64":       hs256([]byte(encode(public)), replace(good, "EdDSA", "HS256")),
		"HS256 by its DER":          hs256(der, replace(good, "EdDSA", "HS256")),
		"HS256 by its PEM":          hs256(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), replace(good, "EdDSA", "HS256")),
		"HS256, header says EdDSA":  hs256(public, good),
		"alg eddsa":                 o.sign(replace(good, "EdDSA", "eddsa"), claims),
		"alg Ed25519":               o.sign(replace(good, "EdDSA", "Ed25519"), claims),
		"other kid":                 o.sign(replace(good, o.kid(), m.kid()), claims),
		"no kid":                    o.sign(`{"alg":"EdDSA","typ":"operator+jwt"}`, claims),
		"typ JWT":                   o.sign(replace(good, "operator+jwt", "JWT"), claims),
		"typ of machines":           o.sign(replace(good, "operator+jwt", "machine+jwt"), claims),
		"crit":                      o.sign(replace(good, `{"alg"`, `{"crit":["b64"],"b64":false,"alg"`), claims),
		"jku":                       o.sign(replace(good, `{"alg"`, `{"jku":"http://127.0.0.1/","alg"`), claims),
		"jwk of its own":            o.sign(replace(good, `{"alg"`, `{"jwk":{"kty":"OKP","crv":"Ed25519","x":"AA"},"alg"`), claims),
		"header in another order":   o.sign(`{"typ":"operator+jwt","alg":"EdDSA","kid":"`+o.kid()+`"}`, claims),
		"header twice":              o.sign(replace(good, `{"alg":"EdDSA"`, `{"alg":"none","alg":"EdDSA"`), claims),
		"signed by the other key":   key{private: m.private}.sign(good, claims),
		"machine, by operators":     o.sign(goodM, claimsM),
		"machine, operators' claim": m.sign(goodM, claims),
		"operator, machines' claim": o.sign(good, claimsM),
		"operator, with org":        o.sign(good, replace(claims, `"gen"`, `"org":"main","gen"`)),
		"machine without org":       m.sign(goodM, replace(claimsM, `"org":"main",`, "")),
		"another controller's":      foreign.Reveal(),
		"issuer of another":         o.sign(good, replace(claims, o.Issuer, m.Issuer)),
		"no issuer":                 o.sign(good, replace(claims, `"iss":"`+o.Issuer+`",`, "")),
		"issuer empty":              o.sign(good, replace(claims, o.Issuer, "")),
		"audience of machines":      o.sign(good, replace(claims, "zone-operator", "zone-machine")),
		"audience a list":           o.sign(good, replace(claims, `"zone-operator"`, `["zone-operator","zone-machine"]`)),
		"no audience":               o.sign(good, replace(claims, `"aud":"zone-operator",`, "")),
		"no subject":                o.sign(good, replace(claims, `"sub":"admin",`, "")),
		"subject no id":             o.sign(good, replace(claims, `"admin"`, `"Admin"`)),
		"subject a list":            o.sign(good, replace(claims, `"admin"`, `["admin"]`)),
		"subject twice":             o.sign(good, replace(claims, `"sub":"admin"`, `"sub":"eve","sub":"admin"`)),
		"capitals":                  o.sign(good, replace(claims, `"sub"`, `"SUB"`)),
		"no generation":             o.sign(good, replace(claims, `"gen":1,`, "")),
		"generation null":           o.sign(good, replace(claims, `"gen":1`, `"gen":null`)),
		"generation half":           o.sign(good, replace(claims, `"gen":1`, `"gen":1.5`)),
		"generation text":           o.sign(good, replace(claims, `"gen":1`, `"gen":"1"`)),
		"generation negative":       o.sign(good, replace(claims, `"gen":1`, `"gen":-1`)),
		"no exp":                    o.sign(good, replace(claims, fmt.Sprintf(`,"exp":%d`, unix+3600), "")),
		"exp null":                  o.sign(good, replace(claims, fmt.Sprint(unix+3600), "null")),
		"exp huge":                  o.sign(good, replace(claims, fmt.Sprint(unix+3600), "1e300")),
		"exp for ever":              o.sign(good, replace(claims, fmt.Sprint(unix+3600), "9007199254740")),
		"lives too long":            o.sign(good, replace(claims, fmt.Sprint(unix+3600), fmt.Sprint(unix+12*3600+1))),
		"machine lives too long":    m.sign(goodM, replace(claimsM, fmt.Sprint(unix+3600), fmt.Sprint(unix+3601))),
		"no iat":                    o.sign(good, replace(claims, fmt.Sprintf(`"iat":%d,`, unix), "")),
		"iat after exp":             o.sign(good, replace(claims, fmt.Sprintf(`"iat":%d`, unix), fmt.Sprintf(`"iat":%d`, unix+3601))),
		"one claim more":            o.sign(good, replace(claims, `"gen"`, `"admin":true,"gen"`)),
		"claims null":               o.sign(good, "null"),
		"claims a list":             o.sign(good, "[]"),
		"claims empty":              o.sign(good, "{}"),
		"claims no JSON":            o.sign(good, "{"),
		"claims twice":              o.sign(good, claims+claims),
		"claims deep":               o.sign(good, strings.Repeat("[", 1000)),
		"padding":                   parts[0] + "." + parts[1] + "." + parts[2] + "==",
		"a line end":                parts[0] + "." + parts[1] + "." + parts[2] + "\n",
		"a line end in the middle":  parts[0] + "." + parts[1][:4] + "\n" + parts[1][4:] + "." + parts[2],
		"a part more":               signed + "." + parts[2],
		"a part less":               parts[0] + "." + parts[1],
		"other last bits":           signed[:len(signed)-1] + next(signed[len(signed)-1]),
		"standard base64":           strings.NewReplacer("-", "+", "_", "/").Replace(signed) + "+",
		"Bearer":                    "Bearer " + signed,
	}
	for what, text := range hostile {
		got, err := k.Read(zone.Conceal(text), now)
		if !errors.Is(err, token.ErrToken) || got != (token.Claims{}) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		if err != nil && (strings.Contains(err.Error(), "admin") || strings.Contains(err.Error(), "eyJ")) {
			t.Errorf("%s: the error repeats the token: %v", what, err)
		}
	}
	// Any one letter changed.
	for i := range signed {
		text := signed[:i] + next(signed[i]) + signed[i+1:]
		if _, err := k.Read(zone.Conceal(text), now); !errors.Is(err, token.ErrToken) {
			t.Errorf("changed at %d of %d: %v", i, len(signed), err)
		}
	}
	// What is over is told from what is forged only to whoever holds a real one.
	over := replace(claims, fmt.Sprintf(`"iat":%d,"exp":%d`, unix, unix+3600), `"iat":1,"exp":2`)
	for text, want := range map[string]error{
		o.sign(good, over):                       token.ErrExpired,
		key{private: m.private}.sign(good, over): token.ErrToken,
	} {
		if _, err := k.Read(zone.Conceal(text), now); !errors.Is(err, want) {
			t.Errorf("over: %v, want %v", err, want)
		}
	}
}

// next is another letter of base64url.
func next(c byte) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(letters[(strings.IndexByte(letters, c)+1)%len(letters)])
}

func FuzzRead(f *testing.F) {
	dir, k := folder(f, 5)
	o := readKey(f, filepath.Join(dir, token.OperatorFile))
	person, _, _ := k.Operator("admin", 1, now)
	machine, _, _ := k.Machine("web", "main", 1, now)
	header, _, _ := strings.Cut(person.Reveal(), ".")
	raw, _ := base64.RawURLEncoding.DecodeString(header)
	f.Add(person.Reveal(), "{}", true)
	f.Add(machine.Reveal(), fmt.Sprintf(`{"iss":"%s","aud":"zone-operator","sub":"admin","gen":1,"iat":%d,"exp":%d}`, o.Issuer, unix, unix+3600), true)
	f.Fuzz(func(t *testing.T, text, claims string, signed bool) {
		own := []string{person.Reveal(), machine.Reveal()}
		if signed { // also what only the right key could say
			text = o.sign(string(raw), claims)
		}
		got, err := k.Read(zone.Conceal(text), now)
		switch {
		case err != nil && got != token.Claims{}:
			t.Errorf("%+v beside %v", got, err)
		case err == nil && !signed && !slices.Contains(own, text):
			t.Errorf("forged: %q", text)
		case err == nil && (!zone.ValidID(string(got.Operator)+string(got.Service)) || got.ExpiresAt <= zone.At(now) || got.ExpiresAt-got.IssuedAt > 12*3600*1000):
			t.Errorf("%+v of %q", got, text)
		}
	})
}

func TestKeysAreMadeOnceAndStay(t *testing.T) {
	dir, k := folder(t, 6)
	before := map[string][]byte{}
	for _, name := range []string{token.OperatorFile, token.MachineFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		before[name], _ = os.ReadFile(filepath.Join(dir, name))
	}
	person, _, _ := k.Operator("admin", 1, now)
	again, err := token.Open(dir, random(9), now.Add(time.Hour)) // other randomness, which nobody needs
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Read(person, now); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	for name, b := range before {
		if after, _ := os.ReadFile(filepath.Join(dir, name)); !bytes.Equal(after, b) {
			t.Errorf("%s was written over", name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%d files, %v", len(entries), err)
	}
	// A key that is gone ends its own tokens and no others.
	machine, _, _ := k.Machine("web", "main", 1, now)
	if err := os.Remove(filepath.Join(dir, token.OperatorFile)); err != nil {
		t.Fatal(err)
	}
	if again, err = token.Open(dir, random(7), now); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Read(person, now); !errors.Is(err, token.ErrToken) {
		t.Errorf("a token of a key that is gone: %v", err)
	}
	if _, err := again.Read(machine, now); err != nil {
		t.Errorf("a machine's: %v", err)
	}
}

func TestOfSeveralThatMakeKeysOneWins(t *testing.T) {
	dir, _ := folder(t, 1)
	_ = os.Remove(filepath.Join(dir, token.OperatorFile))
	_ = os.Remove(filepath.Join(dir, token.MachineFile))
	var wg sync.WaitGroup
	keys := make([]*token.Keys, 8)
	for i := range keys {
		wg.Go(func() {
			k, err := token.Open(dir, random(byte(i)), now)
			if err != nil {
				t.Error(err)
			}
			keys[i] = k
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for i, k := range keys {
		s, _, err := k.Operator("admin", 1, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keys[0].Read(s, now); err != nil {
			t.Errorf("%d has another key: %v", i, err)
		}
	}
}

func TestDamagedKeyFilesAreRefusedAndStay(t *testing.T) {
	dir, _ := folder(t, 8)
	path, machine := filepath.Join(dir, token.OperatorFile), filepath.Join(dir, token.MachineFile)
	good, _ := os.ReadFile(path)
	foreign, _ := os.ReadFile(machine)
	k := readKey(t, path)
	text := string(good)
	other := ed25519.NewKeyFromSeed(make([]byte, 32))
	for what, content := range map[string]string{
		"empty":           "",
		"cut":             text[:len(text)-9],
		"long":            text + strings.Repeat(" ", 2000),
		"twice":           text + text,
		"of machines":     string(foreign),
		"no JSON":         "-----BEGIN PRIVATE KEY-----\n",
		"other version":   strings.Replace(text, `"version":1`, `"version":2`, 1),
		"other private":   strings.Replace(text, k.PrivateKey, encode(other.Seed()), 1),
		"other public":    strings.Replace(text, k.PublicKey, encode(other.Public().(ed25519.PublicKey)), 1),
		"private padded":  strings.Replace(text, k.PrivateKey, k.PrivateKey+"=", 1),
		"private short":   strings.Replace(text, k.PrivateKey, k.PrivateKey[:40], 1),
		"issuer short":    strings.Replace(text, k.Issuer, k.Issuer[:30], 1),
		"issuer capitals": strings.Replace(text, k.Issuer, strings.ToUpper(k.Issuer), 1),
		"issuer no hex":   strings.Replace(text, k.Issuer, strings.Repeat("g", 32), 1),
		"one more":        strings.Replace(text, `{"version"`, `{"x":1,"version"`, 1),
	} {
		if content == text {
			t.Fatalf("%s: nothing was changed", what)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := token.Open(dir, random(1), now)
		if !errors.Is(err, token.ErrKeyFile) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), k.PrivateKey[:8]) {
			t.Errorf("%s: the error shows the key", what)
		}
		if after, _ := os.ReadFile(path); string(after) != content {
			t.Errorf("%s: the file was changed", what)
		}
	}
	_ = os.WriteFile(path, good, 0o600)
	if _, err := token.Open(dir, random(1), now); err != nil {
		t.Errorf("the control: %v", err)
	}
	for _, name := range []string{path, machine} {
		if err := os.Chmod(name, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := token.Open(dir, random(1), now); !errors.Is(err, keyfile.ErrOpen) {
			t.Errorf("open to others: %v", err)
		}
		_ = os.Chmod(name, 0o600)
	}
	_ = os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := token.Open(dir, random(1), now); !errors.Is(err, keyfile.ErrUnreadable) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := token.Open(filepath.Join(dir, "none"), random(1), now); !errors.Is(err, keyfile.ErrUnreadable) {
		t.Errorf("no folder: %v", err)
	}
	if runtime.GOOS != "windows" {
		if _, err := token.Open(t.TempDir(), strings.NewReader("short"), now); err == nil {
			t.Error("a key of too little randomness")
		}
	}
}

func TestF06KeysAreNotPrinted(t *testing.T) {
	dir, k := folder(t, 10)
	o := readKey(t, filepath.Join(dir, token.OperatorFile))
	var said strings.Builder
	for _, v := range []any{k, *k, struct{ K *token.Keys }{k}, []any{k}} {
		fmt.Fprintf(&said, "%v %+v %#v %x %d\n", v, v, v, v, v)
		b, _ := json.Marshal(v)
		said.Write(b)
	}
	for _, form := range []string{o.PrivateKey[:8], fmt.Sprintf("%x", o.private.Seed()[:4]), strings.Trim(fmt.Sprint(o.private.Seed()[:4]), "[]")} {
		if strings.Contains(said.String(), form) {
			t.Errorf("%s is in %s", form, said.String())
		}
	}
}
