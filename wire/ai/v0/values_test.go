package v0_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/v0"
)

var c0 = v0.Codec()

// subject is one message of the codec, its type hidden, so that one test can
// run over all of them.
type subject struct {
	name  string // the codec's field
	typ   reflect.Type
	limit int
	read  func(body []byte) (any, error)
	write func(value any) ([]byte, error)
	valid *rapid.Generator[any]
}

// on finds the message by the name of its field, so that the table below cannot
// test one message under the name of another.
func on[T any](name string, valid *rapid.Generator[T]) subject {
	m := reflect.ValueOf(c0).FieldByName(name).Interface().(ai.Message[T])
	return subject{
		name: name, typ: reflect.TypeFor[T](), limit: m.Limit(), valid: valid.AsAny(),
		read: func(body []byte) (any, error) { return m.Read(body) },
		write: func(value any) ([]byte, error) {
			v, _ := value.(T)
			return m.Write(v)
		},
	}
}

// large says that the message may take many megabytes.
func (s subject) large() bool { return s.limit > ai.MaxBody }

var subjects = []subject{
	on("PairRequest", pairRequests),
	on("PairStartResponse", pairStartResponses),
	on("PairPollResponse", pairPollResponses),
	on("ClaimRequest", claimRequests),
	on("ClaimResponse", claimResponses),
	on("FetchRequest", fetchRequests),
	on("FetchResponse", fetchResponses),
	on("HeartbeatRequest", heartbeatRequests),
	on("HeartbeatResponse", heartbeatResponses),
	on("ResultRequest", resultRequests),
	on("ResultResponse", resultResponses),
	on("ReleaseRequest", releaseRequests),
	on("ReleaseResponse", releaseResponses),
	on("Error", wireErrors),
	on("Generate", generates),
	on("Chat", chats),
	on("Outcome", sealedOutcomes),
	on("Stub", stubs),
	on("Kinded", payloads),
	on("Job", claimedJobs),
	on("Result", deliveredResults),
}

// TestEveryMessageIsASubject fails for a message of the codec that no test here
// would ever see.
func TestEveryMessageIsASubject(t *testing.T) {
	tested := map[string]bool{}
	for _, s := range subjects {
		tested[s.name] = true
	}
	messages := 0
	for f := range reflect.TypeFor[ai.Codec]().Fields() {
		if f.Type.Kind() != reflect.Interface {
			if f.Name != "Version" {
				t.Errorf("%s is neither a message nor the version", f.Name)
			}
			continue
		}
		messages++
		if !tested[f.Name] {
			t.Errorf("the message %s has no values and no rules in the tests", f.Name)
		}
		if contract[f.Name] == nil {
			t.Errorf("the message %s has no rules in the tests", f.Name)
		}
	}
	if messages != len(subjects) || messages != len(contract) {
		t.Errorf("%d messages, %d subjects, %d rules", messages, len(subjects), len(contract))
	}
	if c0.Version != "0" {
		t.Errorf("the version is %q", c0.Version)
	}
}

// each runs a test over all messages.
func each(t *testing.T, run func(t *testing.T, s subject)) {
	t.Helper()
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) { run(t, s) })
	}
}

// Generators of valid values. A text draws from all of Unicode, since JSON
// escapes, surrogate pairs and lengths must not matter to what comes back.

func word[S ~string](words []S) *rapid.Generator[S] { return rapid.SampledFrom(words) }

func textOf[S ~string](minRunes, maxRunes int) *rapid.Generator[S] {
	return rapid.Map(rapid.StringN(minRunes, maxRunes, -1), func(s string) S { return S(s) })
}

func id[S ~string]() *rapid.Generator[S] { return textOf[S](1, 6) }

// optional is a text that is often empty, which means absent.
func optional[S ~string](some *rapid.Generator[S]) *rapid.Generator[S] {
	return rapid.OneOf(rapid.Just(S("")), some)
}

const maxWhole = 1<<53 - 1

func number[N ~int64](min, max int64) *rapid.Generator[N] {
	return rapid.Map(rapid.Int64Range(min, max), func(n int64) N { return N(n) })
}

func listOf[T any](g *rapid.Generator[T]) *rapid.Generator[[]T] {
	// rapid makes an empty slice non-nil, as reading does.
	return rapid.Map(rapid.SliceOfN(g, 0, 3), func(s []T) []T { return append([]T{}, s...) })
}

