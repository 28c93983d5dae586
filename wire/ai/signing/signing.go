package signing

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// Window is how far a request's time may lie from the receiver's clock, in
// either direction, inclusive.
const Window = 120 * time.Second

// What this package refuses.
var (
	ErrUnsigned = refusal.NewKind("request-unsigned", 401,
		"The request is not signed: one of its three headers is missing or is no such value.",
		"Send caller, time and signature with every request but pairing.")
	ErrStale = refusal.NewKind("request-stale", 401,
		"The request's time is more than two minutes from this machine's clock.",
		"Set the clocks of both machines, then send the request anew.")
	ErrSignature = refusal.NewKind("request-signature", 401,
		"The signature is not the caller's over this request.",
		"Sign with the key that was paired, over the exact bytes that are sent.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Signed requests", Kinds: []*refusal.Kind{
	ErrUnsigned, ErrStale, ErrSignature,
}}

// Plane says which two parties talk. It decides the caller's header and what is
// signed, so that a signature made for one plane is none on the other.
type Plane int

// The planes. The zero value is none of them: what is signed for it verifies
// nowhere, and it has no caller.
const (
	DaemonPlane Plane = iota + 1 // a device and its server
	SitePlane                    // a site and its relay
)

// caller is the header that names the caller.
func (p Plane) caller() string {
	switch p {
	case DaemonPlane:
		return "X-Byollm-Runner"
	case SitePlane:
		return "X-Byollm-Site"
	}
	return "X-Byollm-Nobody"
}

// prefix stands before the endpoint's name in the signed text.
func (p Plane) prefix() string {
	switch p {
	case DaemonPlane:
		return ""
	case SitePlane:
		return "site/"
	}
	return "nobody/"
}

const (
	issuedAtHeader  = "X-Byollm-Issued-At"
	signatureHeader = "X-Byollm-Signature"
)

// Request is what a signature covers. The method and the query are not part of
// it.
type Request struct {
	Plane    Plane
	Endpoint ai.Endpoint
	// Body is the body exactly as sent or received; empty for a read.
	Body []byte
}

// Signature is what the three headers of a request say.
type Signature struct {
	// Caller is the runner id or the site id that the caller claims.
	Caller string
	// IssuedAt is when the caller says it signed.
	IssuedAt ai.Millis
	// Value is the signature.
	Value key.Signature

	unreadable bool // the text was there but is no signature
}

// Sign signs the request for that caller at that instant. It returns the
// signer's error.
func Sign(signer key.Signer, r Request, caller string, at ai.Millis) (Signature, error) {
	s := Signature{Caller: caller, IssuedAt: at}
	value, err := signer.Sign(canonical(r, s))
	if err != nil {
		return Signature{}, err
	}
	s.Value = value
	return s, nil
}

// Verify checks s for freshness first and then against the caller's pinned
// identity. It returns [ErrStale], [ErrSignature] or nil. window is [Window]
// but for tests.
func Verify(identity key.SigningPublic, r Request, s Signature, now ai.Millis, window time.Duration) error {
	if err := s.Fresh(now, window); err != nil {
		return err
	}
	if s.unreadable || !identity.Verify(canonical(r, s), s.Value) {
		return ErrSignature
	}
	return nil
}

// Fresh returns [ErrStale] unless s was issued within the window of now. A
// server asks it before it looks the caller up, so that a stale clock does not
// tell which callers exist.
func (s Signature) Fresh(now ai.Millis, window time.Duration) error {
	// Not by the distance: that can overflow to one that looks small.
	if w := ai.Millis(window.Milliseconds()); s.IssuedAt < now-w || s.IssuedAt > now+w {
		return ErrStale
	}
	return nil
}

// Headers returns the headers of a signed request as pairs of name and value.
func (s Signature) Headers(p Plane) [3][2]string {
	return [3][2]string{
		{p.caller(), s.Caller},
		{issuedAtHeader, strconv.FormatInt(int64(s.IssuedAt), 10)},
		{signatureHeader, s.Value.String()},
	}
}

// ReadHeaders reads the signature of a request on that plane. get returns the
// value of a header, or "" if it is absent; names are given in the canonical
// spelling of net/http. The time must be plain decimal digits without leading
// zeros, from 1 to 2^53-1. It returns [ErrUnsigned]. A text that is there but is
// no signature is left for [Verify] to refuse, since freshness comes first.
func ReadHeaders(p Plane, get func(name string) string) (Signature, error) {
	caller, at, text := get(p.caller()), get(issuedAtHeader), get(signatureHeader)
	if caller == "" || at == "" || text == "" {
		return Signature{}, ErrUnsigned
	}
	issued, err := strconv.ParseInt(at, 10, 64)
	if err != nil || issued < 1 || issued > maxMillis || strconv.FormatInt(issued, 10) != at {
		return Signature{}, ErrUnsigned.With("The time is not plain milliseconds.")
	}
	value, err := key.ParseSignature(text)
	return Signature{Caller: caller, IssuedAt: ai.Millis(issued), Value: value, unreadable: err != nil}, nil
}

// maxMillis is the largest instant that every reader of the contract holds
// exactly.
const maxMillis = 1<<53 - 1

// canonical is the signed text.
func canonical(r Request, s Signature) []byte {
	digest := sha256.Sum256(r.Body)
	b := make([]byte, 0, 64+len(r.Endpoint)+len(s.Caller)+2*len(digest))
	b = append(b, "byollm/v1/request\n"...)
	b = append(b, r.Plane.prefix()...)
	b = append(b, r.Endpoint...)
	b = append(b, '\n')
	b = append(b, s.Caller...)
	b = append(b, '\n')
	b = strconv.AppendInt(b, int64(s.IssuedAt), 10)
	b = append(b, '\n')
	return hex.AppendEncode(b, digest[:])
}
