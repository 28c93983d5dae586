//go:build !linux

package control_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/allodhq/allod/internal/node/control"
)

func owner(fs.FileInfo) uint32 { return 0 }

var roles = map[string]func(args []string) int{}

func TestOtherSystems(t *testing.T) {
	if _, err := control.Listen(control.Path, control.Options{}, echo); !errors.Is(err, control.ErrSystem) {
		t.Errorf("listening: %v", err)
	}
	if _, err := control.Ask(t.Context(), control.Path, control.Options{}, "m", []byte("1")); !errors.Is(err, control.ErrSystem) {
		t.Errorf("asking: %v", err)
	}
}
