package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/people"
	"github.com/allodhq/allod/internal/cloud/token"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/machine"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
)

// identity asks on a socket who one is.
func (w *world) identity(h carrier.Hop, with carrier.Proof) (admin.GetIdentityAnswer, error) {
	return call(w, h, methods.GetIdentity, admin.GetIdentityCodec, admin.GetIdentityAnswerCodec, admin.GetIdentity{}, with)
}

// TestF03ForeignMajorOnEveryCarrier: a foreign major with a bad credential is
// refused as a foreign major, by every method.
func TestF03ForeignMajorOnEveryCarrier(t *testing.T) {
	w := newWorld(t)
	for name, content := range requests {
		m := methods.Controller.Find(name)
		members := strings.TrimSuffix(strings.TrimPrefix(content, "{"), "}")
		if members != "" {
			members += ","
		}
		if m.Takes(rpc.HTTP).Bearer && !m.Opens {
			members += `"bearer":"` + rpctest.Bearer + `",`
		}
		if m.Takes(rpc.HTTP).Identity && !m.Opens {
			members += `"identity":{"jwt":"` + rpctest.Token + `"},`
		}
		answers := map[string]string{}
		send := func(where, path, offer string) {
			if where == "a socket" {
				answers[where+offer] = w.exchange(w.dial(), ask(name, members+`"protocol":`+offer))
				return
			}
			_, answers[where+offer] = w.post(path, ask(name, members+`"protocol":`+offer))
		}
		switch {
		case m.Opens:
			send("a socket", "", foreignOffer)
		default:
			send("HTTP", carrier.Path, foreignOffer)
		}
		if m.Carriers&rpc.Admin != 0 {
			members = strings.Replace(members, `"identity":{"jwt":"`+rpctest.Token+`"},`, "", 1)
			send("admin", adminPath+carrier.Path, foreignOffer)
		}
		for where, text := range answers {
			err := rpc.ReadFrame([]byte(text), 1<<20).Err()
			if err != nil || !strings.Contains(text, `"data":{"code":"protocol-incompatible","reason":"major-mismatch","refusing":{`) || !strings.Contains(text, `"text":"protocol-incompatible: `) {
				t.Errorf("%s over %s: %s", name, where, text)
			}
		}
	}
	// Ours reads it as a refusal that asks to wait for five minutes.
	offer, err := handshake.Make("33.1.0", "33.0.0")
	if err != nil {
		t.Fatal(err)
	}
	body, err := rpc.WriteRequest(methods.GetIdentity, admin.GetIdentityCodec, admin.GetIdentity{}, rpc.Outgoing{Carrier: rpc.HTTP, ID: "i", Token: zone.Conceal(rpctest.Token), Offer: offer})
	if err != nil {
		t.Fatal(err)
	}
	_, text := w.post(carrier.Path, string(body))
	_, err = rpc.ReadAnswer(methods.GetIdentity, admin.GetIdentityAnswerCodec, []byte(text), rpc.Outgoing{Carrier: rpc.HTTP, ID: "i"})
	var refused *rpc.Incompatible
	if !errors.As(err, &refused) || refused.Wait() != handshake.RetryInterval {
		t.Errorf("%v", err)
	}
}

// TestF36SessionsOfPeopleAndMachines: a token opens a session on a socket, what
// follows needs none, and nothing in a request changes who it is.
func TestF36SessionsOfPeopleAndMachines(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	other := w.operator("op-other", e.organization, admin.Administrator)
	s, err := w.socket(e.jwt)
	if err != nil {
		t.Fatal(err)
	}
	me, err := w.identity(s, carrier.Proof{})
	if err != nil || me.OperatorID != e.operator || me.Kind != "operator" || me.Installation || len(me.Memberships) != 1 || me.ExpiresAt.Time() != start.Add(token.OperatorLife) {
		t.Errorf("%+v, %v", me, err)
	}
	machines, err := w.socket(w.machineToken(e))
	if err != nil {
		t.Fatal(err)
	}
	me, err = w.identity(machines, carrier.Proof{})
	if err != nil || me.ServiceID != e.service || me.OrganizationID != e.organization || me.Kind != "machine" {
		t.Errorf("%+v, %v", me, err)
	}
	// Another identity beside the tag, one's own, and members that name somebody.
	bare := w.dial()
	register := func(jwt zone.Secret) string {
		return w.exchange(bare, ask("registerCloudlyClientSession", `"protocol":`+goodOffer+`,"jwt":"`+jwt.Reveal()+`"`))
	}
	if text := w.exchange(bare, ask("getIdentity", "")); !strings.Contains(text, `"code":"`+rpc.ErrNoSession.Name()+`"`) {
		t.Errorf("without a session: %s", text)
	}
	if text := register(e.jwt); !strings.Contains(text, `"response":{"expiresAt":`) || !strings.Contains(text, `"protocol":`+goodOffer) {
		t.Fatal(text)
	}
	for members, want := range map[string]string{
		`"identity":{"jwt":"` + e.jwt.Reveal() + `"}`:                                `"operatorId":"op-a"`,
		`"identity":{"jwt":"` + other.Reveal() + `"}`:                                `"code":"` + rpc.ErrSessionOther.Name() + `"`,
		`"identity":{"jwt":"` + e.jwt.Reveal() + `","role":"administrator"}`:         `"code":"` + rpc.ErrSchema.Name() + `"`,
		`"operatorId":"op-other"`:                                                    `"code":"` + rpc.ErrSchema.Name() + `"`,
		`"identity":{"jwt":"` + rpctest.Token + `"}`:                                 `"code":"zone-token"`,
		`"identity":{"jwt":"` + strings.Replace(e.jwt.Reveal(), ".", "..", 1) + `"}`: `"code":`,
		`"protocol":` + goodOffer:                                                    `"code":"` + rpc.ErrSchema.Name() + `"`,
	} {
		if text := w.exchange(bare, ask("getIdentity", members)); !strings.Contains(text, want) {
			t.Errorf("%.60s...: %s, want %s", members, text, want)
		}
	}
	if text := register(other); !strings.Contains(text, `"code":"`+rpc.ErrSessionOther.Name()+`"`) {
		t.Errorf("another person on the same socket: %s", text)
	}
	if text := w.exchange(bare, ask("getIdentity", "")); !strings.Contains(text, `"operatorId":"op-a"`) {
		t.Errorf("afterwards: %s", text)
	}
}

