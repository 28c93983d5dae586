package tty

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCell(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"", 3, "   "}, {"abc", 3, "abc"}, {"abc", 5, "abc  "}, {"abcd", 3, "ab…"}, {"abcd", 1, "…"}, {"abcd", 0, ""}, {"", 0, ""}, {"a", -1, ""},
		{"世界", 4, "世界"}, {"世界", 5, "世界 "}, {"世界", 3, "世…"}, {"世界", 2, "… "}, {"世界", 1, "…"}, {"a世界", 3, "a… "}, {"ｆｕ", 4, "ｆｕ"}, {"😀😀", 3, "😀…"},
		{"e\u0301e\u0301", 2, "e\u0301e\u0301"}, {"e\u0301e\u0301e", 2, "e\u0301…"}, {"\u0301a", 2, "a "}, {"a" + strings.Repeat("\u0301", 50) + "b", 3, "a\u0301\u0301\u0301b "},
		{"a\u200bb\u200db\ufeff\u2060", 4, "abb "}, {"a\u202egnp\u202c", 5, "agnp "}, {"\u2066a\u2069", 2, "a "}, {"\u00ad", 1, " "}, {"☺\ufe0f", 2, "☺ "}, {"a\U000e0041", 2, "a "},
		{"a\x1b[2Jb", 6, "a\ufffd[2Jb"}, {"a\nb\rc\td", 7, "a b c d"}, {"\x00\x7f\u009b", 3, "\ufffd\ufffd\ufffd"}, {"\u2028\u3000\u0085", 3, "   "}, {"\xff", 2, "\ufffd "}, {"\ue000", 1, "\ufffd"},
		{"नि", 3, "नि "},
	} {
		if got := Cell(c.text, c.columns); got != c.want {
			t.Errorf("%q in %d columns is %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

// columnsIn counts the columns of a text as a terminal would, without the code that
// is tested.
func columnsIn(text string) (n int) {
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me):
		default:
			n += columnsOf(r)
		}
	}
	return n
}

// TestCellFits: a cell has its columns, whatever is in it, and nothing in it moves.
func TestCellFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.Rune()), rapid.StringMatching("[a世\u0301\u200b\u202e\ufe0f\x1b😀 ]*")).Draw(t, "text")
		columns := rapid.IntRange(0, 40).Draw(t, "columns")
		got := Cell(text, columns)
		if n := columnsIn(got); n != columns {
			t.Fatalf("%q in %d columns is %q, which has %d", text, columns, got, n)
		}
		marks := 0
		for _, r := range got {
			if r != ' ' && !unicode.IsPrint(r) {
				t.Fatalf("%q is %q", text, got)
			}
			if marks++; !unicode.In(r, unicode.Mn, unicode.Me) {
				marks = 0
			} else if marks > maxMarks {
				t.Fatalf("%q has %d marks on one character", got, marks)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is %q", text, got)
		}
	})
}

// emulator is what a terminal makes of what is written to it: rows of text, of
// which some may have scrolled away. It knows what frames are made of, and nothing
// else.
type emulator struct {
	rows  []string
	at    int
	modes map[string]bool
	t     interface{ Fatalf(string, ...any) }
}

var control = regexp.MustCompile(`^\x1b\[(\??)(\d*)([A-Za-z])`)

func (e *emulator) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		if m := control.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			n, _ := strconv.Atoi(m[2])
			switch {
			case m[1] == "?":
				e.modes[m[2]] = m[3] == "h"
			case m[3] == "A":
				e.at = max(e.at-n, 0)
			case m[0] == "\x1b[J":
				e.rows = e.rows[:min(e.at, len(e.rows))]
			default:
				e.t.Fatalf("a terminal is told %q", m[0])
			}
			continue
		}
		line, rest, whole := strings.Cut(text, "\n")
		if !whole {
			if i := strings.IndexByte(text, '\x1b'); i > 0 && text[:i] == "\r" {
				text = text[i:]
				continue
			}
			e.t.Fatalf("a line without an end: %q", text)
		}
		line = strings.TrimPrefix(line, "\r")
		if i := strings.IndexByte(line, '\x1b'); i >= 0 {
			if i > 0 {
				e.t.Fatalf("%q before a control", line[:i])
			}
			if m := control.FindString(line); m == "" {
				e.t.Fatalf("no control: %q", line)
			}
			text = line + "\n" + rest
			continue
		}
		for len(e.rows) <= e.at {
			e.rows = append(e.rows, "")
		}
		e.rows[e.at] = strings.TrimSuffix(line, "\r")
		e.at++
		text = rest
	}
	return len(p), nil
}

