// Command allod-node makes a machine with Linux a node of a small cloud. It only wires:
// the commands are in internal/node/nodecli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/allodhq/allod/internal/command"
	"github.com/allodhq/allod/internal/node/bundle"
	"github.com/allodhq/allod/internal/node/nodecli"
)

// version and commit are set when a release is built.
var version, commit = "dev", ""

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env := command.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version}
	return nodecli.Run(ctx, env, bundle.Stamp{Version: version, Commit: commit}, os.Args[1:])
}
