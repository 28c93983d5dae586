package shapes_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/protocol"
	"github.com/allodhq/allod/wire/ai/v0"
	"github.com/allodhq/allod/wire/ai/v2"
)

// edition is one version of the protocol, as the tests know it apart from the
// code.
type edition struct {
	codec   ai.Codec
	version string
	// words are the version's own for audiences and offers; what has none cannot
	// be said in it.
	words map[string]string
	// later is true where the version has what came with version "2".
	later bool

	subjects []subject
	contract map[string]rule
	examples map[string][]any // by message; they take a while to find, and nobody changes them
}

var editions = []*edition{
	newEdition(v0.Codec(), "0", map[string]string{"self": "self", "named": "named", "public": "public"}, false),
	newEdition(v2.Codec(), "2", map[string]string{"self": "private", "named": "team"}, true),
}

func newEdition(codec ai.Codec, version string, words map[string]string, later bool) *edition {
	e := &edition{codec: codec, version: version, words: words, later: later, examples: map[string][]any{}}
	e.contract = e.rules()
	e.subjects = []subject{
		on(e, "PairRequest", e.pairRequests()),
		on(e, "PairStartResponse", pairStartResponses),
		on(e, "PairPollResponse", e.pairPollResponses()),
		on(e, "ClaimRequest", e.claimRequests()),
		on(e, "ClaimResponse", e.claimResponses()),
		on(e, "FetchRequest", fetchRequests),
		on(e, "FetchResponse", fetchResponses),
		on(e, "HeartbeatRequest", e.heartbeatRequests()),
		on(e, "HeartbeatResponse", e.heartbeatResponses()),
		on(e, "ResultRequest", resultRequests),
		on(e, "ResultResponse", resultResponses),
		on(e, "ReleaseRequest", releaseRequests),
		on(e, "ReleaseResponse", releaseResponses),
		on(e, "Error", e.wireErrors()),
		on(e, "Generate", generates),
		on(e, "Chat", chats),
		on(e, "Outcome", e.sealedOutcomes()),
		on(e, "Stub", e.stubs()),
		on(e, "Kinded", payloads),
		on(e, "Job", e.claimedJobs()),
		on(e, "Result", e.deliveredResults()),
	}
	return e
}

// audiences are those that the version can say.
func (e *edition) audiences() []ai.Audience {
	return slices.DeleteFunc(ai.Audiences(), func(a ai.Audience) bool { return e.words[string(a)] == "" })
}

func (e *edition) offers() []ai.OfferScope {
	return slices.DeleteFunc(ai.OfferScopes(), func(o ai.OfferScope) bool { return e.words[string(o)] == "" })
}

func (e *edition) backends() []backend.ID {
	return slices.DeleteFunc(backend.IDs(), func(id backend.ID) bool { return !e.later && id == "codex-cli" })
}

func (e *edition) codes() []ai.Code {
	return slices.DeleteFunc(ai.Codes(), func(c ai.Code) bool { return !e.later && c == "daemon-below-floor" })
}

// subject is one message of a codec, its type hidden, so that one test can run
// over all of them.
type subject struct {
	e     *edition
	name  string // the codec's field
	typ   reflect.Type
	limit int
	read  func(body []byte) (any, error)
	write func(value any) ([]byte, error)
	valid *rapid.Generator[any]
}

// on finds the message by the name of its field, so that the table above cannot
// test one message under the name of another.
func on[T any](e *edition, name string, valid *rapid.Generator[T]) subject {
	m := reflect.ValueOf(e.codec).FieldByName(name).Interface().(ai.Message[T])
	return subject{
		e: e, name: name, typ: reflect.TypeFor[T](), limit: m.Limit(), valid: valid.AsAny(),
		read: func(body []byte) (any, error) { return m.Read(body) },
		write: func(value any) ([]byte, error) {
			v, _ := value.(T)
			return m.Write(v)
		},
	}
}

// rule is the contract's for the message.
func (s subject) rule() rule { return s.e.contract[s.name] }

