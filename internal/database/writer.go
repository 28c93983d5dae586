package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/allodhq/allod/refusal"
)

// killpoint is called where a crash would be at its worst. Tests replace it and
// kill the process there; killpoints lists the names.
var killpoint = func(string) {}

var killpoints = []string{"before-commit", "after-commit", "before-migration", "before-migration-commit"}

// Write runs fn inside of a transaction and returns once the commit is on the
// disk; see the package's comment for what each result means. Functions run
// one after another, so fn must be short, must not wait for others, and must not
// call methods of this DB. It sees what functions before it wrote, and what it
// hands out counts only if Write returns nil.
//
// A caller whose context ends while fn still waits gets [ErrCancelled], and fn
// never runs. Once fn has begun, Write waits for the commit and tells the truth
// about it, however long that takes.
//
// A panic in fn is undone like an error and returned as [ErrPanic]; the writer
// and the callers beside go on. The log gets the place, but the panic's text
// only if it is the runtime's, since any other may quote what was to be written.
//
// Besides fn's own error it returns [ErrBusy] when the queue is full or another
// process has been writing for more than five seconds, [ErrConstraint],
// [ErrFull], [ErrIO], [ErrDamaged] or [ErrClosed].
func (db *DB) Write(ctx context.Context, fn func(tx *Tx) error) error {
	if err := ctx.Err(); err != nil {
		return ErrCancelled.Because(err)
	}
	j := &job{fn: fn, done: make(chan error, 1)}
	if err := db.writer.queue.push(j); err != nil {
		return err
	}
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		if db.writer.queue.remove(j) {
			return ErrCancelled.Because(ctx.Err())
		}
		return <-j.done
	}
}

// job is one call of Write.
type job struct {
	fn    func(*Tx) error
	done  chan error // has room for the answer, so that the writer never waits
	err   error      // of fn; its writes are undone then
	wrote bool
	told  []Topic
}

// queue holds the jobs that wait, first in, first out.
type queue struct {
	mu     sync.Mutex
	filled sync.Cond
	jobs   []*job
	limit  int
	closed bool
	full   uint64 // how many were refused
}

func (q *queue) push(j *job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case len(q.jobs) >= q.limit:
		q.full++
		return ErrBusy.With("Too many changes are waiting.").After(time.Second)
	}
	q.jobs = append(q.jobs, j)
	q.filled.Signal()
	return nil
}

// remove takes out a job that still waits. If it reports false, the job was
// taken by the writer and will be answered.
func (q *queue) remove(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.jobs, j)
	if i >= 0 {
		q.jobs = slices.Delete(q.jobs, i, i+1)
	}
	return i >= 0
}

// take returns up to limit jobs, and none if none wait.
func (q *queue) take(limit int) []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(limit, len(q.jobs))
	taken := slices.Clone(q.jobs[:n])
	q.jobs = slices.Delete(q.jobs, 0, n)
	return taken
}

// wait returns how many jobs wait, once there is one. Zero means that the
// queue is closed and empty.
func (q *queue) wait() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 && !q.closed {
		q.filled.Wait()
	}
	return len(q.jobs)
}

// writer is the one goroutine that writes, with the one connection it uses.
type writer struct {
	db    *DB
	queue queue
	ended chan struct{}
	conn  *sql.Conn // nil when a new one is needed
	below *conn     // the connection below it
	group []*job    // taken from the queue and not yet answered

	failing bool // the last group was not committed
	// version is what the connection said of others' commits, or -1 for a new
	// connection, whose numbers are not those of the one before.
	version int64

	mu    sync.Mutex
	stats Stats
}

func newWriter(db *DB) *writer {
	w := &writer{db: db, ended: make(chan struct{})}
	w.queue.limit = db.config.Queue
	w.queue.filled.L = &w.queue.mu
	go w.run()
	return w
}

// finish refuses further jobs and returns when those that wait are done.
func (w *writer) finish() {
	w.queue.mu.Lock()
	w.queue.closed = true
	w.queue.filled.Broadcast()
	w.queue.mu.Unlock()
	<-w.ended
}

func (w *writer) run() {
	finished := false
	defer func() {
		if finished {
			if w.conn != nil {
				_ = w.conn.Close()
			}
			close(w.ended)
			return
		}
		// A function has called runtime.Goexit, as t.Fatal does, and takes this
		// goroutine with it. The next one takes over with a new connection.
		w.answer(ErrPanic.With("A function ended the goroutine that it ran in."))
		w.drop()
		go w.run()
	}()
	for n := w.queue.wait(); n > 0; n = w.queue.wait() {
		w.commitGroup(n)
	}
	finished = true
}

// commitGroup runs what waits, commits it and answers. Nobody sleeps for more
// work to come: the group is what queued up while the group before was written,
// and what others queue who want the processor now.
func (w *writer) commitGroup(waiting int) {
	if err := w.begin(); err != nil {
		// Those who came while it failed are served by the next attempt.
		w.group = w.queue.take(waiting)
		w.answer(err)
		return
	}
	var lost error
	for start := w.db.config.Clock(); lost == nil && len(w.group) < w.db.config.Group; {
		if len(w.group) > 0 && w.db.config.Clock().Sub(start) >= w.db.config.GroupTime {
			break
		}
		next := w.queue.take(1)
		if len(next) == 0 && len(w.group) > 0 {
			// Whoever could run now may be about to write too. Where nobody could,
			// this takes no time.
			runtime.Gosched()
			next = w.queue.take(1)
		}
		if len(next) == 0 {
			break
		}
		w.group = append(w.group, next...)
		lost = w.db.named(w.runJob(next[0]))
	}
	if lost == nil && len(w.group) > 0 {
		lost = w.commit()
	}
	if (lost != nil || len(w.group) == 0) && w.inTransaction() {
		if err := w.exec("ROLLBACK"); err != nil {
			lost = errors.Join(lost, err)
		}
	}
	if lost != nil && w.inTransaction() {
		w.drop()
	}
	w.answer(lost)
}

