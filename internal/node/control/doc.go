// Package control carries requests between processes of one node over a local
// socket: from the installer and the Spark side to Pallet (family F10, decision
// O23).
//
// A connection carries one exchange. The client sends a frame and closes its
// writing half, the server answers with a frame and closes the connection:
//
//	{ "method": "...", "request": ... }
//	{ "response": ... }   or   { "error": { "text": "...", "data": ... } }
//
// Package wire/zone/frame has the frames and their bounds. What request and
// response are is the handler's; they pass through here as they are, but for white
// space.
//
// Who may ask is decided by the kernel's word and by nothing in the bytes: the
// socket is a file that only its owner can reach, in a folder that only its owner
// can reach, and on top of that each side asks the kernel whose process the other
// one is. So the server runs as the user whose requests it takes, which is root on
// a node.
//
// The package refuses to listen on a network, to take requests from another user,
// to keep a connection for a second exchange, and to hold an exchange longer than
// its deadline. It knows no method, keeps no credential and has no store. It works
// on Linux only.
package control
