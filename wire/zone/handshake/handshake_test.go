package handshake_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/test/zonetest"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
)

// offer makes an offer of two texts, by reading it as it travels.
func offer(t interface {
	Helper()
	Fatalf(string, ...any)
}, speaks, accepts string) handshake.Offer {
	t.Helper()
	o, err := handshake.Read([]byte(`{"protocol":{"interfacesVersion":"` + speaks + `","minimumPeerVersion":"` + accepts + `"}}`))
	if err != nil {
		t.Fatalf("no offer of %s from %s: %v", speaks, accepts, err)
	}
	return o
}

func TestF03Numbers(t *testing.T) {
	if zone.Release != "32.0.0" || handshake.Status != 409 || handshake.RetryInterval != 300*time.Second || handshake.Member != "protocol" {
		t.Errorf("%s, %d, %v, %s", zone.Release, handshake.Status, handshake.RetryInterval, handshake.Member)
	}
	for k, want := range map[*refusal.Kind]string{
		handshake.ErrIncompatible: "protocol-incompatible 409", handshake.ErrOffer: "protocol-offer-invalid 400", handshake.ErrMinimum: "protocol-minimum 500",
	} {
		if got := fmt.Sprint(k.Name(), " ", k.Status()); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestF03VersionGrammar(t *testing.T) {
	nines := strings.Repeat("9", 60)
	for _, good := range []string{"0.0.0", "32.0.0", "32.10.0", "1.2.3", "10.20.30", "100.0.1", nines + ".0.0", "0.0." + nines, strings.Repeat("1", 20) + "." + strings.Repeat("2", 20) + "." + strings.Repeat("3", 22)} {
		v, ok := handshake.ParseVersion(good)
		if !ok || v.String() != good {
			t.Errorf("%s is read as %q, %v", good, v, ok)
		}
	}
	for _, bad := range []string{
		"v32.0.0", "32.0", "32.0.0-rc.1", "32.0.0+b", "032.0.0", "32.00.0", // the contract's own samples
		"", ".", "..", "...", "32", "32.", "32.0.", ".0.0", "32..0", "32.0.0.", ".32.0.0", "32.0.0.0", "32.0.00", "00.0.0", "32.0.01",
		" 32.0.0", "32.0.0 ", "32.0.0\n", "32.0.0\x00", "32. 0.0", "+32.0.0", "-32.0.0", "32.-1.0", "32.0.1e2", "0x20.0.0", "32,0,0", "32.0,0", "V32.0.0", "=32.0.0", "^32.0.0",
		"32.x.0", "32.*.0", "latest", "1a2.0.0", "32.0.0-", "32.0.0+", "٣٢.0.0", "３２.0.0", "32.0.0\u200b", "32\u2024" + "0.0", "1_0.0.0", nines + "9999.0.0", "Infinity.0.0",
		strings.Repeat(".", 1<<16), strings.Repeat("1", 1<<16) + ".0.0",
	} {
		if v, ok := handshake.ParseVersion(bad); ok || v != (handshake.Version{}) || v.String() != "" {
			t.Errorf("%.80q is read as %q", bad, v)
		}
		text, _ := json.Marshal(bad)
		body := `{"protocol":{"interfacesVersion":` + string(text) + `,"minimumPeerVersion":"32.0.0"}}`
		want := []string{"value.protocol.interfacesVersion must be a release as in 32.0.0"}
		if got := handshake.ValidateOn([]byte(body), ""); !slices.Equal(got, want) {
			t.Errorf("%.80q: %q", bad, got)
		}
		body = `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":` + string(text) + `}}`
		want = []string{"value.protocol.minimumPeerVersion must be a release as in 32.0.0"}
		if got := handshake.ValidateOn([]byte(body), ""); !slices.Equal(got, want) {
			t.Errorf("%.80q: %q", bad, got)
		}
	}
}

func TestF03MinimumOfItsOwnOffer(t *testing.T) {
	nines := strings.Repeat("9", 30)
	for _, c := range []struct {
		release, minimum string
		ok               bool
	}{
		{"32.0.0", "32.0.0", true},
		{"32.10.0", "32.9.0", true},
		{"32.9.0", "32.10.0", false},
		{"32.0.10", "32.0.9", true},
		{"32.0.9", "32.0.10", false},
		{"32.1.0", "32.0.99", true},
		{"32.5.7", "32.0.0", true},
		{"32.0.0", "32.0.1", false},
		{"32.0.0", "32.1.0", false},
		{"32.0.0", "33.0.0", false},
		{"32.0.0", "31.8.0", false}, // older, but of another major
		{"32.0.0", "3.0.0", false},
		{"32.0.0", "320.0.0", false},
		{"0.0.0", "0.0.0", true},
		{"32." + nines + "0.0", "32." + nines + ".0", true},
		{"32." + nines + ".0", "32." + nines + "0.0", false},
		{"32.0.0", "v32.0.0", false},
		{"32.0.0", "", false},
		{"", "32.0.0", false},
		{"", "", false},
		{"32.0", "32.0", false},
	} {
		o, err := handshake.Make(c.release, c.minimum)
		if c.ok && (err != nil || o.Speaks().String() != c.release || o.Accepts().String() != c.minimum || o.IsZero()) {
			t.Errorf("%s from %s: %v, %v", c.release, c.minimum, o, err)
		}
		if !c.ok && (err != handshake.ErrMinimum || !o.IsZero()) {
			t.Errorf("%s from %s: %v, %v, want %v", c.release, c.minimum, o, err, handshake.ErrMinimum)
		}
		// What travels is held to the same rule.
		text := `{"interfacesVersion":"` + c.release + `","minimumPeerVersion":"` + c.minimum + `"}`
		if reasons := handshake.Validate([]byte(text), ""); (len(reasons) == 0) != c.ok {
			t.Errorf("%s: %q", text, reasons)
		}
	}
}

// TestF03StartFails is about a build of 32.0.0, as ours is.
func TestF03StartFails(t *testing.T) {
	for _, minimum := range []string{"33.0.0", "32.0.1", "32.1.0", "31.0.0", "32", ""} {
		if o, err := handshake.New(minimum); err != handshake.ErrMinimum || !o.IsZero() {
			t.Errorf("%q: %v, %v", minimum, o, err)
		}
	}
	if o, err := handshake.New("32.0.0"); err != nil || o != offer(t, "32.0.0", "32.0.0") {
		t.Errorf("32.0.0: %v, %v", o, err)
	}
}

func TestF03OneOfferForEachSession(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "handshake.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var sessions []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Session" {
				for _, v := range spec.Values {
					text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					sessions = append(sessions, text)
				}
			}
		}
		return true
	})
	if want := []string{"sparkNode", "sparkSwarmNode", "palletRuntime", "cloudlyClient", "clusterRelay", "clusterIngress"}; !slices.Equal(sessions, want) {
		t.Errorf("the kinds of session are %q, want %q (decision O19)", sessions, want)
	}
	for _, s := range sessions {
		ours := handshake.Ours(handshake.Session(s))
		if ours.Speaks().String() != zone.Release || ours.Accepts().String() != "32.0.0" {
			t.Errorf("%s: %v", s, ours)
		}
		if err := handshake.Negotiate(ours, ours); err != nil {
			t.Errorf("two programs of one build refuse each other on %s: %v", s, err)
		}
	}
	for _, none := range []handshake.Session{"", "sparknode", "SparkNode", "sparkNode ", "32.0.0"} {
		if o := handshake.Ours(none); !o.IsZero() {
			t.Errorf("%q: %v", none, o)
		}
	}
}

