package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// smallBody is how much of a body is read without a turn, in bytes. What these
// take together is bounded by how many requests may be under way.
const smallBody = 1 << 20

// How many bodies of more than smallBody bytes are read at once, in all and of one
// key, and how long one waits for its turn.
const (
	maxLarge    = 4
	maxKeyLarge = 2
	turnTime    = 10 * time.Second
)

// A body has bodyTime and a second more for each bodyRate bytes that came.
const (
	bodyTime = time.Minute
	bodyRate = 256 << 10
)

// body reads a request's body whole, so that a closed connection shows from then
// on. It returns [ErrTooLarge], [ErrSlow], [ErrStopping], [ErrJSON] for a body that
// ends too soon, and [ErrBusy] for a large one that found no turn.
func (g *gateway) body(c *call) ([]byte, error) {
	if c.r.ContentLength > maxBody {
		return nil, ErrTooLarge
	}
	in := &paced{r: c.r, control: http.NewResponseController(c.w), stopping: g.Stopping, begin: time.Now()}
	var body bytes.Buffer
	if _, err := body.ReadFrom(io.LimitReader(in, smallBody+1)); err != nil {
		return nil, broken(err)
	}
	if body.Len() <= smallBody {
		return body.Bytes(), nil
	}
	asked := time.Now()
	if err := g.large.take(c.r.Context(), g.Stopping, c.access.KeyID); err != nil {
		return nil, err
	}
	defer g.large.give(c.access.KeyID)
	in.begin = in.begin.Add(time.Since(asked)) // nothing was read meanwhile
	if _, err := body.ReadFrom(io.LimitReader(in, maxBody-smallBody)); err != nil {
		return nil, broken(err)
	}
	if body.Len() > maxBody {
		return nil, ErrTooLarge
	}
	return body.Bytes(), nil
}

// broken is why a body did not come whole.
func broken(err error) error {
	switch {
	case errors.Is(err, ErrStopping):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSlow.Because(err)
	}
	return ErrJSON.With("The body ended too soon.").Because(err)
}

// paced is a body that has to keep its pace.
type paced struct {
	r        *http.Request
	control  *http.ResponseController
	stopping context.Context
	begin    time.Time
	read     int64
	ended    bool
}

func (p *paced) Read(b []byte) (int, error) {
	if p.ended {
		return 0, io.EOF
	}
	if p.stopping.Err() != nil {
		return 0, stopped(nil)
	}
	// Set before a read only: after the last one the server watches the connection,
	// and takes a deadline that passes for its end.
	more := time.Duration(p.read) * time.Second / bodyRate
	_ = p.control.SetReadDeadline(p.begin.Add(bodyTime + more)) // a recorder has no connection
	n, err := p.r.Body.Read(b)
	p.read += int64(n)
	p.ended = err != nil
	return n, err
}

// turns are the turns of those who read a large body.
type turns struct {
	mu    sync.Mutex
	taken int
	keys  map[string]int
	// freed is closed when a turn is free again.
	freed chan struct{}
}

func newTurns() *turns { return &turns{keys: map[string]int{}, freed: make(chan struct{})} }

// take waits for a turn of a key. It returns [ErrBusy], [ErrStopping] and the
// context's error.
func (t *turns) take(ctx, stopping context.Context, key string) error {
	end := time.NewTimer(turnTime)
	defer end.Stop()
	for {
		t.mu.Lock()
		free, freed := t.taken < maxLarge && t.keys[key] < maxKeyLarge, t.freed
		if free {
			t.taken++
			t.keys[key]++
		}
		t.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-freed:
		case <-end.C:
			return ErrBusy.With("Few bodies of more than 1 MiB are read at once.").After(afterBusy)
		case <-stopping.Done():
			return stopped(nil)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// give gives a turn back.
func (t *turns) give(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	if t.keys[key]--; t.keys[key] == 0 {
		delete(t.keys, key)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}
