package ca

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"time"
)

// maxChain bounds the certificates that a server sends. Public ones have two to
// four.
const maxChain = 8

// Trust is one server as a client knows it: a host, and who vouches for it.
type Trust struct {
	host  Host
	pin   Pin
	root  *x509.Certificate // nil where only the pin is known, or not even that
	clock func() time.Time
}

// NewTrust trusts the server at a host whose CA has this pin, or, without one,
// whose certificate this machine's own roots vouch for. It returns
// [ErrHostName].
func NewTrust(pin Pin, host string, clock func() time.Time) (Trust, error) {
	h, err := ReadHost(host)
	return Trust{host: h, pin: pin, clock: clock}, err
}

// TrustCertificate trusts the server at a host whose certificate this CA has
// issued. The certificate is PEM or DER, as [Authority.Certificate] gives it or a
// node has kept it. It returns [ErrHostName] and [ErrCertificate].
func TrustCertificate(certificate []byte, host string, clock func() time.Time) (Trust, error) {
	if len(certificate) > maxFile {
		return Trust{}, ErrCertificate
	}
	if block, rest := pem.Decode(certificate); block != nil {
		if block.Type != crtBlock || len(bytes.TrimSpace(rest)) != 0 {
			return Trust{}, ErrCertificate
		}
		certificate = block.Bytes
	}
	root, err := x509.ParseCertificate(certificate)
	if err != nil || !isAuthority(root) {
		return Trust{}, ErrCertificate
	}
	t, err := NewTrust(PinOf(root), host, clock)
	t.root = root
	return t, err
}

// Pin is the pin of the CA; it is zero where the machine's own roots count.
func (t Trust) Pin() Pin { return t.pin }

// Client takes this server and no other, by TLS 1.3. A handshake with another one
// fails with [ErrPin], [ErrHost] or [ErrChain]. Where only the time is wrong it
// fails with a [ClockError], which is [ErrClock]; [Trust.Explain] finds out whose
// clock that is. An http.Transport that is to speak HTTP/2 with it needs
// ForceAttemptHTTP2.
func (t Trust) Client() *tls.Config {
	return t.config(func(chain []*x509.Certificate) error { return t.verify(chain, t.clock()) })
}

func (t Trust) config(verify func(chain []*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ServerName: t.host.String(),
		// The library's own check cannot find a CA by its pin. Ours follows in the
		// same handshake, before a byte of the client's is sent.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return verify(s.PeerCertificates) },
	}
}

// verify judges a server's chain at a time: who issued it and for which host
// first, and only then whether it is valid now.
func (t Trust) verify(chain []*x509.Certificate, now time.Time) error {
	root, err := t.genuine(chain)
	if err != nil {
		return err
	}
	if t.chains(chain, root, now) == nil {
		return nil
	}
	// Only the time is left.
	e := &ClockError{Here: now, From: chain[0].NotBefore, Until: chain[0].NotAfter}
	if root != nil && root.NotAfter.Before(e.Until) {
		e.Until = root.NotAfter
	}
	return e
}

// genuine judges a chain at the first second of its own life, so whatever it
// refuses has nothing to do with a clock. It returns the pinned CA's certificate,
// if there is one.
func (t Trust) genuine(chain []*x509.Certificate) (root *x509.Certificate, err error) {
	if len(chain) == 0 || len(chain) > maxChain || chain[0].IsCA {
		return nil, ErrChain
	}
	if root = t.root; root == nil && !t.pin.IsZero() {
		at := slices.IndexFunc(chain[1:], func(c *x509.Certificate) bool { return PinOf(c) == t.pin && isAuthority(c) })
		if at < 0 {
			return nil, ErrPin
		}
		root = chain[1:][at]
	}
	var unknown x509.UnknownAuthorityError
	switch err := t.chains(chain, root, chain[0].NotBefore); {
	case errors.As(err, &unknown):
		return nil, ErrPin
	case err != nil:
		return nil, ErrChain
	}
	if chain[0].VerifyHostname(t.host.String()) != nil {
		return nil, ErrHost
	}
	return root, nil
}

// chains is the library's check of who issued a chain, with the library's errors.
// It leaves out the host, which the library would look at first.
func (t Trust) chains(chain []*x509.Certificate, root *x509.Certificate, at time.Time) error {
	o := x509.VerifyOptions{CurrentTime: at, Intermediates: x509.NewCertPool()}
	if root != nil {
		// Nothing stands between this CA and its servers.
		o.Roots = x509.NewCertPool()
		o.Roots.AddCert(root)
	} else {
		for _, c := range chain[1:] {
			o.Intermediates.AddCert(c)
		}
	}
	_, err := chain[0].Verify(o)
	return err
}
