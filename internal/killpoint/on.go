//go:build killpoints

package killpoint

import (
	"os"
	"strconv"
	"time"
)

// At kills this process if it was told to do so at p.
func At(p Point) {
	if os.Getenv("ALLOD_KILLPOINT") == string(p) {
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {} // until the signal arrives
	}
}

// Interval is how far apart the program is to do what it usually does every d: the part
// of d that ALLOD_KILLPOINT_HASTE says, as in 20 for a twentieth, and d without it.
func Interval(d time.Duration) time.Duration {
	haste, err := strconv.ParseInt(os.Getenv("ALLOD_KILLPOINT_HASTE"), 10, 32)
	if err != nil || haste < 1 {
		return d
	}
	return d / time.Duration(haste)
}
