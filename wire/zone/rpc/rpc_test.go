package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

// The methods of these tests: one for each way to prove oneself and each carrier.
var (
	sayNote = &rpc.Method{Name: "sayNote", Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Operator, rpc.Administrator},
		Carriers: rpc.HTTP | rpc.Socket | rpc.Admin, MaxRequest: 8 << 10, MaxResponse: 8 << 10, Sensitivity: rpc.Plain, Changes: true}
	enroll = &rpc.Method{Name: "enroll", Session: handshake.SparkNode, Callers: []rpc.Caller{rpc.Anyone},
		Carriers: rpc.HTTP, Sensitivity: rpc.Sensitive, Changes: true}
	beat = &rpc.Method{Name: "beat", Session: handshake.SparkNode, Callers: []rpc.Caller{rpc.NodeSpark},
		Carriers: rpc.HTTP, Sensitivity: rpc.Sensitive}
	register = &rpc.Method{Name: "register", Session: handshake.PalletRuntime, Callers: []rpc.Caller{rpc.NodePallet},
		Carriers: rpc.Socket, MaxRequest: 5 << 10, Sensitivity: rpc.Sensitive, Opens: true, Changes: true}
	observe = &rpc.Method{Name: "observe", Session: handshake.PalletRuntime, Callers: []rpc.Caller{rpc.NodePallet},
		Carriers: rpc.Socket, Sensitivity: rpc.Plain}
	local = &rpc.Method{Name: "local", Callers: []rpc.Caller{rpc.LocalPeer}, Carriers: rpc.Control,
		MaxRequest: 32768, MaxResponse: 16384, Sensitivity: rpc.Sensitive}
	later = &rpc.Method{Name: "later", Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Operator},
		Carriers: rpc.HTTP, Sensitivity: rpc.Plain}
	table = rpc.NewRegistry(sayNote, enroll, beat, register, observe, local, later)
)

// whole is a message that names what travels beside its content itself.
type whole struct {
	Text, Bearer string
	Offer        handshake.Offer
}

var wholes = codec.Of(func(o *exact.Object, w *whole) {
	member.Protocol(o, &w.Offer)
	member.Text(o, "bearer", &w.Bearer)
	member.MayBeEmpty(o, "text", &w.Text)
})

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// party has the handlers of these tests. Each is a touch of its state.
type party struct {
	touched int
	do      func(ctx context.Context, call *rpc.Call, text string) (string, error)
	last    *rpc.Call
}

func (p *party) server(auth rpc.Authenticator) *rpc.Server {
	handle := func(ctx context.Context, call *rpc.Call, n rpctest.Note) (rpctest.Note, error) {
		p.touched++
		p.last = call
		if call.Method.Opens {
			call.Open(rpc.Session{Principal: call.Principal, Ends: call.Now.Add(time.Hour)})
		}
		if p.do == nil {
			return rpctest.Note{Text: "said " + n.Text}, nil
		}
		text, err := p.do(ctx, call, n.Text)
		return rpctest.Note{Text: text}, err
	}
	notes := func(m *rpc.Method) rpc.Binding { return rpc.Bind(m, rpctest.Notes, rpctest.Notes, handle) }
	return rpc.NewServer(rpc.Config{Registry: table, Authenticator: auth, Bindings: []rpc.Binding{
		notes(sayNote), notes(enroll), notes(register), notes(observe), notes(local),
		rpc.Bind(beat, wholes, wholes, func(ctx context.Context, call *rpc.Call, w whole) (whole, error) {
			n, err := handle(ctx, call, rpctest.Note{Text: w.Text})
			return whole{n.Text, "answered", handshake.Ours(handshake.SparkNode)}, err
		}),
	}})
}

func TestF03ServerOrderForEveryMethodOnEveryCarrier(t *testing.T) {
	p := &party{}
	rpctest.Order(t, rpctest.Subject{
		Registry: table, Server: p.server, Now: now,
		State:   func() int { return p.touched },
		Request: func(*rpc.Method) string { return `{"text":"x"}` },
	})
	if p.touched < 5 {
		t.Errorf("handlers were reached %d times", p.touched)
	}
}

// complaints is a rpctest.TB that keeps what it is told.
type complaints struct{ said []string }

func (*complaints) Helper()                        {}
func (c *complaints) Errorf(f string, args ...any) { c.said = append(c.said, fmt.Sprintf(f, args...)) }
func (c *complaints) Fatalf(f string, args ...any) { c.Errorf(f, args...); panic(c) }

func (c *complaints) must(t *testing.T, what string) {
	t.Helper()
	if !slices.ContainsFunc(c.said, func(s string) bool { return strings.Contains(s, what) }) {
		t.Errorf("nobody says %q but %q", what, c.said)
	}
}

// The proof itself has to fail where there is something to find.
func TestOrderNoticesAServerThatLooksEarly(t *testing.T) {
	p := &party{}
	early := &complaints{}
	rpctest.Order(early, rpctest.Subject{
		Registry: table, Now: now,
		Server: func(a rpc.Authenticator) *rpc.Server {
			p.touched++ // as if making it read something
			return p.server(a)
		},
		State:   func() int { return p.touched },
		Request: func(*rpc.Method) string { return `{"text":"x"}` },
	})
	early.must(t, "has touched the state")

	unreached := &complaints{}
	rpctest.Order(unreached, rpctest.Subject{
		Registry: table, Server: p.server, Now: now,
		State:   func() int { return p.touched },
		Request: func(*rpc.Method) string { return `{"wrong":"x"}` },
	})
	unreached.must(t, "a request without a fault is refused")

	func() {
		empty := &complaints{}
		defer func() {
			if recover() == nil {
				t.Error("an empty table proves something")
			}
		}()
		rpctest.Order(empty, rpctest.Subject{Registry: rpc.NewRegistry(), Server: p.server, State: func() int { return 0 }})
	}()
}

