// Package key holds the keys of the AI contract, a type per role.
//
// Every device and every site has two key pairs: an Ed25519 pair that signs
// ([Signing], [SigningPublic]) and an X25519 pair that opens what was sealed to
// it ([Sealing], [SealingPublic]). The signing pair is the identity: its
// [Fingerprint] is what people compare and what messages name. The sealing half
// is bound to it by a signature; the three together are an [Identity], of a
// [Device] or of a [Site], and an Identity value has always been verified.
//
// Private halves do three things only: sign ([Signer]), open ([Opener]), and go
// into a key file ([MarshalFile]). They cannot be printed, logged, compared with
// == or marshalled; trying gives a placeholder, a compile error or [ErrPrivate].
//
// Text forms follow the contract: keys and signatures are base64url without
// padding. Other spellings of the same bytes are refused, so that one key has
// one text.
//
// The package refuses to touch files; internal/keyfile does that.
package key
