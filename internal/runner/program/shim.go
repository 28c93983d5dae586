package program

import (
	"regexp"
	"strings"
)

// findWindows looks for a program as Windows has it: NAME.exe, or NAME.cmd, a
// batch file that a package manager made. cmd.exe is never asked to run one,
// since it would read the arguments again by rules of its own: the file is read
// for the program or script that it starts. read says whether a path is a
// regular file, and what is in it.
func findWindows(name string, dirs []string, read func(path string) ([]byte, bool)) (command, error) {
	for _, dir := range dirs {
		if _, ok := read(join(dir, name+".exe")); ok {
			return command{path: join(dir, name+".exe")}, nil
		}
		shim, ok := read(join(dir, name+".cmd"))
		if !ok {
			continue
		}
		target, ok := shimTarget(string(shim))
		if !ok {
			return command{}, ErrShim
		}
		target = join(dir, target)
		if _, ok := read(target); !ok {
			return command{}, ErrShim
		}
		if strings.HasSuffix(strings.ToLower(target), ".exe") {
			return command{path: target}, nil
		}
		// As the shim does: the node beside it, else the one of the PATH.
		for _, d := range append([]string{dir}, dirs...) {
			if _, ok := read(join(d, "node.exe")); ok {
				return command{path: join(d, "node.exe"), args: []string{target}}, nil
			}
		}
		return command{}, ErrShim
	}
	return command{}, ErrNotFound
}

// shimStart is what the line of a shim ends in that starts something: a path
// below the shim's own folder, and all arguments.
var shimStart = regexp.MustCompile(`(?m)"%(?:~dp0|dp0%)\\?([^"%\r\n]+\.(?i:js|cjs|mjs|exe))"[ \t]+%\*[ \t]*\)?\r?$`)

// shimTarget is what a shim starts, relative to its folder, and whether that can
// be told: all lines that start something must agree.
func shimTarget(text string) (string, bool) {
	target := ""
	for _, m := range shimStart.FindAllStringSubmatch(text, -1) {
		if target != "" && target != m[1] {
			return "", false
		}
		target = m[1]
	}
	return target, target != "" && !strings.ContainsAny(target, ":*?<>|") && !strings.HasPrefix(target, `\`)
}

// join joins paths as Windows does, on every system. A step up is resolved.
func join(dir, rest string) string {
	parts := strings.Split(strings.TrimRight(strings.ReplaceAll(dir, "/", `\`), `\`), `\`)
	for _, p := range strings.Split(strings.ReplaceAll(rest, "/", `\`), `\`) {
		switch {
		case p == "" || p == ".":
		case p == ".." && len(parts) > 1:
			parts = parts[:len(parts)-1]
		case p == "..":
		default:
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, `\`)
}