// large says that the message may take many megabytes.
func (s subject) large() bool { return s.limit > ai.MaxBody }

// TestEveryMessageIsASubject fails for a message of a codec that no test here
// would ever see.
func TestEveryMessageIsASubject(t *testing.T) {
	for _, e := range editions {
		tested := map[string]bool{}
		for _, s := range e.subjects {
			tested[s.name] = true
		}
		messages := 0
		for f := range reflect.TypeFor[ai.Codec]().Fields() {
			if f.Type.Kind() != reflect.Interface {
				if !slices.Contains([]string{"Version", "Audiences", "Offers", "Backends"}, f.Name) {
					t.Errorf("%s is neither a message nor the version and its words", f.Name)
				}
				continue
			}
			messages++
			if !tested[f.Name] {
				t.Errorf("the message %s has no values and no rules in the tests", f.Name)
			}
			if e.contract[f.Name] == nil {
				t.Errorf("the message %s has no rules in the tests", f.Name)
			}
		}
		if messages != len(e.subjects) || messages != len(e.contract) {
			t.Errorf("%d messages, %d subjects, %d rules", messages, len(e.subjects), len(e.contract))
		}
		if e.codec.Version != e.version || !slices.Equal(e.codec.Audiences, e.audiences()) {
			t.Errorf("version %q has the audiences %v", e.codec.Version, e.codec.Audiences)
		}
	}
	if len(editions) != len(protocol.Supported()) {
		t.Errorf("%d versions are tested of %v", len(editions), protocol.Supported())
	}
}

