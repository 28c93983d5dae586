package service

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/allodhq/allod/internal/keyfile"
)

// EnvironmentFile is the file in the agent's folder that says what a service has
// in its environment, API keys above all.
const EnvironmentFile = "service.env"

// maxEnvironment bounds it in bytes.
const maxEnvironment = 64 << 10

// ReadEnvironment reads service.env of an agent's folder; where there is none, it
// says nothing. It returns [ErrEnvironment], which names the line, for a file that
// other users can read and for a line that is not understood.
func ReadEnvironment(home string) (map[string]string, error) {
	path := filepath.Join(home, EnvironmentFile)
	info, err := os.Stat(path) // before it is opened: a pipe would wait
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, ErrEnvironment.Because(err)
	case !info.Mode().IsRegular() || keyfile.Reached(info):
		return nil, ErrEnvironment.With("Others can reach it, or it is no file.")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, ErrEnvironment.Because(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEnvironment+1))
	if err != nil || len(text) > maxEnvironment {
		return nil, ErrEnvironment.With("It cannot be read, or is larger than 64 KiB.").Because(err)
	}
	return parseEnvironment(string(text))
}

func parseEnvironment(text string) (map[string]string, error) {
	vars := map[string]string{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		_, twice := vars[name]
		if !ok || twice || !isName(name) || name == "ALLOD_HOME" || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) || strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "'") {
			return nil, ErrEnvironment.With("It is line " + strconv.Itoa(number) + ".")
		}
		vars[name] = value
	}
	return vars, nil
}

// isName reports whether s can name an environment variable.
func isName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != ""
}

// plain are the variables of a person's session that a manager gives as well.
var plain = []string{"HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "USERPROFILE", "USERNAME", "APPDATA", "LOCALAPPDATA", "TEMP", "TMP", "SYSTEMROOT", "COMSPEC", "PATHEXT"}

// Environment is what the agent has in its environment as the service, as
// NAME=value. Where the manager does not say what it gives, it is what every
// session has. It returns [ErrEnvironment] and [ErrNoManager].
func (m *Manager) Environment(ctx context.Context, spec Spec) ([]string, error) {
	vars, err := m.platform.environment(ctx)
	if err != nil {
		return nil, err
	}
	if vars == nil {
		vars = map[string]string{}
		for _, name := range plain {
			if value, ok := os.LookupEnv(name); ok {
				vars[name] = value
			}
		}
	}
	file, err := ReadEnvironment(spec.Home)
	if err != nil {
		return nil, err
	}
	maps.Copy(vars, spec.Variables())
	maps.Copy(vars, file)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		list = append(list, name+"="+vars[name])
	}
	return list, nil
}

// Variables are what the definition itself puts into the environment.
func (s Spec) Variables() map[string]string {
	vars := map[string]string{"ALLOD_HOME": s.Home}
	if s.Path != "" {
		vars["PATH"] = s.Path
	}
	return vars
}

// EndsForGood reports whether an agent that ends with this exit code would end so
// again: a manager must not start it anew. See refusal.ExitCode; the unit of
// systemd has the same list.
func EndsForGood(code int) bool { return slices.Contains([]int{2, 3, 4, 5, 7}, code) }
