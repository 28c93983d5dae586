package certify

import (
	"context"
	"time"

	"github.com/allodhq/allod/wire/ai"
)

// App is the app's half of a server that is tested: what its own users and
// operators do there. Every error but errors.ErrUnsupported means that the server
// refused. A method that a server has nothing for returns errors.ErrUnsupported;
// what needs it is then not proved.
//
// Methods are called from several goroutines at once.
type App interface {
	// Enqueue asks, and returns the job as it stands.
	Enqueue(ctx context.Context, a Ask) (Job, error)
	// Job returns a job as it stands, after waiting for its end at most so long.
	Job(ctx context.Context, id ai.JobID, wait time.Duration) (Job, error)
	// Cancel stops a job and returns it as it stands.
	Cancel(ctx context.Context, id ai.JobID) (Job, error)
	// Available reports whether a device would take such a job now.
	Available(ctx context.Context, owner ai.Owner, kind ai.Kind, audience ai.Audience) (bool, error)
	// Approve pairs the device that waits under a code with an owner.
	Approve(ctx context.Context, userCode string, owner ai.Owner) error
	// Deny refuses the device that waits under a code.
	Deny(ctx context.Context, userCode string) error
	// Revoke ends a device's rights.
	Revoke(ctx context.Context, runner ai.RunnerID) error
}

// Ask is a question as the kit asks it.
type Ask struct {
	Owner ai.Owner
	// Payload is an ai.Generate or an ai.Chat.
	Payload  ai.Payload
	Audience ai.Audience
	// AllowedOwners narrows ai.AudienceNamed to devices of these owners; nil
	// names nobody.
	AllowedOwners []ai.Owner
	// DependsOn are jobs that must end ok first.
	DependsOn []ai.JobID
	// TTL is how long the job may wait once it is claimable; zero means the
	// server's own.
	TTL time.Duration
}

// Job is what the app is told of a job.
type Job struct {
	// DeliveredResult has the job's id and state; outcome and provenance once
	// there is a result.
	ai.DeliveredResult
	// NoRunner is true when the server says that nobody is there to run it.
	NoRunner bool
}
