package ai

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai/backend"
)

// Endpoint is the last part of a daemon-plane path, and the name under which a
// request is signed.
type Endpoint string

// The endpoints of the daemon plane. Requests to pair are not signed; all
// others are.
const (
	EndpointPair      Endpoint = "pair"
	EndpointClaim     Endpoint = "claim"
	EndpointFetch     Endpoint = "fetch"
	EndpointHeartbeat Endpoint = "heartbeat"
	EndpointResult    Endpoint = "result"
	EndpointRelease   Endpoint = "release"
)

// Endpoints returns all endpoints of the daemon plane.
func Endpoints() []Endpoint {
	return []Endpoint{EndpointPair, EndpointClaim, EndpointFetch, EndpointHeartbeat, EndpointResult, EndpointRelease}
}

// PathPrefix is where the daemon plane lies below a server's origin unless the
// server mounts it elsewhere.
const PathPrefix = "/byollm"

// PublicIdentity is a party's public identity as messages carry it: three texts
// that have not been checked. [PublicIdentity.Device] and [PublicIdentity.Site]
// check them.
type PublicIdentity struct {
	// Identity is the signing key in base64url.
	Identity string
	// Encryption is the sealing key in base64url.
	Encryption string
	// EncryptionSig is the identity's signature over the text of the sealing key.
	EncryptionSig string
}

// Device verifies p as a device's identity. It returns key.ErrText or
// key.ErrBinding.
func (p PublicIdentity) Device() (key.Device, error) {
	return key.ParseIdentity[key.DeviceRole](p.Identity, p.Encryption, p.EncryptionSig)
}

// Site verifies p as a site's identity. It returns key.ErrText or
// key.ErrBinding.
func (p PublicIdentity) Site() (key.Site, error) {
	return key.ParseIdentity[key.SiteRole](p.Identity, p.Encryption, p.EncryptionSig)
}

// PublicIdentityOf is how messages carry id.
func PublicIdentityOf[R key.Role](id key.Identity[R]) PublicIdentity {
	return PublicIdentity{
		Identity: id.Signing().String(), Encryption: id.Sealing().String(),
		EncryptionSig: id.Binding().String(),
	}
}

// Capability is one thing a device offers to do right now: the effective offer,
// after the owner's configuration and what was found to work (MUSTs
// CAPABILITY_IS_DETECTED and EFFECTIVE_OFFER_ONLY).
type Capability struct {
	Kind Kind
	// Service is the name that the owner gave to what serves the kind, at least
	// one unit; empty in a version that does not say it.
	Service      string
	BackendID    backend.ID
	BackendClass backend.Class
	// Model is the name by which the device's owner knows the model.
	Model string
	// KnownModels are names that the backend is known by besides, where the
	// version can say so; nil says nothing. They decide nothing.
	KnownModels []string
	OfferScope  OfferScope
}

// Withheld is a kind that a device does not offer, since several of its owner's
// services could serve it and the owner has chosen none.
type Withheld struct {
	Kind Kind
	// Claimants are the services, at least [MinClaimants].
	Claimants []Claimant
}

// MinClaimants is how many services make a kind withheld.
const MinClaimants = 2

// Claimant is one of the services that could serve a withheld kind.
type Claimant struct {
	Service string // at least one unit
	Offer   OfferScope
}

// Platform is a device's operating system as pairing names it.
type Platform string

// The platforms that pairing can name.
const (
	PlatformDarwin Platform = "darwin"
	PlatformLinux  Platform = "linux"
	PlatformWin32  Platform = "win32"
)

// Platforms returns all platforms.
func Platforms() []Platform { return []Platform{PlatformDarwin, PlatformLinux, PlatformWin32} }

// MaxLabelUnits bounds a device's label, in UTF-16 code units.
const MaxLabelUnits = 120

// Daemon describes the program and machine that ask to be paired.
type Daemon struct {
	// Version is the program's own version, at least one unit.
	Version string
	// Label is how the owner tells machines apart, 1 to [MaxLabelUnits] long.
	Label    string
	Platform Platform
}

// PairStartRequest asks for a code under which a person can approve a device.
type PairStartRequest struct {
	Daemon       Daemon
	Device       PublicIdentity
	Capabilities []Capability
}

