package ai_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/grant"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
	"github.com/allodhq/allod/wire/ai/succession"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// canary is a text that no message has by chance.
const canary = "canarybird"

// statuses are the contract's codes, in its order.
var statuses = []struct {
	code   ai.Code
	kind   *refusal.Kind
	status int
}{
	{"bad-request", ai.ErrBadRequest, 400}, {"unsupported-protocol-version", ai.ErrUnsupportedVersion, 400},
	{"daemon-below-floor", ai.ErrBelowFloor, 426},
	{"unauthorized", ai.ErrUnauthorized, 401}, {"forbidden", ai.ErrForbidden, 403}, {"revoked", ai.ErrRevoked, 403},
	{"not-found", ai.ErrNotFound, 404}, {"not-ready", ai.ErrNotReady, 409}, {"too-late", ai.ErrTooLate, 409},
	{"clock-skew", ai.ErrClockSkew, 401}, {"rate-limited", ai.ErrRateLimited, 429}, {"server-error", ai.ErrServer, 500},
}

func TestCodes(t *testing.T) {
	var codes []ai.Code
	for _, s := range statuses {
		codes = append(codes, s.code)
		if s.code.Status() != s.status || s.kind.Name() != string(s.code) || s.kind.Status() != s.status {
			t.Errorf("%s has the status %d", s.code, s.code.Status())
		}
		if kind := errors.Unwrap(&ai.Error{Code: s.code}); kind != s.kind {
			t.Errorf("%s unwraps to %v", s.code, kind)
		}
	}
	if !slices.Equal(ai.Codes(), codes) {
		t.Errorf("the codes are %v", ai.Codes())
	}
	for _, code := range []ai.Code{"", "Bad-Request", "bad-request ", "internal", "request-stale"} {
		if code.Status() != 0 {
			t.Errorf("%q has the status %d", code, code.Status())
		}
		e := &ai.Error{Code: code, Message: "m"}
		if errors.Unwrap(e) != nil || errors.Is(e, ai.ErrBadRequest) {
			t.Errorf("%q is a kind of the contract", code)
		}
	}
	if ai.Refusals.Title != "On the wire of the AI contract" {
		t.Errorf("the refusals are titled %q", ai.Refusals.Title)
	}
	if text := (&ai.Error{Code: "not-found", Message: "m"}).Error(); text != "not-found: m" {
		t.Errorf("an error reads %q", text)
	}
}

// codecs are the codecs of all versions.
func codecs() []ai.Codec {
	var all []ai.Codec
	for _, version := range protocol.Supported() {
		codec, _ := protocol.Find(version)
		all = append(all, codec)
	}
	return all
}

// TestErrorOf holds what becomes of each kind of error on its way out.
func TestErrorOf(t *testing.T) {
	const detail = "The member x is not a number."
	wire := &ai.Error{Code: "too-late", Message: "m"}
	type want struct {
		code    ai.Code
		message string
	}
	meaning := func(k *refusal.Kind) string { return k.Meaning() }
	server := want{"server-error", meaning(ai.ErrServer)}
	for what, c := range map[string]struct {
		err  error
		want want
	}{
		"nothing":                        {nil, server},
		"an error of the wire":           {wire, want{"too-late", "m"}},
		"one that is wrapped":            {fmt.Errorf("%s: %w", canary, wire), want{"too-late", "m"}},
		"a bare kind of the contract":    {ai.ErrRevoked, want{"revoked", meaning(ai.ErrRevoked)}},
		"one with a detail":              {ai.ErrForbidden.With(detail), want{"forbidden", meaning(ai.ErrForbidden) + " " + detail}},
		"one with a cause":               {ai.ErrForbidden.Because(errors.New(canary)), want{"forbidden", meaning(ai.ErrForbidden)}},
		"one caused by one of the wire":  {ai.ErrForbidden.Because(wire), want{"forbidden", meaning(ai.ErrForbidden)}},
		"one far behind":                 {ai.ErrForbidden.Because(fmt.Errorf("%s: %w", canary, wire)), want{"forbidden", meaning(ai.ErrForbidden)}},
		"one behind a fault of our own":  {key.ErrFile.Because(wire), server},
		"one of no contract":             {&ai.Error{Code: canary, Message: canary}, server},
		"one that is wrapped in a text":  {fmt.Errorf("%s: %w", canary, ai.ErrNotReady), want{"not-ready", meaning(ai.ErrNotReady)}},
		"bad input":                      {key.ErrText, want{"bad-request", meaning(ai.ErrBadRequest) + " " + meaning(key.ErrText)}},
		"bad input with a detail":        {weburl.ErrURL.With(canary), want{"bad-request", meaning(ai.ErrBadRequest) + " " + meaning(weburl.ErrURL)}},
		"bad input with a cause":         {envelope.ErrMalformed.Because(errors.New(canary)), want{"bad-request", meaning(ai.ErrBadRequest) + " " + meaning(envelope.ErrMalformed)}},
		"bad input, wrapped":             {fmt.Errorf("%s: %w", canary, backend.ErrUnknown), want{"bad-request", meaning(ai.ErrBadRequest) + " " + meaning(backend.ErrUnknown)}},
		"a problem of a document":        {&exact.Problem{Rule: exact.ErrType, Path: canary}, want{"bad-request", meaning(ai.ErrBadRequest) + " " + meaning(exact.ErrType)}},
		"a caller who is not known":      {signing.ErrSignature.With(canary), want{"unauthorized", meaning(ai.ErrUnauthorized)}},
		"a caller who may not":           {match.ErrScope, want{"forbidden", meaning(ai.ErrForbidden)}},
		"one who may not, with a detail": {match.ErrCeiling.With(canary), want{"forbidden", meaning(ai.ErrForbidden)}},
		"a fault of our own":             {key.ErrPrivate.Because(errors.New(canary)), server},
		"an error without a name":        {refusal.Internal.Because(errors.New(canary)), server},
		"an error of a library":          {fmt.Errorf("%s: %w", canary, io.EOF), server},
		"a kind of the same name":        {refusal.NewKind("not-found", 404, canary+" is a meaning.", "There is no way."), want{"not-found", meaning(ai.ErrNotFound)}},
		"a bad kind of the same name": {
			refusal.NewKind("bad-request", 400, "Something else is meant.", "There is no way."),
			want{"bad-request", meaning(ai.ErrBadRequest) + " Something else is meant."},
		},
		"several":                    {errors.Join(errors.New(canary), ai.ErrTooLate), want{"too-late", meaning(ai.ErrTooLate)}},
		"a status that only is 4xx":  {refusal.NewKind("teapot", 418, canary+" is a meaning.", "There is no way."), server},
		"a version that is unspoken": {ai.ErrUnsupportedVersion, want{"unsupported-protocol-version", meaning(ai.ErrUnsupportedVersion)}},
	} {
		got := ai.ErrorOf(c.err)
		if got.Code != c.want.code || got.Message != c.want.message {
			t.Errorf("%s: %v\nwant %v", what, got, c.want)
		}
		if strings.Contains(got.Error(), canary) {
			t.Errorf("%s: the text of the error is told: %v", what, got)
		}
		if got != wire && (got.RetryAfter != nil || got.Supported != nil || got.Minimum != "" || got.ServerTime != 0 || got.MaxSkewMs != 0) {
			t.Errorf("%s: it says more than it knows: %+v", what, got)
		}
	}
}

