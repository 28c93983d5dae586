package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// TestF03ARefusedOfferWithAGoodCredentialConsumesNothing: every method with a
// credential that counts, and a foreign major: the store is not asked, and with our
// major the same request does then what it is for.
func TestF03ARefusedOfferWithAGoodCredentialConsumesNothing(t *testing.T) {
	w := newWorld(t)
	e, other := w.estate("a"), w.estate("b")
	as := carrier.Proof{Token: e.jwt}
	line := w.invite(e.cluster, as)
	proposal, _ := w.proposal(line)
	next, err := enroll.NewBearer(w.rand)
	if err != nil {
		t.Fatal(err)
	}
	bearer := `"bearer":"` + e.node.spark.Reveal() + `"`
	type request struct{ path, body string }
	good := func(method, members string, jwt zone.Secret) request {
		return request{carrier.Path, ask(method, identified(members, jwt))}
	}
	requests := []request{
		good("exchangeLoginLink", `"code":"`+w.link(other.operator).Reveal()+`"`, zone.Secret{}),
		good("exchangeServiceMachineCredential", `"bearer":"`+e.machine.Reveal()+`"`, zone.Secret{}),
		good("enrollNode", enrollment(t, proposal, enroll.BootstrapByCode(line.Code)), zone.Secret{}),
		good("getNodeEnrollmentState", bearer, zone.Secret{}),
		good("getNodeCredential", bearer, zone.Secret{}),
		{spark.Path, heartbeat(t, e.node.spark, report())},
		good("rotateNodeCredential", bearer+`,"purpose":"spark","nextCredentialHash":"`+next.Hash().Text()+`","expectedGeneration":1,"rotationId":"r1"`, zone.Secret{}),
	}
	for _, l := range lookups {
		if l.method != "setMember" { // it would take the role that the others need
			requests = append(requests, good(l.method, l.members(e, w.id()), e.jwt))
		}
	}
	for _, r := range requests {
		if strings.Count(r.body, goodOffer) != 1 {
			t.Fatalf("not one offer in %s", r.body)
		}
		for _, offer := range []string{foreignOffer, `{"interfacesVersion":"31.8.0","minimumPeerVersion":"31.0.0"}`, `{"interfacesVersion":"32.4.0","minimumPeerVersion":"32.1.0"}`} {
			var status int
			var text string
			cost := w.store.Cost(func() { status, text = w.post(r.path, strings.Replace(r.body, goodOffer, offer, 1)) })
			if !strings.Contains(text, `"code":"protocol-incompatible"`) || cost.Transactions > 0 || r.path == spark.Path && status != http.StatusConflict {
				t.Errorf("%.60s with %s: %d %s, %+v", r.body, offer, status, text, cost)
			}
		}
	}
	// A session is not opened either, by a token that counts.
	socket := w.dial()
	register := `"jwt":"` + e.jwt.Reveal() + `","protocol":`
	cost := w.store.Cost(func() {
		if text := w.exchange(socket, ask("registerCloudlyClientSession", register+foreignOffer)); !strings.Contains(text, `"code":"protocol-incompatible"`) {
			t.Errorf("%s", text)
		}
		if text := w.exchange(socket, ask("getIdentity", "")); strings.Contains(text, `"response":{`) {
			t.Errorf("a refused offer opened a session: %s", text)
		}
	})
	if cost.Transactions > 0 {
		t.Errorf("a session that was not opened cost %+v", cost)
	}
	for _, r := range requests { // nothing was used up
		if _, text := w.post(r.path, r.body); strings.Contains(text, `"code":"`) || strings.Contains(text, `"error":`) {
			t.Errorf("%.60s afterwards: %s", r.body, text)
		}
	}
}

