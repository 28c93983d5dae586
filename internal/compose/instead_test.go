package compose

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// TestAnswerSaysWhatItStoodInFor has one question answered by an owner's first
// model, and one by the second after the first is gone. The app is told, and so is
// the owner.
func TestAnswerSaysWhatItStoodInFor(t *testing.T) {
	server := func(model string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"data":[{"id":"`+model+`"}],"choices":[{"message":{"content":"by `+model+`"}}]}`)
		}))
		t.Cleanup(s.Close)
		return s
	}
	first, second := server("m1"), server("m2")
	d := &demo{c: DemoConfig{Dir: t.TempDir(), Version: "test"}}
	t.Cleanup(func() {
		for i := len(d.closers) - 1; i >= 0; i-- {
			d.closers[i]()
		}
	})
	s := settings.Defaults()
	s.Backends = map[string]settings.Backend{
		"a": {ID: wirebackend.Generic, BaseURL: first.URL + "/v1"}, "b": {ID: wirebackend.Generic, BaseURL: second.URL + "/v1"},
	}
	// The closers wait for what ends with the test's context, which ends before them.
	ctx := t.Context()
	if err := d.openSite(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.openWith(ctx, s); err != nil || d.agent == nil {
		t.Fatalf("no model is ready: %v", err)
	}
	if err := d.pair(ctx); err != nil {
		t.Fatal(err)
	}
	ask := func(question string) site.Answer {
		t.Helper()
		d.Question = question
		if err := d.ask(ctx); err != nil {
			t.Fatal(err)
		}
		answer, err := d.site.Jobs.Wait(ctx, d.job.ID, site.Wait{Timeout: 2 * time.Minute, Grace: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	lines := func() []ingress.Line {
		t.Helper()
		found, err := runner.Why(filepath.Join(d.c.Dir, agentFolder), d.job.ID)
		if err != nil || len(found) == 0 {
			t.Fatalf("the log has %v, %v", found, err)
		}
		return found
	}
	if got := ask("one"); got.Text() != "by m1" || got.Provenance.Model != "m1" || got.Instead != nil {
		t.Errorf("the first model answered %+v, instead of %+v", got, got.Instead)
	}
	for _, l := range lines() {
		if l.Instead != (ingress.Instead{}) {
			t.Errorf("logged %+v", l)
		}
	}
	first.Close()
	want := ai.Instead{Model: "m1", Why: "backend-unreachable"}
	if got := ask("two"); got.Text() != "by m2" || got.Provenance.Model != "m2" || got.Provenance.RunnerOwner != owner || !reflect.DeepEqual(got.Instead, &want) {
		t.Errorf("the second model answered %+v, instead of %+v", got, got.Instead)
	}
	found := lines()
	if l := found[len(found)-1]; l.Outcome != "ok" || l.Model != "m2" || l.Instead != (ingress.Instead{Service: "a", Model: "m1", Why: "backend-unreachable"}) {
		t.Errorf("logged %+v", found)
	}
	status, err := d.agent.Status()
	if err != nil || len(status.Backends) != 2 || len(status.Backends[0].Kinds) != 0 || status.Backends[1].Instead != "a" || status.Backends[1].InsteadWhy != want.Why {
		t.Errorf("status %+v, %v", status.Backends, err)
	}
}
