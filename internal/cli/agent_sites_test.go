package cli

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
)

// TestChoose: what the words of an approval mean.
func TestChoose(t *testing.T) {
	const one, two = "https://one.example", "https://two.example"
	list := []runner.SiteStatus{
		{Server: one, Fingerprint: "BYOLLM-A", State: runner.SiteApproved},
		{Server: one, Fingerprint: "BYOLLM-B", State: runner.SitePending},
		{Server: one, Fingerprint: "BYOLLM-C", State: runner.SiteApproved, ChangedAt: 1},
		{Server: one, Fingerprint: "BYOLLM-D", State: runner.SiteRetired},
		{Server: two, Fingerprint: "BYOLLM-E", State: runner.SitePending},
		{Server: two, Fingerprint: "BYOLLM-F", State: runner.SitePending},
	}
	for name, c := range map[string]struct {
		want []ai.KeyID
		err  error
	}{
		"":                        {[]ai.KeyID{"BYOLLM-B", "BYOLLM-E", "BYOLLM-F"}, nil}, // all
		"BYOLLM-B":                {[]ai.KeyID{"BYOLLM-B"}, nil},
		"byollm-b":                {[]ai.KeyID{"BYOLLM-B"}, nil},
		"BYOLLM-A":                {[]ai.KeyID{"BYOLLM-A"}, nil},
		"BYOLLM-C":                {nil, lane.ErrChanged},
		"BYOLLM-D":                {[]ai.KeyID{"BYOLLM-D"}, nil},
		"BYOLLM":                  {nil, runner.ErrNotOffered},
		"BYOLLM-":                 {nil, runner.ErrNotOffered},
		one:                       {[]ai.KeyID{"BYOLLM-B"}, nil},
		"HTTPS://one.example:443": {[]ai.KeyID{"BYOLLM-B"}, nil},
		two:                       {nil, ErrUsage},
		"https://three.example":   {nil, runner.ErrNotOffered},
	} {
		got, err := choose(list, name)
		var ids []ai.KeyID
		for _, s := range got {
			ids = append(ids, s.Fingerprint)
		}
		if !slices.Equal(ids, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%q: %v, %v", name, ids, err)
		}
	}
	if got, err := choose(nil, ""); len(got) > 0 || !errors.Is(err, runner.ErrNotOffered) {
		t.Errorf("nothing waits: %v, %v", got, err)
	}
}

// TestWriteSites compares a list with its exact text.
func TestWriteSites(t *testing.T) {
	list := []runner.SiteStatus{
		{Server: "https://a.example", Fingerprint: "BYOLLM-1", State: runner.SiteRetiring, ApprovedBy: home.ByPairing, ApprovedAt: 1785499200000, SucceededBy: "BYOLLM-2", CountsUntil: 1786104000000},
		{Server: "https://a.example", Fingerprint: "BYOLLM-2", State: runner.SiteApproved, ApprovedBy: home.BySuccession, Succeeds: "BYOLLM-1", ApprovedAt: 1785499200000},
		{Server: "https://b.example", Fingerprint: "BYOLLM-3", State: runner.SitePending, SeenAt: 1785499200000},
		{Server: "https://b.example", Fingerprint: "BYOLLM-4", State: runner.SiteRetired, ApprovedBy: home.ByOwner, ApprovedAt: 1785499200000, SucceededBy: "BYOLLM-5", CountsUntil: 1785499200000, ChangedAt: 1785499201000},
	}
	const want = `https://a.example
  BYOLLM-1 counts until 2026-08-07 12:00:00 UTC, followed by BYOLLM-2, approved by pairing 2026-07-31 12:00:00 UTC
  BYOLLM-2 succeeds BYOLLM-1 since 2026-07-31 12:00:00 UTC

https://b.example
  BYOLLM-3 waits for your approval since 2026-07-31 12:00:00 UTC, and is served nothing
  BYOLLM-4 counts no more since 2026-07-31 12:00:00 UTC, followed by BYOLLM-5, approved by owner 2026-07-31 12:00:00 UTC; another key was shown under this name 2026-07-31 12:00:01 UTC, and refused
`
	var b bytes.Buffer
	if err := writeSites(&b, list); err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
	}
}

