package envelope_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/v0"
)

// TestSealedBytes compares what is sealed with the words of doc.go, byte for
// byte.
func TestSealedBytes(t *testing.T) {
	w := newWorld(t)
	p := w.parts()
	without, with := w.letter(), w.letter()
	with.Reach = &reach
	for what, c := range map[string]struct {
		letter  envelope.Letter
		members []string
	}{
		"a payload with its reach": {with, append(w.members(), stub)},
		"a payload without":        {without, w.members()},
	} {
		p.members = c.members
		env, err := envelope.Seal(bytes.NewReader(p.ephemeral[:]), w.site.Signer(), w.device.Identity(), c.letter)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if want := w.envelope(p.sealed(t)); env != want {
			t.Errorf("%s:\ngot  %v\nwant %v", what, env, want)
		}
	}

	// The other way, a result.
	result := envelope.Letter{JobID: "j", Direction: ai.DirectionResult, DeadlineAt: 1, Plaintext: "<&>\u2028\x7f\x01\""}
	env, err := envelope.Seal(bytes.NewReader(p.ephemeral[:]), w.device.Signer(), w.site.Identity(), result)
	if err != nil {
		t.Fatal(err)
	}
	p.signer, p.to = w.device.Signer(), w.site.Identity().Sealing()
	p.members = []string{
		`"v":"byollm/v1/envelope"`, `"jobId":"j"`, `"senderKeyId":"` + w.device.Identity().String() + `"`,
		`"recipientKeyId":"` + w.site.Identity().String() + `"`, `"deadlineAt":1`, `"direction":"result"`,
		"\"plaintext\":\"<&>\u2028\x7f\\u0001\\\"\"",
	}
	if env.Ciphertext != p.sealed(t) || env.Direction != ai.DirectionResult || env.DeadlineAt != 1 {
		t.Errorf("a result is sealed as %v", env)
	}

	// What the run took comes last.
	result.Usage = &ai.Usage{Prompt: 0, Completion: 1<<53 - 1}
	env, err = envelope.Seal(bytes.NewReader(p.ephemeral[:]), w.device.Signer(), w.site.Identity(), result)
	if err != nil {
		t.Fatal(err)
	}
	p.members = append(p.members, `"usage":{"promptTokens":0,"completionTokens":9007199254740991}`)
	if env.Ciphertext != p.sealed(t) {
		t.Errorf("a result with its usage is sealed as %v", env)
	}

	// And then what it ran instead of.
	result.Instead = &ai.Instead{Model: "llama3.2:3b", Why: "backend-unreachable"}
	env, err = envelope.Seal(bytes.NewReader(p.ephemeral[:]), w.device.Signer(), w.site.Identity(), result)
	if err != nil {
		t.Fatal(err)
	}
	p.members = append(p.members, `"instead":{"model":"llama3.2:3b","why":"backend-unreachable"}`)
	if env.Ciphertext != p.sealed(t) {
		t.Errorf("a result with what it ran instead of is sealed as %v", env)
	}
	if envelope.MaxAge != 24*time.Hour {
		t.Errorf("envelopes live %v", envelope.MaxAge)
	}
}

func TestSealIsFreshEachTime(t *testing.T) {
	w := newWorld(t)
	seal := func(rand io.Reader) ai.SealedEnvelope {
		t.Helper()
		env, err := envelope.Seal(rand, w.site.Signer(), w.device.Identity(), w.letter())
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := w.open(env); err != nil || opened.Plaintext != plaintext {
			t.Fatalf("what was sealed does not open: %v", err)
		}
		return env
	}
	var random [128]byte
	for i := range random {
		random[i] = byte(i * 7)
	}
	one := bytes.NewReader(random[:])
	first, second := seal(one), seal(one)
	if one.Len() != len(random)-2*32 {
		t.Errorf("two envelopes took %d bytes of randomness, not 64", len(random)-one.Len())
	}
	if first.Ciphertext == second.Ciphertext || first.Ciphertext[:43] == second.Ciphertext[:43] {
		t.Error("two envelopes have the same ephemeral key")
	}
	if again := seal(bytes.NewReader(random[:])); again != first {
		t.Error("the same randomness gives another envelope, so there is randomness of its own")
	}
	if slow := seal(iotest.OneByteReader(bytes.NewReader(random[:]))); slow != first {
		t.Error("a slow reader gives another envelope")
	}
}

