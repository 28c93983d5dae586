package key_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
)

// textForm is one of the three types that have a base64url text.
type textForm struct {
	name string
	size int
	// parse returns the text of the value, whether the value is the zero value,
	// and the error.
	parse func(string) (text string, zero bool, err error)
}

var textForms = []textForm{
	{"SigningPublic", 32, func(s string) (string, bool, error) {
		p, err := key.ParseSigningPublic(s)
		return p.String(), p == key.SigningPublic{}, err
	}},
	{"SealingPublic", 32, func(s string) (string, bool, error) {
		p, err := key.ParseSealingPublic(s)
		return p.String(), p == key.SealingPublic{}, err
	}},
	{"Signature", 64, func(s string) (string, bool, error) {
		p, err := key.ParseSignature(s)
		return p.String(), p == key.Signature{}, err
	}},
}

func TestTextFormsAreExact(t *testing.T) {
	for _, f := range textForms {
		t.Run(f.name, func(t *testing.T) {
			// All bits set, so that the text has symbols that the two alphabets
			// of base64 write differently.
			raw := bytes.Repeat([]byte{0xfb, 0xff}, f.size/2)
			good := base64.RawURLEncoding.EncodeToString(raw)
			if !strings.ContainsAny(good, "-_") {
				t.Fatal("the example shows nothing about the alphabet")
			}
			if text, zero, err := f.parse(good); text != good || zero || err != nil {
				t.Errorf("%q is read as %q, %v", good, text, err)
			}
			if want := map[int]int{32: 43, 64: 86}[f.size]; len(good) != want {
				t.Errorf("the text has %d symbols, want %d", len(good), want)
			}
			last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", good[len(good)-1])
			bad := map[string]string{
				"empty":               "",
				"padding":             good + strings.Repeat("=", 3-f.size%3),
				"more padding":        good + "====",
				"standard alphabet":   base64.RawStdEncoding.EncodeToString(raw),
				"standard, padded":    base64.StdEncoding.EncodeToString(raw),
				"hex":                 hex.EncodeToString(raw),
				"a byte short":        base64.RawURLEncoding.EncodeToString(raw[1:]),
				"a byte long":         base64.RawURLEncoding.EncodeToString(append([]byte{1}, raw...)),
				"a symbol short":      good[:len(good)-1],
				"a symbol long":       good + "A",
				"twice":               good + good,
				"newline after":       good + "\n",
				"newline before":      "\n" + good,
				"newline inside":      good[:20] + "\n" + good[20:],
				"CRLF inside":         good[:20] + "\r\n" + good[20:],
				"CR inside":           good[:20] + "\r" + good[20:],
				"newline as a symbol": good[:20] + "\n" + good[21:],
				"CRLF as two symbols": good[:20] + "\r\n" + good[22:],
				"CR as the last":      good[:len(good)-1] + "\r",
				"newline first":       "\n" + good[1:],
				"all newlines":        strings.Repeat("\n", len(good)),
				"a space":             good[:20] + " " + good[21:],
				"space around":        " " + good + " ",
				"zero byte":           good[:20] + "\x00" + good[21:],
				"not ASCII":           good[:20] + "é" + good[22:],
				"padding inside":      good[:len(good)-1] + "=",
			}
			// The last symbol holds bits that belong to no byte. Each way to set
			// them would be another text of the same bytes.
			spare := 6 - f.size*8%6
			for i := 1; i < 1<<spare; i++ {
				symbol := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last|i]
				bad["trailing bits "+strconv.Itoa(i)] = good[:len(good)-1] + string(symbol)
			}
			for what, text := range bad {
				if text == good {
					t.Errorf("%s: the example is the good text", what)
				}
				_, zero, err := f.parse(text)
				wantKind(t, what, err, key.ErrText)
				if !zero {
					t.Errorf("%s: an error came with a value that is not zero", what)
				}
			}
		})
	}
}

func TestTextFormsHoldTheBytesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, f := range textForms {
			raw := rapid.SliceOfN(rapid.Byte(), f.size, f.size).Draw(t, f.name)
			want := base64.RawURLEncoding.EncodeToString(raw)
			text, zero, err := f.parse(want)
			if err != nil || text != want || zero != (strings.Trim(want, "A") == "") {
				t.Fatalf("%s: %q is read as %q, zero %v, %v", f.name, want, text, zero, err)
			}
		}
	})
}

