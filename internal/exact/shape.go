package exact

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/refusal"
)

// Unknown says what a shape does with members it does not name.
type Unknown bool

const (
	// Refuse refuses a document with an unknown member.
	Refuse Unknown = false
	// Drop reads past unknown members. Only where the contract says so.
	Drop Unknown = true
)

// Shape describes one kind of object. Fields names every member once, in the
// order in which they are written; it is called for reading and for writing.
type Shape[T any] struct {
	// Unknown says what happens to members that Fields does not name.
	Unknown Unknown
	// Fields passes each member of v to o. It must not keep o or v.
	Fields func(o *Object, v *T)
}

// Object is one object on its way in or out, handed to a shape's Fields. After
// the first problem it does nothing more, so Fields need not look at errors.
type Object struct {
	c    *codec
	at   int32 // reading: index of the object's node
	next int32 // reading: index behind the member that was found last
	seen int32 // reading: members named so far
	from int   // reading: how many problems there were before this object
	some bool
}

// codec is the state of one reading or writing.
type codec struct {
	writing bool
	nodes   []node
	out     []byte
	path    []step
	err     error

	all      bool       // reading: go on after a problem
	problems []*Problem // where all is set, in the order of the shape

	room [6]step // for path, so that it is no allocation of its own
}

// Read parses src within lim and reads it by the shape. The error is a
// *[Problem], and then the value is the zero value.
func (s Shape[T]) Read(src []byte, lim Limits) (T, error) {
	p := parsers.Get().(*parser)
	defer p.put()
	if err := p.parse(src, lim); err != nil {
		var zero T
		return zero, err
	}
	return s.From(Value{nodes: p.nodes}) // values read keep no nodes
}

// From reads a parsed value by the shape. The error is a *[Problem], and
// then the value is the zero value.
func (s Shape[T]) From(from Value) (T, error) {
	var v, zero T
	if from.nodes == nil {
		return zero, &Problem{Rule: ErrMissing}
	}
	c := codec{nodes: from.nodes}
	c.path = c.room[:0]
	s.read(&c, from.at, &v)
	if c.err != nil {
		return zero, c.err
	}
	return v, nil
}

// MaxProblems is how many problems of one value [Shape.Problems] names at most.
const MaxProblems = 64

// Problems names everything in a parsed value that the shape refuses, at most
// one problem for each place, and none for a value that From takes. They are in
// the order of the shape; an object's unknown members are one problem, which
// comes after those of its known ones.
func (s Shape[T]) Problems(from Value) []*Problem {
	if from.nodes == nil {
		return []*Problem{{Rule: ErrMissing}}
	}
	c := codec{nodes: from.nodes, all: true}
	c.path = c.room[:0]
	var v T
	s.read(&c, from.at, &v)
	return c.problems
}

// Append writes v by the shape and appends the JSON text to dst. The error is a
// *[Problem], and then the result is nil.
func (s Shape[T]) Append(dst []byte, v T) ([]byte, error) {
	c := codec{writing: true, out: dst}
	c.path = c.room[:0]
	s.write(&c, &v)
	if c.err != nil {
		return nil, c.err
	}
	return c.out, nil
}

// Bytes writes v as Append does, into as much room as it takes.
func (s Shape[T]) Bytes(v T) ([]byte, error) {
	room := rooms.Get().(*[]byte)
	b, err := s.Append((*room)[:0], v)
	if err != nil {
		return nil, err
	}
	text := bytes.Clone(b)
	if clear(b); cap(b) <= maxRoom {
		*room = b
		rooms.Put(room)
	}
	return text, nil
}

// rooms are kept for what is being written, without what was written there.
var rooms = sync.Pool{New: func() any { return new([]byte) }}

// maxRoom is how large a kept room is at most, in bytes.
const maxRoom = 64 << 10

func (s Shape[T]) read(c *codec, at int, v *T) {
	n := &c.nodes[at]
	if n.kind != '{' {
		c.fail(ErrType, "an object")
		return
	}
	o := Object{c: c, at: int32(at), next: int32(at) + 1, from: len(c.problems)}
	s.Fields(&o, v)
	if c.err == nil && s.Unknown == Refuse && o.seen != n.size {
		c.fail(ErrUnknown, "")
	}
}

