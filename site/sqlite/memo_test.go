package sqlite

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

func TestMemo(t *testing.T) {
	read := map[string]int{}
	m := newMemo(func(text string) (string, error) {
		read[text]++
		if strings.HasPrefix(text, "bad") {
			return "half", errors.New("bad")
		}
		return "<" + text + ">", nil
	})
	get := func(text string) {
		t.Helper()
		if got, err := m.get(text); err != nil || got != "<"+text+">" {
			t.Fatalf("%.20s reads as %.20s, %v", text, got, err)
		}
	}
	for range 3 {
		get("a")
		get("b") // one that differs is read for itself
	}
	if read["a"] != 1 || read["b"] != 1 {
		t.Errorf("read %v", read)
	}
	for range 3 {
		if _, err := m.get("bad"); err == nil {
			t.Error("an error was forgotten")
		}
	}
	if read["bad"] != 3 {
		t.Errorf("what cannot be read was asked for %d times", read["bad"])
	}
	long := strings.Repeat("l", maxMemoText+1)
	get(long)
	get(long)
	if read[long] != 2 {
		t.Error("a long text is kept")
	}
	// Of many, those in use stay, and the rest goes.
	for i := range 4 * maxMemo {
		get(strconv.Itoa(i))
		get("a")
		if n := len(m.by) + len(m.old); n > maxMemo {
			t.Fatalf("%d are kept", n)
		}
	}
	if read["a"] != 1 {
		t.Errorf("what is asked for all the time was read %d times", read["a"])
	}
	get("b")
	if read["b"] != 2 {
		t.Error("what nobody asks for is kept for ever")
	}
}
