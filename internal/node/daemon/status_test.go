package daemon

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// TestF08ARefusedAdoptionIsToldForAWhile: an adoption that was a mistake must not hide what
// is wrong with the node later on, nor make a node without fault look sick.
func TestF08ARefusedAdoptionIsToldForAWhile(t *testing.T) {
	now := time.UnixMilli(1)
	b := &board{log: slog.New(slog.DiscardHandler), clock: func() time.Time { return now }}
	said := func(gaveUp bool, want *refusal.Kind) {
		t.Helper()
		s := b.look()
		if s.GaveUp != gaveUp || (s.Problem == nil) != (want == nil) || want != nil && s.Problem.Name != want.Name() {
			t.Errorf("gave up: %v, with %+v; want %v, with %v", s.GaveUp, s.Problem, gaveUp, want)
		}
	}
	for _, forth := range []time.Duration{GaveUpTold, -time.Hour} {
		b.forget()
		b.show(Status{Phase: Active})
		b.ended(stepLook, enroll.ErrConflict, true)
		b.ended(stepReport, nil, false)
		said(true, enroll.ErrConflict) // a report comes at once, and whoever asked has to see it
		b.ended(stepReport, enroll.ErrCredential, false)
		now = now.Add(forth)
		said(false, enroll.ErrCredential)
		b.ended(stepReport, nil, false)
		said(false, nil)
	}

	// A machine that is no node has nothing else to tell, until somebody begins anew.
	b.show(Status{Phase: New})
	b.ended(stepEnroll, enroll.ErrInvitation, true)
	now = now.Add(24 * time.Hour)
	said(true, enroll.ErrInvitation)
	b.forget()
	said(false, nil)
	if b.ended(stepEnroll, errors.New("odd"), false); b.look().GaveUp {
		t.Error("what is tried again was given up")
	}
}
