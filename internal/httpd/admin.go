package httpd

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/allodhq/allod/refusal"
)

// ErrAdmin refuses an admin socket that cannot be made.
var ErrAdmin = refusal.NewKind("admin-socket", 500,
	"The admin socket cannot be made in the data folder.",
	"Check that no other process uses the folder, that this user owns it, and that its path is shorter than 90 characters.")

// AdminSocket is the socket's name in a party's data folder.
const AdminSocket = "admin.sock"

// NewAdmin listens on the admin socket of a data folder, which only this user
// can reach. It answers GET /health with 200 or 503 by what healthy says, GET
// /metrics from the registry, /debug/pprof/, and what a party adds by more. The
// caller holds the folder's lock, so a socket that is there is a dead one's. It
// returns [ErrAdmin].
func NewAdmin(dir string, healthy func(ctx context.Context) error, metrics *prometheus.Registry, log *slog.Logger, more ...func(*http.ServeMux)) (*Server, error) {
	path := filepath.Join(dir, AdminSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, ErrAdmin.Because(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, ErrAdmin.Because(err)
	}
	// The folder is this user's alone, so nobody gets in before this.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, ErrAdmin.Because(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if err := healthy(r.Context()); err != nil {
			status, body := refusal.HTTP(err)
			if status < 500 {
				status = http.StatusServiceUnavailable
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write(body)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	for _, add := range more {
		add(mux)
	}
	return newServer(l, mux, log), nil
}

// AdminClient speaks to the admin socket of a data folder. The host of the URLs
// it is given does not matter.
func AdminClient(dir string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(dir, AdminSocket))
		},
		DisableKeepAlives: true,
	}}
}
