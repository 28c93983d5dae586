package exact

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits bound a document before anything of it is kept.
type Limits struct {
	// Bytes is the largest text, in bytes.
	Bytes int
	// Depth is the deepest nesting; a scalar has depth 0, [] has depth 1.
	Depth int
	// Values is the largest number of values, counting objects, lists and
	// scalars, but not names.
	Values int
}

// Value is one value of a parsed document. It keeps the bytes it was parsed
// from, which must not change while it is in use. The zero value is no value.
type Value struct {
	nodes []node
	at    int
}

// Member returns the named member of an object. It is absent in every other
// value.
func (v Value) Member(name string) (Value, bool) {
	if at := find(v.nodes, v.at, name); at >= 0 {
		return Value{v.nodes, at}, true
	}
	return Value{}, false
}

// Text returns the string, and whether v is one.
func (v Value) Text() (string, bool) {
	if v.kind() != '"' {
		return "", false
	}
	return text(v.nodes[v.at].raw), true
}

// Number returns the number, and whether v is one.
func (v Value) Number() (Number, bool) {
	if v.kind() != '0' {
		return 0, false
	}
	return parseNumber(v.nodes[v.at].raw), true
}

func (v Value) kind() jsontext.Kind {
	if v.nodes == nil {
		return 0
	}
	return v.nodes[v.at].kind
}

// find returns the index of the named member of the object at that index, or
// -1.
func find(nodes []node, at int, name string) int {
	if len(nodes) == 0 || nodes[at].kind != '{' {
		return -1
	}
	for i := at + 1; i < int(nodes[at].next); i = int(nodes[i].next) {
		if nodes[i].named(name) {
			return i
		}
	}
	return -1
}

// node is one value. Children follow their parent in nodes, and next is the
// index of the first node behind the whole value, so that a sibling is one jump
// away.
type node struct {
	name []byte // the member's name as written, with quotes; nil outside objects
	raw  []byte // the scalar as written; nil for objects and lists
	kind jsontext.Kind
	size int32 // number of children
	next int32
}

// Parse reads src as one JSON value within lim. The error is a *[Problem] with
// an empty path.
func Parse(src []byte, lim Limits) (Value, error) {
	p := parsers.Get().(*parser)
	defer p.put()
	if err := p.parse(src, lim); err != nil {
		return Value{}, err
	}
	return Value{nodes: slices.Clone(p.nodes)}, nil // the room stays with the parser
}

// parsers are kept between documents, with their decoders and rooms for nodes,
// which cost more than reading a small document does.
var parsers = sync.Pool{New: func() any { return &parser{dec: jsontext.NewDecoder(new(bytes.Buffer))} }}

// maxKept is how many nodes a kept parser has room for at most.
const maxKept = 1 << 10

type parser struct {
	src   []byte
	lim   Limits
	dec   *jsontext.Decoder
	nodes []node
}

// put keeps the parser for the next document, and nothing of this one.
func (p *parser) put() {
	if cap(p.nodes) > maxKept {
		p.nodes = nil
	}
	clear(p.nodes)
	p.src, p.nodes = nil, p.nodes[:0]
	p.dec.Reset(new(bytes.Buffer))
	parsers.Put(p)
}

func (p *parser) parse(src []byte, lim Limits) error {
	if len(src) > lim.Bytes {
		return &Problem{Rule: ErrTooLarge}
	}
	if !utf8.Valid(src) {
		return &Problem{Rule: ErrEncoding}
	}
	p.src, p.lim = src, lim
	p.dec.Reset(bytes.NewBuffer(src))
	if p.nodes == nil {
		p.nodes = make([]node, 0, min(8+len(src)/24, lim.Values, 256))
	}
	if err := p.value(nil); err != nil {
		return err
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return &Problem{Rule: ErrSyntax}
	}
	return nil
}

// value recurses at most lim.Depth deep.
func (p *parser) value(name []byte) error {
	if len(p.nodes) >= p.lim.Values {
		return &Problem{Rule: ErrTooMany}
	}
	at := len(p.nodes)
	kind := p.dec.PeekKind()
	switch kind {
	case '{', '[':
		if p.dec.StackDepth() >= p.lim.Depth {
			return &Problem{Rule: ErrTooDeep}
		}
		if _, err := p.dec.ReadToken(); err != nil {
			return p.syntax(err)
		}
		p.nodes = append(p.nodes, node{name: name, kind: kind})
		var size int32
		for {
			if next := p.dec.PeekKind(); next == '}' || next == ']' {
				break
			}
			var member []byte
			if kind == '{' {
				var err error
				if member, err = p.scalar(); err != nil {
					return err
				}
			}
			if err := p.value(member); err != nil {
				return err
			}
			size++
		}
		if _, err := p.dec.ReadToken(); err != nil {
			return p.syntax(err)
		}
		p.nodes[at].size = size
	default:
		raw, err := p.scalar()
		if err != nil {
			return err
		}
		p.nodes = append(p.nodes, node{name: name, raw: raw, kind: kind})
	}
	p.nodes[at].next = int32(len(p.nodes))
	return nil
}

// scalar reads a scalar or a name and returns its bytes within src, which stay
// valid after the next read, unlike what the decoder returns.
func (p *parser) scalar() ([]byte, error) {
	v, err := p.dec.ReadValue()
	if err != nil {
		return nil, p.syntax(err)
	}
	end := p.dec.InputOffset()
	return p.src[end-int64(len(v)) : end], nil
}

// syntax maps a decoder's error, whose text can quote the input, to a rule. A
// text that is JSON but for lone surrogates is found by asking again without
// the encoding rule, since the decoder has no error of its own for it.
func (p *parser) syntax(err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &Problem{Rule: ErrDuplicate}
	}
	lenient := []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}
	if jsontext.Value(p.src).IsValid(lenient...) {
		return &Problem{Rule: ErrEncoding}
	}
	return &Problem{Rule: ErrSyntax}
}

// text returns the string that a string value or a name stands for.
func text(raw []byte) string {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	b, _ := jsontext.AppendUnquote(nil, raw) // the decoder has checked it
	return string(b)
}

// named reports whether the name as written stands for want.
func (n *node) named(want string) bool {
	inner := n.name[1 : len(n.name)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == want
	}
	return text(n.name) == want
}
