package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// TestF11NoLivenessByAStaleCredential: a report by a bearer that was rotated, ended or
// revoked, or is Pallet's, is no sign of life: what is shown of the node stays, byte
// for byte, and nothing is written.
func TestF11NoLivenessByAStaleCredential(t *testing.T) {
	w := newWorld(t)
	e := w.full("a")
	late := report()
	late.Host.UptimeSeconds = 77
	stale := func(when string, b enroll.Bearer) {
		t.Helper()
		before := w.done("getNode", ofNode(e), e.jwt)
		var status int
		var text string
		cost := w.store.Cost(func() { status, text = w.post(spark.Path, heartbeat(t, b, late)) })
		if status != http.StatusUnauthorized || len(cost.Writes) > 0 {
			t.Errorf("%s: %d %s, %+v", when, status, text, cost)
		}
		if after := w.done("getNode", ofNode(e), e.jwt); after != before {
			t.Errorf("%s: %s, before %s", when, after, before)
		}
	}
	next, err := enroll.NewBearer(w.rand)
	if err != nil {
		t.Fatal(err)
	}
	w.done("rotateNodeCredential", `"bearer":"`+e.node.spark.Reveal()+`","purpose":"spark","nextCredentialHash":"`+next.Hash().Text()+`","expectedGeneration":1,"rotationId":"r1"`, zone.Secret{})
	stale("the generation and epoch before", e.node.spark)
	stale("Pallet's", e.node.pallet)
	if status, text := w.post(spark.Path, heartbeat(t, next, late)); status != http.StatusOK {
		t.Fatalf("the next one: %d %s", status, text)
	}
	w.pass(90 * 24 * time.Hour)
	e.jwt = w.login(w.link(e.operator))
	stale("ended", next)
	w.done("removeNode", ofNode(e)+`,"palletOnly":false,"mutationId":"gone"`, e.jwt)
	stale("revoked", next)
}
