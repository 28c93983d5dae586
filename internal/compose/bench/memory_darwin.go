package bench

import (
	"os"
	"syscall"
)

// peakOfRunning tells nothing: the system tells it when a process has ended.
func peakOfRunning(int) (peak int64, ok bool) { return 0, false }

// peakOfEnded is the most memory that an ended process had in use, in bytes, or
// 0 where the system does not tell.
func peakOfEnded(s *os.ProcessState) int64 {
	if usage, ok := s.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss
	}
	return 0
}
