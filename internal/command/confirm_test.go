package command

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestAsk: y and yes are yes, and nothing else is. What is no terminal is not
// asked.
func TestAsk(t *testing.T) {
	for answer, want := range map[string]error{
		"y\n": nil, "yes\n": nil, "YES": nil, " yes \r\n": nil, "": ErrNeedsYes,
		"\n": ErrDeclined, "n\n": ErrDeclined, "no\n": ErrDeclined, "yess\n": ErrDeclined, "ye\n": ErrDeclined, "\nyes\n": ErrDeclined,
		strings.Repeat(" ", 100) + "yes\n": ErrDeclined,
	} {
		var said bytes.Buffer
		err := Ask(Env{In: strings.NewReader(answer), Err: &said}, "So?")
		if (err == nil) != (want == nil) || !errors.Is(err, want) || !strings.HasPrefix(said.String(), "So? [y/N] ") {
			t.Errorf("%q: %v, %q", answer, err, said.String())
		}
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("yes\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if err := Confirm(Env{In: file, Err: &said}, false, "So?"); !errors.Is(err, ErrNeedsYes) || said.Len() > 0 {
		t.Errorf("a file counts as a person: %v, %q", err, said.String())
	}
	if err := Confirm(Env{In: file, Err: &said}, true, "So?"); err != nil || said.Len() > 0 {
		t.Errorf("asked who said yes: %v, %q", err, said.String())
	}
}
