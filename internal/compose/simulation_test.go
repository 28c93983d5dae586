package compose

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "run the simulation with this seed only")
	simSeeds = flag.Int("sim.seeds", 4, "how many seeds the simulation runs")
)

// TestSimulation drives a real site and several devices through a bad quarter of
// an hour: requests and answers are lost, delayed and doubled, devices crash in
// the middle of everything, are paused and lose their models, and the app cancels
// jobs. Then the weather clears, and everything that was asked must have ended,
// once, by a device that held the job. A seed replays a run exactly.
func TestSimulation(t *testing.T) {
	seeds := []uint64{*simSeed}
	if *simSeed == 0 {
		seeds = nil
		n := *simSeeds
		if raced {
			n = min(n, 1)
		}
		for i := range n {
			seeds = append(seeds, uint64(i+1))
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { simulate(t, seed) })
	}
}

// TestSimulationReplays: the same seed is the same run, to the last event.
func TestSimulationReplays(t *testing.T) {
	if raced {
		t.Skip("it runs without the race detector; see the Makefile")
	}
	first, again := simulate(t, 1), simulate(t, 1)
	if first != again {
		t.Errorf("two runs of one seed differ: %s and %s", first, again)
	}
	if other := simulate(t, 2); other == first {
		t.Error("two seeds are one run, so the comparison proves nothing")
	}
}

// simulate runs one seed and returns the hash of everything that happened.
func simulate(t *testing.T, seed uint64) (hash string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWeather(t, seed)
		w.run(15*time.Minute, true)
		w.calm()
		w.run(45*time.Minute, false)
		w.check()
		if err := w.site.Close(); err != nil {
			t.Error(err)
		}
		hash = hex.EncodeToString(w.trace.Sum(nil)[:8])
	})
	return hash
}

// weather is the world of one run.
type weather struct {
	t      *testing.T
	rand   *rand.Rand
	site   *site.Site
	boxes  []*device
	queue  []due
	order  int
	storm  bool
	jobs   int
	asked  map[ai.JobID]bool
	record map[ai.JobID][]string // who computed which answer
	took   map[ai.JobID]int      // how often the site accepted a result
	trace  interface {
		io.Writer
		Sum([]byte) []byte
	}
}

// due is something that happens at a time. Equal times go by order.
type due struct {
	at    time.Time
	order int
	do    func()
}

// seeded is randomness for keys and ids.
type seeded struct{ *rand.Rand }

func (s seeded) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.Uint32())
	}
	return len(p), nil
}

// device is one machine with its disk, over all its lives.
type device struct {
	w     *weather
	name  string
	owner ai.Owner
	keys  key.DeviceKeys
	link  *client.Device
	site  key.Site

	// The disk.
	kept map[ai.LeaseID]ai.ResultRequest

	// One life.
	life    int
	machine *lane.Machine
	wake    int
	working map[ai.LeaseID]string // "", "canceled" or "aborted"
	paused  bool
	up      bool
}

