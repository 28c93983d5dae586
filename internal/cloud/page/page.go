package page

import (
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

// ErrCursor refuses a cursor that no answer gave out.
var ErrCursor = refusal.NewKind("zone-cursor", 400,
	"The cursor is none that an answer of this list gave out.",
	"Send the nextCursor of the page before, as it came, or null for the first page.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: pages of lists", Kinds: []*refusal.Kind{ErrCursor}}

// Read returns the page that begins at a cursor, and the cursor of the next one, ""
// where there is none. read lists entries in the order of their identifiers, as the
// lists of a store do, and id finds an entry's. A page has at most limit entries,
// and never more than [zone.MaxPage]. It returns ErrCursor before it reads, and
// what read returns.
func Read[T any, ID ~string](c zone.Cursor, limit int, read func(after ID, limit int) ([]T, error), id func(T) ID) ([]T, zone.Cursor, error) {
	after, ok := c.Key()
	if !ok || after != "" && !zone.ValidID(after) {
		return nil, "", ErrCursor
	}
	if limit < 1 || limit > zone.MaxPage {
		limit = zone.MaxPage
	}
	list, err := read(ID(after), limit+1) // one more tells whether there is a next page
	if err != nil || len(list) <= limit {
		return list, "", err
	}
	list = list[:limit]
	return list, zone.After(string(id(list[limit-1]))), nil
}
