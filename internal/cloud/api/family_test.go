package api_test

import (
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/store/storecount"
	"github.com/allodhq/allod/wire/zone"
)

// identified are the members of a request over HTTP by whoever has the token, and by
// nobody where there is none.
func identified(members string, jwt zone.Secret) string {
	members = strings.TrimSuffix(`"protocol":`+goodOffer+`,`+members, ",")
	if !jwt.IsZero() {
		members += `,"identity":{"jwt":"` + jwt.Reveal() + `"}`
	}
	return members
}

// inner are the members of an object.
func inner(object string) string {
	return strings.TrimSuffix(strings.TrimPrefix(object, "{"), "}")
}

// say asks over HTTP, in the bytes of the contract.
func (w *world) say(method, members string, jwt zone.Secret) string {
	w.t.Helper()
	_, text := w.post(carrier.Path, ask(method, identified(members, jwt)))
	return text
}

// done asks for what has to be done.
func (w *world) done(method, members string, jwt zone.Secret) string {
	w.t.Helper()
	text := w.say(method, members, jwt)
	if !strings.Contains(text, `"response":{`) {
		w.t.Fatalf("%s: %s", method, text)
	}
	return text
}

// refuses asks for what has to be refused under a name, without a write, and returns
// what it cost.
func (w *world) refuses(what, method, members string, jwt zone.Secret, code string) storecount.Cost {
	w.t.Helper()
	var text string
	cost := w.store.Cost(func() { text = w.say(method, members, jwt) })
	if !strings.Contains(text, `"code":"`+code+`"`) || strings.Contains(text, `"response":{`) || len(cost.Writes) > 0 {
		w.t.Errorf("%s, %s: %s, want %s; writes %v", what, method, text, code, cost.Writes)
	}
	return cost
}

// session is a way to ask on a socket that a token opened.
func (w *world) session(jwt zone.Secret) func(method, members string) string {
	w.t.Helper()
	c := w.dial()
	if text := w.exchange(c, ask("registerCloudlyClientSession", `"protocol":`+goodOffer+`,"jwt":"`+jwt.Reveal()+`"`)); !strings.Contains(text, `"expiresAt"`) {
		w.t.Fatal(text)
	}
	return func(method, members string) string {
		w.t.Helper()
		return w.exchange(c, ask(method, strings.TrimSuffix(members, ",")))
	}
}

// put changes the store behind the controller, for facts that no request makes yet.
func (w *world) put(do func(tx store.Tx) error) {
	w.t.Helper()
	if err := w.store.Write(w.t.Context(), do); err != nil {
		w.t.Fatal(err)
	}
}

// between is what stands in a text after one word and before the next.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, from)
	inside, _, ends := strings.Cut(rest, to)
	if !found || !ends {
		t.Fatalf("there is no %s...%s in %s", from, to, text)
	}
	return inside
}

// content is the answer of a method, without the envelope.
func content(t *testing.T, text string) string {
	t.Helper()
	_, inside, found := strings.Cut(text, `"response":`)
	if !found {
		t.Fatalf("%s is no answer", text)
	}
	return strings.TrimSuffix(inside, "}")
}
