package zone_test

import (
	"strings"
	"testing"
	"time"

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
