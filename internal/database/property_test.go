package database

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// TestGroupsEqualModel writes random groups and compares with a map.
func TestGroupsEqualModel(t *testing.T) {
	c := tempConfig(t)
	c.Clock = frozen
	db := mustOpen(t, c)
	errOwn := errors.New("own")
	put := func(tx *Tx, key string, value int) error {
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO counters VALUES (?, ?)", key, value)
		return err
	}
	// Each kind is what a function does, what it does to the model, and its error.
	kinds := map[string]struct {
		fn    func(tx *Tx, key string, value int) error
		model func(m map[string]int, key string, value int)
		want  func(m map[string]int, key string) error
	}{
		"put": {put, func(m map[string]int, key string, value int) { m[key] = value }, nil},
		"delete": {func(tx *Tx, key string, _ int) error {
			_, err := tx.ExecContext(ctx, "DELETE FROM counters WHERE name = ?", key)
			return err
		}, func(m map[string]int, key string, _ int) { delete(m, key) }, nil},
		"put and fail": {func(tx *Tx, key string, value int) error {
			return errors.Join(put(tx, key, value), put(tx, key+key, value), errOwn)
		}, nil, func(map[string]int, string) error { return errOwn }},
		"put and panic": {func(tx *Tx, key string, value int) error {
			_ = put(tx, key, value)
			panic(value)
		}, nil, func(map[string]int, string) error { return ErrPanic }},
		"insert": {func(tx *Tx, key string, value int) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO counters VALUES (?, ?)", key, value)
			return err
		}, func(m map[string]int, key string, value int) { m[key] = value }, func(m map[string]int, key string) error {
			if _, taken := m[key]; taken {
				return ErrConstraint
			}
			return nil
		}},
		"add": {func(tx *Tx, key string, value int) error {
			var n int
			err := tx.QueryRowContext(ctx, "SELECT coalesce(max(value), 0) FROM counters WHERE name = ?", key).Scan(&n)
			return errors.Join(err, put(tx, key, n+value))
		}, func(m map[string]int, key string, value int) { m[key] += value }, nil},
	}
	type step struct {
		Kind  string
		Key   string
		Value int
	}
	var all []string
	for kind := range kinds {
		all = append(all, kind)
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			rapid.SampledFrom(all).Draw(t, "kind"),
			rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
			rapid.IntRange(1, 9).Draw(t, "value"),
		}
	}), 1, 6)
	rapid.Check(t, func(rt *rapid.T) {
		model := map[string]int{}
		err := db.Write(ctx, func(tx *Tx) error { _, err := tx.ExecContext(ctx, "DELETE FROM counters"); return err })
		if err != nil {
			rt.Fatal(explain(err))
		}
		for _, group := range rapid.SliceOfN(steps, 1, 3).Draw(rt, "groups") {
			before := db.Stats().Commits
			h := hold(t, db)
			var answers []<-chan error
			for _, s := range group {
				answers = append(answers, h.queue(ctx, func(tx *Tx) error { return kinds[s.Kind].fn(tx, s.Key, s.Value) }))
			}
			_ = h.let()
			for i, s := range group {
				var want error
				if k := kinds[s.Kind]; k.want != nil {
					want = k.want(model, s.Key)
				}
				if err := <-answers[i]; !errors.Is(err, want) || want == nil && err != nil {
					rt.Fatalf("%v: %s, want %v", s, explain(err), want)
				}
				if want == nil {
					kinds[s.Kind].model(model, s.Key, s.Value)
				}
			}
			if n := db.Stats().Commits - before; n != 1 {
				rt.Fatalf("%d commits", n)
			}
			got := map[string]int{}
			err := db.Read(ctx, func(q Queryer) error {
				rows, err := q.QueryContext(ctx, "SELECT name, value FROM counters")
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
					var name string
					var value int
					if err := rows.Scan(&name, &value); err != nil {
						return err
					}
					got[name] = value
				}
				return rows.Err()
			})
			if err != nil || !maps.Equal(got, model) {
				rt.Fatal(fmt.Sprintf("database %v, model %v: ", got, model), err)
			}
		}
	})
}
