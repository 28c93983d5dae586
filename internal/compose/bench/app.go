package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/wire/ai"
)

const (
	// owner is the one user of the site.
	owner ai.Owner = "bench"
	// textSize is how long every question and every answer is, in characters.
	textSize = 200
	// maxAppAnswer bounds an answer of the app interface.
	maxAppAnswer = 1 << 20
	// appTimeout bounds one request of the app, beyond what it asks to be held.
	appTimeout = 30 * time.Second
	// appHold is how long a look at a job is held.
	appHold = 30 * time.Second
)

var (
	question = text("What did the heir of an allod owe, and to whom? ")
	answer   = text("Nothing, and to nobody: an allod was land held outright. ")
)

// text repeats a sentence until it has the right size.
func text(sentence string) string {
	return strings.Repeat(sentence, textSize/len(sentence)+1)[:textSize]
}

// app is the app beside a site.
type app struct {
	url  string
	key  string
	http *http.Client
}

func newApp(url, key string) *app {
	return &app{url: url, key: key, http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: callers, DisableCompression: true,
	}}}
}

// job is what the app needs to know of a job.
type job struct {
	ID    string   `json:"id"`
	State ai.State `json:"state"`
}

// ask enqueues the question and returns the job's id.
func (a *app) ask(ctx context.Context) (id string, err error) {
	body := fmt.Appendf(nil, `{"kind":%q,"owner":%q,"payload":{"prompt":%q}}`, ai.KindGenerate, owner, question)
	var j job
	if err := a.call(ctx, http.MethodPost, "/v1/jobs", body, &j); err != nil {
		return "", err
	}
	if j.ID == "" {
		return "", ErrAnswer.With("A job has no id.")
	}
	return j.ID, nil
}

// result waits until a job is over. It must end with an answer.
func (a *app) result(ctx context.Context, id string) error {
	var j job
	path := "/v1/jobs/" + url.PathEscape(id) + "?waitMs=" + strconv.FormatInt(appHold.Milliseconds(), 10)
	if err := a.call(ctx, http.MethodGet, path, nil, &j); err != nil {
		return err
	}
	if j.State != ai.StateOK {
		return ErrAnswer.With("A job did not end with an answer.")
	}
	return nil
}

// approve lets the device under a code in.
func (a *app) approve(ctx context.Context, code string) error {
	body := fmt.Appendf(nil, `{"owner":%q}`, owner)
	return a.call(ctx, http.MethodPost, "/v1/pairings/"+url.PathEscape(code)+"/approve", body, new(struct{}))
}

// call sends one request of the app and reads the answer into a struct. Members
// that the struct does not have are passed over: the interface may grow.
func (a *app) call(ctx context.Context, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, appTimeout+appHold)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return ErrAnswer.Because(err)
	}
	r.Header.Set("Authorization", "Bearer "+a.key)
	resp, err := a.http.Do(r)
	if err != nil {
		return a.failed(ctx, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAppAnswer))
	switch {
	case err != nil:
		return a.failed(ctx, err)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return ErrAnswer.With(fmt.Sprintf("The app interface answered with status %d.", resp.StatusCode))
	}
	if err := json.Unmarshal(got, into); err != nil {
		return ErrAnswer.Because(err)
	}
	return nil
}

// failed names an error of the network as package client does.
func (a *app) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	return client.ErrUnreachable.Because(err)
}

func (a *app) close() { a.http.CloseIdleConnections() }
