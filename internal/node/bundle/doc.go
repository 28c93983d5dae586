// Package bundle says which binary this process runs: its version, the commit it
// was built from and the digest of its bytes, for the heartbeat's report (family
// F11). A node's bundle is one file, so the digest of that file is the digest of
// its manifest.
//
// All three are about the same bytes: the file is opened once, and on Linux it is
// the one that runs, also where another was put in its place since.
//
// What it cannot know: whether these bytes are the ones that were published. The
// digest is true of whatever file is there, and version and commit are what its
// builder wrote into it; a binary that was tampered with can say anything. Whoever
// wants to know compares the digest with a published one. Neither does a commit say
// all where the sources were modified, which [Facts.Modified] says.
//
// The package refuses to fill in what the binary does not say.
package bundle
