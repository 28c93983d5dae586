package ai_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/nacl/secretbox"
	//lint:ignore SA1019 the contract's boxes are libsodium's, and this is their key derivation
	"golang.org/x/crypto/salsa20/salsa"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
)

// Each operation on a message of about 2 KB, and beside it the bare primitives
// on the same data: what is left between the two is ours.

// operation is one thing that a party does for each message.
type operation struct {
	group, name string
	run         func() error
	most        float64 // allocations
}

// bench is the data that all operations share.
type bench struct {
	site   key.SiteKeys
	device key.DeviceKeys

	private   ed25519.PrivateKey // the site's
	deviceBox *ecdh.PrivateKey
	ephemeral []byte

	body     []byte // of a signed request
	request  signing.Request
	signed   signing.Signature
	text     []byte // what that signature covers
	textSign []byte

	letter    envelope.Letter
	context   envelope.Context
	sealed    ai.SealedEnvelope
	inner     []byte // what is in the box
	innerBody []byte // what is signed in it
	bodySign  []byte
	box       []byte

	claim     ai.ClaimResponse
	claimText []byte
	plain     plainClaim
}

// plainClaim is the claim's answer as a JSON library reads it on its own. It
// checks no bounds and no words.
type plainClaim struct {
	Jobs []struct {
		ID         string `json:"id"`
		Kind       string `json:"kind"`
		Owner      string `json:"owner"`
		Site       string `json:"site"`
		Audience   string `json:"audience"`
		SizeClass  string `json:"sizeClass"`
		Streaming  bool   `json:"streaming"`
		DeadlineAt int64  `json:"deadlineAt"`
		Lease      struct {
			ID        string `json:"id"`
			RunnerID  string `json:"runnerId"`
			ExpiresAt int64  `json:"expiresAt"`
		} `json:"lease"`
	} `json:"jobs"`
	LeaseMs int64 `json:"leaseMs"`
}

// witness remembers what it signs and what it opened.
type witness struct {
	key.Signer
	key.Opener
	signed, opened []byte
}

func (r *witness) Public() key.SigningPublic { return r.Signer.Public() }

func (r *witness) Sign(message []byte) (key.Signature, error) {
	r.signed = bytes.Clone(message)
	return r.Signer.Sign(message)
}

// opening is the witness as an opener.
type opening struct{ r *witness }

func (o opening) Public() key.SealingPublic { return o.r.Opener.Public() }

func (o opening) Open(box []byte) ([]byte, error) {
	message, err := o.r.Opener.Open(box)
	o.r.opened = bytes.Clone(message)
	return message, err
}

