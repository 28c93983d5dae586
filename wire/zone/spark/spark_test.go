package spark_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/spark"
)

const (
	bearerText = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8" // bytes 0 to 31
	// bearerHash is the sha256sum of the text; it serves as a manifest's digest too.
	bearerHash   = "ea866a757e4c38babfa8127cbe9a409d3e1f93a00ff1488ff735fcf917afffd0"
	protocolJSON = `{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}`

	reportJSON = `{"observedAt":1796133600987,"load":{"cpu":125000,"memory":500000,"disk":1000000},` +
		`"host":{"hostname":"box-1","kernel":"6.8.0-45-generic","os":"Debian GNU/Linux 13 (trixie) é","architecture":"amd64","bootId":"0b8a3f6e-6a52-4b1c-9d5e-1f2a3b4c5d6e","uptimeSeconds":86400,"cpus":8,"memoryBytes":16777216000,"diskBytes":500000000000},` +
		`"bundle":{"version":"0.4.0","sourceCommit":"0123456789abcdef0123456789abcdef01234567","manifestDigest":"` + bearerHash + `"}}`
	requestJSON  = `{"bearer":"` + bearerText + `","protocol":` + protocolJSON + `,"report":` + reportJSON + `}`
	receiptJSON  = `{"nodeId":"node-a","credentialGeneration":4,"sessionEpoch":9,"acceptedAt":1796133601000,"reportDigest":"` + reportDigest + `"}`
	responseJSON = `{"receipt":` + receiptJSON + `,"rotationRequired":false,"protocol":` + protocolJSON + `}`

	// reportForm is the canonical form, written by hand.
	reportForm = `{"bundle":{"manifestDigest":"` + bearerHash + `","sourceCommit":"0123456789abcdef0123456789abcdef01234567","version":"0.4.0"},` +
		`"host":{"architecture":"amd64","bootId":"0b8a3f6e-6a52-4b1c-9d5e-1f2a3b4c5d6e","cpus":8,"diskBytes":500000000000,"hostname":"box-1","kernel":"6.8.0-45-generic","memoryBytes":16777216000,"os":"Debian GNU/Linux 13 (trixie) é","uptimeSeconds":86400},` +
		`"load":{"cpu":125000,"disk":1000000,"memory":500000},"observedAt":1796133600987}`
	// reportDigest is frozen.
	reportDigest = "2bb01e00d24fdb04d49f242beafd29447c978606e7301b2b7cfcef1ed5e59c5c"
)

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func report(t testing.TB) spark.Report { return must(spark.ReportCodec.Read([]byte(reportJSON)))(t) }

func TestF11Messages(t *testing.T) {
	t.Run("report", func(t *testing.T) { zonetest.Exact(t, spark.ReportCodec, reportJSON) })
	t.Run("request", func(t *testing.T) { zonetest.Exact(t, spark.RequestCodec, requestJSON) })
	t.Run("receipt", func(t *testing.T) { zonetest.Exact(t, spark.ReceiptCodec, receiptJSON) })
	t.Run("response", func(t *testing.T) { zonetest.Exact(t, spark.ResponseCodec, responseJSON) })
}

func TestF11DigestIsFrozen(t *testing.T) {
	sum := sha256.Sum256([]byte("serve.zone/spark-node-report\x00" + reportForm))
	if got := hex.EncodeToString(sum[:]); got != reportDigest {
		t.Errorf("the form by hand has digest %s, want %s", got, reportDigest)
	}
	if got := must(spark.Digest(report(t)))(t); got.String() != reportDigest {
		t.Errorf("the digest is %s, want %s", got, reportDigest)
	}
	// The order of members is nobody's business.
	if got := must(spark.Digest(must(spark.ReportCodec.Read([]byte(reportForm)))(t)))(t); got.String() != reportDigest {
		t.Errorf("turned, the digest is %s, want %s", got, reportDigest)
	}
}

// Whatever a report says is in its digest.
func TestF11EveryMemberIsInTheDigest(t *testing.T) {
	for what, change := range fields {
		r := report(t)
		change(&r)
		if got := must(spark.Digest(r))(t); got.String() == reportDigest {
			t.Errorf("another %s has the same digest", what)
		}
	}
	if n := leaves(reflect.TypeFor[spark.Report]()); n != len(fields) {
		t.Errorf("a report has %d members, and %d are tried", n, len(fields))
	}
}