func (s Shape[T]) write(c *codec, v *T) {
	c.out = append(c.out, '{')
	s.Fields(&Object{c: c}, v)
	c.out = append(c.out, '}')
}

func (c *codec) fail(rule *refusal.Kind, need string) {
	if c.err != nil {
		return
	}
	p := &Problem{Rule: rule, Path: join(c.path), Need: need}
	if !c.all {
		c.err = p
		return
	}
	// What follows from a problem at the same place is no news.
	if n := len(c.problems); n > 0 && c.problems[n-1].Path == p.Path && c.problems[n-1].Rule != ErrUnknown && rule != ErrUnknown {
		return
	}
	if c.problems = append(c.problems, p); len(c.problems) == MaxProblems {
		c.err = p // enough
	}
}

// Writing reports whether the object is on its way out.
func (o *Object) Writing() bool { return o.c.writing }

// Failed reports whether a problem was already found in the object, after which
// the values read so far mean nothing. Where [Shape.Problems] goes on after a
// problem elsewhere, the object is still judged.
func (o *Object) Failed() bool { return o.c.err != nil || len(o.c.problems) > o.from }

// Fail refuses the object by a rule of the shape's own, as a condition between
// members. need says in a few words what was needed.
func (o *Object) Fail(rule *refusal.Kind, need string) { o.c.fail(rule, need) }

// member runs read on the named member's node, or write after the name has been
// written. A required member that is absent is a problem.
func (o *Object) member(name string, required bool, read func(n int), write func()) {
	c := o.c
	if c.err != nil {
		return
	}
	c.path = append(c.path, step{name: name})
	defer func() { c.path = c.path[:len(c.path)-1] }()
	if c.writing {
		if o.some {
			c.out = append(c.out, ',')
		}
		o.some = true
		c.out = append(c.out, '"')
		c.out = append(c.out, name...)
		c.out = append(c.out, '"', ':')
		write()
		return
	}
	at := int(o.next) // most documents have their members in the order of the shape
	if o.next >= c.nodes[o.at].next || !c.nodes[at].named(name) {
		at = find(c.nodes, int(o.at), name)
	}
	if at < 0 {
		if required {
			c.fail(ErrMissing, "")
		}
		return
	}
	o.seen++ // shapes name each member once
	o.next = c.nodes[at].next
	read(at)
}

// Text is a required string of min to max UTF-16 code units; max 0 means that
// only the document's own bound applies.
func Text[S ~string](o *Object, name string, p *S, min, max int) {
	o.member(name, true,
		func(n int) { readText(o.c, n, p, min, max) },
		func() { writeText(o.c, string(*p), min, max) })
}

// OptText is an optional string; absent reads as "", and "" is not written.
func OptText[S ~string](o *Object, name string, p *S, min, max int) {
	if o.c.writing && *p == "" {
		return
	}
	o.member(name, false,
		func(n int) { readText(o.c, n, p, min, max) },
		func() { writeText(o.c, string(*p), min, max) })
}

// Spelled is a required string of at most max bytes that spells what ok knows;
// need says in a few words what that is.
func Spelled[S ~string](o *Object, name string, p *S, max int, need string, ok func(s string) bool) {
	check := func(s string) bool {
		good := len(s) <= max && ok(s)
		if !good {
			o.c.fail(ErrRange, need)
		}
		return good
	}
	o.member(name, true, func(n int) {
		if o.c.nodes[n].kind != '"' {
			o.c.fail(ErrType, "a string")
		} else if s := text(o.c.nodes[n].raw); check(s) {
			*p = S(s)
		}
	}, func() {
		if check(string(*p)) {
			writeText(o.c, string(*p), 0, 0)
		}
	})
}

// Nullable is a required member that is null or what field makes of it; field
// is an accessor of this package, or calls one for the same name.
func Nullable[T any](o *Object, name string, p *Opt[T], field func(o *Object, name string, v *T)) {
	null := p.Null
	if !o.c.writing {
		at := find(o.c.nodes, int(o.at), name)
		null = at >= 0 && o.c.nodes[at].kind == 'n'
	}
	if !null {
		field(o, name, &p.V)
		p.Set = true
		return
	}
	o.member(name, true,
		func(int) { *p = Opt[T]{Set: true, Null: true} },
		func() { o.c.out = append(o.c.out, "null"...) })
}

