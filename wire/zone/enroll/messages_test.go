package enroll_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

// The golden texts of all messages.
var (
	enrollJSON = []string{
		`{"protocol":` + protocolJSON + `,"proposal":` + freshJSON + `,"proof":{"kind":"bootstrap","value":"` + codeText + `"}}`,
		`{"protocol":` + protocolJSON + `,"proposal":` + adoptionJSON + `,"proof":{"kind":"bootstrap","value":"` + oldText + `"}}`,
		`{"protocol":` + protocolJSON + `,"proposal":` + freshJSON + `,"proof":{"kind":"pending-spark","value":"` + sparkText + `"}}`,
	}
	askJSON        = `{"protocol":` + protocolJSON + `,"bearer":"` + oldText + `"}`
	stateJSON      = `{"nodeId":"node-a","spark":` + metadataJSON + `,"palletAbsent":true,"protocol":` + protocolJSON + `}`
	credentialJSON = `{"nodeId":"node-a","credential":` + strings.Replace(metadataJSON, "spark", "pallet", 1) + `,"protocol":` + protocolJSON + `}`
	rotateJSON     = `{"protocol":` + protocolJSON + `,"bearer":"` + oldText + `",` + rotationMembers + `}`
)

func TestF04Messages(t *testing.T) {
	t.Run("proposal", exactly(enroll.ProposalCodec, freshJSON, adoptionJSON))
	t.Run("acknowledgement", exactly(enroll.AcknowledgementCodec, freshAckJSON, adoptionAckJSON))
	t.Run("enrollNode", exactly(enroll.RequestCodec, enrollJSON...))
	t.Run("enrollNode answer", exactly(enroll.ResponseCodec, `{"acknowledgement":`+freshAckJSON+`,"protocol":`+protocolJSON+`}`))
	t.Run("metadata", exactly(enroll.MetadataCodec, metadataJSON, `{"purpose":"pallet","state":"revoked","generation":9007199254740991,"sessionEpoch":1,"rotationRequired":true}`))
	t.Run("getNodeEnrollmentState", exactly(enroll.StateRequestCodec, askJSON))
	t.Run("getNodeEnrollmentState answer", exactly(enroll.StateResponseCodec, stateJSON))
	t.Run("getNodeCredential", exactly(enroll.CredentialRequestCodec, askJSON))
	t.Run("getNodeCredential answer", exactly(enroll.CredentialResponseCodec, credentialJSON))
	t.Run("rotation", exactly(enroll.RotationCodec, `{`+rotationMembers+`}`))
	t.Run("rotateNodeCredential", exactly(enroll.RotateRequestCodec, rotateJSON))
	t.Run("receipt", exactly(enroll.RotationReceiptCodec, receiptJSON))
	t.Run("rotateNodeCredential answer", exactly(enroll.RotateResponseCodec, `{"receipt":`+receiptJSON+`,"protocol":`+protocolJSON+`}`))
	t.Run("prepare", exactly(enroll.PrepareRequestCodec, prepareJSON))
	t.Run("prepare answer", exactly(enroll.PrepareResponseCodec, preparedJSON))
	t.Run("bind", exactly(enroll.BindRequestCodec, bindJSON, `{"enrollment":`+adoptionJSON+`}`))
	t.Run("bind answer", exactly(enroll.BindResponseCodec, boundJSON, boundFreshJSON))
	t.Run("activate", exactly(enroll.ActivateRequestCodec, activateJSON, activateNodeJSON))
	t.Run("activate answer", exactly(enroll.ActivateResponseCodec, activeJSON))
}

func exactly[T any](c zone.Codec[T], golden ...string) func(t *testing.T) {
	return func(t *testing.T) { zonetest.Exact(t, c, golden...) }
}

