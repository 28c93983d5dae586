package site

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
)

func (h *handler) pair(c *call) ([]byte, error) {
	p, err := c.codec.PairRequest.Read(c.body)
	if err != nil {
		return nil, err
	}
	if p.Start != nil {
		return h.pairStart(c, *p.Start)
	}
	return h.pairPoll(c, *p.Poll)
}

// Bounds of the capabilities that the site keeps for a device that nobody has
// approved yet, in entries and in bytes of JSON.
const (
	maxOffers     = 64
	maxOffersSize = 16 << 10
)

func (h *handler) pairStart(c *call, p ai.PairStartRequest) ([]byte, error) {
	device, err := p.Device.Device()
	if err != nil {
		return nil, err
	}
	if h.c.VerificationURL == "" {
		return nil, ai.ErrForbidden.With("This site pairs no devices: it has no page on which a person could approve one.")
	}
	// The row names each member, so it is no longer than this.
	if kept, err := json.Marshal(p.Capabilities); err != nil || len(p.Capabilities) > maxOffers || len(kept) > maxOffersSize {
		return nil, ai.BadRequest("It offers more than 64 capabilities, or more than 16 KiB of them.")
	}
	if err := h.limits.pairing(c.address, c.now.Time()); err != nil {
		return nil, err
	}
	var secret [32]byte
	if _, err := io.ReadFull(h.c.Rand, secret[:]); err != nil {
		return nil, err
	}
	code := base64.RawURLEncoding.EncodeToString(secret[:])
	n := NewPairing{
		DeviceCode: sha256.Sum256([]byte(code)), Device: device, Daemon: p.Daemon, Capabilities: p.Capabilities,
		Address: c.address, ExpiresAt: c.now + ai.Millis(h.c.PairTTL.Milliseconds()), Now: c.now,
	}
	// Two codes are alike once in 10^11 pairs; another one then does it.
	for range 3 {
		if n.UserCode, err = newUserCode(func(b []byte) error { _, err := io.ReadFull(h.c.Rand, b); return err }); err != nil {
			return nil, err
		}
		if err = h.c.devs.StartPairing(c.r.Context(), n); !errors.Is(err, ErrConflict) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	killpoint.At(killpoint.SitePairStarted)
	return c.codec.PairStartResponse.Write(ai.PairStartResponse{
		DeviceCode: ai.DeviceCode(code), UserCode: n.UserCode, VerificationURL: h.c.VerificationURL,
		ExpiresAt: n.ExpiresAt, PollIntervalMs: h.c.PollInterval.Milliseconds(),
	})
}

func (h *handler) pairPoll(c *call, p ai.PairPollRequest) ([]byte, error) {
	code := sha256.Sum256([]byte(p.DeviceCode))
	got, err := h.c.devs.Poll(c.r.Context(), code, c.now)
	if err != nil {
		return nil, err
	}
	out := ai.PairPollResponse{Status: got.Status}
	switch got.Status {
	case ai.PairPending:
		// Only where nothing has changed, so that a decision is always told.
		if err := h.limits.poll(code, c.now.Time()); err != nil {
			return nil, err
		}
	case ai.PairApproved:
		killpoint.At(killpoint.SitePairCollected)
		out.Approved = &ai.PairApproval{RunnerID: got.Runner.ID, Owner: got.Runner.Owner, Sites: h.sites}
	}
	return c.codec.PairPollResponse.Write(out)
}

func (h *handler) claim(c *call) ([]byte, error) {
	q, err := from(c, c.codec.ClaimRequest, func(q ai.ClaimRequest) ai.RunnerID { return q.RunnerID })
	if err != nil {
		return nil, err
	}
	if err := h.arrived(c); err != nil {
		return nil, err
	}
	order := Claim{
		RunnerID: c.runner.ID, Offers: Offers(q.Capabilities), Audiences: c.codec.Audiences, Max: int(q.Max), Lease: h.c.Lease, Request: c.request(),
	}
	// Ids are drawn before the transaction, which must not wait for randomness.
	ids := make([]ai.LeaseID, q.Max)
	for i := range ids {
		id, err := newID(h.c.Rand, "lease_")
		if err != nil {
			return nil, err
		}
		ids[i] = ai.LeaseID(id)
	}
	var got Claimed
	ask := func(ctx context.Context) (bool, error) {
		// It may have been held since before.
		if err := h.alone(c); err != nil {
			return false, err
		}
		next := 0
		order.NewLease = func() ai.LeaseID { next++; return ids[next-1] }
		order.Now = h.c.now()
		var err error
		got, err = h.c.jobs.Claim(ctx, order)
		return len(got.Jobs) > 0 || got.Paused, err
	}
	if c.wait > 0 {
		order.LookFirst = true
		err = h.hold(c, Watch{Runner: c.runner.ID, Claim: &order, Owner: c.runner.Owner}, ask)
	} else {
		_, err = ask(c.r.Context())
	}
	if err != nil {
		return nil, err
	}
	if len(got.Jobs) > 0 {
		killpoint.At(killpoint.SiteJobGranted)
	}
	out := ai.ClaimResponse{Jobs: []ai.ClaimedStub{}, LeaseMs: h.c.Lease.Milliseconds()}
	var grants []ai.Grant
	for _, j := range got.Jobs {
		out.Jobs = append(out.Jobs, ai.ClaimedStub{Stub: h.stub(j), Lease: *j.Lease})
		grants = append(grants, ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID})
		h.c.Logger.InfoContext(c.r.Context(), "job granted", "job", j.ID, "runner", c.runner.ID, "lease", j.Lease.ID)
	}
	if len(grants) > 0 {
		// The caller is gone: what it was granted goes back at once.
		c.undo = func() {
			_, err := h.c.jobs.Release(context.WithoutCancel(c.r.Context()), Release{RunnerID: c.runner.ID, Grants: grants, Now: h.c.now()})
			h.c.Logger.WarnContext(c.r.Context(), "an answer was not delivered and its grants were taken back", "runner", c.runner.ID, "error", err)
		}
	}
	return c.codec.ClaimResponse.Write(out)
}