var fields = map[string]func(r *spark.Report){
	"instant":  func(r *spark.Report) { r.ObservedAt++ },
	"cpu":      func(r *spark.Report) { r.Load.CPU++ },
	"memory":   func(r *spark.Report) { r.Load.Memory++ },
	"disk":     func(r *spark.Report) { r.Load.Disk-- },
	"hostname": func(r *spark.Report) { r.Host.Hostname = "box-2" },
	"kernel":   func(r *spark.Report) { r.Host.Kernel = "6.8.0-46-generic" },
	"os":       func(r *spark.Report) { r.Host.OS = "Debian" },
	"arch":     func(r *spark.Report) { r.Host.Architecture = "arm64" },
	"boot":     func(r *spark.Report) { r.Host.BootID = "1" },
	"uptime":   func(r *spark.Report) { r.Host.UptimeSeconds++ },
	"cpus":     func(r *spark.Report) { r.Host.CPUs++ },
	"ram":      func(r *spark.Report) { r.Host.MemoryBytes++ },
	"storage":  func(r *spark.Report) { r.Host.DiskBytes++ },
	"version":  func(r *spark.Report) { r.Bundle.Version = "0.4.1" },
	"commit":   func(r *spark.Report) { r.Bundle.SourceCommit = strings.Repeat("a", 64) },
	"manifest": func(r *spark.Report) { r.Bundle.ManifestDigest[0]++ },
}

func leaves(typ reflect.Type) int {
	if typ.Kind() != reflect.Struct {
		return 1
	}
	n := 0
	for i := range typ.NumField() {
		n += leaves(typ.Field(i).Type)
	}
	return n
}

// TestF11NoContainerFactsFit: a report has no member for containers, takes none, and
// has no free text or list in which they could come. What is a text has a grammar.
func TestF11NoContainerFactsFit(t *testing.T) {
	for _, name := range []string{"containers", "containerCount", "docker", "dockerVersion", "images", "workloads", "ready", "runtimeReady", "services", "pods"} {
		for _, at := range []string{`{"observedAt"`, `{"cpu"`, `{"hostname"`, `{"version"`} {
			for _, value := range []string{`[]`, `0`, `null`, `{}`, `true`} {
				in := strings.Replace(reportJSON, at, `{"`+name+`":`+value+`,`+at[1:], 1)
				if _, err := spark.ReportCodec.Read([]byte(in)); !errors.Is(err, exact.ErrUnknown) {
					t.Fatalf("%s: %v", in, err)
				}
			}
		}
	}
	if _, err := spark.RequestCodec.Read([]byte(strings.Replace(requestJSON, `{"bearer"`, `{"containers":[],"bearer"`, 1))); !errors.Is(err, exact.ErrUnknown) {
		t.Errorf("beside the report: %v", err)
	}
	var texts []string
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				name := typ.Field(i).Name
				for _, word := range []string{"Container", "Docker", "Image", "Workload", "Ready", "Service"} {
					if strings.Contains(name, word) {
						t.Errorf("a report has %s.%s", path, name)
					}
				}
				walk(path+"."+name, typ.Field(i).Type)
			}
		case reflect.String:
			texts = append(texts, path)
		case reflect.Int64:
		case reflect.Array:
			if typ != reflect.TypeFor[canon.Sum]() {
				t.Errorf("%s is a list", path)
			}
		default:
			t.Errorf("%s is a %v, which can hold anything", path, typ.Kind())
		}
	}
	walk("report", reflect.TypeFor[spark.Report]())
	if want := []string{"report.Host.Hostname", "report.Host.Kernel", "report.Host.OS", "report.Host.Architecture", "report.Host.BootID", "report.Bundle.Version", "report.Bundle.SourceCommit"}; !slices.Equal(texts, want) {
		t.Errorf("the texts of a report are %q, want %q", texts, want)
	}
}

