package site

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What links are refused with.
var (
	ErrNoLink = refusal.NewKind("pairing-link-unknown", 404,
		"This link is unknown, was used already, or has ended.",
		"Ask the app for a new one. A link works once and for a short time.")
	ErrLink = refusal.NewKind("pairing-link-invalid", 400,
		"No pairing link can be made as asked.",
		"Give an owner without line breaks, at most 256 characters long, and a time of a second to an hour.")
)

// Bounds of links.
const (
	// DefaultLinkTTL is how long a link lasts where nothing else is asked.
	DefaultLinkTTL = 10 * time.Minute
	// MinLinkTTL and MaxLinkTTL bound how long a link lasts.
	MinLinkTTL = time.Second
	MaxLinkTTL = time.Hour
	// MaxLinks is how many links of one owner can be used at a time. Of more, the
	// oldest end.
	MaxLinks = 16
	// MaxLinkMisses is how many codes under which no device waits a link is given
	// before it ends.
	MaxLinkMisses = 10
)

// LinkStore keeps the links by which one owner decides one pairing.
type LinkStore interface {
	// Make stores a link, and ends the owner's oldest ones beyond [MaxLinks]. It
	// returns [ErrNoPairing] for a link with a code under which no device waits.
	Make(ctx context.Context, n NewLink) error
	// Find returns a link that can be used. It returns [ErrNoLink], the same for
	// one that is unknown, was used, has ended or was given too many codes.
	Find(ctx context.Context, token [32]byte, now ai.Millis) (Link, error)
	// Look returns the device that a code through a link is for, and changes
	// nothing but the count of misses. It returns [ErrNoLink], or [ErrNoPairing]
	// where no device waits under the code.
	Look(ctx context.Context, c LinkCode) (Pairing, error)
	// Use decides the pairing that a code through a link is for, and ends the
	// link. The runner is zero where the device was denied. It returns what Look
	// returns.
	Use(ctx context.Context, u LinkUse) (Runner, error)
	// Sweep removes links that have ended.
	Sweep(ctx context.Context, now ai.Millis) error
}

// NewLink is a link to be stored.
type NewLink struct {
	// Token is the SHA-256 of the token in the link.
	Token [32]byte
	Owner ai.Owner
	// UserCode is the code of the one device that the link is for, in its normal
	// form; empty leaves it to the person to type one.
	UserCode  string
	ExpiresAt ai.Millis
	Now       ai.Millis
}

// Link is a link that can be used.
type Link struct {
	Owner     ai.Owner
	UserCode  string // empty where the person types the code
	Misses    int    // codes under which no device waited
	CreatedAt ai.Millis
	ExpiresAt ai.Millis
}

// LinkCode is a code that was typed by who has a link.
type LinkCode struct {
	// Token is the SHA-256 of the token in the link.
	Token [32]byte
	// UserCode is in its normal form. It is empty for a link that has a code of its
	// own; such a link takes no other.
	UserCode string
	Now      ai.Millis
}

// LinkUse is a decision by who has a link.
type LinkUse struct {
	LinkCode
	// Approve pairs the device with the link's owner, else it is denied.
	Approve bool
	// RunnerID is the id that the new runner gets.
	RunnerID ai.RunnerID
}

// LinkRequest asks for a link.
type LinkRequest struct {
	// Owner is whom devices are paired with by the link: the person whom the app
	// has signed in. At most [MaxIDUnits].
	Owner ai.Owner
	// UserCode is the code of the one device that the link is for; empty leaves it
	// to the person to type one on the page.
	UserCode string
	// TTL is how long the link lasts, from [MinLinkTTL] to [MaxLinkTTL]; zero means
	// [DefaultLinkTTL].
	TTL time.Duration
}

// MadeLink is a link for one person.
type MadeLink struct {
	// URL is where the person decides. Whoever has it can pair a device with the
	// owner, until it was used or has ended: show it to that person, and to nobody
	// and no log else.
	URL       string
	ExpiresAt ai.Millis
}

// linkPath is where links are, below Config.VerificationURL.
const linkPath = "/l/"

