package lane_test

import (
	"crypto/rand"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/succession"
)

func newKeys(t testing.TB) key.SiteKeys {
	t.Helper()
	k, err := key.NewKeys[key.SiteRole](rand.Reader, start)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func idOf(s key.Site) ai.KeyID { return ai.KeyID(s.Fingerprint().String()) }

func nameOf(k key.SiteKeys) ai.KeyID { return idOf(k.Identity()) }

// link is what one key signs to name the next.
func link(t testing.TB, previous, next key.SiteKeys) ai.Succession {
	t.Helper()
	signature, err := previous.Signer().Sign(succession.Statement(previous.Identity().Fingerprint(), next.Identity().Fingerprint()))
	if err != nil {
		t.Fatal(err)
	}
	return ai.Succession{Identity: ai.PublicIdentityOf(previous.Identity()), Signature: signature.String()}
}

// chain has each key name the next.
func chain(t testing.TB, keys ...key.SiteKeys) (c []ai.Succession) {
	t.Helper()
	for i, k := range keys[1:] {
		c = append(c, link(t, keys[i], k))
	}
	return c
}

// shown is an answer that offers these sites.
func shown(sites ...key.Site) func(*ai.HeartbeatResponse) {
	return func(r *ai.HeartbeatResponse) {
		r.Sites = map[ai.KeyID]ai.PublicIdentity{}
		for _, s := range sites {
			r.Sites[idOf(s)] = ai.PublicIdentityOf(s)
		}
	}
}

// after says how a key came after others.
func after(id ai.KeyID, c []ai.Succession) func(*ai.HeartbeatResponse) {
	return func(r *ai.HeartbeatResponse) {
		if r.Successions == nil {
			r.Successions = map[ai.KeyID]ai.SiteSuccession{}
		}
		r.Successions[id] = ai.SiteSuccession{Succeeds: c}
	}
}

// until says when the key before stops counting.
func until(id ai.KeyID, at ai.Millis) func(*ai.HeartbeatResponse) {
	return func(r *ai.HeartbeatResponse) {
		s := r.Successions[id]
		s.RetiringUntil = at
		r.Successions[id] = s
	}
}

// keyBench is a bench whose heartbeats are answered one by one.
type keyBench struct {
	*bench
	done int // the last that was answered
}

// newKeyBench is a bench whose one approved key is a.
func newKeyBench(t *testing.T, a key.SiteKeys, change ...func(*lane.Config)) *keyBench {
	b := newBench(t, append([]func(*lane.Config){func(c *lane.Config) {
		c.Sites = map[ai.KeyID]key.Site{nameOf(a): a.Identity()}
	}}, change...)...)
	b.site, b.id = a.Identity(), nameOf(a)
	b.step(lane.Offered{Offers: offers})
	return &keyBench{bench: b}
}

// beat has the next heartbeat answered so.
func (b *keyBench) beat(change ...func(*ai.HeartbeatResponse)) []lane.Action {
	b.t.Helper()
	for range 13 {
		beats := of[lane.Beat](b.log)
		if last := beats[len(beats)-1].Seq; last > b.done {
			b.done = last
			return b.beatDone(last, change...)
		}
		b.wait(time.Second)
	}
	b.t.Fatal("no heartbeat within 12 seconds")
	return nil
}

func told(actions []lane.Action) (s []lane.What) {
	for _, n := range of[lane.Note](actions) {
		s = append(s, n.What)
	}
	return s
}

func (b *bench) serves(ids ...ai.KeyID) {
	b.t.Helper()
	slices.Sort(ids)
	if got := b.m.Status().Serving; !slices.Equal(got, ids) {
		b.t.Errorf("serves %v, want %v", got, ids)
	}
}

// TestSuccession: a key that an approved one signed is asked to be kept, and is
// served once it is (MUST SITES_LOCALLY_APPROVED).
func TestSuccession(t *testing.T) {
	a, k := newKeys(t), newKeys(t)
	b := newKeyBench(t, a)
	answer := []func(*ai.HeartbeatResponse){shown(a.Identity(), k.Identity()), after(nameOf(k), chain(t, a, k))}
	got := b.beat(answer...)
	want := lane.Succeed{Path: []key.Site{a.Identity(), k.Identity()}, Until: ai.MillisOf(b.now.Add(7 * 24 * time.Hour))}
	if s := one[lane.Succeed](b.bench, got); !reflect.DeepEqual(s, want) {
		t.Errorf("%+v, want %+v", s, want)
	}
	if len(told(got)) > 0 || len(of[lane.Seen](got)) > 0 {
		t.Errorf("before it is kept: %s", names(got))
	}
	b.serves(nameOf(a))
	// It could not be kept, so it is asked for again, and nothing runs for it.
	if _, err := b.m.Admit(b.stub(1, func(s *ai.ClaimedStub) { s.Site = nameOf(k) })); !errors.Is(err, lane.ErrSite) {
		t.Errorf("admitted before it is kept: %v", err)
	}
	got = b.beat(answer...)
	one[lane.Succeed](b.bench, got)
	b.serves(nameOf(a))
	got = b.step(lane.Succeeded(want))
	if n := one[lane.Note](b.bench, got); n.What != lane.NoteSiteSucceeded || n.Site != nameOf(k) || n.From != nameOf(a) {
		t.Errorf("note %+v", n)
	}
	b.serves(nameOf(a), nameOf(k))
	if _, err := b.m.Admit(b.stub(1, func(s *ai.ClaimedStub) { s.Site = nameOf(k) })); err != nil {
		t.Errorf("not admitted: %v", err)
	}
	// Once is enough.
	if got = b.beat(answer...); len(told(got)) > 0 || len(of[lane.Succeed](got)) > 0 {
		t.Errorf("again: %s", names(got))
	}
}

// TestSuccessionOverSeveral: keys that the machine never saw are accepted on the
// way, and are not asked about where they are offered as well.
func TestSuccessionOverSeveral(t *testing.T) {
	a, k, c := newKeys(t), newKeys(t), newKeys(t)
	b := newKeyBench(t, a)
	got := b.beat(shown(a.Identity(), k.Identity(), c.Identity()), after(nameOf(c), chain(t, a, k, c)), after(nameOf(k), chain(t, a, k)))
	s := one[lane.Succeed](b.bench, got)
	if !slices.Equal(s.Path, []key.Site{a.Identity(), k.Identity(), c.Identity()}) || len(told(got)) > 0 {
		t.Errorf("%+v: %s", s, names(got))
	}
	b.step(lane.Succeeded(s))
	b.serves(nameOf(a), nameOf(k), nameOf(c))
	b.now = b.now.Add(8 * 24 * time.Hour)
	b.beat(shown(a.Identity(), k.Identity(), c.Identity()))
	b.serves(nameOf(c))
}

// TestSuccessionRefused has a chain for each reason not to accept one. Nothing
// changes, the owner is told once, and the site waits.
func TestSuccessionRefused(t *testing.T) {
	a, k, x, y := newKeys(t), newKeys(t), newKeys(t), newKeys(t)
	changed := ai.PublicIdentityOf(rebound(t, a))
	broken := chain(t, a, k)
	broken[0].Signature = link(t, a, x).Signature
	other := chain(t, a, k)
	other[0].Identity = changed
	long := append(slices.Repeat([]ai.Succession{link(t, x, x)}, ai.MaxSuccessions), link(t, a, k))
	none := func(*lane.Config) {}
	for name, c := range map[string]struct {
		chain  []ai.Succession
		config func(*lane.Config)
		want   *refusal.Kind
	}{
		"a broken link":                   {broken, none, succession.ErrLink},
		"a link to another key":           {chain(t, a, x), none, succession.ErrLink},
		"too long":                        {long, none, succession.ErrTooLong},
		"nobody that was approved":        {chain(t, x, y, k), none, succession.ErrOrigin},
		"a sealing key that was not seen": {other, none, lane.ErrChanged},
		"a key that showed another":       {chain(t, a, k), func(c *lane.Config) { c.Changed = map[ai.KeyID]bool{nameOf(a): true} }, lane.ErrChanged},
		"by way of one that showed another": {chain(t, a, x, k), func(c *lane.Config) {
			c.Sites[nameOf(x)], c.Changed = x.Identity(), map[ai.KeyID]bool{nameOf(x): true}
		}, lane.ErrChanged},
		"a key that has a successor": {chain(t, a, k), func(c *lane.Config) {
			c.Sites[nameOf(x)], c.Followed = x.Identity(), map[ai.KeyID]lane.Followed{nameOf(a): {Next: nameOf(x), Until: 1 << 50}}
		}, lane.ErrFollowed},
		"by way of one that has a successor": {chain(t, a, x, k), func(c *lane.Config) {
			c.Sites[nameOf(x)], c.Followed = x.Identity(), map[ai.KeyID]lane.Followed{nameOf(x): {Next: nameOf(y), Until: 1}}
		}, lane.ErrFollowed},
		"round in a circle":         {chain(t, a, k, x, k), none, lane.ErrFollowed},
		"a key that follows itself": {chain(t, a, k, k), none, lane.ErrFollowed},
		"no room": {chain(t, a, k), func(c *lane.Config) {
			for len(c.Sites) < lane.MaxSites {
				s := newSite(t)
				c.Sites[idOf(s)] = s
			}
		}, lane.ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			b := newKeyBench(t, a, c.config)
			answer := []func(*ai.HeartbeatResponse){shown(a.Identity(), k.Identity()), after(nameOf(k), c.chain)}
			got := b.beat(answer...)
			var note lane.Note
			for _, n := range of[lane.Note](got) {
				if n.Site == nameOf(k) {
					note = n
				}
			}
			if note.What != lane.NoteSuccessionRefused || !errors.Is(note.Err, c.want) || len(of[lane.Succeed](got)) > 0 {
				t.Errorf("%+v: %s", note, names(got))
			}
			if seen := one[lane.Seen](b.bench, got); !maps.Equal(seen.Pending, map[ai.KeyID]key.Site{nameOf(k): k.Identity()}) {
				t.Errorf("waits: %v", seen.Pending)
			}
			b.serves(nameOf(a))
			if got = b.beat(answer...); len(told(got)) > 0 || len(of[lane.Succeed](got)) > 0 || len(of[lane.Seen](got)) > 0 {
				t.Errorf("again: %s", names(got))
			}
		})
	}
}

