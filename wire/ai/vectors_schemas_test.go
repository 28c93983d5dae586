package ai_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/signing"
)

// A schema case is an exact JSON text. Where Allod reads the schema as part of
// a message, the text is put into its place in a valid message and the message
// is read; what was read is written again and taken out of the same place.
type place struct {
	before, after string
	read          func(body []byte) ([]byte, error)
	path          []any // names and positions
}

// again reads with m and writes what was read.
func again[T any](m ai.Message[T]) func([]byte) ([]byte, error) {
	return func(body []byte) ([]byte, error) {
		v, err := m.Read(body)
		if err != nil {
			var zero T
			if render(v) != render(zero) {
				return nil, errNotZero
			}
			return nil, err
		}
		return m.Write(v)
	}
}

type textError string

func (e textError) Error() string { return string(e) }

const (
	errNotZero = textError("an error came with a value that is not zero")
	errOther   = textError("read, but as another kind of message")
)

// aWording is what a valid message needs in one version and not in another.
type aWording struct {
	self    string // the audience and offer of one person
	service string // of a capability, with a comma behind
	stops   bool   // the version says why a model stopped, and has grants
}

// placesOf has the places of a version's messages by schema.
func placesOf(c ai.Codec, w aWording) map[string]place {
	version := `"protocolVersion":"` + c.Version + `"`
	stub := func(except string) string {
		members := []string{
			`"id":"j"`, `"kind":"llm.chat"`, `"owner":"o"`, `"site":"s"`, `"audience":"` + w.self + `"`, `"sizeClass":"small"`,
			`"streaming":false`, `"deadlineAt":1`,
		}
		return strings.Join(slices.DeleteFunc(members, func(m string) bool { return strings.HasPrefix(m, `"`+except+`"`) }), ",") + ","
	}
	capability := func(except string) string {
		members := []string{`"kind":"llm.chat"`, `"backendId":"ollama"`, `"backendClass":"http"`, `"model":"m"`, `"offerScope":"` + w.self + `"`}
		return w.service + strings.Join(slices.DeleteFunc(members, func(m string) bool { return strings.HasPrefix(m, `"`+except+`"`) }), ",") + ","
	}
	const (
		lease = `"lease":{"id":"L","runnerId":"r","expiresAt":1}`
		ran   = `"ran":{"model":"m","backendClass":"http","durationMs":0}`
		env   = `"ciphertext":"c","recipientKeyId":"r","senderKeyId":"s","deadlineAt":1`
		beat  = `"cancel":[],"lost":[],"serverTime":1,"awaitingConsent":[]`
	)
	claim := `{` + version + `,"runnerId":"r","max":1,"capabilities":`
	heartbeat := `{` + version + `,"runnerId":"r","daemonVersion":"1","capabilities":[],`
	ofCapability := func(name string) place {
		return place{claim + `[{` + capability(name) + `"` + name + `":`, `}]}`, again(c.ClaimRequest), []any{"capabilities", 0, name}}
	}
	ofStub := func(name string) place {
		return place{`{` + stub(name) + `"` + name + `":`, `}`, again(c.Stub), []any{name}}
	}
	places := map[string]place{
		"PublicIdentity":    {`{` + beat + `,"sites":{"S":`, `}}`, again(c.HeartbeatResponse), []any{"sites", "S"}},
		"SealedEnvelope":    {`{"envelope":`, `}`, again(c.FetchResponse), []any{"envelope"}},
		"EnvelopeDirection": {`{"envelope":{` + env + `,"direction":`, `}}`, again(c.FetchResponse), []any{"envelope", "direction"}},
		"Capability":        {claim + `[`, `]}`, again(c.ClaimRequest), []any{"capabilities", 0}},
		"CapabilityMatrix":  {claim, `}`, again(c.ClaimRequest), []any{"capabilities"}},
		"BackendIdSchema":   ofCapability("backendId"),
		"BackendClass":      ofCapability("backendClass"),
		"OfferScope":        ofCapability("offerScope"),
		"JobKind":           ofCapability("kind"),
		"ChatMessage":       {`{"messages":[`, `]}`, again(c.Chat), []any{"messages", 0}},
		"Lease":             {`{"leaseMs":1,"jobs":[{` + stub("") + `"lease":`, `}]}`, again(c.ClaimResponse), []any{"jobs", 0, "lease"}},
		"ClaimedStub":       {`{"leaseMs":1,"jobs":[`, `]}`, again(c.ClaimResponse), []any{"jobs", 0}},
		"Audience":          ofStub("audience"),
		"SizeClass":         ofStub("sizeClass"),
		"JobState":          {`{"jobId":"j","state":`, `}`, again(c.Result), []any{"state"}},
		"ResultProvenance":  {`{"jobId":"j","state":"ok","provenance":`, `}`, again(c.Result), []any{"provenance"}},
		"ResultDisposition": {`{` + version + `,"runnerId":"r","jobId":"j","leaseId":"l","envelope":{` + env + `,"direction":"result"},"disposition":`, `}`, again(c.ResultRequest), []any{"disposition"}},
		"RunMetadata":       {`{"outcome":{"outcome":"canceled"},"ran":`, `}`, again(c.Outcome), []any{"ran"}},
		"JobOutcome":        {`{` + ran + `,"outcome":`, `}`, again(c.Outcome), []any{"outcome"}},
		"JobResultOk":       {`{` + ran + `,"outcome":`, `}`, outcomeOnly[ai.Answer](c), []any{"outcome"}},
		"JobResultError":    {`{` + ran + `,"outcome":`, `}`, outcomeOnly[ai.Failure](c), []any{"outcome"}},
		"JobResultCanceled": {`{` + ran + `,"outcome":`, `}`, outcomeOnly[ai.Cancellation](c), []any{"outcome"}},

		"JobStub":           {read: again(c.Stub)},
		"ClaimedJob":        {read: again(c.Job)},
		"GeneratePayload":   {read: again(c.Generate)},
		"ChatPayload":       {read: again(c.Chat)},
		"JobPayload":        {read: eitherPayload(c)},
		"KindedPayload":     {read: again(c.Kinded)},
		"SealedOutcome":     {read: again(c.Outcome)},
		"DeliveredResult":   {read: again(c.Result)},
		"WireError":         {read: again(c.Error)},
		"PairRequest":       {read: again(c.PairRequest)},
		"PairStartRequest":  {read: pairOnly(c, func(p ai.PairRequest) bool { return p.Start != nil })},
		"PairPollRequest":   {read: pairOnly(c, func(p ai.PairRequest) bool { return p.Poll != nil })},
		"PairStartResponse": {read: again(c.PairStartResponse)},
		"PairPollResponse":  {read: again(c.PairPollResponse)},
		"ClaimRequest":      {read: again(c.ClaimRequest)},
		"ClaimResponse":     {read: again(c.ClaimResponse)},
		"FetchRequest":      {read: again(c.FetchRequest)},
		"FetchResponse":     {read: again(c.FetchResponse)},
		"HeartbeatRequest":  {read: again(c.HeartbeatRequest)},
		"HeartbeatResponse": {read: again(c.HeartbeatResponse)},
		"ResultRequest":     {read: again(c.ResultRequest)},
		"ResultResponse":    {read: again(c.ResultResponse)},
		"ReleaseRequest":    {read: again(c.ReleaseRequest)},
		"ReleaseResponse":   {read: again(c.ReleaseResponse)},

		"StoredKeys":       {read: keyFile},
		"RequestSignature": {read: signatureHeaders},
		"BackendCost":      {read: oneOf(backend.Costs())},
		"WireErrorCode":    {read: codeOnly(c)},
		"MatchRefusal":     {read: oneOf(matchRefusals())},
	}
	if w.stops {
		maps.Copy(places, map[string]place{
			"GrantRef":         {heartbeat + `"activeLeases":[`, `]}`, again(c.HeartbeatRequest), []any{"activeLeases", 0}},
			"WithheldKind":     {heartbeat + `"activeLeases":[],"withheld":[`, `]}`, again(c.HeartbeatRequest), []any{"withheld", 0}},
			"SignedGrant":      {`{"leaseMs":1,"jobs":[{` + stub("") + lease + `,"grant":`, `}]}`, again(c.ClaimResponse), []any{"jobs", 0, "grant"}},
			"Succession":       {`{` + beat + `,"sites":{},"successions":{"S":{"succeeds":[`, `]}}}`, again(c.HeartbeatResponse), []any{"successions", "S", "succeeds", 0}},
			"StopReasonSchema": {`{"outcome":{"outcome":"canceled"},"ran":{"model":"m","backendClass":"http","durationMs":0,"stop":`, `}}`, again(c.Outcome), []any{"ran", "stop"}},
		})
	}
	return places
}

