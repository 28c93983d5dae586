package refusal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/refusal"
)

const (
	internalJSON     = `{"error":"internal","message":"Something failed here that has no name yet.","wayOut":"Try again. If it stays, look in the log of this process at the time of the request and report it."}`
	internalTerminal = "Something failed here that has no name yet.\nTry again. If it stays, look in the log of this process at the time of the request and report it.\n(internal)"
)

func TestRenderings(t *testing.T) {
	const meaning = `The store has no room for another job.`
	const wayOut = `Wait until a job has ended, or give the store more room.`
	quoting := refusal.NewKind("odd-words", 418,
		"It said \"no\" & <left>\tfor the \\ \u2028 café.", "Read \u007f it again.\x01.")
	for name, c := range map[string]struct {
		err      error
		status   int
		json     string
		terminal string
		exit     int
	}{
		"nil": {nil, 500, internalJSON, "", 0},
		"kind": {full, 503,
			`{"error":"store-full","message":"` + meaning + `","wayOut":"` + wayOut + `"}`,
			meaning + "\n" + wayOut + "\n(store-full)", 6},
		"detail": {full.With("It holds 4 jobs."), 503,
			`{"error":"store-full","message":"` + meaning + ` It holds 4 jobs.","wayOut":"` + wayOut + `"}`,
			meaning + " It holds 4 jobs.\n" + wayOut + "\n(store-full)", 6},
		"wait": {full.With("").After(90 * time.Second), 503,
			`{"error":"store-full","message":"` + meaning + `","wayOut":"` + wayOut + `","retryAfter":90}`,
			meaning + "\n" + wayOut + "\n(store-full)", 6},
		"everything, wrapped": {fmt.Errorf("claim: %w", full.With("One detail.").Because(errors.New("disk")).After(time.Second)), 503,
			`{"error":"store-full","message":"` + meaning + ` One detail.","wayOut":"` + wayOut + `","retryAfter":1}`,
			meaning + " One detail.\n" + wayOut + "\n(store-full)", 6},
		"wrapped kind": {fmt.Errorf("claim: %w", lost), 409,
			`{"error":"lease-lost","message":"Another runner holds the lease by now.","wayOut":"Drop the job; its result would be ignored."}`,
			"Another runner holds the lease by now.\nDrop the job; its result would be ignored.\n(lease-lost)", 5},
		"foreign": {errors.New("disk"), 500, internalJSON, internalTerminal, 1},
		// JSON text is as JSON.stringify writes it: no more is escaped than must be.
		"quoting": {quoting, 418,
			`{"error":"odd-words","message":"It said \"no\" & <left>\tfor the \\ ` + "\u2028" + ` café.","wayOut":"Read ` + "\u007f" + ` it again.\u0001."}`,
			"It said \"no\" & <left>\tfor the \\ \u2028 café.\nRead \u007f it again.\x01.\n(odd-words)", 1},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := refusal.HTTP(c.err)
			if status != c.status {
				t.Errorf("HTTP status %d, want %d", status, c.status)
			}
			if string(body) != c.json {
				t.Errorf("HTTP body\n%s, want\n%s", body, c.json)
			}
			if got := refusal.JSON(c.err); string(got) != c.json {
				t.Errorf("JSON\n%s, want\n%s", got, c.json)
			}
			if got := refusal.Terminal(c.err); got != c.terminal {
				t.Errorf("Terminal\n%s, want\n%s", got, c.terminal)
			}
			if got := refusal.ExitCode(c.err); got != c.exit {
				t.Errorf("ExitCode %d, want %d", got, c.exit)
			}
		})
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		math.MinInt64:               "",
		-time.Second:                "",
		0:                           "",
		1:                           `"retryAfter":1}`,
		time.Millisecond:            `"retryAfter":1}`,
		time.Second - 1:             `"retryAfter":1}`,
		time.Second:                 `"retryAfter":1}`,
		time.Second + 1:             `"retryAfter":2}`,
		2 * time.Second:             `"retryAfter":2}`,
		time.Hour:                   `"retryAfter":3600}`,
		time.Hour + time.Nanosecond: `"retryAfter":3601}`,
		math.MaxInt64:               `"retryAfter":9223372037}`,
	} {
		got := string(refusal.JSON(full.With("").After(wait)))
		if want == "" && strings.Contains(got, "retryAfter") || !strings.HasSuffix(got, want) {
			t.Errorf("after %v: %s, want it to end with %q", wait, got, want)
		}
	}
}

// TestExitCodes holds the whole table: every status there is.
func TestExitCodes(t *testing.T) {
	table := map[int]int{400: 2, 401: 3, 403: 3, 404: 4, 409: 5, 429: 6, 503: 6, 501: 7}
	for status := 400; status <= 599; status++ {
		want, ok := table[status]
		if !ok {
			want = 1
		}
		k := refusal.NewKind("example", status, "This is an example.", "There is no way out.")
		for _, err := range []error{k, k.With("It has a detail."), fmt.Errorf("wrapped: %w", k)} {
			if got := refusal.ExitCode(err); got != want {
				t.Errorf("status %d: exit code %d, want %d", status, got, want)
			}
			if got, _ := refusal.HTTP(err); got != status {
				t.Errorf("status %d: HTTP status %d", status, got)
			}
		}
	}
}

