package certify

import "github.com/allodhq/allod/refusal"

// What this package refuses.
var (
	ErrConfig = refusal.NewKind("certify-config", 400,
		"The server cannot be tested as it was asked for.",
		"Change what is named, and run it again.")
	ErrUnreachable = refusal.NewKind("certify-unreachable", 503,
		"The server gave no answer.",
		"Check that it runs and that this machine reaches its address.")
	ErrNoContract = refusal.NewKind("certify-no-contract", 404,
		"What answers at the address does not speak the AI contract, or no version of it that this program speaks.",
		"Give the server's origin, as in https://app.example; its devices are served below /byollm.")
	ErrApp = refusal.NewKind("certify-app", 500,
		"The app's half did not do what it was asked to.",
		"Check that the app interface is reachable and that the key has every right on it.")
	ErrFailed = refusal.NewKind("certify-failed", 500,
		"The server breaks the contract in at least one check.",
		"See the failed checks in the report, with what was sent and what came back.")
	ErrNotProved = refusal.NewKind("certify-not-proved", 409,
		"At least one check could not be proved, and no failed one was found.",
		"See in the report what each of them needs.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Certifying servers", Kinds: []*refusal.Kind{
	ErrConfig, ErrUnreachable, ErrNoContract, ErrApp, ErrFailed, ErrNotProved,
}}
