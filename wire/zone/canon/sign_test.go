package canon_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
)

// key is the first key of RFC 8032, section 7.1.
var key = ed25519.NewKeyFromSeed(must(hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")))

var public = key.Public().(ed25519.PublicKey)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const (
	authority  = `{"revision":3,"id":"network-1"}`
	projection = ` { "networks" : [ ], "generation" : 7 } `
	// signed is what the signature covers, and signature what Node 20 makes of it.
	signed    = `{"authority":{"id":"network-1","revision":3},"domain":"serve.zone/runtime-network-projection-signature","projection":{"generation":7,"networks":[]}}`
	signature = "-yzv09jBg1TvdXj0KMdYngRzxW6htDA1KHRUMBv2YKrnyRwyWJsrUvonSyvQipR26RknrU2rE5qAHjfmyJObDA"
)

func TestF05GoldenSignature(t *testing.T) {
	if by := ed25519.Sign(key, []byte(signed)); base64.RawURLEncoding.EncodeToString(by) != signature {
		t.Errorf("the signature of the written text is %s", base64.RawURLEncoding.EncodeToString(by))
	}
	got, err := canon.Sign(key, canon.RuntimeNetworkProjectionSignature, []byte(authority), []byte(projection))
	if err != nil || got != signature {
		t.Errorf("signed as %s, %v, want %s", got, err, signature)
	}
	for _, spelling := range []struct{ authority, projection string }{
		{authority, projection},
		{`{"id":"network-1","revision":3}`, `{"generation":7,"networks":[]}`},
		{"\n{\"\\u0069d\":\"network-1\",\"revision\":3}", `{"networks":[],"generation":7}`},
	} {
		if err := canon.Verify(public, canon.RuntimeNetworkProjectionSignature, []byte(spelling.authority), []byte(spelling.projection), signature); err != nil {
			t.Errorf("%s is not verified: %v", spelling.projection, err)
		}
	}
}

func TestF05SignatureIsOfOneText(t *testing.T) {
	verify := func(k ed25519.PublicKey, d canon.Domain, a, p, s string) error {
		return canon.Verify(k, d, []byte(a), []byte(p), s)
	}
	d := canon.RuntimeNetworkProjectionSignature
	raw := must(base64.RawURLEncoding.DecodeString(signature))
	encode := base64.RawURLEncoding.EncodeToString
	flip := func(i int) string {
		b := append([]byte{}, raw...)
		b[i] ^= 1
		return encode(b)
	}
	// The group's order added to the second half gives other bytes with the same meaning.
	order := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 252), must2(new(big.Int).SetString("27742317777372353535851937790883648493", 10)))
	s := new(big.Int)
	for i := 63; i >= 32; i-- {
		s.Lsh(s, 8).Or(s, big.NewInt(int64(raw[i])))
	}
	s.Add(s, order)
	malleable := append([]byte{}, raw[:32]...)
	for range 32 {
		malleable = append(malleable, byte(new(big.Int).And(s, big.NewInt(255)).Int64()))
		s.Rsh(s, 8)
	}
	other := ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)
	for name, err := range map[string]error{
		"another document":              verify(public, d, authority, `{"networks":[],"generation":8}`, signature),
		"a member more":                 verify(public, d, authority, `{"networks":[],"generation":7,"more":null}`, signature),
		"another authority":             verify(public, d, `{"id":"network-1","revision":4}`, projection, signature),
		"the two exchanged":             verify(public, d, projection, authority, signature),
		"another domain":                verify(public, canon.Mutation, authority, projection, signature),
		"another key":                   verify(other, d, authority, projection, signature),
		"no key":                        verify(nil, d, authority, projection, signature),
		"a short key":                   verify(public[:31], d, authority, projection, signature),
		"a long key":                    verify(append(append(ed25519.PublicKey{}, public...), 0), d, authority, projection, signature),
		"no signature":                  verify(public, d, authority, projection, ""),
		"a bit of the first half":       verify(public, d, authority, projection, flip(0)),
		"a bit of the second half":      verify(public, d, authority, projection, flip(40)),
		"the order added":               verify(public, d, authority, projection, encode(malleable)),
		"zeros":                         verify(public, d, authority, projection, encode(make([]byte, 64))),
		"a byte less":                   verify(public, d, authority, projection, encode(raw[:63])),
		"a byte more":                   verify(public, d, authority, projection, encode(append(append([]byte{}, raw...), 0))),
		"padding":                       verify(public, d, authority, projection, signature+"=="),
		"the other alphabet":            verify(public, d, authority, projection, base64.RawStdEncoding.EncodeToString(raw)),
		"bits behind the end":           verify(public, d, authority, projection, signature[:85]+"B"),
		"a new line within":             verify(public, d, authority, projection, signature[:40]+"\n"+signature[40:]),
		"a new line for a character":    verify(public, d, authority, projection, signature[:40]+"\n"+signature[41:]),
		"a new line behind":             verify(public, d, authority, projection, signature+"\n"),
		"hexadecimal":                   verify(public, d, authority, projection, hex.EncodeToString(raw)),
		"the signature of the document": verify(public, d, authority, projection, encode(ed25519.Sign(key, []byte(`{"generation":7,"networks":[]}`)))),
	} {
		if err != canon.ErrSignature {
			t.Errorf("%s: %v, want %v", name, err, canon.ErrSignature)
		}
	}
	if signature[85] != 'A' || !strings.ContainsAny(signature, "-_") {
		t.Error("the samples of bits behind the end and of the other alphabet say nothing")
	}
}

