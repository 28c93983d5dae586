package exact

import "github.com/go-json-experiment/json/jsontext"

// maxMembers is how many members an object may have for quick: their names are
// compared each with each.
const maxMembers = 24

// quick parses a plain document in one pass, within the limits: no object has many
// members, no name an escape, no text half of a surrogate pair. It reports false
// for every other document and for all that is no JSON; the decoder then says what
// it is. What it does take has the nodes that the decoder gives, at a third of the
// cost. The source is valid UTF-8.
func (p *parser) quick() bool {
	at := p.quickValue(p.space(0), nil, 0)
	return at >= 0 && p.space(at) == len(p.src)
}

// space returns the index of the first byte from at on that is no white space.
func (p *parser) space(at int) int {
	for at < len(p.src) {
		switch p.src[at] {
		case ' ', '\t', '\n', '\r':
			at++
		default:
			return at
		}
	}
	return at
}

// quickValue parses the value that begins at an index, and returns the index
// behind it, or -1. It recurses at most lim.Depth deep.
func (p *parser) quickValue(at int, name []byte, depth int) int {
	if at >= len(p.src) || len(p.nodes) >= p.lim.Values {
		return -1
	}
	begin := at
	kind := jsontext.Kind(p.src[at])
	switch kind {
	case '{', '[':
		if depth >= p.lim.Depth {
			return -1
		}
		return p.quickChildren(at, name, depth)
	case '"':
		at, _ = p.quickText(at)
	case 't':
		at = p.quickWord(at, "true")
	case 'f':
		at = p.quickWord(at, "false")
	case 'n':
		at = p.quickWord(at, "null")
	default:
		kind, at = '0', p.quickNumber(at)
	}
	if at >= 0 {
		p.nodes = append(p.nodes, node{name: name, raw: p.src[begin:at], kind: kind, next: int32(len(p.nodes) + 1)})
	}
	return at
}

// quickChildren parses an object or a list.
func (p *parser) quickChildren(at int, name []byte, depth int) int {
	parent := len(p.nodes)
	kind := jsontext.Kind(p.src[at])
	p.nodes = append(p.nodes, node{name: name, kind: kind})
	last := byte(kind) + 2 // of [ is ], and of { is }
	size := int32(0)
	at = p.space(at + 1)
	for at < len(p.src) && (size > 0 || p.src[at] != last) {
		var member []byte
		if kind == '{' {
			end, plain := p.quickText(at)
			if end < 0 || !plain || size >= maxMembers || p.twin(parent, p.src[at:end]) {
				return -1
			}
			member = p.src[at:end]
			if at = p.space(end); at >= len(p.src) || p.src[at] != ':' {
				return -1
			}
			at = p.space(at + 1)
		}
		if at = p.quickValue(at, member, depth+1); at < 0 {
			return -1
		}
		size++
		if at = p.space(at); at >= len(p.src) || p.src[at] != ',' {
			break
		}
		at = p.space(at + 1)
	}
	if at >= len(p.src) || p.src[at] != last {
		return -1
	}
	p.nodes[parent].size, p.nodes[parent].next = size, int32(len(p.nodes))
	return at + 1
}

// twin reports whether the object that is being parsed has a member of that name.
func (p *parser) twin(parent int, name []byte) bool {
	for i := parent + 1; i < len(p.nodes); i = int(p.nodes[i].next) {
		if string(p.nodes[i].name) == string(name) {
			return true
		}
	}
	return false
}

// quickText returns the index behind the string that begins at an index, or -1,
// and whether the string is written without escapes.
func (p *parser) quickText(at int) (end int, plain bool) {
	if at >= len(p.src) || p.src[at] != '"' {
		return -1, false
	}
	plain = true
	for at++; at < len(p.src); at++ {
		switch c := p.src[at]; {
		case c == '"':
			return at + 1, plain
		case c < ' ':
			return -1, false
		case c == '\\':
			plain = false
			if at = p.quickEscape(at + 1); at < 0 {
				return -1, false
			}
		}
	}
	return -1, false
}

// quickEscape returns the index of the last byte of an escape whose backslash is
// before an index, or -1.
func (p *parser) quickEscape(at int) int {
	if at >= len(p.src) {
		return -1
	}
	switch p.src[at] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return at
	case 'u':
	default:
		return -1
	}
	if at+4 >= len(p.src) {
		return -1
	}
	unit := 0
	for _, c := range p.src[at+1 : at+5] {
		switch {
		case c >= '0' && c <= '9':
			unit = unit<<4 | int(c-'0')
		case c >= 'a' && c <= 'f':
			unit = unit<<4 | int(c-'a'+10)
		case c >= 'A' && c <= 'F':
			unit = unit<<4 | int(c-'A'+10)
		default:
			return -1
		}
	}
	if unit >= 0xD800 && unit <= 0xDFFF { // a surrogate
		return -1
	}
	return at + 4
}

func (p *parser) quickWord(at int, word string) int {
	if end := at + len(word); end <= len(p.src) && string(p.src[at:end]) == word {
		return end
	}
	return -1
}

// quickNumber returns the index behind a number, or -1. What follows it is for the
// caller to look at.
func (p *parser) quickNumber(at int) int {
	digits := func() bool {
		begin := at
		for at < len(p.src) && p.src[at] >= '0' && p.src[at] <= '9' {
			at++
		}
		return at > begin
	}
	next := func(set string) bool {
		for i := range len(set) {
			if at < len(p.src) && p.src[at] == set[i] {
				at++
				return true
			}
		}
		return false
	}
	next("-")
	if !next("0") && !digits() {
		return -1
	}
	if next(".") && !digits() {
		return -1
	}
	if next("eE") {
		next("+-")
		if !digits() {
			return -1
		}
	}
	return at
}
