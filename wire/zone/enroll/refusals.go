package enroll

import "github.com/allodhq/allod/refusal"

// What this package refuses.
var (
	ErrBearer = refusal.NewKind("bearer-invalid", 400,
		"The text is no bearer: 43 base64url characters without padding.",
		"Use the credential exactly as it was made.")
	ErrJumpCode = refusal.NewKind("jump-code-invalid", 400,
		"The text is no Jump code: 16 base64url characters without padding.",
		"Copy the whole join line again, without changes and line breaks.")
	ErrOrigin = refusal.NewKind("origin-invalid", 400,
		"The text is not the origin of a controller in its one spelling.",
		"Write https:// and the host in lower case, then a port unless it is 443, and nothing else.")
	ErrPin = refusal.NewKind("pin-invalid", 400,
		"The text is not the pin of a certificate: 43 base64url characters without padding.",
		"Copy the whole join line again, without changes and line breaks.")
	ErrJoinLine = refusal.NewKind("join-line-invalid", 400,
		"The text is no join line.",
		"Copy the whole line that the controller printed, without changes and line breaks.")
	ErrProof = refusal.NewKind("enrollment-proof", 403,
		"The proof does not belong to this enrollment.",
		"Ask for a new join line, and use it once.")
	ErrProofMode = refusal.NewKind("enrollment-proof-mode", 409,
		"The proof is right and not the kind that counts now: the first one counts until the enrollment is recorded, and after that only the prepared credential of Spark.",
		"Repeat the same enrollment with the other kind of proof.")
	ErrReceipt = refusal.NewKind("enrollment-receipt-mismatch", 502,
		"The acknowledgement is not that of this enrollment.",
		"Check that the address belongs to the right controller. If it does, report this with both releases.")
	ErrRotationProof = refusal.NewKind("rotation-proof", 403,
		"The bearer is not the one that counts for this rotation: the current one until it is recorded, and after that only the next one.",
		"Repeat the same rotation with the other bearer, or begin a new one.")
	ErrRotation = refusal.NewKind("rotation-receipt-mismatch", 502,
		"The receipt is not that of this rotation.",
		"Check that the address belongs to the right controller. If it does, report this with both releases.")
	ErrConfirmation = refusal.NewKind("pallet-confirmation-mismatch", 502,
		"What Pallet confirms is not what it was asked for.",
		"Check that Spark and Pallet are of one release, and begin the step again.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: enrollment", Kinds: []*refusal.Kind{
	ErrBearer, ErrJumpCode, ErrOrigin, ErrPin, ErrJoinLine, ErrProof, ErrProofMode, ErrReceipt,
	ErrRotationProof, ErrRotation, ErrConfirmation,
	ErrCredential, ErrExpired, ErrInvitation, ErrElsewhere, ErrConflict, ErrRotationConflict, ErrRotationPace,
}}