// each runs a test over all messages of all versions.
func each(t *testing.T, run func(t *testing.T, s subject)) {
	t.Helper()
	for _, e := range editions {
		t.Run(e.version, func(t *testing.T) {
			for _, s := range e.subjects {
				t.Run(s.name, func(t *testing.T) { run(t, s) })
			}
		})
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

func (e *edition) capabilities() *rapid.Generator[ai.Capability] {
	return rapid.Custom(func(t *rapid.T) ai.Capability {
		c := ai.Capability{
			Kind: word(ai.Kinds()).Draw(t, "kind"), BackendID: word(e.backends()).Draw(t, "backend"),
			BackendClass: word(backend.Classes()).Draw(t, "class"), Model: id[string]().Draw(t, "model"),
			OfferScope: word(e.offers()).Draw(t, "scope"),
		}
		if e.later {
			c.Service = id[string]().Draw(t, "service")
			c.KnownModels = maybe(listOf(id[string]())).Draw(t, "known models")
		}
		return c
	})
}

var grants = rapid.Custom(func(t *rapid.T) ai.Grant {
	return ai.Grant{JobID: id[ai.JobID]().Draw(t, "job"), LeaseID: id[ai.LeaseID]().Draw(t, "lease")}
})

// maybe is a list that is often nil, which means absent.
func maybe[T any](g *rapid.Generator[[]T]) *rapid.Generator[[]T] {
	return rapid.OneOf(rapid.Just([]T(nil)), g)
}

func (e *edition) withheld() *rapid.Generator[ai.Withheld] {
	claimant := rapid.Custom(func(t *rapid.T) ai.Claimant {
		return ai.Claimant{Service: id[string]().Draw(t, "service"), Offer: word(e.offers()).Draw(t, "offer")}
	})
	return rapid.Custom(func(t *rapid.T) ai.Withheld {
		return ai.Withheld{Kind: word(ai.Kinds()).Draw(t, "kind"), Claimants: rapid.SliceOfN(claimant, 2, 3).Draw(t, "claimants")}
	})
}

var signedGrants = rapid.Custom(func(t *rapid.T) ai.SignedGrant {
	return ai.SignedGrant{
		GrantID: id[string]().Draw(t, "grant"), JobID: id[ai.JobID]().Draw(t, "job"), Site: siteIDs.Draw(t, "site"),
		User: id[ai.Owner]().Draw(t, "user"), Owner: id[ai.Owner]().Draw(t, "owner"), Purpose: id[string]().Draw(t, "purpose"),
		Kind: id[ai.Kind]().Draw(t, "kind"), Service: id[string]().Draw(t, "service"), IssuedAt: millis.Draw(t, "issued"),
		Signature: id[string]().Draw(t, "signature"),
	}
})

var siteSuccessions = rapid.Custom(func(t *rapid.T) ai.SiteSuccession {
	succession := rapid.Custom(func(t *rapid.T) ai.Succession {
		return ai.Succession{Identity: identities.Draw(t, "identity"), Signature: id[string]().Draw(t, "signature")}
	})
	return ai.SiteSuccession{
		Succeeds:      listOf(succession).Draw(t, "succeeds"),
		RetiringUntil: rapid.OneOf(rapid.Just(ai.Millis(0)), millis).Draw(t, "retiring until"),
	}
})

// stop is why a model stopped, where the version can say it.
func (e *edition) stop(t *rapid.T) (s ai.Stop) {
	if e.later && rapid.Bool().Draw(t, "has stopped") {
		s.Reason = optional(word(ai.StopReasons())).Draw(t, "reason")
		s.Reported = rapid.Bool().Draw(t, "reported")
	}
	return s
}

var leases = rapid.Custom(func(t *rapid.T) ai.Lease {
	return ai.Lease{
		ID: id[ai.LeaseID]().Draw(t, "lease"), RunnerID: id[ai.RunnerID]().Draw(t, "runner"),
		ExpiresAt: millis.Draw(t, "expires"),
	}
})

func (e *edition) stubs() *rapid.Generator[ai.Stub] {
	return rapid.Custom(func(t *rapid.T) ai.Stub {
		s := ai.Stub{
			ID: id[ai.JobID]().Draw(t, "job"), Kind: word(ai.Kinds()).Draw(t, "kind"),
			Owner: id[ai.Owner]().Draw(t, "owner"), Site: siteIDs.Draw(t, "site"),
			Audience: word(e.audiences()).Draw(t, "audience"), SizeClass: word(ai.SizeClasses()).Draw(t, "size"),
			Streaming: rapid.Bool().Draw(t, "streaming"), DeadlineAt: millis.Draw(t, "deadline"),
		}
		if e.later {
			s.Purpose = optional(id[string]()).Draw(t, "purpose")
		}
		return s
	})
}

var envelopes = rapid.Custom(func(t *rapid.T) ai.SealedEnvelope {
	return ai.SealedEnvelope{
		Ciphertext: id[string]().Draw(t, "ciphertext"), RecipientKeyID: siteIDs.Draw(t, "recipient"),
		SenderKeyID: siteIDs.Draw(t, "sender"), Direction: word(ai.Directions()).Draw(t, "direction"),
		DeadlineAt: millis.Draw(t, "deadline"),
	}
})

func (e *edition) pairRequests() *rapid.Generator[ai.PairRequest] {
	return rapid.Custom(func(t *rapid.T) ai.PairRequest {
		if rapid.Bool().Draw(t, "poll") {
			return ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: textOf[ai.DeviceCode](20, 30).Draw(t, "code")}}
		}
		return ai.PairRequest{Start: &ai.PairStartRequest{
			Daemon: ai.Daemon{
				Version: id[string]().Draw(t, "version"), Label: textOf[string](1, 60).Draw(t, "label"),
				Platform: word(ai.Platforms()).Draw(t, "platform"),
			},
			Device:       identities.Draw(t, "device"),
			Capabilities: listOf(e.capabilities()).Draw(t, "capabilities"),
		}}
	})
}

var pairStartResponses = rapid.Custom(func(t *rapid.T) ai.PairStartResponse {
	return ai.PairStartResponse{
		DeviceCode: textOf[ai.DeviceCode](20, 30).Draw(t, "device code"), UserCode: textOf[string](4, 8).Draw(t, "user code"),
		VerificationURL: webURLs.Draw(t, "URL"), ExpiresAt: millis.Draw(t, "expires"),
		PollIntervalMs: rapid.Int64Range(500, 60_000).Draw(t, "interval"),
	}
})

