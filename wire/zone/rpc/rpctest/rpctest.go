package rpctest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// Note is a message for tests of carriers.
type Note struct {
	// Text is at most 1 MiB of anything.
	Text string
}

// Notes is its codec: {"text":"..."} of at most 1 MiB.
var Notes zone.Codec[Note] = codec.Of(func(o *exact.Object, n *Note) { exact.Text(o, "text", &n.Text, 0, 1<<20) })

// Credentials that fit the form of their members and belong to nobody.
const (
	Bearer = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	Token  = "header.claims.signature"
)

// TB is what is needed of a *testing.T.
type TB interface {
	// Helper marks the caller as a helper.
	Helper()
	// Errorf reports a failure and goes on.
	Errorf(format string, args ...any)
	// Fatalf reports a failure and ends the test.
	Fatalf(format string, args ...any)
}

// Subject is a party whose order is to be proved.
type Subject struct {
	// Registry is its table.
	Registry *rpc.Registry
	// Server makes its server, with its own handlers and that authenticator.
	Server func(rpc.Authenticator) *rpc.Server
	// Request is a request of the method that its codec takes, as a JSON object
	// without protocol, bearer and identity where they travel beside the content.
	Request func(m *rpc.Method) string
	// State is how often state was read or written so far, by whoever.
	State func() int
	// Now is the time of all requests.
	Now time.Time
}

// spy is an authenticator that says what it is told to.
type spy struct {
	asked int
	as    rpc.Principal
	err   error
}

// Authenticate counts.
func (s *spy) Authenticate(context.Context, rpc.Credential) (rpc.Principal, error) {
	s.asked++
	return s.as, s.err
}

// attempt is one request that is about to be made.
type attempt struct {
	m        *rpc.Method
	carrier  rpc.Carrier
	method   string
	envelope string // members to add
	request  string // members to add
	content  string
	offer    string
	size     int
	session  *rpc.Session
	auth     spy
}

// fault is one thing to be wrong with a request. Two of one slot exclude each
// other.
type fault struct {
	name, slot string
	kind       *refusal.Kind
	applies    func(s *rpc.Server, m *rpc.Method, over rpc.Carrier) bool
	do         func(s *rpc.Server, a *attempt)
}

var carriers = []rpc.Carrier{rpc.HTTP, rpc.Socket, rpc.Admin, rpc.Control}

func always(*rpc.Server, *rpc.Method, rpc.Carrier) bool { return true }

func offers(_ *rpc.Server, m *rpc.Method, over rpc.Carrier) bool { return m.Takes(over).Offer }

func proves(_ *rpc.Server, m *rpc.Method, _ rpc.Carrier) bool {
	return !slices.Contains(m.Callers, rpc.Anyone)
}

func inSession(_ *rpc.Server, m *rpc.Method, over rpc.Carrier) bool {
	return over == rpc.Socket && !m.Opens
}

const foreignOffer = `{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"}`

// asking is where in the faults the authenticator is asked first.
const asking = "credential"

