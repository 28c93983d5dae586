package zonetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
)

// sample has one member of each sort.
type sample struct {
	Kind   string
	Count  int64
	Load   float64
	Yes    bool
	Note   string
	Peer   exact.Opt[string]
	In     leaf
	List   []leaf
	Labels map[string]leaf
}

type leaf struct{ Name string }

var leaves = exact.Shape[leaf]{Fields: func(o *exact.Object, l *leaf) {
	exact.Spelled(o, "name", &l.Name, 64, "a word", func(s string) bool { return s != "" })
}}

var samples = exact.Shape[sample]{Fields: func(o *exact.Object, s *sample) {
	exact.Word(o, "kind", &s.Kind, []string{"a", "b"})
	exact.Whole(o, "count", &s.Count, 0, 0)
	exact.Float(o, "load", &s.Load, 0, 1)
	exact.Bool(o, "yes", &s.Yes)
	exact.OptText(o, "note", &s.Note, 1, 64)
	exact.Nullable(o, "peer", &s.Peer, func(o *exact.Object, name string, p *string) {
		exact.Text(o, name, p, 1, 64)
	})
	exact.Sub(o, "in", &s.In, leaves)
	exact.List(o, "list", &s.List, 0, 8, leaves)
	exact.Map(o, "labels", &s.Labels, leaves)
}}

var golden = []string{
	`{"kind":"a","count":7,"load":0.5,"yes":true,"note":"n","peer":null,"in":{"name":"é"},"list":[{"name":"x"},{"name":"y"}],"labels":{"m":{"name":"z"}}}`,
	`{"kind":"b","count":0,"load":0,"yes":false,"peer":"p","in":{"name":"7"},"list":[],"labels":{}}`,
}

var maps = Options{Maps: []string{"labels"}}

// fake is a codec of which each part can be replaced by a worse one.
type fake[T any] struct {
	read    func([]byte) (T, error)
	reasons func([]byte, string) []string
	append  func([]byte, T) ([]byte, error)
}

func (f fake[T]) Read(src []byte) (T, error)               { return f.read(src) }
func (f fake[T]) Reasons(src []byte, path string) []string { return f.reasons(src, path) }
func (f fake[T]) Append(dst []byte, v T) ([]byte, error)   { return f.append(dst, v) }
func of[T any](shape exact.Shape[T], lim exact.Limits) fake[T] {
	return fake[T]{
		func(src []byte) (T, error) { return shape.Read(src, lim) },
		func(src []byte, path string) []string {
			if path == "" {
				path = "value"
			}
			v, err := exact.Parse(src, lim)
			if err != nil {
				return []string{path + " must be one JSON text (" + err.Error() + ")"}
			}
			var all []string
			for _, p := range shape.Problems(v) {
				switch p.Rule {
				case exact.ErrMissing:
					all = append(all, named(path, p.Path[:max(0, strings.LastIndexByte(p.Path, '.'))])+exactSchema)
				case exact.ErrUnknown:
					all = append(all, named(path, p.Path)+exactSchema)
				default:
					all = append(all, named(path, p.Path)+" must be "+p.Need)
				}
			}
			return all
		},
		shape.Append,
	}
}

var limits = exact.Limits{Bytes: zone.MaxBytes, Depth: zone.MaxDepth, Values: zone.MaxValues}

// either has other members for each kind.
type either struct{ Kind, A, B string }

var eithers = []string{`{"kind":"a","a":"x"}`, `{"kind":"b","b":"y"}`}

func TestF04AGoodCodecPasses(t *testing.T) {
	ExactWith[either](t, of(exact.Shape[either]{Fields: func(o *exact.Object, e *either) {
		exact.Word(o, "kind", &e.Kind, []string{"a", "b"})
		switch e.Kind {
		case "a":
			exact.Text(o, "a", &e.A, 1, 4)
		case "b":
			exact.Text(o, "b", &e.B, 1, 4)
		}
	}}, limits), Options{Varieties: map[string]string{"": "kind"}}, eithers...)
	ExactWith[sample](t, of(samples, limits), maps, golden...)
	Exact(t, handshake.OfferCodec, `{"interfacesVersion":"32.1.0","minimumPeerVersion":"32.0.0"}`)
}

