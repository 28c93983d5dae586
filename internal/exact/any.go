package exact

import "slices"

// Any is a required member of any type, null included, that is kept for a reader
// who knows more. It is written as it was read, without white space. A zero value
// cannot be written.
func Any(o *Object, name string, p *Value) { anything(o, name, true, p) }

// OptAny is an optional member of any type; absent reads as the zero value, and
// the zero value is not written.
func OptAny(o *Object, name string, p *Value) {
	if o.c.writing && p.nodes == nil {
		return
	}
	anything(o, name, false, p)
}

func anything(o *Object, name string, required bool, p *Value) {
	o.member(name, required,
		func(n int) { *p = detached(o.c.nodes, n) },
		func() {
			if p.nodes == nil {
				o.c.fail(ErrMissing, "")
				return
			}
			o.c.out = appendNode(o.c.out, p.nodes, p.at)
		})
}

// detached copies a value, since the document it stands in may be gone when the
// reading ends.
func detached(nodes []node, at int) Value {
	own := slices.Clone(nodes[at:nodes[at].next])
	own[0].name = nil
	for i := range own {
		own[i].next -= int32(at)
	}
	return Value{nodes: own}
}

// IsZero reports whether v is no value at all, as that of an absent member.
func (v Value) IsZero() bool { return v.nodes == nil }

// IsNull reports whether v is the JSON null.
func (v Value) IsNull() bool { return v.kind() == 'n' }

// IsObject reports whether v is an object.
func (v Value) IsObject() bool { return v.kind() == '{' }

// Len is the number of members of an object or of entries of a list, and 0 for
// every other value.
func (v Value) Len() int {
	if v.nodes == nil {
		return 0
	}
	return int(v.nodes[v.at].size)
}

// Append appends the JSON text of v to dst, without white space: names and
// scalars are spelled as they were read. The zero value appends nothing.
func (v Value) Append(dst []byte) []byte {
	if v.nodes == nil {
		return dst
	}
	return appendNode(dst, v.nodes, v.at)
}

// appendNode recurses as deep as the document was, which its limits bound.
func appendNode(dst []byte, nodes []node, at int) []byte {
	n := &nodes[at]
	if n.kind != '{' && n.kind != '[' {
		return append(dst, n.raw...)
	}
	end := byte('}')
	if n.kind == '[' {
		end = ']'
	}
	dst = append(dst, byte(n.kind))
	for i := at + 1; i < int(n.next); i = int(nodes[i].next) {
		if i > at+1 {
			dst = append(dst, ',')
		}
		if n.kind == '{' {
			dst = append(append(dst, nodes[i].name...), ':')
		}
		dst = appendNode(dst, nodes, i)
	}
	return append(dst, end)
}