// says is an authenticator.
type says func(c rpc.Credential) (rpc.Principal, error)

func (f says) Authenticate(_ context.Context, c rpc.Credential) (rpc.Principal, error) { return f(c) }

func is(p rpc.Principal) says {
	return func(rpc.Credential) (rpc.Principal, error) { return p, nil }
}

var (
	ann    = rpc.Principal{Caller: rpc.Operator, Subject: "ann", Organization: "one"}
	bob    = rpc.Principal{Caller: rpc.Operator, Subject: "bob", Organization: "one"}
	pallet = rpc.Principal{Caller: rpc.NodePallet, Subject: "node-a", Generation: 1, Epoch: 1}
)

const (
	goodOffer = `"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}`
	identity  = `"identity":{"jwt":"` + rpctest.Token + `"}`
)

func ask(method, request string) []byte {
	return []byte(`{"method":"` + method + `","request":{` + request + `},"response":null,"correlation":{"id":"uni_1","phase":"request"}}`)
}

// TestAnswersAsBytes holds the answers byte for byte: they are what peers of other
// makes read.
func TestAnswersAsBytes(t *testing.T) {
	p := &party{}
	say := func(request string) []byte { return ask("sayNote", request) }
	const head = `{"method":"sayNote","correlation":{"id":"uni_1","phase":"response"},`
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"success": {say(`"text":"hé",` + identity + `,` + goodOffer), head + `"response":{"text":"said hé",` + goodOffer + `}}`},
		"named refusal": {ask("noSuch", ``),
			`{"method":"","correlation":{"id":"uni_1","phase":"response"},"error":{"text":"method-unknown: This side has no method of that name.","data":{"code":"method-unknown"}}}`},
		"protocol refusal": {say(`"protocol":{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"}`),
			head + `"error":{"text":"protocol-incompatible: major-mismatch: refusing side speaks 32.0.0 and accepts from 32.0.0; refused side speaks 33.1.0 and accepts from 33.0.0",` +
				`"data":{"code":"protocol-incompatible","reason":"major-mismatch","refusing":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"},"refused":{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"}}}}`},
		"every reason": {say(`"text":7,"identity":{"jwt":"a b"},` + goodOffer + `,"more":1`),
			head + `"error":{"text":"request-schema-invalid: The request is not exactly the message of this method; the reasons list every difference.",` +
				`"data":{"code":"request-schema-invalid","reasons":["request.text must be a string","request.identity.jwt must be a token of at most 2048 bytes","request must use its exact schema"]}}}`},
		"no JSON": {[]byte(`{"method":`),
			`{"method":"","error":{"text":"request-envelope-invalid: The text is not the envelope of one typed request.","data":{"code":"request-envelope-invalid"}}}`},
	} {
		got := p.server(is(ann)).Serve(t.Context(), c.body, rpc.Incoming{Carrier: rpc.HTTP, Now: now})
		if string(got.Body) != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got.Body, c.want)
		}
	}
}

func TestHandlerErrorsTravelNamedAndOthersAsInternal(t *testing.T) {
	const secret = "canary-9d1c"
	kind := refusal.NewKind("test-busy", 503, "The test is busy.", "Wait for the test.")
	for name, c := range map[string]struct {
		err        error
		want       string
		with       string
		registries []refusal.Registry
	}{
		"kind":    {kind, "test-busy", "", []refusal.Registry{{Kinds: []*refusal.Kind{kind}}}},
		"detail":  {kind.With("It has two jobs.").After(1500 * time.Millisecond).Because(errors.New(secret)), "test-busy", "It has two jobs.", []refusal.Registry{{Kinds: []*refusal.Kind{kind}}}},
		"unknown": {kind, "peer-refused", "It calls it test-busy.", nil},
		"other":   {fmt.Errorf("sql: %s", secret), "internal", "", nil},
		"panic":   {nil, "internal", "", nil},
		"reasons": {rpc.Invalid("request.a must be b"), "request-schema-invalid", "", nil},
		"long":    {kind.With(strings.Repeat("x", 5000)), "test-busy", "", []refusal.Registry{{Kinds: []*refusal.Kind{kind}}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &party{do: func(context.Context, *rpc.Call, string) (string, error) {
				if c.err == nil {
					panic(secret)
				}
				return "half " + secret, c.err
			}}
			a := p.server(is(ann)).Serve(t.Context(), ask("sayNote", `"text":"",`+identity+`,`+goodOffer), rpc.Incoming{Carrier: rpc.HTTP, Now: now})
			if strings.Contains(string(a.Body), secret) {
				t.Errorf("the answer shows the cause: %s", a.Body)
			}
			if a.Err == nil {
				t.Error("the log hears nothing")
			}
			_, err := rpc.ReadAnswer(sayNote, rpctest.Notes, a.Body, rpc.Outgoing{Carrier: rpc.HTTP, ID: "uni_1"}, c.registries...)
			r := refusal.From(err)
			if r.Kind().Name() != c.want || r.Detail() != c.with {
				t.Errorf("read back as %v, detail %q", err, r.Detail())
			}
			if name == "detail" && r.RetryAfter() != 1500*time.Millisecond {
				t.Errorf("the wait is %v", r.RetryAfter())
			}
			if name == "reasons" && !slices.Equal(rpc.Reasons(err), []string{"request.a must be b"}) {
				t.Errorf("the reasons are %q", rpc.Reasons(err))
			}
		})
	}
}

