//go:build race

package ledger

// raceEnabled says that the race detector runs, under which the database is ten
// times slower.
const raceEnabled = true
