package program

import (
	"os"
	"path/filepath"
	"runtime"
)

// find looks for a program by name in folders, the first first.
func find(name string, dirs []string) (command, error) {
	if runtime.GOOS == "windows" {
		return findWindows(name, dirs, readFile)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			c := command{path: path}
			return c, c.judge()
		}
	}
	return command{}, ErrNotFound
}

// maxShim bounds a batch file in bytes. Those of package managers have five
// hundred.
const maxShim = 16 << 10

// readFile is a file's beginning, and whether there is a regular file.
func readFile(path string) ([]byte, bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	text := make([]byte, min(info.Size(), maxShim))
	n, _ := f.Read(text)
	return text[:n], true
}
