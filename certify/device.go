package certify

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/signing"
)

// device is a device that the kit plays. It is what the server thinks it is, and
// does what no honest one would.
type device struct {
	t      *trial
	name   string
	keys   key.DeviceKeys
	runner ai.RunnerID
	owner  ai.Owner
	sites  map[ai.KeyID]key.Site
	caps   []ai.Capability
	// last is the time of the last signature. Two requests alike, signed at one
	// instant, are one request to the server.
	last atomic.Int64
}

// offer is a capability of a local model.
func offer(kind ai.Kind, scope ai.OfferScope) ai.Capability {
	return ai.Capability{Kind: kind, Service: "certify", BackendID: "ollama", BackendClass: backend.HTTP, Model: "certify", OfferScope: scope}
}

// device makes a device that nobody knows, which offers text generation to its
// owner.
func (t *trial) device(name string) *device {
	k, err := key.NewKeys[key.DeviceRole](rand.Reader, time.Now())
	if err != nil {
		t.unproved("this machine makes no keys")
	}
	return &device{t: t, name: name, keys: k, caps: []ai.Capability{offer(ai.KindGenerate, ai.OfferSelf)}}
}

// paired makes a device that an owner has approved and that was heard of.
func (t *trial) paired(name string, owner ai.Owner, caps ...ai.Capability) *device {
	d := t.device(name)
	if len(caps) > 0 {
		d.caps = caps
	}
	started := d.start()
	t.approve(started.UserCode, owner)
	d.collect(started.DeviceCode)
	d.beat()
	return d
}

func (t *trial) approve(code string, owner ai.Owner) {
	t.asked(fmt.Sprintf("approve a code for %s", owner), t.kit.app.Approve(t.ctx, code, owner), "done")
}

// post sends a body as it is.
func (d *device) post(endpoint ai.Endpoint, body []byte, header http.Header) answer {
	a, err := d.t.kit.post(d.t.ctx, endpoint, body, header)
	if err != nil {
		if d.t.ctx.Err() != nil {
			d.t.unproved("the run was stopped")
		}
		d.t.step(d.name+": "+string(endpoint), "no answer")
		d.t.fail("%s was not answered", endpoint)
	}
	return a
}

// note records an answer to something special.
func (d *device) note(what string, a answer) answer {
	d.t.step(d.name+": "+what, "%s", a)
	return a
}

// signedAt are the headers of a request that the device signs.
func (d *device) signedAt(endpoint ai.Endpoint, body []byte, at ai.Millis) http.Header {
	s, err := signing.Sign(d.keys.Signer(), signing.Request{Plane: signing.DaemonPlane, Endpoint: endpoint, Body: body}, string(d.runner), at)
	if err != nil {
		d.t.unproved("this machine signs nothing")
	}
	h := http.Header{}
	for _, pair := range s.Headers(signing.DaemonPlane) {
		h.Set(pair[0], pair[1])
	}
	return h
}

func (d *device) signed(endpoint ai.Endpoint, body []byte) http.Header {
	at := int64(ai.MillisOf(d.t.kit.now()))
	for {
		last := d.last.Load()
		at = max(at, last+1)
		if d.last.CompareAndSwap(last, at) {
			return d.signedAt(endpoint, body, ai.Millis(at))
		}
	}
}

// send sends a request that is signed as it has to be.
func (d *device) send(endpoint ai.Endpoint, body []byte) answer {
	return d.post(endpoint, body, d.signed(endpoint, body))
}

// write writes a message.
func write[T any](t *trial, m ai.Message[T], v T) []byte {
	body, err := m.Write(v)
	if err != nil {
		t.unproved("this program cannot write the message")
	}
	return body
}

// read reads the answer to a request that has to be granted.
func read[T any](d *device, what string, m ai.Message[T], a answer) T {
	if a.status != http.StatusOK {
		d.note(what, a)
		d.t.fail("%s by %s was answered with %s", what, d.name, a)
	}
	v, err := m.Read(a.body)
	if err != nil {
		d.note(what, a)
		d.t.fail("the answer to %s is none of the contract. %s", what, strings.TrimSuffix(sentence(err), "."))
	}
	return v
}

// sentence is what a codec says. It names members and rules, and no input.
func sentence(err error) string {
	return strings.TrimPrefix(ai.ErrorOf(err).Message, ai.ErrBadRequest.Meaning()+" ")
}

// edit changes a member of a JSON object, or takes it away.
func edit(t *trial, body []byte, name string, value any) []byte {
	var object map[string]jsontext.Value
	if err := json.Unmarshal(body, &object); err != nil {
		t.unproved("this program cannot change its message")
	}
	delete(object, name)
	if value != nil {
		text, err := json.Marshal(value)
		if err != nil {
			t.unproved("this program cannot change its message")
		}
		object[name] = text
	}
	out, err := json.Marshal(object, json.Deterministic(true))
	if err != nil {
		t.unproved("this program cannot change its message")
	}
	return out
}

