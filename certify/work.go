package certify

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// stubMembers are the members of a stub beside its grant. The last two are optional
// and none of version 0.
var stubMembers = []string{"id", "kind", "owner", "site", "audience", "sizeClass", "streaming", "deadlineAt", "lease", "purpose", "grant"}

func stubsExact(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	canary := t.canary("prompt")
	j := t.ask(Ask{Owner: owner, Payload: ai.Generate{Prompt: canary}})
	a := d.send(ai.EndpointClaim, d.claimBody(ai.MaxClaim))
	t.silent("a claim's answer", a.body, canary, "the prompt of a job")
	var raw struct {
		Jobs []jsontext.Value `json:"jobs"`
	}
	if a.status == http.StatusOK && json.Unmarshal(a.body, &raw) != nil {
		t.fail("a claim's answer is no object with a list of jobs")
	}
	t.onlyMembers("a claim's answer", a.body, "protocolVersion", "jobs", "leaseMs")
	listed := stubMembers
	if t.codec.Version == protocol.Minimum() {
		listed = listed[:len(listed)-2]
	}
	for _, text := range raw.Jobs {
		t.onlyMembers("a stub", text, listed...)
		var stub struct {
			Lease jsontext.Value `json:"lease"`
		}
		if json.Unmarshal(text, &stub) != nil {
			t.fail("a stub cannot be read")
		}
		t.onlyMembers("a stub's lease", stub.Lease, "id", "runnerId", "expiresAt")
	}
	for _, h := range d.granted(a) {
		if h.ID != j.JobID {
			continue
		}
		d.site(h)
		switch {
		case h.Kind != ai.KindGenerate, h.Owner != owner, h.Audience != ai.AudienceSelf:
			t.fail("the stub says another kind, owner or audience than was asked for")
		case h.SizeClass != ai.SizeSmall:
			t.fail("the stub of a short job says the size %s", shown(h.SizeClass))
		case h.Streaming:
			t.fail("the stub says that it streams, which is reserved")
		case h.DeadlineAt <= ai.MillisOf(t.kit.now()):
			t.fail("the stub's deadline has passed")
		case h.Lease.RunnerID != d.runner:
			t.fail("the stub's lease names another device")
		}
		return
	}
	t.fail("the job is not granted to its owner's device")
}

func payloadSealed(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	canary := t.canary("prompt")
	j := t.ask(Ask{Owner: owner, Payload: ai.Generate{Prompt: canary}})
	h := d.takes(j, "to its owner's device")
	a := d.fetch(h.grant)
	t.silent("a fetch's answer", a.body, canary, "the prompt in the clear")
	env := d.fetched(h.grant)
	site := d.site(h)
	want := envelope.Context{JobID: j.JobID, Sender: site.Fingerprint(), Recipient: d.keys.Identity().Fingerprint(), Direction: ai.DirectionPayload}
	opened, err := envelope.Open(d.keys.Opener(), site.Signing(), env, want)
	if err != nil {
		t.fail("the payload does not open as one of the pinned site for this device and this job")
	}
	p, err := t.codec.ReadPayload(h.Kind, []byte(opened.Plaintext))
	if g, ok := p.(ai.Generate); err != nil || !ok || g.Prompt != canary {
		t.fail("the payload is not what the app asked")
	}
	if opened.Reach != nil && opened.Reach.Check(h.Stub) != nil {
		t.fail("the payload is signed for another reach than its stub says")
	}
	t.step(d.name+": open the envelope", "signed by the pinned site for this job, stub signed %t", opened.Reach != nil)
	d.answers(h, ai.Answer{Text: "yes"})
}

