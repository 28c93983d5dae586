package ai_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/signing"
)

// vectorKeys are the key sets of keys.json by name.
func vectorKeys(t *testing.T) map[string]key.DeviceKeys {
	t.Helper()
	keys := map[string]key.DeviceKeys{}
	for _, v := range first.load(t, "keys.json") {
		if v.Kind != "keys" {
			continue
		}
		var c struct {
			Key    string
			Stored json.RawMessage
		}
		v.decode(t, &c)
		k, err := key.ParseFile[key.DeviceRole](c.Stored)
		if err != nil {
			t.Fatal(err)
		}
		keys[c.Key] = k
	}
	if len(keys) != 4 {
		t.Fatalf("keys.json holds %d key sets, recorded were 4", len(keys))
	}
	return keys
}

// identityOf is the signing key that a case names or writes out; the zero key,
// which verifies nothing, for a text that is no key.
func identityOf(keys map[string]key.DeviceKeys, text string) key.SigningPublic {
	if k, ok := keys[text]; ok {
		return k.Identity().Signing()
	}
	p, _ := key.ParseSigningPublic(text)
	return p
}

func runKeys(t *testing.T, _ *recording, v vector) (got, want any) {
	var c struct {
		Key, Fingerprint, KeyID   string
		IdentityPublic, Signature string
		DataB64                   string
		OK                        bool
		Stored                    json.RawMessage
		Identity                  struct{ Identity, Encryption, EncryptionSig string }
		PublicIdentity            struct{ Identity, Encryption, EncryptionSig string }
	}
	v.decode(t, &c)
	data, err := base64.StdEncoding.DecodeString(c.DataB64)
	if err != nil {
		t.Fatal(err)
	}
	switch v.Kind {
	case "keys":
		k, err := key.ParseFile[key.DeviceRole](c.Stored)
		if err != nil {
			t.Fatal(err)
		}
		content, err := key.MarshalFile(k)
		if err != nil {
			t.Fatal(err)
		}
		p := ai.PublicIdentityOf(k.Identity())
		return []any{anyOf(t, content), p.Identity, p.Encryption, p.EncryptionSig, k.Identity().String()},
			[]any{anyOf(t, c.Stored), c.PublicIdentity.Identity, c.PublicIdentity.Encryption, c.PublicIdentity.EncryptionSig, c.KeyID}
	case "verifyPublicIdentity":
		_, err := ai.PublicIdentity(c.Identity).Device()
		return err == nil, c.OK
	case "fingerprint":
		p, err := key.ParseSigningPublic(c.IdentityPublic)
		if err != nil {
			return "refused", c.Fingerprint
		}
		return p.Fingerprint().String(), c.Fingerprint
	case "signWith":
		sig, err := vectorKeys(t)[c.Key].Signer().Sign(data)
		if err != nil {
			t.Fatal(err)
		}
		return sig.String(), c.Signature
	case "verifyWith":
		sig, err := key.ParseSignature(c.Signature)
		return err == nil && identityOf(nil, c.IdentityPublic).Verify(data, sig), c.OK
	}
	t.Fatalf("unknown kind %q", v.Kind)
	return nil, nil
}

func planeOf(t *testing.T, name string) signing.Plane {
	t.Helper()
	switch name {
	case "daemon":
		return signing.DaemonPlane
	case "site":
		return signing.SitePlane
	}
	t.Fatalf("unknown plane %q", name)
	return 0
}

// recorder remembers what it was asked to sign.
type recorder struct {
	key.Signer
	message []byte
}

func (r *recorder) Sign(message []byte) (key.Signature, error) {
	r.message = bytes.Clone(message)
	return r.Signer.Sign(message)
}