// Word is a required string that is one of words, spelled exactly.
func Word[S ~string](o *Object, name string, p *S, words []S) { word(o, name, true, p, words) }

// OptWord is an optional string that is one of words; absent reads as "", and ""
// is not written.
func OptWord[S ~string](o *Object, name string, p *S, words []S) {
	if o.c.writing && *p == "" {
		return
	}
	word(o, name, false, p, words)
}

func word[S ~string](o *Object, name string, required bool, p *S, words []S) {
	check := func() {
		if o.c.err == nil && !slices.Contains(words, *p) {
			o.c.fail(ErrMember, "")
		}
	}
	o.member(name, required,
		func(n int) { readText(o.c, n, p, 0, 0); check() },
		func() { check(); writeText(o.c, string(*p), 0, 0) })
}

// Literal is a required string with one possible value.
func Literal(o *Object, name, value string) {
	v := value
	Word(o, name, &v, []string{value})
}

// Whole is a required whole number from min to max; max 0 means [MaxWhole].
func Whole[N ~int64](o *Object, name string, p *N, min, max int64) {
	o.member(name, true,
		func(n int) { readWhole(o.c, n, p, min, max) },
		func() { writeWhole(o.c, int64(*p), min, max) })
}

// OptWhole is an optional whole number; a null is a problem.
func OptWhole[N ~int64](o *Object, name string, p *Opt[N], min, max int64) {
	if o.c.writing && !p.Set {
		return
	}
	o.member(name, false,
		func(n int) { readWhole(o.c, n, &p.V, min, max); p.Set = true },
		func() { writeWhole(o.c, int64(p.V), min, max) })
}

// Float is a required number from min to max. NaN and what a double cannot hold
// are in no range.
func Float[N ~float64](o *Object, name string, p *N, min, max float64) {
	check := func(f float64) bool {
		good := f >= min && f <= max && !math.IsInf(f, 0)
		if !good {
			o.c.fail(ErrRange, "a number from "+strconv.FormatFloat(min, 'g', -1, 64)+" to "+strconv.FormatFloat(max, 'g', -1, 64))
		}
		return good
	}
	o.member(name, true, func(n int) {
		if o.c.nodes[n].kind != '0' {
			o.c.fail(ErrType, "a number")
		} else if f := float64(parseNumber(o.c.nodes[n].raw)); check(f) {
			*p = N(f)
		}
	}, func() {
		if f := float64(*p); check(f) {
			if f == 0 {
				f = 0 // and not -0
			}
			o.c.out = append(o.c.out, jsontext.Float(f).String()...)
		}
	})
}

// Bool is a required true or false.
func Bool(o *Object, name string, p *bool) {
	o.member(name, true, func(n int) { readBool(o.c, n, p) }, func() { o.c.out = strconv.AppendBool(o.c.out, *p) })
}

// OptBool is an optional true or false; absent reads as false, and false is not
// written.
func OptBool(o *Object, name string, p *bool) {
	if o.c.writing && !*p {
		return
	}
	o.member(name, false, func(n int) { readBool(o.c, n, p) }, func() { o.c.out = append(o.c.out, "true"...) })
}

// OptTrue is an optional member that is true or absent; absent reads as false,
// and false is not written.
func OptTrue(o *Object, name string, p *bool) {
	if o.c.writing && !*p {
		return
	}
	o.member(name, false, func(n int) {
		if readBool(o.c, n, p); o.c.err == nil && !*p {
			o.c.fail(ErrMember, "")
		}
	}, func() { o.c.out = append(o.c.out, "true"...) })
}

// Sub is a required object of another shape.
func Sub[T any](o *Object, name string, p *T, s Shape[T]) {
	o.member(name, true, func(n int) { s.read(o.c, n, p) }, func() { s.write(o.c, p) })
}