// TestNoWayAroundAChangedKey: a chain does not bring in another key under an
// approved name, and a name that showed another key names no successor, also after
// it left and came back.
func TestNoWayAroundAChangedKey(t *testing.T) {
	a, x, k := newKeys(t), newKeys(t), newKeys(t)
	changed := rebound(t, a)
	b := newKeyBench(t, a, func(c *lane.Config) { c.Sites[nameOf(x)] = x.Identity() })
	got := b.beat(shown(changed, x.Identity()), after(nameOf(a), chain(t, x, a)))
	if len(of[lane.Succeed](got)) > 0 || !slices.Equal(told(got), []lane.What{lane.NoteSiteChanged}) {
		t.Errorf("%s", names(got))
	}
	if s := one[lane.Seen](b.bench, got); !slices.Equal(s.Changed, []ai.KeyID{nameOf(a)}) || len(s.Pending) > 0 {
		t.Errorf("%+v", s)
	}
	b.serves(nameOf(x))
	b.beat(shown(x.Identity()))
	got = b.beat(shown(a.Identity(), k.Identity(), x.Identity()), after(nameOf(k), chain(t, a, k)))
	if len(of[lane.Succeed](got)) > 0 || !slices.Contains(told(got), lane.NoteSuccessionRefused) {
		t.Errorf("it names its successor: %s", names(got))
	}
	b.serves(nameOf(a), nameOf(x))
}

