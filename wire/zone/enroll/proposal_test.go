package enroll_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// Frozen: a change of one of them ends every enrollment and rotation on its way.
const (
	freshDigest    = "302f0a5b013a2a122d926f2b8829ddc57c239b6a02aacbab11ddaf592de978db"
	adoptionDigest = "31192ee15977f51e57f439b7c6ef0cde8844b8f30edecbbcd8a0af5ea19c94d2"
	rotationDigest = "fa3ca8e8498eded1b451cd0723044503c73cd58fbddc392385d5b1cb378dd481"
)

// The canonical forms, written by hand.
const (
	freshForm = `{"bootstrapProofHash":"` + codeHash + `","cloudlyOrigin":"https://cloud.example:8443","credentials":[` +
		`{"credentialHash":"` + sparkHash + `","expectedGeneration":0,"expectedSessionEpoch":0,"purpose":"spark"},` +
		`{"credentialHash":"` + palletHash + `","expectedGeneration":0,"expectedSessionEpoch":0,"purpose":"pallet"}],` +
		`"enrollmentId":"enroll-1","hostname":"box-1","nodeId":null}`
	adoptionForm = `{"bootstrapProofHash":"` + oldHash + `","cloudlyOrigin":"https://cloud.example:8443","credentials":[` +
		`{"credentialHash":"` + sparkHash + `","expectedGeneration":3,"expectedSessionEpoch":7,"purpose":"spark"},` +
		`{"credentialHash":"` + palletHash + `","expectedGeneration":0,"expectedSessionEpoch":0,"purpose":"pallet"}],` +
		`"enrollmentId":"enroll-1","hostname":"box-1","nodeId":"node-a"}`
	rotationForm = `{"expectedGeneration":3,"nextCredentialHash":"` + sparkHash + `","purpose":"spark","rotationId":"rot-1"}`
)

func byHand(domain, form string) string {
	sum := sha256.Sum256([]byte(domain + "\x00" + form))
	return hex.EncodeToString(sum[:])
}

func TestF08DigestIsFrozen(t *testing.T) {
	for name, c := range map[string]struct {
		p          enroll.Proposal
		form, want string
	}{
		"fresh":    {fresh(), freshForm, freshDigest},
		"adoption": {adoption(), adoptionForm, adoptionDigest},
	} {
		if got := byHand("serve.zone/node-enrollment", c.form); got != c.want {
			t.Errorf("%s: the form by hand has digest %s, want %s", name, got, c.want)
		}
		if got := must(enroll.Digest(c.p))(t); got.String() != c.want {
			t.Errorf("%s: the digest is %s, want %s", name, got, c.want)
		}
	}
	if got := byHand("serve.zone/node-rotation", rotationForm); got != rotationDigest {
		t.Errorf("rotation: the form by hand has digest %s, want %s", got, rotationDigest)
	}
	if got := must(enroll.RotationDigest(rotation()))(t); got.String() != rotationDigest {
		t.Errorf("rotation: the digest is %s, want %s", got, rotationDigest)
	}
}

// The digest is of the proposal alone: another proof, another offer and another
// order of members change nothing.
func TestF08ProofIsOutsideOfTheDigest(t *testing.T) {
	for i, text := range []string{
		`{"protocol":` + protocolJSON + `,"proposal":` + freshJSON + `,"proof":{"kind":"bootstrap","value":"` + codeText + `"}}`,
		`{"proof":{"value":"` + sparkText + `","kind":"pending-spark"},"proposal":` + freshForm + `,"protocol":{"minimumPeerVersion":"33.0.1","interfacesVersion":"33.7.0"}}`,
	} {
		r := must(enroll.RequestCodec.Read([]byte(text)))(t)
		if got := must(enroll.Digest(r.Proposal))(t); got.String() != freshDigest {
			t.Errorf("%s has digest %s, want %s", named("request", i), got, freshDigest)
		}
	}
}

// Whatever a proposal says is in its digest.
func TestF08EveryMemberIsInTheDigest(t *testing.T) {
	for what, change := range map[string]func(p *enroll.Proposal){
		"origin":           func(p *enroll.Proposal) { p.Origin = origin("https://cloud.example") },
		"hostname":         func(p *enroll.Proposal) { p.Hostname = "Box-1" },
		"enrollment":       func(p *enroll.Proposal) { p.EnrollmentID = "enroll-2" },
		"bootstrap proof":  func(p *enroll.Proposal) { p.BootstrapProofHash = hashOf("x") },
		"node":             func(p *enroll.Proposal) { p.NodeID = "node-b" },
		"spark hash":       func(p *enroll.Proposal) { p.Spark.CredentialHash = hashOf("x") },
		"spark generation": func(p *enroll.Proposal) { p.Spark.ExpectedGeneration++ },
		"spark epoch":      func(p *enroll.Proposal) { p.Spark.ExpectedSessionEpoch++ },
		"pallet hash":      func(p *enroll.Proposal) { p.Pallet.CredentialHash = hashOf("x") },
		"hashes, exchanged": func(p *enroll.Proposal) {
			p.Spark.CredentialHash, p.Pallet.CredentialHash = p.Pallet.CredentialHash, p.Spark.CredentialHash
		},
	} {
		p := adoption()
		change(&p)
		if got := must(enroll.Digest(p))(t); got.String() == adoptionDigest {
			t.Errorf("another %s has the same digest", what)
		}
	}
}