// OptSub is an optional object; absent reads as nil, and nil is not written.
func OptSub[T any](o *Object, name string, p **T, s Shape[T]) {
	if o.c.writing && *p == nil {
		return
	}
	o.member(name, false,
		func(n int) { *p = new(T); s.read(o.c, n, *p) },
		func() { s.write(o.c, *p) })
}

// List is a required list of min to max objects; max 0 means that only the
// document's own bound applies. An empty list reads as an empty, non-nil slice.
func List[T any](o *Object, name string, p *[]T, min, max int, s Shape[T]) {
	list(o, name, true, p, min, max, s)
}

// OptList is an optional list like that of [List]; absent reads as nil, and nil
// is not written.
func OptList[T any](o *Object, name string, p *[]T, min, max int, s Shape[T]) {
	if o.c.writing && *p == nil {
		return
	}
	list(o, name, false, p, min, max, s)
}

func list[T any](o *Object, name string, required bool, p *[]T, min, max int, s Shape[T]) {
	o.member(name, required,
		func(n int) {
			readList(o.c, n, p, min, max, func(at int, v *T) { s.read(o.c, at, v) })
		},
		func() {
			writeList(o.c, *p, min, max, func(v *T) { s.write(o.c, v) })
		})
}

// Texts is a required list of strings of at least one UTF-16 code unit.
func Texts[S ~string](o *Object, name string, p *[]S) { texts(o, name, true, p) }

// OptTexts is an optional list of such strings; absent reads as nil, and nil is
// not written.
func OptTexts[S ~string](o *Object, name string, p *[]S) {
	if o.c.writing && *p == nil {
		return
	}
	texts(o, name, false, p)
}

func texts[S ~string](o *Object, name string, required bool, p *[]S) {
	o.member(name, required,
		func(n int) {
			readList(o.c, n, p, 0, 0, func(at int, v *S) { readText(o.c, at, v, 1, 0) })
		},
		func() {
			writeList(o.c, *p, 0, 0, func(v *S) { writeText(o.c, string(*v), 1, 0) })
		})
}

// Map is a required object whose names are free, each of at least one UTF-16
// code unit, and whose values have one shape. It is written in the byte order
// of its names.
func Map[K ~string, T any](o *Object, name string, p *map[K]T, s Shape[T]) {
	o.member(name, true,
		func(n int) { readMap(o.c, n, p, s) },
		func() { writeMap(o.c, *p, s) })
}

// OptMap is an optional object like that of [Map]; absent reads as nil, and nil
// is not written.
func OptMap[K ~string, T any](o *Object, name string, p *map[K]T, s Shape[T]) {
	if o.c.writing && *p == nil {
		return
	}
	o.member(name, false,
		func(n int) { readMap(o.c, n, p, s) },
		func() { writeMap(o.c, *p, s) })
}

func readText[S ~string](c *codec, at int, p *S, min, max int) {
	n := &c.nodes[at]
	if n.kind != '"' {
		c.fail(ErrType, "a string")
		return
	}
	s := text(n.raw)
	if !fits(s, min, max) {
		c.fail(ErrRange, textNeed(min, max))
		return
	}
	*p = S(s)
}

func writeText(c *codec, s string, min, max int) {
	switch {
	case !utf8.ValidString(s):
		c.fail(ErrEncoding, "valid UTF-8")
	case !fits(s, min, max):
		c.fail(ErrRange, textNeed(min, max))
	default:
		c.out, _ = jsontext.AppendQuote(c.out, s) // fails on invalid UTF-8 only
	}
}

func textNeed(min, max int) string {
	if max == 0 {
		return "a string of at least " + strconv.Itoa(min) + " UTF-16 code units"
	}
	return "a string of " + strconv.Itoa(min) + " to " + strconv.Itoa(max) + " UTF-16 code units"
}

func fits(s string, min, max int) bool {
	if len(s) < min {
		return false
	}
	// A string has at most one unit per byte, so a short one needs no count.
	if max > 0 && len(s) > max && Units(s) > max {
		return false
	}
	return min <= 1 || Units(s) >= min
}

// Units is the length of s in UTF-16 code units, as the AI contract counts
// lengths.
func Units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

