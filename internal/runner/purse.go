package runner

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/ledger"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// What a job is reckoned to use before anything is known of it, and where a
// backend does not count. A token of English is about four characters; one of
// other scripts less.
const (
	heldUnits    = 2 // UTF-16 code units a token, when room is held
	reckonedUnit = 4 // and when a run was not counted, as the contract has it
)

// keeping bounds the writing of an entry whose job is over already.
const keeping = 10 * time.Second

// purse keeps what jobs cost in the ledger: all of other people's, and the owner's
// own where they cost money. It may be used by several goroutines.
type purse struct {
	path      string
	community settings.Community
	clock     func() time.Time
	log       *slog.Logger

	mu     sync.Mutex
	ledger *ledger.Ledger // nil until the first such job
	err    error          // why there is none, when it was last tried
	tried  time.Time
}

// tryEvery is how soon a ledger that could not be opened is tried again: a full disk
// may have room by then.
const tryEvery = 30 * time.Second

// newPurse opens the ledger if there is one. One that cannot be opened takes no
// such job, and the rest works on.
func newPurse(ctx context.Context, dir string, c settings.Community, clock func() time.Time, log *slog.Logger) *purse {
	p := &purse{path: filepath.Join(dir, ledger.File), community: c, clock: clock, log: log}
	if _, err := os.Stat(p.path); !errors.Is(err, fs.ErrNotExist) {
		if _, err := p.open(ctx); err != nil {
			log.Error("no job of others and none that costs money is taken", "error", refusal.From(err))
		}
	}
	return p
}

func (p *purse) open(ctx context.Context) (*ledger.Ledger, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.clock(); p.ledger == nil && (p.err == nil || now.Sub(p.tried).Abs() >= tryEvery) {
		p.tried = now
		// It is opened for all jobs, so the end of the first one must not stop it.
		p.ledger, p.err = ledger.Open(context.WithoutCancel(ctx), ledger.Config{Path: p.path, Clock: p.clock, Logger: p.log})
	}
	return p.ledger, p.err
}

// known is the ledger if it is open already, and why it cannot be.
func (p *purse) known() (*ledger.Ledger, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger, p.err
}

func (p *purse) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ledger == nil {
		return
	}
	if err := p.ledger.Close(); err != nil {
		p.log.Error("the ledger was not closed in order", "error", refusal.From(err))
	}
}

// limits are what others may have under these terms.
func (p *purse) limits(t sharing.Terms) ledger.Limits {
	return ledger.Limits{JobsPerHour: p.community.JobsPerHour, JobsPerDay: p.community.JobsPerDay, Ceiling: ledger.Cents(t.Ceiling)}
}

// hold is the most that a job is reckoned to cost.
func (p *purse) hold(size ai.SizeClass, own bool, t sharing.Terms) ledger.Money {
	units, bounded := size.Ceiling()
	switch {
	case bounded:
	case own:
		units = ai.MaxMediumUnits // and more where it is settled
	default:
		units = p.community.MaxPayload
	}
	return ledger.Price(int64(units/heldUnits+othersTokens), t.PerMillion())
}

// room is nil while a small question of somebody else would be taken on, else what
// it would be refused with.
func (p *purse) room(ctx context.Context, service string, cost wirebackend.Cost, t sharing.Terms) error {
	l, err := p.known()
	if err != nil {
		l, err = p.open(ctx)
	}
	if l == nil {
		return err
	}
	return l.Room(ctx, ledger.Claim{Backend: service, Cost: cost, Hold: p.hold(ai.SizeSmall, false, t)}, p.limits(t))
}

// charge is one job in the ledger. Nil is a job that is not kept there.
type charge struct {
	purse *purse
	ref   ledger.Ref
	terms sharing.Terms
	begun bool
}

// reserve takes room for a job, before anything of it is fetched. It returns the
// refusals of ledger.Reserve, with the owner's numbers in their details.
func (p *purse) reserve(ctx context.Context, server string, own bool, w lane.Work, t sharing.Terms) (*charge, error) {
	if own && w.Offer.Cost != wirebackend.Metered {
		return nil, nil
	}
	l, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	c := ledger.Claim{
		Ref: ledger.Ref{Server: server, Lease: w.Stub.Lease.ID}, Job: w.Stub.ID, Owner: w.Stub.Owner, Own: own,
		Backend: w.Offer.Capability.Service, Model: w.Offer.Capability.Model, Cost: w.Offer.Cost, Hold: p.hold(w.Stub.SizeClass, own, t),
	}
	if err := l.Reserve(ctx, c, p.limits(t)); err != nil {
		return nil, err
	}
	return &charge{purse: p, ref: c.Ref, terms: t}, nil
}

// begin records that the backend is about to be asked, which must not happen after
// an error.
func (c *charge) begin(ctx context.Context) error {
	if c == nil {
		return nil
	}
	err := c.purse.ledger.Begin(ctx, c.ref)
	c.begun = err == nil
	return err
}

