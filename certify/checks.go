package certify

import "github.com/allodhq/allod/wire/ai/must"

// checks is the table, in the order of the contract. An id is never used for
// anything else.
func checks() []check {
	return []check{
		{"A01", "A version that nobody speaks is refused by name, with what is spoken", []string{"VERSION_HANDSHAKE_REQUIRED"}, versionNamed},
		{"A02", "The version is judged before the caller and the form, and its refusal consumes nothing", []string{"VERSION_HANDSHAKE_REQUIRED"}, versionFirst},
		{"A03", "Nobody is paired before a person approves", []string{"PAIR_INTERACTIVE"}, pairsByConsent},
		{"A04", "A code that a person denied stays denied", []string{"PAIR_INTERACTIVE"}, denialCounts},
		{"A05", "A code that nobody approved ends", []string{"PAIR_CODE_EXPIRES"}, codesEnd},
		{"A06", "A pairing belongs to the one person who approved it", []string{"PAIR_ONE_USER"}, onePerson},
		{"A07", "Keys are verified, and given out by the approval only", []string{"KEYS_EXCHANGED_AT_CONSENT"}, keysAtConsent},
		{"A08", "A request without a whole signature is refused, whatever else it carries", []string{"REQUESTS_SIGNED_NOT_BEARER"}, unsigned},
		{"A09", "A signature is good for its signer, its endpoint and its body", []string{"REQUESTS_SIGNED_NOT_BEARER"}, forged},
		{"A10", "A signature is good for its time", []string{"REQUESTS_SIGNED_NOT_BEARER"}, stale},
		{"A11", "A request that is sent again changes nothing", []string{"REQUESTS_SIGNED_NOT_BEARER", "RESULT_IDEMPOTENT"}, replayed},
		{"A12", "A request acts on the lease that it names, and on no other", []string{"LEASE_SCOPED_BY_GRANT"}, leaseScoped},
		{"A13", "A claim is answered with stubs that have the listed members and no others", []string{"STUB_METADATA_EXHAUSTIVE"}, stubsExact},
		{"A14", "A payload is sealed to the device and signed by its site", []string{"ENVELOPE_SEALED_AND_SIGNED"}, payloadSealed},
		{"A15", "A result that is not signed by its device for this job and this site is refused", []string{"ENVELOPE_SEALED_AND_SIGNED", "PROVENANCE_NAMES_DEVICE"}, resultsSealed},
		{"A16", "A device is given jobs of the kinds that it offers", []string{"CLAIM_REQUIRES_CAPABILITY"}, kindsOffered},
		{"A17", "A claim is judged by the offers that it declares itself", []string{"EFFECTIVE_OFFER_ONLY"}, offersDeclared},
		{"A18", "Of many claims at one moment, one is granted the job", []string{"CLAIM_ATOMIC"}, claimsAtomic},
		{"A19", "A result under a lapsed lease is not taken, and the heartbeat says that it is lost", []string{"LEASE_HONORED"}, lapsedLost},
		{"A20", "A lease that is renewed lasts, and nobody else is granted its job", []string{"LEASE_HONORED", "CLAIM_ATOMIC"}, renewedLasts},
		{"A21", "A job whose lease lapsed is granted to the next, and is not lost", []string{"LEASE_RECLAIMABLE"}, reclaimed},
		{"A22", "A job is granted where the audience and the offer both admit it", []string{"AUDIENCE_BOTH_SIDES"}, audiences},
		{"A23", "A job that a device refused is not offered to it again", []string{"REFUSAL_NOT_REOFFERED"}, refusedOnce},
		{"A24", "A revoked device is told so at once, on every endpoint", []string{"REVOCATION_IMMEDIATE"}, revokedAtOnce},
		{"A25", "The device that runs a canceled job is told to stop", []string{"CANCEL_HONORED"}, cancelTold},
		{"A26", "A canceled job is not run by the next device either", []string{"CANCEL_HONORED"}, cancelStays},
		{"A27", "A job is not granted before all it depends on is ok", []string{"DEPENDS_ON_GATING"}, dependsOn},
		{"A28", "A job that nobody claims expires", []string{"TTL_EXPIRY"}, expires},
		{"A29", "A job's time to live starts when it becomes claimable", []string{"TTL_EXPIRY"}, expiresFromClaimable},
		{"A30", "The app is told when no device is there, and not of a job that waits for others", []string{"NO_RUNNER_SIGNAL"}, noRunner},
		{"A31", "A device that falls silent does not count as there", []string{"NO_RUNNER_SIGNAL"}, silence},
		{"A32", "The first result counts, and later ones change nothing", []string{"RESULT_IDEMPOTENT"}, firstResult},
		{"A33", "A result carries the device that ran it, and whose it is", []string{"PROVENANCE_NAMES_DEVICE"}, provenance},
		{"A34", "No message to a device says who else may run a job", []string{"ROSTER_NOT_DISCLOSED"}, rosterSilent},
		{"A35", "A device without a pairing gets no work, and a paired one none of other people", []string{"CONSENT_BEFORE_ROUTE"}, consentFirst},
		{"A36", "A lease is good for the device that was granted it", []string{"LEASE_SCOPED_BY_GRANT", "PROVENANCE_NAMES_DEVICE"}, leaseOwned},
	}
}

// Why MUSTs have no check.
const (
	byDevice   = "The device keeps it; ours is tested with its agent."
	byOperator = "Only whoever runs the system can answer for it."
)

// reasons say of each MUST without a check why it has none.
var reasons = map[string]string{
	"SITE_KEY_BY_STUB":                byDevice,
	"SITES_LOCALLY_APPROVED":          byDevice,
	"KIND_TYPED_ONLY":                 byDevice,
	"KIND_NO_CODE":                    byDevice,
	"CAPABILITY_IS_DETECTED":          byDevice,
	"SUBSCRIPTION_SELF_LOCK":          byDevice,
	"METERED_DEFAULTS_SELF":           byDevice,
	"METERED_REQUIRES_CEILING":        byDevice,
	"COST_NOT_CONFIGURABLE":           byDevice,
	"REMOTE_IS_NEVER_FREE":            byDevice,
	"NAMED_LOCAL_ALLOWLIST":           byDevice,
	"REVOCATION_HONORED":              byDevice,
	"INGRESS_LOGGED_BEFORE_EXECUTION": byDevice,
	"NO_SHELL_INTERPOLATION":          byDevice,
	"NO_PAYLOAD_ROUTING":              byDevice,
	"STRIPPED_CHILD_ENV":              byDevice,
	"HTTP_BASE_URL_SAFE":              byDevice,
	"OUTPUT_INERT":                    byDevice,
	"COMMUNITY_BUDGETS":               byDevice,
	"FALLBACK_LABELED":                "A fallback is the app's own code, behind its server; what it puts in never passes here.",
	"RELAY_BLIND":                     byOperator,
	"SHARED_COMPUTE_DISCLOSED":        byOperator,
}

// unprovable are the MUSTs that no check is about, in the contract's order.
func unprovable() (list []Unprovable) {
	for _, m := range must.All() {
		if why, ok := reasons[m.ID]; ok {
			list = append(list, Unprovable{m.ID, why})
		}
	}
	return list
}
