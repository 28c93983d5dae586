package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/wire/ai"
)

var day = time.Date(2026, 7, 31, 12, 0, 0, 0, time.UTC)

func stubOf(id string) ai.ClaimedStub {
	return ai.ClaimedStub{Stub: ai.Stub{ID: ai.JobID(id)}, Lease: ai.Lease{ID: ai.LeaseID("lease-" + id)}}
}

func lineOf(id string) ingress.Line {
	return ingress.Line{Server: "https://a.example", JobID: ai.JobID(id), Site: "site", Owner: "bob", Kind: ai.KindChat, Audience: ai.AudiencePublic, Backend: "ollama", Model: "m"}
}

// TestBoard: each end of a job is shown as what it was.
func TestBoard(t *testing.T) {
	answer := backend.Result{Outcome: ai.Answer{Text: "x"}, Took: 1500 * time.Millisecond, Usage: backend.Usage{Prompt: 3, Completion: 4, Counted: true}}
	for what, c := range map[string]struct {
		end    lane.WorkEnd
		result backend.Result
		err    error
		want   JobActivity
	}{
		"answered":             {lane.WorkKept, answer, nil, JobActivity{Outcome: "ok", DurationMs: 1500, Tokens: &Tokens{3, 4}}},
		"nothing counted":      {lane.WorkKept, backend.Result{Outcome: ai.Answer{}}, nil, JobActivity{Outcome: "ok"}},
		"nothing used":         {lane.WorkKept, backend.Result{Outcome: ai.Answer{}, Usage: backend.Usage{Counted: true}}, nil, JobActivity{Outcome: "ok", Tokens: &Tokens{}}},
		"failed":               {lane.WorkKept, backend.Result{Outcome: ai.Failure{Code: "timeout"}, Took: time.Second}, nil, JobActivity{Outcome: "error", Detail: "timeout", DurationMs: 1000}},
		"canceled":             {lane.WorkKept, backend.Result{Outcome: ai.Cancellation{}}, errCanceled, JobActivity{Outcome: "canceled"}},
		"failed of more":       {lane.WorkKept, backend.Result{Outcome: ai.Failure{Code: backend.CodeBackend}, Kind: backend.ErrFailing}, nil, JobActivity{Outcome: "error", Detail: "backend-failing"}},
		"a program failed":     {lane.WorkKept, backend.Result{Outcome: ai.Failure{Code: backend.CodeBackend}, Kind: program.ErrLimit}, nil, JobActivity{Outcome: "error", Detail: "program-usage-limit"}},
		"refused":              {lane.WorkRefused, backend.Result{}, ErrPast, JobActivity{Outcome: "refused", Detail: ErrPast.Name()}},
		"no model":             {lane.WorkDown, backend.Result{Outcome: ai.Failure{Code: backend.CodeUnreachable}}, nil, JobActivity{Outcome: "given-back", Detail: backend.CodeUnreachable}},
		"answered, not kept":   {lane.WorkDown, answer, ingress.ErrLog, JobActivity{Outcome: "given-back", Detail: ingress.ErrLog.Name(), DurationMs: 1500, Tokens: &Tokens{3, 4}}},
		"the server took it":   {lane.WorkGone, backend.Result{}, errGone, JobActivity{Outcome: "lost"}},
		"the agent is stopped": {lane.WorkGone, backend.Result{}, errors.New("x"), JobActivity{Outcome: "lost"}},
	} {
		now := day
		b := newBoard(func() time.Time { return now })
		b.began(stubOf("j"), lineOf("j"), "mine")
		want := JobActivity{
			JobID: "j", Server: "https://a.example", Site: "site", Owner: "bob", Kind: ai.KindChat, Service: "mine", Backend: "ollama", Model: "m", Since: day, State: JobWaits,
		}
		if got := b.now(); !reflect.DeepEqual(got, Activity{[]JobActivity{want}, []JobActivity{}}) {
			t.Errorf("%s: begins as %+v", what, got)
		}
		// Another server's lease of that name is another job.
		b.runs("https://b.example", "lease-j")
		b.done("https://b.example", &lane.WorkDone{Lease: "lease-j"}, &c.result, &c.err)
		if got := b.now(); got.Running[0] != want {
			t.Errorf("%s: another server's job changed it: %+v", what, got)
		}
		b.runs("https://a.example", "lease-j")
		want.State = JobRuns
		if got := b.now(); got.Running[0] != want {
			t.Errorf("%s: runs as %+v", what, got)
		}
		now = now.Add(time.Minute)
		b.done("https://a.example", &lane.WorkDone{Lease: "lease-j", End: c.end}, &c.result, &c.err)
		want.State, want.EndedAt, want.Outcome, want.Detail, want.DurationMs, want.Tokens = JobEnded, now, c.want.Outcome, c.want.Detail, c.want.DurationMs, c.want.Tokens
		if got := b.now(); !reflect.DeepEqual(got, Activity{[]JobActivity{}, []JobActivity{want}}) {
			t.Errorf("%s: ends as %+v\nwant %+v", what, got.Ended, want)
		}
	}
}

