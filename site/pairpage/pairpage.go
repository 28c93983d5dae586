package pairpage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// What the page refuses besides what the site does.
var (
	ErrForm = refusal.NewKind("pairing-form", 400,
		"This is not what the form on the page sends.",
		"Open the page again and send the form from there.")
	ErrNobody = refusal.NewKind("pairing-nobody", 403,
		"Nobody is known on this page, so nothing can be approved or refused on it.",
		"Sign in to the app and decide there, or open the link that the app gives you.")
	ErrForeign = refusal.NewKind("pairing-foreign", 403,
		"The request comes from another web page, by another name than this machine's own, or through a proxy.",
		"Open the page on this machine by its loopback address, as in http://127.0.0.1:8080/pair, and decide there.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The pairing page", Kinds: []*refusal.Kind{ErrForm, ErrNobody, ErrForeign}}

// Path is where the page is mounted: this path and all below it.
const Path = "/pair"

// Config says how the page works. The zero value approves through links only.
type Config struct {
	// Owner decides on Path without a link; empty means that nobody does. Whoever
	// reaches the listener can then approve in the owner's name. So it must listen
	// on loopback, without a proxy before it; the page refuses other web pages,
	// every name that is not a loopback one, and what shows that a proxy sent it. A
	// proxy that shows nothing of itself cannot be told from this machine.
	Owner ai.Owner
	// Clock tells how much time is left; nil means time.Now.
	Clock func() time.Time
	// Logger hears of failures; nil means nobody.
	Logger *slog.Logger
}

type handler struct {
	Config
	devices *site.Devices
	foreign *http.CrossOriginProtection
}

// NewHandler serves the page of a site, whose Config.VerificationURL ends in
// [Path].
func NewHandler(s *site.Site, c Config) http.Handler {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{Config: c, devices: s.Devices, foreign: http.NewCrossOriginProtection()}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(r *http.Request) (page, error){
		"GET " + Path:                 h.start,
		"POST " + Path:                h.decide,
		"GET " + Path + "/l/{token}":  h.open,
		"POST " + Path + "/l/{token}": h.decide,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxForm)
			p, err := serve(r)
			if err != nil {
				p = h.refused(r.Context(), err)
			}
			h.write(w, r, p)
		})
	}
	return mux
}

// maxForm bounds what a form sends, in bytes. A code is the longest thing in it.
const maxForm = 4 << 10

// who decides here, and by what.
type who struct {
	token string    // of the link; empty without one
	link  site.Link // zero without one
	owner ai.Owner  // empty where nobody is known
}

// known finds out who decides here. It returns site.ErrNoLink and [ErrForeign].
func (h *handler) known(r *http.Request) (who, error) {
	if token := r.PathValue("token"); token != "" {
		// The token is known to nobody else, so no other page can send it.
		l, err := h.devices.FindLink(r.Context(), token)
		return who{token, l, l.Owner}, err
	}
	if h.Owner != "" && (!Loopback(r.Host) || forwarded(r) || otherOrigin(r) || h.foreign.Check(r) != nil) {
		return who{}, ErrForeign
	}
	return who{owner: h.Owner}, nil
}

