//go:build unix

package ca_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/refusal"
)

const host = "cloud.example.org"

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// template is a server certificate for host at a time.
func template(now time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(4711), Subject: pkix.Name{CommonName: "test"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * day), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{host},
	}
}

func asRoot(c *x509.Certificate) {
	c.Subject.CommonName, c.IsCA, c.MaxPathLenZero, c.KeyUsage, c.DNSNames = "test CA", true, true, x509.KeyUsageCertSign, nil
	c.NotAfter = c.NotBefore.Add(ca.Life)
}

func issue(t *testing.T, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// shake makes a handshake of a client with a server that sends this chain and has
// this key, and returns the client's error.
func shake(t *testing.T, client *tls.Config, key *ecdsa.PrivateKey, chain ...*x509.Certificate) error {
	t.Helper()
	served := tls.Certificate{PrivateKey: key}
	for _, c := range chain {
		served.Certificate = append(served.Certificate, c.Raw)
	}
	return shakeWith(t, client, &tls.Config{Certificates: []tls.Certificate{served}})
}

func shakeWith(t *testing.T, client, server *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return shakeOver(t, here, there, client, server)
}

// shakeOver is shakeWith over a connection of the caller's.
func shakeOver(t *testing.T, here, there net.Conn, client, server *tls.Config) error {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := tls.Server(there, server)
		if s.HandshakeContext(t.Context()) == nil {
			_, _ = io.Copy(io.Discard, s)
		}
		_ = there.Close()
	}()
	c := tls.Client(here, client)
	err := c.HandshakeContext(t.Context())
	if err == nil {
		_ = c.Close()
	}
	_ = here.Close()
	<-done
	return err
}

func trust(t *testing.T, pin ca.Pin, host string, now time.Time) ca.Trust {
	t.Helper()
	tr, err := ca.NewTrust(pin, host, at(now))
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestServerAndClient: each name and address that is served is taken, by the pin
// and by the kept certificate, and nothing else is.
func TestServerAndClient(t *testing.T) {
	a, other := open(t, t.TempDir(), at(begin)), open(t, t.TempDir(), at(begin))
	s, err := a.Server(host, "192.0.2.1", "2001:db8::1")
	if err != nil {
		t.Fatal(err)
	}
	kept := func(a *ca.Authority, host string) ca.Trust {
		text := a.Certificate()
		tr, err := ca.TrustCertificate(text, host, at(begin))
		if err != nil {
			t.Fatal(err)
		}
		der, err := ca.TrustCertificate(parse(t, text).Raw, host, at(begin))
		if err != nil || der.Pin() != tr.Pin() || tr.Pin() != a.Pin() {
			t.Fatalf("by DER it is %v, %v", der.Pin(), err)
		}
		return tr
	}
	for host, want := range map[string]*refusal.Kind{
		host: nil, "CLOUD.example.org": nil, "192.0.2.1": nil, "2001:db8::1": nil, "::ffff:192.0.2.1": nil,
		"example.org": ca.ErrHost, "a.cloud.example.org": ca.ErrHost, "192.0.2.2": ca.ErrHost, "::1": ca.ErrHost,
	} {
		for how, tr := range map[string]ca.Trust{"pin": trust(t, a.Pin(), host, begin), "certificate": kept(a, host)} {
			if err := shakeWith(t, tr.Client(), s.Config()); (err == nil) != (want == nil) || want != nil && !errors.Is(err, want) {
				t.Errorf("%s by its %s: %v", host, how, err)
			}
		}
		// Another authority comes before another host.
		for how, tr := range map[string]ca.Trust{"pin": trust(t, other.Pin(), host, begin), "certificate": kept(other, host)} {
			if err := shakeWith(t, tr.Client(), s.Config()); !errors.Is(err, ca.ErrPin) {
				t.Errorf("%s by another's %s: %v", host, how, err)
			}
		}
		// Without a pin the machine's own roots count, and they do not know ours.
		if err := shakeWith(t, trust(t, ca.Pin{}, host, begin).Client(), s.Config()); !errors.Is(err, ca.ErrPin) && !errors.Is(err, ca.ErrHost) {
			t.Errorf("%s without a pin: %v", host, err)
		}
	}
	old := s.Config()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if err := shakeWith(t, trust(t, a.Pin(), host, begin).Client(), old); err == nil {
		t.Error("the client speaks TLS 1.2")
	}
	for _, host := range []string{"", "a:443", "*.example.org"} {
		if _, err := ca.NewTrust(a.Pin(), host, at(begin)); !errors.Is(err, ca.ErrHostName) {
			t.Errorf("%q: %v", host, err)
		}
	}
}

func TestTrustCertificateRefuses(t *testing.T) {
	a := open(t, t.TempDir(), at(begin))
	s, err := a.Server(host)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := a.Certificate()
	block, _ := pem.Decode(good)
	flipped := append([]byte(nil), block.Bytes...)
	flipped[len(flipped)-1] ^= 1
	for name, text := range map[string][]byte{
		"nothing": nil, "a leaf": leaf.Certificate[0], "two": append(good, good...), "a longer one": append(block.Bytes, 0),
		"another block":     pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: block.Bytes}),
		"another signature": flipped, "a long one": append(make([]byte, 10_000), good...),
	} {
		if _, err := ca.TrustCertificate(text, host, at(begin)); !errors.Is(err, ca.ErrCertificate) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ca.TrustCertificate(append(good, '\n'), host, at(begin)); err != nil {
		t.Errorf("with an empty line: %v", err)
	}
}

