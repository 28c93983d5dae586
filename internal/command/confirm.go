package command

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// Confirm asks the owner a question that y or yes answers, unless they said yes
// before. It returns [ErrNeedsYes] and [ErrDeclined].
func Confirm(env Env, yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !Terminal(env.In):
		return ErrNeedsYes
	}
	return Ask(env, question)
}

// Ask asks whoever is there. The end of the input is nobody. It returns what
// [Confirm] does.
func Ask(env Env, question string) error {
	fmt.Fprintf(env.Err, "%s [y/N] ", question)
	line, err := bufio.NewReader(io.LimitReader(env.In, 100)).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(env.Err)
		return ErrNeedsYes
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return ErrDeclined
}

// Terminal reports whether a person types.
func Terminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
