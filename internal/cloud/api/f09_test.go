package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// TestF09ABearerIsForItsPurposeAlone: Spark's bearer does nothing that is Pallet's,
// the reverse, and neither anything of an organization, wherever in a request it is.
func TestF09ABearerIsForItsPurposeAlone(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	rotate := func(b enroll.Bearer, p enroll.Purpose) string {
		return fmt.Sprintf(`"bearer":%q,"purpose":%q,"nextCredentialHash":%q,"expectedGeneration":1,"rotationId":"r1"`, b.Reveal(), p, hash)
	}
	w.refuses("Spark for Pallet", "rotateNodeCredential", rotate(e.node.spark, enroll.Pallet), zone.Secret{}, "node-credential")
	w.refuses("Pallet for Spark", "rotateNodeCredential", rotate(e.node.pallet, enroll.Spark), zone.Secret{}, "node-credential")
	state := w.say("getNodeEnrollmentState", `"bearer":"`+e.node.pallet.Reveal()+`"`, zone.Secret{})
	if !strings.Contains(state, `"code":`) || strings.Contains(state, `"response":{`) {
		t.Errorf("Pallet reads the state of the enrollment: %s", state)
	}
	if status, text := w.post(spark.Path, heartbeat(t, e.node.pallet, report())); status != http.StatusUnauthorized {
		t.Errorf("Pallet reports as Spark: %d %s", status, text)
	}
	before := w.everything(e)
	for purpose, b := range map[string]enroll.Bearer{"spark": e.node.spark, "pallet": e.node.pallet} {
		if text := w.done("getNodeCredential", `"bearer":"`+b.Reveal()+`"`, zone.Secret{}); !strings.Contains(text, `"purpose":"`+purpose+`"`) {
			t.Errorf("%s", text)
		}
		for _, l := range lookups {
			members := l.members(e, w.id())
			what := purpose + "'s bearer"
			w.refuses(what+" as bearer", l.method, members+`,"bearer":"`+b.Reveal()+`"`, zone.Secret{}, "request-schema-invalid")
			w.refuses(what+" beside an operator's token", l.method, members+`,"bearer":"`+b.Reveal()+`"`, e.jwt, "request-schema-invalid")
			if text := w.say(l.method, members, zone.Conceal(b.Reveal())); !strings.Contains(text, `"code":`) || strings.Contains(text, `"response":{`) {
				t.Errorf("%s as a token, %s: %s", what, l.method, text)
			}
		}
		w.refuses(purpose+"'s bearer as a service's", "exchangeServiceMachineCredential", `"bearer":"`+b.Reveal()+`"`, zone.Secret{}, "service-machine-bearer")
		if _, err := w.socket(zone.Conceal(b.Reveal())); err == nil {
			t.Errorf("%s's bearer opened a session", purpose)
		}
	}
	if after := w.everything(e); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

// TestF09ARotationEndsTheBearerBefore: at once, for everything that it was for, with
// the epoch one on; and what is told of a credential are its five facts.
func TestF09ARotationEndsTheBearerBefore(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	facts := regexp.MustCompile(`^\{"nodeId":"[a-z0-9-]+","credential":\{"purpose":"(spark|pallet)","state":"active","generation":(\d),"sessionEpoch":(\d),"rotationRequired":false\},"protocol":`)
	for purpose, old := range map[enroll.Purpose]enroll.Bearer{enroll.Spark: e.node.spark, enroll.Pallet: e.node.pallet} {
		read := func(b enroll.Bearer, counter string) {
			t.Helper()
			text := content(t, w.done("getNodeCredential", `"bearer":"`+b.Reveal()+`"`, zone.Secret{}))
			if found := facts.FindStringSubmatch(text); found == nil || found[1] != string(purpose) || found[2] != counter || found[3] != counter {
				t.Errorf("%s, want the five facts at %s", text, counter)
			}
			if strings.Contains(text, b.Reveal()) || strings.Contains(text, b.Hash().Text()) {
				t.Errorf("a bearer or its hash is told: %s", text)
			}
		}
		read(old, "1")
		next, err := enroll.NewBearer(w.rand)
		if err != nil {
			t.Fatal(err)
		}
		w.done("rotateNodeCredential", fmt.Sprintf(`"bearer":%q,"purpose":%q,"nextCredentialHash":%q,"expectedGeneration":1,"rotationId":"r1"`, old.Reveal(), purpose, next.Hash().Text()), zone.Secret{})
		for method, members := range map[string]string{
			"getNodeCredential":      "",
			"getNodeEnrollmentState": "",
			"rotateNodeCredential":   fmt.Sprintf(`,"purpose":%q,"nextCredentialHash":%q,"expectedGeneration":2,"rotationId":"r2"`, purpose, hash),
		} {
			w.refuses("the bearer before", method, `"bearer":"`+old.Reveal()+`"`+members, zone.Secret{}, "node-credential")
		}
		if purpose == enroll.Spark {
			if status, text := w.post(spark.Path, heartbeat(t, old, report())); status != http.StatusUnauthorized {
				t.Errorf("the bearer before reports: %d %s", status, text)
			}
		}
		read(next, "2")
	}
}