func TestF08ProposalRefuses(t *testing.T) {
	const pair = "value must be a proposal of the credentials of spark and pallet, in this order"
	swap := func(s string) string {
		s = strings.Replace(s, `"purpose":"spark"`, `"purpose":"x"`, 1)
		s = strings.Replace(s, `"purpose":"pallet"`, `"purpose":"spark"`, 1)
		return strings.Replace(s, `"purpose":"x"`, `"purpose":"pallet"`, 1)
	}
	change := func(text, old, with string) string {
		out := strings.Replace(text, old, with, 1)
		if out == text {
			t.Fatalf("%s is not in the text", old)
		}
		return out
	}
	for in, want := range map[string]string{
		swap(freshJSON):    pair,
		swap(adoptionJSON): pair,
		change(freshJSON, `"purpose":"pallet"`, `"purpose":"spark"`):                                  pair,
		change(freshJSON, `"purpose":"pallet"`, `"purpose":"Pallet"`):                                 "value.credentials[1].purpose must be one of the contract's words",
		change(freshJSON, `,`+palletEntry, ``):                                                        "value.credentials must be 2 to 2 entries",
		change(freshJSON, palletEntry, palletEntry+`,`+palletEntry):                                   "value.credentials must be 2 to 2 entries",
		change(freshJSON, `0,"expectedSessionEpoch":0},{`, `1,"expectedSessionEpoch":0},{`):           "value must be a proposal that expects no authority of spark where there is no node",
		change(freshJSON, `0,"expectedSessionEpoch":0},{`, `0,"expectedSessionEpoch":1},{`):           "value must be a proposal that expects no authority of spark where there is no node",
		change(freshJSON, `"nodeId":null`, `"nodeId":"node-a"`):                                       "value must be a proposal that expects the authority of spark where there is a node",
		change(freshJSON, `"nodeId":null`, `"nodeId":""`):                                             "value.nodeId must be an identifier of lower-case letters, digits and . _ - between them",
		change(adoptionJSON, `"nodeId":"node-a"`, `"nodeId":null`):                                    "value must be a proposal that expects no authority of spark where there is no node",
		change(adoptionJSON, `"expectedGeneration":3`, `"expectedGeneration":0`):                      "value must be a proposal that expects the authority of spark where there is a node",
		change(adoptionJSON, `"expectedSessionEpoch":7`, `"expectedSessionEpoch":0`):                  "value must be a proposal that expects the authority of spark where there is a node",
		change(adoptionJSON, `"expectedGeneration":3`, `"expectedGeneration":9007199254740991`):       "value.credentials[0].expectedGeneration must be a whole number from 0 to 9007199254740990",
		change(adoptionJSON, `"expectedSessionEpoch":7`, `"expectedSessionEpoch":-1`):                 "value.credentials[0].expectedSessionEpoch must be a whole number from 0 to 9007199254740990",
		change(adoptionJSON, `"expectedGeneration":0`, `"expectedGeneration":1`):                      "value must be a proposal that expects no authority of pallet",
		change(freshJSON, `"expectedSessionEpoch":0}]`, `"expectedSessionEpoch":1}]`):                 "value must be a proposal that expects no authority of pallet",
		change(freshJSON, palletHash, sparkHash):                                                      "value must be a proposal of three hashes that differ",
		change(freshJSON, codeHash, sparkHash):                                                        "value must be a proposal of three hashes that differ",
		change(freshJSON, codeHash, palletHash):                                                       "value must be a proposal of three hashes that differ",
		change(freshJSON, codeHash, strings.Repeat("0", 64)):                                          "value.bootstrapProofHash must be a hash of 64 lower-case hexadecimal digits",
		change(freshJSON, codeHash, strings.ToUpper(codeHash)):                                        "value.bootstrapProofHash must be a hash of 64 lower-case hexadecimal digits",
		change(freshJSON, originText, "http://cloud.example:8443"):                                    "value.cloudlyOrigin must be an https origin in its one spelling",
		change(freshJSON, originText, "https://Cloud.example:8443"):                                   "value.cloudlyOrigin must be an https origin in its one spelling",
		change(freshJSON, originText, "https://cloud.example:443"):                                    "value.cloudlyOrigin must be an https origin in its one spelling",
		change(freshJSON, `"box-1"`, `"box-1\u001b[2J"`):                                              "value.hostname must be a host name of letters, digits and . - _ between them",
		change(freshJSON, `"box-1"`, `""`):                                                            "value.hostname must be a host name of letters, digits and . - _ between them",
		change(freshJSON, `"box-1"`, `"`+strings.Repeat("b", 254)+`"`):                                "value.hostname must be a host name of letters, digits and . - _ between them",
		change(freshJSON, `"nodeId":null,`, `"nodeId":null,"proof":{"kind":"bootstrap"},`):            "value must use its exact schema",
		change(freshJSON, `"purpose":"spark",`, `"purpose":"spark","bearer":"`+sparkText+`",`):        "value.credentials[0] must use its exact schema",
		change(freshJSON, `"expectedGeneration":0,"expectedS`, `"expectedGeneration":"0","expectedS`): "value.credentials[0].expectedGeneration must be a number",
	} {
		if got := enroll.ProposalCodec.Reasons([]byte(in), ""); !slices.Equal(got, []string{want}) {
			t.Errorf("%s:\n got %q\nwant %q", in, got, want)
		}
		if p, err := enroll.ProposalCodec.Read([]byte(in)); err == nil || p != (enroll.Proposal{}) {
			t.Errorf("%s is read as %v, %v", in, p, err)
		}
	}
}