var decisions = []struct {
	local, remote [2]string // speaks, accepts
	want          handshake.Reason
}{
	{[2]string{"32.0.0", "32.0.0"}, [2]string{"32.0.0", "32.0.0"}, ""},
	{[2]string{"32.5.0", "32.0.0"}, [2]string{"32.0.0", "32.0.0"}, ""},
	{[2]string{"32.0.0", "32.0.0"}, [2]string{"32.5.1", "32.0.0"}, ""},
	{[2]string{"32.9.0", "32.9.0"}, [2]string{"32.10.0", "32.9.0"}, ""}, // 32.10.0 is above 32.9.0
	{[2]string{"32.10.0", "32.9.0"}, [2]string{"32.9.0", "32.9.0"}, ""},
	{[2]string{"32.10.0", "32.10.0"}, [2]string{"32.9.0", "32.9.0"}, handshake.PeerBelowMinimum},
	{[2]string{"32.9.0", "32.9.0"}, [2]string{"32.10.0", "32.10.0"}, handshake.SelfBelowPeerMinimum},
	{[2]string{"32.1.0", "32.1.0"}, [2]string{"32.0.0", "32.0.0"}, handshake.PeerBelowMinimum},
	{[2]string{"32.1.1", "32.1.1"}, [2]string{"32.1.0", "32.0.0"}, handshake.PeerBelowMinimum},
	{[2]string{"32.0.0", "32.0.0"}, [2]string{"32.1.0", "32.0.1"}, handshake.SelfBelowPeerMinimum},
	{[2]string{"32.0.0", "32.0.0"}, [2]string{"33.0.0", "33.0.0"}, handshake.MajorMismatch},
	{[2]string{"33.0.0", "33.0.0"}, [2]string{"32.0.0", "32.0.0"}, handshake.MajorMismatch}, // and below the minimum as well
	{[2]string{"33.5.0", "33.5.0"}, [2]string{"32.9.0", "32.9.0"}, handshake.MajorMismatch},
	{[2]string{"32.0.0", "32.0.0"}, [2]string{"31.8.0", "31.0.0"}, handshake.MajorMismatch},
	{[2]string{"32.0.0", "32.0.0"}, [2]string{"3.2.0", "3.0.0"}, handshake.MajorMismatch},
	{[2]string{"32.0.0", "32.0.0"}, [2]string{"320.0.0", "320.0.0"}, handshake.MajorMismatch},
	{[2]string{"32.18446744073709551616.0", "32.0.0"}, [2]string{"32.0.0", "32.0.0"}, ""}, // 2^64 is not 0
	{[2]string{"32.18446744073709551616.0", "32.18446744073709551616.0"}, [2]string{"32.5.0", "32.0.0"}, handshake.PeerBelowMinimum},
	{[2]string{"18446744073709551648.0.0", "18446744073709551648.0.0"}, [2]string{"32.0.0", "32.0.0"}, handshake.MajorMismatch},
}

