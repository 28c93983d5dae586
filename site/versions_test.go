package site_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// codec is of the version that the devices of these tests speak.
var codec ai.Codec

// TestMain runs every test once with devices of each version.
func TestMain(m *testing.M) {
	for _, version := range protocol.Supported() {
		codec, _ = protocol.Find(version)
		if code := m.Run(); code != 0 {
			fmt.Fprintf(os.Stderr, "with devices of protocol version %q\n", version)
			os.Exit(code)
		}
	}
}

// widest are the widest audience and offer that the version has words for.
func widest() (ai.Audience, ai.OfferScope) {
	if slices.Contains(codec.Audiences, ai.AudiencePublic) {
		return ai.AudiencePublic, ai.OfferPublic
	}
	return ai.AudienceNamed, ai.OfferNamed
}

// TestWordsForAudiences: what a version has no word for is not offered to a
// device that speaks it, and keeps nothing else from it. One that speaks another
// gets it.
func TestWordsForAudiences(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	p.caps[0].OfferScope = ai.OfferNamed
	p.beat()
	for _, owner := range []ai.Owner{"alice", "bob"} {
		h.enqueue(site.Question{ID: ai.JobID("public of " + owner), Owner: owner, Audience: ai.AudiencePublic})
	}
	h.enqueue(site.Question{ID: "named", Owner: "bob", Audience: ai.AudienceNamed})
	h.enqueue(site.Question{ID: "self", Owner: "alice"})
	want := []ai.JobID{"public of alice", "public of bob", "named", "self"}
	available := site.Availability{Available: true, Candidates: 1}
	if !slices.Contains(codec.Audiences, ai.AudiencePublic) {
		want, available = want[2:], site.Availability{Why: site.NoneAdmitted}
	}
	got, err := h.site.Jobs.Availability(t.Context(), ai.KindGenerate, match.Job{Owner: "alice", Audience: ai.AudiencePublic})
	if err != nil || got != available {
		t.Errorf("availability of a public job: %+v, %v", got, err)
	}
	claim := func() (ids []ai.JobID) {
		for _, stub := range p.claim() {
			ids = append(ids, stub.ID)
			if !slices.Contains(codec.Audiences, stub.Audience) {
				t.Errorf("%s came for %s", stub.ID, stub.Audience)
			}
		}
		slices.Sort(ids)
		return ids
	}
	slices.Sort(want)
	if got := claim(); !slices.Equal(got, want) {
		t.Errorf("granted %q, want %q", got, want)
	}
	// A held claim does not end for what it cannot be told of, nor miss the rest.
	for _, stub := range want {
		if _, err := h.site.Jobs.Cancel(t.Context(), stub); err != nil {
			t.Fatal(err)
		}
	}
	out := make(chan *httptest.ResponseRecorder, 1)
	go func() { out <- p.send(ai.EndpointClaim, p.claimBody(1), prefer(20)) }()
	h.enqueue(site.Question{ID: "another public", Owner: "alice", Audience: ai.AudiencePublic})
	h.enqueue(site.Question{ID: "another self", Owner: "alice"})
	select {
	case w := <-out:
		first := ai.JobID("another public")
		if !slices.Contains(codec.Audiences, ai.AudiencePublic) {
			first = "another self"
		}
		if jobs := read(t, codec.ClaimResponse, w).Jobs; len(jobs) != 1 || jobs[0].ID != first {
			t.Errorf("a held claim got %+v", jobs)
		}
	case <-time.After(10 * time.Second):
		t.Error("the claim is still held")
	}
	if runners, err := h.site.Devices.List(t.Context(), "alice"); err != nil || len(runners) != 1 || runners[0].Protocol != codec.Version {
		t.Errorf("the device is listed as %+v, %v", runners, err)
	}
}

// TestOffersCost: a site takes an offer for as costly as the table says, whatever
// the device says of it, and for no less where its model runs elsewhere.
func TestOffersCost(t *testing.T) {
	for _, c := range []struct {
		id    backend.ID
		model string
		want  backend.Cost
	}{
		{"ollama", "m", backend.Free}, {"ollama", "m:cloud", backend.Metered}, {"ollama", "cloud", backend.Free}, {"openai", "m", backend.Metered},
		{backend.Generic, "m", backend.Metered}, {backend.Generic, "m:cloud", backend.Metered}, // where it is, is not known
		{"claude-cli", "m", backend.Subscription}, {"claude-cli", "m:cloud", backend.Subscription}, {"unheard-of", "m", backend.Metered},
	} {
		offers := site.Offers([]ai.Capability{{Kind: ai.KindChat, BackendID: c.id, BackendClass: backend.HTTP, Model: c.model, OfferScope: ai.OfferNamed}})
		if len(offers) != 1 || offers[0].Offer.Cost != c.want || offers[0].Kind != ai.KindChat || offers[0].Offer.Scope != ai.OfferNamed {
			t.Errorf("%s with %q: %+v", c.id, c.model, offers)
		}
	}
}

