package runner

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What pairing is refused with, besides what the server refuses.
var (
	ErrOtherOrigin = refusal.NewKind("verification-origin", 403,
		"The site sends you to another site to approve this machine, which could be anybody's.",
		"If you know that other site and trust it, name it with --verification-origin.")
	ErrDenied = refusal.NewKind("pairing-denied", 403,
		"Somebody who is signed in to the app denied this machine.",
		"If that was not meant, pair again.")
	ErrCodeExpired = refusal.NewKind("pairing-expired", 404,
		"The code was not approved in time, or another pairing took its place.",
		"Pair again and approve the code within its time.")
	ErrRelay = refusal.NewKind("pairing-relay", 501,
		"The server hands on work of other sites, for which it named a key that signs each job. This program does not take such work yet.",
		"Nothing was paired. Connect to a site itself; allod gets the lane over relays in a later version.")
	ErrSites = refusal.NewKind("pairing-sites", 502,
		"The site approved the machine but gave no key that could be trusted: none, or one that does not fit its own name.",
		"Nothing was paired. Tell whoever runs the site.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The model agent", Kinds: []*refusal.Kind{
	ErrNoPairings, ErrNoModel, ErrKeyUnset, ErrUnrouted, ErrUnproven, ErrModelGone, ErrNoBackend, ErrPast, ErrUnsignedReach, ErrResealed,
	ErrOtherOrigin, ErrDenied, ErrCodeExpired, ErrRelay, ErrSites, ErrNotOffered, ErrMoved,
}}

// Code is what a person needs to approve the machine.
type Code struct {
	// URL is where to go, and Code what to type there.
	URL, Code string
	// Fingerprint is this machine's; the app shows the same one.
	Fingerprint key.Fingerprint
	// For is how long the code lasts.
	For time.Duration
}

// Pairing says who pairs with whom.
type Pairing struct {
	Server client.Server
	Keys   key.DeviceKeys
	// Offers are shown to the person who approves.
	Offers []ai.Capability
	// Version is this program's own version.
	Version string
	// Name is the machine's, 1 to 120 characters.
	Name string
	// Origin is the one other origin that may approve, as --verification-origin
	// names it; zero means the server's own only.
	Origin client.Server
	// Show shows the code to the person, once.
	Show func(Code)
	// Clock is time.Now where it is nil.
	Clock func() time.Time
	// Transport carries requests instead of the network, for tests.
	Transport http.RoundTripper
}

// DefaultName is a machine's name where its owner chose none: user@host.
func DefaultName() string {
	name := "allod"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name += "@" + host
	}
	if name = trimmed(name); home.CheckLabel(name) != nil {
		return "allod"
	}
	return name
}

// longestPairing bounds how long a pairing is waited for.
const longestPairing = time.Hour