// codeOnly reads a code as the code of an error, with the members that one of
// the codes needs.
func codeOnly(c ai.Codec) func([]byte) ([]byte, error) {
	return func(body []byte) (_ []byte, err error) {
		for _, more := range []string{"", `,"supported":[]`, `,"maxSkewMs":1`, `,"floor":"1"`} {
			if _, err = again(c.Error)([]byte(`{"error":` + string(body) + `,"message":"m"` + more + `}`)); err == nil {
				return body, nil
			}
		}
		return nil, err
	}
}

func runSchemas(t *testing.T, r *recording, v vector) (got, want any) {
	var c struct {
		Value, Parsed json.RawMessage
		Raw           *string
		OK            bool
		NotJSON       bool
		Expand        bool
	}
	v.decode(t, &c)
	text := string(c.Value)
	switch {
	case c.Raw != nil:
		text = *c.Raw
	case c.Expand:
		text = render(expand(anyOf(t, c.Value)))
	}
	p, ok := r.places[v.Schema]
	if !ok {
		t.Fatalf("no reader for schema %s", v.Schema)
	}
	type result struct {
		OK     bool
		Parsed any
	}
	expected := result{OK: c.OK}
	if c.OK {
		kept := json.RawMessage(text)
		if c.Parsed != nil {
			kept = c.Parsed
		}
		parsed := anyOf(t, kept)
		if c.Expand {
			parsed = expand(parsed)
		}
		expected.Parsed = digest(normal(parsed))
	}
	var answer result
	if written, err := p.read([]byte(p.before + text + p.after)); err == nil {
		answer.OK = true
		at := anyOf(t, written)
		for _, step := range p.path {
			switch step := step.(type) {
			case string:
				at = at.(map[string]any)[step]
			case int:
				at = at.([]any)[step]
			}
		}
		answer.Parsed = digest(normal(at))
	} else if err == errNotZero {
		t.Error(err)
	}
	return answer, expected
}