// What cannot be read cannot be written either, so it has no digest.
func TestF08NoDigestOfWhatIsNoProposal(t *testing.T) {
	for what, change := range map[string]func(p *enroll.Proposal){
		"origin":            func(p *enroll.Proposal) { p.Origin = enroll.Origin{} },
		"hostname":          func(p *enroll.Proposal) { p.Hostname = "a b" },
		"enrollment":        func(p *enroll.Proposal) { p.EnrollmentID = "" },
		"bootstrap hash":    func(p *enroll.Proposal) { p.BootstrapProofHash = enroll.CredentialHash{} },
		"spark hash":        func(p *enroll.Proposal) { p.Spark.CredentialHash = enroll.CredentialHash{} },
		"same hashes":       func(p *enroll.Proposal) { p.Spark.CredentialHash = p.Pallet.CredentialHash },
		"pallet generation": func(p *enroll.Proposal) { p.Pallet.ExpectedGeneration = 1 },
		"spark generation":  func(p *enroll.Proposal) { p.Spark.ExpectedGeneration = 1 },
		"last generation": func(p *enroll.Proposal) {
			p.NodeID, p.Spark.ExpectedGeneration, p.Spark.ExpectedSessionEpoch = "a", enroll.MaxCounter, 1
		},
		"node": func(p *enroll.Proposal) { p.NodeID = "A" },
	} {
		p := fresh()
		change(&p)
		if sum, err := enroll.Digest(p); !errors.As(err, new(*exact.Problem)) || !sum.IsZero() {
			t.Errorf("without a right %s the digest is %s, %v", what, sum, err)
		}
		if err := enroll.BindAcknowledgement(p, enroll.Acknowledgement{}); !errors.As(err, new(*exact.Problem)) {
			t.Errorf("without a right %s an acknowledgement binds: %v", what, err)
		}
	}
}

// A snapshot is a copy: what was read shares nothing with the bytes it came from.
func TestF04SnapshotIsDetached(t *testing.T) {
	src := []byte(adoptionJSON)
	p := must(enroll.ProposalCodec.Read(src))(t)
	for i := range src {
		src[i] = 'x'
	}
	if p != adoption() || must(enroll.Digest(p))(t).String() != adoptionDigest {
		t.Errorf("the proposal changed with its bytes: %v", p)
	}
}

func TestF08ProposalsTravel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := proposals().Draw(t, "proposal")
		src, err := enroll.ProposalCodec.Append(nil, p)
		if err != nil {
			t.Fatal(err)
		}
		back, err := enroll.ProposalCodec.Read(src)
		if err != nil || back != p {
			t.Fatalf("%s is read as %v, %v", src, back, err)
		}
		form, err := canon.JSON(src)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := enroll.Digest(p)
		if want := byHand("serve.zone/node-enrollment", string(form)); err != nil || digest.String() != want {
			t.Fatalf("the digest is %s, %v, want %s", digest, err, want)
		}
	})
}

func TestHostname(t *testing.T) {
	for _, good := range []string{"a", "7", "DESKTOP-1", "box_1.lan", strings.Repeat("x", 253)} {
		if !enroll.ValidHostname(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "-a", "a-", "a.", "_", "a b", "ä", "a\n", "a\x00", "a/b", strings.Repeat("x", 254)} {
		if enroll.ValidHostname(bad) {
			t.Errorf("%q is accepted", bad)
		}
	}
}
