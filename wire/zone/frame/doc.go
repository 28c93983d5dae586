// Package frame is how bytes travel on a node's local control socket (family F10,
// palletNodeEnrollmentContract). In each direction there is one frame, and then
// the writer closes its half:
//
//	0       4
//	+-------+----------------------+-----+
//	| length| one JSON value, UTF-8| end |
//	+-------+----------------------+-----+
//	 4 bytes, unsigned, big-endian; the length counts the value alone
//
// [Read] takes exactly that: it allocates nothing that the length does not allow,
// and returns nothing before it has seen the end. [Append] writes nothing that
// Read refuses.
//
// The package refuses to wait: whoever gives it a reader sets the deadline there.
// It knows no method and no message.
package frame
