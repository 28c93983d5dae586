package enroll_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
)

// The examples. The bytes of the secrets are counted up, and the texts and hashes
// were made by other programs: base64 and sha256sum.
const (
	codeText   = "AAECAwQFBgcICQoL"                            // bytes 0 to 11
	sparkText  = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8" // bytes 0 to 31
	palletText = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8" // bytes 32 to 63
	oldText    = "QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8" // bytes 64 to 95

	codeHash   = "9f7fbd86086b04e0c090cd30a8c6331c6d9690a92366520c4920d06523fb90b6"
	sparkHash  = "ea866a757e4c38babfa8127cbe9a409d3e1f93a00ff1488ff735fcf917afffd0"
	palletHash = "cf0931e168b49e987503caf18af6fe253b6b3d82a81008c3e8e1ee67c7c8dc55"
	oldHash    = "f45dc82a7523d14974cea050e3028e8bf06a8ee855a9d63034ebb4fb9ecc2305"

	protocolJSON = `{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}`
	originText   = "https://cloud.example:8443"

	proposalHead = `{"cloudlyOrigin":"` + originText + `","hostname":"box-1","enrollmentId":"enroll-1","bootstrapProofHash":"`
	palletEntry  = `{"purpose":"pallet","credentialHash":"` + palletHash + `","expectedGeneration":0,"expectedSessionEpoch":0}`
	freshJSON    = proposalHead + codeHash + `","nodeId":null,"credentials":[{"purpose":"spark","credentialHash":"` + sparkHash + `","expectedGeneration":0,"expectedSessionEpoch":0},` + palletEntry + `]}`
	adoptionJSON = proposalHead + oldHash + `","nodeId":"node-a","credentials":[{"purpose":"spark","credentialHash":"` + sparkHash + `","expectedGeneration":3,"expectedSessionEpoch":7},` + palletEntry + `]}`

	freshAckJSON    = `{"enrollmentDigest":"` + freshDigest + `","nodeId":"node-b","credentials":[{"purpose":"spark","generation":1,"sessionEpoch":1},{"purpose":"pallet","generation":1,"sessionEpoch":1}]}`
	adoptionAckJSON = `{"enrollmentDigest":"` + adoptionDigest + `","nodeId":"node-a","credentials":[{"purpose":"spark","generation":4,"sessionEpoch":8},{"purpose":"pallet","generation":1,"sessionEpoch":1}]}`
	metadataJSON    = `{"purpose":"spark","state":"active","generation":3,"sessionEpoch":7,"rotationRequired":false}`
	rotationMembers = `"purpose":"spark","nextCredentialHash":"` + sparkHash + `","expectedGeneration":3,"rotationId":"rot-1"`
	receiptJSON     = `{"rotationId":"rot-1","nodeId":"node-a","purpose":"spark","generation":4,"sessionEpoch":9,"rotatedAt":1796133600987}`
)

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func hashOf(text string) enroll.CredentialHash {
	sum := sha256.Sum256([]byte(text))
	h, ok := enroll.ParseCredentialHash(hex.EncodeToString(sum[:]))
	if !ok {
		panic("the hash of a text is not read")
	}
	return h
}

func bearer(text string) enroll.Bearer {
	b, err := enroll.ParseBearer(text)
	if err != nil {
		panic(err)
	}
	return b
}

func code(text string) enroll.JumpCode {
	c, err := enroll.ParseJumpCode(text)
	if err != nil {
		panic(err)
	}
	return c
}

func ours() handshake.Offer { return handshake.Ours(handshake.SparkNode) }

func origin(text string) enroll.Origin {
	o, err := enroll.ParseOrigin(text)
	if err != nil {
		panic(err)
	}
	return o
}

func fresh() enroll.Proposal {
	return enroll.Proposal{
		Origin: origin(originText), Hostname: "box-1", EnrollmentID: "enroll-1", BootstrapProofHash: hashOf(codeText),
		Spark:  enroll.Proposed{CredentialHash: hashOf(sparkText)},
		Pallet: enroll.Proposed{CredentialHash: hashOf(palletText)},
	}
}

func adoption() enroll.Proposal {
	p := fresh()
	p.NodeID, p.BootstrapProofHash = "node-a", hashOf(oldText)
	p.Spark.ExpectedGeneration, p.Spark.ExpectedSessionEpoch = 3, 7
	return p
}

// draw makes a bearer out of three drawn bytes, so that two are seldom the same.
func draw(t *rapid.T, label string) enroll.Bearer {
	seed := rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, label)
	b, err := enroll.NewBearer(bytes.NewReader(bytes.Repeat(seed, 11)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// proposals are of both kinds, with every counter that can be.
func proposals() *rapid.Generator[enroll.Proposal] {
	return rapid.Custom(func(t *rapid.T) enroll.Proposal {
		id := rapid.StringMatching(`[a-z0-9]([a-z0-9._-]{0,20}[a-z0-9])?`)
		port := rapid.SampledFrom([]string{"", ":1", ":8443", ":65535"}).Draw(t, "port")
		p := enroll.Proposal{
			Origin:             origin("https://" + rapid.StringMatching(`[a-z][a-z0-9]{0,9}\.example`).Draw(t, "host") + port),
			Hostname:           rapid.StringMatching(`[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?`).Draw(t, "hostname"),
			EnrollmentID:       enroll.EnrollmentID(id.Draw(t, "enrollment")),
			BootstrapProofHash: draw(t, "bootstrap").Hash(),
			Spark:              enroll.Proposed{CredentialHash: draw(t, "spark").Hash()},
			Pallet:             enroll.Proposed{CredentialHash: draw(t, "pallet").Hash()},
		}
		if p.Spark.CredentialHash == p.Pallet.CredentialHash || p.Spark.CredentialHash == p.BootstrapProofHash || p.Pallet.CredentialHash == p.BootstrapProofHash {
			t.Skip("two secrets are the same")
		}
		if rapid.Bool().Draw(t, "adoption") {
			p.NodeID = zone.NodeID(id.Draw(t, "node"))
			p.Spark.ExpectedGeneration = enroll.Generation(rapid.Int64Range(1, enroll.MaxCounter-1).Draw(t, "generation"))
			p.Spark.ExpectedSessionEpoch = enroll.Epoch(rapid.Int64Range(1, enroll.MaxCounter-1).Draw(t, "epoch"))
		}
		return p
	})
}

func named(what string, i int) string { return fmt.Sprintf("%s %d", what, i) }
