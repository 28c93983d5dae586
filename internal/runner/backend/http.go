package backend

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// What a run may take where its request does not say. They are the contract's
// limits for an owner's own jobs.
const (
	DefaultMaxTime   = 10 * time.Minute
	DefaultMaxOutput = 4 << 20
)

// maxOutput bounds what a request may allow: no result carries more.
const maxOutput = 32 << 20

// Bounds of the other requests.
const (
	// listTime is for a list of models.
	listTime = 5 * time.Second
	// maxList bounds a list of models, in bytes.
	maxList = 8 << 20
	// probeTime is for a proof. A large model may have to be loaded first.
	probeTime = 2 * time.Minute
	// maxProbe bounds the answer to a proof, in bytes, for servers that do not
	// keep to its tokens.
	maxProbe = 1 << 20
	// probeTokens is how much a model has to say to prove itself.
	probeTokens = 16
	// maxHeaders bounds the headers of an answer, in bytes.
	maxHeaders = 64 << 10
	// tlsTime is for a TLS handshake.
	tlsTime = 10 * time.Second
)

// Config is one backend as its owner configured it.
type Config struct {
	// ID is of the contract's table.
	ID wirebackend.ID
	// BaseURL is what models and chat/completions are appended to; empty means
	// the table's default.
	BaseURL string
	// Key is the API key; zero means none.
	Key Key
	// Dial connects to an IP address and port that were judged; nil means
	// net.Dialer. Its context ends with the attempt and says nothing about the
	// connection's life.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Resolve looks the addresses of a host up; nil means net.DefaultResolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Now is the clock that runs are measured with; nil means time.Now.
	Now func() time.Time
}

// HTTP is one backend of the class http. It holds no connection between
// requests, so it need not be closed, and may be used by many at once.
type HTTP struct {
	id     wirebackend.ID
	cost   wirebackend.Cost
	base   string
	key    Key
	row    row
	client *http.Client
	now    func() time.Time
}

// Open judges a configuration; it connects to nothing. It returns
// [wirebackend.ErrUnknown], [ErrProcessClass], [ErrNoURL], [ErrURL],
// [ErrScheme], [ErrCredentials], [ErrMetadata], [ErrLinkLocal], [ErrWildcard],
// [ErrMulticast], [ErrQuery], [ErrNotLocal] or [ErrKey], of which the first that
// holds. A host that is a name is judged when it is connected to.
func Open(c Config) (*HTTP, error) {
	d, ok := wirebackend.Find(c.ID)
	switch {
	case !ok:
		return nil, wirebackend.ErrUnknown
	case d.Class != wirebackend.HTTP:
		return nil, ErrProcessClass
	}
	text := weburl.Trim(c.BaseURL)
	if text == "" {
		text = d.DefaultBaseURL
	}
	if text == "" {
		return nil, ErrNoURL
	}
	base, host, err := readBase(text)
	if err != nil {
		return nil, err
	}
	cost, err := wirebackend.CostOf(c.ID, base, "")
	if err != nil {
		return nil, err
	}
	dial := dialer{dial: c.Dial, resolve: c.Resolve, local: d.Cost == "" && cost == wirebackend.Free}
	if dial.dial == nil {
		dial.dial = systemDial
	}
	if dial.resolve == nil {
		dial.resolve = systemResolve
	}
	// The contract takes some addresses for local by their first letters alone.
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && dial.local && !local(plain(addr)) {
		return nil, ErrNotLocal
	}
	if !c.Key.valid() {
		return nil, ErrKey
	}
	b := &HTTP{id: c.ID, cost: cost, base: base, key: c.Key, row: rows[c.ID], now: c.Now}
	if b.now == nil {
		b.now = time.Now
	}
	b.client = &http.Client{
		// A redirect would carry the prompt to an address that nobody configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dial.connect,
			// A server that closes an idle connection as a job is sent would lose the
			// job; connecting is little beside what a model takes.
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeaders,
			TLSHandshakeTimeout:    tlsTime,
		},
	}
	return b, nil
}

// ID is the backend's id in the contract's table.
func (b *HTTP) ID() wirebackend.ID { return b.id }

// Cost is what a run costs the owner, by the table or, for the generic backend,
// by its address.
func (b *HTTP) Cost() wirebackend.Cost { return b.cost }

// CostOf is what a run of that model costs the owner: a server on this machine
// may hand some of its models' work to a paid service.
func (b *HTTP) CostOf(model string) wirebackend.Cost {
	if b.cost == wirebackend.Free && wirebackend.RunsElsewhere(model) {
		return wirebackend.Metered
	}
	return b.cost
}

// BaseURL is the address in its normal form, for showing. It holds no secret.
func (b *HTTP) BaseURL() string { return b.base }

