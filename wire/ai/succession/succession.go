package succession

import (
	"slices"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What this package refuses.
var (
	ErrNoChain = refusal.NewKind("succession-none", 403,
		"The site's key is not one that was approved here, and nothing says which key it comes after.",
		"Approve the site anew after comparing the fingerprint of its key.")
	ErrTooLong = refusal.NewKind("succession-too-long", 403,
		"The chain of the site's former keys is longer than any site's may be.",
		"Approve the site anew after comparing the fingerprint of its key.")
	ErrLink = refusal.NewKind("succession-broken", 403,
		"One of the site's former keys did not sign the key that is shown to come after it, so somebody may have put in a key of their own.",
		"Do not approve the site before you have compared the fingerprint of its key with whoever runs it.")
	ErrOrigin = refusal.NewKind("succession-unknown", 403,
		"None of the keys that the site had is one that was approved here.",
		"Approve the site anew after comparing the fingerprint of its key.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Keys that follow another", Kinds: []*refusal.Kind{
	ErrNoChain, ErrTooLong, ErrLink, ErrOrigin,
}}

// Statement is what the previous key signs to say which one comes after it.
func Statement(previous, next key.Fingerprint) []byte {
	return []byte("byollm/v1/site-succession:" + previous.String() + ":" + next.String())
}

// VerifyLink checks that the key of a link signed that next comes after it, and
// returns that key's identity. It returns [ErrLink] where the link is not well
// signed, where its identity is none, and where next names no key.
func VerifyLink(link ai.Succession, next key.Fingerprint) (key.Site, error) {
	previous, err := link.Identity.Site()
	if err != nil || next.IsZero() {
		return key.Site{}, ErrLink
	}
	signature, err := key.ParseSignature(link.Signature)
	if err != nil || !previous.Signing().Verify(Statement(previous.Fingerprint(), next), signature) {
		return key.Site{}, ErrLink
	}
	return previous, nil
}

// Walk goes from the current key along the chain, whose last entry is the newest,
// until it reaches a key that approved knows, and returns the key ids on the way,
// the approved one first and the current one last. approved is asked of each
// former key in turn, never of the current one, and what lies behind the one that
// it knows is not looked at.
//
// It returns [ErrNoChain] for an empty chain, [ErrTooLong] beyond
// [ai.MaxSuccessions], [ErrLink] at the first link that does not verify, and
// [ErrOrigin] when no key of the chain is approved.
func Walk(current key.Fingerprint, chain []ai.Succession, approved func(key.Fingerprint) bool) ([]key.Fingerprint, error) {
	switch {
	case len(chain) == 0:
		return nil, ErrNoChain
	case len(chain) > ai.MaxSuccessions:
		return nil, ErrTooLong
	}
	path := []key.Fingerprint{current}
	for _, link := range slices.Backward(chain) {
		previous, err := VerifyLink(link, path[len(path)-1])
		if err != nil {
			return nil, err
		}
		path = append(path, previous.Fingerprint())
		if approved(previous.Fingerprint()) {
			slices.Reverse(path)
			return path, nil
		}
	}
	return nil, ErrOrigin
}
