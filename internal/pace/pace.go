package pace

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/allodhq/allod/wire/zone/handshake"
)

// Pace is one program's slots. Make it with New.
type Pace struct {
	interval time.Duration
	slot     time.Time // any slot; zero until the first Wait
	next     time.Time
	ahead    time.Duration // how far next was ahead when it was set
}

// New makes slots that are interval apart.
func New(interval time.Duration) Pace { return Pace{interval: interval} }

// Wait reports whether it is too early, and until when. The first call places the
// slots, by rand.
func (p *Pace) Wait(now time.Time, rand io.Reader) (until time.Time, wait bool) {
	if p.slot.IsZero() {
		p.slot = now.Add(within(rand, p.interval))
		if p.next.IsZero() { // nobody asked for an earlier one
			p.set(now, p.slot)
		}
	}
	if p.next.Sub(now) > p.ahead { // the clock was set back
		p.set(now, now.Add(p.ahead))
	}
	return p.next, now.Before(p.next)
}

// At is the time of the next request.
func (p *Pace) At() time.Time { return p.next }

// Done says that a request went well: the next one is in the next slot.
func (p *Pace) Done(now time.Time) { p.set(now, p.after(now)) }

// Soon asks for a request before the next slot, at a random time until then.
func (p *Pace) Soon(now time.Time, rand io.Reader) {
	p.set(now, now.Add(within(rand, p.after(now).Sub(now))))
}

// Now asks for a request at once.
func (p *Pace) Now(now time.Time) { p.set(now, now) }

// Failed says that a request failed.
func (p *Pace) Failed(now time.Time, err error) {
	if errors.Is(err, handshake.ErrIncompatible) {
		p.set(now, now.Add(handshake.RetryInterval))
		return
	}
	p.set(now, p.after(now))
}

func (p *Pace) set(now, next time.Time) { p.next, p.ahead = next, next.Sub(now) }

// after is the first slot behind a time. The clock may have been set back.
func (p *Pace) after(now time.Time) time.Time {
	if p.slot.IsZero() {
		p.slot = now
	}
	since := now.Sub(p.slot) % p.interval
	if since < 0 {
		since += p.interval
	}
	return now.Add(p.interval - since)
}

// within is a random duration below d. Without randomness it is half of d: late is
// better than never.
func within(rand io.Reader, d time.Duration) time.Duration {
	var b [8]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil || d <= 0 {
		return d / 2
	}
	return time.Duration(binary.BigEndian.Uint64(b[:]) % uint64(d))
}
