package appapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

func TestAccess(t *testing.T) {
	all := []appapi.Scope{"enqueue", "read", "pair", "admin"}
	for _, c := range []struct {
		access appapi.Access
		may    string // the scopes of all that it has, with spaces between them
		bob    bool   // whether it is for bob
	}{
		{appapi.Access{}, "", true},
		{appapi.Access{Scopes: all[:1]}, "enqueue", true},
		{appapi.Access{Scopes: all[1:3], Owner: "alice"}, "read pair", false},
		{appapi.Access{Scopes: all[3:], Owner: "bob"}, "enqueue read pair admin", true},
	} {
		var may []string
		for _, s := range all {
			if c.access.May(s) {
				may = append(may, string(s))
			}
		}
		if got := strings.Join(may, " "); got != c.may || c.access.For("bob") != c.bob {
			t.Errorf("%+v: may %q, for bob %v", c.access, got, c.access.For("bob"))
		}
		if (appapi.Access{Owner: "alice"}).For("") {
			t.Error("a key of one owner is for nobody in particular")
		}
	}
}

// TestKeyFirst holds that nothing is told without a key, not even which paths
// exist.
func TestKeyFirst(t *testing.T) {
	a := newApp(t)
	text := strings.TrimPrefix(a.admin, "Bearer ")
	for _, path := range []string{"/v1/jobs", "/v1/jobs/x", "/v1/runners", "/v1/openapi.json", "/v1/nonsense", "/"} {
		for name, authorization := range map[string]string{
			"no key": "", "another scheme": "Basic " + text, "a bare key": text, "a key too long": a.admin + "x",
			"another key": "Bearer " + "allod-app-" + strings.Repeat("A", 43), "an empty key": "Bearer ",
			"its hash": fmt.Sprintf("Bearer %x", sha256.Sum256([]byte(text))),
		} {
			w := a.call(authorization, "GET", path, "")
			if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), `"error":"app-key"`) {
				t.Errorf("%s with %s: %d %s", path, name, w.Code, w.Body)
			}
		}
		if w := a.call(a.admin, "GET", path, ""); w.Code == http.StatusUnauthorized {
			t.Errorf("%s with the key: %d %s", path, w.Code, w.Body)
		}
	}
	k, err := appapi.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	if shown := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.Contains(shown, text) {
		t.Error("a key prints itself")
	}
}

// TestScopes holds which scope opens which path, and that the others do not.
func TestScopes(t *testing.T) {
	a := newApp(t)
	a.ask("a", "alice")
	auths := map[appapi.Scope]string{}
	for _, s := range site.Scopes() {
		auths[s] = a.key("only "+string(s), "", s)
	}
	for request, want := range map[string]appapi.Scope{
		"POST /v1/jobs":                     appapi.ScopeEnqueue,
		"POST /v1/jobs/a/cancel":            appapi.ScopeEnqueue,
		"GET /v1/jobs":                      appapi.ScopeRead,
		"GET /v1/jobs/a":                    appapi.ScopeRead,
		"GET /v1/jobs/none":                 appapi.ScopeRead,
		"GET /v1/availability?owner=alice":  appapi.ScopeRead,
		"GET /v1/pairings/X":                appapi.ScopePair,
		"POST /v1/pairings/X/approve":       appapi.ScopePair,
		"POST /v1/pairings/X/deny":          appapi.ScopePair,
		"POST /v1/pairing-links":            appapi.ScopePair,
		"GET /v1/runners":                   appapi.ScopePair,
		"GET /v1/runners/x":                 appapi.ScopePair,
		"POST /v1/runners/x/revoke":         appapi.ScopePair,
		"POST /v1/sweep":                    appapi.ScopeAdmin,
		"GET /v1/openapi.json":              "",
		"GET /v1/nonsense":                  "",
		"POST /v1/runners/x/revoke?canary=": appapi.ScopePair, // before anything else is looked at
	} {
		method, path, _ := strings.Cut(request, " ")
		for scope, auth := range auths {
			w := a.call(auth, method, path, "")
			refused := w.Code == http.StatusForbidden && strings.Contains(w.Body.String(), `"error":"app-scope"`)
			if open := want == "" || scope == want || scope == appapi.ScopeAdmin; refused == open {
				t.Errorf("%s with the scope %s: %d %s", request, scope, w.Code, w.Body)
			}
		}
	}
	if w := a.call(a.key("two", "", "read", "enqueue"), "GET", "/v1/jobs/a", ""); w.Code != http.StatusOK {
		t.Errorf("one of two scopes: %d %s", w.Code, w.Body)
	}
}

