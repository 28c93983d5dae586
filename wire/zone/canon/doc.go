// Package canon gives JSON one form, and with it every document of the zone
// contract one digest and one text to sign (F05).
//
// The form is RFC 8785 (JCS), narrowed by decision O01: the text must be I-JSON
// (RFC 7493), and numbers must be whole, within plus and minus 2^53-1, and spelled
// in the one way that JCS writes them. Names are ordered by UTF-16 code units,
// nothing is normalised, and nothing follows the value.
//
// A digest is the SHA-256 of a domain, a zero byte and the form (decision O02). So
// the same content in two domains has two digests. A digest is an identity for
// comparing and swapping; it authenticates nothing.
//
// The package refuses to repair: what two readers could read differently has no
// digest at all.
package canon
