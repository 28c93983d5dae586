package shapes_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
)

// plain writes any value of a message, valid or not, by nothing but the names
// of its fields. It checks nothing, so what it writes of a bad value is what a
// careless peer would send.
func (e *edition) plain(name string, v any) string {
	o := members{e: e}
	if strings.HasSuffix(name, "Request") {
		o.add("protocolVersion", `"`+e.version+`"`)
	}
	o.fields(name, reflect.ValueOf(v))
	return o.String()
}

type members struct {
	e    *edition
	list []string
}

func (o *members) add(name, value string) { o.list = append(o.list, quote(name)+":"+value) }

func (o members) String() string { return "{" + strings.Join(o.list, ",") + "}" }

// optionals are left out when they are zero.
var optionals = []string{
	"Generate.System", "Chat.System", "PairApproval.OwnerLabel", "ClaimedJob.Site", "Answer.ArtifactURL",
	"ResultResponse.Duplicate", "Error.Supported", "Error.Minimum", "Error.ServerTime", "Error.MaxSkewMs", "Error.RetryAfter",
	"DeliveredResult.Outcome", "DeliveredResult.Provenance",
	"Capability.KnownModels", "PairApproval.ControlPlane", "HeartbeatRequest.Withheld", "HeartbeatResponse.Successions",
	"HeartbeatResponse.UpdateTo", "SiteSuccession.RetiringUntil", "Stub.Purpose", "ClaimedJob.Service", "ClaimedJob.DeadlineAt",
	"DeliveredResult.Fallback", "Error.Floor", "Stop.Reason",
}

// flat are fields whose members stand in the object around them.
var flat = []string{
	"ClaimedStub.Stub", "FetchRequest.Grant", "ResultRequest.Grant", "PairRequest.Start", "PairRequest.Poll", "PairPollResponse.Approved",
	"RunMetadata.Stop", "Provenance.Stop",
}

// names are of members that are called otherwise than their fields.
var names = map[string]string{
	"Error.Code": "error", "PairApproval.ControlPlane": "controlPlanePublic", "Stop.Reason": "stop", "Stop.Reported": "stopReported",
}

// unsaid are fields that one version has no member for and leaves out. What a
// reader would act wrongly without is not among them: Write refuses that.
func (e *edition) unsaid(field string) bool {
	if e.later {
		return field == "HeartbeatRequest.Paused"
	}
	return slices.Contains([]string{
		"Capability.Service", "Capability.KnownModels", "PairApproval.ControlPlane", "HeartbeatRequest.Withheld",
		"HeartbeatResponse.Successions", "HeartbeatResponse.UpdateTo", "Stub.Purpose", "ClaimedStub.Grant", "RunMetadata.Stop",
		"Provenance.Stop", "ClaimedJob.Service", "ClaimedJob.DeadlineAt",
	}, field)
}

func (o *members) fields(name string, v reflect.Value) {
	switch p := v.Interface().(type) {
	case ai.Payload: // beside its kind, unless it is the message itself
		if name == "Generate" || name == "Chat" {
			o.struc(v)
			return
		}
		o.add("kind", quote(string(p.Kind())))
		inner := members{e: o.e}
		inner.struc(v)
		o.add("payload", inner.String())
	case ai.PairRequest:
		if p.Start != nil {
			o.add("action", `"start"`)
		} else if p.Poll != nil {
			o.add("action", `"poll"`)
		}
		o.struc(v)
	default:
		o.struc(v)
	}
}

func (o *members) struc(v reflect.Value) {
	for f, field := range v.Fields() {
		full := v.Type().Name() + "." + f.Name
		if o.e.unsaid(full) && !(full == "HeartbeatRequest.Paused" && field.Bool() && v.FieldByName("Capabilities").Len() > 0) {
			continue
		}
		if field.Kind() == reflect.Pointer || field.Kind() == reflect.Interface {
			if field.IsNil() {
				continue
			}
			field = field.Elem()
		} else if slices.Contains(optionals, full) && field.IsZero() {
			continue
		}
		switch {
		case full == "Stop.Reported" && v.IsZero(): // absent, with a reason that is absent as well
		case slices.Contains(flat, full):
			o.struc(field)
		case full == "ClaimedJob.Payload":
			o.fields(full, field)
		case names[full] != "":
			o.add(names[full], o.value(field))
		default:
			name := strings.NewReplacer("ID", "Id", "URL", "Url").Replace(f.Name)
			o.add(strings.ToLower(name[:1])+name[1:], o.value(field))
		}
	}
}

