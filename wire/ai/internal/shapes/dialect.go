package shapes

import (
	"slices"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// Dialect is how one version of the protocol differs from the others.
type Dialect struct {
	// Version is what messages declare as their protocolVersion.
	Version string
	// Audiences and Offers are the version's own words.
	Audiences Words[ai.Audience]
	Offers    Words[ai.OfferScope]
	// Backends and Codes are the ids and the refusals that the version knows.
	Backends []backend.ID
	Codes    []ai.Code
	// Lenient makes chat messages, leases, the pairs in requests, the daemon of a
	// pair request and the wrapper that holds a payload beside its kind drop
	// members that they do not know. Everything else refuses them.
	Lenient bool
	// Paused makes heartbeats say that the owner wants no new work.
	Paused bool
	// Services makes capabilities name a service of the owner's, and heartbeats
	// say which kinds are withheld.
	Services bool
	// Grants makes stubs carry a purpose and a grant, approvals the control
	// plane's key, and heartbeats successions and an update.
	Grants bool
	// Stops makes results say why a model stopped, and whether a fallback
	// answered.
	Stops bool
}

// lenient is what becomes of unknown members where versions differ about it.
func (d *Dialect) lenient() exact.Unknown {
	if d.Lenient {
		return exact.Drop
	}
	return exact.Refuse
}

// Words are a version's words for values. What has none cannot be said in it.
type Words[T ~string] struct {
	Values []T
	Wire   []string // of the value at the same place
}

// Same are words that are the values' own.
func Same[T ~string](values []T) Words[T] {
	w := Words[T]{Values: values}
	for _, v := range values {
		w.Wire = append(w.Wire, string(v))
	}
	return w
}

// named is a required string that is one of the words.
func named[T ~string](o *exact.Object, name string, p *T, w Words[T]) {
	var text string
	if i := slices.Index(w.Values, *p); o.Writing() && i >= 0 {
		text = w.Wire[i]
	}
	exact.Word(o, name, &text, w.Wire)
	if i := slices.Index(w.Wire, text); !o.Failed() {
		*p = w.Values[i]
	}
}
