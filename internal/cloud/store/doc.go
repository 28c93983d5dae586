// Package store says what the zone half of a controller keeps, and what it asks of
// whatever keeps it.
//
// A [Store] runs functions on transactions. Write runs one function after another,
// so whoever reads, decides and writes in one function needs no other lock: a
// change, its receipt and its audit entry are one commit or none. What a Write has
// acknowledged is durable.
//
// Records are plain values; a function gets copies and puts copies back. The store
// decides nothing and derives nothing: what a record means, and who may see it, is
// for the packages beside it. It never holds a bearer, a code or a token, only
// their hashes, and no private key.
package store