// members are the names in a JSON object, or nil where there is none.
func members(text []byte) (names []string) {
	var object map[string]jsontext.Value
	if json.Unmarshal(text, &object) != nil {
		return nil
	}
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (d *device) startBody() []byte {
	return write(d.t, d.t.codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "certify", Label: d.t.tag + " " + d.name, Platform: ai.PlatformLinux},
		Device: ai.PublicIdentityOf(d.keys.Identity()), Capabilities: d.caps,
	}})
}

// start asks to be paired.
func (d *device) start() ai.PairStartResponse {
	s, _ := d.startRaw()
	return s
}

func (d *device) startRaw() (ai.PairStartResponse, answer) {
	a := d.post(ai.EndpointPair, d.startBody(), nil)
	s := read(d, "pair, start", d.t.codec.PairStartResponse, a)
	d.t.step(d.name+": pair, start", "200, a code for %s", s.ExpiresAt.Time().Sub(d.t.kit.now()).Round(time.Second))
	return s, a
}

func (d *device) pollRaw(code ai.DeviceCode) answer {
	return d.post(ai.EndpointPair, write(d.t, d.t.codec.PairRequest, ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: code}}), nil)
}

func (d *device) poll(code ai.DeviceCode) ai.PairPollResponse {
	p := read(d, "pair, poll", d.t.codec.PairPollResponse, d.pollRaw(code))
	d.t.step(d.name+": pair, poll", "200, %s", shown(p.Status))
	return p
}

// collect takes the approval, which a server may give out only once.
func (d *device) collect(code ai.DeviceCode) {
	p := d.poll(code)
	if p.Approved == nil {
		d.t.fail("a pairing that was approved is polled as %s", shown(p.Status))
	}
	d.pin(*p.Approved)
}

// pin keeps what an approval says. The device is revoked at the end.
func (d *device) pin(a ai.PairApproval) {
	d.runner, d.owner, d.sites = a.RunnerID, a.Owner, map[ai.KeyID]key.Site{}
	for id, identity := range a.Sites {
		site, err := identity.Site()
		if err != nil || string(id) != site.Fingerprint().String() {
			continue // for the check that is about it
		}
		d.sites[id] = site
	}
	d.t.undo = append(d.t.undo, func(ctx context.Context) { _ = d.t.kit.app.Revoke(ctx, d.runner) })
}

func (d *device) beatBody(grants ...ai.Grant) []byte {
	return write(d.t, d.t.codec.HeartbeatRequest, ai.HeartbeatRequest{
		RunnerID: d.runner, DaemonVersion: "certify", Capabilities: d.caps, ActiveLeases: slices.Concat([]ai.Grant{}, grants),
	})
}

func (d *device) beat(grants ...ai.Grant) ai.HeartbeatResponse {
	b := read(d, "heartbeat", d.t.codec.HeartbeatResponse, d.send(ai.EndpointHeartbeat, d.beatBody(grants...)))
	d.t.step(fmt.Sprintf("%s: heartbeat with %d leases", d.name, len(grants)), "200, %d lost, %d to cancel", len(b.Lost), len(b.Cancel))
	return b
}

func (d *device) claimBody(max int64) []byte {
	return write(d.t, d.t.codec.ClaimRequest, ai.ClaimRequest{RunnerID: d.runner, Capabilities: d.caps, Max: max})
}

// held is a job that a device was granted.
type held struct {
	ai.ClaimedStub
	grant ai.Grant
	// leaseMs is how long the server says that leases last.
	leaseMs int64
}

// granted are the trial's own jobs of a claim's answer. What is somebody else's
// goes back at once: a server that is tested may have others.
func (d *device) granted(a answer) (own []held) {
	c := read(d, "claim", d.t.codec.ClaimResponse, a)
	var foreign []ai.Grant
	for _, stub := range c.Jobs {
		g := ai.Grant{JobID: stub.ID, LeaseID: stub.Lease.ID}
		if d.t.mine(stub.ID) {
			own = append(own, held{stub, g, c.LeaseMs})
		} else {
			foreign = append(foreign, g)
		}
	}
	if len(foreign) > 0 {
		d.send(ai.EndpointRelease, d.releaseBody(ai.ReleaseBackendDown, foreign...))
	}
	got := fmt.Sprintf("200, granted %d", len(own))
	for _, h := range own {
		got += " " + shown(h.ID)
	}
	d.t.step(d.name+": claim", "%s", got)
	return own
}

// claim asks for as many jobs as may be.
func (d *device) claim() []held { return d.granted(d.send(ai.EndpointClaim, d.claimBody(ai.MaxClaim))) }

