package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/allodhq/allod/refusal"
)

// What a question to the owner ends with.
var (
	ErrNeedsYes = refusal.NewKind("needs-yes", 400,
		"The command asks before it changes this, and there is no terminal to ask at.",
		"Run it at a terminal, or give --yes if you mean it.")
	ErrDeclined = refusal.NewKind("declined", 409,
		"The answer was not yes, so nothing was changed.",
		"Answer y or yes to go on.")
)

// confirm asks the owner a question that y or yes answers, unless they said yes
// before. It returns [ErrNeedsYes] and [ErrDeclined].
func confirm(env Env, yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !terminal(env.In):
		return ErrNeedsYes
	}
	return ask(env, question)
}

// ask asks whoever is there. The end of the input is nobody.
func ask(env Env, question string) error {
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
