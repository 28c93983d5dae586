package envelope_test

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/nacl/secretbox"
	//lint:ignore SA1019 the contract's boxes are libsodium's, and this is their key derivation
	"golang.org/x/crypto/salsa20/salsa"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
)

// keysOf makes the same keys in every run.
func keysOf[R key.Role](t testing.TB, seed string) key.Keys[R] {
	t.Helper()
	k, err := key.NewKeys[R](strings.NewReader(strings.Repeat(seed, 64)[:64]), time.UnixMilli(1))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const deadline = 1_750_000_000_000

// The words of doc.go, put together by hand. Nothing here calls the package
// under test.

type parts struct {
	members   []string // of the signed body, in order
	signer    key.Signer
	signature func(text string) string // replaces the signature's text
	inner     func(body, signature string) string
	to        key.SealingPublic
	ephemeral [32]byte
}

// sealed is the ciphertext of an envelope.
func (p parts) sealed(t testing.TB) string {
	t.Helper()
	text := "{" + strings.Join(p.members, ",") + "}"
	sig, err := p.signer.Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	signature := sig.String()
	if p.signature != nil {
		signature = p.signature(signature)
	}
	body := base64.RawURLEncoding.EncodeToString([]byte(text))
	inner := `{"body":"` + body + `","signature":"` + signature + `"}`
	if p.inner != nil {
		inner = p.inner(body, signature)
	}
	return base64.RawURLEncoding.EncodeToString(box(t, p.ephemeral, p.to, []byte(inner)))
}

// box is crypto_box_seal from its parts.
func box(t testing.TB, ephemeral [32]byte, to key.SealingPublic, message []byte) []byte {
	t.Helper()
	private, err1 := ecdh.X25519().NewPrivateKey(ephemeral[:])
	raw, err2 := base64.RawURLEncoding.DecodeString(to.String())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	public, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := private.ECDH(public)
	if err != nil {
		t.Fatal(err)
	}
	return boxWith(t, private.PublicKey().Bytes(), raw, shared, message)
}

func boxWith(t testing.TB, from, to, shared, message []byte) []byte {
	t.Helper()
	h, err := blake2b.New(24, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Write(from)
	h.Write(to)
	nonce := [24]byte(h.Sum(nil))
	var k [32]byte
	salsa.HSalsa20(&k, new([16]byte), (*[32]byte)(shared), &salsa.Sigma)
	return secretbox.Seal(bytes.Clone(from), message, &nonce, &k)
}

// world is a site that asks a device, and a third party.
type world struct {
	site    key.SiteKeys
	device  key.DeviceKeys
	mallory key.DeviceKeys
}

func newWorld(t testing.TB) world {
	return world{keysOf[key.SiteRole](t, "s"), keysOf[key.DeviceRole](t, "d"), keysOf[key.DeviceRole](t, "m")}
}

// members are those of the signed body of the world's good payload.
func (w world) members() []string {
	return []string{
		`"v":"byollm/v1/envelope"`,
		`"jobId":"job-1"`,
		`"senderKeyId":"` + w.site.Identity().String() + `"`,
		`"recipientKeyId":"` + w.device.Identity().String() + `"`,
		`"deadlineAt":1750000000000`,
		`"direction":"payload"`,
		`"plaintext":"{\"prompt\":\"Ä\\n\"}"`,
	}
}

const (
	plaintext = "{\"prompt\":\"Ä\\n\"}"
	stub      = `"stub":{"kind":"llm.generate","audience":"named","owner":"alice","site":"S"}`
)

var reach = envelope.Reach{Kind: "llm.generate", Audience: "named", Owner: "alice", Site: "S"}

func (w world) parts() parts {
	return parts{members: w.members(), signer: w.site.Signer(), to: w.device.Identity().Sealing(), ephemeral: [32]byte{1, 2, 3}}
}

func (w world) letter() envelope.Letter {
	return envelope.Letter{JobID: "job-1", Direction: ai.DirectionPayload, DeadlineAt: deadline, Plaintext: plaintext}
}

func (w world) context() envelope.Context {
	return envelope.Context{
		JobID: "job-1", Direction: ai.DirectionPayload,
		Sender: w.site.Identity().Fingerprint(), Recipient: w.device.Identity().Fingerprint(),
	}
}

func (w world) envelope(ciphertext string) ai.SealedEnvelope {
	return ai.SealedEnvelope{
		Ciphertext: ciphertext, RecipientKeyID: ai.KeyID(w.device.Identity().String()),
		SenderKeyID: ai.KeyID(w.site.Identity().String()), Direction: ai.DirectionPayload, DeadlineAt: deadline,
	}
}

func (w world) open(env ai.SealedEnvelope) (envelope.Opened, error) {
	return envelope.Open(w.device.Opener(), w.site.Identity().Signing(), env, w.context())
}

// mustRefuse holds that opening failed for exactly that reason and gave nothing.
func mustRefuse(t testing.TB, what string, opened envelope.Opened, err error, want error) {
	t.Helper()
	if err != want { // bare: no detail that could hold what was inside
		t.Errorf("%s: got the error %v, want %v", what, err, want)
	}
	if opened != (envelope.Opened{}) {
		t.Errorf("%s: an error came with a value", what)
	}
}