func readWhole[N ~int64](c *codec, at int, p *N, min, max int64) {
	n := &c.nodes[at]
	if n.kind != '0' {
		c.fail(ErrType, "a number")
		return
	}
	w, ok := parseNumber(n.raw).Whole()
	if !ok || !within(w, min, max) {
		c.fail(ErrRange, wholeNeed(min, max))
		return
	}
	*p = N(w)
}

func writeWhole(c *codec, w, min, max int64) {
	if !within(w, min, max) {
		c.fail(ErrRange, wholeNeed(min, max))
		return
	}
	c.out = strconv.AppendInt(c.out, w, 10)
}

func within(w, min, max int64) bool {
	if max == 0 {
		max = MaxWhole
	}
	return w >= min && w <= max && w >= -MaxWhole && w <= MaxWhole // whatever the shape says
}

func wholeNeed(min, max int64) string {
	if max == 0 {
		max = MaxWhole
	}
	return "a whole number from " + strconv.FormatInt(min, 10) + " to " + strconv.FormatInt(max, 10)
}

func readBool(c *codec, at int, p *bool) {
	switch c.nodes[at].kind {
	case 't':
		*p = true
	case 'f':
		*p = false
	default:
		c.fail(ErrType, "true or false")
	}
}

func readList[T any](c *codec, at int, p *[]T, min, max int, each func(at int, v *T)) {
	n := &c.nodes[at]
	if n.kind != '[' {
		c.fail(ErrType, "a list")
		return
	}
	if !length(c, int(n.size), min, max) {
		return
	}
	list := make([]T, n.size)
	i := at + 1
	for j := range list {
		c.path = append(c.path, step{index: j})
		each(i, &list[j])
		if c.err != nil {
			return
		}
		c.path = c.path[:len(c.path)-1]
		i = int(c.nodes[i].next)
	}
	*p = list
}

func writeList[T any](c *codec, list []T, min, max int, each func(v *T)) {
	if !length(c, len(list), min, max) {
		return
	}
	c.out = append(c.out, '[')
	for j := range list {
		if j > 0 {
			c.out = append(c.out, ',')
		}
		c.path = append(c.path, step{index: j})
		each(&list[j])
		if c.err != nil {
			return
		}
		c.path = c.path[:len(c.path)-1]
	}
	c.out = append(c.out, ']')
}

func length(c *codec, n, min, max int) bool {
	if n >= min && (max == 0 || n <= max) {
		return true
	}
	need := "at least " + strconv.Itoa(min) + " entries"
	if max > 0 {
		need = strconv.Itoa(min) + " to " + strconv.Itoa(max) + " entries"
	}
	c.fail(ErrRange, need)
	return false
}

func readMap[K ~string, T any](c *codec, at int, p *map[K]T, s Shape[T]) {
	n := &c.nodes[at]
	if n.kind != '{' {
		c.fail(ErrType, "an object")
		return
	}
	m := make(map[K]T, n.size)
	for i, j := at+1, 0; i < int(n.next); i, j = int(c.nodes[i].next), j+1 {
		name := text(c.nodes[i].name)
		c.path = append(c.path, step{index: j})
		if name == "" || name == "__proto__" {
			// JavaScript peers drop the second one silently, so it would mean
			// different things at the two ends.
			c.fail(ErrRange, "a name that every reader keeps")
		}
		var v T
		if c.err == nil {
			s.read(c, i, &v)
		}
		if c.err != nil {
			return
		}
		c.path = c.path[:len(c.path)-1]
		m[K(name)] = v
	}
	*p = m
}

func writeMap[K ~string, T any](c *codec, m map[K]T, s Shape[T]) {
	names := make([]K, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	c.out = append(c.out, '{')
	for j, name := range names {
		if j > 0 {
			c.out = append(c.out, ',')
		}
		c.path = append(c.path, step{index: j})
		if name == "__proto__" {
			c.fail(ErrRange, "a name that every reader keeps")
			return
		}
		writeText(c, string(name), 1, 0)
		c.out = append(c.out, ':')
		v := m[name]
		s.write(c, &v)
		if c.err != nil {
			return
		}
		c.path = c.path[:len(c.path)-1]
	}
	c.out = append(c.out, '}')
}
