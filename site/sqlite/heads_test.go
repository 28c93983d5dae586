package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/storetest"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// TestHeadsOfAudiences: a claim of a device that cannot be told of public jobs
// reads none of them, however many wait, and one that can reads no more than it
// asks for.
func TestHeadsOfAudiences(t *testing.T) {
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "site.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, owner := range []ai.Owner{"alice", "bob", "alice", "bob", "alice", "bob"} {
		j := storetest.Job(ai.JobID(fmt.Sprint(i)), owner, storetest.T0)
		j.Audience = ai.AudiencePublic
		if _, _, err := s.Jobs().Enqueue(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		what  string
		scope ai.OfferScope
		told  []ai.Audience
		want  int
	}{
		{"without a word for it", ai.OfferPublic, []ai.Audience{ai.AudienceSelf, ai.AudienceNamed}, 0},
		{"without, for its owner", ai.OfferSelf, []ai.Audience{ai.AudienceSelf, ai.AudienceNamed}, 0},
		{"with all words", ai.OfferPublic, nil, 3}, // two of the owner's queue and two of all, of which one is the same
		{"with all words by name", ai.OfferPublic, ai.Audiences(), 3},
		{"with all words, for its owner", ai.OfferSelf, nil, 2},
	} {
		claim := site.Claim{
			RunnerID: "r", Offers: []site.KindOffer{{Kind: ai.KindGenerate, Offer: match.Offer{Scope: c.scope, Cost: backend.Free}}},
			Audiences: c.told, Max: 2, Now: storetest.T0,
		}
		err := s.db.Read(t.Context(), func(q database.Queryer) error {
			list, err := heads(t.Context(), q, claim, "alice")
			if len(list) != c.want {
				t.Errorf("%s: %d were read", c.what, len(list))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
