package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/authority"
	"github.com/allodhq/allod/internal/node/bundle"
	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/internal/node/host"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/internal/node/link"
	"github.com/allodhq/allod/internal/node/pallet"
	"github.com/allodhq/allod/internal/node/spark"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

// What this package refuses.
var (
	ErrBusy = refusal.NewKind("node-busy", 503,
		"The program of the node did not come to this request in time.",
		"Try again in a few seconds, and look in its log.")
	ErrController = refusal.NewKind("node-controller-unknown", 503,
		"Pallet does not know yet where the controller is.",
		"Check that Spark runs, as allod-node run starts it; Spark writes it down.")
	ErrMoved = refusal.NewKind("node-not-known-there", 409,
		"The controller at the new address answers, and takes this machine for another node. Nothing was changed.",
		"Restore the controller from its latest backup, or join the machine there with a new line.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The programs of a node", Kinds: []*refusal.Kind{ErrBusy, ErrController, ErrMoved}}

// Registries have every refusal that may come over a control socket.
var Registries = append(append([]refusal.Registry{}, link.Registries...),
	spark.Kinds, pallet.Kinds, authority.Kinds, keep.Kinds, control.Kinds, host.Kinds, bundle.Kinds, datadir.Kinds, Kinds)

// Named is the refusal of a name, with a detail that may be "", or nil where nobody has
// that name.
func Named(name, detail string) error {
	for _, r := range Registries {
		if k := r.Find(name); k != nil {
			return k.With(detail)
		}
	}
	return nil
}

// Config is what a program of a node is made of. All of it is required.
type Config struct {
	// Data is the node's data folder.
	Data string
	// Socket is Pallet's control socket, as in control.Path.
	Socket string
	// Stamp is the program's release, as it was built.
	Stamp bundle.Stamp
	Clock func() time.Time
	Rand  io.Reader
	Log   *slog.Logger
}

// The names below a data folder.
const (
	sparkFolder  = "spark"
	palletFolder = "pallet"
)

// SparkFile is where Spark keeps its state.
func SparkFile(data string) keep.File[spark.State] {
	return keep.File[spark.State]{Path: filepath.Join(data, sparkFolder, "spark.json"), Shape: spark.Shape}
}

// PalletFile is where Pallet keeps its own.
func PalletFile(data string) keep.File[pallet.State] {
	return keep.File[pallet.State]{Path: filepath.Join(data, palletFolder, "pallet.json"), Shape: pallet.Shape}
}

// ControllerFile is where Spark says for Pallet where the controller is.
func ControllerFile(data string) keep.File[spark.Controller] {
	return keep.File[spark.Controller]{Path: filepath.Join(data, "controller.json"), Shape: spark.ControllerShape}
}

// SparkSocket is Spark's control socket, beside the folder of Pallet's.
func SparkSocket(pallet string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(pallet)), sparkFolder, filepath.Base(pallet))
}

// Lock takes the folders of both programs for one who changes their files while they
// do not run. It returns datadir's refusals.
func Lock(data string) (release func(), err error) {
	first, err := lock(data, sparkFolder)
	if err != nil {
		return nil, err
	}
	second, err := lock(data, palletFolder)
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}

// lock makes a program's folder and takes it.
func lock(data, name string) (release func(), err error) {
	if err := datadir.Prepare(data); err != nil {
		return nil, err
	}
	dir := filepath.Join(data, name)
	if err := datadir.Prepare(dir); err != nil {
		return nil, err
	}
	return datadir.Lock(dir)
}

// options are those of every control socket: only this process's own user may ask, who
// is root on a node.
func options(log *slog.Logger) control.Options {
	return control.Options{User: uint32(max(os.Geteuid(), 0)), Log: log}
}

// ask has one exchange over a control socket.
func ask[Req, Res any](ctx context.Context, socket, method string, req zone.Codec[Req], res zone.Codec[Res], content Req) (Res, error) {
	var none Res
	body, err := req.Append(nil, content)
	if err != nil {
		return none, refusal.Internal
	}
	answer, err := control.Ask(ctx, socket, options(nil), method, body)
	if err != nil {
		return none, told(err)
	}
	v, err := res.Read(answer)
	if err != nil {
		return none, control.ErrMessage.Because(err)
	}
	return v, nil
}

// told is the refusal that the other side of a socket named.
func told(err error) error {
	var e *control.Error
	if !errors.As(err, &e) {
		return err
	}
	named := Named(e.Code, "")
	if named == nil {
		return err
	}
	kind := refusal.From(named).Kind()
	if detail, ok := strings.CutPrefix(e.Text, kind.Error()+" "); ok {
		return kind.With(detail)
	}
	return kind
}

// answer reads a request, has it done and writes the answer.
func answer[Req, Res any](req zone.Codec[Req], res zone.Codec[Res], do func(ctx context.Context, r Req) (Res, error)) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		r, err := req.Read(body)
		if err != nil {
			return nil, control.ErrMessage.Because(err)
		}
		v, err := do(ctx, r)
		if err != nil {
			return nil, err
		}
		return res.Append(nil, v)
	}
}

// shaped is a shape as a codec, for messages that never leave the machine.
type shaped[T any] struct{ exact.Shape[T] }

func (s shaped[T]) Read(src []byte) (T, error) {
	return s.Shape.Read(src, exact.Limits{Bytes: 64 << 10, Depth: 8, Values: 256})
}

func (s shaped[T]) Reasons([]byte, string) []string { return nil }

func (s shaped[T]) Append(dst []byte, v T) ([]byte, error) { return s.Shape.Append(dst, v) }

// nothing is an empty message.
type nothing struct{}

var (
	nothings = shaped[nothing]{exact.Shape[nothing]{Fields: func(*exact.Object, *nothing) {}}}
	statuses = shaped[Status]{statusShape}
)

// methodStatus is the method of either socket that tells the [Status].
const methodStatus = "getStatus"

// serve listens on a socket until ctx ends, and returns what waits for the end.
func serve(ctx context.Context, socket string, log *slog.Logger, methods control.Methods) (end func(), err error) {
	s, err := control.Listen(socket, options(log), methods.Handle)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	return func() { cancel(); <-done }, nil
}

// way keeps the link to the controller that counts.
type way struct {
	c    Config
	link *link.Link
}

// to is the link to a controller.
func (w *way) to(c spark.Controller) (*link.Link, error) {
	if w.link != nil && w.link.To() == c {
		return w.link, nil
	}
	l, err := link.New(c, w.c.Clock, w.c.Rand)
	if err != nil {
		return nil, err
	}
	w.close()
	w.link = l
	return l, nil
}

func (w *way) close() {
	if w.link != nil {
		w.link.Close()
	}
}
