package ingress

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allodhq/allod/wire/ai"
)

const canary = "canarybird"

// othersLine is the prompt line of somebody else's job, written at some time.
func othersLine(job ai.JobID, at time.Time) Line {
	l := lineOf(job)
	l.At, l.Audience, l.Owner, l.Prompt = at, ai.AudiencePublic, "bob", ""
	l.SetPrompt(canary, 10, true)
	return l
}

func reduced(l Line) Line {
	l.Prompt = ""
	return l
}

func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(content)
	}
	return all
}

// TestReduce: of other people's old prompts the hash stays, and of every other line
// all does, to the byte.
func TestReduce(t *testing.T) {
	day := 24 * time.Hour
	named, own, self, older, unasked, empty := othersLine("named", t0), othersLine("own", t0), othersLine("self", t0), lineOf("older"), othersLine("no audience", t0), othersLine("hash", t0)
	named.Audience, own.Own, self.Audience, unasked.Audience, empty.Prompt = ai.AudienceNamed, true, ai.AudienceSelf, "", ""
	outcome := Line{Type: TypeOutcome, At: t0, Server: "https://app.example", JobID: "named", Audience: ai.AudienceNamed, Owner: "bob", Outcome: "ok", DurationMs: 5}
	damaged := "\x00\x01 {\"prompt\":\"" + canary + " no line\n" + `{"type":"prompt","prompt":"a","prompt":"b"}` + "\n"
	later := `{"type":"prompt","at":"2026-07-31T12:00:00Z","of a later version":{"prompt":[1,2]},"prompt":"` + canary + `","\u0061udience":"public"}` + "\r\n"
	write := func(name string, lines ...Line) (content string) {
		dir := t.TempDir()
		l := mustOpen(t, dir, maxFile)
		mustWrite(t, l, lines...)
		return files(t, dir)[FileName]
	}
	keep := write("", own, self, older, empty, outcome, othersLine("at", t0.Add(day)), othersLine("young", t0.Add(day+1)))
	dir := t.TempDir()
	for name, content := range map[string]string{
		OlderName: damaged + write("", named, unasked) + later,
		FileName:  keep + write("", othersLine("old", t0.Add(day-1))) + strings.TrimSuffix(damaged, "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, dir, maxFile)
	if n, err := l.Reduce(t0.Add(day)); n != 4 || err != nil {
		t.Fatalf("%d reduced, %v", n, err)
	}
	want := map[string]string{
		OlderName: damaged + write("", reduced(named), reduced(unasked)) + `{"type":"prompt","at":"2026-07-31T12:00:00Z","of a later version":{"prompt":[1,2]},"\u0061udience":"public"}` + "\n",
		FileName:  keep + write("", reduced(othersLine("old", t0.Add(day-1)))) + strings.TrimSuffix(damaged, "\n"),
	}
	if got := files(t, dir); !reflect.DeepEqual(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	for name := range want {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	// Once more there is nothing to do, and the log goes on.
	if n, err := l.Reduce(t0.Add(day)); n != 0 || err != nil {
		t.Errorf("again: %d reduced, %v", n, err)
	}
	mustWrite(t, l, lineOf("next"))
	if got, damaged := read(t, dir); damaged != 4 || got[len(got)-1].JobID != "next" {
		t.Errorf("%v, %d damaged", jobs(got), damaged)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := l.Reduce(t0.Add(2 * day))
	mustRefuse(t, "after the end", err)
}

// TestReduceKeepsTheSize: a file that became shorter has room again, and one that
// did not has none.
func TestReduceKeepsTheSize(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, 6000)
	large := othersLine("large", t0)
	large.SetPrompt(strings.Repeat("x", 5000), 5000, true)
	mustWrite(t, l, large)
	if n, err := l.Reduce(t0.Add(1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for i := range 8 {
		mustWrite(t, l, lineOf(ai.JobID(fmt.Sprint(i))))
	}
	if _, err := os.Stat(filepath.Join(dir, OlderName)); err == nil {
		t.Error("it rotated with room left")
	}
	for i := range 12 {
		mustWrite(t, l, lineOf(ai.JobID(fmt.Sprint(i))))
	}
	for name, content := range files(t, dir) {
		if len(content) > 6000 {
			t.Errorf("%s has %d bytes", name, len(content))
		}
	}
}

// TestReduceFails: where the new file cannot be written, or cannot take its place,
// the old one stays, and the log goes on.
func TestReduceFails(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, maxFile)
	mustWrite(t, l, othersLine("a", t0))
	before := files(t, dir)
	temp := filepath.Join(dir, tempName)
	if err := os.MkdirAll(filepath.Join(temp, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := l.Reduce(t0.Add(1))
	mustRefuse(t, "no place for the new file", err)
	if err := os.RemoveAll(temp); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); !reflect.DeepEqual(got, before) {
		t.Errorf("%q", got)
	}
	// The new file is gone when it is to take its place.
	if err := l.replace(filepath.Join(dir, "absent"), FileName); err == nil {
		t.Fatal("a file that is not there took the place of the log")
	}
	if got := files(t, dir); !reflect.DeepEqual(got, before) {
		t.Errorf("%q", got)
	}
	mustWrite(t, l, lineOf("b"))
	mustHave(t, "after failures", dir, 0, othersLine("a", t0), lineOf("b"))
	if n, err := l.Reduce(t0.Add(1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	mustHave(t, "mended", dir, 0, reduced(othersLine("a", t0)), lineOf("b"))
}

// TestCrashWhileReducing: whatever a crash left beside the log is no part of it, and
// its prompts do not stay.
func TestCrashWhileReducing(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, maxFile)
	mustWrite(t, l, othersLine("a", t0), lineOf("b"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole := files(t, dir)[FileName]
	for _, cut := range []int{0, 10, len(whole)} {
		if err := os.WriteFile(filepath.Join(dir, tempName), []byte(whole[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		mustHave(t, "after the crash", dir, 0, othersLine("a", t0), lineOf("b"))
		l := mustOpen(t, dir, maxFile)
		if got := files(t, dir); len(got) != 1 || got[FileName] != whole {
			t.Errorf("cut at %d: %q", cut, got)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l = mustOpen(t, dir, maxFile)
	if n, err := l.Reduce(t0.Add(1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	mustHave(t, "the next time", dir, 0, reduced(othersLine("a", t0)), lineOf("b"))
}

// TestReduceWhileWriting: no line that is written meanwhile is lost, also where
// files rotate.
func TestReduceWhileWriting(t *testing.T) {
	const writers, each = 4, 20
	dir := t.TempDir()
	l := mustOpen(t, dir, 100_000)
	var writing, reducing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				line := othersLine(ai.JobID(fmt.Sprint(w, " ", i)), t0)
				line.SetPrompt(strings.Repeat("x", 2000), 1, true)
				if err := l.Write(line); err != nil {
					t.Error(err)
				}
			}
		})
	}
	stop := make(chan struct{})
	reducing.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := l.Reduce(t0.Add(1)); err != nil {
				t.Error(err)
			}
		}
	})
	writing.Wait()
	close(stop)
	reducing.Wait()
	if _, err := l.Reduce(t0.Add(1)); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	got, damaged := read(t, dir)
	for _, line := range got {
		var w, i int
		if _, err := fmt.Sscan(string(line.JobID), &w, &i); err != nil || line.Prompt != "" || i != next[fmt.Sprint(w)] {
			t.Errorf("line %q comes when %d should, with %.20q", line.JobID, next[fmt.Sprint(w)], line.Prompt)
		}
		next[fmt.Sprint(w)] = i + 1
	}
	if damaged != 0 || len(got) != writers*each {
		t.Errorf("%d lines, %d damaged", len(got), damaged)
	}
}

// TestReduceHugeLine: a line that nobody can read passes through in little memory.
func TestReduceHugeLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	l := mustOpen(t, dir, math.MaxInt64)
	mustWrite(t, l, othersLine("a", t0))
	const size = maxLine + 100<<10
	if err := os.Truncate(path, size); err != nil { // zeros that take no room
		t.Skip(err)
	}
	mustWrite(t, l, othersLine("b", t0))
	before := files(t, dir)[FileName]
	if n, err := l.Reduce(t0.Add(1)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	after := files(t, dir)[FileName]
	if want := strings.ReplaceAll(before, `,"prompt":"`+canary+`"`, ""); after != want {
		t.Errorf("%d bytes, want %d", len(after), len(want))
	}
}

// TestID: a line keeps its name when its prompt goes, and no two lines share one.
func TestID(t *testing.T) {
	line := othersLine("a", t0)
	if line.ID() != reduced(line).ID() || len(line.ID()) != 16 {
		t.Errorf("%s, then %s", line.ID(), reduced(line).ID())
	}
	seen := map[string]bool{}
	for _, l := range []Line{line, othersLine("b", t0), othersLine("a", t0.Add(1)), {Type: TypeOutcome, JobID: "a", At: t0}, {}} {
		if seen[l.ID()] {
			t.Errorf("%+v has another's name", l)
		}
		seen[l.ID()] = true
	}
	if got := (Line{JobID: "\xff"}).ID(); len(got) != 16 {
		t.Errorf("a line of no text is named %q", got)
	}
}

func FuzzReduce(f *testing.F) {
	f.Add([]byte("\n{\"type\":\"prompt\",\"prompt\":\"x\",\"audience\":\"public\"}\n"), []byte("{"))
	f.Add([]byte("{\"type\":\"prompt\",\"at\":\"2026-07-31T12:00:00Z\",\"x\":{\"prompt\":\"\\u2028\"},\"prompt\":\"y\"}\r\n\n\x00"), []byte("\n"))
	f.Fuzz(func(t *testing.T, older, newer []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{OlderName: older, FileName: newer} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, damaged := read(t, dir)
		changed := 0
		for i, line := range want {
			if line.Prompt != "" && !line.Own && line.Audience != ai.AudienceSelf && line.At.Before(t0) {
				want[i].Prompt = ""
				changed++
			}
		}
		n, err := mustOpen(t, dir, math.MaxInt64).Reduce(t0)
		if err != nil || n != changed {
			t.Fatalf("%d reduced of %d, %v", n, changed, err)
		}
		got, now := read(t, dir)
		if now != damaged || !slices.EqualFunc(got, want, func(a, b Line) bool { return reflect.DeepEqual(a, b) }) {
			t.Fatalf("%+v and %d damaged\nwant %+v and %d", got, now, want, damaged)
		}
		if changed == 0 {
			for name, content := range map[string][]byte{OlderName: older, FileName: newer} {
				if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(now, content) {
					t.Fatalf("%s changed for nothing: %v", name, err)
				}
			}
		}
	})
}
