package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
)

// What the pages refuse besides what the controller does.
var (
	ErrForeign = refusal.NewKind("console-foreign", 403,
		"The request comes from another web page, or the browser does not say from which.",
		"Open the page here, and press its button here.")
	ErrLink = refusal.NewKind("console-link", 404,
		"This is no login link: its code is cut or changed.",
		"Copy the whole link, or ask for a new one.")
	ErrLogin = refusal.NewKind("console-login", 401,
		"You are not logged in.",
		"Open a login link. An administrator of the installation makes one; on the controller's machine you can make one yourself.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The controller's pages", Kinds: []*refusal.Kind{ErrForeign, ErrLink, ErrLogin}}

// LoginPath is where login links lead: this path with the code behind it.
const LoginPath = "/login/"

// Cookie is the name of the session's cookie. Its prefix lets browsers take it over
// TLS only, for this host and all its paths (RFC 6265bis).
const Cookie = "__Host-allod"

// Controller is who the pages ask.
type Controller interface {
	// Login uses a login link up and returns the token of its operator, and when that
	// ends. Its error is a refusal.
	Login(ctx context.Context, code zone.Secret) (jwt zone.Secret, ends time.Time, err error)
	// Nodes lists the nodes that the owner of a token may see. Its error is a refusal,
	// of status 401 where the token counts no more.
	Nodes(ctx context.Context, jwt zone.Secret) ([]NodeLine, error)
}

// NodeLine is a node on the page.
type NodeLine struct {
	ID, Hostname, Cluster string
	State                 string        // in words, as in "online"
	Seen                  bool          // whether it ever reported
	Age                   time.Duration // since it did
}

// MaxNodes is how many nodes the page shows. It says how many more there are.
const MaxNodes = 256

// Config is what [New] needs.
type Config struct {
	Controller Controller
	Clock      func() time.Time
	Logger     *slog.Logger // hears of failures; nil means nobody
}

type handler struct {
	Config
	foreign *http.CrossOriginProtection
}

// New serves the pages.
func New(c Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{c, http.NewCrossOriginProtection()}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(w http.ResponseWriter, r *http.Request) (page, error){
		"GET " + LoginPath + "{code}":  h.ask,
		"POST " + LoginPath + "{code}": h.login,
		"GET /{$}":                     h.nodes,
		"POST /logout":                 h.logout,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			p, err := serve(w, r)
			if err != nil {
				p = h.refused(r.Context(), err)
			}
			h.write(w, r, p)
		})
	}
	return mux
}

// ask shows the button. It does not look the code up.
func (h *handler) ask(_ http.ResponseWriter, r *http.Request) (page, error) {
	if _, ok := admin.ReadLoginCode(r.PathValue("code")); !ok {
		return page{}, ErrLink
	}
	return page{status: http.StatusOK, Title: "Log in to Allod", Ask: true}, nil
}

func (h *handler) login(w http.ResponseWriter, r *http.Request) (page, error) {
	if err := h.own(r); err != nil {
		return page{}, err
	}
	code, ok := admin.ReadLoginCode(r.PathValue("code"))
	if !ok {
		return page{}, ErrLink
	}
	jwt, ends, err := h.Controller.Login(r.Context(), code)
	if err != nil {
		return page{}, err
	}
	left := int(ends.Sub(h.Clock()) / time.Second)
	http.SetCookie(w, cookie(jwt.Reveal(), max(left, 1)))
	return page{status: http.StatusSeeOther, location: "/"}, nil
}

// cookie is the session's cookie, for so many seconds; -1 takes it away.
func cookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: Cookie, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// own returns ErrForeign unless the browser says that a page of this host sends the
// request. Every browser says so of a form, in one of two headers.
func (h *handler) own(r *http.Request) error {
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" || h.foreign.Check(r) != nil {
		return ErrForeign
	}
	return nil
}

func (h *handler) nodes(w http.ResponseWriter, r *http.Request) (page, error) {
	c, err := r.Cookie(Cookie)
	if err != nil || c.Value == "" || len(c.Value) > zone.MaxToken {
		return page{}, ErrLogin
	}
	list, err := h.Controller.Nodes(r.Context(), zone.Conceal(c.Value))
	if err != nil {
		if refusal.From(err).Kind().Status() == http.StatusUnauthorized {
			http.SetCookie(w, cookie("", -1))
		}
		return page{}, err
	}
	p := page{status: http.StatusOK, Title: "Nodes", In: true, More: max(0, len(list)-MaxNodes)}
	for _, n := range list[:len(list)-p.More] {
		p.Nodes = append(p.Nodes, line{
			ID: shown(n.ID), Hostname: shown(n.Hostname), Cluster: shown(n.Cluster), State: shown(n.State), Age: age(n),
		})
	}
	return p, nil
}

func (h *handler) logout(w http.ResponseWriter, r *http.Request) (page, error) {
	if err := h.own(r); err != nil {
		return page{}, err
	}
	http.SetCookie(w, cookie("", -1))
	return page{status: http.StatusSeeOther, location: "/"}, nil
}

// refused is the page of an error. It repeats nothing that was sent.
func (h *handler) refused(ctx context.Context, err error) page {
	e := refusal.From(err)
	if e.Kind().Status() >= http.StatusInternalServerError && ctx.Err() == nil {
		h.Logger.ErrorContext(ctx, "a page of the console failed", "error", e)
	}
	p := page{status: e.Kind().Status(), Title: "This did not work", Problem: e.Kind().Meaning(), Text: e.Kind().WayOut(), retry: e.RetrySeconds()}
	if errors.Is(err, ErrLogin) {
		// A browser sends no cookie with what another site links to, but with what this
		// page links to.
		p.Title, p.Again = "Log in first", true
	}
	return p
}

// write sends a page. No cache keeps it, no frame shows it, and it loads nothing.
func (h *handler) write(w http.ResponseWriter, r *http.Request, p page) {
	var body bytes.Buffer
	if p.location != "" {
		p.Title = "Go on"
	}
	if err := pages.Execute(&body, p); err != nil {
		h.Logger.ErrorContext(r.Context(), "a page of the console could not be written", "error", refusal.From(err))
		http.Error(w, refusal.Internal.Meaning(), http.StatusInternalServerError)
		return
	}
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Length", strconv.Itoa(body.Len()))
	head.Set("Content-Security-Policy", policy)
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	// A link's address is a secret. Elsewhere a form needs to say where it comes from
	// to browsers of old, which it does not under no-referrer.
	head.Set("Referrer-Policy", "same-origin")
	if strings.HasPrefix(r.URL.Path, LoginPath) {
		head.Set("Referrer-Policy", "no-referrer")
	}
	if p.location != "" {
		head.Set("Location", p.location)
	}
	if p.retry > 0 {
		head.Set("Retry-After", strconv.FormatInt(p.retry, 10))
	}
	w.WriteHeader(p.status)
	_, _ = io.Copy(w, &body)
}