// TestStopsAndUsage: why a model stopped and what it used come to the app where
// the device says so.
func TestStopsAndUsage(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	h.enqueue(site.Question{ID: "a"})
	_, g := p.one()
	stop := ai.Stop{Reason: ai.StopLength, Reported: true}
	used := ai.Usage{Prompt: 3, Completion: 9_007_199_254_740_991}
	text := write(t, codec.Outcome, ai.SealedOutcome{
		Outcome: ai.Answer{Text: "x"}, Ran: ai.RunMetadata{Model: "m", BackendClass: backend.HTTP, Stop: stop},
	})
	if w := p.send(ai.EndpointResult, p.sealedBody(g, h.keys[0].Identity(), ai.DispositionOK, string(text), &used)); w.Code != 200 {
		t.Fatalf("answer %d %s", w.Code, w.Body)
	}
	if codec.Version == protocol.Minimum() {
		stop = ai.Stop{} // it has no words for it
	}
	got, err := h.site.Jobs.Answer(t.Context(), "a")
	if err != nil || got.Provenance.Stop != stop || got.Usage == nil || *got.Usage != used {
		t.Errorf("the app got %+v, %+v, usage %v, %v", got, got.Provenance, got.Usage, err)
	}
}

// TestWithheld: a kind that a device lists and withholds at once is not offered.
func TestWithheld(t *testing.T) {
	if codec.Version == protocol.Minimum() {
		t.Skip("this version has no word for it")
	}
	h := newHouse(t)
	p := paired(h, "alice")
	chat := p.caps[0]
	chat.Kind = ai.KindChat
	p.caps = append(p.caps, chat)
	available := func(kind ai.Kind) site.NoRunner {
		t.Helper()
		got, err := h.site.Jobs.Availability(t.Context(), kind, match.Job{Owner: "alice", Audience: ai.AudienceSelf})
		if err != nil {
			t.Fatal(err)
		}
		return got.Why
	}
	beat := func(withheld ...ai.Withheld) {
		body := write(t, codec.HeartbeatRequest, ai.HeartbeatRequest{
			RunnerID: p.runner, DaemonVersion: "1", Capabilities: p.caps, ActiveLeases: []ai.Grant{}, Withheld: withheld,
		})
		read(t, codec.HeartbeatResponse, p.send(ai.EndpointHeartbeat, body))
	}
	beat()
	if chats, generates := available(ai.KindChat), available(ai.KindGenerate); chats != "" || generates != "" {
		t.Errorf("nothing withheld: %q, %q", chats, generates)
	}
	beat(ai.Withheld{Kind: ai.KindChat, Claimants: []ai.Claimant{{Service: "a", Offer: ai.OfferSelf}, {Service: "b", Offer: ai.OfferNamed}}})
	if chats, generates := available(ai.KindChat), available(ai.KindGenerate); chats != site.NoneCapable || generates != "" {
		t.Errorf("chats withheld: %q, %q", chats, generates)
	}
}

// TestKeptOutcomes: a result that a device sealed in an older version and kept, as
// it does while a site is away, is taken in the version that it speaks by then.
func TestKeptOutcomes(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	for _, version := range protocol.Supported() {
		if version > codec.Version {
			break
		}
		older, _ := protocol.Find(version)
		id := ai.JobID("sealed in " + version)
		h.enqueue(site.Question{ID: id})
		_, g := p.one()
		text := write(t, older.Outcome, ai.SealedOutcome{Outcome: ai.Answer{Text: "x"}, Ran: ai.RunMetadata{Model: "m", BackendClass: backend.HTTP}})
		if w := p.send(ai.EndpointResult, p.sealedBody(g, h.keys[0].Identity(), ai.DispositionOK, string(text), nil)); w.Code != 200 {
			t.Errorf("%s: answer %d %s", id, w.Code, w.Body)
		}
		if got, err := h.site.Jobs.Answer(t.Context(), id); err != nil || got.Outcome != (ai.Answer{Text: "x"}) || got.Usage != nil {
			t.Errorf("%s: the app got %+v, %v", id, got, err)
		}
	}
}
