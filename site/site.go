package site

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"crypto/rand"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// ErrConfig refuses a configuration that cannot work.
var ErrConfig = refusal.NewKind("site-config", 400,
	"The site's configuration cannot work.",
	"Change the setting that is named, and start again.")

// Config says how a site works. Store and Keys are required; every other field
// has a default that fits most sites.
type Config struct {
	// Store keeps what must not be forgotten.
	Store Store
	// CloseStore makes Close close the store too.
	CloseStore bool
	// Keys are the site's private keys. New material is sealed to the first; the
	// others still open what was sealed to them. See docs/site-keys.md.
	Keys []key.SiteKeys
	// VerificationURL is where a person approves a device, an absolute http or
	// https URL on the site's own origin. It is required for pairing only.
	VerificationURL string
	// MountPath is where the handler is mounted; empty means ai.PathPrefix. It
	// begins with a slash.
	MountPath string

	// Lease is how long a grant lasts unless renewed; zero means a minute.
	Lease time.Duration
	// TTL is how long a job may wait once it is claimable; zero means 15 minutes.
	TTL time.Duration
	// PairTTL is how long a pairing code lasts; zero means 10 minutes.
	PairTTL time.Duration
	// PollInterval is how long a device waits between polls; zero means two
	// seconds. It is 500 ms to a minute.
	PollInterval time.Duration
	// Liveness is how long after its last heartbeat a device counts as there;
	// zero means 35 seconds.
	Liveness time.Duration
	// Quota is how many unfinished jobs one owner may have; zero means any
	// number.
	Quota int
	// KeepContent and KeepJobs are how long the sealed content and the rows of
	// finished jobs are kept; zero means a day and 30 days.
	KeepContent, KeepJobs time.Duration

	// NoLimits turns the limits on requests per address off, for tests.
	NoLimits bool
	// TrustedProxies may name the caller's address in X-Forwarded-For.
	TrustedProxies []netip.Prefix

	// Clock, Rand and Logger are time.Now, crypto/rand and nobody where unset.
	Clock  func() time.Time
	Rand   io.Reader
	Logger *slog.Logger
}

func (c *Config) complete() error {
	bad := func(what string) error { return ErrConfig.With("The setting " + what + ".") }
	if c.Store == nil || len(c.Keys) == 0 {
		return bad("Store or Keys is missing")
	}
	for _, k := range c.Keys {
		if k.IsZero() {
			return bad("Keys holds no key")
		}
	}
	for _, d := range []struct {
		value   *time.Duration
		initial time.Duration
		name    string
	}{
		{&c.Lease, time.Minute, "Lease"}, {&c.TTL, 15 * time.Minute, "TTL"}, {&c.PairTTL, 10 * time.Minute, "PairTTL"},
		{&c.PollInterval, 2 * time.Second, "PollInterval"}, {&c.Liveness, 35 * time.Second, "Liveness"},
		{&c.KeepContent, 24 * time.Hour, "KeepContent"}, {&c.KeepJobs, 30 * 24 * time.Hour, "KeepJobs"},
	} {
		if *d.value == 0 {
			*d.value = d.initial
		}
		if *d.value < time.Millisecond {
			return bad(d.name + " is not a positive time")
		}
	}
	if ms := c.PollInterval.Milliseconds(); ms < ai.MinPollIntervalMs || ms > ai.MaxPollIntervalMs {
		return bad("PollInterval is not half a second to a minute")
	}
	if c.Quota < 0 {
		return bad("Quota is negative")
	}
	if c.VerificationURL != "" {
		if _, err := weburl.ParseWeb(c.VerificationURL); err != nil {
			return bad("VerificationURL is not an absolute http or https URL")
		}
	}
	if c.MountPath == "" {
		c.MountPath = ai.PathPrefix
	}
	if !mountable(c.MountPath) {
		return bad("MountPath is not a plain path that begins with a slash")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Site is a site in use. Its work lies in its parts.
type Site struct {
	// Jobs asks and waits.
	Jobs *Jobs
	// Devices decides pairings and lists and revokes devices.
	Devices *Devices

	handler http.Handler
	core    *core
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// core is what the parts share.
type core struct {
	Config
	vault vault
	jobs  JobStore
	devs  DeviceStore
	// limits are the same for devices and for the people who approve them.
	limits *limits
	// instances are the programs that use the devices' keys.
	instances *instances
	// closing ends when the site closes; held requests end with it.
	closing context.Context
}

func (c *core) now() ai.Millis { return ai.MillisOf(c.Clock()) }

// Open begins a site: it makes the first key the current one of the store's
// ring and starts the sweeps. It returns [ErrConfig] and the store's errors.
func Open(ctx context.Context, config Config) (*Site, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	v, err := openVault(ctx, config)
	if err != nil {
		return nil, err
	}
	closing, stop := context.WithCancel(context.Background())
	c := &core{
		Config: config, vault: v, closing: closing,
		jobs: config.Store.Jobs(), devs: config.Store.Devices(), limits: newLimits(config), instances: newInstances(config.Liveness),
	}
	s := &Site{Jobs: &Jobs{c}, Devices: &Devices{c}, handler: newHandler(c), core: c, stop: stop}
	s.done.Go(func() { keepHouse(closing, c) })
	return s, nil
}

// Handler serves the site's devices. Mount it at Config.MountPath; it answers
// 404 to every other path.
func (s *Site) Handler() http.Handler { return s.handler }

// KeyID is the fingerprint of the site's current key, which devices pin.
func (s *Site) KeyID() key.Fingerprint { return s.core.vault.current.Identity().Fingerprint() }

// Store is what the site keeps things in, for what works beside it, as package
// site/webhook. It must not be used after the site is closed with it.
func (s *Site) Store() Store { return s.core.Store }

// Sweep does at once what the site does by itself every second: it requeues jobs
// whose leases have lapsed and expires what is over.
func (s *Site) Sweep(ctx context.Context) error { return s.core.sweep(ctx) }

// Close ends held requests and the sweeps, and the store where Config says so.
// It returns the store's error.
func (s *Site) Close() error {
	s.stop()
	s.done.Wait()
	if s.core.CloseStore {
		return s.core.Store.Close()
	}
	return nil
}

// keepHouse sweeps lapsed leases and expired jobs every second, and removes what
// retention allows every minute, until ctx ends.
func keepHouse(ctx context.Context, c *core) {
	sweep, purge := time.NewTicker(time.Second), time.NewTicker(time.Minute)
	defer sweep.Stop()
	defer purge.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			err = c.sweep(ctx)
		case <-purge.C:
			err = c.purge(ctx)
		}
		if err != nil && ctx.Err() == nil {
			c.Logger.ErrorContext(ctx, "keeping house failed", "error", refusal.From(err))
		}
	}
}

func (c *core) sweep(ctx context.Context) error {
	for more := true; more; {
		s, err := c.jobs.Sweep(ctx, c.now())
		if err != nil {
			return err
		}
		more = s.More
	}
	return c.devs.SweepPairings(ctx, c.now())
}

func (c *core) purge(ctx context.Context) error {
	c.instances.sweep(c.now())
	for more := true; more; {
		now := c.Clock()
		p, err := c.jobs.Purge(ctx, Purge{
			ContentBefore: ai.MillisOf(now.Add(-c.KeepContent)), RowsBefore: ai.MillisOf(now.Add(-c.KeepJobs)),
		})
		if err != nil {
			return err
		}
		more = p.More
	}
	return c.Store.Links().Sweep(ctx, c.now())
}
