package shapes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// The contract, written down a second time: every member of every message with
// its type and bounds. The tests derive from it what must be taken and what
// must be refused, so that a bound that slips in the code shows here.

type rule any

type (
	object struct {
		members map[string]member
		drops   bool // unknown members are dropped
	}
	member struct {
		rule     rule
		optional bool
	}
	// choice is an object whose other members depend on one of them.
	choice struct {
		tag      string
		variants map[string]object
	}
	text  struct{ min, max int } // max 0: none of its own
	words []string
	// tag is words on which other members depend.
	tag   []string
	webs  struct{} // the text of an http or https URL
	whole struct{ min, max int64 }
	flag  struct{}
	yes   struct{} // true or absent
	list  struct {
		min, max int
		of       rule
	}
	dictionary struct{ of rule }
)

func strict(members map[string]member) object { return object{members: members} }

func need(r rule) member { return member{rule: r} }

func may(r rule) member { return member{rule: r, optional: true} }

func with(base object, more map[string]member) object {
	members := maps.Clone(base.members)
	maps.Copy(members, more)
	return object{members, base.drops}
}

var (
	some     = text{1, 0}
	anything = text{0, 0}
	instant  = whole{1, maxWhole}

	identity = strict(map[string]member{"identity": need(some), "encryption": need(some), "encryptionSig": need(some)})
	aGrant   = map[string]member{"jobId": need(some), "leaseId": need(some)}

	anEnvelope = strict(map[string]member{
		"ciphertext": need(some), "recipientKeyId": need(some), "senderKeyId": need(some),
		"direction": need(words{"payload", "result"}), "deadlineAt": need(instant),
	})
	aSignedGrant = strict(map[string]member{
		"grantId": need(some), "jobId": need(some), "site": need(some), "user": need(some), "owner": need(some), "purpose": need(some),
		"kind": need(some), "service": need(some), "issuedAt": need(instant), "signature": need(some),
	})
	aSuccession = strict(map[string]member{
		"succeeds":      need(list{0, 64, strict(map[string]member{"identity": need(identity), "signature": need(some)})}),
		"retiringUntil": may(instant),
	})
	aGenerate = strict(map[string]member{"prompt": need(text{1, 1_000_000}), "system": may(text{0, 1_000_000})})
	anOutcome = choice{"outcome", map[string]object{
		"ok":       strict(map[string]member{"text": need(anything), "artifactUrl": may(webs{})}),
		"error":    strict(map[string]member{"code": need(some), "message": need(some), "retryable": need(flag{})}),
		"canceled": strict(map[string]member{}),
	}}
	plainError = strict(map[string]member{"message": need(some), "retryAfter": may(whole{0, maxWhole})})
)

