package enroll

import "github.com/allodhq/allod/refusal"

// What a controller refuses a node for, besides what two messages by themselves
// show. A node acts on these by name.
var (
	ErrCredential = refusal.NewKind("node-credential", 401,
		"The credential is not one that counts now, or not for this.",
		"If the node was removed, or put back from a copy, run allod-node leave on the machine, and join it again with a new line from allod node invite.")
	ErrExpired = refusal.NewKind("node-credential-expired", 401,
		"The node's credential has expired, because the node was away for too long to renew it.",
		"Remove the node, run allod-node leave on the machine, and join it again with a new line from allod node invite.")
	ErrInvitation = refusal.NewKind("invitation-invalid", 403,
		"The join line was used already, has expired, or was never given out here.",
		"Ask for a new line with allod node invite. A line works once, for an hour.")
	ErrElsewhere = refusal.NewKind("enrollment-elsewhere", 409,
		"The enrollment names another controller than the one that was asked.",
		"Use a join line of this controller, or join at the address that the line names.")
	ErrConflict = refusal.NewKind("enrollment-conflict", 409,
		"The enrollment does not fit what the controller has: another one has its name, a counter has moved on, or Pallet has an authority already.",
		"Make a new enrollment. To give a node a new Pallet, first run allod node rm with --pallet-only.")
	ErrRotationConflict = refusal.NewKind("rotation-conflict", 409,
		"The rotation does not name the generation that counts now, or its next credential is taken.",
		"Make a new rotation of the credential that counts.")
	ErrRotationPace = refusal.NewKind("rotation-too-often", 429,
		"The node rotates its credential far more often than anybody asks it to, so only rotations that are due or asked for are taken for a while.",
		"Nothing is lost, since the credential still counts. If nobody rotates it by hand, somebody may have a copy of it: remove the node and join it again.")
)
