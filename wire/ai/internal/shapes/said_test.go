package shapes_test

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/ai"
)

func (e *edition) subject(t testing.TB, name string) subject {
	t.Helper()
	i := slices.IndexFunc(e.subjects, func(s subject) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no message %s", name)
	}
	return e.subjects[i]
}

// What follows is written out of valid values, so that only the member that a
// case is about can be in the way.
var (
	sayCapability = ai.Capability{Kind: "llm.chat", Service: "s", BackendID: "ollama", BackendClass: "http", Model: "m", OfferScope: "self"}
	sayHeartbeat  = ai.HeartbeatRequest{RunnerID: "r", DaemonVersion: "1", Capabilities: []ai.Capability{}, ActiveLeases: []ai.Grant{}}
	sayAnswer     = ai.HeartbeatResponse{
		Sites: map[ai.KeyID]ai.PublicIdentity{}, Cancel: []ai.Grant{}, Lost: []ai.Grant{}, ServerTime: 1, AwaitingConsent: []ai.KeyID{},
	}
	sayApproval = ai.PairApproval{RunnerID: "r", Owner: "o", Sites: map[ai.KeyID]ai.PublicIdentity{}}
	sayLease    = ai.Lease{ID: "l", RunnerID: "r", ExpiresAt: 1}
	sayJob      = ai.ClaimedJob{ID: "j", Payload: ai.Generate{Prompt: "p"}, Audience: "self", Owner: "o", Lease: sayLease}
	sayOutcome  = ai.SealedOutcome{Outcome: ai.Cancellation{}, Ran: ai.RunMetadata{Model: "m", BackendClass: "http"}}
	sayResult   = ai.DeliveredResult{JobID: "j", State: "ok", Provenance: &ai.Provenance{
		Audience: "self", RunnerID: "r", RunnerOwner: "o", BackendClass: "http", Model: "m",
	}}
	sayGrant = ai.SignedGrant{
		GrantID: "g", JobID: "j", Site: "s", User: "u", Owner: "o", Purpose: "p", Kind: "llm.chat", Service: "s", IssuedAt: 1, Signature: "x",
	}
)

func changed[T any](v T, change func(*T)) any {
	change(&v)
	return v
}

// claimOf is a claim of one capability.
func claimOf(c ai.Capability) any {
	return ai.ClaimRequest{RunnerID: "r", Capabilities: []ai.Capability{c}, Max: 1}
}