// TestWhatIsSealedOpens has any texts in any direction, also of a site to
// itself.
func TestWhatIsSealedOpens(t *testing.T) {
	site, device := keysOf[key.SiteRole](t, "s"), keysOf[key.DeviceRole](t, "d")
	type party struct {
		signer      key.Signer
		opener      key.Opener
		signing     key.SigningPublic
		fingerprint key.Fingerprint
		seal        func(io.Reader, key.Signer, envelope.Letter) (ai.SealedEnvelope, error)
	}
	parties := []party{
		{site.Signer(), site.Opener(), site.Identity().Signing(), site.Identity().Fingerprint(), func(r io.Reader, s key.Signer, l envelope.Letter) (ai.SealedEnvelope, error) {
			return envelope.Seal(r, s, site.Identity(), l)
		}},
		{device.Signer(), device.Opener(), device.Identity().Signing(), device.Identity().Fingerprint(), func(r io.Reader, s key.Signer, l envelope.Letter) (ai.SealedEnvelope, error) {
			return envelope.Seal(r, s, device.Identity(), l)
		}},
	}
	rapid.Check(t, func(t *rapid.T) {
		from, to := rapid.SampledFrom(parties).Draw(t, "from"), rapid.SampledFrom(parties).Draw(t, "to")
		l := envelope.Letter{
			JobID:      ai.JobID(rapid.StringN(1, 5, -1).Draw(t, "job")),
			Direction:  rapid.SampledFrom(ai.Directions()).Draw(t, "direction"),
			DeadlineAt: ai.Millis(rapid.Int64Range(1, 1<<53-1).Draw(t, "deadline")),
			Plaintext:  rapid.String().Draw(t, "plaintext"),
		}
		if l.Direction == ai.DirectionPayload && rapid.Bool().Draw(t, "with reach") {
			l.Reach = &envelope.Reach{
				Kind: rapid.SampledFrom(ai.Kinds()).Draw(t, "kind"), Audience: rapid.SampledFrom(ai.Audiences()).Draw(t, "audience"),
				Owner: ai.Owner(rapid.StringN(1, 5, -1).Draw(t, "owner")), Site: ai.KeyID(rapid.StringN(1, 5, -1).Draw(t, "site")),
			}
		}
		if l.Direction == ai.DirectionResult && rapid.Bool().Draw(t, "with usage") {
			tokens := rapid.Int64Range(0, 1<<53-1)
			l.Usage = &ai.Usage{Prompt: tokens.Draw(t, "prompt tokens"), Completion: tokens.Draw(t, "completion tokens")}
		}
		if l.Direction == ai.DirectionResult && rapid.Bool().Draw(t, "with instead") {
			l.Instead = &ai.Instead{Model: rapid.StringN(1, 5, -1).Draw(t, "model"), Why: rapid.StringMatching(`[a-z0-9-]{1,64}`).Draw(t, "why")}
		}
		secret := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "ephemeral")
		env, err := to.seal(bytes.NewReader(secret), from.signer, l)
		if err != nil {
			t.Fatal(err)
		}
		if env.DeadlineAt != l.DeadlineAt || env.Direction != l.Direction ||
			env.SenderKeyID != ai.KeyID(from.fingerprint.String()) || env.RecipientKeyID != ai.KeyID(to.fingerprint.String()) {
			t.Fatalf("the labels are %v", env)
		}
		want := envelope.Context{JobID: l.JobID, Sender: from.fingerprint, Recipient: to.fingerprint, Direction: l.Direction}
		opened, err := envelope.Open(to.opener, from.signing, env, want)
		if err != nil || opened.Plaintext != l.Plaintext || !reflect.DeepEqual(opened.Reach, l.Reach) || !reflect.DeepEqual(opened.Usage, l.Usage) ||
			!reflect.DeepEqual(opened.Instead, l.Instead) {
			t.Fatalf("opened %v, %v", opened, err)
		}
	})
}

// failing cannot sign.
type failing struct {
	key.Signer
	err error
}

func (f failing) Sign([]byte) (key.Signature, error) { return key.Signature{}, f.err }