func resultsSealed(t *trial) {
	owner := t.owner("a")
	d, other := t.paired("device", owner), t.paired("other", owner)
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	good := func() letter { return d.letterFor(h, ai.Answer{Text: "no"}) }
	fingerprint := ai.KeyID(d.keys.Identity().Fingerprint().String())
	for _, c := range []struct {
		what   string
		change func(l *letter)
	}{
		{"signed by another device", func(l *letter) { l.signer = other.keys.Signer() }},
		{"signed by another device under this one's name", func(l *letter) {
			l.signer = other.keys.Signer()
			l.envelope = func(e *ai.SealedEnvelope) { e.SenderKeyID = fingerprint }
		}},
		{"sealed as a payload", func(l *letter) { l.letter.Direction = ai.DirectionPayload }},
		{"sealed as a payload and labeled as a result", func(l *letter) {
			l.letter.Direction = ai.DirectionPayload
			l.envelope = func(e *ai.SealedEnvelope) { e.Direction = ai.DirectionResult }
		}},
		{"sealed to another site", func(l *letter) { l.to = t.stranger() }},
		{"sealed to another site under this one's name", func(l *letter) {
			l.to = t.stranger()
			l.envelope = func(e *ai.SealedEnvelope) { e.RecipientKeyID = ai.KeyID(d.site(h).Fingerprint().String()) }
		}},
		{"sealed for another job", func(l *letter) { l.letter.JobID += "-other" }},
		{"with another deadline than was signed", func(l *letter) {
			l.envelope = func(e *ai.SealedEnvelope) { e.DeadlineAt++ }
		}},
		{"in a box that was changed", func(l *letter) {
			l.envelope = func(e *ai.SealedEnvelope) {
				at := len(e.Ciphertext) / 2
				swap := "A"
				if e.Ciphertext[at] == 'A' {
					swap = "B"
				}
				e.Ciphertext = e.Ciphertext[:at] + swap + e.Ciphertext[at+1:]
			}
		}},
		{"that says another end than is sealed", func(l *letter) { l.says = ai.DispositionError }},
		{"that is no outcome", func(l *letter) { l.letter.Plaintext = "{}" }},
	} {
		l := good()
		c.change(&l)
		d.takesNot(c.what, d.sendResult(l), badRequest, forbidden, unauthorized)
		t.open(j.JobID, "a result "+c.what)
	}
	d.answers(h, ai.Answer{Text: "yes"})
	got := t.ends(j.JobID, ai.StateOK)
	if answer, ok := got.Outcome.(ai.Answer); !ok || answer.Text != "yes" {
		t.fail("the app is given another text than the device's")
	}
}

func kindsOffered(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	generate := t.ask(Ask{Owner: owner})
	chat := t.ask(Ask{Owner: owner, Payload: ai.Chat{Messages: []ai.ChatMessage{{Role: ai.RoleUser, Content: "Say yes."}}}})
	d.caps = []ai.Capability{}
	d.beat()
	if got := d.claim(); len(got) > 0 {
		t.fail("a device that offers nothing is granted %d jobs", len(got))
	}
	d.caps = []ai.Capability{offer(ai.KindGenerate, ai.OfferSelf)}
	d.beat()
	got := d.claim()
	if len(got) != 1 || got[0].ID != generate.JobID || got[0].Kind != ai.KindGenerate {
		t.fail("a device that offers %s is granted other jobs than that one", ai.KindGenerate)
	}
	d.caps = []ai.Capability{offer(ai.KindChat, ai.OfferSelf)}
	d.beat(got[0].grant)
	d.takes(chat, "to a device that offers its kind")
}

func offersDeclared(t *trial) {
	a, b := t.owner("a"), t.owner("b")
	narrow, wide := []ai.Capability{offer(ai.KindGenerate, ai.OfferSelf)}, []ai.Capability{offer(ai.KindGenerate, ai.OfferNamed)}
	d := t.paired("device of b", b, wide...)
	j := t.ask(Ask{Owner: a, Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{b}})
	d.caps = narrow
	d.getsNot(j, "to a device whose claim offers it to its owner only")
	d.beat()
	d.caps = wide
	d.takes(j, "to a device whose claim offers it to others")
}

// How many devices claim at once, and how many jobs there are.
const (
	atomicClaimers = 6
	atomicJobs     = 3
)

