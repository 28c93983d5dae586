package webhook

import (
	"testing"
	"time"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

func TestStep(t *testing.T) {
	ended := time.UnixMilli(1750000000000)
	all := func(n int64) int64 { return n - 1 }
	none := func(int64) int64 { return 0 }
	const day = 24 * time.Hour
	for _, test := range []struct {
		name     string
		attempts int
		after    time.Duration // of the end
		jitter   func(int64) int64
		answer   answer
		do       verdict
		wait     time.Duration
		why      string
	}{
		{"taken", 1, 0, all, answer{status: 200}, delivered, 0, ""},
		{"taken otherwise", 1, 0, all, answer{status: 299}, delivered, 0, ""},
		{"taken late", 90, 9 * day, all, answer{status: 204}, delivered, 0, ""},
		{"no success yet", 1, 0, none, answer{status: 199}, again, 1, "http-199"},
		{"a redirect", 1, 0, none, answer{status: 300}, again, 1, "http-300"},
		{"not found", 1, 0, none, answer{status: 404}, again, 1, "http-404"},
		{"no answer", 1, 0, none, answer{why: "timeout"}, again, 1, "timeout"},

		{"first wait", 1, 0, all, answer{status: 500}, again, 5 * time.Second, "http-500"},
		{"second wait", 2, 0, all, answer{status: 500}, again, 10 * time.Second, "http-500"},
		{"half of it", 2, 0, func(n int64) int64 { return n/2 - 1 }, answer{status: 500}, again, 5 * time.Second, "http-500"},
		{"tenth wait", 10, 0, all, answer{status: 500}, again, 2560 * time.Second, "http-500"},
		{"eleventh wait", 11, 0, all, answer{status: 500}, again, time.Hour, "http-500"},
		{"twelfth wait", 12, 0, all, answer{status: 500}, again, time.Hour, "http-500"},
		{"thousandth wait", 1000, 0, all, answer{status: 500}, again, time.Hour, "http-500"},
		{"never counted", 0, 0, all, answer{status: 500}, again, 5 * time.Second, "http-500"},

		{"asked to wait", 1, 0, none, answer{status: 429, after: time.Minute}, again, time.Minute, "http-429"},
		{"asked to wait less", 3, 0, all, answer{status: 503, after: time.Second}, again, 20 * time.Second, "http-503"},
		{"asked to wait too long", 1, 0, none, answer{status: 503, after: 2 * time.Hour}, again, time.Hour, "http-503"},

		{"the last attempt in time", 50, 3*day - time.Hour, all, answer{status: 500}, again, time.Hour, "http-500"},
		{"none in time any more", 50, 3*day - time.Hour + 1, all, answer{status: 500}, givenUp, 0, "http-500"},
		{"the first one is too late", 1, 9 * day, none, answer{why: "name"}, givenUp, 0, "name"},

		{"gone", 1, 0, all, answer{status: 410}, gone, 0, "http-410"},
		{"gone late", 1, 9 * day, all, answer{status: 410, after: time.Hour}, gone, 0, "http-410"},
	} {
		now := ended.Add(test.after)
		got := step(site.HookEvent{EndedAt: ai.MillisOf(ended), Attempts: test.attempts}, now, test.jitter, test.answer)
		want := next{do: test.do, at: now.Add(test.wait), why: test.why}
		if test.do == delivered || test.do == givenUp {
			want.at = time.Time{}
		}
		if !got.at.Equal(want.at) || got.do != want.do || got.why != want.why {
			t.Errorf("%s: %+v, want %+v", test.name, got, want)
		}
	}
}