func (o *members) value(v reflect.Value) string {
	switch v.Interface().(type) {
	case ai.Audience, ai.OfferScope:
		word, ok := o.e.words[v.String()]
		if !ok { // one that is no word of any version
			word = "?" + v.String()
		}
		return quote(word)
	}
	inner := members{e: o.e}
	switch v.Kind() {
	case reflect.String:
		return quote(v.String())
	case reflect.Int64:
		return strconv.FormatInt(v.Int(), 10)
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = inner.value(v.Index(i))
		}
		return "[" + strings.Join(items, ",") + "]"
	case reflect.Map:
		for _, k := range v.MapKeys() {
			inner.add(k.String(), inner.value(v.MapIndex(k)))
		}
		return inner.String()
	case reflect.Struct:
		if out, ok := v.Interface().(ai.Outcome); ok {
			inner.add("outcome", quote(string(out.Disposition())))
		}
		inner.struc(v)
		return inner.String()
	}
	panic("no JSON for " + v.Kind().String())
}

// quote keeps invalid UTF-8 as it is.
func quote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == '"' || r == '\\' || r < 0x20 }) {
		return `"` + s + `"`
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' || c < 0x20 {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// bad are values for a field that are outside the bounds of some member.
var (
	badTexts   = []string{"", "a", " ", canary + "\xff", canary + "\xed\xa0\x80", "self", "SELF", "ok", "approved", strings.Repeat(canary, 10), "https://a.example/", "javascript:" + canary}
	badNumbers = []int64{-1, 0, 1, 64, 65, 499, 500, 60_000, 60_001, maxWhole, maxWhole + 1, math.MaxInt64, math.MinInt64}
)

// spots counts the places of a value that change knows to change, and changes
// the one at index want.
type spots struct {
	t    *rapid.T
	want int
	seen int
}

func (s *spots) here() bool {
	s.seen++
	return s.seen-1 == s.want
}

// change returns the value with the wanted place changed.
func (s *spots) change(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		if s.here() {
			out.SetString(rapid.SampledFrom(badTexts).Draw(s.t, "text"))
		}
	case reflect.Int64:
		if s.here() {
			out.SetInt(rapid.SampledFrom(badNumbers).Draw(s.t, "number"))
		}
	case reflect.Bool:
		if s.here() {
			out.SetBool(!v.Bool())
		}
	case reflect.Pointer, reflect.Interface:
		if s.here() {
			switch v.Type() {
			case reflect.TypeFor[*ai.PairPollRequest](), reflect.TypeFor[*ai.PairApproval](), reflect.TypeFor[*ai.PairStartRequest]():
				if v.IsNil() { // there where it must not be
					return reflect.New(v.Type().Elem())
				}
			}
			return reflect.Zero(v.Type())
		}
		if v.IsNil() {
			break
		}
		inner := s.change(v.Elem())
		if v.Kind() == reflect.Interface {
			out.Set(inner)
		} else {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(inner)
			out.Set(p)
		}
	case reflect.Slice:
		if s.here() {
			return reflect.Zero(v.Type())
		}
		if v.IsNil() {
			break
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(s.change(v.Index(i)))
		}
	case reflect.Map:
		if s.here() {
			key := reflect.ValueOf(rapid.SampledFrom([]string{"", "__proto__", canary + "\xff", canary}).Draw(s.t, "name"))
			out.Set(reflect.MakeMap(v.Type()))
			out.SetMapIndex(key.Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
			return out
		}
		out.Set(reflect.MakeMap(v.Type()))
		for _, k := range v.MapKeys() {
			out.SetMapIndex(k, s.change(v.MapIndex(k)))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(s.change(v.Field(i)))
		}
	}
	return out
}

// TestWriteRefusesWhatReadRefuses spoils values and holds that Write and Read
// agree about each: what Read would refuse is not written, and what is written
// reads back as the same value.
func TestWriteRefusesWhatReadRefuses(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		refused := 0
		rapid.Check(t, func(t *rapid.T) {
			top := reflect.New(s.typ).Elem() // an interface stays one
			top.Set(reflect.ValueOf(s.valid.Draw(t, "value")))
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				count := &spots{t: t, want: -1}
				count.change(top)
				top = (&spots{t: t, want: rapid.IntRange(0, count.seen-1).Draw(t, "place")}).change(top)
				if top.Kind() == reflect.Interface && top.IsNil() {
					break
				}
			}
			v := top.Interface()
			careless := "{}"
			if v != nil {
				careless = s.e.plain(s.name, v)
			}
			_, readErr := s.read([]byte(careless))
			body, err := s.write(v)
			if (err == nil) != (readErr == nil) {
				t.Fatalf("Write says %v, Read says %v of\n%s", err, readErr, careless)
			}
			if err != nil {
				refused++
				if len(body) > 0 || !isBadRequest(err) || strings.Contains(err.Error(), canary) {
					t.Fatalf("refused with %d bytes and %#v", len(body), err)
				}
				return
			}
			got, err := s.read(body)
			if err != nil {
				t.Fatalf("what was written is not read: %v\n%s", err, body)
			}
			if again := s.e.plain(s.name, got); !sameJSON(again, careless) {
				t.Fatalf("wrote %s\nread  %s", careless, again)
			}
			if !sameJSON(string(body), careless) {
				t.Fatalf("wrote %s\nas    %s", careless, body)
			}
		})
		if refused == 0 {
			t.Error("no value was refused, so the test shows nothing")
		}
	})
}

