package exact

import (
	"bytes"
	"testing"
)

// TestBytes holds that what is written has room of its own, and that nothing of it
// stays in the room that is kept.
func TestBytes(t *testing.T) {
	type text struct{ V string }
	shape := Shape[text]{Fields: func(o *Object, v *text) { Text(o, "v", &v.V, 1, 0) }}
	first, err := shape.Bytes(text{"first"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := shape.Bytes(text{"other"})
	if err != nil || string(first) != `{"v":"first"}` || string(second) != `{"v":"other"}` {
		t.Errorf("written %s and %s, %v", first, second, err)
	}
	if refused, err := shape.Bytes(text{}); err == nil || refused != nil {
		t.Errorf("a value that is refused is written as %q, %v", refused, err)
	}
	room := *rooms.Get().(*[]byte)
	if bytes.ContainsAny(room[:cap(room)], "frst") {
		t.Errorf("the room still holds %q", room[:cap(room)])
	}
}
