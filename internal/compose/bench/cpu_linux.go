package bench

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// tick is the unit in which Linux tells programs of processor time (USER_HZ), on
// every processor that we build for.
const tick = 10 * time.Millisecond

// processorOf is how much of the processors a running process has used, or 0 where
// the system does not tell.
func processorOf(pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return processorIn(stat)
}

// processorIn reads utime and stime, fields 14 and 15. The second one is a name in
// parentheses that can hold anything, so they are counted from its end.
func processorIn(stat []byte) time.Duration {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	var total time.Duration
	for _, text := range fields[11:13] {
		n, err := strconv.ParseInt(string(text), 10, 50)
		if err != nil || n < 0 {
			return 0
		}
		total += time.Duration(n) * tick
	}
	return total
}