// canary stands for what must stay out of sight: a caller's input or a secret
// that the text of a library's error quotes.
const canary = "canary-5fb3"

// TestCauseIsSeenByLogsOnly plants a text in causes of every form. The log must
// have it, or the search would prove nothing.
func TestCauseIsSeenByLogsOnly(t *testing.T) {
	cause := fmt.Errorf("reading: %w", &foreign{canary})
	for name, c := range map[string]struct {
		err error
		own bool // the error's own text is ours
	}{
		"refusal":              {full.Because(cause), true},
		"refusal with detail":  {full.With("One detail.").Because(cause), true},
		"refusal of a refusal": {lost.Because(full.Because(cause)), true},
		"internal":             {refusal.Internal.Because(cause), true},
		"foreign":              {cause, false},
		"foreign from":         {refusal.From(cause), true},
	} {
		t.Run(name, func(t *testing.T) {
			_, body := refusal.HTTP(c.err)
			shown := map[string]string{
				"HTTP": string(body), "JSON": string(refusal.JSON(c.err)), "Terminal": refusal.Terminal(c.err),
				"From.Error": refusal.From(c.err).Error(), "From.Detail": refusal.From(c.err).Detail(),
				"%v": fmt.Sprintf("%v", refusal.From(c.err)), "%+v": fmt.Sprintf("%+v", refusal.From(c.err)),
			}
			if c.own {
				shown["Error"] = c.err.Error()
				shown["wrapped"] = fmt.Errorf("claim: %w", c.err).Error()
			}
			for where, text := range shown {
				if strings.Contains(text, canary) {
					t.Errorf("%s shows the cause: %s", where, text)
				}
			}
			if !strings.Contains(cause.Error(), canary) {
				t.Error("the text was not planted")
			}
			// A refusal's own text does not show an inner refusal's cause either.
			if name == "refusal of a refusal" {
				return
			}
			for format, log := range logged(t, refusal.From(c.err)) {
				if !strings.Contains(log, canary) {
					t.Errorf("the %s log lacks the cause: %s", format, log)
				}
			}
		})
	}
}

// logged returns what the two handlers of log/slog write about a value.
func logged(t *testing.T, value any) map[string]string {
	t.Helper()
	var text, js bytes.Buffer
	drop := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	slog.New(slog.NewTextHandler(&text, drop)).Info("refused", "err", value)
	slog.New(slog.NewJSONHandler(&js, drop)).Info("refused", "err", value)
	return map[string]string{"text": text.String(), "JSON": js.String()}
}

func TestLogValue(t *testing.T) {
	for name, c := range map[string]struct {
		value      *refusal.Refusal
		text, json string
	}{
		"kind": {refusal.From(full),
			`err.refusal=store-full`, `"err":{"refusal":"store-full"}`},
		"detail": {full.With("One detail."),
			`err.refusal=store-full err.detail="One detail."`, `"err":{"refusal":"store-full","detail":"One detail."}`},
		"cause": {full.Because(errors.New("disk")),
			`err.refusal=store-full err.cause=disk`, `"err":{"refusal":"store-full","cause":"disk"}`},
		"both": {full.With("One detail.").Because(errors.New("disk")).After(time.Second),
			`err.refusal=store-full err.detail="One detail." err.cause=disk`,
			`"err":{"refusal":"store-full","detail":"One detail.","cause":"disk"}`},
	} {
		log := logged(t, c.value)
		if got, want := log["text"], "level=INFO msg=refused "+c.text+"\n"; got != want {
			t.Errorf("%s: text log %q, want %q", name, got, want)
		}
		if got, want := log["JSON"], `{"level":"INFO","msg":"refused",`+c.json+"}\n"; got != want {
			t.Errorf("%s: JSON log %q, want %q", name, got, want)
		}
	}
}

// TestJSONIsReadAsWritten asks another reader, with details of every kind.
func TestJSONIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		detail := rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.StringMatching(`["\\<>&\x00-\x1f\x7f\x{2028}]{0,8}`),
		).Draw(t, "detail")
		wait := time.Duration(rapid.Int64().Draw(t, "wait"))
		got := refusal.JSON(full.With(detail).After(wait))
		if !utf8.Valid(got) {
			t.Fatalf("not UTF-8: %q", got)
		}
		var read struct {
			Error, Message, WayOut string
			RetryAfter             int64
		}
		dec := json.NewDecoder(bytes.NewReader(got))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&read); err != nil || dec.More() {
			t.Fatalf("%q: %v", got, err)
		}
		want := full.Meaning()
		if detail != "" {
			// Each byte that is no UTF-8 is read as the replacement character.
			want += " " + string([]rune(detail))
		}
		if read.Error != full.Name() || read.Message != want || read.WayOut != full.WayOut() {
			t.Fatalf("read %+v from %q, want the message %q", read, got, want)
		}
		seconds := int64(0)
		if wait > 0 {
			seconds = int64(wait / time.Second)
			if time.Duration(seconds)*time.Second < wait {
				seconds++
			}
		}
		if read.RetryAfter != seconds {
			t.Fatalf("retryAfter %d after %v, want %d", read.RetryAfter, wait, seconds)
		}
	})
}
