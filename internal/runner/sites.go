package runner

import (
	"slices"

	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What an approval is refused with, besides [lane.ErrChanged] and [lane.ErrFull].
var (
	ErrNotOffered = refusal.NewKind("site-not-offered", 404,
		"No such site waits for approval on this machine.",
		"See allod agent sites for those that do. A site waits while its server offers it.")
	ErrMoved = refusal.NewKind("site-moved", 409,
		"The server offers another key under this name now than the one that you were shown. Nothing was approved.",
		"Ask whoever runs the site what happened before you look again: allod agent sites.")
)

// SiteStatus is what is shown of one site.
type SiteStatus struct {
	Server string `json:"server"`
	// Fingerprint is the site's id.
	Fingerprint ai.KeyID `json:"fingerprint"`
	// State is approved, retiring, retired or pending: retiring is served until a
	// time and retired no more, since another key came after it.
	State string `json:"state"`
	// Identity is the whole key, which an approval names again.
	Identity SiteIdentity `json:"identity,omitzero"`
	// SeenAt is when it was first offered, where it is pending.
	SeenAt ai.Millis `json:"seenAt,omitzero"`
	// ApprovedBy is pairing, owner or succession; ApprovedAt is when.
	ApprovedBy home.By   `json:"approvedBy,omitzero"`
	ApprovedAt ai.Millis `json:"approvedAt,omitzero"`
	// Succeeds is the key that it came after, and SucceededBy the one that came
	// after it, until when it counts.
	Succeeds    ai.KeyID  `json:"succeeds,omitzero"`
	SucceededBy ai.KeyID  `json:"succeededBy,omitzero"`
	CountsUntil ai.Millis `json:"countsUntil,omitzero"`
	// ChangedAt is when another key was first shown under its name, and refused.
	ChangedAt ai.Millis `json:"changedAt,omitzero"`
}

// SiteIdentity is a site's key as its server shows it.
type SiteIdentity struct {
	Identity      string `json:"identity"`
	Encryption    string `json:"encryption"`
	EncryptionSig string `json:"encryptionSig"`
}

// Site verifies the identity. It returns the errors of ai.PublicIdentity.
func (s SiteIdentity) Site() (key.Site, error) { return ai.PublicIdentity(s).Site() }

// The states of a site.
const (
	SiteApproved = "approved"
	SiteRetiring = "retiring"
	SiteRetired  = "retired"
	SitePending  = "pending"
)

// Sites are the sites of all pairings, approved or waiting, by server and then by
// fingerprint. It returns the errors of home.Pairings.
func (a *Agent) Sites() ([]SiteStatus, error) {
	pairings, err := a.home.Pairings()
	if err != nil {
		return nil, err
	}
	return sitesOf(pairings, ai.MillisOf(a.config.Clock())), nil
}

func sitesOf(pairings []home.Pairing, now ai.Millis) []SiteStatus {
	list := []SiteStatus{}
	for _, p := range pairings {
		begun := len(list)
		for id, s := range p.Sites {
			row := SiteStatus{
				Server: p.Server, Fingerprint: id, State: SiteApproved, Identity: SiteIdentity(ai.PublicIdentityOf(s.Identity)),
				ApprovedBy: s.By, ApprovedAt: s.At, Succeeds: s.From, SucceededBy: s.Next, CountsUntil: s.Until, ChangedAt: s.ChangedAt,
			}
			if s.By == "" {
				row.ApprovedBy, row.ApprovedAt = home.ByPairing, p.PairedAt
			}
			switch {
			case s.Next != "" && now < s.Until:
				row.State = SiteRetiring
			case s.Next != "":
				row.State = SiteRetired
			}
			list = append(list, row)
		}
		for id, s := range p.Pending {
			list = append(list, SiteStatus{
				Server: p.Server, Fingerprint: id, State: SitePending, Identity: SiteIdentity(ai.PublicIdentityOf(s.Identity)), SeenAt: s.SeenAt,
			})
		}
		slices.SortFunc(list[begun:], func(a, b SiteStatus) int {
			if a.Fingerprint < b.Fingerprint {
				return -1
			}
			return 1
		})
	}
	return list
}

// Approve lets a site be served that its server offers, under the very key that
// the owner was shown. A key that another came after counts without end again. It
// returns [ErrNotOffered], [ErrMoved], [lane.ErrChanged], [lane.ErrFull],
// home.ErrNotPaired and errors of the folder, and then nothing changed.
func (a *Agent) Approve(server string, shown key.Site) error {
	if s, err := client.ParseServer(server); err == nil {
		server = s.String()
	}
	a.change.Lock()
	defer a.change.Unlock()
	a.mu.Lock()
	err := a.approve(server, shown)
	r := a.lanes[server]
	a.mu.Unlock()
	if err == nil && r != nil {
		r.driver.tell(lane.Approved{Site: shown})
	}
	return err
}

// approve records an approval. The caller holds the lock.
func (a *Agent) approve(server string, shown key.Site) error {
	list, err := a.home.Pairings()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(p home.Pairing) bool { return p.Server == server })
	if i < 0 {
		return home.ErrNotPaired
	}
	p, id := list[i], ai.KeyID(shown.Fingerprint().String())
	pending, waits := p.Pending[id]
	known, approved := p.Sites[id]
	switch {
	case approved && known.Identity != shown:
		return lane.ErrChanged
	case !approved && !waits:
		return ErrNotOffered
	case !approved && pending.Identity != shown:
		return ErrMoved
	case !approved && len(p.Sites) >= home.MaxSites:
		return lane.ErrFull
	case approved && known.Next == "":
		return nil
	}
	grant := func(p *home.Pairing) {
		s := p.Sites[id]
		s.Identity, s.By, s.At, s.From, s.Next, s.Until = shown, home.ByOwner, ai.MillisOf(a.config.Clock()), "", "", 0
		p.Sites[id] = s
		delete(p.Pending, id)
	}
	grant(&p)
	if err := a.home.Pair(p); err != nil {
		return err
	}
	if r := a.lanes[server]; r != nil {
		r.driver.mu.Lock()
		grant(&r.driver.pairing)
		r.driver.mu.Unlock()
	}
	a.log.Info("a site was approved", "server", server, "site", id)
	return nil
}

