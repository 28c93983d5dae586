//go:build !unix

package keyfile

import "io/fs"

// protects reports whether mode 0600 keeps other users out. Here the mode is
// not an access list, so nothing would.
const protects = false

// openWithoutWait is not needed here, since nothing is read.
const openWithoutWait = 0

// Reached reports whether a user other than this one and root can get at a file
// or into a folder. Here a mode is no access list, and it reports false.
func Reached(fs.FileInfo) bool { return false }
