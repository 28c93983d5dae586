package ai_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
	"github.com/allodhq/allod/wire/ai/signing"
	"github.com/allodhq/allod/wire/ai/v0"
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

var c0 = v0.Codec()

const (
	aStub     = `"id":"j","kind":"llm.chat","owner":"o","site":"s","audience":"self","sizeClass":"small","streaming":false,"deadlineAt":1`
	aLease    = `"lease":{"id":"L","runnerId":"r","expiresAt":1}`
	aCap      = `"backendId":"ollama","backendClass":"http","model":"m","offerScope":"self"`
	aRan      = `"ran":{"model":"m","backendClass":"http","durationMs":0}`
	anEnv     = `"ciphertext":"c","recipientKeyId":"r","senderKeyId":"s","deadlineAt":1`
	claimHead = `{"protocolVersion":"0","runnerId":"r","max":1,"capabilities":`
)

var places = map[string]place{
	"PublicIdentity":    {`{"cancel":[],"lost":[],"serverTime":1,"awaitingConsent":[],"sites":{"S":`, `}}`, again(c0.HeartbeatResponse), []any{"sites", "S"}},
	"SealedEnvelope":    {`{"envelope":`, `}`, again(c0.FetchResponse), []any{"envelope"}},
	"EnvelopeDirection": {`{"envelope":{` + anEnv + `,"direction":`, `}}`, again(c0.FetchResponse), []any{"envelope", "direction"}},
	"Capability":        {claimHead + `[`, `]}`, again(c0.ClaimRequest), []any{"capabilities", 0}},
	"CapabilityMatrix":  {claimHead, `}`, again(c0.ClaimRequest), []any{"capabilities"}},
	"BackendIdSchema":   {claimHead + `[{"kind":"llm.chat","backendClass":"http","model":"m","offerScope":"self","backendId":`, `}]}`, again(c0.ClaimRequest), []any{"capabilities", 0, "backendId"}},
	"BackendClass":      {claimHead + `[{"kind":"llm.chat","backendId":"ollama","model":"m","offerScope":"self","backendClass":`, `}]}`, again(c0.ClaimRequest), []any{"capabilities", 0, "backendClass"}},
	"OfferScope":        {claimHead + `[{"kind":"llm.chat","backendId":"ollama","model":"m","backendClass":"http","offerScope":`, `}]}`, again(c0.ClaimRequest), []any{"capabilities", 0, "offerScope"}},
	"JobKind":           {claimHead + `[{` + aCap + `,"kind":`, `}]}`, again(c0.ClaimRequest), []any{"capabilities", 0, "kind"}},
	"ChatMessage":       {`{"messages":[`, `]}`, again(c0.Chat), []any{"messages", 0}},
	"Lease":             {`{"leaseMs":1,"jobs":[{` + aStub + `,"lease":`, `}]}`, again(c0.ClaimResponse), []any{"jobs", 0, "lease"}},
	"ClaimedStub":       {`{"leaseMs":1,"jobs":[`, `]}`, again(c0.ClaimResponse), []any{"jobs", 0}},
	"Audience":          {`{"id":"j","kind":"llm.chat","owner":"o","site":"s","sizeClass":"small","streaming":false,"deadlineAt":1,"audience":`, `}`, again(c0.Stub), []any{"audience"}},
	"SizeClass":         {`{"id":"j","kind":"llm.chat","owner":"o","site":"s","audience":"self","streaming":false,"deadlineAt":1,"sizeClass":`, `}`, again(c0.Stub), []any{"sizeClass"}},
	"JobState":          {`{"jobId":"j","state":`, `}`, again(c0.Result), []any{"state"}},
	"ResultProvenance":  {`{"jobId":"j","state":"ok","provenance":`, `}`, again(c0.Result), []any{"provenance"}},
	"ResultDisposition": {`{"protocolVersion":"0","runnerId":"r","jobId":"j","leaseId":"l","envelope":{` + anEnv + `,"direction":"result"},"disposition":`, `}`, again(c0.ResultRequest), []any{"disposition"}},
	"RunMetadata":       {`{"outcome":{"outcome":"canceled"},"ran":`, `}`, again(c0.Outcome), []any{"ran"}},
	"JobOutcome":        {`{` + aRan + `,"outcome":`, `}`, again(c0.Outcome), []any{"outcome"}},
	"JobResultOk":       {`{` + aRan + `,"outcome":`, `}`, outcomeOnly[ai.Answer], []any{"outcome"}},
	"JobResultError":    {`{` + aRan + `,"outcome":`, `}`, outcomeOnly[ai.Failure], []any{"outcome"}},
	"JobResultCanceled": {`{` + aRan + `,"outcome":`, `}`, outcomeOnly[ai.Cancellation], []any{"outcome"}},

	"JobStub":           {read: again(c0.Stub)},
	"ClaimedJob":        {read: again(c0.Job)},
	"GeneratePayload":   {read: again(c0.Generate)},
	"ChatPayload":       {read: again(c0.Chat)},
	"JobPayload":        {read: eitherPayload},
	"KindedPayload":     {read: again(c0.Kinded)},
	"SealedOutcome":     {read: again(c0.Outcome)},
	"DeliveredResult":   {read: again(c0.Result)},
	"WireError":         {read: again(c0.Error)},
	"PairRequest":       {read: again(c0.PairRequest)},
	"PairStartRequest":  {read: pairOnly(func(p ai.PairRequest) bool { return p.Start != nil })},
	"PairPollRequest":   {read: pairOnly(func(p ai.PairRequest) bool { return p.Poll != nil })},
	"PairStartResponse": {read: again(c0.PairStartResponse)},
	"PairPollResponse":  {read: again(c0.PairPollResponse)},
	"ClaimRequest":      {read: again(c0.ClaimRequest)},
	"ClaimResponse":     {read: again(c0.ClaimResponse)},
	"FetchRequest":      {read: again(c0.FetchRequest)},
	"FetchResponse":     {read: again(c0.FetchResponse)},
	"HeartbeatRequest":  {read: again(c0.HeartbeatRequest)},
	"HeartbeatResponse": {read: again(c0.HeartbeatResponse)},
	"ResultRequest":     {read: again(c0.ResultRequest)},
	"ResultResponse":    {read: again(c0.ResultResponse)},
	"ReleaseRequest":    {read: again(c0.ReleaseRequest)},
	"ReleaseResponse":   {read: again(c0.ReleaseResponse)},

	"StoredKeys":       {read: keyFile},
	"RequestSignature": {read: signatureHeaders},
	"BackendCost":      {read: oneOf(backend.Costs())},
	"WireErrorCode":    {read: oneOf(ai.Codes())},
	"MatchRefusal":     {read: oneOf(matchRefusals())},
}