// Models lists the models that the server says it has, in its order, at most
// 4,096 of them; ids that cannot be shown are left out. It takes at most five
// seconds. Ids that hold our API key are left out too. It returns the refusals of
// [HTTP.Probe] but [ErrEmpty].
func (b *HTTP) Models(ctx context.Context) ([]string, error) {
	l, _, err := b.list(ctx, listTime)
	return l.ids, err
}

func (b *HTTP) list(ctx context.Context, within time.Duration) (listing, http.Header, error) {
	run, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answer, err := b.send(ctx, run, request{method: http.MethodGet, url: b.base + "/models" + b.row.listQuery, list: true, max: maxList})
	if err != nil {
		return listing{}, answer.header, err
	}
	l, ok := readModels(answer.body)
	if !ok {
		return listing{}, answer.header, ErrBackend.With("Its list of models cannot be read.")
	}
	l.ids = slices.DeleteFunc(l.ids, b.key.within)
	for i, id := range l.ids {
		l.ids[i] = strings.TrimPrefix(id, b.row.prefix)
	}
	return l, answer.header, nil
}

// Request is one job for a backend.
type Request struct {
	// Model is the server's name of the model.
	Model string
	// Payload is what is asked. Its bounds are the caller's to check.
	Payload ai.Payload
	// MaxTime is for the whole run, connecting included; zero means
	// [DefaultMaxTime].
	MaxTime time.Duration
	// MaxOutput bounds both the answer's text and the message that it comes in, in
	// bytes; zero means [DefaultMaxOutput], and above 32 MiB it is 32 MiB.
	MaxOutput int
	// MaxTokens asks the server to stop after that many; zero asks nothing.
	MaxTokens int
}

// Result is how a run ended.
type Result struct {
	// Outcome is an answer, a failure with one of this package's codes and a
	// sentence of our own, or a cancellation where the caller's context was
	// canceled. It is never nil.
	Outcome ai.Outcome
	// Kind is the refusal behind a failure, for the backend's owner; else nil.
	Kind *refusal.Kind
	// Usage is what the server says it used.
	Usage Usage
	// Stop is why the model stopped, where there is an answer.
	Stop ai.Stop
	// Took is the wall-clock time of the run.
	Took time.Duration
}

// Usage is how many tokens a run used, as the server counts. Both are from 0 to
// 2^53-1. They are zero unless Counted is set: a run that failed may have cost
// something all the same.
type Usage struct {
	Prompt, Completion int64
	Counted            bool
}

// Run runs one job. The system text goes first in its own role, then the prompt
// or the turns. An empty answer is an answer. Where an answer holds our API key as
// it is, "(API key)" stands in its place: a server that echoes it sends it no
// further. Keys of fewer than 8 bytes are no secrets and stay.
func (b *HTTP) Run(ctx context.Context, r Request) Result {
	start := b.now()
	c, err := b.complete(ctx, r)
	took := max(b.now().Sub(start), 0)
	if err != nil {
		result := Result{Outcome: outcomeOf(err), Took: took}
		if !errors.Is(err, context.Canceled) {
			result.Kind = refusal.From(err).Kind()
		}
		return result
	}
	return Result{Outcome: ai.Answer{Text: c.text}, Usage: c.usage, Stop: c.stop, Took: took}
}

// Probe has the model generate a little, and returns nil if it did: a text, or
// thoughts that the small limit cut. It takes at most two minutes. It returns
// [ErrUnauthorized], [ErrNoModel], [ErrBackend], [ErrFailing],
// [ErrUnreachable], [ErrTimeout], [ErrOutputTooLarge], [ErrEmpty], an address's
// refusal (see [Open]), or context.Canceled where the caller gave up.
func (b *HTTP) Probe(ctx context.Context, model string) error {
	c, err := b.complete(ctx, Request{
		Model: model, Payload: ai.Generate{Prompt: "Reply with the word ready."},
		MaxTime: probeTime, MaxOutput: maxProbe, MaxTokens: probeTokens,
	})
	switch {
	case err != nil:
		return err
	case !c.generated:
		return ErrEmpty
	}
	return nil
}

// chat is a job as it is sent.
type chat struct {
	Model               string `json:"model"`
	Messages            []turn `json:"messages"`
	Stream              bool   `json:"stream"`
	MaxTokens           int    `json:"max_tokens,omitzero"`
	MaxCompletionTokens int    `json:"max_completion_tokens,omitzero"`
}

type turn struct {
	Role    ai.Role `json:"role"`
	Content string  `json:"content"`
}

