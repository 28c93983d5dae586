package configfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrAbsent = refusal.NewKind("config-absent", 404,
		"There is no configuration file at this path.",
		"Check the path. docs/configuration.md has a file to begin with.")
	ErrUnreadable = refusal.NewKind("config-unreadable", 500,
		"The configuration file cannot be read.",
		"Give the path of a plain file that this user can read.")
	ErrTooLarge = refusal.NewKind("config-too-large", 400,
		"The file is larger or deeper than a configuration can be.",
		"Check the path; a configuration is at most 1 MiB long, 8 levels deep, and has at most 4096 values.")
	ErrNotJSON = refusal.NewKind("config-not-json", 400,
		"The configuration file is not JSON with comments and trailing commas.",
		"Mend the text at the place that is named; docs/configuration.md shows what it looks like.")
	ErrMember = refusal.NewKind("config-member", 400,
		"A member of the configuration file is unknown, or is not what it must be.",
		"Change what is named; docs/configuration.md lists every member.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Configuration files", Kinds: []*refusal.Kind{
	ErrAbsent, ErrUnreadable, ErrTooLarge, ErrNotJSON, ErrMember, ErrEdit,
}}

// Bounds of a file. The words of [ErrTooLarge] repeat them.
const (
	// MaxBytes is the largest file, in bytes.
	MaxBytes  = 1 << 20
	maxDepth  = 8
	maxValues = 4096
)

// MaxProblems is how many problems of one file are named at most.
const MaxProblems = 20

// Problem is one thing in a file that its shape refuses.
type Problem struct {
	// Path leads to the member, as in "site.keyFiles[1]", or to the object that
	// has a member too many. It is made of names that the shape defines and of
	// positions, never of names in the file. Empty means the file as a whole.
	Path string
	// Line and Column are where it stands, from 1; columns count characters. A
	// member that is missing stands where its object does.
	Line, Column int
	// Rule is the rule that was broken, one of [exact.Kinds] or the shape's own.
	Rule *refusal.Kind
	// Need says in a few words what was needed. It may be empty.
	Need string
}

// Sentence says what is wrong and where, for the person who wrote the file.
func (p Problem) Sentence() string {
	place := fmt.Sprintf("line %d, column %d", p.Line, p.Column)
	if p.Rule == exact.ErrUnknown {
		object := p.Path + " has no member"
		if p.Path == "" {
			object = "the file has no section"
		}
		return "L" + place[1:] + ": " + object + " of this name."
	}
	must := " must keep to the rule " + p.Rule.Name()
	switch {
	case p.Need != "":
		must = " must be " + p.Need
	case p.Rule == exact.ErrMissing:
		must = " must be given"
	}
	if p.Path == "" {
		return "The file" + must + " (" + place + ")."
	}
	return p.Path + ":" + must + " (" + place + ")."
}

// Refusal is the problem as [ErrMember], or as a rule of the shape's own.
func (p Problem) Refusal() *refusal.Refusal {
	if exact.Kinds.Find(p.Rule.Name()) == nil {
		return p.Rule.With(p.Sentence())
	}
	return ErrMember.With(p.Sentence()).Because(p.Rule)
}

// Spoils reports whether what [Examine] leaves at a path may be wrong only
// because the member with the problem was taken out there or below.
func (p Problem) Spoils(path string) bool { return p.Rule != exact.ErrUnknown && within(p.Path, path) }

// Read reads the file at path by the shape. It returns [ErrAbsent],
// [ErrUnreadable], [ErrTooLarge], [ErrNotJSON] with the place, and the first
// problem's refusal with the sentences of all; then the value is the zero value.
func Read[T any](path string, shape exact.Shape[T]) (T, error) {
	content, err := load(path)
	if err != nil {
		var zero T
		return zero, err
	}
	return ReadBytes(content, shape)
}

// ReadBytes reads a file's content as [Read] does.
func ReadBytes[T any](content []byte, shape exact.Shape[T]) (T, error) {
	var zero T
	v, problems, err := examine(content, shape)
	if err != nil || len(problems) == 0 {
		return v, err
	}
	var all []string
	for _, p := range problems {
		all = append(all, p.Sentence())
	}
	return zero, problems[0].Refusal().With(strings.Join(all, " "))
}

// Examine reads the file at path as far as it goes: the value is what is left
// when every member with a problem is taken out, and the zero value where that
// cannot be read either. The problems are in the order of the shape, at most
// [MaxProblems]. The errors are those of [Read] about the file as a whole.
func Examine[T any](path string, shape exact.Shape[T]) (T, []Problem, error) {
	content, err := load(path)
	if err != nil {
		var zero T
		return zero, nil, err
	}
	return examine(content, shape)
}

func load(path string) ([]byte, error) {
	// Asked before opening, since opening a pipe would wait for a writer, and again
	// of the open file, since the name may have changed hands.
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrAbsent
	case err != nil:
		return nil, ErrUnreadable.Because(err)
	case !info.Mode().IsRegular():
		return nil, ErrUnreadable.With("The path is not a plain file.")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openWithoutWait, 0)
	if err != nil {
		return nil, ErrUnreadable.Because(err)
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, ErrUnreadable.Because(err)
	case !info.Mode().IsRegular():
		return nil, ErrUnreadable.With("The path is not a plain file.")
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, ErrUnreadable.Because(err)
	}
	return content, nil
}