func sameJSON(a, b string) bool {
	var x, y any
	err1, err2 := unmarshal(a, &x), unmarshal(b, &y)
	return err1 == nil && err2 == nil && reflect.DeepEqual(x, y)
}

// unmarshal keeps numbers as they are written, since large ones are not floats.
func unmarshal(text string, into any) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	return dec.Decode(into)
}

// TestWriteRefusesByName has what no careless peer could send, because JSON has
// no form for it, and the refusals that must not be lost.
func TestWriteRefusesByName(t *testing.T) {
	for _, e := range editions {
		t.Run(e.version, func(t *testing.T) { testWriteRefusesByName(t, e.codec) })
	}
}

func testWriteRefusesByName(t *testing.T, c ai.Codec) {
	ran := ai.RunMetadata{Model: "m", BackendClass: "http"}
	start := &ai.PairStartRequest{
		Daemon: ai.Daemon{Version: "1", Label: "l", Platform: "linux"}, Device: ai.PublicIdentity{Identity: "i", Encryption: "e", EncryptionSig: "s"},
	}
	poll := &ai.PairPollRequest{DeviceCode: ai.DeviceCode(strings.Repeat("c", 20))}
	approval := &ai.PairApproval{RunnerID: "r", Owner: "o"}
	pairing := ai.PairStartResponse{DeviceCode: ai.DeviceCode(strings.Repeat("c", 20)), UserCode: "ABCD", VerificationURL: "https://a.example/", ExpiresAt: 1, PollIntervalMs: 500}
	spaced := pairing
	spaced.VerificationURL += " "
	job := ai.ClaimedJob{ID: "j", Audience: "self", Owner: "o", Lease: ai.Lease{ID: "l", RunnerID: "r", ExpiresAt: 1}}
	pointed := job
	pointed.Payload = &ai.Generate{Prompt: canary}
	for what, w := range map[string]struct {
		body []byte
		err  error
	}{
		"neither start nor poll":         write(c.PairRequest, ai.PairRequest{}),
		"both start and poll":            write(c.PairRequest, ai.PairRequest{Start: start, Poll: poll}),
		"approved without approval":      write(c.PairPollResponse, ai.PairPollResponse{Status: ai.PairApproved}),
		"an approval with pending":       write(c.PairPollResponse, ai.PairPollResponse{Status: ai.PairPending, Approved: approval}),
		"an approval without status":     write(c.PairPollResponse, ai.PairPollResponse{Approved: approval}),
		"no outcome":                     write(c.Outcome, ai.SealedOutcome{Ran: ran}),
		"an outcome behind a pointer":    write(c.Outcome, ai.SealedOutcome{Outcome: &ai.Answer{Text: canary}, Ran: ran}),
		"an outcome behind nil":          write(c.Outcome, ai.SealedOutcome{Outcome: (*ai.Answer)(nil), Ran: ran}),
		"a cancellation behind nil":      write(c.Outcome, ai.SealedOutcome{Outcome: (*ai.Cancellation)(nil), Ran: ran}),
		"a result behind a pointer":      write(c.Result, ai.DeliveredResult{JobID: "j", State: "ok", Outcome: &ai.Answer{Text: canary}}),
		"no payload":                     write[ai.Payload](c.Kinded, nil),
		"a payload behind a pointer":     write[ai.Payload](c.Kinded, &ai.Generate{Prompt: canary}),
		"a payload behind nil":           write[ai.Payload](c.Kinded, (*ai.Chat)(nil)),
		"a job without payload":          write(c.Job, job),
		"a job's payload behind pointer": write(c.Job, pointed),
		"a chat without messages":        write(c.Chat, ai.Chat{}),
		"no supported version":           write(c.Error, ai.Error{Code: "unsupported-protocol-version", Message: "m"}),
		"supported with another code":    write(c.Error, ai.Error{Code: "not-found", Message: "m", Supported: []string{}}),
		"minimum with another code":      write(c.Error, ai.Error{Code: "not-found", Message: "m", Minimum: "0"}),
		"no clock":                       write(c.Error, ai.Error{Code: "clock-skew", Message: "m"}),
		"a clock with another code":      write(c.Error, ai.Error{Code: "unauthorized", Message: "m", ServerTime: 1}),
		"a window with another code":     write(c.Error, ai.Error{Code: "unauthorized", Message: "m", MaxSkewMs: 1}),
		"a floor with another code":      write(c.Error, ai.Error{Code: "not-found", Message: "m", Floor: "1"}),
		"below a floor without one":      write(c.Error, ai.Error{Code: "daemon-below-floor", Message: "m"}),
		"an audience of no word":         write(c.Stub, ai.Stub{ID: "j", Kind: "llm.chat", Owner: "o", Site: "s", Audience: "private", SizeClass: "small", DeadlineAt: 1}),
		"a clock before its time":        write(c.Error, ai.Error{Code: "clock-skew", Message: "m", ServerTime: -1}),
		"white space after a URL":        write(c.PairStartResponse, spaced),
		"white space before a URL":       write(c.Outcome, ai.SealedOutcome{Outcome: ai.Answer{ArtifactURL: "\ufeffhttps://a.example/"}, Ran: ran}),
		"white space for a URL":          write(c.Outcome, ai.SealedOutcome{Outcome: ai.Answer{ArtifactURL: " "}, Ran: ran}),
		"a URL to run":                   write(c.Outcome, ai.SealedOutcome{Outcome: ai.Answer{ArtifactURL: "javascript:" + canary}, Ran: ran}),
	} {
		if w.err == nil {
			t.Errorf("%s is written as %s", what, w.body)
			continue
		}
		if len(w.body) > 0 || !isBadRequest(w.err) || strings.Contains(w.err.Error(), canary) {
			t.Errorf("%s is refused with %d bytes and %#v", what, len(w.body), w.err)
		}
	}
	for what, w := range map[string]written{
		"start":                 write(c.PairRequest, ai.PairRequest{Start: start}),
		"poll":                  write(c.PairRequest, ai.PairRequest{Poll: poll}),
		"approved":              write(c.PairPollResponse, ai.PairPollResponse{Status: ai.PairApproved, Approved: approval}),
		"a pairing":             write(c.PairStartResponse, pairing),
		"a cancellation":        write(c.Outcome, ai.SealedOutcome{Outcome: ai.Cancellation{}, Ran: ran}),
		"no versions supported": write(c.Error, ai.Error{Code: "unsupported-protocol-version", Message: "m", Supported: []string{}}),
	} {
		if w.err != nil {
			t.Errorf("%s is refused, so the table above shows nothing: %v", what, w.err)
		}
	}
}