func claimsAtomic(t *trial) {
	owner := t.owner("a")
	devices := make([]*device, atomicClaimers)
	for i := range devices {
		devices[i] = t.paired("device "+string(rune('1'+i)), owner)
	}
	for range 3 {
		jobs := make([]Job, atomicJobs)
		for i := range jobs {
			jobs[i] = t.ask(Ask{Owner: owner})
		}
		answers, errs := make([]answer, len(devices)), make([]error, len(devices))
		ready := make(chan struct{})
		var wg sync.WaitGroup
		for i, d := range devices {
			body := d.claimBody(ai.MaxClaim)
			signed := d.signed(ai.EndpointClaim, body)
			wg.Go(func() {
				<-ready
				answers[i], errs[i] = t.kit.post(t.ctx, ai.EndpointClaim, body, signed)
			})
		}
		close(ready)
		wg.Wait()
		times := map[ai.JobID]int{}
		by := map[ai.JobID]*device{}
		holds := map[ai.JobID]held{}
		for i, d := range devices {
			if errs[i] != nil {
				t.fail("a claim among many was not answered")
			}
			for _, h := range d.granted(answers[i]) {
				times[h.ID]++
				by[h.ID], holds[h.ID] = d, h
			}
		}
		for _, j := range jobs {
			switch times[j.JobID] {
			case 1:
				by[j.JobID].answers(holds[j.JobID], ai.Answer{Text: "yes"})
			case 0:
				t.fail("job %s was granted to nobody of %d who claimed at once", shown(j.JobID), len(devices))
			default:
				t.fail("job %s was granted to %d devices at once", shown(j.JobID), times[j.JobID])
			}
		}
	}
}

// lapses waits for the end of a lease.
func (t *trial) lapses(h held) { t.until(h.Lease.ExpiresAt, "a lease", "--lease 2s") }

func lapsedLost(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	t.lapses(h)
	t.refused("a fetch under a lapsed lease", d.note("fetch under a lapsed lease", d.fetch(h.grant)), notFound, tooLate)
	d.takesNot("under a lapsed lease", d.sendResult(d.letterFor(h, ai.Answer{Text: "late"})), notFound, tooLate)
	t.open(j.JobID, "a result under a lapsed lease")
	if beat := d.beat(h.grant); !slices.Contains(beat.Lost, h.grant) {
		t.fail("a heartbeat with a lapsed lease is not told that it is lost")
	}
}

// maxLeaseMs is longer than any run.
const maxLeaseMs = 24 * 60 * 60 * 1000

func renewedLasts(t *trial) {
	owner := t.owner("a")
	d, other := t.paired("device", owner), t.paired("other", owner)
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	lease := time.Duration(min(h.leaseMs, maxLeaseMs)) * time.Millisecond
	if lease*3/2 > t.kit.maxWait {
		t.unproved("a lease lasts %s; start the server with a shorter one (an Allod site: --lease 2s), or wait longer with --max-wait", lease)
	}
	for range 6 {
		t.pause(lease / 4)
		if beat := d.beat(h.grant); slices.Contains(beat.Lost, h.grant) {
			t.fail("a lease that was renewed every quarter of its time is lost")
		}
		other.getsNot(j, "to another device while the lease is renewed")
	}
	d.answers(h, ai.Answer{Text: "yes"})
	t.ends(j.JobID, ai.StateOK)
}

func reclaimed(t *trial) {
	owner := t.owner("a")
	d, next := t.paired("device", owner), t.paired("next", owner)
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	next.getsNot(j, "to another device while the lease lasts")
	t.lapses(h)
	var again held
	if !t.eventually(func() bool {
		for _, g := range next.claim() {
			if g.ID == j.JobID {
				again = g
				return true
			}
		}
		return false
	}) {
		t.fail("job %s is not granted again after its lease has lapsed", shown(j.JobID))
	}
	if again.grant.LeaseID == h.grant.LeaseID {
		t.fail("the job is granted again under the lease that lapsed")
	}
	next.fetched(again.grant)
	next.answers(again, ai.Answer{Text: "yes"})
	t.ends(j.JobID, ai.StateOK)
}

func audiences(t *trial) {
	a, b, c := t.owner("a"), t.owner("b"), t.owner("c")
	narrow, wide := []ai.Capability{offer(ai.KindGenerate, ai.OfferSelf)}, []ai.Capability{offer(ai.KindGenerate, ai.OfferNamed)}
	d := t.paired("device of b", b, wide...)
	own := t.ask(Ask{Owner: a})
	listed := t.ask(Ask{Owner: a, Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{b}})
	unlisted := t.ask(Ask{Owner: a, Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{c}})
	nobodys := t.ask(Ask{Owner: a, Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{}})
	d.caps = narrow
	d.beat()
	if got := d.claim(); len(got) > 0 {
		t.fail("a device that is offered to its owner is granted %d jobs of another", len(got))
	}
	d.caps = wide
	d.beat()
	got := d.claim()
	for _, h := range got {
		switch h.ID {
		case own.JobID:
			t.fail("a job for its owner's own devices is granted to another's")
		case unlisted.JobID:
			t.fail("a job is granted to a device of a person whom the app did not name")
		case nobodys.JobID:
			t.fail("a job that the app opened to nobody is granted")
		}
	}
	i := slices.IndexFunc(got, func(h held) bool { return h.ID == listed.JobID })
	if i < 0 {
		t.fail("a job is not granted to a device whose offer and whose owner's name admit it")
	}
	// The owner's own device takes what is left, whatever it is offered to.
	mine := t.paired("device of a", a)
	left := mine.claim()
	for _, j := range []Job{own, unlisted, nobodys} {
		if !slices.ContainsFunc(left, func(h held) bool { return h.ID == j.JobID }) {
			t.fail("job %s is not granted to its owner's device", shown(j.JobID))
		}
	}
}

