package sqlite_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// unspoken are the audiences of versions that have no word for public.
var unspoken = []ai.Audience{ai.AudienceSelf, ai.AudienceNamed}

// leases counts the leases of these tests.
var leases int

// claimOf is a claim of a device that offers what it has to all, where it can be
// told of these audiences.
func claimOf(runner ai.RunnerID, told []ai.Audience) site.Claim {
	leases++
	return site.Claim{
		RunnerID: runner, Offers: []site.KindOffer{{Kind: ai.KindGenerate, Offer: match.Offer{Scope: ai.OfferPublic, Cost: backend.Free}}},
		Audiences: told, Max: 16, Lease: time.Minute, Now: storetest.T0, Request: [32]byte{byte(leases)},
		NewLease: func() ai.LeaseID { leases++; return ai.LeaseID(fmt.Sprint("lease-", leases)) },
	}
}

// TestQueuedByAnOlderProgram: jobs that waited in a file of the first version are
// found by whoever can be told of them, and public ones by nobody else.
func TestQueuedByAnOlderProgram(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	first, err := os.ReadFile(filepath.Join("migrations", "001_site.sql"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := database.Open(ctx, database.Config{
		URL: "sqlite:" + filepath.Join(dir, "site.db"), Name: sqlite.Name, Migrations: fstest.MapFS{"001_site.sql": {Data: first}}, Clock: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	identity := ai.PublicIdentityOf(storetest.Identity[key.DeviceRole](9))
	err = old.Write(ctx, func(tx *database.Tx) error {
		// As the first version wrote them.
		for i, j := range []struct {
			id, owner, audience string
			queues              [][2]string
		}{
			{"a-public", "alice", "public", [][2]string{{"own", "alice"}, {"open", ""}}},
			{"a-self", "alice", "self", [][2]string{{"own", "alice"}}},
			{"a-named", "alice", "named", [][2]string{{"own", "alice"}, {"open", ""}}},
			{"b-public", "bob", "public", [][2]string{{"own", "bob"}, {"open", ""}}},
			{"b-listed", "bob", "named", [][2]string{{"own", "bob"}, {"listed", "alice"}}},
			{"b-named", "bob", "named", [][2]string{{"own", "bob"}, {"open", ""}}},
			{"b-held", "bob", "public", nil},
		} {
			seq, at := i+1, int64(storetest.T0)-100+int64(i)
			if _, err := tx.ExecContext(ctx, `INSERT INTO jobs (seq, id, kind, owner, audience, size_class, state, created_at, updated_at, claimable_at, ttl_ms)
				VALUES (?, ?, 'llm.generate', ?, ?, 'small', 'queued', ?, ?, ?, 900000)`, seq, j.id, j.owner, j.audience, at, at, at); err != nil {
				return err
			}
			for _, q := range j.queues {
				if _, err := tx.ExecContext(ctx, `INSERT INTO queue (kind, reach, name, claimable_at, seq) VALUES ('llm.generate', ?, ?, ?, ?)`, q[0], q[1], at, seq); err != nil {
					return err
				}
			}
		}
		if _, err := tx.ExecContext(ctx, `UPDATE jobs SET allowed_owners = '{"owners":["alice"]}' WHERE id = 'b-listed'`); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE jobs SET state = 'claimed', lease_id = 'l', lease_runner = 'old', lease_expires_at = ? WHERE id = 'b-held'`, storetest.T0); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO runners (id, owner, key_id, device, label, platform, version, capabilities, created_at, seen_at)
			VALUES ('old', 'alice', 'k', ?, 'l', 'linux', '1', ?, 1, 1)`,
			fmt.Sprintf(`{"identity":%q,"encryption":%q,"encryptionSig":%q}`, identity.Identity, identity.Encryption, identity.EncryptionSig),
			`{"capabilities":[{"kind":"llm.generate","backendId":"ollama","backendClass":"http","model":"m","offerScope":"self"}]}`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}

	store, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r, err := store.Devices().Runner(ctx, "old")
	want := []ai.Capability{{Kind: ai.KindGenerate, BackendID: "ollama", BackendClass: backend.HTTP, Model: "m", OfferScope: ai.OfferSelf}}
	if err != nil || r.Protocol != "" || !reflect.DeepEqual(r.Capabilities, want) {
		t.Errorf("the device is %+v, %v", r, err)
	}
	waits := []string{
		"a-named open ", "a-named own alice", "a-public own-public alice", "a-public public ", "a-self own alice",
		"b-listed listed alice", "b-listed own bob", "b-named open ", "b-named own bob", "b-public own-public bob", "b-public public ",
	}
	if got := queued(t, dir); !slices.Equal(got, waits) {
		t.Errorf("queued as %q", got)
	}
	claim := func(what string, told []ai.Audience, want ...ai.JobID) {
		t.Helper()
		got, err := store.Jobs().Claim(ctx, claimOf("old", told))
		if err != nil {
			t.Fatal(err)
		}
		var ids []ai.JobID
		back := site.Release{RunnerID: "old", Now: storetest.T0}
		for _, j := range got.Jobs {
			ids = append(ids, j.ID)
			back.Grants = append(back.Grants, ai.Grant{JobID: j.ID, LeaseID: j.Lease.ID})
		}
		slices.Sort(ids)
		if !slices.Equal(ids, want) {
			t.Errorf("%s: granted %q, want %q", what, ids, want)
		}
		if _, err := store.Jobs().Release(ctx, back); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"as they were queued", "once they were given back"} {
		claim(what+", without a word for public", unspoken, "a-named", "a-self", "b-listed", "b-named")
		claim(what+", with all words", nil, "a-named", "a-public", "a-self", "b-held", "b-listed", "b-named", "b-public")
	}
	if list, err := store.SetAside(ctx); err != nil || len(list) > 0 {
		t.Errorf("set aside %+v, %v", list, err)
	}
}

// TestQueuesOfPublicJobs: public jobs wait in queues of their own, from which not
// every device is served.
func TestQueuesOfPublicJobs(t *testing.T) {
	dir := t.TempDir()
	store, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for i, a := range []ai.Audience{ai.AudiencePublic, ai.AudienceNamed, ai.AudienceSelf} {
		j := storetest.Job(ai.JobID(fmt.Sprint("job-", i)), "alice", storetest.T0)
		j.Audience = a
		if _, _, err := store.Jobs().Enqueue(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"job-0 own-public alice", "job-0 public ", "job-1 open ", "job-1 own alice", "job-2 own alice"}
	if got := queued(t, dir); !slices.Equal(got, want) {
		t.Errorf("queued as %q", got)
	}
}

// queued is where each job of a file waits: its id, and the reach and name of the
// queue.
func queued(t *testing.T, dir string) (list []string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "site.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT id || ' ' || reach || ' ' || name FROM queue JOIN jobs USING (seq) ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		list = append(list, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestNotWokenForPublicJobs: whoever cannot be told of public jobs sleeps on while
// they come and go, which are many where strangers ask.
func TestNotWokenForPublicJobs(t *testing.T) {
	store, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	runner := storetest.Pair(t, store, "alice", 1, storetest.T0)
	watch := func(told []ai.Audience) <-chan struct{} {
		c := claimOf(runner, told)
		changed, stop := store.Watch(site.Watch{Claim: &c, Owner: "alice"})
		t.Cleanup(stop)
		select { // what was before
		case <-changed:
		default:
		}
		return changed
	}
	with, without := watch(nil), watch(unspoken)
	last, stop := store.Watch(site.Watch{Jobs: []ai.JobID{"last"}})
	defer stop()
	enqueue := func(id ai.JobID, owner ai.Owner, a ai.Audience) {
		t.Helper()
		j := storetest.Job(id, owner, storetest.T0)
		j.Audience = a
		if _, _, err := store.Jobs().Enqueue(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	woken := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			t.Errorf("%s: no signal", what)
		}
	}
	enqueue("own", "alice", ai.AudiencePublic)
	woken("own", with)
	enqueue("another's", "bob", ai.AudiencePublic)
	woken("another's", with)
	if _, err := store.Jobs().Cancel(t.Context(), site.CancelRequest{ID: "own", Now: storetest.T0}); err != nil {
		t.Fatal(err)
	}
	enqueue("last", "carol", ai.AudienceSelf)
	woken("last", last) // and what was before it was told before it
	select {
	case <-without:
		t.Error("it is woken for what it cannot be told of")
	default:
	}
	enqueue("named", "bob", ai.AudienceNamed)
	woken("named", without)
}
