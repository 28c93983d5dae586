package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

// machines asks for changes of the machine of one service.
type machines struct {
	w *world
	e estate
}

func (m machines) members(operation, expected, mutation string) string {
	return fmt.Sprintf(`"operation":%q,"organizationId":%q,"serviceId":%q,"expectedGeneration":%s,"grant":"platform:session","mutationId":%q`,
		operation, m.e.organization, m.e.service, expected, mutation)
}

func (m machines) change(operation, expected, mutation string) (text string, bearer zone.Secret) {
	m.w.t.Helper()
	text = m.w.done("mutateServiceMachineCredential", m.members(operation, expected, mutation), m.e.jwt)
	if !strings.Contains(text, `"bearer":null`) {
		bearer = zone.Conceal(between(m.w.t, text, `"bearer":"`, `"`))
	}
	return text, bearer
}

func (m machines) refused(what, operation, expected, code string) {
	m.w.t.Helper()
	m.w.refuses(what, "mutateServiceMachineCredential", m.members(operation, expected, m.w.id()), m.e.jwt, code)
}

func (m machines) token(bearer zone.Secret) zone.Secret {
	m.w.t.Helper()
	return zone.Conceal(between(m.w.t, m.w.done("exchangeServiceMachineCredential", `"bearer":"`+bearer.Reveal()+`"`, zone.Secret{}), `"jwt":"`, `"`))
}

// over holds that a bearer and its token count no more: for a new token, over HTTP
// and for a new session.
func (m machines) over(when string, bearer, jwt zone.Secret) {
	m.w.t.Helper()
	m.w.refuses(when, "exchangeServiceMachineCredential", `"bearer":"`+bearer.Reveal()+`"`, zone.Secret{}, "service-machine-bearer")
	m.w.refuses(when, "getIdentity", "", jwt, "service-machine-token")
	if _, err := m.w.socket(jwt); err == nil {
		m.w.t.Errorf("%s: the token opened a session", when)
	}
}

func (m machines) counts(when string, jwt zone.Secret) {
	m.w.t.Helper()
	if text := m.w.say("getIdentity", "", jwt); !strings.Contains(text, `"serviceId":"`+string(m.e.service)+`"`) {
		m.w.t.Errorf("%s: %s", when, text)
	}
}

// TestF14OverTheCarrier goes through the life of a machine credential, in the
// contract's bytes: one ensure, exact generations, and no token beyond its own.
func TestF14OverTheCarrier(t *testing.T) {
	w := newWorld(t)
	m := machines{w, w.estate("a")}
	first := w.machineToken(m.e)
	m.counts("generation 1", first)
	m.refused("a second ensure", "ensure", "null", "service-machine-exists")
	for what, generation := range map[string]string{"one that is to come": "2", "one far away": "9007199254740991"} {
		m.refused(what, "rotate", generation, "revision-conflict")
		m.refused(what, "revoke", generation, "revision-conflict")
	}
	for _, wrong := range []struct{ operation, expected string }{{"ensure", "1"}, {"ensure", "0"}, {"rotate", "null"}, {"revoke", "null"}, {"rotate", "0"}, {"rotate", `"1"`}, {"extend", "1"}} {
		m.refused("expecting "+wrong.expected, wrong.operation, wrong.expected, "request-schema-invalid")
	}
	m.counts("after what was refused", first)

	session, err := w.socket(first)
	if err != nil {
		t.Fatal(err)
	}
	text, bearer := m.change("rotate", "1", "rotate-1")
	if !strings.Contains(text, `"generation":2`) || bearer.IsZero() {
		t.Errorf("%s", text)
	}
	m.over("rotated", m.e.machine, first)
	<-session.Done()
	second := m.token(bearer)
	m.counts("generation 2", second)
	m.refused("a stale generation", "rotate", "1", "revision-conflict")
	m.refused("a stale generation", "revoke", "1", "revision-conflict")
	if text, _ := m.change("revoke", "2", "revoke-2"); !strings.Contains(text, `"state":"revoked"`) || !strings.Contains(text, `"generation":2`) {
		t.Errorf("%s", text)
	}
	m.over("revoked", bearer, second)
	m.refused("what is revoked", "revoke", "2", "revision-conflict")

	// What counts again is the next generation, and no token of those before.
	text, third := m.change("ensure", "null", "ensure-3")
	if !strings.Contains(text, `"generation":3`) {
		t.Errorf("%s", text)
	}
	m.over("before the third", m.e.machine, first)
	m.over("before the third", bearer, second)
	m.counts("generation 3", m.token(third))
}