func runSigning(t *testing.T, _ *recording, v vector) (got, want any) {
	var c struct {
		Plane, Key, Identity, Caller string
		Endpoint                     ai.Endpoint
		IssuedAt, Now                float64
		Body                         json.RawMessage
		CanonicalB64                 string
		Signature                    json.RawMessage
		MaxSkewMs                    *float64
		Result                       *string
		Headers                      map[string]string
		Read                         *struct {
			RunnerID  string
			IssuedAt  float64
			Signature string
		}
		PassesSchema bool
	}
	v.decode(t, &c)
	switch v.Kind {
	case "sign":
		at := ai.Millis(c.IssuedAt)
		if float64(at) != c.IssuedAt {
			return "refused", c.CanonicalB64
		}
		rec := &recorder{Signer: vectorKeys(t)[c.Key].Signer()}
		r := signing.Request{Plane: planeOf(t, c.Plane), Endpoint: c.Endpoint, Body: []byte(expandText(t, c.Body))}
		s, err := signing.Sign(rec, r, c.Caller, at)
		if err != nil {
			t.Fatal(err)
		}
		return []string{base64.StdEncoding.EncodeToString(rec.message), s.Value.String()},
			[]string{c.CanonicalB64, string(anyOf(t, c.Signature).(string))}
	case "verify":
		var s struct {
			RunnerID  string
			IssuedAt  float64
			Signature string
		}
		if err := json.Unmarshal(c.Signature, &s); err != nil {
			t.Fatal(err)
		}
		want = c.Result
		sent := map[string]string{
			"X-Byollm-Runner": s.RunnerID, "X-Byollm-Site": s.RunnerID,
			"X-Byollm-Issued-At": strconv.FormatInt(int64(s.IssuedAt), 10), "X-Byollm-Signature": s.Signature,
		}
		read, err := signing.ReadHeaders(planeOf(t, c.Plane), func(name string) string { return sent[name] })
		if err != nil {
			// An empty signature is an absent one; the answer on the wire is the
			// same.
			return "bad-signature", want
		}
		window := signing.Window
		if c.MaxSkewMs != nil {
			window = time.Duration(*c.MaxSkewMs) * time.Millisecond
		}
		r := signing.Request{Plane: planeOf(t, c.Plane), Endpoint: c.Endpoint, Body: []byte(expandText(t, c.Body))}
		err = signing.Verify(identityOf(vectorKeys(t), c.Identity), r, read, ai.Millis(c.Now), window)
		switch {
		case err == nil:
			return nil, want
		case errors.Is(err, signing.ErrStale):
			return "stale", want
		case errors.Is(err, signing.ErrSignature):
			return "bad-signature", want
		}
		return err.Error(), want
	case "headers":
		h := http.Header{}
		for name, value := range c.Headers {
			h.Set(name, value)
		}
		type read struct {
			Caller string
			At     float64
		}
		if c.PassesSchema {
			want = read{c.Read.RunnerID, c.Read.IssuedAt}
		}
		s, err := signing.ReadHeaders(signing.DaemonPlane, h.Get)
		if err != nil {
			return nil, want
		}
		return read{s.Caller, float64(s.IssuedAt)}, want
	}
	t.Fatalf("unknown kind %q", v.Kind)
	return nil, nil
}

type envelopeCase struct {
	Sender, Recipient string
	Context           struct {
		JobID                       ai.JobID
		SenderKeyID, RecipientKeyID string
		DeadlineAt                  float64
		Direction                   ai.Direction
	}
	Plaintext                 json.RawMessage
	EphemeralSecretHex        string
	Signature, BodySha256     string
	BodyBytes                 int
	InnerSha256               string
	CiphertextSha256          string
	CiphertextChars           int
	Body, Inner               *string
	Envelope                  *vectorEnvelope
	EnvelopeWithoutCiphertext *vectorEnvelope

	RecipientKeys  json.RawMessage
	SenderIdentity string
	Expected       struct {
		JobID                       ai.JobID
		SenderKeyID, RecipientKeyID string
		Direction                   ai.Direction
	}
	Result struct {
		OK, Throws bool
		Plaintext  *string
		Reason     string
	}
}

type vectorEnvelope struct {
	Ciphertext                  string
	RecipientKeyID, SenderKeyID ai.KeyID
	Direction                   ai.Direction
	DeadlineAt                  float64
}

func runEnvelope(t *testing.T, _ *recording, v vector) (got, want any) {
	var c envelopeCase
	v.decode(t, &c)
	if v.Kind == "seal" {
		return runSeal(t, c)
	}
	return runOpen(t, c)
}

// opener remembers what came out of the box.
type opener struct {
	key.Opener
	message []byte
}

func (o *opener) Open(box []byte) ([]byte, error) {
	message, err := o.Opener.Open(box)
	o.message = message
	return message, err
}

