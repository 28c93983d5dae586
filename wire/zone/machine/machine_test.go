package machine_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/machine"
)

const (
	bearer   = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
	metadata = `{"serviceId":"s1","organizationId":"org","generation":2,"grant":"platform:session","state":"active","changedAt":1000}`
)

func TestF04MessagesAreExact(t *testing.T) {
	zonetest.Exact(t, machine.MetadataCodec, metadata)
	zonetest.Exact(t, machine.GetCodec, `{"organizationId":"org","serviceId":"s1"}`)
	zonetest.Exact(t, machine.GetAnswerCodec, `{"credential":`+metadata+`}`, `{"credential":null}`)
	zonetest.Exact(t, machine.MutateCodec, `{"operation":"rotate","organizationId":"org","serviceId":"s1","expectedGeneration":2,"grant":"platform:session","mutationId":"m1"}`, `{"operation":"ensure","organizationId":"org","serviceId":"s1","expectedGeneration":null,"grant":"platform:session","mutationId":"m1"}`)
	zonetest.Exact(t, machine.MutateAnswerCodec, `{"credential":`+metadata+`,"replayed":false,"bearer":"`+bearer+`"}`, `{"credential":`+metadata+`,"replayed":true,"bearer":null}`)
	zonetest.Exact(t, machine.ExchangeCodec, `{"bearer":"`+bearer+`"}`)
	zonetest.Exact(t, machine.ExchangeAnswerCodec, `{"jwt":"e30.e30.c2ln","expiresAt":1000}`)
}

func TestF14WhatAMessageMaySay(t *testing.T) {
	mutate := func(operation, expected, grant string) string {
		return `{"operation":"` + operation + `","organizationId":"org","serviceId":"s1","expectedGeneration":` + expected + `,"grant":"` + grant + `","mutationId":"m1"}`
	}
	for src, taken := range map[string]bool{
		mutate("ensure", "null", "platform:session"):  true,
		mutate("rotate", "1", "platform:session"):     true,
		mutate("revoke", "1", "platform:session"):     true,
		mutate("ensure", "1", "platform:session"):     false,
		mutate("ensure", "0", "platform:session"):     false,
		mutate("rotate", "null", "platform:session"):  false,
		mutate("revoke", "null", "platform:session"):  false,
		mutate("rotate", "0", "platform:session"):     false,
		mutate("rotate", "1.5", "platform:session"):   false,
		mutate("rotate", "\"1\"", "platform:session"): false,
		mutate("create", "null", "platform:session"):  false,
		mutate("ensure", "null", "platform:deploy"):   false,
		mutate("ensure", "null", ""):                  false,
	} {
		r, err := machine.MutateCodec.Read([]byte(src))
		if (err == nil) != taken || (len(machine.MutateCodec.Reasons([]byte(src), "")) == 0) != taken {
			t.Errorf("%s: %v", src, err)
		}
		if again, err := machine.MutateCodec.Append(nil, r); taken && (err != nil || string(again) != src) {
			t.Errorf("%s is written as %s, %v", src, again, err)
		}
	}
	revoked := strings.Replace(metadata, "active", "revoked", 1)
	for src, taken := range map[string]bool{
		`{"credential":` + metadata + `,"replayed":true,"bearer":null}`:             true,
		`{"credential":` + revoked + `,"replayed":false,"bearer":null}`:             true,
		`{"credential":` + metadata + `,"replayed":true,"bearer":"` + bearer + `"}`: false,
		`{"credential":` + revoked + `,"replayed":false,"bearer":"` + bearer + `"}`: false,
		`{"credential":` + metadata + `,"replayed":false,"bearer":""}`:              false,
		`{"credential":` + metadata + `,"replayed":false}`:                          false,
		`{"credential":null,"replayed":false,"bearer":null}`:                        false,
	} {
		if _, err := machine.MutateAnswerCodec.Read([]byte(src)); (err == nil) != taken {
			t.Errorf("%s: %v", src, err)
		}
	}
	secret := zone.Conceal(bearer)
	m := machine.Metadata{Service: "s1", Organization: "org", Generation: 1, Grant: machine.PlatformSession, State: machine.Active}
	if text, err := machine.MutateAnswerCodec.Append(nil, machine.MutateAnswer{Credential: m, Replayed: true, Bearer: secret}); err == nil {
		t.Errorf("a repeat with a bearer is written, %d bytes", len(text))
	}
	if a, err := machine.GetAnswerCodec.Read([]byte(`{"credential":null}`)); err != nil || a != (machine.GetAnswer{}) {
		t.Errorf("none: %+v, %v", a, err)
	}
	if text, err := machine.GetAnswerCodec.Append(nil, machine.GetAnswer{}); err != nil || string(text) != `{"credential":null}` {
		t.Errorf("none is written as %s, %v", text, err)
	}
}

