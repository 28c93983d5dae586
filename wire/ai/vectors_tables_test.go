package ai_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/grant"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/must"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/signing"
	"github.com/allodhq/allod/wire/ai/succession"
)

var spends = map[string]match.Spend{
	"absent": {}, "none": {}, "ack": {Acknowledged: true}, "ack+open": {Acknowledged: true},
	"ack+ceiling": {Acknowledged: true, CeilingReached: true}, "none+ceiling": {CeilingReached: true},
}

var allowLists = map[string][]ai.Owner{
	"absent": nil, "includes": {"zed", "bob"}, "excludes": {"zed"}, "empty": {},
}

func runAudience(t *testing.T, r *recording, v vector) (got, want any) {
	switch v.Kind {
	case "effectiveOfferScope":
		var c struct {
			In  [3]string
			Out string
		}
		v.decode(t, &c)
		spend, ok := spends[c.In[2]]
		if !ok {
			t.Fatalf("unknown spend %q", c.In[2])
		}
		scope := match.EffectiveScope(ai.OfferScope(r.value(c.In[0])), backend.Cost(c.In[1]), spend)
		return r.word(string(scope)), c.Out
	case "matchAudience":
		var c struct {
			In  [7]any
			Out string
		}
		v.decode(t, &c)
		job := match.Job{Owner: "alice", Audience: ai.Audience(r.value(c.In[0].(string)))}
		if c.In[3].(bool) {
			job.Owner = "bob"
		}
		list, ok1 := allowLists[c.In[5].(string)]
		spend, ok2 := spends[c.In[6].(string)]
		if !ok1 || !ok2 {
			t.Fatalf("unknown inputs %v", c.In)
		}
		job.AllowedOwners = list
		offer := match.Offer{Owner: "bob", Scope: ai.OfferScope(r.value(c.In[1].(string))), Cost: backend.Cost(c.In[2].(string)), Spend: spend}
		return refusalName(match.Audience(job, offer, func(ai.Owner) bool { return c.In[4].(bool) })), c.Out
	case "matchAudienceExplicit":
		var c struct {
			Job struct {
				Owner         ai.Owner
				Audience      string
				AudienceAllow []ai.Owner
			}
			Daemon struct {
				Owner      ai.Owner
				OfferScope string
				Cost       backend.Cost
			}
			LocallyAllowed, Asked []ai.Owner
			Out                   string
		}
		v.decode(t, &c)
		asked := []ai.Owner{}
		err := match.Audience(match.Job{Owner: c.Job.Owner, Audience: ai.Audience(r.value(c.Job.Audience)), AllowedOwners: c.Job.AudienceAllow},
			match.Offer{Owner: c.Daemon.Owner, Scope: ai.OfferScope(r.value(c.Daemon.OfferScope)), Cost: c.Daemon.Cost},
			func(o ai.Owner) bool { asked = append(asked, o); return slices.Contains(c.LocallyAllowed, o) })
		return []any{refusalName(err), asked}, []any{c.Out, c.Asked}
	}
	t.Fatalf("unknown kind %q", v.Kind)
	return nil, nil
}

func refusalName(err error) string {
	if err == nil {
		return "ok"
	}
	for _, k := range match.Kinds.Kinds {
		if errors.Is(err, k) {
			return k.Name()
		}
	}
	return "unnamed: " + err.Error()
}

func runCost(t *testing.T, _ *recording, v vector) (got, want any) {
	var c struct {
		ID      backend.ID
		BaseURL string
		Model   string
		In      string
		Out     any
	}
	v.decode(t, &c)
	switch v.Kind {
	case "isLocalHost":
		return backend.IsLocalHost(c.In), c.Out
	case "isCloudTaggedModel":
		return backend.RunsElsewhere(c.In), c.Out
	case "isBackendId":
		_, ok := backend.Find(backend.ID(c.In))
		return ok, c.Out
	case "resolveCost":
		cost, err := backend.CostOf(c.ID, c.BaseURL, c.Model)
		if err != nil {
			return map[string]any{"throws": errors.Is(err, backend.ErrUnknown)}, c.Out
		}
		return cost, c.Out
	}
	t.Fatalf("unknown kind %q", v.Kind)
	return nil, nil
}