// begin opens the transaction with the lock for writing, for which the engine
// waits while another process holds it.
func (w *writer) begin() (err error) {
	if w.conn == nil {
		if w.conn, err = w.db.writers.Conn(context.Background()); err != nil {
			return w.db.named(err)
		}
		if w.below, err = below(w.conn); err != nil {
			w.drop()
			return w.db.named(err)
		}
		w.version = -1
		// What undoing one function may need is kept in memory. The engine would
		// make a temporary file for each that changes more than 16 pages.
		if err = w.exec("PRAGMA temp_store = MEMORY"); err != nil {
			w.drop()
			return err
		}
	}
	if err = w.exec("BEGIN IMMEDIATE"); err != nil {
		if !errors.Is(err, ErrBusy) {
			w.drop()
		}
		return err
	}
	w.notice()
	return nil
}

// notice signals everybody if another process has committed something since the
// last group. The engine's number tells only others' commits.
func (w *writer) notice() {
	version := int64(-1)
	// If it cannot be told, it may have changed; what is wrong will be met again.
	_ = w.below.row(context.Background(), "PRAGMA data_version", nil, []any{&version})
	if version != w.version || version < 0 {
		w.db.signals.all()
	}
	w.version = version
}

// runJob runs one function. An error means that the whole transaction is lost.
func (w *writer) runJob(j *job) error {
	before, err := look(w.below.Raw())
	if err == nil {
		err = w.exec("SAVEPOINT job")
	}
	if err != nil {
		return err
	}
	tx := &Tx{w: w}
	j.err = tx.named(w.call(j.fn, tx))
	after, err := look(w.below.Raw())
	switch {
	case err != nil:
		return err
	case !after.open:
		// The engine undoes everything after some errors, a full disk among them.
		return cmp.Or(tx.fault, error(errEnded))
	case j.err == nil && after.dangling:
		// At the commit it would be the whole group's error.
		j.err = ErrConstraint.With("A foreign key leads nowhere.")
	}
	if j.err != nil {
		err = w.exec("ROLLBACK TO job")
	}
	if err == nil {
		err = w.exec("RELEASE job")
	}
	j.wrote, j.told = j.err == nil && after.changes > before.changes, tx.told
	return err
}

// call runs a function and turns a panic into an error.
func (w *writer) call(fn func(*Tx) error, tx *Tx) (err error) {
	defer tx.end()
	defer func() {
		if p := recover(); p != nil {
			cause := fmt.Errorf("panic with a %T", p)
			if r, ok := p.(runtime.Error); ok {
				cause = fmt.Errorf("panic: %w", r)
			}
			w.db.log.Error("a function panicked", "cause", cause, "stack", string(debug.Stack()))
			err = ErrPanic.Because(cause)
		}
	}()
	return fn(tx)
}

func (w *writer) commit() error {
	killpoint("before-commit")
	start := w.db.config.Clock()
	err := w.exec("COMMIT")
	took := w.db.config.Clock().Sub(start)
	if err == nil {
		killpoint("after-commit")
	}
	w.mu.Lock()
	w.stats.LastCommit = took
	w.mu.Unlock()
	return err
}

// answer tells every caller of the group how it went.
func (w *writer) answer(lost error) {
	group := w.group
	if len(group) == 0 {
		return // all of them had gone before their turn
	}
	w.group = nil
	w.count(group, lost)
	// Once each: on a full disk, a line for every change would not help.
	if lost != nil && !w.failing {
		w.db.log.Error("changes cannot be committed", "cause", refusal.From(lost))
	} else if lost == nil && w.failing {
		w.db.log.Info("changes are committed again")
	}
	w.failing = lost != nil
	if lost == nil {
		w.signal(group)
	}
	for _, j := range group {
		if lost != nil {
			j.done <- lost
		} else {
			j.done <- j.err
		}
	}
}

// signal wakes those who wait for what a group changed.
func (w *writer) signal(group []*job) {
	var wrote bool
	var told []Topic
	for _, j := range group {
		if j.wrote {
			wrote, told = true, append(told, j.told...)
		}
	}
	if wrote {
		w.db.signals.changed(told)
	}
}

// drop closes a connection whose state is not known. The next group opens one.
func (w *writer) drop() {
	if w.conn != nil {
		discard(w.conn)
		w.conn, w.below = nil, nil
	}
}

func (w *writer) inTransaction() bool { return !w.below.Raw().GetAutocommit() }

// exec runs one of the writer's own statements. No context: being interrupted
// in the middle would undo the work of others.
func (w *writer) exec(query string) error {
	_, err := w.below.exec(context.Background(), query, nil)
	return w.db.named(err)
}
