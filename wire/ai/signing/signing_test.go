package signing_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/signing"
)

const now = ai.Millis(1_750_000_000_000)

func keysOf(t testing.TB, seed string) key.DeviceKeys {
	t.Helper()
	k, err := key.NewKeys[key.DeviceRole](strings.NewReader(strings.Repeat(seed, 64)), time.UnixMilli(1))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// recorder remembers what it was asked to sign.
type recorder struct {
	key.Signer
	signed []byte
}

func (r *recorder) Sign(message []byte) (key.Signature, error) {
	r.signed = bytes.Clone(message)
	return r.Signer.Sign(message)
}

func sign(t testing.TB, signer key.Signer, r signing.Request, caller string, at ai.Millis) signing.Signature {
	t.Helper()
	s, err := signing.Sign(signer, r, caller, at)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSignedText compares what is signed with the words of doc.go.
func TestSignedText(t *testing.T) {
	keys := keysOf(t, "d")
	hash := func(body string) string {
		sum := sha256.Sum256([]byte(body))
		return hex.EncodeToString(sum[:])
	}
	for _, c := range []struct {
		plane    signing.Plane
		prefix   string
		endpoint ai.Endpoint
		caller   string
		at       ai.Millis
		body     string
	}{
		{signing.DaemonPlane, "", "claim", "runner_1", now, `{"a":1}`},
		{signing.DaemonPlane, "", "heartbeat", "r", 1, ""},
		{signing.SitePlane, "site/", "pending", "site-1", 1<<53 - 1, ""},
		{signing.SitePlane, "site/", "payload", "Ä \t", now, "\xff\x00\r\n \ufeff"},
	} {
		rec := &recorder{Signer: keys.Signer()}
		r := signing.Request{Plane: c.plane, Endpoint: c.endpoint, Body: []byte(c.body)}
		s := sign(t, rec, r, c.caller, c.at)
		want := strings.Join([]string{
			"byollm/v1/request", c.prefix + string(c.endpoint), c.caller, fmt.Sprintf("%d", c.at), hash(c.body),
		}, "\n")
		if string(rec.signed) != want {
			t.Errorf("signed %q\nwant   %q", rec.signed, want)
		}
		if s.Caller != c.caller || s.IssuedAt != c.at || !keys.Identity().Signing().Verify([]byte(want), s.Value) {
			t.Errorf("the signature is %v", s)
		}
		if err := signing.Verify(keys.Identity().Signing(), r, s, c.at, signing.Window); err != nil {
			t.Errorf("it does not verify: %v", err)
		}
	}
	// An absent body and an empty one are one.
	r := signing.Request{Plane: signing.SitePlane, Endpoint: "pending"}
	s := sign(t, keys.Signer(), r, "s", now)
	r.Body = []byte{}
	if err := signing.Verify(keys.Identity().Signing(), r, s, now, signing.Window); err != nil {
		t.Errorf("an empty body is another than none: %v", err)
	}
}

func TestSignReturnsTheSignersError(t *testing.T) {
	broken := errors.New("broken")
	s, err := signing.Sign(failing{err: broken}, signing.Request{Plane: signing.DaemonPlane, Endpoint: "claim"}, "r", now)
	if !errors.Is(err, broken) || s != (signing.Signature{}) {
		t.Errorf("%v, %v", s, err)
	}
}

type failing struct {
	key.Signer
	err error
}

func (f failing) Sign([]byte) (key.Signature, error) { return key.Signature{}, f.err }

// TestSignaturesDoNotCross changes one thing about a signed request at a time.
func TestSignaturesDoNotCross(t *testing.T) {
	keys, mallory := keysOf(t, "d"), keysOf(t, "m")
	type made struct {
		r        signing.Request
		s        signing.Signature
		identity key.SigningPublic
	}
	good := made{r: signing.Request{Plane: signing.DaemonPlane, Endpoint: ai.EndpointClaim, Body: []byte(`{"max":1}`)}, identity: keys.Identity().Signing()}
	good.s = sign(t, keys.Signer(), good.r, "runner", now)
	changes := map[string]func(m *made){
		"the other plane":       func(m *made) { m.r.Plane = signing.SitePlane },
		"no plane":              func(m *made) { m.r.Endpoint = "site/claim" },
		"an endpoint in upper":  func(m *made) { m.r.Endpoint = "Claim" },
		"an endpoint cut short": func(m *made) { m.r.Endpoint = "clai" },
		"no endpoint":           func(m *made) { m.r.Endpoint = "" },
		"another caller":        func(m *made) { m.s.Caller = "runner2" },
		"no caller":             func(m *made) { m.s.Caller = "" },
		"a caller in upper":     func(m *made) { m.s.Caller = "Runner" },
		"a line moved":          func(m *made) { m.r.Endpoint, m.s.Caller = "claim\nrunner", "" },
		"a moment later":        func(m *made) { m.s.IssuedAt++ },
		"a moment earlier":      func(m *made) { m.s.IssuedAt-- },
		"another body":          func(m *made) { m.r.Body = []byte(`{"max":2}`) },
		"a body with a space":   func(m *made) { m.r.Body = []byte(`{"max":1} `) },
		"the same JSON":         func(m *made) { m.r.Body = []byte(`{"max":1.0}`) },
		"a body cut short":      func(m *made) { m.r.Body = []byte(`{"max":1`) },
		"no body":               func(m *made) { m.r.Body = nil },
		"another identity":      func(m *made) { m.identity = mallory.Identity().Signing() },
		"nobody":                func(m *made) { m.identity = key.SigningPublic{} },
		"another's signature":   func(m *made) { m.s = sign(t, mallory.Signer(), m.r, "runner", now) },
		"no signature":          func(m *made) { m.s.Value = key.Signature{} },
	}
	for _, e := range ai.Endpoints() {
		if e != ai.EndpointClaim {
			changes["the endpoint "+string(e)] = func(m *made) { m.r.Endpoint = e }
		}
	}
	check := func(m made) error { return signing.Verify(m.identity, m.r, m.s, now, signing.Window) }
	if err := check(good); err != nil {
		t.Fatalf("the good request: %v", err)
	}
	for what, change := range changes {
		m := good
		change(&m)
		if err := check(m); err != signing.ErrSignature {
			t.Errorf("%s: %v", what, err)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(good.s.Value.String())
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(raw) {
		changed := bytes.Clone(raw)
		changed[bit/8] ^= 1 << (bit % 8)
		m := good
		if m.s.Value, err = key.ParseSignature(base64.RawURLEncoding.EncodeToString(changed)); err != nil {
			t.Fatal(err)
		}
		if err := check(m); err != signing.ErrSignature {
			t.Errorf("with bit %d of the signature changed: %v", bit, err)
		}
	}
}

// TestNoTwoRequestsShareAText holds that what is signed says which request it
// was, for callers and endpoints that a header or a path can hold.
func TestNoTwoRequestsShareAText(t *testing.T) {
	keys := keysOf(t, "d")
	type request struct {
		site             bool
		endpoint, caller string
		at               int64
		body             string
	}
	line := rapid.StringMatching(`[a-z/]{0,3}[0-9]{0,2}`)
	draw := rapid.Custom(func(t *rapid.T) request {
		return request{
			rapid.Bool().Draw(t, "site plane"), string(rapid.SampledFrom(ai.Endpoints()).Draw(t, "endpoint")),
			line.Draw(t, "caller"), rapid.Int64Range(1, 30).Draw(t, "at"), rapid.StringMatching(`[a-b]{0,2}`).Draw(t, "body"),
		}
	})
	textOf := func(t *rapid.T, r request) string {
		rec := &recorder{Signer: keys.Signer()}
		plane := signing.DaemonPlane
		if r.site {
			plane = signing.SitePlane
		}
		if _, err := signing.Sign(rec, signing.Request{Plane: plane, Endpoint: ai.Endpoint(r.endpoint), Body: []byte(r.body)}, r.caller, ai.Millis(r.at)); err != nil {
			t.Fatal(err)
		}
		return string(rec.signed)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		if (a == b) != (textOf(t, a) == textOf(t, b)) {
			t.Fatalf("%v and %v", a, b)
		}
	})
}

// TestFreshness has both ends of the window on both sides, and instants whose
// distance is larger than a number.
func TestFreshness(t *testing.T) {
	const w = 120_000
	if signing.Window != w*time.Millisecond {
		t.Fatalf("the window is %v", signing.Window)
	}
	for _, c := range []struct {
		now, at ai.Millis
		fresh   bool
	}{
		{now, now, true}, {now, now - w, true}, {now, now + w, true}, {now, now - w - 1, false}, {now, now + w + 1, false},
		{now, 1, false}, {now, 0, false}, {now, -now, false}, {now, 1<<53 - 1, false}, {now, math.MaxInt64, false}, {now, math.MinInt64, false},
		// The distance of these two is -2^63, and so is its negative.
		{now, now + math.MinInt64, false}, {0, math.MinInt64, false}, {math.MaxInt64, -1, false}, {-1, math.MaxInt64, false},
		{math.MinInt64, 0, false}, {math.MinInt64, math.MaxInt64, false}, {math.MaxInt64, math.MinInt64, false}, {w, 0, true}, {w + 1, 0, false},
	} {
		err := signing.Signature{IssuedAt: c.at}.Fresh(c.now, signing.Window)
		if c.fresh && err != nil || !c.fresh && err != signing.ErrStale {
			t.Errorf("issued at %d, now %d: %v", c.at, c.now, err)
		}
	}
	// The window is the caller's, to the millisecond.
	for window, fresh := range map[time.Duration]bool{
		9 * time.Millisecond: false, 10 * time.Millisecond: true, 11*time.Millisecond - 1: true, time.Hour: true, 0: false, -time.Second: false,
	} {
		for _, at := range []ai.Millis{now - 10, now + 10} {
			if err := (signing.Signature{IssuedAt: at}).Fresh(now, window); (err == nil) != fresh {
				t.Errorf("10 ms away in a window of %v: %v", window, err)
			}
		}
	}
	if err := (signing.Signature{IssuedAt: now}).Fresh(now, 0); err != nil {
		t.Errorf("no distance in no window: %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		now, at := rapid.Int64().Draw(t, "now"), rapid.Int64().Draw(t, "at")
		if rapid.Bool().Draw(t, "near") {
			at = now + rapid.Int64Range(-2*w, 2*w).Draw(t, "distance")
		}
		within := math.Abs(float64(now)-float64(at)) <= 2*w // as exact as this needs to be
		if err := (signing.Signature{IssuedAt: ai.Millis(at)}).Fresh(ai.Millis(now), signing.Window); err == nil && !within {
			t.Fatalf("issued at %d, now %d: fresh", at, now)
		}
	})
}

// TestVerifyJudgesFreshnessFirst holds the order: a stale request tells nothing
// about its signature or its caller.
func TestVerifyJudgesFreshnessFirst(t *testing.T) {
	keys := keysOf(t, "d")
	r := signing.Request{Plane: signing.DaemonPlane, Endpoint: "claim"}
	good := sign(t, keys.Signer(), r, "runner", now)
	unreadable, err := signing.ReadHeaders(signing.DaemonPlane, headers("X-Byollm-Runner", "runner", "X-Byollm-Issued-At", strconv.FormatInt(int64(now), 10), "X-Byollm-Signature", "none"))
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]signing.Signature{"good": good, "unreadable": unreadable, "empty": {Caller: "runner", IssuedAt: now}} {
		want := error(signing.ErrSignature)
		if what == "good" {
			want = nil
		}
		for distance, want := range map[ai.Millis]error{0: want, 120_000: want, -120_000: want, 120_001: signing.ErrStale, -120_001: signing.ErrStale} {
			err := signing.Verify(keys.Identity().Signing(), r, s, now+distance, signing.Window)
			if want == nil && err != nil || want != nil && err != want {
				t.Errorf("a %s signature at a distance of %d: %v", what, distance, err)
			}
		}
	}
}

// TestUnreadableIsNeverASignature has an identity under which the signature of
// zero bytes verifies: a point of low order, which a dishonest peer can pair
// with. A text that is no signature must not become that one.
func TestUnreadableIsNeverASignature(t *testing.T) {
	point := make([]byte, 32)
	point[31] = 0x80
	identity, err := key.ParseSigningPublic(base64.RawURLEncoding.EncodeToString(point))
	if err != nil {
		t.Fatal(err)
	}
	r := signing.Request{Plane: signing.DaemonPlane, Endpoint: "claim"}
	verified := 0
	for at := now; at < now+64; at++ {
		if signing.Verify(identity, r, signing.Signature{Caller: "r", IssuedAt: at}, now, signing.Window) == nil {
			verified++
		}
		s, err := signing.ReadHeaders(signing.DaemonPlane, headers("X-Byollm-Runner", "r", "X-Byollm-Issued-At", strconv.FormatInt(int64(at), 10), "X-Byollm-Signature", "none"))
		if err != nil {
			t.Fatal(err)
		}
		if err := signing.Verify(identity, r, s, now, signing.Window); err != signing.ErrSignature {
			t.Errorf("a text that is no signature verifies: %v", err)
		}
	}
	if verified == 0 {
		t.Error("the signature of zero bytes never verifies, so the test shows nothing")
	}
}

func headers(pairs ...string) func(string) string {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = []string{pairs[i+1]}
	}
	return h.Get
}

func TestReadHeaders(t *testing.T) {
	keys := keysOf(t, "d")
	r := signing.Request{Plane: signing.DaemonPlane, Endpoint: "claim"}
	value := sign(t, keys.Signer(), r, "runner", now).Value.String()
	const at = "1750000000000"
	read := func(caller, at, signature string) (signing.Signature, error) {
		return signing.ReadHeaders(signing.DaemonPlane, headers("X-Byollm-Runner", caller, "X-Byollm-Issued-At", at, "X-Byollm-Signature", signature))
	}
	for what, c := range map[string][3]string{
		"no caller":               {"", at, value},
		"no time":                 {"runner", "", value},
		"no signature":            {"runner", at, ""},
		"nothing":                 {"", "", ""},
		"a time of zero":          {"runner", "0", value},
		"a time before its time":  {"runner", "-1", value},
		"a time past 2^53-1":      {"runner", "9007199254740992", value},
		"a time past 2^63":        {"runner", "9223372036854775808", value},
		"a time past everything":  {"runner", strings.Repeat("9", 400), value},
		"a leading zero":          {"runner", "0" + at, value},
		"zeros":                   {"runner", "00", value},
		"a plus":                  {"runner", "+" + at, value},
		"a minus zero":            {"runner", "-0", value},
		"a space before":          {"runner", " " + at, value},
		"a space after":           {"runner", at + " ", value},
		"a line break after":      {"runner", at + "\n", value},
		"an exponent":             {"runner", "1.75e12", value},
		"a fraction":              {"runner", at + ".0", value},
		"hexadecimal":             {"runner", "0x197", value},
		"an underscore":           {"runner", "1_750_000_000_000", value},
		"digits of another style": {"runner", "１７５", value},
		"a word":                  {"runner", "NaN", value},
		"infinity":                {"runner", "Infinity", value},
	} {
		s, err := read(c[0], c[1], c[2])
		if !errors.Is(err, signing.ErrUnsigned) || s != (signing.Signature{}) {
			t.Errorf("%s: %v, %v", what, s, err)
			continue
		}
		if refusal.From(err).Kind() != signing.ErrUnsigned || c[1] != "" && len(c[1]) > 3 && strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
	for _, c := range []struct {
		at   string
		want ai.Millis
	}{{"1", 1}, {at, now}, {"9007199254740991", 1<<53 - 1}} {
		s, err := read("runner", c.at, value)
		if err != nil || s.Caller != "runner" || s.IssuedAt != c.want || s.Value.String() != value {
			t.Errorf("%s: %v, %v", c.at, s, err)
		}
	}
	// A text that is no signature is judged later, and never kept.
	for _, text := range []string{"x", value + "=", value[1:], value + value, " " + value, strings.Repeat("A", 85) + "B", strings.Repeat("!", 86)} {
		s, err := read("runner", at, text)
		if err != nil || s.Value != (key.Signature{}) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
		if err := signing.Verify(keys.Identity().Signing(), r, s, now, signing.Window); err != signing.ErrSignature {
			t.Errorf("%q verifies: %v", text, err)
		}
	}
}

// TestHeaderNames holds the names of both planes, in the spelling of net/http.
func TestHeaderNames(t *testing.T) {
	for _, c := range []struct {
		plane  signing.Plane
		caller string
	}{{signing.DaemonPlane, "X-Byollm-Runner"}, {signing.SitePlane, "X-Byollm-Site"}} {
		var asked []string
		_, err := signing.ReadHeaders(c.plane, func(name string) string {
			asked = append(asked, name)
			return ""
		})
		if !errors.Is(err, signing.ErrUnsigned) {
			t.Error(err)
		}
		want := []string{c.caller, "X-Byollm-Issued-At", "X-Byollm-Signature"}
		if fmt.Sprint(asked) != fmt.Sprint(want) {
			t.Errorf("asked for %v", asked)
		}
		for i, h := range (signing.Signature{}).Headers(c.plane) {
			if h[0] != want[i] || h[0] != http.CanonicalHeaderKey(h[0]) {
				t.Errorf("writes %s", h[0])
			}
		}
	}
	// One plane's caller is none on the other.
	at := strconv.FormatInt(int64(now), 10)
	if _, err := signing.ReadHeaders(signing.SitePlane, headers("X-Byollm-Runner", "r", "X-Byollm-Issued-At", at, "X-Byollm-Signature", "s")); !errors.Is(err, signing.ErrUnsigned) {
		t.Error(err)
	}
}

func TestHeadersRoundTrip(t *testing.T) {
	keys := keysOf(t, "d")
	rapid.Check(t, func(t *rapid.T) {
		plane := rapid.SampledFrom([]signing.Plane{signing.DaemonPlane, signing.SitePlane}).Draw(t, "plane")
		r := signing.Request{
			Plane: plane, Endpoint: rapid.SampledFrom(ai.Endpoints()).Draw(t, "endpoint"),
			Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		}
		at := ai.Millis(rapid.Int64Range(1, 1<<53-1).Draw(t, "at"))
		sent, err := signing.Sign(keys.Signer(), r, rapid.StringMatching(`[!-~]{1,20}`).Draw(t, "caller"), at)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		for _, pair := range sent.Headers(plane) {
			h.Set(pair[0], pair[1])
		}
		got, err := signing.ReadHeaders(plane, h.Get)
		if err != nil || got != sent {
			t.Fatalf("sent %v, got %v, %v", sent, got, err)
		}
		if err := signing.Verify(keys.Identity().Signing(), r, got, at, signing.Window); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzReadHeaders reads any three texts. What is read is written the same, so a
// request has one spelling.
func FuzzReadHeaders(f *testing.F) {
	keys := keysOf(f, "d")
	s := sign(f, keys.Signer(), signing.Request{Plane: signing.DaemonPlane, Endpoint: "claim"}, "runner", now)
	f.Add("runner", "1750000000000", s.Value.String())
	f.Add("", "1.75e12", "")
	f.Add("r", "01", strings.Repeat("A", 86))
	f.Fuzz(func(t *testing.T, caller, at, signature string) {
		sent := map[string]string{"X-Byollm-Runner": caller, "X-Byollm-Issued-At": at, "X-Byollm-Signature": signature}
		got, err := signing.ReadHeaders(signing.DaemonPlane, func(name string) string { return sent[name] })
		if err != nil {
			if !errors.Is(err, signing.ErrUnsigned) || got != (signing.Signature{}) {
				t.Fatalf("%v, %v", got, err)
			}
			return
		}
		h := got.Headers(signing.DaemonPlane)
		if h[0][1] != caller || h[1][1] != at || got.Value != (key.Signature{}) && h[2][1] != signature {
			t.Fatalf("%q, %q, %q are written as %v", caller, at, signature, h)
		}
		err = signing.Verify(keys.Identity().Signing(), signing.Request{Plane: signing.DaemonPlane, Endpoint: "claim"}, got, now, signing.Window)
		if err == nil && got != s {
			t.Fatalf("%v verifies", got)
		}
	})
}

// TestKinds holds the names, statuses and order of the refusals. Programs and
// documents name them.
func TestKinds(t *testing.T) {
	want := []string{"request-unsigned 401", "request-stale 401", "request-signature 401"}
	var got []string
	for _, k := range signing.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || signing.Kinds.Title != "Signed requests" {
		t.Errorf("%q: %q", signing.Kinds.Title, got)
	}
}
