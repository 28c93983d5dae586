//go:build race

package ai_test

// raceEnabled says that the race detector runs, which allocates for itself.
const raceEnabled = true
