package api_test

import (
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/rpc/rpctest"
	"github.com/allodhq/allod/wire/zone/spark"
)

// TestF02SchemaVersionIsAnUnknownMember: a message of an old release, which said its
// version, is no message of any method, and no report.
func TestF02SchemaVersionIsAnUnknownMember(t *testing.T) {
	w := newWorld(t)
	e := w.estate("a")
	for name, good := range requests {
		m := methods.Controller.Find(name)
		if m.Opens {
			continue
		}
		members := strings.TrimSuffix(`"schemaVersion":1,`+inner(good), ",")
		if m.Takes(rpc.HTTP).Bearer {
			members += `,"bearer":"` + rpctest.Bearer + `"`
		}
		jwt := e.jwt
		if !m.Takes(rpc.HTTP).Identity {
			jwt = e.none()
		}
		if cost := w.refuses("schemaVersion", name, members, jwt, "request-schema-invalid"); cost.Transactions > 0 {
			t.Errorf("%s cost %+v", name, cost)
		}
	}
	body := heartbeat(t, e.node.spark, report())
	for _, object := range []string{`{`, `"report":{`} {
		if status, text := w.post(spark.Path, strings.Replace(body, object, object+`"schemaVersion":1,`, 1)); status != 400 || !strings.Contains(text, "request-schema-invalid") {
			t.Errorf("%d %s", status, text)
		}
	}
}