// recorder keeps what a check says.
type recorder struct{ said []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

// TestF04ABadCodecIsCaught gives the checks codecs that break one rule each, and
// expects each to say so.
func TestF04ABadCodecIsCaught(t *testing.T) {
	with := func(change func(f *fake[sample])) fake[sample] {
		f := of(samples, limits)
		change(&f)
		return f
	}
	shape := func(fields func(o *exact.Object, s *sample)) fake[sample] {
		return of(exact.Shape[sample]{Fields: fields}, limits)
	}
	good := of(samples, limits)
	for _, c := range []struct {
		name   string
		codec  fake[sample]
		golden []string
		want   string
	}{
		{"no golden text", good, nil, "no golden text"},
		{"a golden text that is none", good, []string{`{`}, "not the text of an object"},
		{"a golden text in another order", good, []string{`{"count":7,"kind":"a","load":0.5,"yes":true,"note":"n","peer":null,"in":{"name":"é"},"list":[{"name":"x"}],"labels":{}}`}, "written again as"},
		{"a list never filled", good, golden[1:], `no golden text has an entry in the list "list"`},
		{"an option never shown", good, golden[:1], "without note in value is accepted"},
		{"a null never shown", good, []string{golden[0], strings.Replace(golden[1], `"p"`, `null`, 1)}, "at value.peer is accepted"},
		{"unknown members dropped", of(exact.Shape[sample]{Unknown: exact.Drop, Fields: samples.Fields}, limits), golden, `with "zqcanary" in value is accepted`},
		{"another letter case read", with(func(f *fake[sample]) {
			f.read = func(src []byte) (sample, error) {
				return samples.Read([]byte(strings.ReplaceAll(string(src), "Kind", "kind")), limits)
			}
		}), golden, "reading says <nil>, the reasons are"},
		{"a member that no text shows", shape(func(o *exact.Object, s *sample) {
			samples.Fields(o, s)
			var more string
			exact.OptText(o, "zqcanary", &more, 0, 0)
		}), golden, "want \"value must use its exact schema\""},
		{"no reasons", with(func(f *fake[sample]) { f.reasons = func([]byte, string) []string { return nil } }), golden, "the reasons are []"},
		{"too many reasons", with(func(f *fake[sample]) {
			f.reasons = func(_ []byte, path string) []string { return []string{"value must use its exact schema"} }
		}), golden, "reading says <nil>"},
		{"the path ignored", with(func(f *fake[sample]) {
			f.reasons = func(src []byte, _ string) []string { return good.reasons(src, "") }
		}), golden, "called body.in"},
		{"paths left out", with(func(f *fake[sample]) {
			f.reasons = func(src []byte, path string) []string {
				if len(good.reasons(src, path)) == 0 {
					return nil
				}
				if path == "" {
					path = "value"
				}
				return []string{path + exactSchema}
			}
		}), golden, "of which none names the place"},
		{"the input repeated", with(func(f *fake[sample]) {
			f.read = func(src []byte) (sample, error) {
				s, err := samples.Read(src, limits)
				if err != nil {
					err = errors.New(string(src))
				}
				return s, err
			}
		}), golden, "repeats what came in"},
		{"half a value", with(func(f *fake[sample]) {
			f.read = func(src []byte) (sample, error) {
				s, err := samples.Read(src, limits)
				if err != nil {
					s.Count = 1
				}
				return s, err
			}
		}), golden, "what is refused gives the value"},
		{"the text changed", with(func(f *fake[sample]) {
			f.read = func(src []byte) (sample, error) {
				s, err := samples.Read(src, limits)
				for i := range src {
					src[i] = 'x'
				}
				return s, err
			}
		}), golden, "reading changes the text"},
		{"written otherwise", with(func(f *fake[sample]) {
			f.append = func(dst []byte, s sample) ([]byte, error) {
				s.Count++
				return samples.Append(dst, s)
			}
		}), golden, "what is written reads as"},
		{"written over", with(func(f *fake[sample]) {
			f.append = func(dst []byte, s sample) ([]byte, error) { return samples.Append(nil, s) }
		}), golden, `behind "front"`},
		{"not written", with(func(f *fake[sample]) {
			f.append = func([]byte, sample) ([]byte, error) { return nil, errors.New("no") }
		}), golden, "cannot be written"},
		{"texts without a bound", shape(func(o *exact.Object, s *sample) {
			exact.Text(o, "kind", &s.Kind, 0, 0)
			s2 := *s
			samplesBut(o, &s2)
			s2.Kind = s.Kind
			*s = s2
		}), golden, "more than MaxText bytes at value.kind is accepted"},
		{"lists without a bound", shape(func(o *exact.Object, s *sample) {
			exact.Word(o, "kind", &s.Kind, []string{"a", "b"})
			head(o, s)
			exact.List(o, "list", &s.List, 0, 0, leaves)
			exact.Map(o, "labels", &s.Labels, leaves)
		}), golden, "with 4097 entries at value.list is accepted"},
		{"no limit", of(samples, exact.Limits{Bytes: 1 << 30, Depth: 16, Values: 1 << 20}), golden, "larger than any message is accepted"},
	} {
		var r recorder
		check[sample](&r, c.codec, maps, c.golden)
		if all := strings.Join(r.said, "\n"); !strings.Contains(all, c.want) {
			t.Errorf("%s: the check does not say %q but %.1000s", c.name, c.want, all)
		}
	}
	// Without varieties, a member that one of them lacks counts as optional in all.
	lax := of(exact.Shape[either]{Fields: func(o *exact.Object, e *either) {
		exact.Word(o, "kind", &e.Kind, []string{"a", "b"})
		exact.OptText(o, "a", &e.A, 1, 4)
		if e.Kind == "b" {
			exact.Text(o, "b", &e.B, 1, 4)
		}
	}}, limits)
	for want, o := range map[string]Options{"": {}, "without a in value is accepted": {Varieties: map[string]string{"": "kind"}}} {
		var r recorder
		check[either](&r, lax, o, eithers)
		if all := strings.Join(r.said, "\n"); !strings.Contains(all, want) || want == "" && all != "" {
			t.Errorf("varieties: the check does not say %q but %.1000s", want, all)
		}
	}
	var r recorder
	if check[sample](&r, good, maps, golden); len(r.said) > 0 {
		t.Errorf("the good codec: %q", r.said)
	}
}

func head(o *exact.Object, s *sample) {
	exact.Whole(o, "count", &s.Count, 0, 0)
	exact.Float(o, "load", &s.Load, 0, 1)
	exact.Bool(o, "yes", &s.Yes)
	exact.OptText(o, "note", &s.Note, 1, 64)
	exact.Nullable(o, "peer", &s.Peer, func(o *exact.Object, name string, p *string) {
		exact.Text(o, name, p, 1, 64)
	})
	exact.Sub(o, "in", &s.In, leaves)
}

func samplesBut(o *exact.Object, s *sample) {
	head(o, s)
	exact.List(o, "list", &s.List, 0, 8, leaves)
	exact.Map(o, "labels", &s.Labels, leaves)
}
