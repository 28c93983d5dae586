package site

import (
	"sync"

	"github.com/allodhq/allod/wire/ai"
)

// maxKnown bounds how many devices are remembered.
const maxKnown = 1 << 13

// known remembers devices by what never changes of them: id, owner and keys. What
// may change, above all whether one is revoked, is for the store to say each time.
// The zero value remembers none.
type known struct {
	mu  sync.Mutex
	by  map[ai.RunnerID]Runner
	old map[ai.RunnerID]Runner
}

func (k *known) get(id ai.RunnerID) (Runner, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.by[id]
	if !ok {
		if r, ok = k.old[id]; ok {
			k.keep(r)
		}
	}
	return r, ok
}

// put remembers a device that has proved to be the one.
func (k *known) put(r Runner) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keep(Runner{ID: r.ID, Owner: r.Owner, Device: r.Device})
}

// keep drops the older of two generations whole, which forgets only devices that
// were silent for a whole generation.
func (k *known) keep(r Runner) {
	if k.by == nil || len(k.by) >= maxKnown/2 {
		k.old, k.by = k.by, map[ai.RunnerID]Runner{}
	}
	k.by[r.ID] = r
}
