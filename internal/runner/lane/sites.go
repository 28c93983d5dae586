package lane

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/succession"
)

// Why a key that is said to come after another is not accepted, besides what
// package succession refuses.
var (
	ErrChanged = refusal.NewKind("site-key-changed", 403,
		"Another key was shown under the name of a site that was approved here, so whoever shows it is not trusted to name the key that comes after it.",
		"Ask whoever runs the site what happened. A changed key is refused for as long as the pairing lasts: forget it and connect again if you trust the site all the same.")
	ErrFollowed = refusal.NewKind("succession-twice", 403,
		"The key that the site's key is said to come after was followed by another one here already, and a key has one successor.",
		"Ask whoever runs the site, and approve it anew after comparing the fingerprint of its key.")
	ErrFull = refusal.NewKind("too-many-sites", 409,
		"As many sites are approved for this server as can be.",
		"Forget the pairing and connect again: allod agent forget URL.")
)

// Bounds of what a server can make a machine look at and keep.
const (
	// MaxSites is how many sites can be approved for one server, those among them
	// that another key came after.
	MaxSites = 256
	// MaxPending is how many sites can wait for the owner.
	MaxPending = 64
	// maxLinks is how many links of chains one heartbeat is verified for.
	maxLinks = 4 * ai.MaxSuccessions
)

// Followed says that another key came after a site's.
type Followed struct {
	Next ai.KeyID
	// Until is when the site stops being served under the key before.
	Until ai.Millis
}

// counts reports whether an approved site may be served: no key came after it, or
// its time is not over yet.
func (m *Machine) counts(id ai.KeyID) bool {
	f, followed := m.c.Followed[id]
	return !followed || ai.MillisOf(m.now) < f.Until
}

// last is the key that came last after a site's, or its own.
func (m *Machine) last(id ai.KeyID) ai.KeyID {
	for range MaxSites {
		f, followed := m.c.Followed[id]
		if !followed {
			break
		}
		id = f.Next
	}
	return id
}

func idOf(s key.Site) ai.KeyID { return ai.KeyID(s.Fingerprint().String()) }

// news is what the owner is to be told of a site.
type news struct {
	what What
	err  error
}

