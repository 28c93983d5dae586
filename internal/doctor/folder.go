package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/service"
)

// What a folder's disk should have, in bytes: results that are not handed in yet
// are kept there.
const (
	littleSpace = 1 << 30
	noSpace     = 64 << 20
)

// slowWrite is how long a small write may take before jobs feel it.
const slowWrite = 2 * time.Second

const aboutFolder = "folder"

// folder looks at the agent's folder, its disk and its files.
func (e exam) folder() []Probe {
	p := of(aboutFolder, "rights", "Looked whether the agent's folder is there, and for this user alone.")
	info, err := os.Stat(e.Home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Probe{*p.is(Failed, "It is not there, so this machine was never paired with a site.", "Pair it: allod connect URL.")}
	case err != nil || !info.IsDir() || keyfile.Reached(info):
		return []Probe{*p.refused(Failed, datadir.ErrData)}
	}
	p.is(OK, "It is.", "")
	return []Probe{*p, e.space(), e.write(), e.keys(), e.pairings(), e.files()}
}

func (e exam) space() Probe {
	p := of(aboutFolder, "space", "Asked the system how much room its disk has.")
	free, err := freeSpace(e.Home)
	switch {
	case err != nil:
		p.is(Skipped, "The system does not say.", "")
	case free < noSpace:
		p.is(Failed, fmt.Sprintf("There are %d MiB left, and a result could not be kept.", free>>20), "Free some space.")
	case free < littleSpace:
		p.is(Warning, fmt.Sprintf("There are %d MiB left.", free>>20), "Free some space before long.")
	default:
		p.is(OK, fmt.Sprintf("There are %d GiB left.", free>>30), "")
	}
	return *p
}

func (e exam) write() Probe {
	p := of(aboutFolder, "write", "Wrote a small file to its disk, and waited until it was there.")
	began := time.Now()
	temp, err := keyfile.WriteTemp(filepath.Join(e.Home, "doctor"), []byte("Written by allod doctor.\n"))
	took := time.Since(began)
	p.Millis = took.Milliseconds()
	if err != nil {
		return *p.refused(Failed, datadir.ErrWrite)
	}
	_ = os.Remove(temp)
	if took > slowWrite {
		return *p.is(Warning, "It took "+took.Round(time.Millisecond).String()+", and each job waits for several.", "Move the folder to a faster disk by ALLOD_HOME, or find out what keeps this one busy.")
	}
	return *p.is(OK, "It took "+took.Round(100*time.Microsecond).String()+".", "")
}

func (e exam) keys() Probe {
	p := of(aboutFolder, "keys", "Read the machine's keys.")
	switch _, err := home.LoadKeys(e.Home); {
	case errors.Is(err, keyfile.ErrAbsent):
		p.is(Failed, "There are none yet, so this machine was never paired with a site.", "Pair it: allod connect URL.")
	case err != nil:
		p.refused(Failed, err)
	default:
		p.is(OK, "They are whole, and for this user alone.", "")
	}
	return *p
}

func (e exam) pairings() Probe {
	p := of(aboutFolder, "pairings", "Read the list of paired sites.")
	switch list, err := home.LoadPairings(e.Home); {
	case err != nil:
		p.refused(Failed, err)
	case len(list) == 0:
		p.is(Failed, "There is none.", "Pair this machine: allod connect URL.")
	case len(list) == 1:
		p.is(OK, "There is 1.", "")
	default:
		p.is(OK, fmt.Sprintf("There are %d.", len(list)), "")
	}
	return *p
}

// files looks for files that others could read if the folder's rights went.
func (e exam) files() Probe {
	p := of(aboutFolder, "files", "Looked at the rights of its files, and read service.env.")
	if _, err := service.ReadEnvironment(e.Home); err != nil {
		return *p.refused(Failed, err)
	}
	entries, err := os.ReadDir(e.Home)
	if err != nil {
		return *p.refused(Failed, datadir.ErrRead)
	}
	open := slices.ContainsFunc(entries, func(d fs.DirEntry) bool {
		info, err := d.Info()
		return err == nil && info.Mode().IsRegular() && d.Name() != home.ConfigFile && keyfile.Reached(info)
	})
	if open {
		return *p.is(Warning, "Others could read some of them, if the folder itself did not keep them out.", "Take that right away: chmod go-rwx, on each file in the folder.")
	}
	return *p.is(OK, "They are for this user alone.", "")
}
