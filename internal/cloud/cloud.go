package cloud

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/api"
	"github.com/allodhq/allod/internal/cloud/cluster"
	"github.com/allodhq/allod/internal/cloud/machine"
	"github.com/allodhq/allod/internal/cloud/nodes"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/httpd"
	"github.com/allodhq/allod/internal/killpoint"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// Database is the name of the store's file in a data folder.
const Database = "zone.db"

// Party is what a controller is called in backups.
const Party = "controller"

// Times of upkeep.
const (
	// pruneEvery is how often what has ended is removed, and pruneBatch how much of
	// each at a time.
	pruneEvery = 10 * time.Minute
	pruneBatch = 1000
	// keepFor is how long receipts are kept, so that a repeat is known for one, and
	// links and invitations after their end.
	keepFor = 30 * 24 * time.Hour
)

// Listen binds the network's address and says where the controller is reached
// there. own serves the controller's own certificates. public says that the origin
// has a certificate that machines trust anyway, so that join lines need no pin. It
// is called once the data folder is taken, and what it binds must not serve before
// [Open] has returned.
type Listen func(own *tls.Config) (origin enroll.Origin, public bool, err error)

// Config is what a controller is made of. Data, Hosts, Listen, Clock, Rand and Log
// are needed.
type Config struct {
	// Data is the data folder. It is made if it is absent.
	Data string
	// Hosts are the 1 to [ca.MaxHosts] names and addresses for which it has
	// certificates of its own.
	Hosts  []string
	Listen Listen
	Clock  func() time.Time
	// Rand makes secrets; it is safe for concurrent use.
	Rand io.Reader
	Log  *slog.Logger
	// Times are how long invitations and credentials last.
	Times nodes.Times
	// Origins are those of pages elsewhere whose scripts may call, and Limits bound
	// what others can take. Their zero values are the defaults of package carrier.
	Origins []string
	Limits  carrier.Limits
	// Pages, if set, makes the pages for people.
	Pages func(*Controller) http.Handler
}

// Controller is one that is open. It is safe for concurrent use.
type Controller struct {
	config    Config
	release   func()
	authority *ca.Authority
	store     *sqlite.Store
	people    *people.People
	clusters  *cluster.Clusters
	nodes     *nodes.Nodes
	api       *api.API
	origin    enroll.Origin
	public    bool
}

// Open opens a controller on its data folder. It returns the refusals of packages
// datadir, ca, keyfile, token and database, and Listen's error, and has let go of
// the folder then. A folder that another process holds for a moment is waited for.
func Open(ctx context.Context, c Config) (_ *Controller, err error) {
	o := &Controller{config: c, release: func() {}}
	defer func() {
		if err != nil {
			_ = o.Close()
		}
	}()
	if err := datadir.Prepare(c.Data); err != nil {
		return nil, err
	}
	if err := httpd.TakeFolder(ctx, c.Data, func() error {
		release, err := datadir.Lock(c.Data)
		if err == nil {
			o.release = release
		}
		return err
	}); err != nil {
		return nil, err
	}
	anew := !there(c.Data, ca.File) && there(c.Data, Database)
	if o.authority, err = ca.Open(c.Data, c.Rand, c.Clock); err != nil {
		return nil, err
	}
	killpoint.At(killpoint.ControllerAuthority)
	if anew { // somebody moved it away, or it was lost
		c.Log.Warn("there was a store and no certificate authority, so a new one was made: its pin is another one, and every node refuses it. Put ca.pem back from a backup, or have every machine leave and join again", "file", ca.File)
	}
	own, err := o.authority.Server(c.Hosts...)
	if err != nil {
		return nil, err
	}
	keys, err := token.Open(c.Data, c.Rand, c.Clock())
	if err != nil {
		return nil, err
	}
	killpoint.At(killpoint.ControllerKeys)
	if o.store, err = sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(c.Data, Database), Clock: c.Clock, Logger: c.Log}); err != nil {
		return nil, err
	}
	if o.origin, o.public, err = c.Listen(own.Config()); err != nil {
		return nil, err
	}
	var pin enroll.Pin
	if !o.public {
		if pin, err = enroll.ParsePin(o.authority.Pin().String()); err != nil {
			return nil, refusal.Internal.Because(err)
		}
	}
	o.people = people.New(people.Config{Store: o.store, Keys: keys, Clock: c.Clock, Rand: c.Rand})
	shared := cluster.Config{Store: o.store, Clock: c.Clock, Rand: c.Rand}
	o.clusters = cluster.NewClusters(shared)
	o.nodes = nodes.New(nodes.Config{Store: o.store, Clock: c.Clock, Rand: c.Rand, Origin: o.origin, Pin: pin, Times: c.Times})
	o.api = api.New(api.Config{
		People: o.people, Clusters: o.clusters, Services: cluster.NewServices(shared),
		Machines: machine.New(machine.Config{Store: o.store, Clock: c.Clock, Rand: c.Rand, Tokens: keys}),
		Nodes:    o.nodes, Clock: c.Clock, Rand: c.Rand, Log: c.Log, Origins: c.Origins, Limits: c.Limits,
	})
	return o, nil
}

