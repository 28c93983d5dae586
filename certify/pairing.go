package certify

import (
	"net/http"
	"slices"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
)

// bodies are well-formed requests of a device to every endpoint, about nothing that
// is there.
func (d *device) bodies() map[ai.Endpoint][]byte {
	nothing := held{ClaimedStub: ai.ClaimedStub{Stub: ai.Stub{ID: "certify-nothing"}}, grant: ai.Grant{JobID: "certify-nothing", LeaseID: "certify-nothing"}}
	l := letter{
		signer: d.keys.Signer(), says: ai.DispositionCanceled, reportsOn: nothing.grant,
	}
	l.letter.JobID, l.letter.Direction, l.letter.DeadlineAt, l.letter.Plaintext = nothing.ID, ai.DirectionResult, ai.MillisOf(d.t.kit.now().Add(time.Hour)), "{}"
	for _, site := range d.sites {
		l.to = site
	}
	if l.to.IsZero() {
		l.to = d.t.stranger()
	}
	return map[ai.Endpoint][]byte{
		ai.EndpointPair:      d.startBody(),
		ai.EndpointClaim:     d.claimBody(1),
		ai.EndpointFetch:     d.fetchBody(nothing.grant),
		ai.EndpointHeartbeat: d.beatBody(),
		ai.EndpointResult:    d.resultBody(l),
		ai.EndpointRelease:   d.releaseBody(ai.ReleaseShutdown, nothing.grant),
	}
}

// stranger is a site that nobody knows.
func (t *trial) stranger() key.Site {
	k, err := newSite()
	if err != nil {
		t.unproved("this machine makes no keys")
	}
	return k.Identity()
}

func versionNamed(t *trial) {
	d := t.paired("device", t.owner("a"))
	bodies := d.bodies()
	for _, endpoint := range ai.Endpoints() {
		for _, c := range []struct {
			what     string
			declared any
		}{{"no version", nil}, {"an unknown version", "certify"}, {"a version that is a number", 0}} {
			a := d.note(string(endpoint)+" with "+c.what, d.send(endpoint, edit(t, bodies[endpoint], "protocolVersion", c.declared)))
			e := t.refused(string(endpoint)+" with "+c.what, a, unsupported)
			if len(e.Supported) == 0 && e.Minimum == "" {
				t.fail("%s with %s is refused without saying what is spoken", endpoint, c.what)
			}
			if len(e.Supported) > 0 && !slices.Contains(e.Supported, t.codec.Version) {
				t.fail("%s with %s is refused by a list without version %s, which is spoken", endpoint, c.what, t.codec.Version)
			}
		}
	}
}

func versionFirst(t *trial) {
	d := t.paired("device", t.owner("a"))
	bodies := d.bodies()
	for _, endpoint := range ai.Endpoints() {
		unknown := edit(t, bodies[endpoint], "protocolVersion", "certify")
		t.refused("an unsigned "+string(endpoint)+" with an unknown version", d.note("unsigned "+string(endpoint)+" with an unknown version", d.post(endpoint, unknown, nil)), unsupported)
		malformed := []byte(`{"protocolVersion":"certify","certify":[1]}`)
		t.refused("a malformed "+string(endpoint)+" with an unknown version", d.note("malformed "+string(endpoint)+" with an unknown version", d.send(endpoint, malformed)), unsupported)
	}
	j := t.ask(Ask{Owner: d.owner})
	t.refused("a claim with an unknown version", d.note("claim with an unknown version", d.send(ai.EndpointClaim, edit(t, d.claimBody(ai.MaxClaim), "protocolVersion", "certify"))), unsupported)
	h := d.takes(j, "after a claim that was refused for its version")
	late := edit(t, d.resultBody(d.letterFor(h, ai.Answer{Text: "no"})), "protocolVersion", "certify")
	t.refused("a result with an unknown version", d.note("result with an unknown version", d.send(ai.EndpointResult, late)), unsupported)
	t.open(j.JobID, "a result that was refused for its version")
	d.answers(h, ai.Answer{Text: "yes"})
}

func pairsByConsent(t *trial) {
	d, owner := t.device("device"), t.owner("a")
	j := t.ask(Ask{Owner: owner})
	started := d.start()
	if p := d.poll(started.DeviceCode); p.Status != ai.PairPending || p.Approved != nil {
		t.fail("a pairing that nobody decided is polled as %s", shown(p.Status))
	}
	// Whatever it calls itself, it is nobody yet.
	for what, name := range map[string]string{
		"its fingerprint": d.keys.Identity().Fingerprint().String(), "its user code": started.UserCode,
	} {
		d.runner = ai.RunnerID(name)
		t.refused("a claim of a device that nobody approved", d.note("claim under "+what, d.send(ai.EndpointClaim, d.claimBody(1))), unauthorized)
	}
	t.approve(started.UserCode, owner)
	d.collect(started.DeviceCode)
	if d.runner == "" || d.owner != owner {
		t.fail("the approval does not say who the device is and for whom")
	}
	d.takes(j, "to a device that was approved")
}

