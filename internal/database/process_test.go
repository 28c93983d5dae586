package database

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const envRound = "ALLOD_TEST_ROUND"

// child starts the test binary as another process on the same database.
func child(t *testing.T, name string, c Config, env ...string) (*exec.Cmd, io.ReadCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envChild+"="+name, envURL+"="+c.URL)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	// The child ends when its input does, so that none outlives the tests.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Process.Kill() })
	return cmd, stdout
}

func openChild(set string) (*DB, error) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	c := configAt("")
	c.URL = os.Getenv(envURL)
	c.Migrations = migrations(set)
	return Open(ctx, c)
}

const countWorkers, countEach = 4, 20

// childCount adds one to a counter again and again.
func childCount() error {
	db, err := openChild("v1")
	if err != nil {
		return err
	}
	errs := make(chan error, countWorkers)
	for range countWorkers {
		go func() {
			for range countEach {
				err := ErrBusy.With("")
				for again := error(err); again != nil; {
					again = db.Write(ctx, func(tx *Tx) error {
						var n int
						err := tx.QueryRowContext(ctx, "SELECT coalesce(max(value), 0) FROM counters").Scan(&n)
						if err == nil {
							_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO counters VALUES ('n', ?)", n+1)
						}
						return err
					})
					if again != nil && !errors.Is(again, ErrBusy) {
						errs <- again
						return
					}
				}
			}
			errs <- nil
		}()
	}
	for range countWorkers {
		err = errors.Join(err, <-errs)
	}
	return errors.Join(err, db.Close())
}

// TestTwoProcesses races processes from the creation of the file on.
func TestTwoProcesses(t *testing.T) {
	const processes = 3
	c := tempConfig(t)
	var cmds []*exec.Cmd
	for range processes {
		cmd, _ := child(t, "count", c)
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	db := mustOpen(t, c)
	if n := one[int](t, db, "SELECT value FROM counters"); n != processes*countWorkers*countEach {
		t.Errorf("counted to %d, want %d", n, processes*countWorkers*countEach)
	}
	if err := db.Check(ctx); err != nil {
		t.Error(explain(err))
	}
}

// TestOpenTogether races many first starts. The lock is each open file's, so
// one process is as good as many.
func TestOpenTogether(t *testing.T) {
	for range 4 {
		c := tempConfig(t)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				<-start
				db, err := Open(ctx, c)
				if err == nil {
					err = errors.Join(add(db, fmt.Sprint(i)), db.Close())
				}
				if err != nil {
					t.Error(explain(err))
				}
			})
		}
		close(start)
		wg.Wait()
		if got := names(t, mustOpen(t, c)); len(got) != 8 {
			t.Errorf("items are %v", got)
		}
	}
}

// childAppend adds items without end and prints the name of each that was
// acknowledged.
func childAppend() error {
	db, err := openChild("v1")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	errs := make(chan error)
	for worker := range 4 {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%s-%d-%d", os.Getenv(envRound), worker, i)
				err := db.Write(ctx, func(tx *Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO items(name, body) VALUES (?, zeroblob(?))", name, i*97%5000)
					return err
				})
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				fmt.Println(name)
				mu.Unlock()
			}
		}()
	}
	return <-errs
}

// acknowledged reads whole lines to the end of the output.
func acknowledged(t *testing.T, out io.Reader, each func(n int)) (lines []string) {
	t.Helper()
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return lines // the last line may be cut off
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
		each(len(lines))
	}
}

func TestKill9(t *testing.T) {
	const rounds = 8
	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := tempConfig(t)
	want := map[string]bool{}
	for round := range rounds {
		cmd, out := child(t, "append", c, envRound+"="+strconv.Itoa(round))
		at := 1 + rnd.IntN(100)
		for _, name := range acknowledged(t, out, func(n int) {
			if n == at {
				_ = cmd.Process.Kill()
			}
		}) {
			want[name] = true
		}
		_ = cmd.Wait()
		db := mustOpen(t, c)
		got := names(t, db)
		for name := range want {
			if _, found := slices.BinarySearch(got, name); !found {
				t.Errorf("round %d: %s was acknowledged and is lost", round, name)
			}
		}
		if err := errors.Join(db.Check(ctx), db.Close()); err != nil {
			t.Errorf("round %d: %s", round, explain(err))
		}
	}
	if len(want) < rounds {
		t.Errorf("only %d items were acknowledged", len(want))
	}
}

// childMigrate opens the database with newer migrations.
func childMigrate() error {
	_, err := openChild("v2")
	return err
}

func TestKillPoints(t *testing.T) {
	tests := map[string]struct {
		child string
		items int // after the crash, of the one that was there and those that were being written
		after string
	}{
		"before-commit":           {"append", 1, "v1"},
		"after-commit":            {"append", 2, "v1"},
		"before-migration":        {"migrate", 1, "v1"},
		"before-migration-commit": {"migrate", 1, "v1"},
	}
	if got := slices.Sorted(maps.Keys(tests)); !slices.Equal(got, slices.Sorted(slices.Values(killpoints))) {
		t.Fatalf("kill points %v, tested %v", killpoints, got)
	}
	for point, test := range tests {
		t.Run(point, func(t *testing.T) {
			c := tempConfig(t)
			db := mustOpen(t, c)
			if err := errors.Join(add(db, "before"), db.Close()); err != nil {
				t.Fatal(explain(err))
			}
			cmd, out := child(t, test.child, c, envKill+"="+point)
			if told := acknowledged(t, out, func(int) {}); len(told) > 0 {
				t.Errorf("acknowledged %v", told)
			}
			if err := cmd.Wait(); err == nil || cmd.ProcessState.Success() {
				t.Fatal("the process was not killed")
			}
			c.Migrations = migrations(test.after)
			db = mustOpen(t, c)
			if got := names(t, db); len(got) < test.items || test.items == 1 && len(got) > 1 {
				t.Errorf("items are %v, want %d", got, test.items)
			}
			if err := errors.Join(db.Check(ctx), db.Close()); err != nil {
				t.Error(explain(err))
			}
			c.Migrations = migrations("v2")
			if err := add(mustOpen(t, c), "after"); err != nil {
				t.Error(explain(err))
			}
		})
	}
}
