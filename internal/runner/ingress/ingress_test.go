package ingress

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

var t0 = time.UnixMilli(1785499200123).UTC()

// lineOf is the prompt line of a job.
func lineOf(job ai.JobID) Line {
	l := Line{
		Type: TypePrompt, At: t0, Server: "https://app.example", JobID: job, Site: "BYOLLM-1", Kind: ai.KindGenerate,
		Audience: ai.AudienceSelf, Owner: "alice", Backend: "ollama", Model: "m",
	}
	l.SetPrompt("Why is the sky blue?", 20, true)
	return l
}

func mustOpen(t testing.TB, dir string, max int64) *Log {
	t.Helper()
	l, err := open(dir, max)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustWrite(t testing.TB, l *Log, lines ...Line) {
	t.Helper()
	for _, line := range lines {
		if err := l.Write(line); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, dir string) (lines []Line, damaged int) {
	t.Helper()
	damaged, err := Read(dir, func(l Line) { lines = append(lines, l) })
	if err != nil {
		t.Fatal(err)
	}
	return lines, damaged
}

// mustHave fails unless the log holds these lines, and that many damaged ones.
func mustHave(t testing.TB, what, dir string, damaged int, want ...Line) {
	t.Helper()
	got, bad := read(t, dir)
	if bad != damaged || len(got) != len(want) {
		t.Errorf("%s: %d lines and %d damaged, want %d and %d", what, len(got), bad, len(want), damaged)
		return
	}
	for i, w := range want {
		if !reflect.DeepEqual(got[i], w) {
			t.Errorf("%s: line %d is %.300v\nwant %.300v", what, i, got[i], w)
		}
	}
}

func jobs(lines []Line) (list []ai.JobID) {
	for _, l := range lines {
		list = append(list, l.JobID)
	}
	return list
}

func mustRefuse(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrLog) {
		t.Errorf("%s: %v, want %s", what, err, ErrLog.Name())
	}
}

// TestWriteIsSeenAtOnce: what was written is in the file when Write returns, as
// one line.
func TestWriteIsSeenAtOnce(t *testing.T) {
	dir := t.TempDir()
	mustHave(t, "no log", dir, 0)
	l := mustOpen(t, dir, maxFile)
	mustHave(t, "a new log", dir, 0)
	outcome := Line{Type: TypeOutcome, At: t0.Add(time.Second), Server: "https://app.example", JobID: "a", Outcome: "error", DurationMs: 1000, OutputUnits: 7, Detail: "timeout"}
	var want []Line
	for _, line := range []Line{lineOf("a"), outcome, {Type: TypeOutcome}, lineOf("b")} {
		mustWrite(t, l, line)
		want = append(want, line)
		content, err := os.ReadFile(filepath.Join(dir, FileName))
		if err != nil || !bytes.HasSuffix(content, []byte("}\n")) || bytes.Count(content, []byte("\n")) != 2*len(want) {
			t.Fatalf("%q, %v", content, err)
		}
		mustHave(t, string(line.JobID), dir, 0, want...)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, "writing after the end", l.Write(lineOf("c")))
	if err := l.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	l = mustOpen(t, dir, maxFile)
	mustWrite(t, l, lineOf("c"))
	mustHave(t, "after a restart", dir, 0, append(want, lineOf("c"))...)
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestSetPrompt(t *testing.T) {
	sum := sha256.Sum256([]byte("text"))
	for _, keep := range []bool{true, false} {
		var l Line
		l.SetPrompt("text", 4, keep)
		want := Line{PromptHash: hex.EncodeToString(sum[:]), PromptUnits: 4}
		if keep {
			want.Prompt = "text"
		}
		if l != want {
			t.Errorf("kept %v: %+v", keep, l)
		}
	}
	dir := t.TempDir()
	line := lineOf("a")
	line.Prompt = ""
	line.SetPrompt("canarybird", 10, false)
	mustWrite(t, mustOpen(t, dir, maxFile), line)
	content, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil || bytes.Contains(content, []byte("canarybird")) || !bytes.Contains(content, []byte(line.PromptHash)) {
		t.Errorf("%s, %v", content, err)
	}
}

// hostile are prompts that want to be two lines, or none.
var hostile = map[string]string{
	"line feeds": "a\nb\r\nc\n\n", "another line": "\"}\n{\"type\":\"outcome\",\"jobId\":\"forged\"}\n", "controls": "\x00\x01\x1b[2J\x7f\u0085\u009b",
	"separators": "a\u2028b\u2029c", "a mark": "\ufeffa", "quotes": `"\"\\"`, "script": "</script>&amp;", "not a character": "\uffff\U0010ffff", "replaced": "\ufffd",
	"pairs": "😀", "other way": "\u202egnp.exe", "empty": "", "JSON": `{"type":"prompt"}`, "an escape": `\n\u000a`,
}

func TestHostileTexts(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, maxFile)
	var want []Line
	for what, text := range hostile {
		line := lineOf(ai.JobID(text))
		line.Server, line.Owner, line.Model, line.Detail, line.Outcome = text, ai.Owner(text), text, text, text
		line.SetPrompt(text, len(text), true)
		mustWrite(t, l, line)
		want = append(want, line)
		mustHave(t, what, dir, 0, want...)
	}
	content, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil || bytes.Count(content, []byte("\n")) != 2*len(want) {
		t.Errorf("%d lines for %d: %v", bytes.Count(content, []byte("\n")), len(want), err)
	}
}

// TestNoTextStopsTheLog: a name that is no text at all, as a model server could
// give one, is logged with its bad bytes replaced.
func TestNoTextStopsTheLog(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, maxFile)
	line := lineOf("a")
	line.Model, line.Prompt = "m\xff\xc3", "\xed\xa0\x80"
	mustWrite(t, l, line)
	line.Model, line.Prompt = "m\ufffd\ufffd", "\ufffd\ufffd\ufffd"
	mustHave(t, "bad bytes", dir, 0, line)
}

