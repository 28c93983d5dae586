package configfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tailscale/hujson"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
)

// ErrEdit refuses to change a file that a program cannot change for its owner.
var ErrEdit = refusal.NewKind("config-not-changed", 500,
	"The configuration file could not be changed, and stays as it is.",
	"Make the file and its folder writable for this user, or change the file by hand.")

// Change is one member to set.
type Change struct {
	// Path are the names that lead to the member. Objects on the way that are
	// missing are made.
	Path []string
	// Value is marshalled as JSON; nil takes the member out.
	Value any
}

// Edit changes members of the file at path and leaves its comments and all else as
// they stand; it makes the file if there is none. check is asked about the new
// content before it takes the place of the old, and its error is returned. Edit
// returns [ErrEdit] and the errors of [Read] about the file as a whole. A file that
// is a link is changed where it leads, and not where that is not there. One that is
// read-only, or that was changed meanwhile, is left alone.
func Edit(path string, changes []Change, check func(content []byte) error) error {
	mode := fs.FileMode(0o600)
	var before []byte // nil for no file
	content, err := load(path)
	switch {
	case errors.Is(err, ErrAbsent):
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return ErrEdit.With("It is a link to a file that is not there.")
		}
		content = []byte("{}\n")
	case err != nil:
		return err
	default:
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return ErrEdit.Because(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return ErrEdit.Because(err)
		}
		if mode = info.Mode().Perm(); mode&0o200 == 0 {
			return ErrEdit.With("It is read-only.")
		}
		before = content
	}
	d, err := parse(content)
	if err != nil {
		return err
	}
	// A file that looks as the formatter leaves it goes on doing so. A clone would
	// have lost its trailing commas.
	tidy, err := hujson.Parse(d.tree.Pack())
	if err != nil {
		return ErrEdit.Because(err)
	}
	tidy.Format()
	formatted := bytes.Equal(trimmed(tidy), trimmed(d.tree))
	for _, c := range changes {
		if err := set(&d.tree, c); err != nil {
			return ErrEdit.Because(err)
		}
	}
	if formatted {
		d.tree.Format()
	}
	content = append(trimmed(d.tree), '\n')
	if err := check(content); err != nil {
		return err
	}
	switch now, err := load(path); {
	case errors.Is(err, ErrAbsent) && before == nil:
	case err != nil || before == nil || !bytes.Equal(now, before):
		return ErrEdit.With("It was changed meanwhile. Try again.")
	}
	if err := datadir.ReplaceAs(path, content, mode); err != nil {
		return ErrEdit.Because(err)
	}
	return nil
}

// trimmed is a tree as text, without the line breaks at its end.
func trimmed(tree hujson.Value) []byte { return bytes.TrimRight(tree.Pack(), "\n") }

// operation is one step of a JSON Patch, RFC 6902.
type operation struct {
	Op    string         `json:"op"`
	Path  string         `json:"path"`
	Value jsontext.Value `json:"value,omitzero"`
}

func set(tree *hujson.Value, c Change) error {
	var steps []operation
	pointer := jsontext.Pointer("")
	for i, name := range c.Path {
		pointer = pointer.AppendToken(name)
		there := tree.Find(string(pointer)) != nil
		last := i == len(c.Path)-1
		switch {
		case last && c.Value == nil && there:
			steps = append(steps, operation{Op: "remove", Path: string(pointer)})
		case last && c.Value == nil:
			return nil
		case last:
			value, err := json.Marshal(c.Value, json.Deterministic(true))
			if err != nil {
				return err
			}
			steps = append(steps, operation{"add", string(pointer), value})
		case there:
		case c.Value == nil:
			return nil
		default:
			steps = append(steps, operation{"add", string(pointer), jsontext.Value("{}")})
		}
	}
	patch, err := json.Marshal(steps)
	if err != nil {
		return err
	}
	return tree.Patch(patch)
}
