package outbox_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/protocol"
)

// resultOf is the result of a lease. The box never looks into an envelope.
func resultOf(lease ai.LeaseID) ai.ResultRequest {
	return ai.ResultRequest{
		RunnerID: "runner_1", Grant: ai.Grant{JobID: "job", LeaseID: lease},
		Envelope: ai.SealedEnvelope{
			Ciphertext: "sealed for " + string(lease), RecipientKeyID: "site", SenderKeyID: "device",
			Direction: ai.DirectionResult, DeadlineAt: 1785499200123,
		},
		Disposition: ai.DispositionOK,
	}
}

// nameOf is a result's file as every version of the program must find it.
func nameOf(lease ai.LeaseID) string {
	sum := sha256.Sum256([]byte(lease))
	return hex.EncodeToString(sum[:16]) + ".result"
}

func open(t *testing.T, dir string) *outbox.Box {
	t.Helper()
	b, err := outbox.Open(dir, "https://app.example", "runner_1")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// opened is a box and its folder.
func opened(t *testing.T) (b *outbox.Box, dir string) {
	t.Helper()
	parent := filepath.Join(t.TempDir(), "outbox")
	b = open(t, parent)
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	return b, filepath.Join(parent, entries[0].Name())
}

func keep(t *testing.T, b *outbox.Box, q ai.ResultRequest) {
	t.Helper()
	if err := b.Keep(q); err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

func mustHave(t *testing.T, b *outbox.Box, want ai.ResultRequest) {
	t.Helper()
	if got, err := b.Get(want.Grant.LeaseID); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, %v", want.Grant.LeaseID, got, err)
	}
}

func mustLack(t *testing.T, b *outbox.Box, lease ai.LeaseID) {
	t.Helper()
	got, err := b.Get(lease)
	mustBe(t, string(lease), err, fs.ErrNotExist)
	if got != (ai.ResultRequest{}) {
		t.Errorf("an error came with %+v", got)
	}
}

// leases are those of all results that a start finds.
func leases(t *testing.T, b *outbox.Box) []ai.LeaseID {
	t.Helper()
	all, err := b.All()
	if err != nil {
		t.Fatal(err)
	}
	return leasesOf(all)
}

func leasesOf(all []ai.ResultRequest) (list []ai.LeaseID) {
	for _, q := range all {
		list = append(list, q.Grant.LeaseID)
	}
	slices.Sort(list)
	return list
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeepGetRemove(t *testing.T) {
	b, dir := opened(t)
	mustLack(t, b, "a")
	if got := leases(t, b); got != nil {
		t.Errorf("a new box has %v", got)
	}
	keep(t, b, resultOf("a"))
	keep(t, b, resultOf("b"))
	second := resultOf("a")
	second.Disposition, second.Envelope.Ciphertext = ai.DispositionCanceled, "again"
	keep(t, b, second)
	for range 2 {
		mustHave(t, b, second)
		mustHave(t, b, resultOf("b"))
		if got := leases(t, b); !slices.Equal(got, []ai.LeaseID{"a", "b"}) {
			t.Errorf("%v are kept", got)
		}
		b = open(t, filepath.Dir(dir)) // as after a restart
	}
	for _, lease := range []ai.LeaseID{"a", "a", "never"} {
		if err := b.Remove(lease); err != nil {
			t.Error(err)
		}
	}
	mustLack(t, b, "a")
	if got := names(t, dir); !slices.Equal(got, []string{nameOf("b")}) {
		t.Errorf("the folder holds %v", got)
	}
	if runtime.GOOS == "windows" {
		return
	}
	for path, want := range map[string]fs.FileMode{filepath.Dir(dir): 0o700, dir: 0o700, filepath.Join(dir, nameOf("b")): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has the mode %o, %v", path, info.Mode().Perm(), err)
		}
	}
}

// TestAllDropsWhatIsSealed: a start names up to a thousand results of many
// megabytes each, and must not hold them.
func TestAllDropsWhatIsSealed(t *testing.T) {
	b, _ := opened(t)
	keep(t, b, resultOf("a"))
	want := resultOf("a")
	want.Envelope.Ciphertext = ""
	all, err := b.All()
	if err != nil || len(all) != 1 || !reflect.DeepEqual(all[0], want) {
		t.Errorf("%+v, %v", all, err)
	}
	mustHave(t, b, resultOf("a"))
}

// TestPairingsAreApart: no two pairings share a box, however they are named.
func TestPairingsAreApart(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "outbox")
	pairings := []struct {
		server string
		runner ai.RunnerID
	}{
		{"https://a.example", "r"}, {"https://a.example", "s"}, {"https://b.example", "r"}, {"https://a.example/r", ""},
		{"https://a.example", ""}, {"https://a.exampler", ""}, {"https://a.example", "../r"}, {"https://a.example", "R"},
		{"https://a.example", "r\x00"}, {"https://a.example", ai.RunnerID(strings.Repeat("r", 5000))},
	}
	for i, p := range pairings {
		b, err := outbox.Open(parent, p.server, p.runner)
		if err != nil {
			t.Fatal(err)
		}
		mustLack(t, b, "same")
		q := resultOf("same")
		q.Grant.JobID = ai.JobID(fmt.Sprint(i))
		keep(t, b, q)
	}
	if got := len(names(t, parent)); got != len(pairings) {
		t.Errorf("%d folders for %d pairings", got, len(pairings))
	}
	for i, p := range pairings {
		b, err := outbox.Open(parent, p.server, p.runner)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := b.Get("same"); err != nil || q.Grant.JobID != ai.JobID(fmt.Sprint(i)) {
			t.Errorf("%v has the result of pairing %s, %v", p, q.Grant.JobID, err)
		}
		if err := b.Clear(); err != nil {
			t.Error(err)
		}
		if got := len(names(t, parent)); got != len(pairings)-i-1 {
			t.Errorf("%d folders are left", got)
		}
	}
}

