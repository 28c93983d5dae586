package database

import (
	"errors"

	"golang.org/x/sys/windows"
)

// isFull reports whether the system says that there is no space.
func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

// noSpace reports whether the folder's file system has no room for a few pages.
func noSpace(folder string) bool {
	name, err := windows.UTF16PtrFromString(folder)
	if err != nil {
		return false
	}
	var free uint64
	return windows.GetDiskFreeSpaceEx(name, &free, nil, nil) == nil && free < littleSpace
}
