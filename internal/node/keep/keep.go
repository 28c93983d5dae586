package keep

import (
	"errors"
	"io/fs"
	"os"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
)

// What this package refuses.
var (
	ErrDamaged = refusal.NewKind("node-file-damaged", 500,
		"A file in which the node keeps its identity is damaged. It was left as it is, and nothing was written.",
		"Put back a copy of the file. Without one, move it away, remove the node at the controller, and join the machine again.")
	ErrOpen = refusal.NewKind("node-file-open-to-others", 403,
		"Other users of this machine can read or change a file in which the node keeps its identity.",
		"Run chmod 600 on the files in the node's folder. If somebody may have read them, run allod node rotate at the controller.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "What a node keeps", Kinds: []*refusal.Kind{ErrDamaged, ErrOpen}}

// Limits bound every file.
var Limits = exact.Limits{Bytes: 128 << 10, Depth: 4, Values: 128}

// File keeps one state.
type File[T any] struct {
	Path  string
	Shape exact.Shape[T]
}

// Load returns what was last saved, and the zero value where nothing was. It returns
// ErrDamaged, ErrOpen and datadir.ErrRead.
func (f File[T]) Load() (T, error) {
	var zero T
	info, err := os.Lstat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return zero, nil
	}
	if err != nil {
		return zero, datadir.ErrRead.Because(err)
	}
	if !info.Mode().IsRegular() {
		return zero, ErrDamaged
	}
	if keyfile.Reached(info) {
		return zero, ErrOpen
	}
	content, err := datadir.Read(f.Path, Limits.Bytes)
	if err != nil {
		return zero, err
	}
	v, err := f.Shape.Read(content, Limits)
	if err != nil {
		return zero, ErrDamaged.Because(err)
	}
	return v, nil
}

// Save returns once v is on the disk in the place of what was there. After
// datadir.ErrWrite the old state is there still.
func (f File[T]) Save(v T) error {
	content, err := f.Shape.Bytes(v)
	if err != nil {
		return err
	}
	return datadir.Replace(f.Path, append(content, '\n'))
}
