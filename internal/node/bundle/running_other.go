//go:build !linux

package bundle

import "os"

// running is where the file was that runs.
func running() (string, error) { return os.Executable() }