// TestWhatIsLeftOut has every member that one version has and the other leaves
// out in silence, since nobody acts wrongly without it.
func TestWhatIsLeftOut(t *testing.T) {
	first, second := editions[0], editions[1]
	stub := aStubOf("o")
	claimed := ai.ClaimedStub{Stub: stub, Lease: sayLease}
	claims := func(s ai.ClaimedStub) any { return ai.ClaimResponse{Jobs: []ai.ClaimedStub{s}, LeaseMs: 1} }
	approved := func(p ai.PairApproval) any { return ai.PairPollResponse{Status: "approved", Approved: &p} }
	provenance := *sayResult.Provenance
	provenance.Stop = ai.Stop{Reason: "length", Reported: true}
	for field, c := range map[string]struct {
		e       *edition // that leaves it out
		message string
		bare    any
		said    any
		text    string // of the member, where it is said
	}{
		// What a service is called is between its owner and a control plane, and
		// no claim of version "0" is matched by it.
		"Capability.Service": {first, "ClaimRequest", claimOf(changed(sayCapability, func(c *ai.Capability) { c.Service = "" }).(ai.Capability)), claimOf(sayCapability), `"service":"s"`},
		// They decide nothing.
		"Capability.KnownModels": {first, "ClaimRequest", claimOf(sayCapability), claimOf(changed(sayCapability, func(c *ai.Capability) { c.KnownModels = []string{"k"} }).(ai.Capability)), `"knownModels":["k"]`},
		// It tells people why nothing is offered.
		"HeartbeatRequest.Withheld": {first, "HeartbeatRequest", sayHeartbeat, changed(sayHeartbeat, func(h *ai.HeartbeatRequest) {
			h.Withheld = []ai.Withheld{{Kind: "llm.chat", Claimants: []ai.Claimant{{Service: "a", Offer: "self"}, {Service: "b", Offer: "named"}}}}
		}), `"withheld":[{"kind":"llm.chat","claimants":[{"service":"a","offer":"private"},{"service":"b","offer":"team"}]}]`},
		// Without it a new key is an unknown site, which has to be approved anew.
		"HeartbeatResponse.Successions": {first, "HeartbeatResponse", sayAnswer, changed(sayAnswer, func(h *ai.HeartbeatResponse) {
			h.Successions = map[ai.KeyID]ai.SiteSuccession{"K": {Succeeds: []ai.Succession{}, RetiringUntil: 7}}
		}), `"successions":{"K":{"succeeds":[],"retiringUntil":7}}`},
		// It is for another program.
		"HeartbeatResponse.UpdateTo": {first, "HeartbeatResponse", sayAnswer, changed(sayAnswer, func(h *ai.HeartbeatResponse) { h.UpdateTo = "1.2.3" }), `"updateTo":"1.2.3"`},
		// A device of version "0" knows no grants, so that it has no use for the key.
		"PairApproval.ControlPlane": {first, "PairPollResponse", approved(sayApproval), approved(changed(sayApproval, func(p *ai.PairApproval) { p.ControlPlane = "k" }).(ai.PairApproval)), `"controlPlanePublic":"k"`},
		"ClaimedStub.Grant":         {first, "ClaimResponse", claims(claimed), claims(ai.ClaimedStub{Stub: stub, Lease: sayLease, Grant: &sayGrant}), `"grant":{"grantId":"g","jobId":"j","site":"s","user":"u","owner":"o","purpose":"p","kind":"llm.chat","service":"s","issuedAt":1,"signature":"x"}`},
		// A device of version "0" serves all purposes alike.
		"Stub.Purpose": {first, "Stub", stub, changed(stub, func(s *ai.Stub) { s.Purpose = "p" }), `"purpose":"p"`},
		// It is what is known besides, and absent where a backend does not say it.
		"RunMetadata.Stop": {first, "Outcome", sayOutcome, changed(sayOutcome, func(o *ai.SealedOutcome) { o.Ran.Stop = ai.Stop{Reason: "end"} }), `"stop":"end","stopReported":false`},
		"Provenance.Stop":  {first, "Result", sayResult, changed(sayResult, func(r *ai.DeliveredResult) { r.Provenance = &provenance }), `"stop":"length","stopReported":true`},
		// The stub has the deadline, and the owner's own settings the service.
		"ClaimedJob.Service":    {first, "Job", sayJob, changed(sayJob, func(j *ai.ClaimedJob) { j.Service = "s" }), `"service":"s"`},
		"ClaimedJob.DeadlineAt": {first, "Job", sayJob, changed(sayJob, func(j *ai.ClaimedJob) { j.DeadlineAt = 7 }), `"deadlineAt":7`},
		// A device that offers nothing gets nothing.
		"HeartbeatRequest.Paused": {second, "HeartbeatRequest", sayHeartbeat, changed(sayHeartbeat, func(h *ai.HeartbeatRequest) { h.Paused = true }), `"paused":true`},
	} {
		t.Run(field, func(t *testing.T) {
			if !c.e.unsaid(field) {
				t.Fatal("the list of what is left out does not have it")
			}
			silent := c.e.subject(t, c.message)
			other := editions[1-slices.Index(editions, c.e)]
			bare, err1 := silent.write(c.bare)
			same, err2 := silent.write(c.said)
			if err1 != nil || err2 != nil || string(bare) != string(same) {
				t.Errorf("%v, %v\nwritten without it %s\nwith it            %s", err1, err2, bare, same)
			}
			speaking := other.subject(t, c.message)
			body, err := speaking.write(c.said)
			if err != nil || !strings.Contains(string(body), c.text) {
				t.Fatalf("version %s writes %s, %v", other.version, body, err)
			}
			if got, err := speaking.read(body); err != nil || !reflect.DeepEqual(got, c.said) {
				t.Errorf("it reads back as %#v, %v", got, err)
			}
			// The version that leaves it out does not read it either.
			typ, _, _ := strings.Cut(field, ".")
			before, after, ok := strings.Cut(string(same), cmp.Or(inside[typ], "{"))
			foreign := before + cmp.Or(inside[typ], "{") + c.text + "," + after
			if _, err := silent.read(same); err != nil || !ok {
				t.Fatal(err)
			}
			if got, err := silent.read([]byte(foreign)); err == nil {
				t.Errorf("version %s reads %s as %#v", c.e.version, foreign, got)
			}
		})
	}
	// The list of what is left out has nothing that is not tried above.
	for _, e := range editions {
		count := 0
		for _, typ := range []reflect.Type{
			reflect.TypeFor[ai.Capability](), reflect.TypeFor[ai.PairApproval](), reflect.TypeFor[ai.HeartbeatRequest](),
			reflect.TypeFor[ai.HeartbeatResponse](), reflect.TypeFor[ai.Stub](), reflect.TypeFor[ai.ClaimedStub](),
			reflect.TypeFor[ai.RunMetadata](), reflect.TypeFor[ai.Provenance](), reflect.TypeFor[ai.ClaimedJob](),
			reflect.TypeFor[ai.DeliveredResult](), reflect.TypeFor[ai.Error](),
		} {
			for f := range typ.Fields() {
				if e.unsaid(typ.Name() + "." + f.Name) {
					count++
				}
			}
		}
		if want := map[bool]int{false: 12, true: 1}[e.later]; count != want {
			t.Errorf("version %s leaves out %d fields, tried are %d", e.version, count, want)
		}
	}
}

