package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
)

// What serving a site is refused with besides the packages' own refusals.
var (
	ErrAppKeyFile = refusal.NewKind("app-key-file", 500,
		"The app key file is damaged, or other users can read it.",
		"Remove the file to get a new app key at the next start, and give that to the app.")
)

func newSite(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "site",
		Short:   "Serve an app's jobs to its users' own machines",
		Example: "  allod site serve --data /var/lib/allod --listen 127.0.0.1:8080 --origin https://app.example",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSiteServe(env), newSiteKeygen(env))
	return cmd
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
		Long: `Serves the site's devices below /byollm and the app below /v1, in plain HTTP: put a
proxy with TLS before it, or listen on loopback. The first start makes the key
file and the app key in the data folder. Health, metrics and profiles are on the
socket admin.sock in the data folder.

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
	Listening  string `json:"listening"`
	SiteKeyID  string `json:"siteKeyId"`
	AppKeyFile string `json:"appKeyFile"`
}

// collectorSlack is in bytes. A site's heap is so small that collecting its
// garbage would be a tenth of its work. This much more that counts as in use lets
// it wait until there is as much garbage. The block is never touched, so it takes
// no memory itself; a larger GOGC would multiply a large heap too.
const collectorSlack = 16 << 20

func serveSite(ctx context.Context, env Env, c siteConfig, at places, asJSON bool) error {
	defer runtime.KeepAlive(make([]byte, collectorSlack))
	setup, problems := c.setup(at)
	if len(problems) > 0 {
		return problems[0].refusal()
	}
	log := slog.New(httpd.LogHandler(slog.NewTextHandler(env.Err, nil)))
	if err := datadir.Prepare(setup.Data); err != nil {
		return about(at["data"], err).refusal()
	}
	release, err := datadir.Lock(setup.Data)
	if err != nil {
		return err
	}
	defer release()
	config := setup.config
	if config.Keys, err = setup.openKeys(at); err != nil {
		return err
	}
	appKey, appKeyPath, err := ownAppKey(setup.Data)
	if err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(setup.Data, siteDatabase), Logger: log})
	if err != nil {
		return err
	}
	defer store.Close()
	// The address is needed for the origin, and the site for the handler.
	var served httpd.Late
	server, err := httpd.New(setup.Listen, &served, log)
	if err != nil {
		return about(at["listen"], err).refusal()
	}
	config.Store, config.Logger, config.VerificationURL = store, log, verificationURL(setup.Origin, server.Address())
	s, err := site.Open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the store is closed after it
	served.Handler = siteMux(s, appKey)
	admin, err := httpd.NewAdmin(setup.Data, func(ctx context.Context) error {
		_, err := store.Keys().Keys(ctx)
		return err
	}, metrics(store), log)
	if err != nil {
		return err
	}
	first := started{server.Address().String(), s.KeyID().String(), appKeyPath}
	if err := announce(env.Out, first, asJSON); err != nil {
		return err
	}
	return runBoth(ctx, server, admin)
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
	_, err := fmt.Fprintf(w, "Listening on %s\nThe site's fingerprint, which devices show when they pair:\n\n  %s\n\nThe app's key is in %s\n",
		s.Listening, s.SiteKeyID, s.AppKeyFile)
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
	return origin + pairPage
}

const pairPage = "/pair"

func siteMux(s *site.Site, key appapi.Key) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(ai.PathPrefix+"/", s.Handler())
	mux.Handle("/v1/", appapi.NewHandler(s, key))
	// A page on which a person approves belongs to the app, which knows who is
	// signed in. Here nobody is, so nothing can be approved.
	mux.HandleFunc("GET "+pairPage, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "A device waits to be paired with this site.\n\n"+
			"Sign in to the app, compare the fingerprint there with the one your device shows,\nand approve it by its code.\n")
	})
	return mux
}

// ownAppKey reads the app key of a folder and makes it the first time.
func ownAppKey(dir string) (k appapi.Key, path string, err error) {
	path = filepath.Join(dir, appKeyFile)
	if k, err = appapi.NewKey(rand.Reader); err != nil {
		return k, path, ErrAppKeyFile.Because(err)
	}
	switch err := keyfile.WriteNew(path, []byte(k.Text()+"\n")); {
	case errors.Is(err, fs.ErrExist):
		return readAppKey(path)
	case err != nil:
		return appapi.Key{}, path, ErrAppKeyFile.Because(err)
	}
	return k, path, nil
}

func readAppKey(path string) (k appapi.Key, _ string, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1024 || info.Mode().Perm()&0o077 != 0 {
		return k, path, ErrAppKeyFile.Because(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return k, path, ErrAppKeyFile.Because(err)
	}
	if k, err = appapi.ParseKey(strings.TrimSpace(string(text))); err != nil {
		return k, path, ErrAppKeyFile
	}
	return k, path, nil
}

// metrics are the process's numbers and the store's.
func metrics(store *sqlite.Store) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for name, help := range sqlite.Numbers {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "allod_site", Name: name, Help: help},
			func() float64 { return store.Number(name) }))
	}
	return r
}
