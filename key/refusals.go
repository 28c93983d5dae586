package key

import "github.com/allodhq/allod/refusal"

// What this package refuses.
var (
	ErrText = refusal.NewKind("key-text", 400,
		"This is not the text of a key, a signature or a fingerprint.",
		"Copy the whole text again, without spaces, padding or line breaks.")
	ErrBinding = refusal.NewKind("key-binding", 400,
		"The sealing key is not signed by the identity that presents it, so somebody may have put in a key of their own.",
		"Pair again over a connection you trust, and compare the fingerprints.")
	ErrWeak = refusal.NewKind("key-weak", 400,
		"The sealing key is a point of low order, to which nothing can be sealed safely.",
		"The other side must make a new key and pair again.")
	ErrUnopenable = refusal.NewKind("box-unopenable", 400,
		"The sealed box does not open with this key: it was sealed to another key, or it was changed.",
		"Ask the sender to seal it again to the fingerprint of this key.")
	ErrPrivate = refusal.NewKind("key-private", 500,
		"Something tried to write out a private key where only a key file may hold one.",
		"Report this with the log line; the key itself was not written.")
	ErrNoKey = refusal.NewKind("key-none", 500,
		"A key was used that was never made or loaded.",
		"Report this with the log line; nothing was signed, opened or written.")
	ErrFile = refusal.NewKind("key-file-damaged", 500,
		"The key file is damaged: it is not what was once written, or its halves do not fit together.",
		"Put back a backup of the file. Allod never makes a new key over a damaged file, since that would be another identity.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Keys", Kinds: []*refusal.Kind{
	ErrText, ErrBinding, ErrWeak, ErrUnopenable, ErrPrivate, ErrNoKey, ErrFile,
}}
