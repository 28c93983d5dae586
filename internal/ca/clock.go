package ca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/allodhq/allod/refusal"
)

// Bounds of asking for a server's time.
const (
	timeTimeout = 10 * time.Second
	timeHeader  = 16 << 10 // bytes
	// agree is how far two clocks may be apart and still be called the same: a
	// Date has whole seconds, and the way takes a while.
	agree = time.Minute
)

// ClockError is an [ErrClock]: a genuine certificate at a time at which it is not
// valid.
type ClockError struct {
	// Here is this machine's clock; From and Until are the certificate's first and
	// last second.
	Here, From, Until time.Time
	// Ahead is by how much this machine's clock is ahead of the server's, to a
	// second or two, negative where it is behind. It counts where Known is set.
	Ahead time.Duration
	Known bool
}

// Error is the text of the refusal.
func (e *ClockError) Error() string { return e.refusal().Error() }

// Unwrap returns the refusal, so that it is found and rendered as any other.
func (e *ClockError) Unwrap() error { return e.refusal() }

func (e *ClockError) refusal() *refusal.Refusal {
	switch {
	case e.Known && e.Ahead > agree:
		return ErrClock.With("This machine's clock is " + span(e.Ahead) + " ahead of the server's.")
	case e.Known && e.Ahead < -agree:
		return ErrClock.With("This machine's clock is " + span(-e.Ahead) + " behind the server's.")
	case e.Known && e.Here.Before(e.From):
		return ErrClock.With("The two clocks agree, so the certificate was made with a wrong date.")
	case e.Known:
		return ErrClock.With("The two clocks agree, so the server has to renew its certificate.")
	case e.Here.Before(e.From):
		return ErrClock.With("By this clock it becomes valid in " + span(e.From.Sub(e.Here)) + ".")
	case e.Here.After(e.Until):
		return ErrClock.With("By this clock it ran out " + span(e.Here.Sub(e.Until)) + " ago.")
	}
	return ErrClock.With("By this clock it is valid itself, and a certificate that vouches for it is not.")
}

// span writes a time that has passed for people to read.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Second).String()
}

// Reading is two clocks at one moment, to a second or two.
type Reading struct{ Server, Here time.Time }

// Ahead is by how much this machine's clock is ahead; it is negative where it is
// behind.
func (r Reading) Ahead() time.Duration { return r.Here.Sub(r.Server) }

// ServerTime asks the server at an address, as in 192.0.2.1:443, for its time: the
// Date of an HTTP answer (RFC 9110, 6.6.1). The server proves its key and its host
// as for any request, and only the time of its certificate does not count, since a
// client whose clock is wrong cannot judge it. So who has stolen a key that has run
// out long ago can lie here: the reading is for a person to read, never to set a
// clock by. It returns what a handshake fails with but [ErrClock], and
// [ErrServerTime].
func (t Trust) ServerTime(ctx context.Context, address string) (Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, timeTimeout)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig: t.config(func(chain []*x509.Certificate) error { _, err := t.genuine(chain); return err }),
		// The name in the request is the host's; the address says where it is.
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		DisableKeepAlives: true, MaxResponseHeaderBytes: timeHeader,
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return Reading{}, ErrServerTime.Because(err)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://"+net.JoinHostPort(t.host.String(), port)+"/", nil)
	if err != nil {
		return Reading{}, ErrServerTime.Because(err)
	}
	before := t.clock()
	answer, err := transport.RoundTrip(q)
	after := t.clock()
	var refused *refusal.Kind
	switch {
	case errors.As(err, &refused):
		return Reading{}, refused
	case err != nil:
		return Reading{}, ErrServerTime.Because(err)
	}
	_ = answer.Body.Close()
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return Reading{}, ErrServerTime
	}
	// A Date leaves out the part of the second, and was written on the way.
	return Reading{Server: date.Add(time.Second / 2), Here: before.Add(after.Sub(before) / 2)}, nil
}

// Explain adds the difference of the two clocks to an [ErrClock]. Another error,
// and one where the server does not tell its time, it returns as it is.
func (t Trust) Explain(ctx context.Context, address string, err error) error {
	var clock *ClockError
	if !errors.As(err, &clock) {
		return err
	}
	r, failed := t.ServerTime(ctx, address)
	if failed != nil {
		return err
	}
	known := *clock
	known.Ahead, known.Known = r.Ahead(), true
	return &known
}