// TestF14ReplayOverTheCarrier: a repeat tells what happened, with no bearer, and
// revives nothing.
func TestF14ReplayOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	m := machines{w, w.estate("a")}
	m.change("revoke", "1", "revoke-1")
	ensured, bearer := m.change("ensure", "null", "ensure-2")
	jwt := m.token(bearer)
	rotated, next := m.change("rotate", "2", "rotate-2")
	nextJWT := m.token(next)
	revoked, _ := m.change("revoke", "3", "revoke-3")
	now := w.done("getServiceMachineCredential", `"organizationId":"`+string(m.e.organization)+`","serviceId":"`+string(m.e.service)+`"`, m.e.jwt)
	if !strings.Contains(now, `"state":"revoked"`) || !strings.Contains(now, `"generation":3`) {
		t.Fatal(now)
	}
	for _, repeat := range []struct{ operation, expected, mutation, first string }{
		{"ensure", "null", "ensure-2", ensured}, {"rotate", "2", "rotate-2", rotated}, {"revoke", "3", "revoke-3", revoked},
	} {
		var text string
		cost := w.store.Cost(func() { text, _ = m.change(repeat.operation, repeat.expected, repeat.mutation) })
		if between(t, text, `"credential":`, `}`) != between(t, repeat.first, `"credential":`, `}`) || !strings.Contains(text, `"replayed":true`) || !strings.Contains(text, `"bearer":null`) || len(cost.Writes) > 0 {
			t.Errorf("%s: %s, first %s; writes %v", repeat.mutation, text, repeat.first, cost.Writes)
		}
		m.over("after the repeat of "+repeat.mutation, bearer, jwt)
		m.over("after the repeat of "+repeat.mutation, next, nextJWT)
	}
	w.refuses("another change under a used id", "mutateServiceMachineCredential", m.members("revoke", "3", "ensure-2"), m.e.jwt, "mutation-conflict")
	if text := w.done("getServiceMachineCredential", `"organizationId":"`+string(m.e.organization)+`","serviceId":"`+string(m.e.service)+`"`, m.e.jwt); text != now {
		t.Errorf("afterwards %s, before %s", text, now)
	}
}

// TestF14AServiceThatMovedOverTheCarrier: a service that another organization has
// now takes its machine's authority with it: for nobody.
func TestF14AServiceThatMovedOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	m := machines{w, w.estate("a")}
	other := w.estate("b")
	jwt := w.machineToken(m.e)
	session := w.session(jwt)
	w.put(func(tx store.Tx) error {
		v, _, err := tx.Service(m.e.service)
		if err != nil {
			return err
		}
		v.Organization, v.Cluster = other.organization, other.cluster
		return tx.PutService(v)
	})
	m.over("moved", m.e.machine, jwt)
	if text := session("getIdentity", ""); !strings.Contains(text, `"code":`) {
		t.Errorf("the open session: %s", text)
	}
	m.refused("the organization before", "rotate", "1", "zone-absent")
	m.e.organization, m.e.jwt = other.organization, other.jwt
	m.refused("the generation of the organization before", "rotate", "1", "revision-conflict")
	text, bearer := m.change("ensure", "null", "ensure-b")
	if !strings.Contains(text, `"generation":2`) {
		t.Errorf("%s", text)
	}
	m.counts("the new organization's", m.token(bearer))
	if text := w.say("getIdentity", "", jwt); !strings.Contains(text, `"code":`) {
		t.Errorf("the token from before the move: %s", text)
	}
}
