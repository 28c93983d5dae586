package ai

import (
	"errors"
	"time"

	"github.com/allodhq/allod/refusal"
)

// Code is a refusal's name on the wire. Its HTTP status belongs to it.
type Code string

// The refusals that travel on the wire, named and numbered by the contract.
var (
	ErrBadRequest = refusal.NewKind("bad-request", 400,
		"The request is not one that this endpoint takes.",
		"Compare it with the documentation of this endpoint.")
	ErrUnsupportedVersion = refusal.NewKind("unsupported-protocol-version", 400,
		"The request declares no protocol version that this server speaks.",
		"Upgrade the side that is behind; supported and minimum say what this server speaks.")
	ErrBelowFloor = refusal.NewKind("daemon-below-floor", 426,
		"The program on the device is older than this server takes.",
		"Upgrade it; floor says the oldest version that is taken.")
	ErrUnauthorized = refusal.NewKind("unauthorized", 401,
		"The server does not know who is calling.",
		"Sign the request with the key that was paired, or pair again.")
	ErrClockSkew = refusal.NewKind("clock-skew", 401,
		"The clocks of the two machines are too far apart to tell a fresh request from an old one.",
		"Set this machine's clock; serverTime says what the server reads.")
	ErrForbidden = refusal.NewKind("forbidden", 403,
		"The server knows who is calling, and the answer is no.",
		"Ask whoever runs the server for the right to do this.")
	ErrRevoked = refusal.NewKind("revoked", 403,
		"This device was revoked.",
		"Pair it again if its owner agrees.")
	ErrNotFound = refusal.NewKind("not-found", 404,
		"There is no such thing, or not for this caller.",
		"Check the name; a grant that has ended cannot be used again.")
	ErrNotReady = refusal.NewKind("not-ready", 409,
		"The job is granted, but its payload is not there yet.",
		"Ask again shortly while the lease lasts.")
	ErrTooLate = refusal.NewKind("too-late", 409,
		"The job is over.",
		"Stop working on it and do not retry.")
	ErrRateLimited = refusal.NewKind("rate-limited", 429,
		"Too many requests came from this address.",
		"Wait as long as retryAfter says, then go slower.")
	ErrServer = refusal.NewKind("server-error", 500,
		"Something failed on the server.",
		"Try again later. If it stays, tell whoever runs the server.")
)

// Refusals are the refusals that travel on the wire, in the contract's order.
var Refusals = refusal.Registry{Title: "On the wire of the AI contract", Kinds: []*refusal.Kind{
	ErrBadRequest, ErrUnsupportedVersion, ErrBelowFloor, ErrUnauthorized, ErrForbidden, ErrRevoked,
	ErrNotFound, ErrNotReady, ErrTooLate, ErrClockSkew, ErrRateLimited, ErrServer,
}}

// Codes returns all codes.
func Codes() []Code {
	codes := make([]Code, len(Refusals.Kinds))
	for i, k := range Refusals.Kinds {
		codes[i] = Code(k.Name())
	}
	return codes
}

// Status is the HTTP status of the code, or 0 if the contract has no such code.
func (c Code) Status() int {
	if k := Refusals.Find(string(c)); k != nil {
		return k.Status()
	}
	return 0
}

// Error is a refusal as it travels: the contract's WireError.
type Error struct {
	Code Code
	// Message is a text for people, at least one unit. What a peer sent here is
	// a hint and decides nothing.
	Message string
	// Supported lists the versions the server speaks. It or Minimum is set with
	// unsupported-protocol-version, and neither with another code.
	Supported []string
	// Minimum is the oldest of them; empty means that it is not said.
	Minimum string
	// Floor is the oldest program that the server takes. It is set with
	// daemon-below-floor, and with no other code.
	Floor string
	// ServerTime is the server's clock. It or MaxSkewMs is set with clock-skew,
	// and neither with another code.
	ServerTime Millis
	// MaxSkewMs is the window that the server allows, in milliseconds; zero means
	// that it is not said.
	MaxSkewMs int64
	// RetryAfter is how many whole seconds to wait; nil says nothing about it.
	RetryAfter *int64
}

// Error is the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap returns the kind of the code, so that errors.Is finds it, or nil if
// the contract has no such code.
func (e *Error) Unwrap() error {
	if k := Refusals.Find(string(e.Code)); k != nil {
		return k
	}
	return nil
}

// BadRequest is a bad-request whose detail is a sentence of our own.
func BadRequest(detail string) *Error { return errorOf(ErrBadRequest.With(detail)) }

// ClockSkew is a clock-skew that tells the caller how far off it is.
func ClockSkew(now Millis, window time.Duration) *Error {
	e := errorOf(refusal.From(ErrClockSkew))
	e.ServerTime, e.MaxSkewMs = now, window.Milliseconds()
	return e
}

// ErrorOf turns any error into what may travel. A refusal of this contract
// keeps its code. Another refusal becomes bad-request with its meaning where it
// names bad input, and the plain unauthorized, forbidden or not-found where its
// status is theirs: what it says more is not for a caller who is refused.
// Everything else becomes server-error without its text.
func ErrorOf(err error) *Error {
	var wire *Error
	r := refusal.From(err)
	// What a refusal keeps as its cause is for the log, also if it travelled.
	if errors.As(err, &wire) && !errors.Is(r.Unwrap(), wire) {
		return wire
	}
	switch {
	case r == nil:
		return errorOf(refusal.From(ErrServer))
	case Refusals.Find(r.Kind().Name()) == r.Kind():
		return errorOf(r)
	}
	switch r.Kind().Status() {
	case 400:
		return BadRequest(r.Kind().Meaning())
	case 401:
		return errorOf(refusal.From(ErrUnauthorized))
	case 403:
		return errorOf(refusal.From(ErrForbidden))
	case 404:
		return errorOf(refusal.From(ErrNotFound))
	}
	return errorOf(refusal.From(ErrServer))
}

func errorOf(r *refusal.Refusal) *Error {
	e := &Error{Code: Code(r.Kind().Name()), Message: r.Kind().Meaning()}
	if r.Detail() != "" {
		e.Message += " " + r.Detail()
	}
	if s := r.RetrySeconds(); s > 0 {
		e.RetryAfter = &s
	}
	return e
}