func TestF14BearersHaveOneSpelling(t *testing.T) {
	for text, taken := range map[string]bool{
		bearer: true, strings.Repeat("_", 42) + "8": true,
		"": false, bearer[:42]: false, bearer + "A": false, bearer[:42] + "9": false, bearer + "=": false,
		bearer[:42] + "+": false, bearer[:42] + "é": false, bearer[:42] + `\n`: false, bearer[:20] + `\n` + bearer[21:]: false,
	} {
		src := []byte(`{"bearer":"` + text + `"}`)
		e, err := machine.ExchangeCodec.Read(src)
		if (err == nil) != taken || taken && e.Bearer.Reveal() != text {
			t.Errorf("%q: %v", text, err)
		}
	}
	b, err := machine.NewBearer(bytes.NewReader(sequence(40)))
	if err != nil || b.Reveal() != bearer {
		t.Errorf("the bearer of 0, 1, 2... is %q, %v", b.Reveal(), err)
	}
	for _, rand := range []*bytes.Reader{bytes.NewReader(nil), bytes.NewReader(sequence(31))} {
		if b, err := machine.NewBearer(rand); err == nil || !b.IsZero() {
			t.Error("a bearer of too little randomness")
		}
	}
	broken := errors.New("broken")
	if _, err := machine.NewBearer(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("no randomness: %v", err)
	}
}

func TestF06MessagesDoNotPrintSecrets(t *testing.T) {
	secret := zone.Conceal(bearer)
	for _, v := range []any{machine.Exchange{Bearer: secret}, machine.MutateAnswer{Bearer: secret}, machine.ExchangeAnswer{JWT: secret}} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
			text := fmt.Sprintf(format, v)
			if strings.Contains(text, bearer) || strings.Contains(text, hex.EncodeToString([]byte(bearer))) {
				t.Errorf("%T with %s: %s", v, format, text)
			}
		}
	}
	if !strings.Contains(fmt.Sprintf("%v", struct{ Bearer string }{bearer}), bearer) {
		t.Error("the search is blind")
	}
}

func TestF07InputDigest(t *testing.T) {
	sum, err := machine.Mutate{
		Operation: machine.Ensure, Organization: "org", Service: "s1", Grant: machine.PlatformSession, Mutation: "m1",
	}.Input()
	want := sha256.Sum256([]byte("serve.zone/mutation\x00" +
		`{"method":"mutateServiceMachineCredential","request":{"expectedGeneration":null,"grant":"platform:session","mutationId":"m1","operation":"ensure","organizationId":"org","serviceId":"s1"}}`))
	if err != nil || sum.String() != hex.EncodeToString(want[:]) {
		t.Errorf("%s, %v", sum, err)
	}
}

func FuzzMutateAnswer(f *testing.F) {
	f.Add([]byte(`{"credential":` + metadata + `,"replayed":false,"bearer":"` + bearer + `"}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		c := machine.MutateAnswerCodec
		a, err := c.Read(src)
		if (err == nil) != (len(c.Reasons(src, "")) == 0) {
			t.Fatalf("%v, and %q", err, c.Reasons(src, ""))
		}
		if err != nil {
			return
		}
		if a.Replayed && !a.Bearer.IsZero() {
			t.Fatal("a repeat with a bearer")
		}
		if _, err := c.Append(nil, a); err != nil {
			t.Fatalf("what was read is not written: %v", err)
		}
	})
}

func sequence(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}
