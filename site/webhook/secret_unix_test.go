//go:build unix

package webhook

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSecretFileIsNoPipe holds that a pipe is not waited for.
func TestSecretFileIsNoPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no pipes here")
	}
	if _, err := LoadSecrets(path); !errors.Is(err, ErrSecretFile) {
		t.Errorf("%v", err)
	}
}