func TestSealRefuses(t *testing.T) {
	w := newWorld(t)
	random := func() io.Reader { return strings.NewReader(strings.Repeat("r", 32)) }
	change := func(f func(l *envelope.Letter)) envelope.Letter {
		l := w.letter()
		r := reach
		l.Reach = &r
		f(&l)
		return l
	}
	result := func(u ai.Usage) func(*envelope.Letter) {
		return func(l *envelope.Letter) { l.Direction, l.Reach, l.Usage = ai.DirectionResult, nil, &u }
	}
	instead := func(model, why string) func(*envelope.Letter) {
		return func(l *envelope.Letter) {
			l.Direction, l.Reach, l.Instead = ai.DirectionResult, nil, &ai.Instead{Model: model, Why: why}
		}
	}
	const secret = "canarybird"
	for what, l := range map[string]envelope.Letter{
		"no job":                     change(func(l *envelope.Letter) { l.JobID = "" }),
		"a job that is not UTF-8":    change(func(l *envelope.Letter) { l.JobID = secret + "\xff" }),
		"no direction":               change(func(l *envelope.Letter) { l.Direction = "" }),
		"an unknown direction":       change(func(l *envelope.Letter) { l.Direction = secret }),
		"no deadline":                change(func(l *envelope.Letter) { l.DeadlineAt = 0 }),
		"a deadline before its time": change(func(l *envelope.Letter) { l.DeadlineAt = -1 }),
		"a deadline past 2^53-1":     change(func(l *envelope.Letter) { l.DeadlineAt = 1 << 53 }),
		"a deadline at the end":      change(func(l *envelope.Letter) { l.DeadlineAt = math.MaxInt64 }),
		"text that is not UTF-8":     change(func(l *envelope.Letter) { l.Plaintext = secret + "\xff" }),
		"text with half a surrogate": change(func(l *envelope.Letter) { l.Plaintext = secret + "\xed\xa0\x80" }),
		"an unknown kind":            change(func(l *envelope.Letter) { l.Reach.Kind = secret }),
		"no kind":                    change(func(l *envelope.Letter) { l.Reach.Kind = "" }),
		"an unknown audience":        change(func(l *envelope.Letter) { l.Reach.Audience = secret }),
		"no audience":                change(func(l *envelope.Letter) { l.Reach.Audience = "" }),
		"no owner":                   change(func(l *envelope.Letter) { l.Reach.Owner = "" }),
		"an owner that is not UTF-8": change(func(l *envelope.Letter) { l.Reach.Owner = secret + "\xff" }),
		"no site":                    change(func(l *envelope.Letter) { l.Reach.Site = "" }),
		"a result with a reach":      change(func(l *envelope.Letter) { l.Direction = ai.DirectionResult }),
		"a payload with usage":       change(func(l *envelope.Letter) { l.Usage = &ai.Usage{Prompt: 1, Completion: 1} }),
		"a payload with no usage":    change(func(l *envelope.Letter) { l.Usage = &ai.Usage{} }),
		"a payload instead of one":   change(func(l *envelope.Letter) { l.Instead = &ai.Instead{Model: "m", Why: "w"} }),
		"instead of nothing":         change(instead("", "why")),
		"instead for nothing":        change(instead("m", "")),
		"instead of a long model":    change(instead(strings.Repeat("x", 513), "why")),
		"instead of no text":         change(instead(secret+"\xff", "why")),
		"instead for a long reason":  change(instead("m", strings.Repeat("x", 65))),
		"instead for a sentence":     change(instead("m", secret+" x")),
		"usage below zero":           change(result(ai.Usage{Prompt: -1, Completion: 1})),
		"an answer below zero":       change(result(ai.Usage{Prompt: 1, Completion: -1})),
		"usage past 2^53-1":          change(result(ai.Usage{Prompt: 1 << 53, Completion: 1})),
		"an answer past 2^53-1":      change(result(ai.Usage{Prompt: 1, Completion: math.MaxInt64})),
	} {
		env, err := envelope.Seal(random(), w.site.Signer(), w.device.Identity(), l)
		if !errors.Is(err, envelope.ErrMalformed) || env != (ai.SealedEnvelope{}) {
			t.Errorf("%s: %v, %v", what, env, err)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error repeats the letter: %v", what, err)
		}
	}

	broken := errors.New("broken")
	for what, c := range map[string]struct {
		rand   io.Reader
		signer key.Signer
		want   error
	}{
		"randomness that fails":      {iotest.ErrReader(broken), w.site.Signer(), broken},
		"no randomness":              {strings.NewReader(""), w.site.Signer(), io.EOF},
		"too little randomness":      {strings.NewReader(strings.Repeat("r", 31)), w.site.Signer(), io.ErrUnexpectedEOF},
		"randomness that stops":      {io.MultiReader(strings.NewReader("r"), iotest.ErrReader(broken)), w.site.Signer(), broken},
		"a signer that fails":        {random(), failing{w.site.Signer(), broken}, broken},
		"both, and the signer first": {iotest.ErrReader(io.ErrClosedPipe), failing{w.site.Signer(), broken}, broken},
	} {
		env, err := envelope.Seal(c.rand, c.signer, w.device.Identity(), w.letter())
		if !errors.Is(err, c.want) || env != (ai.SealedEnvelope{}) {
			t.Errorf("%s: %v, %v", what, env, err)
		}
	}
	if env, err := envelope.Seal(random(), key.Signing{}, w.device.Identity(), w.letter()); err == nil || env != (ai.SealedEnvelope{}) {
		t.Errorf("no key signs: %v, %v", env, err)
	}
}

