package shapes_test

import (
	"reflect"
	"testing"
)

// FuzzMessages reads any bytes as any message of any version. The first argument
// picks the message.
func FuzzMessages(f *testing.F) {
	var subjects []subject
	for _, e := range editions {
		subjects = append(subjects, e.subjects...)
	}
	for i, s := range subjects {
		for _, v := range s.examples(f) {
			body, err := s.write(v)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(byte(i), body)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		s := subjects[int(which)%len(subjects)]
		v, err := s.read(body)
		if err != nil {
			if !isBadRequest(err) {
				t.Fatalf("refused with %#v", err)
			}
			if v != nil && !reflect.DeepEqual(v, reflect.Zero(s.typ).Interface()) {
				t.Fatalf("an error came with the value %#v", v)
			}
			return
		}
		first, err := s.write(v)
		if err != nil {
			t.Fatalf("what was read is not written: %v", err)
		}
		again, err := s.read(first)
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%v\nread first %#v\nthen       %#v", err, v, again)
		}
		second, err := s.write(again)
		if err != nil || string(second) != string(first) {
			t.Fatalf("%v\nwritten first %s\nthen          %s", err, first, second)
		}
	})
}