func runSchemas(t *testing.T, v vector) (got, want any) {
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
	p, ok := places[v.Schema]
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
		expected.Parsed = digest(normal(anyOf(t, kept)))
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
// label and a false duplicate.
func normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, m := range v {
			if (k == "system" || k == "ownerLabel") && m == "" || k == "duplicate" && m == false {
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

func outcomeOnly[T ai.Outcome](body []byte) ([]byte, error) {
	v, err := c0.Outcome.Read(body)
	if err != nil {
		return nil, err
	}
	if _, ok := v.Outcome.(T); !ok {
		return nil, errOther
	}
	return c0.Outcome.Write(v)
}

func pairOnly(is func(ai.PairRequest) bool) func([]byte) ([]byte, error) {
	return func(body []byte) ([]byte, error) {
		v, err := c0.PairRequest.Read(body)
		if err != nil {
			return nil, err
		}
		if !is(v) {
			return nil, errOther
		}
		return c0.PairRequest.Write(v)
	}
}

// eitherPayload reads a payload whose kind is not known, which Allod itself
// never has to.
func eitherPayload(body []byte) ([]byte, error) {
	for _, kind := range ai.Kinds() {
		if p, err := c0.ReadPayload(kind, body); err == nil {
			return c0.WritePayload(p)
		} else if p != nil {
			return nil, errNotZero
		}
	}
	return nil, errOther
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
