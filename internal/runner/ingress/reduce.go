package ingress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/killpoint"
)

// Reduce takes the text out of other people's prompts that were logged before a
// time, and says out of how many. Their hashes stay, and so does every other byte
// of the log, lines that cannot be read among them. Lines that are written
// meanwhile wait. A crash leaves each file as it was or as it is to be. It returns
// [ErrLog], and then the rest is reduced the next time.
func (l *Log) Reduce(before time.Time) (reduced int, err error) {
	// Most days have nothing to reduce, and then no job waits.
	due := false
	if _, err := Read(l.dir, func(line Line) { due = due || isDue(line, before) }); err != nil || !due {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, ErrLog
	}
	for _, name := range []string{OlderName, FileName} {
		n, err := l.reduceFile(name, before)
		reduced += n
		if err != nil {
			return reduced, err
		}
	}
	return reduced, nil
}

// isDue reports whether a line has a text that is to go.
func isDue(l Line, before time.Time) bool {
	return l.Prompt != "" && !l.IsOwn() && l.At.Before(before)
}

// reduceFile reduces one file, if there is anything to reduce in it.
func (l *Log) reduceFile(name string, before time.Time) (reduced int, err error) {
	in, err := os.Open(filepath.Join(l.dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, ErrLog.Because(err)
	}
	defer in.Close()
	if err := l.removeTemp(); err != nil {
		return 0, err
	}
	temp := filepath.Join(l.dir, tempName)
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, ErrLog.Because(err)
	}
	reduced, err = copyReduced(out, in, before)
	if err == nil {
		err = out.Sync()
	}
	err = errors.Join(err, out.Close())
	_ = in.Close() // some systems do not rename onto a file that is open
	if err == nil && reduced > 0 {
		killpoint.At(killpoint.AgentLogReduced)
		err = l.replace(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
		return 0, ErrLog.Because(err)
	}
	if reduced == 0 {
		return 0, l.removeTemp()
	}
	return reduced, nil
}

// replace puts a new file in the place of one of the log's.
func (l *Log) replace(temp, name string) error {
	if name == FileName && l.file != nil {
		_ = l.file.Close() // its lines are on the disk
		l.file, l.size = nil, 0
	}
	err := os.Rename(temp, filepath.Join(l.dir, name))
	if err == nil {
		err = datadir.Sync(l.dir)
	}
	if name == FileName {
		err = errors.Join(err, l.open()) // else the next line tries again
	}
	return err
}

func (l *Log) removeTemp() error {
	if err := os.Remove(filepath.Join(l.dir, tempName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ErrLog.Because(err)
	}
	return nil
}

// copyReduced copies lines and leaves out the texts that are to go.
func copyReduced(to io.Writer, from io.Reader, before time.Time) (reduced int, err error) {
	in, out := bufio.NewReaderSize(from, 64<<10), bufio.NewWriterSize(to, 64<<10)
	var text []byte
	tooLong := false
	for {
		part, err := in.ReadSlice('\n')
		switch {
		case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull):
			return 0, err
		case tooLong:
			_, _ = out.Write(part) // Flush returns its error
		default:
			if text = append(text, part...); len(text) > maxLine+1 { // nobody reads it
				tooLong = true
				_, _ = out.Write(text)
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !tooLong {
			less, ok := reduceLine(text, before)
			if ok {
				reduced++
			}
			_, _ = out.Write(less)
		}
		text, tooLong = text[:0], false
		if err != nil {
			return reduced, out.Flush()
		}
	}
}

// reduceLine is a line without its prompt, if that is to go, and else the same.
func reduceLine(text []byte, before time.Time) (less []byte, reduced bool) {
	var line Line
	if json.Unmarshal(text, &line) != nil || line.Type != TypePrompt && line.Type != TypeOutcome || !isDue(line, before) {
		return text, false
	}
	less, err := withoutPrompt(text)
	if err != nil {
		return text, false
	}
	return less, true
}

// withoutPrompt is the line of an object without its member prompt. What a later
// version wrote into it stays.
func withoutPrompt(text []byte) ([]byte, error) {
	in := jsontext.NewDecoder(bytes.NewReader(text))
	var out bytes.Buffer
	to := jsontext.NewEncoder(&out, jsontext.PreserveRawStrings(true))
	begin, err := in.ReadToken()
	if err == nil {
		err = to.WriteToken(begin)
	}
	for err == nil && in.PeekKind() != jsontext.KindEndObject {
		var name, value jsontext.Value
		if name, err = in.ReadValue(); err != nil {
			break
		}
		name = bytes.Clone(name)
		if value, err = in.ReadValue(); err != nil {
			break
		}
		var member string
		if err = json.Unmarshal(name, &member); err == nil && member != "prompt" {
			if err = to.WriteValue(name); err == nil {
				err = to.WriteValue(value)
			}
		}
	}
	if err == nil {
		err = to.WriteToken(jsontext.EndObject)
	}
	return out.Bytes(), err
}
