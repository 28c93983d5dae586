package site_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// counted is a body that counts what is read of it, and may stop at a byte until
// it is let go on.
type counted struct {
	io.Reader
	read atomic.Int64
	stop int64
	open chan struct{}
}

func (b *counted) Read(p []byte) (int, error) {
	if b.open != nil && b.read.Load() >= b.stop {
		<-b.open
	}
	n, err := b.Reader.Read(p)
	b.read.Add(int64(n))
	return n, err
}

func (*counted) Close() error { return nil }

// with puts a body into a request, with a length that is announced or not.
func (b *counted) with(announced int64) func(*http.Request) {
	return func(r *http.Request) { r.Body, r.ContentLength = b, announced }
}

// TestLargeBodiesOfStrangers: of a large body nothing is read that the caller did
// not earn by headers of a known device. The bodies are wrong in every way that
// comes later.
func TestLargeBodiesOfStrangers(t *testing.T) {
	h := newHouse(t)
	p, gone := paired(h, "alice"), paired(h, "alice")
	if _, err := h.site.Devices.Revoke(t.Context(), gone.runner); err != nil {
		t.Fatal(err)
	}
	by := p.signed(ai.EndpointResult, nil) // a signature, but of another body
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { by(r); r.Header.Set(name, value) }
	}
	nobody := func(*http.Request) {}
	const mebi = 1 << 20
	version := `{"protocolVersion":"9","x":"`
	for _, c := range []struct {
		what      string
		endpoint  string
		caller    func(*http.Request)
		begins    string
		size      int64
		announced bool
		want      ai.Code
		read      int64 // at most
	}{
		{"no signature", "result", nobody, "", 4 * mebi, true, "unauthorized", ai.MaxBody + 1},
		{"no signature, not announced", "result", nobody, "", 4 * mebi, false, "unauthorized", ai.MaxBody + 1},
		{"no caller", "result", set("X-Byollm-Runner", ""), "", 4 * mebi, true, "unauthorized", ai.MaxBody + 1},
		{"no time", "result", set("X-Byollm-Issued-At", "x"), "", 4 * mebi, true, "unauthorized", ai.MaxBody + 1},
		{"an old time", "result", set("X-Byollm-Issued-At", "1750000000000"), "", 4 * mebi, true, "clock-skew", ai.MaxBody + 1},
		{"an unknown device", "result", set("X-Byollm-Runner", "runner_unknown"), "", 4 * mebi, true, "unauthorized", ai.MaxBody + 1},
		{"a revoked device", "result", set("X-Byollm-Runner", string(gone.runner)), "", 4 * mebi, true, "revoked", ai.MaxBody + 1},
		{"one byte too many", "result", nobody, version, ai.MaxBody + 1, true, "unauthorized", ai.MaxBody + 1},

		// Small ones are checked in the order that they always were.
		{"not one byte too many", "result", nobody, version, ai.MaxBody, true, "bad-request", ai.MaxBody},
		{"small, and no JSON", "result", nobody, "", 100, true, "bad-request", 100},

		// A known device's is read on, and then in that order too.
		{"no JSON", "result", by, "", 4 * mebi, true, "bad-request", 4 * mebi},
		{"the largest", "result", by, "", ai.MaxSealedBody, true, "bad-request", ai.MaxSealedBody},
		{"larger", "result", by, "", ai.MaxSealedBody + mebi, false, "bad-request", ai.MaxSealedBody + 1},
		{"announced as larger", "result", by, "", ai.MaxSealedBody + 1, true, "bad-request", 0},
		{"announced as larger by nobody", "result", nobody, "", ai.MaxSealedBody + 1, true, "bad-request", 0},

		// Elsewhere no body is large.
		{"a claim", "claim", by, "", 4 * mebi, false, "bad-request", ai.MaxBody + 1},
		{"an announced claim", "claim", by, "", 4 * mebi, true, "bad-request", 0},
		{"a pairing", "pair", by, "", 4 * mebi, false, "bad-request", ai.MaxBody + 1},
	} {
		body := &counted{Reader: io.LimitReader(io.MultiReader(strings.NewReader(c.begins), xs{}), c.size)}
		announced := int64(-1)
		if c.announced {
			announced = c.size
		}
		w := h.post(c.endpoint, nil, c.caller, body.with(announced))
		wantCode(t, c.what, w, c.want)
		if n := body.read.Load(); n > c.read || n < min(c.read, c.size) {
			t.Errorf("%s: %d bytes were read, want %d", c.what, n, c.read)
		}
		if strings.HasPrefix(c.what, "larger") && !strings.Contains(w.Body.String(), "larger") {
			t.Errorf("%s: %s", c.what, w.Body)
		}
	}

	// The version comes before the signature, and that before the schema.
	whole := []byte(version + repeat("x", mebi) + `"}`)
	wantCode(t, "version", h.post("result", whole, by), "unsupported-protocol-version")
	whole = []byte(`{"protocolVersion":"` + codec.Version + `","x":"` + repeat("x", mebi) + `"}`)
	wantCode(t, "signature", h.post("result", whole, by), "unauthorized")
	wantCode(t, "schema", p.send("result", whole), "bad-request")
	half := &counted{Reader: io.MultiReader(bytes.NewReader(whole[:mebi]), cutOff{})}
	w := h.post("result", nil, by, half.with(int64(len(whole))))
	if wantCode(t, "half a body", w, "bad-request"); !strings.Contains(w.Body.String(), "too soon") {
		t.Errorf("half a body: %s", w.Body)
	}
}

