package enroll_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/allodhq/allod/wire/zone/enroll"
)

// TestF08ProofTable goes through every proof, with and without a receipt.
func TestF08ProofTable(t *testing.T) {
	const otherCode = "zzzzzzzzzzzzzzzz"
	otherBearer := bearer("zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz8")
	type row struct {
		name              string
		p                 enroll.Proposal
		proof             enroll.Proof
		without, recorded error // without a receipt, and with one
	}
	rows := []row{
		{"fresh: the code", fresh(), enroll.BootstrapByCode(code(codeText)), nil, enroll.ErrProofMode},
		{"fresh: another code", fresh(), enroll.BootstrapByCode(code(otherCode)), enroll.ErrProof, enroll.ErrProof},
		{"fresh: the prepared Spark", fresh(), enroll.PendingSparkProof(bearer(sparkText)), enroll.ErrProofMode, nil},
		{"fresh: another Spark", fresh(), enroll.PendingSparkProof(otherBearer), enroll.ErrProof, enroll.ErrProof},
		{"fresh: the prepared Pallet", fresh(), enroll.PendingSparkProof(bearer(palletText)), enroll.ErrProof, enroll.ErrProof},
		{"fresh: the prepared Spark as bootstrap", fresh(), enroll.BootstrapByBearer(bearer(sparkText)), enroll.ErrProof, enroll.ErrProof},
		{"adoption: the old Spark", adoption(), enroll.BootstrapByBearer(bearer(oldText)), nil, enroll.ErrProofMode},
		{"adoption: another Spark", adoption(), enroll.BootstrapByBearer(otherBearer), enroll.ErrProof, enroll.ErrProof},
		{"adoption: a code", adoption(), enroll.BootstrapByCode(code(codeText)), enroll.ErrProof, enroll.ErrProof},
		{"adoption: the prepared Spark", adoption(), enroll.PendingSparkProof(bearer(sparkText)), enroll.ErrProofMode, nil},
		{"adoption: the old Spark as pending", adoption(), enroll.PendingSparkProof(bearer(oldText)), enroll.ErrProof, enroll.ErrProof},
		{"adoption: the prepared Spark as bootstrap", adoption(), enroll.BootstrapByBearer(bearer(sparkText)), enroll.ErrProof, enroll.ErrProof},
		{"no proof", fresh(), enroll.Proof{}, enroll.ErrProof, enroll.ErrProof},
		{"no code", fresh(), enroll.BootstrapByCode(enroll.JumpCode{}), enroll.ErrProof, enroll.ErrProof},
		{"no bearer", adoption(), enroll.BootstrapByBearer(enroll.Bearer{}), enroll.ErrProof, enroll.ErrProof},
		{"no pending bearer", fresh(), enroll.PendingSparkProof(enroll.Bearer{}), enroll.ErrProof, enroll.ErrProof},
	}
	// A proposal whose hashes are missing is satisfied by nothing, not even by nothing.
	for _, proof := range []enroll.Proof{{}, enroll.BootstrapByCode(enroll.JumpCode{}), enroll.BootstrapByBearer(enroll.Bearer{}), enroll.PendingSparkProof(enroll.Bearer{})} {
		rows = append(rows, row{"an empty proposal", enroll.Proposal{}, proof, enroll.ErrProof, enroll.ErrProof},
			row{"an empty adoption", enroll.Proposal{NodeID: "a"}, proof, enroll.ErrProof, enroll.ErrProof})
	}
	// A proposal that names the hash of a code is a fresh one, and the reverse, or the
	// right of one kind would serve for the other.
	crossed := fresh()
	crossed.BootstrapProofHash = hashOf(oldText)
	rows = append(rows, row{"fresh by a bearer", crossed, enroll.BootstrapByBearer(bearer(oldText)), enroll.ErrProof, enroll.ErrProof})
	crossed = adoption()
	crossed.BootstrapProofHash = hashOf(codeText)
	rows = append(rows, row{"adoption by a code", crossed, enroll.BootstrapByCode(code(codeText)), enroll.ErrProof, enroll.ErrProof})

	for _, r := range rows {
		if err := enroll.VerifyProof(r.p, false, r.proof); !errors.Is(err, r.without) || (err == nil) != (r.without == nil) {
			t.Errorf("%s without a receipt: %v, want %v", r.name, err, r.without)
		}
		if err := enroll.VerifyProof(r.p, true, r.proof); !errors.Is(err, r.recorded) || (err == nil) != (r.recorded == nil) {
			t.Errorf("%s with a receipt: %v, want %v", r.name, err, r.recorded)
		}
	}
}