var (
	millis  = number[ai.Millis](1, maxWhole)
	siteIDs = rapid.Map(id[ai.KeyID](), func(k ai.KeyID) ai.KeyID { return "BYOLLM-" + k })
	webURLs = rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{
			"https://a.example/", "http://127.0.0.1:8080/", "https:a.example", "HTTPS://A.example/a b", "https://a.example/%zz?q#f",
		}).Draw(t, "URL") + rapid.StringMatching(`[a-z]{0,4}`).Draw(t, "end")
	})
)

var identities = rapid.Custom(func(t *rapid.T) ai.PublicIdentity {
	return ai.PublicIdentity{
		Identity: id[string]().Draw(t, "identity"), Encryption: id[string]().Draw(t, "encryption"),
		EncryptionSig: id[string]().Draw(t, "binding"),
	}
})

var sites = rapid.MapOfN(siteIDs, identities, 0, 3)

var capabilities = rapid.Custom(func(t *rapid.T) ai.Capability {
	return ai.Capability{
		Kind: word(ai.Kinds()).Draw(t, "kind"), BackendID: word(backend.IDs()).Draw(t, "backend"),
		BackendClass: word(backend.Classes()).Draw(t, "class"), Model: id[string]().Draw(t, "model"),
		OfferScope: word(ai.OfferScopes()).Draw(t, "scope"),
	}
})

var grants = rapid.Custom(func(t *rapid.T) ai.Grant {
	return ai.Grant{JobID: id[ai.JobID]().Draw(t, "job"), LeaseID: id[ai.LeaseID]().Draw(t, "lease")}
})

var leases = rapid.Custom(func(t *rapid.T) ai.Lease {
	return ai.Lease{
		ID: id[ai.LeaseID]().Draw(t, "lease"), RunnerID: id[ai.RunnerID]().Draw(t, "runner"),
		ExpiresAt: millis.Draw(t, "expires"),
	}
})

var stubs = rapid.Custom(func(t *rapid.T) ai.Stub {
	return ai.Stub{
		ID: id[ai.JobID]().Draw(t, "job"), Kind: word(ai.Kinds()).Draw(t, "kind"),
		Owner: id[ai.Owner]().Draw(t, "owner"), Site: siteIDs.Draw(t, "site"),
		Audience: word(ai.Audiences()).Draw(t, "audience"), SizeClass: word(ai.SizeClasses()).Draw(t, "size"),
		Streaming: rapid.Bool().Draw(t, "streaming"), DeadlineAt: millis.Draw(t, "deadline"),
	}
})

var envelopes = rapid.Custom(func(t *rapid.T) ai.SealedEnvelope {
	return ai.SealedEnvelope{
		Ciphertext: id[string]().Draw(t, "ciphertext"), RecipientKeyID: siteIDs.Draw(t, "recipient"),
		SenderKeyID: siteIDs.Draw(t, "sender"), Direction: word(ai.Directions()).Draw(t, "direction"),
		DeadlineAt: millis.Draw(t, "deadline"),
	}
})

var pairRequests = rapid.Custom(func(t *rapid.T) ai.PairRequest {
	if rapid.Bool().Draw(t, "poll") {
		return ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: textOf[ai.DeviceCode](20, 30).Draw(t, "code")}}
	}
	return ai.PairRequest{Start: &ai.PairStartRequest{
		Daemon: ai.Daemon{
			Version: id[string]().Draw(t, "version"), Label: textOf[string](1, 60).Draw(t, "label"),
			Platform: word(ai.Platforms()).Draw(t, "platform"),
		},
		Device:       identities.Draw(t, "device"),
		Capabilities: listOf(capabilities).Draw(t, "capabilities"),
	}}
})

var pairStartResponses = rapid.Custom(func(t *rapid.T) ai.PairStartResponse {
	return ai.PairStartResponse{
		DeviceCode: textOf[ai.DeviceCode](20, 30).Draw(t, "device code"), UserCode: textOf[string](4, 8).Draw(t, "user code"),
		VerificationURL: webURLs.Draw(t, "URL"), ExpiresAt: millis.Draw(t, "expires"),
		PollIntervalMs: rapid.Int64Range(500, 60_000).Draw(t, "interval"),
	}
})

