package runner

import (
	"testing"
	"time"
)

func TestSteady(t *testing.T) {
	var s steady
	for _, c := range []struct {
		what                 string
		measured, wall, want time.Duration
	}{
		{"both go", 10 * time.Second, 10 * time.Second, 10 * time.Second},
		{"the wall clock is adjusted a little", 20 * time.Second, 20*time.Second + 900*time.Millisecond, 20 * time.Second},
		{"the machine slept for an hour", 21 * time.Second, time.Hour + 21*time.Second, time.Hour + 21*time.Second},
		{"and goes on", 31 * time.Second, time.Hour + 31*time.Second, time.Hour + 31*time.Second},
		{"the wall clock is set back", 41 * time.Second, -time.Hour, time.Hour + 41*time.Second},
		{"and to what it was", 51 * time.Second, time.Hour + 51*time.Second, time.Hour + 51*time.Second},
		{"the clock is read a moment ago", 50 * time.Second, time.Hour + 50*time.Second, time.Hour + 51*time.Second},
		{"it sleeps again", 61 * time.Second, 3 * time.Hour, 3 * time.Hour},
	} {
		if got := s.elapsed(c.measured, c.wall); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	var real steady
	before := time.Now()
	if got := real.now(before); !got.Equal(before) {
		t.Errorf("begins at %v and not at %v", got, before)
	}
}