func runLimits(t *testing.T, r *recording, v vector) (got, want any) {
	var c struct{ Value any }
	v.decode(t, &c)
	want = c.Value
	subject, arg, _ := strings.Cut(v.Name, " ")
	switch v.Name {
	case "PROTOCOL_VERSION":
		return r.codec.Version, want
	case "SUPPORTED_PROTOCOL_VERSIONS":
		return protocol.Supported(), want
	case "MIN_PROTOCOL_VERSION":
		return protocol.Minimum(), want
	case "PROTOCOL_PREFIX":
		return ai.PathPrefix, want
	case "ENDPOINTS":
		return ai.Endpoints(), want
	case "ENCRYPTION_KEY_CONTEXT":
		return bindingContext(t), want
	case "ENVELOPE_MAX_AGE_MS":
		return envelope.MaxAge.Milliseconds(), want
	case "MAX_CLOCK_SKEW_MS":
		return signing.Window.Milliseconds(), want
	case "PAYLOAD_LIMITS":
		return map[string]int{"maxTextChars": ai.MaxTextUnits, "maxMessages": ai.MaxMessages, "maxTotalChars": ai.MaxPayloadUnits}, want
	case "SIZE_CLASS_LIMITS":
		return map[string]any{"small": ceiling(ai.SizeSmall), "medium": ceiling(ai.SizeMedium), "large": ceiling(ai.SizeLarge)}, want
	case "AUDIENCES":
		return r.spoken("Audience", audienceWords), want
	case "OFFER_SCOPES":
		return r.spoken("OfferScope", audienceWords), want
	case "JOB_KINDS":
		return ai.Kinds(), want
	case "BACKEND_IDS":
		return r.spoken("BackendIdSchema", texts(backend.IDs())), want
	case "BACKEND_CLASSES":
		return backend.Classes(), want
	case "SIZE_CLASSES":
		return ai.SizeClasses(), want
	case "TERMINAL_STATES":
		return slices.DeleteFunc(ai.States(), func(s ai.State) bool { return !s.Terminal() }), want
	case "ERROR_STATUS":
		statuses := map[string]int{}
		for _, code := range r.spoken("WireErrorCode", texts(ai.Codes())) {
			statuses[code] = ai.Code(code).Status()
		}
		return statuses, want
	case "MatchRefusal ids with a message":
		return matchRefusals(), want
	case "ENVELOPE_BODY_VERSION":
		return bodyVersion(t), want
	case "GRANT_CONTEXT":
		return grantStatement(t)[0], want
	case "GRANT_SIGNED_FIELDS":
		return grantStatement(t)[1:], want
	case "GRANT_MAX_AGE_MS":
		return grant.MaxAge.Milliseconds(), want
	case "CLOCK_SKEW_WARN_MS":
		return grant.MaxAhead.Milliseconds(), want
	case "RESERVED_PURPOSE":
		return grant.DefaultPurpose, want
	case "SUCCESSION_CONTEXT":
		context, _, _ := strings.Cut(string(succession.Statement(key.Fingerprint{}, key.Fingerprint{})), ":")
		return context, want
	case "MAX_SUCCESSION_CHAIN":
		return ai.MaxSuccessions, want
	case "RETIREMENT_WINDOW_MS":
		return ai.MaxRetirementMs, want
	case "MAX_ENVELOPE_BYTES", "CLOCK_ATTRIBUTION_MS", "MAX_PURPOSES", "DEFAULT_ROUTING",
		"UPDATE_OFFER_SINCE", "RefusalReason ids with a text":
		return noSuchThing, want
	case "MUST_IDS":
		var ids []string
		for _, m := range must.All() {
			ids = append(ids, m.ID)
		}
		return ids, want
	case "retired MUST ids":
		retired := map[string]any{}
		for _, r := range must.AllRetired() {
			retired[r.ID] = map[string]string{"supersededBy": r.SupersededBy}
		}
		return retired, want
	case "MUSTs by enforcer":
		by := map[must.Enforcer][]string{}
		for _, m := range must.All() {
			by[m.EnforcedBy] = append(by[m.EnforcedBy], m.ID)
		}
		return by, want
	}
	switch subject {
	case "sizeClassOf":
		n, err := strconv.Atoi(arg)
		if err != nil {
			t.Fatal(err)
		}
		return ai.SizeClassOf(n), want
	case "sizeClassCeiling":
		return ceiling(ai.SizeClass(arg)), want
	case "enum":
		return r.enumeration(t, arg), want
	case "backend":
		return backendRow(backend.ID(arg)), want
	case "isTerminal":
		return ai.State(arg).Terminal(), want
	case "canTransition":
		from, to, _ := strings.Cut(arg, " -> ")
		return ai.State(from).CanBecome(ai.State(to)), want
	case "isJobKind":
		var kind ai.Kind
		if err := json.Unmarshal([]byte(arg), &kind); err != nil {
			t.Fatal(err)
		}
		return slices.Contains(ai.Kinds(), kind), want
	case "updateOffer", "daemonFloor":
		return noSuchThing, want
	case "MUST":
		for _, m := range must.All() {
			if m.ID == arg {
				return map[string]any{"id": m.ID, "enforcedBy": m.EnforcedBy, "verifiedBy": m.ProvedBy, "source": m.Source}, want
			}
		}
		return nil, want
	case "MUSTs":
		proof := must.Proof(strings.TrimPrefix(arg, "verified by "))
		ids := []string{}
		for _, m := range must.All() {
			if slices.Contains(m.ProvedBy, proof) {
				ids = append(ids, m.ID)
			}
		}
		return ids, want
	}
	t.Fatalf("nothing answers %q", v.Name)
	return nil, nil
}