// TestSweep removes the boxes of pairings that are gone, and no others.
func TestSweep(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "outbox")
	if err := outbox.Sweep(parent, nil); err != nil {
		t.Errorf("there is no folder yet: %v", err)
	}
	var keepers []string
	for _, runner := range []ai.RunnerID{"stays", "goes", "stays too"} {
		b, err := outbox.Open(parent, "https://app.example", runner)
		if err != nil {
			t.Fatal(err)
		}
		keep(t, b, resultOf("a"))
		if runner != "goes" {
			keepers = append(keepers, outbox.Name("https://app.example", runner))
		}
	}
	for range 2 {
		if err := outbox.Sweep(parent, append(keepers, "never there")); err != nil {
			t.Fatal(err)
		}
		got := names(t, parent)
		slices.Sort(keepers)
		if !slices.Equal(got, keepers) {
			t.Errorf("%v are left, want %v", got, keepers)
		}
	}
	b, err := outbox.Open(parent, "https://app.example", "stays")
	if err != nil {
		t.Fatal(err)
	}
	mustHave(t, b, resultOf("a"))
	if err := outbox.Sweep(parent, nil); err != nil || names(t, parent) != nil {
		t.Errorf("%v are left, %v", names(t, parent), err)
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, nil)
	mustBe(t, "a file", outbox.Sweep(file, nil), datadir.ErrRead)
}

// TestHostileLeases: a server chooses the ids. None leads out of the folder, and
// no two meet in one file.
func TestHostileLeases(t *testing.T) {
	b, dir := opened(t)
	hostile := []ai.LeaseID{
		"../x", "/etc/passwd", `..\x`, ".", "..", "a/b", "a\x00", "a\n", "CON", "a", "A", "ä", "a\u0308", "a.result", "a.tmp", "*", " ", "a ",
		ai.LeaseID(strings.Repeat("x", 10_000)), ai.LeaseID(nameOf("a")),
	}
	for _, lease := range hostile {
		keep(t, b, resultOf(lease))
	}
	if got := names(t, dir); len(got) != len(hostile) {
		t.Errorf("%d files for %d results", len(got), len(hostile))
	}
	if got := names(t, filepath.Dir(dir)); len(got) != 1 {
		t.Errorf("beside the box stands %v", got)
	}
	for _, lease := range hostile {
		mustHave(t, b, resultOf(lease))
	}
	slices.Sort(hostile)
	if got := leases(t, b); !slices.Equal(got, hostile) {
		t.Errorf("%q are kept", got)
	}
	for _, lease := range hostile {
		if err := b.Remove(lease); err != nil {
			t.Error(err)
		}
	}
	if got := names(t, dir); got != nil {
		t.Errorf("%v is left", got)
	}
}