// rules are the contract in that version, by message.
func (e *edition) rules() map[string]rule {
	// lenient objects drop what they do not know, in version "0" only.
	lenient := func(members map[string]member) object { return object{members, !e.later} }
	// added are members that came with version "2".
	added := func(o object, members map[string]member) object {
		if !e.later {
			return o
		}
		return with(o, members)
	}
	version := need(words{e.version})
	audiences := need(words(slices.Sorted(maps.Values(e.words))))
	classes := need(words{"http", "process"})
	backends := words{
		"ollama", "mlx", "llamacpp", "vllm", "lmstudio", "jan", "localai", "anthropic", "openai", "gemini", "grok", "groq",
		"openrouter", "together", "deepseek", "mistral", "openai-http", "claude-cli",
	}
	if e.later {
		backends = append(backends, "codex-cli")
	}
	stop := map[string]member{"stop": may(words{"end", "length", "stop-sequence", "unknown"}), "stopReported": may(flag{})}

	lease := lenient(map[string]member{"id": need(some), "runnerId": need(some), "expiresAt": need(instant)})
	stub := added(strict(map[string]member{
		"id": need(some), "kind": need(words{"llm.generate", "llm.chat"}), "owner": need(some), "site": need(some),
		"audience": audiences, "sizeClass": need(words{"small", "medium", "large", "unbounded"}),
		"streaming": need(flag{}), "deadlineAt": need(instant),
	}), map[string]member{"purpose": may(some)})
	offers := need(list{0, 0, added(strict(map[string]member{
		"kind": need(words{"llm.generate", "llm.chat"}), "backendId": need(backends), "backendClass": classes,
		"model": need(some), "offerScope": audiences,
	}), map[string]member{"service": need(some), "knownModels": may(list{0, 0, some})})})
	withheld := list{0, 0, strict(map[string]member{
		"kind":      need(words{"llm.generate", "llm.chat"}),
		"claimants": need(list{2, 0, strict(map[string]member{"service": need(some), "offer": audiences})}),
	})}
	chat := strict(map[string]member{
		"messages": need(list{1, 256, lenient(map[string]member{
			"role": need(words{"user", "assistant", "system"}), "content": need(text{0, 1_000_000}),
		})}),
		"system": may(text{0, 1_000_000}),
	})
	job := added(strict(map[string]member{
		"id": need(some), "audience": audiences, "owner": need(some), "site": may(some), "lease": need(lease),
	}), map[string]member{"service": may(some), "deadlineAt": may(instant)})
	runs := added(strict(map[string]member{"model": need(some), "backendClass": classes, "durationMs": need(whole{0, maxWhole})}), stop)
	provenance := added(strict(map[string]member{
		"audience": audiences, "runnerId": need(some), "runnerOwner": need(some), "backendClass": classes, "model": need(some),
		"untrusted": need(flag{}),
	}), stop)
	heartbeat := strict(map[string]member{
		"protocolVersion": version, "runnerId": need(some), "daemonVersion": need(some), "capabilities": offers,
		"activeLeases": need(list{0, 0, lenient(aGrant)}),
	})
	if e.later {
		heartbeat = with(heartbeat, map[string]member{"withheld": may(withheld)})
	} else {
		heartbeat = with(heartbeat, map[string]member{"paused": need(flag{})})
	}
	errors := map[string]object{
		"unsupported-protocol-version": with(plainError, map[string]member{"supported": may(list{0, 0, some}), "minimum": may(some)}),
		"clock-skew":                   with(plainError, map[string]member{"serverTime": may(instant), "maxSkewMs": may(instant)}),
	}
	for _, code := range []string{
		"bad-request", "unauthorized", "forbidden", "revoked", "not-found", "not-ready", "too-late", "rate-limited", "server-error",
	} {
		errors[code] = plainError
	}
	if e.later {
		errors["daemon-below-floor"] = with(plainError, map[string]member{"floor": need(some)})
	}

	return map[string]rule{
		"PairRequest": choice{"action", map[string]object{
			"start": strict(map[string]member{
				"protocolVersion": version, "device": need(identity), "capabilities": offers,
				"daemon": need(lenient(map[string]member{
					"version": need(some), "label": need(text{1, 120}), "platform": need(words{"darwin", "linux", "win32"}),
				})),
			}),
			"poll": strict(map[string]member{"protocolVersion": version, "deviceCode": need(text{20, 0})}),
		}},
		"PairStartResponse": strict(map[string]member{
			"deviceCode": need(text{20, 0}), "userCode": need(text{4, 16}), "verificationUrl": need(webs{}),
			"expiresAt": need(instant), "pollIntervalMs": need(whole{500, 60_000}),
		}),
		"PairPollResponse": choice{"status", map[string]object{
			"pending": strict(map[string]member{}), "denied": strict(map[string]member{}), "expired": strict(map[string]member{}),
			"approved": added(strict(map[string]member{
				"runnerId": need(some), "owner": need(some), "ownerLabel": may(anything), "sites": need(dictionary{identity}),
			}), map[string]member{"controlPlanePublic": may(some)}),
		}},
		"ClaimRequest": strict(map[string]member{
			"protocolVersion": version, "runnerId": need(some), "capabilities": offers, "max": need(whole{1, 64}),
		}),
		"ClaimResponse": strict(map[string]member{
			"jobs":    need(list{0, 0, added(with(stub, map[string]member{"lease": need(lease)}), map[string]member{"grant": may(aSignedGrant)})}),
			"leaseMs": need(instant),
		}),
		"FetchRequest":     with(strict(aGrant), map[string]member{"protocolVersion": version, "runnerId": need(some)}),
		"FetchResponse":    strict(map[string]member{"envelope": need(anEnvelope)}),
		"HeartbeatRequest": heartbeat,
		"HeartbeatResponse": added(strict(map[string]member{
			"sites": need(dictionary{identity}), "cancel": need(list{0, 0, strict(aGrant)}), "lost": need(list{0, 0, strict(aGrant)}),
			"serverTime": need(instant), "awaitingConsent": need(list{0, 0, some}),
		}), map[string]member{"successions": may(dictionary{aSuccession}), "updateTo": may(some)}),
		"ResultRequest": with(strict(aGrant), map[string]member{
			"protocolVersion": version, "runnerId": need(some), "envelope": need(anEnvelope),
			"disposition": need(words{"ok", "error", "canceled"}),
		}),
		"ResultResponse": strict(map[string]member{"accepted": need(flag{}), "duplicate": may(flag{}), "state": need(some)}),
		"ReleaseRequest": strict(map[string]member{
			"protocolVersion": version, "runnerId": need(some), "leases": need(list{0, 0, lenient(aGrant)}),
			"reason": need(words{"shutdown", "pause", "revoked", "backend-down", "refused"}),
		}),
		"ReleaseResponse": strict(map[string]member{"released": need(list{0, 0, some})}),
		"Error":           choice{"error", errors},
		"Generate":        aGenerate,
		"Chat":            chat,
		"Outcome":         strict(map[string]member{"outcome": need(anOutcome), "ran": need(runs)}),
		"Stub":            stub,
		"Kinded": choice{"kind", map[string]object{
			"llm.generate": lenient(map[string]member{"payload": need(aGenerate)}),
			"llm.chat":     lenient(map[string]member{"payload": need(chat)}),
		}},
		"Job": choice{"kind", map[string]object{
			"llm.generate": with(job, map[string]member{"payload": need(aGenerate)}),
			"llm.chat":     with(job, map[string]member{"payload": need(chat)}),
		}},
		"Result": added(strict(map[string]member{
			"jobId": need(some), "state": need(words{"queued", "claimed", "running", "ok", "error", "canceled", "expired"}),
			"outcome": may(anOutcome), "provenance": may(provenance),
		}), map[string]member{"fallback": may(yes{})}),
	}
}

