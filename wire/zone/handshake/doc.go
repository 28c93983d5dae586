// Package handshake decides whether two releases of the zone contract can speak
// with each other (F03).
//
// Each side makes an [Offer] for each kind of session: the release it speaks and
// the oldest peer it accepts. It travels as the member "protocol" of the request
// that opens a session, and of its answer. A server reads and judges it after the
// size of the body and before everything else, so that a peer that is too old or
// too new hears of that and of nothing else, and so that a refusal changes nothing.
//
// The package refuses to guess: what is not exactly an offer is none, and what is
// not exactly a refusal is an error of another kind.
package handshake