func newEmulator(t interface{ Fatalf(string, ...any) }) (*emulator, *Screen) {
	e := &emulator{modes: map[string]bool{}, t: t}
	return e, &Screen{to: e, size: func() (int, int, bool) { return 80, 24, true }, restore: func() {}}
}

// TestFrames has each frame to the byte.
func TestFrames(t *testing.T) {
	var b bytes.Buffer
	columns := 80
	restored := false
	s := &Screen{to: &b, size: func() (int, int, bool) { return columns, 24, true }, restore: func() { restored = true }}
	frame := func(what, want string, do func() error) {
		t.Helper()
		b.Reset()
		if err := do(); err != nil || b.String() != want {
			t.Errorf("%s: %q, %v\nwant %q", what, b.String(), err, want)
		}
	}
	log := func(text string) func() error {
		return func() error { _, err := s.Write([]byte(text)); return err }
	}
	show := func(lines ...string) func() error { return func() error { return s.Show(lines) } }
	const on, off = "\x1b[?2026h\x1b[?25l\r", "\x1b[?7h\x1b[?25h\x1b[?2026l"
	frame("before anything is drawn", "one\n", log("one\n"))
	frame("the first", on+"\x1b[J\x1b[?7la\r\nb\r\n"+off, show("a", "b"))
	frame("the same", "", show("a", "b"))
	frame("the second", on+"\x1b[2A\x1b[J\x1b[?7lc\r\n"+off, show("c"))
	frame("a line above", on+"\x1b[1A\x1b[Jtwo\n\x1b[?7lc\r\n"+off, log("two\n"))
	frame("a line without an end", on+"\x1b[1A\x1b[Jthree\n\x1b[?7lc\r\n"+off, log("three"))
	columns = 40
	frame("a narrower terminal", on+"\x1b[J\x1b[?7lc\r\n"+off, show("c"))
	frame("and the next", on+"\x1b[1A\x1b[J\x1b[?7ld\r\n"+off, show("d"))
	frame("the end", on+"\x1b[1A\x1b[J\x1b[?7l"+off, s.Close)
	frame("after the end", "four\n", log("four\n"))
	if !restored {
		t.Error("the console was not restored")
	}
}

// TestScreen: lines that pass above stay whole and in their order, the view is
// below them, and every mode is as it was after each frame.
func TestScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, s := newEmulator(t)
		var above, below []string
		for i := range rapid.IntRange(1, 30).Draw(t, "frames") {
			if rapid.Bool().Draw(t, "a line") {
				for j := range rapid.IntRange(1, 3).Draw(t, "lines") {
					above = append(above, fmt.Sprint("log ", i, j))
				}
				if _, err := s.Write([]byte(strings.Join(above[len(e.rows)-len(below):], "\n") + "\n")); err != nil {
					t.Fatal(err)
				}
			} else {
				below = nil
				for j := range rapid.IntRange(0, 5).Draw(t, "view") {
					below = append(below, fmt.Sprint("view ", i, j))
				}
				if err := s.Show(below); err != nil {
					t.Fatal(err)
				}
			}
			if want := slices.Concat(above, below); !slices.Equal(e.rows, want) {
				t.Fatalf("%q\nwant %q", e.rows, want)
			}
			for mode, on := range e.modes {
				if on != (mode != "2026") {
					t.Fatalf("mode %s is left %v", mode, on)
				}
			}
		}
		if err := s.Close(); err != nil || !slices.Equal(e.rows, above) {
			t.Fatalf("at the end %q, %v", e.rows, err)
		}
	})
}

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, errors.New("gone") }

// TestTerminalThatIsGone: who draws hears of it.
func TestTerminalThatIsGone(t *testing.T) {
	s := &Screen{to: gone{}, size: func() (int, int, bool) { return 0, 0, true }, restore: func() {}}
	if columns, rows := s.Size(); columns != 80 || rows != 24 {
		t.Errorf("a terminal of no size has %d and %d", columns, rows)
	}
	if s.Show([]string{"a"}) == nil {
		t.Error("drawn")
	}
	if n, err := s.Write([]byte("b\n")); err == nil || n != 0 {
		t.Errorf("%d bytes written", n)
	}
}

// TestNoTerminal: a file is none.
func TestNoTerminal(t *testing.T) {
	f, err := openTemp(t)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, ok := Open(f); ok {
		t.Error("a file was taken for a terminal")
	}
}

func openTemp(t *testing.T) (*os.File, error) { return os.Create(filepath.Join(t.TempDir(), "file")) }
