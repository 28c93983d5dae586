package daemon

import (
	"context"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// Client asks the running programs of a node. Every method returns control's refusals,
// control.ErrSilent where the program does not run, and those of [Registries].
type Client struct {
	// Socket is Pallet's control socket.
	Socket string
}

// Spark is Spark's status.
func (c Client) Spark(ctx context.Context) (Status, error) {
	return ask(ctx, SparkSocket(c.Socket), methodStatus, nothings, statuses, nothing{})
}

// Pallet is Pallet's status.
func (c Client) Pallet(ctx context.Context) (Status, error) {
	return ask(ctx, c.Socket, methodStatus, nothings, statuses, nothing{})
}

// Join has Spark begin to join with a line, or go on with it. It returns
// spark.ErrJoined where the machine is a node by another line.
func (c Client) Join(ctx context.Context, l enroll.JoinLine, hostname string) error {
	_, err := ask(ctx, SparkSocket(c.Socket), methodJoin, joins, nothings, joinRequest{zone.Conceal(l.Text()), hostname})
	return err
}

// Adopt has Spark begin to adopt a new Pallet. It returns spark.ErrNotJoined.
func (c Client) Adopt(ctx context.Context, hostname string) error {
	_, err := ask(ctx, SparkSocket(c.Socket), methodAdopt, adopts, nothings, adoptRequest{hostname})
	return err
}

// Move has Spark keep another address of its controller, once that answers there with
// the same pin and knows the node. It returns spark.ErrNotJoined, ErrMoved and what the
// controller refuses.
func (c Client) Move(ctx context.Context, o enroll.Origin) error {
	_, err := ask(ctx, SparkSocket(c.Socket), methodMove, moves, nothings, moveRequest{o.String()})
	return err
}

// CheckSpark has Spark ask its controller whether its credential counts.
func (c Client) CheckSpark(ctx context.Context) error {
	_, err := ask(ctx, SparkSocket(c.Socket), methodCheck, nothings, statuses, nothing{})
	return err
}

// CheckPallet has Pallet do the same.
func (c Client) CheckPallet(ctx context.Context) error {
	_, err := ask(ctx, c.Socket, methodCheck, nothings, statuses, nothing{})
	return err
}