func TestPanicIsToldWithoutItsValue(t *testing.T) {
	var told []string
	s := rpc.NewServer(rpc.Config{Registry: table, Authenticator: is(ann),
		Panicked: func(m *rpc.Method) { told = append(told, m.Name) },
		Bindings: []rpc.Binding{rpc.Bind(sayNote, rpctest.Notes, rpctest.Notes, func(context.Context, *rpc.Call, rpctest.Note) (rpctest.Note, error) {
			panic("canary-77")
		})}})
	a := s.Serve(t.Context(), ask("sayNote", `"text":"",`+identity+`,`+goodOffer), rpc.Incoming{Carrier: rpc.HTTP, Now: now})
	if !errors.Is(a.Err, refusal.Internal) || !slices.Equal(told, []string{"sayNote"}) || strings.Contains(fmt.Sprint(refusal.From(a.Err).LogValue()), "canary") {
		t.Errorf("%v, told %q", a.Err, told)
	}
}

// Over a socket nobody else would catch it: the whole process would end.
func TestAPanicBesideTheHandlerIsToldToo(t *testing.T) {
	var told []string
	s := rpc.NewServer(rpc.Config{Registry: table,
		Authenticator: says(func(rpc.Credential) (rpc.Principal, error) { panic("canary-78") }),
		Panicked:      func(m *rpc.Method) { told = append(told, m.Name) },
		Bindings:      []rpc.Binding{rpc.Bind(sayNote, rpctest.Notes, rpctest.Notes, func(_ context.Context, _ *rpc.Call, n rpctest.Note) (rpctest.Note, error) { return n, nil })},
	})
	a := s.Serve(t.Context(), ask("sayNote", `"text":"",`+identity+`,`+goodOffer), rpc.Incoming{Carrier: rpc.HTTP, Now: now})
	if !errors.Is(a.Err, refusal.Internal) || !slices.Equal(told, []string{"sayNote"}) || !strings.Contains(string(a.Body), `"internal"`) {
		t.Errorf("%v, told %q: %s", a.Err, told, a.Body)
	}
	if strings.Contains(string(a.Body)+fmt.Sprint(refusal.From(a.Err).LogValue()), "canary") {
		t.Error("its value is told")
	}
}

func TestF03ClientAlsoJudgesTheAnswersOffer(t *testing.T) {
	newer, err := handshake.Make("32.5.0", "32.5.0")
	if err != nil {
		t.Fatal(err)
	}
	p := &party{}
	sent := rpc.Outgoing{Carrier: rpc.HTTP, ID: "a-1", Token: zone.Conceal(rpctest.Token), Offer: newer}
	for name, answer := range map[string]string{
		"too old":     `{"method":"sayNote","response":{"text":"x",` + goodOffer + `},"correlation":{"id":"a-1","phase":"response"}}`,
		"other major": `{"method":"sayNote","response":{"text":"x","protocol":{"interfacesVersion":"33.0.0","minimumPeerVersion":"33.0.0"}},"correlation":{"id":"a-1","phase":"response"}}`,
	} {
		var i *rpc.Incompatible
		if _, err := rpc.ReadAnswer(sayNote, rpctest.Notes, []byte(answer), sent); !errors.As(err, &i) || i.Wait() != 300*time.Second {
			t.Errorf("%s: %v", name, err)
		}
	}
	// And the server's own refusal arrives as the same type.
	body, err := rpc.WriteRequest(sayNote, rpctest.Notes, rpctest.Note{Text: "x"}, sent)
	if err != nil {
		t.Fatal(err)
	}
	a := p.server(is(ann)).Serve(t.Context(), body, rpc.Incoming{Carrier: rpc.HTTP, Now: now})
	var i *rpc.Incompatible
	if _, err := rpc.ReadAnswer(sayNote, rpctest.Notes, a.Body, sent); !errors.As(err, &i) || i.Refusal.Reason != handshake.SelfBelowPeerMinimum {
		t.Errorf("%v", err)
	}
}

func TestF03OnlyAnExactRefusalIsOne(t *testing.T) {
	for _, data := range []string{
		`{"code":"protocol-incompatible"}`,
		`{"code":"protocol-incompatible","reason":"major-mismatch"}`,
		`{"code":"protocol-incompatible","reason":"other","refusing":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"},"refused":{"interfacesVersion":"33.0.0","minimumPeerVersion":"33.0.0"}}`,
		`"protocol-incompatible"`, `null`, `[]`,
	} {
		err := rpc.ReadError([]byte(`{"text":"protocol-incompatible: major-mismatch: and so on","data":` + data + `}`))
		var i *rpc.Incompatible
		if errors.As(err, &i) || errors.Is(err, handshake.ErrIncompatible) || !errors.Is(err, rpc.ErrForeign) {
			t.Errorf("%s: %v", data, err)
		}
	}
}