// TestManInTheMiddle shows chains that hold the right CA certificate, or its key,
// and that the CA did not make.
func TestManInTheMiddle(t *testing.T) {
	a := open(t, t.TempDir(), at(begin))
	root := parse(t, a.Certificate())
	s, err := a.Server(host)
	if err != nil {
		t.Fatal(err)
	}
	real, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	realKey := real.PrivateKey.(*ecdsa.PrivateKey)
	mine, mineRoot := newKey(t), newKey(t)
	foreign := template(begin)
	asRoot(foreign)
	foreign = issue(t, foreign, foreign, mineRoot, mineRoot)
	// A CA certificate of the same name and key id, and one that wraps the pinned
	// key itself in other words: with my signature, for it has to have one.
	twin := *root
	twin.PublicKey, twin.SignatureAlgorithm = nil, 0
	sameName := issue(t, &twin, &twin, mineRoot, mineRoot)
	wrapper := *root
	wrapper.SignatureAlgorithm, wrapper.NotAfter = 0, root.NotAfter.Add(ca.Life)
	der, err := x509.CreateCertificate(rand.Reader, &wrapper, sameName, root.PublicKey, mineRoot)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if ca.PinOf(wrapped) != a.Pin() {
		t.Fatal("the wrapped key has another pin")
	}
	for name, c := range map[string]struct {
		key   *ecdsa.PrivateKey
		chain []*x509.Certificate
		want  *refusal.Kind
	}{
		"the real one":                  {realKey, []*x509.Certificate{real.Leaf, root}, nil},
		"among others":                  {realKey, []*x509.Certificate{real.Leaf, foreign, root}, nil},
		"without the CA":                {realKey, []*x509.Certificate{real.Leaf}, ca.ErrPin},
		"a foreign CA":                  {mine, []*x509.Certificate{issue(t, template(begin), foreign, mine, mineRoot), foreign}, ca.ErrPin},
		"a foreign CA, and the right":   {mine, []*x509.Certificate{issue(t, template(begin), foreign, mine, mineRoot), foreign, root}, ca.ErrPin},
		"its own, and the right CA":     {mine, []*x509.Certificate{issue(t, template(begin), template(begin), mine, mine), root}, ca.ErrPin},
		"in the right CA's name":        {mine, []*x509.Certificate{issue(t, template(begin), sameName, mine, mineRoot), root}, ca.ErrPin},
		"with a CA of that name":        {mine, []*x509.Certificate{issue(t, template(begin), sameName, mine, mineRoot), sameName, root}, ca.ErrPin},
		"the pinned key, newly wrapped": {realKey, []*x509.Certificate{real.Leaf, wrapped}, ca.ErrPin},
		"a real leaf as a CA":           {mine, []*x509.Certificate{issue(t, template(begin), real.Leaf, mine, realKey), real.Leaf, root}, ca.ErrPin},
		"too many":                      {realKey, []*x509.Certificate{real.Leaf, root, root, root, root, root, root, root, root}, ca.ErrChain},
	} {
		for how, tr := range map[string]func() (ca.Trust, error){
			"pin":         func() (ca.Trust, error) { return ca.NewTrust(a.Pin(), host, at(begin)) },
			"certificate": func() (ca.Trust, error) { return ca.TrustCertificate(a.Certificate(), host, at(begin)) },
		} {
			want := c.want
			if how == "certificate" && (name == "without the CA" || name == "the pinned key, newly wrapped") {
				want = nil // who has the certificate need not be sent it
			}
			tr, err := tr()
			if err != nil {
				t.Fatal(err)
			}
			if err := shake(t, tr.Client(), c.key, c.chain...); (err == nil) != (want == nil) || want != nil && !errors.Is(err, want) {
				t.Errorf("%s, by the %s: %v", name, how, err)
			}
		}
	}
}

