package storetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

func testLinks(t *testing.T, e Engine) {
	f := newFixture(t, e)
	links := f.store.Links()
	start := func(seed byte) site.NewPairing {
		t.Helper()
		p := pairing(seed, f.now)
		if err := f.devs.StartPairing(f.ctx(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	issue := func(token string, owner ai.Owner, code string) [32]byte {
		t.Helper()
		n := site.NewLink{Token: sha256.Sum256([]byte(token)), Owner: owner, UserCode: code, ExpiresAt: f.now + 5*Minute, Now: f.now}
		if err := links.Make(f.ctx(), n); err != nil {
			t.Fatal(err)
		}
		return n.Token
	}
	look := func(token [32]byte, code string) (site.Pairing, error) {
		return links.Look(f.ctx(), site.LinkCode{Token: token, UserCode: code, Now: f.now})
	}
	use := func(token [32]byte, code string, approve bool, id ai.RunnerID) (site.Runner, error) {
		return links.Use(f.ctx(), site.LinkUse{
			LinkCode: site.LinkCode{Token: token, UserCode: code, Now: f.now}, Approve: approve, RunnerID: id,
		})
	}
	find := func(token [32]byte) error {
		_, err := links.Find(f.ctx(), token, f.now)
		return err
	}
	// over holds that nothing can be done by a link, with the one answer.
	over := func(what string, token [32]byte, code string) {
		t.Helper()
		wantErr(t, what+": find", find(token), site.ErrNoLink)
		_, err := look(token, code)
		wantErr(t, what+": look", err, site.ErrNoLink)
		for _, approve := range []bool{true, false} {
			_, err = use(token, code, approve, "never")
			wantErr(t, what+": use", err, site.ErrNoLink)
		}
		if _, err := f.devs.Runner(f.ctx(), "never"); !errors.Is(err, site.ErrNoRunner) {
			t.Errorf("%s: it made a runner, %v", what, err)
		}
	}
	status := func(p site.NewPairing, want ai.PairStatus) site.Runner {
		t.Helper()
		got, err := f.devs.Poll(f.ctx(), p.DeviceCode, f.now)
		if err != nil || got.Status != want {
			t.Errorf("poll: %s, %v, want %s", got.Status, err, want)
		}
		return got.Runner
	}

	// A link is for its owner. Looking changes nothing.
	over("an unknown link", sha256.Sum256([]byte("unknown")), "CODE-0001")
	a := start(1)
	open := issue("open", "alice", "")
	want := site.Link{Owner: "alice", CreatedAt: f.now, ExpiresAt: f.now + 5*Minute}
	if got, err := links.Find(f.ctx(), open, f.now); err != nil || got != want {
		t.Errorf("link %+v, %v, want %+v", got, err, want)
	}
	wantPairing := site.Pairing{
		UserCode: a.UserCode, Device: a.Device, Daemon: a.Daemon, Capabilities: a.Capabilities, CreatedAt: f.now, ExpiresAt: a.ExpiresAt,
	}
	for range 2 {
		if got, err := look(open, a.UserCode); err != nil || !reflect.DeepEqual(got, wantPairing) {
			t.Errorf("looked at %+v, %v\nwant      %+v", got, err, wantPairing)
		}
	}
	status(a, ai.PairPending)

	// It approves once, and makes what an approval of the app makes.
	f.now += Second
	wantRunner := site.Runner{
		ID: "r1", Owner: "alice", Device: a.Device, Daemon: a.Daemon, Capabilities: a.Capabilities, CreatedAt: f.now, SeenAt: f.now,
	}
	if r, err := use(open, a.UserCode, true, "r1"); err != nil || !reflect.DeepEqual(r, wantRunner) {
		t.Errorf("approved %+v, %v\nwant     %+v", r, err, wantRunner)
	}
	if r := status(a, ai.PairApproved); !reflect.DeepEqual(r, wantRunner) {
		t.Errorf("collected %+v", r)
	}
	b := start(2)
	over("a used link", open, b.UserCode)
	status(b, ai.PairPending)

	// It denies once.
	no := issue("no", "alice", "")
	if r, err := use(no, b.UserCode, false, "never"); err != nil || !reflect.DeepEqual(r, site.Runner{}) {
		t.Errorf("denied: %+v, %v", r, err)
	}
	status(b, ai.PairDenied)
	over("a link that denied", no, start(3).UserCode)

	// A link with a code of its own is for that device alone.
	c, d := start(4), start(5)
	wantErr(t, "a link for a code that nobody has", links.Make(f.ctx(), site.NewLink{
		Token: sha256.Sum256([]byte("nobody")), Owner: "alice", UserCode: "CODE-9999", ExpiresAt: f.now + Minute, Now: f.now,
	}), site.ErrNoPairing)
	wantErr(t, "which was not made", find(sha256.Sum256([]byte("nobody"))), site.ErrNoLink)
	own := issue("own", "bob", c.UserCode)
	if got, err := links.Find(f.ctx(), own, f.now); err != nil || got.UserCode != c.UserCode || got.Owner != "bob" {
		t.Errorf("link %+v, %v", got, err)
	}
	for _, code := range []string{"", c.UserCode} {
		if got, err := look(own, code); err != nil || got.Device != c.Device {
			t.Errorf("looked at %+v, %v", got, err)
		}
	}
	_, err := look(own, d.UserCode)
	wantErr(t, "another device's code", err, site.ErrNoPairing)
	_, err = use(own, d.UserCode, true, "never")
	wantErr(t, "another device's code, used", err, site.ErrNoPairing)
	status(d, ai.PairPending)
	if r, err := use(own, "", true, "r2"); err != nil || r.Owner != "bob" || r.Device != c.Device {
		t.Errorf("approved %+v, %v", r, err)
	}
	over("it was used", own, "")

	// Where its device was decided meanwhile, it can still be opened, and nothing is
	// counted: nobody guesses.
	gone := issue("gone", "bob", d.UserCode)
	if err := f.devs.Deny(f.ctx(), d.UserCode, f.now); err != nil {
		t.Fatal(err)
	}
	for range site.MaxLinkMisses + 1 {
		_, err = look(gone, "")
		wantErr(t, "a device that was decided", err, site.ErrNoPairing)
		_, err = use(gone, "", true, "never")
		wantErr(t, "a device that was decided, used", err, site.ErrNoPairing)
	}
	if err := find(gone); err != nil {
		t.Error(err)
	}

	// Guesses are counted, whether the page only looks or decides. The last one
	// that is left may be right.
	g := start(6)
	for i, guess := range []func(token [32]byte, code string) error{
		func(token [32]byte, code string) error { _, err := look(token, code); return err },
		func(token [32]byte, code string) error { _, err := use(token, code, true, "never"); return err },
		func(token [32]byte, code string) error { _, err := use(token, code, false, ""); return err },
	} {
		patient, wild := issue(fmt.Sprint("patient-", i), "alice", ""), issue(fmt.Sprint("wild-", i), "alice", "")
		for i := range site.MaxLinkMisses {
			if i > 0 {
				wantErr(t, "a guess", guess(patient, fmt.Sprintf("NONE-%04d", i)), site.ErrNoPairing)
			}
			wantErr(t, "a guess", guess(wild, fmt.Sprintf("NONE-%04d", i)), site.ErrNoPairing)
		}
		if got, err := links.Find(f.ctx(), patient, f.now); err != nil || got.Misses != site.MaxLinkMisses-1 {
			t.Errorf("after nine guesses %+v, %v", got, err)
		}
		if _, err := look(patient, g.UserCode); err != nil {
			t.Error(err)
		}
		over("a link that was given too many codes", wild, g.UserCode)
	}
	status(g, ai.PairPending)

	// Links end, and so do codes; neither is decided after.
	short := issue("short", "alice", "")
	f.now += 5*Minute - 1
	if err := find(short); err != nil {
		t.Error(err)
	}
	f.now++
	over("a link after its end", short, g.UserCode)
	f.now = g.ExpiresAt
	late := issue("late", "alice", "")
	_, err = use(late, g.UserCode, true, "never")
	wantErr(t, "a code after its end", err, site.ErrNoPairing)
	if err := find(late); err != nil {
		t.Errorf("a link that decided nothing is not used: %v", err)
	}

	// An owner has few at once; the oldest end, and others' stay.
	others := issue("others", "bob", "")
	for i := range site.MaxLinks {
		f.now++
		issue(fmt.Sprintf("many-%d", i), "alice", "")
	}
	wantErr(t, "the oldest of too many", find(late), site.ErrNoLink)
	f.now++
	issue("one more", "alice", "")
	for i, want := range map[int]error{0: site.ErrNoLink, 1: nil, site.MaxLinks - 1: nil} {
		if err := find(sha256.Sum256(fmt.Appendf(nil, "many-%d", i))); !errors.Is(err, want) {
			t.Errorf("link %d of %d and one more: %v, want %v", i, site.MaxLinks, err, want)
		}
	}
	if err := find(others); err != nil {
		t.Error(err)
	}

	// A sweep removes what has ended and nothing else.
	keep := issue("keep", "carol", "")
	if err := links.Sweep(f.ctx(), f.now); err != nil {
		t.Fatal(err)
	}
	for _, token := range [][32]byte{others, keep} {
		if err := find(token); err != nil {
			t.Error(err)
		}
	}
	f.now += 5 * Minute
	if err := links.Sweep(f.ctx(), f.now); err != nil {
		t.Fatal(err)
	}
	f.now -= 5 * Minute // a clock that was set back finds nothing that was removed
	over("a link that was swept", keep, "")

	// Of many uses at one moment one decides.
	race, h := issue("race", "alice", ""), start(7)
	var (
		wg   sync.WaitGroup
		wins atomic.Int32
	)
	for i := range 20 {
		wg.Go(func() {
			_, err := use(race, h.UserCode, i%2 == 0, ai.RunnerID(fmt.Sprintf("race-%d", i)))
			if err == nil {
				wins.Add(1)
			} else if !errors.Is(err, site.ErrNoLink) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d of 20 uses of one link decided", wins.Load())
	}
}