// audienceWords are all words that a version has for audiences and offers.
var audienceWords = []string{"self", "named", "public", "private", "team"}

// spoken are those of the words that the version reads at that place.
func (r *recording) spoken(schema string, words []string) []string {
	p, found := r.places[schema], []string{}
	for _, w := range words {
		if _, err := p.read([]byte(p.before + `"` + w + `"` + p.after)); err == nil {
			found = append(found, w)
		}
	}
	return found
}

func texts[S ~string](words []S) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return list
}

func (r *recording) enumeration(t *testing.T, name string) any {
	switch name {
	case "Audience", "OfferScope":
		return r.spoken(name, audienceWords)
	case "StopReasonSchema":
		return r.spoken(name, texts(ai.StopReasons()))
	case "BackendClass":
		return backend.Classes()
	case "BackendCost":
		return backend.Costs()
	case "EnvelopeDirection":
		return ai.Directions()
	case "JobKind":
		return ai.Kinds()
	case "JobState":
		return ai.States()
	case "MatchRefusal":
		return matchRefusals()
	case "ResultDisposition":
		return ai.Dispositions()
	case "SizeClass":
		return ai.SizeClasses()
	case "WireErrorCode":
		return r.spoken(name, texts(ai.Codes()))
	case "BackendIdSchema":
		return r.spoken(name, texts(backend.IDs()))
	case "RefusalReason", "PurposeRouting":
		return noSuchThing
	}
	t.Fatalf("unknown enumeration %q", name)
	return nil
}

func backendRow(id backend.ID) any {
	d, ok := backend.Find(id)
	if !ok {
		return nil
	}
	// Every id has a suite of hostile tests by its class.
	row := map[string]any{"id": d.ID, "class": d.Class, "cost": nil, "adversarialCorpus": d.Class}
	if d.Cost != "" {
		row["cost"] = d.Cost
	}
	if d.DefaultBaseURL != "" {
		row["defaultBaseUrl"] = d.DefaultBaseURL
	}
	return row
}

// noSuchThing is the answer where Allod has nothing of the kind. stricter.json
// says why.
const noSuchThing = "(Allod has no such thing)"

// bodyVersion is the v of the body that a sender signs.
func bodyVersion(t *testing.T) any {
	t.Helper()
	keys := vectorKeys(t)
	rec := &recorder{Signer: keys["site"].Signer()}
	_, err := envelope.Seal(strings.NewReader(strings.Repeat("e", 32)), rec, keys["device"].Identity(), envelope.Letter{
		JobID: "j", Direction: ai.DirectionPayload, DeadlineAt: 1, Plaintext: "{}",
	})
	if err != nil {
		t.Fatal(err)
	}
	return anyOf(t, rec.message).(map[string]any)["v"]
}

func ceiling(s ai.SizeClass) any {
	if units, bounded := s.Ceiling(); bounded {
		return units
	}
	return "Infinity"
}

// bindingContext finds the context of the binding by signing it: the signature
// of a known key set verifies over context, colon and sealing key.
func bindingContext(t *testing.T) string {
	const context = "byollm/v1/encryption-key"
	id := vectorKeys(t)["site"].Identity()
	if !id.Signing().Verify([]byte(context+":"+id.Sealing().String()), id.Binding()) {
		return "another context"
	}
	fresh, err := key.NewKeys[key.SiteRole](strings.NewReader(strings.Repeat("x", 64)), ai.Millis(1).Time())
	if err != nil {
		t.Fatal(err)
	}
	if !fresh.Identity().Signing().Verify([]byte(context+":"+fresh.Identity().Sealing().String()), fresh.Identity().Binding()) {
		return "another context for new keys"
	}
	return context
}

