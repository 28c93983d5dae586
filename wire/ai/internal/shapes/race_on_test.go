//go:build race

package shapes_test

// raceEnabled says that the race detector runs, under which texts of many
// megabytes are slow.
const raceEnabled = true
