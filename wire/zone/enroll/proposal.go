package enroll

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// Purpose is what a credential of a node is for. The two are separate authorities:
// neither passes for the other, and neither counts in an organization (F09).
type Purpose string

// The purposes, in the order in which messages have them.
const (
	Spark  Purpose = "spark"
	Pallet Purpose = "pallet"
)

// EnrollmentID names one enrollment. Whoever repeats a request keeps it.
type EnrollmentID string

// Generation counts the credentials of one purpose of a node: 0 is none, and each
// new one is the next.
type Generation int64

// Epoch fences the sessions of one purpose of a node: it goes up with each session
// registration and each new credential (decision O24), and what an older one began
// is over.
type Epoch int64

// MaxCounter is the highest generation and epoch.
const MaxCounter = exact.MaxWhole

// MaxHostname is the longest name of a machine, in bytes.
const MaxHostname = 253

// ValidHostname reports whether s can be the name of a machine: 1 to [MaxHostname]
// ASCII letters, digits, dots, hyphens and underscores, with a letter or digit at
// both ends. It is a label for people and decides nothing.
func ValidHostname(s string) bool {
	if s == "" || len(s) > MaxHostname {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '.' || c == '-' || c == '_') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// Proposal is what a machine asks to become (F08, decision O21). Its two credentials
// are admitted together or not at all. Values compare with ==, and a copy is
// detached.
type Proposal struct {
	// Origin is the controller that is meant; another one must refuse.
	Origin Origin
	// Hostname is what the machine calls itself, as in [ValidHostname].
	Hostname string
	// EnrollmentID is unique at the controller, and stays in every repetition.
	EnrollmentID EnrollmentID
	// BootstrapProofHash is that of the right by which it is asked: of the Jump code
	// for a fresh node, of the bearer that Spark has so far for one that adopts
	// Pallet.
	BootstrapProofHash CredentialHash
	// NodeID is the node that adopts Pallet, or empty for a fresh one.
	NodeID zone.NodeID
	// Spark and Pallet are the prepared credentials.
	Spark, Pallet Proposed
}

// Proposed is one prepared credential, with the counters that its authority is
// expected to have. Both are 0 where there is no authority yet.
type Proposed struct {
	CredentialHash       CredentialHash
	ExpectedGeneration   Generation
	ExpectedSessionEpoch Epoch
}

// Fresh reports whether the proposal is for a node that does not exist yet. Any
// other is an adoption: the node keeps its ID, Spark's credential is rotated, and
// Pallet must have none.
func (p Proposal) Fresh() bool { return p.NodeID == "" }

// Of is the prepared credential of a purpose.
func (p Proposal) Of(u Purpose) Proposed {
	if u == Pallet {
		return p.Pallet
	}
	return p.Spark
}

type proposedEntry struct {
	purpose Purpose
	Proposed
}

var proposedShape = exact.Shape[proposedEntry]{Fields: func(o *exact.Object, e *proposedEntry) {
	exact.Word(o, "purpose", &e.purpose, purposes)
	hashMember(o, "credentialHash", &e.CredentialHash)
	// The next one must be a counter as well.
	exact.Whole(o, "expectedGeneration", &e.ExpectedGeneration, 0, MaxCounter-1)
	exact.Whole(o, "expectedSessionEpoch", &e.ExpectedSessionEpoch, 0, MaxCounter-1)
}}

var purposes = []Purpose{Spark, Pallet}

// ProposalCodec is the object of a proposal. Its nodeId is null for a fresh node.
// It refuses any other order than Spark, then Pallet; a fresh proposal that expects
// an authority; an adoption that expects none of Spark or one of Pallet; and two
// hashes that are the same.
var ProposalCodec zone.Codec[Proposal] = codec.Of(func(o *exact.Object, p *Proposal) {
	originMember(o, "cloudlyOrigin", &p.Origin)
	exact.Spelled(o, "hostname", &p.Hostname, MaxHostname, "a host name of letters, digits and . - _ between them", ValidHostname)
	member.ID(o, "enrollmentId", &p.EnrollmentID)
	hashMember(o, "bootstrapProofHash", &p.BootstrapProofHash)
	member.OrNull(o, "nodeId", &p.NodeID, member.ID[zone.NodeID])
	pair := []proposedEntry{{Spark, p.Spark}, {Pallet, p.Pallet}}
	exact.List(o, "credentials", &pair, 2, 2, proposedShape)
	if o.Failed() {
		return
	}
	spark, pallet := pair[0].Proposed, pair[1].Proposed
	switch {
	case pair[0].purpose != Spark || pair[1].purpose != Pallet:
		o.Fail(exact.ErrMember, "a proposal of the credentials of spark and pallet, in this order")
	case pallet.ExpectedGeneration != 0 || pallet.ExpectedSessionEpoch != 0:
		o.Fail(exact.ErrRange, "a proposal that expects no authority of pallet")
	case p.NodeID == "" && (spark.ExpectedGeneration != 0 || spark.ExpectedSessionEpoch != 0):
		o.Fail(exact.ErrRange, "a proposal that expects no authority of spark where there is no node")
	case p.NodeID != "" && (spark.ExpectedGeneration == 0 || spark.ExpectedSessionEpoch == 0):
		o.Fail(exact.ErrRange, "a proposal that expects the authority of spark where there is a node")
	case spark.CredentialHash == pallet.CredentialHash,
		spark.CredentialHash == p.BootstrapProofHash, pallet.CredentialHash == p.BootstrapProofHash:
		o.Fail(exact.ErrRange, "a proposal of three hashes that differ")
	}
	p.Spark, p.Pallet = spark, pallet
})

// Digest is the identity of a proposal: what the acknowledgement and Pallet's
// confirmations bind to. The proof takes no part in it. It returns what writing
// the proposal does.
func Digest(p Proposal) (canon.Sum, error) { return canon.Of(canon.NodeEnrollment, ProposalCodec, p) }
