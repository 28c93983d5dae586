package api_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/memory"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
)

func (estate) none() zone.Secret { return zone.Secret{} }

// enrollment is the members of a request of enrollNode, beside the offer.
func enrollment(t *testing.T, p enroll.Proposal, proof enroll.Proof) string {
	t.Helper()
	body, err := enroll.RequestCodec.Append(nil, enroll.Request{Protocol: ours, Proposal: p, Proof: proof})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(strings.Replace(inner(string(body)), `"protocol":`+goodOffer+`,`, "", 1), `,"protocol":`+goodOffer, "", 1)
}

// TestF08ProofsOverTheCarrier goes through the modes of proof in the contract's
// bytes: before the receipt, after it, and for whom each is refused.
func TestF08ProofsOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	as := carrier.Proof{Token: e.jwt}
	line, otherLine := w.invite(e.cluster, as), w.invite(e.cluster, as)
	p, n := w.proposal(line)
	stranger := e.node.spark
	bootstrap, pending := enrollment(t, p, enroll.BootstrapByCode(line.Code)), enrollment(t, p, enroll.PendingSparkProof(n.spark))
	refused := func(when, members, code string) {
		t.Helper()
		w.refuses(when, "enrollNode", members, e.none(), code)
	}
	refused("pending-spark before there is a receipt", pending, "enrollment-proof-mode")
	refused("another bearer before", enrollment(t, p, enroll.PendingSparkProof(stranger)), "enrollment-proof")
	refused("another line's code before", enrollment(t, p, enroll.BootstrapByCode(otherLine.Code)), "enrollment-proof")
	first := w.done("enrollNode", bootstrap, e.none())
	if want := `"credentials":[{"purpose":"spark","generation":1,"sessionEpoch":1},{"purpose":"pallet","generation":1,"sessionEpoch":1}]`; !strings.Contains(first, want) {
		t.Errorf("%s, want %s", first, want)
	}
	for range 2 {
		var again string
		cost := w.store.Cost(func() { again = w.say("enrollNode", pending, e.none()) })
		if again != first || len(cost.Writes) > 0 {
			t.Errorf("%s, first %s; writes %v", again, first, cost.Writes)
		}
		refused("bootstrap after it", bootstrap, "enrollment-proof-mode")
		refused("another bearer after it", enrollment(t, p, enroll.PendingSparkProof(stranger)), "enrollment-proof")
		refused("Pallet's bearer after it", enrollment(t, p, enroll.PendingSparkProof(n.pallet)), "enrollment-proof")
		w.pass(2 * time.Hour) // the line has expired, and the receipt has not
	}
}

// TestF08AdoptionOverTheCarrier: a node whose Pallet was taken away gets another
// one, keeps its name and changes Spark's bearer; with a Pallet there is no adoption.
func TestF08AdoptionOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	p, _ := w.adoption(e.node)
	w.refuses("with a Pallet", "enrollNode", enrollment(t, p, enroll.BootstrapByBearer(e.node.spark)), e.none(), enroll.ErrConflict.Name())
	w.done("removeNode", ofNode(e)+`,"palletOnly":true,"mutationId":"part"`, e.jwt)
	p, n := w.adoption(e.node)
	other := p
	other.NodeID = "node-other"
	w.refuses("as another node", "enrollNode", enrollment(t, other, enroll.BootstrapByBearer(e.node.spark)), e.none(), "node-credential")
	other = p
	other.Spark.ExpectedGeneration++
	w.refuses("at another generation", "enrollNode", enrollment(t, other, enroll.BootstrapByBearer(e.node.spark)), e.none(), enroll.ErrConflict.Name())
	text := w.done("enrollNode", enrollment(t, p, enroll.BootstrapByBearer(e.node.spark)), e.none())
	if want := `"nodeId":"` + string(e.node.id) + `","credentials":[{"purpose":"spark","generation":2,"sessionEpoch":2},{"purpose":"pallet","generation":1,"sessionEpoch":1}]`; !strings.Contains(text, want) {
		t.Errorf("%s, want %s", text, want)
	}
	w.refuses("Spark's bearer before", "getNodeCredential", `"bearer":"`+e.node.spark.Reveal()+`"`, e.none(), "node-credential")
	w.refuses("the Pallet before", "getNodeCredential", `"bearer":"`+e.node.pallet.Reveal()+`"`, e.none(), "node-credential")
	for _, b := range []enroll.Bearer{n.spark, n.pallet} {
		w.done("getNodeCredential", `"bearer":"`+b.Reveal()+`"`, e.none())
	}
}