type written = struct {
	body []byte
	err  error
}

func write[T any](m ai.Message[T], v T) (w written) {
	w.body, w.err = m.Write(v)
	return w
}

// TestWriteKeepsItsArgument holds that writing changes nothing of a value that
// others may be reading.
func TestWriteKeepsItsArgument(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		for seed := range 20 {
			v, same := s.valid.Example(seed), s.valid.Example(seed)
			if !reflect.DeepEqual(v, same) {
				t.Fatal("one seed gives two values, so the test shows nothing")
			}
			if _, err := s.write(v); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(v, same) {
				t.Fatalf("%#v became %#v", same, v)
			}
		}
	})
}

// TestWriteKeepsTheLimit writes the largest message and one that is a byte
// longer.
func TestWriteKeepsTheLimit(t *testing.T) {
	grow := map[string]func(fill string) any{
		"PairRequest": func(fill string) any {
			return ai.PairRequest{Poll: &ai.PairPollRequest{DeviceCode: ai.DeviceCode(fill)}}
		},
		"PairStartResponse": func(fill string) any {
			return ai.PairStartResponse{DeviceCode: ai.DeviceCode(fill), UserCode: "ABCD", VerificationURL: "https://a.example", ExpiresAt: 1, PollIntervalMs: 500}
		},
		"PairPollResponse": func(fill string) any {
			return ai.PairPollResponse{Status: "approved", Approved: &ai.PairApproval{RunnerID: "r", Owner: ai.Owner(fill), Sites: map[ai.KeyID]ai.PublicIdentity{}}}
		},
		"ClaimRequest": func(fill string) any {
			return ai.ClaimRequest{RunnerID: ai.RunnerID(fill), Capabilities: []ai.Capability{}, Max: 1}
		},
		"ClaimResponse": func(fill string) any {
			return ai.ClaimResponse{Jobs: []ai.ClaimedStub{{Stub: aStubOf(fill), Lease: ai.Lease{ID: "l", RunnerID: "r", ExpiresAt: 1}}}, LeaseMs: 1}
		},
		"FetchRequest": func(fill string) any {
			return ai.FetchRequest{RunnerID: ai.RunnerID(fill), Grant: ai.Grant{JobID: "j", LeaseID: "l"}}
		},
		"FetchResponse": func(fill string) any { return ai.FetchResponse{Envelope: anEnvelopeOf(fill)} },
		"HeartbeatRequest": func(fill string) any {
			return ai.HeartbeatRequest{RunnerID: "r", DaemonVersion: fill, Capabilities: []ai.Capability{}, ActiveLeases: []ai.Grant{}}
		},
		"HeartbeatResponse": func(fill string) any {
			return ai.HeartbeatResponse{Sites: map[ai.KeyID]ai.PublicIdentity{}, Cancel: []ai.Grant{}, Lost: []ai.Grant{}, ServerTime: 1, AwaitingConsent: []ai.KeyID{ai.KeyID(fill)}}
		},
		"ResultRequest": func(fill string) any {
			return ai.ResultRequest{RunnerID: "r", Grant: ai.Grant{JobID: "j", LeaseID: "l"}, Envelope: anEnvelopeOf(fill), Disposition: "ok"}
		},
		"ResultResponse": func(fill string) any { return ai.ResultResponse{State: fill} },
		"ReleaseRequest": func(fill string) any {
			return ai.ReleaseRequest{RunnerID: ai.RunnerID(fill), Leases: []ai.Grant{}, Reason: "pause"}
		},
		"ReleaseResponse": func(fill string) any { return ai.ReleaseResponse{Released: []ai.JobID{ai.JobID(fill)}} },
		"Error":           func(fill string) any { return ai.Error{Code: "not-found", Message: fill} },
		"Outcome": func(fill string) any {
			return ai.SealedOutcome{Outcome: ai.Answer{Text: fill}, Ran: ai.RunMetadata{Model: "m", BackendClass: "http"}}
		},
		"Stub": func(fill string) any { return aStubOf(fill) },
		"Job": func(fill string) any {
			return ai.ClaimedJob{ID: "j", Payload: ai.Generate{Prompt: "p"}, Audience: "self", Owner: ai.Owner(fill), Lease: ai.Lease{ID: "l", RunnerID: "r", ExpiresAt: 1}}
		},
		"Result": func(fill string) any { return ai.DeliveredResult{JobID: ai.JobID(fill), State: "ok"} },
		// The bound on a payload's text is reached first.
		"Generate": nil, "Chat": nil, "Kinded": nil,
	}
	each(t, func(t *testing.T, s subject) {
		value, ok := grow[s.name]
		if !ok {
			t.Fatal("the table says nothing about this message")
		}
		if value == nil {
			largest := s.limit // bytes, if every unit of the text takes the most
			if most := ai.MaxPayloadUnits*6 + 256*len(`{"role":"assistant","content":""},`) + 1024; most > largest {
				t.Errorf("the largest payload takes %d bytes of %d", most, largest)
			}
			return
		}
		if s.large() && raceEnabled {
			t.Skip("texts of many megabytes are slow under the race detector")
		}
		few, err := s.write(value(strings.Repeat("f", 20)))
		if err != nil {
			t.Fatal(err)
		}
		fill := strings.Repeat("f", s.limit-len(few)+20)
		body, err := s.write(value(fill))
		if err != nil || len(body) != s.limit {
			t.Fatalf("a message of the limit is written as %d bytes: %v", len(body), err)
		}
		if got, err := s.read(body); err != nil || !reflect.DeepEqual(got, value(fill)) {
			t.Errorf("a message of the limit is not read: %v", err)
		}
		body, err = s.write(value(fill + "f"))
		if err == nil {
			t.Fatal("a message above the limit is written")
		}
		if body != nil || !isBadRequest(err) || !strings.Contains(err.Error(), exact.ErrTooLarge.Name()) {
			t.Errorf("refused with %d bytes and %v", len(body), err)
		}
	})
}

