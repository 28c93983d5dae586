package host

import "strings"

// osRelease reads the assignments of an os-release file. It is read by shells too,
// and os-release(5) allows the part of their language that is understood here: one
// assignment a line, comments, and values without quotes or in quotes of one kind.
// A line that is none of it is skipped. Of two assignments the later one counts.
func osRelease(content string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(content) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if v, ok := unquote(value); ok {
			values[name] = v
		}
	}
	return values
}

// unquote is the value that is written so, and whether it is one.
func unquote(s string) (string, bool) {
	const special = "\"'\\$`" // what must not stand bare
	if s == "" || !strings.ContainsAny(s, special+" \t") {
		return s, true
	}
	quote := s[0]
	if len(s) < 2 || s[len(s)-1] != quote || quote != '"' && quote != '\'' {
		return "", false
	}
	inner := s[1 : len(s)-1]
	if quote == '\'' {
		return inner, !strings.Contains(inner, "'")
	}
	var b strings.Builder
	for i := 0; i < len(inner); i++ {
		switch c := inner[i]; c {
		case '"', '$', '`':
			return "", false // the value ends early, or a shell would put something in
		case '\\':
			if i+1 == len(inner) {
				return "", false
			}
			if i++; !strings.ContainsRune("\"\\$`", rune(inner[i])) {
				b.WriteByte('\\') // as shells have it: it escapes only what needs it
			}
			b.WriteByte(inner[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}