func denialCounts(t *trial) {
	d := t.device("device")
	started := d.start()
	t.asked("deny a code", t.kit.app.Deny(t.ctx, started.UserCode), "done")
	t.polledAs(d, started.DeviceCode, ai.PairDenied)
	t.approvesNot(started.UserCode, "a code that was denied")
	t.polledAs(d, started.DeviceCode, ai.PairDenied)
}

// polledAs fails unless a pairing is told to be over in that way, or to be none.
func (t *trial) polledAs(d *device, code ai.DeviceCode, want ai.PairStatus) {
	a := d.pollRaw(code)
	if a.status != http.StatusOK {
		t.refused("a poll of a pairing that is "+string(want), d.note("pair, poll", a), notFound)
		return
	}
	p := read(d, "pair, poll", t.codec.PairPollResponse, a)
	t.step(d.name+": pair, poll", "200, %s", shown(p.Status))
	if p.Status != want || p.Approved != nil {
		t.fail("a pairing that is %s is polled as %s", want, shown(p.Status))
	}
}

func (t *trial) approvesNot(code, what string) {
	err := t.kit.app.Approve(t.ctx, code, t.owner("b"))
	if isUnsupported(err) {
		t.unproved("the app's half approves nothing")
	}
	if err == nil {
		t.step("app: approve "+what, "done")
		t.fail("%s was approved", what)
	}
	t.step("app: approve "+what, "refused")
}

func codesEnd(t *trial) {
	d := t.device("device")
	started := d.start()
	t.until(started.ExpiresAt, "a pairing code", "--pair-ttl 2s")
	t.polledAs(d, started.DeviceCode, ai.PairExpired)
	t.approvesNot(started.UserCode, "a code that has ended")
	t.polledAs(d, started.DeviceCode, ai.PairExpired)
}

func onePerson(t *trial) {
	a, b := t.owner("a"), t.owner("b")
	d := t.device("device")
	started := d.start()
	t.approve(started.UserCode, a)
	t.approvesNot(started.UserCode, "a code that was approved already")
	d.collect(started.DeviceCode)
	if d.owner != a {
		t.fail("the device is told to belong to another person than the one who approved it")
	}
	d.beat()
	others := t.ask(Ask{Owner: b})
	own := t.ask(Ask{Owner: a})
	got := d.claim()
	if !slices.ContainsFunc(got, func(h held) bool { return h.ID == own.JobID && h.Owner == a }) {
		t.fail("the device is not granted its owner's job %s", shown(own.JobID))
	}
	if slices.ContainsFunc(got, func(h held) bool { return h.ID == others.JobID }) {
		t.fail("the device is granted job %s of another person", shown(others.JobID))
	}
}

func keysAtConsent(t *trial) {
	d, other := t.device("device"), t.device("other")
	swapped := ai.PublicIdentityOf(d.keys.Identity())
	swapped.Encryption = ai.PublicIdentityOf(other.keys.Identity()).Encryption
	body := write(t, t.codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "certify", Label: t.tag, Platform: ai.PlatformLinux}, Device: swapped, Capabilities: d.caps,
	}})
	t.refused("a sealing key that the identity did not sign", d.note("pair, start with a foreign sealing key", d.post(ai.EndpointPair, body, nil)), badRequest)

	started, raw := d.startRaw()
	t.onlyMembers("the answer to a start", raw.body, "protocolVersion", "deviceCode", "userCode", "verificationUrl", "expiresAt", "pollIntervalMs")
	raw = d.pollRaw(started.DeviceCode)
	t.onlyMembers("the answer to a poll before the approval", raw.body, "protocolVersion", "status")

	t.approve(started.UserCode, t.owner("a"))
	a := d.pollRaw(started.DeviceCode)
	p := read(d, "pair, poll", t.codec.PairPollResponse, a)
	t.step(d.name+": pair, poll", "200, %s", shown(p.Status))
	if p.Approved == nil || len(p.Approved.Sites) == 0 {
		t.fail("the approval names no site to pin")
	}
	for id, identity := range p.Approved.Sites {
		site, err := identity.Site()
		if err != nil {
			t.fail("a site's sealing key is not signed by the site's identity")
		}
		if string(id) != site.Fingerprint().String() {
			t.fail("a site stands under another key id than that of its key")
		}
	}
	d.pin(*p.Approved)
}

// onlyMembers fails if an object has members that are not listed.
func (t *trial) onlyMembers(what string, text []byte, listed ...string) {
	names := members(text)
	if names == nil {
		t.fail("%s is no object", what)
	}
	for _, name := range names {
		if !slices.Contains(listed, name) {
			t.fail("%s has a member that the contract does not list", what)
		}
	}
}

func consentFirst(t *trial) {
	a, b := t.owner("a"), t.owner("b")
	d := t.paired("device of a", a)
	nobody := t.device("unpaired device")
	j := t.ask(Ask{Owner: b})
	nobody.runner = "runner_certify_nobody"
	for _, endpoint := range ai.Endpoints()[1:] {
		t.refused(string(endpoint)+" of an unpaired device", nobody.note(string(endpoint), nobody.send(endpoint, nobody.bodies()[endpoint])), unauthorized)
	}
	d.getsNot(j, "to a device of another person, for the owner's own devices")
	p := t.paired("device of b", b)
	p.takes(j, "to a device that its owner approved")
}
