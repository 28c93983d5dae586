package refusal

import (
	"errors"
	"log/slog"
	"time"
)

// Refusal is one refusal as it happened. It is immutable; the methods that add
// something return a changed copy.
type Refusal struct {
	kind       *Kind
	detail     string
	cause      error
	retryAfter time.Duration
}

// Kind is the reason. It is never nil for a refusal made by a [Kind].
func (r *Refusal) Kind() *Kind { return r.kind }

// Detail is what was special about this case, a sentence, or empty.
func (r *Refusal) Detail() string { return r.detail }

// RetryAfter is how long the caller should wait before asking again; zero
// means that nothing is said about it.
func (r *Refusal) RetryAfter() time.Duration { return r.retryAfter }

// RetrySeconds is RetryAfter in whole seconds, rounded up, as it travels.
func (r *Refusal) RetrySeconds() int64 {
	if r.retryAfter <= 0 {
		return 0
	}
	return int64((r.retryAfter-1)/time.Second) + 1 // adding to it first could overflow
}

// With returns a copy with that detail. See [Kind.With].
func (r *Refusal) With(detail string) *Refusal {
	c := *r
	c.detail = detail
	return &c
}

// Because returns a copy with that cause. See [Kind.Because].
func (r *Refusal) Because(cause error) *Refusal {
	c := *r
	c.cause = cause
	return &c
}

// After returns a copy that asks the caller to wait. Negative waits count as
// zero.
func (r *Refusal) After(wait time.Duration) *Refusal {
	c := *r
	c.retryAfter = max(wait, 0)
	return &c
}

// Error is the name, the meaning and the detail. It leaves the cause out.
func (r *Refusal) Error() string {
	if r.detail == "" {
		return r.kind.Error()
	}
	return r.kind.Error() + " " + r.detail
}

// Is reports whether target is this refusal's kind.
func (r *Refusal) Is(target error) bool {
	k, ok := target.(*Kind)
	return ok && k == r.kind
}

// Unwrap returns the inner cause, or nil.
func (r *Refusal) Unwrap() error { return r.cause }

// LogValue logs the name, the detail and the cause. Only logs see the cause;
// whoever wraps one must know that it holds no secret.
func (r *Refusal) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("refusal", r.kind.name)}
	if r.detail != "" {
		attrs = append(attrs, slog.String("detail", r.detail))
	}
	if r.cause != nil {
		// Not its text: a cause that is a refusal has a cause of its own.
		attrs = append(attrs, slog.Any("cause", r.cause))
	}
	return slog.GroupValue(attrs...)
}

// Internal is what an error becomes that nobody gave a name.
var Internal = NewKind("internal", 500,
	"Something failed here that has no name yet.",
	"Try again. If it stays, look in the log of this process at the time of the request and report it.")

// Kinds are the refusals that this package declares itself.
var Kinds = Registry{Title: "Anywhere", Kinds: []*Kind{Internal}}

// From finds the refusal in err. A bare kind becomes a refusal without detail;
// any other error becomes [Internal] with err as its cause. From(nil) is nil. A
// nil pointer to a refusal or a kind that was returned as an error is a mistake
// of the code and comes out as [Internal].
func From(err error) *Refusal {
	if err == nil {
		return nil
	}
	var r *Refusal
	var k *Kind
	switch {
	case errors.As(err, &r):
		if r == nil {
			return &Refusal{kind: Internal}
		}
		return r
	case errors.As(err, &k):
		if k == nil {
			k = Internal
		}
		return &Refusal{kind: k}
	}
	return Internal.Because(err)
}
