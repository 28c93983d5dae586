//go:build !unix

package bench

import "time"

// processorTime tells nothing on this system.
func processorTime() time.Duration { return 0 }
