package certify

import (
	"crypto/rand"
	"net/http"
	"slices"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/signing"
)

func newSite() (key.SiteKeys, error) { return key.NewKeys[key.SiteRole](rand.Reader, time.Now()) }

// signedEndpoints are all but pairing.
func signedEndpoints() []ai.Endpoint { return ai.Endpoints()[1:] }

func unsigned(t *trial) {
	d := t.device("device")
	started := d.start()
	t.approve(started.UserCode, t.owner("a"))
	d.collect(started.DeviceCode)
	bodies := d.bodies()
	for _, endpoint := range signedEndpoints() {
		body := bodies[endpoint]
		t.refused("an unsigned "+string(endpoint), d.note(string(endpoint)+" unsigned", d.post(endpoint, body, nil)), unauthorized)
		whole := d.signed(endpoint, body)
		for name := range whole {
			part := whole.Clone()
			part.Del(name)
			t.refused(string(endpoint)+" without "+name, d.note(string(endpoint)+" without "+name, d.post(endpoint, body, part)), unauthorized)
		}
		// What a device knows as secrets is no signature.
		bearer := http.Header{"Authorization": {"Bearer " + string(started.DeviceCode)}, "X-Byollm-Runner": {string(d.runner)}}
		t.refused(string(endpoint)+" with the device code as a bearer", d.note(string(endpoint)+" with the device code as a bearer", d.post(endpoint, body, bearer)), unauthorized)
	}
	if a := d.send(ai.EndpointHeartbeat, d.beatBody()); a.status != http.StatusOK {
		t.fail("a signed heartbeat was answered with %s", a)
	}
}

func forged(t *trial) {
	owner := t.owner("a")
	d, other := t.paired("device", owner), t.paired("other", owner)
	bodies := d.bodies()
	own := other.runner
	for i, endpoint := range signedEndpoints() {
		body := bodies[endpoint]
		// By somebody who is known, under this device's name.
		other.runner = d.runner
		t.refused(string(endpoint)+" signed by another device", other.note(string(endpoint)+" in the name of another", other.send(endpoint, body)), unauthorized)
		other.runner = own
		next := signedEndpoints()[(i+1)%len(signedEndpoints())]
		t.refused(string(endpoint)+" with the signature of another endpoint", d.note(string(endpoint)+" signed for "+string(next), d.post(endpoint, body, d.signed(next, body))), unauthorized)
		changed := append(slices.Clone(body), ' ')
		t.refused(string(endpoint)+" with a body that was changed after signing", d.note(string(endpoint)+" with one more space", d.post(endpoint, changed, d.signed(endpoint, body))), unauthorized)
	}
	// A signature of the plane on which sites speak to relays is none here.
	body := bodies[ai.EndpointClaim]
	s, err := signing.Sign(d.keys.Signer(), signing.Request{Plane: signing.SitePlane, Endpoint: ai.EndpointClaim, Body: body}, string(d.runner), ai.MillisOf(t.kit.now()))
	if err != nil {
		t.unproved("this machine signs nothing")
	}
	h := http.Header{}
	for _, pair := range s.Headers(signing.DaemonPlane) {
		h.Set(pair[0], pair[1])
	}
	t.refused("a claim signed for the site plane", d.note("claim signed for the site plane", d.post(ai.EndpointClaim, body, h)), unauthorized)

	// Whoever signs counts, and not whom the body names.
	held := d.takes(t.ask(Ask{Owner: owner}), "to its owner's device")
	t.refused("a fetch in a body of another device", other.note("fetch with a body of another device", other.send(ai.EndpointFetch, d.fetchBody(held.grant))), forbidden, unauthorized, notFound)
	if a := other.note("release with a body of another device", other.send(ai.EndpointRelease, d.releaseBody(ai.ReleaseShutdown, held.grant))); a.status == http.StatusOK {
		if r := read(other, "release", t.codec.ReleaseResponse, a); len(r.Released) > 0 {
			t.fail("a device gave back a job of another, in whose name its body was")
		}
	}
	d.finishes(held, "requests of another device in this one's name")
}

