package envelope

import (
	"encoding/base64"
	"errors"
	"io"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// MaxAge is how far ahead of now a sender puts an envelope's deadline.
const MaxAge = 24 * time.Hour

// What this package refuses. [Open] judges in this order.
var (
	ErrNotForUs = refusal.NewKind("envelope-not-for-us", 400,
		"The envelope's labels name another sender, recipient or direction than expected.",
		"Ask the sender to seal to the key that was pinned when the two were paired.")
	ErrUnopenable = refusal.NewKind("envelope-unopenable", 400,
		"The envelope does not open with this key: it was sealed to another key, or it was changed on the way.",
		"Ask the sender to seal it again.")
	ErrMalformed = refusal.NewKind("envelope-malformed", 400,
		"The envelope opens, but what is inside does not have the form of the contract.",
		"Report it to whoever makes the sender's program.")
	ErrSignature = refusal.NewKind("envelope-signature", 400,
		"The envelope is not signed by the sender that was pinned.",
		"Do not use its content. If the sender has a new key, pair again and compare the fingerprints.")
	ErrContext = refusal.NewKind("envelope-context", 400,
		"The envelope was signed for another job, party, direction or deadline.",
		"Do not use its content; whoever carried it may have swapped it.")
	ErrReach = refusal.NewKind("envelope-reach", 403,
		"The job says another kind, audience, owner or site than its sender signed.",
		"Do not run it; whoever carried it may have changed what the job may reach.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Sealed envelopes", Kinds: []*refusal.Kind{
	ErrNotForUs, ErrUnopenable, ErrMalformed, ErrSignature, ErrContext, ErrReach,
}}

// Reach is what a job may reach, as its site signs it. It has four of the
// stub's members.
type Reach struct {
	Kind     ai.Kind
	Audience ai.Audience
	Owner    ai.Owner
	Site     ai.KeyID
}

// ReachOf is the reach that a stub claims.
func ReachOf(s ai.Stub) Reach {
	return Reach{Kind: s.Kind, Audience: s.Audience, Owner: s.Owner, Site: s.Site}
}

// Check returns [ErrReach] unless the stub claims exactly this reach.
func (r Reach) Check(s ai.Stub) error {
	if ReachOf(s) != r {
		return ErrReach
	}
	return nil
}

// Context is what an envelope is bound to.
type Context struct {
	JobID ai.JobID
	// Sender and Recipient are the key ids of the two parties. A site seals to
	// itself what it keeps at rest, and then they are equal.
	Sender    key.Fingerprint
	Recipient key.Fingerprint
	Direction ai.Direction
}

// Letter is what a sender puts into an envelope.
type Letter struct {
	JobID     ai.JobID
	Direction ai.Direction
	// DeadlineAt is when the envelope stops being worth keeping, usually
	// [MaxAge] from now.
	DeadlineAt ai.Millis
	// Plaintext is the payload or the outcome as the codec wrote it. It must be
	// valid UTF-8.
	Plaintext string
	// Reach is what the job may reach. It is nil on results, and on what a site
	// seals to itself. A payload to a device without it opens too, and then its
	// stub is unsigned: Allod's sites always set it.
	Reach *Reach
	// Usage is what a run took; nil where the backend did not count, and on
	// payloads.
	Usage *ai.Usage
	// Instead says that another model than the first choice ran; nil where the first
	// choice did, and on payloads.
	Instead *ai.Instead
}

// Seal signs l as the signer and seals it to a recipient, using 32 bytes of
// rand. It returns rand's and the signer's errors, key.ErrWeak for a recipient
// that nothing can be sealed to, and [ErrMalformed] for a letter that [Open]
// would refuse.
func Seal[R key.Role](rand io.Reader, signer key.Signer, to key.Identity[R], l Letter) (ai.SealedEnvelope, error) {
	env := ai.SealedEnvelope{
		RecipientKeyID: ai.KeyID(to.Fingerprint().String()),
		SenderKeyID:    ai.KeyID(signer.Public().Fingerprint().String()),
		Direction:      l.Direction,
		DeadlineAt:     l.DeadlineAt,
	}
	signed := body{
		v: bodyVersion, jobID: l.JobID, sender: env.SenderKeyID, recipient: env.RecipientKeyID,
		deadlineAt: l.DeadlineAt, direction: l.Direction, plaintext: l.Plaintext, reach: l.Reach, usage: l.Usage, instead: l.Instead,
	}
	if l.Reach != nil && l.Direction == ai.DirectionResult {
		return ai.SealedEnvelope{}, ErrMalformed.With("A result carries no reach.")
	}
	if l.Usage != nil && l.Direction == ai.DirectionPayload {
		return ai.SealedEnvelope{}, ErrMalformed.With("A payload carries no usage.")
	}
	if l.Instead != nil && (l.Direction == ai.DirectionPayload || !l.Instead.Valid()) {
		return ai.SealedEnvelope{}, ErrMalformed.With("Only a result says what ran instead of what, in a model's name and a refusal's.")
	}
	text, err := bodyShape.Append(make([]byte, 0, len(l.Plaintext)+len(l.Plaintext)/8+512), signed)
	if err != nil {
		return ai.SealedEnvelope{}, ErrMalformed.Because(err)
	}
	signature, err := signer.Sign(text)
	if err != nil {
		return ai.SealedEnvelope{}, err
	}
	inner := writeInner(text, signature)
	if len(inner) > limits.Bytes {
		return ai.SealedEnvelope{}, ErrMalformed.With("The letter is too long to be opened again.")
	}
	sealed, err := to.Sealing().Seal(rand, inner)
	if err != nil {
		return ai.SealedEnvelope{}, err
	}
	env.Ciphertext = base64url.EncodeToString(sealed)
	return env, nil
}

// Opened is what an envelope held.
type Opened struct {
	// Plaintext is the payload or the outcome, for the codec to read.
	Plaintext string
	// Reach is nil when the sender signed none.
	Reach *Reach
	// Usage is nil when the sender signed none, and on payloads.
	Usage *ai.Usage
	// Instead is nil when the sender signed none, and on payloads.
	Instead *ai.Instead
}

// Open opens an envelope as opener and verifies it against the pinned identity
// of the sender that want names. Everything it returns was signed by that
// sender for exactly this context. The errors are this package's, without
// detail; the order is labels, box, form, signature, form of the signed body,
// context, plaintext. An opener that fails for a reason of its own, as a key
// store that is away, has that error passed on.
//
// The deadline is compared with the signed one but not with a clock.
func Open(opener key.Opener, sender key.SigningPublic, env ai.SealedEnvelope, want Context) (Opened, error) {
	senderID, recipientID := ai.KeyID(want.Sender.String()), ai.KeyID(want.Recipient.String())
	if env.SenderKeyID != senderID || env.RecipientKeyID != recipientID || env.Direction != want.Direction {
		return Opened{}, ErrNotForUs
	}
	box, err := decode(env.Ciphertext)
	if err != nil {
		return Opened{}, ErrUnopenable
	}
	inside, err := opener.Open(box)
	switch {
	case errors.Is(err, key.ErrUnopenable):
		return Opened{}, ErrUnopenable
	case err != nil:
		return Opened{}, err
	}
	text, signature, err := readInner(inside)
	if err != nil {
		return Opened{}, err
	}
	if !sender.Verify(text, signature) {
		return Opened{}, ErrSignature
	}
	signed, err := readBody(text)
	if err != nil {
		return Opened{}, err
	}
	switch {
	case want.JobID == "" || env.DeadlineAt < 1: // what is absent on both sides is no agreement
		return Opened{}, ErrContext
	case sender.Fingerprint() != want.Sender: // the caller pinned another key than it names
		return Opened{}, ErrContext
	case signed.jobID != want.JobID, signed.sender != senderID, signed.recipient != recipientID,
		signed.deadlineAt != env.DeadlineAt, signed.direction != want.Direction:
		return Opened{}, ErrContext
	case signed.plaintextMissing:
		return Opened{}, ErrMalformed
	}
	opened := Opened{Plaintext: signed.plaintext, Reach: signed.reach}
	if want.Direction == ai.DirectionResult {
		opened.Usage, opened.Instead = signed.usage, signed.instead
	}
	return opened, nil
}

// limits bound what is inside an envelope. The box was bounded by the message
// that carried it, and opening makes it shorter.
var limits = exact.Limits{Bytes: ai.MaxSealedBody, Depth: 8, Values: 1 << 10}

var base64url = base64.RawURLEncoding.Strict()