func aStubOf(owner string) ai.Stub {
	return ai.Stub{ID: "j", Kind: "llm.chat", Owner: ai.Owner(owner), Site: "s", Audience: "self", SizeClass: "small", DeadlineAt: 1}
}

func anEnvelopeOf(ciphertext string) ai.SealedEnvelope {
	return ai.SealedEnvelope{Ciphertext: ciphertext, RecipientKeyID: "r", SenderKeyID: "s", Direction: "payload", DeadlineAt: 1}
}

// TestPayloadTotal holds the bound on all text of a payload together, which no
// single member shows.
func TestPayloadTotal(t *testing.T) {
	million := strings.Repeat("m", 1_000_000)
	chat := func(texts ...string) ai.Chat {
		c := ai.Chat{}
		for _, text := range texts {
			c.Messages = append(c.Messages, ai.ChatMessage{Role: "user", Content: text})
		}
		return c
	}
	withSystem := chat(million, million, million, "")
	withSystem.System = million
	over := withSystem
	over.Messages = chat(million, million, million, "x").Messages
	astral := strings.Repeat("\U0001D11E", 500_000) // a million units
	if raceEnabled {
		t.Skip("texts of many megabytes are slow under the race detector")
	}
	cases := map[string]struct {
		chat  ai.Chat
		taken bool
	}{
		"four million":               {chat(million, million, million, million), true},
		"one more":                   {chat(million, million, million, million, "x"), false},
		"with the system text":       {withSystem, true},
		"one more with the system":   {over, false},
		"four million in astral":     {chat(astral, astral, astral, astral), true},
		"one more in astral":         {chat(astral, astral, astral, astral, "x"), false},
		"roles are not counted":      {chat(append([]string{million, million, million, million}, make([]string, 252)...)...), true},
		"257 messages, even if tiny": {chat(make([]string, 257)...), false},
	}
	for _, e := range editions {
		for what, c := range cases {
			body, err := e.codec.Chat.Write(c.chat)
			if (err == nil) != c.taken {
				t.Errorf("%s: Write says %v", what, err)
			}
			raw := e.plain("Chat", c.chat)
			got, err := e.codec.Chat.Read([]byte(raw))
			if (err == nil) != c.taken {
				t.Errorf("%s: Read says %v", what, err)
			}
			if err == nil && (!reflect.DeepEqual(got, c.chat) || string(body) != raw) {
				t.Errorf("%s: it comes back as another", what)
			}
		}
	}
	// One prompt and one system text cannot reach the bound.
	if 2*ai.MaxTextUnits > ai.MaxPayloadUnits {
		t.Error("a generate payload needs a test of its own here")
	}
}