// An answer about the wrong purpose, and counters of what does not exist, are none.
func TestF09AnswersRefuse(t *testing.T) {
	for in, want := range map[string]string{
		strings.Replace(stateJSON, `"purpose":"spark"`, `"purpose":"pallet"`, 1): "value must be an answer about the credential of spark",
		strings.Replace(stateJSON, `"generation":3`, `"generation":0`, 1):        "value.spark.generation must be a whole number from 1 to 9007199254740991",
		strings.Replace(stateJSON, `"sessionEpoch":7`, `"sessionEpoch":0`, 1):    "value.spark.sessionEpoch must be a whole number from 1 to 9007199254740991",
		strings.Replace(stateJSON, `"active"`, `"pending"`, 1):                   "value.spark.state must be one of the contract's words",
	} {
		if got := enroll.StateResponseCodec.Reasons([]byte(in), ""); !slices.Equal(got, []string{want}) {
			t.Errorf("%s:\n got %q\nwant %q", in, got, want)
		}
	}
	swapped := strings.Replace(strings.Replace(strings.Replace(freshAckJSON, `"spark"`, `"x"`, 1), `"pallet"`, `"spark"`, 1), `"x"`, `"pallet"`, 1)
	if got := enroll.AcknowledgementCodec.Reasons([]byte(swapped), ""); !slices.Equal(got, []string{"value must be an acknowledgement of the credentials of spark and pallet, in this order"}) {
		t.Errorf("exchanged owners: %q", got)
	}
	for _, in := range []string{strings.Replace(freshAckJSON, `"generation":1`, `"generation":0`, 1), strings.Replace(receiptJSON, `"generation":4`, `"generation":0`, 1)} {
		if _, err := enroll.AcknowledgementCodec.Read([]byte(in)); err == nil {
			t.Errorf("%s is read", in)
		}
	}
	if _, err := enroll.RotationReceiptCodec.Read([]byte(strings.Replace(receiptJSON, `"generation":4`, `"generation":0`, 1))); err == nil {
		t.Error("a receipt of generation 0 is read")
	}
	if _, err := enroll.RotateRequestCodec.Read([]byte(strings.Replace(rotateJSON, `"expectedGeneration":3`, `"expectedGeneration":0`, 1))); err == nil {
		t.Error("a rotation of what does not exist is read")
	}
}

var secretTypes = []reflect.Type{reflect.TypeFor[zone.Secret](), reflect.TypeFor[enroll.Bearer](), reflect.TypeFor[enroll.JumpCode](), reflect.TypeFor[enroll.Proof](), reflect.TypeFor[enroll.JoinLine]()}

var localMessages = []reflect.Type{
	reflect.TypeFor[enroll.PrepareRequest](), reflect.TypeFor[enroll.PrepareResponse](), reflect.TypeFor[enroll.BindRequest](),
	reflect.TypeFor[enroll.BindResponse](), reflect.TypeFor[enroll.ActivateRequest](), reflect.TypeFor[enroll.ActivateResponse](),
}

