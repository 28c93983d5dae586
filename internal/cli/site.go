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
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/appapi"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// What serving a site is refused with besides the packages' own refusals.
var (
	ErrData = refusal.NewKind("data-folder", 500,
		"The data folder cannot be used: it cannot be made or read, or other users can reach it.",
		"Give a folder that this user owns and nobody else can read, as chmod 700 makes it.")
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

// serveFlags are the flags of allod site serve.
type serveFlags struct {
	data, listen, origin, limits  string
	keyFiles, proxies             []string
	lease, ttl, pairTTL, liveness time.Duration
	quota                         int
}

func newSiteServe(env Env) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a site until it is stopped",
		Long: `Serves the site's devices below /byollm and the app below /v1, in plain HTTP: put a
proxy with TLS before it, or listen on loopback. The first start makes the key
file and the app key in the data folder. Health, metrics and profiles are on the
socket admin.sock in the data folder.`,
		Example: "  allod site serve --data /var/lib/allod --listen 127.0.0.1:8080 --origin https://app.example",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			return serveSite(cmd.Context(), env, f, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "the site's folder; it is made if it is absent")
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "the address to listen on; port 0 takes a free one")
	fl.StringVar(&f.origin, "origin", "", "where people reach the site, an http or https URL; by default the address it listens on")
	fl.StringArrayVar(&f.keyFiles, "key-file", nil, "a key file, the current one first; may be repeated; by default site-keys.json in the folder")
	fl.DurationVar(&f.lease, "lease", 0, "how long a grant lasts unless renewed (1m)")
	fl.DurationVar(&f.ttl, "ttl", 0, "how long a job may wait once it is claimable (15m)")
	fl.DurationVar(&f.pairTTL, "pair-ttl", 0, "how long a pairing code lasts (10m)")
	fl.DurationVar(&f.liveness, "liveness", 0, "how long after its last heartbeat a device counts as there (35s)")
	fl.IntVar(&f.quota, "quota", 0, "how many unfinished jobs one owner may have; 0 means any number")
	fl.StringVar(&f.limits, "limits", "on", "limits on requests by address: on, or off for tests")
	fl.StringArrayVar(&f.proxies, "trusted-proxy", nil, "an address range whose X-Forwarded-For is believed; may be repeated")
	return cmd
}

// started is the first line of output under --json.
type started struct {
	Listening  string `json:"listening"`
	SiteKeyID  string `json:"siteKeyId"`
	AppKeyFile string `json:"appKeyFile"`
}

func serveSite(ctx context.Context, env Env, f serveFlags, asJSON bool) error {
	if f.data == "" {
		return ErrUsage.With("The flag --data is needed.")
	}
	log := slog.New(httpd.LogHandler(slog.NewTextHandler(env.Err, nil)))
	if err := privateFolder(f.data); err != nil {
		return err
	}
	release, err := lock(f.data)
	if err != nil {
		return err
	}
	defer release()
	config, err := f.config(log)
	if err != nil {
		return err
	}
	appKey, appKeyPath, err := ownAppKey(f.data)
	if err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(f.data, siteDatabase), Logger: log})
	if err != nil {
		return err
	}
	defer store.Close()
	// The address is needed for the origin, and the site for the handler.
	var served lateHandler
	server, err := httpd.New(f.listen, &served, log)
	if err != nil {
		return err
	}
	config.Store, config.VerificationURL = store, verificationURL(f.origin, server.Address())
	s, err := site.Open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // the store is closed after it
	served.Handler = siteMux(s, appKey)
	admin, err := httpd.NewAdmin(f.data, func(ctx context.Context) error {
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

// lateHandler is set before the first request is served.
type lateHandler struct{ http.Handler }

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

func (f serveFlags) config(log *slog.Logger) (site.Config, error) {
	c := site.Config{
		Lease: f.lease, TTL: f.ttl, PairTTL: f.pairTTL, Liveness: f.liveness, Quota: f.quota, Logger: log,
	}
	switch f.limits {
	case "on":
	case "off":
		c.NoLimits = true
	default:
		return c, ErrUsage.With("The flag --limits takes on or off.")
	}
	if f.origin != "" {
		if _, err := weburl.ParseWeb(f.origin); err != nil {
			return c, err
		}
	}
	for _, p := range f.proxies {
		prefix, err := netip.ParsePrefix(p)
		if err != nil {
			return c, ErrUsage.With("The flag --trusted-proxy takes a range of addresses, as in 10.0.0.0/8.")
		}
		c.TrustedProxies = append(c.TrustedProxies, prefix)
	}
	files := f.keyFiles
	if len(files) == 0 {
		own := filepath.Join(f.data, siteKeys)
		if !exists(own) {
			if _, err := site.CreateKeys(own, rand.Reader, time.Now()); err != nil {
				return c, err
			}
		}
		files = []string{own}
	}
	keys, err := site.LoadKeys(files[0], files[1:]...)
	c.Keys = keys
	return c, err
}

func verificationURL(origin string, at net.Addr) string {
	if origin == "" {
		origin = "http://" + at.String()
	}
	return strings.TrimSuffix(origin, "/") + pairPage
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

// privateFolder makes the folder, or checks that no other user reaches it.
func privateFolder(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return ErrData.Because(err)
		}
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return ErrData.Because(err)
	case !info.IsDir() || info.Mode().Perm()&0o077 != 0:
		return ErrData
	}
	return nil
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