func runVersion(t *testing.T, rec *recording, v vector) (got, want any) {
	var c struct {
		Body               json.RawMessage
		BodyAbsent, Absent bool
		Accepted           bool
		Query              *string
		Declared           json.RawMessage
		Result             *struct {
			Error                string
			Supported            []string
			Minimum, Advises     string
			MessagePresent       bool
			NamesDeclaredVersion bool
		}
	}
	v.decode(t, &c)
	query := ""
	if c.Query != nil {
		query = *c.Query
	}
	choose := func() error {
		if c.Body == nil {
			_, err := protocol.ChooseByQuery(query)
			return err
		}
		_, err := protocol.Choose(c.Body, ai.MaxBody, query)
		return err
	}
	err := choose()
	if v.Kind == "declaredVersion" {
		return err == nil, c.Accepted
	}
	type refused struct {
		Error                string
		Supported            []string
		Minimum, Advises     string
		MessagePresent       bool
		NamesDeclaredVersion bool
	}
	if c.Result != nil {
		want = refused(*c.Result)
	}
	var e *ai.Error
	if !errors.As(err, &e) {
		return nil, want
	}
	r := refused{Error: string(e.Code), Supported: e.Supported, Minimum: e.Minimum, MessagePresent: e.Message != ""}
	// The recorded program spoke one version. Ours speaks more, and says so.
	if slices.Equal(e.Supported, protocol.Supported()) && slices.Contains(e.Supported, rec.codec.Version) && e.Minimum == protocol.Minimum() {
		r.Supported, r.Minimum = []string{rec.codec.Version}, rec.codec.Version
	}
	var body struct{ ProtocolVersion any }
	if json.Unmarshal(c.Body, &body) == nil {
		if declared, ok := body.ProtocolVersion.(string); ok && len(declared) > 1 {
			r.NamesDeclaredVersion = strings.Contains(e.Message, declared)
		}
	}
	switch {
	case strings.Contains(e.Message, "The caller is behind"):
		r.Advises = "upgrade the caller"
	case strings.Contains(e.Message, "This server is behind"):
		r.Advises = "upgrade this server"
	}
	return r, want
}

func runSizeClass(t *testing.T, r *recording, v vector) (got, want any) {
	var c struct {
		In        json.RawMessage
		Out       any
		SizeClass ai.SizeClass
	}
	v.decode(t, &c)
	switch v.Kind {
	case "sizeClassOf":
		n, ok := anyOf(t, c.In).(float64)
		if !ok || n != float64(int(n)) {
			return "not a length", c.Out
		}
		return ai.SizeClassOf(int(n)), c.Out
	case "sizeClassCeiling":
		return ceiling(ai.SizeClass(anyOf(t, c.In).(string))), c.Out
	case "payloadTextLength":
		p, err := r.codec.Kinded.Read([]byte(render(expand(anyOf(t, c.In)))))
		if err != nil {
			t.Fatal(err)
		}
		return []any{p.TextUnits(), ai.SizeClassOf(p.TextUnits())}, []any{c.Out, c.SizeClass}
	}
	t.Fatalf("unknown kind %q", v.Kind)
	return nil, nil
}

func runProvenance(t *testing.T, r *recording, v vector) (got, want any) {
	var c struct {
		In struct {
			Audience     string
			RunnerID     ai.RunnerID
			RunnerOwner  ai.Owner
			BackendClass backend.Class
			Model        string
			Stop         ai.StopReason
			StopReported bool
		}
		Out          any
		PassesSchema bool
	}
	v.decode(t, &c)
	p := ai.ProvenanceOf(ai.Audience(r.value(c.In.Audience)), c.In.RunnerID, c.In.RunnerOwner, ai.RunMetadata{
		Model: c.In.Model, BackendClass: c.In.BackendClass, Stop: ai.Stop{Reason: c.In.Stop, Reported: c.In.StopReported},
	})
	_, err := r.codec.Result.Write(ai.DeliveredResult{JobID: "j", State: ai.StateOK, Provenance: &p})
	made := map[string]any{
		"audience": r.word(string(p.Audience)), "runnerId": p.RunnerID, "runnerOwner": p.RunnerOwner,
		"backendClass": p.BackendClass, "model": p.Model, "untrusted": p.Untrusted,
	}
	if p.Stop.Reason != "" {
		made["stop"] = p.Stop.Reason
	}
	if p.Stop.Reported {
		made["stopReported"] = true
	}
	return []any{made, err == nil}, []any{normal(c.Out), c.PassesSchema}
}