// takes claims a job and fails unless it is granted.
func (d *device) takes(j Job, why string) held {
	for _, h := range d.claim() {
		if h.ID == j.JobID {
			return h
		}
	}
	d.t.fail("job %s is not granted %s", shown(j.JobID), why)
	return held{}
}

// getsNot claims and fails if the job is granted.
func (d *device) getsNot(j Job, why string) {
	for _, h := range d.claim() {
		if h.ID == j.JobID {
			d.t.fail("job %s is granted %s", shown(j.JobID), why)
		}
	}
}

func (d *device) fetchBody(g ai.Grant) []byte {
	return write(d.t, d.t.codec.FetchRequest, ai.FetchRequest{RunnerID: d.runner, Grant: g})
}

func (d *device) fetch(g ai.Grant) answer { return d.send(ai.EndpointFetch, d.fetchBody(g)) }

// fetched is a payload in its envelope.
func (d *device) fetched(g ai.Grant) ai.SealedEnvelope {
	f := read(d, "fetch", d.t.codec.FetchResponse, d.fetch(g))
	d.t.step(d.name+": fetch", "200, an envelope of %d characters", len(f.Envelope.Ciphertext))
	return f.Envelope
}

// site is the pinned site that a stub names.
func (d *device) site(h held) key.Site {
	s, ok := d.sites[h.Site]
	if !ok {
		d.t.fail("the stub names a site that the pairing did not")
	}
	return s
}

func (d *device) releaseBody(why ai.ReleaseReason, grants ...ai.Grant) []byte {
	return write(d.t, d.t.codec.ReleaseRequest, ai.ReleaseRequest{RunnerID: d.runner, Leases: grants, Reason: why})
}

// releases gives a job back and fails unless it went back.
func (d *device) releases(h held, why ai.ReleaseReason) {
	r := read(d, "release", d.t.codec.ReleaseResponse, d.send(ai.EndpointRelease, d.releaseBody(why, h.grant)))
	d.t.step(d.name+": release as "+string(why), "200, %d released", len(r.Released))
	if !slices.Contains(r.Released, h.ID) {
		d.t.fail("job %s was not released by the device that holds it", shown(h.ID))
	}
}

// letter is a result as it is sealed; the checks change one thing each.
type letter struct {
	signer    key.Signer
	to        key.Site
	letter    envelope.Letter
	envelope  func(*ai.SealedEnvelope)
	says      ai.Disposition
	reportsOn ai.Grant
}

// letterFor is a result as it has to be.
func (d *device) letterFor(h held, out ai.Outcome) letter {
	text := write(d.t, d.t.codec.Outcome, ai.SealedOutcome{
		Outcome: out, Ran: ai.RunMetadata{Model: "certify", BackendClass: backend.HTTP, DurationMs: 1},
	})
	return letter{
		signer: d.keys.Signer(), to: d.site(h), says: out.Disposition(), reportsOn: h.grant,
		letter: envelope.Letter{
			JobID: h.ID, Direction: ai.DirectionResult, DeadlineAt: ai.MillisOf(d.t.kit.now().Add(envelope.MaxAge)), Plaintext: string(text),
		},
	}
}

func (d *device) resultBody(l letter) []byte {
	sealed, err := envelope.Seal(rand.Reader, l.signer, l.to, l.letter)
	if err != nil {
		d.t.unproved("this program cannot seal the result")
	}
	if l.envelope != nil {
		l.envelope(&sealed)
	}
	return write(d.t, d.t.codec.ResultRequest, ai.ResultRequest{RunnerID: d.runner, Grant: l.reportsOn, Envelope: sealed, Disposition: l.says})
}

func (d *device) sendResult(l letter) answer { return d.send(ai.EndpointResult, d.resultBody(l)) }

// answers returns a result and fails unless the server takes it.
func (d *device) answers(h held, out ai.Outcome) {
	r := read(d, "result", d.t.codec.ResultResponse, d.sendResult(d.letterFor(h, out)))
	d.t.step(d.name+": result", "200, accepted %t", r.Accepted)
	if !r.Accepted {
		d.t.fail("the first result for job %s was not accepted", shown(h.ID))
	}
}

// takesNot fails if a result is accepted: it is refused, or taken for nothing. what
// says what is wrong with it.
func (d *device) takesNot(what string, a answer, codes ...ai.Code) {
	if a.status == http.StatusOK {
		r := read(d, "result", d.t.codec.ResultResponse, a)
		d.t.step(d.name+": result "+what, "200, accepted %t", r.Accepted)
		if r.Accepted {
			d.t.fail("a result %s was accepted", what)
		}
		return
	}
	d.note("result "+what, a)
	d.t.refused("a result "+what, a, codes...)
}
