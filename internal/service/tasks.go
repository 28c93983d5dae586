package service

import (
	"bytes"
	"context"
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"
)

// taskName is the service's name to the Task Scheduler.
const taskName = `\Allod\Agent`

// tasks is the Task Scheduler of Windows, which starts a program when a user logs
// on, without the password that a service would need.
type tasks struct {
	run run
	// folder keeps the definition, and account is the user's name with its domain.
	folder, account string
	// answers reports whether an agent answers in a folder: the scheduler says its
	// states in the language of the system only.
	answers func(ctx context.Context, home string) bool
}

func (t tasks) file() string    { return filepath.Join(t.folder, "agent-task.xml") }
func (t tasks) log(Spec) string { return "" }

func (t tasks) begin(ctx context.Context) error {
	if _, err := t.run(ctx, "schtasks", "/Query", "/TN", `\`); err != nil {
		return ErrNoManager.Because(err)
	}
	return nil
}

const (
	taskHead = `<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>Allod, the model agent. Written by allod agent install; allod agent uninstall takes it away.</Description>
  </RegistrationInfo>
`
	taskProgram = "      <Command>"
	taskWords   = "</Command>\n      <Arguments>"
	taskEnd     = "</Arguments>\n"
)

func (t tasks) write(_ context.Context, spec Spec) []byte {
	words := spec.words()
	quoted := make([]string, 0, len(words)-1)
	for _, w := range words[1:] {
		quoted = append(quoted, windowsWord(w))
	}
	account := xmlText(t.account)
	text := taskHead + `  <Triggers>
    <LogonTrigger>
      <Enabled>true</Enabled>
      <UserId>` + account + `</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>` + account + `</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>10</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
` + taskProgram + xmlText(spec.Program) + taskWords + xmlText(strings.Join(quoted, " ")) + taskEnd + `    </Exec>
  </Actions>
</Task>
`
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(strings.ReplaceAll(text, "\n", "\r\n"))) {
		out = binary.LittleEndian.AppendUint16(out, u)
	}
	return out
}

func (t tasks) read(text []byte) (Spec, bool) {
	body, ok := bytes.CutPrefix(text, []byte{0xff, 0xfe})
	if !ok || len(body)%2 != 0 {
		return Spec{}, false
	}
	units := make([]uint16, 0, len(body)/2)
	for pair := range slices.Chunk(body, 2) {
		units = append(units, binary.LittleEndian.Uint16(pair))
	}
	rest, ours := strings.CutPrefix(strings.ReplaceAll(string(utf16.Decode(units)), "\r\n", "\n"), taskHead)
	_, rest, found := strings.Cut(rest, taskProgram)
	program, rest, more := strings.Cut(rest, taskWords)
	line, _, whole := strings.Cut(rest, taskEnd)
	program, good := unxml(program)
	line, fine := unxml(line)
	if !(ours && found && more && whole && good && fine) {
		return Spec{}, false
	}
	return specOf(append([]string{program}, windowsWords(line)...))
}

// windowsWord is a word as the C runtime of Windows reads it: backslashes count
// only before a quote.
func windowsWord(w string) string {
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for _, r := range w {
		switch r {
		case '\\':
			slashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, slashes+1)) // the others are written already
			slashes = 0
		default:
			slashes = 0
		}
		b.WriteRune(r)
	}
	b.WriteString(strings.Repeat(`\`, slashes) + `"`)
	return b.String()
}

// windowsWords reads a line that windowsWord wrote.
func windowsWords(line string) (words []string) {
	var w strings.Builder
	slashes, quoted := 0, false
	for _, r := range line {
		switch {
		case r == '\\':
			slashes++
			continue
		case r == '"':
			w.WriteString(strings.Repeat(`\`, slashes/2))
			if slashes%2 == 1 {
				w.WriteByte('"')
			} else if quoted = !quoted; !quoted {
				words = append(words, w.String())
				w.Reset()
			}
			slashes = 0
			continue
		}
		w.WriteString(strings.Repeat(`\`, slashes))
		slashes = 0
		if quoted {
			w.WriteRune(r)
		}
	}
	return words
}

func (t tasks) installed(ctx context.Context) (notes []string, err error) {
	if _, err := t.run(ctx, "schtasks", "/Create", "/TN", taskName, "/XML", t.file(), "/F"); err != nil {
		return nil, ErrManager.Because(err)
	}
	return []string{"The agent starts when you log on, in a window of its own, and stops when you log off."}, nil
}

func (t tasks) removing(ctx context.Context) error {
	_ = t.stop(ctx) // an error says that it does not run
	if _, err := t.run(ctx, "schtasks", "/Delete", "/TN", taskName, "/F"); err != nil {
		return ErrManager.Because(err)
	}
	return nil
}

func (t tasks) removed(context.Context) (notes []string, err error) { return nil, nil }

func (t tasks) start(ctx context.Context) error { return t.order(ctx, "/Run") }
func (t tasks) stop(ctx context.Context) error  { return t.order(ctx, "/End") }

func (t tasks) order(ctx context.Context, word string) error {
	if _, err := t.run(ctx, "schtasks", word, "/TN", taskName); err != nil {
		return ErrManager.Because(err)
	}
	return nil
}

func (t tasks) state(ctx context.Context, spec Spec) (State, error) {
	if t.answers(ctx, spec.Home) {
		return Running, nil
	}
	return Stopped, nil
}

func (t tasks) environment(context.Context) (map[string]string, error) { return nil, nil }
