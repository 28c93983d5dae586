package doctor

import "golang.org/x/sys/windows"

// freeSpace is what this user can still write on a folder's disk, in bytes.
func freeSpace(folder string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(folder)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	}
	return free, err
}
