package runner_test

import (
	"context"
	"testing"
	"time"
)

// contextOf is a context of the test's own, that outlives its clean-up.
func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(context.Background())
}

// until waits for something to become true.
func until(t *testing.T, is func() bool) {
	t.Helper()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !is() {
		select {
		case <-end.C:
			t.Fatal("it never became true")
		case <-time.After(5 * time.Millisecond):
		}
	}
}
