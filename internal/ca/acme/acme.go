package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrTerms = refusal.NewKind("acme-terms", 400,
		"Nobody has agreed to the terms of the public certificate authority.",
		"Read the terms of the authority, as Let's Encrypt has them at letsencrypt.org/repository, and agree to them by the flag.")
	ErrName = refusal.NewKind("acme-name", 400,
		"A public name is no DNS name that a public certificate can be for, or there are none or too many.",
		"Give 1 to 32 names of two labels or more, such as cloud.example.org, without wildcard.")
	ErrEmail = refusal.NewKind("acme-email", 400,
		"The mail address for the public certificate authority is none.",
		"Give a plain address, such as operator@example.org.")
	ErrDirectory = refusal.NewKind("acme-directory", 400,
		"The address of the public certificate authority is none of HTTPS.",
		"Give the URL of the authority's ACME directory, or leave it out for Let's Encrypt.")
	ErrNone = refusal.NewKind("acme-no-certificate", 503,
		"There is no public certificate yet for the public name that was asked for.",
		"Look in the log for what the authority said. The name has to lead to this controller, with its port 443.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Public certificates", Kinds: []*refusal.Kind{ErrTerms, ErrName, ErrEmail, ErrDirectory, ErrNone}}

// Bounds.
const (
	maxEmail     = 254  // bytes (RFC 5321, 4.5.3.1.3, without the brackets)
	maxDirectory = 2048 // bytes
	// logEvery is how often the refusal of one name is logged at most.
	logEvery = time.Minute
)

// Settings say which public names a controller has and who gives certificates.
type Settings struct {
	// Names are 1 to [ca.MaxHosts] DNS names that lead to this controller.
	Names []string
	// Email is where the authority writes to.
	Email string
	// Agreed says that the operator has agreed to the authority's terms.
	Agreed bool
	// Dir is a folder for keys and certificates. It is made where it is not there.
	Dir string
	// Directory is the URL of the authority; empty means Let's Encrypt.
	Directory string
	// Roots vouch for the authority's own server; nil means this machine's.
	Roots *x509.CertPool
	// Own serves every name but the public ones.
	Own func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Clock is for the log alone. Certificates go by the system's clock.
	Clock func() time.Time
	Log   *slog.Logger
}

// Names serves public names. It is safe for several goroutines.
type Names struct {
	settings Settings
	names    []string
	magic    atomic.Pointer[certmagic.Config] // nil until it runs

	mu     sync.Mutex
	logged map[string]time.Time // by public name
}

// New checks the settings. It returns [ErrTerms], [ErrName], [ErrEmail],
// [ErrDirectory], [datadir.ErrData] and [keyfile.ErrPlatform].
func New(s Settings) (*Names, error) {
	if !s.Agreed { // the library would agree by itself
		return nil, ErrTerms
	}
	if len(s.Names) == 0 || len(s.Names) > ca.MaxHosts {
		return nil, ErrName
	}
	n := &Names{logged: map[string]time.Time{}}
	for _, text := range s.Names {
		h, err := ca.ReadHost(text)
		if err != nil || !strings.Contains(h.Name(), ".") || !certmagic.SubjectQualifiesForPublicCert(h.Name()) {
			return nil, ErrName
		}
		if !slices.Contains(n.names, h.Name()) {
			n.names = append(n.names, h.Name())
		}
	}
	if a, err := mail.ParseAddress(s.Email); err != nil || a.Address != s.Email || len(s.Email) > maxEmail {
		return nil, ErrEmail
	}
	if s.Directory == "" {
		s.Directory = certmagic.LetsEncryptProductionCA
	}
	if u, err := url.Parse(s.Directory); err != nil || u.Scheme != "https" || u.Host == "" || len(s.Directory) > maxDirectory {
		return nil, ErrDirectory
	}
	if err := keyfile.Platform(); err != nil {
		return nil, err
	}
	// The library makes files for this user alone, and does not look at what is
	// there; a folder that nobody else can enter makes that good.
	if err := datadir.Prepare(s.Dir); err != nil {
		return nil, err
	}
	n.settings = s
	return n, nil
}

// Config serves the public names and, by Own, every other one. Its protocols hold
// the one by which the authority asks.
func (n *Names) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: n.GetCertificate,
		// Those of HTTP first: the first that both sides know is taken.
		NextProtos: []string{"h2", "http/1.1", acmez.ACMETLS1Protocol},
	}
}

// GetCertificate returns a public name's certificate, or the answer to the
// authority's question about one. It returns [ErrNone], and what Own returns.
func (n *Names) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(hello.ServerName)
	if !slices.Contains(n.names, name) {
		return n.settings.Own(hello)
	}
	magic := n.magic.Load()
	if magic == nil {
		return nil, n.refused(name, nil)
	}
	certificate, err := magic.GetCertificateWithContext(hello.Context(), hello)
	if err != nil {
		return nil, n.refused(name, err)
	}
	return certificate, nil
}

// refused makes the refusal of a name and logs it now and then.
func (n *Names) refused(name string, cause error) error {
	r := ErrNone.Because(cause)
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := n.settings.Clock(); now.Sub(n.logged[name]) >= logEvery {
		n.logged[name] = now
		n.settings.Log.Warn("a public name is not served", "name", name, "refusal", r)
	}
	return r
}

// Run gets the certificates and renews them until ctx ends. The listener is the
// one that serves [Names.Config]: it is open by now, and the authority reaches it
// on port 443. What fails is logged and tried again, at first after a minute, then
// more and more seldom.
func (n *Names) Run(ctx context.Context, listener net.Addr) error {
	log := zap.New(zapcore.NewCore(
		zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "acme"}),
		zapcore.AddSync(slog.NewLogLogger(n.settings.Log.Handler(), slog.LevelWarn).Writer()),
		zapcore.ErrorLevel))
	var magic *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return magic, nil },
		Logger:           log,
	})
	defer cache.Stop()
	magic = certmagic.New(cache, certmagic.Config{
		Storage: &certmagic.FileStorage{Path: n.settings.Dir},
		Logger:  log,
		// Authorities do not offer OCSP any more, and asking tells them who visits.
		OCSP: certmagic.OCSPConfig{DisableStapling: true},
		OnEvent: func(ctx context.Context, event string, data map[string]any) error {
			if event == "cert_obtained" {
				n.settings.Log.InfoContext(ctx, "there is a new public certificate", "name", data["identifier"])
			}
			return nil
		},
	})
	issuer := certmagic.ACMEIssuer{
		CA: n.settings.Directory, TrustedRoots: n.settings.Roots,
		Email: n.settings.Email, Agreed: true,
		DisableHTTPChallenge: true, // nobody listens for plain HTTP
		// Challenges are answered by this process, from memory.
		DisableDistributedSolvers: true,
		Logger:                    log,
	}
	// The library opens a listener of its own unless ours has this address.
	if a, ok := listener.(*net.TCPAddr); ok {
		issuer.AltTLSALPNPort = a.Port
		if !a.IP.IsUnspecified() {
			issuer.ListenHost = a.IP.String()
		}
	}
	magic.Issuers = []certmagic.Issuer{certmagic.NewACMEIssuer(magic, issuer)}
	n.magic.Store(magic)
	if err := magic.ManageAsync(ctx, n.names); err != nil {
		return err
	}
	<-ctx.Done()
	n.magic.Store(nil)
	return nil
}