// atLeastOne are the optional members of which one must be there. Removing the
// last of them is refused.
var atLeastOne = [][2]string{{"supported", "minimum"}, {"serverTime", "maxSkewMs"}}

// An edit is one change of a valid message.
type edit struct {
	what  string
	at    string // where, as a path
	apply func() // changes the tree in place
	undo  func()
	taken bool // the message is still valid
	same  bool // and reads as the same value
	long  bool // the text is very long
}

// canary is a text that no message and no error text may have by chance.
const canary = "canarybird"

// edits lists the changes of the tree, which is a valid message, by its rule.
func edits(tree map[string]any, r rule) []edit {
	var found []edit
	add := func(e edit) { found = append(found, e) }
	// value lists the changes of one value; set puts another into its place.
	var value func(at string, v any, set func(any), r rule)
	value = func(at string, v any, set func(any), r rule) {
		put := func(what string, other any, taken bool) {
			add(edit{what: what, at: at, taken: taken, apply: func() { set(other) }, undo: func() { set(v) }})
		}
		switch v := v.(type) { // a value of each other JSON type
		case string:
			put("a number", 8675309.25, false)
			put("a flag", true, false)
		case bool:
			put("a text", canary, false)
			put("a number", json.Number("1"), false)
		case json.Number:
			put("a text", canary, false)
			put("the number as a text", v.String(), false)
		case []any:
			put("an object", map[string]any{canary: canary}, false)
			put("a text", canary, false)
		case map[string]any:
			put("a text", canary, false)
			put("a number", json.Number("8675309.25"), false)
		}
		put("null", nil, false)
		if _, ok := v.([]any); !ok {
			put("a list", []any{canary}, false)
		}
		if _, ok := v.(map[string]any); !ok {
			put("an object", map[string]any{canary: canary}, false)
		}
		switch r := r.(type) {
		case text:
			for _, c := range []string{"a", "\U0001D11E", "\u0001"} { // of one, two and one units
				per := 1 + len(c)/4
				if r.min > 0 {
					put("too short", strings.Repeat(c, (r.min-1)/per), false)
				}
				put("shortest", strings.Repeat(c, (r.min+per-1)/per), true)
				if r.max > 0 {
					put("longest", strings.Repeat(c, r.max/per), true)
					put("too long", strings.Repeat(c, r.max/per+1), false)
					for i := range 2 {
						found[len(found)-1-i].long = r.max > 1000
					}
				}
			}
		case words:
			for _, w := range r {
				put("the word "+w, w, true)
			}
			foreignWords(v.(string), r, put)
		case tag:
			foreignWords(v.(string), r, put)
		case webs:
			for _, u := range []string{"http://a.example", "https://[::1]:8080/x", "https:a.example", "hTTps://a.example/%zz"} {
				put("the URL "+u, u, true)
			}
			for _, u := range []string{
				"", " ", "a", "//a/x", "javascript:alert(1)", "file:///etc/passwd", "ftp://a.example/", "https://", "https://a b/",
				"http://a.example:99999/", "localhost:3000", "data:text/html,x",
			} {
				put("the URL "+u, u, false)
			}
			put("no URL", canary, false)
			for _, around := range []string{" ", "\t\n", "\u00a0", "\ufeff", "\u2028"} {
				put("white space around", around+"https://a.example/x"+around, true)
			}
		case whole:
			for _, n := range []int64{r.min, r.min + 1, r.max - 1, r.max} {
				put(fmt.Sprint(n), json.Number(fmt.Sprint(n)), true)
			}
			for _, n := range []string{
				fmt.Sprint(r.min - 1), fmt.Sprint(r.max + 1), fmt.Sprint(-r.min - 1), fmt.Sprint(r.min) + ".5", "1e400", "-1e400",
				fmt.Sprint(uint64(math.MaxUint64)),
			} {
				put(n, json.Number(n), false)
			}
			put("with a fraction of zero", json.Number(fmt.Sprint(r.min)+".0"), true)
			put("with an exponent", json.Number(fmt.Sprint(r.min)+"e0"), true)
			put("below zero by its sign alone", json.Number("-0"), r.min == 0)
		case flag:
			put("true", true, true)
			put("false", false, true)
		case yes:
			put("true", true, true)
			put("false", false, false)
		case list:
			items := v.([]any)
			if len(items) > 0 {
				if r.min > 0 {
					put("too few", slices.Repeat(items[:1], r.min-1), false)
				}
				if r.max > 0 {
					put("most", slices.Repeat(items[:1], r.max), true)
					put("too many", slices.Repeat(items[:1], r.max+1), false)
				}
				put("twice the same", []any{items[0], items[0]}, true)
				put("null in the list", []any{items[0], nil}, false)
			}
			if r.min == 0 {
				put("empty", []any{}, true)
			}
			for i := range items {
				value(fmt.Sprintf("%s[%d]", at, i), items[i], func(v any) { items[i] = v }, r.of)
			}
		case dictionary:
			names := v.(map[string]any)
			put("empty", map[string]any{}, true)
			for name, v := range names {
				value(at+"{}", v, func(v any) { names[name] = v }, r.of)
				for _, other := range []string{"", "__proto__"} {
					put("the name "+other, map[string]any{other: v}, false)
				}
				put("another name", map[string]any{canary: v, canary + "2": v}, true)
				put("a name with nothing of its own", map[string]any{canary: map[string]any{}}, false)
				break // one is like the next
			}
		case object, choice:
			o := asObject(v.(map[string]any), r)
			members := v.(map[string]any)
			for name, m := range o.members {
				before, there := members[name]
				if !there {
					continue
				}
				taken := m.optional
				for _, pair := range atLeastOne {
					if i := slices.Index(pair[:], name); i >= 0 && members[pair[1-i]] == nil {
						taken = false
					}
				}
				restore := func() { members[name] = before }
				add(edit{what: "without", at: at + "." + name, taken: taken, apply: func() { delete(members, name) }, undo: restore})
				for _, other := range []string{strings.ToUpper(name), name + " ", strings.ToUpper(name[:1]) + name[1:]} {
					add(edit{
						what: "spelled " + other, at: at + "." + name, taken: o.drops && m.optional,
						apply: func() { delete(members, name); members[other] = before },
						undo:  func() { delete(members, other); restore() },
					})
				}
				value(at+"."+name, before, func(v any) { members[name] = v }, m.rule)
			}
			for what, v := range map[string]any{
				"text": canary, "null": nil, "object": map[string]any{canary: canary, "id": []any{canary}}, "number": json.Number("8675309.25"),
			} {
				add(edit{
					what: "an unknown member with a " + what, at: at, taken: o.drops, same: o.drops,
					apply: func() { members[canary] = v }, undo: func() { delete(members, canary) },
				})
			}
			for _, name := range []string{"__proto__", "", "Id"} {
				add(edit{
					what: "the unknown member " + name, at: at, taken: o.drops, same: o.drops,
					apply: func() { members[name] = canary }, undo: func() { delete(members, name) },
				})
			}
		}
	}
	value("", tree, func(any) {}, r)
	// The tree itself cannot be put into another place.
	return slices.DeleteFunc(found, func(e edit) bool { return e.at == "" && !strings.Contains(e.what, "unknown member") })
}

