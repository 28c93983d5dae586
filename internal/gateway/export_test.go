package gateway

import "net/http"

// NewCounted is NewHandler, and how much is kept for requests that are under way.
func NewCounted(c Config) (h http.Handler, kept func() int) {
	g := newGateway(c)
	return g.handler(), func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.under) + len(g.waiters) + len(g.large.keys) + g.large.taken
	}
}
