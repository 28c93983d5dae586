//go:build !unix

package keyfile

import "io/fs"

// protects reports whether mode 0600 keeps other users out. Here the mode is
// not an access list, so nothing would.
const protects = false

// openWithoutWait is not needed here, since nothing is read.
const openWithoutWait = 0

// foreign is never asked here, since nothing is read.
func foreign(fs.FileInfo) bool { return false }
