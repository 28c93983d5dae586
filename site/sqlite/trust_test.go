package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// TestDeviceIsReadAnew changes a device's row behind the store that has just read
// it: what was verified before counts for the text that was verified only.
func TestDeviceIsReadAnew(t *testing.T) {
	dir := t.TempDir()
	store, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	id := storetest.Pair(t, store, "alice", 1, storetest.T0)
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "site.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	keep := func(p ai.PublicIdentity) {
		t.Helper()
		text := fmt.Sprintf(`{"identity":%q,"encryption":%q,"encryptionSig":%q}`, p.Identity, p.Encryption, p.EncryptionSig)
		if _, err := db.Exec(`UPDATE runners SET device = ? WHERE id = ?`, text, id); err != nil {
			t.Fatal(err)
		}
	}
	one, two := storetest.Identity[key.DeviceRole](1), storetest.Identity[key.DeviceRole](2)
	read := func(want key.Device) {
		t.Helper()
		for range 2 {
			if r, err := store.Devices().Runner(t.Context(), id); err != nil || r.Device != want {
				t.Fatalf("the device is %v, %v", r.Device, err)
			}
		}
	}
	read(one)
	keep(ai.PublicIdentityOf(two))
	read(two)
	mixed := ai.PublicIdentityOf(one)
	mixed.Encryption = ai.PublicIdentityOf(two).Encryption
	keep(mixed)
	for range 2 {
		if _, err := store.Devices().Runner(t.Context(), id); !errors.Is(err, site.ErrSetAside) {
			t.Errorf("a sealing key that the identity did not sign: %v", err)
		}
	}
	keep(ai.PublicIdentityOf(one))
	read(one)
	// Whoever gets a list of capabilities may change it.
	r, err := store.Devices().Runner(t.Context(), id)
	if err != nil || len(r.Capabilities) == 0 {
		t.Fatal(r.Capabilities, err)
	}
	model := r.Capabilities[0].Model
	r.Capabilities[0].Model = "another"
	if again, err := store.Devices().Runner(t.Context(), id); err != nil || again.Capabilities[0].Model != model {
		t.Errorf("the list was changed in between: %v, %v", again.Capabilities, err)
	}
}

// TestRevokedElsewhere revokes a device in one store while another one on the same
// file, as another process has it, has just served it.
func TestRevokedElsewhere(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	here, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	id := storetest.Pair(t, here, "alice", 1, storetest.T0)
	if _, _, err := here.Jobs().Enqueue(ctx, storetest.Job("a", "alice", storetest.T0)); err != nil {
		t.Fatal(err)
	}
	n := 0
	claim := site.Claim{
		RunnerID: id, Max: 1, Lease: time.Minute, Now: storetest.T0, NewLease: func() ai.LeaseID { n++; return ai.LeaseID(fmt.Sprint(n)) },
		Offers: []site.KindOffer{{Kind: ai.KindGenerate, Offer: match.Offer{Scope: ai.OfferSelf, Cost: backend.Free}}},
	}
	got, err := here.Jobs().Claim(ctx, claim)
	if err != nil || len(got.Jobs) != 1 {
		t.Fatal(got, err)
	}
	g := ai.Grant{JobID: "a", LeaseID: got.Jobs[0].Lease.ID}
	calls := map[string]func() error{
		"claim": func() error { _, err := here.Jobs().Claim(ctx, claim); return err },
		"look":  func() error { c := claim; c.LookFirst = true; _, err := here.Jobs().Claim(ctx, c); return err },
		"held":  func() error { _, err := here.Jobs().Held(ctx, g, id, storetest.T0); return err },
		"renew": func() error {
			_, err := here.Jobs().Renew(ctx, site.Renewal{RunnerID: id, Now: storetest.T0})
			return err
		},
		"devices": func() error { r, err := here.Devices().Runner(ctx, id); return errors.Join(err, revoked(r)) },
		"complete": func() error {
			_, err := here.Jobs().Complete(ctx, site.Completion{
				Grant: g, RunnerID: id, Envelope: storetest.Envelope("a", ai.DirectionResult), Disposition: ai.DispositionOK, Now: storetest.T0,
			})
			return err
		},
	}
	for name, call := range calls {
		if name == "complete" {
			continue // it would end what the others look at
		}
		if err := call(); err != nil {
			t.Fatalf("%s before: %v", name, err)
		}
	}
	if _, err := there.Devices().Revoke(ctx, id, storetest.T0); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, site.ErrRunnerRevoked) {
			t.Errorf("%s after: %v", name, err)
		}
	}
}

func revoked(r site.Runner) error {
	if r.Revoked() {
		return site.ErrRunnerRevoked
	}
	return nil
}

// TestWatchIsNarrow holds that a watcher is left alone by what it does not wait
// for: with many devices, each job would else wake all of them.
func TestWatchIsNarrow(t *testing.T) {
	ctx := t.Context()
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	mine, other := storetest.Pair(t, store, "alice", 1, storetest.T0), storetest.Pair(t, store, "bob", 2, storetest.T0)
	enqueue := func(id ai.JobID, owner ai.Owner, change ...func(*site.NewJob)) func() error {
		return func() error {
			j := storetest.Job(id, owner, storetest.T0)
			for _, c := range change {
				c(&j)
			}
			_, _, err := store.Jobs().Enqueue(ctx, j)
			return err
		}
	}
	if err := enqueue("held", "bob")(); err != nil {
		t.Fatal(err)
	}
	offers := []site.KindOffer{{Kind: ai.KindGenerate, Offer: match.Offer{Scope: ai.OfferSelf, Cost: backend.Free}}}
	order := func(id ai.RunnerID, request byte) site.Claim {
		return site.Claim{
			RunnerID: id, Offers: offers, Max: 1, Lease: time.Minute, Now: storetest.T0, Request: [32]byte{request},
			NewLease: func() ai.LeaseID { return ai.LeaseID("lease-" + string(id)) },
		}
	}
	waiting := order(mine, 1)
	changed, stop := store.Watch(site.Watch{Jobs: []ai.JobID{"mine"}, Runner: mine, Claim: &waiting, Owner: "alice"})
	defer stop()
	for _, test := range []struct {
		name string
		do   func() error
	}{
		{"another's job", enqueue("a", "bob")},
		{"a job of another kind", enqueue("b", "alice", func(j *site.NewJob) { j.Kind = ai.KindChat })},
		{"a public job, which is not offered to", enqueue("c", "bob", func(j *site.NewJob) { j.Audience = ai.AudiencePublic })},
		{"a job that waits for others", enqueue("d", "alice", func(j *site.NewJob) { j.DependsOn = []ai.JobID{"e"} })},
		{"another device's claim", func() error { _, err := store.Jobs().Claim(ctx, order(other, 1)); return err }},
		{"its own heartbeat", func() error {
			_, err := store.Jobs().Renew(ctx, site.Renewal{RunnerID: mine, IssuedAt: 1, Version: "2", Now: storetest.T0})
			return err
		}},
		{"the end of another device", func() error { _, err := store.Devices().Revoke(ctx, other, storetest.T0); return err }},
		{"a sweep", func() error { _, err := store.Jobs().Sweep(ctx, storetest.T0); return err }},
	} {
		if err := test.do(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		select {
		case <-changed:
			t.Errorf("%s woke it", test.name)
		default:
		}
	}
	if err := enqueue("mine", "alice")(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("nothing wakes it")
	}
}
