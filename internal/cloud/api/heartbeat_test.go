package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
	"github.com/allodhq/allod/wire/zone/spark"
)

// heartbeat is a whole request, in bytes.
func heartbeat(t *testing.T, b enroll.Bearer, r spark.Report) string {
	t.Helper()
	body, err := spark.RequestCodec.Append(nil, spark.Request{Bearer: b, Protocol: ours, Report: r})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestF11ReportIsAnsweredByItsReceipt goes through HTTP: a report that the
// controller takes, its receipt and what the controller shows then.
func TestF11ReportIsAnsweredByItsReceipt(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	as := carrier.Proof{Token: e.jwt}
	get := func() nodes.Node {
		return must(w, w.client(), methods.GetNode, nodes.GetCodec, nodes.AnswerCodec, nodes.Get{Node: e.node.id}, as).Node
	}
	if n := get(); n.Liveness.State != nodes.NeverSeen || n.Seen != nil {
		t.Errorf("before: %+v", n)
	}
	w.pass(time.Minute)
	status, body := w.post(spark.Path, heartbeat(t, e.node.spark, report()))
	answer, err := spark.ResponseCodec.Read([]byte(body))
	if status != http.StatusOK || err != nil {
		t.Fatalf("%d %s", status, body)
	}
	active := enroll.Identity{NodeID: e.node.id, Purpose: enroll.Spark, Generation: 1, SessionEpoch: 1}
	if err := spark.BindReceipt(active, report(), answer.Receipt); err != nil {
		t.Error(err)
	}
	// The acceptance is by the controller's clock, whatever the host says.
	if answer.Receipt.AcceptedAt.Time() != start.Add(time.Minute) || answer.RotationRequired || answer.Protocol != ours {
		t.Errorf("%+v", answer)
	}
	n := get()
	if n.Liveness.State != nodes.Online || n.Seen == nil || n.Seen.Report != report() {
		t.Errorf("after: %+v", n)
	}
	for _, p := range []struct {
		after time.Duration
		state nodes.State
	}{{30 * time.Second, nodes.Online}, {time.Second, nodes.Late}, {269 * time.Second, nodes.Late}, {time.Second, nodes.Lost}} {
		w.pass(p.after)
		if n := get(); n.Liveness.State != p.state {
			t.Errorf("%s at the age of %d ms, want %s", n.Liveness.State, n.Liveness.Age, p.state)
		}
	}
	if c := w.api.Counts(); c.Reports != 1 || c.Refused != 0 {
		t.Errorf("%+v", c)
	}
}

// TestF11F03OrderOfTheRoute has each fault alone, with every later one, and with
// all of them; the earliest must win and nothing may be consumed.
func TestF11F03OrderOfTheRoute(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	good := heartbeat(t, e.node.spark, report())
	offer := `"protocol":` + goodOffer
	if !strings.Contains(good, offer) || !strings.Contains(good, `"cpu":1`) {
		t.Fatal(good)
	}
	type fault struct {
		name, slot string
		status     int
		code       string
		do         func(string) string
	}
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	bearer := `"bearer":"` + e.node.spark.Reveal() + `"`
	faults := []fault{
		{"too large", "size", 413, "typed-request-too-large", func(s string) string {
			return s + strings.Repeat(" ", max(0, spark.MaxRequest+1-len(s)))
		}},
		{"no JSON", "json", 400, "protocol-offer-invalid", func(s string) string { return "x" + s }},
		{"no offer", "offer", 400, "protocol-offer-invalid", func(s string) string {
			return strings.Replace(s, offer+",", "", 1)
		}},
		{"an offer with a member more", "offer", 400, "protocol-offer-invalid", replace(`"protocol":{`, `"protocol":{"more":1,`)},
		{"a foreign major", "offer", 409, "protocol-incompatible", replace(offer, `"protocol":`+foreignOffer)},
		{"a member more", "schema", 400, "request-schema-invalid", replace(`{`, `{"more":1,`)},
		{"a fraction beyond the whole", "schema", 400, "request-schema-invalid", replace(`"cpu":1`, `"cpu":1000001`)},
		{"Docker data", "schema", 400, "request-schema-invalid", replace(`"report":{`, `"report":{"containers":3,`)},
		{"no bearer", "bearer", 400, "request-schema-invalid", replace(bearer+",", "")},
		{"a bearer of nobody", "bearer", 401, "node-credential", replace(bearer, `"bearer":"`+rpctest.Bearer+`"`)},
		{"Pallet's bearer", "bearer", 401, "node-credential", replace(bearer, `"bearer":"`+e.node.pallet.Reveal()+`"`)},
	}
	try := func(set []fault) {
		t.Helper()
		body, names := good, []string(nil)
		done := map[string]bool{}
		for i := len(set) - 1; i >= 0; i-- { // the first one last, so that it stays
			if !done[set[i].slot] || i == 0 {
				body = set[i].do(body)
				done[set[i].slot] = true
				names = append(names, set[i].name)
			}
		}
		var status int
		var text string
		cost := w.store.Cost(func() { status, text = w.post(spark.Path, body) })
		if first := set[0]; status != first.status || !strings.Contains(text, `"`+first.code+`"`) {
			t.Errorf("%s: %d %s, want %d %s", strings.Join(names, ", "), status, text, first.status, first.code)
		}
		if len(cost.Writes) > 0 || set[0].status != 401 && cost.Transactions > 0 {
			t.Errorf("%s: the refusal cost %+v", strings.Join(names, ", "), cost)
		}
		if len(text) > spark.MaxResponse {
			t.Errorf("%s: an answer of %d bytes", strings.Join(names, ", "), len(text))
		}
	}
	for i, first := range faults {
		try([]fault{first})
		var later []fault
		for _, f := range faults[i+1:] {
			if f.slot != first.slot {
				try([]fault{first, f})
				later = append(later, f)
			}
		}
		try(append([]fault{first}, later...))
	}
	// After all of that, the node has not reported, and a good report counts.
	n := must(w, w.client(), methods.GetNode, nodes.GetCodec, nodes.AnswerCodec, nodes.Get{Node: e.node.id}, carrier.Proof{Token: e.jwt}).Node
	if n.Seen != nil {
		t.Error("a refused report counted")
	}
	if status, text := w.post(spark.Path, good); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// TestF03ProtocolRefusalIsTheBody: with a bad bearer and a bad schema beside it, a
// foreign major gives status 409 and exactly the refusal, which the published reader
// takes for one.
func TestF03ForeignMajorOnTheSparkRoute(t *testing.T) {
	w := newWorld(t)
	status, body := w.post(spark.Path, `{"protocol":`+foreignOffer+`,"bearer":"bad","more":1}`)
	r := handshake.ReadRefusal([]byte(body))
	if status != handshake.Status || r == nil || r.Reason != handshake.MajorMismatch || r.Refusing != ours {
		t.Errorf("%d %s", status, body)
	}
	for _, offer := range []string{`{"interfacesVersion":"32.4.0","minimumPeerVersion":"32.1.0"}`} {
		status, body = w.post(spark.Path, `{"protocol":`+offer+`}`)
		if r := handshake.ReadRefusal([]byte(body)); status != handshake.Status || r == nil || r.Reason != handshake.SelfBelowPeerMinimum {
			t.Errorf("%s: %d %s", offer, status, body)
		}
	}
}

// TestF02OldPathsAreGone: no path has a version.
func TestF02OldPathsAreGone(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	for _, path := range []string{"/spark/v1/nodes/heartbeat", "/spark/v2/nodes/heartbeat", "/v1/spark/nodes/heartbeat", "/spark/nodes/heartbeat/", "/spark/v2/nodes/swarm-observation", "/spark/swarm-nodes/swarm-observation", "/v1/typedrequest"} {
		if status, body := w.post(path, heartbeat(t, e.node.spark, report())); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, method := range []string{"enrollNodeV1", "enrollNodeV2", "registerCloudlyClientSessionV1"} {
		if _, body := w.post(carrier.Path, ask(method, `"protocol":`+goodOffer)); !strings.Contains(body, `"method-unknown"`) {
			t.Errorf("%s: %s", method, body)
		}
	}
}

// TestF09RevocationCountsAtTheNextReport: a removed node's next report is refused,
// and so is that of a bearer that was replaced.
func TestF09RevocationCountsAtTheNextReport(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	as := carrier.Proof{Token: e.jwt}
	if status, body := w.post(spark.Path, heartbeat(t, e.node.spark, report())); status != 200 {
		t.Fatal(body)
	}
	must(w, w.client(), methods.RotateNode, nodes.RotateCodec, nodes.AnswerCodec, nodes.Rotate{Node: e.node.id, Mutation: w.mutation()}, as)
	_, body := w.post(spark.Path, heartbeat(t, e.node.spark, report()))
	if a, err := spark.ResponseCodec.Read([]byte(body)); err != nil || !a.RotationRequired {
		t.Fatal(body)
	}
	next, err := enroll.NewBearer(w.rand)
	if err != nil {
		t.Fatal(err)
	}
	rotation := enroll.Rotation{Purpose: enroll.Spark, NextCredentialHash: next.Hash(), ExpectedGeneration: 1, RotationID: "r-1"}
	rotate := func(b enroll.Bearer) (enroll.RotateResponse, error) {
		return call(w, w.client(), methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec,
			enroll.RotateRequest{Protocol: ours, Bearer: b, Rotation: rotation}, carrier.Proof{})
	}
	first, err := rotate(e.node.spark)
	if err != nil {
		t.Fatal(err)
	}
	// Whoever lost the answer asks with the new bearer, and gets the first receipt.
	if again, err := rotate(next); err != nil || again != first {
		t.Errorf("%+v, %v", again, err)
	}
	if status, body := w.post(spark.Path, heartbeat(t, e.node.spark, report())); status != 401 {
		t.Errorf("the old bearer: %d %s", status, body)
	}
	if status, body := w.post(spark.Path, heartbeat(t, next, report())); status != 200 {
		t.Errorf("the new bearer: %d %s", status, body)
	}
	must(w, w.client(), methods.RemoveNode, nodes.RemoveCodec, nodes.AnswerCodec, nodes.Remove{Node: e.node.id, Mutation: w.mutation()}, as)
	var status int
	cost := w.store.Cost(func() { status, body = w.post(spark.Path, heartbeat(t, next, report())) })
	if status != 401 || len(cost.Writes) > 0 {
		t.Errorf("after the removal: %d %s, %+v", status, body, cost)
	}
	_, unknown := w.post(spark.Path, strings.Replace(heartbeat(t, next, report()), next.Reveal(), rpctest.Bearer, 1))
	if unknown != body {
		t.Errorf("removed and unknown differ: %s and %s", body, unknown)
	}
}

// TestHostileReports: what is no report is refused by name, whatever it is.
func TestHostileReports(t *testing.T) {
	w := newWorld(t)
	for name, body := range map[string]string{
		"empty": "", "null": "null", "a list": "[]", "a text": `"x"`, "half": `{"protocol":{`, "twice": `{"protocol":` + goodOffer + `,"protocol":` + foreignOffer + `}`,
		"deep": strings.Repeat("[", 10000), "wide": `{"protocol":` + goodOffer + `,"x":[` + strings.TrimSuffix(strings.Repeat("1,", 7000), ",") + `]}`,
		"not UTF-8": "{\"protocol\":\"\xff\"}", "two texts": `{} {}`, "a byte order mark": "\ufeff{}", "zero bytes": "\x00\x00",
	} {
		var status int
		var text string
		cost := w.store.Cost(func() { status, text = w.post(spark.Path, body) })
		if status != 400 || !strings.Contains(text, `"error":"`) || cost.Transactions > 0 {
			t.Errorf("%s: %d %s, %+v", name, status, text, cost)
		}
	}
	for name, change := range map[string]func(r *http.Request){
		"a form":     func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"compressed": func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		"a page":     func(r *http.Request) { r.Header.Set("Origin", "https://evil.example.org") },
		"get":        func(r *http.Request) { r.Method = "GET" },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+spark.Path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		change(r)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode < 400 || a.StatusCode >= 500 || a.StatusCode == handshake.Status {
			t.Errorf("%s: %d", name, a.StatusCode)
		}
	}
	if c := w.api.Counts(); c.Reports != 0 || c.Refused != 12 {
		t.Errorf("%+v", c)
	}
}
