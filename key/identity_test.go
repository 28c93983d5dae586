package key_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
)

func TestIdentityOfTheExample(t *testing.T) {
	id := must(key.ParseIdentity[key.DeviceRole](signingText, sealingText, bindingText))(t)
	if id != exampleKeys(t).Identity() {
		t.Error("the keys' identity is another than the one that was made apart")
	}
	if id.Signing().String() != signingText || id.Sealing().String() != sealingText || id.Binding().String() != bindingText {
		t.Errorf("the parts are %s, %s, %s", id.Signing(), id.Sealing(), id.Binding())
	}
	if id.Fingerprint().String() != fingerprintText || id.String() != fingerprintText || fmt.Sprint(id) != fingerprintText {
		t.Errorf("the identity is called %s, %s", id.Fingerprint(), id)
	}
	if id.IsZero() || !(key.Device{}).IsZero() || (key.Device{}).String() != "" {
		t.Error("only the zero value is nobody, and nobody has no name")
	}
}

// boundMessage follows the contract's words: the context, then the text of the
// sealing key.
func boundMessage(sealing string) []byte { return []byte("byollm/v1/encryption-key:" + sealing) }

func TestBindingIsOverTheTextOfTheSealingKey(t *testing.T) {
	private := ed25519.NewKeyFromSeed(unhex(t, seedHex))
	raw := unhex(t, sealingHex)
	text := func(message []byte) string {
		return base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, message))
	}
	if got := exampleKeys(t).Identity().Binding().String(); got != text(boundMessage(sealingText)) {
		t.Errorf("binding %s, want %s", got, text(boundMessage(sealingText)))
	}
	for what, message := range map[string][]byte{
		"the bytes of the key":   append([]byte("byollm/v1/encryption-key:"), raw...),
		"no context":             []byte(sealingText),
		"another version":        []byte("byollm/v2/encryption-key:" + sealingText),
		"no colon":               []byte("byollm/v1/encryption-key" + sealingText),
		"a space after":          []byte("byollm/v1/encryption-key:" + sealingText + " "),
		"padding":                []byte("byollm/v1/encryption-key:" + sealingText + "="),
		"standard base64":        []byte("byollm/v1/encryption-key:" + base64.RawStdEncoding.EncodeToString(raw)),
		"the signing key's text": boundMessage(signingText),
		"nothing":                nil,
	} {
		id, err := key.ParseIdentity[key.DeviceRole](signingText, sealingText, text(message))
		wantKind(t, what, err, key.ErrBinding)
		if !id.IsZero() {
			t.Errorf("%s: an error came with an identity", what)
		}
	}
}