// TestF03OffersOverTheCarrier: every spelling that is no offer has a reason of its
// own, and versions compare as numbers, on both of a controller's routes.
func TestF03OffersOverTheCarrier(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	offer := func(speaks, accepts string) string {
		return `{"interfacesVersion":` + speaks + `,"minimumPeerVersion":` + accepts + `}`
	}
	const invalid, foreign = "protocol-offer-invalid", "protocol-incompatible"
	for what, c := range map[string]struct{ offer, code, says string }{
		"ours":                        {goodOffer, "", ""},
		"a later minor":               {offer(`"32.10.0"`, `"32.0.0"`), "", ""},
		"a minor of numbers":          {offer(`"32.10.0"`, `"32.9.0"`), foreign, `"reason":"self-below-peer-minimum"`},
		"a minimum above by number":   {offer(`"32.9.0"`, `"32.10.0"`), invalid, "minimumPeerVersion"},
		"a minimum of another major":  {offer(`"32.0.0"`, `"31.0.0"`), invalid, "minimumPeerVersion"},
		"another major and a minimum": {offer(`"33.0.0"`, `"33.0.0"`), foreign, `"reason":"major-mismatch"`},
		"a v":                         {offer(`"v32.0.0"`, `"32.0.0"`), invalid, "interfacesVersion"},
		"two parts":                   {offer(`"32.0"`, `"32.0.0"`), invalid, "interfacesVersion"},
		"a prerelease":                {offer(`"32.0.0-rc.1"`, `"32.0.0"`), invalid, "interfacesVersion"},
		"build metadata":              {offer(`"32.0.0"`, `"32.0.0+b"`), invalid, "minimumPeerVersion"},
		"a leading zero":              {offer(`"032.0.0"`, `"32.0.0"`), invalid, "interfacesVersion"},
		"a zero more":                 {offer(`"32.0.0"`, `"32.00.0"`), invalid, "minimumPeerVersion"},
		"an extra key":                {strings.Replace(goodOffer, "{", `{"more":1,`, 1), invalid, "protocol must use its exact schema"},
		"a missing member":            {`{"interfacesVersion":"32.0.0"}`, invalid, "protocol must use its exact schema"},
		"another spelling":            {strings.Replace(goodOffer, "interfaces", "Interfaces", 1), invalid, "protocol must use its exact schema"},
		"a number":                    {offer(`32`, `"32.0.0"`), invalid, "interfacesVersion"},
		"null in it":                  {offer(`"32.0.0"`, `null`), invalid, "minimumPeerVersion"},
		"null":                        {`null`, invalid, "protocol"},
		"a text":                      {`"32.0.0"`, invalid, "protocol"},
		"a list":                      {`[]`, invalid, "protocol"},
		"none":                        {"", invalid, "protocol"},
	} {
		for path, body := range map[string]string{
			carrier.Path: ask("getIdentity", identified("", e.jwt)),
			spark.Path:   heartbeat(t, e.node.spark, report()),
		} {
			changed := strings.Replace(body, goodOffer, c.offer, 1)
			if c.offer == "" {
				changed = strings.Replace(strings.Replace(body, `"protocol":`+goodOffer+`,`, "", 1), `,"protocol":`+goodOffer, "", 1)
			}
			var text string
			cost := w.store.Cost(func() { _, text = w.post(path, changed) })
			if c.code == "" {
				if strings.Contains(text, `"code"`) || !strings.Contains(text, `"protocol":`+goodOffer) {
					t.Errorf("%s at %s: %s", what, path, text)
				}
			} else if !strings.Contains(text, `"`+c.code+`"`) || !strings.Contains(text, c.says) || cost.Transactions > 0 {
				t.Errorf("%s at %s: %s, want %s and %s; %+v", what, path, text, c.code, c.says, cost)
			}
		}
	}
}

// TestF03WhatWasReadStays: a refusal names the offer of its own request, whatever
// comes after it into the same connection and its buffers.
func TestF03WhatWasReadStays(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	session := w.session(e.jwt)
	for i := range 20 {
		version := fmt.Sprintf("%d.0.0", 40+i)
		status, text := w.post(spark.Path, `{"protocol":{"interfacesVersion":"`+version+`","minimumPeerVersion":"`+version+`"},"bearer":"`+strings.Repeat("z", i*100)+`"}`)
		if status != http.StatusConflict || !strings.Contains(text, `{"interfacesVersion":"`+version+`","minimumPeerVersion":"`+version+`"}`) {
			t.Errorf("%s: %d %s", version, status, text)
		}
		if text := session("getIdentity", ""); !strings.Contains(text, `"operatorId":"op-a"`) {
			t.Errorf("%s", text)
		}
	}
}
