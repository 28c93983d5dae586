package configfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/allodhq/allod/internal/configfile"
)

func change(value any, path ...string) configfile.Change {
	return configfile.Change{Path: path, Value: value}
}

func accept([]byte) error { return nil }

// TestEdit: what was asked for is set, and nothing else moves.
func TestEdit(t *testing.T) {
	for name, c := range map[string]struct {
		before  string // empty for no file
		changes []configfile.Change
		after   string
	}{
		"a file is made": {"", []configfile.Change{change("named", "agent", "offer")}, "{\"agent\": {\"offer\": \"named\"}}\n"},
		"comments stay": {
			"{\n\t// mine\n\t\"agent\": {\n\t\t\"offer\": \"self\", // why\n\t},\n}\n", []configfile.Change{change("named", "agent", "offer")},
			"{\n\t// mine\n\t\"agent\": {\n\t\t\"offer\": \"named\", // why\n\t},\n}\n",
		},
		"a member is added, and objects on the way": {
			"{\n\t\"agent\": {\n\t\t\"x\": 1,\n\t},\n}\n", []configfile.Change{change(7, "agent", "spend", "cap")},
			"{\n\t\"agent\": {\n\t\t\"x\":     1,\n\t\t\"spend\": {\"cap\": 7},\n\t},\n}\n",
		},
		"odd spacing is the owner's own": {
			"{ \"a\" :1,   /*b*/ \"c\":2}", []configfile.Change{change(3, "c")},
			"{ \"a\" :1,   /*b*/ \"c\":3}\n",
		},
		"a member is taken out": {
			"{\"a\": {\"b\": 1, \"c\": 2}}\n", []configfile.Change{change(nil, "a", "b"), change(nil, "a", "x"), change(nil, "y", "z")},
			"{\"a\": {\"c\": 2}}\n",
		},
		"names are no patterns": {
			"{\"a/b\": {\"~1\": 1}, \"a\": {\"b\": 2}}\n", []configfile.Change{change(9, "a/b", "~1")},
			"{\"a/b\": {\"~1\": 9}, \"a\": {\"b\": 2}}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "c.json")
			if c.before != "" {
				if err := os.WriteFile(path, []byte(c.before), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			if err := configfile.Edit(path, c.changes, accept); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != c.after {
				t.Errorf("%q, %v", got, err)
			}
			want := os.FileMode(0o640)
			if c.before == "" {
				want = 0o600
			}
			if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != want {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		})
	}
}

// TestEditRefused: a change that is refused leaves the file as it was.
func TestEditRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	const before = "{\"a\": 1} // mine"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	if err := configfile.Edit(path, []configfile.Change{change(2, "a")}, func([]byte) error { return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	if err := configfile.Edit(path, []configfile.Change{change(2, "a", "b")}, accept); !errors.Is(err, configfile.ErrEdit) {
		t.Error(err)
	}
	if got, _ := os.ReadFile(path); string(got) != before {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := configfile.Edit(path, []configfile.Change{change(2, "a")}, accept); !errors.Is(err, configfile.ErrNotJSON) {
		t.Error(err)
	}
}

// TestEditThroughALink: the file that is meant is changed, and the link stays.
func TestEditThroughALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "c.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Skip("no links here")
	}
	if err := configfile.Edit(link, []configfile.Change{change(true, "a")}, accept); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "{\"a\": true}\n" && string(got) != "{\"a\":true}\n" {
		t.Errorf("%q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestEditLosesNothing: what its owner did to a file meanwhile, a link, and a file
// that its owner closed stay as they are.
func TestEditLosesNothing(t *testing.T) {
	changes := []configfile.Change{change("named", "offer")}
	for name, before := range map[string]string{"changed": "{\"a\": 1}\n", "made": "", "empty": "{}"} {
		path := filepath.Join(t.TempDir(), "c.json")
		if before != "" {
			if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := configfile.Edit(path, changes, func([]byte) error { return os.WriteFile(path, []byte("{\"mine\": 1}"), 0o600) })
		if got, _ := os.ReadFile(path); !errors.Is(err, configfile.ErrEdit) || string(got) != "{\"mine\": 1}" {
			t.Errorf("%s meanwhile: %q, %v", name, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(path, []byte("{}"), 0o400); err != nil {
		t.Fatal(err)
	}
	err := configfile.Edit(path, changes, accept)
	if got, _ := os.ReadFile(path); !errors.Is(err, configfile.ErrEdit) || string(got) != "{}" {
		t.Errorf("read-only: %q, %v", got, err)
	}
	link := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(filepath.Join(t.TempDir(), "away.json"), link); err != nil {
		t.Skip(err)
	}
	err = configfile.Edit(link, changes, accept)
	if info, lerr := os.Lstat(link); !errors.Is(err, configfile.ErrEdit) || lerr != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("a link to what is not there: %v, %v", err, lerr)
	}
}
