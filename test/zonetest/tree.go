package zonetest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// node is one value of a text, which a test changes in place and writes again.
type node struct {
	kind     jsontext.Kind // as in jsontext, with 't' for false too
	raw      string        // a scalar, or what stands in for a value, as it is written
	names    []string      // of an object's members, in their order
	children []*node       // of an object or a list
}

// parse reads a valid text. It is for golden texts, which are ours.
func parse(text string) (*node, error) {
	d := jsontext.NewDecoder(bytes.NewBufferString(text))
	n, err := parseValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, errors.New("something follows the value")
	}
	return n, nil
}

func parseValue(d *jsontext.Decoder) (*node, error) {
	n := &node{kind: d.PeekKind()}
	if n.kind != '{' && n.kind != '[' {
		raw, err := d.ReadValue()
		if n.raw = string(raw); n.kind == 'f' {
			n.kind = 't'
		}
		return n, err
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		if n.kind == '{' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			n.names = append(n.names, name.String())
		}
		child, err := parseValue(d)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, child)
	}
	_, err := d.ReadToken()
	return n, err
}

// text writes a value; quote writes the names.
func (n *node) text(quote func(string) string) string { return string(n.append(nil, quote)) }

func (n *node) append(b []byte, quote func(string) string) []byte {
	if n.kind != '{' && n.kind != '[' || n.raw != "" {
		return append(b, n.raw...)
	}
	b = append(b, byte(n.kind))
	for i, child := range n.children {
		if i > 0 {
			b = append(b, ',')
		}
		if n.kind == '{' {
			b = append(append(b, quote(n.names[i])...), ':')
		}
		b = child.append(b, quote)
	}
	return append(b, byte(n.kind)+2) // } is two behind {, and ] behind [
}

func plain(s string) string {
	b, _ := jsontext.AppendQuote(nil, s) // what was read can be written
	return string(b)
}

// escaped writes a name the long way, which means the same.
func escaped(s string) string {
	b := []byte{'"'}
	for _, c := range []byte(s) {
		if c >= 0x80 {
			return plain(s)
		}
		b = append(b, `\u00`...)
		b = append(b, "0123456789abcdef"[c>>4], "0123456789ABCDEF"[c&15])
	}
	return string(append(b, '"'))
}

// place is one value within a text.
type place struct {
	*node
	path    string // where it is, as reasons name it: "jobs[3].name", or "" for the whole
	generic string // the same for all entries of a list and of a map: "jobs[].name"
	variety string // the same, but apart for each variety of an object that has them
	free    bool   // it is an object whose names are free
}

// places lists a value and all that it holds, the outer before the inner.
func places(n *node, o Options) []place {
	list := []place{{node: n}}
	for i := 0; i < len(list); i++ {
		p := &list[i]
		p.free = p.kind == '{' && slices.Contains(o.Maps, p.generic)
		if by, has := o.Varieties[p.generic]; has && p.kind == '{' {
			if at := slices.Index(p.names, by); at >= 0 {
				p.variety += "{" + p.children[at].raw + "}"
			}
		}
		for j, child := range p.children {
			in := place{node: child}
			if p.kind == '[' || p.free {
				in.path, in.generic, in.variety = p.path+"["+strconv.Itoa(j)+"]", p.generic+"[]", p.variety+"[]"
			} else {
				in.path, in.generic, in.variety = dotted(p.path, p.names[j]), dotted(p.generic, p.names[j]), dotted(p.variety, p.names[j])
			}
			list = append(list, in)
			p = &list[i] // the list may have moved
		}
	}
	return list
}

func dotted(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