// TestAskingIsNotReading holds that a key that may only ask learns nothing of what
// came of a job, neither by asking again under its id nor by canceling it.
func TestAskingIsNotReading(t *testing.T) {
	a := newApp(t)
	a.start(1)
	runner := ai.RunnerID(a.must(200, "POST", "/v1/pairings/CODE-0001/approve", `{"owner":"alice"}`)["id"].(string))
	a.ask("a", "alice")
	a.finish(runner, 1, ai.RunMetadata{Model: "canary-model", BackendClass: backend.HTTP}, &ai.Usage{Prompt: 3}, ai.Answer{Text: "canary-answer"}, instead)
	const again = `{"kind":"llm.generate","id":"a","owner":"alice",` + payload + `}`
	asks, reads := a.key("asks", "", appapi.ScopeEnqueue), a.key("reads too", "", appapi.ScopeEnqueue, appapi.ScopeRead)
	for _, c := range []struct{ path, body string }{{"/v1/jobs", again}, {"/v1/jobs/a/cancel", ""}} {
		w := a.call(asks, "POST", c.path, c.body)
		if w.Code/100 != 2 || !strings.Contains(w.Body.String(), `"state":"ok"`) {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
		for _, member := range []string{"canary", "outcome", "provenance", "usage", "instead"} {
			if strings.Contains(w.Body.String(), member) {
				t.Errorf("%s: a key that may only ask is told %s: %s", c.path, member, w.Body)
			}
		}
		if w := a.call(reads, "POST", c.path, c.body); !strings.Contains(w.Body.String(), "canary-answer") || !strings.Contains(w.Body.String(), `"usage"`) {
			t.Errorf("%s: a key that may read too: %s", c.path, w.Body)
		}
	}
}

// TestBoundKeysWait holds that a key of one owner can have jobs wait for that
// owner's only: what others have is refused as what is not there.
func TestBoundKeysWait(t *testing.T) {
	a := newApp(t)
	a.ask("a1", "alice")
	a.ask("b1", "bob")
	alice := a.key("alice's", "alice", appapi.ScopeEnqueue, appapi.ScopeRead)
	ask := func(auth, id, on string) *httptest.ResponseRecorder {
		return a.call(auth, "POST", "/v1/jobs", `{"kind":"llm.generate","owner":"alice","id":"`+id+`","dependsOn":["`+on+`"],`+payload+`}`)
	}
	if w := ask(alice, "own", "a1"); w.Code != 201 || !strings.Contains(w.Body.String(), `"blocked":true`) {
		t.Errorf("an own job: %d %s", w.Code, w.Body)
	}
	absent, others := ask(alice, "x", "none"), ask(alice, "y", "b1")
	if absent.Code != 400 || others.Code != absent.Code || others.Body.String() != absent.Body.String() {
		t.Errorf("another's job: %d %s, one that is not there: %d %s", others.Code, others.Body, absent.Code, absent.Body)
	}
	// A key for everybody may compose jobs of several owners, and name one before it
	// is asked.
	for _, on := range []string{"b1", "none"} {
		if w := ask(a.admin, "of all "+on, on); w.Code != 201 {
			t.Errorf("a key for everybody, %s: %d %s", on, w.Code, w.Body)
		}
	}
}

// TestBoundKeys holds that a key of one owner acts for that owner only, and cannot
// tell what others have from what is not there.
func TestBoundKeys(t *testing.T) {
	a := newApp(t)
	a.ask("a1", "alice")
	a.ask("b1", "bob")
	a.start(1)
	a.start(2)
	a.start(3)
	device := func(code, owner string) string {
		return a.must(200, "POST", "/v1/pairings/"+code+"/approve", `{"owner":"`+owner+`"}`)["id"].(string)
	}
	alices, bobs := device("CODE-0001", "alice"), device("CODE-0002", "bob")
	alice := a.key("alice's", "alice", appapi.ScopeAdmin)
	const ask = `{"kind":"llm.generate",` + payload
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/v1/jobs", ask + `,"owner":"alice"}`, 201, `"owner":"alice"`},
		{"POST", "/v1/jobs", ask + `,"id":"mine"}`, 201, `"owner":"alice"`},
		{"POST", "/v1/jobs", ask + `,"owner":"bob"}`, 403, `"error":"app-owner"`},
		{"POST", "/v1/jobs", ask + `,"owner":"Alice"}`, 403, `"error":"app-owner"`},
		{"GET", "/v1/jobs/a1", "", 200, `"id":"a1"`},
		{"GET", "/v1/jobs?owner=alice", "", 200, `"id":"a1"`},
		{"GET", "/v1/jobs?owner=bob", "", 403, `"error":"app-owner"`},
		{"GET", "/v1/availability", "", 200, `"available":`},
		{"GET", "/v1/availability?owner=bob", "", 403, `"error":"app-owner"`},
		{"GET", "/v1/runners?owner=bob", "", 403, `"error":"app-owner"`},
		{"GET", "/v1/runners/" + alices, "", 200, `"owner":"alice"`},
		{"GET", "/v1/pairings/CODE-0003", "", 200, `"fingerprint":`},
		{"POST", "/v1/pairings/CODE-0003/approve", `{"owner":"bob"}`, 403, `"error":"app-owner"`},
		{"POST", "/v1/pairings/CODE-0003/approve", `{}`, 200, `"owner":"alice"`},
		{"POST", "/v1/sweep", "", 403, `"error":"app-owner"`},
	} {
		w := a.call(alice, c.method, c.path, c.body)
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", c.method, c.path, c.body, w.Code, w.Body, c.code, c.want)
		}
	}
	// The same bytes for what another owner has as for what nobody has.
	for _, c := range [][3]string{
		{"GET", "/v1/jobs/b1", "/v1/jobs/none"},
		{"GET", "/v1/jobs/b1?waitMs=50", "/v1/jobs/none?waitMs=50"},
		{"POST", "/v1/jobs/b1/cancel", "/v1/jobs/none/cancel"},
		{"GET", "/v1/jobs?after=b1", "/v1/jobs?after=none"},
		{"GET", "/v1/runners/" + bobs, "/v1/runners/none"},
		{"POST", "/v1/runners/" + bobs + "/revoke", "/v1/runners/none/revoke"},
	} {
		others, none := a.call(alice, c[0], c[1], ""), a.call(alice, c[0], c[2], "")
		if others.Code != http.StatusNotFound || none.Code != others.Code || !bytes.Equal(others.Body.Bytes(), none.Body.Bytes()) {
			t.Errorf("%s %s: %d %s\nand %s: %d %s", c[0], c[1], others.Code, others.Body, c[2], none.Code, none.Body)
		}
	}
	// Their content is not looked at before the owner is: what cannot be read of it
	// would be set aside.
	a.spoil(`UPDATE job_content SET payload = 'nonsense'`)
	for _, call := range [][2]string{{"GET", "/v1/jobs/b1"}, {"GET", "/v1/jobs/b1?waitMs=50"}, {"POST", "/v1/jobs/b1/cancel"}} {
		a.call(alice, call[0], call[1], "")
	}
	if list, err := a.store.SetAside(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("read of bob's job: %+v, %v", list, err)
	}
	// And nothing happened to them.
	if j := a.must(200, "GET", "/v1/jobs/b1", ""); j["state"] != "queued" {
		t.Errorf("bob's job: %v", j)
	}
	if r := a.must(200, "GET", "/v1/runners/"+bobs, ""); r["revokedAt"] != nil {
		t.Errorf("bob's device: %v", r)
	}
	// Lists are narrowed.
	for _, path := range []string{"/v1/jobs", "/v1/runners"} {
		if w := a.call(alice, "GET", path, ""); strings.Contains(w.Body.String(), `"bob"`) || strings.Count(w.Body.String(), `"alice"`) < 2 {
			t.Errorf("%s: %s", path, w.Body)
		}
		if w := a.call(a.admin, "GET", path, ""); !strings.Contains(w.Body.String(), `"bob"`) {
			t.Errorf("%s for everybody: %s", path, w.Body)
		}
	}
}

