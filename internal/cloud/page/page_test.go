package page_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/wire/zone"
)

func TestF77PagesHoldEveryEntryOnce(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 257, 512, 600} {
		for _, limit := range []int{0, 1, 7, 256, 10_000} {
			if limit == 1 && n > 300 {
				continue
			}
			all := make([]string, n)
			for i := range all {
				all[i] = fmt.Sprintf("n%04d", i)
			}
			read := func(after string, limit int) ([]string, error) {
				i, found := slices.BinarySearch(all, after)
				if found {
					i++
				}
				return all[i:min(i+limit, n)], nil
			}
			var got []string
			c := zone.Cursor("")
			for {
				list, next, err := page.Read(c, limit, read, func(s string) string { return s })
				if err != nil || len(list) > zone.MaxPage || limit > 0 && len(list) > limit {
					t.Fatalf("%d by %d: a page of %d, %v", n, limit, len(list), err)
				}
				if got = append(got, list...); next == "" {
					break
				}
				if len(list) == 0 || next == c {
					t.Fatalf("%d by %d: it stands still", n, limit)
				}
				c = next
			}
			if !slices.Equal(got, all) {
				t.Errorf("%d by %d: %d entries", n, limit, len(got))
			}
		}
	}
}

func TestHostileCursors(t *testing.T) {
	for _, c := range []zone.Cursor{"!", "YQ==", "YR", zone.After("A"), zone.After("a/b"), zone.After("a'--"), zone.After("-")} {
		_, _, err := page.Read(c, 1, func(string, int) ([]string, error) {
			t.Errorf("%q: it read", c)
			return nil, nil
		}, func(s string) string { return s })
		if !errors.Is(err, page.ErrCursor) {
			t.Errorf("%q: %v", c, err)
		}
	}
	broken := errors.New("broken")
	if _, _, err := page.Read("", 1, func(string, int) ([]string, error) { return nil, broken }, func(s string) string { return s }); !errors.Is(err, broken) {
		t.Errorf("a store that fails: %v", err)
	}
}
