package runner

import "time"

// steady is the clock of a lane. It never goes back, and it goes on while the
// machine sleeps: the clock that Go measures time with stands still then on some
// systems, and a lease does not. A wall clock that is set forward counts as time
// that passed, which at worst ends a lease too soon.
type steady struct {
	base time.Time
	// ahead is how far the wall clock is ahead of what was measured, and last the
	// time that was told last.
	ahead, last time.Duration
}

// tolerated is how far the wall clock may be ahead before it is believed. Clocks
// that are being adjusted differ by less.
const tolerated = time.Second

// now is the steady time at t, which a clock has just read.
func (s *steady) now(t time.Time) time.Time {
	if s.base.IsZero() {
		s.base = t
	}
	return s.base.Add(s.elapsed(t.Sub(s.base), t.Round(0).Sub(s.base.Round(0))))
}

// elapsed is how much time has passed by what the two clocks say.
func (s *steady) elapsed(measured, wall time.Duration) time.Duration {
	if ahead := wall - measured; ahead > s.ahead+tolerated {
		s.ahead = ahead
	}
	s.last = max(s.last, measured+s.ahead)
	return s.last
}
