package keyfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
)

func init() { forbidLinks = forbidLinksByFilter }

// forbidLinksByFilter makes hard links fail for the goroutine that calls it, as
// on a file system that has none. The kernel is asked to refuse the system call
// (seccomp); the thread keeps this filter, so the goroutine stays on it.
func forbidLinksByFilter() error {
	runtime.LockOSThread()
	const (
		setNoNewPrivs, setSeccomp, modeFilter = 38, 22, 2     // prctl
		load, jumpEqual, answer               = 0x20, 0x15, 6 // classic BPF
		allow, refuse                         = 0x7fff0000, 0x00050000 | uint32(syscall.EPERM)
	)
	type instruction struct {
		code      uint16
		yes, no   uint8
		parameter uint32
	}
	filter := []instruction{
		{load, 0, 0, 0}, // the number of the system call
		{jumpEqual, 0, 1, syscall.SYS_LINKAT},
		{answer, 0, 0, refuse},
		{answer, 0, 0, allow},
	}
	program := struct {
		size  uint16
		first *instruction
	}{uint16(len(filter)), &filter[0]}
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, setNoNewPrivs, 1, 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, setSeccomp, modeFilter, uintptr(unsafe.Pointer(&program))); e != 0 {
		return e
	}
	runtime.KeepAlive(filter)
	return nil
}

// A leaked file keeps the key file open and in the end stops the process.
func TestNoFileStaysOpen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // or the collector would close what was forgotten
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("open files cannot be counted here: %v", err)
		}
		return len(entries)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "damaged"), []byte("x"), 0o600)
	write(t, filepath.Join(dir, "open"), []byte("x"), 0o644)
	before := open()
	for i := range 10 {
		path := filepath.Join(dir, fmt.Sprint(i))
		for range 2 {
			_ = keyfile.Create(path, keysOf(1))
		}
		for _, name := range []string{path, filepath.Join(dir, "damaged"), filepath.Join(dir, "open")} {
			_, _ = keyfile.Load[key.DeviceRole](name)
		}
	}
	if after := open(); after > before {
		t.Errorf("%d files were open before, %d after", before, after)
	}
}

// The memory of a process is a plain file with the mode 0600 whose first bytes
// cannot be read.
func TestLoadOfAFileThatCannotBeRead(t *testing.T) {
	const path = "/proc/self/mem"
	f, err := os.Open(path)
	if err != nil {
		t.Skipf("there is no such file here: %v", err)
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrClosed) {
		t.Skip("the file can be read here")
	}
	wantRefused(t, "memory", path, keyfile.ErrUnreadable)
}