// TestDamage: what cannot be read is set aside, named once, and the rest works.
func TestDamage(t *testing.T) {
	b, dir := opened(t)
	keep(t, b, resultOf("good"))
	keep(t, b, resultOf("bad"))
	others, err := os.ReadFile(filepath.Join(dir, nameOf("good")))
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(filepath.Join(dir, nameOf("bad")))
	if err != nil {
		t.Fatal(err)
	}
	for what, content := range map[string][]byte{
		"empty": {}, "cut": body[:len(body)-1], "another's": others, "zeros": make([]byte, len(body)), "two": append(slices.Clone(body), body...),
		"null": []byte("null"), "an unknown member": []byte(strings.Replace(string(body), "{", `{"also":1,`, 1)),
		"another version": versionOf(t, body, `"9"`), "the version between": versionOf(t, body, `"1"`), "a version of a number": versionOf(t, body, `2`),
		"no version": versionOf(t, body, ""),
		"large":      nil,
	} {
		path := filepath.Join(dir, nameOf("bad"))
		for _, byGet := range []bool{true, false} {
			write(t, path, content)
			if what == "large" {
				if err := os.Truncate(path, int64(protocol.Latest().ResultRequest.Limit())+1); err != nil {
					t.Fatal(err)
				}
			}
			if byGet {
				got, err := b.Get("bad")
				mustBe(t, what, err, outbox.ErrDamaged)
				if got != (ai.ResultRequest{}) {
					t.Errorf("%s: an error came with %+v", what, got)
				}
			} else {
				all, err := b.All()
				mustBe(t, what, err, outbox.ErrDamaged)
				if got := leasesOf(all); !slices.Equal(got, []ai.LeaseID{"good"}) {
					t.Errorf("%s: %v are kept", what, got)
				}
			}
			if got := names(t, dir); !slices.Contains(got, nameOf("bad")+".damaged") || slices.Contains(got, nameOf("bad")) {
				t.Errorf("%s: the folder holds %v", what, got)
			}
			// Once is enough.
			mustLack(t, b, "bad")
			if got := leases(t, b); !slices.Equal(got, []ai.LeaseID{"good"}) {
				t.Errorf("%s: %v are kept", what, got)
			}
		}
		if got, err := os.ReadFile(path + ".damaged"); err != nil || what != "large" && string(got) != string(content) {
			t.Errorf("%s: what was set aside changed: %v", what, err)
		}
		if err := os.Remove(path + ".damaged"); err != nil {
			t.Fatal(err)
		}
	}
	// The job can be run and kept again.
	keep(t, b, resultOf("bad"))
	mustHave(t, b, resultOf("bad"))
}

// versionOf is a result's file with another version, or none where it is empty.
func versionOf(t *testing.T, body []byte, version string) []byte {
	t.Helper()
	declared := `"protocolVersion":"` + protocol.Latest().Version + `"`
	if bytes.Count(body, []byte(declared)) != 1 {
		t.Fatalf("the file declares no %s: %s", declared, body)
	}
	if version == "" {
		return bytes.Replace(body, []byte(declared+","), nil, 1)
	}
	return bytes.Replace(body, []byte(declared), []byte(`"protocolVersion":`+version), 1)
}

// TestOlderPrograms: a result that a program of an earlier day kept, in the version
// that it spoke, is read like one of today.
func TestOlderPrograms(t *testing.T) {
	for _, version := range protocol.Supported() {
		codec, ok := protocol.Find(version)
		if !ok {
			t.Fatal(version)
		}
		want := resultOf("old")
		body, err := codec.ResultRequest.Write(want)
		if err != nil {
			t.Fatal(err)
		}
		b, dir := opened(t)
		write(t, filepath.Join(dir, nameOf("old")), body)
		mustHave(t, b, want)
		if got := leases(t, b); !slices.Equal(got, []ai.LeaseID{"old"}) {
			t.Errorf("version %s: a start finds %v", version, got)
		}
		if got := names(t, dir); !slices.Equal(got, []string{nameOf("old")}) {
			t.Errorf("version %s: the folder holds %v", version, got)
		}
	}
	// As the first program wrote it.
	b, dir := opened(t)
	write(t, filepath.Join(dir, nameOf("first")), []byte(`{"protocolVersion":"0","runnerId":"runner_1","leaseId":"first","jobId":"job",`+
		`"envelope":{"ciphertext":"sealed for first","recipientKeyId":"site","senderKeyId":"device","direction":"result","deadlineAt":1785499200123},"disposition":"ok"}`))
	mustHave(t, b, resultOf("first"))
}

