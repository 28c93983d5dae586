//go:build unix

package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is how much of the processors this process has used, or 0 where
// the system does not tell.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
