package sqlite

import (
	"slices"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// Watch signals changes; see [site.Store]. A watch that names nothing hears of
// everything.
func (s *Store) Watch(w site.Watch) (<-chan struct{}, func()) {
	var topics []database.Topic
	for _, id := range w.Jobs {
		topics = append(topics, ofJob(id))
	}
	if w.Ended {
		topics = append(topics, ended)
	}
	if w.Runner != "" {
		topics = append(topics, ofRunner(w.Runner))
	}
	if c := w.Claim; c != nil {
		topics = append(topics, ofRequest(*c))
		for _, o := range c.Offers {
			for _, at := range reaches(o, w.Owner, c.Audiences) {
				topics = append(topics, at.topic())
			}
		}
	}
	return s.db.Subscribe(topics...)
}

// The topics that this store tells. Ids and names may hold any character, so
// nothing stands after one but for digests, which have one length.

// ended is told of every job that ends.
const ended database.Topic = "ended"

func ofJob(id ai.JobID) database.Topic { return database.Topic("job " + id) }

func ofRunner(id ai.RunnerID) database.Topic { return database.Topic("runner " + id) }

func ofRequest(c site.Claim) database.Topic {
	return database.Topic("request " + string(c.Request[:]) + string(c.RunnerID))
}

// place is a queue; see the table queue.
type place struct {
	kind  ai.Kind
	reach string
	name  string
}

func (p place) topic() database.Topic {
	return database.Topic("queue " + string(p.kind) + " " + p.reach + " " + p.name)
}

// The ways of reaching a job that waits.
const (
	reachOwn    = "own"
	reachOpen   = "open"
	reachListed = "listed"
	// Of jobs for the public, which not every device can be told of.
	reachOwnPublic = "own-public"
	reachPublic    = "public"
)

// reaches are the queues that an offer of the owner's device reaches, where the
// device can be told of jobs for these audiences; nil means all.
func reaches(o site.KindOffer, owner ai.Owner, told []ai.Audience) []place {
	list := []place{{o.Kind, reachOwn, string(owner)}}
	if shared(o.Offer) {
		list = append(list, place{o.Kind, reachOpen, ""}, place{o.Kind, reachListed, string(owner)})
	}
	if told != nil && !slices.Contains(told, ai.AudiencePublic) {
		return list
	}
	list = append(list, place{o.Kind, reachOwnPublic, string(owner)})
	if shared(o.Offer) {
		list = append(list, place{o.Kind, reachPublic, ""})
	}
	return list
}
