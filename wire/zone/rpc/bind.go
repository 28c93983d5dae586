package rpc

import (
	"context"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// Names of the members that belong to the way a request travels.
const (
	bearerMember   = "bearer"
	identityMember = "identity"
	jwtMember      = "jwt"
)

// bearerLength is that of 32 bytes in base64url without padding (decision O22).
const bearerLength = 43

// Call is one request on its way to a handler.
type Call struct {
	Method    *Method
	Carrier   Carrier
	Principal Principal
	// Offer is the peer's, and the zero value where it sent none.
	Offer handshake.Offer
	// Peer is the address of the other end, for limits and logs. It proves nothing.
	Peer string
	Now  time.Time

	opened *Session
}

// Open opens the session of the socket, once the handler returns without an error.
// A handler of a method that opens a session calls it, after its state is durable;
// any other that does is refused as an internal mistake.
func (c *Call) Open(s Session) { c.opened = &s }

// Handler does what a method is for. It is the first to see or change state. Its
// error is a refusal, or becomes internal without its text.
type Handler[Req, Res any] func(ctx context.Context, call *Call, request Req) (Res, error)

// Binding is a method with its messages and its handler.
type Binding struct {
	method  *Method
	reasons func(request exact.Value, t Takes) []*exact.Problem
	serve   func(ctx context.Context, call *Call, request exact.Value, t Takes, ours handshake.Offer) ([]byte, error)
}

// Method is the method that is bound.
func (b Binding) Method() *Method { return b.method }

// Bind joins a method with the codecs of its request and its answer and with its
// handler.
func Bind[Req, Res any](m *Method, req zone.Codec[Req], res zone.Codec[Res], handle Handler[Req, Res]) Binding {
	in, out := wrap(codec.Shape(req)), wrap(codec.Shape(res))
	return Binding{
		method:  m,
		reasons: func(v exact.Value, t Takes) []*exact.Problem { return in.with(t).Problems(v) },
		serve: func(ctx context.Context, call *Call, v exact.Value, t Takes, ours handshake.Offer) ([]byte, error) {
			request, err := in.with(t).From(v)
			if err != nil {
				return nil, refusal.Internal.Because(err) // the reasons said that there is no problem
			}
			response, err := handle(ctx, call, request.content)
			if err != nil {
				return nil, named(ctx, err)
			}
			body, err := out.with(Takes{Offer: t.Offer}).Bytes(message[Res]{content: response, offer: ours})
			if err != nil {
				return nil, refusal.Internal.Because(err)
			}
			return body, nil
		},
	}
}

// message is a content and what travels beside it.
type message[T any] struct {
	content T
	offer   handshake.Offer
	bearer  zone.Secret
	token   zone.Identity
}

// wrapped is a shape that knows which of the members beside the content it names
// itself.
type wrapped[T any] struct {
	shape                   exact.Shape[T]
	offer, bearer, identity bool
}

func wrap[T any](s exact.Shape[T]) wrapped[T] {
	return wrapped[T]{s, names(s, handshake.Member), names(s, bearerMember), names(s, identityMember)}
}

// names reports whether a shape names a member: a document of nothing else has no
// unknown member then.
func names[T any](s exact.Shape[T], name string) bool {
	v, err := exact.Parse([]byte(`{"`+name+`":0}`), codec.Limits)
	if err != nil {
		return false
	}
	for _, p := range s.Problems(v) {
		if p.Rule == exact.ErrUnknown && p.Path == "" {
			return false
		}
	}
	return s.Unknown == exact.Refuse
}

// with is the shape of a message that takes what t says.
func (w wrapped[T]) with(t Takes) exact.Shape[message[T]] {
	return exact.Shape[message[T]]{Unknown: w.shape.Unknown, Fields: func(o *exact.Object, m *message[T]) {
		w.shape.Fields(o, &m.content)
		if t.Bearer && !w.bearer {
			member.Secret(o, bearerMember, &m.bearer, bearerLength, "a bearer of 43 base64url characters", validBearer)
		}
		if t.Identity && !w.identity {
			member.Identity(o, &m.token)
		}
		if t.MayIdentify && !w.identity {
			var token *zone.Identity
			if !m.token.JWT.IsZero() {
				token = &m.token
			}
			exact.OptSub(o, identityMember, &token, identities)
			if token != nil {
				m.token = *token
			}
		}
		if t.Offer && !w.offer {
			member.Protocol(o, &m.offer)
		}
	}}
}

// identities is the object of an identity where it may be left out: the signed
// token and nothing else, so that the caller supplies no authority (decision O13).
var identities = exact.Shape[zone.Identity]{Fields: func(o *exact.Object, i *zone.Identity) { member.JWT(o, jwtMember, &i.JWT) }}

func validBearer(s string) bool {
	if len(s) != bearerLength {
		return false
	}
	for _, c := range []byte(s) {
		if !base64url(c) {
			return false
		}
	}
	return true
}

func base64url(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// secretOf is the text of a member, wherever the shape has it.
func secretOf(request exact.Value, name string) zone.Secret {
	v, _ := request.Member(name)
	if name == identityMember {
		v, _ = v.Member(jwtMember)
	}
	s, _ := v.Text()
	return zone.Conceal(s)
}