var pairPollResponses = rapid.Custom(func(t *rapid.T) ai.PairPollResponse {
	p := ai.PairPollResponse{Status: word(ai.PairStatuses()).Draw(t, "status")}
	if p.Status == ai.PairApproved {
		p.Approved = &ai.PairApproval{
			RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Owner: id[ai.Owner]().Draw(t, "owner"),
			OwnerLabel: optional(id[string]()).Draw(t, "label"), Sites: sites.Draw(t, "sites"),
		}
	}
	return p
})

var claimRequests = rapid.Custom(func(t *rapid.T) ai.ClaimRequest {
	return ai.ClaimRequest{
		RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Capabilities: listOf(capabilities).Draw(t, "capabilities"),
		Max: rapid.Int64Range(1, 64).Draw(t, "max"),
	}
})

var claimedStubs = rapid.Custom(func(t *rapid.T) ai.ClaimedStub {
	return ai.ClaimedStub{Stub: stubs.Draw(t, "stub"), Lease: leases.Draw(t, "lease")}
})

var claimResponses = rapid.Custom(func(t *rapid.T) ai.ClaimResponse {
	return ai.ClaimResponse{
		Jobs: listOf(claimedStubs).Draw(t, "jobs"), LeaseMs: rapid.Int64Range(1, maxWhole).Draw(t, "lease time"),
	}
})

var fetchRequests = rapid.Custom(func(t *rapid.T) ai.FetchRequest {
	return ai.FetchRequest{RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Grant: grants.Draw(t, "grant")}
})

var fetchResponses = rapid.Map(envelopes, func(e ai.SealedEnvelope) ai.FetchResponse { return ai.FetchResponse{Envelope: e} })

var heartbeatRequests = rapid.Custom(func(t *rapid.T) ai.HeartbeatRequest {
	return ai.HeartbeatRequest{
		RunnerID: id[ai.RunnerID]().Draw(t, "runner"), DaemonVersion: id[string]().Draw(t, "version"),
		Capabilities: listOf(capabilities).Draw(t, "capabilities"), ActiveLeases: listOf(grants).Draw(t, "leases"),
		Paused: rapid.Bool().Draw(t, "paused"),
	}
})

var heartbeatResponses = rapid.Custom(func(t *rapid.T) ai.HeartbeatResponse {
	return ai.HeartbeatResponse{
		Sites: sites.Draw(t, "sites"), Cancel: listOf(grants).Draw(t, "cancel"), Lost: listOf(grants).Draw(t, "lost"),
		ServerTime: millis.Draw(t, "time"), AwaitingConsent: listOf(siteIDs).Draw(t, "awaiting"),
	}
})

var resultRequests = rapid.Custom(func(t *rapid.T) ai.ResultRequest {
	return ai.ResultRequest{
		RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Grant: grants.Draw(t, "grant"),
		Envelope: envelopes.Draw(t, "envelope"), Disposition: word(ai.Dispositions()).Draw(t, "disposition"),
	}
})

var resultResponses = rapid.Custom(func(t *rapid.T) ai.ResultResponse {
	return ai.ResultResponse{
		Accepted: rapid.Bool().Draw(t, "accepted"), Duplicate: rapid.Bool().Draw(t, "duplicate"),
		State: id[string]().Draw(t, "state"),
	}
})

var releaseRequests = rapid.Custom(func(t *rapid.T) ai.ReleaseRequest {
	return ai.ReleaseRequest{
		RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Leases: listOf(grants).Draw(t, "leases"),
		Reason: word(ai.ReleaseReasons()).Draw(t, "reason"),
	}
})

var releaseResponses = rapid.Custom(func(t *rapid.T) ai.ReleaseResponse {
	return ai.ReleaseResponse{Released: listOf(id[ai.JobID]()).Draw(t, "released")}
})

