package service

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestReadEnvironment(t *testing.T) {
	home := t.TempDir()
	if vars, err := ReadEnvironment(home); vars != nil || err != nil {
		t.Errorf("none: %v, %v", vars, err)
	}
	path := filepath.Join(home, EnvironmentFile)
	for text, want := range map[string]map[string]string{
		"":                                    {},
		"# mine\n\nA=b\n":                     {"A": "b"},
		"A=b=c d # e":                         {"A": "b=c d # e"},
		" A=b \r\nC_1=\r\n":                   {"A": "b", "C_1": ""},
		"A=$HOME\\n":                          {"A": `$HOME\n`},
		"A=b\nA=c":                            nil,
		"export A=b":                          nil,
		"A = b":                               nil,
		"A":                                   nil,
		"=b":                                  nil,
		"1A=b":                                nil,
		`A="b"`:                               nil,
		"A='b'":                               nil,
		"A=b\x00c":                            nil,
		"A=\xff":                              nil,
		"ALLOD_HOME=/elsewhere":               nil,
		"A=" + strings.Repeat("b", 64<<10):    nil,
		"#" + strings.Repeat("b", 64<<10-1):   {},
		"A=b\n" + strings.Repeat(" ", 63<<10): {"A": "b"},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		vars, err := ReadEnvironment(home)
		if (err != nil) != (want == nil) || err != nil && !errors.Is(err, ErrEnvironment) || !maps.Equal(vars, want) {
			t.Errorf("%.40q: %v, %v", text, vars, err)
		}
	}
	if err := os.WriteFile(path, []byte("A=b\n\nCANARY"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEnvironment(home); err == nil || !strings.Contains(err.Error(), "line 3") || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("%v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.WriteFile(path, []byte("A=b"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o644: false, 0o620: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadEnvironment(home); (err == nil) != ok || err != nil && !errors.Is(err, ErrEnvironment) {
			t.Errorf("%o: %v", mode, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEnvironment(home); !errors.Is(err, ErrEnvironment) {
		t.Errorf("a folder: %v", err)
	}
}

// TestEnvironment: the manager's, then the definition's, then the owner's file.
func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, EnvironmentFile), []byte("KEY=k\nLANG=de\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &world{}
	got, err := w.manager(home).Environment(t.Context(), Spec{Program: "/p", Home: home, Path: "/usr/bin"})
	want := []string{"ALLOD_HOME=" + home, "KEY=k", "LANG=de", "ODD=a'b\n\"c", "PATH=/usr/bin"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	w.deaf = true
	if _, err := w.manager(home).Environment(t.Context(), Spec{Home: home}); !errors.Is(err, ErrNoManager) {
		t.Errorf("%v", err)
	}
	// launchd does not say: what every session has, and nothing else of this one's.
	t.Setenv("HOME", "/home/ann")
	t.Setenv("CANARY_KEY", "canary")
	m := &Manager{platform: aLaunchd}
	got, err = m.Environment(t.Context(), Spec{Home: home, Path: "/bin"})
	if err != nil || !slices.Contains(got, "HOME=/home/ann") || !slices.Contains(got, "KEY=k") || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "canary") }) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestShellVariables(t *testing.T) {
	got := shellVariables("A=b c\nB=$'x\\ty\\\\z\\'\"'\nC=$'open\nnone\nD=\nE=a=b\n")
	want := map[string]string{"A": "b c", "B": "x\ty\\z'\"", "D": "", "E": "a=b"}
	if !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestExitCodes: the unit's list is the function's.
func TestExitCodes(t *testing.T) {
	unit := string(oldSystemd.write(t.Context(), plainSpec))
	var codes []string
	for code := range 256 {
		if EndsForGood(code) {
			codes = append(codes, string(rune('0'+code)))
		}
	}
	if !strings.Contains(unit, "\nRestartPreventExitStatus="+strings.Join(codes, " ")+"\n") {
		t.Errorf("%q", codes)
	}
}