// TestSealToAWeakKey seals to points of low order, for which everybody knows
// the shared secret.
func TestSealToAWeakKey(t *testing.T) {
	w := newWorld(t)
	weak := [][]byte{
		make([]byte, 32),
		append([]byte{1}, make([]byte, 31)...),
		append(append([]byte{0xec}, bytes.Repeat([]byte{0xff}, 30)...), 0x7f), // p-1
		append(append([]byte{0xed}, bytes.Repeat([]byte{0xff}, 30)...), 0x7f), // p
		{0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00},
	}
	for _, point := range weak {
		text := base64.RawURLEncoding.EncodeToString(point)
		binding, err := w.device.Signer().Sign([]byte("byollm/v1/encryption-key:" + text))
		if err != nil {
			t.Fatal(err)
		}
		id, err := key.ParseIdentity[key.DeviceRole](w.device.Identity().Signing().String(), text, binding.String())
		if err != nil {
			t.Fatal(err)
		}
		env, err := envelope.Seal(strings.NewReader(strings.Repeat("r", 32)), w.site.Signer(), id, w.letter())
		if !errors.Is(err, key.ErrWeak) || env != (ai.SealedEnvelope{}) {
			t.Errorf("%x: %v, %v", point, env, err)
		}
	}
	if env, err := envelope.Seal(strings.NewReader(strings.Repeat("r", 32)), w.site.Signer(), key.Device{}, w.letter()); !errors.Is(err, key.ErrWeak) || env != (ai.SealedEnvelope{}) {
		t.Errorf("nobody: %v, %v", env, err)
	}
}

// TestLargestPayload seals the largest payloads that the contract allows and
// looks whether the message that carries them can be written and read. Text is
// escaped twice, for the payload and for the signed body, and encoded twice.
func TestLargestPayload(t *testing.T) {
	if raceEnabled {
		t.Skip("texts of many megabytes are slow under the race detector")
	}
	w := newWorld(t)
	codec := v0.Codec()
	for _, c := range []struct {
		what   string
		unit   string
		units  int
		sealed bool // Seal takes it
		fits   bool // and a message can carry it
	}{
		{"three-byte characters", "語", 4_000_000, true, true},
		{"astral characters", "\U0001D11E", 4_000_000, true, true},
		{"quotes", `"`, 4_000_000, true, true},
		// A legal payload of nothing but control characters without a short
		// escape does not fit: 1 unit takes 6 bytes in the payload, 7 in the
		// signed body and over 12 in the envelope.
		{"control characters that just fit", "\x01", 2_696_000, true, true},
		{"control characters for no message", "\x01", 2_697_000, true, false},
		{"control characters for no envelope", "\x01", 4_000_000, false, false},
	} {
		per := ai.TextUnits(c.unit)
		chat := ai.Chat{}
		for left := c.units; left > 0; left -= ai.MaxTextUnits {
			chat.Messages = append(chat.Messages, ai.ChatMessage{Role: "user", Content: strings.Repeat(c.unit, min(left, ai.MaxTextUnits)/per)})
		}
		text, err := codec.WritePayload(chat)
		if err != nil {
			t.Fatalf("%s: the payload is not legal: %v", c.what, err)
		}
		l := w.letter()
		l.Plaintext, l.Reach = string(text), &reach
		env, err := envelope.Seal(strings.NewReader(strings.Repeat("r", 32)), w.site.Signer(), w.device.Identity(), l)
		if (err == nil) != c.sealed {
			t.Errorf("%s: Seal says %v", c.what, err)
		}
		if err != nil {
			if !errors.Is(err, envelope.ErrMalformed) || env != (ai.SealedEnvelope{}) {
				t.Errorf("%s: Seal says %v", c.what, err)
			}
			continue
		}
		if opened, err := w.open(env); err != nil || opened.Plaintext != l.Plaintext {
			t.Errorf("%s: what was sealed does not open: %v", c.what, err)
		}
		body, err := codec.FetchResponse.Write(ai.FetchResponse{Envelope: env})
		if (err == nil) != c.fits {
			t.Errorf("%s: an envelope of %d bytes is written: %v", c.what, len(env.Ciphertext), err)
		}
		t.Logf("%s: %d units are %d bytes of payload and %d of ciphertext", c.what, c.units, len(text), len(env.Ciphertext))
		if err != nil {
			continue
		}
		if got, err := codec.FetchResponse.Read(body); err != nil || got.Envelope != env {
			t.Errorf("%s: the message does not read back: %v", c.what, err)
		}
	}
}

// TestKinds holds the names, statuses and order of the refusals. Programs and
// documents name them.
func TestKinds(t *testing.T) {
	want := []string{"envelope-not-for-us 400", "envelope-unopenable 400", "envelope-malformed 400", "envelope-signature 400", "envelope-context 400", "envelope-reach 403"}
	var got []string
	for _, k := range envelope.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || envelope.Kinds.Title != "Sealed envelopes" {
		t.Errorf("%q: %q", envelope.Kinds.Title, got)
	}
}
