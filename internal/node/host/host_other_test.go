//go:build !linux

package host

import (
	"errors"
	"testing"
)

func TestOtherSystems(t *testing.T) {
	if _, err := New(Options{}); !errors.Is(err, ErrSystem) {
		t.Error(err)
	}
}
