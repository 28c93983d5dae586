package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// devices is the store's [site.DeviceStore].
type devices struct{ *Store }

const runnerColumns = `id, owner, device, label, platform, version, capabilities, paused, protocol, created_at, seen_at, revoked_at`

// scanRunner reads one row of runnerColumns. The error is a *damage for a row
// that makes no sense.
func scanRunner(r scanner) (site.Runner, error) {
	var (
		n                    site.Runner
		device, capabilities string
		revoked              sql.Null[ai.Millis]
	)
	if err := r.Scan(&n.ID, &n.Owner, &device, &n.Daemon.Label, &n.Daemon.Platform, &n.Daemon.Version,
		&capabilities, &n.Paused, &n.Protocol, &n.CreatedAt, &n.SeenAt, &revoked); err != nil {
		return site.Runner{}, err
	}
	n.RevokedAt = revoked.V
	bad := func(column string) (site.Runner, error) {
		return site.Runner{}, &damage{what: "runner", id: string(n.ID), column: column}
	}
	var err error
	if n.Device, err = identities.get(device); err != nil {
		return bad("device")
	}
	if n.Capabilities, err = readCapabilities(capabilities); err != nil {
		return bad("capabilities")
	}
	switch {
	case n.Owner == "":
		return bad("owner")
	case !slices.Contains(ai.Platforms(), n.Daemon.Platform):
		return bad("platform")
	}
	return n, nil
}

const runnerQuery = `SELECT ` + runnerColumns + ` FROM runners WHERE id = ?`

// runnerBy reads one device. It returns [site.ErrNoRunner] or a *damage.
func runnerBy(ctx context.Context, q database.Queryer, id ai.RunnerID) (site.Runner, error) {
	r, err := scanRunner(q.QueryRowContext(ctx, runnerQuery, id))
	if errors.Is(err, sql.ErrNoRows) {
		return site.Runner{}, site.ErrNoRunner
	}
	return r, err
}

// standing is what decides whether a device gets work.
type standing struct {
	owner   ai.Owner
	paused  bool
	revoked bool
}

const workerQuery = `SELECT owner, paused, revoked_at IS NOT NULL FROM runners WHERE id = ?`

// worker looks at a device that is to work. It returns [site.ErrNoRunner] or
// [site.ErrRunnerRevoked].
func worker(ctx context.Context, q database.Queryer, id ai.RunnerID) (w standing, err error) {
	err = q.QueryRowContext(ctx, workerQuery, id).Scan(&w.owner, &w.paused, &w.revoked)
	if errors.Is(err, sql.ErrNoRows) {
		return standing{}, site.ErrNoRunner
	}
	if err == nil && w.revoked {
		return standing{}, site.ErrRunnerRevoked
	}
	return w, err
}

// The states of a pairing's row.
const (
	pairPending  = "pending"
	pairDenied   = "denied"
	pairApproved = "approved"
	pairReplaced = "replaced"
)

// fullQuery asks whether more codes wait than a number.
const fullQuery = `SELECT EXISTS (SELECT 1 FROM pairings WHERE state = 'pending' AND expires_at > ? LIMIT 1 OFFSET ?)`

