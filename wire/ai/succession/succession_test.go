package succession_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/succession"
)

// keysOf are the keys number n that a site had.
func keysOf(t testing.TB, n int) key.SiteKeys {
	t.Helper()
	k, err := key.NewKeys[key.SiteRole](strings.NewReader(strings.Repeat(fmt.Sprintf("%016d", n), 4)), time.UnixMilli(1))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// link is what previous signs to name next.
func link(t testing.TB, previous, next key.SiteKeys) ai.Succession {
	t.Helper()
	signature, err := previous.Signer().Sign(succession.Statement(previous.Identity().Fingerprint(), next.Identity().Fingerprint()))
	if err != nil {
		t.Fatal(err)
	}
	return ai.Succession{Identity: ai.PublicIdentityOf(previous.Identity()), Signature: signature.String()}
}

// site is a site that had n keys before its current one. ids has all of them, the
// current one last.
func site(t testing.TB, n int) (keys []key.SiteKeys, chain []ai.Succession, ids []key.Fingerprint) {
	t.Helper()
	for i := range n + 1 {
		keys = append(keys, keysOf(t, i))
		ids = append(ids, keys[i].Identity().Fingerprint())
		if i > 0 {
			chain = append(chain, link(t, keys[i-1], keys[i]))
		}
	}
	return keys, chain, ids
}

// TestStatement compares what is signed with the words of doc.go.
func TestStatement(t *testing.T) {
	a, err1 := key.ParseFingerprint("BYOLLM-AAAA-AAAA-AAAA-AAAA-AAAA-AAAA")
	b, err2 := key.ParseFingerprint("BYOLLM-0000-0000-0000-0000-0000-0000")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	want := "byollm/v1/site-succession:BYOLLM-AAAA-AAAA-AAAA-AAAA-AAAA-AAAA:BYOLLM-0000-0000-0000-0000-0000-0000"
	if got := string(succession.Statement(a, b)); got != want {
		t.Errorf("%s", got)
	}
}

func TestVerifyLink(t *testing.T) {
	a, b, mallory := keysOf(t, 1), keysOf(t, 2), keysOf(t, 3)
	next := b.Identity().Fingerprint()
	good := link(t, a, b)
	other := ai.PublicIdentityOf(mallory.Identity())
	for what, c := range map[string]struct {
		change func(l *ai.Succession)
		next   key.Fingerprint
		taken  bool
	}{
		"good":                   {func(*ai.Succession) {}, next, true},
		"to another key":         {func(*ai.Succession) {}, mallory.Identity().Fingerprint(), false},
		"to the key itself":      {func(*ai.Succession) {}, a.Identity().Fingerprint(), false},
		"to nobody":              {func(*ai.Succession) {}, key.Fingerprint{}, false},
		"signed by the new key":  {func(l *ai.Succession) { l.Signature = link(t, b, b).Signature }, next, false},
		"signed by another":      {func(l *ai.Succession) { l.Signature = link(t, mallory, b).Signature }, next, false},
		"the other way round":    {func(l *ai.Succession) { l.Signature = link(t, b, a).Signature }, next, false},
		"of another identity":    {func(l *ai.Succession) { l.Identity = other }, next, false},
		"another sealing key":    {func(l *ai.Succession) { l.Identity.Encryption = other.Encryption }, next, false},
		"another binding":        {func(l *ai.Succession) { l.Identity.EncryptionSig = other.EncryptionSig }, next, false},
		"no identity":            {func(l *ai.Succession) { l.Identity = ai.PublicIdentity{} }, next, false},
		"no signature":           {func(l *ai.Succession) { l.Signature = "" }, next, false},
		"a padded signature":     {func(l *ai.Succession) { l.Signature += "==" }, next, false},
		"a padded identity":      {func(l *ai.Succession) { l.Identity.Identity += "=" }, next, false},
		"a key after itself":     {func(l *ai.Succession) { *l = link(t, b, b) }, next, true},
		"a signature of a grant": {func(l *ai.Succession) { l.Signature = signed(t, a, `["byollm/v1/grant"]`) }, next, false},
	} {
		l := good
		c.change(&l)
		previous, err := succession.VerifyLink(l, c.next)
		if (err == nil) != c.taken || err != nil && !errors.Is(err, succession.ErrLink) || previous.IsZero() == c.taken {
			t.Errorf("%s: %v, %v", what, previous, err)
		}
		if err == nil && ai.PublicIdentityOf(previous) != l.Identity {
			t.Errorf("%s: the identity is %v", what, previous)
		}
	}
	// A link to nobody is refused even if it is signed so.
	nobody := good
	nobody.Signature = signed(t, a, string(succession.Statement(a.Identity().Fingerprint(), key.Fingerprint{})))
	if previous, err := succession.VerifyLink(nobody, key.Fingerprint{}); !errors.Is(err, succession.ErrLink) || !previous.IsZero() {
		t.Errorf("to nobody, and signed: %v, %v", previous, err)
	}
}

func signed(t testing.TB, keys key.SiteKeys, text string) string {
	t.Helper()
	signature, err := keys.Signer().Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return signature.String()
}

// TestWalk has every end of a walk, and of whom it asks on the way.
func TestWalk(t *testing.T) {
	_, chain, ids := site(t, 4)
	broken := func(at int) []ai.Succession {
		c := slices.Clone(chain)
		c[at].Signature = strings.Repeat("A", 86)
		return c
	}
	all, _, _ := site(t, 0)
	long := slices.Repeat([]ai.Succession{link(t, all[0], all[0])}, ai.MaxSuccessions+1)
	self := all[0].Identity().Fingerprint()
	for what, c := range map[string]struct {
		current  key.Fingerprint
		chain    []ai.Succession
		approved []key.Fingerprint
		path     []key.Fingerprint
		err      error
		asked    []key.Fingerprint
	}{
		"no chain":               {ids[4], nil, ids, nil, succession.ErrNoChain, nil},
		"an empty chain":         {ids[4], []ai.Succession{}, ids, nil, succession.ErrNoChain, nil},
		"the newest approved":    {ids[4], chain, ids[3:4], ids[3:], nil, []key.Fingerprint{ids[3]}},
		"the oldest approved":    {ids[4], chain, ids[:1], ids, nil, []key.Fingerprint{ids[3], ids[2], ids[1], ids[0]}},
		"two approved":           {ids[4], chain, ids[1:3], ids[2:], nil, []key.Fingerprint{ids[3], ids[2]}},
		"nobody approved":        {ids[4], chain, nil, nil, succession.ErrOrigin, []key.Fingerprint{ids[3], ids[2], ids[1], ids[0]}},
		"only the current one":   {ids[4], chain, ids[4:], nil, succession.ErrOrigin, []key.Fingerprint{ids[3], ids[2], ids[1], ids[0]}},
		"for another key":        {ids[3], chain, ids, nil, succession.ErrLink, nil},
		"for nobody":             {key.Fingerprint{}, chain, ids, nil, succession.ErrLink, nil},
		"the newest first":       {ids[4], []ai.Succession{chain[3], chain[2], chain[1], chain[0]}, ids, nil, succession.ErrLink, nil},
		"one missing":            {ids[4], []ai.Succession{chain[0], chain[1], chain[3]}, ids[:1], nil, succession.ErrLink, []key.Fingerprint{ids[3]}},
		"one twice":              {ids[4], []ai.Succession{chain[3], chain[3]}, nil, nil, succession.ErrLink, []key.Fingerprint{ids[3]}},
		"broken at the newest":   {ids[4], broken(3), ids, nil, succession.ErrLink, nil},
		"broken, then approved":  {ids[4], broken(1), ids[:1], nil, succession.ErrLink, []key.Fingerprint{ids[3], ids[2]}},
		"approved, then broken":  {ids[4], broken(1), ids[2:3], ids[2:], nil, []key.Fingerprint{ids[3], ids[2]}},
		"broken at the approved": {ids[4], broken(2), ids[2:3], nil, succession.ErrLink, []key.Fingerprint{ids[3]}},
		"as long as may be":      {self, long[1:], nil, nil, succession.ErrOrigin, slices.Repeat([]key.Fingerprint{self}, ai.MaxSuccessions)},
		"longer":                 {self, long, []key.Fingerprint{self}, nil, succession.ErrTooLong, nil},
	} {
		var asked []key.Fingerprint
		path, err := succession.Walk(c.current, c.chain, func(f key.Fingerprint) bool {
			asked = append(asked, f)
			return slices.Contains(c.approved, f)
		})
		if !errors.Is(err, c.err) || err != nil && c.err == nil || !slices.Equal(path, c.path) || !slices.Equal(asked, c.asked) {
			t.Errorf("%s: %v, %v, asked %v", what, path, err, asked)
		}
	}
}

// TestAnyChainOfLinks draws chains of good links in any order, and holds that a
// walk succeeds if and only if the links lead from the current key to one that is
// approved without a gap.
func TestAnyChainOfLinks(t *testing.T) {
	const n = 5
	_, links, ids := site(t, n)
	reached := 0
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.OneOf(
			rapid.SliceOfN(rapid.IntRange(0, n-1), 1, n),
			rapid.Map(rapid.IntRange(0, n-1), func(from int) (all []int) {
				for i := from; i < n; i++ {
					all = append(all, i)
				}
				return all
			}),
		).Draw(t, "order")
		approved := rapid.IntRange(0, n).Draw(t, "approved")
		var chain []ai.Succession
		for _, i := range order {
			chain = append(chain, links[i])
		}
		// The links lead down from the current key, which is number n.
		want := false
		for at, i := range slices.Backward(order) {
			if i != n-len(order)+at {
				break
			}
			if want = i == approved; want {
				break
			}
		}
		path, err := succession.Walk(ids[n], chain, func(f key.Fingerprint) bool { return f == ids[approved] })
		if (err == nil) != want || err == nil && !slices.Equal(path, ids[approved:]) {
			t.Fatalf("%v, approved %d: %v, %v", order, approved, path, err)
		}
		if want {
			reached++
		}
	})
	if reached == 0 {
		t.Error("no walk succeeded, so the test shows little")
	}
}