// TestWhatCannotBeRead stays, since it may be read another time.
func TestWhatCannotBeRead(t *testing.T) {
	b, dir := opened(t)
	keep(t, b, resultOf("good"))
	if err := os.Mkdir(filepath.Join(dir, nameOf("bad")), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := b.Get("bad")
		mustBe(t, "a folder", err, datadir.ErrRead)
		all, err := b.All()
		mustBe(t, "all", err, datadir.ErrRead)
		if got := leasesOf(all); !slices.Equal(got, []ai.LeaseID{"good"}) {
			t.Errorf("%v are kept", got)
		}
	}
}

func TestForeignFiles(t *testing.T) {
	b, dir := opened(t)
	keep(t, b, resultOf("a"))
	body, err := os.ReadFile(filepath.Join(dir, nameOf("a")))
	if err != nil {
		t.Fatal(err)
	}
	foreign := []string{"README", ".result~", nameOf("b") + ".damaged", nameOf("b") + ".bak", "a.RESULT"}
	for _, name := range foreign {
		write(t, filepath.Join(dir, name), body)
	}
	left := []string{nameOf("a") + ".0123456789abcdef.tmp", nameOf("b") + ".0123456789abcdef.tmp"}
	for _, name := range left {
		write(t, filepath.Join(dir, name), body)
	}
	if got := leases(t, b); !slices.Equal(got, []ai.LeaseID{"a"}) {
		t.Errorf("%v are kept", got)
	}
	got := names(t, dir)
	for _, name := range append(foreign, nameOf("a")) {
		if !slices.Contains(got, name) {
			t.Errorf("%s is gone", name)
		}
	}
	for _, name := range left {
		if slices.Contains(got, name) {
			t.Errorf("%s of a write that did not end is still there", name)
		}
	}
}

