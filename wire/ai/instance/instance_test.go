package instance_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/ai/instance"
)

func TestID(t *testing.T) {
	a, err := instance.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b, err := instance.New(rand.Reader)
	if err != nil || a == b {
		t.Fatalf("twice %v, %v", a, err)
	}
	if got, ok := instance.Parse(a.String()); !ok || got != a || len(a.String()) != 22 {
		t.Errorf("%q reads as %v, %v", a, got, ok)
	}
	for _, text := range []string{
		"", "x", a.String() + "A", a.String()[1:], strings.Repeat("A", 22), strings.Repeat("/", 22), strings.Repeat("_", 22), "AAAAAAAAAAA\nAAAAAAAAAA", strings.Repeat("A", 1<<16),
	} {
		if id, ok := instance.Parse(text); ok || !id.IsZero() {
			t.Errorf("%.30q reads as %v", text, id)
		}
	}
	if _, err := instance.New(strings.NewReader("short")); err == nil {
		t.Error("an id of too little")
	}
}