// TestTwoSuccessors: of two keys that are shown to come after one, one at most is
// accepted.
func TestTwoSuccessors(t *testing.T) {
	a, k, x := newKeys(t), newKeys(t), newKeys(t)
	b := newKeyBench(t, a)
	answer := []func(*ai.HeartbeatResponse){shown(k.Identity(), x.Identity()), after(nameOf(k), chain(t, a, k)), after(nameOf(x), chain(t, a, x))}
	got := b.beat(answer...)
	s := one[lane.Succeed](b.bench, got)
	if !slices.Contains(told(got), lane.NoteSuccessionRefused) {
		t.Errorf("%s", names(got))
	}
	b.step(lane.Succeeded(s))
	if got = b.beat(answer...); len(of[lane.Succeed](got)) > 0 {
		t.Errorf("%s", names(got))
	}
	b.serves(nameOf(a), idOf(s.Path[1]))
}

// TestRetirement: a key that another came after counts until its time is over, by
// this machine's clock and never for longer than a week, also where it is not
// offered any more.
func TestRetirement(t *testing.T) {
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		said  time.Duration // from now; zero is not said
		want  time.Duration
		alone bool // only the next key is offered
	}{
		"not said":                    {0, week, false},
		"sooner":                      {time.Hour, time.Hour, false},
		"later than may be":           {8 * 24 * time.Hour, week, false},
		"long ago":                    {-time.Hour, 0, false},
		"not said, and not offered":   {0, week, true},
		"sooner, and not offered":     {time.Hour, time.Hour, true},
		"long ago, and not offered":   {-time.Hour, 0, true},
		"the very end, not offered":   {week, week, true},
		"a millisecond, not offered":  {time.Millisecond, time.Millisecond, true},
		"a millisecond, both offered": {time.Millisecond, time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, k := newKeys(t), newKeys(t)
			b := newKeyBench(t, a)
			b.grant(one[lane.Claim](b.bench, b.beat()).Seq, b.stub(1))
			sites := []key.Site{k.Identity()}
			if !c.alone {
				sites = append(sites, a.Identity())
			}
			b.wait(time.Second) // and a heartbeat is under way
			begun := b.now
			var at ai.Millis
			if c.said != 0 {
				at = ai.MillisOf(begun.Add(c.said))
			}
			got := b.beat(shown(sites...), after(nameOf(k), chain(t, a, k)), until(nameOf(k), at))
			if len(of[lane.Abort](got)) > 0 || slices.Contains(told(got), lane.NoteNoSites) {
				t.Errorf("work ends before what comes after it is kept: %s", names(got))
			}
			b.step(lane.Succeeded(one[lane.Succeed](b.bench, got)))
			look := func(at time.Time) (served bool) {
				t.Helper()
				b.now = at
				b.step(lane.Tick{})
				got = b.beat(shown(sites...))
				if !slices.Contains(b.m.Status().Serving, nameOf(k)) {
					t.Errorf("the next key is not served: %s", names(got))
				}
				return slices.Contains(b.m.Status().Serving, nameOf(a))
			}
			if c.want > time.Minute && !look(begun.Add(c.want-time.Minute)) {
				t.Errorf("not served a minute before its end: %s", names(got))
			}
			if look(begun.Add(max(c.want, time.Minute))) {
				t.Error("served after its end")
			}
			if !slices.Contains(told(got), lane.NoteSiteRetired) {
				t.Errorf("nobody is told: %s", names(got))
			}
			if look(begun.Add(c.want + time.Hour)) {
				t.Error("served again")
			}
		})
	}
}

