package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"github.com/allodhq/allod/internal/exact"
)

// maxTries bounds how many members of one object are tried to find those that a
// shape does not name. Each try reads the file once more.
const maxTries = 64

// byteOrderMark is what some editors put before the text.
var byteOrderMark = []byte("\ufeff")

// document is a file's content and its values, which remember where they stand.
type document struct {
	src  []byte
	tree hujson.Value
}

// examine reads by the shape, and after each problem once more without the
// member that has it.
func examine[T any](content []byte, shape exact.Shape[T]) (v T, problems []Problem, err error) {
	d, err := parse(content)
	if err != nil {
		return v, nil, err
	}
	var zero T
	var cut []string // paths of the members that were taken out
	for len(problems) < MaxProblems {
		v, p := read(d.tree, shape)
		if p == nil {
			return v, problems, nil
		}
		if p.Rule == exact.ErrUnknown {
			if found := d.takeUnknown(p.Path, func() *exact.Problem { _, p := read(d.tree, shape); return p }); len(found) > 0 {
				problems = append(problems, found...)
				continue
			}
		}
		// What is missing, or does not fit together, may be so because of the cut.
		if !slices.ContainsFunc(cut, func(c string) bool { return within(c, p.Path) }) || p.Rule == exact.ErrUnknown {
			problems = append(problems, d.problem(p, d.offset(p.Path)))
		}
		path := p.Path
		for path != "" && !d.take(path) {
			path = parent(path)
		}
		if path == "" {
			return zero, problems, nil
		}
		cut = append(cut, path)
	}
	return zero, problems[:MaxProblems], nil
}

// read reads the tree by the shape. Numbers of lines do not matter here.
func read[T any](tree hujson.Value, shape exact.Shape[T]) (T, *exact.Problem) {
	tree = tree.Clone() // before it loses its places
	tree.Minimize()
	v, err := shape.Read(tree.Pack(), exact.Limits{Bytes: MaxBytes, Depth: maxDepth, Values: maxValues})
	if err == nil {
		return v, nil
	}
	var p *exact.Problem
	errors.As(err, &p) // a shape has no other errors
	return v, p
}

// parse reads JSON with comments and trailing commas, and refuses whatever
// exact refuses about a text as such.
func parse(content []byte) (document, error) {
	switch {
	case len(content) > MaxBytes:
		return document{}, ErrTooLarge
	case bytes.HasPrefix(content, byteOrderMark):
		return document{}, ErrNotJSON.With("Line 1, column 1: the file begins with a byte order mark; save it as UTF-8 without one.")
	}
	if !utf8.Valid(content) {
		return document{}, notJSON(content, invalid(content), "this is not UTF-8")
	}
	if at := excess(content); at >= 0 {
		line, column := place(content, at)
		return document{}, ErrTooLarge.With(fmt.Sprintf("Line %d, column %d: one level or value too many.", line, column))
	}
	// The parser wants a line break behind a comment, which the last line may not
	// have. It keeps parts of the bytes, so it gets its own.
	tree, err := hujson.Parse(append(bytes.Clone(content), '\n'))
	if err != nil {
		return document{}, notJSON(content, faultOf(content, err), "the text cannot be read from here on")
	}
	plain := tree.Clone()
	plain.Standardize() // comments and commas become spaces, so offsets stay
	text := plain.Pack()
	if _, err := exact.Parse(text, exact.Limits{Bytes: MaxBytes + 1, Depth: maxDepth, Values: maxValues}); err != nil {
		return document{}, exactly(content, text, err)
	}
	return document{content, tree}, nil
}

// exactly refuses a text for what only package exact minds.
func exactly(content, text []byte, err error) error {
	at := 0
	var fault *jsontext.SyntacticError
	if _, err := jsontext.NewDecoder(bytes.NewReader(text)).ReadValue(); errors.As(err, &fault) {
		at = int(fault.ByteOffset)
	}
	switch {
	case errors.Is(err, exact.ErrDuplicate):
		return notJSON(content, at, "the object has this name twice")
	case errors.Is(err, exact.ErrEncoding):
		return notJSON(content, at, "an escape in this text stands for no character")
	}
	return notJSON(content, at, "the text cannot be read from here on")
}

// notJSON is [ErrNotJSON] at a place.
func notJSON(content []byte, at int, what string) error {
	line, column := place(content, at)
	return ErrNotJSON.With(fmt.Sprintf("Line %d, column %d: %s.", line, column, what))
}

// faultOf finds where the parser stopped. Its error has the place as text only,
// before words that can repeat the input.
func faultOf(content []byte, err error) int {
	var line, column int
	if _, err := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column); err != nil {
		return 0
	}
	at := 0
	for range line - 1 {
		n := bytes.IndexByte(content[at:], '\n')
		if n < 0 {
			return len(content) // behind the line break that was added
		}
		at += n + 1
	}
	return min(at+column-1, len(content))
}