func must2[T any](v T, ok bool) T {
	if !ok {
		panic("not read")
	}
	return v
}

// TestF05PartsStayParts has parts that are no values of their own, but that would
// make an envelope of another meaning.
func TestF05PartsStayParts(t *testing.T) {
	d := canon.RuntimeNetworkProjectionSignature
	for _, c := range []struct {
		authority, projection string
		want                  error
	}{
		{`{},"more":{}`, `{}`, exact.ErrSyntax},
		{`{}`, `{},"more":{}`, exact.ErrSyntax},
		{`{}`, `{}}`, exact.ErrSyntax},
		{`{}`, `{}}{"a":{}`, exact.ErrSyntax},
		{`{},"projection":{}}`, ``, exact.ErrSyntax},
		{``, `{}`, exact.ErrSyntax},
		{`{}`, ``, exact.ErrSyntax},
		{`{}`, ` `, exact.ErrSyntax},
		{`{"a":1,"a":1}`, `{}`, exact.ErrDuplicate},
		{`{}`, `{"a":1,"\u0061":1}`, exact.ErrDuplicate},
		{`{}`, `{"a":1.0}`, canon.ErrNumber},
		{`{"a":-0}`, `{}`, canon.ErrNumber},
		{`{}`, "\"\xff\"", exact.ErrEncoding},
		{`{}`, strings.Repeat("[", zone.MaxDepth+1) + strings.Repeat("]", zone.MaxDepth+1), exact.ErrTooDeep},
		{`"` + strings.Repeat("x", zone.MaxBytes-1) + `"`, `{}`, exact.ErrTooLarge},
		{`{}`, "[" + strings.Repeat("0,", zone.MaxValues-1) + "0]", exact.ErrTooMany},
	} {
		if s, err := canon.Sign(key, d, []byte(c.authority), []byte(c.projection)); s != "" || !errors.Is(err, c.want) {
			t.Errorf("%.60s and %.60s are signed: %q, %v, want %v", c.authority, c.projection, s, err, c.want)
		}
		if err := canon.Verify(public, d, []byte(c.authority), []byte(c.projection), signature); !errors.Is(err, c.want) {
			t.Errorf("%.60s and %.60s: %v, want %v", c.authority, c.projection, err, c.want)
		}
	}
}

// TestF05WhatHasADigestCanBeSigned has parts as large as a document may be.
func TestF05WhatHasADigestCanBeSigned(t *testing.T) {
	for name, part := range map[string]string{
		"deep":  strings.Repeat("[", zone.MaxDepth) + strings.Repeat("]", zone.MaxDepth),
		"many":  "[" + strings.Repeat("0,", zone.MaxValues-2) + "0]",
		"large": `"` + strings.Repeat("x", zone.MaxBytes-2) + `"`,
	} {
		s, err := canon.Sign(key, canon.RuntimeNetworkProjectionSignature, []byte(part), []byte(part))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := canon.Verify(public, canon.RuntimeNetworkProjectionSignature, []byte(part), []byte(part), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if by := ed25519.Sign(key, []byte(`{"authority":`+part+`,"domain":"serve.zone/runtime-network-projection-signature","projection":`+part+`}`)); base64.RawURLEncoding.EncodeToString(by) != s {
			t.Errorf("%s: another signature by hand", name)
		}
	}
}

func TestF05SignRefusesMistakesOfTheCode(t *testing.T) {
	second := must(ecdsa.ParseRawPrivateKey(elliptic.P256(), append(make([]byte, 31), 1)))
	if s, err := canon.Sign(second, canon.RuntimeNetworkProjectionSignature, []byte(`{}`), []byte(`{}`)); s != "" || !errors.Is(err, refusal.Internal) {
		t.Errorf("another kind of key signs %q, %v", s, err)
	}
	if s, err := canon.Sign(key, canon.Domain{}, []byte(`{}`), []byte(`{}`)); s != "" || !errors.Is(err, refusal.Internal) {
		t.Errorf("signed in no domain: %q, %v", s, err)
	}
	// Somebody signs by hand what the zero domain would give.
	by := base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(`{"authority":{},"domain":"","projection":{}}`)))
	if err := canon.Verify(public, canon.Domain{}, []byte(`{}`), []byte(`{}`), by); !errors.Is(err, refusal.Internal) {
		t.Errorf("verified in no domain: %v", err)
	}
}

func TestF05SignatureProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed")
		k := ed25519.NewKeyFromSeed(seed)
		a, p := drawn(t, 2), drawn(t, 2)
		d := rapid.SampledFrom(canon.Domains()).Draw(t, "domain")
		s, err := canon.Sign(k, d, []byte(write(a)), []byte(write(p)))
		if err != nil {
			t.Fatal(err)
		}
		text := `{"authority":` + write(a) + `,"domain":"` + d.String() + `","projection":` + write(p) + `}`
		if !ed25519.Verify(k.Public().(ed25519.PublicKey), []byte(text), must(base64.RawURLEncoding.DecodeString(s))) {
			t.Fatalf("not the signature of %s", text)
		}
		if err := canon.Verify(k.Public().(ed25519.PublicKey), d, []byte(write(a)), []byte(write(changed(t, p))), s); err != canon.ErrSignature {
			t.Fatalf("another document: %v", err)
		}
		if err := canon.Verify(k.Public().(ed25519.PublicKey), d, []byte(write(changed(t, a))), []byte(write(p)), s); err != canon.ErrSignature {
			t.Fatalf("another authority: %v", err)
		}
	})
}
