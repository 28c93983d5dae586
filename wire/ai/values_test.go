package ai_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
)

// TestCanBecome has the whole table, so that a step that is added or lost shows.
func TestCanBecome(t *testing.T) {
	legal := map[string]bool{
		"queued claimed": true, "queued canceled": true, "queued expired": true,
		"claimed queued": true, "claimed running": true, "claimed error": true, "claimed canceled": true,
		"running queued": true, "running ok": true, "running error": true, "running canceled": true,
	}
	terminal := map[ai.State]bool{"ok": true, "error": true, "canceled": true, "expired": true}
	states := append(ai.States(), "", "Queued", "paused")
	steps := 0
	for _, from := range states {
		for _, to := range states {
			got := from.CanBecome(to)
			if got != legal[fmt.Sprintf("%s %s", from, to)] {
				t.Errorf("from %q to %q: %v", from, to, got)
			}
			if got {
				steps++
				if terminal[from] || from == to {
					t.Errorf("%q goes on to %q", from, to)
				}
			}
		}
		if from.Terminal() != terminal[from] {
			t.Errorf("%q is terminal: %v", from, from.Terminal())
		}
	}
	if steps != len(legal) || len(ai.States()) != 7 {
		t.Errorf("%d steps of %d states", steps, len(ai.States()))
	}
	for _, d := range ai.Dispositions() {
		if s := d.State(); !s.Terminal() || string(s) != string(d) || !ai.StateRunning.CanBecome(s) {
			t.Errorf("a run that ended %q is %q", d, s)
		}
	}
}

func TestSizeClasses(t *testing.T) {
	for units, want := range map[int]ai.SizeClass{
		math.MinInt: "small", -1: "small", 0: "small", 1: "small", 3_999: "small", 4_000: "small", 4_001: "medium", 63_999: "medium", 64_000: "medium",
		64_001: "large", 4_000_000: "large", math.MaxInt: "large",
	} {
		if got := ai.SizeClassOf(units); got != want {
			t.Errorf("%d units are %s", units, got)
		}
	}
	for _, class := range append(ai.SizeClasses(), "", "Small") {
		units, bounded := class.Ceiling()
		want := map[ai.SizeClass]int{"small": 4_000, "medium": 64_000}[class]
		if units != want || bounded != (want > 0) {
			t.Errorf("%q has the ceiling %d, %v", class, units, bounded)
		}
		if bounded && (ai.SizeClassOf(units) != class || ai.SizeClassOf(units+1) == class) {
			t.Errorf("%q does not end at its ceiling", class)
		}
	}
}

// TestTextUnits compares with the standard library's encoding.
func TestTextUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.String(), 4, 4).Draw(t, "texts")
		units := make([]int, 4)
		total := 0
		for i, text := range texts {
			units[i] = len(utf16.Encode([]rune(text)))
			total += units[i]
			if got := ai.TextUnits(text); got != units[i] {
				t.Fatalf("%q has %d units, not %d", text, got, units[i])
			}
		}
		if got := (ai.Generate{Prompt: texts[0], System: texts[1]}).TextUnits(); got != units[0]+units[1] {
			t.Fatalf("a prompt has %d units", got)
		}
		chat := ai.Chat{System: texts[0]}
		for _, text := range texts[1:] {
			chat.Messages = append(chat.Messages, ai.ChatMessage{Role: "assistant", Content: text})
		}
		if got := chat.TextUnits(); got != total {
			t.Fatalf("a chat has %d units, not %d", got, total)
		}
	})
}

func TestKindsOfPayloadsAndOutcomes(t *testing.T) {
	if k := (ai.Generate{}).Kind(); k != "llm.generate" {
		t.Error(k)
	}
	if k := (ai.Chat{}).Kind(); k != "llm.chat" {
		t.Error(k)
	}
	for want, outcome := range map[ai.Disposition]ai.Outcome{"ok": ai.Answer{}, "error": ai.Failure{}, "canceled": ai.Cancellation{}} {
		if got := outcome.Disposition(); got != want {
			t.Errorf("%T ends %q", outcome, got)
		}
	}
}