// TestFollowedLeaves: a key that another came after is not served on where its
// site has left, or shows another key.
func TestFollowedLeaves(t *testing.T) {
	a, k, other := newKeys(t), newKeys(t), newSite(t)
	b := newKeyBench(t, a, func(c *lane.Config) {
		c.Sites[nameOf(k)], c.Sites[idOf(other)] = k.Identity(), other
		c.Followed = map[ai.KeyID]lane.Followed{nameOf(a): {Next: nameOf(k), Until: ai.MillisOf(start.Add(time.Hour))}}
	})
	b.beat(shown(k.Identity()))
	b.serves(nameOf(a), nameOf(k))
	b.beat(shown(other))
	b.serves(idOf(other))
	b.beat(shown(rebound(t, a), k.Identity()))
	b.serves(nameOf(k))
	b.beat(shown(k.Identity()))
	b.serves(nameOf(k))
}

// TestApproved: what the owner approves is served at once, if it is what is
// offered.
func TestApproved(t *testing.T) {
	a, k := newKeys(t), newKeys(t)
	changed := rebound(t, k)
	b := newKeyBench(t, a)
	got := b.beat(shown(k.Identity()))
	if !slices.Equal(told(got), []lane.What{lane.NoteSitePending, lane.NoteNoSites}) || len(of[lane.Claim](got)) > 0 {
		t.Errorf("%s", names(got))
	}
	b.serves()
	got = b.step(lane.Approved{Site: k.Identity()})
	if !slices.Equal(told(got), []lane.What{lane.NoteSiteApproved}) || len(of[lane.Claim](got)) != 1 {
		t.Errorf("%s", names(got))
	}
	b.serves(nameOf(k))
	// Another key under its name is not served, whoever approves it now.
	b.step(lane.Approved{Site: changed})
	b.beat(shown(changed))
	b.beat(shown(a.Identity()))
	got = b.beat(shown(changed))
	b.serves()
	if !slices.Contains(told(got), lane.NoteSiteChanged) {
		t.Errorf("%s", names(got))
	}

	// Approved under another key than the one that is offered.
	b = newKeyBench(t, a)
	b.beat(shown(changed))
	b.step(lane.Approved{Site: k.Identity()})
	b.serves()
	b.beat(shown(changed))
	b.serves()
	b.beat(shown(k.Identity()))
	b.serves(nameOf(k))
}

