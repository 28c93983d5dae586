package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/spark"
)

// TestF10PalletsMethodsAreOnNoNetwork: what a machine's Pallet is asked on its local
// socket is unknown on every carrier of a controller, whoever asks.
func TestF10PalletsMethodsAreOnNoNetwork(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	session := w.session(e.jwt)
	for _, method := range []string{enroll.MethodPalletPrepare, enroll.MethodPalletBind, enroll.MethodPalletActivate} {
		if methods.Controller.Find(method) != nil {
			t.Errorf("%s is in the controller's table", method)
		}
		for who, members := range map[string]string{
			"nobody":      `"protocol":` + goodOffer,
			"an operator": identified("", e.jwt),
			"Pallet":      `"protocol":` + goodOffer + `,"bearer":"` + e.node.pallet.Reveal() + `"`,
			"as prepared": `"generation":0,"sessionEpoch":0`,
		} {
			answers := map[string]string{}
			cost := w.store.Cost(func() {
				_, answers["HTTP"] = w.post(carrier.Path, ask(method, members))
				_, answers["the admin socket"] = w.post(adminPath+carrier.Path, ask(method, members))
			})
			if cost.Transactions > 0 {
				t.Errorf("%s by %s cost %+v", method, who, cost)
			}
			answers["a session"] = session(method, members)
			answers["a bare socket"] = w.exchange(w.dial(), ask(method, members))
			for where, text := range answers {
				if !strings.Contains(text, `"code":"method-unknown"`) {
					t.Errorf("%s by %s over %s: %s", method, who, where, text)
				}
			}
			status, text := w.post(spark.Path, ask(method, members))
			if status != http.StatusBadRequest {
				t.Errorf("%s by %s on Spark's route: %d %s", method, who, status, text)
			}
		}
	}
}
