package bench

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"time"

	"github.com/allodhq/allod/internal/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// warm is how many jobs go ahead of those that are timed.
	warm = 10
	// rest is how long the site is left alone between two jobs, so that each
	// meets one that has nothing to do.
	rest = 20 * time.Millisecond
	// holdClaim is how long a device lets a claim be held.
	holdClaim = 20 * time.Second
	// commitSize is how many bytes a timed commit writes, about as a job does.
	commitSize = 2 << 10
)

// idle times single jobs while all devices wait for work, and a single commit
// after each.
func (b *bench) idle(ctx context.Context, s *process, devices []*device) error {
	count, ended := b.phase("one job at a time", b.Samples)
	defer ended()
	commit, done, err := b.commits(ctx)
	if err != nil {
		return err
	}
	defer done()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	devicesEnded := make(chan error, 1)
	go func() {
		devicesEnded <- together(waiting, len(devices), func(ctx context.Context, i int) error {
			err := devices[i].serve(ctx)
			if waiting.Err() != nil {
				return nil
			}
			return err
		})
		stop() // without devices nothing would answer any more
	}()
	var times, commits []time.Duration
	err = func() error {
		for i := range warm + b.Samples {
			if err := pause(waiting, rest); err != nil {
				return err
			}
			begun := b.Clock()
			id, err := s.app.ask(waiting)
			if err != nil {
				return err
			}
			if err := s.app.result(waiting, id); err != nil {
				return err
			}
			took := b.Clock().Sub(begun)
			if err := pause(waiting, rest); err != nil {
				return err
			}
			committed, err := commit(waiting)
			if err != nil {
				return err
			}
			if i >= warm {
				times, commits = append(times, took), append(commits, committed)
				count()
			}
		}
		return nil
	}()
	stop()
	if ofDevices := <-devicesEnded; ofDevices != nil {
		return ofDevices
	}
	if err != nil {
		return err
	}
	b.report.Idle = Idle{
		P50Ms: ms(percentile(times, 0.5)), P99Ms: ms(percentile(times, 0.99)),
		CommitP50Ms: ms(percentile(commits, 0.5)),
	}
	return nil
}

// serve waits for work and does it until ctx ends.
func (d *device) serve(ctx context.Context) error {
	for ctx.Err() == nil {
		jobs, err := d.claim(ctx, holdClaim)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if err := d.work(ctx, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// commits opens a database beside the site's, and returns what makes one commit
// in it and tells how long that took.
func (b *bench) commits(ctx context.Context) (once func(context.Context) (time.Duration, error), done func(), err error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, nil, err
	}
	db, err := database.Open(ctx, database.Config{
		URL: "sqlite:" + b.path("commits.db"), Name: "bench", Migrations: files, Clock: b.Clock,
	})
	if err != nil {
		return nil, nil, err
	}
	body := make([]byte, commitSize)
	once = func(ctx context.Context) (time.Duration, error) {
		begun := b.Clock()
		err := db.Write(ctx, func(tx *database.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO commits (body) VALUES (?)`, body)
			return err
		})
		if errors.Is(err, database.ErrCancelled) && ctx.Err() != nil {
			err = ctx.Err()
		}
		return b.Clock().Sub(begun), err
	}
	return once, func() { _ = db.Close() }, nil
}
