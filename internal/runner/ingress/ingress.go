// Package ingress is the owner's own log of what ran on the machine and for
// whom, written before it runs (MUST INGRESS_LOGGED_BEFORE_EXECUTION).
//
// The log is a file of JSON lines that only this user can read. A prompt line is
// on the disk before the model sees the prompt; an outcome line follows. The log
// keeps what an owner needs to answer for the machine, prompts included, and
// rotates once: a file that is full becomes the older one. The text of other
// people's prompts leaves it after some days, and its hash stays.
//
// The package refuses to send anything anywhere.
package ingress

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// ErrLog refuses to go on without a log.
var ErrLog = refusal.NewKind("ingress-log", 500,
	"The log of what ran cannot be written or read, and nothing runs without it.",
	"Free some space, and check that this user owns the file ingress.log in the agent's folder.")

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Log of what ran", Kinds: []*refusal.Kind{ErrLog}}

// Names of the files in the agent's folder.
const (
	FileName  = "ingress.log"
	OlderName = "ingress.log.1"
	// tempName is a file with less text in it, before it takes the place of another.
	tempName = "ingress.log.tmp"
)

// Bounds in bytes.
const (
	// maxFile is the size at which the newer file takes the place of the older.
	maxFile = 64 << 20
	// maxLine is longer than a prompt line of the largest payload, of which each
	// UTF-16 code unit takes at most six bytes.
	maxLine = 32 << 20
)

// Type says what a line is about.
type Type string

// The types of lines.
const (
	TypePrompt  Type = "prompt"  // something is about to run
	TypeOutcome Type = "outcome" // it ended, or it was refused and never ran
)

// Line is one line of the log. Which members are set depends on its type.
type Line struct {
	Type Type      `json:"type"`
	At   time.Time `json:"at"`
	// Server is where the job came from.
	Server string   `json:"server"`
	JobID  ai.JobID `json:"jobId"`
	Site   ai.KeyID `json:"site,omitzero"`

	Kind     ai.Kind     `json:"kind,omitzero"`
	Audience ai.Audience `json:"audience,omitzero"`
	Owner    ai.Owner    `json:"owner,omitzero"`
	// Own is whether the job is of the person whom the machine works for. Lines of
	// older agents do not say so; see [Line.IsOwn].
	Own bool `json:"own,omitzero"`

	Backend backend.ID `json:"backend,omitzero"`
	Model   string     `json:"model,omitzero"`
	// Instead is the owner's first choice, where another model ran in its place.
	Instead Instead `json:"instead,omitzero"`
	// PromptHash is the SHA-256 of the prompt as it stands here, in hex.
	PromptHash string `json:"promptHash,omitzero"`
	// PromptUnits is the length of the payload's text in UTF-16 code units.
	PromptUnits int `json:"promptUnits,omitzero"`
	// Prompt is the whole text, or empty where the owner keeps none, or keeps it no
	// longer.
	Prompt string `json:"prompt,omitzero"`

	// Outcome is ok, error, canceled, refused or given-back. What was given back may
	// have run: the line before it says so.
	Outcome string `json:"outcome,omitzero"`
	// DurationMs is how long the backend took.
	DurationMs int64 `json:"durationMs,omitzero"`
	// OutputUnits is the length of the answer in UTF-16 code units.
	OutputUnits int `json:"outputUnits,omitzero"`
	// Detail is a code or the name of a refusal.
	Detail string `json:"detail,omitzero"`
	// Reason is what a refusal says beside its name, as the numbers of a limit. It is
	// the owner's.
	Reason string `json:"reason,omitzero"`
}

// Instead is a first choice that did not run.
type Instead struct {
	// Service is the owner's name of its backend.
	Service string `json:"service"`
	Model   string `json:"model"`
	// Why is the name of a refusal.
	Why string `json:"why"`
}

// SetPrompt sets the prompt of a line, and leaves the text out where it is not to
// be kept. units is the length of the payload's text in UTF-16 code units.
func (l *Line) SetPrompt(text string, units int, keep bool) {
	sum := sha256.Sum256([]byte(text))
	l.PromptHash, l.PromptUnits = hex.EncodeToString(sum[:]), units
	if keep {
		l.Prompt = text
	}
}