// TestSiteLinesStayLines: a text of a server is a part of one line.
func TestSiteLinesStayLines(t *testing.T) {
	for name, put := range map[string]func(s *runner.SiteStatus, text string){
		"the server":     func(s *runner.SiteStatus, text string) { s.Server = "https://a.example" + text },
		"the site":       func(s *runner.SiteStatus, text string) { s.Fingerprint = ai.KeyID(text) },
		"the one before": func(s *runner.SiteStatus, text string) { s.Succeeds = ai.KeyID(text) },
		"the one after": func(s *runner.SiteStatus, text string) {
			s.State, s.SucceededBy = runner.SiteRetired, ai.KeyID(text)
		},
		"the approval": func(s *runner.SiteStatus, text string) { s.ApprovedBy = home.By(text) },
	} {
		t.Run(name, func(t *testing.T) {
			mustNotForge(t, func(w io.Writer, text string) error {
				s := runner.SiteStatus{Server: "https://a.example", Fingerprint: "BYOLLM-1", State: runner.SiteApproved}
				put(&s, text)
				return writeSites(w, []runner.SiteStatus{s})
			})
		})
	}
}

// TestApproveAsks: nothing is approved that nobody said yes to, and what is approved
// is told.
func TestApproveAsks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("key files are refused on Windows")
	}
	dir := filepath.Join(t.TempDir(), "home")
	t.Setenv("ALLOD_HOME", dir)
	keys := func() key.Site {
		k, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return k.Identity()
	}
	known, waits := keys(), keys()
	id := func(s key.Site) ai.KeyID { return ai.KeyID(s.Fingerprint().String()) }
	h, err := home.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = h.Pair(home.Pairing{
		Server: "https://app.example", RunnerID: "r1", Owner: "alice", PairedAt: 1, Sites: map[ai.KeyID]home.Site{id(known): {Identity: known}},
		Pending: map[ai.KeyID]home.Pending{id(waits): {Identity: waits, SeenAt: 1}},
	})
	h.Close()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (code int, out, said string) {
		var o, e bytes.Buffer
		code = Run(t.Context(), Env{In: strings.NewReader("yes\n"), Out: &o, Err: &e, Version: "test"}, append([]string{"agent"}, args...))
		return code, o.String(), e.String()
	}
	for _, args := range [][]string{{"approve", "--all"}, {"approve", string(id(waits))}, {"approve", "https://app.example"}, {"approve", "--json", "--all"}} {
		code, out, said := run(args...)
		if code == 0 || out != "" || !strings.Contains(said, "needs-yes") || !strings.Contains(said, string(id(waits))) {
			t.Errorf("%v: %d, %s, %s", args, code, out, said)
		}
	}
	for _, args := range [][]string{{"approve"}, {"approve", "--all", "x"}, {"approve", "x", "y", "--yes"}} {
		if code, _, said := run(args...); code != 2 {
			t.Errorf("%v: %d, %s", args, code, said)
		}
	}
	if _, out, _ := run("sites"); !strings.Contains(out, string(id(waits))+" waits for your approval since 1970-01-01") || !strings.Contains(out, string(id(known))+" approved by pairing") {
		t.Errorf("%s", out)
	}
	if code, out, said := run("approve", "--all", "--yes"); code != 0 || !strings.Contains(said, string(id(waits))) || strings.Contains(said, string(id(known))) || out == "" {
		t.Errorf("%d, %s, %s", code, out, said)
	}
	if _, out, _ := run("sites"); !strings.Contains(out, string(id(waits))+" approved by owner") {
		t.Errorf("%s", out)
	}
	if code, _, said := run("approve", "--all", "--yes"); code == 0 || !strings.Contains(said, "site-not-offered") {
		t.Errorf("%d, %s", code, said)
	}
}