// TestBoardIsBounded: neither the number of jobs nor the length of a text grows
// beyond what an answer of the admin socket holds.
func TestBoardIsBounded(t *testing.T) {
	b := newBoard(func() time.Time { return day })
	for i := range 2 * maxShown {
		id := fmt.Sprintf("%04d%s", i, strings.Repeat("\u202e", 1000))
		line := lineOf(id)
		line.Site, line.Owner, line.Model = ai.KeyID(id), ai.Owner(id), "\xff"+id
		b.began(stubOf(id), line, id)
		b.refused(line)
	}
	got := b.now()
	if len(got.Running) != maxShown || len(got.Ended) != maxEnded || !strings.HasPrefix(string(got.Ended[0].JobID), fmt.Sprintf("%04d", 2*maxShown-1)) {
		t.Errorf("%d run, %d ended", len(got.Running), len(got.Ended))
	}
	for _, j := range append(got.Running, got.Ended...) {
		for _, text := range []string{string(j.JobID), string(j.Site), string(j.Owner), j.Service, j.Model} {
			if len(text) > 280 {
				t.Fatalf("%d bytes", len(text))
			}
		}
	}
	if text, err := json.Marshal(got); err != nil || len(text) > 1<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	// What a caller does with it changes nothing.
	got.Ended[0].JobID = "changed"
	if b.now().Ended[0].JobID == "changed" {
		t.Error("the board was handed out")
	}
}

// TestWatch: who watches hears of changes, and many of them are one.
func TestWatch(t *testing.T) {
	a := &Agent{board: newBoard(time.Now)}
	one, stopOne := a.Watch()
	two, stopTwo := a.Watch()
	defer stopTwo()
	heard := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if heard(one) {
		t.Error("something changed before anything did")
	}
	for range 3 {
		a.board.refused(lineOf("j"))
	}
	if !heard(one) || heard(one) || !heard(two) {
		t.Error("three changes that nobody looked at are one")
	}
	stopOne()
	stopOne()
	a.board.refused(lineOf("j"))
	if heard(one) || !heard(two) {
		t.Error("who stopped to watch hears nothing")
	}
}

// TestRetention: other people's prompts leave the log when they are as old as the
// owner says, at the start and once a day, whatever the clock does, and not before.
func TestRetention(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("key files are refused on Windows")
	}
	dir := filepath.Join(t.TempDir(), "home")
	synctest.Test(t, func(t *testing.T) {
		s := settings.Defaults()
		s.CommunityPromptDays = 3
		var ahead atomic.Int64 // the wall clock's, which the owner can set
		agent, err := Open(Config{Home: dir, Version: "test", Settings: s, Clock: func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer agent.Close()
		log := func(id string, own bool) {
			line := lineOf(id)
			line.Type, line.At, line.Own = ingress.TypePrompt, agent.config.Clock(), own
			line.SetPrompt("canary "+id, 1, true)
			if err := agent.ingress.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		// kept are the ids of the prompts that still have their text.
		kept := func() (ids string) {
			t.Helper()
			damaged, err := ingress.Read(dir, func(l ingress.Line) {
				if l.Prompt != "" {
					ids += string(l.JobID)
				}
				if len(l.PromptHash) != 64 {
					t.Errorf("%s has no hash", l.JobID)
				}
			})
			if err != nil || damaged != 0 {
				t.Fatal(damaged, err)
			}
			return ids
		}
		want := func(when, ids string) {
			t.Helper()
			synctest.Wait()
			if got := kept(); got != ids {
				t.Errorf("%s: %q are kept, want %q", when, got, ids)
			}
		}
		const hour = time.Hour
		log("a", false)
		log("b", true)
		time.Sleep(3*24*hour + time.Second)
		log("c", false)
		go agent.retain(t.Context())
		want("at the start", "bc")
		time.Sleep(3*24*hour - 2*time.Second) // and some looks
		want("just before", "bc")
		time.Sleep(24*hour + 2*time.Second)
		want("a day later", "b")
		// The machine slept, and only the wall clock went on.
		log("d", false)
		ahead.Add(int64(4 * 24 * hour))
		time.Sleep(hour)
		want("after sleep", "b")
		// A clock that was set back does not put it off until it has caught up.
		log("e", false)
		ahead.Add(-int64(100 * 24 * hour))
		time.Sleep(hour)
		log("f", false)
		time.Sleep(4 * 24 * hour)
		want("after a clock that was set back", "be")
		// What cannot be done now is done in an hour.
		log("g", false)
		temp := filepath.Join(dir, "ingress.log.tmp", "full")
		if err := os.MkdirAll(temp, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * 24 * hour)
		want("where it fails", "beg")
		if err := os.RemoveAll(filepath.Dir(temp)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(hour)
		want("an hour later", "be")
	})
}