// xs is an endless body.
type xs struct{}

var someXs = bytes.Repeat([]byte("x"), 64<<10)

func (xs) Read(p []byte) (int, error) {
	return copy(p, someXs), nil
}

// cutOff is where a connection ends.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestLargeResult: an answer of more than a small body is taken, announced or not.
func TestLargeResult(t *testing.T) {
	h := newHouse(t)
	p := paired(h, "alice")
	text := repeat("canary ", 100_000)
	for what, announce := range map[string]bool{"announced": true, "not announced": false} {
		job := h.enqueue(site.Question{})
		_, g := p.one()
		body := p.resultBody(g, h.keys[0].Identity(), ai.Answer{Text: text})
		got := read(t, codec.ResultResponse, p.send(ai.EndpointResult, body, func(r *http.Request) {
			if !announce {
				r.ContentLength = -1
			}
		}))
		a, err := h.site.Jobs.Answer(t.Context(), job.ID)
		if !got.Accepted || err != nil || a.Text() != text {
			t.Errorf("%s: %+v, %v, %d characters", what, got, err, len(a.Text()))
		}
	}
}

// TestLargeStrangersAreLimited: they count as failed signatures do.
func TestLargeStrangersAreLimited(t *testing.T) {
	h := newHouse(t, func(c *site.Config) { c.NoLimits = false })
	p := newPeer(h)
	p.runner = "runner_unknown"
	body := []byte(repeat("x", ai.MaxBody+1))
	limited := 0
	for range 70 {
		if refusal(t, p.send(ai.EndpointResult, body)).Code == "rate-limited" {
			limited++
		}
	}
	if limited < 5 || limited > 10 {
		t.Errorf("%d of 70 were limited, want all after a burst of 60", limited)
	}
}

// TestLargeBodiesAtOnce: no more than 16 large bodies are in memory, the others
// wait for as long as their callers do, and each that ends makes room for one.
func TestLargeBodiesAtOnce(t *testing.T) {
	const most = 16
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		p := paired(h, "alice")
		by := p.signed(ai.EndpointResult, nil)
		type sent struct {
			body *counted
			w    *httptest.ResponseRecorder
			done chan struct{}
		}
		send := func(ctx context.Context, content io.Reader) *sent {
			s := &sent{body: &counted{Reader: content, stop: ai.MaxBody + 1, open: make(chan struct{})}, done: make(chan struct{})}
			go func() {
				defer close(s.done)
				s.w = h.post("result", nil, by, s.body.with(ai.MaxBody+100), func(r *http.Request) { *r = *r.WithContext(ctx) })
			}()
			synctest.Wait()
			return s
		}
		ended := func(s *sent) bool {
			synctest.Wait()
			select {
			case <-s.done:
				return true
			default:
				return false
			}
		}
		whole := func() io.Reader { return io.LimitReader(xs{}, ai.MaxBody+100) }
		// What goes wrong gives its place back as well.
		for _, content := range []io.Reader{whole(), io.MultiReader(whole(), cutOff{}), io.LimitReader(xs{}, ai.MaxSealedBody+1)} {
			first := []*sent{send(t.Context(), content)}
			for range most - 1 {
				first = append(first, send(t.Context(), whole()))
			}
			ctx, leave := context.WithCancel(t.Context())
			left, waits := send(ctx, whole()), send(t.Context(), whole())
			close(left.body.open)
			close(waits.body.open)
			if ended(left) || ended(waits) || left.body.read.Load() != ai.MaxBody+1 {
				t.Fatal("a 17th large body was read on")
			}
			if w := h.post("result", []byte("x")); w.Code != http.StatusBadRequest {
				t.Errorf("a small body meanwhile: %d %s", w.Code, w.Body)
			}
			leave()
			if !ended(left) || left.body.read.Load() != ai.MaxBody+1 || left.w.Body.Len() > 0 {
				t.Errorf("whose caller is gone: %d bytes were read, and %s answered", left.body.read.Load(), left.w.Body)
			}
			if ended(waits) {
				t.Error("one that went without a place made room")
			}
			close(first[0].body.open)
			if !ended(first[0]) || !ended(waits) {
				t.Error("one that ended made no room")
			}
			for _, s := range first[1:] {
				close(s.body.open)
				<-s.done
			}
			for _, s := range append(first, waits) {
				wantCode(t, "a place in the end", s.w, "bad-request")
			}
		}
	})
}
