package site

import (
	"context"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// What a store refuses. Errors of the database itself pass through with the
// names that package internal/database gave them.
var (
	ErrNoJob = refusal.NewKind("job-unknown", 404,
		"The site has no job of this id.",
		"Check the id. Finished jobs are removed when their retention ends.")
	ErrNotHeld = refusal.NewKind("job-not-held", 404,
		"This device does not hold the job under this grant.",
		"Stop working on it. Claim again to get work.")
	ErrQuota = refusal.NewKind("quota-reached", 429,
		"This owner has as many unfinished jobs as the site allows.",
		"Wait until some are finished, or cancel some.")
	ErrConflict = refusal.NewKind("job-id-taken", 409,
		"There is a job of this id already, and it asks for something else.",
		"Use another id, or leave it out to get a new one.")
	ErrNoRunner = refusal.NewKind("runner-unknown", 404,
		"The site has no device of this id.",
		"List the owner's devices to see their ids.")
	ErrRunnerRevoked = refusal.NewKind("runner-revoked", 403,
		"This device was revoked, and a revoked device gets no work.",
		"Pair it again if its owner agrees.")
	ErrNoPairing = refusal.NewKind("pairing-unknown", 404,
		"No device waits under this code: it was mistyped, decided already, replaced or has ended.",
		"Read the code on the device again, or start pairing anew there.")
	ErrTooManyPairings = refusal.NewKind("pairing-too-many", 429,
		"This device has as many pairing codes as it may have at once.",
		"Use one of them, or wait until they end.")
	ErrNoKey = refusal.NewKind("site-key-unknown", 404,
		"The site's key ring has no key of this id.",
		"Add the key to the ring first.")
	ErrSetAside = refusal.NewKind("row-set-aside", 500,
		"The stored row is damaged. It was set aside and the rest runs on.",
		"See the list of what was set aside, and restore a backup if the row matters.")
)

// StoreKinds are the stores' refusals.
var StoreKinds = refusal.Registry{Title: "A site's store", Kinds: []*refusal.Kind{
	ErrNoJob, ErrNotHeld, ErrQuota, ErrConflict, ErrNoRunner, ErrRunnerRevoked,
	ErrNoPairing, ErrTooManyPairings, ErrNoLink, ErrNoKey, ErrSetAside,
	ErrNoAppKey, ErrAppKeyTaken, ErrBadAppKey, ErrTooManyAppKeys,
}}

// Store keeps everything a site must not forget. Each method of its parts
// decides and writes in one transaction and returns once that is durable. Time
// and ids are arguments, so a run can be repeated exactly. Values a store is
// given have been checked by the site; it keeps them as they are.
type Store interface {
	Jobs() JobStore
	Devices() DeviceStore
	Links() LinkStore
	Keys() KeyRing
	Hooks() HookStore
	AppKeys() AppKeyStore
	// Watch returns a channel that gets a signal after commits that changed what w
	// names, and a function that ends the watch. There may be signals without a
	// cause, and those that nobody has taken yet count as one. So whoever waits
	// watches first, then looks, then waits, and then looks again. What another
	// process changed is heard of with the next write or sweep of this one.
	Watch(w Watch) (changed <-chan struct{}, stop func())
	// ListJobs lists jobs without content, the newest first. It returns [ErrNoJob]
	// for a cursor that is no job of the owner asked for.
	ListJobs(ctx context.Context, q JobQuery) (JobPage, error)
	// SetAside lists the rows that could not be read.
	SetAside(ctx context.Context) ([]SetAside, error)
	// Close waits for what was begun and releases the store.
	Close() error
}

// SetAside names a row that could not be read.
type SetAside struct {
	What string // job, runner, pairing, key or app key
	ID   string // the row's own id
	Why  string // which column, never its content
	At   ai.Millis
}

// MaxSettled is how many dependents of jobs that have ended one operation settles
// at most. Those of one more are left to the sweeps.
const MaxSettled = 64

// JobStore keeps jobs. What ends a job also settles the jobs that wait for it, and
// in turn those that wait for these, up to [MaxSettled]; a Sweep goes on with the
// rest.
type JobStore interface {
	// Enqueue stores a job. A job of the same id that asks for the same is
	// returned as it stands, with created false; one that asks for something else
	// is [ErrConflict]. It returns [ErrQuota].
	Enqueue(ctx context.Context, job NewJob) (stored Job, created bool, err error)
	// Job returns a job, with its content only where that is asked for: it may be
	// large, and how long it takes to read tells its size. It returns [ErrNoJob]
	// or [ErrSetAside].
	Job(ctx context.Context, id ai.JobID, content bool) (Job, error)
	// Claim grants waiting jobs to a device, the longest claimable first. It
	// returns [ErrNoRunner] or [ErrRunnerRevoked]. The jobs come without content.
	Claim(ctx context.Context, c Claim) (Claimed, error)
	// Held returns the job with its payload if the device holds it under that
	// grant and the lease has not lapsed. It returns [ErrNoRunner],
	// [ErrRunnerRevoked], or [ErrNotHeld], the same for an unknown job.
	Held(ctx context.Context, grant ai.Grant, runner ai.RunnerID, now ai.Millis) (Job, error)
	// Renew records a heartbeat and renews grants. It returns [ErrNoRunner] or
	// [ErrRunnerRevoked].
	Renew(ctx context.Context, r Renewal) (Renewed, error)
	// Complete ends a job with a device's result. It returns [ErrNoRunner],
	// [ErrRunnerRevoked], or [ErrNotHeld] for a caller that neither holds the job
	// nor finished it.
	Complete(ctx context.Context, c Completion) (Completed, error)
	// Release gives grants back and returns the jobs that went back to the
	// queue. Grants that the device does not hold are passed over.
	Release(ctx context.Context, r Release) ([]ai.JobID, error)
	// Cancel ends a waiting job at once. A held one is remembered as to be
	// canceled until a result ends it, or left alone if the request is for a
	// waiting one. It returns the job as it stands then, or [ErrNoJob].
	Cancel(ctx context.Context, c CancelRequest) (Job, error)
	// Sweep requeues jobs whose leases have lapsed, expires jobs whose time is
	// over and settles dependents, a bounded number at a time; More says that
	// some are left.
	Sweep(ctx context.Context, now ai.Millis) (Swept, error)
	// Purge removes content and rows of finished jobs, a bounded number at a
	// time; More says that some are left.
	Purge(ctx context.Context, p Purge) (Purged, error)
}

// NewJob is a job to be stored.
type NewJob struct {
	ID            ai.JobID
	Kind          ai.Kind
	Owner         ai.Owner
	Audience      ai.Audience
	AllowedOwners []ai.Owner // nil when the site named nobody
	SizeClass     ai.SizeClass
	DependsOn     []ai.JobID
	// TTL is how long the job may wait once it is claimable.
	TTL time.Duration
	// DeadlineAt ends the wait whatever it waits for; zero means none.
	DeadlineAt ai.Millis
	// Payload is sealed by the site to itself.
	Payload ai.SealedEnvelope
	// Quota is how many unfinished jobs the owner may have; zero means any.
	Quota int
	Now   ai.Millis
}

// Reason says why a job ended other than by a result.
type Reason string

// The reasons.
const (
	ReasonNone       Reason = ""
	ReasonApp        Reason = "app"        // the app canceled it
	ReasonDependency Reason = "dependency" // a job it waited for did not end ok
	ReasonTTL        Reason = "ttl"        // nobody took it in time
	ReasonDeadline   Reason = "deadline"   // its deadline passed
)

// Job is a stored job.
type Job struct {
	ID            ai.JobID
	Kind          ai.Kind
	Owner         ai.Owner
	Audience      ai.Audience
	AllowedOwners []ai.Owner
	SizeClass     ai.SizeClass
	DependsOn     []ai.JobID // in the order of their text
	State         ai.State
	Reason        Reason
	// Lease is nil unless the job is claimed or running.
	Lease *ai.Lease
	// Attempts counts grants.
	Attempts int
	// CancelRequested is true from a cancel of a held job until a result.
	CancelRequested bool
	CreatedAt       ai.Millis
	UpdatedAt       ai.Millis
	// ClaimableAt is zero while the job waits for others. The TTL starts here.
	ClaimableAt ai.Millis
	TTL         time.Duration
	DeadlineAt  ai.Millis // zero when there is none
	// Payload is zero where content was not asked for or has been removed.
	Payload ai.SealedEnvelope
	// Result is nil until a device's result ended the job, and where content was
	// not asked for or has been removed.
	Result *Result
}

// Blocked reports whether the job waits for others.
func (j Job) Blocked() bool { return j.State == ai.StateQueued && j.ClaimableAt == 0 }

// Matching is what package match looks at of the job.
func (j Job) Matching() match.Job {
	return match.Job{Owner: j.Owner, Audience: j.Audience, AllowedOwners: j.AllowedOwners}
}

// Result is a device's result as it came: sealed to the site and signed by the
// device.
type Result struct {
	Envelope    ai.SealedEnvelope
	Disposition ai.Disposition
	RunnerID    ai.RunnerID
	RunnerOwner ai.Owner
	LeaseID     ai.LeaseID
	// Device is the identity that signed it.
	Device key.Device
	At     ai.Millis
}

// KindOffer is what a device offers for one kind.
type KindOffer struct {
	Kind  ai.Kind
	Offer match.Offer
}

// Claim asks for work.
type Claim struct {
	RunnerID ai.RunnerID
	// Offers holds at most one offer a kind. Their owner is not looked at: a
	// device claims for the person who paired it.
	Offers []KindOffer
	// Audiences are those that the device can be told of; nil means all.
	Audiences []ai.Audience
	// Max is how many jobs to grant at most.
	Max int
	// Lease is how long each grant lasts.
	Lease time.Duration
	// NewLease makes the id of a grant. It must not block.
	NewLease func() ai.LeaseID
	// Request is the digest of the request, for telling a repeat.
	Request [32]byte
	// LookFirst is set by a caller that waits for work and asks again and again.
	// The store then begins no transaction for writing unless there is something
	// to grant or to sweep.
	LookFirst bool
	Now       ai.Millis
}

// Claimed is what a claim finds.
type Claimed struct {
	// Jobs are granted to the device, now or to the first one of a repeated
	// request.
	Jobs []Job
	// Paused is true when the device's owner wants no new work.
	Paused bool
}

// Watch names what a watcher waits for. The zero value is everything.
type Watch struct {
	// Jobs that end, are granted, go back to the queue or are to be canceled.
	Jobs []ai.JobID
	// Ended is any job that ends.
	Ended bool
	// Runner is a device that is heard of or revoked; empty means none.
	Runner ai.RunnerID
	// Claim is a claim that waits for what it can be granted: a job that becomes
	// claimable, or the grants of a repeat of its request. Owner is the person
	// who paired the claimer. Nil means none.
	Claim *Claim
	Owner ai.Owner
}

// Renewal is one heartbeat.
type Renewal struct {
	RunnerID ai.RunnerID
	// Grants are renewed to Now plus Lease, and never shortened.
	Grants []ai.Grant
	Lease  time.Duration
	// IssuedAt is the device's own time. Only the newest heartbeat sets what
	// follows.
	IssuedAt     ai.Millis
	Version      string // of the device's program
	Capabilities []ai.Capability
	Paused       bool // the owner wants no new work
	// Protocol is the version of the protocol that the heartbeat came in.
	Protocol string
	Now      ai.Millis
}

// Renewed is what a heartbeat finds.
type Renewed struct {
	// Lost are the named grants that the device does not hold.
	Lost []ai.Grant
	// Cancel are the grants it holds of jobs that are to be canceled.
	Cancel []ai.Grant
}

// Completion is a device's result.
type Completion struct {
	Grant       ai.Grant
	RunnerID    ai.RunnerID
	Envelope    ai.SealedEnvelope
	Disposition ai.Disposition
	Now         ai.Millis
}

// Completed says what became of a result.
type Completed struct {
	// Accepted is true when this result ended the job.
	Accepted bool
	// Duplicate is true when this device had ended the job under this grant.
	Duplicate bool
	State     ai.State
}

// Release gives grants back.
type Release struct {
	RunnerID ai.RunnerID
	Grants   []ai.Grant
	// Refused keeps the device from being offered these jobs again.
	Refused bool
	Now     ai.Millis
}

// CancelRequest asks for the end of a job.
type CancelRequest struct {
	ID ai.JobID
	// Waiting leaves a job alone that a device holds.
	Waiting bool
	Now     ai.Millis
}

// Swept says what a sweep did.
type Swept struct {
	Requeued int  // leases that had lapsed
	Expired  int  // jobs whose time was over
	More     bool // some are left for the next sweep
}

// Purge says what may be removed.
type Purge struct {
	// ContentBefore removes the content of jobs that ended before it.
	ContentBefore ai.Millis
	// RowsBefore removes jobs that ended before it. A job that another unfinished
	// one waits for stays.
	RowsBefore ai.Millis
}

// Purged says what was removed.
type Purged struct {
	Contents int  // jobs whose content was removed
	Rows     int  // jobs that were removed whole
	More     bool // some are left for the next purge
}

// DeviceStore keeps devices and their pairings.
type DeviceStore interface {
	// StartPairing stores a pairing that waits for a decision. A pending one of
	// the same key from the same address is replaced. It returns
	// [ErrTooManyPairings] above [MaxPairings] or [MaxWaitingPairings], or
	// [ErrConflict] where another has one of the codes.
	StartPairing(ctx context.Context, p NewPairing) error
	// Pairing returns the pairing that waits under a user code. It returns
	// [ErrNoPairing].
	Pairing(ctx context.Context, userCode string, now ai.Millis) (Pairing, error)
	// Approve makes a runner of the device that waits under the code. A runner of
	// the same key and owner is superseded. It returns [ErrNoPairing].
	Approve(ctx context.Context, a Approval) (Runner, error)
	// Deny ends a pairing that waits. It returns [ErrNoPairing].
	Deny(ctx context.Context, userCode string, now ai.Millis) error
	// Poll says where the pairing of a device code stands. It returns
	// [ErrNoPairing] for an unknown code and for an approval that can no longer
	// be collected.
	Poll(ctx context.Context, deviceCode [32]byte, now ai.Millis) (Poll, error)
	// Runner returns a device. It returns [ErrNoRunner] or [ErrSetAside]. Id, owner
	// and identity of a device never change, and no device is removed.
	Runner(ctx context.Context, id ai.RunnerID) (Runner, error)
	// Runners lists devices, the oldest first.
	Runners(ctx context.Context, q RunnerQuery) ([]Runner, error)
	// Revoke ends a device's rights at once; the first time counts. Jobs it holds
	// come back when their leases lapse. It returns [ErrNoRunner].
	Revoke(ctx context.Context, id ai.RunnerID, now ai.Millis) (Runner, error)
	// SweepPairings removes pairings that are over, and runners whose approval
	// nobody collected.
	SweepPairings(ctx context.Context, now ai.Millis) error
}

// MaxPairings is how many pairings of one device key can wait at once.
const MaxPairings = 3

// MaxWaitingPairings is how many pairings of all devices together can wait at
// once, so that whoever makes keys at will cannot fill the site's disk.
const MaxWaitingPairings = 2048

// CollectFor is how long an approval can be collected at least, even when its
// code ends sooner.
const CollectFor = time.Minute

// NewPairing is a pairing to be stored.
type NewPairing struct {
	// DeviceCode is the SHA-256 of the code that the device polls with.
	DeviceCode [32]byte
	// UserCode is what the person types, in its normal form.
	UserCode     string
	Device       key.Device
	Daemon       ai.Daemon
	Capabilities []ai.Capability
	// Address is where the start came from.
	Address   string
	ExpiresAt ai.Millis
	Now       ai.Millis
}

// Pairing is a device that waits for a person's decision.
type Pairing struct {
	UserCode     string // in its normal form
	Device       key.Device
	Daemon       ai.Daemon
	Capabilities []ai.Capability
	CreatedAt    ai.Millis
	ExpiresAt    ai.Millis
}

// Approval is a person's yes.
type Approval struct {
	UserCode string // in its normal form
	Owner    ai.Owner
	// RunnerID is the id that the new runner gets.
	RunnerID ai.RunnerID
	Now      ai.Millis
}

// Poll is where a pairing stands.
type Poll struct {
	Status ai.PairStatus
	// Runner is set when the status is approved.
	Runner Runner
}

// Runner is a paired device.
type Runner struct {
	ID           ai.RunnerID
	Owner        ai.Owner
	Device       key.Device
	Daemon       ai.Daemon
	Capabilities []ai.Capability
	Paused       bool // by its owner, as of the newest heartbeat
	// Protocol is the version of the protocol that the newest heartbeat came in;
	// empty until there is one.
	Protocol  string
	CreatedAt ai.Millis
	// SeenAt is when the device was last heard of, by the site's clock.
	SeenAt    ai.Millis
	RevokedAt ai.Millis // zero unless revoked
}

// Revoked reports whether the device has lost its rights.
func (r Runner) Revoked() bool { return r.RevokedAt != 0 }

// RunnerQuery narrows a list of devices.
type RunnerQuery struct {
	// Owner narrows to one person's; empty means all.
	Owner ai.Owner
	// LiveSince narrows to devices heard of since then that are neither revoked
	// nor paused; zero means all.
	LiveSince ai.Millis
}

// KeyRing keeps the public halves of the site's own keys. The private halves
// are in key files.
type KeyRing interface {
	// Keys lists the keys, the current one first.
	Keys(ctx context.Context) ([]RingKey, error)
	// Use makes a key the current one and adds it if it is new. Older keys stay
	// and still open what was sealed to them.
	Use(ctx context.Context, site key.Site, now ai.Millis) error
	// Remove takes a key that is not current out of the ring. It returns
	// [ErrNoKey], also for the current one.
	Remove(ctx context.Context, id key.Fingerprint) error
}

// RingKey is one of the site's own keys.
type RingKey struct {
	Site    key.Site
	AddedAt ai.Millis
	Current bool // new material is sealed to it
}
