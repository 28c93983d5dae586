package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/allodhq/allod/test/zonectl"
	"github.com/allodhq/allod/wire/zone"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"allod-node": main}) }

// program is this test's own binary, which is the command under its name.
var program, _ = os.Executable()

// TestScripts runs the command as users type it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			// A socket's path is short, and that of a test is not.
			dir, err := os.MkdirTemp("", "n")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(dir) })
			e.Vars = append(e.Vars, "S="+filepath.Join(dir, "pallet", "s"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"controller": controller},
	})
}

// controller is the controller of a script:
//
//	controller start [NAME] starts one, which ends with the script, and sets ORIGIN
//	controller forgetful    starts one with the same key that knows nobody
//	controller stop         stops it
//	controller again        starts it again at its address
//	controller elsewhere    starts it again at another address, and sets ORIGIN
//	controller shift D      puts its clock ahead, from its next start on
//	controller invite       sets LINE to a join line, and CODE to the secret in it
//	controller nodes N      fails unless it has N nodes that are not removed
//	controller remove       removes every node
//	controller lost-pallet  removes every node's Pallet
func controller(ts *testscript.TestScript, _ bool, args []string) {
	if args[0] == "start" || args[0] == "forgetful" {
		dir := ts.MkAbs(".controller" + strings.Join(args[1:], ""))
		ts.Check(os.MkdirAll(dir, 0o700))
		c, err := zonectl.New(dir)
		ts.Check(err)
		ts.Defer(c.Stop)
		mu.Lock()
		defer mu.Unlock()
		controllers[ts] = c
		ts.Setenv("ORIGIN", c.Origin.String())
		return
	}
	mu.Lock()
	c := controllers[ts]
	mu.Unlock()
	switch args[0] {
	case "stop":
		c.Stop()
	case "again":
		ts.Check(c.Start())
	case "elsewhere":
		ts.Check(c.Move())
		ts.Setenv("ORIGIN", c.Origin.String())
	case "shift":
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		c.Shift(d)
	case "invite":
		line, err := c.Invite()
		ts.Check(err)
		_, secret, _ := strings.Cut(line, "#")
		ts.Setenv("LINE", line)
		ts.Setenv("CODE", secret[:16])
	case "nodes":
		list, err := c.List()
		ts.Check(err)
		n := 0
		for _, node := range list {
			if node.RemovedAt == 0 {
				n++
			}
		}
		if fmt.Sprint(n) != args[1] {
			ts.Fatalf("there are %d nodes", n)
		}
	case "remove", "lost-pallet":
		list, err := c.List()
		ts.Check(err)
		for i, node := range list {
			ts.Check(c.Remove(node.ID, args[0] == "lost-pallet", zone.MutationID(fmt.Sprintf("%s-%d", args[0], i))))
		}
	default:
		ts.Fatalf("controller %s", args[0])
	}
}

// controllers are those of the scripts.
var (
	mu          sync.Mutex
	controllers = map[*testscript.TestScript]*zonectl.Controller{}
)
