//go:build !linux

package bench

// inMemory reports whether a folder is on a file system that keeps nothing. Other
// systems have none unless somebody made one on purpose.
func inMemory(string) bool { return false }
