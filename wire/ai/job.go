package ai

import "slices"

// Kind is what a job asks a model to do. A device runs kinds that are built
// into it and refuses every other (MUST KIND_TYPED_ONLY).
type Kind string

// The kinds.
const (
	KindGenerate Kind = "llm.generate" // one prompt, one text
	KindChat     Kind = "llm.chat"     // turns of a conversation, one text
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{KindGenerate, KindChat} }

// Audience says whose machines may run a job, as its site asks.
type Audience string

// The audiences.
const (
	AudienceSelf   Audience = "self"   // only the machines of the person who asks
	AudienceNamed  Audience = "named"  // also machines whose owners named that person
	AudiencePublic Audience = "public" // any machine that offers itself to all
)

// Audiences returns all audiences, the narrowest first.
func Audiences() []Audience { return []Audience{AudienceSelf, AudienceNamed, AudiencePublic} }

// OfferScope says whose jobs a device takes on one backend, as its owner
// decides.
type OfferScope string

// The offer scopes.
const (
	OfferSelf   OfferScope = "self"   // only its owner's
	OfferNamed  OfferScope = "named"  // also those of people on the owner's local list
	OfferPublic OfferScope = "public" // anyone's
)

// OfferScopes returns all offer scopes, the narrowest first.
func OfferScopes() []OfferScope { return []OfferScope{OfferSelf, OfferNamed, OfferPublic} }

// State is where a job stands.
type State string

// The states. The last four are terminal.
const (
	StateQueued   State = "queued"   // waits to be claimed
	StateClaimed  State = "claimed"  // held by a device that has not renewed yet
	StateRunning  State = "running"  // held and renewed
	StateOK       State = "ok"       // answered
	StateError    State = "error"    // the device reports a failure
	StateCanceled State = "canceled" // stopped by the app or its dependency
	StateExpired  State = "expired"  // nobody took it in time
)

// States returns all states.
func States() []State {
	return []State{StateQueued, StateClaimed, StateRunning, StateOK, StateError, StateCanceled, StateExpired}
}

// Terminal reports whether the job is over.
func (s State) Terminal() bool {
	return s == StateOK || s == StateError || s == StateCanceled || s == StateExpired
}

// transitions is the recorded table. A store does not use it as a guard at
// completion: a job that ends before its first renewal goes from claimed over
// running to ok in one step.
var transitions = map[State][]State{
	StateQueued:  {StateClaimed, StateCanceled, StateExpired},
	StateClaimed: {StateQueued, StateRunning, StateError, StateCanceled},
	StateRunning: {StateQueued, StateOK, StateError, StateCanceled},
}

// CanBecome reports whether the contract lets a job go from s to next in one
// step. No state becomes itself, and terminal states become nothing.
func (s State) CanBecome(next State) bool { return slices.Contains(transitions[s], next) }

// Lease is one grant of one job to one device.
type Lease struct {
	ID       LeaseID
	RunnerID RunnerID
	// ExpiresAt is when the grant lapses unless it is renewed.
	ExpiresAt Millis
}

// Grant names a job together with the lease that is meant, since job ids repeat
// between sites and a device can hold one job several times (MUST
// LEASE_SCOPED_BY_GRANT).
type Grant struct {
	JobID   JobID
	LeaseID LeaseID
}

// Stub is what travels of a job in the clear: what a router must know, and no
// more (MUST STUB_METADATA_EXHAUSTIVE).
type Stub struct {
	ID    JobID
	Kind  Kind
	Owner Owner
	// Site is the key id of the site's identity.
	Site     KeyID
	Audience Audience
	// Purpose is the site's own word for what the work is for, at least one unit,
	// where the version can say it; empty means that none is said.
	Purpose   string
	SizeClass SizeClass
	// Streaming is reserved by the contract and false until streaming exists.
	Streaming bool
	// DeadlineAt is when the work becomes pointless. It also bounds how long the
	// sealed payload is kept.
	DeadlineAt Millis
}

// ClaimedStub is a stub with the grant under which a device holds it.
type ClaimedStub struct {
	Stub
	Lease Lease
	// Grant is the control plane's word that this device may run this job, where
	// the job was handed on for another site; nil where the server is the site.
	Grant *SignedGrant
}

// SignedGrant is a control plane's word that a device may run a job. Every text
// has at least one unit.
type SignedGrant struct {
	GrantID string // no grant admits two jobs
	JobID   JobID
	Site    KeyID
	User    Owner  // who asks
	Owner   Owner  // whose device may run it
	Purpose string // the site's own word for what the work is for
	Kind    Kind
	Service string // of the device's owner
	// IssuedAt is by the control plane's clock.
	IssuedAt  Millis
	Signature string // base64url
}
