package runner_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// pairedAs is the only pairing in the folder of an agent that does not run.
func (f *farm) pairedAs() home.Pairing {
	f.t.Helper()
	h, err := home.Open(f.home)
	if err != nil {
		f.t.Fatal(err)
	}
	defer h.Close()
	list, err := h.Pairings()
	if err != nil || len(list) != 1 {
		f.t.Fatalf("paired %+v, %v", list, err)
	}
	return list[0]
}

// TestServerOfOneVersion: a server that knows one version only is worked for in it,
// up to the result. What was agreed on is shown and kept, so that the next start
// wastes no request (MUST VERSION_HANDSHAKE_REQUIRED).
func TestServerOfOneVersion(t *testing.T) {
	for _, version := range protocol.Supported() {
		t.Run(version, func(t *testing.T) {
			site := newSiteKeys(t)
			before := ai.MillisOf(time.Now())
			f := newFarmOf(t, []string{version}, site)
			work := func(id string) {
				t.Helper()
				s := f.stub(id, site)
				f.liar.offer(s, seal(t, site.Signer(), f.agent.Keys().Identity(), letter(s)))
				if reason, outcome := f.end(s.ID); outcome != (ai.Answer{Text: "an answer"}) {
					t.Errorf("a job ended as %q, %v", reason, outcome)
				}
			}
			refused := func() int {
				f.liar.mu.Lock()
				defer f.liar.mu.Unlock()
				return f.liar.refused
			}
			work("first")
			latest := version == protocol.Latest().Version
			if n := refused(); (n == 0) != latest {
				t.Errorf("%d requests were refused at first", n)
			}
			if s, err := f.agent.Status(); err != nil || s.Servers[0].Protocol != version {
				t.Errorf("shown as %+v, %v", s.Servers, err)
			}
			f.stop()
			if got := f.pairedAs().Protocol; got.Version != version || got.At < before || got.At > ai.MillisOf(time.Now()) {
				t.Errorf("kept %+v", got)
			}
			wasted := refused()
			f.open()
			if s, err := f.agent.Status(); err != nil || s.Servers[0].Protocol != version {
				t.Errorf("shown before it runs as %+v, %v", s.Servers, err)
			}
			f.run()
			work("second")
			if n := refused() - wasted; n > 0 {
				t.Errorf("%d requests were refused after a restart", n)
			}
		})
	}
}

// TestPauseIsSaid: a paused agent offers nothing, and says why where the version
// has a word for it.
func TestPauseIsSaid(t *testing.T) {
	for _, version := range protocol.Supported() {
		t.Run(version, func(t *testing.T) {
			f := newFarmOf(t, []string{version}, newSiteKeys(t))
			says := func(offers int, paused bool) {
				t.Helper()
				until(t, func() bool {
					f.liar.mu.Lock()
					defer f.liar.mu.Unlock()
					return len(f.liar.offered) == offers && f.liar.paused == paused
				})
			}
			says(2, false)
			if err := f.agent.Pause(false); err != nil {
				t.Fatal(err)
			}
			says(0, version == protocol.Minimum())
			if err := f.agent.Resume(); err != nil {
				t.Fatal(err)
			}
			says(2, false)
		})
	}
}