// stub is what a device is told of a job before it fetches it (MUST
// STUB_METADATA_EXHAUSTIVE).
func (h *handler) stub(j Job) ai.Stub {
	deadline := j.DeadlineAt
	if deadline == 0 {
		deadline = j.ClaimableAt + ai.Millis(j.TTL.Milliseconds())
	}
	return ai.Stub{
		ID: j.ID, Kind: j.Kind, Owner: j.Owner, Site: h.c.vault.id, Audience: j.Audience,
		SizeClass: j.SizeClass, DeadlineAt: deadline,
	}
}

func (h *handler) fetch(c *call) ([]byte, error) {
	q, err := from(c, c.codec.FetchRequest, func(q ai.FetchRequest) ai.RunnerID { return q.RunnerID })
	if err != nil {
		return nil, err
	}
	j, err := h.c.jobs.Held(c.r.Context(), q.Grant, c.runner.ID, c.now)
	if err != nil {
		return nil, err
	}
	sealed, err := h.c.vault.reseal(j, c.runner.Device, c.now+ai.Millis(envelope.MaxAge.Milliseconds()))
	if err != nil {
		// A damaged or unknown key is the site's trouble, whatever its status.
		return nil, ai.ErrServer.Because(err)
	}
	return c.codec.FetchResponse.Write(ai.FetchResponse{Envelope: sealed})
}

func (h *handler) heartbeat(c *call) ([]byte, error) {
	q, err := from(c, c.codec.HeartbeatRequest, func(q ai.HeartbeatRequest) ai.RunnerID { return q.RunnerID })
	if err != nil {
		return nil, err
	}
	if err := h.arrived(c); err != nil {
		return nil, err
	}
	var out Renewed
	renew := func(ctx context.Context) (err error) {
		if err := h.alone(c); err != nil {
			return err
		}
		out, err = h.c.jobs.Renew(ctx, Renewal{
			RunnerID: c.runner.ID, Grants: q.ActiveLeases, Lease: h.c.Lease, IssuedAt: c.signed.IssuedAt,
			Version: q.DaemonVersion, Capabilities: offered(q), Paused: q.Paused, Protocol: c.codec.Version, Now: h.c.now(),
		})
		return err
	}
	news := func() bool { return len(out.Cancel)+len(out.Lost) > 0 }
	if c.wait > 0 {
		w := Watch{Runner: c.runner.ID}
		for _, g := range q.ActiveLeases {
			w.Jobs = append(w.Jobs, g.JobID)
		}
		// It renews as it comes and as it goes, and only looks in between.
		begun := false
		err = h.hold(c, w, func(ctx context.Context) (bool, error) {
			if begun {
				return h.news(ctx, c, q.ActiveLeases)
			}
			begun = true
			err := renew(ctx)
			return news(), err
		})
	}
	if err == nil && !news() {
		err = renew(c.r.Context())
	}
	if err != nil {
		return nil, err
	}
	return c.codec.HeartbeatResponse.Write(ai.HeartbeatResponse{
		Sites: h.sites, Successions: h.successions, Cancel: list(out.Cancel), Lost: list(out.Lost), ServerTime: h.c.now(),
		AwaitingConsent: []ai.KeyID{},
	})
}