// StartPairing stores a pairing; see [site.DeviceStore].
func (s devices) StartPairing(ctx context.Context, p site.NewPairing) error {
	device, err := keepIdentity(p.Device)
	if err != nil {
		return err
	}
	capabilities, err := keep(capabilitiesShape, p.Capabilities)
	if err != nil {
		return err
	}
	keyID := p.Device.Fingerprint().String()
	return s.write(ctx, func(tx *database.Tx) error {
		if err := sweepPairings(ctx, tx, p.Now); err != nil {
			return err
		}
		// A stranger who knows a public key must not end somebody else's code, so
		// only the same address replaces.
		if _, err := tx.ExecContext(ctx, `UPDATE pairings SET state = ? WHERE key_id = ? AND state = ? AND address = ?`,
			pairReplaced, keyID, pairPending, p.Address); err != nil {
			return err
		}
		var live int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM pairings WHERE key_id = ? AND state = ? AND expires_at > ?`,
			keyID, pairPending, p.Now).Scan(&live); err != nil {
			return err
		}
		if live >= site.MaxPairings {
			return site.ErrTooManyPairings
		}
		var full bool
		if err := tx.QueryRowContext(ctx, fullQuery, p.Now, site.MaxWaitingPairings-1).Scan(&full); err != nil {
			return err
		}
		if full {
			return site.ErrTooManyPairings.With("So many of all devices wait that the site takes no more.")
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO pairings
			(device_code, user_code, key_id, device, label, platform, version, capabilities, address, state, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			p.DeviceCode[:], p.UserCode, keyID, device, p.Daemon.Label, p.Daemon.Platform, p.Daemon.Version,
			capabilities, p.Address, pairPending, p.Now, p.ExpiresAt)
		if database.IsUnique(err) {
			return site.ErrConflict.With("Another pairing has the same code.")
		}
		return err
	})
}

// pending reads the pairing that waits under a user code.
func pending(ctx context.Context, q database.Queryer, userCode string, now ai.Millis) (site.Pairing, error) {
	var (
		p                    site.Pairing
		device, capabilities string
	)
	err := q.QueryRowContext(ctx, `SELECT user_code, device, label, platform, version, capabilities, created_at, expires_at
		FROM pairings WHERE user_code = ? AND state = ? AND expires_at > ?`, userCode, pairPending, now).
		Scan(&p.UserCode, &device, &p.Daemon.Label, &p.Daemon.Platform, &p.Daemon.Version, &capabilities, &p.CreatedAt, &p.ExpiresAt)
	if errors.Is(err, sql.ErrNoRows) {
		return site.Pairing{}, site.ErrNoPairing
	}
	if err != nil {
		return site.Pairing{}, err
	}
	if p.Device, err = identities.get(device); err != nil {
		return site.Pairing{}, &damage{what: "pairing", id: userCode, column: "device"}
	}
	if p.Capabilities, err = readCapabilities(capabilities); err != nil {
		return site.Pairing{}, &damage{what: "pairing", id: userCode, column: "capabilities"}
	}
	return p, nil
}

// Pairing returns a pairing that waits; see [site.DeviceStore].
func (s devices) Pairing(ctx context.Context, userCode string, now ai.Millis) (p site.Pairing, err error) {
	err = s.read(ctx, func(q database.Queryer) (err error) {
		p, err = pending(ctx, q, userCode, now)
		return err
	})
	return p, err
}

// Approve makes a runner of a device that waits; see [site.DeviceStore].
func (s devices) Approve(ctx context.Context, a site.Approval) (r site.Runner, err error) {
	err = s.write(ctx, func(tx *database.Tx) (err error) {
		r, err = approve(ctx, tx, a)
		return err
	})
	if err != nil {
		return site.Runner{}, err
	}
	return r, nil
}

func approve(ctx context.Context, tx *database.Tx, a site.Approval) (site.Runner, error) {
	p, err := pending(ctx, tx, a.UserCode, a.Now)
	if err != nil {
		return site.Runner{}, err
	}
	if err := revoke(ctx, tx, a.Now, `key_id = ? AND owner = ?`, p.Device.Fingerprint().String(), a.Owner); err != nil {
		return site.Runner{}, err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO runners
		(id, owner, key_id, device, label, platform, version, capabilities, created_at, seen_at)
		SELECT ?, ?, key_id, device, label, platform, version, capabilities, ?, ? FROM pairings WHERE user_code = ?`,
		a.RunnerID, a.Owner, a.Now, a.Now, a.UserCode); err != nil {
		return site.Runner{}, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE pairings SET state = ?, approved_at = ?, runner_id = ? WHERE user_code = ?`,
		pairApproved, a.Now, a.RunnerID, a.UserCode); err != nil {
		return site.Runner{}, err
	}
	return runnerBy(ctx, tx, a.RunnerID)
}

// Deny ends a pairing that waits; see [site.DeviceStore].
func (s devices) Deny(ctx context.Context, userCode string, now ai.Millis) error {
	return s.write(ctx, func(tx *database.Tx) error { return deny(ctx, tx, userCode, now) })
}

func deny(ctx context.Context, tx *database.Tx, userCode string, now ai.Millis) error {
	if _, err := pending(ctx, tx, userCode, now); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `UPDATE pairings SET state = ? WHERE user_code = ?`, pairDenied, userCode)
	return err
}

// Poll says where a pairing stands; see [site.DeviceStore].
func (s devices) Poll(ctx context.Context, deviceCode [32]byte, now ai.Millis) (p site.Poll, err error) {
	err = s.write(ctx, func(tx *database.Tx) error {
		p = site.Poll{}
		var (
			state    string
			expires  ai.Millis
			approved sql.Null[ai.Millis]
			runner   sql.Null[ai.RunnerID]
		)
		err := tx.QueryRowContext(ctx, `SELECT state, expires_at, approved_at, runner_id FROM pairings WHERE device_code = ?`, deviceCode[:]).
			Scan(&state, &expires, &approved, &runner)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return site.ErrNoPairing
		case err != nil:
			return err
		case state == pairDenied:
			p.Status = ai.PairDenied
			return nil
		case state == pairPending && expires > now:
			p.Status = ai.PairPending
			return nil
		case state != pairApproved:
			p.Status = ai.PairExpired
			return nil
		case now >= collectableUntil(expires, approved.V):
			return site.ErrNoPairing
		}
		if p.Runner, err = runnerBy(ctx, tx, runner.V); err != nil {
			return err
		}
		if p.Runner.Revoked() {
			// Revoked or superseded before it was collected: there is nothing to
			// collect any more.
			return site.ErrNoPairing
		}
		p.Status = ai.PairApproved
		_, err = tx.ExecContext(ctx, `UPDATE pairings SET collected = 1 WHERE device_code = ? AND collected = 0`, deviceCode[:])
		return err
	})
	if err != nil {
		return site.Poll{}, err
	}
	return p, nil
}

// collectableUntil is when an approval can no longer be collected.
func collectableUntil(expires, approved ai.Millis) ai.Millis {
	return max(expires, approved+ai.Millis(site.CollectFor.Milliseconds()))
}

// pairingKeep is how long an ended pairing still answers its device with how it
// ended.
const pairingKeep ai.Millis = 60 * 60 * 1000

// SweepPairings removes pairings that are over; see [site.DeviceStore].
func (s devices) SweepPairings(ctx context.Context, now ai.Millis) error {
	return s.write(ctx, func(tx *database.Tx) error { return sweepPairings(ctx, tx, now) })
}

// uncollectedQuery asks for the runners whose approval nobody can collect any more.
const uncollectedQuery = `SELECT runner_id FROM pairings
	WHERE state = 'approved' AND collected = 0 AND expires_at <= ? AND approved_at + ? <= ?`

func sweepPairings(ctx context.Context, tx *database.Tx, now ai.Millis) error {
	// Revoked rather than deleted, so that whoever still uses the id is told so.
	err := revoke(ctx, tx, now, `id IN (`+uncollectedQuery+`)`, now, site.CollectFor.Milliseconds(), now)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM pairings WHERE expires_at <= ?`, now-pairingKeep)
	return err
}

// revoke ends the rights of the devices that a condition names.
func revoke(ctx context.Context, tx *database.Tx, now ai.Millis, where string, args ...any) error {
	return each(ctx, tx, `UPDATE runners SET revoked_at = ? WHERE revoked_at IS NULL AND `+where+` RETURNING id`,
		append([]any{now}, args...), func(r scanner) error {
			var id ai.RunnerID
			err := r.Scan(&id)
			tx.Tell(ofRunner(id))
			return err
		})
}

// Runner returns a device; see [site.DeviceStore].
func (s devices) Runner(ctx context.Context, id ai.RunnerID) (r site.Runner, err error) {
	err = s.read(ctx, func(q database.Queryer) (err error) {
		r, err = runnerBy(ctx, q, id)
		return err
	})
	return r, err
}

// Runners lists devices; see [site.DeviceStore]. Damaged ones are set aside and
// left out.
func (s devices) Runners(ctx context.Context, query site.RunnerQuery) ([]site.Runner, error) {
	where, args := `1`, []any{}
	if query.Owner != "" {
		where, args = where+` AND owner = ?`, append(args, query.Owner)
	}
	if query.LiveSince != 0 {
		where, args = where+` AND revoked_at IS NULL AND paused = 0 AND seen_at >= ?`, append(args, query.LiveSince)
	}
	return every(ctx, s.Store, `SELECT `+runnerColumns+` FROM runners WHERE `+where+` ORDER BY created_at, id`, args, scanRunner)
}

// Revoke ends a device's rights; see [site.DeviceStore].
func (s devices) Revoke(ctx context.Context, id ai.RunnerID, now ai.Millis) (r site.Runner, err error) {
	err = s.write(ctx, func(tx *database.Tx) error {
		if err := revoke(ctx, tx, now, `id = ?`, id); err != nil {
			return err
		}
		var err error
		r, err = runnerBy(ctx, tx, id)
		return err
	})
	if err != nil {
		return site.Runner{}, err
	}
	return r, nil
}
