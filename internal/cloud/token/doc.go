// Package token makes and reads the tokens by which people and machines prove
// themselves to one controller (decisions O13, O25).
//
// A token is a JWT (RFC 7519) that the controller signs with Ed25519 (RFC 8037) and
// nobody else reads. There are two kinds, for operators and for machines, with a
// private key each in a file of its own, made at the first start. Kind, key and
// controller stand in the header, the issuer and the audience (RFC 8725), so that
// no token is ever taken for one of another kind or of another controller.
//
// A token that is read was signed here for these ids, and is not over. Whether its
// holder is still welcome is for the store to say, by the generation in it.
//
// The controller's clock is the only one that counts. A token ends at its exp
// exactly. It may come from up to a minute in the future, since clocks are set
// back a little; from further on it waits until the clock has caught up.
//
// The package refuses to choose an algorithm by what a token says, to show a
// private key, and to make a new key where a damaged one lies.
package token
