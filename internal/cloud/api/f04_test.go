package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

// spot is one member somewhere in a message.
type spot struct {
	path     string // as reasons name it
	from, to int    // of the whole member
	value    int    // where its value begins
	kind     byte
}

// spots finds the members of a message that has no white space.
func spots(t *testing.T, text string) []spot {
	t.Helper()
	var all []spot
	var walk func(d *jsontext.Decoder, path string)
	walk = func(d *jsontext.Decoder, path string) {
		kind := d.PeekKind()
		if kind != '{' && kind != '[' {
			if err := d.SkipValue(); err != nil {
				t.Fatal(err)
			}
			return
		}
		if _, err := d.ReadToken(); err != nil {
			t.Fatal(err)
		}
		for i := 0; d.PeekKind() != '}' && d.PeekKind() != ']'; i++ {
			at := fmt.Sprintf("%s[%d]", path, i)
			var s spot
			if kind == '{' {
				from := int(d.InputOffset())
				if text[from] == ',' {
					from++
				}
				name, err := d.ReadToken()
				if err != nil {
					t.Fatal(err)
				}
				at = path + "." + name.String()
				s = spot{path: at, from: from, value: int(d.InputOffset()) + 1, kind: byte(d.PeekKind())}
			}
			walk(d, at)
			if kind == '{' {
				s.to = int(d.InputOffset())
				all = append(all, s)
			}
		}
		if _, err := d.ReadToken(); err != nil {
			t.Fatal(err)
		}
	}
	walk(jsontext.NewDecoder(strings.NewReader(text)), "request")
	return all
}

// TestF04EveryMemberOfEveryMethodOverTheCarrier: each removal, each addition, each
// wrong type and each other spelling of a member, in every request of a controller,
// is refused over HTTP by a reason with its path, before the store is asked.
func TestF04EveryMemberOfEveryMethodOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	tried := 0
	for _, name := range methodNames() {
		m, good := methods.Controller.Find(name), requests[name]
		if m.Opens {
			continue // over a socket, and TestF36SessionsOfPeopleAndMachines has its members
		}
		send := func(what, object, path string) {
			t.Helper()
			tried++
			// What proves the caller stands behind, and counts only where the form does.
			members := inner(object)
			if members != "" {
				members += ","
			}
			if m.Takes(rpc.HTTP).Bearer {
				members += `"bearer":"` + rpctest.Bearer + `",`
			}
			if m.Takes(rpc.HTTP).Identity {
				members += `"identity":{"jwt":"` + rpctest.Token + `"},`
			}
			var text string
			cost := w.store.Cost(func() { _, text = w.post(carrier.Path, ask(name, members+`"protocol":`+goodOffer)) })
			if !strings.Contains(text, `"code":"`+rpc.ErrSchema.Name()+`"`) || !strings.Contains(text, path) || cost.Transactions > 0 {
				t.Errorf("%s, %s of %s: %s; %+v", name, what, path, text, cost)
			}
		}
		parent := func(path string) string { return path[:strings.LastIndexByte(path, '.')] }
		send("a member more", strings.Replace(strings.Replace(good, "{", `{"more":1,`, 1), ",}", "}", 1), "request must use its exact schema")
		for _, s := range spots(t, good) {
			before, member, after := good[:s.from], good[s.from:s.to], good[s.to:]
			rest := strings.TrimPrefix(after, ",")
			if rest == after { // it is the last one
				before = strings.TrimSuffix(before, ",")
			}
			send("without", before+rest, parent(s.path)+" must use its exact schema")
			send("beside", good[:s.from]+`"more":1,`+member+after, parent(s.path)+" must use its exact schema")
			capital := `"` + strings.ToUpper(member[1:2]) + member[2:]
			send("in capitals", good[:s.from]+capital+after, parent(s.path)+" must use its exact schema")
			wrong := "[7]"
			if s.kind == '[' {
				wrong = "7"
			}
			send("of another type", good[:s.value]+wrong+after, s.path+" ")
			if s.kind == '{' || s.kind == '[' {
				send("null", good[:s.value]+"null"+after, s.path+" ")
			}
			// A name twice is no text of JSON to us, wherever it is.
			if _, text := w.post(carrier.Path, ask(name, inner(good[:s.from]+member+","+member+after)+`,"protocol":`+goodOffer)); !strings.Contains(text, `"code":"`+rpc.ErrEnvelope.Name()+`"`) {
				t.Errorf("%s, %s twice: %s", name, s.path, text)
			}
		}
	}
	if tried < 390 {
		t.Errorf("only %d requests were tried", tried)
	}
	if _, text := w.post(carrier.Path, ask("getIdentity", `"Protocol":`+goodOffer)); !strings.Contains(text, `"code":"protocol-offer-invalid"`) {
		t.Errorf("another spelling of protocol: %s", text)
	}
}

