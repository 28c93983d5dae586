package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// appKeys is the store's [site.AppKeyStore].
type appKeys struct{ *Store }

// AppKeys keeps the app keys.
func (s *Store) AppKeys() site.AppKeyStore { return appKeys{s} }

const appKeyColumns = `id, name, scopes, owner, created_at, removed_at`

// findKeyQuery is asked at every request of an app. Whoever can choose a hash has
// no key for it, so finding it by an index tells a stranger nothing.
const findKeyQuery = `SELECT ` + appKeyColumns + ` FROM app_keys WHERE hash = ? AND removed_at IS NULL`

// scanAppKey reads one row of appKeyColumns. The error is a *damage for a row that
// makes no sense.
func scanAppKey(r scanner) (site.AppKey, error) {
	var (
		k       site.AppKey
		scopes  string
		owner   sql.Null[ai.Owner]
		removed sql.Null[ai.Millis]
	)
	if err := r.Scan(&k.ID, &k.Name, &scopes, &owner, &k.CreatedAt, &removed); err != nil {
		return site.AppKey{}, err
	}
	bad := func(column string) (site.AppKey, error) {
		return site.AppKey{}, &damage{what: "app key", id: k.ID, column: column}
	}
	// An owner that cannot be read must not become everybody.
	if owner.Valid && owner.V == "" {
		return bad("owner")
	}
	for word := range strings.FieldsSeq(scopes) {
		if !slices.Contains(site.Scopes(), site.Scope(word)) {
			return bad("scopes")
		}
		k.Scopes = append(k.Scopes, site.Scope(word))
	}
	k.Owner, k.RemovedAt = owner.V, removed.V
	return k, nil
}

// Add stores a key; see [site.AppKeyStore].
func (s appKeys) Add(ctx context.Context, n site.NewAppKey) (k site.AppKey, err error) {
	words := make([]string, len(n.Scopes))
	for i, scope := range n.Scopes {
		words[i] = string(scope)
	}
	owner := sql.Null[ai.Owner]{V: n.Owner, Valid: n.Owner != ""}
	err = s.write(ctx, func(tx *database.Tx) error {
		var all, live int
		if err := tx.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE removed_at IS NULL) FROM app_keys`).Scan(&all, &live); err != nil {
			return err
		}
		switch {
		case n.First && all > 0:
			return site.ErrAppKeyTaken
		case live >= site.MaxAppKeys:
			return site.ErrTooManyAppKeys
		}
		var err error
		k, err = scanAppKey(tx.QueryRowContext(ctx, `INSERT INTO app_keys (id, hash, name, scopes, owner, created_at)
			VALUES (?, ?, ?, ?, ?, ?) RETURNING `+appKeyColumns, n.ID, n.Hash[:], n.Name, strings.Join(words, " "), owner, n.Now))
		if database.IsUnique(err) {
			return site.ErrAppKeyTaken
		}
		return err
	})
	if err != nil {
		return site.AppKey{}, err
	}
	return k, nil
}

// List returns the keys; see [site.AppKeyStore]. Damaged ones are set aside and
// left out.
func (s appKeys) List(ctx context.Context) ([]site.AppKey, error) {
	return every(ctx, s.Store, `SELECT `+appKeyColumns+` FROM app_keys ORDER BY seq`, nil, scanAppKey)
}

// Find returns the key of a hash; see [site.AppKeyStore].
func (s appKeys) Find(ctx context.Context, hash [32]byte) (k site.AppKey, err error) {
	err = s.read(ctx, func(q database.Queryer) (err error) {
		k, err = scanAppKey(q.QueryRowContext(ctx, findKeyQuery, hash[:]))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return site.AppKey{}, site.ErrNoAppKey
	}
	return k, err
}

// Remove ends a key; see [site.AppKeyStore].
func (s appKeys) Remove(ctx context.Context, idOrName string, now ai.Millis) (k site.AppKey, err error) {
	err = s.write(ctx, func(tx *database.Tx) error {
		// An id goes before a name that looks like it.
		row := tx.QueryRowContext(ctx, `UPDATE app_keys SET removed_at = ?1 WHERE seq =
			(SELECT seq FROM app_keys WHERE removed_at IS NULL AND (id = ?2 OR name = ?2) ORDER BY id = ?2 DESC LIMIT 1)
			RETURNING `+appKeyColumns, now, idOrName)
		var err error
		if k, err = scanAppKey(row); errors.Is(err, sql.ErrNoRows) {
			return site.ErrNoAppKey
		}
		return err
	})
	if err != nil {
		return site.AppKey{}, err
	}
	return k, nil
}