// TestEnvelopesOfThePublishedLibrary are bytes that @api.global/typedrequest 3.3.0
// was seen to send.
func TestEnvelopesOfThePublishedLibrary(t *testing.T) {
	p := &party{}
	good := `{"method":"sayNote","request":{"text":"x",` + identity + `,` + goodOffer + `},"response":null,"correlation":{"id":"uni_68bc8b2585e3f2c318fb1ce5","phase":"request"}}`
	a := p.server(is(ann)).Serve(t.Context(), []byte(good), rpc.Incoming{Carrier: rpc.HTTP, Now: now})
	if a.Err != nil {
		t.Fatal(a.Err)
	}
	// Its router sends the request back, with what it has in memory as null.
	for name, c := range map[string]struct {
		answer string
		want   error
	}{
		"success": {`{"method":"sayNote","request":{"text":"x"},"response":{"text":"y",` + goodOffer + `},"correlation":{"id":"i","phase":"response"},"localData":null}`, nil},
		"refusal": {`{"method":"sayNote","request":{"bad":1},"response":null,"correlation":{"id":"i","phase":"response"},"localData":null,"error":{"text":"n: t","data":{"code":"n"}}}`, rpc.ErrForeign},
		"no method": {`{"method":"none","request":{},"response":null,"correlation":{"id":"i","phase":"response"},"localData":null,` +
			`"error":{"text":"There is no available method for this call on the server side","data":{}}}`, rpc.ErrForeign},
		"nothing at all": {`{"method":"sayNote","request":{},"response":null,"correlation":{"id":"i","phase":"response"},"localData":null}`, rpc.ErrAnswer},
		"retry":          {`{"method":"sayNote","response":{},"correlation":{"id":"i","phase":"response"},"retry":{"waitForMs":10,"reason":"r"}}`, rpc.ErrWait},
		"endless retry":  {`{"method":"sayNote","response":{},"correlation":{"id":"i","phase":"response"},"retry":{"waitForMs":9007199254740991,"reason":"r"}}`, rpc.ErrWait},
	} {
		_, err := rpc.ReadAnswer(sayNote, rpctest.Notes, []byte(c.answer), rpc.Outgoing{Carrier: rpc.HTTP, ID: "i"})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if w := refusal.From(err); err != nil && w.RetryAfter() > time.Hour {
			t.Errorf("%s: waits %v", name, w.RetryAfter())
		}
	}
}

func TestHostileEnvelopes(t *testing.T) {
	p := &party{}
	inside := `"request":{"text":"x",` + identity + `,` + goodOffer + `},"correlation":{"id":"i","phase":"request"}`
	for name, body := range map[string]string{
		"empty": ``, "null": `null`, "list": `[]`, "text": `"x"`, "number": `1`, "two": `{} {}`,
		"truncated":          `{"method":"sayNote",` + inside,
		"trailing":           `{"method":"sayNote",` + inside + `}x`,
		"duplicate":          `{"method":"sayNote","method":"sayNote",` + inside + `}`,
		"duplicate escaped":  `{"method":"sayNote","m\u0065thod":"sayNote",` + inside + `}`,
		"wrong case":         `{"Method":"sayNote",` + inside + `}`,
		"unknown":            `{"method":"sayNote","authInfo":{"jwt":"x"},` + inside + `}`,
		"server data":        `{"method":"sayNote","serverData":{},` + inside + `}`,
		"local data":         `{"method":"sayNote","localData":{"a":1},` + inside + `}`,
		"no method":          `{` + inside + `}`,
		"empty method":       `{"method":"",` + inside + `}`,
		"long method":        `{"method":"` + strings.Repeat("m", 65) + `",` + inside + `}`,
		"null method":        `{"method":null,` + inside + `}`,
		"answered already":   `{"method":"sayNote","response":{},` + inside + `}`,
		"failed already":     `{"method":"sayNote","error":{"text":"a","data":{}},` + inside + `}`,
		"retry":              `{"method":"sayNote","retry":{"waitForMs":1,"reason":""},` + inside + `}`,
		"no request":         `{"method":"sayNote","correlation":{"id":"i","phase":"request"}}`,
		"no correlation":     `{"method":"sayNote","request":{}}`,
		"null correlation":   `{"method":"sayNote","request":{},"correlation":null}`,
		"phase":              `{"method":"sayNote","request":{},"correlation":{"id":"i","phase":"response"}}`,
		"other phase":        `{"method":"sayNote","request":{},"correlation":{"id":"i","phase":"Request"}}`,
		"empty id":           `{"method":"sayNote","request":{},"correlation":{"id":"","phase":"request"}}`,
		"long id":            `{"method":"sayNote","request":{},"correlation":{"id":"` + strings.Repeat("i", 129) + `","phase":"request"}}`,
		"id with quotes":     `{"method":"sayNote","request":{},"correlation":{"id":"a\"b","phase":"request"}}`,
		"id with a line":     `{"method":"sayNote","request":{},"correlation":{"id":"a\nb","phase":"request"}}`,
		"more in the id":     `{"method":"sayNote","request":{},"correlation":{"id":"i","phase":"request","x":1}}`,
		"deep":               strings.Repeat(`{"request":`, 100000) + `1` + strings.Repeat(`}`, 100000),
		"deep list":          `{"method":"sayNote","request":` + strings.Repeat(`[`, 3000) + strings.Repeat(`]`, 3000) + `}`,
		"many":               `{"method":"sayNote","request":[` + strings.Repeat(`0,`, 40000) + `0]}`,
		"invalid UTF-8":      "{\"method\":\"say\xff\"," + inside + `}`,
		"lone surrogate":     `{"method":"\ud800",` + inside + `}`,
		"byte order mark":    "\ufeff" + `{"method":"sayNote",` + inside + `}`,
		"single quotes":      `{'method':'sayNote'}`,
		"not a number":       `{"method":NaN}`,
		"control characters": "{\"method\":\"a\x00b\"," + inside + `}`,
	} {
		a := p.server(is(ann)).Serve(t.Context(), []byte(body), rpc.Incoming{Carrier: rpc.HTTP, Now: now})
		if !errors.Is(a.Err, rpc.ErrEnvelope) && !errors.Is(a.Err, rpc.ErrTooLarge) {
			t.Errorf("%s: %v", name, a.Err)
		}
		if len(a.Body) > 1024 {
			t.Errorf("%s: the answer has %d bytes", name, len(a.Body))
		}
	}
	if p.touched != 0 {
		t.Error("a handler was reached")
	}
}

