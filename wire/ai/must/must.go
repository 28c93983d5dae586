// Package must is the register of the AI contract's obligations. Each MUST has
// an id that never changes, a statement in our own words, who has to keep it,
// and how it is proved. Code and documents refer to the ids.
//
// Ids are never reused: a MUST that was replaced stays in the register of
// retired ids.
package must

// Enforcer says who has to keep a MUST.
type Enforcer string

// The enforcers. A device is called a daemon by the contract, and a site or a
// relay a server.
const (
	Daemon Enforcer = "daemon"
	Server Enforcer = "server"
	Both   Enforcer = "both"
)

// Proof says how a MUST is proved.
type Proof string

// The proofs.
const (
	// Conformance is proved from outside, by talking to a server or a device.
	Conformance Proof = "conformance"
	// Adversarial is proved by hostile input that no honest peer sends.
	Adversarial Proof = "adversarial"
	// Construction is proved by the code having no way to do otherwise.
	Construction Proof = "construction"
	// Operator can only be answered by whoever runs the system.
	Operator Proof = "operator"
)

// Must is one obligation.
type Must struct {
	// ID is upper-case words joined by underscores.
	ID string
	// Statement says what must hold, in a sentence or two of our own.
	Statement string
	// EnforcedBy says who has to keep it.
	EnforcedBy Enforcer
	// ProvedBy is at least one kind of proof.
	ProvedBy []Proof
	// Source is where the contract's own documents state it.
	Source string
}

// Retired is an id that is no longer in force.
type Retired struct {
	// ID is the id that is not used again.
	ID string
	// SupersededBy is the id that took its place.
	SupersededBy string
	// Why says what changed.
	Why string
}

var (
	conformance = []Proof{Conformance}
	adversarial = []Proof{Adversarial}
)