func TestPublicHalvesOfPublishedKeys(t *testing.T) {
	k := exampleKeys(t)
	if got := k.Identity().Signing().String(); got != signingText {
		t.Errorf("signing %s, want %s", got, signingText)
	}
	if got := k.Identity().Sealing().String(); got != sealingText {
		t.Errorf("sealing %s, want %s", got, sealingText)
	}
	// The texts above stand for the bytes in the RFCs.
	for text, raw := range map[string]string{signingText: signingHex, sealingText: sealingHex} {
		if got := base64.RawURLEncoding.EncodeToString(unhex(t, raw)); got != text {
			t.Errorf("%s encodes as %s, want %s", raw, got, text)
		}
	}
}

// RFC 8032, section 7.1, tests 1 to 3.
func TestSignaturesOfTheRFC(t *testing.T) {
	for _, c := range []struct{ seed, public, message, signature string }{
		{seedHex, signingHex, "",
			"e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"},
		{"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
			"3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
			"92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"},
		{"c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
			"fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
			"6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"},
	} {
		s := must(key.NewSigning(bytes.NewReader(unhex(t, c.seed))))(t)
		want := base64.RawURLEncoding.EncodeToString(unhex(t, c.public))
		if got := s.Public().String(); got != want {
			t.Errorf("public half %s, want %s", got, want)
		}
		message := unhex(t, c.message)
		sig := sign(t, s, message)
		if got := hex.EncodeToString(must(base64.RawURLEncoding.DecodeString(sig.String()))(t)); got != c.signature {
			t.Errorf("signature %s, want %s", got, c.signature)
		}
		if !s.Public().Verify(message, sig) {
			t.Error("the signature does not verify")
		}
	}
}

func TestVerifyRefusesEverythingElse(t *testing.T) {
	k, other := exampleKeys(t), otherKeys(t, 1)
	message := []byte("a message")
	public := k.Identity().Signing()
	sig := sign(t, k.Signer(), message)
	if !public.Verify(message, sig) {
		t.Fatal("a good signature does not verify")
	}
	for what, ok := range map[string]bool{
		"another key":         other.Identity().Signing().Verify(message, sig),
		"the zero key":        key.SigningPublic{}.Verify(message, sig),
		"another message":     public.Verify([]byte("A message"), sig),
		"a longer message":    public.Verify([]byte("a message."), sig),
		"no message":          public.Verify(nil, sig),
		"the zero signature":  public.Verify(message, key.Signature{}),
		"another's signature": public.Verify(message, sign(t, other.Signer(), message)),
		"zero and zero":       key.SigningPublic{}.Verify(nil, key.Signature{}),
	} {
		if ok {
			t.Errorf("%s verifies", what)
		}
	}
	raw := must(base64.RawURLEncoding.DecodeString(sig.String()))(t)
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			changed := must(key.ParseSignature(base64.RawURLEncoding.EncodeToString(raw)))(t)
			if public.Verify(message, changed) {
				t.Errorf("a signature with bit %d of byte %d turned over verifies", bit, i)
			}
			raw[i] ^= 1 << bit
		}
	}
}

// The zero key is a point of order 4, under which anybody can make signatures
// that crypto/ed25519 accepts. The test makes one, so it would notice if only
// crypto/ed25519 were asked.
func TestZeroKeyVerifiesNoForgedSignature(t *testing.T) {
	// R is the neutral point and S is 0. That fits where the hash of R, key and
	// message is a multiple of 4.
	forged := make([]byte, ed25519.SignatureSize)
	forged[0] = 1
	sig := must(key.ParseSignature(base64.RawURLEncoding.EncodeToString(forged)))(t)
	fitting := 0
	for i := range 64 {
		message := []byte("message " + strconv.Itoa(i))
		if ed25519.Verify(make([]byte, ed25519.PublicKeySize), message, forged) {
			fitting++
		}
		if (key.SigningPublic{}).Verify(message, sig) {
			t.Errorf("the zero key verifies a forged signature of %q", message)
		}
	}
	if fitting == 0 {
		t.Error("no forged signature fits, so the test shows nothing")
	}
}

func TestZeroValuesHaveTextsAndSaySo(t *testing.T) {
	if !(key.SigningPublic{}).IsZero() || !(key.SealingPublic{}).IsZero() || !(key.Fingerprint{}).IsZero() {
		t.Error("a zero value is not zero")
	}
	k := exampleKeys(t).Identity()
	if k.Signing().IsZero() || k.Sealing().IsZero() || k.Fingerprint().IsZero() {
		t.Error("a value is zero")
	}
	if got := (key.Fingerprint{}).String(); got != "" {
		t.Errorf("the zero fingerprint is %q, want nothing", got)
	}
	if got, want := (key.SigningPublic{}).String(), strings.Repeat("A", 43); got != want {
		t.Errorf("the zero key is %q, want %q", got, want)
	}
}

