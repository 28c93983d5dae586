package v2

import (
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/internal/shapes"
)

// Version is what messages of this version declare as their protocolVersion.
const Version = "2"

// Codec returns the codec of this version.
func Codec() ai.Codec { return codec }

// The version's words for the two audiences and offers that it has.
const (
	private = "private"
	team    = "team"
)

var codec = (&shapes.Dialect{
	Version:   Version,
	Audiences: shapes.Words[ai.Audience]{Values: []ai.Audience{ai.AudienceSelf, ai.AudienceNamed}, Wire: []string{private, team}},
	Offers:    shapes.Words[ai.OfferScope]{Values: []ai.OfferScope{ai.OfferSelf, ai.OfferNamed}, Wire: []string{private, team}},
	Backends:  backend.IDs(),
	Codes:     ai.Codes(),
	Services:  true, Grants: true, Stops: true,
}).Codec()
