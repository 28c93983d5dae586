package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
)

// hears is a handler that calls a function with each message.
type hears func(message string)

func (hears) Enabled(context.Context, slog.Level) bool        { return true }
func (h hears) Handle(_ context.Context, r slog.Record) error { h(r.Message); return nil }
func (h hears) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h hears) WithGroup(string) slog.Handler                 { return h }

// away is a network on which nobody is.
type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("away") }

// TestLanesMissNoChange: a lane that begins is told of offers that change from then
// on. One that was narrowed in between would be served to whom it is closed to.
func TestLanesMissNoChange(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("key files are refused on Windows")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var a *Agent
	var err error
	var begun, told bool
	s := settings.Defaults()
	s.Backends = map[string]settings.Backend{}
	a, err = Open(Config{Home: filepath.Join(t.TempDir(), "home"), Version: "test", Settings: s, Transport: away{}, Logger: slog.New(hears(func(message string) {
		if message == "working" {
			a.shelf.mu.Lock()
			defer a.shelf.mu.Unlock()
			begun, told = true, a.shelf.changed != nil
			cancel()
		}
	}))})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	site, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	err = a.Adopt(home.Pairing{Server: aServer, RunnerID: "r1", Owner: "alice", Sites: map[ai.KeyID]home.Site{idOfSite(site): {Identity: site.Identity()}}, PairedAt: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx); err != nil || !begun || !told {
		t.Errorf("begun %v, told of changes %v, %v", begun, told, err)
	}
}