// inside is where in a message the fields of a type stand, if not at its top.
var inside = map[string]string{"Capability": `[{`, "ClaimedStub": `[{`, "RunMetadata": `"ran":{`, "Provenance": `"provenance":{`}

// TestWhatCannotBeSaid has what a version has no word for and must not leave out.
// Whoever gets such an error has to say something else.
func TestWhatCannotBeSaid(t *testing.T) {
	first, second := editions[0], editions[1]
	public := func(c ai.Capability) ai.Capability {
		c.OfferScope = "public"
		return c
	}
	publicStub := aStubOf("o")
	publicStub.Audience = "public"
	provenance := *sayResult.Provenance
	provenance.Audience = "public"
	offered := changed(sayHeartbeat, func(h *ai.HeartbeatRequest) {
		h.Paused, h.Capabilities = true, []ai.Capability{sayCapability}
	})
	for what, c := range map[string]struct {
		e       *edition // that cannot say it
		message string
		value   any
		names   string // what the refusal says
		there   bool   // the other version can
	}{
		"a public job":                 {second, "Stub", publicStub, "The member audience", true},
		"a public job that is claimed": {second, "ClaimResponse", ai.ClaimResponse{Jobs: []ai.ClaimedStub{{Stub: publicStub, Lease: sayLease}}, LeaseMs: 1}, "The member jobs[0].audience", true},
		"a public job that is opened":  {second, "Job", changed(sayJob, func(j *ai.ClaimedJob) { j.Audience = "public" }), "The member audience", true},
		"the provenance of a public job": {
			second, "Result", ai.DeliveredResult{JobID: "j", State: "ok", Provenance: &provenance}, "The member provenance.audience", true,
		},
		"a public offer":            {second, "ClaimRequest", claimOf(public(sayCapability)), "The member capabilities[0].offerScope", true},
		"a public offer in pairing": {second, "PairRequest", pairingOf(public(sayCapability)), "The member capabilities[0].offerScope", true},
		"a public offer in a beat":  {second, "HeartbeatRequest", changed(sayHeartbeat, func(h *ai.HeartbeatRequest) { h.Capabilities = []ai.Capability{public(sayCapability)} }), "The member capabilities[0].offerScope", true},
		"a public offer, withheld": {second, "HeartbeatRequest", changed(sayHeartbeat, func(h *ai.HeartbeatRequest) {
			h.Withheld = []ai.Withheld{{Kind: "llm.chat", Claimants: []ai.Claimant{{Service: "a", Offer: "self"}, {Service: "b", Offer: "public"}}}}
		}), "The member withheld[0].claimants[1].offer", true},
		"an offer without a service":             {second, "ClaimRequest", claimOf(changed(sayCapability, func(c *ai.Capability) { c.Service = "" }).(ai.Capability)), "The member capabilities[0].service", true},
		"a pause beside an offer":                {second, "HeartbeatRequest", offered, "without capabilities while paused", true},
		"a new backend":                          {first, "ClaimRequest", claimOf(changed(sayCapability, func(c *ai.Capability) { c.BackendID, c.BackendClass = "codex-cli", "process" }).(ai.Capability)), "The member capabilities[0].backendId", true},
		"a program that is too old":              {first, "Error", ai.Error{Code: "daemon-below-floor", Message: "m", Floor: "1"}, "The member error", true},
		"a fallback":                             {first, "Result", changed(sayResult, func(r *ai.DeliveredResult) { r.Fallback = true }), "without a fallback", true},
		"an audience of another version's words": {second, "Stub", changed(aStubOf("o"), func(s *ai.Stub) { s.Audience = "private" }), "The member audience", false},
		"one of another version's words, before": {first, "Stub", changed(aStubOf("o"), func(s *ai.Stub) { s.Audience = "private" }), "The member audience", false},
	} {
		body, err := c.e.subject(t, c.message).write(c.value)
		if err == nil || len(body) > 0 || !isBadRequest(err) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("version %s writes %s as %s, %v", c.e.version, what, body, err)
		}
		other := editions[1-slices.Index(editions, c.e)]
		if _, err := other.subject(t, c.message).write(c.value); (err == nil) != c.there {
			t.Errorf("version %s writes %s: %v", other.version, what, err)
		}
	}
}