func (e *edition) pairPollResponses() *rapid.Generator[ai.PairPollResponse] {
	return rapid.Custom(func(t *rapid.T) ai.PairPollResponse {
		p := ai.PairPollResponse{Status: word(ai.PairStatuses()).Draw(t, "status")}
		if p.Status == ai.PairApproved {
			p.Approved = &ai.PairApproval{
				RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Owner: id[ai.Owner]().Draw(t, "owner"),
				OwnerLabel: optional(id[string]()).Draw(t, "label"), Sites: sites.Draw(t, "sites"),
			}
			if e.later {
				p.Approved.ControlPlane = optional(id[string]()).Draw(t, "control plane")
			}
		}
		return p
	})
}

func (e *edition) claimRequests() *rapid.Generator[ai.ClaimRequest] {
	return rapid.Custom(func(t *rapid.T) ai.ClaimRequest {
		return ai.ClaimRequest{
			RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Capabilities: listOf(e.capabilities()).Draw(t, "capabilities"),
			Max: rapid.Int64Range(1, 64).Draw(t, "max"),
		}
	})
}

func (e *edition) claimedStubs() *rapid.Generator[ai.ClaimedStub] {
	return rapid.Custom(func(t *rapid.T) ai.ClaimedStub {
		s := ai.ClaimedStub{Stub: e.stubs().Draw(t, "stub"), Lease: leases.Draw(t, "lease")}
		if e.later && rapid.Bool().Draw(t, "granted") {
			g := signedGrants.Draw(t, "grant")
			s.Grant = &g
		}
		return s
	})
}

func (e *edition) claimResponses() *rapid.Generator[ai.ClaimResponse] {
	return rapid.Custom(func(t *rapid.T) ai.ClaimResponse {
		return ai.ClaimResponse{
			Jobs: listOf(e.claimedStubs()).Draw(t, "jobs"), LeaseMs: rapid.Int64Range(1, maxWhole).Draw(t, "lease time"),
		}
	})
}

var fetchRequests = rapid.Custom(func(t *rapid.T) ai.FetchRequest {
	return ai.FetchRequest{RunnerID: id[ai.RunnerID]().Draw(t, "runner"), Grant: grants.Draw(t, "grant")}
})

var fetchResponses = rapid.Map(envelopes, func(e ai.SealedEnvelope) ai.FetchResponse { return ai.FetchResponse{Envelope: e} })

func (e *edition) heartbeatRequests() *rapid.Generator[ai.HeartbeatRequest] {
	return rapid.Custom(func(t *rapid.T) ai.HeartbeatRequest {
		h := ai.HeartbeatRequest{
			RunnerID: id[ai.RunnerID]().Draw(t, "runner"), DaemonVersion: id[string]().Draw(t, "version"),
			Capabilities: listOf(e.capabilities()).Draw(t, "capabilities"), ActiveLeases: listOf(grants).Draw(t, "leases"),
		}
		if e.later {
			h.Withheld = maybe(listOf(e.withheld())).Draw(t, "withheld")
		} else {
			h.Paused = rapid.Bool().Draw(t, "paused")
		}
		return h
	})
}

func (e *edition) heartbeatResponses() *rapid.Generator[ai.HeartbeatResponse] {
	return rapid.Custom(func(t *rapid.T) ai.HeartbeatResponse {
		h := ai.HeartbeatResponse{
			Sites: sites.Draw(t, "sites"), Cancel: listOf(grants).Draw(t, "cancel"), Lost: listOf(grants).Draw(t, "lost"),
			ServerTime: millis.Draw(t, "time"), AwaitingConsent: listOf(siteIDs).Draw(t, "awaiting"),
		}
		if e.later {
			if rapid.Bool().Draw(t, "has successions") {
				h.Successions = rapid.MapOfN(siteIDs, siteSuccessions, 0, 2).Draw(t, "successions")
			}
			h.UpdateTo = optional(id[string]()).Draw(t, "update")
		}
		return h
	})
}

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