// invalid returns the offset of the first byte that is not UTF-8.
func invalid(content []byte) int {
	at := 0
	for {
		r, n := utf8.DecodeRune(content[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// place turns an offset into a line and a column in characters, both from 1.
func place(content []byte, at int) (line, column int) {
	before := content[:min(at, len(content))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}

// excess returns where a text gets too deep or has too many values, or -1. It
// comes before the parser, which bounds neither and recurses. Of broken texts it
// is right up to where the parser stops.
func excess(src []byte) int {
	depth, values := 0, 1 // every further value stands behind a bracket or a comma
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '"':
			for i++; i < len(src) && src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
		case '/':
			i += comment(src[i:])
		case '{', '[':
			depth++
			values++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if depth > maxDepth || values > maxValues {
			return i
		}
	}
	return -1
}

// comment returns how many bytes follow the slash up to the comment's end.
func comment(src []byte) int {
	end := ""
	switch {
	case bytes.HasPrefix(src, []byte("//")):
		end = "\n"
	case bytes.HasPrefix(src, []byte("/*")):
		end = "*/"
	default:
		return 0
	}
	if n := bytes.Index(src[2:], []byte(end)); n >= 0 {
		return 2 + n + len(end) - 1
	}
	return len(src)
}

// problem gives a shape's problem its place.
func (d *document) problem(p *exact.Problem, at int) Problem {
	line, column := place(d.src, at)
	return Problem{Path: p.Path, Line: line, Column: column, Rule: p.Rule, Need: p.Need}
}

// takeUnknown takes the members out of the object at path that the shape does
// not name, and returns a problem for each. A shape refuses null in every member
// that it names, so where a null changes nothing no name was read. It returns
// none when it finds none.
func (d *document) takeUnknown(path string, again func() *exact.Problem) (found []Problem) {
	at, _ := d.find(path)
	object, ok := at.value.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	var known []hujson.ObjectMember
	for i := range object.Members {
		m := &object.Members[i]
		if i < maxTries {
			value := m.Value.Value
			m.Value.Value = hujson.Literal("null")
			p := again()
			m.Value.Value = value
			if p != nil && p.Rule == exact.ErrUnknown && p.Path == path {
				found = append(found, d.problem(p, m.Name.StartOffset))
				continue
			}
		}
		known = append(known, *m)
	}
	object.Members = known
	return found
}

// take takes the member at path out of its object. It takes nothing out of
// lists and out of objects with free names, where other places would move.
func (d *document) take(path string) bool {
	at, ok := d.find(path)
	if !ok || at.object == nil {
		return false
	}
	at.object.Members = slices.Delete(at.object.Members, at.member, at.member+1)
	return true
}

// offset returns where the member at path stands, or the nearest place around
// it.
func (d *document) offset(path string) int {
	for {
		switch at, ok := d.find(path); {
		case ok && at.object != nil:
			return at.object.Members[at.member].Name.StartOffset
		case ok:
			return at.value.StartOffset
		}
		path = parent(path)
	}
}

// spot is a value, and where it is a named member its object.
type spot struct {
	value  hujson.Value
	object *hujson.Object
	member int
}

// find goes down a path. An empty path leads to the whole.
func (d *document) find(path string) (spot, bool) {
	at := spot{value: d.tree}
	for path != "" {
		path = strings.TrimPrefix(path, ".")
		if position, rest, ok := index(path); ok {
			at.object = nil
			switch in := at.value.Value.(type) {
			case *hujson.Array:
				if position >= len(in.Elements) {
					return spot{}, false
				}
				at.value = in.Elements[position]
			case *hujson.Object: // with names that are not the shape's
				if position >= len(in.Members) {
					return spot{}, false
				}
				at.value = in.Members[position].Value
			default:
				return spot{}, false
			}
			path = rest
			continue
		}
		object, ok := at.value.Value.(*hujson.Object)
		if !ok {
			return spot{}, false
		}
		i := slices.IndexFunc(object.Members, func(m hujson.ObjectMember) bool {
			name := nameOf(m)
			return name != "" && within(path, name)
		})
		if i < 0 {
			return spot{}, false
		}
		at = spot{object.Members[i].Value, object, i}
		path = path[len(nameOf(object.Members[i])):]
	}
	return at, true
}

// index reads a position, as in "[3]", at the beginning of a path.
func index(path string) (position int, rest string, ok bool) {
	if !strings.HasPrefix(path, "[") {
		return 0, "", false
	}
	digits, rest, _ := strings.Cut(path[1:], "]")
	position, err := strconv.Atoi(digits)
	return position, rest, err == nil && position >= 0
}

// nameOf is what a member's name stands for.
func nameOf(m hujson.ObjectMember) string {
	literal, _ := m.Name.Value.(hujson.Literal)
	return literal.String()
}

// parent is the path of what a member or an element is part of. Names can hold
// dots, so there need not be anything at it.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// within reports whether path is outer or lies below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || outer == "" || rest[0] == '.' || rest[0] == '[')
}