// TestRequestThatIsNoObject: the content is judged by the schema, after the offer.
func TestRequestThatIsNoObject(t *testing.T) {
	p := &party{}
	for request, want := range map[string]error{`null`: handshake.ErrOffer, `[]`: handshake.ErrOffer, `"x"`: handshake.ErrOffer} {
		body := `{"method":"sayNote","request":` + request + `,"correlation":{"id":"i","phase":"request"}}`
		if a := p.server(is(ann)).Serve(t.Context(), []byte(body), rpc.Incoming{Carrier: rpc.HTTP, Now: now}); !errors.Is(a.Err, want) {
			t.Errorf("%s: %v", request, a.Err)
		}
		body = `{"method":"local","request":` + request + `}`
		if a := p.server(is(ann)).Serve(t.Context(), []byte(body), rpc.Incoming{Carrier: rpc.Control, Now: now}); !errors.Is(a.Err, rpc.ErrSchema) {
			t.Errorf("%s: %v", request, a.Err)
		}
	}
}

func TestF36SessionsOnASocket(t *testing.T) {
	p := &party{}
	at := rpc.Session{Principal: pallet, Ends: now.Add(time.Minute)}
	newer := pallet
	newer.Generation, newer.Epoch = 2, 2
	other := rpc.Principal{Caller: rpc.NodePallet, Subject: "node-b"}
	open := `"text":"x","bearer":"` + rpctest.Bearer + `",` + goodOffer
	for name, c := range map[string]struct {
		method, request string
		session         *rpc.Session
		auth            rpc.Authenticator
		want            error
	}{
		"before one is open":          {"observe", `"text":"x"`, nil, is(pallet), rpc.ErrNoSession},
		"opened":                      {"register", open, nil, is(pallet), nil},
		"opened over HTTP's members":  {"register", open + `,` + identity, nil, is(pallet), rpc.ErrSchema},
		"in the session":              {"observe", `"text":"x"`, &at, is(pallet), nil},
		"credential not from payload": {"observe", `"text":"x","bearer":"` + rpctest.Bearer + `"`, &at, is(pallet), rpc.ErrSchema},
		"offer again":                 {"observe", `"text":"x",` + goodOffer, &at, is(pallet), rpc.ErrSchema},
		"over at its end":             {"observe", `"text":"x"`, &rpc.Session{Principal: pallet, Ends: now}, is(pallet), rpc.ErrSessionOver},
		"revoked since":               {"observe", `"text":"x"`, &at, says(func(rpc.Credential) (rpc.Principal, error) { return rpc.Principal{}, rpc.ErrCredential }), rpc.ErrCredential},
		"now another's":               {"observe", `"text":"x"`, &at, is(other), rpc.ErrSessionOther},
		"opened again":                {"register", open, &at, is(newer), nil},
		"opened again for another":    {"register", open, &at, is(other), rpc.ErrSessionOther},
		"opened by another, later":    {"register", open, &rpc.Session{Principal: pallet, Ends: now}, is(other), nil},
	} {
		a := p.server(c.auth).Serve(t.Context(), ask(c.method, c.request), rpc.Incoming{Carrier: rpc.Socket, Session: c.session, Now: now})
		if !errors.Is(a.Err, c.want) {
			t.Errorf("%s: %v, want %v", name, a.Err, c.want)
		}
		if (a.Opened != nil) != (c.want == nil && c.method == "register") {
			t.Errorf("%s: opened %v", name, a.Opened)
		}
	}
}

// TestAnyoneMayRegisterAgainAsTheSame: where the handler alone knows who it is.
func TestAnyoneMayRegisterAgainAsTheSame(t *testing.T) {
	m := &rpc.Method{Name: "register", Session: handshake.CloudlyClient, Callers: []rpc.Caller{rpc.Anyone}, Carriers: rpc.Socket, Sensitivity: rpc.Sensitive, Opens: true}
	s := rpc.NewServer(rpc.Config{Registry: rpc.NewRegistry(m), Authenticator: is(bob), Bindings: []rpc.Binding{
		rpc.Bind(m, rpctest.Notes, rpctest.Notes, func(_ context.Context, call *rpc.Call, n rpctest.Note) (rpctest.Note, error) {
			call.Open(rpc.Session{Principal: rpc.Principal{Caller: rpc.Operator, Subject: n.Text, Organization: "one"}})
			return n, nil
		})}})
	for who, want := range map[string]error{"ann": nil, "bob": rpc.ErrSessionOther} {
		a := s.Serve(t.Context(), ask("register", `"text":"`+who+`",`+goodOffer), rpc.Incoming{Carrier: rpc.Socket, Session: &rpc.Session{Principal: ann}, Now: now})
		if !errors.Is(a.Err, want) || (a.Opened != nil) != (want == nil) {
			t.Errorf("%s: %v", who, a.Err)
		}
	}
}

func TestIdentityOnASocketMustBeTheSessions(t *testing.T) {
	p := &party{}
	session := &rpc.Session{Principal: ann}
	admin := ann
	admin.Caller = rpc.Administrator
	asked := 0
	auth := func(of rpc.Principal) says {
		return func(c rpc.Credential) (rpc.Principal, error) {
			asked++
			if c.Session != nil {
				return ann, nil
			}
			if c.Token.Reveal() != rpctest.Token {
				t.Errorf("the token is %q", c.Token.Reveal())
			}
			return of, nil
		}
	}
	for name, c := range map[string]struct {
		request string
		of      rpc.Principal
		want    error
		asked   int
	}{
		"left out":    {`"text":"x"`, bob, nil, 1},
		"the same":    {`"text":"x",` + identity, ann, nil, 2},
		"as a role":   {`"text":"x",` + identity, admin, nil, 2},
		"another's":   {`"text":"x",` + identity, bob, rpc.ErrSessionOther, 2},
		"other place": {`"text":"x",` + identity, rpc.Principal{Caller: rpc.Operator, Subject: "ann", Organization: "two"}, rpc.ErrSessionOther, 2},
		"a machine":   {`"text":"x",` + identity, rpc.Principal{Caller: rpc.ServiceMachine, Subject: "ann", Organization: "one"}, rpc.ErrSessionOther, 2},
	} {
		asked = 0
		a := p.server(auth(c.of)).Serve(t.Context(), ask("sayNote", c.request), rpc.Incoming{Carrier: rpc.Socket, Session: session, Now: now})
		if !errors.Is(a.Err, c.want) || asked != c.asked {
			t.Errorf("%s: %v, asked %d times", name, a.Err, asked)
		}
		if c.want == nil && p.last.Principal != ann {
			t.Errorf("%s: the principal is %v", name, p.last.Principal)
		}
	}
}

