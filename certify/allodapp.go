package certify

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// maxAppAnswer bounds an answer of the app interface, in bytes.
const maxAppAnswer = 1 << 20

// AllodApp is the app's half of an Allod site: its app interface, as
// docs/app-api.md describes it, and a key that may do everything there. server is
// the site's origin. It returns [ErrConfig] for an address or a key that cannot be
// one. The key goes in plain HTTP to this machine itself only.
func AllodApp(server, key string) (App, error) {
	base, err := parseServer(server)
	if err != nil {
		return nil, err
	}
	if base.Scheme != "https" && !loopback(base.Hostname()) {
		return nil, ErrConfig.With("The app's key is not sent in plain HTTP to another machine; use the https address.")
	}
	for _, r := range key {
		if r <= ' ' || r > '~' {
			return nil, ErrConfig.With("The app's key is not a word of plain characters.")
		}
	}
	if key == "" {
		return nil, ErrConfig.With("The app's key is missing.")
	}
	return &allodApp{base: base.String(), key: key, client: newClient()}, nil
}

type allodApp struct {
	base, key string
	client    *http.Client
}

// The members of the answers that are looked at.
type (
	allodJob struct {
		ID         ai.JobID         `json:"id"`
		State      ai.State         `json:"state"`
		NoRunner   string           `json:"noRunner"`
		Outcome    *allodOutcome    `json:"outcome"`
		Provenance *allodProvenance `json:"provenance"`
	}
	allodOutcome struct {
		Outcome   ai.Disposition `json:"outcome"`
		Text      string         `json:"text"`
		Code      string         `json:"code"`
		Message   string         `json:"message"`
		Retryable bool           `json:"retryable"`
	}
	allodProvenance struct {
		Audience     ai.Audience   `json:"audience"`
		RunnerID     ai.RunnerID   `json:"runnerId"`
		RunnerOwner  ai.Owner      `json:"runnerOwner"`
		BackendClass backend.Class `json:"backendClass"`
		Model        string        `json:"model"`
		Untrusted    bool          `json:"untrusted"`
	}
	allodAsk struct {
		Kind          ai.Kind      `json:"kind"`
		Owner         ai.Owner     `json:"owner"`
		Audience      ai.Audience  `json:"audience,omitempty"`
		AllowedOwners []ai.Owner   `json:"allowedOwners,omitzero"`
		DependsOn     []ai.JobID   `json:"dependsOn,omitempty"`
		TTL           int64        `json:"ttlMs,omitzero"`
		Payload       allodPayload `json:"payload"`
	}
	allodPayload struct {
		Prompt   string         `json:"prompt,omitempty"`
		Messages []allodMessage `json:"messages,omitempty"`
	}
	allodMessage struct {
		Role    ai.Role `json:"role"`
		Content string  `json:"content"`
	}
)

func (j allodJob) job() Job {
	out := Job{DeliveredResult: ai.DeliveredResult{JobID: j.ID, State: j.State}, NoRunner: j.NoRunner != ""}
	if o := j.Outcome; o != nil {
		switch o.Outcome {
		case ai.DispositionOK:
			out.Outcome = ai.Answer{Text: o.Text}
		case ai.DispositionError:
			out.Outcome = ai.Failure{Code: o.Code, Message: o.Message, Retryable: o.Retryable}
		case ai.DispositionCanceled:
			out.Outcome = ai.Cancellation{}
		}
	}
	if p := j.Provenance; p != nil {
		out.Provenance = &ai.Provenance{
			Audience: p.Audience, RunnerID: p.RunnerID, RunnerOwner: p.RunnerOwner,
			BackendClass: p.BackendClass, Model: p.Model, Untrusted: p.Untrusted,
		}
	}
	return out
}

// call sends a request and reads its answer. It returns [ErrApp].
func (a *allodApp) call(ctx context.Context, method, path string, ask, into any) error {
	var body []byte
	var err error
	if ask != nil {
		if body, err = json.Marshal(ask); err != nil {
			return ErrApp.Because(err)
		}
	}
	for waits := new(patience); ; {
		r, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
		if err != nil {
			return ErrApp.Because(err)
		}
		r.Header.Set("Authorization", "Bearer "+a.key)
		answer, err := a.client.Do(r)
		if err != nil {
			return ErrApp.With("It could not be reached.").Because(err)
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxAppAnswer))
		_ = answer.Body.Close()
		switch {
		case err != nil:
			return ErrApp.With("Its answer ended too soon.").Because(err)
		case answer.StatusCode == http.StatusTooManyRequests && waits.wait(ctx, answer.Header.Get("Retry-After")):
			continue
		case answer.StatusCode/100 != 2:
			return ErrApp.With("It answered with status " + strconv.Itoa(answer.StatusCode) + ".")
		case into == nil:
			return nil
		}
		if err := json.Unmarshal(text, into); err != nil {
			return ErrApp.With("Its answer cannot be read.").Because(err)
		}
		return nil
	}
}

func (a *allodApp) Enqueue(ctx context.Context, q Ask) (Job, error) {
	ask := allodAsk{
		Kind: q.Payload.Kind(), Owner: q.Owner, Audience: q.Audience, AllowedOwners: q.AllowedOwners, DependsOn: q.DependsOn,
		TTL: q.TTL.Milliseconds(),
	}
	switch p := q.Payload.(type) {
	case ai.Generate:
		ask.Payload.Prompt = p.Prompt
	case ai.Chat:
		for _, m := range p.Messages {
			ask.Payload.Messages = append(ask.Payload.Messages, allodMessage{m.Role, m.Content})
		}
	}
	var j allodJob
	err := a.call(ctx, http.MethodPost, "/v1/jobs", ask, &j)
	return j.job(), err
}

func (a *allodApp) Job(ctx context.Context, id ai.JobID, wait time.Duration) (Job, error) {
	var j allodJob
	err := a.call(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(string(id))+"?waitMs="+strconv.FormatInt(wait.Milliseconds(), 10), nil, &j)
	return j.job(), err
}

func (a *allodApp) Cancel(ctx context.Context, id ai.JobID) (Job, error) {
	var j allodJob
	err := a.call(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(string(id))+"/cancel", nil, &j)
	return j.job(), err
}

func (a *allodApp) Available(ctx context.Context, owner ai.Owner, kind ai.Kind, audience ai.Audience) (bool, error) {
	q := url.Values{"owner": {string(owner)}, "kind": {string(kind)}, "audience": {string(audience)}}
	var out struct {
		Available bool `json:"available"`
	}
	err := a.call(ctx, http.MethodGet, "/v1/availability?"+q.Encode(), nil, &out)
	return out.Available, err
}

func (a *allodApp) Approve(ctx context.Context, userCode string, owner ai.Owner) error {
	return a.call(ctx, http.MethodPost, "/v1/pairings/"+url.PathEscape(userCode)+"/approve", map[string]ai.Owner{"owner": owner}, nil)
}

func (a *allodApp) Deny(ctx context.Context, userCode string) error {
	return a.call(ctx, http.MethodPost, "/v1/pairings/"+url.PathEscape(userCode)+"/deny", nil, nil)
}

func (a *allodApp) Revoke(ctx context.Context, runner ai.RunnerID) error {
	return a.call(ctx, http.MethodPost, "/v1/runners/"+url.PathEscape(string(runner))+"/revoke", nil, nil)
}