func foreignWords(now string, known []string, put func(string, any, bool)) {
	put("a foreign word", canary, false)
	for _, w := range []string{"", strings.ToUpper(now), " " + now, now + "\n", now + "s"} {
		if !slices.Contains(known, w) {
			put("the word "+w, w, false)
		}
	}
}

// asObject is the rule of an object, with its variant chosen.
func asObject(members map[string]any, r rule) object {
	c, ok := r.(choice)
	if !ok {
		return r.(object)
	}
	chosen, _ := members[c.tag].(string)
	variant, ok := c.variants[chosen]
	if !ok {
		panic("the rules know no " + c.tag + " " + chosen)
	}
	return with(variant, map[string]member{c.tag: need(tag(slices.Sorted(maps.Keys(c.variants))))})
}

// treeOf parses a message and keeps its numbers as they are written.
func treeOf(t testing.TB, body []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.UseNumber()
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil {
		t.Fatalf("what was written is no JSON object: %v", err)
	}
	return tree
}

func bodyOf(t testing.TB, tree any) []byte {
	t.Helper()
	body, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// places lists where in a message something stands, as paths.
func places(tree map[string]any, r rule) (found []string, unknown string) {
	var walk func(at string, v any, r rule)
	walk = func(at string, v any, r rule) {
		switch r := r.(type) {
		case object, choice:
			members := v.(map[string]any)
			o := asObject(members, r)
			if c, ok := r.(choice); ok {
				at += "(" + members[c.tag].(string) + ")"
				found = append(found, at)
			}
			for name, v := range members {
				m, ok := o.members[name]
				if !ok {
					unknown = at + "." + name
					continue
				}
				found = append(found, at+"."+name)
				walk(at+"."+name, v, m.rule)
			}
		case list:
			for _, item := range v.([]any) {
				walk(at+"[]", item, r.of)
			}
		case dictionary:
			for _, item := range v.(map[string]any) {
				walk(at+"{}", item, r.of)
			}
		}
	}
	walk("", tree, r)
	return found, unknown
}

// examples are the first valid values that together have every optional member
// and every variant, the same in every run.
func (s subject) examples(t testing.TB) (values []any) {
	t.Helper()
	if values, ok := s.e.examples[s.name]; ok {
		return values
	}
	defer func() { s.e.examples[s.name] = values }()
	seen := map[string]bool{}
	for seed := range 200 {
		v := s.valid.Example(seed + 1)
		body, err := s.write(v)
		if err != nil {
			t.Fatalf("a valid value is not written: %v", err)
		}
		found, unknown := places(treeOf(t, body), s.rule())
		if unknown != "" {
			t.Fatalf("%s is written, and the rules do not know it", unknown)
		}
		before := len(seen)
		for _, place := range found {
			seen[place] = true
		}
		if len(seen) > before {
			values = append(values, v)
		}
	}
	return values
}

// TestRulesMatchTheMessages holds that the rules name every member that is
// written, and that the examples have every member that the rules name. Without
// it a rule could be there and never be tried.
func TestRulesMatchTheMessages(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		seen := map[string]bool{}
		for _, v := range s.examples(t) {
			body, err := s.write(v)
			if err != nil {
				t.Fatal(err)
			}
			found, _ := places(treeOf(t, body), s.rule())
			for _, place := range found {
				seen[place] = true
			}
		}
		var expect func(at string, r rule)
		expect = func(at string, r rule) {
			switch r := r.(type) {
			case object:
				for name, m := range r.members {
					if !seen[at+"."+name] {
						t.Errorf("no example has %s.%s", at, name)
					}
					expect(at+"."+name, m.rule)
				}
			case choice:
				for variant, o := range r.variants {
					if !seen[at+"("+variant+")"] {
						t.Errorf("no example has %s(%s)", at, variant)
					}
					expect(at+"("+variant+")", o)
				}
			case list:
				expect(at+"[]", r.of)
			case dictionary:
				expect(at+"{}", r.of)
			}
		}
		expect("", s.rule())
	})
}
