package service

import (
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Spec is what a definition says: how the agent is started.
type Spec struct {
	// Program is the whole path of the command allod.
	Program string `json:"program"`
	// Home is the agent's folder, a whole path.
	Home string `json:"home"`
	// Config is the configuration file, a whole path; empty for the one in the
	// folder, if there is one.
	Config string `json:"config,omitzero"`
	// Path is where the agent finds other programs, as PATH; empty for what the
	// manager gives.
	Path string `json:"path,omitzero"`
}

// Command is the command behind "allod agent" that a manager starts.
const Command = "service"

// Its flags.
const (
	FlagHome   = "home"
	FlagConfig = "config"
	FlagPath   = "path"
)

// words are what a manager starts.
func (s Spec) words() []string {
	words := []string{s.Program, "agent", Command, "--" + FlagHome, s.Home}
	if s.Config != "" {
		words = append(words, "--"+FlagConfig, s.Config)
	}
	if s.Path != "" {
		words = append(words, "--"+FlagPath, s.Path)
	}
	return words
}

// specOf reads words as they are written, and no others.
func specOf(words []string) (s Spec, ok bool) {
	if len(words) < 5 || len(words)%2 == 0 || words[1] != "agent" || words[2] != Command || words[3] != "--"+FlagHome {
		return Spec{}, false
	}
	s = Spec{Program: words[0], Home: words[4]}
	rest := words[5:]
	if len(rest) > 0 && rest[0] == "--"+FlagConfig && rest[1] != "" {
		s.Config, rest = rest[1], rest[2:]
	}
	if len(rest) > 0 && rest[0] == "--"+FlagPath && rest[1] != "" {
		s.Path, rest = rest[1], rest[2:]
	}
	return s, len(rest) == 0 && s.Program != "" && s.Home != ""
}

// maxPath bounds each path in bytes.
const maxPath = 4096

// check returns [ErrPath] for what not every definition can carry.
func (s Spec) check() error {
	for what, path := range map[string]string{"program": s.Program, "agent's folder": s.Home, "configuration file": s.Config} {
		if (path != "" || what != "configuration file") && !(fits(path) && filepath.IsAbs(path)) {
			return ErrPath.With("It is the path of the " + what + ".")
		}
	}
	if !fits(s.Path) {
		return ErrPath.With("It is PATH.")
	}
	return nil
}

// fits reports whether a text can stand in every kind of definition: U+FFFE and
// its like are no characters of XML.
func fits(text string) bool {
	odd := func(r rune) bool {
		return unicode.IsControl(r) || r == 0xfffe || r == 0xffff || r == '\u2028' || r == '\u2029'
	}
	return len(text) <= maxPath && utf8.ValidString(text) && !strings.ContainsFunc(text, odd)
}
