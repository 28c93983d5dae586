//go:build !unix

package configfile

// openWithoutWait is not needed where pipes have no names among the files.
const openWithoutWait = 0
