package refusal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/refusal"
)

// These kinds are the examples of all tests here.
var (
	full = refusal.NewKind("store-full", 503,
		"The store has no room for another job.",
		"Wait until a job has ended, or give the store more room.")
	lost = refusal.NewKind("lease-lost", 409,
		"Another runner holds the lease by now.",
		"Drop the job; its result would be ignored.")
)

// foreign is an error of somebody else, of a type that errors.As can find.
type foreign struct{ text string }

func (f *foreign) Error() string { return f.text }

func TestNewKindPanicsOnMalformedDeclarations(t *testing.T) {
	const (
		name    = "store-full"
		status  = 503
		meaning = "The store is full."
		wayOut  = "Wait for a while."
	)
	bad := map[string]func(){
		"no name":              func() { refusal.NewKind("", status, meaning, wayOut) },
		"upper case":           func() { refusal.NewKind("Store", status, meaning, wayOut) },
		"upper case inside":    func() { refusal.NewKind("storE", status, meaning, wayOut) },
		"digit first":          func() { refusal.NewKind("1store", status, meaning, wayOut) },
		"hyphen first":         func() { refusal.NewKind("-store", status, meaning, wayOut) },
		"hyphen last":          func() { refusal.NewKind("store-", status, meaning, wayOut) },
		"two hyphens":          func() { refusal.NewKind("store--full", status, meaning, wayOut) },
		"underscore":           func() { refusal.NewKind("store_full", status, meaning, wayOut) },
		"space":                func() { refusal.NewKind("store full", status, meaning, wayOut) },
		"dot":                  func() { refusal.NewKind("store.full", status, meaning, wayOut) },
		"line break":           func() { refusal.NewKind("store\n", status, meaning, wayOut) },
		"not ASCII":            func() { refusal.NewKind("störe", status, meaning, wayOut) },
		"status 0":             func() { refusal.NewKind(name, 0, meaning, wayOut) },
		"status 200":           func() { refusal.NewKind(name, 200, meaning, wayOut) },
		"status 399":           func() { refusal.NewKind(name, 399, meaning, wayOut) },
		"status 600":           func() { refusal.NewKind(name, 600, meaning, wayOut) },
		"no meaning":           func() { refusal.NewKind(name, status, "", wayOut) },
		"short meaning":        func() { refusal.NewKind(name, status, "Ten bytes.", wayOut) },
		"no full stop":         func() { refusal.NewKind(name, status, "The store is full", wayOut) },
		"space before":         func() { refusal.NewKind(name, status, " The store is full.", wayOut) },
		"break after":          func() { refusal.NewKind(name, status, "The store is full.\n", wayOut) },
		"no way out":           func() { refusal.NewKind(name, status, meaning, "") },
		"short way out":        func() { refusal.NewKind(name, status, meaning, "Ten bytes.") },
		"way out unfinished":   func() { refusal.NewKind(name, status, meaning, "Wait for a while") },
		"space in front of it": func() { refusal.NewKind(name, status, meaning, "\tWait for a while.") },
	}
	for what, declare := range bad {
		t.Run(what, func(t *testing.T) {
			defer func() {
				text, _ := recover().(string)
				if !strings.HasPrefix(text, "refusal: ") {
					t.Errorf("the panic is %q, want one that says who panics", text)
				}
			}()
			declare()
		})
	}
	for _, good := range []string{"a", "a1", "a-1", "store-full", "a-b-c2-3d"} {
		if got := refusal.NewKind(good, 400, "Eleven long.", "Eleven long.").Name(); got != good {
			t.Errorf("Name() = %q, want %q", got, good)
		}
	}
	for _, good := range []int{400, 599} {
		// Eleven bytes are the shortest sentence.
		k := refusal.NewKind(name, good, "Eleven it i.", "1234567890.")
		if k.Status() != good {
			t.Errorf("Status() = %d, want %d", k.Status(), good)
		}
	}
}

