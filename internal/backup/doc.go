// Package backup writes everything a party needs into one encrypted archive, and
// puts such an archive back.
//
// The archive is a tar stream sealed with age to a recovery key. Inside, a
// manifest comes first and names every part with its length and SHA-256; a part
// that differs is refused, and nothing is left behind. The recovery key is made
// once and shown once: who has it can read every backup, and without it nobody
// can.
//
// An archive is sealed but not signed: whoever can put a file of theirs in its
// place, and knows the public half of the recovery key, can make one that
// restores. Keep archives where only you can write.
//
// The package refuses to write over anything, and to know what the parts mean.
package backup