// settle records what a run cost, whichever way it ended. units is the length of
// the question.
func (c *charge) settle(ctx context.Context, r backend.Result, units int) {
	if c == nil || !c.begun {
		return
	}
	s := ledger.Settlement{Prompt: r.Usage.Prompt, Completion: r.Usage.Completion, Counted: r.Usage.Counted}
	if !s.Counted {
		s.Prompt, s.Completion = reckoned(r.Outcome, units)
	}
	s.Amount = ledger.Price(s.Prompt+s.Completion, c.terms.PerMillion())
	c.keep(ctx, func(ctx context.Context) error { return c.purse.ledger.Settle(ctx, c.ref, s) })
}

// reckoned is what a run is reckoned to have used that its backend did not count,
// in tokens: nothing where it turned the job away.
func reckoned(o ai.Outcome, units int) (prompt, completion int64) {
	switch o := o.(type) {
	case ai.Answer:
		completion = int64(ai.TextUnits(o.Text)+reckonedUnit-1) / reckonedUnit
	case ai.Failure:
		if o.Code == backend.CodeUnauthorized || o.Code == backend.CodeNoModel {
			return 0, 0
		}
	}
	return int64(units+reckonedUnit-1) / reckonedUnit, completion
}

// drop gives the room back that a job did not use. A job that began is settled.
func (c *charge) drop(ctx context.Context) {
	if c.begun {
		return
	}
	c.keep(ctx, func(ctx context.Context) error { return c.purse.ledger.Release(ctx, c.ref) })
}

func (c *charge) keep(ctx context.Context, write func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keeping)
	defer cancel()
	if err := write(ctx); err != nil {
		// The room stays taken, and is settled at the next start.
		c.purse.log.Error("what a job cost was not kept", "lease", c.ref.Lease, "error", refusal.From(err))
	}
}

// Spending is what jobs cost, and what is left for others.
type Spending struct {
	// Rows are what was used by day, backend and owner, the latest day first.
	Rows []SpentRow `json:"rows"`
	// Backends are those that cost money, with what others may still spend.
	Backends []SpendingLimit `json:"backends"`
	// JobsHour and JobsDay are how many jobs of others began in the last 60 minutes
	// and 24 hours, of MostHour and MostDay.
	JobsHour int64 `json:"jobsHour"`
	JobsDay  int64 `json:"jobsDay"`
	MostHour int   `json:"maxJobsPerHour"`
	MostDay  int   `json:"maxJobsPerDay"`
}

// SpentRow is what one person's jobs used on one backend on one day.
type SpentRow struct {
	// Day is a day in UTC, as 2030-01-31.
	Day     string   `json:"day"`
	Backend string   `json:"backend"`
	Owner   ai.Owner `json:"owner"`
	Own     bool     `json:"own"`
	Jobs    int64    `json:"jobs"`
	// Prompt and Completion are tokens.
	Prompt     int64 `json:"promptTokens"`
	Completion int64 `json:"completionTokens"`
	// Amount and Estimated are in millionths of a cent; Estimated is the part of it
	// that no backend counted.
	Amount    ledger.Money `json:"amountMicrocents"`
	Estimated ledger.Money `json:"estimatedMicrocents"`
}

// SpendingLimit is what others may spend on one backend within 24 hours.
type SpendingLimit struct {
	Backend string `json:"backend"`
	// The amounts are in millionths of a cent.
	Limit    ledger.Money `json:"limitMicrocents"`
	Used     ledger.Money `json:"usedMicrocents"`
	Reserved ledger.Money `json:"reservedMicrocents"`
	// Reset is when some of it is free again; zero where nothing is used.
	Reset time.Time `json:"reset,omitzero"`
}

// Spending tells what jobs cost since a moment. It returns the refusals of packages
// ledger and database.
func (a *Agent) Spending(ctx context.Context, since time.Time) (Spending, error) {
	c := a.config.Settings.Community
	s := Spending{Rows: []SpentRow{}, Backends: []SpendingLimit{}, MostHour: c.JobsPerHour, MostDay: c.JobsPerDay}
	l, err := a.purse.known()
	if err != nil {
		return Spending{}, err
	}
	for name, t := range a.shelf.metered() {
		limit := SpendingLimit{Backend: name, Limit: ledger.Cents(t.Ceiling)}
		if l != nil {
			b, err := l.Balance(ctx, name, a.purse.limits(t))
			if err != nil {
				return Spending{}, err
			}
			limit = SpendingLimit{name, b.Limit, b.Used, b.Reserved, b.Reset}
		}
		s.Backends = append(s.Backends, limit)
	}
	if l == nil {
		return s, nil // nothing was ever spent
	}
	taken, err := l.Taken(ctx)
	if err != nil {
		return Spending{}, err
	}
	s.JobsHour, s.JobsDay = taken.Hour, taken.Day
	rows, err := l.Spent(ctx, since)
	if err != nil {
		return Spending{}, err
	}
	for _, r := range rows {
		s.Rows = append(s.Rows, SpentRow{
			r.Day.Format(time.DateOnly), r.Backend, r.Owner, r.Own, r.Jobs, r.Prompt, r.Completion, r.Amount, r.Estimated,
		})
	}
	return s, nil
}

// overdrawn reports whether an error is that others have had what they may have.
func overdrawn(err error) bool {
	kind := refusal.From(err).Kind()
	return kind == ledger.ErrHour || kind == ledger.ErrDay || kind == match.ErrCeiling
}
