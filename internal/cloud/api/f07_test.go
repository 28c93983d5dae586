package api_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
)

// TestF07OfConcurrentWritesOneWins sends writes with one counter at the same time,
// over HTTP, to both stores.
func TestF07OfConcurrentWritesOneWins(t *testing.T) {
	const writers = 6
	for name, open := range map[string]func() store.Store{
		"memory": func() store.Store { return memory.New() },
		"sqlite": func() store.Store {
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "zone.db")})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		s := open()
		w := newWorldOn(t, s)
		t.Cleanup(func() { _ = s.Close() })
		e := w.estate("a")
		var hashes []string
		for range writers {
			b, err := enroll.NewBearer(w.rand)
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, b.Hash().Text())
		}
		for method, c := range map[string]struct {
			members func(i int) string
			jwt     zone.Secret
			lost    string
		}{
			"updateCluster": {func(i int) string {
				return fmt.Sprintf(`"clusterId":%q,"expectedRevision":1,"cluster":{"name":"n%d"},"mutationId":"c%d"`, e.cluster, i, i)
			}, e.jwt, "revision-conflict"},
			"updateService": {func(i int) string {
				return fmt.Sprintf(`"serviceId":%q,"expectedRevision":1,"service":{"name":"n%d","clusterId":null},"mutationId":"s%d"`, e.service, i, i)
			}, e.jwt, "revision-conflict"},
			"mutateServiceMachineCredential": {func(i int) string {
				return machines{w, e}.members("rotate", "1", fmt.Sprintf("m%d", i))
			}, e.jwt, "revision-conflict"},
			// The bearer that won replaced the one that the others came with.
			"rotateNodeCredential": {func(i int) string {
				return fmt.Sprintf(`"bearer":%q,"purpose":"pallet","nextCredentialHash":%q,"expectedGeneration":1,"rotationId":"r%d"`, e.node.pallet.Reveal(), hashes[i], i)
			}, zone.Secret{}, "node-credential"},
		} {
			answers := make([]string, writers)
			var all sync.WaitGroup
			begin := make(chan struct{})
			for i := range writers {
				all.Go(func() {
					<-begin
					answers[i] = w.say(method, c.members(i), c.jwt)
				})
			}
			close(begin)
			all.Wait()
			won := 0
			for _, text := range answers {
				switch {
				case strings.Contains(text, `"response":{`):
					won++
				case !strings.Contains(text, `"code":"`+c.lost+`"`):
					t.Errorf("%s, %s: %s", name, method, text)
				}
			}
			if won != 1 {
				t.Errorf("%s, %s: %d won: %v", name, method, won, answers)
			}
		}
		if after := w.everything(e); strings.Count(after, `"revision":2`) != 2 || strings.Count(after, `"generation":2`) < 2 || strings.Contains(after, `"revision":3`) {
			t.Errorf("%s: %s", name, after)
		}
	}
}

// TestF07ReplayOverTheCarrier: a repeat after success, after later writes and after
// its maker lost the right: the recorded answer or a refusal, and never a change.
func TestF07ReplayOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	update := func(revision int, name, mutation string) string {
		return fmt.Sprintf(`"clusterId":%q,"expectedRevision":%d,"cluster":{"name":%q},"mutationId":%q`, e.cluster, revision, name, mutation)
	}
	create := `"organizationId":"org-a","cluster":{"name":"second"},"mutationId":"create"`
	first := map[string]string{ // members: answer
		create:                      w.done("createCluster", create, e.jwt),
		update(1, "two", "update"):  w.done("updateCluster", update(1, "two", "update"), e.jwt),
		update(2, "three", "again"): w.done("updateCluster", update(2, "three", "again"), e.jwt),
	}
	method := func(members string) string {
		if members == create {
			return "createCluster"
		}
		return "updateCluster"
	}
	repeat := func(when string) {
		t.Helper()
		before := w.everything(e)
		for members, answer := range first {
			want := strings.Replace(answer, `"replayed":false`, `"replayed":true`, 1)
			var text string
			cost := w.store.Cost(func() { text = w.say(method(members), members, e.jwt) })
			if text != want || want == answer || len(cost.Writes) > 0 {
				t.Errorf("%s: %s, want %s; writes %v", when, text, want, cost.Writes)
			}
		}
		if after := w.everything(e); after != before {
			t.Errorf("%s: a repeat changed something: %s, before %s", when, after, before)
		}
	}
	repeat("after success")
	w.done("updateCluster", update(3, "four", "later"), e.jwt)
	repeat("after a later write")
	for what, members := range map[string]string{
		"another name":     update(1, "other", "update"),
		"another revision": update(3, "two", "update"),
		"another method's": update(4, "five", "create"),
	} {
		w.refuses(what, "updateCluster", members, e.jwt, "mutation-conflict")
	}
	// With the right, the way to the recorded answers is gone too.
	must(w, w.admin(), methods.SetMember, admin.SetMemberCodec, admin.SetMemberAnswerCodec,
		admin.SetMember{OrganizationID: e.organization, OperatorID: e.operator, Role: admin.Viewer, MutationID: w.mutation()}, carrier.Proof{})
	for members := range first {
		w.refuses("as a viewer", method(members), members, e.jwt, "zone-role")
	}
	must(w, w.admin(), methods.SetMember, admin.SetMemberCodec, admin.SetMemberAnswerCodec,
		admin.SetMember{OrganizationID: e.organization, OperatorID: e.operator, MutationID: w.mutation()}, carrier.Proof{})
	for members := range first {
		w.refuses("as nobody", method(members), members, e.jwt, "zone-absent")
	}
}

// TestF07ARepeatOfARotationOverTheCarrier: whoever lost the answer gets the first
// receipt by the new bearer, byte for byte, until that bearer is over.
func TestF07ARepeatOfARotationOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	bearers := []enroll.Bearer{e.node.spark}
	rotate := func(by, to int) string {
		return fmt.Sprintf(`"bearer":%q,"purpose":"spark","nextCredentialHash":%q,"expectedGeneration":%d,"rotationId":"r%d"`, bearers[by].Reveal(), bearers[to].Hash().Text(), to, to)
	}
	for range 2 {
		b, err := enroll.NewBearer(w.rand)
		if err != nil {
			t.Fatal(err)
		}
		bearers = append(bearers, b)
	}
	first := w.done("rotateNodeCredential", rotate(0, 1), zone.Secret{})
	var again string
	cost := w.store.Cost(func() { again = w.say("rotateNodeCredential", rotate(1, 1), zone.Secret{}) })
	if again != first || len(cost.Writes) > 0 {
		t.Errorf("%s, first %s; writes %v", again, first, cost.Writes)
	}
	w.refuses("by the bearer before", "rotateNodeCredential", rotate(0, 1), zone.Secret{}, "node-credential")
	w.done("rotateNodeCredential", rotate(1, 2), zone.Secret{})
	w.refuses("after a later one, by its own bearer", "rotateNodeCredential", rotate(1, 1), zone.Secret{}, "node-credential")
	w.done("removeNode", ofNode(e)+`,"palletOnly":false,"mutationId":"gone"`, e.jwt)
	w.refuses("after the removal", "rotateNodeCredential", rotate(2, 2), zone.Secret{}, "node-credential")
}
