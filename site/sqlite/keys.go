package sqlite

import (
	"context"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// ring is the store's [site.KeyRing].
type ring struct{ *Store }

// Keys lists the keys; see [site.KeyRing].
func (s ring) Keys(ctx context.Context) (list []site.RingKey, err error) {
	err = s.read(ctx, func(q database.Queryer) error {
		list = nil
		return each(ctx, q, `SELECT key_id, identity, added_at, is_current FROM site_keys ORDER BY is_current DESC, added_at, key_id`, nil,
			func(r scanner) error {
				var (
					id, identity string
					k            site.RingKey
				)
				if err := r.Scan(&id, &identity, &k.AddedAt, &k.Current); err != nil {
					return err
				}
				p, err := identityShape.Read([]byte(identity), kept)
				if err == nil {
					k.Site, err = p.Site()
				}
				if err != nil {
					return &damage{what: "key", id: id, column: "identity"}
				}
				list = append(list, k)
				return nil
			})
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Use makes a key the current one; see [site.KeyRing].
func (s ring) Use(ctx context.Context, k key.Site, now ai.Millis) error {
	identity, err := keepIdentity(k)
	if err != nil {
		return err
	}
	return s.write(ctx, func(tx *database.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE site_keys SET is_current = 0 WHERE is_current = 1`); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO site_keys (key_id, identity, added_at, is_current) VALUES (?, ?, ?, 1)
			ON CONFLICT (key_id) DO UPDATE SET identity = excluded.identity, is_current = 1`, k.Fingerprint().String(), identity, now)
		return err
	})
}

// Remove takes a key out of the ring; see [site.KeyRing].
func (s ring) Remove(ctx context.Context, id key.Fingerprint) error {
	return s.write(ctx, func(tx *database.Tx) error {
		result, err := tx.ExecContext(ctx, `DELETE FROM site_keys WHERE key_id = ? AND is_current = 0`, id.String())
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			return site.ErrNoKey
		}
		return nil
	})
}
