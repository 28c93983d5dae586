//go:build unix

package program

import (
	"os"
	"strconv"
	"syscall"
)

// closeOnStart marks every descriptor but the first three, so that no program
// gets one. Go marks those that it opens; this is for those that the agent was
// started with.
func closeOnStart() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}
