// Package machine is what is said about the authority of programs that act for a
// service (family F14).
//
// An administrator gives one service, in its exact organization, a bearer where it has
// none (ensure), another one (rotate), or none any more (revoke). Each change names the generation
// that the caller knows, and has a mutation id. The bearer is in the answer that
// issues it and in no other: a repeat tells what happened then, and holds no bearer.
// A program exchanges its bearer for a token of at most an hour ([MaxTokenAge]),
// which counts only while its generation does (decision O25).
//
// Bearers and tokens are [zone.Secret]: they do not print. Messages are contents
// only; the offer of the handshake and the identity of the caller travel beside them.
//
// The package refuses to authenticate and to grant; metadata is a description and
// proves nothing.
package machine
