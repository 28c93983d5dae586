package bench

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/protocol"
)

const (
	// claimed is how many jobs a device asks for at once. The costs of a job's
	// cryptography count with it.
	claimed = 4
	// model is what devices say they run.
	model = "bench"
	// version is what devices say they are.
	version = "bench"
)

// offer is the one thing that devices offer, to their owner only.
var offer = []ai.Capability{{
	Kind: ai.KindGenerate, Service: "bench", BackendID: backend.Generic, BackendClass: backend.HTTP, Model: model, OfferScope: ai.OfferSelf,
}}

// device is a paired device: its keys, and the site that it has pinned.
type device struct {
	*client.Device
	keys  key.DeviceKeys
	sites map[ai.KeyID]key.Site
	rand  io.Reader
	now   func() time.Time
	codec ai.Codec
}

// pair pairs n devices with a site, each with keys and connections of its own.
func (b *bench) pair(ctx context.Context, s *process, n int) ([]*device, error) {
	at, err := s.server()
	if err != nil {
		return nil, err
	}
	list := make([]*device, 0, n)
	for i := range n {
		d, err := b.pairOne(ctx, at, s.app, fmt.Sprintf("bench %d", i+1))
		if err != nil {
			closeAll(list)
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

func (b *bench) pairOne(ctx context.Context, at client.Server, a *app, label string) (_ *device, err error) {
	keys, err := key.NewKeys[key.DeviceRole](b.Rand, b.Clock())
	if err != nil {
		return nil, err
	}
	c := client.New(client.Config{Server: at, Version: version, Clock: b.Clock})
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	started, err := c.PairStart(ctx, ai.PairStartRequest{
		Daemon: ai.Daemon{Version: version, Label: label, Platform: ai.PlatformLinux},
		Device: ai.PublicIdentityOf(keys.Identity()), Capabilities: offer,
	})
	if err != nil {
		return nil, err
	}
	if err := a.approve(ctx, started.UserCode); err != nil {
		return nil, err
	}
	got, err := c.PairPoll(ctx, ai.PairPollRequest{DeviceCode: started.DeviceCode})
	switch {
	case err != nil:
		return nil, err
	case got.Approved == nil:
		return nil, ErrAnswer.With("An approved device was not paired.")
	}
	d := &device{
		Device: c.As(got.Approved.RunnerID, keys.Signer()), keys: keys, sites: map[ai.KeyID]key.Site{},
		rand: b.Rand, now: b.Clock, codec: protocol.Latest(),
	}
	for id, public := range got.Approved.Sites {
		if d.sites[id], err = public.Site(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func closeAll(list []*device) {
	for _, d := range list {
		d.Close()
	}
}

// claim asks for as many jobs as a device takes at once.
func (d *device) claim(ctx context.Context, wait time.Duration) ([]ai.ClaimedStub, error) {
	got, err := d.Claim(ctx, wait, ai.ClaimRequest{Capabilities: offer, Max: claimed})
	return got.Jobs, err
}

// work does one job as an agent does, but for the model: fetch, open, compare
// with what the site signed, read, seal the answer, return it.
func (d *device) work(ctx context.Context, job ai.ClaimedStub) error {
	site, known := d.sites[job.Site]
	if !known {
		return ErrAnswer.With("A job is of another site.")
	}
	grant := ai.Grant{JobID: job.ID, LeaseID: job.Lease.ID}
	got, err := d.Fetch(ctx, grant)
	if err != nil {
		return err
	}
	opened, err := envelope.Open(d.keys.Opener(), site.Signing(), got.Envelope, envelope.Context{
		JobID: job.ID, Direction: ai.DirectionPayload,
		Sender: site.Fingerprint(), Recipient: d.keys.Identity().Fingerprint(),
	})
	if err != nil {
		return err
	}
	if opened.Reach == nil {
		return ErrAnswer.With("A job does not say inside what it may reach.")
	}
	if err := opened.Reach.Check(job.Stub); err != nil {
		return err
	}
	if _, err := d.codec.ReadPayload(job.Kind, []byte(opened.Plaintext)); err != nil {
		return err
	}
	outcome, err := d.codec.Outcome.Write(ai.SealedOutcome{
		Outcome: ai.Answer{Text: answer}, Ran: ai.RunMetadata{Model: model, BackendClass: backend.HTTP},
	})
	if err != nil {
		return err
	}
	sealed, err := envelope.Seal(d.rand, d.keys.Signer(), site, envelope.Letter{
		JobID: job.ID, Direction: ai.DirectionResult, Plaintext: string(outcome),
		DeadlineAt: ai.MillisOf(d.now().Add(envelope.MaxAge)),
	})
	if err != nil {
		return err
	}
	done, err := d.Result(ctx, ai.ResultRequest{Grant: grant, Envelope: sealed, Disposition: ai.DispositionOK})
	if err == nil && !done.Accepted {
		err = ErrAnswer.With("A result was not accepted.")
	}
	return err
}

// drain lets all devices claim until nothing is left. The jobs of one claim are
// worked on at once, as they would be where models answer at different speeds.
func (b *bench) drain(ctx context.Context, devices []*device) error {
	count, ended := b.phase("claiming and answering", b.Jobs)
	defer ended()
	var mu sync.Mutex
	var done int
	begun := b.Clock()
	last := begun
	err := together(ctx, len(devices), func(ctx context.Context, i int) error {
		for {
			jobs, err := devices[i].claim(ctx, 0)
			if err != nil || len(jobs) == 0 {
				return err
			}
			err = together(ctx, len(jobs), func(ctx context.Context, j int) error {
				if err := devices[i].work(ctx, jobs[j]); err != nil {
					return err
				}
				count()
				mu.Lock()
				defer mu.Unlock()
				done, last = done+1, b.Clock()
				return nil
			})
			if err != nil {
				return err
			}
		}
	})
	switch {
	case err != nil:
		return err
	case done != b.Jobs:
		return ErrAnswer.With("Not every job came to a device.")
	}
	b.report.ClaimToResult.JobsPerSecond = rate(done, last.Sub(begun))
	return nil
}