// A panic at start must name the kind, or nobody finds the line.
func TestNewKindPanicNamesTheKindAndTheFault(t *testing.T) {
	for want, declare := range map[string]func(){
		"refusal: bad name for a kind: Bad":         func() { refusal.NewKind("Bad", 400, "The store is full.", "Wait for a while.") },
		"refusal: status outside 400 to 599: store": func() { refusal.NewKind("store", 1, "The store is full.", "Wait for a while.") },
		"refusal: meaning is not a sentence: store": func() { refusal.NewKind("store", 400, "Full.", "Wait for a while.") },
		"refusal: way out is not a sentence: store": func() { refusal.NewKind("store", 400, "The store is full.", "Wait.") },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic is %q, want %q", got, want)
				}
			}()
			declare()
		}()
	}
}

func TestKindSaysWhatItWasDeclaredWith(t *testing.T) {
	if full.Name() != "store-full" || full.Status() != 503 ||
		full.Meaning() != "The store has no room for another job." ||
		full.WayOut() != "Wait until a job has ended, or give the store more room." {
		t.Errorf("got %q, %d, %q, %q", full.Name(), full.Status(), full.Meaning(), full.WayOut())
	}
	if got, want := full.Error(), "store-full: The store has no room for another job."; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestErrorIsNameMeaningAndDetail(t *testing.T) {
	r := full.With("It holds 4 jobs.")
	if got, want := r.Error(), "store-full: The store has no room for another job. It holds 4 jobs."; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got, want := full.Because(errors.New("disk")).Error(), full.Error(); got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestWithBecauseAndAfterReturnChangedCopies(t *testing.T) {
	cause, other := errors.New("cause"), errors.New("other")
	type parts struct {
		kind   *refusal.Kind
		detail string
		cause  error
		wait   time.Duration
	}
	of := func(r *refusal.Refusal) parts {
		return parts{r.Kind(), r.Detail(), errors.Unwrap(r), r.RetryAfter()}
	}
	base := full.With("One detail.").Because(cause).After(3 * time.Second)
	want := parts{full, "One detail.", cause, 3 * time.Second}
	if of(base) != want {
		t.Fatalf("got %+v, want %+v", of(base), want)
	}
	for name, c := range map[string]struct {
		got  *refusal.Refusal
		want parts
	}{
		"kind with":        {full.With("One detail."), parts{full, "One detail.", nil, 0}},
		"kind because":     {full.Because(cause), parts{full, "", cause, 0}},
		"with":             {base.With("Two details."), parts{full, "Two details.", cause, 3 * time.Second}},
		"with nothing":     {base.With(""), parts{full, "", cause, 3 * time.Second}},
		"because":          {base.Because(other), parts{full, "One detail.", other, 3 * time.Second}},
		"because of none":  {base.Because(nil), parts{full, "One detail.", nil, 3 * time.Second}},
		"after":            {base.After(time.Minute), parts{full, "One detail.", cause, time.Minute}},
		"after no time":    {base.After(0), parts{full, "One detail.", cause, 0}},
		"after a negative": {base.After(-1), parts{full, "One detail.", cause, 0}},
	} {
		if of(c.got) != c.want {
			t.Errorf("%s: got %+v, want %+v", name, of(c.got), c.want)
		}
		if c.got == base {
			t.Errorf("%s: is the same value, want a copy", name)
		}
	}
	if of(base) != want {
		t.Errorf("the original became %+v", of(base))
	}
}

func TestIsAndAsThroughWrapping(t *testing.T) {
	cause := &foreign{"disk"}
	bare := error(full)
	with := error(full.With("One detail."))
	caused := error(full.Because(fmt.Errorf("writing: %w", cause)))
	nested := error(full.Because(lost.Because(cause)))
	// The same words again are another kind: the pointer is the identity.
	twin := refusal.NewKind(full.Name(), full.Status(), full.Meaning(), full.WayOut())

	for name, err := range map[string]error{"bare": bare, "with": with, "caused": caused, "nested": nested} {
		for depth := range 3 {
			if !errors.Is(err, full) {
				t.Errorf("%s, wrapped %d times: is not its kind", name, depth)
			}
			if errors.Is(err, twin) {
				t.Errorf("%s, wrapped %d times: is a kind with the same words", name, depth)
			}
			if got, want := errors.Is(err, lost), name == "nested"; got != want {
				t.Errorf("%s, wrapped %d times: errors.Is(lost) = %v, want %v", name, depth, got, want)
			}
			if got, want := errors.Is(err, cause), name == "caused" || name == "nested"; got != want {
				t.Errorf("%s, wrapped %d times: errors.Is(cause) = %v, want %v", name, depth, got, want)
			}
			var f *foreign
			if got, want := errors.As(err, &f) && f == cause, name == "caused" || name == "nested"; got != want {
				t.Errorf("%s, wrapped %d times: errors.As(cause) = %v, want %v", name, depth, got, want)
			}
			var r *refusal.Refusal
			if got, want := errors.As(err, &r) && r.Kind() == full, name != "bare"; got != want {
				t.Errorf("%s, wrapped %d times: errors.As(refusal) = %v, want %v", name, depth, got, want)
			}
			err = fmt.Errorf("step %d: %w", depth, err)
		}
	}
	if errors.Is(with, fs.ErrNotExist) {
		t.Error("a refusal is an error that it has nothing to do with")
	}
}

func TestFrom(t *testing.T) {
	if got := refusal.From(nil); got != nil {
		t.Errorf("From(nil) = %v, want nil", got)
	}
	r := full.With("One detail.").After(time.Second)
	if got := refusal.From(r); got != r {
		t.Errorf("From(refusal) = %v, want the same", got)
	}
	if got := refusal.From(fmt.Errorf("a: %w", fmt.Errorf("b: %w", r))); got != r {
		t.Errorf("From(wrapped refusal) = %v, want the same", got)
	}
	// The outer refusal is what was decided; the inner one is its cause.
	outer := lost.Because(r)
	if got := refusal.From(fmt.Errorf("a: %w", outer)); got != outer {
		t.Errorf("From(refusal because of another) = %v, want the outer", got)
	}
	for name, err := range map[string]error{"kind": full, "wrapped kind": fmt.Errorf("a: %w", full)} {
		got := refusal.From(err)
		if got.Kind() != full || got.Detail() != "" || got.RetryAfter() != 0 || errors.Unwrap(got) != nil {
			t.Errorf("From(%s) = %+v", name, got)
		}
	}
	f := &foreign{"disk"}
	for name, err := range map[string]error{"foreign": f, "wrapped foreign": fmt.Errorf("a: %w", f)} {
		got := refusal.From(err)
		if got.Kind() != refusal.Internal || got.Detail() != "" || errors.Unwrap(got) != err {
			t.Errorf("From(%s) = %+v", name, got)
		}
	}
}

func TestRegistry(t *testing.T) {
	r := refusal.Registry{Title: "Examples", Kinds: []*refusal.Kind{full, lost}}
	if r.Find("store-full") != full || r.Find("lease-lost") != lost {
		t.Error("Find does not find what is registered")
	}
	for _, name := range []string{"", "store", "Store-full", "internal"} {
		if got := r.Find(name); got != nil {
			t.Errorf("Find(%q) = %v, want nil", name, got)
		}
	}
	if got := (refusal.Registry{}).Find("store-full"); got != nil {
		t.Errorf("an empty registry found %v", got)
	}
	if refusal.Kinds.Find("internal") != refusal.Internal || len(refusal.Kinds.Kinds) != 1 || refusal.Kinds.Title == "" {
		t.Errorf("Kinds = %+v", refusal.Kinds)
	}
}

// TestNilRefusals holds that a nil pointer in an error, a mistake of the code,
// is answered and does not panic.
func TestNilRefusals(t *testing.T) {
	for _, err := range []error{(*refusal.Refusal)(nil), (*refusal.Kind)(nil)} {
		if r := refusal.From(err); r == nil || r.Kind() != refusal.Internal {
			t.Errorf("%T becomes %v", err, r)
		}
		if code := refusal.ExitCode(err); code != 1 {
			t.Errorf("%T ends with %d", err, code)
		}
	}
}

// TestCausesInLogs holds that the innermost cause reaches the log, through
// refusals that were caused by refusals.
func TestCausesInLogs(t *testing.T) {
	var b bytes.Buffer
	inner := refusal.Internal.Because(errors.New("the innermost"))
	slog.New(slog.NewTextHandler(&b, nil)).Error("m", "error", refusal.Internal.Because(inner))
	if !strings.Contains(b.String(), "the innermost") {
		t.Errorf("logged %s", b.String())
	}
}