// news reports whether a held heartbeat has something to answer: a grant that is
// lost or to be canceled, or the end of the device's rights.
func (h *handler) news(ctx context.Context, c *call, grants []ai.Grant) (bool, error) {
	r, err := h.c.devs.Runner(ctx, c.runner.ID)
	if err != nil || r.Revoked() {
		return true, err
	}
	for _, g := range grants {
		j, err := h.c.jobs.Held(ctx, g, c.runner.ID, h.c.now())
		switch {
		case errors.Is(err, ErrNotHeld), err == nil && j.CancelRequested:
			return true, nil
		case err != nil:
			return true, err
		}
	}
	return false, nil
}

// list makes an empty list of none, which the contract asks for.
func list[T any](of []T) []T {
	if of == nil {
		return []T{}
	}
	return of
}

func (h *handler) result(c *call) ([]byte, error) {
	q, err := from(c, c.codec.ResultRequest, func(q ai.ResultRequest) ai.RunnerID { return q.RunnerID })
	if err != nil {
		return nil, err
	}
	if err := h.checkResult(c, q); err != nil {
		// Who holds nothing gets the same answer whatever is in the envelope.
		if _, held := h.c.jobs.Held(c.r.Context(), q.Grant, c.runner.ID, c.now); held != nil {
			return nil, held
		}
		return nil, err
	}
	done, err := h.c.jobs.Complete(c.r.Context(), Completion{
		Grant: q.Grant, RunnerID: c.runner.ID, Envelope: q.Envelope, Disposition: q.Disposition, Now: h.c.now(),
	})
	if err != nil {
		return nil, err
	}
	killpoint.At(killpoint.SiteResultRecorded)
	h.c.Logger.InfoContext(c.r.Context(), "job result", "job", q.Grant.JobID, "runner", c.runner.ID, "accepted", done.Accepted, "state", done.State)
	return c.codec.ResultResponse.Write(ai.ResultResponse{Accepted: done.Accepted, Duplicate: done.Duplicate, State: string(done.State)})
}

// checkResult opens a result and reads it, so that nothing is recorded that the
// app could not read (MUST PROVENANCE_NAMES_DEVICE).
func (h *handler) checkResult(c *call, q ai.ResultRequest) error {
	sealed, _, err := h.c.vault.outcome(c.codec, q.Grant.JobID, c.runner.Device, q.Envelope)
	if err != nil {
		return ai.BadRequest("The sealed result cannot be opened, or is not an outcome.")
	}
	if sealed.Outcome.Disposition() != q.Disposition {
		return ai.BadRequest("The disposition is not that of the sealed outcome.")
	}
	return nil
}

func (h *handler) release(c *call) ([]byte, error) {
	q, err := from(c, c.codec.ReleaseRequest, func(q ai.ReleaseRequest) ai.RunnerID { return q.RunnerID })
	if err != nil {
		return nil, err
	}
	released, err := h.c.jobs.Release(c.r.Context(), Release{
		RunnerID: c.runner.ID, Grants: q.Leases, Refused: q.Reason == ai.ReleaseRefused, Now: c.now,
	})
	if err != nil {
		return nil, err
	}
	for _, id := range released {
		h.c.Logger.InfoContext(c.r.Context(), "job released", "job", id, "runner", c.runner.ID, "reason", q.Reason)
	}
	return c.codec.ReleaseResponse.Write(ai.ReleaseResponse{Released: list(released)})
}
