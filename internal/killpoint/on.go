//go:build killpoints

package killpoint

import "os"

// At kills this process if it was told to do so at p.
func At(p Point) {
	if os.Getenv("ALLOD_KILLPOINT") == string(p) {
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {} // until the signal arrives
	}
}