// TestF06SecretsDoNotPrint looks for a bearer in everything that can be printed.
func TestF06SecretsDoNotPrint(t *testing.T) {
	const canary = "canary-31bb"
	s := zone.Conceal(canary)
	if s.Reveal() != canary {
		t.Fatal("nothing was planted")
	}
	c := rpc.Credential{Bearer: s, Token: s}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "credential", c)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "credential", c)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		log.WriteString(fmt.Sprintf(format, s) + fmt.Sprintf(format, c) + fmt.Sprintf(format, &c))
	}
	if strings.Contains(log.String(), canary) || strings.Contains(log.String(), fmt.Sprintf("%x", canary)) || strings.Contains(log.String(), fmt.Sprintf("%X", canary)) {
		t.Errorf("it prints: %s", log.String())
	}
}

func TestRoundTripOnEveryCarrier(t *testing.T) {
	p := &party{}
	for _, c := range []struct {
		m    *rpc.Method
		over rpc.Carrier
		as   rpc.Principal
		in   *rpc.Session
	}{
		{sayNote, rpc.HTTP, ann, nil},
		{sayNote, rpc.Admin, rpc.Principal{Caller: rpc.Administrator}, nil},
		{sayNote, rpc.Socket, ann, &rpc.Session{Principal: ann}},
		{enroll, rpc.HTTP, rpc.Principal{}, nil},
		{register, rpc.Socket, pallet, nil},
		{observe, rpc.Socket, pallet, &rpc.Session{Principal: pallet}},
		{local, rpc.Control, rpc.Principal{Caller: rpc.LocalPeer}, nil},
	} {
		out := rpc.Outgoing{Carrier: c.over, ID: "r-1", Bearer: zone.Conceal(rpctest.Bearer), Token: zone.Conceal(rpctest.Token)}
		if c.over == rpc.Control {
			out.ID = ""
		}
		body, err := rpc.WriteRequest(c.m, rpctest.Notes, rpctest.Note{Text: "hé\"\n"}, out)
		if err != nil {
			t.Fatal(err)
		}
		a := p.server(is(c.as)).Serve(t.Context(), body, rpc.Incoming{Carrier: c.over, Session: c.in, Now: now})
		got, err := rpc.ReadAnswer(c.m, rpctest.Notes, a.Body, out)
		if err != nil || got.Text != "said hé\"\n" {
			t.Errorf("%s over %d: %q, %v; %s -> %s", c.m.Name, c.over, got.Text, err, body, a.Body)
		}
		if want := c.m.Takes(c.over).Offer; p.last.Offer.IsZero() == want {
			t.Errorf("%s over %d: the handler has the offer %v", c.m.Name, c.over, p.last.Offer)
		}
	}
	out := rpc.Outgoing{Carrier: rpc.HTTP, ID: "r-2"}
	body, err := rpc.WriteRequest(beat, wholes, whole{"x", rpctest.Bearer, handshake.Ours(handshake.SparkNode)}, out)
	if err != nil {
		t.Fatal(err)
	}
	auth := says(func(c rpc.Credential) (rpc.Principal, error) {
		if c.Bearer.Reveal() != rpctest.Bearer {
			t.Errorf("the bearer is %q", c.Bearer.Reveal())
		}
		return rpc.Principal{Caller: rpc.NodeSpark}, nil
	})
	a := p.server(auth).Serve(t.Context(), body, rpc.Incoming{Carrier: rpc.HTTP, Now: now})
	got, err := rpc.ReadAnswer(beat, wholes, a.Body, out)
	if err != nil || got.Text != "said x" || got.Bearer != "answered" {
		t.Errorf("a message that names its own: %v, %v: %s", got, err, a.Body)
	}
}

