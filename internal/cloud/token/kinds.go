package token

import "github.com/allodhq/allod/refusal"

// What this package refuses. Readers of hostile tokens learn no more than that.
var (
	ErrToken = refusal.NewKind("zone-token", 401,
		"The token is none that this controller made, or it was changed.",
		"Log in again by a login link, or let the machine fetch a new token.")
	ErrExpired = refusal.NewKind("zone-token-expired", 401,
		"The token is over.",
		"Log in again by a login link, or let the machine fetch a new token.")
	ErrEarly = refusal.NewKind("zone-token-early", 401,
		"The token was made later than it is now: the controller's clock was set back.",
		"Put the controller's clock right, or log in again by a login link.")
	ErrKeyFile = refusal.NewKind("zone-token-key", 500,
		"The file of a key that signs tokens is damaged, or is that of the other kind of tokens.",
		"Bring the file back from a backup. Or move it away and start again: a new key is made, and whoever was logged in logs in again.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: tokens", Kinds: []*refusal.Kind{ErrToken, ErrExpired, ErrEarly, ErrKeyFile}}
