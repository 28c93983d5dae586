package program

import (
	"path/filepath"
	"slices"
	"strings"
)

// passed are the variables that a program gets as the agent has them, and
// passedWindows those it gets there besides. No API key is one of them.
var (
	passed        = []string{"HOME", "LANG", "LC_ALL", "TZ"}
	passedWindows = []string{"USERPROFILE", "APPDATA", "LOCALAPPDATA", "SystemRoot", "windir", "PATHEXT"}
)

// scratchNames are the variables that name a run's scratch folder.
var (
	scratchNames        = []string{"TMPDIR"}
	scratchNamesWindows = []string{"TMPDIR", "TEMP", "TMP"}
)

// environment is what every run of a program gets but its PATH and the scratch
// folder, and the folders of the PATH and the home. Folders that are not absolute
// are left out: they would be looked for in the scratch folder.
func environment(lookup func(string) (string, bool), system string) (env, dirs []string, home string) {
	path, _ := lookup("PATH")
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	env = []string{"CI=1"}
	names := passed
	home = "HOME"
	if system == "windows" {
		names = slices.Concat(names, passedWindows)
		home = "USERPROFILE"
	}
	for _, name := range names {
		if value, ok := lookup(name); ok && !strings.ContainsRune(value, 0) {
			env = append(env, name+"="+value)
		}
	}
	home, _ = lookup(home)
	if !filepath.IsAbs(home) {
		home = ""
	}
	return env, dirs, home
}

// pathOf is the PATH that a program gets: folders in which other users can put
// programs are left out.
func pathOf(dirs []string) string {
	dirs = slices.DeleteFunc(slices.Clone(dirs), openToOthers)
	return "PATH=" + strings.Join(dirs, string(filepath.ListSeparator))
}

// withScratch adds the run's own folder.
func withScratch(env []string, scratch, system string) []string {
	env = slices.Clone(env)
	names := scratchNames
	if system == "windows" {
		names = scratchNamesWindows
	}
	for _, name := range names {
		env = append(env, name+"="+scratch)
	}
	return env
}
