// Package grant verifies a control plane's word that a device may run a job.
//
// A device that is paired with a relay gets jobs of sites and people it has never
// met. What makes it run one is not the relay's word but a grant: signed by the
// control plane whose key the device pinned when it was paired, for one job and
// one owner, and two minutes old at most. A relay that invents a job, changes
// whose it is, or sends an old grant again is refused.
//
// The signed text is a JSON list: the context byollm/v1/grant, then the members
// in the alphabetic order of their names, all texts but the time:
//
//	grantId, issuedAt, jobId, kind, owner, purpose, service, site, user
//
// The package refuses to read clocks and to remember: that no grant admits two
// jobs, and that the service is one the owner offers to that person, is for the
// caller to hold.
package grant