func newWeather(t *testing.T, seed uint64) *weather {
	w := &weather{
		t: t, rand: rand.New(rand.NewPCG(seed, 77)), asked: map[ai.JobID]bool{}, record: map[ai.JobID][]string{},
		took: map[ai.JobID]int{}, trace: sha256.New(),
	}
	keys, err := key.NewKeys[key.SiteRole](seeded{w.rand}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	w.site, err = site.Open(t.Context(), site.Config{
		Store: store, CloseStore: true, Keys: []key.SiteKeys{keys}, VerificationURL: "http://site.test/pair", NoLimits: true,
		Lease: 20 * time.Second, TTL: 10 * time.Minute, Rand: seeded{rand.New(rand.NewPCG(seed, 78))},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, owner := range []ai.Owner{"alice", "alice", "bob"} {
		w.boxes = append(w.boxes, newDevice(w, fmt.Sprint("device", i), owner, keys.Identity()))
	}
	return w
}

func newDevice(w *weather, name string, owner ai.Owner, s key.Site) *device {
	w.t.Helper()
	d := &device{w: w, name: name, owner: owner, site: s, kept: map[ai.LeaseID]ai.ResultRequest{}}
	var err error
	if d.keys, err = key.NewKeys[key.DeviceRole](seeded{w.rand}, time.Now()); err != nil {
		w.t.Fatal(err)
	}
	server, err := client.ParseServer("http://127.0.0.1:1")
	if err != nil {
		w.t.Fatal(err)
	}
	c := client.New(client.Config{Server: server, Version: "sim", Transport: w})
	started, err := c.PairStart(w.t.Context(), ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "sim", Label: name, Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(d.keys.Identity()), Capabilities: []ai.Capability{},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.site.Devices.Approve(w.t.Context(), started.UserCode, owner); err != nil {
		w.t.Fatal(err)
	}
	got, err := c.PairPoll(w.t.Context(), ai.PairPollRequest{DeviceCode: started.DeviceCode})
	if err != nil || got.Approved == nil {
		w.t.Fatal(got, err)
	}
	d.link = c.As(got.Approved.RunnerID, d.keys.Signer())
	d.start()
	return d
}

// RoundTrip hands a request to the site at once. Requests are not held, since one
// goroutine drives everything.
func (w *weather) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Del("Prefer")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	q := httptest.NewRequest(r.Method, r.URL.Path, bytes.NewReader(body))
	q.Header = r.Header
	rec := httptest.NewRecorder()
	w.site.Handler().ServeHTTP(rec, q)
	return rec.Result(), nil
}

func (w *weather) log(format string, args ...any) {
	fmt.Fprintf(w.trace, "%d ", time.Now().UnixMicro())
	fmt.Fprintf(w.trace, format+"\n", args...)
}

// after has something done later.
func (w *weather) after(d time.Duration, do func()) {
	w.order++
	// Nothing falls on a whole second, when the site sweeps.
	at := time.Now().Add(d).Truncate(time.Millisecond).Add(137 * time.Microsecond)
	if !at.After(time.Now()) {
		at = time.Now().Add(time.Millisecond)
	}
	w.queue = append(w.queue, due{at, w.order, do})
}

// run lets time pass.
func (w *weather) run(d time.Duration, storm bool) {
	w.storm = storm
	end := time.Now().Add(d)
	if storm {
		w.after(0, w.app)
		w.after(time.Second, w.trouble)
	}
	for {
		i := -1
		for j, q := range w.queue {
			if i < 0 || q.at.Before(w.queue[i].at) || q.at.Equal(w.queue[i].at) && q.order < w.queue[i].order {
				i = j
			}
		}
		if i < 0 || w.queue[i].at.After(end) {
			time.Sleep(time.Until(end))
			return
		}
		q := w.queue[i]
		w.queue = slices.Delete(w.queue, i, i+1)
		time.Sleep(time.Until(q.at))
		q.do()
	}
}

// app asks and cancels.
func (w *weather) app() {
	if !w.storm {
		return
	}
	w.after(time.Duration(w.rand.IntN(20_000))*time.Millisecond, w.app)
	if w.rand.IntN(6) == 0 && w.jobs > 0 {
		id := ai.JobID(fmt.Sprint("job", w.rand.IntN(w.jobs)))
		job, err := w.site.Jobs.Cancel(w.t.Context(), id)
		if err != nil {
			w.t.Errorf("cancel: %v", err)
		}
		w.log("cancel %s: %s", id, job.State)
		return
	}
	q := site.Question{ID: ai.JobID(fmt.Sprint("job", w.jobs)), Owner: "alice", Payload: ai.Generate{Prompt: "q" + fmt.Sprint(w.jobs)}}
	if w.rand.IntN(3) == 0 {
		q.Owner = "bob"
	}
	if w.rand.IntN(4) == 0 && w.jobs > 0 {
		q.DependsOn = []ai.JobID{ai.JobID(fmt.Sprint("job", w.rand.IntN(w.jobs)))}
		q.Deadline = time.Now().Add(20 * time.Minute)
	}
	w.jobs++
	for range 1 + w.rand.IntN(2) { // sometimes twice
		if _, err := w.site.Jobs.Enqueue(w.t.Context(), q); err != nil {
			w.t.Errorf("enqueue: %v", err)
		}
	}
	w.asked[q.ID] = true
	w.log("ask %s", q.ID)
}

// trouble does something to a device.
func (w *weather) trouble() {
	if !w.storm {
		return
	}
	w.after(time.Duration(w.rand.IntN(15_000))*time.Millisecond, w.trouble)
	d := w.boxes[w.rand.IntN(len(w.boxes))]
	switch w.rand.IntN(5) {
	case 0:
		w.log("%s crashes", d.name)
		d.start()
	case 1:
		d.paused = !d.paused
		release := w.rand.IntN(2) == 0
		w.log("%s paused %v %v", d.name, d.paused, release)
		d.step(lane.Paused{On: d.paused, Release: release})
	case 2:
		d.up = !d.up
		w.log("%s has a model %v", d.name, d.up)
		d.step(lane.Offered{Offers: d.offers()})
	}
}

// calm ends all trouble.
func (w *weather) calm() {
	w.storm = false
	w.log("calm")
	for _, d := range w.boxes {
		d.paused, d.up = false, true
		d.step(lane.Paused{})
		d.step(lane.Offered{Offers: d.offers()})
	}
}

func (d *device) offers() []lane.Offer {
	if !d.up {
		return nil
	}
	return []lane.Offer{{
		Capability: ai.Capability{Kind: ai.KindGenerate, Service: "b", BackendID: "ollama", BackendClass: backend.HTTP, Model: d.name, OfferScope: ai.OfferSelf},
		Cost:       backend.Free,
	}}
}

// start begins a new life with what is on the disk.
func (d *device) start() {
	d.life++
	d.working, d.up = map[ai.LeaseID]string{}, true
	id := ai.KeyID(d.site.Fingerprint().String())
	d.machine = lane.New(lane.Config{
		Runner: d.link.RunnerID(), Owner: d.owner, Sites: map[ai.KeyID]key.Site{id: d.site}, Concurrency: 2, Paused: d.paused,
	}, rand.New(rand.NewPCG(d.w.rand.Uint64(), 1)), time.Now())
	var restored lane.Restored
	for _, lease := range slices.Sorted(maps.Keys(d.kept)) {
		q := d.kept[lease]
		restored.Results = append(restored.Results, lane.Kept{Grant: q.Grant, Site: q.Envelope.RecipientKeyID, Until: q.Envelope.DeadlineAt})
	}
	d.step(restored)
	d.step(lane.Offered{Offers: d.offers()})
}

// later has something done in this life only.
func (d *device) later(after time.Duration, do func()) {
	life := d.life
	d.w.after(after, func() {
		if d.life == life {
			do()
		}
	})
}

func (d *device) step(e lane.Event) {
	for _, a := range d.machine.Step(time.Now(), e) {
		d.do(a)
	}
	if st := d.machine.Status(); st.Running+st.Kept > 2+len(d.kept) {
		d.w.t.Errorf("%s works on %d jobs and has %d results", d.name, st.Running, st.Kept)
	}
}

// errLost is what a device gets where the weather took something.
var errLost = client.ErrUnreachable.With("lost in the simulation")

// request carries a request to the site and its answer back, or not.
func request[A any](d *device, name string, send func(ctx context.Context) (A, error), then func(A, error)) {
	w := d.w
	there, back := time.Duration(w.rand.IntN(300))*time.Millisecond, time.Duration(w.rand.IntN(300))*time.Millisecond
	lost, unheard, twice := w.storm && w.rand.IntN(12) == 0, w.storm && w.rand.IntN(12) == 0, w.storm && w.rand.IntN(12) == 0
	if w.storm && w.rand.IntN(30) == 0 {
		there += 25 * time.Second // longer than a lease
	}
	arrive := func() (A, error) {
		a, err := send(w.t.Context())
		w.log("%s %s: %v", d.name, name, err)
		return a, err
	}
	// What is on the road arrives even if the sender crashes meanwhile.
	w.after(there, func() {
		var a A
		err := error(errLost)
		if !lost {
			a, err = arrive()
		}
		if twice && !lost {
			w.after(time.Duration(w.rand.IntN(10_000))*time.Millisecond, func() { _, _ = arrive() })
		}
		if unheard {
			var none A
			a, err = none, errLost
		}
		life := d.life
		w.after(back, func() {
			if d.life == life {
				then(a, err)
			}
		})
	})
}

func (d *device) do(a lane.Action) {
	w := d.w
	switch a := a.(type) {
	case lane.Beat:
		request(d, "beat", func(ctx context.Context) (ai.HeartbeatResponse, error) { return d.link.Heartbeat(ctx, 0, a.Request) },
			func(r ai.HeartbeatResponse, err error) { d.step(lane.BeatDone{Seq: a.Seq, Answer: r, Err: err}) })
	case lane.Claim:
		request(d, "claim", func(ctx context.Context) (ai.ClaimResponse, error) { return d.link.Claim(ctx, 0, a.Request) },
			func(r ai.ClaimResponse, err error) { d.step(lane.ClaimDone{Seq: a.Seq, Answer: r, Err: err}) })
	case lane.Work:
		if _, twice := d.working[a.Stub.Lease.ID]; twice {
			w.t.Errorf("%s works twice under %s", d.name, a.Stub.Lease.ID)
		}
		d.working[a.Stub.Lease.ID] = ""
		request(d, "fetch", func(ctx context.Context) (ai.FetchResponse, error) {
			return d.link.Fetch(ctx, ai.Grant{JobID: a.Stub.ID, LeaseID: a.Stub.Lease.ID})
		}, func(r ai.FetchResponse, err error) { d.fetched(a.Stub, r, err) })
	case lane.Abort:
		if _, ok := d.working[a.Lease]; ok && a.Canceled {
			d.working[a.Lease] = "canceled"
		} else if ok {
			d.working[a.Lease] = "aborted"
		}
	case lane.Send:
		q, ok := d.kept[a.Grant.LeaseID]
		if !ok {
			w.t.Errorf("%s sends what it has not kept", d.name)
			return
		}
		request(d, "result "+string(a.Grant.JobID), func(ctx context.Context) (ai.ResultResponse, error) {
			r, err := d.link.Result(ctx, q)
			if r.Accepted {
				w.took[q.Grant.JobID]++
			}
			return r, err
		}, func(r ai.ResultResponse, err error) {
			d.step(lane.SendDone{Lease: a.Grant.LeaseID, Answer: r, Err: err})
		})
	case lane.Drop:
		delete(d.kept, a.Grant.LeaseID)
	case lane.Release:
		request(d, "release "+string(a.Reason), func(ctx context.Context) (ai.ReleaseResponse, error) { return d.link.Release(ctx, a.Reason, a.Grants) },
			func(_ ai.ReleaseResponse, err error) { d.step(lane.ReleaseDone{Err: err}) })
	case lane.Wake:
		d.wake++
		n := d.wake
		d.later(time.Until(a.At), func() {
			if d.wake == n {
				d.step(lane.Tick{})
			}
		})
	case lane.Note:
		w.log("%s: %s", d.name, a.What)
	}
}

// fetched opens a payload and computes for a while.
func (d *device) fetched(s ai.ClaimedStub, r ai.FetchResponse, err error) {
	lease := s.Lease.ID
	if err != nil {
		delete(d.working, lease)
		d.step(lane.WorkDone{Lease: lease, End: lane.WorkGone})
		return
	}
	opened, err := envelope.Open(d.keys.Opener(), d.site.Signing(), r.Envelope, envelope.Context{
		JobID: s.ID, Direction: ai.DirectionPayload, Sender: d.site.Fingerprint(), Recipient: d.keys.Identity().Fingerprint(),
	})
	if err == nil {
		err = opened.Reach.Check(s.Stub)
	}
	var p ai.Payload
	if err == nil {
		p, err = protocol.Latest().ReadPayload(s.Kind, []byte(opened.Plaintext))
	}
	if err != nil || p.(ai.Generate).Prompt != strings.Replace(string(s.ID), "job", "q", 1) || s.Owner != d.owner {
		d.w.t.Errorf("%s opened %v for %s: %v", d.name, p, s.Owner, err)
		return
	}
	d.later(time.Duration(d.w.rand.IntN(45_000))*time.Millisecond, func() { d.computed(s) })
}

// computed seals a result and keeps it on the disk.
func (d *device) computed(s ai.ClaimedStub) {
	lease := s.Lease.ID
	how := d.working[lease]
	delete(d.working, lease)
	if how == "aborted" {
		d.step(lane.WorkDone{Lease: lease, End: lane.WorkGone})
		return
	}
	var outcome ai.Outcome = ai.Answer{Text: "a " + d.name + " " + string(lease)}
	if how == "canceled" {
		outcome = ai.Cancellation{}
	}
	text, err := protocol.Latest().Outcome.Write(ai.SealedOutcome{Outcome: outcome, Ran: ai.RunMetadata{Model: d.name, BackendClass: backend.HTTP}})
	if err != nil {
		d.w.t.Fatal(err)
	}
	until := ai.MillisOf(time.Now().Add(envelope.MaxAge))
	sealed, err := envelope.Seal(seeded{d.w.rand}, d.keys.Signer(), d.site, envelope.Letter{
		JobID: s.ID, Direction: ai.DirectionResult, DeadlineAt: until, Plaintext: string(text),
	})
	if err != nil {
		d.w.t.Fatal(err)
	}
	d.kept[lease] = ai.ResultRequest{Grant: ai.Grant{JobID: s.ID, LeaseID: lease}, Envelope: sealed, Disposition: outcome.Disposition()}
	d.w.record[s.ID] = append(d.w.record[s.ID], fmt.Sprint(outcome.Disposition(), d.link.RunnerID(), outcome))
	d.step(lane.WorkDone{Lease: lease, End: lane.WorkKept, Until: until})
}

// check looks whether everything ended as promised.
func (w *weather) check() {
	states := map[ai.State]int{}
	for id := range w.asked {
		job, err := w.site.Jobs.Get(w.t.Context(), id)
		if err != nil {
			w.t.Errorf("%s is lost: %v", id, err)
			continue
		}
		states[job.State]++
		if !job.State.Terminal() {
			w.t.Errorf("%s is %s at the end", id, job.State)
			continue
		}
		if n := w.took[id]; n > 1 || job.State == ai.StateOK && n != 1 {
			w.t.Errorf("%s is %s, and %d results were taken", id, job.State, n)
		}
		if job.State != ai.StateOK {
			continue
		}
		answer, err := w.site.Jobs.Answer(w.t.Context(), id)
		if err != nil || answer.Provenance == nil || answer.Provenance.RunnerOwner != job.Owner {
			w.t.Errorf("%s: %+v, %v", id, answer, err)
			continue
		}
		if made := fmt.Sprint(ai.DispositionOK, answer.Provenance.RunnerID, answer.Outcome); !slices.Contains(w.record[id], made) {
			w.t.Errorf("%s was answered by nobody: %s of %v", id, made, w.record[id])
		}
		for _, dependency := range job.DependsOn {
			if d, err := w.site.Jobs.Get(w.t.Context(), dependency); err != nil || d.State != ai.StateOK {
				w.t.Errorf("%s is ok and depends on %s, which is %s", id, dependency, d.State)
			}
		}
	}
	for _, d := range w.boxes {
		if st := d.machine.Status(); st.Running != 0 || st.Kept != 0 || len(d.kept) != 0 {
			w.t.Errorf("%s has %+v and %d results on disk at the end", d.name, st, len(d.kept))
		}
	}
	w.log("%v", states)
	w.t.Logf("%d jobs: %v", len(w.asked), states)
	if states[ai.StateOK] < len(w.asked)/3 {
		w.t.Errorf("too few jobs were answered for this to prove anything: %v", states)
	}
}
