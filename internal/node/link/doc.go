// Package link is a node's side of the way to its controller: typed requests and
// reports over HTTPS, to one server that is known by the pin of its authority or, where
// there is none, by the roots of the machine (families F08, F09, F11).
//
// One connection is kept and used again. Each request has a deadline, each answer a
// bound, and no redirect is followed.
//
// Where the server is the right one and only the time of its certificate is wrong, a
// request fails with [ca.ClockError], which says by how much the clocks differ. No byte
// of the request has been sent then, so nothing is used up.
//
// The package refuses to send anything before the server has proved who it is, and to
// keep a credential: whoever asks passes it.
package link