func TestF11ReportRefuses(t *testing.T) {
	const load = "must be a whole number from 0 to 1000000"
	const shown = "must be a text of 1 to 128 bytes that can be shown"
	for _, c := range []struct{ old, with, want string }{
		{`"cpu":125000`, `"cpu":1000001`, "value.load.cpu " + load},
		{`"cpu":125000`, `"cpu":-1`, "value.load.cpu " + load},
		{`"cpu":125000`, `"cpu":0.125`, "value.load.cpu " + load},
		{`"memory":500000`, `"memory":1e7`, "value.load.memory " + load},
		{`"disk":1000000`, `"disk":null`, "value.load.disk must be a number"},
		{`"observedAt":1796133600987`, `"observedAt":-1`, "value.observedAt must be a whole number from 0 to 9007199254740991"},
		{`"cpus":8`, `"cpus":0`, "value.host.cpus must be a whole number from 1 to 65536"},
		{`"cpus":8`, `"cpus":65537`, "value.host.cpus must be a whole number from 1 to 65536"},
		{`"memoryBytes":16777216000`, `"memoryBytes":0`, "value.host.memoryBytes must be a whole number from 1 to 9007199254740991"},
		{`"diskBytes":500000000000`, `"diskBytes":9007199254740992`, "value.host.diskBytes must be a whole number from 1 to 9007199254740991"},
		{`"uptimeSeconds":86400`, `"uptimeSeconds":-1`, "value.host.uptimeSeconds must be a whole number from 0 to 9007199254740991"},
		{`"6.8.0-45-generic"`, `""`, "value.host.kernel " + shown},
		{`"6.8.0-45-generic"`, `"6.8\u001b[2J"`, "value.host.kernel " + shown},
		{`"6.8.0-45-generic"`, `"6.8\u202egeneric"`, "value.host.kernel " + shown},
		{`"6.8.0-45-generic"`, `"6.8  generic"`, "value.host.kernel " + shown},
		{`"6.8.0-45-generic"`, `"` + strings.Repeat("x", 129) + `"`, "value.host.kernel " + shown},
		{`(trixie) é"`, `(trixie)\n"`, "value.host.os " + shown},
		{`"Debian`, `" Debian`, "value.host.os " + shown},
		{`(trixie) é"`, `(trixie) "`, "value.host.os " + shown},
		{`"0.4.0"`, `"0.4.0\u0000"`, "value.bundle.version " + shown},
		{`"amd64"`, `"AMD64"`, "value.host.architecture must be an identifier of lower-case letters, digits and . _ - between them"},
		{`"0b8a3f6e-`, `"0B8A3F6E-`, "value.host.bootId must be an identifier of lower-case letters, digits and . _ - between them"},
		{`"box-1"`, `"box 1"`, "value.host.hostname must be a host name of letters, digits and . - _ between them"},
		{`"0123456789abcdef0`, `"123456789abcdef0`, "value.bundle.sourceCommit must be a commit of 40 or 64 lower-case hexadecimal digits"},
		{`"0123456789abcdef0`, `"0123456789ABCDEF0`, "value.bundle.sourceCommit must be a commit of 40 or 64 lower-case hexadecimal digits"},
		{`"` + bearerHash, `"sha256:` + bearerHash, "value.bundle.manifestDigest must be a digest of 64 lower-case hexadecimal digits"},
	} {
		in := strings.Replace(reportJSON, c.old, c.with, 1)
		if got := spark.ReportCodec.Reasons([]byte(in), ""); in == reportJSON || !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s:\n got %q\nwant %q", in, got, c.want)
		}
	}
}