// Pair asks a server for a code, shows it, and waits for a person to decide. The
// caller records what it returns with [Agent.Adopt]. It returns the client's
// errors, [ErrOtherOrigin], [ErrDenied], [ErrCodeExpired], [ErrRelay] and [ErrSites].
func Pair(ctx context.Context, p Pairing) (home.Pairing, error) {
	if p.Clock == nil {
		p.Clock = time.Now
	}
	c := client.New(client.Config{Server: p.Server, Version: p.Version, Clock: p.Clock, Transport: p.Transport})
	defer c.Close()
	started, err := c.PairStart(ctx, ai.PairStartRequest{
		Daemon:       ai.Daemon{Version: p.Version, Label: p.Name, Platform: platform()},
		Device:       ai.PublicIdentityOf(p.Keys.Identity()),
		Capabilities: p.Offers,
	})
	if err != nil {
		return home.Pairing{}, err
	}
	page, err := pageOf(started.VerificationURL, p)
	if err != nil {
		return home.Pairing{}, err
	}
	if !plainCode(started.UserCode) {
		return home.Pairing{}, client.ErrAnswer.With("Its code is not made of letters and digits.")
	}
	left := started.ExpiresAt.Time().Sub(p.Clock())
	p.Show(Code{URL: page.URL, Code: started.UserCode, Fingerprint: p.Keys.Identity().Fingerprint(), For: left})
	// The server's clock says when the code ends; ours only bounds the wait, and may
	// be far off.
	ctx, cancel := context.WithTimeout(ctx, min(max(left, time.Minute), longestPairing)+time.Minute)
	defer cancel()
	approval, err := poll(ctx, c, started)
	if err != nil {
		return home.Pairing{}, err
	}
	killpoint.At(killpoint.AgentPaired)
	if max(ai.TextUnits(string(approval.RunnerID)), ai.TextUnits(string(approval.Owner)), ai.TextUnits(approval.OwnerLabel)) > lane.MaxID || len(approval.Sites) > home.MaxSites {
		return home.Pairing{}, client.ErrAnswer.With("It names the person or the machine at more length than any honest site.")
	}
	if approval.ControlPlane != "" {
		return home.Pairing{}, ErrRelay
	}
	sites := map[ai.KeyID]home.Site{}
	for id, public := range approval.Sites {
		site, err := public.Site()
		if err != nil || site.Fingerprint().String() != string(id) {
			return home.Pairing{}, ErrSites.Because(err)
		}
		sites[id] = home.Site{Identity: site}
	}
	if len(sites) == 0 {
		return home.Pairing{}, ErrSites
	}
	return home.Pairing{
		Server: p.Server.String(), RunnerID: approval.RunnerID, Owner: approval.Owner, OwnerLabel: approval.OwnerLabel,
		Sites: sites, PairedAt: ai.MillisOf(p.Clock()), Protocol: home.Protocol(c.Spoken()),
	}, nil
}

// pageOf reads where a person approves. It is the server's own site, or the one
// that the owner named.
func pageOf(text string, p Pairing) (client.Page, error) {
	page, err := client.ParsePage(text)
	if err != nil {
		return client.Page{}, err
	}
	if page.SameSite(p.Server) || p.Origin != (client.Server{}) && page.SameSite(p.Origin) {
		return page, nil
	}
	return client.Page{}, ErrOtherOrigin.With("The site is " + p.Server.Origin() + ", and it sends you to " + page.Origin + ".")
}

// plainCode reports whether a code is one that a person can type, and cannot
// write anything else on the screen that the fingerprint stands on.
func plainCode(code string) bool {
	return !strings.ContainsFunc(code, func(r rune) bool {
		return !(r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
	})
}

func poll(ctx context.Context, c *client.Client, started ai.PairStartResponse) (ai.PairApproval, error) {
	interval := time.Duration(started.PollIntervalMs) * time.Millisecond
	for {
		wait := interval
		got, err := c.PairPoll(ctx, ai.PairPollRequest{DeviceCode: started.DeviceCode})
		again, after := client.Retry(err)
		switch {
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
			return ai.PairApproval{}, ErrCodeExpired
		case ctx.Err() != nil:
			return ai.PairApproval{}, context.Cause(ctx)
		case errors.Is(err, ai.ErrNotFound):
			return ai.PairApproval{}, ErrCodeExpired
		case err != nil && !again:
			return ai.PairApproval{}, err
		case err != nil:
			wait = max(wait, after)
		case got.Status == ai.PairDenied:
			return ai.PairApproval{}, ErrDenied
		case got.Status == ai.PairExpired:
			return ai.PairApproval{}, ErrCodeExpired
		case got.Status == ai.PairApproved:
			return *got.Approved, nil
		}
		if !pause(ctx, wait) {
			continue // the next turn says why
		}
	}
}

// platform is this system as pairing names it.
func platform() ai.Platform {
	p := ai.Platform(runtime.GOOS)
	switch {
	case runtime.GOOS == "windows":
		return ai.PlatformWin32
	case slices.Contains(ai.Platforms(), p):
		return p
	}
	return ai.PlatformLinux // as other agents do
}
