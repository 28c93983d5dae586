package v0

import (
	"slices"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/internal/shapes"
)

// Version is what messages of this version declare as their protocolVersion.
const Version = "0"

// Codec returns the codec of this version.
func Codec() ai.Codec { return codec }

var codec = (&shapes.Dialect{
	Version:   Version,
	Audiences: shapes.Same(ai.Audiences()),
	Offers:    shapes.Same(ai.OfferScopes()),
	Backends:  without(backend.IDs(), backend.CodexCLI),
	Codes:     without(ai.Codes(), ai.Code(ai.ErrBelowFloor.Name())),
	Lenient:   true,
	Paused:    true,
}).Codec()

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return v == one })
}