// The longest report fits into its body, and so does the longest receipt.
func TestF11LargestBodiesFit(t *testing.T) {
	if spark.MaxRequest != 16*1024 || spark.MaxResponse != 8*1024 || handshake.Status != 409 || spark.Path != "/spark/nodes/heartbeat" || spark.Session != handshake.SparkNode {
		t.Error("the route is another one than decisions O18 and O20 have")
	}
	long := strings.Repeat("9", 20)
	offer := must(handshake.OfferCodec.Read([]byte(`{"interfacesVersion":"` + long + `.` + long + `.` + long + `","minimumPeerVersion":"` + long + `.` + long + `.` + long + `"}`)))(t)
	label := strings.Repeat(`"`, spark.MaxLabel) // escaped, it takes twice the room
	r := spark.Request{Bearer: must(enroll.ParseBearer(bearerText))(t), Protocol: offer, Report: spark.Report{
		ObservedAt: exact.MaxWhole, Load: spark.Load{CPU: spark.Whole, Memory: spark.Whole, Disk: spark.Whole},
		Host: spark.Host{Hostname: strings.Repeat("x", enroll.MaxHostname), Kernel: label, OS: label, Architecture: strings.Repeat("x", zone.MaxID), BootID: strings.Repeat("x", zone.MaxID),
			UptimeSeconds: exact.MaxWhole, CPUs: spark.MaxCPUs, MemoryBytes: exact.MaxWhole, DiskBytes: exact.MaxWhole},
		Bundle: spark.Bundle{Version: label, SourceCommit: strings.Repeat("f", 64), ManifestDigest: canon.Sum{1}},
	}}
	body := must(spark.RequestCodec.Append(nil, r))(t)
	a := spark.Response{Receipt: spark.Receipt{NodeID: zone.NodeID(strings.Repeat("x", zone.MaxID)), CredentialGeneration: exact.MaxWhole, SessionEpoch: exact.MaxWhole, AcceptedAt: exact.MaxWhole, ReportDigest: canon.Sum{1}}, Protocol: offer}
	answer := must(spark.ResponseCodec.Append(nil, a))(t)
	// Spaces and escapes are the sender's to leave out; half of the room is plenty.
	if len(body) > spark.MaxRequest/2 || len(answer) > spark.MaxResponse/2 {
		t.Errorf("the longest bodies have %d and %d bytes", len(body), len(answer))
	}
}