var wireErrors = rapid.Custom(func(t *rapid.T) ai.Error {
	e := ai.Error{Code: word(ai.Codes()).Draw(t, "code"), Message: id[string]().Draw(t, "message")}
	if rapid.Bool().Draw(t, "wait") {
		wait := rapid.Int64Range(0, maxWhole).Draw(t, "seconds")
		e.RetryAfter = &wait
	}
	first := rapid.IntRange(0, 2).Draw(t, "which of the two")
	switch e.Code {
	case "unsupported-protocol-version":
		if first < 2 {
			e.Supported = listOf(id[string]()).Draw(t, "supported")
		}
		if first > 0 {
			e.Minimum = id[string]().Draw(t, "minimum")
		}
	case "clock-skew":
		if first < 2 {
			e.ServerTime = millis.Draw(t, "time")
		}
		if first > 0 {
			e.MaxSkewMs = rapid.Int64Range(1, maxWhole).Draw(t, "skew")
		}
	}
	return e
})

var generates = rapid.Custom(func(t *rapid.T) ai.Generate {
	return ai.Generate{Prompt: id[string]().Draw(t, "prompt"), System: optional(id[string]()).Draw(t, "system")}
})

var chats = rapid.Custom(func(t *rapid.T) ai.Chat {
	turn := rapid.Custom(func(t *rapid.T) ai.ChatMessage {
		return ai.ChatMessage{Role: word(ai.Roles()).Draw(t, "role"), Content: textOf[string](0, 6).Draw(t, "content")}
	})
	return ai.Chat{
		Messages: rapid.SliceOfN(turn, 1, 3).Draw(t, "messages"), System: optional(id[string]()).Draw(t, "system"),
	}
})

var payloads = rapid.Custom(func(t *rapid.T) ai.Payload {
	if rapid.Bool().Draw(t, "chat") {
		return chats.Draw(t, "payload")
	}
	return generates.Draw(t, "payload")
})

var outcomes = rapid.Custom(func(t *rapid.T) ai.Outcome {
	switch word(ai.Dispositions()).Draw(t, "disposition") {
	case ai.DispositionOK:
		return ai.Answer{Text: textOf[string](0, 6).Draw(t, "text"), ArtifactURL: optional(webURLs).Draw(t, "artifact")}
	case ai.DispositionError:
		return ai.Failure{
			Code: id[string]().Draw(t, "code"), Message: id[string]().Draw(t, "message"),
			Retryable: rapid.Bool().Draw(t, "retryable"),
		}
	}
	return ai.Cancellation{}
})

var sealedOutcomes = rapid.Custom(func(t *rapid.T) ai.SealedOutcome {
	return ai.SealedOutcome{Outcome: outcomes.Draw(t, "outcome"), Ran: ai.RunMetadata{
		Model: id[string]().Draw(t, "model"), BackendClass: word(backend.Classes()).Draw(t, "class"),
		DurationMs: rapid.Int64Range(0, maxWhole).Draw(t, "duration"),
	}}
})

var claimedJobs = rapid.Custom(func(t *rapid.T) ai.ClaimedJob {
	return ai.ClaimedJob{
		ID: id[ai.JobID]().Draw(t, "job"), Payload: payloads.Draw(t, "payload"),
		Audience: word(ai.Audiences()).Draw(t, "audience"), Owner: id[ai.Owner]().Draw(t, "owner"),
		Site: optional(siteIDs).Draw(t, "site"), Lease: leases.Draw(t, "lease"),
	}
})

var deliveredResults = rapid.Custom(func(t *rapid.T) ai.DeliveredResult {
	d := ai.DeliveredResult{JobID: id[ai.JobID]().Draw(t, "job"), State: word(ai.States()).Draw(t, "state")}
	if rapid.Bool().Draw(t, "has outcome") {
		d.Outcome = outcomes.Draw(t, "outcome")
	}
	if rapid.Bool().Draw(t, "has provenance") {
		d.Provenance = &ai.Provenance{
			Audience: word(ai.Audiences()).Draw(t, "audience"), RunnerID: id[ai.RunnerID]().Draw(t, "runner"),
			RunnerOwner: id[ai.Owner]().Draw(t, "owner"), BackendClass: word(backend.Classes()).Draw(t, "class"),
			Model: id[string]().Draw(t, "model"), Untrusted: rapid.Bool().Draw(t, "untrusted"),
		}
	}
	return d
})

// isBadRequest says that err is what Read and Write promise to return.
func isBadRequest(err error) bool {
	e, ok := err.(*ai.Error)
	return ok && e.Code == "bad-request" && e.Code.Status() == 400 && e.Message != "" && strings.HasSuffix(e.Message, ".")
}