func methodNames() (all []string) {
	for name := range requests {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// TestF05DigestsOverTheCarrier: what a request says counts and not how it is
// written: the order of its members and the white space leave its digests alone, and
// any other value is another request.
func TestF05DigestsOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	const first = `"organizationId":"org-a","service":{"name":"shop","clusterId":null},"mutationId":"m"`
	made := content(t, w.done("createService", first, e.jwt))
	for what, members := range map[string]string{
		"another order":  `"mutationId":"m","service":{"clusterId":null,"name":"shop"},"organizationId":"org-a"`,
		"white space":    "\n \"organizationId\" : \"org-a\" ,\t\"service\": { \"name\":\"shop\", \"clusterId\": null }, \"mutationId\":\"m\"",
		"escapes":        `"organizationId":"org-\u0061","service":{"n\u0061me":"\u0073hop","clusterId":null},"mutationId":"m"`,
		"as it was sent": first,
	} {
		if again := content(t, w.say("createService", members, e.jwt)); again != strings.Replace(made, `"replayed":false`, `"replayed":true`, 1) {
			t.Errorf("%s: %s, first %s", what, again, made)
		}
	}
	for what, members := range map[string]string{
		"a letter":            strings.Replace(first, "shop", "Shop", 1),
		"another composition": strings.Replace(first, "shop", "sho\u0301p", 1),
		"a cluster":           strings.Replace(first, "null", `"`+string(e.cluster)+`"`, 1),
	} {
		w.refuses(what, "createService", members, e.jwt, "mutation-conflict")
	}
	// Absent and empty are no other spellings of null.
	for what, members := range map[string]string{
		"absent": strings.Replace(first, `,"clusterId":null`, "", 1),
		"empty":  strings.Replace(first, "null", `""`, 1),
	} {
		w.refuses(what, "createService", members, e.jwt, "request-schema-invalid")
	}

	// The same with the digest of an enrollment, which the repeat has to meet.
	line := w.invite(e.cluster, carrier.Proof{Token: e.jwt})
	p, n := w.proposal(line)
	q := func(proof, order string) string {
		members := map[string]string{
			"cloudlyOrigin": `"` + p.Origin.String() + `"`, "hostname": `"host-1"`, "enrollmentId": `"` + string(p.EnrollmentID) + `"`,
			"bootstrapProofHash": `"` + p.BootstrapProofHash.Text() + `"`, "nodeId": "null",
			"credentials": `[{"purpose":"spark","credentialHash":"` + n.spark.Hash().Text() + `","expectedGeneration":0,"expectedSessionEpoch":0},{"purpose":"pallet","credentialHash":"` + n.pallet.Hash().Text() + `","expectedGeneration":0,"expectedSessionEpoch":0}]`,
		}
		var all []string
		for _, name := range strings.Fields(order) {
			all = append(all, `"`+name+`": `+members[name])
		}
		return `"proposal":{` + strings.Join(all, ", ") + `},"proof":` + proof
	}
	const straight, reversed = "cloudlyOrigin hostname enrollmentId bootstrapProofHash nodeId credentials", "credentials nodeId bootstrapProofHash enrollmentId hostname cloudlyOrigin"
	pending := `{"kind":"pending-spark","value":"` + n.spark.Reveal() + `"}`
	answer := content(t, w.done("enrollNode", q(`{"kind":"bootstrap","value":"`+line.Code.Reveal()+`"}`, straight), e.none()))
	digest, err := enroll.Digest(p)
	if err != nil || !strings.Contains(answer, `"enrollmentDigest":"`+digest.String()+`"`) {
		t.Errorf("%s, want the digest %s, %v", answer, digest.String(), err)
	}
	for _, order := range []string{straight, reversed} {
		if again := content(t, w.say("enrollNode", q(pending, order), e.none())); again != answer {
			t.Errorf("%s, first %s", again, answer)
		}
	}
	w.refuses("another host", "enrollNode", strings.Replace(q(pending, straight), "host-1", "host-2", 1), e.none(), "enrollment-proof-mode")
}
