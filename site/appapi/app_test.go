package appapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// app is a site with its interface, and a key that may do everything.
type app struct {
	t       *testing.T
	file    string // the store's
	store   site.Store
	site    *site.Site
	keys    *appapi.Keys
	handler http.Handler
	ring    key.SiteKeys
	admin   string // an Authorization header
}

func newApp(t *testing.T, change ...func(*site.Config)) *app {
	t.Helper()
	file := filepath.Join(t.TempDir(), "site.db")
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	ring, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	config := site.Config{Store: store, Keys: []key.SiteKeys{ring}}
	for _, c := range change {
		c(&config)
	}
	s, err := site.Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); _ = store.Close() })
	a := &app{t: t, file: file, store: store, site: s, keys: appapi.NewKeys(store.AppKeys(), nil), ring: ring}
	a.handler = appapi.NewHandler(s, a.keys)
	a.admin = a.key("admin", "", appapi.ScopeAdmin)
	return a
}

// key registers a key and returns its Authorization header.
func (a *app) key(name string, owner ai.Owner, scopes ...appapi.Scope) string {
	a.t.Helper()
	k, err := appapi.NewKey(rand.Reader)
	if err == nil {
		_, err = a.keys.Add(a.t.Context(), appapi.KeyRequest{Hash: k.Hash(), Name: name, Owner: owner, Scopes: scopes})
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return "Bearer " + k.Text()
}

// call sends a request, and holds its answer against the description.
func (a *app) call(authorization, method, path, body string) *httptest.ResponseRecorder {
	a.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	if err := described(a.t.Context(), r, body, w.Code, w.Header(), w.Body.Bytes()); err != nil {
		a.t.Errorf("%s %s answers %d %s\n%v", method, path, w.Code, w.Body, err)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
	} {
		if got := w.Header().Get(name); got != want {
			a.t.Errorf("%s %s: %s is %q, want %q", method, path, name, got, want)
		}
	}
	return w
}

// must calls as the admin and returns the answer, which has that status.
func (a *app) must(status int, method, path, body string) map[string]any {
	a.t.Helper()
	w := a.call(a.admin, method, path, body)
	if w.Code != status {
		a.t.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	var v map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		a.t.Fatal(err)
	}
	return v
}

const payload = `"payload":{"prompt":"p"}`

// ask asks for an owner.
func (a *app) ask(id ai.JobID, owner ai.Owner) {
	a.t.Helper()
	a.must(http.StatusCreated, "POST", "/v1/jobs", `{"id":"`+string(id)+`","kind":"llm.generate","owner":"`+string(owner)+`",`+payload+`}`)
}

// spoil changes a stored row behind the store's back.
func (a *app) spoil(statement string) {
	a.t.Helper()
	db, err := sql.Open("sqlite3", "file:"+a.file)
	if err != nil {
		a.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(a.t.Context(), statement); err != nil {
		a.t.Fatal(err)
	}
}

// member is what stands at a path in an answer, as in jobs.0.id, or nil.
func member(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			i := slices.Index([]string{"0", "1", "2", "3", "4"}, name)
			if i < 0 || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

// start has a device wait under its code, CODE-0001 for the seed 1.
func (a *app) start(seed byte) {
	a.t.Helper()
	now := ai.MillisOf(time.Now())
	if err := a.store.Devices().StartPairing(a.t.Context(), site.NewPairing{
		DeviceCode: [32]byte{seed}, UserCode: "CODE-000" + string('0'+seed), Device: storetest.Identity[key.DeviceRole](seed),
		Daemon:       ai.Daemon{Version: "1.2.3", Label: "lap\u202etop <b>", Platform: ai.PlatformWin32},
		Capabilities: []ai.Capability{{Kind: ai.KindGenerate, BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: ai.OfferSelf}},
		Address:      "192.0.2.1", ExpiresAt: now + 60_000, Now: now,
	}); err != nil {
		a.t.Fatal(err)
	}
}

// finish has an owner's device run the oldest job and end it.
func (a *app) finish(runner ai.RunnerID, seed byte, ran ai.RunMetadata, usage *ai.Usage, out ai.Outcome, change ...func(*envelope.Letter)) {
	a.t.Helper()
	now := ai.MillisOf(time.Now())
	got, err := a.store.Jobs().Claim(a.t.Context(), site.Claim{
		RunnerID: runner, Max: 1, Lease: time.Minute, Now: now, Request: [32]byte{seed, byte(now), byte(now >> 8)},
		NewLease: func() ai.LeaseID { return ai.LeaseID(rand.Text()) },
		Offers:   []site.KindOffer{{Kind: ai.KindGenerate, Offer: match.Offer{Scope: ai.OfferSelf, Cost: backend.Free}}},
	})
	if err != nil || len(got.Jobs) != 1 {
		a.t.Fatalf("claimed %d jobs, %v", len(got.Jobs), err)
	}
	j := got.Jobs[0]
	if out == nil {
		return
	}
	// The keys behind storetest.Identity.
	device, err := key.NewKeys[key.DeviceRole](bytes.NewReader(bytes.Repeat([]byte{seed, 0x5a}, 32)), storetest.T0.Time())
	if err != nil {
		a.t.Fatal(err)
	}
	text, err := protocol.Latest().Outcome.Write(ai.SealedOutcome{Outcome: out, Ran: ran})
	if err != nil {
		a.t.Fatal(err)
	}
	l := envelope.Letter{JobID: j.ID, Direction: ai.DirectionResult, DeadlineAt: now + 60_000, Plaintext: string(text), Usage: usage}
	for _, f := range change {
		f(&l)
	}
	sealed, err := envelope.Seal(rand.Reader, device.Signer(), a.ring.Identity(), l)
	if err != nil {
		a.t.Fatal(err)
	}
	done, err := a.store.Jobs().Complete(a.t.Context(), site.Completion{
		Grant: ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID}, RunnerID: runner, Envelope: sealed, Disposition: out.Disposition(), Now: now,
	})
	if err != nil || !done.Accepted {
		a.t.Fatalf("complete: %+v, %v", done, err)
	}
}