func refusedOnce(t *trial) {
	owner := t.owner("a")
	d, other := t.paired("device", owner), t.paired("other", owner)
	j := t.ask(Ask{Owner: owner})
	d.releases(d.takes(j, "to its owner's device"), ai.ReleaseShutdown)
	// Only a refusal keeps a job away.
	d.releases(d.takes(j, "after a release that is no refusal"), ai.ReleaseRefused)
	for range 3 {
		d.getsNot(j, "to the device that refused it")
	}
	other.takes(j, "to a device that did not refuse it")
}

func revokedAtOnce(t *trial) {
	owner := t.owner("a")
	d, other := t.paired("device", owner), t.paired("other", owner)
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	waits := t.ask(Ask{Owner: owner})
	bodies := d.bodies()
	bodies[ai.EndpointFetch] = d.fetchBody(h.grant)
	bodies[ai.EndpointHeartbeat] = d.beatBody(h.grant)
	bodies[ai.EndpointResult] = d.resultBody(d.letterFor(h, ai.Answer{Text: "no"}))
	bodies[ai.EndpointRelease] = d.releaseBody(ai.ReleaseShutdown, h.grant)
	t.revoke(d)
	for _, endpoint := range signedEndpoints() {
		t.refused(string(endpoint)+" of a revoked device", d.note(string(endpoint), d.send(endpoint, bodies[endpoint])), revoked)
	}
	t.open(j.JobID, "a result of a revoked device")
	other.takes(waits, "to a device that is not revoked")
}

func cancelTold(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	j, stays := t.ask(Ask{Owner: owner}), t.ask(Ask{Owner: owner})
	var h, other held
	for _, g := range d.claim() {
		switch g.ID {
		case j.JobID:
			h = g
		case stays.JobID:
			other = g
		}
	}
	if h.ID == "" || other.ID == "" {
		t.fail("two jobs are not granted to their owner's device")
	}
	if beat := d.beat(h.grant, other.grant); len(beat.Cancel)+len(beat.Lost) > 0 {
		t.fail("a heartbeat is told to cancel or to drop what nobody canceled")
	}
	t.cancel(j.JobID)
	beat := d.beat(h.grant, other.grant)
	if !slices.Contains(beat.Cancel, h.grant) && !slices.Contains(beat.Lost, h.grant) {
		t.fail("the heartbeat after a cancel does not name the grant")
	}
	if slices.Contains(beat.Cancel, other.grant) || slices.Contains(beat.Lost, other.grant) {
		t.fail("a cancel of one job stops another")
	}
	if slices.Contains(beat.Cancel, h.grant) {
		d.answers(h, ai.Cancellation{})
	}
	t.ends(j.JobID, ai.StateCanceled)
	d.answers(other, ai.Answer{Text: "yes"})
}

func cancelStays(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	waits := t.ask(Ask{Owner: owner})
	t.cancel(waits.JobID)
	t.ends(waits.JobID, ai.StateCanceled)
	d.getsNot(waits, "after it was canceled while it waited")

	// Canceled while it is held, and then given back without a word about it.
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	t.cancel(j.JobID)
	d.send(ai.EndpointRelease, d.releaseBody(ai.ReleaseShutdown, h.grant))
	t.step(d.name+": release", "sent")
	for _, again := range d.claim() {
		if again.ID != j.JobID {
			continue
		}
		beat := d.beat(again.grant)
		if !slices.Contains(beat.Cancel, again.grant) && !slices.Contains(beat.Lost, again.grant) {
			t.fail("a canceled job is granted again, and the heartbeat does not say that it is canceled")
		}
		if slices.Contains(beat.Cancel, again.grant) {
			d.answers(again, ai.Cancellation{})
		}
	}
	t.ends(j.JobID, ai.StateCanceled)
}