// faults are in the order of the contract.
var faults = []fault{
	{"a body beyond every bound", "size", rpc.ErrTooLarge, always, func(s *rpc.Server, a *attempt) {
		a.size = s.MaxBody(a.carrier, a.session) + 1
		a.size = max(a.size, s.MaxBody(a.carrier, &rpc.Session{})+1)
	}},
	{"an envelope with a member more", "envelope", rpc.ErrEnvelope, always, func(_ *rpc.Server, a *attempt) { a.envelope = `"authInfo":{"jwt":"x"},` }},
	{"a method that there is not", "method", rpc.ErrMethod, always, func(_ *rpc.Server, a *attempt) { a.method = "noSuchMethod" }},
	{"a body beyond the method's bound", "size", rpc.ErrTooLarge, func(s *rpc.Server, m *rpc.Method, over rpc.Carrier) bool {
		return MaxRequest(m) < s.MaxBody(over, nil)
	}, func(_ *rpc.Server, a *attempt) { a.size = MaxRequest(a.m) + 1 }},
	{"no session", "session", rpc.ErrNoSession, inSession, func(_ *rpc.Server, a *attempt) { a.session = nil }},
	{"a session that is over", "session", rpc.ErrSessionOver, inSession, func(_ *rpc.Server, a *attempt) {
		ended := *a.session
		ended.Ends = time.Unix(1, 0)
		a.session = &ended
	}},
	{"no offer", "offer", handshake.ErrOffer, offers, func(_ *rpc.Server, a *attempt) { a.offer = "" }},
	{"an offer with a member more", "offer", handshake.ErrOffer, offers, func(_ *rpc.Server, a *attempt) {
		a.offer = `{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0","more":1}`
	}},
	{"an offer of a foreign major", "offer", handshake.ErrIncompatible, offers, func(_ *rpc.Server, a *attempt) { a.offer = foreignOffer }},
	{"a request with a member more", "schema", rpc.ErrSchema, always, func(_ *rpc.Server, a *attempt) { a.request = `"noSuchMember":1,` }},
	{"a credential of nobody", asking, rpc.ErrCredential, proves, func(_ *rpc.Server, a *attempt) { a.auth.err = rpc.ErrCredential }},
	{"a caller who may not", asking, rpc.ErrCaller, func(s *rpc.Server, m *rpc.Method, over rpc.Carrier) bool {
		return proves(s, m, over) && !inSession(s, m, over)
	}, func(_ *rpc.Server, a *attempt) { a.auth.as = rpc.Principal{Caller: stranger(a.m)} }},
}

// stranger is a caller whom the method does not allow.
func stranger(m *rpc.Method) rpc.Caller {
	for _, c := range []rpc.Caller{rpc.NodeSpark, rpc.NodePallet, rpc.ServiceMachine, rpc.Operator, rpc.LocalPeer} {
		if !slices.Contains(m.Callers, c) {
			return c
		}
	}
	return "nobody"
}

// MaxRequest is the method's bound on a request, in bytes.
func MaxRequest(m *rpc.Method) int {
	if m.MaxRequest == 0 {
		return rpc.DefaultBytes
	}
	return m.MaxRequest
}

// Order tries, for every method of the subject and over each of its carriers, every
// fault alone, with every later fault, and with all later ones together. The
// earliest fault has to win, the authenticator must not have been asked before its
// turn, and the state must not have been touched. Without a fault the handler has
// to be reached, or the rest would prove nothing.
func Order(t TB, s Subject) {
	t.Helper()
	methods, tried := 0, 0
	for m := range s.Registry.All() {
		methods++
		for _, over := range carriers {
			if m.Carriers&over == 0 {
				wrongCarrier(t, s, m, over)
				continue
			}
			tried += order(t, s, m, over)
		}
	}
	if methods == 0 || tried == 0 {
		t.Fatalf("the table is empty, so this proves nothing")
	}
}

func order(t TB, s Subject, m *rpc.Method, over rpc.Carrier) (tried int) {
	t.Helper()
	where := fmt.Sprintf("%s over carrier %d", m.Name, over)

	a := s.valid(m, over)
	before := s.State()
	answer, asked := s.try(a)
	if errors.Is(answer.Err, rpc.ErrNotBuilt) {
		return 1
	}
	for _, k := range rpc.Kinds.Kinds {
		if errors.Is(answer.Err, k) && !(k == rpc.ErrSchema && s.State() > before) {
			t.Errorf("%s: a request without a fault is refused: %v %q", where, answer.Err, rpc.Reasons(answer.Err))
		}
	}
	if answer.Err != nil && s.State() == before {
		t.Errorf("%s: a request without a fault does not reach any state: %v", where, answer.Err)
	}
	if proves(nil, m, over) && asked != 1 {
		t.Errorf("%s: the authenticator was asked %d times, want once", where, asked)
	}

	server := s.Server(&spy{})
	for i, first := range faults {
		if !first.applies(server, m, over) {
			continue
		}
		var later []fault
		for _, f := range faults[i+1:] {
			if f.slot != first.slot && f.applies(server, m, over) {
				later = append(later, f)
			}
		}
		sets := [][]fault{{first}, append([]fault{first}, later...)}
		for _, f := range later {
			sets = append(sets, []fault{first, f})
		}
		for _, set := range sets {
			tried++
			s.refused(t, where, m, over, set)
		}
	}
	return tried
}

