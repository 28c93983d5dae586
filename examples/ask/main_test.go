package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
)

// TestAsk is the person and the device: it reads what the app says, types the
// code, and answers the question.
func TestAsk(t *testing.T) {
	in, typed := io.Pipe()
	said, out := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := run(t.Context(), t.TempDir(), "why?", in, out)
		_ = out.CloseWithError(err)
		ran <- err
	}()
	screen := bufio.NewReader(said)
	until := func(end string) string {
		t.Helper()
		var text strings.Builder
		for !strings.HasSuffix(text.String(), end) {
			b, err := screen.ReadByte()
			if err != nil {
				t.Fatalf("the app said %q and ended: %v", text.String(), err)
			}
			text.WriteByte(b)
		}
		return text.String()
	}
	_, rest, _ := strings.Cut(until("shows: "), "http")
	origin, _, _ := strings.Cut("http"+rest, ",")
	d := device{t: t, origin: origin}
	d.start()
	_, _ = io.WriteString(typed, d.started.UserCode+"\n")
	if asked := until("[y/N] "); !strings.Contains(asked, d.keys.Identity().String()) {
		t.Errorf("the app does not show the fingerprint: %q", asked)
	}
	go func() { _, _ = io.WriteString(typed, "y\n") }()
	go d.answer("because")
	if text := until(")\n"); !strings.HasPrefix(text, "because\n(tiny, on runner_") {
		t.Errorf("the app says %q", text)
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// device is as much of a device as the example needs.
type device struct {
	t       *testing.T
	origin  string
	keys    key.DeviceKeys
	started ai.PairStartResponse
}

var (
	codec = protocol.Latest()
	tiny  = []ai.Capability{{Kind: ai.KindGenerate, Service: "mine", BackendID: "ollama", BackendClass: backend.HTTP, Model: "tiny", OfferScope: ai.OfferSelf}}
)

// post sends a message, signed unless the runner is "", and reads the answer.
func post[Q, A any](d *device, endpoint ai.Endpoint, runner ai.RunnerID, q ai.Message[Q], v Q, a ai.Message[A]) A {
	var zero A
	body, err := q.Write(v)
	if err != nil {
		d.t.Error(err)
		return zero
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(d.t.Context()), http.MethodPost, d.origin+"/byollm/"+string(endpoint), bytes.NewReader(body))
	if err != nil {
		d.t.Error(err)
		return zero
	}
	if runner != "" {
		s, err := signing.Sign(d.keys.Signer(), signing.Request{Plane: signing.DaemonPlane, Endpoint: endpoint, Body: body}, string(runner), ai.MillisOf(time.Now()))
		if err != nil {
			d.t.Error(err)
		}
		for _, h := range s.Headers(signing.DaemonPlane) {
			r.Header.Set(h[0], h[1])
		}
		r.Header.Set("Prefer", "wait=20")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Error(err)
		return zero
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		zero, err = a.Read(text)
	}
	if err != nil {
		d.t.Errorf("%s: %s: %v", endpoint, text, err)
	}
	return zero
}

func (d *device) start() {
	var err error
	if d.keys, err = key.NewKeys[key.DeviceRole](rand.Reader, time.Now()); err != nil {
		d.t.Fatal(err)
	}
	d.started = post(d, "pair", "", codec.PairRequest, ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "laptop", Platform: ai.PlatformLinux}, Device: ai.PublicIdentityOf(d.keys.Identity()), Capabilities: tiny,
	}}, codec.PairStartResponse)
}

// answer polls until it is approved, then runs one job.
func (d *device) answer(text string) {
	var approved *ai.PairApproval
	// As often as the site announced, which a device must keep to.
	interval := time.NewTicker(time.Duration(d.started.PollIntervalMs) * time.Millisecond)
	defer interval.Stop()
	for approved == nil {
		p := post(d, "pair", "", codec.PairRequest, ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: d.started.DeviceCode}}, codec.PairPollResponse)
		if approved = p.Approved; p.Status != ai.PairPending {
			break
		}
		<-interval.C
	}
	if approved == nil {
		d.t.Error("never approved")
		return
	}
	me := approved.RunnerID
	jobs := post(d, "claim", me, codec.ClaimRequest, ai.ClaimRequest{RunnerID: me, Capabilities: tiny, Max: 1}, codec.ClaimResponse).Jobs
	if len(jobs) != 1 {
		d.t.Errorf("claimed %d jobs", len(jobs))
		return
	}
	stub := jobs[0]
	grant := ai.Grant{JobID: stub.ID, LeaseID: stub.Lease.ID}
	site, err := approved.Sites[stub.Site].Site()
	if err != nil {
		d.t.Error(err)
		return
	}
	sealed := post(d, "fetch", me, codec.FetchRequest, ai.FetchRequest{RunnerID: me, Grant: grant}, codec.FetchResponse)
	opened, err := envelope.Open(d.keys.Opener(), site.Signing(), sealed.Envelope, envelope.Context{
		JobID: stub.ID, Sender: site.Fingerprint(), Recipient: d.keys.Identity().Fingerprint(), Direction: ai.DirectionPayload,
	})
	if err != nil || opened.Plaintext != `{"prompt":"why?"}` || opened.Reach.Check(stub.Stub) != nil {
		d.t.Errorf("opened %+v: %v", opened, err)
	}
	out, err := codec.Outcome.Write(ai.SealedOutcome{Outcome: ai.Answer{Text: text}, Ran: ai.RunMetadata{Model: "tiny", BackendClass: backend.HTTP}})
	if err != nil {
		d.t.Error(err)
	}
	back, err := envelope.Seal(rand.Reader, d.keys.Signer(), site, envelope.Letter{
		JobID: stub.ID, Direction: ai.DirectionResult, DeadlineAt: ai.MillisOf(time.Now().Add(envelope.MaxAge)), Plaintext: string(out),
	})
	if err != nil {
		d.t.Error(err)
	}
	post(d, "result", me, codec.ResultRequest, ai.ResultRequest{RunnerID: me, Grant: grant, Envelope: back, Disposition: ai.DispositionOK}, codec.ResultResponse)
}
