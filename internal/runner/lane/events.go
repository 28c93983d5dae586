package lane

import (
	"reflect"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// Event is something that happened.
type Event interface{ apply(m *Machine) }

// Tick is that time has passed. [Wake] says when one is wanted.
type Tick struct{}

// Offer is one thing the device can do now, with what it costs its owner.
type Offer struct {
	// Capability names the owner's backend as its service.
	Capability ai.Capability
	Cost       backend.Cost
	// Spend is what the owner agreed to pay for others. What is left of it is not
	// known here.
	Spend match.Spend
	// Full is whether nothing more of others would be taken on now, as their budget
	// is used up. It is then offered to its owner only, and what runs goes on.
	Full bool
	// Instead is the owner's first choice in whose place this is offered. The zero
	// value is none.
	Instead Instead
}

// Instead is a first choice that does not run now.
type Instead struct {
	// Service is the owner's name of its backend. It does not leave the machine.
	Service string
	Model   string
	// Why is the name of the refusal for which it does not run.
	Why string
	// Offer is how far it is offered when it runs, once its cost is considered.
	Offer ai.OfferScope
}

// Equal reports whether two offers are the same.
func (o Offer) Equal(p Offer) bool { return reflect.DeepEqual(o, p) }

// Offered says what the device can do from now on; none takes everything back.
type Offered struct{ Offers []Offer }

// Allowed says whose jobs the owner takes from now on besides their own: the
// users of this server that are on the local list.
type Allowed struct{ Owners []ai.Owner }

// Paused says whether the owner wants no new work. With Release, work in flight
// is given back as well.
type Paused struct{ On, Release bool }

// Stop says that the device is about to stop. It is followed by [Ended].
type Stop struct{}

// Restored names the results that were kept by an earlier run of the program.
type Restored struct{ Results []Kept }

// Kept is one of them.
type Kept struct {
	Grant ai.Grant
	Site  ai.KeyID
	// Until is when the result stops being worth keeping.
	Until ai.Millis
}

// BeatDone is the answer to [Beat]. Err is set instead of Answer.
type BeatDone struct {
	Seq    int
	Answer ai.HeartbeatResponse
	Err    error
}

// ClaimDone is the answer to [Claim]. Err is set instead of Answer.
type ClaimDone struct {
	Seq    int
	Answer ai.ClaimResponse
	Err    error
}

// WorkDone is the end of [Work], whatever became of it.
type WorkDone struct {
	Lease ai.LeaseID
	End   WorkEnd
	// Err says why, where the end is [WorkRefused].
	Err error
	// Until is when a kept result stops being worth keeping.
	Until ai.Millis
}

// WorkEnd is how work ended.
type WorkEnd int

// The ends of work.
const (
	WorkKept    WorkEnd = iota + 1 // its result is on disk
	WorkRefused                    // it must not run here
	WorkDown                       // the backend could not be reached; nothing ran
	WorkGone                       // the server gave the job to somebody else, or we were told to stop
)

// SendDone is the answer to [Send]. Err is set instead of Answer.
type SendDone struct {
	Lease  ai.LeaseID
	Answer ai.ResultResponse
	Err    error
}

// Approved says that the owner approved a site, and that this is kept.
type Approved struct{ Site key.Site }

// Succeeded says that what [Succeed] asks for is kept.
type Succeeded Succeed

// Unkept says that what [Seen] asks for could not be kept. It is asked for again.
type Unkept struct{}

// ReleaseDone is the end of a [Release].
type ReleaseDone struct{ Err error }

// Action is something to do.
type Action interface{ action() }

// Beat asks for a heartbeat. It takes the place of one that is still under way,
// whose answer is then not wanted.
type Beat struct {
	Seq     int
	Wait    time.Duration
	Request ai.HeartbeatRequest
}

// Claim asks for work.
type Claim struct {
	Seq     int
	Wait    time.Duration
	Request ai.ClaimRequest
}

// Quit ends the heartbeat and the claim that are under way.
type Quit struct{ Beat, Claim bool }

// Work asks for a job to be fetched, opened, run and sealed, and for its result
// to be kept on disk.
type Work struct {
	Stub ai.ClaimedStub
	// Offer is what it was admitted under.
	Offer Offer
}

// Abort stops work. With Canceled the run ends as canceled and that is reported;
// otherwise nothing is.
type Abort struct {
	Lease    ai.LeaseID
	Canceled bool
}

// Send asks for a kept result to be sent.
type Send struct{ Grant ai.Grant }

// Drop asks for a kept result to be removed.
type Drop struct{ Grant ai.Grant }

// Release asks for grants to be given back.
type Release struct {
	Grants []ai.Grant
	Reason ai.ReleaseReason
}

// Seen asks for what is known of sites to be kept: all that wait for the owner, and
// all approved ones under whose name another key was shown.
type Seen struct {
	Pending map[ai.KeyID]key.Site
	Changed []ai.KeyID
}

// Succeed asks for keys to be kept as approved, each after the one before. The
// first was approved already; the last is the one that the site has now. They are
// not served before [Succeeded] was told, which comes before any other event.
type Succeed struct {
	Path []key.Site // two at least
	// Until is when all but the last stop counting.
	Until ai.Millis
}

// Wake asks for a [Tick] at that time or soon after. It takes the place of an
// earlier one.
type Wake struct{ At time.Time }

// Note tells the owner what happened.
type Note struct {
	What What
	// Stub is set where the note is about a job.
	Stub *ai.ClaimedStub
	// Site is set where the note is about a site, and From where that came after
	// another.
	Site, From ai.KeyID
	// Err says why, where there is a reason.
	Err error
}

// What names a note. The texts appear in logs and in allod agent status.
type What string

// What can happen.
const (
	NoteGranted           What = "granted"            // a job was taken on
	NoteRefused           What = "refused"            // a job was refused
	NoteLost              What = "lease-lost"         // the server took a job back
	NoteLapsed            What = "lease-lapsed"       // a lease could not be renewed in time
	NoteCanceled          What = "canceled"           // the app canceled a job
	NoteAnswered          What = "answered"           // the server took a result
	NoteNotAccepted       What = "not-accepted"       // the server did not take a result
	NoteReleased          What = "released"           // a job was given back
	NoteShortLease        What = "lease-too-short"    // a job was given back since its lease is too short to work under
	NoteSitePending       What = "site-pending"       // a site is offered that was not approved here
	NoteSiteChanged       What = "site-key-changed"   // an approved site shows another key
	NoteSiteLeft          What = "site-withdrawn"     // an approved site is no longer offered
	NoteSiteApproved      What = "site-approved"      // the owner approved a site
	NoteSiteSucceeded     What = "site-succeeded"     // a site's key came after one that was approved here
	NoteSiteRetired       What = "site-key-retired"   // the time of a key is over that another came after
	NoteSuccessionRefused What = "succession-refused" // a site's key is said to come after another, and that is not accepted
	NoteNoSites           What = "serving-nothing"    // the server offers no site that is approved here
	NoteUnreachable       What = "unreachable"        // the server did not answer, or refused
	NoteReachable         What = "reachable"          // it answers again
	NoteRevoked           What = "revoked"            // the device was revoked
	NoteTwoAgents         What = "two-agents"         // another live agent uses the keys of this machine
)

// Ended says that the machine is done. Revoked means that the server revoked the
// device, and TwoAgents that another agent uses its keys; work for the server then
// begins again only where the owner pairs anew.
type Ended struct{ Revoked, TwoAgents bool }

func (Beat) action()    {}
func (Claim) action()   {}
func (Quit) action()    {}
func (Work) action()    {}
func (Abort) action()   {}
func (Send) action()    {}
func (Drop) action()    {}
func (Release) action() {}
func (Seen) action()    {}
func (Succeed) action() {}
func (Wake) action()    {}
func (Note) action()    {}
func (Ended) action()   {}