func TestLinesRoundTrip(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, math.MaxInt64)
	text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.Rune()), rapid.StringMatching(`[\n\r\x00"\\{}\x{2028}]*`))
	written := 0
	rapid.Check(t, func(t *rapid.T) {
		line := Line{
			Type: rapid.SampledFrom([]Type{TypePrompt, TypeOutcome}).Draw(t, "type"), At: t0.Add(time.Duration(rapid.Int64Range(-1e18, 1e18).Draw(t, "at"))),
			Server: text.Draw(t, "server"), JobID: ai.JobID(text.Draw(t, "job")), Owner: ai.Owner(text.Draw(t, "owner")), Model: text.Draw(t, "model"),
			DurationMs: rapid.Int64().Draw(t, "took"), OutputUnits: rapid.Int().Draw(t, "units"), Detail: text.Draw(t, "detail"),
		}
		line.SetPrompt(text.Draw(t, "prompt"), rapid.Int().Draw(t, "prompt units"), true)
		if err := l.Write(line); err != nil {
			t.Fatal(err)
		}
		written++
		var last Line
		n := 0
		damaged, err := Read(dir, func(l Line) { last = l; n++ })
		if err != nil || damaged != 0 || n != written || !reflect.DeepEqual(last, line) {
			t.Fatalf("%d damaged, %d of %d, %v: %+v\nwant %+v", damaged, n, written, err, last, line)
		}
	})
}

// TestLargestPrompt: the line of the largest payload is written and read, even
// where each character takes the most room.
func TestLargestPrompt(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, maxFile)
	line := lineOf("a")
	line.SetPrompt(strings.Repeat("\x01", ai.MaxPayloadUnits), ai.MaxPayloadUnits, true)
	mustWrite(t, l, line, lineOf("b"))
	mustHave(t, "large", dir, 0, line, lineOf("b"))
	// What could not be read again is not written.
	line.SetPrompt(strings.Repeat("\x01", maxLine/6), 1, true)
	mustRefuse(t, "too large", l.Write(line))
	mustWrite(t, l, lineOf("c"))
	if got, damaged := read(t, dir); damaged != 0 || !slices.Equal(jobs(got), []ai.JobID{"a", "b", "c"}) {
		t.Errorf("%v, %d damaged", jobs(got), damaged)
	}
}

