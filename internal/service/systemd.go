package service

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// unitName is the service's name to systemd.
const unitName = "allod-agent.service"

// systemd is a user manager of systemd.
type systemd struct {
	run run
	// units is the folder of the user's own units, and user the name for logind.
	units, user string
}

func (s systemd) file() string    { return filepath.Join(s.units, unitName) }
func (s systemd) log(Spec) string { return "journalctl --user --unit " + unitName }

// begin asks whether the manager is there at all.
func (s systemd) begin(ctx context.Context) error {
	if _, err := s.run(ctx, "systemctl", "--user", "show-environment"); err != nil {
		return ErrNoManager.Because(err)
	}
	return nil
}

// marker is the first line of a unit that this package wrote.
const marker = "# Written by allod agent install; allod agent uninstall takes it away. What the agent is\n" +
	"# to have in its environment goes into service.env in its folder, and not here.\n"

// write is the unit. What it asks of the kernel takes nothing away from programs
// that the agent starts: they need no more rights than they have, and bring their
// own sandboxes, which a unit's namespaces would forbid.
func (s systemd) write(ctx context.Context, spec Spec) []byte {
	words := spec.words()
	if strings.ContainsAny(spec.Program, oddProgram) {
		words = append(slices.Clone(odd), words...)
	}
	words[0] = ":" + words[0] // no variables in any word
	for i, w := range words {
		words[i] = unitWord(w)
	}
	return []byte(marker + `
[Unit]
Description=Allod, the model agent
StartLimitIntervalSec=1h
StartLimitBurst=10

[Service]
Type=exec
ExecStart=` + strings.Join(words, " ") + `
Restart=on-failure
` + s.backoff(ctx) + `# What the same start would meet again: bad input, not allowed, not found, a conflict, not built.
RestartPreventExitStatus=2 3 4 5 7
SuccessExitStatus=130
KillMode=mixed
TimeoutStopSec=60s
OOMPolicy=continue
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=default.target
`)
}

// systemd takes no program whose path has one of these, however it is escaped, and
// any such word behind the program. So a shell stands before one, which is told
// what to start as words and reads none of them.
const oddProgram = `"'\`

var odd = []string{"/bin/sh", "-c", `exec "$0" "$@"`}

// backoff is how long the manager waits before it starts a failed agent again.
// Before version 254 the time could not grow.
func (s systemd) backoff(ctx context.Context) string {
	const growing = 254
	out, err := s.run(ctx, "systemctl", "--version")
	word, _, _ := strings.Cut(strings.TrimPrefix(string(out), "systemd "), " ")
	version, bad := strconv.Atoi(strings.TrimSpace(word))
	if err != nil || bad != nil || version < growing {
		return "RestartSec=30s\n"
	}
	return "RestartSec=5s\nRestartSteps=8\nRestartMaxDelaySec=5min\n"
}

// unitWord is a word as a unit's command line has it: quotes keep spaces, and
// what means something within them is escaped.
func unitWord(w string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(w) + `"`
}

// unitWords reads words that unitWord wrote, with one space between them.
func unitWords(line string) (words []string, ok bool) {
	for {
		if line, ok = strings.CutPrefix(line, `"`); !ok {
			return nil, false
		}
		var w strings.Builder
		for ended := false; !ended; {
			i := strings.IndexAny(line, `\"%`)
			if i < 0 {
				return nil, false
			}
			w.WriteString(line[:i])
			c := line[i]
			line = line[i+1:]
			switch {
			case c == '"':
				ended = true
			case line == "" || c == '%' && line[0] != '%' || c == '\\' && line[0] != '\\' && line[0] != '"':
				return nil, false
			default:
				w.WriteByte(line[0])
				line = line[1:]
			}
		}
		words = append(words, w.String())
		if line == "" {
			return words, true
		}
		if line, ok = strings.CutPrefix(line, " "); !ok {
			return nil, false
		}
	}
}

