// Package sqlite keeps the records of a controller in one SQLite file.
//
// Functions given to Write that come together share a commit and its sync (package
// internal/database), so that heartbeats of many nodes cost little more than those
// of a few. Each look-up and each list is answered from an index.
//
// A row that cannot be read is named in the log and in [Store.SetAside], and left
// as it is; whoever asks for it is refused, and everything else goes on.
//
// The package refuses to decide what a record means and who may see it. It keeps
// no key, code or bearer, and encrypts nothing: the file is as secret as its folder.
package sqlite