func dependsOn(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	one, two, fails := t.ask(Ask{Owner: owner}), t.ask(Ask{Owner: owner}), t.ask(Ask{Owner: owner})
	both := t.ask(Ask{Owner: owner, DependsOn: []ai.JobID{one.JobID, two.JobID}})
	never := t.ask(Ask{Owner: owner, DependsOn: []ai.JobID{fails.JobID}})
	holds := map[ai.JobID]held{}
	for _, h := range d.claim() {
		if h.ID == both.JobID || h.ID == never.JobID {
			t.fail("a job is granted while what it depends on waits")
		}
		holds[h.ID] = h
	}
	for _, j := range []Job{one, two, fails} {
		if holds[j.JobID].ID == "" {
			t.fail("a job that depends on nothing is not granted")
		}
	}
	d.getsNot(both, "while what it depends on is held")
	d.answers(holds[one.JobID], ai.Answer{Text: "yes"})
	d.getsNot(both, "while one of two that it depends on is not over")
	d.answers(holds[fails.JobID], ai.Failure{Code: "certify", Message: "It failed."})
	d.getsNot(never, "after what it depends on has failed")
	d.answers(holds[two.JobID], ai.Answer{Text: "yes"})
	d.answers(d.takes(both, "after all that it depends on is ok"), ai.Answer{Text: "yes"})
	d.getsNot(never, "after what it depends on has failed")
	if j := t.look(never.JobID); j.State == ai.StateOK {
		t.fail("a job is ok whose dependency failed")
	}
}

// short is a time to live that ends while a check runs.
const short = time.Second

func expires(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	j := t.ask(Ask{Owner: owner, TTL: short})
	t.pause(short + slack)
	d.getsNot(j, "after its time to live")
	if !t.eventually(func() bool { return t.look(j.JobID).State.Terminal() }) {
		t.fail("a job whose time to live has passed does not end")
	}
	t.ends(j.JobID, ai.StateExpired)
	lasts := t.ask(Ask{Owner: owner, TTL: time.Hour})
	d.takes(lasts, "within its time to live")
}

func expiresFromClaimable(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	first := t.ask(Ask{Owner: owner})
	const life = short
	j := t.ask(Ask{Owner: owner, DependsOn: []ai.JobID{first.JobID}, TTL: life})
	t.pause(life + short)
	if got := t.look(j.JobID); got.State != ai.StateQueued {
		t.fail("a job that waits for another is %s after its time to live, which has not begun", shown(got.State))
	}
	got := d.claim()
	if len(got) != 1 || got[0].ID != first.JobID {
		t.fail("other jobs are granted than the one that waits for none")
	}
	d.answers(got[0], ai.Answer{Text: "yes"})
	d.takes(j, "within its time to live, which began when it became claimable")
}

func noRunner(t *trial) {
	owner := t.owner("a")
	if t.available(owner, ai.KindGenerate) {
		t.fail("a device is said to be there for a person who has none")
	}
	j := t.ask(Ask{Owner: owner})
	blocked := t.ask(Ask{Owner: owner, DependsOn: []ai.JobID{j.JobID}})
	if !t.look(j.JobID).NoRunner {
		t.fail("a job that nobody is there to run is not said to lack a device")
	}
	if t.look(blocked.JobID).NoRunner {
		t.fail("a job that waits for another is said to lack a device")
	}
	d := t.paired("device", owner)
	if !t.available(owner, ai.KindGenerate) {
		t.fail("no device is said to be there after one was heard of")
	}
	if t.available(owner, ai.KindChat) {
		t.fail("a device is said to be there for a kind that it does not offer")
	}
	if t.look(j.JobID).NoRunner {
		t.fail("a job is said to lack a device while one is there")
	}
	t.revoke(d)
	if t.available(owner, ai.KindGenerate) {
		t.fail("a revoked device is said to be there")
	}
	if !t.look(j.JobID).NoRunner {
		t.fail("a job whose only device was revoked is not said to lack one")
	}
}

func silence(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	if !t.available(owner, ai.KindGenerate) {
		t.fail("no device is said to be there after one was heard of")
	}
	if !t.eventually(func() bool { return !t.available(owner, ai.KindGenerate) }) {
		t.unproved("a device still counts as there after %s of silence; start the server with a shorter time (an Allod site: --liveness 2s), or wait longer with --max-wait", t.kit.maxWait)
	}
	d.beat()
	if !t.available(owner, ai.KindGenerate) {
		t.fail("a device that is heard of again does not count as there")
	}
}

