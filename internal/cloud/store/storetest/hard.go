package storetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

// durable skips what only engines with a folder can do.
func durable(t *testing.T, e Engine) {
	t.Helper()
	if !e.Durable {
		t.Skip("the engine keeps nothing")
	}
}

// testReopen opens a folder again and finds everything.
func testReopen(t *testing.T, e Engine) {
	durable(t, e)
	f := seeded(t, e)
	before := f.state()
	for range 2 {
		if err := f.store.Close(); err != nil {
			t.Fatal(err)
		}
		f.reopen()
		equal(t, "opened again", f.state(), before)
	}
	f.write(func(tx store.Tx) error { return tx.AppendAudit(store.AuditEntry{}) })
	f.read(func(tx store.Tx) error {
		list, err := tx.Audit("", 0, 1)
		equal(t, "the next entry", list[0].Seq, int64(2))
		return err
	})
}

// What a child process is told through its environment.
const (
	childTask = "ALLOD_ZONE_STORETEST_TASK"
	childDir  = "ALLOD_ZONE_STORETEST_DIR"
)

// counts is how often a process adds one.
const counts = 40

// Child runs the task of a child process of the suite and exits; in any other
// process it does nothing. An engine's TestMain calls it first.
func Child(e Engine) {
	task := os.Getenv(childTask)
	if task == "" {
		return
	}
	if err := child(task, e); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(task string, e Engine) error {
	s, err := e.Open(os.Getenv(childDir))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	switch task {
	case "count":
		for range counts {
			if err := addOne(s); err != nil {
				return err
			}
		}
		return nil
	case "enroll":
		// No child outlives the test.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		for n := int64(1); ; n++ {
			if err := s.Write(background, func(tx store.Tx) error { return putAll(tx, n) }); err != nil {
				return err
			}
			fmt.Println(n) // acknowledged
		}
	}
	return errors.New("storetest: no such task")
}

// putAll changes several records that belong together.
func putAll(tx store.Tx, n int64) error {
	id := strconv.FormatInt(n, 10)
	for _, err := range []error{
		tx.PutNode(store.Node{ID: zone.NodeID(id), Cluster: "c", Organization: "o"}),
		tx.PutCredential(store.Credential{Node: zone.NodeID(id), Purpose: "spark", Hash: store.Hash{1, byte(n), byte(n >> 8)}}),
		tx.PutCredential(store.Credential{Node: zone.NodeID(id), Purpose: "pallet", Hash: store.Hash{2, byte(n), byte(n >> 8)}}),
		tx.PutEnrollment(store.Enrollment{ID: id, Node: zone.NodeID(id), Answer: []byte(id)}),
		tx.PutReceipt(store.Receipt{Scope: "o", ID: zone.MutationID(id), Answer: []byte(id)}),
		tx.AppendAudit(store.AuditEntry{Subject: "node/" + id}),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fixture) start(task string) (*exec.Cmd, io.Reader) {
	f.Helper()
	self, err := os.Executable()
	if err != nil {
		f.Fatal(err)
	}
	cmd := exec.CommandContext(f.Context(), self, "-test.run", "^$")
	cmd.Env = append(os.Environ(), childTask+"="+task, childDir+"="+f.dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = in.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	return cmd, out
}

// testProcesses counts from three processes on one folder. No one is lost.
func testProcesses(t *testing.T, e Engine) {
	durable(t, e)
	f := open(t, e)
	var wg sync.WaitGroup
	for range 2 {
		cmd, out := f.start("count")
		wg.Go(func() {
			_, err := io.Copy(io.Discard, out)
			if err := errors.Join(err, cmd.Wait()); err != nil {
				t.Error(err)
			}
		})
	}
	for range counts {
		if err := addOne(f.store); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	equal(t, "the counter", f.counted(), int64(3*counts))
}

// testKill kills a process while it writes. What it acknowledged is there, whole,
// and what it did not is there whole or not at all.
func testKill(t *testing.T, e Engine) {
	durable(t, e)
	for round := range 4 {
		f := open(t, e)
		if err := f.store.Close(); err != nil {
			t.Fatal(err)
		}
		cmd, out := f.start("enroll")
		lines, acknowledged := bufio.NewScanner(out), 0
		for lines.Scan() {
			if acknowledged++; lines.Text() != strconv.Itoa(acknowledged) {
				t.Fatalf("acknowledgement %d is %q", acknowledged, lines.Text())
			}
			if acknowledged == 3+17*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || acknowledged < 3+17*round {
			t.Fatalf("the child was not killed: %v after %d", err, acknowledged)
		}
		f.reopen()
		f.read(func(tx store.Tx) error {
			entries, err := tx.Audit("", 0, 0)
			// One write may have been committed and not acknowledged.
			if n := len(entries); n < acknowledged || n > acknowledged+1 {
				t.Errorf("%d writes are there, %d were acknowledged", n, acknowledged)
			}
			for n := range len(entries) + 2 {
				id, want := strconv.Itoa(n), n > 0 && n <= len(entries)
				_, node, _ := tx.Node(zone.NodeID(id))
				_, spark, _ := tx.CredentialByHash(store.Hash{1, byte(n), byte(n >> 8)})
				_, pallet, _ := tx.Credential(zone.NodeID(id), "pallet")
				enrollment, enrolled, _ := tx.Enrollment(id)
				_, receipt, err := tx.Receipt("o", zone.MutationID(id))
				if err != nil || node != want || spark != want || pallet != want || enrolled != want || receipt != want || want && string(enrollment.Answer) != id {
					t.Errorf("write %d of %d: node %v, spark %v, pallet %v, enrollment %v, receipt %v, %v", n, len(entries), node, spark, pallet, enrolled, receipt, err)
				}
			}
			return err
		})
		f.write(func(tx store.Tx) error { return putAll(tx, 1000) })
	}
}
