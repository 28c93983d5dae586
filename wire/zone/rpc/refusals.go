package rpc

import "github.com/allodhq/allod/refusal"

// What this package refuses.
var (
	ErrTooLarge = refusal.NewKind("typed-request-too-large", 413,
		"The request is larger than this method takes.",
		"Send less at once; the method's documentation says how much it takes.")
	ErrEnvelope = refusal.NewKind("request-envelope-invalid", 400,
		"The text is not the envelope of one typed request.",
		"Send one JSON object with method, request and correlation, where correlation has an id of letters, digits and . _ : - and the phase request.")
	ErrMethod = refusal.NewKind("method-unknown", 404,
		"This side has no method of that name.",
		"Check the spelling, and that the request went to the right party.")
	ErrNotBuilt = refusal.NewKind("method-not-built", 501,
		"The contract has this method, and this build does not have it yet.",
		"Upgrade this side when a release names the method as built.")
	ErrCarrier = refusal.NewKind("method-not-on-carrier", 400,
		"The method cannot be called this way: some need a socket, others plain HTTP, and a few a local socket.",
		"Call it over the carrier that its documentation names.")
	ErrNoSession = refusal.NewKind("session-required", 401,
		"No session has been opened on this connection.",
		"Call the method that opens a session first, on the same connection.")
	ErrSessionOver = refusal.NewKind("session-over", 401,
		"The session of this connection has ended.",
		"Open a new session with a fresh credential.")
	ErrSessionOther = refusal.NewKind("session-of-another", 409,
		"The session of this connection belongs to somebody else than the credential.",
		"Leave the credential out, or open another connection for it.")
	ErrSchema = refusal.NewKind("request-schema-invalid", 400,
		"The request is not exactly the message of this method; the reasons list every difference.",
		"Send each documented member once, with its type and within its bounds, and no other.")
	ErrCredential = refusal.NewKind("credential-refused", 401,
		"The credential is unknown here, has ended, or is not for this.",
		"Ask whoever runs this side for a new credential, or sign in again.")
	ErrCaller = refusal.NewKind("caller-not-allowed", 403,
		"This caller may not call the method.",
		"Call it as one of those whom its documentation names.")
	ErrAnswerSize = refusal.NewKind("answer-too-large", 500,
		"The answer is larger than this method may give.",
		"Ask for less at once, for example for a shorter page.")
	ErrDeadline = refusal.NewKind("request-deadline", 503,
		"The request was not done in the time it had.",
		"Try again; a request that changes something may be repeated with the same mutation id.")

	ErrAnswer = refusal.NewKind("answer-invalid", 502,
		"The other side answered with something that is no answer to the request.",
		"Check that the address belongs to the right party. If it does, report this with both releases.")
	ErrForeign = refusal.NewKind("peer-refused", 502,
		"The other side refused with a name that this release does not know.",
		"Look the name up in the documentation of the other side's release.")
	ErrWait = refusal.NewKind("peer-busy", 503,
		"The other side asks to wait and to try again.",
		"Wait for the time it names, then try again.")
	ErrRequest = refusal.NewKind("request-unsendable", 500,
		"The request breaks the bounds of its own method, so it was not sent.",
		"Report this: a program should not make such a request.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: typed requests", Kinds: []*refusal.Kind{
	ErrTooLarge, ErrEnvelope, ErrMethod, ErrNotBuilt, ErrCarrier, ErrNoSession, ErrSessionOver, ErrSessionOther,
	ErrSchema, ErrCredential, ErrCaller, ErrAnswerSize, ErrDeadline, ErrAnswer, ErrForeign, ErrWait, ErrRequest,
}}