// TestKeyHolder: what even the right key does not vouch for is refused.
func TestKeyHolder(t *testing.T) {
	rootKey, key, middleKey := newKey(t), newKey(t), newKey(t)
	root := template(begin)
	asRoot(root)
	root = issue(t, root, root, rootKey, rootKey)
	middle := template(begin)
	asRoot(middle)
	middle.Subject.CommonName = "in the middle"
	middle = issue(t, middle, root, middleKey, rootKey)
	made := func(change func(*x509.Certificate)) *x509.Certificate {
		c := template(begin)
		change(c)
		return issue(t, c, root, key, rootKey)
	}
	for name, c := range map[string]struct {
		chain []*x509.Certificate
		want  *refusal.Kind
	}{
		"a server":            {[]*x509.Certificate{made(func(*x509.Certificate) {}), root}, nil},
		"a client":            {[]*x509.Certificate{made(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), root}, ca.ErrChain},
		"no name":             {[]*x509.Certificate{made(func(c *x509.Certificate) { c.DNSNames = nil }), root}, ca.ErrHost},
		"a common name":       {[]*x509.Certificate{made(func(c *x509.Certificate) { c.DNSNames, c.Subject.CommonName = nil, host }), root}, ca.ErrHost},
		"a leaf that is a CA": {[]*x509.Certificate{made(func(c *x509.Certificate) { c.IsCA = true; c.KeyUsage |= x509.KeyUsageCertSign }), root}, ca.ErrChain},
		"older than its CA":   {[]*x509.Certificate{made(func(c *x509.Certificate) { c.NotBefore = begin.Add(-day) }), root}, ca.ErrChain},
		"a CA below":          {[]*x509.Certificate{issue(t, template(begin), middle, key, middleKey), middle, root}, ca.ErrPin},
	} {
		if err := shake(t, trust(t, ca.PinOf(root), host, begin).Client(), key, c.chain...); (err == nil) != (c.want == nil) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A leaf is of no use after its CA's end, whatever it says of itself.
	long := made(func(c *x509.Certificate) { c.NotAfter = root.NotAfter.Add(day) })
	var clock *ca.ClockError
	late := trust(t, ca.PinOf(root), host, root.NotAfter.Add(time.Hour))
	if err := shake(t, late.Client(), key, long, root); !errors.As(err, &clock) || !clock.Until.Equal(root.NotAfter) ||
		refusal.From(err).Detail() != "By this clock it ran out 1h0m0s ago." {
		t.Errorf("after the CA's end: %v", err)
	}
	// The CA's own certificate with its own key as a server.
	self := template(begin)
	asRoot(self)
	self.DNSNames = []string{host}
	self = issue(t, self, self, rootKey, rootKey)
	for _, chain := range [][]*x509.Certificate{{self}, {self, self}} {
		if err := shake(t, trust(t, ca.PinOf(self), host, begin).Client(), rootKey, chain...); !errors.Is(err, ca.ErrChain) {
			t.Errorf("%d times the CA: %v", len(chain), err)
		}
	}
}

// TestClock: a certificate that is genuine and out of time says by how much, and
// whatever else is wrong comes first.
func TestClock(t *testing.T) {
	a, other := open(t, t.TempDir(), at(begin)), open(t, t.TempDir(), at(begin))
	s, err := a.Server(host)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		now  time.Time
		says string // nothing where the certificate is taken
	}{
		"the first second":   {begin.Add(-time.Hour), ""},
		"the last":           {begin.Add(30 * day), ""},
		"a bit too early":    {begin.Add(-time.Hour - time.Second), "By this clock it becomes valid in 1s."},
		"hours too early":    {begin.Add(-4 * time.Hour), "By this clock it becomes valid in 3h0m0s."},
		"a dead battery":     {time.Unix(0, 0), "By this clock it becomes valid in 20788 days."},
		"a bit too late":     {begin.Add(30*day + time.Second), "By this clock it ran out 1s ago."},
		"years too late":     {begin.Add(30*day + 400*day), "By this clock it ran out 400 days ago."},
		"after the CA's end": {begin.Add(ca.Life + day), "By this clock it ran out 7271 days ago."},
	} {
		err := shakeWith(t, trust(t, a.Pin(), host, c.now).Client(), s.Config())
		if c.says == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var clock *ca.ClockError
		if !errors.Is(err, ca.ErrClock) || !errors.As(err, &clock) || refusal.From(err).Detail() != c.says {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !clock.Here.Equal(c.now) || !clock.From.Equal(begin.Add(-time.Hour)) || !clock.Until.Equal(begin.Add(30*day)) || clock.Known {
			t.Errorf("%s: %+v", name, *clock)
		}
		if err := shakeWith(t, trust(t, other.Pin(), host, c.now).Client(), s.Config()); !errors.Is(err, ca.ErrPin) {
			t.Errorf("%s, another CA: %v", name, err)
		}
		if err := shakeWith(t, trust(t, a.Pin(), "other.example.org", c.now).Client(), s.Config()); !errors.Is(err, ca.ErrHost) {
			t.Errorf("%s, another host: %v", name, err)
		}
	}
}

func TestClockSentences(t *testing.T) {
	e := ca.ClockError{Here: begin, From: begin.Add(day), Until: begin.Add(31 * day), Known: true}
	for ahead, want := range map[time.Duration]string{
		-3 * time.Hour:   "This machine's clock is 3h0m0s behind the server's.",
		-400 * day:       "This machine's clock is 400 days behind the server's.",
		61 * time.Second: "This machine's clock is 1m1s ahead of the server's.",
		time.Minute:      "The two clocks agree, so the certificate was made with a wrong date.",
		-time.Minute:     "The two clocks agree, so the certificate was made with a wrong date.",
	} {
		e.Ahead = ahead
		if got := refusal.From(&e).Detail(); got != want || !strings.HasSuffix(e.Error(), want) {
			t.Errorf("%v: %s", ahead, got)
		}
	}
	for _, c := range []struct {
		e    ca.ClockError
		want string
	}{
		{ca.ClockError{Here: begin.Add(day), Until: begin, Known: true}, "The two clocks agree, so the server has to renew its certificate."},
		{ca.ClockError{Here: begin, Until: begin.Add(day)}, "By this clock it is valid itself, and a certificate that vouches for it is not."},
	} {
		if got := refusal.From(&c.e).Detail(); got != c.want {
			t.Errorf("%+v: %s", c.e, got)
		}
	}
}

// serve listens with a TLS config and answers by a handler.
func serve(t *testing.T, config *tls.Config, h http.HandlerFunc) (address string) {
	t.Helper()
	s, err := httpd.NewTLS("127.0.0.1:0", h, config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s.Address().String()
}

// TestServerTime: a client whose clock is wrong learns by how much from a server
// that proves its key, and from no other.
func TestServerTime(t *testing.T) {
	a, other := open(t, t.TempDir(), at(begin)), open(t, t.TempDir(), at(begin))
	s, err := a.Server(host)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	date := http.Header{"Date": {begin.Format(http.TimeFormat)}}
	address := serve(t, s.Config(), func(w http.ResponseWriter, r *http.Request) {
		asked++
		if name, _, _ := net.SplitHostPort(r.Host); r.Method != http.MethodHead || name != host {
			t.Errorf("asked %s of %q", r.Method, r.Host)
		}
		w.Header()["Date"] = date["Date"]
		w.Header().Set("Location", "https://elsewhere.example.org/")
		w.WriteHeader(http.StatusFound) // which is not followed
	})
	for _, off := range []time.Duration{-400 * day, -3 * time.Hour, 0, 3 * time.Hour, 40 * day, ca.Life + day} {
		tr := trust(t, a.Pin(), host, begin.Add(off))
		r, err := tr.ServerTime(t.Context(), address)
		if err != nil || r.Ahead() != off-time.Second/2 || !r.Server.Equal(begin.Add(time.Second/2)) {
			t.Errorf("%v off: %+v, %v", off, r, err)
		}
		_, failed := tr.ServerTime(t.Context(), "127.0.0.1:1")
		if !errors.Is(failed, ca.ErrServerTime) {
			t.Errorf("nobody there: %v", failed)
		}
	}
	// From the error of a first try to what a person is told.
	tr := trust(t, a.Pin(), host, begin.Add(-3*time.Hour))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tr.Client(), ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
	before := asked
	_, first := client.Get("https://" + host + "/")
	if !errors.Is(first, ca.ErrClock) || asked != before {
		t.Fatalf("the first try: %v, and the server was asked %d times", first, asked-before)
	}
	var clock *ca.ClockError
	err = tr.Explain(t.Context(), address, first)
	if !errors.As(err, &clock) || !clock.Known || clock.Ahead != -3*time.Hour-time.Second/2 || !errors.Is(err, ca.ErrClock) {
		t.Errorf("explained: %v", err)
	}
	if got := refusal.From(err).Detail(); got != "This machine's clock is 3h0m1s behind the server's." {
		t.Error(got)
	}
	if got := tr.Explain(t.Context(), "127.0.0.1:1", first); !errors.Is(got, ca.ErrClock) || refusal.From(got).Detail() != "By this clock it becomes valid in 2h0m0s." {
		t.Errorf("where nobody tells: %v", got)
	}
	if got := tr.Explain(t.Context(), address, io.EOF); got != io.EOF {
		t.Errorf("another error: %v", got)
	}
	// Only who holds the key is asked.
	before = asked
	for name, c := range map[string]struct {
		tr   ca.Trust
		want error
	}{
		"another CA":   {trust(t, other.Pin(), host, begin), ca.ErrPin},
		"another host": {trust(t, a.Pin(), "other.example.org", begin), ca.ErrHost},
		"no pin":       {trust(t, ca.Pin{}, host, begin), ca.ErrPin},
	} {
		if _, err := c.tr.ServerTime(t.Context(), address); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if asked != before {
		t.Error("a server was asked before it had proved its key")
	}
	if _, err := tr.ServerTime(t.Context(), "no address"); !errors.Is(err, ca.ErrServerTime) {
		t.Errorf("no address: %v", err)
	}
	for _, date["Date"] = range [][]string{nil, {"yesterday"}, {""}} {
		if _, err := tr.ServerTime(t.Context(), address); !errors.Is(err, ca.ErrServerTime) {
			t.Errorf("the date %q: %v", date["Date"], err)
		}
	}
}

// TestRenewal lives with one authority for two years, a client that joins each day.
func TestRenewal(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := open(t, dir, time.Now) // on the first second of 2000, where the bubble begins
		s, err := a.Server(host)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := ca.NewTrust(a.Pin(), host, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		serials := map[string]bool{}
		get := func() *tls.Certificate {
			c, err := s.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			serials[c.Leaf.SerialNumber.String()] = true
			return c
		}
		first := get()
		time.Sleep(20*day - time.Second)
		if get() != first {
			t.Error("it was renewed before two thirds of its life")
		}
		time.Sleep(time.Second)
		if get() == first {
			t.Error("it was not renewed at two thirds of its life")
		}
		for range 700 {
			time.Sleep(day)
			here, there := net.Pipe() // a real socket would stop the bubble's clock
			if err := shakeOver(t, here, there, tr.Client(), s.Config()); err != nil {
				t.Fatalf("%v: %v", time.Now(), err)
			}
			// A third of the life is left for a client whose clock is ahead.
			if left := time.Until(get().Leaf.NotAfter); left <= 10*day-time.Second {
				t.Errorf("%v are left", left)
			}
		}
		if len(serials) != 37 {
			t.Errorf("%d certificates were made in 720 days", len(serials))
		}
	})
}

// TestServerClockSetBack: a controller that was started with a wrong clock serves
// a good certificate once it is corrected.
func TestServerClockSetBack(t *testing.T) {
	now := begin.Add(100 * day)
	dir := t.TempDir()
	open(t, dir, at(begin))
	a, err := ca.Open(dir, rand.Reader, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Server(host)
	if err != nil {
		t.Fatal(err)
	}
	client := trust(t, a.Pin(), host, begin).Client()
	now = begin
	if err := shakeWith(t, client, s.Config()); err != nil {
		t.Error(err)
	}
	now = begin.Add(-day) // before the authority itself
	if _, err := s.GetCertificate(nil); !errors.Is(err, ca.ErrTime) {
		t.Errorf("before the authority: %v", err)
	}
}
