package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// links is the store's [site.LinkStore].
type links struct{ *Store }

// Links keeps the pairing links.
func (s *Store) Links() site.LinkStore { return links{s} }

// Make stores a link; see [site.LinkStore].
func (s links) Make(ctx context.Context, n site.NewLink) error {
	return s.write(ctx, func(tx *database.Tx) error {
		if err := sweepLinks(ctx, tx, n.Now); err != nil {
			return err
		}
		if n.UserCode != "" {
			if _, err := pending(ctx, tx, n.UserCode, n.Now); err != nil {
				return err
			}
		}
		// Of links that were made at one instant any may count as the oldest.
		if _, err := tx.ExecContext(ctx, `DELETE FROM pairing_links WHERE token IN
			(SELECT token FROM pairing_links WHERE owner = ? AND used_at IS NULL ORDER BY created_at DESC LIMIT -1 OFFSET ?)`,
			n.Owner, site.MaxLinks-1); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO pairing_links (token, owner, user_code, created_at, expires_at) VALUES (?, ?, ?, ?, ?)`,
			n.Token[:], n.Owner, sql.Null[string]{V: n.UserCode, Valid: n.UserCode != ""}, n.Now, n.ExpiresAt)
		return err
	})
}

// linkBy reads a link that can be used.
func linkBy(ctx context.Context, q database.Queryer, token [32]byte, now ai.Millis) (l site.Link, err error) {
	var code sql.Null[string]
	err = q.QueryRowContext(ctx, `SELECT owner, user_code, misses, created_at, expires_at FROM pairing_links
		WHERE token = ? AND used_at IS NULL AND expires_at > ? AND misses < ?`, token[:], now, site.MaxLinkMisses).
		Scan(&l.Owner, &code, &l.Misses, &l.CreatedAt, &l.ExpiresAt)
	if errors.Is(err, sql.ErrNoRows) {
		return site.Link{}, site.ErrNoLink
	}
	if err != nil {
		return site.Link{}, err
	}
	// A code that cannot be read must not become any code.
	if l.UserCode = code.V; l.Owner == "" || code.Valid && code.V == "" {
		return site.Link{}, &damage{what: "link", id: hex.EncodeToString(token[:8]), column: "owner or user_code"}
	}
	return l, nil
}

// Find returns a link; see [site.LinkStore].
func (s links) Find(ctx context.Context, token [32]byte, now ai.Millis) (l site.Link, err error) {
	err = s.read(ctx, func(q database.Queryer) (err error) {
		l, err = linkBy(ctx, q, token, now)
		return err
	})
	return l, err
}

// through does what may be done with the device that a code through a link is
// for. A typed code that is wrong is counted, and that stands although the caller
// is refused.
func (s links) through(ctx context.Context, c site.LinkCode, do func(tx *database.Tx, l site.Link, p site.Pairing) error) error {
	var missed error
	err := s.write(ctx, func(tx *database.Tx) error {
		missed = nil
		l, err := linkBy(ctx, tx, c.Token, c.Now)
		if err != nil {
			return err
		}
		code := l.UserCode
		if code == "" {
			code = c.UserCode
		}
		p, err := pending(ctx, tx, code, c.Now)
		if l.UserCode != "" && c.UserCode != "" && c.UserCode != l.UserCode {
			err = site.ErrNoPairing
		}
		switch {
		case errors.Is(err, site.ErrNoPairing) && c.UserCode != "":
			missed = err
			_, err = tx.ExecContext(ctx, `UPDATE pairing_links SET misses = misses + 1 WHERE token = ?`, c.Token[:])
			return err
		case err != nil:
			return err
		}
		return do(tx, l, p)
	})
	if err == nil {
		err = missed
	}
	return err
}

// Look returns the device that a code is for; see [site.LinkStore].
func (s links) Look(ctx context.Context, c site.LinkCode) (p site.Pairing, err error) {
	err = s.through(ctx, c, func(_ *database.Tx, _ site.Link, found site.Pairing) error {
		p = found
		return nil
	})
	if err != nil {
		return site.Pairing{}, err
	}
	return p, nil
}

// Use decides the pairing that a code is for; see [site.LinkStore].
func (s links) Use(ctx context.Context, u site.LinkUse) (r site.Runner, err error) {
	err = s.through(ctx, u.LinkCode, func(tx *database.Tx, l site.Link, p site.Pairing) error {
		r = site.Runner{}
		if _, err := tx.ExecContext(ctx, `UPDATE pairing_links SET used_at = ? WHERE token = ?`, u.Now, u.Token[:]); err != nil {
			return err
		}
		if !u.Approve {
			return deny(ctx, tx, p.UserCode, u.Now)
		}
		var err error
		r, err = approve(ctx, tx, site.Approval{UserCode: p.UserCode, Owner: l.Owner, RunnerID: u.RunnerID, Now: u.Now})
		return err
	})
	if err != nil {
		return site.Runner{}, err
	}
	return r, nil
}

// Sweep removes links that have ended; see [site.LinkStore].
func (s links) Sweep(ctx context.Context, now ai.Millis) error {
	return s.write(ctx, func(tx *database.Tx) error { return sweepLinks(ctx, tx, now) })
}

func sweepLinks(ctx context.Context, tx *database.Tx, now ai.Millis) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM pairing_links WHERE expires_at <= ?`, now)
	return err
}
