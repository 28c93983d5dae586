package grant

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

const (
	// MaxAge is how old a grant may be, inclusive.
	MaxAge = 120 * time.Second
	// MaxAhead is how far a grant's time may lie ahead of the device's clock,
	// inclusive.
	MaxAhead = 30 * time.Second
)

// DefaultPurpose is the purpose of a job whose stub names none.
const DefaultPurpose = "default"

// What this package refuses.
var (
	ErrOwner = refusal.NewKind("grant-owner", 403,
		"The grant is for a device of another owner.",
		"Nothing was run. Pair the device again if it has a new owner; else tell whoever runs the relay.")
	ErrJob = refusal.NewKind("grant-job", 403,
		"The grant is for another job than the one it came with.",
		"Nothing was run. If it happens again, tell whoever runs the relay.")
	ErrAhead = refusal.NewKind("grant-ahead", 403,
		"The grant was given more than half a minute in the future by this machine's clock.",
		"Set the clock of this machine.")
	ErrExpired = refusal.NewKind("grant-expired", 403,
		"The grant is more than two minutes old.",
		"Set the clock of this machine if it is ahead; else wait for the job to be offered again.")
	ErrSignature = refusal.NewKind("grant-signature", 403,
		"The grant is not signed by the control plane that this device was paired with.",
		"Nothing was run. Pair the device again if the control plane has a new key that you trust.")
	ErrStub = refusal.NewKind("grant-stub", 403,
		"The grant names another person, site, kind or purpose than the job.",
		"Nothing was run. If it happens again, tell whoever runs the relay.")
)

// Kinds are this package's refusals, in the order in which [Verify] judges.
var Kinds = refusal.Registry{Title: "Grants of a control plane", Kinds: []*refusal.Kind{
	ErrOwner, ErrJob, ErrAhead, ErrExpired, ErrSignature, ErrStub,
}}

// ControlPlane is the public key of whoever decides what a device may run, as it
// was pinned when the device was paired. It is a type of its own, so that no
// site's or device's key is taken for it. The zero value is nobody and verifies
// nothing. Values compare with ==.
type ControlPlane struct{ signing key.SigningPublic }

// ParseControlPlane reads the text form, 43 characters of base64url. It returns
// key.ErrText for any other text.
func ParseControlPlane(s string) (ControlPlane, error) {
	p, err := key.ParseSigningPublic(s)
	return ControlPlane{p}, err
}

// String is the text form, or "" for nobody.
func (c ControlPlane) String() string {
	if c.IsZero() {
		return ""
	}
	return c.signing.String()
}

// Fingerprint is the key's short name, for people to compare.
func (c ControlPlane) Fingerprint() key.Fingerprint { return c.signing.Fingerprint() }

// IsZero reports whether c is nobody.
func (c ControlPlane) IsZero() bool { return c.signing.IsZero() }

// Verify checks a grant that came with that stub to a device of that owner, who
// is asked of the device's own pairing and never of the grant. It returns nil,
// or the first of these that holds: [ErrOwner], [ErrJob], [ErrAhead] beyond
// [MaxAhead], [ErrExpired] beyond maxAge, [ErrSignature], and [ErrStub] where
// person, site, kind or purpose are not the stub's. maxAge is [MaxAge] but for
// tests.
func Verify(c ControlPlane, g ai.SignedGrant, owner ai.Owner, stub ai.Stub, now ai.Millis, maxAge time.Duration) error {
	switch {
	case g.Owner != owner:
		return ErrOwner
	case g.JobID != stub.ID:
		return ErrJob
	// Not by the distance: that can overflow to one that looks small.
	case g.IssuedAt > now+ai.Millis(MaxAhead.Milliseconds()):
		return ErrAhead
	case g.IssuedAt < now-ai.Millis(maxAge.Milliseconds()):
		return ErrExpired
	}
	signature, err := key.ParseSignature(g.Signature)
	if err != nil {
		return ErrSignature
	}
	statement, err := Statement(g)
	if err != nil || !c.signing.Verify(statement, signature) {
		return ErrSignature
	}
	purpose := stub.Purpose
	if purpose == "" {
		purpose = DefaultPurpose
	}
	if g.User != stub.Owner || g.Site != stub.Site || g.Kind != stub.Kind || g.Purpose != purpose {
		return ErrStub
	}
	return nil
}

// Statement is what a control plane signs in a grant. The error is for a text
// that is not valid UTF-8, which has no JSON of its own.
func Statement(g ai.SignedGrant) ([]byte, error) {
	var err error
	b := make([]byte, 0, 512)
	text := func(s string) {
		if err == nil {
			b, err = jsontext.AppendQuote(append(b, ','), s)
		}
	}
	b = append(b, `["byollm/v1/grant"`...)
	text(g.GrantID)
	b = strconv.AppendInt(append(b, ','), int64(g.IssuedAt), 10)
	text(string(g.JobID))
	text(string(g.Kind))
	text(string(g.Owner))
	text(g.Purpose)
	text(g.Service)
	text(string(g.Site))
	text(string(g.User))
	if err != nil {
		return nil, err
	}
	return append(b, ']'), nil
}