// refused tries a request with faults of which the first has to win.
func (s Subject) refused(t TB, where string, m *rpc.Method, over rpc.Carrier, set []fault) {
	t.Helper()
	a := s.valid(m, over)
	server := s.Server(&a.auth)
	var names []string
	done := map[string]bool{}
	for _, f := range set {
		if !done[f.slot] { // of two of one slot, the first stays
			f.do(server, a)
			done[f.slot] = true
		}
		names = append(names, f.name)
	}
	before := s.State()
	answer, asked := s.try(a)
	what := where + ", with " + strings.Join(names, " and ")
	if !errors.Is(answer.Err, set[0].kind) {
		t.Errorf("%s: refused with %v, want %s", what, answer.Err, set[0].kind.Name())
	}
	if !strings.Contains(string(answer.Body), `"code":"`+set[0].kind.Name()+`"`) {
		t.Errorf("%s: the answer does not say %s: %s", what, set[0].kind.Name(), answer.Body)
	}
	if set[0].slot != asking && asked != 0 {
		t.Errorf("%s: the credential was looked at", what)
	}
	if s.State() != before {
		t.Errorf("%s: the refusal has touched the state", what)
	}
	if answer.Opened != nil {
		t.Errorf("%s: the refusal has opened a session", what)
	}
}

// wrongCarrier tries a method over a carrier that it has not.
func wrongCarrier(t TB, s Subject, m *rpc.Method, over rpc.Carrier) {
	t.Helper()
	a := s.valid(m, over)
	before := s.State()
	a.offer, a.request = foreignOffer, `"noSuchMember":1,`
	answer, asked := s.try(a)
	if !errors.Is(answer.Err, rpc.ErrCarrier) {
		t.Errorf("%s over carrier %d, which it has not: %v", m.Name, over, answer.Err)
	}
	if asked != 0 || s.State() != before {
		t.Errorf("%s over carrier %d, which it has not: something was looked at", m.Name, over)
	}
}

// valid is an attempt with nothing wrong.
func (s Subject) valid(m *rpc.Method, over rpc.Carrier) *attempt {
	as := rpc.Principal{Caller: m.Callers[0], Subject: "somebody"}
	a := &attempt{m: m, carrier: over, method: m.Name, content: s.Request(m), auth: spy{as: as}}
	if over == rpc.Socket && !m.Opens {
		a.session = &rpc.Session{Principal: as}
	}
	if m.Takes(over).Offer {
		a.offer = `{"interfacesVersion":"` + zone.Release + `","minimumPeerVersion":"` + zone.Release + `"}`
	}
	return a
}

// try makes the request.
func (s Subject) try(a *attempt) (rpc.Answer, int) {
	takes := a.m.Takes(a.carrier)
	members := a.request
	if a.offer != "" {
		members += `"protocol":` + a.offer + `,`
	}
	if takes.Bearer {
		members += `"bearer":"` + Bearer + `",`
	}
	if takes.Identity {
		members += `"identity":{"jwt":"` + Token + `"},`
	}
	content := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(a.content), "{"))
	if content == "}" {
		members = strings.TrimSuffix(members, ",")
	}
	correlation := `,"response":null,"correlation":{"id":"t-1","phase":"request"}`
	if a.carrier == rpc.Control {
		correlation = ""
	}
	body := `{` + a.envelope + `"method":"` + a.method + `","request":{` + members + content + correlation + `}`
	if len(body) < a.size {
		body += strings.Repeat(" ", a.size-len(body))
	}
	answer := s.Server(&a.auth).Serve(context.Background(), []byte(body), rpc.Incoming{
		Carrier: a.carrier, Session: a.session, Peer: "192.0.2.1", Now: s.Now,
	})
	return answer, a.auth.asked
}
