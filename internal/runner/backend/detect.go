package backend

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// detectTime is for all that is asked of one address.
const detectTime = 5 * time.Second

// Found is a model server that answered.
type Found struct {
	// ID is the row of the table that the server belongs to. It is
	// [wirebackend.Generic] at an address that several rows share where the server
	// does not say which of them it is.
	ID wirebackend.ID
	// BaseURL is where it answered.
	BaseURL string
	// Models are what it lists; see [HTTP.Models].
	Models []string
	// Locked says that it answered that it wants an API key, so that nothing more
	// is known of it.
	Locked bool
}

// Detect asks the addresses at which the table's free backends are by default,
// each once, and returns what answered, in the table's order. It takes at most
// five seconds and sends no API key: whoever listens there is not known yet. Of
// a config only BaseURL, Dial and Resolve count, for the row of its ID, or for
// all rows that have none of their own if it has no ID.
func Detect(ctx context.Context, configs ...Config) []Found {
	var addresses []address
	for _, id := range wirebackend.IDs() {
		if d, _ := wirebackend.Find(id); d.Class != wirebackend.HTTP || d.Cost != wirebackend.Free {
			continue
		}
		c := configOf(id, configs)
		b, err := Open(Config{ID: id, BaseURL: c.BaseURL, Dial: c.Dial, Resolve: c.Resolve})
		if err != nil {
			continue
		}
		i := slices.IndexFunc(addresses, func(a address) bool { return a[0].base == b.base })
		if i < 0 {
			addresses = append(addresses, address{b})
		} else {
			addresses[i] = append(addresses[i], b)
		}
	}
	answers := make([]*Found, len(addresses))
	var group sync.WaitGroup
	for i, a := range addresses {
		group.Go(func() { answers[i] = a.ask(ctx) })
	}
	group.Wait()
	var found []Found
	for _, f := range answers {
		if f != nil {
			found = append(found, *f)
		}
	}
	order := wirebackend.IDs()
	slices.SortStableFunc(found, func(a, b Found) int { return slices.Index(order, a.ID) - slices.Index(order, b.ID) })
	return found
}

func configOf(id wirebackend.ID, configs []Config) Config {
	for _, want := range []wirebackend.ID{id, ""} {
		if i := slices.IndexFunc(configs, func(c Config) bool { return c.ID == want }); i >= 0 {
			return configs[i]
		}
	}
	return Config{}
}

// address is the rows that share one.
type address []*HTTP

// ask returns what answers there, or nil.
func (a address) ask(ctx context.Context) *Found {
	ctx, cancel := context.WithTimeout(ctx, detectTime)
	defer cancel()
	l, header, err := a[0].list(ctx, detectTime)
	locked := errors.Is(err, ErrUnauthorized)
	if err != nil && !locked {
		return nil
	}
	f := &Found{ID: a[0].id, BaseURL: a[0].base, Models: l.ids, Locked: locked}
	if len(a) == 1 {
		return f
	}
	s := signs{server: header.Get("Server"), owner: l.owner}
	says := func(b *HTTP) bool { return b.row.says != nil && b.row.says(s) }
	i := slices.IndexFunc(a, says)
	if i < 0 {
		// Only what the list does not tell is asked for beyond it.
		s.ready = a[0].ready(ctx)
		i = slices.IndexFunc(a, says)
	}
	f.ID = wirebackend.Generic
	if i >= 0 {
		f.ID = a[i].id
	}
	return f
}

// ready asks for a path that one of the servers has.
func (b *HTTP) ready(ctx context.Context) bool {
	u, err := url.Parse(b.base)
	if err != nil {
		return false
	}
	_, err = b.send(ctx, ctx, request{method: http.MethodGet, url: u.Scheme + "://" + u.Host + "/readyz", max: maxList})
	return err == nil
}