func TestZeroPrivateKeysDoNothing(t *testing.T) {
	if got := (key.Signing{}).Public(); !got.IsZero() {
		t.Errorf("the zero signing key has the public half %v", got)
	}
	if got := (key.Sealing{}).Public(); !got.IsZero() {
		t.Errorf("the zero sealing key has the public half %v", got)
	}
	if sig, err := (key.Signing{}).Sign([]byte("m")); err == nil || sig != (key.Signature{}) {
		t.Errorf("the zero key signed: %v, %v", sig, err)
	}
	if m, err := (key.Sealing{}).Open(make([]byte, 100)); err == nil || m != nil {
		t.Errorf("the zero key opened: %q, %v", m, err)
	}
}

// fingerprintByHand follows the words of the rule with bit arithmetic alone.
func fingerprintByHand(public []byte) string {
	const symbols = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	sum := sha256.Sum256(public)
	number := new(big.Int).SetBytes(sum[:15])
	groups := []string{"BYOLLM"}
	for g := range 6 {
		var group string
		for s := range 4 {
			shift := uint(120 - 5*(4*g+s+1))
			five := new(big.Int).And(new(big.Int).Rsh(number, shift), big.NewInt(31))
			group += string(symbols[five.Int64()])
		}
		groups = append(groups, group)
	}
	return strings.Join(groups, "-")
}

func TestFingerprint(t *testing.T) {
	if got := exampleKeys(t).Identity().Fingerprint().String(); got != fingerprintText {
		t.Errorf("fingerprint %s, want %s", got, fingerprintText)
	}
	seen := map[rune]bool{}
	for i := range 200 {
		raw := sha256.Sum256([]byte{byte(i)}) // any 32 bytes have a fingerprint
		f := signingPublic(t, base64.RawURLEncoding.EncodeToString(raw[:])).Fingerprint()
		if got, want := f.String(), fingerprintByHand(raw[:]); got != want {
			t.Fatalf("fingerprint %s, want %s", got, want)
		}
		read, err := key.ParseFingerprint(f.String())
		if err != nil || read != f {
			t.Errorf("%s is read as %v, %v", f, read, err)
		}
		for _, r := range f.String()[len("BYOLLM-"):] {
			seen[r] = true
		}
	}
	if len(seen) != 33 {
		t.Errorf("the examples use %d of 32 symbols and the dash, so they show too little", len(seen))
	}
}

func TestParseFingerprint(t *testing.T) {
	const good = fingerprintText
	for _, text := range []string{
		good,
		"BYOLLM-0000-0000-0000-0000-0000-0000",
		"BYOLLM-ZZZZ-ZZZZ-ZZZZ-ZZZZ-ZZZZ-ZZZZ",
		"BYOLLM-0123-4567-89AB-CDEF-GHJK-MNPQ",
		"BYOLLM-RSTV-WXYZ-0000-0000-0000-0000",
	} {
		f, err := key.ParseFingerprint(text)
		if err != nil || f.String() != text || f.IsZero() {
			t.Errorf("%q is read as %q, %v", text, f, err)
		}
	}
	bad := map[string]string{
		"empty":               "",
		"prefix only":         "BYOLLM",
		"dashes only":         "------",
		"lower case":          strings.ToLower(good),
		"one lower case":      strings.Replace(good, "3QX1", "3Qx1", 1),
		"lower-case prefix":   strings.Replace(good, "BYOLLM", "byollm", 1),
		"another prefix":      strings.Replace(good, "BYOLLM", "ALLODX", 1),
		"no prefix":           strings.TrimPrefix(good, "BYOLLM-"),
		"empty prefix":        strings.TrimPrefix(good, "BYOLLM"),
		"no dashes":           strings.ReplaceAll(good, "-", ""),
		"spaces for dashes":   strings.ReplaceAll(good, "-", " "),
		"five groups":         good[:len(good)-5],
		"seven groups":        good + "-AAAA",
		"short group":         good[:len(good)-1],
		"long group":          good + "A",
		"short in the middle": strings.Replace(good, "3QX1", "3QX", 1),
		"moved dash":          strings.Replace(good, "3QX1-AJH6", "3QX1A-JH6", 1),
		"empty group":         strings.Replace(good, "3QX1", "", 1),
		"dash at the end":     good + "-",
		"space before":        " " + good,
		"space after":         good + " ",
		"newline after":       good + "\n",
		"I for 1":             strings.Replace(good, "3QX1", "3QXI", 1),
		"L for 1":             strings.Replace(good, "3QX1", "3QXL", 1),
		"O for 0":             strings.Replace(good, "Z1A0", "Z1AO", 1),
		"U":                   strings.Replace(good, "3QX1", "3UX1", 1),
		"in the middle":       strings.Replace(good, "3QX1", "3..1", 1),
		"at the start":        strings.Replace(good, "3QX1", ".QX1", 1),
		"zero byte":           strings.Replace(good, "3QX1", "3\x00X1", 1),
		"not ASCII":           strings.Replace(good, "3QX1", "3é1", 1),
		"not UTF-8":           strings.Replace(good, "3QX1", "3\xff\xfe1", 1),
		"full-width":          strings.Replace(good, "3QX1", "\uff211", 1),
	}
	for i := range 6 { // every group is looked at
		groups := strings.Split(good, "-")
		groups[i+1] = "I234"
		bad["group "+strconv.Itoa(i)] = strings.Join(groups, "-")
	}
	for what, text := range bad {
		f, err := key.ParseFingerprint(text)
		wantKind(t, what, err, key.ErrText)
		if !f.IsZero() {
			t.Errorf("%s: an error came with the value %q", what, f)
		}
	}
	for c := range 256 {
		text := "BYOLLM-0" + string([]byte{byte(c)}) + "00-0000-0000-0000-0000-0000"
		f, err := key.ParseFingerprint(text)
		if want := strings.IndexByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ", byte(c)) >= 0; (err == nil) != want {
			t.Errorf("%q is read as %q, %v", text, f, err)
		}
	}
}

