package site

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/instance"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
)

// handler serves the six endpoints of the daemon plane. The order of checks on a
// request is path, method, size, JSON, version, signature present, freshness,
// caller known, signature, revoked, schema, body's caller equals signer, then
// the work. A body of more than [ai.MaxBody] bytes is read no further before
// signature present, freshness, caller known and revoked; all checks then follow
// in their order. A refusal before the work consumes nothing.
type handler struct {
	c      *core
	limits *limits
	routes map[string]route
	// large has room for each body that may be read beyond [ai.MaxBody] at once.
	large chan struct{}
	// nobody is verified against where the caller is unknown, so that an unknown
	// caller takes as long as a bad signature.
	nobody key.SigningPublic
	// known are devices whose requests were answered.
	known known
	// sites are the site's keys as devices pin them: all of the ring, so that a
	// device knows a new key before the old one goes.
	sites map[ai.KeyID]ai.PublicIdentity
	// successions say how the current key came after the others, so that a device
	// that knows one of them need not ask its owner. It is nil where there is one key.
	successions map[ai.KeyID]ai.SiteSuccession
}

// route is one endpoint.
type route struct {
	endpoint ai.Endpoint
	limit    int
	serve    func(h *handler, c *call) (body []byte, err error)
}

// call is one request that has passed the checks up to the schema.
type call struct {
	r       *http.Request
	codec   ai.Codec
	body    []byte
	address string
	now     ai.Millis
	wait    time.Duration
	runner  Runner // zero for pairing
	signed  signing.Signature
	program instance.ID // the caller's; zero where it does not say
	// remembered is set where the store was not asked about the runner, and only
	// the members are there that never change.
	remembered bool

	// undo is called when the answer could not be written.
	undo func()
}

func newHandler(c *core) http.Handler {
	h := &handler{
		c: c, limits: c.limits, routes: map[string]route{}, sites: map[ai.KeyID]ai.PublicIdentity{},
		large: make(chan struct{}, maxLarge),
	}
	for id, k := range c.vault.all {
		h.sites[id] = ai.PublicIdentityOf(k.Identity())
	}
	if len(c.vault.succeeds) > 0 {
		h.successions = map[ai.KeyID]ai.SiteSuccession{c.vault.id: {Succeeds: c.vault.succeeds}}
	}
	// A key that nobody has: the public half of a made-up private one.
	if made, err := key.NewSigning(c.Rand); err == nil {
		h.nobody = made.Public()
	}
	for _, r := range []route{
		{ai.EndpointPair, ai.MaxBody, (*handler).pair},
		{ai.EndpointClaim, ai.MaxBody, (*handler).claim},
		{ai.EndpointFetch, ai.MaxBody, (*handler).fetch},
		{ai.EndpointHeartbeat, ai.MaxBody, (*handler).heartbeat},
		{ai.EndpointResult, ai.MaxSealedBody, (*handler).result},
		{ai.EndpointRelease, ai.MaxBody, (*handler).release},
	} {
		h.routes[c.MountPath+"/"+string(r.endpoint)] = r
	}
	return h
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, ok := h.routes[strings.TrimSuffix(r.URL.Path, "/")]
	if !ok || r.URL.RawPath != "" {
		h.refuse(w, r, ai.ErrNotFound)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		e := ai.BadRequest("This endpoint takes POST only.")
		h.write(w, r, http.StatusMethodNotAllowed, h.encode(e), nil)
		return
	}
	c := &call{r: r, address: h.limits.address(r), now: h.c.now(), wait: preferWait(r)}
	body, err := h.answer(route, c)
	if err != nil {
		if r.Context().Err() != nil {
			// Nobody is there to be told, and nothing failed here.
			h.c.Logger.DebugContext(r.Context(), "caller gone", "path", r.URL.Path)
			return
		}
		h.refuse(w, r, err)
		return
	}
	h.write(w, r, http.StatusOK, body, c.undo)
}

// answer runs the checks from size on, and then the work.
func (h *handler) answer(route route, c *call) ([]byte, error) {
	done, err := h.readBody(route, c)
	if err != nil {
		return nil, err
	}
	defer done()
	if c.codec, err = protocol.Choose(c.body, route.limit, c.r.URL.RawQuery); err != nil {
		return nil, err
	}
	if route.endpoint != ai.EndpointPair {
		if err := h.authenticate(route.endpoint, c); err != nil {
			return nil, err
		}
	}
	body, err := route.serve(h, c)
	if err != nil && c.remembered {
		// The end of the device's rights comes before whatever else is wrong.
		runner, gone := h.c.devs.Runner(c.r.Context(), c.runner.ID)
		switch {
		case gone != nil:
			return nil, gone
		case runner.Revoked():
			return nil, ai.ErrRevoked
		}
	}
	return body, err
}

