package appapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/match"
)

// What the interface refuses besides what package site does.
var (
	ErrAppKey = refusal.NewKind("app-key", 401,
		"The request does not carry the app's key.",
		"Send the key from the app key file as Authorization: Bearer KEY.")
	ErrRequest = refusal.NewKind("app-request", 400,
		"The request is not one that this interface takes.",
		"Compare it with the documentation of this path.")
	ErrPath = refusal.NewKind("app-path", 404,
		"There is nothing at this path for this method.",
		"The paths are listed in docs/app-api.md.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "App interface", Kinds: []*refusal.Kind{ErrAppKey, ErrRequest, ErrPath}}

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
	key  [32]byte
}

// NewHandler serves the interface to whoever has the key.
func NewHandler(s *site.Site, key Key) http.Handler {
	a := &api{site: s, key: key.hash}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(r *http.Request) (int, any, error){
		"POST /v1/jobs":                    a.enqueue,
		"GET /v1/jobs/{id}":                a.job,
		"POST /v1/jobs/{id}/cancel":        a.cancel,
		"GET /v1/availability":             a.availability,
		"GET /v1/pairings/{code}":          a.pairing,
		"POST /v1/pairings/{code}/approve": a.approve,
		"POST /v1/pairings/{code}/deny":    a.deny,
		"GET /v1/runners":                  a.runners,
		"POST /v1/runners/{id}/revoke":     a.revoke,
		"POST /v1/sweep":                   a.sweep,
		"/":                                func(*http.Request) (int, any, error) { return 0, nil, ErrPath },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			status, answer, err := 0, any(nil), a.authenticate(r)
			if err == nil {
				status, answer, err = serve(r)
			}
			write(w, status, answer, err)
		})
	}
	return mux
}

func (a *api) authenticate(r *http.Request) error {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	given := sha256.Sum256([]byte(text))
	if subtle.ConstantTimeCompare(given[:], a.key[:]) != 1 || !ok {
		return ErrAppKey
	}
	return nil
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

// read reads a body by its shape. An absent body is an empty object where no
// member is required.
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

func (a *api) enqueue(r *http.Request) (int, any, error) {
	q, err := read(r, askShape)
	if err != nil {
		return 0, nil, err
	}
	j, err := a.site.Jobs.Enqueue(r.Context(), q.question())
	if err != nil {
		return 0, nil, err
	}
	answer, err := a.describe(r.Context(), j)
	return http.StatusCreated, answer, err
}

// maxWait bounds how long a look at a job is held.
const maxWait = time.Minute

func (a *api) job(r *http.Request) (int, any, error) {
	id := ai.JobID(r.PathValue("id"))
	wait, err := strconv.ParseInt(cmpOr(r.URL.Query().Get("waitMs"), "0"), 10, 64)
	if err != nil || wait < 0 {
		return 0, nil, ErrRequest.With("waitMs is not a whole number of milliseconds.")
	}
	if wait > 0 {
		// A wait that ends without an end is no error here: the job is shown as it
		// stands, with why nobody runs it.
		held := min(time.Duration(min(wait, maxWait.Milliseconds()))*time.Millisecond, maxWait)
		_, err := a.site.Jobs.Wait(r.Context(), id, site.Wait{Timeout: held, Grace: maxWait})
		if err != nil && !errors.Is(err, site.ErrTimeout) && !errors.Is(err, site.ErrEnded) && !errors.Is(err, site.ErrContentGone) {
			return 0, nil, err
		}
	}
	j, err := a.site.Jobs.Get(r.Context(), id)
	if err != nil {
		return 0, nil, err
	}
	answer, err := a.describe(r.Context(), j)
	return http.StatusOK, answer, err
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// describe is a job as an app sees it, with its outcome if it has one.
func (a *api) describe(ctx context.Context, j site.Job) (any, error) {
	out := jobAnswer{
		ID: j.ID, Kind: j.Kind, Owner: j.Owner, Audience: j.Audience, State: j.State, Reason: j.Reason, Blocked: j.Blocked(),
		CancelRequested: j.CancelRequested, Attempts: j.Attempts, CreatedAt: j.CreatedAt,
	}
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
	answer, err := a.site.Jobs.Answer(ctx, j.ID)
	if err != nil && !errors.Is(err, site.ErrEnded) && !errors.Is(err, site.ErrContentGone) {
		return nil, err
	}
	out.Outcome, out.Provenance = outcomeOf(answer.Outcome), provenanceOf(answer.Provenance)
	return out, nil
}

func (a *api) cancel(r *http.Request) (int, any, error) {
	j, err := a.site.Jobs.Cancel(r.Context(), ai.JobID(r.PathValue("id")))
	if err != nil {
		return 0, nil, err
	}
	answer, err := a.describe(r.Context(), j)
	return http.StatusOK, answer, err
}

func (a *api) availability(r *http.Request) (int, any, error) {
	q := r.URL.Query()
	job := match.Job{Owner: ai.Owner(q.Get("owner")), Audience: ai.Audience(cmpOr(q.Get("audience"), string(ai.AudienceSelf)))}
	kind := ai.Kind(cmpOr(q.Get("kind"), string(ai.KindGenerate)))
	if job.Owner == "" {
		return 0, nil, ErrRequest.With("The owner is missing.")
	}
	got, err := a.site.Jobs.Availability(r.Context(), kind, job)
	return http.StatusOK, availabilityAnswer{got.Available, got.Why, got.Candidates}, err
}

func (a *api) pairing(r *http.Request) (int, any, error) {
	p, err := a.site.Devices.Pending(r.Context(), r.PathValue("code"))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, pairingAnswer{
		Fingerprint: p.Device.String(), Label: p.Daemon.Label, Platform: p.Daemon.Platform, Version: p.Daemon.Version,
		Capabilities: capabilitiesOf(p.Capabilities), ExpiresAt: p.ExpiresAt,
	}, nil
}

func (a *api) approve(r *http.Request) (int, any, error) {
	d, err := read(r, decisionShape)
	if err != nil {
		return 0, nil, err
	}
	runner, err := a.site.Devices.Approve(r.Context(), r.PathValue("code"), d.owner)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, runnerOf(runner), nil
}

// empty is an answer without members.
type empty struct{}

func (a *api) deny(r *http.Request) (int, any, error) {
	return http.StatusOK, empty{}, a.site.Devices.Deny(r.Context(), r.PathValue("code"))
}

func (a *api) runners(r *http.Request) (int, any, error) {
	list, err := a.site.Devices.List(r.Context(), ai.Owner(r.URL.Query().Get("owner")))
	out := runnersAnswer{Runners: []runnerAnswer{}}
	for _, runner := range list {
		out.Runners = append(out.Runners, runnerOf(runner))
	}
	return http.StatusOK, out, err
}

func (a *api) revoke(r *http.Request) (int, any, error) {
	runner, err := a.site.Devices.Revoke(r.Context(), ai.RunnerID(r.PathValue("id")))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, runnerOf(runner), nil
}

func (a *api) sweep(r *http.Request) (int, any, error) {
	return http.StatusOK, empty{}, a.site.Sweep(r.Context())
}
