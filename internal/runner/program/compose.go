package program

import (
	"strings"

	"github.com/allodhq/allod/wire/ai"
)

// speakers are the words in front of the turns of a chat.
var speakers = map[ai.Role]string{ai.RoleUser: "User: ", ai.RoleAssistant: "Assistant: ", ai.RoleSystem: "System: "}

// compose is the one text that a program reads, and whether the payload is one
// that has some: the system text unless it is blank, then the prompt or the
// turns, with blank lines between.
func compose(p ai.Payload) (string, bool) {
	var system string
	var parts []string
	switch p := p.(type) {
	case ai.Generate:
		system, parts = p.System, []string{p.Prompt}
	case ai.Chat:
		system = p.System
		for _, m := range p.Messages {
			speaker, ok := speakers[m.Role]
			if !ok {
				return "", false
			}
			parts = append(parts, speaker+m.Content)
		}
	default:
		return "", false
	}
	if strings.TrimSpace(system) != "" {
		parts = append([]string{"System instructions:\n" + system}, parts...)
	}
	return strings.Join(parts, "\n\n"), true
}