// Bounds of a [PairStartResponse].
const (
	MinDeviceCodeUnits = 20
	MinUserCodeUnits   = 4
	MaxUserCodeUnits   = 16
	MinPollIntervalMs  = 500
	MaxPollIntervalMs  = 60_000
)

// DeviceCode is the secret that a device polls its pairing with: whoever has it
// collects the approval. It never prints or logs itself; string(code) is its
// text.
type DeviceCode string

// String hides the code.
func (DeviceCode) String() string { return "(device code)" }

// GoString hides the code.
func (DeviceCode) GoString() string { return "(device code)" }

// Format hides the code, whatever the verb.
func (DeviceCode) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(device code)") }

// LogValue hides the code.
func (DeviceCode) LogValue() slog.Value { return slog.StringValue("(device code)") }

// PairStartResponse carries the two codes of a pairing.
type PairStartResponse struct {
	// DeviceCode is the secret that the device polls with, at least
	// [MinDeviceCodeUnits] long. It is never shown.
	DeviceCode DeviceCode
	// UserCode is what the person reads and confirms, [MinUserCodeUnits] to
	// [MaxUserCodeUnits] long.
	UserCode string
	// VerificationURL is where the person approves, an absolute http or https
	// URL.
	VerificationURL string
	ExpiresAt       Millis
	// PollIntervalMs is how long to wait between polls, [MinPollIntervalMs] to
	// [MaxPollIntervalMs].
	PollIntervalMs int64
}

// PairPollRequest asks whether the person has decided.
type PairPollRequest struct {
	// DeviceCode is the secret that the start was answered with.
	DeviceCode DeviceCode
}

// PairRequest is what the pair endpoint takes: exactly one of the two is set.
type PairRequest struct {
	Start *PairStartRequest
	Poll  *PairPollRequest
}

// PairStatus is where a pairing stands.
type PairStatus string

// The pair statuses.
const (
	PairPending  PairStatus = "pending"
	PairDenied   PairStatus = "denied"
	PairExpired  PairStatus = "expired"
	PairApproved PairStatus = "approved"
)

// PairStatuses returns all pair statuses.
func PairStatuses() []PairStatus {
	return []PairStatus{PairPending, PairDenied, PairExpired, PairApproved}
}

// PairPollResponse answers a poll. Approved is set if and only if the status is
// [PairApproved]; nothing about the server is told before (MUST
// KEYS_EXCHANGED_AT_CONSENT).
type PairPollResponse struct {
	Status   PairStatus
	Approved *PairApproval
}

// PairApproval is what a device learns when its owner has approved it.
type PairApproval struct {
	RunnerID RunnerID
	// Owner is the person who approved, as the server names them. The device
	// works for that person only (MUST PAIR_ONE_USER).
	Owner Owner
	// OwnerLabel is a display name; empty means none.
	OwnerLabel string
	// Sites are the sites this pairing covers, to be pinned, by the key id under
	// which stubs name them.
	Sites map[KeyID]PublicIdentity
	// ControlPlane is the public signing key of whoever decides what the device
	// may run, in base64url, where the server hands on work of other sites; empty
	// where the server is a site itself.
	ControlPlane string
}

// MaxClaim bounds how many jobs one claim may ask for.
const MaxClaim = 64

// ClaimRequest asks for work.
type ClaimRequest struct {
	RunnerID RunnerID
	// Capabilities are what the device offers now; the server matches against
	// these, not against an earlier list.
	Capabilities []Capability
	// Max is how many jobs to grant at most, 1 to [MaxClaim].
	Max int64
}

// ClaimResponse grants work.
type ClaimResponse struct {
	Jobs []ClaimedStub
	// LeaseMs is how long each grant lasts unless renewed, in milliseconds.
	LeaseMs int64
}

// FetchRequest asks for the sealed payload of a granted job.
type FetchRequest struct {
	RunnerID RunnerID
	Grant    Grant
}

// FetchResponse carries the payload, sealed to the device that holds the grant.
type FetchResponse struct {
	Envelope SealedEnvelope
}

// Direction says which way a sealed envelope goes.
type Direction string

// The directions.
const (
	DirectionPayload Direction = "payload" // from the site that asks
	DirectionResult  Direction = "result"  // from the device that ran
)

// Directions returns all directions.
func Directions() []Direction { return []Direction{DirectionPayload, DirectionResult} }

