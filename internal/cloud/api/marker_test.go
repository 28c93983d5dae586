package api_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/internal/carrier"
	"github.com/allodhq/allod/internal/cloud/store/sqlite"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/machine"
	"github.com/allodhq/allod/wire/zone/methods"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/rpc"
	"github.com/allodhq/allod/wire/zone/spark"
)

// holds reports whether a text stands in a place: as it is, in hexadecimal, or in
// base64 at each of the three offsets that it can have in a longer text.
func holds(place, text string) bool {
	needles := []string{text, hex.EncodeToString([]byte(text))}
	for offset := range 3 {
		coded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("\x00", offset) + text))
		if from, to := (offset*8+5)/6, len(coded)-1; from < to {
			needles = append(needles, coded[from:to], strings.NewReplacer("+", "-", "/", "_").Replace(coded[from:to]))
		}
	}
	for _, needle := range needles {
		if strings.Contains(place, needle) {
			return true
		}
	}
	return false
}

// TestF06SecretsStayWhereTheyBelong runs every sensitive method with secrets of its
// own, well and badly, and looks for them in the log at its most talkative, in the
// errors, in the audit log and in the database's files.
func TestF06SecretsStayWhereTheyBelong(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "zone.db"), Clock: nil})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := newWorldOn(t, s)
	secrets := map[string]string{"the first login link": w.first.Reveal()}
	keep := func(name string, secret string) {
		if len(secret) < 12 {
			t.Fatalf("%s is %q", name, secret)
		}
		secrets[name] = secret
	}
	var refusals strings.Builder

	// Each sensitive method, once well.
	keep("a token", w.login(w.first).Reveal())
	e := w.estate("a")
	as := carrier.Proof{Token: e.jwt}
	keep("an operator's token", e.jwt.Reveal())
	keep("a machine's bearer", e.machine.Reveal())
	keep("a machine's token", w.machineToken(e).Reveal())
	keep("a login link", w.link(e.operator).Reveal())
	keep("Spark's bearer", e.node.spark.Reveal())
	keep("Pallet's bearer", e.node.pallet.Reveal())
	line := w.invite(e.cluster, as)
	keep("a Jump code", line.Code.Reveal())
	if _, err := w.socket(e.jwt); err != nil {
		t.Fatal(err)
	}
	if status, body := w.post(spark.Path, heartbeat(t, e.node.spark, report())); status != 200 {
		t.Fatal(body)
	}
	next, err := enroll.NewBearer(w.rand)
	if err != nil {
		t.Fatal(err)
	}
	keep("the next bearer", next.Reveal())
	must(w, w.client(), methods.RotateCredential, enroll.RotateRequestCodec, enroll.RotateResponseCodec, enroll.RotateRequest{
		Protocol: ours, Bearer: e.node.spark,
		Rotation: enroll.Rotation{Purpose: enroll.Spark, NextCredentialHash: next.Hash(), ExpectedGeneration: 1, RotationID: "r-1"},
	}, carrier.Proof{})
	must(w, w.client(), methods.EnrollmentState, enroll.StateRequestCodec, enroll.StateResponseCodec, enroll.StateRequest{Protocol: ours, Bearer: next}, carrier.Proof{})
	must(w, w.client(), methods.GetCredential, enroll.CredentialRequestCodec, enroll.CredentialResponseCodec, enroll.CredentialRequest{Protocol: ours, Bearer: next}, carrier.Proof{})
	second := must(w, w.client(), methods.MutateMachine, machine.MutateCodec, machine.MutateAnswerCodec,
		machine.Mutate{Operation: machine.Rotate, Organization: e.organization, Service: e.service, Expected: 1, Grant: machine.PlatformSession, Mutation: w.mutation()}, as)
	keep("the next machine's bearer", second.Bearer.Reveal())

	// Each of them badly: what is wrong stands in every place that a request has.
	marker := "canary-" + strings.Repeat("5d", 20)
	keep("a marker", marker)
	for m := range methods.Controller.All() {
		if m.Sensitivity != rpc.Sensitive {
			continue
		}
		content := strings.TrimSuffix(strings.TrimPrefix(requests[m.Name], "{"), "}")
		for _, members := range []string{
			content + `,"` + marker + `":1`,
			content + `,"more":"` + marker + `"`,
			`"code":"` + marker + `","bearer":"` + marker + `","jwt":"` + marker + `","proof":{"kind":"` + marker + `","value":"` + marker + `"}`,
			content + `,"bearer":"` + next.Reveal() + `x","identity":{"jwt":"` + e.jwt.Reveal() + `x"}`,
			content + `,"bearer":"` + strings.Repeat("A", 43) + `"`,
		} {
			members = strings.TrimPrefix(members, ",")
			_, text := w.post(carrier.Path, ask(m.Name, members+`,"protocol":`+goodOffer))
			refusals.WriteString(text)
			refusals.WriteString(w.exchange(w.dial(), ask(m.Name, members+`,"protocol":`+goodOffer)))
			_, text = w.post(adminPath+carrier.Path, ask(m.Name, members+`,"protocol":`+goodOffer))
			refusals.WriteString(text)
		}
		_, text := w.post(carrier.Path, `{"method":"`+m.Name+`","request":"`+marker+`","`+marker+`":1,"correlation":{"id":"i","phase":"request"}}`)
		refusals.WriteString(text)
	}
	for _, body := range []string{`{"protocol":` + goodOffer + `,"bearer":"` + marker + `","` + marker + `":1}`, marker, heartbeat(t, e.node.spark, report()), `{"protocol":"` + marker + `"}`} {
		_, text := w.post(spark.Path, body)
		refusals.WriteString(text)
	}
	for _, code := range []string{w.first.Reveal(), e.machine.Reveal()} { // used up, and replaced
		_, text := w.post(carrier.Path, ask("exchangeLoginLink", `"protocol":`+goodOffer+`,"code":"`+code+`"`))
		refusals.WriteString(text)
		_, text = w.post(carrier.Path, ask("exchangeServiceMachineCredential", `"protocol":`+goodOffer+`,"bearer":"`+code+`"`))
		refusals.WriteString(text)
	}

	var audit strings.Builder
	for cursor := zone.Cursor(""); ; {
		a := must(w, w.admin(), methods.GetAudit, admin.GetAuditCodec, admin.GetAuditAnswerCodec, admin.GetAudit{Cursor: cursor, Limit: 256}, carrier.Proof{})
		for _, entry := range a.Entries {
			fmt.Fprintf(&audit, "%+v\n", entry)
		}
		if cursor = a.NextCursor; cursor == "" {
			break
		}
	}
	all := must(w, w.admin(), methods.GetNodes, nodes.ListCodec, nodes.PageCodec, nodes.List{}, carrier.Proof{})
	places := map[string]string{"the log": w.log.String(), "the errors": refusals.String(), "the audit log": audit.String(), "what is listed of nodes": fmt.Sprintf("%+v", all)}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		places["the file "+f.Name()] = string(content)
	}
	for where, place := range places {
		if len(place) < 50 {
			t.Errorf("%s has only %d bytes", where, len(place))
		}
		for name, secret := range secrets {
			if holds(place, secret) {
				t.Errorf("%s is in %s", name, where)
			}
		}
	}
	// The search finds what is there: a hash of a bearer is in the files, and a secret
	// that is put into the log on purpose is found there.
	found := false
	for where, place := range places {
		hash, err := hex.DecodeString(next.Hash().Text())
		if err != nil {
			t.Fatal(err)
		}
		found = found || strings.HasPrefix(where, "the file") && (strings.Contains(place, string(hash)) || strings.Contains(place, next.Hash().Text()))
	}
	if !found {
		t.Error("the search does not find the hash that is kept")
	}
	slog.New(slog.NewJSONHandler(w.log, nil)).Info("planted", "bearer", next.Reveal(), "coded", base64.StdEncoding.EncodeToString([]byte("x"+line.Code.Reveal())), "refusal", refusal.Internal)
	for _, planted := range []string{next.Reveal(), line.Code.Reveal()} {
		if !holds(w.log.String(), planted) {
			t.Error("the search does not find what was planted")
		}
	}
}
