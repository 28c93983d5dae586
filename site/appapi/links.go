package appapi

import (
	"net/http"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// linkAsk is the body of POST /v1/pairing-links.
type linkAsk struct {
	owner ai.Owner
	code  string
	ttlMs exact.Opt[int64]
}

var linkShape = exact.Shape[linkAsk]{Fields: func(o *exact.Object, l *linkAsk) {
	exact.OptText(o, "owner", &l.owner, 1, 0)
	exact.OptText(o, "code", &l.code, 1, 0)
	exact.OptWhole(o, "ttlMs", &l.ttlMs, site.MinLinkTTL.Milliseconds(), site.MaxLinkTTL.Milliseconds())
}}

type linkAnswer struct {
	URL       string    `json:"url"`
	ExpiresAt ai.Millis `json:"expiresAt"`
}

func (a *api) makeLink(access Access, r *http.Request) (int, any, error) {
	q, err := read(r, linkShape)
	if err != nil {
		return 0, nil, err
	}
	owner, err := oneOwner(access, q.owner)
	if err != nil {
		return 0, nil, err
	}
	l, err := a.site.Devices.Link(r.Context(), site.LinkRequest{
		Owner: owner, UserCode: q.code, TTL: time.Duration(q.ttlMs.V) * time.Millisecond,
	})
	return http.StatusCreated, linkAnswer{l.URL, l.ExpiresAt}, err
}