// The offer is read of a body that is wrong in every other way, so that it can be
// judged first.
func TestF11OfferIsReadFirst(t *testing.T) {
	for _, in := range []string{
		`{"protocol":{"interfacesVersion":"33.0.0","minimumPeerVersion":"33.0.0"},"bearer":"wrong"}`,
		strings.Replace(strings.Replace(requestJSON, "32.0.0", "33.0.0", 2), bearerText, "x", 1),
	} {
		offer, err := handshake.Read([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		var no *handshake.Refusal
		if err := handshake.Negotiate(handshake.Ours(spark.Session), offer); !errors.As(err, &no) || no.Reason != handshake.MajorMismatch {
			t.Errorf("%s: %v", in, err)
		}
		if _, err := spark.RequestCodec.Read([]byte(in)); err == nil {
			t.Errorf("%s is read", in)
		}
	}
}

func active() enroll.Identity {
	return enroll.Identity{NodeID: "node-a", Purpose: enroll.Spark, Generation: 4, SessionEpoch: 9}
}

func TestF11BindReceipt(t *testing.T) {
	good := must(spark.ResponseCodec.Read([]byte(responseJSON)))(t).Receipt
	if err := spark.BindReceipt(active(), report(t), good); err != nil {
		t.Error(err)
	}
	later := good
	later.AcceptedAt = 0 // the controller's clock is its own
	if err := spark.BindReceipt(active(), report(t), later); err != nil {
		t.Error(err)
	}
	for what, c := range map[string]struct {
		change func(a *enroll.Identity, r *spark.Report, p *spark.Receipt)
		detail string
	}{
		"another node":                {func(_ *enroll.Identity, _ *spark.Report, p *spark.Receipt) { p.NodeID = "node-b" }, "It is for another node."},
		"the generation before":       {func(_ *enroll.Identity, _ *spark.Report, p *spark.Receipt) { p.CredentialGeneration-- }, "It is for another generation of the credential."},
		"the generation to come":      {func(_ *enroll.Identity, _ *spark.Report, p *spark.Receipt) { p.CredentialGeneration++ }, "It is for another generation of the credential."},
		"the epoch before":            {func(_ *enroll.Identity, _ *spark.Report, p *spark.Receipt) { p.SessionEpoch-- }, "It is for another session epoch."},
		"the epoch to come":           {func(_ *enroll.Identity, _ *spark.Report, p *spark.Receipt) { p.SessionEpoch++ }, "It is for another session epoch."},
		"another digest":              {func(_ *enroll.Identity, _ *spark.Report, p *spark.Receipt) { p.ReportDigest[31] ^= 1 }, "It is for another report."},
		"the report before":           {func(_ *enroll.Identity, r *spark.Report, _ *spark.Receipt) { r.ObservedAt -= 10_000 }, "It is for another report."},
		"Pallet":                      {func(a *enroll.Identity, _ *spark.Report, _ *spark.Receipt) { a.Purpose = enroll.Pallet }, "Only Spark reports on a host."},
		"nobody":                      {func(a *enroll.Identity, _ *spark.Report, _ *spark.Receipt) { *a = enroll.Identity{} }, "Only Spark reports on a host."},
		"no receipt":                  {func(_ *enroll.Identity, _ *spark.Report, p *spark.Receipt) { *p = spark.Receipt{} }, "It is for another node."},
		"after a rotation, unbeknown": {func(a *enroll.Identity, _ *spark.Report, _ *spark.Receipt) { a.Generation, a.SessionEpoch = 3, 7 }, "It is for another generation of the credential."},
	} {
		a, r, p := active(), report(t), good
		c.change(&a, &r, &p)
		if err := spark.BindReceipt(a, r, p); !errors.Is(err, spark.ErrReceipt) || refusal.From(err).Detail() != c.detail {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := spark.BindReceipt(active(), spark.Report{}, good); !errors.As(err, new(*exact.Problem)) {
		t.Errorf("no report: %v", err)
	}
}

// The binder takes exactly the receipt of this report by this node.
func TestF11BinderTakesExactlyTheReceipt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (enroll.Identity, spark.Report) {
			a := enroll.Identity{NodeID: zone.NodeID(rapid.SampledFrom([]string{"a", "b"}).Draw(t, label+" node")), Purpose: enroll.Spark,
				Generation: enroll.Generation(rapid.Int64Range(1, 3).Draw(t, label+" generation")), SessionEpoch: enroll.Epoch(rapid.Int64Range(1, 3).Draw(t, label+" epoch"))}
			r, err := spark.ReportCodec.Read([]byte(reportJSON))
			if err != nil {
				t.Fatal(err)
			}
			r.Load.CPU = spark.Fraction(rapid.Int64Range(0, 2).Draw(t, label+" load"))
			return a, r
		}
		a, r := draw("sender")
		b, s := draw("receipt")
		digest, err := spark.Digest(s)
		if err != nil {
			t.Fatal(err)
		}
		p := spark.Receipt{NodeID: b.NodeID, CredentialGeneration: b.Generation, SessionEpoch: b.SessionEpoch, ReportDigest: digest}
		if err := spark.BindReceipt(a, r, p); (err == nil) != (a == b && r == s) || err != nil && !errors.Is(err, spark.ErrReceipt) {
			t.Fatalf("%v of %v takes %v: %v", a, r.Load, p, err)
		}
	})
}

// The row that is kept is the report's, and has no place for a bearer.
func TestF11WhatIsKeptHoldsNoBearer(t *testing.T) {
	r := must(spark.RequestCodec.Read([]byte(requestJSON)))(t)
	a := must(spark.ResponseCodec.Read([]byte(responseJSON)))(t)
	kept := must(spark.ReportCodec.Append(nil, r.Report))(t)
	kept = append(kept, must(spark.ReceiptCodec.Append(nil, a.Receipt))(t)...)
	kept = append(kept, must(spark.ResponseCodec.Append(nil, a))(t)...)
	var said bytes.Buffer
	slog.New(slog.NewJSONHandler(&said, nil)).Info("m", "request", r, "pointer", &r, "answer", a)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&said, verb, r)
	}
	for where, text := range map[string]string{"what is kept": string(kept), "a log": said.String()} {
		for _, form := range []string{bearerText[:8], hex.EncodeToString([]byte(bearerText[:8])), bearerText[16:24], hex.EncodeToString([]byte{8, 9, 10, 11, 12, 13}), "8 9 10 11 12 13"} {
			if strings.Contains(text, form) {
				t.Errorf("%s shows the bearer: %s", where, text)
			}
		}
	}
	if !strings.Contains(requestJSON, bearerText[16:24]) || !strings.Contains(said.String(), "box-1") {
		t.Error("the test looks for the wrong thing")
	}
}

