package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// Config is what a [Server] is made of.
type Config struct {
	// Registry is every method that this side knows. One without a binding is
	// refused as not built.
	Registry *Registry
	// Bindings are those that it has.
	Bindings []Binding
	// Authenticator says who calls.
	Authenticator Authenticator
	// Offer is this side's offer for a kind of session; nil means [handshake.Ours].
	Offer func(handshake.Session) handshake.Offer
	// Panicked, if set, is told of a request that panicked while it still does, so
	// that a stack can be kept. The panic's value may hold anything and is not told.
	Panicked func(m *Method)
}

// Server judges requests and answers them. It is safe for concurrent use.
type Server struct {
	registry *Registry
	bindings map[string]Binding
	auth     Authenticator
	offer    func(handshake.Session) handshake.Offer
	panicked func(*Method)
	max      map[Carrier]int
	opening  int
}

// NewServer makes a server. It panics when a binding's method is not in the
// registry or is bound twice, since servers are made once, at start.
func NewServer(c Config) *Server {
	s := &Server{registry: c.Registry, bindings: map[string]Binding{}, auth: c.Authenticator, offer: c.Offer, panicked: c.Panicked, max: map[Carrier]int{}}
	if s.offer == nil {
		s.offer = handshake.Ours
	}
	for _, b := range c.Bindings {
		if c.Registry.Find(b.method.Name) != b.method {
			panic("rpc: bound and not in the registry: " + b.method.Name)
		}
		if _, twice := s.bindings[b.method.Name]; twice {
			panic("rpc: bound twice: " + b.method.Name)
		}
		s.bindings[b.method.Name] = b
		for _, over := range []Carrier{HTTP, Socket, Admin, Control} {
			if b.method.Carriers&over != 0 {
				s.max[over] = max(s.max[over], b.method.maxRequest())
			}
		}
		if b.method.Opens {
			s.opening = max(s.opening, b.method.maxRequest())
		}
	}
	return s
}

// minBody is enough for a request that can only be refused.
const minBody = 4 << 10

// MaxBody is the largest body that any method takes over a carrier, in bytes. On a
// socket without a session only those that open one count.
func (s *Server) MaxBody(over Carrier, session *Session) int {
	if over == Socket && session == nil {
		return max(s.opening, minBody)
	}
	return max(s.max[over], minBody)
}

// Opens reports whether a request names a method that opens a session.
func (s *Server) Opens(f Frame) bool {
	m := s.registry.Find(f.e.method)
	return m != nil && m.Opens
}

// Incoming is a request as a carrier hands it over.
type Incoming struct {
	Carrier Carrier
	// Session is the tag of the socket, or nil.
	Session *Session
	// Peer is the address of the other end.
	Peer string
	// Now is the time of the request.
	Now time.Time
}

// Answer is what became of a request.
type Answer struct {
	// Body is the answer as it travels. It is there whatever happened.
	Body []byte
	// Method is the method, or nil where the request named none of ours.
	Method *Method
	// Opened is the session that the request opened, or nil. The carrier sets it
	// before it sends the answer.
	Opened *Session
	// Err is why the request was refused, or nil. Its causes are for the log, and
	// for that of a plain method only: they can quote the request.
	Err error
}

// Serve judges and answers a request that is alone in its body.
func (s *Server) Serve(ctx context.Context, body []byte, in Incoming) Answer {
	return s.ServeFrame(ctx, ReadFrame(body, s.MaxBody(in.Carrier, in.Session)), in)
}

// ServeFrame judges and answers a request whose envelope was read with
// [Server.MaxBody] as its bound.
func (s *Server) ServeFrame(ctx context.Context, f Frame, in Incoming) Answer {
	a := Answer{}
	content, err := s.judge(ctx, f, in, &a)
	name := ""
	if a.Method != nil {
		name = a.Method.Name
	}
	if err == nil {
		a.Body = appendAnswer(make([]byte, 0, len(content)+192), name, f.id, in.Carrier, "response", content)
		if len(a.Body) > a.Method.maxResponse() {
			err = ErrAnswerSize
		}
	}
	if err != nil {
		a.Err, a.Opened = err, nil
		a.Body = appendAnswer(nil, name, f.id, in.Carrier, "error", appendError(nil, err))
	}
	return a
}