// sites takes in which sites the server offers. A site is served while it is
// offered with the very key that was approved here (MUST
// SITES_LOCALLY_APPROVED), or while the key that came after it is, until its time
// is over.
func (m *Machine) sites(a ai.HeartbeatResponse) {
	served, pending, say := map[ai.KeyID]bool{}, map[ai.KeyID]key.Site{}, map[ai.KeyID]news{}
	offered := map[ai.KeyID]key.Site{}
	strangers := 0
	for _, id := range slices.Sorted(maps.Keys(a.Sites)) {
		approved, known := m.c.Sites[id]
		if !known {
			if strangers++; strangers > MaxPending {
				continue
			}
		}
		got, err := a.Sites[id].Site()
		switch {
		case err != nil || id != idOf(got) || known && got != approved:
			// A site that is served stays so under the key that was approved.
			served[id] = known && m.served[id] && m.counts(id)
			say[id] = news{NoteSiteChanged, err}
			if known && err == nil && id == idOf(got) {
				m.c.Changed[id] = true
			}
		case !known:
			pending[id], offered[id] = got, got
			say[id] = news{NoteSitePending, nil}
		default:
			served[id], offered[id] = m.counts(id), got
		}
	}
	from := m.succeed(a.Successions, pending, say)
	for _, id := range slices.Sorted(maps.Keys(a.Sites)) {
		if n, ok := say[id]; ok {
			m.tell(id, n.what, n.err)
		} else {
			delete(m.told, id)
		}
	}
	for id := range m.c.Followed {
		// Work that was sealed before the change names the key before. It goes on
		// while its site is served.
		if _, shown := a.Sites[id]; !shown && m.counts(id) && !m.c.Changed[id] && served[m.last(id)] {
			served[id] = true
		}
	}
	for id := range from {
		// What comes after it is not served before that is kept.
		if _, shown := a.Sites[id]; !shown && m.served[id] {
			served[id] = true
		}
	}
	maps.DeleteFunc(served, func(_ ai.KeyID, yes bool) bool { return !yes })
	var back []*job
	m.each(func(j *job) {
		if !served[j.stub.Site] {
			back = append(back, j)
		}
	})
	for id := range m.told {
		if _, still := a.Sites[id]; !still {
			delete(m.told, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.served)) {
		switch _, followed := m.c.Followed[id]; {
		case served[id]:
		case followed:
			m.tell(id, NoteSiteRetired, nil)
		default:
			m.tell(id, NoteSiteLeft, nil)
		}
	}
	m.release(ai.ReleaseRevoked, back...)
	for _, j := range back {
		m.stop(j)
	}
	if none := len(served) == 0; none != m.noSites && len(from) == 0 {
		if m.noSites = none; none {
			m.do(Note{What: NoteNoSites})
		}
	}
	m.served, m.offered = served, offered
	if !m.kept || !maps.Equal(pending, m.pending) || len(m.c.Changed) != m.changed {
		m.kept, m.pending, m.changed = true, pending, len(m.c.Changed)
		m.do(Seen{Pending: maps.Clone(pending), Changed: slices.Sorted(maps.Keys(m.c.Changed))})
	}
}

// tell tells the owner something about a site, once.
func (m *Machine) tell(id ai.KeyID, what What, err error) {
	if m.told[id] != what && len(m.told) < maxTold {
		m.told[id] = what
		m.do(Note{What: what, Site: id, Err: err})
	}
}

// succeed asks for those of the sites that wait to be accepted whose chain of keys
// leads to one that was approved here, takes them out of pending and say, and
// returns them with the keys that they came after. Of a chain that does not, only what is
// said changes.
func (m *Machine) succeed(said map[ai.KeyID]ai.SiteSuccession, pending map[ai.KeyID]key.Site, say map[ai.KeyID]news) map[ai.KeyID]bool {
	var ids []ai.KeyID
	for id := range pending {
		if len(said[id].Succeeds) > 0 {
			ids = append(ids, id)
		}
	}
	// A chain has those of the keys before in it.
	slices.SortFunc(ids, func(a, b ai.KeyID) int {
		return cmp.Or(cmp.Compare(len(said[b].Succeeds), len(said[a].Succeeds)), cmp.Compare(a, b))
	})
	from, links, known := map[ai.KeyID]bool{}, 0, len(m.c.Sites)
	for _, id := range ids {
		current, waits := pending[id]
		chain := said[id]
		if links += len(chain.Succeeds); !waits || links > maxLinks {
			continue
		}
		path, err := m.walk(current, chain.Succeeds, pending, from)
		if err == nil && known+len(path)-1 > MaxSites {
			err = ErrFull
		}
		if err != nil {
			say[id] = news{NoteSuccessionRefused, err}
			continue
		}
		known += len(path) - 1
		for i, s := range path {
			from[idOf(s)] = true
			if i > 0 {
				delete(pending, idOf(s))
				delete(say, idOf(s))
			}
		}
		m.do(Succeed{Path: path, Until: m.retires(chain.RetiringUntil)})
	}
	return from
}

// retires is when a key stops counting that another came after: when the server
// says, and after [ai.MaxRetirementMs] by this machine's clock at the latest.
func (m *Machine) retires(said ai.Millis) ai.Millis {
	latest := ai.MillisOf(m.now.Add(ai.MaxRetirementMs * time.Millisecond))
	if said == 0 {
		return latest
	}
	return min(said, latest)
}

// walk goes from a key along its chain to one that was approved here and returns
// the keys on the way, the approved one first. No key on the way may be known here
// for anything else: as shown otherwise ([ErrChanged]), or as followed by another
// ([ErrFollowed]), which those in from are. It returns the refusals of package
// succession as well.
func (m *Machine) walk(current key.Site, chain []ai.Succession, pending map[ai.KeyID]key.Site, from map[ai.KeyID]bool) ([]key.Site, error) {
	var foul error
	ids, err := succession.Walk(current.Fingerprint(), chain, func(f key.Fingerprint) bool {
		id := ai.KeyID(f.String())
		_, known := m.c.Sites[id]
		_, followed := m.c.Followed[id]
		switch {
		case m.c.Changed[id]:
			foul = ErrChanged
		case followed || from[id]:
			foul = ErrFollowed
		}
		return known && foul == nil
	})
	switch {
	case foul != nil:
		return nil, foul
	case err != nil:
		return nil, err
	}
	way := map[ai.KeyID]bool{idOf(current): true}
	var path []key.Site
	for _, link := range chain[len(chain)-len(ids)+1:] {
		s, err := link.Identity.Site()
		if err != nil {
			return nil, succession.ErrLink.Because(err)
		}
		id := idOf(s)
		known, approved := m.c.Sites[id]
		waits, pends := pending[id]
		switch {
		case way[id]:
			return nil, ErrFollowed
		case approved && s != known:
			// The key signed another sealing key, as one that is shown by itself.
			m.c.Changed[id] = true
			m.tell(id, NoteSiteChanged, nil)
			return nil, ErrChanged
		case pends && s != waits:
			return nil, ErrChanged
		}
		way[id] = true
		path = append(path, s)
	}
	return append(path, current), nil
}

// serve begins to serve a site that was just approved, where the server offers
// that very key now.
func (m *Machine) serve(s key.Site) {
	id := idOf(s)
	m.c.Sites[id] = s
	delete(m.told, id)
	delete(m.pending, id)
	if m.offered[id] == s && m.counts(id) {
		m.served[id], m.noSites = true, false
	}
}

func (e Approved) apply(m *Machine) {
	id := idOf(e.Site)
	if known, ok := m.c.Sites[id]; ok && known != e.Site {
		return // it is refused for the life of the pairing
	}
	delete(m.c.Followed, id)
	m.serve(e.Site)
	m.do(Note{What: NoteSiteApproved, Site: id})
}

func (e Succeeded) apply(m *Machine) {
	for i, s := range e.Path[1:] {
		m.c.Followed[idOf(e.Path[i])] = Followed{idOf(s), e.Until}
	}
	for _, s := range e.Path[1:] {
		m.serve(s)
	}
	m.do(Note{What: NoteSiteSucceeded, Site: idOf(e.Path[len(e.Path)-1]), From: idOf(e.Path[0])})
}

func (Unkept) apply(m *Machine) { m.kept = false }