func TestMillis(t *testing.T) {
	paris := time.FixedZone("", 2*60*60)
	for _, c := range []struct {
		at   time.Time
		want ai.Millis
	}{
		{time.Unix(0, 0), 0}, {time.UnixMilli(1), 1}, {time.Unix(0, 999_999), 0}, {time.Unix(0, 1_999_999), 1}, {time.Unix(0, -1), -1},
		{time.Date(2026, 7, 1, 2, 0, 0, 999_999_999, paris), 1_782_864_000_999}, {time.UnixMilli(1<<53 - 1), 1<<53 - 1},
	} {
		if got := ai.MillisOf(c.at); got != c.want {
			t.Errorf("%v is %d", c.at, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := ai.Millis(rapid.Int64Range(1, 1<<53-1).Draw(t, "millis"))
		at := m.Time()
		if ai.MillisOf(at) != m || at.Location() != time.UTC || at.UnixMilli() != int64(m) {
			t.Fatalf("%d is %v", m, at)
		}
		if late := at.Add(time.Duration(rapid.Int64Range(0, 999_999).Draw(t, "nanoseconds"))); ai.MillisOf(late) != m {
			t.Fatalf("%v is %d", late, ai.MillisOf(late))
		}
	})
}

// TestPublicIdentity reads what an identity is carried as, and nothing else.
func TestPublicIdentity(t *testing.T) {
	fill := func(s string) *strings.Reader { return strings.NewReader(strings.Repeat(s, 64)) }
	device, err1 := key.NewKeys[key.DeviceRole](fill("d"), time.UnixMilli(1))
	site, err2 := key.NewKeys[key.SiteRole](fill("s"), time.UnixMilli(1))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	d, s := ai.PublicIdentityOf(device.Identity()), ai.PublicIdentityOf(site.Identity())
	if d.Identity != device.Identity().Signing().String() || d.Encryption != device.Identity().Sealing().String() || d.EncryptionSig != device.Identity().Binding().String() {
		t.Errorf("a device is carried as %v", d)
	}
	if got, err := d.Device(); err != nil || got != device.Identity() {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := s.Site(); err != nil || got != site.Identity() {
		t.Errorf("%v, %v", got, err)
	}
	for what, c := range map[string]struct {
		p    ai.PublicIdentity
		want error
	}{
		"nothing":                  {ai.PublicIdentity{}, key.ErrText},
		"no identity":              {ai.PublicIdentity{"", d.Encryption, d.EncryptionSig}, key.ErrText},
		"no sealing key":           {ai.PublicIdentity{d.Identity, "", d.EncryptionSig}, key.ErrText},
		"no signature":             {ai.PublicIdentity{d.Identity, d.Encryption, ""}, key.ErrText},
		"padded":                   {ai.PublicIdentity{d.Identity + "=", d.Encryption, d.EncryptionSig}, key.ErrText},
		"another identity":         {ai.PublicIdentity{s.Identity, d.Encryption, d.EncryptionSig}, key.ErrBinding},
		"another sealing key":      {ai.PublicIdentity{d.Identity, s.Encryption, d.EncryptionSig}, key.ErrBinding},
		"another signature":        {ai.PublicIdentity{d.Identity, d.Encryption, s.EncryptionSig}, key.ErrBinding},
		"the two keys exchanged":   {ai.PublicIdentity{d.Encryption, d.Identity, d.EncryptionSig}, key.ErrBinding},
		"the fingerprint for keys": {ai.PublicIdentity{device.Identity().String(), d.Encryption, d.EncryptionSig}, key.ErrText},
	} {
		if got, err := c.p.Device(); !errors.Is(err, c.want) || !got.IsZero() {
			t.Errorf("%s as a device: %v, %v", what, got, err)
		}
		if got, err := c.p.Site(); !errors.Is(err, c.want) || !got.IsZero() {
			t.Errorf("%s as a site: %v, %v", what, got, err)
		}
	}
}

func TestProvenanceOf(t *testing.T) {
	stop := ai.Stop{Reason: ai.StopLength, Reported: true}
	ran := ai.RunMetadata{Model: "m", BackendClass: "http", DurationMs: 7, Stop: stop}
	for _, audience := range append(ai.Audiences(), "", "Self") {
		want := ai.Provenance{Audience: audience, RunnerID: "r", RunnerOwner: "o", BackendClass: "http", Model: "m", Untrusted: audience != "self", Stop: stop}
		if got := ai.ProvenanceOf(audience, "r", "o", ran); got != want {
			t.Errorf("%+v", got)
		}
	}
}

// TestWords holds the words and limits of the contract as they are written.
// Other tests take them from the package and would follow a change.
func TestWords(t *testing.T) {
	for want, got := range map[string]string{
		"darwin linux win32":                             fmt.Sprint(ai.Platforms()),
		"pending denied expired approved":                fmt.Sprint(ai.PairStatuses()),
		"shutdown pause revoked backend-down refused":    fmt.Sprint(ai.ReleaseReasons()),
		"user assistant system":                          fmt.Sprint(ai.Roles()),
		"payload result":                                 fmt.Sprint(ai.Directions()),
		"pair claim fetch heartbeat result release":      fmt.Sprint(ai.Endpoints()),
		"llm.generate llm.chat":                          fmt.Sprint(ai.Kinds()),
		"end length stop-sequence unknown":               fmt.Sprint(ai.StopReasons()),
		"self named public":                              fmt.Sprint(ai.Audiences()),
		"64 2":                                           fmt.Sprint([]int{ai.MaxSuccessions, ai.MinClaimants}),
		"small medium large unbounded":                   fmt.Sprint(ai.SizeClasses()),
		"262144 33554432 64 1000000 256 4000000 120 500": fmt.Sprint([]int{ai.MaxBody, ai.MaxSealedBody, ai.MaxClaim, ai.MaxTextUnits, ai.MaxMessages, ai.MaxPayloadUnits, ai.MaxLabelUnits, ai.MinPollIntervalMs}),
		"20 4 16 60000":                                  fmt.Sprint([]int{ai.MinDeviceCodeUnits, ai.MinUserCodeUnits, ai.MaxUserCodeUnits, ai.MaxPollIntervalMs}),
	} {
		if got != "["+want+"]" {
			t.Errorf("%s, not [%s]", got, want)
		}
	}
}

// TestListsBelongToTheirCallers changes what each list function returned.
func TestListsBelongToTheirCallers(t *testing.T) {
	holdCopy(t, ai.Kinds)
	holdCopy(t, ai.Audiences)
	holdCopy(t, ai.OfferScopes)
	holdCopy(t, ai.States)
	holdCopy(t, ai.Endpoints)
	holdCopy(t, ai.Platforms)
	holdCopy(t, ai.PairStatuses)
	holdCopy(t, ai.Directions)
	holdCopy(t, ai.ReleaseReasons)
	holdCopy(t, ai.Dispositions)
	holdCopy(t, ai.Roles)
	holdCopy(t, ai.SizeClasses)
	holdCopy(t, ai.Codes)
	holdCopy(t, ai.StopReasons)
}

func holdCopy[S ~string](t *testing.T, list func() []S) {
	t.Helper()
	before := list()
	sorted := slices.Sorted(slices.Values(before))
	if len(before) == 0 || sorted[0] == "" || len(slices.Compact(sorted)) != len(before) {
		t.Errorf("%q is no list of words", before)
	}
	list()[0] = "changed"
	if !slices.Equal(list(), before) {
		t.Errorf("a caller can change %q", before)
	}
}

// TestPayloads goes through the codecs as a party uses them.
func TestPayloads(t *testing.T) {
	for _, codec := range codecs() {
		t.Run(codec.Version, func(t *testing.T) { testPayloads(t, codec) })
	}
}

func testPayloads(t *testing.T, codec ai.Codec) {
	for _, p := range []ai.Payload{ai.Generate{Prompt: "p"}, ai.Chat{Messages: []ai.ChatMessage{{Role: "user"}}}} {
		text, err := codec.WritePayload(p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := codec.ReadPayload(p.Kind(), text); err != nil || fmt.Sprint(got) != fmt.Sprint(p) {
			t.Errorf("%v, %v", got, err)
		}
		for _, kind := range append(ai.Kinds(), "", canary) {
			if kind == p.Kind() {
				continue
			}
			got, err := codec.ReadPayload(kind, text)
			if got != nil || !errors.Is(err, ai.ErrBadRequest) || strings.Contains(err.Error(), canary) {
				t.Errorf("as %s: %v, %v", kind, got, err)
			}
		}
	}
	for _, p := range []ai.Payload{nil, &ai.Generate{Prompt: "p"}, (*ai.Chat)(nil)} {
		if text, err := codec.WritePayload(p); text != nil || !errors.Is(err, ai.ErrBadRequest) {
			t.Errorf("%T: %q, %v", p, text, err)
		}
	}
}

// TestDeviceCodesHideThemselves plants a code and looks for it in whatever a
// message that holds it prints.
func TestDeviceCodesHideThemselves(t *testing.T) {
	const secret = "canary-device-code-0123456789"
	m := ai.PairPollRequest{DeviceCode: secret}
	if !strings.Contains(string(m.DeviceCode), secret) {
		t.Fatal("the search is blind")
	}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("m", "code", m.DeviceCode, "message", m)
	for _, text := range []string{
		fmt.Sprint(m), fmt.Sprintf("%+v %#v %s %q %x", m, m, m.DeviceCode, m.DeviceCode, m.DeviceCode), logged.String(),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, hex.EncodeToString([]byte(secret))) {
			t.Errorf("printed: %s", text)
		}
	}
}