func stale(t *trial) {
	d := t.paired("device", t.owner("a"))
	body := d.beatBody()
	at := func(by time.Duration) answer {
		return d.post(ai.EndpointHeartbeat, body, d.signedAt(ai.EndpointHeartbeat, body, ai.MillisOf(t.kit.now().Add(by))))
	}
	const beyond = signing.Window + 10*time.Second
	t.refused("a signature from before the window", d.note("heartbeat signed 130 s ago", at(-beyond)), clockSkew, unauthorized)
	t.refused("a signature from after the window", d.note("heartbeat signed 130 s ahead", at(beyond)), clockSkew, unauthorized)
	for _, by := range []time.Duration{-signing.Window + 10*time.Second, signing.Window - 10*time.Second} {
		if a := d.note("heartbeat signed within the window", at(by)); a.status != http.StatusOK {
			t.fail("a signature within the window was answered with %s", a)
		}
	}
}

func replayed(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	j := t.ask(Ask{Owner: owner})
	h := d.takes(j, "to its owner's device")
	body := d.resultBody(d.letterFor(h, ai.Answer{Text: "first"}))
	signed := d.signed(ai.EndpointResult, body)
	first := read(d, "result", t.codec.ResultResponse, d.post(ai.EndpointResult, body, signed))
	t.step(d.name+": result", "200, accepted %t", first.Accepted)
	if !first.Accepted {
		t.fail("the first result was not accepted")
	}
	d.takesNot("sent again as it was", d.post(ai.EndpointResult, body, signed), tooLate, notFound, unauthorized)

	// A release that was sent once gives back nothing that was granted later.
	again := t.ask(Ask{Owner: owner})
	h = d.takes(again, "to its owner's device")
	body = d.releaseBody(ai.ReleaseShutdown, h.grant)
	signed = d.signed(ai.EndpointRelease, body)
	if r := read(d, "release", t.codec.ReleaseResponse, d.post(ai.EndpointRelease, body, signed)); !slices.Contains(r.Released, again.JobID) {
		t.fail("a job was not released by the device that holds it")
	}
	h = d.takes(again, "after a release")
	a := d.note("release, sent again as it was", d.post(ai.EndpointRelease, body, signed))
	if a.status == http.StatusOK {
		if r := read(d, "release", t.codec.ReleaseResponse, a); slices.Contains(r.Released, again.JobID) {
			t.fail("a release that was sent again gave back a later grant")
		}
	}
	d.answers(h, ai.Answer{Text: "second"})
}

func leaseScoped(t *trial) {
	owner := t.owner("a")
	d := t.paired("device", owner)
	j := t.ask(Ask{Owner: owner})
	old := d.takes(j, "to its owner's device")
	d.releases(old, ai.ReleaseShutdown)
	h := d.takes(j, "after a release")
	if h.grant.LeaseID == old.grant.LeaseID {
		t.fail("two grants of one job have one lease")
	}
	made := old
	made.grant.LeaseID = "certify-made-up"
	d.actsNot(old, "a lease that was given back")
	d.actsNot(made, "a lease that was never given")
	d.finishes(h, "requests under other leases")
}

func leaseOwned(t *trial) {
	owner := t.owner("a")
	d, other := t.paired("device", owner), t.paired("other", owner)
	h := d.takes(t.ask(Ask{Owner: owner}), "to its owner's device")
	other.actsNot(h, "a lease of another device")
	d.finishes(h, "requests of another device under its lease")
}

// actsNot fails if the device can do anything under a lease that it does not hold.
func (d *device) actsNot(h held, what string) {
	t := d.t
	t.refused("a fetch under "+what, d.note("fetch under "+what, d.fetch(h.grant)), notFound, tooLate, forbidden)
	d.takesNot("under "+what, d.sendResult(d.letterFor(h, ai.Answer{Text: "no"})), notFound, tooLate, forbidden, badRequest)
	if beat := d.beat(h.grant); !slices.Contains(beat.Lost, h.grant) {
		t.fail("a heartbeat with %s is not told that it is lost", what)
	}
	r := read(d, "release", t.codec.ReleaseResponse, d.send(ai.EndpointRelease, d.releaseBody(ai.ReleaseShutdown, h.grant)))
	t.step(d.name+": release under "+what, "200, %d released", len(r.Released))
	if len(r.Released) > 0 {
		t.fail("a release under %s gave the job back", what)
	}
	t.open(h.ID, "requests under "+what)
}

// finishes fails unless the device can go on under its lease.
func (d *device) finishes(h held, after string) {
	if beat := d.beat(h.grant); len(beat.Lost) > 0 {
		d.t.fail("the lease that counts was lost by %s", after)
	}
	d.fetched(h.grant)
	d.answers(h, ai.Answer{Text: "yes"})
}