func TestFraction(t *testing.T) {
	for _, c := range []struct {
		used, total float64
		want        spark.Fraction
	}{
		{0, 8, 0}, {1, 8, 125_000}, {1, 3, 333_333}, {2, 3, 666_666}, {8, 8, 1_000_000}, {9, 8, 1_000_000}, {-1, 8, 0}, {1, 0, 0}, {0, 0, 0}, {1, -1, 0}, {-1, -1, 0},
		{math.NaN(), 1, 0}, {1, math.NaN(), 0}, {math.Inf(1), 1, 1_000_000}, {1, math.Inf(1), 0}, {math.Inf(1), math.Inf(1), 1_000_000}, {999_999.9999, 1e6, 999_999}, {1e-9, 1, 0}, {math.MaxFloat64, math.MaxFloat64, 1_000_000},
	} {
		if got := spark.FractionOf(c.used, c.total); got != c.want {
			t.Errorf("%v of %v is %d, want %d", c.used, c.total, got, c.want)
		}
	}
	if got := spark.Fraction(125_000).Float(); got != 0.125 {
		t.Errorf("an eighth is %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		if f := spark.FractionOf(rapid.Float64().Draw(t, "used"), rapid.Float64().Draw(t, "total")); f < 0 || f > spark.Whole {
			t.Fatalf("the fraction is %d", f)
		}
	})
	if spark.Interval != 10*time.Second {
		t.Error("reports are another time apart")
	}
}

func TestLabelsAndCommits(t *testing.T) {
	for _, good := range []string{"x", "6.8.0-45-generic", "Debian GNU/Linux 13 (trixie)", "日本語", strings.Repeat("x", 128)} {
		if !spark.ValidLabel(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", " ", " x", "x ", "a  b", "a\tb", "a\nb", "a\x7fb", "a\u200bb", "a\u00a0b", "a\u2028b", "\xff", strings.Repeat("é", 65)} {
		if spark.ValidLabel(bad) {
			t.Errorf("%q is accepted", bad)
		}
	}
	for text, want := range map[string]bool{strings.Repeat("0", 40): true, strings.Repeat("f", 64): true, "": false, strings.Repeat("0", 41): false, strings.Repeat("F", 40): false, strings.Repeat("g", 40): false} {
		if spark.ValidCommit(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// FuzzBodies: whatever is read is written again in one way, and refused with a reason
// otherwise; a report that is read has a digest.
func FuzzBodies(f *testing.F) {
	f.Add(true, []byte(requestJSON))
	f.Add(false, []byte(responseJSON))
	f.Add(true, []byte(strings.Replace(requestJSON, "125000", "1.25e5", 1)))
	f.Fuzz(func(t *testing.T, request bool, src []byte) {
		if request {
			if r, ok := again(t, spark.RequestCodec, src); ok {
				if _, err := spark.Digest(r.Report); err != nil {
					t.Fatalf("%q has no digest: %v", src, err)
				}
			}
			return
		}
		again(t, spark.ResponseCodec, src)
	})
}

func again[T any](t *testing.T, c zone.Codec[T], src []byte) (T, bool) {
	v, err := c.Read(src)
	if reasons := c.Reasons(src, ""); (err == nil) != (len(reasons) == 0) {
		t.Fatalf("%q: %v, but the reasons are %q", src, err, reasons)
	}
	if err != nil {
		return v, false
	}
	out, err := c.Append(nil, v)
	if err != nil {
		t.Fatalf("%q is read and not written: %v", src, err)
	}
	w, err := c.Read(out)
	if err != nil {
		t.Fatalf("%q is written as %q and not read: %v", src, out, err)
	}
	if out2, err := c.Append(nil, w); err != nil || !bytes.Equal(out, out2) {
		t.Fatalf("%q is written as %q and then as %q, %v", src, out, out2, err)
	}
	return v, true
}