// there reports whether a folder has something of that name.
func there(data, name string) bool {
	_, err := os.Lstat(filepath.Join(data, name))
	return err == nil
}

// Bootstrap makes what the first start makes, and returns the code of the first
// login link; on every other start there is none. It belongs right before the code
// is shown: one that nobody saw is lost, and another one is made on the machine.
func (c *Controller) Bootstrap(ctx context.Context) (code zone.Secret, err error) {
	// The organization comes first. After a crash between the two, the next start
	// makes the cluster.
	if code, err = c.people.Bootstrap(ctx); err != nil {
		return zone.Secret{}, err
	}
	killpoint.At(killpoint.ControllerOperator)
	if err = c.clusters.Bootstrap(ctx, people.FirstOrganization); err != nil {
		return zone.Secret{}, err
	}
	killpoint.At(killpoint.ControllerBegun)
	return code, nil
}

// Origin is where the controller is reached.
func (c *Controller) Origin() enroll.Origin { return c.origin }

// Pin is that of the controller's own authority. public says that machines do not
// need it, since they trust the origin's certificate anyway.
func (c *Controller) Pin() (pin ca.Pin, public bool) { return c.authority.Pin(), c.public }

// Handler serves the network: typed requests, reports of hosts, and the pages.
func (c *Controller) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(carrier.Path, c.api.Carrier())
	mux.Handle(spark.Path, c.api.Heartbeat())
	if c.config.Pages != nil {
		mux.Handle("/", c.config.Pages(c))
	}
	return mux
}

// Admin adds typed requests to an admin socket, at [carrier.Path], and what the
// controller is, at [AboutPath].
func (c *Controller) Admin(mux *http.ServeMux) {
	mux.Handle(carrier.Path, c.api.Carrier().Admin())
	mux.HandleFunc("GET "+AboutPath, func(w http.ResponseWriter, _ *http.Request) {
		body, err := aboutShape.Bytes(About{c.origin, c.authority.Pin(), c.public})
		status := http.StatusOK
		if err != nil {
			status, body = refusal.HTTP(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
}

// Healthy returns nil while the store answers.
func (c *Controller) Healthy(ctx context.Context) error {
	return c.store.Read(ctx, func(tx store.Tx) error {
		_, err := tx.Organizations("", 1)
		return err
	})
}

// Run keeps the store small until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		before := zone.At(c.config.Clock().Add(-keepFor))
		err := c.store.Write(ctx, func(tx store.Tx) error { return tx.Prune(before, pruneBatch) })
		if err != nil && ctx.Err() == nil {
			c.config.Log.WarnContext(ctx, "what has ended could not be removed", "why", refusal.From(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close ends every socket, closes the store and lets go of the folder.
func (c *Controller) Close() error {
	var err error
	if c.api != nil {
		c.api.Close()
	}
	if c.store != nil {
		err = c.store.Close()
	}
	c.release()
	return err
}
