package bench

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/spark"
)

// TestPost holds that no report counts that was not answered with its receipt.
func TestPost(t *testing.T) {
	b, err := enroll.NewBearer(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	who := enroll.Identity{NodeID: "node-a", Purpose: enroll.Spark, Generation: 1, SessionEpoch: 1}
	good := func(r spark.Request) (int, spark.Response) {
		digest, err := spark.Digest(r.Report)
		if err != nil {
			t.Error(err)
		}
		return 200, spark.Response{Protocol: handshake.Ours(spark.Session), Receipt: spark.Receipt{
			NodeID: who.NodeID, CredentialGeneration: 1, SessionEpoch: 1, AcceptedAt: zone.At(time.Now()), ReportDigest: digest,
		}}
	}
	for name, c := range map[string]struct {
		answer func(r spark.Request) (int, spark.Response)
		text   string // in place of the answer
		want   error
	}{
		"receipt": {good, "", nil},
		"another report's receipt": {func(r spark.Request) (int, spark.Response) {
			s, a := good(r)
			a.Receipt.ReportDigest[0]++
			return s, a
		}, "", errNoReceipt},
		"another node's receipt": {func(r spark.Request) (int, spark.Response) {
			s, a := good(r)
			a.Receipt.NodeID = "node-b"
			return s, a
		}, "", errNoReceipt},
		"refused": {func(r spark.Request) (int, spark.Response) { _, a := good(r); return 401, a }, "", errNoReceipt},
		"no JSON": {good, "canary", errNoReceipt},
		"endless": {good, strings.Repeat(" ", spark.MaxResponse+2), errNoReceipt},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, err := io.ReadAll(r.Body)
				if err != nil || r.URL.Path != spark.Path || r.Method != http.MethodPost || len(text) > spark.MaxRequest {
					t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
				}
				request, err := spark.RequestCodec.Read(text)
				if err != nil || !request.Bearer.Equal(b) {
					t.Errorf("the request: %v", err)
				}
				status, answer := c.answer(request)
				out, err := spark.ResponseCodec.Append(nil, answer)
				if err != nil {
					t.Error(err)
				}
				if c.text != "" {
					out = []byte(c.text)
				}
				w.WriteHeader(status)
				_, _ = w.Write(out)
			}))
			defer server.Close()
			f := &fleet{url: server.URL}
			n := &node{bearer: b, who: who, report: reportOf("bench-00001"), http: server.Client()}
			if err := f.post(t.Context(), n, n.report); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			server.Close()
			if err := f.post(t.Context(), n, n.report); err == nil || errors.Is(err, errNoReceipt) {
				t.Errorf("nobody there: %v", err)
			}
		})
	}
}

// TestReportIsReal: what is played is what the contract takes.
func TestReportIsReal(t *testing.T) {
	r := reportOf("bench-01999")
	r.ObservedAt = 1
	text, err := spark.ReportCodec.Append(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := spark.ReportCodec.Read(text); err != nil || got != r {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestDialer: no two nodes of the largest run call from one address, where a machine
// has many.
func TestDialer(t *testing.T) {
	seen := map[string]bool{}
	for i := range MaxNodes {
		a := dialer(i).LocalAddr
		if a == nil {
			t.Skip("this system has one address of its own")
		}
		if ip := a.String(); seen[ip] || !strings.HasPrefix(ip, "127.") || strings.HasPrefix(ip, "127.0.") {
			t.Fatalf("node %d calls from %s", i, ip)
		} else {
			seen[ip] = true
		}
	}
}