// FuzzVerifyLink changes the texts of a link, and holds that none is taken but
// the one that was signed.
func FuzzVerifyLink(f *testing.F) {
	a, b := keysOf(f, 1), keysOf(f, 2)
	good := link(f, a, b)
	f.Add(good.Identity.Identity, good.Identity.Encryption, good.Identity.EncryptionSig, good.Signature)
	f.Add(good.Identity.Identity+"=", good.Identity.Encryption, good.Identity.EncryptionSig, good.Signature[1:])
	f.Add("", "\xff", "", "")
	f.Fuzz(func(t *testing.T, identity, encryption, binding, signature string) {
		l := ai.Succession{Identity: ai.PublicIdentity{Identity: identity, Encryption: encryption, EncryptionSig: binding}, Signature: signature}
		previous, err := succession.VerifyLink(l, b.Identity().Fingerprint())
		if err == nil && (l != good || previous != a.Identity()) {
			t.Fatalf("%+v was never signed", l)
		}
		if err != nil && (err != error(succession.ErrLink) || !previous.IsZero()) {
			t.Fatalf("%v, %v", previous, err)
		}
	})
}

// TestKinds holds the names, statuses and order of the refusals. Programs and
// documents name them.
func TestKinds(t *testing.T) {
	want := []string{"succession-none 403", "succession-too-long 403", "succession-broken 403", "succession-unknown 403"}
	var got []string
	for _, k := range succession.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || succession.Kinds.Title != "Keys that follow another" {
		t.Errorf("%q: %q", succession.Kinds.Title, got)
	}
}