func newBench(t testing.TB) *bench {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{ephemeral: bytes.Repeat([]byte("e"), 32)}
	var err error
	seed := func(s string) string { return strings.Repeat(s, 64) }
	b.site, err = key.NewKeys[key.SiteRole](strings.NewReader(seed("s")), time.UnixMilli(1))
	must(err)
	b.device, err = key.NewKeys[key.DeviceRole](strings.NewReader(seed("d")), time.UnixMilli(1))
	must(err)
	b.private = ed25519.NewKeyFromSeed([]byte(seed("s")[:32]))
	b.deviceBox, err = ecdh.X25519().NewPrivateKey([]byte(seed("d")[:32]))
	must(err)

	rec := &witness{Signer: b.site.Signer(), Opener: b.device.Opener()}

	b.body = []byte(`{"text":"` + strings.Repeat("t", 2048-11) + `"}`)
	b.request = signing.Request{Plane: signing.SitePlane, Endpoint: "payload", Body: b.body}
	b.signed, err = signing.Sign(rec, b.request, "site_1", 1_750_000_000_000)
	must(err)
	b.text, b.textSign = rec.signed, ed25519.Sign(b.private, rec.signed)

	id := func(k fmt.Stringer) ai.KeyID { return ai.KeyID(k.String()) }
	b.letter = envelope.Letter{
		JobID: "job_0190a4b2", Direction: ai.DirectionPayload, DeadlineAt: 1_750_000_000_000,
		Plaintext: `{"prompt":"` + strings.Repeat("p", 2048-13) + `"}`,
		Reach:     &envelope.Reach{Kind: ai.KindGenerate, Audience: ai.AudienceSelf, Owner: "alice", Site: id(b.site.Identity())},
	}
	b.context = envelope.Context{
		JobID: b.letter.JobID, Direction: b.letter.Direction,
		Sender: b.site.Identity().Fingerprint(), Recipient: b.device.Identity().Fingerprint(),
	}
	b.sealed, err = envelope.Seal(bytes.NewReader(b.ephemeral), rec, b.device.Identity(), b.letter)
	must(err)
	_, err = envelope.Open(opening{rec}, b.site.Identity().Signing(), b.sealed, b.context)
	must(err)
	b.inner, b.innerBody, b.bodySign = rec.opened, rec.signed, ed25519.Sign(b.private, rec.signed)
	b.box, err = base64.RawURLEncoding.DecodeString(b.sealed.Ciphertext)
	must(err)

	for i := range 5 {
		b.claim.Jobs = append(b.claim.Jobs, ai.ClaimedStub{
			Stub: ai.Stub{
				ID: ai.JobID(fmt.Sprintf("job_0190a4b2-7c1d-7e55-9a3b-4f2c8d1e0a%02d", i)), Kind: ai.KindChat,
				Owner: "user_2f1c9b7e-51d4-4a8e", Site: id(b.site.Identity()), Audience: ai.AudienceNamed, SizeClass: ai.SizeSmall,
				DeadlineAt: 1_750_000_000_000,
			},
			Lease: ai.Lease{
				ID: ai.LeaseID(fmt.Sprintf("lease_0190a4b2-7c1d-7e55-9a3b-%012d", i)), RunnerID: "runner_8d1e0a6f-51d4-4a8e-9a3b-4f2c8d1e0a6f",
				ExpiresAt: 1_750_000_060_000,
			},
		})
	}
	b.claim.LeaseMs = 60_000
	b.claimText, err = protocol.Latest().ClaimResponse.Write(b.claim)
	must(err)
	must(json.Unmarshal(b.claimText, &b.plain, json.RejectUnknownMembers(true)))
	for what, text := range map[string][]byte{"request": b.body, "payload": []byte(b.letter.Plaintext), "claim": b.claimText} {
		if len(text) < 1850 || len(text) > 2200 {
			t.Fatalf("the %s has %d bytes", what, len(text))
		}
	}
	return b
}

// failed is a primitive that did not do what it is measured for.
const failed = textError("a primitive failed")

// boxKey agrees on the key of a box and its nonce, by the primitives.
func boxKey(private *ecdh.PrivateKey, peer *ecdh.PublicKey, from, to []byte) (k [32]byte, nonce [24]byte, err error) {
	shared, err := private.ECDH(peer)
	if err != nil {
		return k, nonce, err
	}
	salsa.HSalsa20(&k, new([16]byte), (*[32]byte)(shared), &salsa.Sigma)
	h, err := blake2b.New(len(nonce), nil)
	if err != nil {
		return k, nonce, err
	}
	h.Write(from)
	h.Write(to)
	h.Sum(nonce[:0])
	return k, nonce, nil
}

