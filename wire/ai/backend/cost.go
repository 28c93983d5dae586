package backend

import (
	"net/netip"
	"strings"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// ErrUnknown refuses an id that is not in the table.
var ErrUnknown = refusal.NewKind("backend-unknown", 400,
	"There is no backend of this name.",
	"Use a name from the table of backends; a server of your own goes under openai-http.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Backends", Kinds: []*refusal.Kind{ErrUnknown}}

// CostOf is the cost class of a backend at that base URL with that model. For
// [Generic] it is [Free] when the URL's host is local (see [IsLocalHost]) and
// [Metered] otherwise, also without a URL or with one that no browser would read;
// for every other backend the table decides. What would be free is [Metered] with
// a model that runs elsewhere (see [RunsElsewhere]). It returns [ErrUnknown] for
// an id that is not in the table.
func CostOf(id ID, baseURL, model string) (Cost, error) {
	d, ok := Find(id)
	switch {
	case !ok:
		return "", ErrUnknown
	case d.Cost == Metered || d.Cost == Subscription:
		return d.Cost, nil
	case RunsElsewhere(model):
		return Metered, nil
	case d.Cost != "":
		return d.Cost, nil
	}
	if u, err := weburl.Parse(baseURL); err == nil && IsLocalHost(u.Host()) {
		return Free, nil
	}
	return Metered, nil
}

// RunsElsewhere reports whether a model's name has a tag by which a server on this
// machine hands the work to a paid service: a part after the last colon that ends
// in "cloud". An empty name has none.
func RunsElsewhere(model string) bool {
	i := strings.LastIndexByte(model, ':')
	return i >= 0 && strings.HasSuffix(model[i+1:], "cloud")
}

// IsLocalHost reports whether host, as a URL parser wrote it, is this machine
// or its private network: localhost and names below it, 127/8, 10/8,
// 172.16/12, 192.168/16, ::1, and IPv6 literals that begin with fc or fd. It
// looks at the text alone, as the contract does: a name that merely resolves to
// such an address is not local, and neither are mapped addresses or other
// spellings of ::1.
func IsLocalHost(host string) bool {
	host = strings.ToLower(host)
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr.Is4() {
		return addr.IsLoopback() || addr.IsPrivate()
	}
	return host == "::1" || strings.HasPrefix(host, "fc") || strings.HasPrefix(host, "fd")
}