// TestF08ProposalsThatAreNone are refused over the carrier before the store is asked.
func TestF08ProposalsThatAreNone(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	line := w.invite(e.cluster, carrier.Proof{Token: e.jwt})
	p, n := w.proposal(line)
	good := enrollment(t, p, enroll.BootstrapByCode(line.Code))
	origin, code := p.Origin.String(), line.Code.Reveal()
	pair := func(purpose string, b enroll.Bearer) string {
		return `{"purpose":"` + purpose + `","credentialHash":"` + b.Hash().Text() + `","expectedGeneration":0,"expectedSessionEpoch":0}`
	}
	replace := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for what, members := range map[string]string{
		"the other order":         replace(pair("spark", n.spark)+","+pair("pallet", n.pallet), pair("pallet", n.pallet)+","+pair("spark", n.spark)),
		"Spark alone":             replace(","+pair("pallet", n.pallet), ""),
		"Spark twice":             replace(pair("pallet", n.pallet), pair("spark", n.pallet)),
		"no TLS":                  replace(origin, strings.Replace(origin, "https", "http", 1)),
		"a slash":                 replace(origin, origin+"/"),
		"the usual port":          replace(origin, origin+":443"),
		"capitals":                replace(origin, strings.Replace(origin, "controller", "Controller", 1)),
		"a user":                  replace(origin, strings.Replace(origin, "://", "://user@", 1)),
		"a code of 15":            replace(code, code[:15]),
		"a code of 17":            replace(code, code+"A"),
		"a padded code":           replace(code, code+"=="),
		"a code of another base":  replace(code, code[:15]+"+"),
		"an authority of nothing": replace(`"expectedGeneration":0`, `"expectedGeneration":1`),
	} {
		if members == good {
			t.Fatalf("%s changes nothing in %s", what, good)
		}
		if cost := w.refuses(what, "enrollNode", members, e.none(), "request-schema-invalid"); cost.Transactions > 0 {
			t.Errorf("%s cost %+v", what, cost)
		}
	}
	w.done("enrollNode", good, e.none())
}

var errFault = errors.New("the disk is full")

// faulty fails one of the writes of a transaction, or its end.
type faulty struct {
	store.Store
	at, calls atomic.Int32
}

func (f *faulty) fault() error {
	if f.calls.Add(1) == f.at.Load() {
		return errFault
	}
	return nil
}

func (f *faulty) Write(ctx context.Context, fn func(store.Tx) error) error {
	return f.Store.Write(ctx, func(tx store.Tx) error {
		return errors.Join(fn(faultyTx{tx, f}), f.fault())
	})
}

type faultyTx struct {
	store.Tx
	f *faulty
}

func (x faultyTx) PutNode(v store.Node) error { return errors.Join(x.f.fault(), x.Tx.PutNode(v)) }
func (x faultyTx) PutCredential(v store.Credential) error {
	return errors.Join(x.f.fault(), x.Tx.PutCredential(v))
}
func (x faultyTx) PutInvitation(v store.Invitation) error {
	return errors.Join(x.f.fault(), x.Tx.PutInvitation(v))
}
func (x faultyTx) PutEnrollment(v store.Enrollment) error {
	return errors.Join(x.f.fault(), x.Tx.PutEnrollment(v))
}
func (x faultyTx) AppendAudit(v store.AuditEntry) error {
	return errors.Join(x.f.fault(), x.Tx.AppendAudit(v))
}

// TestF08NoHalfEnrollmentOverTheCarrier fails every write of an enrollment in turn:
// there is no node, no bearer counts, and the same line still works.
func TestF08NoHalfEnrollmentOverTheCarrier(t *testing.T) {
	f := &faulty{Store: memory.New()}
	w := newWorldOn(t, f)
	e := w.estate("a")
	line := w.invite(e.cluster, carrier.Proof{Token: e.jwt})
	p, n := w.proposal(line)
	members := enrollment(t, p, enroll.BootstrapByCode(line.Code))
	before := w.everything(e)
	failed := 0
	for at := int32(1); ; at++ {
		f.calls.Store(0)
		f.at.Store(at)
		text := w.say("enrollNode", members, e.none())
		f.at.Store(0)
		if strings.Contains(text, `"response":{`) {
			break
		}
		failed++
		if !strings.Contains(text, `"code":"internal`) || strings.Contains(text, "disk") {
			t.Errorf("at the write %d: %s", at, text)
		}
		for _, b := range []enroll.Bearer{n.spark, n.pallet} {
			w.refuses("after a failure", "getNodeCredential", `"bearer":"`+b.Reveal()+`"`, e.none(), "node-credential")
		}
		if after := w.everything(e); after != before {
			t.Errorf("at the write %d: %s, before %s", at, after, before)
		}
	}
	// The line, the node, two credentials, the receipt, the audit log and the end.
	if failed != 7 {
		t.Errorf("%d writes were made to fail", failed)
	}
	for _, b := range []enroll.Bearer{n.spark, n.pallet} {
		w.done("getNodeCredential", `"bearer":"`+b.Reveal()+`"`, e.none())
	}
}
