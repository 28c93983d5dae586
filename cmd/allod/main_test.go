package main

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/site/storetest"
)

func TestMain(m *testing.M) {
	// The second is the name under which the program starts itself to confine another.
	testscript.Main(m, map[string]func(){"allod": main, "allod confine": main})
}

// TestScripts runs the command as users type it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mksite": makeSite, "checksite": checkSite, "recoverykey": recoveryKey, "hold": hold,
		},
	})
}

// makeSite makes a site's folder with a key file and a job: mksite DIR.
func makeSite(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.Mkdir(dir, 0o700))
	k, err := key.NewKeys[key.SiteRole](rand.Reader, time.Now())
	ts.Check(err)
	ts.Check(keyfile.Create(filepath.Join(dir, "site-keys.json"), k))
	store := openSite(ts, dir)
	defer store.Close()
	ts.Check(store.Keys().Use(context.Background(), k.Identity(), storetest.T0))
	_, _, err = store.Jobs().Enqueue(context.Background(), storetest.Job("a", "alice", storetest.T0))
	ts.Check(err)
}

// checkSite compares two sites' folders: checksite DIR DIR.
func checkSite(ts *testscript.TestScript, _ bool, args []string) {
	type content struct {
		key key.Site
		job site.Job
	}
	read := func(dir string) content {
		k, err := keyfile.Load[key.SiteRole](filepath.Join(dir, "site-keys.json"))
		ts.Check(err)
		store := openSite(ts, dir)
		defer store.Close()
		ring, err := store.Keys().Keys(context.Background())
		ts.Check(err)
		if len(ring) != 1 || ring[0].Site != k.Identity() {
			ts.Fatalf("the key ring of %s does not have the key file's key", dir)
		}
		job, err := store.Jobs().Job(context.Background(), "a", true)
		ts.Check(err)
		return content{k.Identity(), job}
	}
	if a, b := read(ts.MkAbs(args[0])), read(ts.MkAbs(args[1])); !reflect.DeepEqual(a, b) {
		ts.Fatalf("the folders differ: %+v and %+v", a, b)
	}
}

func openSite(ts *testscript.TestScript, dir string) *sqlite.Store {
	store, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(dir, "site.db")})
	ts.Check(err)
	return store
}

// recoveryKey copies the recovery key out of a backup's output: recoverykey FROM TO.
func recoveryKey(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(`AGE-SECRET-KEY-1\S+`).FindString(ts.ReadFile(args[0]))
	if found == "" {
		ts.Fatalf("%s holds no recovery key", args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(found+"\n"), 0o600))
}

// hold holds a folder as a running party does, until the script ends: hold DIR.
func hold(ts *testscript.TestScript, _ bool, args []string) {
	l := flock.New(filepath.Join(ts.MkAbs(args[0]), "allod.lock"))
	got, err := l.TryLock()
	ts.Check(err)
	if !got {
		ts.Fatalf("the folder is held already")
	}
	ts.Defer(func() { _ = l.Unlock() })
}