// Link makes a link by which one person approves or denies one device, once. It
// leads below Config.VerificationURL, where package pairpage serves it. It
// returns [ErrLink], or [ErrNoPairing] for a code under which no device waits.
func (d *Devices) Link(ctx context.Context, q LinkRequest) (MadeLink, error) {
	ttl := q.TTL
	if ttl == 0 {
		ttl = DefaultLinkTTL
	}
	switch {
	case !plain(string(q.Owner)):
		return MadeLink{}, ErrLink.With("The owner is not 1 to 256 characters without control characters.")
	case ttl < MinLinkTTL || ttl > MaxLinkTTL:
		return MadeLink{}, ErrLink.With("The time is not a second to an hour.")
	case d.c.VerificationURL == "" || strings.ContainsAny(d.c.VerificationURL, "?#"):
		return MadeLink{}, ErrLink.With("This site has no page of its own on which a person could approve.")
	}
	var secret [32]byte
	if _, err := io.ReadFull(d.c.Rand, secret[:]); err != nil {
		return MadeLink{}, err
	}
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	n := NewLink{Token: sha256.Sum256([]byte(token)), Owner: q.Owner, Now: d.c.now()}
	n.ExpiresAt = n.Now + ai.Millis(ttl.Milliseconds())
	if q.UserCode != "" {
		if n.UserCode = normalCode(q.UserCode); n.UserCode == "" {
			return MadeLink{}, ErrNoPairing
		}
	}
	if err := d.c.Store.Links().Make(ctx, n); err != nil {
		return MadeLink{}, err
	}
	return MadeLink{URL: strings.TrimSuffix(d.c.VerificationURL, "/") + linkPath + token, ExpiresAt: n.ExpiresAt}, nil
}

// FindLink returns what a token, the last part of a link, stands for. It returns
// [ErrNoLink].
func (d *Devices) FindLink(ctx context.Context, token string) (Link, error) {
	return d.c.Store.Links().Find(ctx, sha256.Sum256([]byte(token)), d.c.now())
}

// PendingByLink returns the device that waits under a code, or under the link's
// own where the code is empty. Wrong codes are counted. It returns [ErrNoLink] or
// [ErrNoPairing].
func (d *Devices) PendingByLink(ctx context.Context, token, userCode string) (Pairing, error) {
	return d.c.Store.Links().Look(ctx, d.c.linkCode(token, userCode))
}

// ApproveByLink pairs the device that waits under a code, or under the link's own
// where the code is empty, with the link's owner. The link is used then. It
// returns [ErrNoLink] or [ErrNoPairing].
func (d *Devices) ApproveByLink(ctx context.Context, token, userCode string) (Runner, error) {
	id, err := newID(d.c.Rand, "runner_")
	if err != nil {
		return Runner{}, err
	}
	r, err := d.c.Store.Links().Use(ctx, LinkUse{
		LinkCode: d.c.linkCode(token, userCode), Approve: true, RunnerID: ai.RunnerID(id),
	})
	if err == nil {
		d.c.Logger.InfoContext(ctx, "device approved by a link", "runner", r.ID, "device", r.Device.String())
	}
	return r, err
}

// DenyByLink refuses the device that waits under a code, or under the link's own
// where the code is empty. The link is used then. It returns [ErrNoLink] or
// [ErrNoPairing].
func (d *Devices) DenyByLink(ctx context.Context, token, userCode string) error {
	_, err := d.c.Store.Links().Use(ctx, LinkUse{LinkCode: d.c.linkCode(token, userCode)})
	return err
}

func (c *core) linkCode(token, userCode string) LinkCode {
	return LinkCode{Token: sha256.Sum256([]byte(token)), UserCode: normalCode(userCode), Now: c.now()}
}

// Typed counts a code that somebody typed on a page, by the address that the
// request came from: call it before the code is looked for. It returns
// ai.ErrRateLimited, which says how long to wait.
func (d *Devices) Typed(r *http.Request) error {
	return d.c.limits.typed(d.c.limits.address(r), d.c.Clock())
}
