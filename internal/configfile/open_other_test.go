//go:build !unix

package configfile_test

import "errors"

// errNotFolder is nothing that these systems say.
var errNotFolder = errors.New("not a folder")