func (s systemd) read(text []byte) (Spec, bool) {
	body, ours := bytes.CutPrefix(text, []byte(marker))
	_, rest, found := strings.Cut(string(body), "\nExecStart=")
	line, rest, whole := strings.Cut(rest, "\n")
	if !ours || !found || !whole || strings.Contains(rest, "\nExecStart") {
		return Spec{}, false
	}
	words, ok := unitWords(line)
	if !ok {
		return Spec{}, false
	}
	words[0], ok = strings.CutPrefix(words[0], ":")
	if !ok {
		return Spec{}, false
	}
	if len(words) > len(odd) && slices.Equal(words[:len(odd)], odd) {
		words = words[len(odd):]
	}
	return specOf(words)
}

func (s systemd) installed(ctx context.Context) (notes []string, err error) {
	for _, words := range [][]string{{"daemon-reload"}, {"enable", unitName}} {
		if _, err := s.run(ctx, "systemctl", append([]string{"--user"}, words...)...); err != nil {
			return nil, ErrManager.Because(err)
		}
	}
	if s.lingers(ctx) {
		return []string{"You linger already, so the agent starts with the machine and goes on when you log out."}, nil
	}
	if _, err := s.run(ctx, "loginctl", "enable-linger", s.user); err != nil || !s.lingers(ctx) {
		return []string{"Lingering could not be switched on, so the agent starts when you log in and stops when you log out. An administrator can change that: loginctl enable-linger, with your user name."}, nil
	}
	return []string{"Lingering was switched on for you, so the agent starts with the machine and goes on when you log out. Your other user services do so too; to undo it alone: loginctl disable-linger."}, nil
}

func (s systemd) lingers(ctx context.Context) bool {
	out, err := s.run(ctx, "loginctl", "show-user", "--property=Linger", "--value", s.user)
	return err == nil && strings.TrimSpace(string(out)) == "yes"
}

func (s systemd) removing(ctx context.Context) error {
	return s.order(ctx, "disable", "--now", unitName)
}

func (s systemd) removed(ctx context.Context) (notes []string, err error) {
	if err := s.order(ctx, "daemon-reload"); err != nil {
		return nil, err
	}
	if s.lingers(ctx) {
		return []string{"Lingering stays switched on for you, since other services may need it. To switch it off: loginctl disable-linger."}, nil
	}
	return nil, nil
}

func (s systemd) start(ctx context.Context) error {
	// A start that the limit forbids is one that the owner wants.
	_, _ = s.run(ctx, "systemctl", "--user", "reset-failed", unitName)
	return s.order(ctx, "start", unitName)
}

func (s systemd) stop(ctx context.Context) error { return s.order(ctx, "stop", unitName) }

func (s systemd) order(ctx context.Context, words ...string) error {
	if _, err := s.run(ctx, "systemctl", append([]string{"--user"}, words...)...); err != nil {
		return ErrManager.Because(err)
	}
	return nil
}

func (s systemd) state(ctx context.Context, _ Spec) (State, error) {
	out, err := s.run(ctx, "systemctl", "--user", "show", "--property=ActiveState", "--value", unitName)
	if err != nil {
		return "", ErrNoManager.Because(err)
	}
	switch strings.TrimSpace(string(out)) {
	case "active", "reloading":
		return Running, nil
	case "activating":
		return Restarting, nil
	case "failed":
		return Failed, nil
	}
	return Stopped, nil
}

// environment is what the manager gives the services that it starts.
func (s systemd) environment(ctx context.Context) (map[string]string, error) {
	out, err := s.run(ctx, "systemctl", "--user", "show-environment")
	if err != nil {
		return nil, ErrNoManager.Because(err)
	}
	return shellVariables(string(out)), nil
}

// shellVariables reads lines of NAME=value where a value that a shell would read
// otherwise is written as $'...'. A line that is neither is passed over.
func shellVariables(text string) map[string]string {
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if quoted, odd := strings.CutPrefix(value, "$'"); ok && odd {
			quoted, ok = strings.CutSuffix(quoted, "'")
			// Of C's escapes only these differ from Go's in a string.
			quoted = strings.NewReplacer(`\\`, `\\`, `\'`, `'`, `\?`, `?`, `"`, `\"`).Replace(quoted)
			var err error
			value, err = strconv.Unquote(`"` + quoted + `"`)
			ok = ok && err == nil
		}
		if ok {
			vars[name] = value
		}
	}
	return vars
}