// holds walks a type and returns the paths at which it can hold one of the others.
func holds(typ reflect.Type, others []reflect.Type) (paths []string) {
	if slices.Contains(others, typ) {
		return []string{typ.String()}
	}
	switch typ.Kind() {
	case reflect.Struct:
		for i := range typ.NumField() {
			for _, path := range holds(typ.Field(i).Type, others) {
				paths = append(paths, typ.Field(i).Name+"."+path)
			}
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holds(typ.Elem(), others)
	case reflect.Map:
		return append(holds(typ.Key(), others), holds(typ.Elem(), others)...)
	case reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return []string{"(" + typ.String() + ", which can hold anything)"}
	}
	return paths
}

// TestF09MetadataHoldsNoForbiddenFact walks the types of everything that a
// controller tells about credentials: no bearer, no hash of one, and no text in which
// a peer or a process could be named.
func TestF09MetadataHoldsNoForbiddenFact(t *testing.T) {
	forbidden := append(slices.Clone(secretTypes), reflect.TypeFor[enroll.CredentialHash](), reflect.TypeFor[string](), reflect.TypeFor[[]byte]())
	for _, typ := range []reflect.Type{reflect.TypeFor[enroll.Metadata](), reflect.TypeFor[enroll.RotationReceipt](), reflect.TypeFor[enroll.Acknowledgement](), reflect.TypeFor[enroll.Identity]()} {
		for _, path := range holds(typ, forbidden) {
			t.Errorf("%v can hold %s", typ, path)
		}
	}
	var names []string
	for i := range reflect.TypeFor[enroll.Metadata]().NumField() {
		names = append(names, reflect.TypeFor[enroll.Metadata]().Field(i).Name)
	}
	if want := []string{"Purpose", "State", "Generation", "SessionEpoch", "RotationRequired"}; !slices.Equal(names, want) {
		t.Errorf("metadata has %q, want %q: a new fact needs a look at F09", names, want)
	}
	// The walk finds what it looks for.
	for what, typ := range map[string]reflect.Type{
		"Bearer.enroll.Bearer": reflect.TypeFor[enroll.RotateRequest](), "CredentialHash.enroll.CredentialHash": reflect.TypeFor[enroll.Proposed](),
		"(func(), which can hold anything)": reflect.TypeFor[func()](), "X.string": reflect.TypeFor[[]map[int]*struct{ X string }](),
	} {
		if got := holds(typ, forbidden); !slices.Contains(got, what) {
			t.Errorf("the walk of %v finds %q, not %q", typ, got, what)
		}
	}
}

// What a request brings does not come back in the answer.
func TestF06AnswersHoldNoSecret(t *testing.T) {
	all := needles(t, codeText, sparkText, palletText, oldText)
	for _, hash := range []string{codeHash, sparkHash, palletHash, oldHash} {
		all[hash] = "as a hash"
	}
	ack := must(enroll.Acknowledge(adoption(), "node-a"))(t)
	for what, src := range map[string][]byte{
		"enrollNode":             must(enroll.ResponseCodec.Append(nil, enroll.Response{Acknowledgement: ack, Protocol: ours()}))(t),
		"getNodeEnrollmentState": []byte(stateJSON),
		"getNodeCredential":      []byte(credentialJSON),
		"rotateNodeCredential":   must(enroll.RotateResponseCodec.Append(nil, enroll.RotateResponse{Receipt: receipt(t), Protocol: ours()}))(t),
	} {
		find(t, what, string(src), all)
	}
}

// FuzzMessages: whatever is read is written again in one way, which is read as the
// same; what is refused has a reason; and the two never disagree.
func FuzzMessages(f *testing.F) {
	readers := []func(t *testing.T, src []byte){
		reads(enroll.RequestCodec), reads(enroll.ResponseCodec), reads(enroll.StateRequestCodec), reads(enroll.StateResponseCodec),
		reads(enroll.CredentialResponseCodec), reads(enroll.RotateRequestCodec), reads(enroll.RotateResponseCodec), reads(enroll.PrepareRequestCodec),
		reads(enroll.PrepareResponseCodec), reads(enroll.BindRequestCodec), reads(enroll.BindResponseCodec), reads(enroll.ActivateRequestCodec), reads(enroll.ActivateResponseCodec),
	}
	for i, src := range []string{enrollJSON[0], `{"acknowledgement":` + freshAckJSON + `,"protocol":` + protocolJSON + `}`, askJSON, stateJSON, credentialJSON, rotateJSON,
		`{"receipt":` + receiptJSON + `,"protocol":` + protocolJSON + `}`, prepareJSON, preparedJSON, bindJSON, boundFreshJSON, activateNodeJSON, activeJSON} {
		f.Add(byte(i), []byte(src))
	}
	f.Fuzz(func(t *testing.T, which byte, src []byte) { readers[int(which)%len(readers)](t, src) })
}

func reads[T any](c zone.Codec[T]) func(t *testing.T, src []byte) {
	return func(t *testing.T, src []byte) {
		v, err := c.Read(src)
		if reasons := c.Reasons(src, ""); (err == nil) != (len(reasons) == 0) {
			t.Fatalf("%q: %v, but the reasons are %q", src, err, reasons)
		}
		if err != nil {
			return
		}
		out, err := c.Append(nil, v)
		if err != nil {
			t.Fatalf("%q is read and not written: %v", src, err)
		}
		again, err := c.Read(out)
		if err != nil {
			t.Fatalf("%q is written as %q and not read: %v", src, out, err)
		}
		if out2, err := c.Append(nil, again); err != nil || !bytes.Equal(out, out2) {
			t.Fatalf("%q is written as %q and then as %q, %v", src, out, out2, err)
		}
	}
}