func pairingOf(c ai.Capability) any {
	return ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "l", Platform: "linux"}, Device: ai.PublicIdentity{Identity: "i", Encryption: "e", EncryptionSig: "s"},
		Capabilities: []ai.Capability{c},
	}}
}

// TestSealedTextIsOfAllVersions holds that what an older version writes of what
// is sealed reads as the same value in each later one: nobody on the way can put
// it into another version.
func TestSealedTextIsOfAllVersions(t *testing.T) {
	for _, name := range []string{"Generate", "Chat", "Outcome"} {
		for i, older := range editions {
			s := older.subject(t, name)
			for _, v := range s.examples(t) {
				body, err := s.write(v)
				if err != nil {
					t.Fatal(err)
				}
				for _, later := range editions[i:] {
					if got, err := later.subject(t, name).read(body); err != nil || !reflect.DeepEqual(got, v) {
						t.Errorf("%s of version %s reads in version %s as %#v, %v", body, older.version, later.version, got, err)
					}
				}
			}
		}
	}
}

// TestWordsOnTheWire holds the words by which each version says an audience and
// an offer, and that it reads no others.
func TestWordsOnTheWire(t *testing.T) {
	for _, e := range editions {
		for _, word := range []string{"self", "named", "public", "private", "team", "", "Private", "private ", "teams"} {
			var want ai.Audience
			for value, w := range e.words {
				if w == word {
					want = ai.Audience(value)
				}
			}
			service := ""
			if e.later {
				service = `"service":"s",`
			}
			stub, err1 := e.codec.Stub.Read([]byte(`{"id":"j","kind":"llm.chat","owner":"o","site":"s","audience":"` + word + `","sizeClass":"small","streaming":false,"deadlineAt":1}`))
			claim, err2 := e.codec.ClaimRequest.Read([]byte(`{"protocolVersion":"` + e.version + `","runnerId":"r","max":1,"capabilities":[{` + service +
				`"kind":"llm.chat","backendId":"ollama","backendClass":"http","model":"m","offerScope":"` + word + `"}]}`))
			if want == "" {
				if err1 == nil || err2 == nil {
					t.Errorf("version %s reads %q: %v, %v", e.version, word, err1, err2)
				}
				continue
			}
			if err1 != nil || err2 != nil || stub.Audience != want || claim.Capabilities[0].OfferScope != ai.OfferScope(want) {
				t.Errorf("version %s reads %q as %q and %v: %v, %v", e.version, word, stub.Audience, claim, err1, err2)
			}
		}
	}
}

// TestCodecsBelongToTheirPackages holds that no caller's change of a list reaches
// what a version reads and writes.
func TestCodecsBelongToTheirPackages(t *testing.T) {
	for _, e := range editions {
		list := e.codec.Audiences
		before := slices.Clone(list)
		list[0] = "changed"
		body, err := e.codec.Stub.Write(aStubOf("o"))
		copy(list, before)
		if err != nil {
			t.Errorf("version %s: %s, %v", e.version, body, err)
		}
	}
}