func TestNewKeysReadsAllItNeedsFromTheReader(t *testing.T) {
	var none key.DeviceKeys
	for n := range 64 {
		for _, cause := range []error{io.EOF, errBroken} {
			k, err := key.NewKeys[key.DeviceRole](short(n, cause), created)
			want := cause
			if cause == io.EOF && n%32 != 0 {
				want = io.ErrUnexpectedEOF // the bytes end within a key
			}
			if !errors.Is(err, want) {
				t.Errorf("after %d bytes: error %v, want %v", n, err, want)
			}
			if !k.IsZero() || k.Identity() != none.Identity() || !k.Created().IsZero() || !k.Signer().Public().IsZero() || !k.Opener().Public().IsZero() {
				t.Errorf("after %d bytes: an error came with keys", n)
			}
		}
	}
	for n := range 32 {
		if s, err := key.NewSigning(short(n, errBroken)); !errors.Is(err, errBroken) || !s.Public().IsZero() {
			t.Errorf("signing key from %d bytes: %v", n, err)
		}
		if s, err := key.NewSealing(short(n, errBroken)); !errors.Is(err, errBroken) || !s.Public().IsZero() {
			t.Errorf("sealing key from %d bytes: %v", n, err)
		}
	}
	// One byte at a time is as good as all at once.
	slow := must(key.NewKeys[key.DeviceRole](oneByOne{bytes.NewReader(unhex(t, seedHex+secretHex))}, created))(t)
	if slow.Identity() != exampleKeys(t).Identity() {
		t.Error("a slow reader gave other keys")
	}
	c := &counting{from: bytes.NewReader(make([]byte, 1000))}
	must(key.NewKeys[key.SiteRole](c, created))(t)
	if c.n != 64 {
		t.Errorf("%d bytes were read for a pair of pairs, want 64", c.n)
	}
}

// oneByOne gives one byte for each call.
type oneByOne struct{ from io.Reader }

func (o oneByOne) Read(b []byte) (int, error) { return o.from.Read(b[:min(1, len(b))]) }

// The caller may use the memory of what it gave again, and a message must not
// change under a signature.
func TestKeysKeepNoMemoryOfTheCaller(t *testing.T) {
	buffer := unhex(t, seedHex+secretHex)
	k := must(key.NewKeys[key.DeviceRole](bytes.NewBuffer(buffer), created))(t)
	clear(buffer)
	if got, want := sign(t, k.Signer(), nil), sign(t, exampleKeys(t).Signer(), nil); got != want {
		t.Error("the key changed with the caller's memory")
	}
}

func TestKindsAreRegistered(t *testing.T) {
	all := []*refusal.Kind{key.ErrText, key.ErrBinding, key.ErrWeak, key.ErrUnopenable, key.ErrPrivate, key.ErrNoKey, key.ErrFile}
	if len(key.Kinds.Kinds) != len(all) {
		t.Errorf("%d kinds are registered, want %d", len(key.Kinds.Kinds), len(all))
	}
	status := map[*refusal.Kind]int{key.ErrPrivate: 500, key.ErrNoKey: 500, key.ErrFile: 500}
	for _, k := range all {
		if key.Kinds.Find(k.Name()) != k {
			t.Errorf("%s is not registered", k.Name())
		}
		// What came from outside is a bad request; what is wrong here is not.
		if want := max(status[k], 400); k.Status() != want {
			t.Errorf("%s has the status %d, want %d", k.Name(), k.Status(), want)
		}
	}
}