// All returns the MUSTs in force, in the contract's order.
func All() []Must {
	return []Must{
		{"PAIR_ONE_USER", "A pairing belongs to exactly one person, and a device refuses work that is not for that person's account.", Both, conformance, "byollm_001 §MUSTs"},
		{"PAIR_INTERACTIVE", "A person approves each pairing in the app's own session by a short code. A long-lived secret that is pasted in is no pairing.", Server, conformance, "byollm_001 §Endpoints.1"},
		{"PAIR_CODE_EXPIRES", "A code that nobody approved ends, and cannot be used after its end.", Server, conformance, "byollm_001 §Endpoints.1"},
		{"VERSION_HANDSHAKE_REQUIRED", "Every request declares a protocol version. An absent or unsupported one is refused with an error that says what is spoken, never as a mere parse failure.", Both, conformance, "byollm_009 §4"},
		{"SITE_KEY_BY_STUB", "A device verifies a payload with the pinned key of the site that the stub names, with no other pinned key, and refuses sites it has not pinned and envelopes whose sender differs from the stub's site.", Daemon, adversarial, "byollm_009 §A.3"},
		{"SITES_LOCALLY_APPROVED", "A device serves only sites approved on the machine itself. A changed key for an approved id is refused for the life of the pairing, also after the id left and came back; a verified succession is accepted and announced.", Daemon, []Proof{Construction, Adversarial}, "byollm_009 §B.2"},
		{"KEYS_EXCHANGED_AT_CONSENT", "Pairing exchanges both public identities, each side verifies that the sealing key is signed by the identity and pins it, and no key is given out before approval.", Both, conformance, "byollm_009 §5"},
		{"REQUESTS_SIGNED_NOT_BEARER", "Every request of a known caller is signed by its pinned identity over endpoint, caller, time and exact body. A bearer secret does not replace the signature.", Both, conformance, "byollm_009 §4.2"},
		{"LEASE_SCOPED_BY_GRANT", "A request about a lease names that lease and acts on no other, since job and runner stay the same over several grants.", Both, conformance, "byollm_009 §4.2"},
		{"STUB_METADATA_EXHAUSTIVE", "A claim answers with stubs that have exactly the listed members and no payload.", Both, conformance, "byollm_009 §6"},
		{"ENVELOPE_SEALED_AND_SIGNED", "A stored payload is sealed and signed by its sender, and an envelope whose signature is not the pinned sender's is refused.", Server, conformance, "byollm_009 §6"},
		{"KIND_TYPED_ONLY", "A device runs job kinds that are built into it and refuses every other kind instead of guessing.", Daemon, conformance, "byollm_001 §Jobs are typed data"},
		{"KIND_NO_CODE", "Nothing a server sends is code, a shell text or a path to run: payloads are data for a model.", Daemon, conformance, "byollm_001 §Jobs are typed data; byollm_004 §1"},
		{"CLAIM_REQUIRES_CAPABILITY", "No device is given a job of a kind it did not offer.", Both, conformance, "byollm_001 §MUSTs"},
		{"CAPABILITY_IS_DETECTED", "What a device offers is what its owner configured and what was found healthy, both at once.", Daemon, conformance, "byollm_002 §Routing"},
		{"CLAIM_ATOMIC", "A job is never granted to two devices at the same time.", Server, conformance, "byollm_001 §Endpoints.2"},
		{"LEASE_HONORED", "A device stops work whose lease it could not renew, and reports no result under a lease that has ended.", Daemon, conformance, "byollm_001 §MUSTs"},
		{"LEASE_RECLAIMABLE", "A lease that lapses makes its job claimable again, and the job is not lost.", Server, conformance, "byollm_001 §Endpoints.2"},
		{"AUDIENCE_BOTH_SIDES", "A job runs only where the device's offer admits the job's owner and the job's audience admits the device's owner.", Both, conformance, "byollm_001 §The audience model"},
		{"SUBSCRIPTION_SELF_LOCK", "A subscription backend serves its owner only, and no configuration widens that.", Daemon, conformance, "byollm_001 §The audience model"},
		{"METERED_DEFAULTS_SELF", "A metered backend serves its owner only until the owner has agreed to pay for others.", Daemon, conformance, "byollm_007 §4"},
		{"METERED_REQUIRES_CEILING", "A metered backend that serves others has a spending ceiling, and refuses others once it is reached.", Daemon, conformance, "byollm_007 §4"},
		{"COST_NOT_CONFIGURABLE", "The cost class of a backend in the table cannot be changed by configuration.", Daemon, conformance, "byollm_007 §2"},
		{"REMOTE_IS_NEVER_FREE", "A generic HTTP backend at an address that is not loopback or private counts as metered.", Daemon, conformance, "byollm_007 §2"},
		{"NAMED_LOCAL_ALLOWLIST", "A named job is admitted only by the device's own list of site and user, never because the server says so.", Daemon, conformance, "byollm_001 Rev 1 §B"},
		{"REFUSAL_NOT_REOFFERED", "A job that a device released as refused is not offered to that device again.", Server, conformance, "byollm_001 Rev 1 §B (loop resolved in build review)"},
		{"REVOCATION_HONORED", "A revoked device claims nothing more and drops its work by the next heartbeat.", Daemon, conformance, "byollm_001 §MUSTs"},
		{"CANCEL_HONORED", "A job that a heartbeat's answer cancels has its backend call stopped and is reported as canceled.", Daemon, conformance, "byollm_001 Rev 1 §C"},
		{"DEPENDS_ON_GATING", "A job is not claimable before every job it depends on is ok.", Server, conformance, "byollm_001 Rev 1 §E"},
		{"TTL_EXPIRY", "A job that nobody claims expires after its time to live, which starts when it becomes claimable.", Server, conformance, "byollm_001 Rev 1 §D (TTL clock resolved in build review)"},
		{"NO_RUNNER_SIGNAL", "A server says that no runner is available when no fitting one was heard of lately, and does not say so of a job that waits for others.", Server, conformance, "byollm_001 Rev 1 §D"},
		{"RESULT_IDEMPOTENT", "The first result of a job counts, and later ones change nothing.", Server, conformance, "byollm_001 §Endpoints.4"},
		{"PROVENANCE_NAMES_DEVICE", "A result carries the device that held the lease and whose it is, and a result that this device did not sign is refused.", Server, conformance, "byollm_009 §11"},
		{"INGRESS_LOGGED_BEFORE_EXECUTION", "Every prompt is in the device's own log before it runs.", Daemon, conformance, "byollm_001 §MUSTs"},
		{"NO_SHELL_INTERPOLATION", "A program backend gets fixed arguments and the payload on its standard input; no text of a payload reaches a command line.", Daemon, adversarial, "byollm_004 §2"},
		{"NO_PAYLOAD_ROUTING", "Model, backend, address and flags come from the owner's configuration, and a payload changes none of them.", Daemon, adversarial, "byollm_004 §2"},
		{"STRIPPED_CHILD_ENV", "A program backend gets a listed environment, a scratch folder, no descriptors but the three standard ones, and limits on time and output.", Daemon, adversarial, "byollm_004 §2"},
		{"HTTP_BASE_URL_SAFE", "An HTTP backend is reached at its configured address only, and never at a cloud metadata or link-local address.", Daemon, adversarial, "byollm_004 Rev 1 §Backend taxonomy"},
		{"OUTPUT_INERT", "A model's text is bytes: never evaluated, never a path, never part of a shell text, never terminal control.", Daemon, adversarial, "byollm_004 §2"},
		{"COMMUNITY_BUDGETS", "Other people's jobs are held to the rates, the daily cap and the resources that the device's owner set.", Daemon, adversarial, "byollm_004 §4"},
		{"REVOCATION_IMMEDIATE", "A revoked device is granted nothing from the moment of the change, and learns it by its next heartbeat.", Both, conformance, "byollm_009 §11"},
		{"CONSENT_BEFORE_ROUTE", "A job is routed to a device only under a record that binds the person, the site and the scope; devices cannot discover work.", Server, conformance, "byollm_009 §11"},
		{"ROSTER_NOT_DISCLOSED", "A site does not learn who belongs to a group whose machines it uses, and no message carries a list of who may run a job.", Both, conformance, "byollm_009 §11"},
		{"EFFECTIVE_OFFER_ONLY", "A device declares effective offers and nothing of its configuration or lists, and servers act on what is declared.", Both, conformance, "byollm_009 §11"},
		{"FALLBACK_LABELED", "Work that ran on anything but the person's own machines says so wherever it is reported, and is never put in silently.", Both, []Proof{Construction}, "byollm_009 §11"},
		{"RELAY_BLIND", "A relay holds no key that opens a payload, a result or a part of one.", Server, []Proof{Operator}, "byollm_009 §11"},
		{"SHARED_COMPUTE_DISCLOSED", "Before a person's work first runs on a machine of somebody else, they are told plainly that its owner can read it.", Server, []Proof{Operator}, "byollm_009 §11"},
	}
}

// AllRetired returns the retired ids.
func AllRetired() []Retired {
	return []Retired{
		{"RESULT_PROVENANCE", "PROVENANCE_NAMES_DEVICE", "A label beside the result became proof by the device's signature."},
	}
}
