//go:build !unix

package ca_test

import (
	"crypto/rand"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/keyfile"
)

// TestNoAuthorityWhereNothingIsProtected: where a mode keeps nobody out, there is
// no file with a key.
func TestNoAuthorityWhereNothingIsProtected(t *testing.T) {
	dir := t.TempDir()
	if a, err := ca.Open(dir, rand.Reader, time.Now); !errors.Is(err, keyfile.ErrPlatform) || a != nil {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}