// keepSeen keeps what a heartbeat showed of sites, and reports whether it could.
func (d *driver) keepSeen(seen lane.Seen) bool {
	now := ai.MillisOf(d.clock())
	err := d.remember(func(p *home.Pairing) {
		pending := map[ai.KeyID]home.Pending{}
		for id, s := range seen.Pending {
			if _, approved := p.Sites[id]; approved {
				continue // meanwhile
			}
			pending[id] = home.Pending{Identity: s, SeenAt: now}
			if before, ok := p.Pending[id]; ok && before.Identity == s {
				pending[id] = before
			}
		}
		p.Pending = pending
		for _, id := range seen.Changed {
			if s, ok := p.Sites[id]; ok && s.ChangedAt == 0 {
				s.ChangedAt = now
				p.Sites[id] = s
			}
		}
	})
	if err != nil {
		d.log.Error("which sites wait, or changed their keys, was not kept", "error", refusal.From(err))
	}
	return err == nil
}

// keepSucceeded keeps keys that came after one that was approved here, and reports
// whether it could.
func (d *driver) keepSucceeded(s lane.Succeed) bool {
	now := ai.MillisOf(d.clock())
	ids := make([]ai.KeyID, len(s.Path))
	for i, site := range s.Path {
		ids[i] = ai.KeyID(site.Fingerprint().String())
	}
	err := d.remember(func(p *home.Pairing) {
		for i, id := range ids {
			row := p.Sites[id]
			if i > 0 {
				row = home.Site{Identity: s.Path[i], By: home.BySuccession, At: now, From: ids[i-1], SignsReach: p.Sites[ids[i-1]].SignsReach}
			}
			if i < len(ids)-1 {
				row.Next, row.Until = ids[i+1], max(s.Until, 1)
			}
			p.Sites[id] = row
			delete(p.Pending, id)
		}
	})
	if err != nil {
		d.log.Error("a site's key that came after another was not kept, and is not served", "site", ids[len(ids)-1], "error", refusal.From(err))
	}
	return err == nil
}