// TestResultsSayHow: why a model stopped travels with the answer where the version
// has words for it, and what it used is signed beside it in each.
func TestResultsSayHow(t *testing.T) {
	end, length, unknown := ai.Stop{Reason: ai.StopEnd, Reported: true}, ai.Stop{Reason: ai.StopLength, Reported: true}, ai.Stop{Reason: ai.StopUnknown, Reported: true}
	for _, version := range protocol.Supported() {
		t.Run(version, func(t *testing.T) {
			site := newSiteKeys(t)
			f := newFarmOf(t, []string{version}, site)
			for id, c := range map[string]struct {
				reason, usage string
				stop          ai.Stop
				used          *ai.Usage
			}{
				"both":      {`"length"`, `{"prompt_tokens":3,"completion_tokens":9007199254740991}`, length, &ai.Usage{Prompt: 3, Completion: 1<<53 - 1}},
				"nothing":   {`"stop"`, `{"prompt_tokens":0,"completion_tokens":0}`, end, &ai.Usage{}},
				"uncounted": {`"stop"`, `{"prompt_tokens":3}`, end, nil},
				"neither":   {`null`, `null`, unknown, nil},
			} {
				f.model.mu.Lock()
				f.model.says = `{"choices":[{"finish_reason":` + c.reason + `,"message":{"content":"x"}}],"usage":` + c.usage + `}`
				f.model.mu.Unlock()
				s := f.stub(id, site)
				f.liar.offer(s, seal(t, site.Signer(), f.agent.Keys().Identity(), letter(s)))
				if _, outcome := f.end(s.ID); outcome != (ai.Answer{Text: "x"}) {
					t.Fatalf("%s: ended as %v", id, outcome)
				}
				f.liar.mu.Lock()
				stop, used := f.liar.results[s.ID].Ran.Stop, f.liar.usage[s.ID]
				f.liar.mu.Unlock()
				if version == protocol.Minimum() {
					c.stop = ai.Stop{}
				}
				if stop != c.stop || !reflect.DeepEqual(used, c.used) {
					t.Errorf("%s: the site reads %+v and %+v", id, stop, used)
				}
			}
		})
	}
}

// pair pairs with a server that gives one answer.
func pair(t *testing.T, a answerer) (home.Pairing, error) {
	t.Helper()
	keys, at := unpaired(t, server)
	a.t = t
	return runner.Pair(t.Context(), runner.Pairing{
		Server: at, Keys: keys, Version: "test", Name: "box", Transport: a, Show: func(runner.Code) {},
		Clock: func() time.Time { return time.UnixMilli(1785499200123) },
	})
}

// TestPairAgrees: pairing speaks the version that the server knows, and it is kept
// with the pairing, so that the agent begins with it.
func TestPairAgrees(t *testing.T) {
	site := newSiteKeys(t)
	for _, version := range protocol.Supported() {
		codec, _ := protocol.Find(version)
		got, err := pair(t, answerer{codec: codec, sites: map[ai.KeyID]ai.PublicIdentity{idOf(site): ai.PublicIdentityOf(site.Identity())}})
		if want := (home.Protocol{Version: version, At: 1785499200123}); err != nil || got.Protocol != want {
			t.Errorf("version %s: paired %+v, %v", version, got, err)
		}
	}
}

// TestPairWithRelay: an approval that names somebody else's key for what the device
// may be given is refused by name, whatever that key is, and with nothing that
// could be kept: without that key's check, a relay could hand on what it likes.
func TestPairWithRelay(t *testing.T) {
	site := newSiteKeys(t)
	sites := map[ai.KeyID]ai.PublicIdentity{idOf(site): ai.PublicIdentityOf(site.Identity())}
	for what, plane := range map[string]string{
		"a key": newSiteKeys(t).Identity().Signing().String(), "the site's own": site.Identity().Signing().String(), "no key": "x", "a long text": strings.Repeat("k", 10_000),
	} {
		got, err := pair(t, answerer{codec: protocol.Latest(), sites: sites, plane: plane})
		if !errors.Is(err, runner.ErrRelay) || !reflect.DeepEqual(got, home.Pairing{}) {
			t.Errorf("%s: paired %+v, %v", what, got, err)
		}
		if err != nil && strings.Contains(err.Error(), plane) && plane != "x" {
			t.Errorf("%s: the refusal repeats it: %v", what, err)
		}
	}
	if got, err := pair(t, answerer{codec: protocol.Latest(), sites: sites}); err != nil || len(got.Sites) != 1 {
		t.Errorf("without one: paired %+v, %v", got, err)
	}
}
