package enroll_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/frame"
)

const (
	prepareJSON      = `{"authority":{"generation":0,"sessionEpoch":0}}`
	preparedJSON     = `{"credentialHash":"` + palletHash + `"}`
	bindJSON         = `{"enrollment":` + freshJSON + `}`
	boundFreshJSON   = `{"enrollmentDigest":"` + freshDigest + `","nodeId":null}`
	boundJSON        = `{"enrollmentDigest":"` + adoptionDigest + `","nodeId":"node-a"}`
	activateJSON     = `{"enrollment":` + freshJSON + `,"acknowledgement":` + freshAckJSON + `}`
	activateNodeJSON = `{"enrollment":` + adoptionJSON + `,"acknowledgement":` + adoptionAckJSON + `}`
	activeJSON       = `{"enrollmentDigest":"` + freshDigest + `","nodeId":"node-b","credentialHash":"` + palletHash + `","generation":1,"sessionEpoch":1}`
)

// A credential is prepared for an authority that does not exist, and for no other.
func TestF10PrepareIsForNoAuthority(t *testing.T) {
	const zero = "value.authority must be an authority whose generation and session epoch are 0"
	for in, want := range map[string]string{
		prepareJSON: "",
		strings.Replace(prepareJSON, `"generation":0`, `"generation":1`, 1):     zero,
		strings.Replace(prepareJSON, `"sessionEpoch":0`, `"sessionEpoch":1`, 1): zero,
		strings.Replace(prepareJSON, `0`, `-1`, 1):                              "value.authority.generation must be a whole number from 0 to 9007199254740991",
		strings.Replace(prepareJSON, `0`, `null`, 1):                            "value.authority.generation must be a number",
		`{"authority":null}`: "value.authority must be an object",
		`{}`:                 "value must use its exact schema",
		strings.Replace(prepareJSON, `}}`, `,"bearer":"`+palletText+`"}}`, 1): "value.authority must use its exact schema",
	} {
		got := strings.Join(enroll.PrepareRequestCodec.Reasons([]byte(in), ""), "|")
		if _, err := enroll.PrepareRequestCodec.Read([]byte(in)); got != want || (err == nil) != (want == "") {
			t.Errorf("%s: %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestF10BindPrepared(t *testing.T) {
	r := must(enroll.PrepareResponseCodec.Read([]byte(preparedJSON)))(t)
	if got := must(enroll.BindPrepared(r, hashOf(sparkText), hashOf(codeText)))(t); got != hashOf(palletText) {
		t.Errorf("the hash is %s", got.Text())
	}
	for what, c := range map[string]struct {
		r      enroll.PrepareResponse
		others []enroll.CredentialHash
	}{
		"no credential":         {enroll.PrepareResponse{}, nil},
		"Spark's credential":    {r, []enroll.CredentialHash{hashOf(codeText), hashOf(palletText)}},
		"the bootstrap's right": {r, []enroll.CredentialHash{hashOf(palletText), hashOf(sparkText)}},
	} {
		if got, err := enroll.BindPrepared(c.r, c.others...); !errors.Is(err, enroll.ErrConfirmation) || !got.IsZero() {
			t.Errorf("%s is taken: %v", what, err)
		}
	}
}

// The confirmation of a binding has the digest of the whole enrollment and the node
// before the assignment, which is null for a fresh one.
func TestF10BoundCarriesTheNodeBeforeTheAssignment(t *testing.T) {
	for want, p := range map[string]enroll.Proposal{boundFreshJSON: fresh(), boundJSON: adoption()} {
		r := enroll.BindRequest{Enrollment: p}
		got := must(enroll.Bound(r))(t)
		if src := must(enroll.BindResponseCodec.Append(nil, got))(t); string(src) != want {
			t.Errorf("got %s, want %s", src, want)
		}
		if err := enroll.BindBound(r, got); err != nil {
			t.Error(err)
		}
		if err := enroll.BindBound(r, must(enroll.Bound(r))(t)); err != nil { // repeated
			t.Error(err)
		}
		for what, change := range map[string]func(b *enroll.BindResponse){
			"another digest": func(b *enroll.BindResponse) { b.EnrollmentDigest[0] ^= 1 },
			"no digest":      func(b *enroll.BindResponse) { *b = enroll.BindResponse{} },
			"another node":   func(b *enroll.BindResponse) { b.NodeID = "node-z" },
		} {
			b := got
			change(&b)
			if err := enroll.BindBound(r, b); !errors.Is(err, enroll.ErrConfirmation) {
				t.Errorf("%s binds: %v", what, err)
			}
		}
	}
	// An adoption's confirmation without its node is that of a fresh one.
	b := must(enroll.Bound(enroll.BindRequest{Enrollment: adoption()}))(t)
	b.NodeID = ""
	if err := enroll.BindBound(enroll.BindRequest{Enrollment: adoption()}, b); !errors.Is(err, enroll.ErrConfirmation) {
		t.Errorf("an adoption is bound without its node: %v", err)
	}
	if _, err := enroll.Bound(enroll.BindRequest{}); !errors.As(err, new(*exact.Problem)) {
		t.Errorf("nothing is bound: %v", err)
	}
	if err := enroll.BindBound(enroll.BindRequest{}, enroll.BindResponse{}); !errors.As(err, new(*exact.Problem)) {
		t.Errorf("nothing binds to nothing: %v", err)
	}
}

// The active Pallet is exactly the proposal's credential, with the acknowledgement's
// node and counters.
func TestF10Active(t *testing.T) {
	r := must(enroll.ActivateRequestCodec.Read([]byte(activateJSON)))(t)
	got := must(enroll.ActivePallet(r))(t)
	if src := must(enroll.ActivateResponseCodec.Append(nil, got))(t); string(src) != activeJSON {
		t.Errorf("got %s, want %s", src, activeJSON)
	}
	if err := enroll.BindActive(r, got); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(a *enroll.ActivateResponse){
		"another digest":       func(a *enroll.ActivateResponse) { a.EnrollmentDigest[5] ^= 4 },
		"another node":         func(a *enroll.ActivateResponse) { a.NodeID = "node-a" },
		"Spark's credential":   func(a *enroll.ActivateResponse) { a.CredentialHash = hashOf(sparkText) },
		"no credential":        func(a *enroll.ActivateResponse) { a.CredentialHash = enroll.CredentialHash{} },
		"generation before":    func(a *enroll.ActivateResponse) { a.Generation = 0 },
		"a later generation":   func(a *enroll.ActivateResponse) { a.Generation = 2 },
		"a later epoch":        func(a *enroll.ActivateResponse) { a.SessionEpoch = 2 },
		"nothing":              func(a *enroll.ActivateResponse) { *a = enroll.ActivateResponse{} },
		"Spark's own counters": func(a *enroll.ActivateResponse) { a.Generation, a.SessionEpoch = 4, 8 },
	} {
		a := got
		change(&a)
		if err := enroll.BindActive(r, a); !errors.Is(err, enroll.ErrConfirmation) {
			t.Errorf("%s binds: %v", what, err)
		}
	}
	// An acknowledgement of something else activates nothing, whatever is confirmed.
	other := r
	other.Acknowledgement = must(enroll.Acknowledge(adoption(), "node-a"))(t)
	if a, err := enroll.ActivePallet(other); !errors.Is(err, enroll.ErrReceipt) || a != (enroll.ActivateResponse{}) {
		t.Errorf("another acknowledgement activates: %v, %v", a, err)
	}
	if err := enroll.BindActive(other, got); !errors.Is(err, enroll.ErrReceipt) || refusal.From(err).Detail() != "It is for another enrollment." {
		t.Errorf("another acknowledgement binds: %v", err)
	}
}

// Whatever is proposed, the three steps bind to their own enrollment and to no other.
func TestF10StepsBindToOneEnrollment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := proposals().Draw(t, "proposal"), proposals().Draw(t, "another")
		request := func(p enroll.Proposal) (b enroll.BindRequest, a enroll.ActivateRequest) {
			node := p.NodeID
			if node == "" {
				node = zone.NodeID(rapid.StringMatching(`[a-z]{3}`).Draw(t, "node"))
			}
			ack, err := enroll.Acknowledge(p, node)
			if err != nil {
				t.Fatal(err)
			}
			return enroll.BindRequest{Enrollment: p}, enroll.ActivateRequest{Enrollment: p, Acknowledgement: ack}
		}
		b, a := request(p)
		b2, a2 := request(q)
		bound, err := enroll.Bound(b)
		active, err2 := enroll.ActivePallet(a)
		if err := errors.Join(err, err2, enroll.BindBound(b, bound), enroll.BindActive(a, active)); err != nil {
			t.Fatal(err)
		}
		if p == q {
			return
		}
		if err := enroll.BindBound(b2, bound); !errors.Is(err, enroll.ErrConfirmation) {
			t.Fatalf("a confirmation binds to another enrollment: %v", err)
		}
		if err := enroll.BindActive(a2, active); !errors.Is(err, enroll.ErrConfirmation) {
			t.Fatalf("an activation binds to another enrollment: %v", err)
		}
	})
}

