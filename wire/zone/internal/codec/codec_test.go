package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

type message struct {
	Name string
	Few  []leaf
	Free map[string]leaf
	In   *message
}

type leaf struct{ A string }

var leaves = exact.Shape[leaf]{Fields: func(o *exact.Object, l *leaf) { exact.Text(o, "a", &l.A, 0, 4096) }}

// messages bounds each member, and neither the map nor the depth.
var messages zone.Codec[message]

func init() { // it holds itself
	messages = codec.Of(func(o *exact.Object, m *message) {
		exact.Text(o, "name", &m.Name, 1, 64)
		exact.List(o, "few", &m.Few, 0, 4096, leaves)
		exact.Map(o, "free", &m.Free, leaves)
		exact.OptSub(o, "in", &m.In, codec.Shape(messages))
	})
}

func TestF04Message(t *testing.T) {
	zonetest.ExactWith(t, messages, zonetest.Options{Maps: []string{"free", "in.free", "in.in.free"}},
		`{"name":"n","few":[{"a":""},{"a":"x"}],"free":{"k":{"a":"y"}},"in":{"name":"m","few":[{"a":"z"}],"free":{"q":{"a":""}}}}`,
		`{"name":"é","few":[],"free":{}}`,
		`{"name":"n","few":[],"free":{},"in":{"name":"n","few":[],"free":{},"in":{"name":"o","few":[{"a":"b"}],"free":{}}}}`)
}

// TestAppendRefusesWhatReadWould has messages of which each member is in its bounds.
func TestAppendRefusesWhatReadWould(t *testing.T) {
	good := message{Name: "n", Few: []leaf{}, Free: map[string]leaf{}}
	deep := func(levels int) message {
		m := good
		for range levels - 1 {
			inner := m
			m = good
			m.In = &inner
		}
		return m
	}
	free := func(entries int, text string) message {
		m := good
		m.Free = map[string]leaf{}
		for i := range entries {
			m.Free[fmt.Sprint(i)] = leaf{text}
		}
		return m
	}
	full := strings.Repeat("x", 4096)
	for _, c := range []struct {
		name string
		in   message
		want error
	}{
		{"good", good, nil},
		{"as deep as may be", deep(zone.MaxDepth - 1), nil}, // each level has an empty list, which is one deeper
		{"too deep", deep(zone.MaxDepth), exact.ErrTooDeep},
		{"far too deep", deep(200), exact.ErrTooDeep},
		{"as many values as may be", free((zone.MaxValues-4)/2, ""), nil},
		{"too many values", free((zone.MaxValues-4)/2+1, ""), exact.ErrTooMany},
		{"large", free(250, full), nil},
		{"too large", free(260, full), exact.ErrTooLarge},
		{"a member out of its bounds", message{}, exact.ErrRange},
		{"bytes that are no text", message{Name: "\xff"}, exact.ErrEncoding},
		{"a name that is no text", message{Name: "n", Few: []leaf{}, Free: map[string]leaf{"\xff": {}}}, exact.ErrEncoding},
		{"a list out of its bounds", message{Name: "n", Few: make([]leaf, 4097), Free: map[string]leaf{}}, exact.ErrRange},
	} {
		for _, front := range []string{"", "front", strings.Repeat("x", zone.MaxBytes)} {
			room := append(make([]byte, 0, len(front)+64), front...)
			out, err := messages.Append(room, c.in)
			if !errors.Is(err, c.want) || (err != nil) != (out == nil) || string(room) != front {
				t.Errorf("%s: %.40q, %v, want %v", c.name, out, err, c.want)
				continue
			}
			if err == nil {
				text, ok := bytes.CutPrefix(out, []byte(front))
				if reasons := messages.Reasons(text, ""); !ok || len(reasons) > 0 {
					t.Errorf("%s: what is written is refused: %q", c.name, reasons)
				}
			}
		}
	}
	// A shape that says a member twice writes what nobody reads.
	twice := codec.Of(func(o *exact.Object, l *leaf) {
		exact.Text(o, "a", &l.A, 0, 1)
		exact.Text(o, "a", &l.A, 0, 1)
	})
	if out, err := twice.Append(nil, leaf{}); !errors.Is(err, exact.ErrDuplicate) || out != nil {
		t.Errorf("twins are written: %s, %v", out, err)
	}
}

func TestReasons(t *testing.T) {
	for _, c := range []struct {
		problems []*exact.Problem
		path     string
		want     []string
	}{
		{nil, "x", nil},
		{[]*exact.Problem{{Rule: exact.ErrMissing, Path: "a"}}, "", []string{"value must use its exact schema"}},
		{[]*exact.Problem{{Rule: exact.ErrMissing, Path: "a.b[2].c"}}, "x", []string{"x.a.b[2] must use its exact schema"}},
		{[]*exact.Problem{{Rule: exact.ErrMissing, Path: "a.b"}, {Rule: exact.ErrUnknown, Path: "a"}, {Rule: exact.ErrUnknown}}, "x", []string{"x.a must use its exact schema", "x must use its exact schema"}},
		{[]*exact.Problem{{Rule: exact.ErrUnknown, Path: "[3]"}}, "", []string{"value[3] must use its exact schema"}},
		{[]*exact.Problem{{Rule: exact.ErrType, Path: "a", Need: "a string"}, {Rule: exact.ErrMember, Path: "b"}, {Rule: exact.ErrRange, Path: "c"}}, "body.x", []string{
			"body.x.a must be a string", "body.x.b must be one of the contract's words", "body.x.c must use its exact schema"}},
	} {
		if got := codec.Reasons(c.problems, c.path); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got := codec.Unreadable(errors.New("secret"), "x"); !slices.Equal(got, []string{"x must use its exact schema"}) {
		t.Errorf("an error of somebody else: %q", got)
	}
	many := codec.Of(func(o *exact.Object, _ *struct{}) {
		for i := range 100 {
			var b bool
			exact.Bool(o, fmt.Sprint("m", i), &b)
		}
	})
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, `,"m%d":7`, i)
	}
	if got := many.Reasons([]byte("{"+text.String()[1:]+"}"), ""); len(got) != exact.MaxProblems {
		t.Errorf("%d reasons, want the bound of %d", len(got), exact.MaxProblems)
	}
}

// TestManyAtOnce is for the race detector.
func TestManyAtOnce(t *testing.T) {
	text := []byte(`{"name":"n","few":[{"a":"x"}],"free":{"k":{"a":"y"}}}`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				m, err := messages.Read(text)
				if err != nil || len(messages.Reasons(text, "")) > 0 {
					t.Errorf("%v", err)
				}
				if out, err := messages.Append(nil, m); err != nil || !bytes.Equal(out, text) {
					t.Errorf("%s, %v", out, err)
				}
			}
		})
	}
	all.Wait()
}

// TestF04WhatWasReadStays changes the bytes, and what another reading gave.
func TestF04WhatWasReadStays(t *testing.T) {
	src := []byte(`{"name":"n","few":[{"a":"x"}],"free":{"k":{"a":"y"}}}`)
	first, err := messages.Read(src)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := messages.Read(src)
	second.Few[0].A, second.Free["k"], second.Free["more"] = "changed", leaf{"changed"}, leaf{}
	copy(src, bytes.Repeat([]byte("7"), len(src)))
	if first.Name != "n" || first.Few[0].A != "x" || len(first.Free) != 1 || first.Free["k"].A != "y" {
		t.Errorf("the first is now %+v", first)
	}
}