func TestF03ThreeReasons(t *testing.T) {
	for _, c := range decisions {
		local, remote := offer(t, c.local[0], c.local[1]), offer(t, c.remote[0], c.remote[1])
		err := handshake.Negotiate(local, remote)
		if c.want == "" {
			if err != nil {
				t.Errorf("%v and %v: %v", c.local, c.remote, err)
			}
			continue
		}
		var r *handshake.Refusal
		if !errors.As(err, &r) || *r != (handshake.Refusal{Reason: c.want, Refusing: local, Refused: remote}) {
			t.Errorf("%v and %v: %+v, want %s", c.local, c.remote, err, c.want)
		}
		if !errors.Is(err, handshake.ErrIncompatible) || refusal.From(err).Kind() != handshake.ErrIncompatible {
			t.Errorf("%v and %v: %v is no %v", c.local, c.remote, err, handshake.ErrIncompatible)
		}
	}
	good := offer(t, "32.0.0", "32.0.0")
	for _, c := range [][2]handshake.Offer{{{}, good}, {good, {}}, {{}, {}}} {
		if err := handshake.Negotiate(c[0], c[1]); !errors.Is(err, handshake.ErrOffer) || errors.Is(err, handshake.ErrIncompatible) {
			t.Errorf("no offer: %v", err)
		}
	}
}

func drawnOffer(t *rapid.T, name string) handshake.Offer {
	number := rapid.SampledFrom([]string{"0", "1", "9", "10", "99", "100", "9007199254740992", "9007199254740993", "18446744073709551616", "184467440737095516160"})
	major := rapid.SampledFrom([]string{"32", "32", "32", "33", "3"}).Draw(t, name+" major")
	version := func(which string) string {
		return major + "." + number.Draw(t, name+" minor "+which) + "." + number.Draw(t, name+" patch "+which)
	}
	a, b := version("a"), version("b")
	if compare(a, b) < 0 {
		a, b = b, a
	}
	return offer(t, a, b)
}

// compare orders versions by the numbers of math/big.
func compare(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range x {
		n, _ := new(big.Int).SetString(x[i], 10)
		m, _ := new(big.Int).SetString(y[i], 10)
		if c := n.Cmp(m); c != 0 {
			return c
		}
	}
	return 0
}

