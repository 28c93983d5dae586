package appapi

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// Scope is one right of an app key.
type Scope = site.Scope

// The scopes; see package site.
const (
	ScopeEnqueue = site.ScopeEnqueue
	ScopeRead    = site.ScopeRead
	ScopePair    = site.ScopePair
	ScopeAdmin   = site.ScopeAdmin
)

// Access is what a request's key may do. The zero value may do nothing.
type Access struct {
	KeyID  string // for logs; it says nothing of the key
	Scopes []Scope
	// Owner is the only one whom the key is for; empty means everybody.
	Owner ai.Owner
}

// May reports whether the key has a right. Admin has every right.
func (a Access) May(s Scope) bool {
	return slices.Contains(a.Scopes, s) || slices.Contains(a.Scopes, ScopeAdmin)
}

// For reports whether the key is for an owner.
func (a Access) For(owner ai.Owner) bool { return a.Owner == "" || a.Owner == owner }

// Keys are a site's app keys. They say who a request is from, and are changed by
// the site's operator only.
type Keys struct {
	store site.AppKeyStore
	clock func() time.Time
}

// NewKeys uses the keys of a store. Nil means time.Now.
func NewKeys(store site.AppKeyStore, clock func() time.Time) *Keys {
	if clock == nil {
		clock = time.Now
	}
	return &Keys{store, clock}
}

// Authenticate says what the key of a request may do. The key is looked up in the
// store each time, so one that was removed counts no more from the next request
// on. It returns [ErrAppKey] for a request without a key of the site, and the
// store's errors.
func (k *Keys) Authenticate(r *http.Request) (Access, error) {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return Access{}, ErrAppKey
	}
	given, err := ParseKey(text)
	if err != nil {
		return Access{}, err
	}
	found, err := k.store.Find(r.Context(), given.hash)
	if errors.Is(err, site.ErrNoAppKey) {
		return Access{}, ErrAppKey
	}
	if err != nil {
		return Access{}, err
	}
	return Access{KeyID: found.ID, Scopes: found.Scopes, Owner: found.Owner}, nil
}

// Hash is the SHA-256 of a key's text, by which the site knows it.
func (k Key) Hash() [32]byte { return k.hash }

// KeyRequest is a key as its operator wants it.
type KeyRequest struct {
	// Hash is the new key's. Whoever makes the key keeps the key itself.
	Hash   [32]byte
	Name   string // see site.NewAppKey
	Scopes []Scope
	// Owner binds the key to one owner; empty means everybody.
	Owner ai.Owner
}

// Add registers a key. It returns site.ErrBadAppKey, site.ErrAppKeyTaken,
// site.ErrTooManyAppKeys and the store's errors.
func (k *Keys) Add(ctx context.Context, r KeyRequest) (site.AppKey, error) {
	return k.add(ctx, r, false)
}

// FirstName is the name of the key that a site makes by itself.
const FirstName = "first"

// AddFirst registers the key that a site makes by itself, with every right. Where
// there is or was any key it changes nothing.
func (k *Keys) AddFirst(ctx context.Context, hash [32]byte) error {
	_, err := k.add(ctx, KeyRequest{Hash: hash, Name: FirstName, Scopes: []Scope{ScopeAdmin}}, true)
	if errors.Is(err, site.ErrAppKeyTaken) {
		return nil
	}
	return err
}

// Had reports whether the site has or had any key.
func (k *Keys) Had(ctx context.Context) (bool, error) {
	all, err := k.store.List(ctx)
	return len(all) > 0, err
}

// Count reports whether the key of a hash counts: it was registered, and not
// removed.
func (k *Keys) Count(ctx context.Context, hash [32]byte) (bool, error) {
	_, err := k.store.Find(ctx, hash)
	if errors.Is(err, site.ErrNoAppKey) {
		return false, nil
	}
	return err == nil, err
}

func (k *Keys) add(ctx context.Context, r KeyRequest, first bool) (site.AppKey, error) {
	n := site.NewAppKey{
		// The hash of 32 random bytes says nothing of them, and neither does its
		// beginning, which is as good an id as another random one.
		ID: "key_" + hex.EncodeToString(r.Hash[:8]), Hash: r.Hash, Name: r.Name, Scopes: r.Scopes, Owner: r.Owner,
		First: first, Now: k.now(),
	}
	if err := n.Check(); err != nil {
		return site.AppKey{}, err
	}
	return k.store.Add(ctx, n)
}

// List returns the keys that count, the oldest first.
func (k *Keys) List(ctx context.Context) ([]site.AppKey, error) {
	all, err := k.store.List(ctx)
	return slices.DeleteFunc(all, func(k site.AppKey) bool { return k.RemovedAt != 0 }), err
}

// Remove ends a key by its id or name, for good. It returns site.ErrNoAppKey.
func (k *Keys) Remove(ctx context.Context, idOrName string) (site.AppKey, error) {
	return k.store.Remove(ctx, idOrName, k.now())
}

func (k *Keys) now() ai.Millis { return ai.MillisOf(k.clock()) }
