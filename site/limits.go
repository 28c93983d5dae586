package site

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// limits keeps one address from taking what belongs to all. Results, releases
// and heartbeats are never limited, since a stock device sends a result once;
// and a request whose signature verifies is never refused for others' failures.
type limits struct {
	off     bool
	proxies []netip.Prefix

	starts, failures, codes *buckets[string]
	polls                   *buckets[[32]byte]
}

func newLimits(c Config) *limits {
	perMinute := func(n int) rate.Limit { return rate.Limit(float64(n) / 60) }
	return &limits{
		off: c.NoLimits, proxies: c.TrustedProxies,
		starts:   newBuckets[string](perMinute(30), 60),
		failures: newBuckets[string](perMinute(60), 60),
		codes:    newBuckets[string](perMinute(30), 30),
		// One poll an announced interval, with a fifth of slack.
		polls: newBuckets[[32]byte](rate.Every(c.PollInterval*4/5), 5),
	}
}

// pairing counts a pairing start.
func (l *limits) pairing(address string, now time.Time) error {
	return l.take(l.starts.take(address, now))
}

// poll counts a poll that found nothing new.
func (l *limits) poll(code [32]byte, now time.Time) error {
	return l.take(l.polls.take(code, now))
}

// typed counts a code that somebody typed on a page.
func (l *limits) typed(address string, now time.Time) error {
	return l.take(l.codes.take(address, now))
}

// failed counts a request whose signature did not verify and returns what to
// answer.
func (l *limits) failed(address string, now time.Time) error {
	if err := l.take(l.failures.take(address, now)); err != nil {
		return err
	}
	return ai.ErrUnauthorized
}

func (l *limits) take(wait time.Duration) error {
	if l.off || wait == 0 {
		return nil
	}
	return refusal.From(ai.ErrRateLimited).After(wait)
}

// address is where a request came from, as the limits count it: the connection's
// address, or what a trusted proxy says of it. Of an IPv6 address it is the /64,
// since whoever has one address has all of that network. What is no address is
// returned as it is.
func (l *limits) address(r *http.Request) string {
	from, err := readAddress(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	// The right-most address that is no trusted proxy is the first that nobody
	// vouches for.
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && l.trusted(from); i-- {
		next, err := readAddress(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		from = next
	}
	if from.Is4() {
		return from.String()
	}
	return netip.PrefixFrom(from, 64).Masked().String()
}

// readAddress reads an address with a port or without, and in brackets or
// without; proxies write all of these. A zone is dropped, and of an IPv4-mapped
// address the IPv4 form is returned.
func readAddress(text string) (netip.Addr, error) {
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		host = text
		if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
			host = text[1 : len(text)-1]
		}
	}
	addr, err := netip.ParseAddr(host)
	return addr.WithZone("").Unmap(), err
}

func (l *limits) trusted(addr netip.Addr) bool {
	for _, p := range l.proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// maxBuckets bounds how many callers are told apart. When there are more, those
// that have not been heard of the longest are forgotten.
const maxBuckets = 1 << 16

// buckets are token buckets by caller.
type buckets[K comparable] struct {
	limit rate.Limit
	burst int

	mu  sync.Mutex
	by  map[K]*rate.Limiter
	old map[K]*rate.Limiter
}

func newBuckets[K comparable](limit rate.Limit, burst int) *buckets[K] {
	return &buckets[K]{limit: limit, burst: burst, by: map[K]*rate.Limiter{}}
}

// take takes a token and returns zero, or how long to wait for one.
func (b *buckets[K]) take(k K, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.by[k]
	if !ok {
		if l, ok = b.old[k]; !ok {
			l = rate.NewLimiter(b.limit, b.burst)
		}
		// Two generations: the older one is dropped whole, which forgets only
		// callers that were silent for a whole generation.
		if len(b.by) >= maxBuckets/2 {
			b.old, b.by = b.by, map[K]*rate.Limiter{}
		}
		b.by[k] = l
	}
	r := l.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