// TestCutLines: a line that a crash cut, wherever, costs that line alone.
func TestCutLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	l := mustOpen(t, dir, maxFile)
	mustWrite(t, l, lineOf("a"))
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	first := info.Size()
	mustWrite(t, l, lineOf("b"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(len(whole))
	for cut := first; cut < end; cut++ {
		if cut > first+3 && cut < end-3 && cut%11 != 0 {
			continue // the middle is alike
		}
		for _, tail := range []string{"", strings.Repeat("\x00", 100), "\xff"} {
			if err := os.WriteFile(path, append(slices.Clone(whole[:cut]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			l := mustOpen(t, dir, maxFile)
			mustWrite(t, l, lineOf("c"), lineOf("d"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			got, damaged := read(t, dir)
			list := jobs(got)
			complete := cut == int64(len(whole))-1 && tail == "" // but for its line feed
			want := 1
			if tail == "" && cut <= first+1 || complete {
				want = 0
			}
			if damaged != want {
				t.Errorf("cut at %d with %q: %d damaged", cut, tail, damaged)
			}
			if complete {
				list = slices.DeleteFunc(list, func(j ai.JobID) bool { return j == "b" })
			}
			if !slices.Equal(list, []ai.JobID{"a", "c", "d"}) {
				t.Fatalf("cut at %d with %q: %v", cut, tail, jobs(got))
			}
		}
	}
}

func TestDamagedLines(t *testing.T) {
	dir := t.TempDir()
	good := `{"type":"prompt","at":"2026-07-31T12:00:00Z","server":"s","jobId":"a"}`
	for text, want := range map[string]struct{ lines, damaged int }{
		"":                                       {0, 0},
		"\n\n\n":                                 {0, 0},
		good:                                     {1, 0},
		good + "\n" + good:                       {2, 0},
		good + "\r\n" + good:                     {2, 0},
		good + " x\n" + good:                     {1, 1},
		good + good + "\n" + good:                {1, 1},
		"{\n" + good + "\n}":                     {1, 2},
		"null\n[]\n1\n\"x\"\n{}\n" + good:        {1, 5},
		`{"type":"other"}` + "\n" + good:         {1, 1},
		`{"TYPE":"prompt"}`:                      {0, 1},
		`{"type":"prompt","type":"prompt"}`:      {0, 1},
		`{"type":"prompt","promptUnits":"many"}`: {0, 1},
		`{"type":"prompt","at":"yesterday"}`:     {0, 1},
		"{\"type\":\"prompt\",\"model\":\"\xff\"}\n" + good:        {1, 1},
		`{"type":"outcome","of a later version":{"a":[1]}}` + "\n": {1, 0},
		strings.Repeat("[", 100_000) + "\n" + good:                 {1, 1},
		strings.Repeat("\x00", 70<<10) + "\n" + good:               {1, 1},
	} {
		for _, name := range []string{FileName, OlderName} {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, damaged := read(t, dir)
			if len(got) != want.lines || damaged != want.damaged {
				t.Errorf("%.60q: %d lines and %d damaged, want %+v", text, len(got), damaged, want)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{FileName, OlderName} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Read(dir, func(Line) {})
		mustRefuse(t, "a folder instead of "+name, err)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHugeLine: a file that is one endless line is read past in little memory.
func TestHugeLine(t *testing.T) {
	const size = 256 << 20
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	l := mustOpen(t, dir, math.MaxInt64)
	mustWrite(t, l, lineOf("a"))
	if err := os.Truncate(path, size); err != nil { // zeros that take no room
		t.Skip(err)
	}
	mustWrite(t, l, lineOf("b"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, damaged := read(t, dir)
	runtime.ReadMemStats(&after)
	if damaged != 1 || !slices.Equal(jobs(got), []ai.JobID{"a", "b"}) {
		t.Errorf("%v, %d damaged", jobs(got), damaged)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 6*maxLine {
		t.Errorf("%d MiB were used for a line of %d", used>>20, size>>20)
	}
}

// TestRotation: at its bound the file becomes the older one, and no more than
// two are kept.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	one := lineOf("00")
	l := mustOpen(t, dir, math.MaxInt64)
	mustWrite(t, l, one)
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	max := 3 * info.Size() // three lines fit, to the byte
	l = mustOpen(t, dir, max)
	want := []ai.JobID{"00"}
	for i := 1; i < 20; i++ {
		job := ai.JobID(fmt.Sprintf("%02d", i))
		mustWrite(t, l, lineOf(job))
		want = append(want, job)
		kept := want[max3(i)*3:] // this file and the one before it
		if got, damaged := read(t, dir); damaged != 0 || !slices.Equal(jobs(got), kept) {
			t.Fatalf("after %d lines: %v, %d damaged, want %v", i+1, jobs(got), damaged, kept)
		}
		for _, name := range []string{FileName, OlderName} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Size() > max {
				t.Fatalf("%s has %d bytes", name, info.Size())
			}
		}
		if i%4 == 0 { // the size is known after a restart too
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, dir, max)
		}
	}
	// A line larger than a file still is written, alone.
	large := lineOf("large")
	large.SetPrompt(strings.Repeat("x", int(max)), 1, true)
	mustWrite(t, l, large)
	got, _ := read(t, dir)
	if last := got[len(got)-1]; last.JobID != "large" {
		t.Errorf("the last line is %s", last.JobID)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// max3 is how many files of three lines are gone when the line i is written.
func max3(i int) int { return max(i/3-1, 0) }

// TestRotationFails: a log that cannot rotate refuses, and goes on when it can.
func TestRotationFails(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, 1)
	mustWrite(t, l, lineOf("a"))
	older := filepath.Join(dir, OlderName)
	if err := os.MkdirAll(filepath.Join(older, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		mustRefuse(t, "rotating onto a folder", l.Write(lineOf("b")))
	}
	if err := os.RemoveAll(older); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, l, lineOf("c"))
	mustHave(t, "mended", dir, 0, lineOf("a"), lineOf("c"))
	// The file may be gone when it is to rotate.
	if err := os.Remove(filepath.Join(dir, FileName)); err != nil {
		t.Skip(err)
	}
	mustWrite(t, l, lineOf("d"))
	mustHave(t, "the file was removed", dir, 0, lineOf("a"), lineOf("d"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, "after the end", l.Write(lineOf("e")))
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "absent"))
	mustRefuse(t, "no folder", err)
	if err := os.Mkdir(filepath.Join(dir, FileName), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(dir)
	mustRefuse(t, "a folder", err)
	if l != nil {
		t.Error("an error came with a log")
	}
	if strings.Contains(refusal.Terminal(err), dir) {
		t.Errorf("the refusal holds a path: %v", err)
	}
}

// TestManyWriters: lines of several goroutines stay whole, and all are there.
func TestManyWriters(t *testing.T) {
	const writers, each = 8, 20
	dir := t.TempDir()
	l := mustOpen(t, dir, 200_000)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				line := lineOf(ai.JobID(fmt.Sprint(w, " ", i)))
				line.SetPrompt(strings.Repeat(fmt.Sprint(w), 1000+i), 1, true)
				if err := l.Write(line); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 { // others read meanwhile, and may see a line that is not whole yet
		if _, err := Read(dir, func(Line) {}); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
	if _, err := os.Stat(filepath.Join(dir, OlderName)); err != nil {
		t.Error("nothing rotated")
	}
	next := map[string]int{}
	got, damaged := read(t, dir)
	for _, line := range got {
		var w, i int
		if _, err := fmt.Sscan(string(line.JobID), &w, &i); err != nil || line.Prompt != strings.Repeat(fmt.Sprint(w), 1000+i) {
			t.Fatalf("%s has %s", line.JobID, line.Prompt)
		}
		if i != next[fmt.Sprint(w)] {
			t.Errorf("line %d of writer %d comes when %d should", i, w, next[fmt.Sprint(w)])
		}
		next[fmt.Sprint(w)]++
	}
	if damaged != 0 || len(got) != writers*each {
		t.Errorf("%d lines, %d damaged", len(got), damaged)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\n{\"type\":\"prompt\"}\n"), []byte("{"))
	f.Add([]byte("{\"type\":\"prompt\",\"prompt\":\"\\u2028\"}"), []byte("\x00\n\n"))
	f.Fuzz(func(t *testing.T, older, newer []byte) {
		dir := t.TempDir()
		for name, content := range map[string][]byte{OlderName: older, FileName: newer} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before, damaged := read(t, dir)
		// Whatever is there, a new line is read, and nothing else changes but for a
		// cut line that counts as one.
		mustWrite(t, mustOpen(t, dir, math.MaxInt64), lineOf("new"))
		after, now := read(t, dir)
		if now != damaged || len(after) != len(before)+1 || !reflect.DeepEqual(after[len(before)], lineOf("new")) {
			t.Fatalf("%d lines and %d damaged, then %d and %d", len(before), damaged, len(after), now)
		}
	})
}
