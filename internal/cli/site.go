package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/pairpage"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/webhook"
	"github.com/allodhq/allod/wire/ai"
)

// What serving a site is refused with besides the packages' own refusals.
var (
	ErrAppKeyFile = refusal.NewKind("app-key-file", 500,
		"The app key file is damaged, or other users can read it.",
		"Run chmod 600 on it if only that is wrong. Else move it away and make a key with allod site key add.")
	ErrOwnerReach = refusal.NewKind("owner-reach", 400,
		"A fixed owner is for a site that only this machine reaches, since whoever reaches its page approves devices in that owner's name.",
		"Listen on a loopback address, as in 127.0.0.1:8080, without another origin and without proxies. Else leave the owner out and let the app make links.")
)

func newSite(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:     "site",
		Short:   "Serve an app's jobs to its users' own machines",
		Example: "  allod site serve --data /var/lib/allod --listen 127.0.0.1:8080 --origin https://app.example",
	}, newSiteServe(env), newSiteKeygen(env), newSiteKey(env))
}

type keygenReport struct {
	KeyFile string `json:"keyFile"`
	KeyID   string `json:"siteKeyId"`
}

func newSiteKeygen(env Env) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make a new site key in a file of its own",
		Long: `Makes a new key file. A site seals new material to the first key file it is given
and still opens older material with the others; docs/site-keys.md says how to
rotate, and what a lost or leaked key means.`,
		Example: "  allod site keygen --key-file /etc/allod/site-keys-2.json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return ErrUsage.With("The flag --key-file is needed.")
			}
			k, err := site.CreateKeys(path, rand.Reader, time.Now())
			if err != nil {
				return err
			}
			r := keygenReport{path, k.Fingerprint().String()}
			return print(cmd, env, r, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Made a key file. The site's fingerprint under this key:\n\n  %s\n", r.KeyID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&path, "key-file", "", "the file to make; it must not exist")
	return cmd
}

func newSiteServe(env Env) *cobra.Command {
	var f siteConfig
	var file string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a site until it is stopped",
		Long: `Serves the site's devices below /byollm, the page that pairs them at /pair, and
the app and OpenAI's clients below /v1, in plain HTTP: put a proxy with TLS before it,
or listen on loopback. The first start makes the key file and the app key in the data
folder. Health, metrics and profiles are on the socket admin.sock in the data folder.

Settings come from the section "site" of a configuration file as well, see
docs/configuration.md. A flag that is given here wins over the file.`,
		Example: "  allod site serve --data /var/lib/allod --listen 127.0.0.1:8080 --origin https://app.example\n" +
			"  allod site serve --config /etc/allod/allod.json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			var m machineConfig
			if file != "" {
				if m, err = readMachine(file); err != nil {
					return err
				}
				if m.Site == nil {
					m.Site = &siteConfig{}
				}
			}
			c, at := overlay(f, cmd.Flags().Changed, m.Site)
			return serveSite(cmd.Context(), env, c, at, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&file, "config", "", "a configuration file whose section \"site\" gives the settings that are not given here")
	fl.StringVar(&f.Data, "data", "", "the site's folder; it is made if it is absent")
	fl.StringVar(&f.Listen, "listen", "", "the address to listen on; port 0 takes a free one ("+defaultListen+")")
	fl.StringVar(&f.Origin, "origin", "", "where people reach the site, an http or https URL; by default the address it listens on")
	fl.StringArrayVar(&f.KeyFiles, "key-file", nil, "a key file, the current one first; may be repeated; by default site-keys.json in the folder")
	fl.StringVar(&f.Owner, "owner", "", "pair every device with this user, without signing in: whoever reaches the page decides, so the site must listen on loopback")
	fl.StringVar(&f.Lease, "lease", "", "how long a grant lasts unless renewed ("+defaultLease+")")
	fl.StringVar(&f.TTL, "ttl", "", "how long a job may wait once it is claimable ("+defaultTTL+")")
	fl.StringVar(&f.PairTTL, "pair-ttl", "", "how long a pairing code lasts ("+defaultPairTTL+")")
	fl.StringVar(&f.Liveness, "liveness", "", "how long after its last heartbeat a device counts as there ("+defaultLiveness+")")
	fl.Int64Var(&f.Quota.V, "quota", 0, "how many unfinished jobs one owner may have; 0 means any number")
	fl.StringVar(&f.Limits, "limits", "", "limits on requests by address: on, or off for tests (on)")
	fl.StringArrayVar(&f.TrustedProxies, "trusted-proxy", nil, "an address range whose X-Forwarded-For is believed; may be repeated")
	return cmd
}