// Bounds of what bodies take.
const (
	// maxAhead is how much room is made for a body before it is there, in bytes.
	maxAhead = 16 << 10
	// maxLarge is how many bodies of more than [ai.MaxBody] bytes are in memory at
	// once. At [ai.MaxSealedBody] that is half a gigabyte.
	maxLarge = 16
)

// readBody reads the body of a call. The call is done with it when done is called.
func (h *handler) readBody(route route, c *call) (done func(), err error) {
	tooLarge := ai.BadRequest("The body is larger than this endpoint takes.")
	announced := c.r.ContentLength
	if announced > int64(route.limit) {
		return nil, tooLarge
	}
	var body bytes.Buffer
	read := func(limit int) error {
		if _, err := body.ReadFrom(io.LimitReader(c.r.Body, int64(limit+1-body.Len()))); err != nil {
			return ai.BadRequest("The body ended too soon.")
		}
		return nil
	}
	// What is announced is made room for, but not on a stranger's word alone.
	body.Grow(int(min(max(announced, 0), maxAhead)) + bytes.MinRead)
	if err := read(min(route.limit, ai.MaxBody)); err != nil {
		return nil, err
	}
	done = func() {}
	if route.limit > ai.MaxBody && body.Len() > ai.MaxBody {
		if err := h.admit(c); err != nil {
			return nil, err
		}
		select {
		case h.large <- struct{}{}:
		case <-c.r.Context().Done():
			return nil, c.r.Context().Err()
		}
		done = func() { <-h.large }
		// All of the room at once: a buffer that grows as it goes takes up to three
		// times as much.
		size := route.limit
		if announced > 0 {
			size = int(announced)
		}
		body.Grow(max(size-body.Len(), 0) + bytes.MinRead)
		if err := read(route.limit); err != nil {
			done()
			return nil, err
		}
	}
	if body.Len() > route.limit {
		done()
		return nil, tooLarge
	}
	c.body = body.Bytes()
	return done, nil
}

// admit says whether a large body is read on, by what is known of its caller
// without it. That the caller has the key is not known yet. It answers as
// authenticate would.
func (h *handler) admit(c *call) error {
	_, runner, err := h.named(c)
	switch {
	case errors.Is(err, ErrNoRunner):
		return h.limits.failed(c.address, c.now.Time())
	case err != nil:
		return err
	case runner.Revoked():
		return ai.ErrRevoked
	}
	return nil
}

// named finds the device that a request's headers name. It returns [ErrNoRunner]
// beside the signature where the site has none of that id.
func (h *handler) named(c *call) (s signing.Signature, r Runner, err error) {
	if s, err = signature(c); err != nil {
		return s, r, err
	}
	r, err = h.c.devs.Runner(c.r.Context(), ai.RunnerID(s.Caller))
	return s, r, err
}

// signature reads what a request's headers say, if it is fresh.
func signature(c *call) (signing.Signature, error) {
	s, err := signing.ReadHeaders(signing.DaemonPlane, c.r.Header.Get)
	switch {
	case err != nil:
		return s, ai.ErrUnauthorized
	case s.Fresh(c.now, signing.Window) != nil:
		return s, ai.ClockSkew(c.now, signing.Window)
	}
	return s, nil
}

// decides reports whether the store, in the same step as an endpoint's work and
// before all of it, looks whether the device is known and not revoked.
func decides(endpoint ai.Endpoint) bool {
	return endpoint == ai.EndpointClaim || endpoint == ai.EndpointFetch || endpoint == ai.EndpointResult
}

// authenticate finds out who is calling (MUST REQUESTS_SIGNED_NOT_BEARER).
func (h *handler) authenticate(endpoint ai.Endpoint, c *call) error {
	s, err := signature(c)
	if err != nil {
		return err
	}
	runner, remembered := h.known.get(ai.RunnerID(s.Caller))
	if remembered = remembered && decides(endpoint); !remembered {
		runner, err = h.c.devs.Runner(c.r.Context(), ai.RunnerID(s.Caller))
	}
	identity := runner.Device.Signing()
	unknown := errors.Is(err, ErrNoRunner)
	if unknown {
		identity = h.nobody
	} else if err != nil {
		return err
	}
	request := signing.Request{Plane: signing.DaemonPlane, Endpoint: endpoint, Body: c.body}
	if signing.Verify(identity, request, s, c.now, signing.Window) != nil || unknown {
		if remembered {
			// It takes as long as for a caller that is not known.
			_, _ = h.c.devs.Runner(c.r.Context(), runner.ID)
		}
		return h.limits.failed(c.address, c.now.Time())
	}
	if runner.Revoked() {
		return ai.ErrRevoked
	}
	if !remembered {
		h.known.put(runner)
	}
	c.runner, c.signed, c.remembered = runner, s, remembered
	c.program, _ = instance.Parse(c.r.Header.Get(instance.Header))
	return nil
}