// Loopback reports whether a Host header names this machine itself: localhost or a
// loopback address. A page of a stranger whose name leads to this machine sends
// that name (DNS rebinding).
func Loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// forwarded reports whether a request shows a proxy, which could carry it from
// anywhere: by what proxies add, or by HTTP/1.0, which no browser speaks and which
// nginx speaks unless told otherwise, adding nothing.
func forwarded(r *http.Request) bool {
	if !r.ProtoAtLeast(1, 1) {
		return true
	}
	for name := range r.Header {
		switch name = http.CanonicalHeaderKey(name); {
		case strings.HasPrefix(name, "X-Forwarded-"):
			return true
		case slices.Contains([]string{"Forwarded", "Via", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip"}, name):
			return true
		}
	}
	return false
}

// otherOrigin reports whether a browser says that the request is of a page with
// another host than the one that it was sent to. Behind a proxy that puts its own
// target into Host, the two differ for the page itself.
func otherOrigin(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host != r.Host {
			return true
		}
	}
	return false
}

// typable is what a code in an address may be, to stand in the form.
var typable = regexp.MustCompile(`^[A-Za-z0-9 -]{1,32}$`)

// start shows the form for a code. Nothing is looked for: what somebody was sent
// must not open a device that they did not ask for.
func (h *handler) start(r *http.Request) (page, error) {
	w, err := h.known(r)
	if err != nil {
		return page{}, err
	}
	p := h.form(w)
	if code := r.URL.Query().Get("code"); typable.MatchString(code) {
		p.Code = code
	}
	return p, nil
}

// open shows a link's device, or the form for its code.
func (h *handler) open(r *http.Request) (page, error) {
	w, err := h.known(r)
	if err != nil || w.link.UserCode == "" {
		return h.form(w), err
	}
	return h.look(r, w, "")
}

// What a form asks for.
const (
	look    = "look"
	approve = "approve"
	deny    = "deny"
)

// read reads what a form sends: what to do, and a code unless the link has one.
func read(r *http.Request, w who) (do, code string, err error) {
	if err := r.ParseForm(); err != nil {
		return "", "", ErrForm
	}
	for name, values := range r.PostForm {
		switch {
		case len(values) != 1:
			return "", "", ErrForm
		case name == "do":
			do = values[0]
		case name == "code" && w.link.UserCode == "":
			code = values[0]
		default:
			return "", "", ErrForm
		}
	}
	if do != look && do != approve && do != deny {
		return "", "", ErrForm
	}
	return do, code, nil
}

// decide does what a form asks for.
func (h *handler) decide(r *http.Request) (page, error) {
	w, err := h.known(r)
	if err != nil {
		return page{}, err
	}
	do, code, err := read(r, w)
	if err != nil {
		return page{}, err
	}
	if do != look && w.owner == "" {
		return page{}, ErrNobody
	}
	if w.link.UserCode == "" {
		if err := h.devices.Typed(r); err != nil {
			return page{}, err
		}
	}
	switch do {
	case approve:
		return h.approve(r, w, code)
	case deny:
		return h.deny(r, w, code)
	}
	return h.look(r, w, code)
}

func (h *handler) look(r *http.Request, w who, code string) (page, error) {
	var p site.Pairing
	var err error
	if w.token != "" {
		p, err = h.devices.PendingByLink(r.Context(), w.token, code)
	} else {
		p, err = h.devices.Pending(r.Context(), code)
	}
	if err != nil {
		return h.missed(r, w, err)
	}
	return h.device(w, p), nil
}

func (h *handler) approve(r *http.Request, w who, code string) (page, error) {
	var runner site.Runner
	var err error
	if w.token != "" {
		runner, err = h.devices.ApproveByLink(r.Context(), w.token, code)
	} else {
		runner, err = h.devices.Approve(r.Context(), code, w.owner)
	}
	if err != nil {
		return h.missed(r, w, err)
	}
	return approved(runner), nil
}

func (h *handler) deny(r *http.Request, w who, code string) (page, error) {
	var err error
	if w.token != "" {
		err = h.devices.DenyByLink(r.Context(), w.token, code)
	} else {
		err = h.devices.Deny(r.Context(), code)
	}
	if err != nil {
		return h.missed(r, w, err)
	}
	return denied(), nil
}

// missed says that no device waits, and lets the person try again where they
// typed the code.
func (h *handler) missed(r *http.Request, w who, err error) (page, error) {
	if !errors.Is(err, site.ErrNoPairing) || w.link.UserCode != "" {
		return page{}, err
	}
	if w.token != "" {
		// The last of too many wrong codes has ended the link.
		if w.link, err = h.devices.FindLink(r.Context(), w.token); err != nil {
			return page{}, err
		}
	}
	p := h.form(w)
	p.status, p.Problem = http.StatusNotFound, "No device waits under this code. Read it on the device again, or start pairing anew there."
	if left := site.MaxLinkMisses - w.link.Misses; left <= 3 { // without a link nothing is missed
		p.Problem += " This link takes " + count(left, "more code") + "."
	}
	return p, nil
}

// refused is the page of an error, which repeats nothing that was sent.
func (h *handler) refused(ctx context.Context, err error) page {
	e := refusal.From(err)
	if e.Kind().Status() >= http.StatusInternalServerError && ctx.Err() == nil {
		h.Logger.ErrorContext(ctx, "the pairing page failed", "error", e)
	}
	p := page{status: e.Kind().Status(), Title: "This did not work", Problem: e.Kind().Meaning(), Text: e.Kind().WayOut()}
	switch {
	case errors.Is(err, site.ErrNoLink):
		p.Title = "This link no longer works"
	case errors.Is(err, site.ErrNoPairing):
		p.Title, p.Problem = "The device no longer waits", "The code has ended, or was decided already."
		p.Text = "Start pairing anew on the device, and ask the app for a new link."
	case errors.Is(err, ai.ErrRateLimited):
		p.Title, p.retry = "Too many codes", e.RetrySeconds()
		p.Problem = "Too many codes came from your address in a short time."
		p.Text = "Wait for " + count(max(int(p.retry), 1), "second") + ", and type the code again."
	}
	return p
}

// write sends a page. No cache keeps it, no frame shows it, and it loads nothing.
func (h *handler) write(w http.ResponseWriter, r *http.Request, p page) {
	var body bytes.Buffer
	if err := pages.Execute(&body, p); err != nil {
		h.Logger.ErrorContext(r.Context(), "the pairing page could not be written", "error", refusal.From(err))
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
	// A link's address is a secret. Elsewhere the page's own forms need to say where
	// they come from, which they do not under no-referrer.
	head.Set("Referrer-Policy", "same-origin")
	if r.PathValue("token") != "" {
		head.Set("Referrer-Policy", "no-referrer")
	}
	if p.retry > 0 {
		head.Set("Retry-After", strconv.FormatInt(p.retry, 10))
	}
	w.WriteHeader(p.status)
	_, _ = io.Copy(w, &body)
}
