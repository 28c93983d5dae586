package ledger

import "github.com/allodhq/allod/refusal"

// What this package refuses, beside match.ErrCeiling, match.ErrSubscription and
// what package database refuses.
var (
	ErrHour = refusal.NewKind("jobs-per-hour", 429,
		"The machine takes a limited number of other people's jobs within an hour, and that many were taken.",
		"Wait until it resets, or the machine's owner raises community.maxJobsPerHour.")
	ErrDay = refusal.NewKind("jobs-per-day", 429,
		"The machine takes a limited number of other people's jobs within 24 hours, and that many were taken.",
		"Wait until it resets, or the machine's owner raises community.maxJobsPerDay.")
	ErrLease = refusal.NewKind("ledger-lease", 409,
		"The ledger has another record of this lease, and one lease pays for one run.",
		"Give the job back; the server grants it again under a new lease.")
	ErrClaim = refusal.NewKind("ledger-claim", 500,
		"A job cannot be entered into the ledger: its record is incomplete or too large.",
		"Report it, with the name of the server that granted the job.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "An agent's ledger", Kinds: []*refusal.Kind{ErrHour, ErrDay, ErrLease, ErrClaim}}
