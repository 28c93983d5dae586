// Package storetest is the suite that every engine of the zone's store passes. An
// engine's own test calls [Run], and [Child] from its TestMain, so that the suite
// can also run it from several processes on one folder. It is for tests only, and
// refuses nothing: it fails the test.
package storetest

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
)

// Engine is how the suite reaches one engine.
type Engine struct {
	// Open opens the store that is kept in a folder, and makes it the first time. An
	// engine that keeps nothing makes an empty one each time.
	Open func(dir string) (store.Store, error)
	// Durable is whether what was acknowledged is there when the folder is opened
	// again, by this process or another.
	Durable bool
	// Beside is whether a Write returns while a Read goes on.
	Beside bool
}

// Run runs the suite.
func Run(t *testing.T, e Engine) {
	for _, group := range []struct {
		name string
		run  func(t *testing.T, e Engine)
	}{
		{"Records", testRecords},
		{"Absent", testAbsent},
		{"Bounds", testBounds},
		{"Taken", testTaken},
		{"Bearers", testBearers},
		{"Members", testMembers},
		{"Lists", testLists},
		{"LongestList", testLongestList},
		{"Moves", testMoves},
		{"Audit", testAudit},
		{"Prune", testPrune},
		{"Copies", testCopies},
		{"Undone", testUndone},
		{"Ended", testEnded},
		{"ReadOnly", testReadOnly},
		{"Snapshot", testSnapshot},
		{"Over", testOver},
		{"Closed", testClosed},
		{"Counter", testCounter},
		{"Model", testModel},
		{"Reopen", testReopen},
		{"Processes", testProcesses},
		{"Kill", testKill},
	} {
		t.Run(group.name, func(t *testing.T) { group.run(t, e) })
	}
}

// fixture is one store of one test.
type fixture struct {
	*testing.T
	engine Engine
	dir    string
	store  store.Store
}

func open(t *testing.T, e Engine) *fixture {
	t.Helper()
	f := &fixture{T: t, engine: e, dir: t.TempDir()}
	f.reopen()
	t.Cleanup(func() { _ = f.store.Close() })
	return f
}

func (f *fixture) reopen() {
	f.Helper()
	var err error
	if f.store, err = f.engine.Open(f.dir); err != nil {
		f.Fatal(err)
	}
}

// write commits what fn does, which must go well.
func (f *fixture) write(fn func(tx store.Tx) error) {
	f.Helper()
	if err := f.store.Write(f.Context(), fn); err != nil {
		f.Fatal(err)
	}
}

// read reads, which must go well.
func (f *fixture) read(fn func(tx store.Tx) error) {
	f.Helper()
	if err := f.store.Read(f.Context(), fn); err != nil {
		f.Fatal(err)
	}
}

// wantErr fails unless err is of that kind.
func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// state is all that can be told apart in a small store, for comparing.
func (f *fixture) state() (all []any) {
	f.Helper()
	f.read(func(tx store.Tx) (err error) {
		all, err = everything(tx)
		return err
	})
	return all
}

var background = context.Background()