func (e *edition) wireErrors() *rapid.Generator[ai.Error] {
	return rapid.Custom(func(t *rapid.T) ai.Error {
		w := ai.Error{Code: word(e.codes()).Draw(t, "code"), Message: id[string]().Draw(t, "message")}
		if rapid.Bool().Draw(t, "wait") {
			wait := rapid.Int64Range(0, maxWhole).Draw(t, "seconds")
			w.RetryAfter = &wait
		}
		first := rapid.IntRange(0, 2).Draw(t, "which of the two")
		switch w.Code {
		case "unsupported-protocol-version":
			if first < 2 {
				w.Supported = listOf(id[string]()).Draw(t, "supported")
			}
			if first > 0 {
				w.Minimum = id[string]().Draw(t, "minimum")
			}
		case "daemon-below-floor":
			w.Floor = id[string]().Draw(t, "floor")
		case "clock-skew":
			if first < 2 {
				w.ServerTime = millis.Draw(t, "time")
			}
			if first > 0 {
				w.MaxSkewMs = rapid.Int64Range(1, maxWhole).Draw(t, "skew")
			}
		}
		return w
	})
}

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

func (e *edition) sealedOutcomes() *rapid.Generator[ai.SealedOutcome] {
	return rapid.Custom(func(t *rapid.T) ai.SealedOutcome {
		return ai.SealedOutcome{Outcome: outcomes.Draw(t, "outcome"), Ran: ai.RunMetadata{
			Model: id[string]().Draw(t, "model"), BackendClass: word(backend.Classes()).Draw(t, "class"),
			DurationMs: rapid.Int64Range(0, maxWhole).Draw(t, "duration"), Stop: e.stop(t),
		}}
	})
}

func (e *edition) claimedJobs() *rapid.Generator[ai.ClaimedJob] {
	return rapid.Custom(func(t *rapid.T) ai.ClaimedJob {
		j := ai.ClaimedJob{
			ID: id[ai.JobID]().Draw(t, "job"), Payload: payloads.Draw(t, "payload"),
			Audience: word(e.audiences()).Draw(t, "audience"), Owner: id[ai.Owner]().Draw(t, "owner"),
			Site: optional(siteIDs).Draw(t, "site"), Lease: leases.Draw(t, "lease"),
		}
		if e.later {
			j.Service = optional(id[string]()).Draw(t, "service")
			j.DeadlineAt = rapid.OneOf(rapid.Just(ai.Millis(0)), millis).Draw(t, "deadline")
		}
		return j
	})
}

func (e *edition) deliveredResults() *rapid.Generator[ai.DeliveredResult] {
	return rapid.Custom(func(t *rapid.T) ai.DeliveredResult {
		d := ai.DeliveredResult{JobID: id[ai.JobID]().Draw(t, "job"), State: word(ai.States()).Draw(t, "state")}
		if rapid.Bool().Draw(t, "has outcome") {
			d.Outcome = outcomes.Draw(t, "outcome")
		}
		if rapid.Bool().Draw(t, "has provenance") {
			d.Provenance = &ai.Provenance{
				Audience: word(e.audiences()).Draw(t, "audience"), RunnerID: id[ai.RunnerID]().Draw(t, "runner"),
				RunnerOwner: id[ai.Owner]().Draw(t, "owner"), BackendClass: word(backend.Classes()).Draw(t, "class"),
				Model: id[string]().Draw(t, "model"), Untrusted: rapid.Bool().Draw(t, "untrusted"), Stop: e.stop(t),
			}
		}
		d.Fallback = e.later && rapid.Bool().Draw(t, "fallback")
		return d
	})
}

// isBadRequest says that err is what Read and Write promise to return.
func isBadRequest(err error) bool {
	e, ok := err.(*ai.Error)
	return ok && e.Code == "bad-request" && e.Code.Status() == 400 && e.Message != "" && strings.HasSuffix(e.Message, ".")
}
