// Package signing signs and verifies the requests of the AI contract.
//
// Every request but pairing carries three headers: who calls, when, and an
// Ed25519 signature by the caller's pinned identity (MUST
// REQUESTS_SIGNED_NOT_BEARER). The signed text is five lines joined by line
// feeds, without a final one:
//
//	byollm/v1/request
//	<endpoint>            with "site/" before it on the site plane
//	<caller>              the runner id, or the site id
//	<issued at>           milliseconds since 1970, decimal
//	<body hash>           lower-case hex SHA-256 of the body as received
//
// A request is fresh for two minutes either way. Nothing remembers signatures:
// replays are harmless because writes name their lease.
//
// The package refuses to look callers up and to read clocks; both are passed
// in.
package signing
