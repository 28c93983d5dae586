package zone_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/zone"
)

func TestValidID(t *testing.T) {
	for _, good := range []string{"a", "7", "node-a", "a.b_c-d", strings.Repeat("x", 128), "0-0"} {
		if !zone.ValidID(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "-a", "a-", ".a", "a.", "_", "A", "node a", "nöde", "a/b", "a\x00b", "a\n", strings.Repeat("x", 129)} {
		if zone.ValidID(bad) {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestIDsAreThoseOfTheDecision compares with the expression of decision O11.
func TestIDsAreThoseOfTheDecision(t *testing.T) {
	decided := regexp.MustCompile(`^[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?$`)
	draw := rapid.StringOfN(rapid.SampledFrom([]rune("az09._-A/ \n\x00\u00e9`{:@")), 0, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		s := draw.Draw(t, "front") + strings.Repeat("a", rapid.SampledFrom([]int{0, 0, 1, 120, 124, 125, 126, 127, 128}).Draw(t, "long")) + draw.Draw(t, "end")
		if rapid.Bool().Draw(t, "clean") {
			s = strings.Map(func(r rune) rune {
				if strings.ContainsRune("A/ \n\x00\u00e9`{:@", r) {
					return '-'
				}
				return r
			}, s)
		}
		if zone.ValidID(s) != decided.MatchString(s) {
			t.Fatalf("%q is an identifier: %v, by the decision %v", s, zone.ValidID(s), decided.MatchString(s))
		}
	})
}

func TestMillis(t *testing.T) {
	at := time.Date(2026, 12, 1, 15, 0, 0, 987_654_321, time.FixedZone("", 3600))
	if got := zone.At(at); got != 1796133600987 { // date -d '2026-12-01T15:00:00+01:00' +%s
		t.Errorf("At is %d", got)
	}
	if got := zone.Millis(1796133600987).Time(); !got.Equal(at.Truncate(time.Millisecond)) || got.Location() != time.UTC {
		t.Errorf("Time is %v", got)
	}
}

func TestCursor(t *testing.T) {
	for key, want := range map[string]zone.Cursor{"": "", "main": "bWFpbg", "a.b_c-d": "YS5iX2MtZA"} {
		if got := zone.After(key); got != want {
			t.Errorf("After(%q) is %q", key, got)
		}
		if got, ok := want.Key(); got != key || !ok {
			t.Errorf("Key of %q is %q, %v", want, got, ok)
		}
	}
	for _, bad := range []zone.Cursor{"bWFpbh", "bWFpbg==", "bWFp\nbg", "b", "bWFpb!"} {
		if got, ok := bad.Key(); ok {
			t.Errorf("%q is a cursor of %q", bad, got)
		}
	}
	if longest := zone.After(strings.Repeat("x", 192)); len(longest) != zone.MaxCursor {
		t.Errorf("the longest cursor has %d bytes", len(longest))
	}
}