// TestEveryKindBecomesACode runs over all refusals that this module's wire
// packages declare, so that a new one has an answer as well.
func TestEveryKindBecomesACode(t *testing.T) {
	for _, registry := range []refusal.Registry{
		ai.Refusals, signing.Kinds, envelope.Kinds, match.Kinds, grant.Kinds, succession.Kinds, backend.Kinds, weburl.Kinds, exact.Kinds, key.Kinds, refusal.Kinds,
	} {
		for _, kind := range registry.Kinds {
			e := ai.ErrorOf(kind.With("A detail of our own."))
			want := ai.Code("server-error")
			switch {
			case ai.Code(kind.Name()).Status() != 0:
				want = ai.Code(kind.Name())
			case kind.Status() == 400:
				want = "bad-request"
			case kind.Status() == 401:
				want = "unauthorized"
			case kind.Status() == 403:
				want = "forbidden"
			case kind.Status() == 404:
				want = "not-found"
			}
			if e.Code != want || !slices.Contains(ai.Codes(), e.Code) {
				t.Errorf("%s becomes %s", kind.Name(), e.Code)
			}
			// It can be written, unless the contract wants more members.
			more := []ai.Code{"unsupported-protocol-version", "clock-skew", "daemon-below-floor"}
			for _, codec := range codecs() {
				if _, err := codec.Error.Write(*e); (err == nil) == slices.Contains(more, e.Code) {
					t.Errorf("%s in version %s: %v", kind.Name(), codec.Version, err)
				}
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for wait, want := range map[time.Duration]int64{
		1: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90, time.Hour - time.Millisecond: 3600, math.MaxInt64: 9223372037,
	} {
		e := ai.ErrorOf(ai.ErrRateLimited.With("Slow down a little.").After(wait))
		if e.RetryAfter == nil || *e.RetryAfter != want {
			t.Errorf("%v becomes %v", wait, e.RetryAfter)
		}
		for _, codec := range codecs() {
			if _, err := codec.Error.Write(*e); err != nil {
				t.Errorf("%v cannot be written in version %s: %v", wait, codec.Version, err)
			}
		}
	}
	for _, wait := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
		if e := ai.ErrorOf(ai.ErrRateLimited.With("Slow down a little.").After(wait)); e.RetryAfter != nil {
			t.Errorf("%v becomes %v", wait, *e.RetryAfter)
		}
	}
}

func TestBadRequest(t *testing.T) {
	e := ai.BadRequest("The member x is missing.")
	if e.Code != "bad-request" || e.Message != ai.ErrBadRequest.Meaning()+" The member x is missing." || !errors.Is(e, ai.ErrBadRequest) {
		t.Errorf("%v", e)
	}
}

func TestClockSkew(t *testing.T) {
	e := ai.ClockSkew(1_750_000_000_000, signing.Window)
	if e.Code != "clock-skew" || e.Message != ai.ErrClockSkew.Meaning() || e.ServerTime != 1_750_000_000_000 || e.MaxSkewMs != 120_000 {
		t.Errorf("%+v", e)
	}
	if e.Supported != nil || e.Minimum != "" || e.RetryAfter != nil || !errors.Is(e, ai.ErrClockSkew) || e.Code.Status() != 401 {
		t.Errorf("%+v", e)
	}
	for _, codec := range codecs() {
		body, err := codec.Error.Write(*e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := codec.Error.Read(body)
		if err != nil || got.ServerTime != e.ServerTime || got.MaxSkewMs != e.MaxSkewMs || got.Message != e.Message {
			t.Errorf("%s reads as %+v, %v", body, got, err)
		}
	}
}
