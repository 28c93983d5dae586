package carrier

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// callTime is how long a call waits where its context has no end.
const callTime = 60 * time.Second

// maxRefusal is the largest body of a failed request that is looked at, in bytes.
const maxRefusal = 64 << 10

// Hop is a way to the other side: a [*Client] or a [*Socket].
type Hop interface {
	over() rpc.Carrier
	newID() (string, error)
	exchange(ctx context.Context, m *rpc.Method, id string, body []byte, registries []refusal.Registry) (rpc.Frame, error)
	distrust(m *rpc.Method)
}

// Proof is what a caller proves itself with. What the method does not take over
// the hop is not sent.
type Proof struct {
	// Bearer is that of a node, Token the signed token of a person or a service.
	Bearer, Token zone.Secret
}

// Call makes one request and returns its answer. It waits until the context ends,
// and for a minute where it has no end. The errors are those of rpc.ReadAnswer,
// among them rpc.Incompatible, which says how long to wait before the next offer;
// ErrUnreachable, ErrNoAnswer and ErrNotTyped; and the refusals of the other side
// that the registries know.
func Call[Req, Res any](ctx context.Context, h Hop, m *rpc.Method, req zone.Codec[Req], res zone.Codec[Res], content Req, with Proof, registries ...refusal.Registry) (Res, error) {
	var none Res
	id, err := h.newID()
	if err != nil {
		return none, refusal.Internal.Because(err)
	}
	out := rpc.Outgoing{Carrier: h.over(), ID: id, Bearer: with.Bearer, Token: with.Token}
	body, err := rpc.WriteRequest(m, req, content, out)
	if err != nil {
		return none, err
	}
	if _, ends := ctx.Deadline(); !ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	f, err := h.exchange(ctx, m, id, body, registries)
	if err != nil {
		return none, err
	}
	answer, err := rpc.AnswerOf(m, res, f, out, known(registries)...)
	if err != nil && !f.Failed() {
		h.distrust(m)
	}
	return answer, err
}

// newID makes a correlation id.
func newID(rand io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(b[:]), nil
}

// Client calls by HTTP.
type Client struct {
	url   string
	http  *http.Client
	rand  io.Reader
	admin bool
}

// NewClient calls a party at a URL that ends in [Path], by that client, whose
// transport decides whom it trusts. It follows no redirects.
func NewClient(url string, c *http.Client, rand io.Reader) *Client {
	return &Client{url: url, http: direct(c), rand: rand}
}

// NewAdminClient calls a party on its admin socket, which the client's transport
// dials. path is where it takes typed requests there.
func NewAdminClient(path string, c *http.Client, rand io.Reader) *Client {
	return &Client{url: "http://admin" + path, http: direct(c), rand: rand, admin: true}
}

// direct is a client that follows no redirects.
func direct(c *http.Client) *http.Client {
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

func (c *Client) over() rpc.Carrier {
	if c.admin {
		return rpc.Admin
	}
	return rpc.HTTP
}

func (c *Client) newID() (string, error) { return newID(c.rand) }

func (c *Client) distrust(*rpc.Method) {}

func (c *Client) exchange(ctx context.Context, m *rpc.Method, _ string, body []byte, registries []refusal.Registry) (rpc.Frame, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return rpc.Frame{}, ErrUnreachable.Because(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		return rpc.Frame{}, broken(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return rpc.Frame{}, failed(answer, registries)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, int64(m.AnswerRoom())+1))
	if err != nil {
		return rpc.Frame{}, broken(ctx, err)
	}
	f := rpc.ReadFrame(text, m.AnswerRoom())
	if f.Err() != nil {
		return rpc.Frame{}, ErrNotTyped.Because(f.Err())
	}
	return f, nil
}

// broken is a connection that failed, or took too long.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return ErrNoAnswer.Because(err)
	}
	return ErrUnreachable.Because(err)
}

// Refused reads an answer of a party that has another status than 200, for a request
// by plain HTTP: see [Call]. It reads of the body what a refusal may have.
func Refused(answer *http.Response, registries ...refusal.Registry) error {
	return failed(answer, registries)
}

// failed reads an answer with another status than 200: a refusal of the handshake
// only where the body is exactly one, a refusal of ours where it names one, and
// else nobody's.
func failed(answer *http.Response, registries []refusal.Registry) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
	if err != nil {
		return ErrUnreachable.Because(err)
	}
	if r := handshake.ReadRefusal(body); r != nil {
		return &rpc.Incompatible{Refusal: r}
	}
	said, err := ours.Read(body, exact.Limits{Bytes: maxRefusal, Depth: 4, Values: 64})
	if err != nil {
		return ErrNotTyped
	}
	for _, registry := range known(registries) {
		if kind := registry.Find(said.name); kind != nil && kind != handshake.ErrIncompatible {
			return kind.With("").After(time.Duration(min(said.wait.V, 3600)) * time.Second)
		}
	}
	return ErrNotTyped
}

// said is what refusal.JSON writes, as far as it counts.
type said struct {
	name string
	wait exact.Opt[int64]
}

var ours = exact.Shape[said]{Unknown: exact.Drop, Fields: func(o *exact.Object, s *said) {
	exact.Text(o, "error", &s.name, 1, 128)
	exact.OptWhole(o, "retryAfter", &s.wait, 0, 0)
}}

// DialConfig is what a dialed [Socket] is made of.
type DialConfig struct {
	// HTTP dials; its transport decides whom it trusts.
	HTTP *http.Client
	// Answers judges and answers the other side's requests, which it may send once a
	// session is open, as rpc.Controller. nil refuses all of them.
	Answers *rpc.Server
	// Clock, Rand and Log are as in [Config].
	Clock  func() time.Time
	Rand   io.Reader
	Log    *slog.Logger
	Limits Limits
}

// Dial opens a WebSocket to a party at a URL that ends in [Path], with the scheme
// https or wss, or http and ws where the party takes that. It returns what [Call]
// returns for a failed request.
func Dial(ctx context.Context, url string, c DialConfig, registries ...refusal.Registry) (*Socket, error) {
	client := direct(c.HTTP)
	kept := &keeping{next: client.Transport}
	client.Transport = kept
	conn, answer, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient: client, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if answer != nil && answer.Body != nil && answer.StatusCode != http.StatusSwitchingProtocols {
			return nil, failed(answer, registries)
		}
		return nil, broken(ctx, err)
	}
	k := newSocket(shared{c.Answers, c.Clock, c.Rand, c.Log, c.Limits.filled()}, conn, kept.below, "", nil)
	k.start()
	return k, nil
}

// keeping keeps the connection below a WebSocket. See keeper.
type keeping struct {
	next  http.RoundTripper
	below io.Closer
}

// RoundTrip passes the request on.
func (k *keeping) RoundTrip(r *http.Request) (*http.Response, error) {
	next := k.next
	if next == nil {
		next = http.DefaultTransport
	}
	answer, err := next.RoundTrip(r)
	if err == nil {
		k.below = answer.Body
	}
	return answer, err
}
