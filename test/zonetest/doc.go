// Package zonetest holds the messages of the zone contract to F04: a codec reads
// exactly the declared members, says of everything else where it is wrong, and
// writes what it read.
//
// Each package of messages calls [Exact] once for each codec, with texts that are
// valid and show every variety of the message. The package breaks those texts in
// every place and expects a refusal that names the place.
//
// It knows no message and no rule between members: those need tests of their own,
// beside their codec.
package zonetest