// record is as much of a controller as it takes to lose an answer.
type record struct {
	proposal enroll.Proposal
	answer   []byte
}

func (r *record) enroll(body []byte) ([]byte, error) {
	req, err := enroll.RequestCodec.Read(body)
	if err != nil {
		return nil, err
	}
	exists := r.answer != nil && r.proposal == req.Proposal
	if err := enroll.VerifyProof(req.Proposal, exists, req.Proof); err != nil {
		return nil, err
	}
	if !exists {
		a, err := enroll.Acknowledge(req.Proposal, "node-a")
		if err != nil {
			return nil, err
		}
		r.proposal = req.Proposal
		if r.answer, err = enroll.ResponseCodec.Append(nil, enroll.Response{Acknowledgement: a, Protocol: ours()}); err != nil {
			return nil, err
		}
	}
	return r.answer, nil
}

// TestF08LostAnswer: the prepared credential of Spark fetches the first answer again,
// as often as it likes; the first right no longer counts; and before there is an
// answer it is the other way round. All of it goes through bytes.
func TestF08LostAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		p     enroll.Proposal
		first enroll.Proof
	}{
		"fresh":    {fresh(), enroll.BootstrapByCode(code(codeText))},
		"adoption": {adoption(), enroll.BootstrapByBearer(bearer(oldText))},
	} {
		body := func(proof enroll.Proof) []byte {
			return must(enroll.RequestCodec.Append(nil, enroll.Request{Protocol: ours(), Proposal: c.p, Proof: proof}))(t)
		}
		pending := enroll.PendingSparkProof(bearer(sparkText))
		var r record
		if _, err := r.enroll(body(pending)); !errors.Is(err, enroll.ErrProofMode) || r.answer != nil {
			t.Errorf("%s: the pending proof before a receipt: %v", name, err)
		}
		lost := must(r.enroll(body(c.first)))(t)
		for range 3 {
			again := must(r.enroll(body(pending)))(t)
			if !bytes.Equal(again, lost) {
				t.Errorf("%s: the answer again is\n%s, want\n%s", name, again, lost)
			}
			if _, err := r.enroll(body(c.first)); !errors.Is(err, enroll.ErrProofMode) {
				t.Errorf("%s: the first right counts again: %v", name, err)
			}
		}
		resp := must(enroll.ResponseCodec.Read(lost))(t)
		if err := enroll.BindAcknowledgement(c.p, resp.Acknowledgement); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A request whose proof cannot be what its kind says is none.
func TestF08RequestRefusesProofsOfTheWrongKind(t *testing.T) {
	body := func(proposal, proof string) string {
		return `{"protocol":` + protocolJSON + `,"proposal":` + proposal + `,"proof":` + proof + `}`
	}
	const want = "value must be a request whose proof is a Jump code where a fresh node has no receipt, and else a bearer"
	const form = "value.proof.value must be a Jump code of 16 or a bearer of 43 base64url characters"
	for in, want := range map[string]string{
		body(freshJSON, `{"kind":"bootstrap","value":"`+sparkText+`"}`):      want,
		body(freshJSON, `{"kind":"pending-spark","value":"`+codeText+`"}`):   want,
		body(adoptionJSON, `{"kind":"bootstrap","value":"`+codeText+`"}`):    want,
		body(freshJSON, `{"kind":"bootstrap","value":"`+codeText[1:]+`"}`):   form, // 15
		body(freshJSON, `{"kind":"bootstrap","value":"`+codeText+`A"}`):      form, // 17
		body(freshJSON, `{"kind":"bootstrap","value":"`+codeText+`=="}`):     form,
		body(freshJSON, `{"kind":"bootstrap","value":"AAECAwQFBgcICQ+/"}`):   form,
		body(freshJSON, `{"kind":"bootstrap","value":""}`):                   form,
		body(freshJSON, `{"kind":"Bootstrap","value":"`+codeText+`"}`):       "value.proof.kind must be one of the contract's words",
		body(freshJSON, `{"kind":"bootstrap","value":"`+codeText+`","x":1}`): "value.proof must use its exact schema",
	} {
		if got := enroll.RequestCodec.Reasons([]byte(in), ""); len(got) != 1 || got[0] != want {
			t.Errorf("%s:\n got %q\nwant %q", in, got, want)
		}
		if r, err := enroll.RequestCodec.Read([]byte(in)); err == nil || r.Proposal != (enroll.Proposal{}) || !r.Proof.IsZero() {
			t.Errorf("%s is read, %v", in, err)
		}
	}
}
