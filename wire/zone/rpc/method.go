package rpc

import (
	"fmt"
	"iter"
	"slices"

	"github.com/allodhq/allod/wire/zone/handshake"
)

// DefaultBytes is how large a request or an answer may be where its method names
// no bound, with its envelope (decision O06).
const DefaultBytes = 1 << 20

// Carrier is a way for a request to travel. A method's carriers are a sum of them.
type Carrier uint8

// The carriers.
const (
	// HTTP is POST over the network.
	HTTP Carrier = 1 << iota
	// Socket is a WebSocket, in both directions.
	Socket
	// Admin is the admin socket in a party's data folder, spoken to by HTTP. Whoever
	// can reach the file is the installation's administrator.
	Admin
	// Control is a local socket between two programs of one machine, with one
	// exchange for each connection and no correlation (F10, decision O23).
	Control
)

// Caller is who may call a method. The vocabulary is closed.
type Caller string

// The callers, by how they prove themselves.
const (
	// Anyone has the proof in the request itself, and the handler judges it.
	Anyone Caller = "anyone"
	// NodeSpark and NodePallet are the two programs of a node, by their bearers.
	NodeSpark  Caller = "node-spark"
	NodePallet Caller = "node-pallet"
	// Operator is a person of an organization, Administrator one who runs the
	// installation, and ServiceMachine a service: all by a signed token.
	Operator       Caller = "operator"
	Administrator  Caller = "administrator"
	ServiceMachine Caller = "service-machine"
	// LocalPeer is a program of the same machine, by its local connection.
	LocalPeer Caller = "local-peer"
	// Controller is the side that a socket was dialed to, once a session is open.
	Controller Caller = "controller"
)

// proof is how a caller proves who it is.
type proof uint8

const (
	noProof proof = iota
	bearerProof
	identityProof
)

var proofs = map[Caller]proof{
	Anyone: noProof, LocalPeer: noProof, Controller: noProof,
	NodeSpark: bearerProof, NodePallet: bearerProof,
	Operator: identityProof, Administrator: identityProof, ServiceMachine: identityProof,
}

// Sensitivity says what may be told of a request besides its method (F06).
type Sensitivity uint8

const (
	// Plain is a method whose messages hold no secret.
	Plain Sensitivity = 1 + iota
	// Sensitive is a method whose request and answer stay out of every log, trace,
	// metric and error, as a whole.
	Sensitive
)

// Method is one method of the contract. It does not change after [NewRegistry].
type Method struct {
	// Name is the method's name on the wire: 1 to 64 letters and digits that begin
	// with a small letter.
	Name string
	// Session is the kind of session whose offers are exchanged. It is empty only
	// where the method is for [Control] alone.
	Session handshake.Session
	// Callers are those who may call it, at least one. All of them prove themselves
	// in the same way, and Anyone stands alone.
	Callers []Caller
	// Carriers is the sum of the carriers it may be called over.
	Carriers Carrier
	// MaxRequest and MaxResponse bound the request and the answer in bytes, with
	// their envelopes; 0 means [DefaultBytes].
	MaxRequest, MaxResponse int
	// Sensitivity is the method's class. It has to be named.
	Sensitivity Sensitivity
	// Opens says that the method opens the session of a socket. Then Socket is its
	// only carrier.
	Opens bool
	// Changes says that the method changes state.
	Changes bool
}

func (m *Method) maxRequest() int  { return bound(m.MaxRequest) }
func (m *Method) maxResponse() int { return bound(m.MaxResponse) }

func bound(n int) int {
	if n == 0 {
		return DefaultBytes
	}
	return n
}

func (m *Method) proof() proof {
	if len(m.Callers) == 0 {
		return noProof
	}
	return proofs[m.Callers[0]]
}

// Takes is what a request of the method carries besides its content when it goes
// over that carrier.
type Takes struct {
	// Offer: the member protocol, and the same in the answer.
	Offer bool
	// Bearer and Identity: the member of that name. MayIdentify: an identity may
	// come, and must then be that of the session.
	Bearer, Identity, MayIdentify bool
}

// Takes says what a request of the method carries over that carrier.
func (m *Method) Takes(over Carrier) Takes {
	var t Takes
	if over == Control {
		return t
	}
	within := over == Socket && !m.Opens
	t.Offer = m.Session != "" && !within
	switch m.proof() {
	case bearerProof:
		t.Bearer = !within
	case identityProof:
		t.Identity = over != Admin && !within
		t.MayIdentify = within
	}
	return t
}

// mistake says what is wrong with a method's description, or nothing.
func (m *Method) mistake() string {
	switch {
	case !validMethod(m.Name):
		return "its name"
	case len(m.Callers) == 0:
		return "nobody may call it"
	case m.Carriers == 0 || m.Carriers >= Control<<1:
		return "its carriers"
	case m.Session == "" && m.Carriers != Control:
		return "it names no kind of session"
	case m.Session != "" && handshake.Ours(m.Session).IsZero():
		return "its kind of session"
	case m.MaxRequest < 0 || m.MaxResponse < 0:
		return "its bounds"
	case m.Sensitivity != Plain && m.Sensitivity != Sensitive:
		return "it names no sensitivity"
	case m.Opens && m.Carriers != Socket:
		return "it opens the session of a socket and has another carrier"
	}
	for _, c := range m.Callers {
		p, known := proofs[c]
		switch {
		case !known:
			return "one of its callers"
		case p != m.proof():
			return "its callers prove themselves in different ways"
		case c == Anyone && len(m.Callers) > 1:
			return "anyone and others may call it"
		}
	}
	return ""
}

const maxMethod = 64

func validMethod(name string) bool {
	if name == "" || len(name) > maxMethod || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return true
}

// Registry is a table of methods.
type Registry struct {
	byName map[string]*Method
	order  []*Method
}

// NewRegistry is a table of those methods. It panics when one is described wrongly
// or a name occurs twice, since tables are made once, at start.
func NewRegistry(methods ...*Method) *Registry {
	r := &Registry{byName: map[string]*Method{}}
	for _, m := range methods {
		if wrong := m.mistake(); wrong != "" {
			panic(fmt.Sprintf("rpc: method %q: %s", m.Name, wrong))
		}
		if r.byName[m.Name] != nil {
			panic(fmt.Sprintf("rpc: method %q is there twice", m.Name))
		}
		r.byName[m.Name] = m
		r.order = append(r.order, m)
	}
	return r
}

// Find returns the method of that name, or nil.
func (r *Registry) Find(name string) *Method { return r.byName[name] }

// All are the methods, in the order in which they were given.
func (r *Registry) All() iter.Seq[*Method] { return slices.Values(r.order) }
