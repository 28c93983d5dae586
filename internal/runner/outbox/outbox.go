// Package outbox keeps finished results on disk until the server has answered,
// so that a crash or a cut costs no run.
//
// A result is kept as the request that hands it in, sealed to its site: whoever
// reads the disk reads no answer.
package outbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// ErrDamaged is a kept result that cannot be read.
var ErrDamaged = refusal.NewKind("result-damaged", 500,
	"A kept result cannot be read. It was set aside, and the job will run again.",
	"Look at the disk if this happens again; the file with the ending .damaged can be removed.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Kept results", Kinds: []*refusal.Kind{ErrDamaged}}

// Bounds.
const (
	// maxKept is how many kept results are read at a start; the next start reads
	// the others.
	maxKept = 1024
	// maxMemory is how much is kept in memory, in bytes of messages: two of the
	// largest.
	maxMemory = 2 * ai.MaxSealedBody
)

// Box keeps the results of one pairing. It may be used by several goroutines.
type Box struct {
	dir string
	// writing is shared by writes, and held alone while what they left is swept.
	writing sync.RWMutex

	mu sync.Mutex
	// memory has what could not be written, so that a full disk costs a result
	// only if the process ends too.
	memory map[ai.LeaseID]held
	used   int
}

// held is a result in memory, with the size of its message.
type held struct {
	result ai.ResultRequest
	size   int
}

// Open opens the box of a pairing below dir, making its folder. Its name is made
// from server and runner, which say which pairing is meant. It returns
// datadir.ErrData.
func Open(dir, server string, runner ai.RunnerID) (*Box, error) {
	b := &Box{dir: filepath.Join(dir, Name(server, runner)), memory: map[ai.LeaseID]held{}}
	if err := datadir.Prepare(b.dir); err != nil {
		return nil, err
	}
	return b, nil
}

// Name is the name of a pairing's folder.
func Name(server string, runner ai.RunnerID) string { return name(server + "\n" + string(runner)) }

// Sweep removes the boxes below dir that have none of these names. It returns
// datadir.ErrRead and datadir.ErrWrite.
func Sweep(dir string, keep []string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return datadir.ErrRead.Because(err)
	}
	for _, e := range entries {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return datadir.ErrWrite.Because(err)
		}
	}
	return nil
}

// name makes a file name of a text from outside.
func name(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

const ending = ".result"

func (b *Box) path(lease ai.LeaseID) string { return filepath.Join(b.dir, name(string(lease))+ending) }

// Keep keeps a result, in the place of an earlier one for its lease, and returns
// once it is on the disk. It returns the codec's error for what is too large to
// be sent, and then keeps nothing new. After datadir.ErrWrite the result is kept
// in memory, unless there is too much already; see [Box.InMemory].
func (b *Box) Keep(q ai.ResultRequest) error {
	body, err := protocol.Latest().ResultRequest.Write(q)
	if err != nil {
		return err
	}
	b.writing.RLock()
	defer b.writing.RUnlock()
	err = datadir.Replace(b.path(q.Grant.LeaseID), body)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(q.Grant.LeaseID)
	if err != nil && b.used+len(body) <= maxMemory {
		b.memory[q.Grant.LeaseID] = held{q, len(body)}
		b.used += len(body)
	}
	return err
}

// forget removes a result from memory. The caller holds the lock.
func (b *Box) forget(lease ai.LeaseID) {
	b.used -= b.memory[lease].size
	delete(b.memory, lease)
}

// Get returns the result kept for a lease. It returns fs.ErrNotExist where none
// is, datadir.ErrRead and [ErrDamaged].
func (b *Box) Get(lease ai.LeaseID) (ai.ResultRequest, error) {
	b.mu.Lock()
	h, ok := b.memory[lease]
	b.mu.Unlock()
	if ok {
		return h.result, nil
	}
	return b.read(b.path(lease))
}

// InMemory reports whether the result for a lease is kept in memory only.
func (b *Box) InMemory(lease ai.LeaseID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.memory[lease]
	return ok
}

func (b *Box) read(path string) (ai.ResultRequest, error) {
	const limit = ai.MaxSealedBody
	damaged := func(err error) (ai.ResultRequest, error) {
		_ = os.Rename(path, path+".damaged")
		return ai.ResultRequest{}, ErrDamaged.Because(err)
	}
	// By its size alone, since what cannot be read for another reason may be good.
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > limit {
		return damaged(nil)
	}
	body, err := datadir.Read(path, limit)
	if err != nil {
		return ai.ResultRequest{}, err
	}
	// An older program may have written it, in the version of its day.
	codec, err := protocol.Choose(body, limit, "")
	if err != nil {
		return damaged(err)
	}
	q, err := codec.ResultRequest.Read(body)
	if err != nil || b.path(q.Grant.LeaseID) != path {
		return damaged(err)
	}
	return q, nil
}

// Remove forgets the result kept for a lease, if there is one. It returns
// datadir.ErrWrite.
func (b *Box) Remove(lease ai.LeaseID) error {
	b.mu.Lock()
	b.forget(lease)
	b.mu.Unlock()
	if err := os.Remove(b.path(lease)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return datadir.ErrWrite.Because(err)
	}
	return nil
}

// All returns what an earlier run left on the disk, without the sealed content,
// in no order, and at most 1024 at once. A damaged result is set aside, and one
// that cannot be read stays; the error then is [ErrDamaged] or datadir.ErrRead,
// and the rest is returned.
func (b *Box) All() (kept []ai.ResultRequest, err error) {
	b.writing.Lock()
	defer b.writing.Unlock()
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, datadir.ErrRead.Because(err)
	}
	var damaged error
	for _, e := range entries {
		path := filepath.Join(b.dir, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), ".tmp"): // of a write that did not end
			_ = os.Remove(path)
			continue
		case !strings.HasSuffix(e.Name(), ending) || len(kept) == maxKept:
			continue
		}
		switch q, err := b.read(path); {
		case errors.Is(err, fs.ErrNotExist): // removed since
		case err != nil:
			damaged = cmp.Or(damaged, err)
		default:
			q.Envelope.Ciphertext = ""
			kept = append(kept, q)
		}
	}
	return kept, damaged
}

// Clear removes the box and what is in it. It returns datadir.ErrWrite.
func (b *Box) Clear() error {
	if err := os.RemoveAll(b.dir); err != nil {
		return datadir.ErrWrite.Because(err)
	}
	return nil
}