func runSeal(t *testing.T, c envelopeCase) (got, want any) {
	type sealed struct {
		Body, Inner, Ciphertext string // hashes
		BodyBytes, Chars        int
		Signature               string
		Labels                  vectorEnvelope
	}
	recorded := c.EnvelopeWithoutCiphertext
	if recorded == nil {
		recorded = c.Envelope
	}
	labels := *recorded
	labels.Ciphertext = ""
	w := sealed{c.BodySha256, c.InnerSha256, c.CiphertextSha256, c.BodyBytes, c.CiphertextChars, c.Signature, labels}
	if float64(ai.Millis(c.Context.DeadlineAt)) != c.Context.DeadlineAt || c.Context.DeadlineAt >= 1<<53 {
		return "refused", w
	}
	keys := vectorKeys(t)
	secret, err := hex.DecodeString(c.EphemeralSecretHex)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{Signer: keys[c.Sender].Signer()}
	env, err := envelope.Seal(bytes.NewReader(secret), rec, keys[c.Recipient].Identity(), envelope.Letter{
		JobID: c.Context.JobID, Direction: c.Context.Direction,
		DeadlineAt: ai.Millis(c.Context.DeadlineAt), Plaintext: expandText(t, c.Plaintext),
	})
	if err != nil {
		return "refused", w
	}
	op := &opener{Opener: keys[c.Recipient].Opener()}
	opened, err := envelope.Open(op, keys[c.Sender].Identity().Signing(), env, envelope.Context{
		JobID: c.Context.JobID, Direction: c.Context.Direction,
		Sender: keys[c.Sender].Identity().Fingerprint(), Recipient: keys[c.Recipient].Identity().Fingerprint(),
	})
	if err != nil || opened.Plaintext != expandText(t, c.Plaintext) {
		t.Errorf("what was sealed does not open: %v", err)
	}
	sig, err := keys[c.Sender].Signer().Sign(rec.message)
	if err != nil {
		t.Fatal(err)
	}
	g := sealed{hash(rec.message), hash(op.message), hash([]byte(env.Ciphertext)), len(rec.message), len(env.Ciphertext), sig.String(),
		vectorEnvelope{"", env.RecipientKeyID, env.SenderKeyID, env.Direction, float64(env.DeadlineAt)}}
	if c.Body != nil && g == w && (string(rec.message) != *c.Body || string(op.message) != *c.Inner || env.Ciphertext != c.Envelope.Ciphertext) {
		t.Error("hashes agree and texts do not")
	}
	return g, w
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func runOpen(t *testing.T, c envelopeCase) (got, want any) {
	type answer struct{ Plaintext, Reason string }
	var w answer
	switch {
	case c.Result.Throws:
		w.Reason = "malformed or context-mismatch" // decided in the vectors' README
	case c.Result.OK:
		w.Plaintext = *c.Result.Plaintext
	default:
		w.Reason = c.Result.Reason
	}
	keys := vectorKeys(t)
	var name string
	var op key.Opener
	if json.Unmarshal(c.RecipientKeys, &name) == nil {
		op = keys[name].Opener()
	} else if k, err := key.ParseFile[key.DeviceRole](c.RecipientKeys); err == nil {
		op = k.Opener()
	} else {
		// No key comes out of a damaged file, so nothing opens.
		return answer{Reason: "unopenable"}, w
	}
	sender, err1 := key.ParseFingerprint(c.Expected.SenderKeyID)
	recipient, err2 := key.ParseFingerprint(c.Expected.RecipientKeyID)
	if err1 != nil || err2 != nil {
		t.Fatalf("the expected key ids are none: %v %v", err1, err2)
	}
	e := c.Envelope
	opened, err := envelope.Open(op, identityOf(keys, c.SenderIdentity), ai.SealedEnvelope{
		Ciphertext: e.Ciphertext, RecipientKeyID: e.RecipientKeyID, SenderKeyID: e.SenderKeyID,
		Direction: e.Direction, DeadlineAt: ai.Millis(e.DeadlineAt),
	}, envelope.Context{JobID: c.Expected.JobID, Sender: sender, Recipient: recipient, Direction: c.Expected.Direction})
	if err == nil {
		return answer{Plaintext: opened.Plaintext}, w
	}
	if opened != (envelope.Opened{}) {
		t.Error("an error came with a value that is not zero")
	}
	for kind, reason := range map[error]string{
		envelope.ErrNotForUs: "not-for-us", envelope.ErrUnopenable: "unopenable", envelope.ErrMalformed: "malformed",
		envelope.ErrSignature: "bad-signature", envelope.ErrContext: "context-mismatch",
	} {
		if errors.Is(err, kind) {
			if c.Result.Throws && (reason == "malformed" || reason == "context-mismatch") {
				reason = w.Reason
			}
			return answer{Reason: reason}, w
		}
	}
	t.Fatalf("unnamed error: %v", err)
	return nil, nil
}
