package pace_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/node/pace"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
)

const interval = 10 * time.Second

var begin = time.UnixMilli(1_700_000_000_000)

// placed is a pace that has made its first request.
func placed(t testing.TB, seed byte) (*pace.Pace, time.Time) {
	t.Helper()
	p := pace.New(interval)
	until, wait := p.Wait(begin, rand.NewChaCha8([32]byte{seed}))
	if !wait || until.Before(begin) || !until.Before(begin.Add(interval)) {
		t.Fatal(until, wait)
	}
	return &p, until
}

func incompatible(t testing.TB) error {
	t.Helper()
	old, err := handshake.Make("31.0.0", "31.0.0")
	if err != nil {
		t.Fatal(err)
	}
	return handshake.Negotiate(handshake.Ours(handshake.SparkNode), old)
}

// TestF03OnlyAProtocolRefusalWaitsForFiveMinutes: every other error uses the next
// slot.
func TestF03OnlyAProtocolRefusalWaitsForFiveMinutes(t *testing.T) {
	p, slot := placed(t, 1)
	for _, err := range []error{errors.New("away"), enroll.ErrCredential, enroll.ErrExpired, handshake.ErrOffer, refusal.Internal, enroll.ErrProofMode.With("x")} {
		p.Failed(slot, err)
		if p.At() != slot.Add(interval) {
			t.Errorf("after %v: %s", err, p.At().Sub(slot))
		}
	}
	for _, err := range []error{incompatible(t), handshake.ErrIncompatible, refusal.Internal.Because(nil)} {
		want := 300 * time.Second
		if !errors.Is(err, handshake.ErrIncompatible) {
			want = interval
		}
		p.Failed(slot, err)
		if p.At() != slot.Add(want) {
			t.Errorf("after %v: %s, want %s", err, p.At().Sub(slot), want)
		}
		if _, wait := p.Wait(slot.Add(want-time.Millisecond), nil); !wait {
			t.Errorf("after %v it asks sooner", err)
		}
		if _, wait := p.Wait(slot.Add(want), nil); wait {
			t.Errorf("after %v it asks later", err)
		}
	}
}

// TestSlotsStay: whatever happens, and however long an answer takes, the next slot
// is at the same place in the interval, and never more than one interval away.
func TestSlotsStay(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p, slot := placed(t, rapid.Byte().Draw(r, "seed"))
		now := slot
		for range 50 {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Second)).Draw(r, "took")))
			switch rapid.IntRange(0, 2).Draw(r, "how") {
			case 0:
				p.Done(now)
			case 1:
				p.Failed(now, errors.New("away"))
			case 2: // the clock is set
				now = now.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(r, "by")))
				p.Done(now)
			}
			if d := p.At().Sub(now); d <= 0 || d > interval {
				r.Fatalf("the next one is in %s", d)
			}
			if off := p.At().Sub(slot) % interval; off != 0 {
				r.Fatalf("it left its slot by %s", off)
			}
			now = p.At()
		}
	})
}

func TestSoonAndNow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p, slot := placed(t, rapid.Byte().Draw(r, "seed"))
		p.Soon(slot, rand.NewChaCha8([32]byte{rapid.Byte().Draw(r, "other")}))
		if d := p.At().Sub(slot); d < 0 || d >= interval {
			r.Fatalf("soon is in %s", d)
		}
		p.Done(p.At())
		if p.At() != slot.Add(interval) {
			r.Fatalf("soon moved the slot by %s", p.At().Sub(slot)-interval)
		}
	})
	p, slot := placed(t, 1)
	p.Now(slot)
	if _, wait := p.Wait(slot, nil); wait {
		t.Error("now is not now")
	}
	first := pace.New(interval)
	first.Now(begin) // before it has slots
	if _, wait := first.Wait(begin, bytes.NewReader(nil)); wait {
		t.Error("now is not now before there are slots")
	}
	first.Done(begin)
	if first.At() != begin.Add(interval/2) {
		t.Error("and then the slots are not used")
	}
}

// TestAClockThatIsSetBackKeepsNobodySilent: no wait is longer than it was when it
// began.
func TestAClockThatIsSetBackKeepsNobodySilent(t *testing.T) {
	for _, c := range []struct {
		err  error
		most time.Duration
	}{{nil, interval}, {errors.New("away"), interval}, {handshake.ErrIncompatible, handshake.RetryInterval}} {
		p, slot := placed(t, 3)
		if c.err == nil {
			p.Done(slot)
		} else {
			p.Failed(slot, c.err)
		}
		back := slot.Add(-365 * 24 * time.Hour)
		until, wait := p.Wait(back, nil)
		if !wait || until.Sub(back) > c.most {
			t.Errorf("after %v and a year back it waits for %s", c.err, until.Sub(back))
		}
		if _, wait := p.Wait(until, nil); wait {
			t.Errorf("after %v it waits again", c.err)
		}
	}
}

func TestWithoutRandomnessThereIsASlot(t *testing.T) {
	p := pace.New(interval)
	if until, wait := p.Wait(begin, bytes.NewReader([]byte{1, 2})); !wait || until != begin.Add(interval/2) {
		t.Error(until, wait)
	}
}