// TestF03Mirror holds that the two sides of a session see the same thing from their
// two ends, and decides each case a second time with big numbers.
func TestF03Mirror(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawnOffer(t, "a"), drawnOffer(t, "b")
		reason := func(local, remote handshake.Offer) handshake.Reason {
			err := handshake.Negotiate(local, remote)
			if err == nil {
				return ""
			}
			r := new(handshake.Refusal)
			if !errors.As(err, &r) || r.Refusing != local || r.Refused != remote {
				t.Fatalf("%v and %v: %v", local, remote, err)
			}
			return r.Reason
		}
		ours, theirs := reason(a, b), reason(b, a)
		mirror := map[handshake.Reason]handshake.Reason{
			"": "", handshake.MajorMismatch: handshake.MajorMismatch,
			handshake.PeerBelowMinimum: handshake.SelfBelowPeerMinimum, handshake.SelfBelowPeerMinimum: handshake.PeerBelowMinimum,
		}
		if want, known := mirror[ours]; !known || theirs != want {
			t.Fatalf("%v says %q, %v says %q", a, ours, b, theirs)
		}
		major := func(v handshake.Version) string { m, _, _ := strings.Cut(v.String(), "."); return m }
		below := compare(b.Speaks().String(), a.Accepts().String()) < 0
		above := compare(a.Speaks().String(), b.Accepts().String()) < 0
		want := handshake.Reason("")
		switch {
		case major(a.Speaks()) != major(b.Speaks()):
			want = handshake.MajorMismatch
		case below && above:
			t.Fatalf("%v and %v: both are below the other's minimum, which cannot be", a, b)
		case below:
			want = handshake.PeerBelowMinimum
		case above:
			want = handshake.SelfBelowPeerMinimum
		}
		if ours != want {
			t.Fatalf("%v and %v: %q, want %q", a, b, ours, want)
		}
		if ours == "" && cmp.Or(reason(a, a), reason(b, b)) != "" {
			t.Fatalf("an offer refuses itself: %v, %v", a, b)
		}
	})
}