// started is the first line of output under --json.
type started struct {
	Listening string `json:"listening"`
	SiteKeyID string `json:"siteKeyId"`
	// AppKeyFile holds the key that the first start made; empty where the file is
	// gone, or its key was removed.
	AppKeyFile string `json:"appKeyFile"`
	// WebhookSecretFiles hold what webhooks are signed with, those made now too.
	WebhookSecretFiles []string `json:"webhookSecretFiles,omitempty"`
}

func serveSite(ctx context.Context, env Env, c siteConfig, at places, asJSON bool) error {
	defer slack(siteSlack)()
	setup, problems := c.setup(at)
	if len(problems) > 0 {
		return problems[0].refusal()
	}
	log := slog.New(httpd.LogHandler(slog.NewTextHandler(env.Err, nil)))
	s, err := openSite(ctx, setup, at, log)
	if err != nil {
		return err
	}
	defer s.close()
	if setup.hidesCallers() {
		log.Warn("the origin is elsewhere and no proxy is trusted: the limits count all callers as one address; name the proxy's range with --trusted-proxy or trustedProxies")
	}
	if err := announce(env.Out, s.first, asJSON); err != nil {
		return err
	}
	return runBoth(ctx, s.server, s.admin)
}

// servedSite is a site that listens and does not serve yet.
type servedSite struct {
	server, admin *httpd.Server
	handler       http.Handler
	first         started
	closers       []func()
}

// close lets go of everything that the site holds. It is called once.
func (s *servedSite) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// openSite opens a site and binds its addresses. Its requests end with ctx.
func openSite(ctx context.Context, setup siteSetup, at places, log *slog.Logger) (_ *servedSite, err error) {
	o := &servedSite{}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	if err := datadir.Prepare(setup.Data); err != nil {
		return nil, about(at["data"], err).refusal()
	}
	release, err := datadir.Lock(setup.Data)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, release)
	config := setup.config
	if config.Keys, err = setup.openKeys(at); err != nil {
		return nil, err
	}
	secretFiles, err := setup.openSecrets()
	if err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(setup.Data, siteDatabase), Logger: log})
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, func() { _ = store.Close() })
	keys := appapi.NewKeys(store.AppKeys(), nil)
	appKeyPath, err := firstAppKey(ctx, keys, setup.Data)
	if err != nil {
		return nil, err
	}
	// The address is needed for the origin, and the site for the handler.
	var served httpd.Late
	if o.server, err = httpd.New(setup.Listen, &served, log); err != nil {
		return nil, about(at["listen"], err).refusal()
	}
	defer func() {
		if err != nil {
			o.server.Close()
		}
	}()
	config.Store, config.Logger, config.VerificationURL = store, log, verificationURL(setup.Origin, o.server.Address())
	s, err := site.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, func() { _ = s.Close() }) // the store is closed after it
	hooks := setup.webhooks
	hooks.Store, hooks.Logger = store, log
	deliverer, err := webhook.Open(ctx, hooks)
	if err != nil {
		return nil, err
	}
	o.closers = append(o.closers, func() { _ = deliverer.Close() })
	face := setup.gateway
	face.Site, face.Keys, face.Logger = s, keys, log
	face.Stopping = ctx // the server lets requests finish from its end on
	served.Handler = siteMux(s, keys, pairpage.Config{Owner: ai.Owner(setup.Owner), Logger: log}, face)
	o.handler = served.Handler
	if o.admin, err = httpd.NewAdmin(setup.Data, func(ctx context.Context) error {
		_, err := store.Keys().Keys(ctx)
		return err
	}, metrics(store, deliverer), log, serveAppKeys(keys, log)); err != nil {
		return nil, err
	}
	o.first = started{o.server.Address().String(), s.KeyID().String(), appKeyPath, secretFiles}
	return o, nil
}

// hidesCallers reports whether everybody seems to call from this machine: people
// reach the site elsewhere, so through a proxy here, and what it says of them is
// not believed.
func (s siteSetup) hidesCallers() bool {
	return s.Origin != "" && !loopbackOrigin(s.Origin) && pairpage.Loopback(s.Listen) &&
		len(s.config.TrustedProxies) == 0 && !s.config.NoLimits
}

func runBoth(ctx context.Context, server, admin *httpd.Server) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- admin.Run(ctx) }()
	err := server.Run(ctx)
	stop()
	return errors.Join(err, <-ended)
}

