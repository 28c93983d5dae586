package canon_test

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// reference is a second canonicaliser, written from the words of RFC 8259, RFC 7493,
// RFC 8785 and decision O01, by hand and without any library that reads JSON. It
// reports whether the text has a form at all.
func reference(src string) (form string, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(refused); !ours {
				panic(r)
			}
			form, ok = "", false
		}
	}()
	if len(src) > 1<<20 || !utf8.ValidString(src) {
		return "", false
	}
	r := &reader{rest: src}
	v := r.value(0)
	r.space()
	if r.rest != "" {
		return "", false
	}
	return write(v), true
}

// Values of a text. A number stays as it is spelled, since it has one spelling.
type (
	number string
	list   []any
	object map[string]any
)

type refused struct{}

type reader struct {
	rest   string
	values int
}

func (r *reader) space() { r.rest = strings.TrimLeft(r.rest, " \t\r\n") }

func (r *reader) take(token string) bool {
	rest, ok := strings.CutPrefix(r.rest, token)
	if ok {
		r.rest = rest
	}
	return ok
}

func (r *reader) need(ok bool) {
	if !ok {
		panic(refused{})
	}
}

func (r *reader) value(depth int) any {
	r.values++
	r.need(r.values <= 1<<15)
	r.space()
	r.need(r.rest != "")
	switch c := r.rest[0]; {
	case r.take("null"):
		return nil
	case r.take("true"):
		return true
	case r.take("false"):
		return false
	case c == '"':
		return r.text()
	case r.take("["):
		r.need(depth < 16)
		v := list{}
		for r.space(); !r.take("]"); r.space() {
			r.need(len(v) == 0 || r.take(","))
			v = append(v, r.value(depth+1))
		}
		return v
	case r.take("{"):
		r.need(depth < 16)
		v := object{}
		for r.space(); !r.take("}"); r.space() {
			r.need(len(v) == 0 || r.take(","))
			r.space()
			name := r.text()
			_, twice := v[name]
			r.need(!twice)
			r.space()
			r.need(r.take(":"))
			v[name] = r.value(depth + 1)
		}
		return v
	}
	return r.number()
}

// number takes what ECMAScript writes for a whole number up to 2^53-1: no leading
// zero, no fraction, no exponent, and no minus before zero.
func (r *reader) number() any {
	end := strings.IndexAny(r.rest+" ", " \t\r\n,]}")
	text := r.rest[:end]
	r.rest = r.rest[end:]
	digits := strings.TrimPrefix(text, "-")
	r.need(digits != "" && len(digits) <= 16 && strings.Trim(digits, "0123456789") == "")
	r.need(digits[0] != '0' || text == "0")
	n := uint64(0)
	for _, c := range []byte(digits) {
		n = n*10 + uint64(c-'0')
	}
	r.need(n < 1<<53)
	return number(text)
}

func (r *reader) text() string {
	r.need(r.take(`"`))
	var b strings.Builder
	for !r.take(`"`) {
		r.need(r.rest != "")
		c, size := utf8.DecodeRuneInString(r.rest)
		r.need(c >= ' ')
		if c != '\\' {
			r.rest = r.rest[size:]
			b.WriteRune(c)
			continue
		}
		r.need(len(r.rest) >= 2)
		if r.rest[1] == 'u' {
			u := r.unit()
			if u >= 0xD800 && u <= 0xDFFF { // a pair, the high half first
				r.need(u <= 0xDBFF && strings.HasPrefix(r.rest, `\u`))
				low := r.unit()
				r.need(low >= 0xDC00 && low <= 0xDFFF)
				u = 0x10000 + (u-0xD800)<<10 + (low - 0xDC00)
			}
			b.WriteRune(u)
			continue
		}
		i := strings.IndexByte(`"\/bfnrt`, r.rest[1])
		r.need(i >= 0)
		b.WriteByte("\"\\/\b\f\n\r\t"[i])
		r.rest = r.rest[2:]
	}
	return b.String()
}

func (r *reader) unit() rune {
	r.need(len(r.rest) >= 6)
	u := rune(0)
	for _, c := range []byte(strings.ToLower(r.rest[2:6])) {
		i := strings.IndexByte("0123456789abcdef", c)
		r.need(i >= 0)
		u = u<<4 | rune(i)
	}
	r.rest = r.rest[6:]
	return u
}

// write is section 3.2 of RFC 8785.
func write(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(v)
	case number:
		return string(v)
	case string:
		return quote(v)
	case list:
		var parts []string
		for _, e := range v {
			parts = append(parts, write(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case object:
		var names []string
		for name := range v {
			names = append(names, name)
		}
		// Section 3.2.3: names are arrays of UTF-16 code units, compared as those.
		slices.SortFunc(names, func(a, b string) int {
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		})
		var parts []string
		for _, name := range names {
			parts = append(parts, quote(name)+":"+write(v[name]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	panic("no value")
}

// quote is section 3.2.2.2 of RFC 8785.
func quote(s string) string {
	b := `"`
	for _, c := range s {
		switch i := strings.IndexRune("\b\t\n\f\r\"\\", c); {
		case i >= 0:
			b += `\` + `btnfr"\`[i:i+1]
		case c < 0x20:
			b += fmt.Sprintf(`\u%04x`, c)
		default:
			b += string(c)
		}
	}
	return b + `"`
}