func TestParseIdentityRefusesTamperedParts(t *testing.T) {
	other := otherKeys(t, 1).Identity()
	turned := func(text string, at int) string {
		raw := must(base64.RawURLEncoding.DecodeString(text))(t)
		raw[at] ^= 0x40
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	for what, c := range map[string]struct {
		signing, sealing, binding string
		kind                      *refusal.Kind
	}{
		"another signing key":   {other.Signing().String(), sealingText, bindingText, key.ErrBinding},
		"another sealing key":   {signingText, other.Sealing().String(), bindingText, key.ErrBinding},
		"another binding":       {signingText, sealingText, other.Binding().String(), key.ErrBinding},
		"both keys of another":  {other.Signing().String(), other.Sealing().String(), bindingText, key.ErrBinding},
		"bound by another key":  {signingText, sealingText, sign(t, otherKeys(t, 1).Signer(), boundMessage(sealingText)).String(), key.ErrBinding},
		"signing key changed":   {turned(signingText, 0), sealingText, bindingText, key.ErrBinding},
		"sealing key changed":   {signingText, turned(sealingText, 31), bindingText, key.ErrBinding},
		"binding changed":       {signingText, sealingText, turned(bindingText, 63), key.ErrBinding},
		"keys swapped":          {sealingText, signingText, bindingText, key.ErrBinding},
		"zero signing key":      {strings.Repeat("A", 43), sealingText, bindingText, key.ErrBinding},
		"zero binding":          {signingText, sealingText, strings.Repeat("A", 86), key.ErrBinding},
		"no signing key":        {"", sealingText, bindingText, key.ErrText},
		"no sealing key":        {signingText, "", bindingText, key.ErrText},
		"no binding":            {signingText, sealingText, "", key.ErrText},
		"signing key padded":    {signingText + "=", sealingText, bindingText, key.ErrText},
		"sealing key padded":    {signingText, sealingText + "=", bindingText, key.ErrText},
		"binding padded":        {signingText, sealingText, bindingText + "==", key.ErrText},
		"a key for the binding": {signingText, sealingText, sealingText, key.ErrText},
		"a binding for a key":   {bindingText, sealingText, bindingText, key.ErrText},
	} {
		id, err := key.ParseIdentity[key.DeviceRole](c.signing, c.sealing, c.binding)
		wantKind(t, what, err, c.kind)
		if id != (key.Device{}) {
			t.Errorf("%s: an error came with an identity", what)
		}
	}
}

func TestKeysKnowTheirParts(t *testing.T) {
	k := exampleKeys(t)
	if k.IsZero() || !(key.DeviceKeys{}).IsZero() {
		t.Error("only the zero value is nobody")
	}
	if k.Signer().Public() != k.Identity().Signing() || k.Opener().Public() != k.Identity().Sealing() {
		t.Error("the halves do not belong together")
	}
	message := []byte("signed")
	if !k.Identity().Signing().Verify(message, sign(t, k.Signer(), message)) {
		t.Error("the signer is not the identity's")
	}
	box := must(k.Identity().Sealing().Seal(bytes.NewReader(make([]byte, 32)), message))(t)
	if got := must(k.Opener().Open(box))(t); !bytes.Equal(got, message) {
		t.Errorf("the opener opened %q", got)
	}
}

func TestNewKeysIsAFunctionOfItsArguments(t *testing.T) {
	reader := bytes.NewReader(bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuv"), 4))
	first := must(key.NewKeys[key.DeviceRole](reader, created))(t)
	if reader.Len() != 64 {
		t.Fatalf("%d bytes are left of 128, want 64", reader.Len())
	}
	reader.Reset(bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuv"), 4))
	again := must(key.NewKeys[key.DeviceRole](reader, created))(t)
	if first.Identity() != again.Identity() {
		t.Error("the same bytes gave other keys")
	}
	if (key.DeviceKeys{}).Identity() == first.Identity() || otherKeys(t, 1).Identity() == otherKeys(t, 2).Identity() {
		t.Error("other bytes gave the same keys")
	}
	// The first 32 bytes sign, the second 32 open.
	signing := must(key.NewSigning(bytes.NewReader(unhex(t, seedHex))))(t)
	sealing := must(key.NewSealing(bytes.NewReader(unhex(t, secretHex))))(t)
	id := exampleKeys(t).Identity()
	if signing.Public() != id.Signing() || sealing.Public() != id.Sealing() {
		t.Error("the bytes are used in another order")
	}
}

func TestCreatedIsKeptToTheMillisecondInUTC(t *testing.T) {
	zone := time.FixedZone("east", 5*3600)
	for _, c := range []struct{ given, want time.Time }{
		{created, created},
		{created.Add(999_999), created},
		{created.Add(time.Millisecond), created.Add(time.Millisecond)},
		{created.In(zone), created},
	} {
		k := must(key.NewKeys[key.DeviceRole](bytes.NewReader(make([]byte, 64)), c.given))(t)
		if got := k.Created(); !got.Equal(c.want) || got.Location() != time.UTC {
			t.Errorf("%v is kept as %v, want %v", c.given, got, c.want)
		}
	}
}
