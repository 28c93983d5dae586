package bench

import (
	"bytes"
	"os"
	"strconv"
)

// peakOfRunning is the most memory that a running process has had in use, in
// bytes, and whether the system tells.
func peakOfRunning(pid int) (peak int64, ok bool) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, false
	}
	return peakIn(status)
}

// peakIn reads the line VmHWM, which counts in units of 1024 bytes.
func peakIn(status []byte) (peak int64, ok bool) {
	for line := range bytes.Lines(status) {
		rest, found := bytes.CutPrefix(line, []byte("VmHWM:"))
		if !found {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) != 2 || string(fields[1]) != "kB" {
			return 0, false
		}
		n, err := strconv.ParseInt(string(fields[0]), 10, 50)
		return n << 10, err == nil
	}
	return 0, false
}

// peakOfEnded tells nothing: what the system keeps of an ended process counts
// its parent's memory too, which it shared until it started its own program.
func peakOfEnded(*os.ProcessState) int64 { return 0 }
