package site

import (
	"context"
	"slices"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What a store of app keys refuses.
var (
	ErrNoAppKey = refusal.NewKind("app-key-unknown", 404,
		"The site has no app key of this id or name.",
		"List the keys to see their ids and names.")
	ErrAppKeyTaken = refusal.NewKind("app-key-taken", 409,
		"There is an app key of this name, or the key was registered before.",
		"Use another name, or remove that key first. A removed key never comes back: make a new one.")
	ErrBadAppKey = refusal.NewKind("app-key-invalid", 400,
		"An app key cannot be made like this.",
		"Give a name without line breaks, at most 64 characters long, and at least one of the scopes enqueue, read, pair and admin.")
	ErrTooManyAppKeys = refusal.NewKind("app-key-too-many", 409,
		"The site has as many app keys as it may have.",
		"Remove keys that nobody uses.")
)

// Bounds of app keys: how many a site may have at once, and how long a name may
// be, in UTF-16 code units.
const (
	MaxAppKeys     = 256
	MaxAppKeyUnits = 64
)

// Scope is one right of an app key.
type Scope string

// The scopes.
const (
	// ScopeEnqueue asks and cancels.
	ScopeEnqueue Scope = "enqueue"
	// ScopeRead looks at jobs, their answers, and whether a device is there.
	ScopeRead Scope = "read"
	// ScopePair decides pairings, and lists and revokes devices.
	ScopePair Scope = "pair"
	// ScopeAdmin is all of them, and what concerns the site as a whole.
	ScopeAdmin Scope = "admin"
)

// Scopes lists the scopes.
func Scopes() []Scope { return []Scope{ScopeEnqueue, ScopeRead, ScopePair, ScopeAdmin} }

// AppKeyStore keeps the keys by which apps are known. A key itself is never
// stored, only its hash.
type AppKeyStore interface {
	// Add stores a key that was checked. It returns [ErrAppKeyTaken] for a key that
	// is or was there and for the name of one that is there, and
	// [ErrTooManyAppKeys].
	Add(ctx context.Context, n NewAppKey) (AppKey, error)
	// List returns the keys, removed ones too, the oldest first.
	List(ctx context.Context) ([]AppKey, error)
	// Find returns the key of a hash. It returns [ErrNoAppKey], also for one that
	// was removed.
	Find(ctx context.Context, hash [32]byte) (AppKey, error)
	// Remove ends a key by its id or else by its name. Its row stays, so that the
	// same key is never taken again. It returns [ErrNoAppKey].
	Remove(ctx context.Context, idOrName string, now ai.Millis) (AppKey, error)
}

// NewAppKey is a key to be stored.
type NewAppKey struct {
	ID string // unique over all keys that ever were
	// Hash is the SHA-256 of the key's text.
	Hash [32]byte
	// Name is what the operator calls the key, 1 to [MaxAppKeyUnits], unique over
	// the keys that count.
	Name   string
	Scopes []Scope // at least one
	// Owner is the only one whom the key is for; empty means everybody.
	Owner ai.Owner
	// First stores the key only where there has never been any, and is
	// [ErrAppKeyTaken] elsewhere.
	First bool
	Now   ai.Millis
}

// Check refuses what no key can be with [ErrBadAppKey], and brings the scopes into
// their order, each once.
func (n *NewAppKey) Check() error {
	known := slices.DeleteFunc(Scopes(), func(s Scope) bool { return !slices.Contains(n.Scopes, s) })
	switch {
	case !plain(n.Name) || ai.TextUnits(n.Name) > MaxAppKeyUnits:
		return ErrBadAppKey.With("The name is not 1 to 64 characters without control characters.")
	case slices.ContainsFunc(n.Scopes, func(s Scope) bool { return !slices.Contains(known, s) }):
		return ErrBadAppKey.With("A scope is none of enqueue, read, pair and admin.")
	case len(known) == 0:
		return ErrBadAppKey.With("There is no scope.")
	case n.Owner != "" && !plain(string(n.Owner)):
		return ErrBadAppKey.With("The owner is not 1 to 256 characters without control characters.")
	}
	n.Scopes = known
	return nil
}

// AppKey is a key as the store knows it.
type AppKey struct {
	ID        string // see NewAppKey
	Name      string // see NewAppKey
	Scopes    []Scope
	Owner     ai.Owner // empty means everybody
	CreatedAt ai.Millis
	RemovedAt ai.Millis // zero unless removed
}