// SealedEnvelope is sealed material with the labels a router needs. The labels
// are repeated inside the signature; package envelope compares them.
type SealedEnvelope struct {
	// Ciphertext is base64url without padding of a sealed box.
	Ciphertext     string
	RecipientKeyID KeyID
	SenderKeyID    KeyID
	Direction      Direction
	// DeadlineAt is when the envelope stops being worth keeping.
	DeadlineAt Millis
}

// HeartbeatRequest says that a device is there and renews what it holds.
type HeartbeatRequest struct {
	RunnerID RunnerID
	// DaemonVersion is the program's own version, at least one unit.
	DaemonVersion string
	// Capabilities are what the device offers now.
	Capabilities []Capability
	// ActiveLeases are the grants the device works under; exactly these are
	// renewed.
	ActiveLeases []Grant
	// Paused is true while the owner wants no new work. In a version that does
	// not say it a paused device offers nothing, and with an offer it is not
	// written.
	Paused bool
	// Withheld are the kinds that no service was chosen for, where the version
	// can say so.
	Withheld []Withheld
}

// HeartbeatResponse tells a device what has changed.
type HeartbeatResponse struct {
	// Sites are the sites the device may serve now. One that has left the set is
	// revoked for this device.
	Sites map[KeyID]PublicIdentity
	// Cancel names grants whose backend calls must stop and be reported as
	// canceled (MUST CANCEL_HONORED).
	Cancel []Grant
	// Lost names grants the device no longer holds; it stops and reports
	// nothing (MUST LEASE_HONORED).
	Lost       []Grant
	ServerTime Millis
	// AwaitingConsent names sites whose terms the owner must read again first.
	AwaitingConsent []KeyID
	// Successions say how the keys of sites came to be, by the key id that
	// counts now, where the version can say so; nil says nothing.
	Successions map[KeyID]SiteSuccession
	// UpdateTo is a version of the contract's own daemon that the server would
	// have it replaced with; empty means none. It is no program of ours.
	UpdateTo string
}

// MaxSuccessions bounds how many keys a site can have had.
const MaxSuccessions = 64

// MaxRetirementMs is how long a key can count at most that another came after, in
// milliseconds.
const MaxRetirementMs = 7 * 24 * 60 * 60 * 1000

// SiteSuccession is how a site's key came to be.
type SiteSuccession struct {
	// Succeeds are the keys it had, the oldest first, at most [MaxSuccessions].
	Succeeds []Succession
	// RetiringUntil is when the key before it stops counting; zero when that is
	// not said.
	RetiringUntil Millis
}

// Succession is a key that a site had, and its signature over that key's id and
// the next one's.
type Succession struct {
	Identity  PublicIdentity
	Signature string // base64url
}

// ResultRequest returns a finished run.
type ResultRequest struct {
	RunnerID RunnerID
	Grant    Grant
	// Envelope holds a [SealedOutcome].
	Envelope SealedEnvelope
	// Disposition repeats the sealed outcome's kind for routers. The site
	// compares the two.
	Disposition Disposition
}

// ResultResponse says what became of a result.
type ResultResponse struct {
	// Accepted is false when this submission wrote nothing; the device discards
	// the result and does not retry (MUST RESULT_IDEMPOTENT).
	Accepted bool
	// Duplicate is true when this device had already recorded this result.
	Duplicate bool
	// State is the job's state now. A relay has states of its own, so it is a
	// text of at least one unit, not a [State].
	State string
}

// ReleaseReason says why a device gives grants back.
type ReleaseReason string

// The release reasons. A job released as refused is not offered to that device
// again (MUST REFUSAL_NOT_REOFFERED).
const (
	ReleaseShutdown    ReleaseReason = "shutdown"
	ReleasePause       ReleaseReason = "pause"
	ReleaseRevoked     ReleaseReason = "revoked"
	ReleaseBackendDown ReleaseReason = "backend-down"
	ReleaseRefused     ReleaseReason = "refused"
)

// ReleaseReasons returns all release reasons.
func ReleaseReasons() []ReleaseReason {
	return []ReleaseReason{ReleaseShutdown, ReleasePause, ReleaseRevoked, ReleaseBackendDown, ReleaseRefused}
}

// ReleaseRequest gives grants back.
type ReleaseRequest struct {
	RunnerID RunnerID
	Leases   []Grant
	Reason   ReleaseReason
}

// ReleaseResponse names the jobs that went back to the queue.
type ReleaseResponse struct {
	Released []JobID
}