// errTwoAgents refuses a device whose keys two programs use at once.
var errTwoAgents = ai.ErrForbidden.With("Another program uses the keys of this device at the same time. Pair the one that should go on anew.")

// alone returns [errTwoAgents] where the caller is one of two programs that use
// the keys of one device. Callers that do not say who they are cannot be told
// apart, and are let be.
func (h *handler) alone(c *call) error {
	if !c.program.IsZero() && h.c.instances.conflict(c.runner.ID) {
		return errTwoAgents
	}
	return nil
}

// arrived takes in which program makes a call, and is otherwise as alone.
func (h *handler) arrived(c *call) error {
	if !c.program.IsZero() && h.c.instances.saw(c.runner.ID, c.program, c.signed.IssuedAt, c.now) {
		h.c.Logger.WarnContext(c.r.Context(), "two programs use the keys of one device, and neither is served", "runner", c.runner.ID)
	}
	return h.alone(c)
}

// claims reads a message and checks that it names its signer.
func from[T any](c *call, m ai.Message[T], caller func(T) ai.RunnerID) (T, error) {
	v, err := m.Read(c.body)
	if err == nil && caller(v) != c.runner.ID {
		var zero T
		return zero, ai.ErrForbidden.With("The body names another device than the one that signed.")
	}
	return v, err
}

// request is the digest by which a repeat of a request is told.
func (c *call) request() [32]byte {
	return sha256.Sum256([]byte(c.signed.Value.String()))
}

// refuse writes a refusal as it may travel.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := onWire(err)
	if e.Code == ai.Code(ai.ErrServer.Name()) {
		h.c.Logger.ErrorContext(r.Context(), "request failed", "path", r.URL.Path, "error", refusal.From(err))
	}
	if e.RetryAfter != nil {
		w.Header().Set("Retry-After", strconv.FormatInt(*e.RetryAfter, 10))
	}
	if errors.Is(err, errTwoAgents) {
		w.Header().Set(instance.Conflict, instance.TwoAgents)
	}
	h.write(w, r, e.Code.Status(), h.encode(e), nil)
}

// onWire gives every refusal of the store the name that peers know.
func onWire(err error) *ai.Error {
	switch {
	case isAny(err, ErrNoJob, ErrNotHeld, ErrNoPairing):
		return ai.ErrorOf(ai.ErrNotFound)
	case isAny(err, ErrNoRunner):
		return ai.ErrorOf(ai.ErrUnauthorized)
	case isAny(err, ErrRunnerRevoked):
		return ai.ErrorOf(ai.ErrRevoked)
	case isAny(err, ErrTooManyPairings):
		return ai.ErrorOf(ai.ErrRateLimited.With("This device has as many codes as it may have at once."))
	}
	return ai.ErrorOf(err)
}

func (h *handler) encode(e *ai.Error) []byte {
	body, err := protocol.Latest().Error.Write(*e)
	if err != nil {
		// Ours are well-formed; this is the last resort.
		body = []byte(`{"error":"server-error","message":"Something failed on the server."}`)
	}
	return body
}

// write writes an answer. If it does not reach the connection, undo is called.
func (h *handler) write(w http.ResponseWriter, r *http.Request, status int, body []byte, undo func()) {
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	if err == nil {
		err = http.NewResponseController(w).Flush()
		if errors.Is(err, http.ErrNotSupported) {
			err = nil
		}
	}
	if err == nil {
		err = r.Context().Err()
	}
	if err != nil && undo != nil {
		undo()
	}
}

// maxWait bounds how long a request is held.
const maxWait = 25 * time.Second

// preferWait reads how long the caller would wait for an answer (RFC 7240,
// section 4.3). Peers that do not ask get their answer at once.
func preferWait(r *http.Request) time.Duration {
	for _, line := range r.Header.Values("Prefer") {
		for part := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			if n, err := strconv.Atoi(strings.TrimSpace(value)); strings.EqualFold(strings.TrimSpace(name), "wait") && err == nil && n > 0 {
				return min(time.Duration(min(n, 3600))*time.Second, maxWait)
			}
		}
	}
	return 0
}

// hold calls ready until it says that there is something to answer, its error,
// or the wait is over. It is called again after every change of what w names.
func (h *handler) hold(c *call, w Watch, ready func(ctx context.Context) (bool, error)) error {
	ctx := c.r.Context()
	changed, stop := h.c.Store.Watch(w)
	defer stop()
	end := time.NewTimer(c.wait)
	defer end.Stop()
	for {
		if done, err := ready(ctx); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-end.C:
			return nil
		case <-h.c.closing.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
