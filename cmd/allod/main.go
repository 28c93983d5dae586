// Command allod runs services and models on machines people own. It only wires:
// the commands are in internal/cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/allodhq/allod/internal/cli"
	"github.com/allodhq/allod/internal/runner/confine"
)

// version is set when a release is built.
var version = "dev"

func main() {
	confine.Main()
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return cli.Run(ctx, cli.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version}, os.Args[1:])
}