// TestF36RefusedTokens: an expired, revoked or foreign token opens nothing, and
// over HTTP no token does.
func TestF36RefusedTokens(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	foreign := newWorld(t)
	theirs := foreign.estate("a")
	if _, err := w.socket(theirs.jwt); err == nil {
		t.Error("the token of another controller opened a session")
	}
	if _, text := w.post(carrier.Path, ask("registerCloudlyClientSession", `"protocol":`+goodOffer+`,"jwt":"`+e.jwt.Reveal()+`"`)); !strings.Contains(text, `"code":"`+rpc.ErrCarrier.Name()+`"`) {
		t.Errorf("over HTTP: %s", text)
	}
	must(w, w.admin(), methods.EndSessions, admin.EndSessionsCodec, admin.EndSessionsAnswerCodec, admin.EndSessions{OperatorID: e.operator, MutationID: w.mutation()}, carrier.Proof{})
	if _, err := w.socket(e.jwt); !errors.Is(err, people.ErrEnded) {
		t.Errorf("revoked: %v", err)
	}
	fresh := w.login(w.link(e.operator))
	w.pass(token.OperatorLife)
	if _, err := w.socket(fresh); !errors.Is(err, token.ErrExpired) {
		t.Errorf("expired: %v", err)
	}
}

// TestF36SocketsAreDropped: whoever loses their rights loses their open sockets,
// and nobody else does.
func TestF36SocketsAreDropped(t *testing.T) {
	gone := func(s *carrier.Socket) bool {
		select {
		case <-s.Done():
			return true
		case <-time.After(5 * time.Second):
			return false
		}
	}
	for name, end := range map[string]func(w *world, e estate){
		"disabled": func(w *world, e estate) {
			must(w, w.admin(), methods.DisableOperator, admin.DisableOperatorCodec, admin.DisableOperatorAnswerCodec,
				admin.DisableOperator{OperatorID: e.operator, Disabled: true, MutationID: w.mutation()}, carrier.Proof{})
		},
		"sessions ended": func(w *world, e estate) {
			must(w, w.admin(), methods.EndSessions, admin.EndSessionsCodec, admin.EndSessionsAnswerCodec,
				admin.EndSessions{OperatorID: e.operator, MutationID: w.mutation()}, carrier.Proof{})
		},
		"machine rotated": func(w *world, e estate) {
			must(w, w.client(), methods.MutateMachine, machine.MutateCodec, machine.MutateAnswerCodec,
				machine.Mutate{Operation: machine.Rotate, Organization: e.organization, Service: e.service, Expected: 1, Grant: machine.PlatformSession, Mutation: w.mutation()}, carrier.Proof{Token: e.jwt})
		},
		"machine revoked": func(w *world, e estate) {
			must(w, w.client(), methods.MutateMachine, machine.MutateCodec, machine.MutateAnswerCodec,
				machine.Mutate{Operation: machine.Revoke, Organization: e.organization, Service: e.service, Expected: 1, Grant: machine.PlatformSession, Mutation: w.mutation()}, carrier.Proof{Token: e.jwt})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e, other := w.estate("a"), w.estate("b")
			open := func(jwt zone.Secret) *carrier.Socket {
				s, err := w.socket(jwt)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			persons, machines := open(e.jwt), open(w.machineToken(e))
			otherPersons, otherMachines := open(other.jwt), open(w.machineToken(other))
			end(w, e)
			hit, stays := persons, machines
			if strings.HasPrefix(name, "machine") {
				hit, stays = machines, persons
			}
			if !gone(hit) || !errors.Is(hit.Err(), rpc.ErrSessionOver) {
				t.Errorf("the socket is still open, or ended by %v", hit.Err())
			}
			for _, s := range []*carrier.Socket{stays, otherPersons, otherMachines} {
				if _, err := w.identity(s, carrier.Proof{}); err != nil {
					t.Errorf("another one's socket: %v", err)
				}
			}
		})
	}
}

