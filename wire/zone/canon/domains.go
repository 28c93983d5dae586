package canon

// Domain keeps digests and signatures of one kind of document apart from those of
// all others. Only this package makes one, so that two kinds never share one. The
// zero value is none, and nothing has a digest or a signature in it.
type Domain struct{ name string }

// String is the domain as it goes into a digest.
func (d Domain) String() string { return d.name }

// The domains of what is built. The first is the contract's own word; the others
// follow its pattern (decision O04).
var (
	// NodeEnrollment is of the proposal by which a machine becomes a node (F08).
	NodeEnrollment = Domain{"serve.zone/node-enrollment"}
	// NodeRotation is of a request for the next generation of a node's credential
	// (F09).
	NodeRotation = Domain{"serve.zone/node-rotation"}
	// SparkNodeReport is of a host's report (F11).
	SparkNodeReport = Domain{"serve.zone/spark-node-report"}
	// Mutation is of the whole input of a change that has a mutation id (F07).
	Mutation = Domain{"serve.zone/mutation"}
	// RuntimeNetworkProjectionSignature is signed with a network projection; the
	// contract's own word (0.7).
	RuntimeNetworkProjectionSignature = Domain{"serve.zone/runtime-network-projection-signature"}
)

// Domains are all domains.
func Domains() []Domain {
	return []Domain{NodeEnrollment, NodeRotation, SparkNodeReport, Mutation, RuntimeNetworkProjectionSignature}
}
