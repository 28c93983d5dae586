// Package storecount is a store that counts, for tests: whoever asks for what is
// not there, and whoever asks for what is another's, must cost the same reads in
// the same order, or the difference tells the two apart.
//
// It refuses to change anything: it passes each call on.
package storecount