// TestF36EndOfAToken: at the end of its token a session is over, though the socket
// is open.
func TestF36EndOfAToken(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	s, err := w.socket(e.jwt)
	if err != nil {
		t.Fatal(err)
	}
	w.pass(token.OperatorLife - time.Second)
	if _, err := w.identity(s, carrier.Proof{}); err != nil {
		t.Errorf("before the end: %v", err)
	}
	w.pass(time.Second)
	if _, err := w.identity(s, carrier.Proof{}); !errors.Is(err, rpc.ErrSessionOver) {
		t.Errorf("at the end: %v", err)
	}
}

// TestRoleIsAskedForAtEachRequest: a membership that is taken away, and an
// operator who administers the installation no more, count from the next request
// on the open socket.
func TestRoleIsAskedForAtEachRequest(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	s, err := w.socket(e.jwt)
	if err != nil {
		t.Fatal(err)
	}
	operators := func() error {
		_, err := call(w, s, methods.GetOperators, admin.GetOperatorsCodec, admin.GetOperatorsAnswerCodec, admin.GetOperators{OrganizationID: e.organization}, carrier.Proof{})
		return err
	}
	if err := operators(); err != nil {
		t.Fatal(err)
	}
	must(w, w.admin(), methods.SetMember, admin.SetMemberCodec, admin.SetMemberAnswerCodec,
		admin.SetMember{OrganizationID: e.organization, OperatorID: e.operator, MutationID: w.mutation()}, carrier.Proof{})
	if err := operators(); err == nil {
		t.Error("a membership that was taken away still counts")
	}
}

// TestHostileTypedRequests: what is no typed request is refused by name on every
// carrier, and touches nothing.
func TestHostileTypedRequests(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	bodies := map[string]string{
		"empty": "", "null": "null", "a list": "[]", "half": `{"method":`, "no method": `{"request":{},"correlation":{"id":"i","phase":"request"}}`,
		"no request":   `{"method":"getIdentity","correlation":{"id":"i","phase":"request"}}`,
		"two methods":  `{"method":"getIdentity","method":"getNodes","request":{},"correlation":{"id":"i","phase":"request"}}`,
		"a member":     `{"method":"getIdentity","request":{},"authInfo":1,"correlation":{"id":"i","phase":"request"}}`,
		"an answer":    `{"method":"getIdentity","response":{},"correlation":{"id":"i","phase":"response"}}`,
		"a bad id":     `{"method":"getIdentity","request":{},"correlation":{"id":"<script>","phase":"request"}}`,
		"deep":         strings.Repeat(`{"a":`, 5000),
		"not UTF-8":    "{\"method\":\"\xff\"}",
		"prototype":    `{"__proto__":{},"method":"getIdentity","request":{},"correlation":{"id":"i","phase":"request"}}`,
		"huge numbers": `{"method":"getAudit","request":{"limit":1e999},"correlation":{"id":"i","phase":"request"}}`,
	}
	for name, body := range bodies {
		for where, path := range map[string]string{"HTTP": carrier.Path, "admin": adminPath + carrier.Path} {
			var text string
			cost := w.store.Cost(func() { _, text = w.post(path, body) })
			if !strings.Contains(text, `"code":"`) || strings.Contains(text, `"response":{`) || cost.Transactions > 0 {
				t.Errorf("%s over %s: %s %+v", name, where, text, cost)
			}
		}
		socket := w.dial()
		if text := w.exchange(socket, ask("registerCloudlyClientSession", `"protocol":`+goodOffer+`,"jwt":"`+e.jwt.Reveal()+`"`)); !strings.Contains(text, `"expiresAt"`) {
			t.Fatal(text)
		}
		var text string
		if name == "an answer" { // nobody waits for it, and what follows is answered
			if err := socket.Write(t.Context(), websocket.MessageText, []byte(body)); err != nil {
				t.Fatal(err)
			}
			if text = w.exchange(socket, ask("getIdentity", "")); !strings.Contains(text, `"operatorId":"op-a"`) {
				t.Errorf("after an answer that nobody waits for: %s", text)
			}
			continue
		}
		cost := w.store.Cost(func() { text = w.exchange(socket, body) })
		if strings.Contains(text, `"response":{`) || !strings.Contains(text, `"code":"`) && !strings.HasPrefix(text, "gone: ") || cost.Transactions > 0 {
			t.Errorf("%s over a socket: %s %+v", name, text, cost)
		}
	}
}