func firstResult(t *trial) {
	owner := t.owner("a")
	d, other := t.paired("device", owner), t.paired("other", owner)
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	d.answers(h, ai.Answer{Text: "first"})
	for what, out := range map[string]ai.Outcome{
		"with a second answer": ai.Answer{Text: "second"}, "with a failure after the answer": ai.Failure{Code: "certify", Message: "It failed."},
		"with a cancellation after the answer": ai.Cancellation{},
	} {
		d.takesNot(what, d.sendResult(d.letterFor(h, out)), tooLate, notFound)
	}
	other.takesNot("of another device after the answer", other.sendResult(other.letterFor(h, ai.Answer{Text: "third"})), tooLate, notFound)
	t.cancel(j.JobID)
	got := t.ends(j.JobID, ai.StateOK)
	if answer, ok := got.Outcome.(ai.Answer); !ok || answer.Text != "first" {
		t.fail("the app is given another text than the first")
	}
}

func provenance(t *trial) {
	a, b := t.owner("a"), t.owner("b")
	own := t.paired("device of a", a)
	lent := t.paired("device of b", b, offer(ai.KindGenerate, ai.OfferNamed))
	for _, c := range []struct {
		by        *device
		ask       Ask
		untrusted bool
	}{
		{own, Ask{Owner: a}, false},
		{lent, Ask{Owner: a, Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{b}}, true},
	} {
		j := t.ask(c.ask)
		c.by.answers(c.by.takes(j, "to a device that may run it"), ai.Answer{Text: "yes"})
		p := t.ends(j.JobID, ai.StateOK).Provenance
		switch {
		case p == nil:
			t.fail("the app is not told which device ran the job")
		case p.RunnerID != c.by.runner:
			t.fail("the app is told another device than the one that ran the job")
		case p.RunnerOwner != c.by.owner:
			t.fail("the app is told another owner of the device than it has")
		case p.Untrusted != c.untrusted:
			t.fail("what ran for the audience %s is told to be untrusted: %t", shown(p.Audience), p.Untrusted)
		}
	}
}

func rosterSilent(t *trial) {
	a, b := t.owner("a"), t.owner("b")
	secret := t.owner("canary-member")
	d := t.paired("device of b", b, offer(ai.KindGenerate, ai.OfferNamed))
	j := t.ask(Ask{Owner: a, Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{secret, b}})
	others := t.ask(Ask{Owner: a, Audience: ai.AudienceNamed, AllowedOwners: []ai.Owner{secret}})
	silent := func(what string, a answer) answer {
		for name, values := range a.header {
			t.silent(what+"'s answer", []byte(name+strings.Join(values, " ")), string(secret), "the name of somebody else who may run the job")
		}
		t.silent(what+"'s answer", a.body, string(secret), "the name of somebody else who may run the job")
		return a
	}
	claimed := silent("a claim", d.send(ai.EndpointClaim, d.claimBody(ai.MaxClaim)))
	var h held
	for _, g := range d.granted(claimed) {
		if g.ID == j.JobID {
			h = g
		}
	}
	if h.ID == "" {
		t.fail("the job is not granted to a device that may run it")
	}
	site := d.site(h)
	fetched := read(d, "fetch", t.codec.FetchResponse, silent("a fetch", d.fetch(h.grant)))
	opened, err := envelope.Open(d.keys.Opener(), site.Signing(), fetched.Envelope, envelope.Context{
		JobID: j.JobID, Sender: site.Fingerprint(), Recipient: d.keys.Identity().Fingerprint(), Direction: ai.DirectionPayload,
	})
	if err != nil {
		t.fail("the payload does not open")
	}
	t.silent("a payload", []byte(opened.Plaintext), string(secret), "the name of somebody else who may run the job")
	silent("a heartbeat", d.send(ai.EndpointHeartbeat, d.beatBody(h.grant)))
	silent("a refused fetch", d.fetch(ai.Grant{JobID: others.JobID, LeaseID: "certify"}))
	silent("a result", d.sendResult(d.letterFor(h, ai.Answer{Text: "yes"})))
	t.ends(j.JobID, ai.StateOK)
}
