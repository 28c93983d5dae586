// Package allowlist keeps whose jobs an owner takes besides their own: pairs of a
// paired server and a user of it, in one file of the agent's folder.
//
// The list is the owner's alone. No server can add to it, and none is told what is
// on it (MUSTs NAMED_LOCAL_ALLOWLIST and ROSTER_NOT_DISCLOSED). It begins empty.
//
// The package refuses to guess: a damaged list admits nobody, is said to be
// damaged, and is not written over.
package allowlist

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What this package refuses.
var (
	ErrDamaged = refusal.NewKind("allowlist-damaged", 500,
		"The list of people whose jobs are taken is damaged, so nobody's but the owner's are. The file is left as it is.",
		"Restore allow.json in the agent's folder from a backup, or move it away and allow each person again.")
	ErrNotListed = refusal.NewKind("not-on-allowlist", 404,
		"This user of that site is not on the list.",
		"See allod agent allow --list for who is.")
	ErrEntry = refusal.NewKind("allowlist-entry", 400,
		"A user's name is 1 to 1024 characters, and a note at most 200, both without control characters.",
		"Give the user as the site names them; allod agent log shows the names of those that were refused.")
	ErrFull = refusal.NewKind("allowlist-full", 409,
		"The list has as many people as it can have.",
		"Take somebody off it first: allod agent disallow URL USER.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "People whose jobs are taken", Kinds: []*refusal.Kind{ErrDamaged, ErrNotListed, ErrEntry, ErrFull}}

// FileName is the file's name in the agent's folder.
const FileName = "allow.json"

// Bounds. Texts are in UTF-16 code units.
const (
	MaxEntries = 4096
	// MaxOwner is as long as the id of an owner whose job is taken on.
	MaxOwner = 1024
	MaxNote  = 200

	maxFile = 16 << 20
)

// Entry is one person.
type Entry struct {
	// Server is the paired server's address in normal form.
	Server string `json:"server"`
	// Owner is what that server calls the person.
	Owner ai.Owner `json:"owner"`
	// Note is the list's owner's own; empty means none.
	Note    string    `json:"note,omitzero"`
	AddedAt ai.Millis `json:"addedAt"`
}

func (e Entry) is(server string, owner ai.Owner) bool { return e.Server == server && e.Owner == owner }

var entryShape = exact.Shape[Entry]{Fields: func(o *exact.Object, e *Entry) {
	exact.Text(o, "server", &e.Server, 1, 2048)
	exact.Text(o, "owner", &e.Owner, 1, MaxOwner)
	exact.OptText(o, "note", &e.Note, 1, MaxNote)
	exact.Whole(o, "addedAt", &e.AddedAt, 1, 0)
}}

type file struct{ entries []Entry }

var fileShape = exact.Shape[file]{Fields: func(o *exact.Object, f *file) {
	version := int64(1)
	exact.Whole(o, "version", &version, 1, 1)
	exact.List(o, "entries", &f.entries, 0, MaxEntries, entryShape)
}}

var limits = exact.Limits{Bytes: maxFile, Depth: 4, Values: MaxEntries*6 + 8}

// Read returns the people, in the order in which they were added. It returns
// [ErrDamaged] and datadir.ErrRead.
func Read(dir string) ([]Entry, error) {
	content, err := datadir.Read(filepath.Join(dir, FileName), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	f, err := fileShape.Read(content, limits)
	if err != nil {
		return nil, ErrDamaged.Because(err)
	}
	for i, e := range f.entries {
		if check(e) != nil || slices.ContainsFunc(f.entries[:i], func(b Entry) bool { return b.is(e.Server, e.Owner) }) {
			return nil, ErrDamaged
		}
	}
	return f.entries, nil
}

func check(e Entry) error {
	bad := func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffd' }
	owner := string(e.Owner)
	if n := ai.TextUnits(owner); n < 1 || n > MaxOwner || strings.ContainsFunc(owner, bad) || ai.TextUnits(e.Note) > MaxNote || strings.ContainsFunc(e.Note, bad) {
		return ErrEntry
	}
	return nil
}

// Add puts a person on the list. One who is on it stays as they are. It returns
// [ErrEntry], [ErrFull], the errors of [Read], and datadir.ErrWrite.
func Add(dir string, e Entry) error {
	if err := check(e); err != nil {
		return err
	}
	list, err := Read(dir)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(list, func(b Entry) bool { return b.is(e.Server, e.Owner) }):
		return nil
	case len(list) >= MaxEntries:
		return ErrFull
	}
	return write(dir, append(list, e))
}

// Remove takes a person off the list. It returns [ErrNotListed], the errors of
// [Read], and datadir.ErrWrite.
func Remove(dir, server string, owner ai.Owner) error {
	list, err := Read(dir)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(e Entry) bool { return e.is(server, owner) })
	if i < 0 {
		return ErrNotListed
	}
	return write(dir, slices.Delete(list, i, i+1))
}

// RemoveServer takes everybody of a server off the list. It returns the errors of
// [Read], and datadir.ErrWrite.
func RemoveServer(dir, server string) error {
	list, err := Read(dir)
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(list), func(e Entry) bool { return e.Server == server })
	if len(kept) == len(list) {
		return nil
	}
	return write(dir, kept)
}

// Of are the people of a server.
func Of(list []Entry, server string) []ai.Owner {
	var owners []ai.Owner
	for _, e := range list {
		if e.Server == server {
			owners = append(owners, e.Owner)
		}
	}
	return owners
}

func write(dir string, list []Entry) error {
	content, err := fileShape.Append(nil, file{list})
	if err != nil {
		return ErrEntry.Because(err)
	}
	return datadir.Replace(filepath.Join(dir, FileName), append(content, '\n'))
}