// judge is the order of every server, on every carrier, for every method. What it
// refuses has not reached the lines below. A panic, of the handler or of who says who
// calls, becomes internal: its value may hold anything, so only its type is kept.
func (s *Server) judge(ctx context.Context, f Frame, in Incoming, a *Answer) (content []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			if s.panicked != nil && a.Method != nil {
				s.panicked(a.Method)
			}
			content, err = nil, refusal.Internal.Because(fmt.Errorf("rpc: a request panicked with a %T", v))
		}
	}()
	if f.err != nil {
		return nil, f.err
	}
	if err := f.request(in.Carrier); err != nil {
		return nil, err
	}
	m := s.registry.Find(f.e.method)
	if m == nil {
		return nil, ErrMethod
	}
	a.Method = m
	if m.Carriers&in.Carrier == 0 {
		return nil, ErrCarrier
	}
	b, built := s.bindings[m.Name]
	if !built {
		return nil, ErrNotBuilt
	}
	if f.size > m.maxRequest() {
		return nil, ErrTooLarge
	}
	if err := sessionFor(m, in); err != nil {
		return nil, err
	}

	call := &Call{Method: m, Carrier: in.Carrier, Peer: in.Peer, Now: in.Now}
	takes, ours := m.Takes(in.Carrier), handshake.Offer{}
	if takes.Offer {
		ours = s.offer(m.Session)
		theirs, err := readOffer(f.e.request)
		if err != nil {
			return nil, err
		}
		if err := handshake.Negotiate(ours, theirs); err != nil {
			return nil, err
		}
		call.Offer = theirs
	}

	if problems := b.reasons(f.e.request, takes); len(problems) > 0 {
		return nil, Invalid(codec.Reasons(problems, "request")...)
	}

	if call.Principal, err = s.authenticate(ctx, f.e.request, takes, call, in.Session); err != nil {
		return nil, err
	}
	if !allows(m, call.Principal.Caller) {
		return nil, ErrCaller
	}
	other := func(p Principal) bool {
		return m.Opens && in.Session != nil && !in.Session.over(in.Now) && !in.Session.Principal.Same(p)
	}
	if call.Principal.Caller != Anyone && other(call.Principal) {
		return nil, ErrSessionOther
	}

	if content, err = b.serve(ctx, call, f.e.request, takes, ours); err != nil {
		return nil, err
	}
	if m.Opens != (call.opened != nil) {
		return nil, refusal.Internal.Because(errors.New("rpc: a handler opened no session, or one that it may not open"))
	}
	if call.opened != nil && other(call.opened.Principal) {
		return nil, ErrSessionOther // of Anyone, only the handler knew who it is
	}
	a.Opened = call.opened
	return content, nil
}

// request checks that the envelope is one of a request.
func (f Frame) request(over Carrier) error {
	switch {
	case f.answers, !absent(f.e.response), !absent(f.e.err), !absent(f.e.retry),
		f.e.method == "", f.e.request.IsZero(),
		f.id == "" && over != Control:
		return ErrEnvelope
	}
	return nil
}

// sessionFor looks for the session that a request needs.
func sessionFor(m *Method, in Incoming) error {
	switch {
	case in.Carrier != Socket || m.Opens:
		return nil
	case in.Session == nil:
		return ErrNoSession
	case in.Session.over(in.Now):
		return ErrSessionOver
	}
	return nil
}

// readOffer reads the offer of a request and looks at nothing else in it.
func readOffer(request exact.Value) (handshake.Offer, error) {
	v, _ := request.Member(handshake.Member)
	shape := codec.Shape(handshake.OfferCodec)
	offer, err := shape.From(v)
	if err != nil {
		reasons := codec.Reasons(shape.Problems(v), "request."+handshake.Member)
		return handshake.Offer{}, handshake.ErrOffer.With(strings.Join(reasons, "; ") + ".")
	}
	return offer, nil
}

// authenticate asks who calls. An open session answers for the requests on its
// socket, if it still holds; a token beside it must be of the same principal.
func (s *Server) authenticate(ctx context.Context, request exact.Value, t Takes, call *Call, session *Session) (Principal, error) {
	if allows(call.Method, Anyone) {
		return Principal{Caller: Anyone}, nil
	}
	c := Credential{Method: call.Method, Carrier: call.Carrier, Peer: call.Peer, Now: call.Now}
	if call.Carrier == Socket && !call.Method.Opens {
		c.Session = session
	}
	if t.Bearer {
		c.Bearer = secretOf(request, bearerMember)
	}
	if t.Identity {
		c.Token = secretOf(request, identityMember)
	}
	p, err := s.auth.Authenticate(ctx, c)
	if err != nil {
		return Principal{}, named(ctx, err)
	}
	if c.Session != nil && !p.Same(session.Principal) {
		return Principal{}, ErrSessionOther
	}
	if token := secretOf(request, identityMember); t.MayIdentify && !token.IsZero() {
		c.Session, c.Token = nil, token
		q, err := s.auth.Authenticate(ctx, c)
		if err != nil {
			return Principal{}, named(ctx, err)
		}
		if !q.Same(session.Principal) {
			return Principal{}, ErrSessionOther
		}
	}
	return p, nil
}

func allows(m *Method, c Caller) bool {
	for _, one := range m.Callers {
		if one == c {
			return true
		}
	}
	return false
}