// operations are what is measured. The bounds on allocations are what was
// measured when they were written; raise one only with a reason.
func operations(t testing.TB) []operation {
	b := newBench(t)
	codec := protocol.Latest()
	public := b.private.Public().(ed25519.PublicKey)
	identity := b.site.Identity().Signing()
	to := b.deviceBox.PublicKey()
	return []operation{
		{"Sign", "allod", func() error {
			_, err := signing.Sign(b.site.Signer(), b.request, "site_1", 1_750_000_000_000)
			return err
		}, 1},
		{"Sign", "primitive", func() error {
			sha256.Sum256(b.body)
			ed25519.Sign(b.private, b.text)
			return nil
		}, 0},
		{"Verify", "allod", func() error {
			return signing.Verify(identity, b.request, b.signed, 1_750_000_000_000, signing.Window)
		}, 1},
		{"Verify", "primitive", func() error {
			sha256.Sum256(b.body)
			if !ed25519.Verify(public, b.text, b.textSign) {
				return failed
			}
			return nil
		}, 0},
		{"Seal", "allod", func() error {
			_, err := envelope.Seal(bytes.NewReader(b.ephemeral), b.site.Signer(), b.device.Identity(), b.letter)
			return err
		}, 32},
		{"Seal", "primitive", func() error {
			ed25519.Sign(b.private, b.innerBody)
			ephemeral, err := ecdh.X25519().NewPrivateKey(b.ephemeral)
			if err != nil {
				return err
			}
			from := ephemeral.PublicKey().Bytes()
			k, nonce, err := boxKey(ephemeral, to, from, to.Bytes())
			if err != nil {
				return err
			}
			secretbox.Seal(from, b.inner, &nonce, &k)
			return nil
		}, 0},
		{"Open", "allod", func() error {
			_, err := envelope.Open(b.device.Opener(), identity, b.sealed, b.context)
			return err
		}, 35},
		{"Open", "primitive", func() error {
			from, err := ecdh.X25519().NewPublicKey(b.box[:32])
			if err != nil {
				return err
			}
			k, nonce, err := boxKey(b.deviceBox, from, b.box[:32], to.Bytes())
			if err != nil {
				return err
			}
			if _, ok := secretbox.Open(nil, b.box[32:], &nonce, &k); !ok || !ed25519.Verify(public, b.innerBody, b.bodySign) {
				return failed
			}
			return nil
		}, 0},
		{"Parse", "allod", func() error {
			_, err := codec.ClaimResponse.Read(b.claimText)
			return err
		}, 57},
		{"Parse", "valid", func() error { // reads nothing, only says whether it is JSON
			if !jsontext.Value(b.claimText).IsValid() {
				return failed
			}
			return nil
		}, 0},
		{"Parse", "unmarshal", func() error {
			var c plainClaim
			return json.Unmarshal(b.claimText, &c, json.RejectUnknownMembers(true))
		}, 0},
		{"Encode", "allod", func() error {
			_, err := codec.ClaimResponse.Write(b.claim)
			return err
		}, 17},
		{"Encode", "marshal", func() error {
			_, err := json.Marshal(&b.plain)
			return err
		}, 0},
		{"Hash", "primitive", func() error {
			sha256.Sum256(b.body)
			return nil
		}, 0},
	}
}

func benchmark(b *testing.B, group string) {
	for _, op := range operations(b) {
		if op.group != group {
			continue
		}
		b.Run(op.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := op.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSign(b *testing.B)   { benchmark(b, "Sign") }
func BenchmarkVerify(b *testing.B) { benchmark(b, "Verify") }
func BenchmarkSeal(b *testing.B)   { benchmark(b, "Seal") }
func BenchmarkOpen(b *testing.B)   { benchmark(b, "Open") }
func BenchmarkParse(b *testing.B)  { benchmark(b, "Parse") }
func BenchmarkEncode(b *testing.B) { benchmark(b, "Encode") }
func BenchmarkHash(b *testing.B)   { benchmark(b, "Hash") }

// TestPrimitivesAgree holds that both sides of a benchmark do the same work.
func TestPrimitivesAgree(t *testing.T) {
	b := newBench(t)
	if string(b.textSign) != string(rawSignature(t, b.signed.Value)) {
		t.Error("the primitive signs something else")
	}
	ephemeral, err := ecdh.X25519().NewPrivateKey(b.ephemeral)
	if err != nil {
		t.Fatal(err)
	}
	from, to := ephemeral.PublicKey().Bytes(), b.deviceBox.PublicKey()
	k, nonce, err := boxKey(ephemeral, to, from, to.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(secretbox.Seal(from, b.inner, &nonce, &k), b.box) {
		t.Error("the primitive seals something else")
	}
	marshalled, err := json.Marshal(&b.plain)
	if err != nil || !bytes.Equal(marshalled, b.claimText) {
		t.Errorf("the primitive writes something else: %s, %v", marshalled, err)
	}
	for _, op := range operations(t) {
		if err := op.run(); err != nil {
			t.Errorf("%s/%s: %v", op.group, op.name, err)
		}
	}
}

func rawSignature(t *testing.T, s key.Signature) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(s.String())
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestAllocations holds how often each operation of ours allocates. More would
// be felt first where one server serves many devices.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates for itself")
	}
	for _, op := range operations(t) {
		if op.name != "allod" {
			continue
		}
		got := testing.AllocsPerRun(100, func() {
			if err := op.run(); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %v", op.group, got)
		if got > op.most {
			t.Errorf("%s allocates %v times, allowed are %v", op.group, got, op.most)
		}
	}
}
