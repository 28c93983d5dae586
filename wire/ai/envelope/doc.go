// Package envelope seals payloads and outcomes, and opens them.
//
// An envelope is signed by its sender and sealed to its recipient (MUST
// ENVELOPE_SEALED_AND_SIGNED). From the inside out:
//
//	signed body   JSON: v, jobId, senderKeyId, recipientKeyId, deadlineAt,
//	              direction, plaintext, and what Allod adds: stub on payloads,
//	              usage and instead on results
//	inner         JSON: body (base64url of the signed body), signature
//	ciphertext    a sealed box (package key) over inner, in base64url
//
// Outside stand the labels that routers need: both key ids, direction and
// deadline. All are repeated in the signed body and compared by [Open], so a
// router that changes one makes an envelope that does not open.
//
// The contract leaves kind, audience and owner of a job outside the signature,
// in the stub. Allod's sites put them inside as well ([Reach]); peers that do
// not know the member ignore it. A device compares it with the stub before
// anything runs, so a relay cannot widen what a job may reach.
//
// What a run took stands beside its outcome in the same way ([ai.Usage]), and so does
// what it ran instead of ([ai.Instead]). They decide nothing, so one that makes no
// sense is left out and the result opens.
//
// The package refuses to look at the clock: whether a deadline has passed is
// the caller's question.
package envelope
