package bench

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

const (
	// few is what part of the backlog waits at the site that has little of it.
	few = 100
	// fillers is how many jobs are stored at once, so that they share commits.
	fillers = 64
	// fillTTL is longer than any run.
	fillTTL = 24 * time.Hour
)

// full is a site at which jobs wait, with a device that claims there.
type full struct {
	device *device
	times  []time.Duration
}

// backlog times claims at two sites that differ by how many jobs wait there, in
// turns, so that whatever else the machine does meets both. What is claimed is
// given back, which is not timed.
func (b *bench) backlog(ctx context.Context) error {
	counts := [2]int{b.Backlog / few, b.Backlog}
	var sites [2]full
	for i, n := range counts {
		name := [2]string{"few", "many"}[i]
		if err := b.fill(ctx, b.path(name), n); err != nil {
			return err
		}
		s, err := b.start(ctx, name)
		if err != nil {
			return err
		}
		defer s.stop()
		devices, err := b.pair(ctx, s, 1)
		if err != nil {
			return err
		}
		defer closeAll(devices)
		sites[i].device = devices[0]
	}
	count, ended := b.phase("claiming with a backlog", b.Samples)
	defer ended()
	for i := range warm + b.Samples {
		for turn := range sites {
			at := &sites[(i+turn)%2] // neither is always the first
			took, err := b.claimAndRelease(ctx, at.device)
			if err != nil {
				return err
			}
			if i >= warm {
				at.times = append(at.times, took)
			}
		}
		if i >= warm {
			count()
		}
	}
	r := Backlog{
		Few: counts[0], Many: counts[1],
		FewMs: ms(percentile(sites[0].times, 0.5)), ManyMs: ms(percentile(sites[1].times, 0.5)),
	}
	r.Slowdown = r.ManyMs / r.FewMs
	b.report.Backlog = r
	return nil
}

// claimAndRelease times one claim.
func (b *bench) claimAndRelease(ctx context.Context, d *device) (time.Duration, error) {
	begun := b.Clock()
	jobs, err := d.claim(ctx, 0)
	took := b.Clock().Sub(begun)
	switch {
	case err != nil:
		return 0, err
	case len(jobs) != claimed:
		return 0, ErrAnswer.With("A claim did not get as many jobs as it may, though enough wait.")
	}
	grants := make([]ai.Grant, len(jobs))
	for i, j := range jobs {
		grants[i] = ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID}
	}
	back, err := d.Release(ctx, ai.ReleasePause, grants)
	if err == nil && len(back.Released) != len(grants) {
		err = ErrAnswer.With("A grant could not be given back.")
	}
	return took, err
}

// fill makes a site's folder with n jobs that wait. They are written into the
// store while no site runs, since asking for each would take longer than
// everything else. Nobody opens them, so all hold one sealed payload.
func (b *bench) fill(ctx context.Context, folder string, n int) error {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return ErrFolder.Because(err)
	}
	payload, err := b.sealed()
	if err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(folder, sqlite.DatabaseFile), Clock: b.Clock})
	if err != nil {
		return err
	}
	count, ended := b.phase("storing a backlog", n)
	defer ended()
	err = together(ctx, fillers, func(ctx context.Context, filler int) error {
		for i := filler; i < n; i += fillers {
			_, _, err := store.Jobs().Enqueue(ctx, site.NewJob{
				ID: ai.JobID("waits-" + strconv.Itoa(i)), Kind: ai.KindGenerate, Owner: owner, Audience: ai.AudienceSelf,
				SizeClass: ai.SizeClassOf(textSize), Payload: payload, TTL: fillTTL, Now: ai.MillisOf(b.Clock()),
			})
			if err != nil {
				return err
			}
			count()
		}
		return nil
	})
	if closed := store.Close(); err == nil {
		err = closed
	}
	return err
}

// sealed is the question as a site keeps it.
func (b *bench) sealed() (ai.SealedEnvelope, error) {
	keys, err := key.NewKeys[key.SiteRole](b.Rand, b.Clock())
	if err != nil {
		return ai.SealedEnvelope{}, err
	}
	plain, err := protocol.Latest().WritePayload(ai.Generate{Prompt: question})
	if err != nil {
		return ai.SealedEnvelope{}, err
	}
	return envelope.Seal(b.Rand, keys.Signer(), keys.Identity(), envelope.Letter{
		JobID: "waits", Direction: ai.DirectionPayload, Plaintext: string(plain),
		DeadlineAt: ai.MillisOf(b.Clock().Add(envelope.MaxAge)),
	})
}
