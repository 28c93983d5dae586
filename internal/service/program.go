package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// CheckProgram says whether a service may start a program. It returns
// [ErrProgram], [ErrTemporary] and [ErrWritable]. On Windows the rights of files
// are not looked at.
func CheckProgram(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ErrProgram.Because(err)
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return ErrProgram.Because(err)
	case !info.Mode().IsRegular() || !runs(info):
		return ErrProgram
	case temporary(path) || temporary(real):
		return ErrTemporary
	case othersWrite(path) || othersWrite(real):
		return ErrWritable
	}
	return nil
}

// Downloaded reports whether a path stands below a folder of downloads, which
// people and their systems tidy up.
func Downloaded(path string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(path), "/"), func(e string) bool { return strings.EqualFold(e, "Downloads") })
}

// temporary reports whether a path stands where files are thrown away: in the
// system's places for that, in Go's build folders, or in the place from which
// macOS runs what was not installed.
func temporary(path string) bool {
	places := []string{os.TempDir(), os.Getenv("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp", "/dev/shm", "/run/user", "/private/tmp", "/private/var/tmp", "/var/folders", "/private/var/folders"}
	for _, place := range places {
		if place == "" || !filepath.IsAbs(place) {
			continue
		}
		if below(path, place) {
			return true
		}
		if real, err := filepath.EvalSymlinks(place); err == nil && below(path, real) {
			return true
		}
	}
	for _, e := range strings.Split(filepath.ToSlash(path), "/") {
		if strings.HasPrefix(e, "go-build") || e == "AppTranslocation" {
			return true
		}
	}
	return false
}

func below(path, folder string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// SafePath takes out of a PATH what a service must not search: folders that are
// not there, that other users can write in, that are for what is thrown away, and
// that do not fit.
func SafePath(path string) string {
	var kept []string
	size := 0
	for _, dir := range filepath.SplitList(path) {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || !filepath.IsAbs(dir) || !fits(dir) || slices.Contains(kept, dir) || size+len(dir)+1 > maxPath || unsafe(dir) {
			continue
		}
		kept, size = append(kept, dir), size+len(dir)+1
	}
	return strings.Join(kept, string(filepath.ListSeparator))
}

func unsafe(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	return err != nil || temporary(dir) || temporary(real) || othersWrite(dir) || othersWrite(real)
}
