// Package member has the members that many messages of the zone contract share:
// identifiers, texts, instants, digests. Each is a required member of a shape.
//
// It refuses to know any message.
package member
