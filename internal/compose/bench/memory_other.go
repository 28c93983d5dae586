//go:build !linux && !darwin

package bench

import "os"

// peakOfRunning tells nothing on this system.
func peakOfRunning(int) (peak int64, ok bool) { return 0, false }

// peakOfEnded tells nothing on this system.
func peakOfEnded(*os.ProcessState) int64 { return 0 }