// TestDamagedRows holds that what cannot be read is an error of the site, but not
// to a key of one owner: whose it is cannot be told.
func TestDamagedRows(t *testing.T) {
	a := newApp(t)
	a.ask("a", "alice")
	a.start(1)
	runner := a.must(200, "POST", "/v1/pairings/CODE-0001/approve", `{"owner":"alice"}`)["id"].(string)
	a.spoil(`UPDATE jobs SET kind = 'nonsense'`)
	a.spoil(`UPDATE runners SET platform = 'nonsense'`)
	bob := a.key("bob's", "bob", appapi.ScopeAdmin)
	for path, none := range map[string]string{"/v1/jobs/a": "/v1/jobs/none", "/v1/runners/" + runner: "/v1/runners/none"} {
		if w := a.call(a.admin, "GET", path, ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"error":"row-set-aside"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		got, want := a.call(bob, "GET", path, ""), a.call(bob, "GET", none, "")
		if got.Code != http.StatusNotFound || got.Body.String() != want.Body.String() {
			t.Errorf("%s for one owner: %d %s", path, got.Code, got.Body)
		}
	}
}

// TestRemovedKey holds that a key counts no more from the request after its
// removal on.
func TestRemovedKey(t *testing.T) {
	a := newApp(t)
	k, err := appapi.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := appapi.KeyRequest{Hash: k.Hash(), Name: "web", Scopes: []appapi.Scope{"read", "enqueue", "read"}}
	added, err := a.keys.Add(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if h := k.Hash(); added.ID != fmt.Sprintf("key_%x", h[:8]) || fmt.Sprint(added.Scopes) != "[enqueue read]" {
		t.Errorf("added %+v", added)
	}
	code := func() int { return a.call("Bearer "+k.Text(), "GET", "/v1/jobs", "").Code }
	if got := code(); got != http.StatusOK {
		t.Fatalf("a key that was added: %d", got)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+k.Text())
	if access, err := a.keys.Authenticate(r); err != nil || access.KeyID != added.ID || access.Owner != "" {
		t.Errorf("access %+v, %v", access, err)
	}
	if _, err := a.keys.Remove(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if got := code(); got != http.StatusUnauthorized {
		t.Errorf("a removed key: %d", got)
	}
	if access, err := a.keys.Authenticate(r); !errors.Is(err, appapi.ErrAppKey) || access.May("read") {
		t.Errorf("a removed key's access: %+v, %v", access, err)
	}
	if _, err := a.keys.Add(t.Context(), request); !errors.Is(err, site.ErrAppKeyTaken) {
		t.Errorf("adding it again: %v", err)
	}
	if list, err := a.keys.List(t.Context()); err != nil || len(list) != 1 || list[0].Name != "admin" {
		t.Errorf("listed %+v, %v", list, err)
	}
}

func TestNewKeysAreChecked(t *testing.T) {
	a := newApp(t)
	ok := appapi.KeyRequest{Hash: [32]byte{1}, Name: "n", Scopes: []appapi.Scope{"read"}, Owner: "alice"}
	for name, change := range map[string]func(*appapi.KeyRequest){
		"no name":                func(r *appapi.KeyRequest) { r.Name = "" },
		"a long name":            func(r *appapi.KeyRequest) { r.Name = strings.Repeat("é", 65) },
		"a name over two lines":  func(r *appapi.KeyRequest) { r.Name = "can\nary" },
		"a name that is no text": func(r *appapi.KeyRequest) { r.Name = "canary\xff" },
		"no scope":               func(r *appapi.KeyRequest) { r.Scopes = nil },
		"an unknown scope":       func(r *appapi.KeyRequest) { r.Scopes = []appapi.Scope{"read", "canary"} },
		"an empty scope":         func(r *appapi.KeyRequest) { r.Scopes = []appapi.Scope{"read", ""} },
		"a long owner":           func(r *appapi.KeyRequest) { r.Owner = ai.Owner(strings.Repeat("a", 257)) },
		"an owner's line break":  func(r *appapi.KeyRequest) { r.Owner = "canary\n" },
	} {
		r := ok
		change(&r)
		if _, err := a.keys.Add(t.Context(), r); !errors.Is(err, site.ErrBadAppKey) || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ok.Name = strings.Repeat("é", 64)
	if _, err := a.keys.Add(t.Context(), ok); err != nil {
		t.Errorf("a name as long as it may be: %v", err)
	}
}

// TestFirstKey holds that a site registers a key by itself only where it never had
// one.
func TestFirstKey(t *testing.T) {
	a := newApp(t)
	if had, err := a.keys.Had(t.Context()); err != nil || !had {
		t.Errorf("had %v, %v", had, err)
	}
	k, err := appapi.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	works := func() bool { return a.call("Bearer "+k.Text(), "GET", "/v1/jobs", "").Code == http.StatusOK }
	for range 2 {
		if err := a.keys.AddFirst(t.Context(), k.Hash()); err != nil || works() {
			t.Errorf("beside another key: %v, and it works: %v", err, works())
		}
		if _, err := a.keys.Remove(t.Context(), "admin"); err != nil && !errors.Is(err, site.ErrNoAppKey) {
			t.Fatal(err)
		}
	}
	empty := appapi.NewKeys(noKeys{}, func() time.Time { return time.UnixMilli(7) })
	if had, err := empty.Had(t.Context()); err != nil || had {
		t.Errorf("had %v, %v", had, err)
	}
	if err := empty.AddFirst(t.Context(), k.Hash()); !errors.Is(err, errAdded) ||
		err.Error() != fmt.Sprintf("first [admin]  true 7 %v", k.Hash()) {
		t.Errorf("the first: %v", err)
	}
}

// noKeys is a store without keys that tells what is added.
type noKeys struct{ site.AppKeyStore }

var errAdded = errors.New("added")

type addedError struct{ text string }

func (e addedError) Error() string      { return e.text }
func (addedError) Is(target error) bool { return target == errAdded }

func (noKeys) List(context.Context) ([]site.AppKey, error) { return nil, nil }

func (noKeys) Add(_ context.Context, n site.NewAppKey) (site.AppKey, error) {
	return site.AppKey{}, addedError{fmt.Sprint(n.Name, " ", n.Scopes, " ", n.Owner, " ", n.First, " ", n.Now, " ", n.Hash)}
}