// IsOwn reports whether a line is about a job of the person whom the machine works
// for. What is for its asker only runs on the asker's machines, so that says it as
// well.
func (l Line) IsOwn() bool { return l.Own || l.Audience == ai.AudienceSelf }

// ID names a line in 16 hexadecimal digits. It stays the same when the file
// rotates, and when the prompt is reduced to its hash.
func (l Line) ID() string {
	l.Prompt = ""
	text, err := json.Marshal(l, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return "" // a line that was read can be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Log is the log in use. It may be used by several goroutines.
type Log struct {
	dir string
	max int64

	mu     sync.Mutex
	closed bool
	file   *os.File // nil where it could not be opened again
	size   int64
}

// Open opens the log in a folder for writing, making it the first time. The caller
// holds the folder's lock. It returns [ErrLog].
func Open(dir string) (*Log, error) { return open(dir, maxFile) }

func open(dir string, max int64) (*Log, error) {
	l := &Log{dir: dir, max: max}
	// A crash may have left one, which holds prompts.
	if err := l.removeTemp(); err != nil {
		return nil, err
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	f, err := os.OpenFile(filepath.Join(l.dir, FileName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return ErrLog.Because(err)
	}
	info, err := f.Stat()
	if err == nil {
		// The file may be new, and a line in a file without a name is lost.
		err = datadir.Sync(l.dir)
	}
	if err != nil {
		_ = f.Close()
		return ErrLog.Because(err)
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write writes a line and returns once it is on the disk. It returns [ErrLog].
func (l *Log) Write(line Line) error {
	// A line says what runs, so a text of no character is shown as such and not
	// refused.
	text, err := json.Marshal(line, jsontext.AllowInvalidUTF8(true))
	if err != nil || len(text) > maxLine {
		return ErrLog.Because(err)
	}
	// A line that was cut by a full disk or a crash must not swallow this one.
	text = append(append([]byte("\n"), text...), '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrLog
	}
	if l.size > 0 && l.size+int64(len(text)) > l.max {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(text)
	l.size += int64(n)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return ErrLog.Because(err)
	}
	return nil
}

// rotate makes the file the older one and leaves none open. After an error the
// next line tries again.
func (l *Log) rotate() error {
	if l.file != nil {
		_ = l.file.Close() // its lines are on the disk
		l.file = nil
	}
	err := os.Rename(filepath.Join(l.dir, FileName), filepath.Join(l.dir, OlderName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ErrLog.Because(err)
	}
	l.size = 0
	return nil
}

// Close closes the log, which takes no line from then on. It returns [ErrLog].
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if err != nil {
		return ErrLog.Because(err)
	}
	return nil
}

// Read calls visit with each line of the log in a folder, the oldest first. A
// line that cannot be read is counted and passed over. It returns [ErrLog].
func Read(dir string, visit func(Line)) (damaged int, err error) {
	for _, name := range []string{OlderName, FileName} {
		n, err := readFile(filepath.Join(dir, name), visit)
		damaged += n
		if err != nil {
			return damaged, err
		}
	}
	return damaged, nil
}

func readFile(path string, visit func(Line)) (damaged int, err error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, ErrLog.Because(err)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		text, whole, err := readLine(in)
		if len(text) > 0 || !whole {
			var line Line
			if !whole || json.Unmarshal(text, &line) != nil || line.Type != TypePrompt && line.Type != TypeOutcome {
				damaged++
			} else {
				visit(line)
			}
		}
		if errors.Is(err, io.EOF) {
			return damaged, nil
		}
		if err != nil {
			return damaged, ErrLog.Because(err)
		}
	}
}

// readLine reads up to the next line feed, which it leaves out. A line that is
// too long is read past, and whole is false. It keeps no more than maxLine bytes.
func readLine(in *bufio.Reader) (text []byte, whole bool, err error) {
	whole = true
	for {
		part, err := in.ReadSlice('\n')
		if whole = whole && len(text)+len(part) <= maxLine+1; whole { // with the line feed
			text = append(text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if n := len(text); n > 0 && text[n-1] == '\n' {
			text = text[:n-1]
		}
		return text, whole, err
	}
}
