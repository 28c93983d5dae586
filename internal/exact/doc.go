// Package exact reads and writes JSON messages exactly: bounded, once, as data.
//
// [Parse] bounds the bytes, the depth and the number of values before anything
// is kept, and refuses what two readers could read differently: duplicate
// names, invalid UTF-8, lone surrogates, text after the value. A [Shape] then
// names each member of an object with its type and bounds. Names match byte for
// byte; absent, null and value are three different things; a member that the
// shape does not name is refused, or dropped where the contract says so.
//
// One shape serves both ways. [Shape.Read] checks what came in, [Shape.Append]
// checks the same bounds on what goes out, so nothing is written that its
// reader would refuse.
//
// Errors are [Problem] values. They name the place by our own member names and
// the rule that was broken, never the input.
//
// The package knows no canonical form and has no policy on numbers beyond
// [Number]: those belong to the contracts.
package exact