func anyOf(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("not JSON: %v", err)
	}
	return v
}

// normal drops what Allod reads as absent: an empty system text, an empty owner
// label, a false duplicate and that a reason to stop is not the backend's own;
// and the empty list that the contract reads where none is withheld.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, m := range v {
			empty, isList := m.([]any)
			switch {
			case (k == "system" || k == "ownerLabel") && m == "", (k == "duplicate" || k == "stopReported") && m == false,
				k == "withheld" && isList && len(empty) == 0:
				delete(v, k)
				continue
			}
			v[k] = normal(m)
		}
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case float64:
		return v + 0 // a negative zero is written as zero
	}
	return v
}

// digest shortens what would make a failure unreadable.
func digest(v any) any {
	text := render(v)
	if len(text) < 4096 {
		return v
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256 " + hex.EncodeToString(sum[:])
}

func outcomeOnly[T ai.Outcome](c ai.Codec) func([]byte) ([]byte, error) {
	return func(body []byte) ([]byte, error) {
		v, err := c.Outcome.Read(body)
		if err != nil {
			return nil, err
		}
		if _, ok := v.Outcome.(T); !ok {
			return nil, errOther
		}
		return c.Outcome.Write(v)
	}
}

func pairOnly(c ai.Codec, is func(ai.PairRequest) bool) func([]byte) ([]byte, error) {
	return func(body []byte) ([]byte, error) {
		v, err := c.PairRequest.Read(body)
		if err != nil {
			return nil, err
		}
		if !is(v) {
			return nil, errOther
		}
		return c.PairRequest.Write(v)
	}
}

// eitherPayload reads a payload whose kind is not known, which Allod itself
// never has to.
func eitherPayload(c ai.Codec) func([]byte) ([]byte, error) {
	return func(body []byte) ([]byte, error) {
		for _, kind := range ai.Kinds() {
			if p, err := c.ReadPayload(kind, body); err == nil {
				return c.WritePayload(p)
			} else if p != nil {
				return nil, errNotZero
			}
		}
		return nil, errOther
	}
}

// keyFile reads a key file and writes it again.
func keyFile(body []byte) ([]byte, error) {
	k, err := key.ParseFile[key.DeviceRole](body)
	if err != nil {
		return nil, err
	}
	return key.MarshalFile(k)
}

// signatureHeaders reads the three values as the headers in which they travel:
// a value of a type that a header cannot have counts as absent.
func signatureHeaders(body []byte) ([]byte, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(body, &values); err != nil {
		return nil, err
	}
	headers := map[string]string{"X-Byollm-Issued-At": string(values["issuedAt"])}
	for header, name := range map[string]string{"X-Byollm-Runner": "runnerId", "X-Byollm-Signature": "signature"} {
		var text string
		if json.Unmarshal(values[name], &text) == nil {
			headers[header] = text
		}
	}
	s, err := signing.ReadHeaders(signing.DaemonPlane, func(name string) string { return headers[name] })
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"runnerId": s.Caller, "issuedAt": s.IssuedAt, "signature": headers["X-Byollm-Signature"]})
}

func oneOf[S ~string](words []S) func([]byte) ([]byte, error) {
	return func(body []byte) ([]byte, error) {
		var word S
		if err := json.Unmarshal(body, &word); err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(body)) == "null" || !slices.Contains(words, word) {
			return nil, errOther
		}
		return body, nil
	}
}

func matchRefusals() []string {
	var names []string
	for _, k := range match.Kinds.Kinds {
		names = append(names, k.Name())
	}
	return names
}