// TestWaiting: what waits is kept when it changes, is forgotten once it is not
// offered, and is kept again where that failed. There is a bound to it.
func TestWaiting(t *testing.T) {
	a, k := newKeys(t), newKeys(t)
	waits := map[ai.KeyID]key.Site{nameOf(k): k.Identity()}
	b := newKeyBench(t, a, func(c *lane.Config) { c.Pending = waits })
	if got := b.beat(shown(a.Identity(), k.Identity())); len(of[lane.Seen](got)) > 0 {
		t.Errorf("kept though it was: %s", names(got))
	}
	if s := one[lane.Seen](b.bench, b.beat(shown(a.Identity()))); len(s.Pending) > 0 {
		t.Errorf("%+v", s)
	}
	for range 2 {
		if s := one[lane.Seen](b.bench, b.beat(shown(a.Identity(), k.Identity()))); !maps.Equal(s.Pending, waits) {
			t.Errorf("%+v", s)
		}
		b.step(lane.Unkept{})
	}
	if s := one[lane.Seen](b.bench, b.beat(shown(a.Identity(), rebound(t, k)))); maps.Equal(s.Pending, waits) {
		t.Error("another key under the name is not kept")
	}
	many := []key.Site{a.Identity()}
	for range 2 * lane.MaxPending {
		many = append(many, newSite(t))
	}
	got := b.beat(shown(many...))
	if s := one[lane.Seen](b.bench, got); len(s.Pending) != lane.MaxPending || len(told(got)) > lane.MaxPending {
		t.Errorf("%d wait, and the owner is told %d times", len(s.Pending), len(told(got)))
	}
	b.serves(nameOf(a))
}

// TestOnlyApprovedIsServed: whatever a server shows, in whatever order, what is
// served was approved here under the very key, or comes after such a key by
// signatures (MUST SITES_LOCALLY_APPROVED).
func TestOnlyApprovedIsServed(t *testing.T) {
	var keys []key.SiteKeys
	var others []key.Site
	for range 5 {
		keys = append(keys, newKeys(t))
	}
	for _, k := range keys {
		others = append(others, rebound(t, k))
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := newKeyBench(t, keys[0])
		approved := map[key.Site]bool{keys[0].Identity(): true}
		for range rapid.IntRange(1, 12).Draw(rt, "beats") {
			offered := map[ai.KeyID]key.Site{}
			for i := range keys {
				switch rapid.IntRange(0, 3).Draw(rt, "shows") {
				case 0:
				case 1:
					offered[nameOf(keys[i])] = others[i]
				default:
					offered[nameOf(keys[i])] = keys[i].Identity()
				}
			}
			answer := []func(*ai.HeartbeatResponse){shown(slices.Collect(maps.Values(offered))...)}
			for i := range keys {
				var c []ai.Succession
				next := i
				for range rapid.IntRange(0, 3).Draw(rt, "links") {
					before := rapid.IntRange(0, 4).Draw(rt, "before")
					l := link(t, keys[before], keys[next])
					switch rapid.IntRange(0, 9).Draw(rt, "lies") {
					case 0:
						l.Signature = link(t, keys[next], keys[next]).Signature
					case 1:
						l.Identity = ai.PublicIdentityOf(others[before])
					}
					c = slices.Insert(c, 0, l)
					next = before
				}
				answer = append(answer, after(nameOf(keys[i]), c))
			}
			for _, s := range of[lane.Succeed](b.beat(answer...)) {
				if !approved[s.Path[0]] {
					rt.Fatalf("%v comes after one that was not approved", s.Path)
				}
				if rapid.Bool().Draw(rt, "kept") {
					for _, site := range s.Path {
						approved[site] = true
					}
					b.step(lane.Succeeded(s))
				}
			}
			if rapid.IntRange(0, 4).Draw(rt, "owner") == 0 {
				i := rapid.IntRange(0, 4).Draw(rt, "which")
				if !approved[others[i]] {
					approved[keys[i].Identity()] = true
					b.step(lane.Approved{Site: keys[i].Identity()})
				}
			}
			for _, id := range b.m.Status().Serving {
				for i, k := range keys {
					// Under one of its two keys, and that stays so.
					if nameOf(k) == id && approved[k.Identity()] == approved[others[i]] {
						rt.Fatalf("serves %s, whose keys are approved: %v", id, approved)
					}
				}
			}
		}
	})
}
