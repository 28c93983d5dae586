package bench

import (
	"os"
	"testing"
	"time"
)

func TestProcessor(t *testing.T) {
	const fields = " S 1 2 3 4 5 6 7 8 9 10 150 50 1 1 20 0"
	for stat, want := range map[string]time.Duration{
		"42 (allod)" + fields:                      2 * time.Second,
		"42 (a) b (c) 1 2)" + fields:               2 * time.Second,
		"42 (allod) S 1 2":                         0,
		"42 (allod) S 1 2 3 4 5 6 7 8 9 10 x 50 1": 0,
		"": 0,
	} {
		if got := processorIn([]byte(stat)); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
	if processorOf(-1) != 0 {
		t.Error("no process has used a processor")
	}
	// This process needs some time to use a tick.
	for end := time.Now().Add(time.Minute); processorOf(os.Getpid()) == 0; {
		if time.Now().After(end) {
			t.Fatal("this process has used no processor")
		}
	}
}