func TestSizesBothWays(t *testing.T) {
	p := &party{}
	out := rpc.Outgoing{Carrier: rpc.HTTP, ID: "r-1", Token: zone.Conceal(rpctest.Token)}
	fits := func(n int) error {
		_, err := rpc.WriteRequest(sayNote, rpctest.Notes, rpctest.Note{Text: strings.Repeat("x", n)}, out)
		return err
	}
	n := 8 << 10
	for fits(n) != nil {
		n--
	}
	if !errors.Is(fits(n+1), rpc.ErrRequest) {
		t.Error("a larger request is written")
	}
	body, _ := rpc.WriteRequest(sayNote, rpctest.Notes, rpctest.Note{Text: strings.Repeat("x", n)}, out)
	if len(body) != 8<<10 {
		t.Fatalf("the largest request has %d bytes", len(body))
	}
	p.do = func(context.Context, *rpc.Call, string) (string, error) { return "", nil }
	if a := p.server(is(ann)).Serve(t.Context(), body, rpc.Incoming{Carrier: rpc.HTTP, Now: now}); a.Err != nil {
		t.Errorf("the largest request: %v", a.Err)
	}
	if a := p.server(is(ann)).Serve(t.Context(), append(body, ' '), rpc.Incoming{Carrier: rpc.HTTP, Now: now}); !errors.Is(a.Err, rpc.ErrTooLarge) {
		t.Errorf("one byte more: %v", a.Err)
	}
	p.do = func(context.Context, *rpc.Call, string) (string, error) { return strings.Repeat("x", 8<<10), nil }
	a := p.server(is(ann)).Serve(t.Context(), ask("sayNote", `"text":"",`+identity+`,`+goodOffer), rpc.Incoming{Carrier: rpc.HTTP, Now: now})
	if !errors.Is(a.Err, rpc.ErrAnswerSize) || len(a.Body) > 1024 {
		t.Errorf("a large answer: %v", a.Err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	sent := rpc.Outgoing{Carrier: rpc.HTTP, ID: "i"}
	inside := `"response":{"text":"x",` + goodOffer + `}`
	for name, body := range map[string]string{
		"empty": ``, "HTML": `<html>`, "other id": `{"method":"sayNote",` + inside + `,"correlation":{"id":"j","phase":"response"}}`,
		"other method": `{"method":"enroll",` + inside + `,"correlation":{"id":"i","phase":"response"}}`,
		"a request":    `{"method":"sayNote",` + inside + `,"correlation":{"id":"i","phase":"request"}}`,
		"no id":        `{"method":"sayNote",` + inside + `}`,
		"no offer":     `{"method":"sayNote","response":{"text":"x"},"correlation":{"id":"i","phase":"response"}}`,
		"more":         `{"method":"sayNote","response":{"text":"x","y":1,` + goodOffer + `},"correlation":{"id":"i","phase":"response"}}`,
		"bad error":    `{"method":"sayNote","error":{"txt":"x"},"correlation":{"id":"i","phase":"response"}}`,
		"error for another": `{"method":"sayNote","error":{"text":"method-unknown: x","data":{"code":"method-unknown"}},` +
			`"correlation":{"id":"j","phase":"response"}}`,
		"large": `{"method":"sayNote",` + inside + `,"correlation":{"id":"i","phase":"response"}}` + strings.Repeat(" ", 16<<10),
	} {
		if got, err := rpc.ReadAnswer(sayNote, rpctest.Notes, []byte(body), sent); !errors.Is(err, rpc.ErrAnswer) || got != (rpctest.Note{}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A refusal of a request that was not readable has no correlation.
	err := rpc.ErrMethod
	if _, got := rpc.ReadAnswer(sayNote, rpctest.Notes, []byte(`{"method":"","error":{"text":"method-unknown: x","data":{"code":"method-unknown"}}}`), sent); !errors.Is(got, err) {
		t.Errorf("without a correlation: %v", got)
	}
}

func TestRefuseIsAnAnswer(t *testing.T) {
	f := rpc.ReadFrame(ask("sayNote", ``), 4096)
	body := rpc.Refuse(f, rpc.Socket, rpc.ErrDeadline.With("").After(time.Second))
	_, err := rpc.ReadAnswer(sayNote, rpctest.Notes, body, rpc.Outgoing{Carrier: rpc.Socket, ID: "uni_1"})
	if !errors.Is(err, rpc.ErrDeadline) || refusal.From(err).RetryAfter() != time.Second {
		t.Errorf("%s: %v", body, err)
	}
	if got := rpc.ReadFrame(body, 4096); !got.Failed() || !got.IsAnswer() || f.Failed() || f.IsAnswer() {
		t.Errorf("%s is not told from %s", body, ask("sayNote", ``))
	}
}

func TestForeignTextIsMadePrintable(t *testing.T) {
	err := rpc.ReadError([]byte(`{"text":"x","data":{"code":"method-unknown","detail":"a\u001b[2Jb\u202ec\u0085d"}}`))
	if got := refusal.From(err).Detail(); got != "a.[2Jb.c.d" {
		t.Errorf("the detail is %q", got)
	}
	for _, code := range []string{`A`, `a b`, `\u001b`, strings.Repeat("x", 65)} {
		if got := refusal.From(rpc.ReadError([]byte(`{"text":"x","data":{"code":"` + code + `"}}`))); got.Kind() != rpc.ErrForeign || got.Detail() != "" {
			t.Errorf("%s: %v", code, got)
		}
	}
}

func TestRegistryRefusesMistakes(t *testing.T) {
	good := func() *rpc.Method {
		return &rpc.Method{Name: "a", Session: handshake.SparkNode, Callers: []rpc.Caller{rpc.Operator}, Carriers: rpc.HTTP, Sensitivity: rpc.Plain}
	}
	rpc.NewRegistry(good())
	for name, change := range map[string]func(m *rpc.Method){
		"no name":             func(m *rpc.Method) { m.Name = "" },
		"name":                func(m *rpc.Method) { m.Name = "a-b" },
		"capital":             func(m *rpc.Method) { m.Name = "Ab" },
		"nobody":              func(m *rpc.Method) { m.Callers = nil },
		"unknown caller":      func(m *rpc.Method) { m.Callers = []rpc.Caller{"root"} },
		"two ways":            func(m *rpc.Method) { m.Callers = []rpc.Caller{rpc.Operator, rpc.NodeSpark} },
		"anyone and a peer":   func(m *rpc.Method) { m.Callers = []rpc.Caller{rpc.Anyone, rpc.LocalPeer} },
		"no carrier":          func(m *rpc.Method) { m.Carriers = 0 },
		"unknown carrier":     func(m *rpc.Method) { m.Carriers = 16 },
		"no session":          func(m *rpc.Method) { m.Session = "" },
		"unknown session":     func(m *rpc.Method) { m.Session = "x" },
		"bound":               func(m *rpc.Method) { m.MaxRequest = -1 },
		"no sensitivity":      func(m *rpc.Method) { m.Sensitivity = 0 },
		"unknown sensitivity": func(m *rpc.Method) { m.Sensitivity = 3 },
		"opens over HTTP":     func(m *rpc.Method) { m.Opens, m.Carriers = true, rpc.HTTP|rpc.Socket },
	} {
		m := good()
		change(m)
		panics(t, name, func() { rpc.NewRegistry(m) })
	}
	panics(t, "twice", func() { rpc.NewRegistry(good(), good()) })
	bind := func(m *rpc.Method) rpc.Binding {
		return rpc.Bind(m, rpctest.Notes, rpctest.Notes, func(context.Context, *rpc.Call, rpctest.Note) (rpctest.Note, error) { return rpctest.Note{}, nil })
	}
	m := good()
	panics(t, "bound and unknown", func() {
		rpc.NewServer(rpc.Config{Registry: rpc.NewRegistry(m), Bindings: []rpc.Binding{bind(good())}})
	})
	panics(t, "bound twice", func() {
		rpc.NewServer(rpc.Config{Registry: rpc.NewRegistry(m), Bindings: []rpc.Binding{bind(m), bind(m)}})
	})
}

func panics(t *testing.T, name string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", name)
		}
	}()
	f()
}

func TestDeadlineOfAHandlerHasItsName(t *testing.T) {
	p := &party{do: func(ctx context.Context, _ *rpc.Call, _ string) (string, error) { return "", ctx.Err() }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := p.server(is(ann)).Serve(ctx, ask("sayNote", `"text":"",`+identity+`,`+goodOffer), rpc.Incoming{Carrier: rpc.HTTP, Now: now})
	if !errors.Is(a.Err, rpc.ErrDeadline) {
		t.Error(a.Err)
	}
}

func TestHandlerMustOpenExactlyWhatItsMethodOpens(t *testing.T) {
	for name, c := range map[string]struct {
		m    *rpc.Method
		open bool
	}{"one that opens does not": {register, false}, "one that does not opens": {sayNote, true}} {
		s := rpc.NewServer(rpc.Config{Registry: table, Authenticator: is(rpc.Principal{Caller: c.m.Callers[0]}), Bindings: []rpc.Binding{
			rpc.Bind(c.m, rpctest.Notes, rpctest.Notes, func(_ context.Context, call *rpc.Call, n rpctest.Note) (rpctest.Note, error) {
				if c.open {
					call.Open(rpc.Session{Principal: call.Principal})
				}
				return n, nil
			})}})
		proof, over := identity, rpc.HTTP
		if c.m == register {
			proof, over = `"bearer":"`+rpctest.Bearer+`"`, rpc.Socket
		}
		a := s.Serve(t.Context(), ask(c.m.Name, `"text":"",`+proof+`,`+goodOffer), rpc.Incoming{Carrier: over, Now: now})
		if !errors.Is(a.Err, refusal.Internal) || a.Opened != nil {
			t.Errorf("%s: %v", name, a.Err)
		}
	}
}

// FuzzServe: whatever comes in, the answer is one envelope, never echoes the input
// beyond its correlation id, and no handler is reached without the whole order.
func FuzzServe(f *testing.F) {
	for _, seed := range []string{
		string(ask("sayNote", `"text":"x",`+identity+`,`+goodOffer)), string(ask("enroll", `"text":"x",`+goodOffer)),
		string(ask("observe", `"text":"x"`)), `{"method":"local","request":{"text":"x"}}`, `{}`, ``, `[`,
		`{"method":"sayNote","request":{},"response":{},"correlation":{"id":"i","phase":"response"},"error":{"text":"a: b","data":{"code":"a"}}}`,
	} {
		f.Add([]byte(seed), uint8(0))
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		over := []rpc.Carrier{rpc.HTTP, rpc.Socket, rpc.Admin, rpc.Control}[which%4]
		p := &party{}
		s := p.server(says(func(c rpc.Credential) (rpc.Principal, error) {
			return rpc.Principal{Caller: c.Method.Callers[0]}, nil
		}))
		a := s.Serve(t.Context(), body, rpc.Incoming{Carrier: over, Session: &rpc.Session{Principal: rpc.Principal{Caller: rpc.NodePallet}}, Now: now})
		frame := rpc.ReadFrame(a.Body, len(a.Body))
		if frame.Err() != nil {
			t.Fatalf("%s -> %s: %v", body, a.Body, frame.Err())
		}
		if (a.Err == nil) != (p.touched == 1) {
			t.Fatalf("%s: touched %d, %v", body, p.touched, a.Err)
		}
		if in := rpc.ReadFrame(body, rpc.DefaultBytes); over != rpc.Control && in.ID() != frame.ID() {
			t.Fatalf("%s: the answer is for %q", body, frame.ID())
		}
	})
}

// FuzzReadAnswer: whatever a server answers, the client has a value or a refusal of
// its own, and nothing that could move a terminal's cursor.
func FuzzReadAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"method":"sayNote","response":{"text":"x",` + goodOffer + `},"correlation":{"id":"i","phase":"response"}}`,
		`{"method":"","error":{"text":"a: b","data":{"code":"method-unknown","detail":"d","reasons":["r"],"retryAfterMs":5}}}`,
		`{"method":"sayNote","correlation":{"id":"i","phase":"response"},"retry":{"waitForMs":5,"reason":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := rpc.ReadAnswer(sayNote, rpctest.Notes, body, rpc.Outgoing{Carrier: rpc.HTTP, ID: "i"})
		if err == nil {
			return
		}
		if got != (rpctest.Note{}) {
			t.Fatal("a value with an error")
		}
		var i *rpc.Incompatible
		if r := refusal.From(err); r.Kind() == refusal.Internal && !errors.As(err, &i) && !strings.Contains(string(body), "internal") {
			t.Fatalf("%s: %v", body, err)
		}
		for _, text := range append(rpc.Reasons(err), err.Error()) {
			if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x9b }) {
				t.Fatalf("%q", text)
			}
		}
	})
}