// The largest messages fit into their frames, with the envelope around them.
func TestF10LargestMessagesFit(t *testing.T) {
	long := strings.Repeat("x", zone.MaxID)
	p := adoption()
	p.Origin = origin("https://" + strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 61) + ":65535")
	p.Hostname = strings.Repeat("x", enroll.MaxHostname)
	p.EnrollmentID, p.NodeID = enroll.EnrollmentID(long), zone.NodeID(long)
	p.Spark.ExpectedGeneration, p.Spark.ExpectedSessionEpoch = enroll.MaxCounter-1, enroll.MaxCounter-1
	r := enroll.ActivateRequest{Enrollment: p, Acknowledgement: must(enroll.Acknowledge(p, p.NodeID))(t)}
	request := must(enroll.ActivateRequestCodec.Append(nil, r))(t)
	response := must(enroll.ActivateResponseCodec.Append(nil, must(enroll.ActivePallet(r))(t)))(t)
	const envelope = 128
	if len(request) > frame.MaxRequest-envelope || len(response) > frame.MaxResponse-envelope {
		t.Errorf("the largest activation has %d and %d bytes", len(request), len(response))
	}
}

// No message of the control socket can carry a bearer, and no method rotates.
func TestF10HasNoBearer(t *testing.T) {
	for _, name := range []string{enroll.MethodPalletPrepare, enroll.MethodPalletBind, enroll.MethodPalletActivate} {
		if !strings.HasSuffix(name, "PalletNodeEnrollment") {
			t.Errorf("%s is no step of the enrollment", name)
		}
	}
	for _, m := range localMessages {
		for _, path := range holds(m, secretTypes) {
			t.Errorf("%v can carry a secret at %s", m, path)
		}
	}
}
