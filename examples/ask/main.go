// Command ask is a whole app that asks a model its user owns. The three calls
// are sqlite.OpenSite, Site.Handler and Site.Ask; the rest is talking to the
// person.
//
//	go run ./examples/ask -data ask-data "Why is the sky blue?"
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/sqlite"
	"github.com/allodhq/allod/wire/ai"
)

func main() {
	data := flag.String("data", "ask-data", "the folder for the database and the key file")
	flag.Parse()
	if err := run(context.Background(), *data, flag.Arg(0), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, refusal.Terminal(err))
		os.Exit(refusal.ExitCode(err))
	}
}

func run(ctx context.Context, data, question string, in io.Reader, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	origin := "http://" + listener.Addr().String()

	app, err := sqlite.OpenSite(ctx, data, site.Config{VerificationURL: origin + "/pair"})
	if err != nil {
		return err
	}
	defer app.Close()
	go func() { _ = http.Serve(listener, app.Handler()) }()

	// A real app knows who is signed in. This one has a single user, "me".
	if err := pair(ctx, app, origin, in, out); err != nil {
		return err
	}
	answer, err := app.Ask(ctx, site.Question{Owner: "me", Payload: ai.Generate{Prompt: question}})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n(%s, on %s)\n", answer.Text(), answer.Provenance.Model, answer.Provenance.RunnerID)
	return err
}

// pair waits for a device and has the person compare its fingerprint.
func pair(ctx context.Context, app *site.Site, origin string, in io.Reader, out io.Writer) error {
	fmt.Fprintf(out, "Connect a device to %s, then type the code it shows: ", origin)
	lines := bufio.NewScanner(in)
	lines.Scan()
	code := lines.Text()
	device, err := app.Devices.Pending(ctx, code)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s with the fingerprint\n  %s\nIs it the one your device shows? [y/N] ", device.Daemon.Label, device.Device)
	if lines.Scan(); lines.Text() != "y" {
		return app.Devices.Deny(ctx, code)
	}
	_, err = app.Devices.Approve(ctx, code, "me")
	return err
}