func (b *HTTP) complete(ctx context.Context, r Request) (completion, error) {
	if r.MaxTime <= 0 {
		r.MaxTime = DefaultMaxTime
	}
	if r.MaxOutput <= 0 {
		r.MaxOutput = DefaultMaxOutput
	}
	r.MaxOutput = min(r.MaxOutput, maxOutput)
	turns, ok := turnsOf(r.Payload)
	if !ok {
		return completion{}, ErrBackend.With("The job is of a kind that no model server takes.")
	}
	m := chat{Model: r.Model, Messages: turns}
	if tokens := max(r.MaxTokens, 0); b.row.tokens == maxCompletionTokens {
		m.MaxCompletionTokens = tokens
	} else {
		m.MaxTokens = tokens
	}
	body, err := json.Marshal(m, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return completion{}, ErrBackend.With("The job cannot be written for a model server.")
	}
	run, cancel := context.WithTimeout(ctx, r.MaxTime)
	defer cancel()
	answer, err := b.send(ctx, run, request{method: http.MethodPost, url: b.base + "/chat/completions", body: body, max: r.MaxOutput})
	if err != nil {
		return completion{}, err
	}
	c, ok := readCompletion(answer.body)
	switch {
	case !ok:
		return completion{}, ErrBackend.With("Its answer cannot be read.")
	case !c.answered: // a refusal, or a call of a tool that nobody offered
		return completion{}, ErrBackend.With("Its answer has no text.")
	}
	c.text = b.key.conceal(c.text)
	if len(c.text) > r.MaxOutput { // broken characters grow when they are replaced
		return completion{}, ErrOutputTooLarge
	}
	return c, nil
}

// turnsOf are the turns of a payload, and whether it is one that has some.
func turnsOf(p ai.Payload) ([]turn, bool) {
	var system string
	var turns []turn
	switch p := p.(type) {
	case ai.Generate:
		system, turns = p.System, []turn{{ai.RoleUser, p.Prompt}}
	case ai.Chat:
		system = p.System
		for _, m := range p.Messages {
			turns = append(turns, turn{m.Role, m.Content})
		}
	default:
		return nil, false
	}
	if !blank(system) {
		turns = append([]turn{{ai.RoleSystem, system}}, turns...)
	}
	return turns, true
}

type request struct {
	method, url string
	body        []byte
	// list says that models are listed, which some servers do in their own way.
	list bool
	max  int
}

type response struct {
	header http.Header
	body   []byte
}

// send asks the server once. run is the caller's context with the time that the
// request has. Of an answer that is none only the headers come back. No text of
// a library's error is kept, since it may quote what the server said, and that
// may be our API key.
func (b *HTTP) send(caller, run context.Context, r request) (response, error) {
	q, err := http.NewRequestWithContext(context.WithValue(run, runKey{}, run), r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return response{}, ErrURL
	}
	q.Header.Set("Accept", "application/json")
	q.Header.Set("Accept-Encoding", "identity")
	q.Header.Set("User-Agent", "allod")
	if r.method == http.MethodPost {
		q.Header.Set("Content-Type", "application/json")
	}
	if r.list {
		for i := 0; i+1 < len(b.row.listHeader); i += 2 {
			q.Header.Set(b.row.listHeader[i], b.row.listHeader[i+1])
		}
	}
	switch {
	case b.key.IsZero():
	case r.list && b.row.listKey != "":
		q.Header.Set(b.row.listKey, b.key.text())
	default:
		q.Header.Set("Authorization", "Bearer "+b.key.text())
	}
	p, err := b.client.Do(q)
	if err != nil {
		return response{}, unreached(caller, run, err)
	}
	defer p.Body.Close()
	answer := response{header: p.Header}
	switch status := p.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return answer, ErrUnauthorized
	case status == http.StatusNotFound:
		return answer, ErrNoModel
	case status == http.StatusTooManyRequests || status >= 500:
		return answer, ErrFailing
	case status >= 300 && status < 400:
		return answer, ErrBackend.With("It sent us to another address, and redirects are not followed.")
	case status < 200 || status >= 300:
		return answer, ErrBackend
	}
	if coding := p.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return answer, ErrBackend.With("Its answer is packed, although it was asked for plain text.")
	}
	if p.ContentLength > int64(r.max) {
		return answer, ErrOutputTooLarge
	}
	answer.body, err = io.ReadAll(io.LimitReader(p.Body, int64(r.max)+1))
	switch {
	case err != nil:
		return response{header: p.Header}, unreached(caller, run, err)
	case len(answer.body) > r.max:
		return response{header: p.Header}, ErrOutputTooLarge
	}
	return answer, nil
}

// unreached says why no answer came.
func unreached(caller, run context.Context, err error) error {
	var r *refusal.Refusal
	var k *refusal.Kind
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(caller.Err(), context.Canceled):
		return context.Canceled
	case run.Err() != nil:
		return ErrTimeout
	case errors.As(err, &r):
		return r
	case errors.As(err, &k):
		return k
	case errors.As(err, &certificate):
		return ErrUnreachable.With("Its certificate is not valid for this address.")
	case errors.Is(err, http.ErrSchemeMismatch):
		return ErrUnreachable.With("It does not speak TLS; its base URL may have to begin with http.")
	}
	return refusal.From(ErrUnreachable)
}
