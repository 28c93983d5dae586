package zonesim

import (
	"errors"
	"fmt"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// model is what the controller must know, kept apart from it: by what was asked and
// whether it was to be accepted. It knows nothing of stores.
type model struct {
	invitations map[enroll.CredentialHash]*invitation
	nodes       map[zone.NodeID]*modelNode
	enrolled    map[canon.Sum][]byte // acknowledgements by the digest of the proposal
	owners      map[enroll.CredentialHash]owner
	audit       int64
	order       []zone.NodeID // as they joined
}

type invitation struct {
	expires zone.Millis
	used    bool
}

type modelNode struct {
	removed       bool
	spark, pallet *authority
}

func (n *modelNode) of(u enroll.Purpose) **authority {
	if u == enroll.Pallet {
		return &n.pallet
	}
	return &n.spark
}

// authority is one credential that counts.
type authority struct {
	hash       enroll.CredentialHash
	generation enroll.Generation
	epoch      enroll.Epoch
	rotation   canon.Sum // that made it
	receipt    []byte
}

// String tells no hash.
func (a *authority) String() string {
	if a == nil {
		return "nothing"
	}
	return fmt.Sprintf("generation %d, epoch %d", a.generation, a.epoch)
}

type owner struct {
	node    zone.NodeID
	purpose enroll.Purpose
}

func newModel() *model {
	return &model{
		invitations: map[enroll.CredentialHash]*invitation{}, nodes: map[zone.NodeID]*modelNode{},
		enrolled: map[canon.Sum][]byte{}, owners: map[enroll.CredentialHash]owner{},
	}
}

// current is the authority that a bearer has now, or nil.
func (m *model) current(h enroll.CredentialHash) (owner, *authority) {
	o, known := m.owners[h]
	if !known {
		return owner{}, nil
	}
	n := m.nodes[o.node]
	if a := *n.of(o.purpose); a != nil && a.hash == h && !n.removed {
		return o, a
	}
	return owner{}, nil
}

func (m *model) grant(id zone.NodeID, u enroll.Purpose, a *authority) {
	*m.nodes[id].of(u) = a
	m.owners[a.hash] = owner{id, u}
}

// broke reports whether an injected fault is why something was refused.
func broke(err error) bool { return errors.Is(err, database.ErrIO) }

// enrollment judges what the controller did with a request.
func (m *model) enrollment(now zone.Millis, p enroll.Proposal, proof enroll.Proof, ack enroll.Acknowledgement, err error) (committed bool, wrong error) {
	digest, _ := enroll.Digest(p)
	text, _ := enroll.AcknowledgementCodec.Append(nil, ack)
	if first, done := m.enrolled[digest]; done {
		want := proof.Kind() == enroll.PendingSpark && proof.Hash() == p.Spark.CredentialHash
		switch {
		case want && err == nil && string(text) != string(first):
			return false, errors.New("a repeated enrollment has another acknowledgement")
		case want != (err == nil) && !broke(err):
			return false, fmt.Errorf("a repeated enrollment with a %s proof: %v", proof.Kind(), err)
		}
		return false, nil
	}
	may := proof.Kind() == enroll.Bootstrap && proof.Hash() == p.BootstrapProofHash
	var i *invitation
	if p.Fresh() {
		i = m.invitations[proof.Hash()]
		may = may && i != nil && !i.used && now < i.expires
	} else {
		o, a := m.current(proof.Hash())
		may = may && a != nil && o == owner{p.NodeID, enroll.Spark} && m.nodes[o.node].pallet == nil &&
			a.generation == p.Spark.ExpectedGeneration && a.epoch == p.Spark.ExpectedSessionEpoch
	}
	switch {
	case broke(err):
		return false, nil
	case may != (err == nil):
		return false, fmt.Errorf("an enrollment that the model says %v to: %v", may, err)
	case err != nil:
		return false, nil
	case ack.EnrollmentDigest != digest, !p.Fresh() && ack.NodeID != p.NodeID, p.Fresh() && m.nodes[ack.NodeID] != nil,
		ack.Spark != enroll.Granted{Generation: p.Spark.ExpectedGeneration + 1, SessionEpoch: p.Spark.ExpectedSessionEpoch + 1},
		ack.Pallet != enroll.Granted{Generation: 1, SessionEpoch: 1}:
		return false, fmt.Errorf("the acknowledgement %+v of %+v", ack, p)
	}
	if i != nil {
		i.used = true
		m.nodes[ack.NodeID] = &modelNode{}
		m.order = append(m.order, ack.NodeID)
	}
	m.enrolled[digest] = text
	m.grant(ack.NodeID, enroll.Spark, &authority{hash: p.Spark.CredentialHash, generation: ack.Spark.Generation, epoch: ack.Spark.SessionEpoch})
	m.grant(ack.NodeID, enroll.Pallet, &authority{hash: p.Pallet.CredentialHash, generation: 1, epoch: 1})
	m.audit++
	return true, nil
}

// rotation judges what the controller did with a request.
func (m *model) rotation(b enroll.Bearer, r enroll.Rotation, receipt enroll.RotationReceipt, err error) (committed bool, wrong error) {
	digest, _ := enroll.RotationDigest(r)
	text, _ := enroll.RotationReceiptCodec.Append(nil, receipt)
	o, a := m.current(b.Hash())
	if a != nil && o.purpose == r.Purpose && a.rotation == digest {
		switch {
		case err == nil && string(text) != string(a.receipt):
			return false, errors.New("a repeated rotation has another receipt")
		case err != nil && !broke(err):
			return false, fmt.Errorf("a repeated rotation: %v", err)
		}
		return false, nil
	}
	may := a != nil && o.purpose == r.Purpose && a.generation == r.ExpectedGeneration && r.NextCredentialHash != b.Hash()
	switch {
	case broke(err):
		return false, nil
	case may != (err == nil):
		return false, fmt.Errorf("a rotation that the model says %v to: %v", may, err)
	case err != nil:
		return false, nil
	case receipt.NodeID != o.node, receipt.Purpose != o.purpose, receipt.RotationID != r.RotationID,
		receipt.Generation != a.generation+1, receipt.SessionEpoch != a.epoch+1:
		return false, fmt.Errorf("the receipt %+v of %+v", receipt, r)
	}
	m.grant(o.node, o.purpose, &authority{hash: r.NextCredentialHash, generation: receipt.Generation, epoch: receipt.SessionEpoch, rotation: digest, receipt: text})
	m.audit++
	return true, nil
}
