package carrier

import (
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// What this package refuses.
var (
	ErrVerb = refusal.NewKind("carrier-verb", 405,
		"This path takes typed requests by POST and WebSockets, and nothing else.",
		"Send a typed request by POST, or open a WebSocket.")
	ErrUpgrade = refusal.NewKind("carrier-upgrade", 400,
		"The request does not open a WebSocket as RFC 6455 says.",
		"Use a WebSocket client of version 13 over HTTP/1.1.")
	ErrMediaType = refusal.NewKind("carrier-media-type", 415,
		"The body is not plain application/json, or the message of a socket is not text.",
		"Send Content-Type: application/json, in UTF-8 and without a Content-Encoding; on a socket, send text messages.")
	ErrOrigin = refusal.NewKind("carrier-origin", 403,
		"A page of another site asked a browser to send this.",
		"Open this party's own page, or add the other page's origin to its configuration.")
	ErrCrowded = refusal.NewKind("carrier-crowded", 503,
		"This side has as many connections or requests as it takes.",
		"Try again in a few seconds.")
	ErrAddressCrowded = refusal.NewKind("carrier-address-crowded", 429,
		"This address has as many connections or requests here as one address may have.",
		"Use fewer connections, or try again in a few seconds.")
	ErrBody = refusal.NewKind("carrier-body", 400,
		"The body of the request did not arrive whole, or not in time.",
		"Send the request again.")
	ErrBusy = refusal.NewKind("socket-busy", 429,
		"More requests are under way on this socket than one socket may have.",
		"Wait for an answer before the next request.")
	ErrShutdown = refusal.NewKind("carrier-shutdown", 503,
		"This side is about to stop.",
		"Connect again in a few seconds.")

	ErrUnreachable = refusal.NewKind("peer-unreachable", 502,
		"No connection to the other side could be made, or it broke before the answer came.",
		"Check that the other side runs, its address, the network and the clocks. A request that changes something may be repeated with the same mutation id.")
	ErrNoAnswer = refusal.NewKind("peer-no-answer", 504,
		"The answer did not come in time; whether the request was done is not known.",
		"Ask again; a request that changes something may be repeated with the same mutation id.")
	ErrNotTyped = refusal.NewKind("peer-not-typed", 502,
		"Something else than a party of this contract answered at this address.",
		"Check the address, and whether something between the two sides answers in its place.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: carriers", Kinds: []*refusal.Kind{
	ErrVerb, ErrUpgrade, ErrMediaType, ErrOrigin, ErrCrowded, ErrAddressCrowded, ErrBody, ErrBusy, ErrShutdown,
	ErrUnreachable, ErrNoAnswer, ErrNotTyped,
}}

// known are the refusals that a client finds by name in what came back.
func known(more []refusal.Registry) []refusal.Registry {
	return append([]refusal.Registry{Kinds, rpc.Kinds}, more...)
}
