//go:build !unix

package keyfile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
)

// Where the mode keeps nobody out, no key is written and none is read.
func TestNothingIsKeptWhereNothingIsProtected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	k, err := key.NewKeys[key.DeviceRole](bytes.NewReader(make([]byte, 64)), time.UnixMilli(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := keyfile.Create(path, k); !errors.Is(err, keyfile.ErrPlatform) {
		t.Errorf("creating: %v", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("there is a file")
	}
	if err := keyfile.CreateSecret(path, []byte("secret")); !errors.Is(err, keyfile.ErrPlatform) || !errors.Is(keyfile.Platform(), keyfile.ErrPlatform) {
		t.Errorf("creating a secret: %v", err)
	}
	if got, err := keyfile.LoadSecret(path, 100); !errors.Is(err, keyfile.ErrPlatform) || got != nil {
		t.Errorf("loading a secret: %v", err)
	}
	content, err := key.MarshalFile(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := keyfile.Load[key.DeviceRole](path); !errors.Is(err, keyfile.ErrPlatform) || !got.IsZero() {
		t.Errorf("loading: %v", err)
	}
}
