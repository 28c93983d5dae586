package tty

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// What a terminal is told. It takes a frame as a whole where it knows the first of
// them, and never breaks a line that is wider than it is.
const (
	enter  = "\x1b[?2026h\x1b[?25l"
	leave  = "\x1b[?25h\x1b[?2026l"
	noWrap = "\x1b[?7l"
	wrap   = "\x1b[?7h"
	erase  = "\x1b[J" // from here to the end
)

// Screen is a terminal in use. It may be used by several goroutines.
type Screen struct {
	to      io.Writer
	size    func() (columns, rows int, ok bool)
	restore func()

	mu sync.Mutex
	// lines are what is drawn now, for a terminal of so many columns.
	lines   []string
	columns int
}

// Open takes a terminal for drawing. It reports false for a file that is none, or
// that does not do what it is told.
func Open(f *os.File) (*Screen, bool) {
	if _, _, ok := sizeOf(f); !ok {
		return nil, false
	}
	restore, ok := prepare(f)
	if !ok {
		return nil, false
	}
	return &Screen{to: f, size: func() (int, int, bool) { return sizeOf(f) }, restore: restore}, true
}

// Size is how large the terminal is now, in columns and rows. A terminal that does
// not know has 80 and 24.
func (s *Screen) Size() (columns, rows int) {
	columns, rows, ok := s.size()
	if !ok || columns < 1 || rows < 1 {
		return 80, 24
	}
	return columns, rows
}

// Show draws lines in the place of those that were drawn before. None may be wider
// than the terminal, or end it in any way; see [Cell]. There must be fewer than the
// terminal has rows.
func (s *Screen) Show(lines []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	columns, _ := s.Size()
	if slices.Equal(lines, s.lines) && columns == s.columns {
		return nil
	}
	return s.draw(nil, lines, columns)
}

// Write writes whole lines above what is drawn.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines) == 0 {
		return s.to.Write(p)
	}
	columns, _ := s.Size()
	if err := s.draw(p, s.lines, columns); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close takes what is drawn away. The screen only passes on what is written from
// then on.
func (s *Screen) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	columns, _ := s.Size()
	err := s.draw(nil, nil, columns)
	s.restore()
	return err
}

// draw writes one frame. The caller holds the lock.
func (s *Screen) draw(above []byte, lines []string, columns int) error {
	var b bytes.Buffer
	b.WriteString(enter + "\r")
	// A terminal that became narrower or wider may have broken its lines anew. Nobody
	// can tell where the old ones are now, so they stay.
	if n := len(s.lines); n > 0 && columns == s.columns {
		fmt.Fprintf(&b, "\x1b[%dA", n)
	}
	b.WriteString(erase)
	b.Write(above)
	if len(above) > 0 && above[len(above)-1] != '\n' {
		b.WriteByte('\n')
	}
	b.WriteString(noWrap)
	for _, l := range lines {
		b.WriteString(l + "\r\n")
	}
	b.WriteString(wrap + leave)
	s.lines, s.columns = slices.Clone(lines), columns
	_, err := s.to.Write(b.Bytes())
	return err
}