// TestPayloadsByKind holds that the kind decides how a payload is read and that
// a payload decides its kind.
func TestPayloadsByKind(t *testing.T) {
	for _, e := range editions {
		t.Run(e.version, func(t *testing.T) { testPayloadsByKind(t, e.codec) })
	}
}

func testPayloadsByKind(t *testing.T, c ai.Codec) {
	generate, chat := ai.Generate{Prompt: "p"}, ai.Chat{Messages: []ai.ChatMessage{{Role: "user", Content: "c"}}}
	for _, p := range []ai.Payload{generate, chat} {
		text, err := c.WritePayload(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range append(ai.Kinds(), "", "llm.Chat", canary) {
			got, err := c.ReadPayload(kind, text)
			if kind == p.Kind() {
				if err != nil || !reflect.DeepEqual(got, p) {
					t.Errorf("%s: %v, %v", kind, got, err)
				}
				continue
			}
			if got != nil || err == nil || !isBadRequest(err) || strings.Contains(err.Error(), canary) {
				t.Errorf("a payload of kind %s is read as %q: %v, %v", p.Kind(), kind, got, err)
			}
		}
	}
	for what, p := range map[string]ai.Payload{
		"nothing": nil, "a pointer": &generate, "a nil pointer": (*ai.Chat)(nil), "no prompt": ai.Generate{}, "no messages": ai.Chat{},
	} {
		if text, err := c.WritePayload(p); text != nil || err == nil || !isBadRequest(err) {
			t.Errorf("%s: %q, %v", what, text, err)
		}
	}
}
