package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
	wire "github.com/allodhq/allod/wire/zone/spark"
)

// ErrReport refuses an answer to a report that is none.
var ErrReport = refusal.NewKind("report-answer", 502,
	"The answer to a report of this node is not one that a controller gives.",
	"Check the controller's address, and whether something between the two sides answers in its place.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "A node's way to its controller", Kinds: []*refusal.Kind{ErrReport}}

// Registries have what a controller and the way to it can refuse a node with. A
// refusal of another name is rpc.ErrForeign.
var Registries = []refusal.Registry{
	refusal.Kinds, enroll.Kinds, wire.Kinds, handshake.Kinds, rpc.Kinds, carrier.Kinds, ca.Kinds, Kinds,
}

// Bounds of a request.
const (
	// Deadline is how long one may take, from the connection to the end of the answer.
	Deadline = 20 * time.Second
	// explain is how long asking for the server's time may take besides.
	explain = 5 * time.Second
	// header bounds the header of an answer, in bytes.
	header = 16 << 10
	// idle is how long a connection is kept without a request: longer than reports are
	// apart.
	idle = 90 * time.Second
)

// Link is the way to one controller. It is safe for concurrent use.
type Link struct {
	to        spark.Controller
	trust     ca.Trust
	transport *http.Transport
	http      *http.Client
	calls     *carrier.Client
}

// New makes the way to a controller. It connects with the first request. clock is for
// certificates, rand for the ids of requests. It returns ca.ErrHostName.
func New(to spark.Controller, clock func() time.Time, rand io.Reader) (*Link, error) {
	var pin ca.Pin
	if !to.Pin.IsZero() {
		var err error
		if pin, err = ca.ParsePin(to.Pin.String()); err != nil {
			return nil, err
		}
	}
	trust, err := ca.NewTrust(pin, to.Origin.Host(), clock)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: Deadline / 2, KeepAlive: 15 * time.Second}
	l := &Link{to: to, trust: trust, transport: &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: trust.Client(),
		TLSHandshakeTimeout: Deadline / 2, ResponseHeaderTimeout: Deadline, MaxResponseHeaderBytes: header,
		MaxIdleConnsPerHost: 1, MaxConnsPerHost: 2, IdleConnTimeout: idle, DisableCompression: true,
	}}
	l.http = &http.Client{Transport: l.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	l.calls = carrier.NewClient(to.Origin.String()+carrier.Path, l.http, rand)
	return l, nil
}

// To is the controller.
func (l *Link) To() spark.Controller { return l.to }

// Close closes the kept connection.
func (l *Link) Close() { l.transport.CloseIdleConnections() }

// Clocks are the controller's clock and this machine's (see [ca.Trust.ServerTime]).
func (l *Link) Clocks(ctx context.Context) (ca.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, explain)
	defer cancel()
	return l.trust.ServerTime(ctx, l.to.Origin.Address())
}

func offer() handshake.Offer { return handshake.Ours(handshake.SparkNode) }

// Enroll brings a proposal before the controller (enrollNode). Every method returns the
// refusals of [Registries].
func (l *Link) Enroll(ctx context.Context, p enroll.Proposal, proof enroll.Proof) (enroll.Acknowledgement, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	r, err := carrier.Call(ctx, l.calls, methods.EnrollNode, enroll.RequestCodec, enroll.ResponseCodec,
		enroll.Request{Protocol: offer(), Proposal: p, Proof: proof}, carrier.Proof{}, Registries...)
	return r.Acknowledgement, l.judge(ctx, err)
}

// EnrollmentState asks what Spark's node can adopt (getNodeEnrollmentState).
func (l *Link) EnrollmentState(ctx context.Context, b enroll.Bearer) (enroll.StateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	r, err := carrier.Call(ctx, l.calls, methods.EnrollmentState, enroll.StateRequestCodec, enroll.StateResponseCodec,
		enroll.StateRequest{Protocol: offer(), Bearer: b}, carrier.Proof{}, Registries...)
	return r, l.judge(ctx, err)
}

// Credential asks about the credential by which it asks (getNodeCredential).
func (l *Link) Credential(ctx context.Context, b enroll.Bearer) (enroll.CredentialResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	r, err := carrier.Call(ctx, l.calls, methods.GetCredential, enroll.CredentialRequestCodec, enroll.CredentialResponseCodec,
		enroll.CredentialRequest{Protocol: offer(), Bearer: b}, carrier.Proof{}, Registries...)
	return r, l.judge(ctx, err)
}

// Rotate asks for the next credential (rotateNodeCredential).
func (l *Link) Rotate(ctx context.Context, b enroll.Bearer, r enroll.Rotation) (enroll.RotationReceipt, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	answer, err := carrier.Call(ctx, l.calls, methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec,
		enroll.RotateRequest{Protocol: offer(), Bearer: b, Rotation: r}, carrier.Proof{}, Registries...)
	return answer.Receipt, l.judge(ctx, err)
}

// Report posts a report (F11). It returns ErrReport besides.
func (l *Link) Report(ctx context.Context, b enroll.Bearer, r wire.Report) (wire.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	answer, err := l.report(ctx, b, r)
	return answer, l.judge(ctx, err)
}

func (l *Link) report(ctx context.Context, b enroll.Bearer, r wire.Report) (wire.Response, error) {
	body, err := wire.RequestCodec.Append(nil, wire.Request{Bearer: b, Protocol: offer(), Report: r})
	if err != nil || len(body) > wire.MaxRequest {
		return wire.Response{}, rpc.ErrRequest
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, l.to.Origin.String()+wire.Path, bytes.NewReader(body))
	if err != nil {
		return wire.Response{}, refusal.Internal
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	answer, err := l.http.Do(q)
	if err != nil {
		return wire.Response{}, broken(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return wire.Response{}, carrier.Refused(answer, Registries...)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, wire.MaxResponse+1))
	switch {
	case err != nil:
		return wire.Response{}, broken(ctx, err)
	case len(text) > wire.MaxResponse:
		return wire.Response{}, ErrReport
	}
	// The offer is judged first: what another release writes besides may be unreadable.
	theirs, err := handshake.Read(text)
	if err != nil {
		return wire.Response{}, ErrReport
	}
	if err := handshake.Negotiate(offer(), theirs); err != nil {
		return wire.Response{}, err
	}
	read, err := wire.ResponseCodec.Read(text)
	if err != nil {
		return wire.Response{}, ErrReport
	}
	return read, nil
}

// broken is a connection that failed, or took too long.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return carrier.ErrNoAnswer.Because(err)
	}
	return carrier.ErrUnreachable.Because(err)
}

// judge finds what the check of the server said below an error of the connection, and
// adds the difference of the clocks where that is what is wrong.
func (l *Link) judge(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var clock *ca.ClockError
	if errors.As(err, &clock) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explain)
		defer cancel()
		return l.trust.Explain(ctx, l.to.Origin.Address(), clock)
	}
	for _, kind := range ca.Kinds.Kinds {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return err
}
