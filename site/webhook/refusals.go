package webhook

import "github.com/allodhq/allod/refusal"

// What this package refuses.
var (
	ErrConfig = refusal.NewKind("webhook-config", 400,
		"The webhooks cannot work as they are configured.",
		"Change what is named; docs/webhooks.md lists the bounds.")
	ErrURL = refusal.NewKind("webhook-url", 400,
		"The URL is not one that events are sent to.",
		"Give an absolute https URL without a user name and a #. An http URL is taken where its address is listed as private.")
	ErrAddress = refusal.NewKind("webhook-address", 403,
		"The address is private or has a special purpose, and it is not listed as one to send to.",
		"Use a public address, or list the range of the private one. Plain http goes to listed addresses only.")
	ErrSecret = refusal.NewKind("webhook-secret", 400,
		"The text is not a secret that webhooks are signed with.",
		"Give whsec_ and 24 to 64 random bytes in base64; or name a file that is not there, and one is made.")
	ErrSecretFile = refusal.NewKind("webhook-secret-file", 500,
		"The file with a webhook's secret cannot be used.",
		"Give a plain file of one or two secrets, a line each, that this user can read and others cannot (chmod 600).")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Webhooks", Kinds: []*refusal.Kind{ErrConfig, ErrURL, ErrAddress, ErrSecret, ErrSecretFile}}
