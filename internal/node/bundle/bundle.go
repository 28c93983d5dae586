package bundle

import (
	"crypto/sha256"
	"debug/buildinfo"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/spark"
)

// What this package refuses. [ErrVersion] and [ErrCommit] come in
// [Facts.Problems].
var (
	ErrRead = refusal.NewKind("bundle-read", 500,
		"The program's own file cannot be read, or is larger than any that Allod is.",
		"Check that the file is where it was when the program started, and that this user may read it.")
	ErrForeign = refusal.NewKind("bundle-foreign", 500,
		"The file is not a program that Go built, so it does not say what it is.",
		"Name the program of Allod, as it was installed.")
	ErrChanged = refusal.NewKind("bundle-changed", 409,
		"The program's file was replaced since the program started.",
		"Start the program again, so that it is the one that is installed.")
	ErrVersion = refusal.NewKind("bundle-version", 404,
		"The program does not say which version it is.",
		"Install a released version, or build it in a clone with its tags.")
	ErrCommit = refusal.NewKind("bundle-commit", 404,
		"The program does not say from which commit it was built.",
		"Build it in a clone of the sources, if the commit matters.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "A node's own program", Kinds: []*refusal.Kind{
	ErrRead, ErrForeign, ErrChanged, ErrVersion, ErrCommit,
}}

const (
	// MaxSize is the largest program that is read, in bytes.
	MaxSize = 1 << 30
	// MaxVersion is the longest version, in bytes: what a report can carry.
	MaxVersion = spark.MaxLabel
)

// Stamp is what the linker wrote into variables of package main as a release was
// built. It counts where the build information has nothing.
type Stamp struct{ Version, Commit string }

// Facts are about one binary.
type Facts struct {
	// Version is the main module's in the build information, as in v1.2.3, and with
	// +dirty behind it where the sources were modified; else the stamp's; else "",
	// with [ErrVersion] among the problems.
	Version string
	// Stamped says that Version is the stamp's.
	Stamped bool
	// Commit is as [spark.ValidCommit] has it: the build information's, else the
	// stamp's; else "", with [ErrCommit] among the problems.
	Commit string
	// Modified says that the sources had changes beyond the commit.
	Modified bool
	// Go is the version of the compiler, as in go1.26.8.
	Go string
	// Digest is the SHA-256 of the file.
	Digest canon.Sum
	// Size is the file's, in bytes.
	Size int64
	// Problems say what the binary does not.
	Problems []*refusal.Refusal
}

// Own reads the program that this process runs, all of it; so call it once, at the
// start. It returns [ErrRead], [ErrForeign] and, on systems where the running file
// can only be found by its name, [ErrChanged].
func Own(s Stamp) (Facts, error) {
	path, err := running()
	if err != nil {
		return Facts{}, ErrRead.Because(err)
	}
	facts, info, err := read(path, s)
	if err != nil {
		return Facts{}, err
	}
	if mine, ok := debug.ReadBuildInfo(); !ok || mine.String() != info.String() {
		return Facts{}, ErrChanged
	}
	return facts, nil
}

// Read reads a program that may not run, with the stamp that it is known to have.
// It returns [ErrRead] and [ErrForeign].
func Read(path string, s Stamp) (Facts, error) {
	facts, _, err := read(path, s)
	return facts, err
}

func read(path string, s Stamp) (Facts, *buildinfo.BuildInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return Facts{}, nil, ErrRead.Because(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > MaxSize {
		return Facts{}, nil, ErrRead.Because(err)
	}
	info, err := buildinfo.Read(file)
	if err != nil {
		return Facts{}, nil, ErrForeign.Because(err)
	}
	digest := sha256.New()
	size, err := io.Copy(digest, io.NewSectionReader(file, 0, MaxSize+1))
	if err != nil || size > MaxSize {
		return Facts{}, nil, ErrRead.Because(err)
	}
	facts := judge(info, s)
	facts.Digest, facts.Size = canon.Sum(digest.Sum(nil)), size
	return facts, info, nil
}

var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]*$`)

// judge takes from the build information and the stamp what has the right form. The
// Go command writes (devel) for a version that it does not know.
func judge(info *buildinfo.BuildInfo, s Stamp) Facts {
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	f := Facts{Go: info.GoVersion, Modified: settings["vcs.modified"] == "true"}
	valid := func(v string) bool { return len(v) <= MaxVersion && versionForm.MatchString(v) }
	switch {
	case valid(info.Main.Version):
		f.Version = info.Main.Version
	case valid(s.Version):
		f.Version, f.Stamped = s.Version, true
	default:
		f.Problems = append(f.Problems, refusal.From(ErrVersion))
	}
	known := func(c string) bool { return spark.ValidCommit(c) && strings.Trim(c, "0") != "" } // which reports have for none
	switch revision := settings["vcs.revision"]; {
	case known(revision):
		f.Commit = revision
	case known(s.Commit):
		f.Commit = s.Commit
	default:
		f.Problems = append(f.Problems, refusal.From(ErrCommit))
	}
	return f
}
