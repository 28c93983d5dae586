package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
)

func itoa(n int) string { return strconv.Itoa(n) }

func storeIn(t *testing.T, dir string) site.Store {
	t.Helper()
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(dir, "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// end stores a job and ends it now.
func end(t *testing.T, store site.Store, id ai.JobID, owner ai.Owner) {
	t.Helper()
	now := ai.MillisOf(time.Now())
	if _, _, err := store.Jobs().Enqueue(context.Background(), storetest.Job(id, owner, now)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Jobs().Cancel(context.Background(), site.CancelRequest{ID: id, Now: now}); err != nil {
		t.Fatal(err)
	}
}

// receiver is an endpoint that needs no network.
type receiver struct {
	mu    sync.Mutex
	began time.Time
	got   []string        // job, id
	at    []time.Duration // since it began
	// answer is asked at each request, counted from 1.
	answer func(r *http.Request, n int) (*http.Response, error)
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(body), `"jobId":"`)
	job, _, _ := strings.Cut(rest, `"`)
	r.mu.Lock()
	r.got = append(r.got, job+" "+req.Header.Get("Webhook-Id"))
	// The store itself may wait for microseconds.
	r.at = append(r.at, time.Since(r.began).Truncate(time.Millisecond))
	n := len(r.got)
	r.mu.Unlock()
	if r.answer == nil {
		return status(200), nil
	}
	return r.answer(req, n)
}

// times are when each message came, since the beginning.
func (r *receiver) times() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.at)
}

func (r *receiver) jobs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []string{}
	for _, g := range r.got {
		job, _, _ := strings.Cut(g, " ")
		list = append(list, job)
	}
	return list
}

func status(code int, header ...string) *http.Response {
	h := http.Header{}
	if len(header) > 0 {
		h.Set("Retry-After", header[0])
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}
}

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// deliverTo starts a deliverer whose endpoints are receivers. Each wait is the
// longest.
func deliverTo(t *testing.T, store site.Store, log *slog.Logger, receivers ...*receiver) *Deliverer {
	t.Helper()
	c := Config{Store: store, Logger: log}
	for i := range receivers {
		c.Endpoints = append(c.Endpoints, Endpoint{URL: "https://hooks.example/" + itoa(i), Secrets: []Secret{secret(t, short)}})
	}
	d, targets, err := open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range receivers {
		if r.began.IsZero() {
			r.began = time.Now()
		}
		targets[i].client.Transport = r
	}
	d.jitter = func(n int64) int64 { return n - 1 }
	d.start(targets)
	return d
}

func numbers(d *Deliverer) string {
	var list []string
	for name := range Numbers {
		name, _ = strings.CutPrefix(name, "webhooks_")
		list = append(list, strings.TrimSuffix(name, "_total")+" "+fmt.Sprint(d.Number("webhooks_"+name)))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// inTime runs a test in a bubble with a store.
func inTime(t *testing.T, run func(t *testing.T, store site.Store)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := storeIn(t, dir)
		defer store.Close()
		run(t, store)
	})
}

// TestBackoff counts the attempts at an endpoint that fails for good: 5 s, 10 s
// and so on to an hour make 5115 s for ten waits; 70 hours more fit into three
// days.
func TestBackoff(t *testing.T) {
	inTime(t, func(t *testing.T, store site.Store) {
		var log logged
		r := &receiver{answer: func(*http.Request, int) (*http.Response, error) { return status(500), nil }}
		d := deliverTo(t, store, slog.New(slog.NewTextHandler(&log, nil)), r)
		defer d.Close()
		end(t, store, "a", "alice")
		time.Sleep(4 * 24 * time.Hour)
		synctest.Wait()
		want := []time.Duration{0, 5 * time.Second, 15 * time.Second, 35 * time.Second, 75 * time.Second, 155 * time.Second}
		if at := r.times(); len(at) != 81 || !slices.Equal(at[:6], want) || at[10] != 5115*time.Second || at[80] != 257115*time.Second {
			t.Errorf("%d attempts at %v", len(at), at)
		}
		if len(slices.Compact(r.got)) != 1 {
			t.Errorf("the id changed: %v", r.got)
		}
		if got := numbers(d); got != "delivered 0, given_up 1, gone 0, retried 80, waiting 0" {
			t.Error(got)
		}
		if !strings.Contains(log.String(), `msg="webhook given up" webhook=webhooks[0] job=a attempt=81 why=http-500`) {
			t.Errorf("the log does not say so: %.300s", log.String())
		}
		if strings.Contains(log.String(), "hooks.example") {
			t.Error("the log tells the URL")
		}
	})
}