func announce(w io.Writer, s started, asJSON bool) error {
	if asJSON {
		line, err := json.Marshal(s)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", line)
		return err
	}
	text := fmt.Sprintf("Listening on %s\nThe site's fingerprint, which devices show when they pair:\n\n  %s\n", s.Listening, s.SiteKeyID)
	if s.AppKeyFile != "" {
		text += fmt.Sprintf("\nThe app's first key is in %s\n", s.AppKeyFile)
	}
	for _, path := range s.WebhookSecretFiles {
		text += fmt.Sprintf("Webhooks are signed with the secret in %s\n", path)
	}
	_, err := io.WriteString(w, text)
	return err
}

// openKeys loads the key files and makes the site's own one the first time.
func (s siteSetup) openKeys(at places) ([]key.SiteKeys, error) {
	if own := s.KeyFiles[0]; s.ownKeys && !exists(own) {
		if _, err := site.CreateKeys(own, rand.Reader, time.Now()); err != nil {
			return nil, about(at["data"], err).refusal()
		}
	}
	keys, problems := s.keys(at)
	if len(problems) > 0 {
		return nil, problems[0].refusal()
	}
	return keys, nil
}

// verificationURL is where a person approves a device. An origin has no slash at
// its end.
func verificationURL(origin string, at net.Addr) string {
	if origin == "" {
		origin = "http://" + at.String()
	}
	return origin + pairpage.Path
}

func siteMux(s *site.Site, keys *appapi.Keys, page pairpage.Config, face gateway.Config) http.Handler {
	mux := http.NewServeMux()
	openai := gateway.NewHandler(face)
	for _, path := range gateway.Paths() {
		mux.Handle(path, openai)
	}
	mux.Handle(ai.PathPrefix+"/", s.Handler())
	mux.Handle("/v1/", appapi.NewHandler(s, keys))
	pairing := pairpage.NewHandler(s, page)
	mux.Handle(pairpage.Path, pairing)
	mux.Handle(pairpage.Path+"/", pairing)
	return mux
}

// firstAppKey registers the key in a folder's app key file as the site's first,
// and makes the file where the site never had a key. Once there was any, the file
// decides nothing any more, whatever it holds. path is empty where no file holds a
// key that counts.
func firstAppKey(ctx context.Context, keys *appapi.Keys, dir string) (path string, err error) {
	path = filepath.Join(dir, appKeyFile)
	if exists(path) {
		had, err := keys.Had(ctx)
		if err != nil {
			return "", err
		}
		k, private, err := openAppKey(path)
		counts := err == nil
		if had && err == nil {
			counts, err = keys.Count(ctx, k.Hash())
		}
		switch {
		case had && !counts:
			return "", nil // what the file holds opens nothing
		case err != nil:
			return "", err
		case !private:
			return "", ErrAppKeyFile
		}
		return path, keys.AddFirst(ctx, k.Hash())
	}
	if had, err := keys.Had(ctx); err != nil || had {
		return "", err
	}
	k, err := appapi.NewKey(rand.Reader)
	if err == nil {
		// The file comes first: a crash after it leaves one that is registered at
		// the next start.
		err = keyfile.WriteNew(path, []byte(k.Text()+"\n"))
	}
	if err != nil {
		return "", ErrAppKeyFile.Because(err)
	}
	return path, keys.AddFirst(ctx, k.Hash())
}

// readAppKey reads an app key file that other users are kept out of.
func readAppKey(path string) (appapi.Key, error) {
	k, private, err := openAppKey(path)
	if err == nil && !private {
		err = ErrAppKeyFile
	}
	return k, err
}

// openAppKey reads an app key file, and says whether other users are kept out.
func openAppKey(path string) (k appapi.Key, private bool, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1024 {
		return k, false, ErrAppKeyFile.Because(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return k, false, ErrAppKeyFile.Because(err)
	}
	if k, err = appapi.ParseKey(strings.TrimSpace(string(text))); err != nil {
		return k, false, ErrAppKeyFile
	}
	return k, info.Mode().Perm()&0o077 == 0, nil
}

// metrics are the process's numbers, the store's and the webhooks'.
func metrics(store *sqlite.Store, hooks *webhook.Deliverer) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	add := func(names map[string]string, number func(name string) float64) {
		for name, help := range names {
			r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "allod_site", Name: name, Help: help},
				func() float64 { return number(name) }))
		}
	}
	add(sqlite.Numbers, store.Number)
	add(webhook.Numbers, hooks.Number)
	return r
}