// TestManyKept: a start reads a bounded number, and the next one goes on.
func TestManyKept(t *testing.T) {
	const many, bound = 1030, 1024
	b, dir := opened(t)
	for i := range many {
		q := resultOf(ai.LeaseID(fmt.Sprint(i)))
		body, err := protocol.Latest().ResultRequest.Write(q)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, nameOf(q.Grant.LeaseID)), body)
	}
	write(t, filepath.Join(dir, "zzz.0123456789abcdef.tmp"), nil) // behind all others
	seen := map[ai.LeaseID]bool{}
	for _, want := range []int{bound, many - bound, 0} {
		got := leases(t, b)
		if len(got) != want {
			t.Errorf("%d are read, want %d", len(got), want)
		}
		for _, lease := range got {
			seen[lease] = true
			if err := b.Remove(lease); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(seen) != many {
		t.Errorf("%d of %d were seen", len(seen), many)
	}
	if got := names(t, dir); got != nil {
		t.Errorf("%v is left", got)
	}
}

// TestMemory: a result that the disk does not take is there until the process
// ends, and goes to the disk when it can.
func TestMemory(t *testing.T) {
	b, dir := opened(t)
	keep(t, b, resultOf("disk"))
	if b.InMemory("disk") || b.InMemory("never") {
		t.Error("what is on the disk, or nowhere, is said to be in memory only")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, lease := range []ai.LeaseID{"a", "b"} {
		mustBe(t, "keeping", b.Keep(resultOf(lease)), datadir.ErrWrite)
		if !b.InMemory(lease) {
			t.Errorf("%s is not in memory", lease)
		}
		mustHave(t, b, resultOf(lease))
	}
	newer := resultOf("b")
	newer.Envelope.Ciphertext = "newer"
	mustBe(t, "keeping again", b.Keep(newer), datadir.ErrWrite)
	mustHave(t, b, newer)
	if err := b.Remove("a"); err != nil || b.InMemory("a") {
		t.Errorf("it is still in memory: %v", err)
	}
	mustLack(t, b, "a")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	newest := resultOf("b")
	newest.Envelope.Ciphertext = "newest"
	keep(t, b, newest)
	if b.InMemory("b") {
		t.Error("what is on the disk is said to be in memory only")
	}
	mustHave(t, b, newest)
	mustHave(t, open(t, filepath.Dir(dir)), newest)
}

// TestMemoryIsBounded: a full disk does not become full memory.
func TestMemoryIsBounded(t *testing.T) {
	if raceEnabled {
		t.Skip("the messages are too large for the race detector, and nothing is concurrent here")
	}
	b, dir := opened(t)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	large := func(lease ai.LeaseID) ai.ResultRequest {
		q := resultOf(lease)
		q.Envelope.Ciphertext = strings.Repeat("x", 20<<20)
		return q
	}
	kept := func(lease ai.LeaseID) bool {
		mustBe(t, string(lease), b.Keep(large(lease)), datadir.ErrWrite)
		return b.InMemory(lease)
	}
	for _, lease := range []ai.LeaseID{"a", "b", "c", "a"} { // three fit, and one again takes its own place
		if !kept(lease) {
			t.Fatalf("%s is not in memory", lease)
		}
	}
	if kept("d") {
		t.Error("a fourth was kept")
	}
	_, err := b.Get("d")
	mustBe(t, "the fourth", err, fs.ErrNotExist)
	if err := b.Remove("b"); err != nil {
		t.Fatal(err)
	}
	if !kept("d") {
		t.Error("there is room again, and it was not kept")
	}
	if b.InMemory("b") || !b.InMemory("a") || !b.InMemory("c") {
		t.Error("another one was removed")
	}
}

// TestTooLarge: what no server would take is not kept, and says so.
func TestTooLarge(t *testing.T) {
	if raceEnabled {
		t.Skip("the messages are too large for the race detector, and nothing is concurrent here")
	}
	b, dir := opened(t)
	q := resultOf("a")
	q.Envelope.Ciphertext = strings.Repeat("x", ai.MaxSealedBody)
	err := b.Keep(q)
	mustBe(t, "large", err, ai.ErrBadRequest)
	var wire *ai.Error
	if !errors.As(err, &wire) {
		t.Errorf("the error is %T", err)
	}
	if b.InMemory("a") {
		t.Error("it is in memory")
	}
	mustLack(t, b, "a")
	// The largest that can be sent can be kept and read.
	q.Envelope.Ciphertext = ""
	body, err := protocol.Latest().ResultRequest.Write(resultOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	q.Envelope.Ciphertext = strings.Repeat("x", ai.MaxSealedBody-len(body)+len(resultOf("a").Envelope.Ciphertext))
	keep(t, b, q)
	mustHave(t, b, q)
	if got := leases(t, b); !slices.Equal(got, []ai.LeaseID{"a"}) || len(names(t, dir)) != 1 {
		t.Errorf("%v are kept", got)
	}
	// No other mistake is kept either.
	for what, bad := range map[string]ai.ResultRequest{"nothing": {}, "no lease": resultOf("")} {
		mustBe(t, what, b.Keep(bad), ai.ErrBadRequest)
	}
}

func TestOpenAndClearRefusals(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, nil)
	b, err := outbox.Open(file, "https://app.example", "runner")
	mustBe(t, "a file", err, datadir.ErrData)
	if b != nil {
		t.Error("an error came with a box")
	}
	b, folder := opened(t)
	if err := os.RemoveAll(filepath.Dir(folder)); err != nil {
		t.Fatal(err)
	}
	_, err = b.All()
	mustBe(t, "no folder", err, datadir.ErrRead)
	if err := b.Clear(); err != nil {
		t.Errorf("clearing nothing: %v", err)
	}
	if err := b.Remove("a"); err != nil {
		t.Errorf("removing from nothing: %v", err)
	}
	// Something that a file cannot be removed from.
	if err := os.WriteFile(filepath.Dir(folder), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" {
		mustBe(t, "removing below a file", b.Remove("a"), datadir.ErrWrite)
	}
}

// TestAtOnce: jobs end at the same time, also while a start looks at what is
// there.
func TestAtOnce(t *testing.T) {
	b, dir := opened(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 5 {
				lease := ai.LeaseID(fmt.Sprint(i, " ", j))
				if err := b.Keep(resultOf(lease)); err != nil {
					t.Error(err)
					return
				}
				mustHave(t, b, resultOf(lease))
				if b.InMemory(lease) {
					t.Errorf("%s is in memory only", lease)
				}
				if j == 4 {
					continue
				}
				if err := b.Remove(lease); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		if _, err := b.All(); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	if got := len(leases(t, b)); got != 8 || len(names(t, dir)) != 8 {
		t.Errorf("%d are kept in %v", got, names(t, dir))
	}
}

func TestRefusalsHoldNoInput(t *testing.T) {
	const canary = "canarybird"
	b, dir := opened(t)
	write(t, filepath.Join(dir, nameOf(canary)), []byte(`{"canarybird":1}`))
	_, err := b.Get(canary)
	if err == nil || strings.Contains(refusal.Terminal(err), canary) {
		t.Errorf("%v", err)
	}
}
