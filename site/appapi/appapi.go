package appapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// What the interface refuses besides what package site does.
var (
	ErrAppKey = refusal.NewKind("app-key", 401,
		"The request does not carry a key of this site, or the key was removed.",
		"Send a key as Authorization: Bearer KEY. The site's operator makes one with allod site key add.")
	ErrRequest = refusal.NewKind("app-request", 400,
		"The request is not one that this interface takes.",
		"Compare it with the documentation of this path.")
	ErrPath = refusal.NewKind("app-path", 404,
		"There is nothing at this path for this method.",
		"The paths are listed in docs/app-api.md.")
	ErrScope = refusal.NewKind("app-scope", 403,
		"The app's key has no right to do this.",
		"Use a key with the scope that this path needs, as docs/app-api.md lists them.")
	ErrOwner = refusal.NewKind("app-owner", 403,
		"The app's key is for one owner, and the request is for another one or for everybody.",
		"Ask for the owner of the key, or use a key that is not bound to one.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "App interface", Kinds: []*refusal.Kind{ErrAppKey, ErrScope, ErrOwner, ErrRequest, ErrPath}}

// Key is an app key: 32 random bytes. Its text form is for the app's server.
type Key struct {
	text string
	hash [32]byte
}

// NewKey makes a key from 32 bytes of rand.
func NewKey(rand io.Reader) (Key, error) {
	var b [32]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return Key{}, err
	}
	k, _ := ParseKey(prefix + base64.RawURLEncoding.EncodeToString(b[:]))
	return k, nil
}

const prefix = "allod-app-"

// ParseKey reads a key's text form. It returns [ErrAppKey].
func ParseKey(text string) (Key, error) {
	rest, ok := strings.CutPrefix(text, prefix)
	if b, err := base64.RawURLEncoding.Strict().DecodeString(rest); !ok || err != nil || len(b) != 32 {
		return Key{}, ErrAppKey
	}
	return Key{text: text, hash: sha256.Sum256([]byte(text))}, nil
}

// Text is the text form, a secret.
func (k Key) Text() string { return k.text }

// String hides the key.
func (Key) String() string { return "(app key)" }

// GoString hides the key.
func (Key) GoString() string { return "(app key)" }

type api struct {
	site *site.Site
	keys *Keys
}

// route is one path with its method.
type route struct {
	pattern string
	// scope is the right that it needs; empty means any key of the site.
	scope Scope
	// query names the parameters that it takes.
	query []string
	serve func(a Access, r *http.Request) (status int, answer any, err error)
}

// routes is all that there is. openapi.json describes each of them, and a test
// holds that the two agree.
func (a *api) routes() []route {
	return []route{
		{"POST /v1/jobs", ScopeEnqueue, nil, a.enqueue},
		{"GET /v1/jobs", ScopeRead, []string{"owner", "state", "limit", "after"}, a.jobs},
		{"GET /v1/jobs/{id}", ScopeRead, []string{"waitMs"}, a.job},
		{"POST /v1/jobs/{id}/cancel", ScopeEnqueue, nil, a.cancel},
		{"GET /v1/availability", ScopeRead, []string{"owner", "kind", "audience"}, a.availability},
		{"GET /v1/pairings/{code}", ScopePair, nil, a.pairing},
		{"POST /v1/pairings/{code}/approve", ScopePair, nil, a.approve},
		{"POST /v1/pairings/{code}/deny", ScopePair, nil, a.deny},
		{"POST /v1/pairing-links", ScopePair, nil, a.makeLink},
		{"GET /v1/runners", ScopePair, []string{"owner"}, a.runners},
		{"GET /v1/runners/{id}", ScopePair, nil, a.runner},
		{"POST /v1/runners/{id}/revoke", ScopePair, nil, a.revoke},
		{"POST /v1/sweep", ScopeAdmin, nil, a.sweep},
		{"GET /v1/openapi.json", "", nil, a.openAPI},
	}
}

// NewHandler serves the interface to whoever has one of the keys.
func NewHandler(s *site.Site, keys *Keys) http.Handler {
	a := &api{site: s, keys: keys}
	mux := http.NewServeMux()
	for _, served := range append(a.routes(), route{pattern: nowhere}) {
		mux.HandleFunc(served.pattern, func(w http.ResponseWriter, r *http.Request) {
			status, answer, err := a.answer(served, r)
			write(w, status, answer, err)
		})
	}
	return mux
}

// nowhere is the pattern of every other path and method.
const nowhere = "/"

func (a *api) answer(to route, r *http.Request) (status int, answer any, err error) {
	access, err := a.keys.Authenticate(r)
	switch {
	case err != nil:
		return 0, nil, err
	case to.pattern == nowhere:
		return 0, nil, ErrPath
	case to.scope != "" && !access.May(to.scope):
		return 0, nil, ErrScope
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, nil, ErrRequest.With("The query cannot be read.")
	}
	for name, values := range q {
		if !slices.Contains(to.query, name) || len(values) > 1 {
			return 0, nil, ErrRequest.With("The query has a parameter that this path does not take, or one twice.")
		}
	}
	return to.serve(access, r)
}

func write(w http.ResponseWriter, status int, answer any, err error) {
	var body []byte
	if err == nil {
		body, err = json.Marshal(answer)
	}
	if err != nil {
		r := refusal.From(err)
		if s := r.RetrySeconds(); s > 0 {
			w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
		}
		status, body = refusal.HTTP(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// read reads a body by its shape.
func read[T any](r *http.Request, s exact.Shape[T]) (T, error) {
	var zero T
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return zero, ErrRequest.With("The body ended too soon.").Because(err)
	}
	v, err := s.Read(body, limits)
	var p *exact.Problem
	if errors.As(err, &p) {
		return zero, ErrRequest.With(p.Sentence())
	}
	return v, err
}

// empty is a body without members.
type empty struct{}

// nothing reads a body that has nothing to say: none, or an empty object.
func nothing(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	_, err := read(r, exact.Shape[empty]{Fields: func(*exact.Object, *empty) {}})
	return err
}

// ownerOf is the owner for whom a request is. One that names nobody is for the
// owner of its key, and for everybody where the key is. It returns [ErrOwner].
func ownerOf(a Access, named ai.Owner) (ai.Owner, error) {
	switch {
	case named == "":
		return a.Owner, nil
	case !a.For(named):
		return "", ErrOwner
	}
	return named, nil
}

// oneOwner is ownerOf where it cannot be everybody.
func oneOwner(a Access, named ai.Owner) (ai.Owner, error) {
	owner, err := ownerOf(a, named)
	if err == nil && owner == "" {
		err = ErrRequest.With("The owner is missing.")
	}
	return owner, err
}

func (a *api) enqueue(access Access, r *http.Request) (int, any, error) {
	q, err := read(r, askShape)
	if err != nil {
		return 0, nil, err
	}
	if q.owner, err = oneOwner(access, q.owner); err != nil {
		return 0, nil, err
	}
	switch q.id {
	case ".", "..", "/": // however they are escaped, on the way they mean another path
		return 0, nil, ErrRequest.With("No URL can name a job of this id.")
	}
	if err := a.mayDependOn(r.Context(), access, q.dependsOn); err != nil {
		return 0, nil, err
	}
	j, err := a.site.Jobs.Enqueue(r.Context(), q.question())
	if err != nil {
		return 0, nil, err
	}
	answer, err := a.describe(r.Context(), access, j)
	return http.StatusCreated, answer, err
}

// mayDependOn keeps a key that is bound to an owner to that owner's jobs: how a job
// ends tells of those it depends on, and what is done to them is done to it. What
// others have is refused as what is not there.
func (a *api) mayDependOn(ctx context.Context, access Access, ids []ai.JobID) error {
	if access.Owner == "" {
		return nil
	}
	for _, id := range ids[:min(len(ids), site.MaxDependsOn)] {
		_, err := a.found(ctx, access, id)
		if errors.Is(err, site.ErrNoJob) {
			return ErrRequest.With("A job that it depends on is not there. A key for one owner waits for that owner's jobs only, once they were asked.")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pageSize is how many jobs a page has when the request does not say.
const pageSize = 50

func (a *api) jobs(access Access, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	owner, err := ownerOf(access, ai.Owner(q.Get("owner")))
	if err != nil {
		return 0, nil, err
	}
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), strconv.Itoa(pageSize)))
	if err != nil || limit < 1 || limit > site.MaxPage {
		return 0, nil, ErrRequest.With("limit is not a whole number from 1 to 100.")
	}
	page, err := a.site.Jobs.List(r.Context(), site.JobQuery{
		Owner: owner, State: ai.State(q.Get("state")), After: ai.JobID(q.Get("after")), Limit: limit,
	})
	if err != nil {
		return 0, nil, err
	}
	out := jobsAnswer{Jobs: make([]jobAnswer, len(page.Jobs)), Next: page.Next}
	for i, j := range page.Jobs {
		out.Jobs[i] = jobOf(j)
	}
	return http.StatusOK, out, nil
}

// found returns a job that the key may see. To a key that is bound to an owner,
// another owner's job is none, and neither is one whose owner cannot be read. A
// job never changes its owner, so what is done after it is done to this one.
func (a *api) found(ctx context.Context, access Access, id ai.JobID) (site.Job, error) {
	j, err := a.site.Jobs.Get(ctx, id)
	if access.Owner != "" && (err == nil && !access.For(j.Owner) || errors.Is(err, site.ErrSetAside)) {
		return site.Job{}, site.ErrNoJob
	}
	return j, err
}

// maxWait bounds how long a look at a job is held.
const maxWait = time.Minute

func (a *api) job(access Access, r *http.Request) (int, any, error) {
	id := ai.JobID(r.PathValue("id"))
	wait, err := strconv.ParseInt(cmp.Or(r.URL.Query().Get("waitMs"), "0"), 10, 64)
	if err != nil || wait < 0 {
		return 0, nil, ErrRequest.With("waitMs is not a whole number of milliseconds.")
	}
	j, err := a.found(r.Context(), access, id)
	if err != nil {
		return 0, nil, err
	}
	if wait > 0 && !j.State.Terminal() {
		// A wait that ends without an end is no error here: the job is shown as it
		// stands, with why nobody runs it.
		held := min(time.Duration(min(wait, maxWait.Milliseconds()))*time.Millisecond, maxWait)
		_, err := a.site.Jobs.Wait(r.Context(), id, site.Wait{Timeout: held, Grace: maxWait})
		if err != nil && !errors.Is(err, site.ErrTimeout) && !errors.Is(err, site.ErrEnded) && !errors.Is(err, site.ErrContentGone) {
			return 0, nil, err
		}
		if j, err = a.found(r.Context(), access, id); err != nil {
			return 0, nil, err
		}
	}
	answer, err := a.describe(r.Context(), access, j)
	return http.StatusOK, answer, err
}

// describe is a job as an app sees it. What came of it is for keys that may read:
// one that may only ask learns no more by asking again or by canceling.
func (a *api) describe(ctx context.Context, access Access, j site.Job) (any, error) {
	out := jobOf(j)
	if !j.State.Terminal() {
		if j.Lease == nil && !j.Blocked() {
			found, err := a.site.Jobs.Availability(ctx, j.Kind, j.Matching())
			if err != nil {
				return nil, err
			}
			out.NoRunner = found.Why
		}
		return out, nil
	}
	if !access.May(ScopeRead) {
		return out, nil
	}
	answer, err := a.site.Jobs.Answer(ctx, j.ID)
	if err != nil && !errors.Is(err, site.ErrEnded) && !errors.Is(err, site.ErrContentGone) {
		return nil, err
	}
	out.Outcome, out.Provenance, out.Usage = outcomeOf(answer.Outcome), provenanceOf(answer.Provenance), usageOf(answer.Usage)
	out.Instead = insteadOf(answer.Instead)
	return out, nil
}

func (a *api) cancel(access Access, r *http.Request) (int, any, error) {
	if err := nothing(r); err != nil {
		return 0, nil, err
	}
	j, err := a.found(r.Context(), access, ai.JobID(r.PathValue("id")))
	if err != nil {
		return 0, nil, err
	}
	if j, err = a.site.Jobs.Cancel(r.Context(), j.ID); err != nil {
		return 0, nil, err
	}
	answer, err := a.describe(r.Context(), access, j)
	return http.StatusOK, answer, err
}

func (a *api) availability(access Access, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	owner, err := oneOwner(access, ai.Owner(q.Get("owner")))
	if err != nil {
		return 0, nil, err
	}
	kind := ai.Kind(cmp.Or(q.Get("kind"), string(ai.KindGenerate)))
	job := match.Job{Owner: owner, Audience: audienceOf(cmp.Or(q.Get("audience"), string(ai.AudienceSelf)))}
	if !slices.Contains(ai.Kinds(), kind) || !slices.Contains(ai.Audiences(), job.Audience) {
		return 0, nil, ErrRequest.With("The kind or the audience is none.")
	}
	got, err := a.site.Jobs.Availability(r.Context(), kind, job)
	return http.StatusOK, availabilityAnswer{got.Available, got.Why, got.Candidates}, err
}

func (a *api) pairing(_ Access, r *http.Request) (int, any, error) {
	p, err := a.site.Devices.Pending(r.Context(), r.PathValue("code"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, pairingAnswer{
		Fingerprint: p.Device.String(), Label: p.Daemon.Label, Platform: p.Daemon.Platform, Version: p.Daemon.Version,
		Capabilities: capabilitiesOf(p.Capabilities), CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt,
	}, nil
}

func (a *api) approve(access Access, r *http.Request) (int, any, error) {
	d, err := read(r, decisionShape)
	if err != nil {
		return 0, nil, err
	}
	if d.owner, err = oneOwner(access, d.owner); err != nil {
		return 0, nil, err
	}
	runner, err := a.site.Devices.Approve(r.Context(), r.PathValue("code"), d.owner)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, a.runnerOf(runner), nil
}

func (a *api) deny(_ Access, r *http.Request) (int, any, error) {
	if err := nothing(r); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, empty{}, a.site.Devices.Deny(r.Context(), r.PathValue("code"))
}

func (a *api) runners(access Access, r *http.Request) (int, any, error) {
	owner, err := ownerOf(access, ai.Owner(r.URL.Query().Get("owner")))
	if err != nil {
		return 0, nil, err
	}
	list, err := a.site.Devices.List(r.Context(), owner)
	out := runnersAnswer{Runners: make([]runnerAnswer, len(list))}
	for i, runner := range list {
		out.Runners[i] = a.runnerOf(runner)
	}
	return http.StatusOK, out, err
}

// foundRunner returns a device that the key may see, as [api.found] does a job.
func (a *api) foundRunner(access Access, r *http.Request) (site.Runner, error) {
	runner, err := a.site.Devices.Get(r.Context(), ai.RunnerID(r.PathValue("id")))
	if access.Owner != "" && (err == nil && !access.For(runner.Owner) || errors.Is(err, site.ErrSetAside)) {
		return site.Runner{}, site.ErrNoRunner
	}
	return runner, err
}

func (a *api) runner(access Access, r *http.Request) (int, any, error) {
	runner, err := a.foundRunner(access, r)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, a.runnerOf(runner), nil
}

func (a *api) revoke(access Access, r *http.Request) (int, any, error) {
	if err := nothing(r); err != nil {
		return 0, nil, err
	}
	runner, err := a.foundRunner(access, r)
	if err != nil {
		return 0, nil, err
	}
	if runner, err = a.site.Devices.Revoke(r.Context(), runner.ID); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, a.runnerOf(runner), nil
}

func (a *api) sweep(access Access, r *http.Request) (int, any, error) {
	if err := nothing(r); err != nil {
		return 0, nil, err
	}
	if access.Owner != "" {
		return 0, nil, ErrOwner
	}
	return http.StatusOK, empty{}, a.site.Sweep(r.Context())
}

//go:embed openapi.json
var openAPI []byte

func (a *api) openAPI(Access, *http.Request) (int, any, error) {
	return http.StatusOK, jsontext.Value(openAPI), nil
}