func TestRetryAfterIsObeyed(t *testing.T) {
	inTime(t, func(t *testing.T, store site.Store) {
		r := &receiver{answer: func(_ *http.Request, n int) (*http.Response, error) {
			switch n {
			case 1:
				return status(429, "120"), nil
			case 2:
				return status(503, "86400"), nil
			}
			return status(204), nil
		}}
		d := deliverTo(t, store, nil, r)
		defer d.Close()
		end(t, store, "a", "alice")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if want := []time.Duration{0, 2 * time.Minute, time.Hour + 2*time.Minute}; !slices.Equal(r.times(), want) {
			t.Errorf("attempts at %v, want %v", r.times(), want)
		}
		if got := numbers(d); got != "delivered 1, given_up 0, gone 0, retried 2, waiting 0" {
			t.Error(got)
		}
	})
}

// TestSlowEndpoint holds that an endpoint that never answers holds up nobody else,
// and itself only for the time of its attempts and rests: four rounds of up to eight
// begin within 52 s, after three attempts of 15 s and rests of 1, 2 and 4 s.
func TestSlowEndpoint(t *testing.T) {
	inTime(t, func(t *testing.T, store site.Store) {
		slow := &receiver{answer: func(r *http.Request, _ int) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		fast := &receiver{}
		d := deliverTo(t, store, nil, slow, fast)
		defer d.Close()
		for i := range 20 {
			end(t, store, ai.JobID(itoa(i)), "alice")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(fast.jobs()); n != 20 {
			t.Errorf("the fast one got %d by %v", n, fast.at)
		}
		if n := len(slow.jobs()); n > maxAtOnce {
			t.Errorf("the slow one has %d at once", n)
		}
		time.Sleep(4 * attemptTime)
		synctest.Wait()
		if got := slow.jobs(); len(slices.Compact(slices.Sorted(slices.Values(got)))) != 20 {
			t.Errorf("the slow one was asked for %v", got)
		}
	})
}

// TestFailingEndpointRests holds that an endpoint that fails fast is asked by rounds
// and not by events: after rests of 1, 2, 4 and so on to 60 s. Where it works again,
// what is due comes at once, and the next failure begins anew.
func TestFailingEndpointRests(t *testing.T) {
	const second = time.Second
	inTime(t, func(t *testing.T, store site.Store) {
		var log logged
		r := &receiver{}
		fails := func() bool { at := time.Since(r.began); return at < 400*second || at > 5000*second && at < 5002*second }
		r.answer = func(*http.Request, int) (*http.Response, error) {
			if fails() {
				return status(500), nil
			}
			return status(200), nil
		}
		d := deliverTo(t, store, slog.New(slog.NewTextHandler(&log, nil)), r)
		defer d.Close()
		const events = 120
		for i := range events {
			end(t, store, ai.JobID(itoa(i)), "alice")
		}
		time.Sleep(400 * second)
		synctest.Wait()
		var rounds []time.Duration
		most, n := 0, 0
		times := r.times()
		for i, at := range times {
			if n++; i == 0 || at != times[i-1] {
				rounds, n = append(rounds, at), 1
			}
			most = max(most, n)
		}
		want := []time.Duration{0, 1 * second, 3 * second, 7 * second, 15 * second, 31 * second, 63 * second, 123 * second, 183 * second, 243 * second, 303 * second, 363 * second}
		if !slices.Equal(rounds, want) || most != maxAtOnce {
			t.Errorf("rounds at %v, of %d at most; want %v", rounds, most, want)
		}
		time.Sleep(24 * second) // past 423 s, where it is asked next
		synctest.Wait()
		if n := d.Number("webhooks_delivered_total"); n < events/2 {
			t.Errorf("%v were delivered as soon as it worked again", n)
		}
		time.Sleep(2000 * second)
		synctest.Wait()
		if got := numbers(d); !strings.HasPrefix(got, "delivered 120, given_up 0,") {
			t.Error(got)
		}
		lines := log.String()
		for text, want := range map[string]int{
			`level=WARN msg="the endpoint fails, and is tried less and less often until it works" webhook=webhooks[0] why=http-500`: 1,
			`level=INFO msg="the endpoint works again" webhook=webhooks[0] after=7m3s`:                                              1,
			"level=WARN": 1, `msg="webhook delivered"`: events, "webhook failed": 0, "\n": events + 2,
		} {
			if n := strings.Count(lines, text); n != want {
				t.Errorf("the log has %d of %q, want %d", n, text, want)
			}
		}

		time.Sleep(time.Until(r.began.Add(5001 * second)))
		asked := len(r.jobs())
		end(t, store, "x", "alice")
		time.Sleep(second / 2)
		end(t, store, "y", "alice")
		time.Sleep(second)
		synctest.Wait()
		if got := r.times()[asked:]; !slices.Equal(got, []time.Duration{5001 * second, 5002 * second}) {
			t.Errorf("the next failure was followed at %v", got)
		}
	})
}

// TestCloseWhileResting holds that a rest ends with the deliverer.
func TestCloseWhileResting(t *testing.T) {
	inTime(t, func(t *testing.T, store site.Store) {
		r := &receiver{answer: func(*http.Request, int) (*http.Response, error) { return status(500), nil }}
		d := deliverTo(t, store, nil, r)
		end(t, store, "a", "alice")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		start := time.Now()
		_ = d.Close()
		if took := time.Since(start); took > 0 || len(r.jobs()) != 1 {
			t.Errorf("closing took %v, after %d attempts", took, len(r.jobs()))
		}
	})
}

func TestRest(t *testing.T) {
	const second = time.Second
	var (
		no     = next{do: again, why: "http-500"}
		over   = next{do: givenUp, why: "name"}
		yes    = next{do: delivered}
		unsent = next{do: again}
	)
	d := &Deliverer{clock: time.Now}
	d.attempts, d.cut = context.WithCancel(t.Context())
	for _, test := range []struct {
		name   string
		rounds [][]next
		want   []time.Duration // with the longest waits
	}{
		{"it works", [][]next{{yes}, {yes, yes}}, []time.Duration{0, 0}},
		{"it fails", [][]next{{no}, {no}, {no}, {no}, {no}, {no}, {no}, {no}},
			[]time.Duration{second, 2 * second, 4 * second, 8 * second, 16 * second, 32 * second, time.Minute, time.Minute}},
		{"many at once are one failure", [][]next{{no, no, over}, {no, no, no, no}}, []time.Duration{second, 2 * second}},
		{"one that is given up", [][]next{{over}}, []time.Duration{second}},
		{"some work", [][]next{{no, yes}, {yes, no, no}}, []time.Duration{0, 0}},
		{"it works again", [][]next{{no}, {no}, {no, yes}, {no}}, []time.Duration{second, 2 * second, 0, second}},
		{"what was not sent says nothing", [][]next{{no}, {unsent}, {no}, {unsent, no}}, []time.Duration{second, 0, 2 * second, 4 * second}},
	} {
		for part, jitter := range map[time.Duration]func(int64) int64{1: func(n int64) int64 { return n - 1 }, 2: func(n int64) int64 { return n/2 - 1 }} {
			d.jitter = jitter
			var h health
			for i, made := range test.rounds {
				if got := d.rest(&h, slog.New(slog.DiscardHandler), made); got != test.want[i]/part {
					t.Errorf("%s: rest %d is %v, want %v", test.name, i, got, test.want[i]/part)
				}
			}
		}
	}
	d.jitter = func(int64) int64 { return 0 }
	d.cut()
	if got := d.rest(new(health), slog.New(slog.DiscardHandler), []next{no}); got != 0 {
		t.Errorf("after attempts that were cut off it rests for %v", got)
	}
}

func TestGone(t *testing.T) {
	inTime(t, func(t *testing.T, store site.Store) {
		var log logged
		leaving := true
		r := &receiver{answer: func(*http.Request, int) (*http.Response, error) {
			if leaving {
				return status(410), nil
			}
			return status(200), nil
		}}
		other := &receiver{}
		d := deliverTo(t, store, slog.New(slog.NewTextHandler(&log, nil)), r, other)
		end(t, store, "a", "alice")
		time.Sleep(time.Minute)
		end(t, store, "b", "alice")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := r.jobs(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("one that is gone got %v", got)
		}
		if got := other.jobs(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the other got %v", got)
		}
		if got := numbers(d); got != "delivered 2, given_up 0, gone 1, retried 1, waiting 2" || !strings.Contains(log.String(), "(410)") {
			t.Errorf("%s\n%s", got, log.String())
		}
		_ = d.Close()
		leaving = false
		again := deliverTo(t, store, nil, r, other)
		defer again.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.jobs(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"a", "a", "b"}) {
			t.Errorf("after the next start it has %v", got)
		}
	})
}

// TestClose holds that closing waits for an attempt for a while and then cuts it
// off, and that what was cut off comes again with the same id.
func TestClose(t *testing.T) {
	for _, test := range []struct {
		name  string
		takes time.Duration
		close time.Duration
		comes int
	}{
		{"a quick one", 2 * time.Second, 2 * time.Second, 1},
		{"a slow one", 10 * time.Second, grace, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			inTime(t, func(t *testing.T, store site.Store) {
				r := &receiver{answer: func(r *http.Request, n int) (*http.Response, error) {
					if n == 1 {
						select {
						case <-time.After(test.takes):
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
					}
					return status(200), nil
				}}
				d := deliverTo(t, store, nil, r)
				end(t, store, "a", "alice")
				time.Sleep(time.Millisecond) // it has begun
				synctest.Wait()
				start := time.Now()
				end(t, store, "b", "alice")
				_ = d.Close()
				if took := time.Since(start) + time.Millisecond; took/time.Second != test.close/time.Second {
					t.Errorf("closing took %v", took)
				}
				if got := r.jobs(); !slices.Equal(got, []string{"a"}) {
					t.Errorf("before the end: %v", got)
				}
				d = deliverTo(t, store, nil, r)
				defer d.Close()
				time.Sleep(time.Second)
				synctest.Wait()
				ids := map[string]int{}
				for _, g := range r.got {
					ids[g]++
				}
				if len(ids) != 2 || len(r.got) != test.comes+1 {
					t.Errorf("delivered %v", r.got)
				}
			})
		})
	}
}

// TestStoreInTrouble holds that a deliverer outlasts errors of its store.
func TestStoreInTrouble(t *testing.T) {
	inTime(t, func(t *testing.T, store site.Store) {
		r := &receiver{}
		broken := &trouble{HookStore: store.Hooks()}
		d := deliverTo(t, hooked{store, broken}, nil, r)
		defer d.Close()
		broken.set(errors.New("disk"), nil)
		for i := range 60 {
			end(t, store, ai.JobID(itoa(i)), "alice")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := broken.asked(); n < 5 || n > 20 {
			t.Errorf("a store in trouble was asked %d times in a minute", n)
		}
		if d.Number("webhooks_waiting") != -1 {
			t.Error("a number that cannot be told is told")
		}
		// What cannot be recorded comes again when its hold ends, with the same id.
		broken.set(nil, errors.New("disk"))
		time.Sleep(hold)
		synctest.Wait()
		broken.set(nil, nil)
		time.Sleep(2 * hold)
		synctest.Wait()
		ids := slices.Compact(slices.Sorted(slices.Values(r.got)))
		if len(ids) != 60 || len(r.got) < 120 || d.Number("webhooks_delivered_total") != 60 {
			t.Errorf("%d messages of %d events, %s", len(r.got), len(ids), numbers(d))
		}
	})
}

type hooked struct {
	site.Store
	hooks site.HookStore
}

func (h hooked) Hooks() site.HookStore { return h.hooks }

// trouble fails as it is told to.
type trouble struct {
	site.HookStore
	mu         sync.Mutex
	take, done error
	takes      int
}

func (s *trouble) set(take, done error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take, s.done, s.takes = take, done, 0
}

func (s *trouble) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes
}

func (s *trouble) Take(ctx context.Context, t site.HookTake) ([]site.HookEvent, ai.Millis, error) {
	s.mu.Lock()
	s.takes++
	err := s.take
	s.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	return s.HookStore.Take(ctx, t)
}

func (s *trouble) Done(ctx context.Context, hook site.HookID, job ai.JobID) error {
	s.mu.Lock()
	err := s.done
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.HookStore.Done(ctx, hook, job)
}

func (s *trouble) Waiting(ctx context.Context) (int, error) {
	s.mu.Lock()
	err := s.take
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return s.HookStore.Waiting(ctx)
}

// TestOpen delivers over a real connection, as a user of the package does. The
// reference library verifies each message.
func TestOpen(t *testing.T) {
	verify, err := standardwebhooks.NewWebhook(short)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err := errors.Join(err, verify.Verify(body, r.Header)); err != nil {
			t.Error(err)
		}
		got <- string(body)
	}))
	defer server.Close()
	store := storeIn(t, t.TempDir())
	defer store.Close()
	d, err := Open(t.Context(), Config{Store: store, Private: loopback, Endpoints: []Endpoint{{
		URL: server.URL, Secrets: []Secret{secret(t, short)}, Owners: []ai.Owner{"alice"}, States: []ai.State{ai.StateCanceled},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	end(t, store, "b", "bob")
	end(t, store, "a", "alice")
	select {
	case body := <-got:
		if !strings.HasSuffix(body, `"data":{"jobId":"a","owner":"alice","kind":"llm.generate","state":"canceled","reason":"app"}}`) {
			t.Error(body)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing was delivered")
	}
	if err := d.Close(); err != nil || len(got) > 0 {
		t.Errorf("%v, and %d more were delivered", err, len(got))
	}
	// With no endpoint nothing is kept.
	d, err = Open(t.Context(), Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	end(t, store, "c", "alice")
	if n := d.Number("webhooks_waiting"); n != 0 {
		t.Errorf("%v events wait for nobody", n)
	}
	if d.Number("nothing") != 0 || d.Close() != nil {
		t.Error("another number is told")
	}
}

func TestConfig(t *testing.T) {
	s := secret(t, short)
	ok := func() Endpoint { return Endpoint{URL: "https://a.example/", Secrets: []Secret{s}} }
	with := func(change func(e *Endpoint)) []Endpoint {
		e := ok()
		change(&e)
		return []Endpoint{e}
	}
	many := func(n int) (list []Endpoint) {
		for i := range n {
			e := ok()
			e.URL += itoa(i)
			list = append(list, e)
		}
		return list
	}
	store := storeIn(t, t.TempDir())
	defer store.Close()
	for _, test := range []struct {
		name   string
		config Config
		want   *refusal.Kind
	}{
		{"sixteen", Config{Endpoints: many(MaxEndpoints)}, nil},
		{"seventeen", Config{Endpoints: many(MaxEndpoints + 1)}, ErrConfig},
		{"the same URL twice", Config{Endpoints: []Endpoint{ok(), {URL: "HTTPS://A.example:443", Secrets: []Secret{s}}}}, ErrConfig},
		{"no URL", Config{Endpoints: []Endpoint{{Secrets: []Secret{s}}}}, ErrURL},
		{"a private address", Config{Endpoints: with(func(e *Endpoint) { e.URL = "https://10.0.0.1/" })}, ErrAddress},
		{"no secret", Config{Endpoints: with(func(e *Endpoint) { e.Secrets = nil })}, ErrConfig},
		{"an empty secret", Config{Endpoints: with(func(e *Endpoint) { e.Secrets = []Secret{s, {}} })}, ErrConfig},
		{"three secrets", Config{Endpoints: with(func(e *Endpoint) { e.Secrets = []Secret{s, s, s} })}, ErrConfig},
		{"no owner", Config{Endpoints: with(func(e *Endpoint) { e.Owners = []ai.Owner{} })}, ErrConfig},
		{"an empty owner", Config{Endpoints: with(func(e *Endpoint) { e.Owners = []ai.Owner{""} })}, ErrConfig},
		{"many owners", Config{Endpoints: with(func(e *Endpoint) { e.Owners = slices.Repeat([]ai.Owner{"a"}, MaxOwners+1) })}, ErrConfig},
		{"no state", Config{Endpoints: with(func(e *Endpoint) { e.States = []ai.State{} })}, ErrConfig},
		{"a state that ends nothing", Config{Endpoints: with(func(e *Endpoint) { e.States = []ai.State{ai.StateOK, ai.StateRunning} })}, ErrConfig},
		{"a range that is none", Config{Private: slices.Concat(prefixes("10.0.0.0/8"), prefixes("::ffff:10.0.0.0/104"))}, ErrConfig},
		{"many ranges", Config{Private: slices.Repeat(prefixes("10.0.0.0/8"), MaxPrivate+1)}, ErrConfig},
	} {
		test.config.Store = store
		d, err := Open(t.Context(), test.config)
		if (err != nil) != (test.want != nil) || err != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
		if d != nil {
			_ = d.Close()
		}
	}
	if _, err := Open(t.Context(), Config{}); !errors.Is(err, ErrConfig) {
		t.Errorf("without a store: %v", err)
	}
	each, whole := Config{Endpoints: []Endpoint{{URL: "https://a.example/"}, {URL: "x"}, {URL: "https://b.example/"}}}.Check()
	if whole != nil || len(each) != 3 || each[0] != nil || !errors.Is(each[1], ErrURL) || each[2] != nil {
		t.Errorf("checked: %v, %v", each, whole)
	}
}