func TestF03WhatIsWrongWithAnOfferHasItsReason(t *testing.T) {
	const schema = "value.protocol must use its exact schema"
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"absent", `{}`, []string{schema}},
		{"absent among others", `{"bearer":"x","report":{}}`, []string{schema}},
		{"in another letter case", `{"Protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}`, []string{schema}},
		{"within another member", `{"request":{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}}`, []string{schema}},
		{"no object around it", `[{"protocol":{}}]`, []string{schema}},
		{"a text for a body", `"protocol"`, []string{schema}},
		{"null", `{"protocol":null}`, []string{"value.protocol must be an object"}},
		{"a text", `{"protocol":"32.0.0"}`, []string{"value.protocol must be an object"}},
		{"a list", `{"protocol":["32.0.0","32.0.0"]}`, []string{"value.protocol must be an object"}},
		{"a number", `{"protocol":32}`, []string{"value.protocol must be an object"}},
		{"a member more", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0","more":1}}`, []string{schema}},
		{"a member more, of JavaScript", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0","__proto__":null}}`, []string{schema}},
		{"a schema version", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0","schemaVersion":1}}`, []string{schema}},
		{"a member less", `{"protocol":{"interfacesVersion":"32.0.0"}}`, []string{schema}},
		{"the other member less", `{"protocol":{"minimumPeerVersion":"32.0.0"}}`, []string{schema}},
		{"nothing", `{"protocol":{}}`, []string{schema}},
		{"members in another letter case", `{"protocol":{"InterfacesVersion":"32.0.0","minimumpeerversion":"32.0.0"}}`, []string{schema}},
		{"no text", `{"protocol":{"interfacesVersion":32,"minimumPeerVersion":"32.0.0"}}`, []string{"value.protocol.interfacesVersion must be a string"}},
		{"no texts", `{"protocol":{"interfacesVersion":null,"minimumPeerVersion":["32.0.0"]}}`, []string{"value.protocol.interfacesVersion must be a string", "value.protocol.minimumPeerVersion must be a string"}},
		{"all at once", `{"protocol":{"interfacesVersion":"32.0","more":true}}`, []string{"value.protocol.interfacesVersion must be a release as in 32.0.0", schema}},
		{"a minimum above", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.1"}}`, []string{"value.protocol must be an offer whose minimumPeerVersion is of the same major version and not above"}},
		{"a minimum of another major", `{"protocol":{"interfacesVersion":"33.0.0","minimumPeerVersion":"32.0.0"}}`, []string{"value.protocol must be an offer whose minimumPeerVersion is of the same major version and not above"}},
		{"two offers", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"},"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}`, []string{"value must be one JSON text (json-duplicate-name)"}},
		{"two offers, one escaped", `{"protocol":{"interfacesVersion":"33.0.0","minimumPeerVersion":"33.0.0"},"\u0070rotocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}`, []string{"value must be one JSON text (json-duplicate-name)"}},
		{"two of a member", `{"protocol":{"interfacesVersion":"32.0.0","interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}`, []string{"value must be one JSON text (json-duplicate-name)"}},
		{"no text at all", ``, []string{"value must be one JSON text (json-syntax)"}},
		{"half a text", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}`, []string{"value must be one JSON text (json-syntax)"}},
		{"more than a text", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}}x`, []string{"value must be one JSON text (json-syntax)"}},
		{"half a character", `{"protocol":{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"},"x":"` + "\xff" + `"}`, []string{"value must be one JSON text (json-encoding)"}},
		{"too deep", `{"x":` + strings.Repeat("[", 1<<16), []string{"value must be one JSON text (json-too-deep)"}},
	} {
		if got := handshake.ValidateOn([]byte(c.body), ""); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
		o, err := handshake.Read([]byte(c.body))
		if !errors.Is(err, handshake.ErrOffer) || !o.IsZero() {
			t.Errorf("%s: read as %v, %v", c.name, o, err)
		} else if got, want := refusal.From(err).Detail(), strings.Join(c.want, "; ")+"."; got != want {
			t.Errorf("%s: read with %q, want %q", c.name, got, want)
		}
		for i, r := range handshake.ValidateOn([]byte(c.body), "body") {
			if want := "body" + strings.TrimPrefix(c.want[i], "value"); r != want {
				t.Errorf("%s: called body it says %q, want %q", c.name, r, want)
			}
		}
	}
	if got := handshake.Validate([]byte(`{"interfacesVersion":1,"minimumPeerVersion":"32.0.0"}`), ""); !slices.Equal(got, []string{"value.interfacesVersion must be a string"}) {
		t.Errorf("without a name: %q", got)
	}
	if got := handshake.Validate([]byte(`{}`), "request.protocol"); !slices.Equal(got, []string{"request.protocol must use its exact schema"}) {
		t.Errorf("with a name: %q", got)
	}
}

// TestF03NothingElseIsRead has bodies that no message of ours is. What speaks a
// foreign major hears of that, and not of the shape of its message.
func TestF03NothingElseIsRead(t *testing.T) {
	ours := handshake.Ours(handshake.SparkNode)
	for _, body := range []string{
		`{"protocol":{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"}}`,
		`{"unknown":{"deep":[[[1e400,-0]]]},"protocol":{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"},"bearer":7,"":null,"__proto__":{"protocol":{}},"Protocol":"x"}`,
		` {"proto":1,"protocols":[],"\u0070rotocol":{"minimumPeerVersion":"33.0.0","interfacesVersion":"33.1.0"},"report":"\ud83d\ude00"} `,
		`{"protocol":{"interfacesVersion":"33.\u0031.0","minimumPeerVersion":"\u00333.0.0"}}`,
	} {
		theirs, err := handshake.Read([]byte(body))
		if err != nil || theirs.Speaks().String() != "33.1.0" || theirs.Accepts().String() != "33.0.0" {
			t.Errorf("%s is read as %v, %v", body, theirs, err)
			continue
		}
		if reasons := handshake.ValidateOn([]byte(body), ""); len(reasons) > 0 {
			t.Errorf("%s: %q", body, reasons)
		}
		err = handshake.Negotiate(ours, theirs)
		r := new(handshake.Refusal)
		if !errors.As(err, &r) || r.Reason != handshake.MajorMismatch || !errors.Is(err, handshake.ErrIncompatible) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestF03TheLine(t *testing.T) {
	r := &handshake.Refusal{Reason: handshake.MajorMismatch, Refusing: offer(t, "32.0.0", "32.0.0"), Refused: offer(t, "33.1.0", "33.0.0")}
	const want = "protocol-incompatible: major-mismatch: refusing side speaks 32.0.0 and accepts from 32.0.0; refused side speaks 33.1.0 and accepts from 33.0.0"
	if r.Error() != want || fmt.Sprint(r) != want {
		t.Errorf("got  %s\nwant %s", r, want)
	}
	if strings.ContainsAny(r.Error(), "\r\n") {
		t.Error("it is not one line")
	}
	for _, c := range decisions[5:8] {
		err := handshake.Negotiate(offer(t, c.local[0], c.local[1]), offer(t, c.remote[0], c.remote[1]))
		want := fmt.Sprintf("protocol-incompatible: %s: refusing side speaks %s and accepts from %s; refused side speaks %s and accepts from %s",
			c.want, c.local[0], c.local[1], c.remote[0], c.remote[1])
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

const (
	goldenOffer   = `{"interfacesVersion":"32.10.0","minimumPeerVersion":"32.9.0"}`
	goldenRefusal = `{"code":"protocol-incompatible","reason":"peer-below-minimum","refusing":{"interfacesVersion":"32.10.0","minimumPeerVersion":"32.9.0"},"refused":{"interfacesVersion":"32.8.7","minimumPeerVersion":"32.0.0"}}`
)

func TestF03Golden(t *testing.T) {
	o, err := handshake.Make("32.10.0", "32.9.0")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := handshake.OfferCodec.Append(nil, o); err != nil || string(out) != goldenOffer {
		t.Errorf("%s, %v", out, err)
	}
	r := new(handshake.Refusal)
	if !errors.As(handshake.Negotiate(o, offer(t, "32.8.7", "32.0.0")), &r) {
		t.Fatal("not refused")
	}
	if out, err := handshake.RefusalCodec.Append(nil, *r); err != nil || string(out) != goldenRefusal {
		t.Errorf("%s, %v", out, err)
	}
	if got := handshake.ReadRefusal([]byte(goldenRefusal)); got == nil || *got != *r {
		t.Errorf("read as %v", got)
	}
	if out, err := handshake.OfferCodec.Append(nil, handshake.Ours(handshake.SparkNode)); err != nil || string(out) != `{"interfacesVersion":"32.0.0","minimumPeerVersion":"32.0.0"}` {
		t.Errorf("ours is %s, %v", out, err)
	}
}

func TestF04Offer(t *testing.T)   { zonetest.Exact(t, handshake.OfferCodec, goldenOffer) }
func TestF04Refusal(t *testing.T) { zonetest.Exact(t, handshake.RefusalCodec, goldenRefusal) }

// TestF03OnlyARefusalIsOne has what is nearly a refusal. A client takes such a
// failure for another one, and does not wait five minutes.
func TestF03OnlyARefusalIsOne(t *testing.T) {
	for _, reason := range []string{"major-mismatch", "peer-below-minimum", "self-below-peer-minimum"} {
		if r := handshake.ReadRefusal([]byte(strings.Replace(goldenRefusal, "peer-below-minimum", reason, 1))); r == nil || string(r.Reason) != reason {
			t.Errorf("%s is read as %v", reason, r)
		}
	}
	change := func(old, new string) string {
		if strings.Count(goldenRefusal, old) == 0 {
			t.Fatalf("the golden refusal has no %s", old)
		}
		return strings.Replace(goldenRefusal, old, new, 1)
	}
	for name, text := range map[string]string{
		"nothing":              ``,
		"null":                 `null`,
		"an empty object":      `{}`,
		"only the code":        `{"code":"protocol-incompatible"}`,
		"the line":             `"protocol-incompatible: peer-below-minimum: refusing side speaks 32.0.0"`,
		"another code":         change(`protocol-incompatible`, `protocol-offer-invalid`),
		"the code in capitals": change(`protocol-incompatible`, `Protocol-incompatible`),
		"another reason":       change(`peer-below-minimum`, `peer-too-old`),
		"no reason":            change(`peer-below-minimum`, ``),
		"a member more":        change(`{"code"`, `{"message":"","code"`),
		"a member less":        change(`"reason":"peer-below-minimum",`, ``),
		"no code":              change(`"code":"protocol-incompatible",`, ``),
		"a wrapper":            `{"data":` + goldenRefusal + `}`,
		"an error around it":   `{"error":{"text":"x","data":` + goldenRefusal + `}}`,
		"a list around it":     `[` + goldenRefusal + `]`,
		"a text of it":         strconv.Quote(goldenRefusal),
		"an offer with more":   change(`"minimumPeerVersion":"32.9.0"`, `"minimumPeerVersion":"32.9.0","more":1`),
		"an offer of another":  change(`"minimumPeerVersion":"32.9.0"`, `"minimumPeerVersion":"32.11.0"`),
		"no version":           change(`32.8.7`, `v32.8.7`),
		"null for an offer":    change(`{"interfacesVersion":"32.10.0","minimumPeerVersion":"32.9.0"}`, `null`),
		"two codes":            change(`{"code"`, `{"code":"protocol-incompatible","code"`),
		"something behind":     goldenRefusal + `{}`,
		"a mark in front":      "\ufeff" + goldenRefusal,
		"a page":               `<html>409 Conflict</html>`,
	} {
		if r := handshake.ReadRefusal([]byte(text)); r != nil {
			t.Errorf("%s is read as %v", name, r)
		}
	}
}

func TestF03WhatIsNoOfferIsNotWritten(t *testing.T) {
	good := offer(t, "32.0.0", "32.0.0")
	if out, err := handshake.OfferCodec.Append(nil, handshake.Offer{}); err == nil || out != nil {
		t.Errorf("no offer is written as %s", out)
	}
	for _, r := range []handshake.Refusal{
		{},
		{Reason: handshake.MajorMismatch},
		{Reason: handshake.MajorMismatch, Refusing: good},
		{Reason: handshake.MajorMismatch, Refused: good},
		{Refusing: good, Refused: good},
		{Reason: "too-old", Refusing: good, Refused: good},
	} {
		if out, err := handshake.RefusalCodec.Append([]byte("x"), r); err == nil || out != nil {
			t.Errorf("%+v is written as %s", r, out)
		}
	}
}

// TestF03WhatWasReadStays changes the bytes that were read.
func TestF03WhatWasReadStays(t *testing.T) {
	for _, body := range []string{`{"protocol":` + goldenOffer + `}`, `{"protocol":{"interfacesVersion":"32.\u0031\u0030.0","minimumPeerVersion":"32.\u0039.0"}}`} {
		src := []byte(body)
		o, err := handshake.Read(src)
		if err != nil {
			t.Fatal(err)
		}
		for i := range src {
			src[i] = '7'
		}
		if o.Speaks().String() != "32.10.0" || o.Accepts().String() != "32.9.0" {
			t.Errorf("the offer is now %v", o)
		}
	}
	src := []byte(goldenRefusal)
	r := handshake.ReadRefusal(src)
	before := *r
	line := r.Error()
	copy(src, bytes.Repeat([]byte("7"), len(src)))
	if *r != before || r.Error() != line || r.Reason != handshake.PeerBelowMinimum || r.Refused.Speaks().String() != "32.8.7" {
		t.Errorf("the refusal is now %v", r)
	}
	// And no change of one that was read reaches another.
	first, second := handshake.ReadRefusal([]byte(goldenRefusal)), handshake.ReadRefusal([]byte(goldenRefusal))
	if first.Reason = "changed"; second.Reason != handshake.PeerBelowMinimum {
		t.Errorf("the second is now %v", second)
	}
}

// FuzzOffer compares what is read with what encoding/json finds at the same place.
func FuzzOffer(f *testing.F) {
	for _, body := range []string{
		`{"protocol":` + goldenOffer + `}`, `{"x":[1],"protocol":{"interfacesVersion":"33.1.0","minimumPeerVersion":"33.0.0"}}`, `{"protocol":{}}`, `{"protocol":null}`,
		`{"protocol":{"interfacesVersion":"032.0.0","minimumPeerVersion":"32.0.0"}}`, `{"protocol":1,"protocol":2}`, `[]`, ``, `{"Protocol":{}}`,
		`{"protocol":{"interfacesVersion":"32.0.\u0030","minimumPeerVersion":"32.0.0","x":1}}`, "{\"protocol\":{\"interfacesVersion\":\"32.0.0\xff\"}}",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		src := bytes.Clone(body)
		o, err := handshake.Read(src)
		if !bytes.Equal(src, body) {
			t.Fatal("reading changes the body")
		}
		reasons := handshake.ValidateOn(body, "")
		if (err == nil) != (len(reasons) == 0) || (err == nil) == o.IsZero() {
			t.Fatalf("%q: %v, %v, %q", body, o, err, reasons)
		}
		if err != nil {
			if !errors.Is(err, handshake.ErrOffer) {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		var other struct {
			Protocol map[string]any `json:"protocol"`
		}
		var plain map[string]json.RawMessage
		if err := json.Unmarshal(body, &plain); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if err := json.Unmarshal(plain["protocol"], &other.Protocol); err != nil || len(other.Protocol) != 2 {
			t.Fatalf("%q: %v, %v", body, other, err)
		}
		speaks, accepts := o.Speaks().String(), o.Accepts().String()
		if other.Protocol["interfacesVersion"] != speaks || other.Protocol["minimumPeerVersion"] != accepts {
			t.Fatalf("%q is read as %s from %s", body, speaks, accepts)
		}
		x, y := strings.Split(speaks, "."), strings.Split(accepts, ".")
		if len(x) != 3 || len(y) != 3 || x[0] != y[0] || compare(accepts, speaks) > 0 {
			t.Fatalf("%q is an offer", body)
		}
		made, err := handshake.Make(speaks, accepts)
		if err != nil || made != o {
			t.Fatalf("%q: %v, %v", body, made, err)
		}
		out, err := handshake.OfferCodec.Append(nil, o)
		if err != nil || string(out) != `{"interfacesVersion":"`+speaks+`","minimumPeerVersion":"`+accepts+`"}` {
			t.Fatalf("%q is written as %s, %v", body, out, err)
		}
	})
}

// FuzzRefusal holds that whatever is read as a refusal is exactly one.
func FuzzRefusal(f *testing.F) {
	f.Add([]byte(goldenRefusal))
	f.Add([]byte(strings.Replace(goldenRefusal, "peer-below", "self-below-peer", 1)))
	f.Add([]byte(`{"code":"protocol-incompatible","reason":"major-mismatch","refusing":null,"refused":{}}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(` {"refused":` + goldenOffer + `,"refusing":` + goldenOffer + `,"reason":"major-mismatch","code":"protocol-incompatible"}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		r := handshake.ReadRefusal(src)
		reasons := handshake.RefusalCodec.Reasons(src, "")
		if (r != nil) != (len(reasons) == 0) {
			t.Fatalf("%q: %v, %q", src, r, reasons)
		}
		if r == nil {
			return
		}
		if !strings.HasPrefix(r.Error(), "protocol-incompatible: "+string(r.Reason)+": ") || strings.ContainsAny(r.Error(), "\r\n") || r.Refusing.IsZero() || r.Refused.IsZero() {
			t.Fatalf("%q: %q", src, r)
		}
		out, err := handshake.RefusalCodec.Append(nil, *r)
		if err != nil {
			t.Fatal(err)
		}
		if again := handshake.ReadRefusal(out); again == nil || *again != *r {
			t.Fatalf("%s is read as %v", out, again)
		}
		var a, b map[string]any
		if json.Unmarshal(src, &a) != nil || json.Unmarshal(out, &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("%q means %v, written again %v", src, a, b)
		}
	})
}

// TestF03BodiesHaveABound holds that a body is not read beyond the largest message.
func TestF03BodiesHaveABound(t *testing.T) {
	body := `{"protocol":` + goldenOffer + `}`
	body += strings.Repeat(" ", zone.MaxBytes-len(body))
	if _, err := handshake.Read([]byte(body)); err != nil {
		t.Errorf("the largest body: %v", err)
	}
	_, err := handshake.Read([]byte(body + " "))
	if !errors.Is(err, handshake.ErrOffer) || !strings.Contains(refusal.From(err).Detail(), exact.ErrTooLarge.Name()) {
		t.Errorf("one byte more: %v", err)
	}
}
