package settings_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

// file is a configuration file with the agent's section.
type file struct{ agent *settings.Section }

var fileShape = exact.Shape[file]{Fields: func(o *exact.Object, f *file) { exact.OptSub(o, "agent", &f.agent, settings.Shape) }}

var limits = exact.Limits{Bytes: 1 << 20, Depth: 8, Values: 4096}

// section reads a section out of a file.
func section(t testing.TB, text string) settings.Section {
	t.Helper()
	f, err := fileShape.Read([]byte(`{"agent":`+text+`}`), limits)
	if err != nil || f.agent == nil {
		t.Fatalf("%s: %v", text, err)
	}
	return *f.agent
}

func settingsOf(t testing.TB, text string) settings.Settings {
	t.Helper()
	s, err := section(t, text).Settings()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

var defaults = settings.Settings{
	Routes: map[ai.Kind]settings.Route{}, Concurrency: 2, MaxTime: 10 * time.Minute, MaxOutput: 4 << 20, KeepPrompts: true, CommunityPromptDays: 7,
	Community: settings.Community{JobsPerHour: 20, JobsPerDay: 100, MaxTime: 2 * time.Minute, MaxOutput: 262144, MaxPayload: 100000},
}

func TestDefaults(t *testing.T) {
	if got := settings.Defaults(); !reflect.DeepEqual(got, defaults) {
		t.Errorf("%+v", got)
	}
	// Every member has a default, also inside of those that are there.
	for _, text := range []string{`{}`, `{"routes":{}}`, `{"limits":{}}`, `{"ingress":{}}`, `{"routes":{},"limits":{},"ingress":{}}`} {
		if got := settingsOf(t, text); !reflect.DeepEqual(got, defaults) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestGood has every member, and both ends of each bound.
func TestGood(t *testing.T) {
	long := strings.Repeat("n", 128)
	for text, change := range map[string]func(s *settings.Settings){
		// No backends is a wish, and not the same as none said.
		`{"backends":{}}`: func(s *settings.Settings) { s.Backends = map[string]settings.Backend{} },
		`{"backends":{"mine":{"backend":"ollama"}}}`: func(s *settings.Settings) {
			s.Backends = map[string]settings.Backend{"mine": {ID: "ollama"}}
		},
		`{"backends":{"a":{"backend":"openai-http","baseUrl":"http://gpu.lan:8080/v1","apiKeyEnv":"_Key_2","offer":"self"},"` + long + `":{"backend":"openai","apiKeyEnv":"K"}}}`: func(s *settings.Settings) {
			s.Backends = map[string]settings.Backend{"a": {ID: "openai-http", BaseURL: "http://gpu.lan:8080/v1", KeyEnv: "_Key_2"}, long: {ID: "openai", KeyEnv: "K"}}
		},
		`{"backends":{"a":{"backend":"mlx"}},"routes":{"llm.chat":{"backend":"a","model":"m"}}}`: func(s *settings.Settings) {
			s.Backends = map[string]settings.Backend{"a": {ID: "mlx"}}
			s.Routes[ai.KindChat] = settings.Route{Backend: "a", Model: "m"}
		},
		`{"backends":{"a":{"backend":"mlx"}},"routes":{"llm.generate":{"backend":"a","model":"` + strings.Repeat("m", 256) + `"},"llm.chat":{"backend":"a","model":"c"}}}`: func(s *settings.Settings) {
			s.Backends = map[string]settings.Backend{"a": {ID: "mlx"}}
			s.Routes[ai.KindGenerate] = settings.Route{Backend: "a", Model: strings.Repeat("m", 256)}
			s.Routes[ai.KindChat] = settings.Route{Backend: "a", Model: "c"}
		},
		`{"backends":{"a":{"backend":"ollama","offer":"public"},"b":{"backend":"openai","offer":"named","spend":{"acknowledged":true,"dailyCapCents":1,"centsPerMillionTokens":100000000}}}}`: func(s *settings.Settings) {
			s.Backends = map[string]settings.Backend{
				"a": {ID: "ollama", Terms: sharing.Terms{Scope: ai.OfferPublic}},
				"b": {ID: "openai", Terms: sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 1, Price: 100000000}},
			}
		},
		`{"community":{}}`: func(*settings.Settings) {},
		`{"community":{"maxJobsPerHour":1,"maxJobsPerDay":2,"maxWallClockMs":3,"maxOutputBytes":4,"maxPayloadChars":5}}`: func(s *settings.Settings) {
			s.Community = settings.Community{JobsPerHour: 1, JobsPerDay: 2, MaxTime: 3 * time.Millisecond, MaxOutput: 4, MaxPayload: 5}
		},
		`{"community":{"maxPayloadChars":4000000}}`:     func(s *settings.Settings) { s.Community.MaxPayload = 4000000 },
		`{"concurrency":1}`:                             func(s *settings.Settings) { s.Concurrency = 1 },
		`{"concurrency":32}`:                            func(s *settings.Settings) { s.Concurrency = 32 },
		`{"limits":{"maxWallClockMs":1}}`:               func(s *settings.Settings) { s.MaxTime = time.Millisecond },
		`{"limits":{"maxWallClockMs":86400000}}`:        func(s *settings.Settings) { s.MaxTime = 24 * time.Hour },
		`{"limits":{"maxOutputBytes":1}}`:               func(s *settings.Settings) { s.MaxOutput = 1 },
		`{"limits":{"maxOutputBytes":16777216}}`:        func(s *settings.Settings) { s.MaxOutput = 16 << 20 },
		`{"ingress":{"keepSelfPrompts":false}}`:         func(s *settings.Settings) { s.KeepPrompts = false },
		`{"ingress":{"keepSelfPrompts":true}}`:          func(*settings.Settings) {},
		`{"ingress":{"communityPromptDays":1}}`:         func(s *settings.Settings) { s.CommunityPromptDays = 1 },
		`{"ingress":{"communityPromptDays":3650}}`:      func(s *settings.Settings) { s.CommunityPromptDays = 3650 },
		`{"limits":{"maxWallClockMs":1e3},"routes":{}}`: func(s *settings.Settings) { s.MaxTime = time.Second },
	} {
		want := settings.Defaults()
		change(&want)
		if got := settingsOf(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%.100s: %+v\nwant %+v", text, got, want)
		}
	}
}

// backends is a section with that many backends.
func backends(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"b%d":{"backend":"ollama"}`, i))
	}
	return `{"backends":{` + strings.Join(list, ",") + `}}`
}

// TestEveryBackend of the table is taken. A program has no address and no key.
func TestEveryBackend(t *testing.T) {
	for _, id := range backend.IDs() {
		read := func(more string) error {
			_, err := fileShape.Read([]byte(`{"agent":{"backends":{"a":{"backend":"`+string(id)+`"`+more+`}}}}`), limits)
			return err
		}
		if err := read(""); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		row, _ := backend.Find(id)
		for _, more := range []string{`,"baseUrl":"http://127.0.0.1/v1"`, `,"apiKeyEnv":"K"`} {
			if err := read(more); (row.Class == backend.Process) != errors.Is(err, settings.ErrProgram) || row.Class == backend.HTTP && err != nil {
				t.Errorf("%s%s: %v", id, more, err)
			}
		}
	}
	if got := len(settingsOf(t, backends(settings.MaxBackends)).Backends); got != 64 {
		t.Errorf("%d backends are taken", got)
	}
}

// TestRefused: what is wrong is named with its rule and its place, and nothing
// of the section is used.
func TestRefused(t *testing.T) {
	one := func(members string) string { return `{"backends":{"a":{"backend":"ollama",` + members + `}}}` }
	metered := func(members string) string { return `{"backends":{"a":{"backend":"openai",` + members + `}}}` }
	remote := func(members string) string {
		return `{"backends":{"a":{"backend":"openai-http","baseUrl":"https://gpu.example/v1",` + members + `}}}`
	}
	type fault struct {
		rule *refusal.Kind
		path string
	}
	for text, want := range map[string]fault{
		`null`:                 {exact.ErrType, "agent"},
		`[]`:                   {exact.ErrType, "agent"},
		`{"backend":{}}`:       {exact.ErrUnknown, "agent"},
		`{"Concurrency":1}`:    {exact.ErrUnknown, "agent"},
		`{"spend":{}}`:         {exact.ErrUnknown, "agent"},
		`{"concurrency":0}`:    {exact.ErrRange, "agent.concurrency"},
		`{"concurrency":33}`:   {exact.ErrRange, "agent.concurrency"},
		`{"concurrency":-1}`:   {exact.ErrRange, "agent.concurrency"},
		`{"concurrency":1.5}`:  {exact.ErrRange, "agent.concurrency"},
		`{"concurrency":"2"}`:  {exact.ErrType, "agent.concurrency"},
		`{"concurrency":null}`: {exact.ErrType, "agent.concurrency"},

		`{"limits":null}`:                        {exact.ErrType, "agent.limits"},
		`{"limits":{"maxJobs":1}}`:               {exact.ErrUnknown, "agent.limits"},
		`{"limits":{"maxWallClockMs":0}}`:        {exact.ErrRange, "agent.limits.maxWallClockMs"},
		`{"limits":{"maxWallClockMs":86400001}}`: {exact.ErrRange, "agent.limits.maxWallClockMs"},
		`{"limits":{"maxWallClockMs":"10m"}}`:    {exact.ErrType, "agent.limits.maxWallClockMs"},
		`{"limits":{"maxOutputBytes":0}}`:        {exact.ErrRange, "agent.limits.maxOutputBytes"},
		`{"limits":{"maxOutputBytes":16777217}}`: {exact.ErrRange, "agent.limits.maxOutputBytes"},
		`{"limits":{"maxOutputBytes":1e300}}`:    {exact.ErrRange, "agent.limits.maxOutputBytes"},

		`{"ingress":true}`:                         {exact.ErrType, "agent.ingress"},
		`{"ingress":{"keepSelfPrompts":"no"}}`:     {exact.ErrType, "agent.ingress.keepSelfPrompts"},
		`{"ingress":{"keepSelfPrompts":null}}`:     {exact.ErrType, "agent.ingress.keepSelfPrompts"},
		`{"ingress":{"communityPromptDays":0}}`:    {exact.ErrRange, "agent.ingress.communityPromptDays"},
		`{"ingress":{"communityPromptDays":3651}}`: {exact.ErrRange, "agent.ingress.communityPromptDays"},
		`{"ingress":{"communityPromptDays":"7"}}`:  {exact.ErrType, "agent.ingress.communityPromptDays"},

		`{"backends":[]}`:                                                     {exact.ErrType, "agent.backends"},
		`{"backends":null}`:                                                   {exact.ErrType, "agent.backends"},
		`{"backends":{"a":{}}}`:                                               {exact.ErrMissing, "agent.backends[0].backend"},
		`{"backends":{"a":"ollama"}}`:                                         {exact.ErrType, "agent.backends[0]"},
		`{"backends":{"a":{"backend":"mlx"},"b":{}}}`:                         {exact.ErrMissing, "agent.backends[1].backend"},
		`{"backends":{"a":{"backend":"Ollama"}}}`:                             {exact.ErrMember, "agent.backends[0].backend"},
		`{"backends":{"":{"backend":"mlx"}}}`:                                 {exact.ErrRange, "agent.backends[0]"},
		`{"backends":{"__proto__":{"backend":"mlx"}}}`:                        {exact.ErrRange, "agent.backends[0]"},
		`{"backends":{"` + strings.Repeat("n", 129) + `":{"backend":"mlx"}}}`: {exact.ErrRange, "agent"},
		backends(65):                    {exact.ErrRange, "agent"},
		one(`"url":"http://localhost"`): {exact.ErrUnknown, "agent.backends[0]"},
		one(`"baseUrl":""`):             {exact.ErrRange, "agent.backends[0].baseUrl"},
		one(`"baseUrl":"` + strings.Repeat("u", 2049) + `"`):  {exact.ErrRange, "agent.backends[0].baseUrl"},
		one(`"baseUrl":null`):                                 {exact.ErrType, "agent.backends[0].baseUrl"},
		one(`"apiKeyEnv":""`):                                 {exact.ErrRange, "agent.backends[0].apiKeyEnv"},
		one(`"apiKeyEnv":"` + strings.Repeat("K", 129) + `"`): {exact.ErrRange, "agent.backends[0].apiKeyEnv"},
		one(`"apiKeyEnv":"sk-canarybird"`):                    {settings.ErrKeyEnv, "agent.backends[0]"},
		one(`"apiKeyEnv":"1KEY"`):                             {settings.ErrKeyEnv, "agent.backends[0]"},
		one(`"apiKeyEnv":"$KEY"`):                             {settings.ErrKeyEnv, "agent.backends[0]"},
		one(`"apiKeyEnv":"KEY "`):                             {settings.ErrKeyEnv, "agent.backends[0]"},
		one(`"apiKeyEnv":"KÉY"`):                              {settings.ErrKeyEnv, "agent.backends[0]"},
		one(`"apiKeyEnv":"A=B"`):                              {settings.ErrKeyEnv, "agent.backends[0]"},
		one(`"apiKeyEnv":"A\u0000"`):                          {settings.ErrKeyEnv, "agent.backends[0]"},

		// What its cost forbids is not taken for in force.
		one(`"offer":"everyone"`):                                 {exact.ErrMember, "agent.backends[0].offer"},
		one(`"offer":""`):                                         {exact.ErrMember, "agent.backends[0].offer"},
		one(`"offer":"private"`):                                  {exact.ErrMember, "agent.backends[0].offer"},
		one(`"spend":0`):                                          {exact.ErrType, "agent.backends[0].spend"},
		one(`"spend":{"cap":1}`):                                  {exact.ErrUnknown, "agent.backends[0].spend"},
		one(`"spend":{"acknowledged":1}`):                         {exact.ErrType, "agent.backends[0].spend.acknowledged"},
		one(`"spend":{"dailyCapCents":0}`):                        {exact.ErrRange, "agent.backends[0].spend.dailyCapCents"},
		one(`"spend":{"dailyCapCents":1.5}`):                      {exact.ErrRange, "agent.backends[0].spend.dailyCapCents"},
		one(`"spend":{"dailyCapCents":100000001}`):                {exact.ErrRange, "agent.backends[0].spend.dailyCapCents"},
		one(`"spend":{"centsPerMillionTokens":0}`):                {exact.ErrRange, "agent.backends[0].spend.centsPerMillionTokens"},
		one(`"spend":{"centsPerMillionTokens":100000001}`):        {exact.ErrRange, "agent.backends[0].spend.centsPerMillionTokens"},
		one(`"cost":"free"`):                                      {exact.ErrUnknown, "agent.backends[0]"}, // MUST COST_NOT_CONFIGURABLE
		metered(`"offer":"named"`):                                {match.ErrNoConsent, "agent.backends[0]"},
		metered(`"offer":"named","spend":{"dailyCapCents":5}`):    {match.ErrNoConsent, "agent.backends[0]"},
		metered(`"offer":"named","spend":{"acknowledged":true}`):  {sharing.ErrNoCeiling, "agent.backends[0]"},
		metered(`"offer":"public","spend":{"acknowledged":true}`): {sharing.ErrNoCeiling, "agent.backends[0]"},
		remote(`"offer":"public"`):                                {match.ErrNoConsent, "agent.backends[0]"}, // MUST REMOTE_IS_NEVER_FREE
		`{"community":null}`:                                      {exact.ErrType, "agent.community"},
		`{"community":{"maxJobs":1}}`:                             {exact.ErrUnknown, "agent.community"},
		`{"community":{"maxJobsPerDay":0}}`:                       {exact.ErrRange, "agent.community.maxJobsPerDay"},
		`{"community":{"maxJobsPerHour":1000001}}`:                {exact.ErrRange, "agent.community.maxJobsPerHour"},
		`{"community":{"maxWallClockMs":0}}`:                      {exact.ErrRange, "agent.community.maxWallClockMs"},
		`{"community":{"maxOutputBytes":16777217}}`:               {exact.ErrRange, "agent.community.maxOutputBytes"},
		`{"community":{"maxPayloadChars":4000001}}`:               {exact.ErrRange, "agent.community.maxPayloadChars"},
		`{"backends":{"a":{"backend":"claude-cli","offer":"named","spend":{"acknowledged":true,"dailyCapCents":9}}}}`: {match.ErrSubscription, "agent.backends[0]"}, // MUST SUBSCRIPTION_SELF_LOCK
		`{"backends":{"b":{"backend":"mlx"},"a":{"backend":"claude-cli","offer":"public"}}}`:                          {match.ErrSubscription, "agent.backends[1]"},

		`{"routes":[]}`:                                                                          {exact.ErrType, "agent.routes"},
		`{"routes":{"llm.embed":{}}}`:                                                            {exact.ErrUnknown, "agent.routes"},
		`{"routes":{"llm.chat":null}}`:                                                           {exact.ErrType, "agent.routes.llm.chat"},
		`{"routes":{"llm.chat":{"backend":"a"}}}`:                                                {exact.ErrMissing, "agent.routes.llm.chat.model"},
		`{"routes":{"llm.chat":{"model":"m"}}}`:                                                  {exact.ErrMissing, "agent.routes.llm.chat.backend"},
		`{"routes":{"llm.chat":{"backend":"","model":"m"}}}`:                                     {exact.ErrRange, "agent.routes.llm.chat.backend"},
		`{"routes":{"llm.chat":{"backend":"a","model":""}}}`:                                     {exact.ErrRange, "agent.routes.llm.chat.model"},
		`{"routes":{"llm.chat":{"backend":"a","model":"` + strings.Repeat("m", 257) + `"}}}`:     {exact.ErrRange, "agent.routes.llm.chat.model"},
		`{"routes":{"llm.generate":{"backend":"` + strings.Repeat("n", 129) + `","model":"m"}}}`: {exact.ErrRange, "agent.routes.llm.generate.backend"},
		`{"routes":{"llm.chat":{"backend":"a","model":"m","url":"http://x"}}}`:                   {exact.ErrUnknown, "agent.routes.llm.chat"},
	} {
		f, err := fileShape.Read([]byte(`{"agent":`+text+`}`), limits)
		var p *exact.Problem
		if !errors.As(err, &p) || p.Rule != want.rule || p.Path != want.path {
			t.Errorf("%.100s: %v, want %s at %s", text, err, want.rule.Name(), want.path)
		}
		if f.agent != nil {
			t.Errorf("%.100s: an error came with a section", text)
		}
		if p != nil && strings.Contains(p.Error()+p.Sentence(), "canary") {
			t.Errorf("%.100s: the refusal repeats the file: %v", text, err)
		}
		// The whole way, as a person meets it.
		_, err = configfile.ReadBytes([]byte(`{"agent":`+text+`}`), fileShape)
		rule := configfile.ErrMember
		if exact.Kinds.Find(want.rule.Name()) == nil {
			rule = want.rule
		}
		if !errors.Is(err, rule) || strings.Contains(refusal.Terminal(err), "canary") {
			t.Errorf("%.100s: %v, want %s", text, err, rule.Name())
		}
	}
}

func TestRoutesNameBackends(t *testing.T) {
	for text, want := range map[string]string{
		`{"routes":{"llm.chat":{"backend":"a","model":"m"}}}`:                                                                               "The route is llm.chat.",
		`{"backends":{},"routes":{"llm.generate":{"backend":"ollama","model":"m"}}}`:                                                        "The route is llm.generate.",
		`{"backends":{"a":{"backend":"mlx"}},"routes":{"llm.chat":{"backend":"A","model":"m"}}}`:                                            "The route is llm.chat.",
		`{"backends":{"a":{"backend":"mlx"}},"routes":{"llm.chat":{"backend":"mlx","model":"m"}}}`:                                          "The route is llm.chat.",
		`{"backends":{"a":{"backend":"mlx"}},"routes":{"llm.generate":{"backend":"a","model":"m"},"llm.chat":{"backend":"b","model":"m"}}}`: "The route is llm.chat.",
		`{"routes":{"llm.chat":{"backend":"canarybird","model":"m"},"llm.generate":{"backend":"canarybird","model":"m"}}}`:                  "The route is llm.generate.",
	} {
		for range 10 { // the same one each time
			got, err := section(t, text).Settings()
			if r := refusal.From(err); r.Kind() != settings.ErrRoute || r.Detail() != want || !reflect.DeepEqual(got, settings.Settings{}) {
				t.Fatalf("%s: %+v, %v", text, got, err)
			}
		}
	}
}

// TestModelCostsMoreThanItsBackend: terms that hold for a free server do not for a
// model of it that a paid service runs.
func TestModelCostsMoreThanItsBackend(t *testing.T) {
	const text = `{"backends":{"a":{"backend":"ollama","offer":"named"}},"routes":{"llm.chat":{"backend":"a","model":"%s"}}}`
	if _, err := section(t, fmt.Sprintf(text, "big")).Settings(); err != nil {
		t.Error(err)
	}
	if _, err := section(t, fmt.Sprintf(text, "big:cloud")).Settings(); !errors.Is(err, match.ErrNoConsent) {
		t.Error(err)
	}
}

// TestSettingsShareNothing: two uses of one section do not write into each
// other.
func TestSettingsShareNothing(t *testing.T) {
	s := section(t, `{"backends":{"a":{"backend":"mlx"}},"routes":{"llm.chat":{"backend":"a","model":"m"}}}`)
	first, err := s.Settings()
	if err != nil {
		t.Fatal(err)
	}
	clear(first.Backends)
	clear(first.Routes)
	again, err := s.Settings()
	if err != nil || len(again.Backends) != 1 || len(again.Routes) != 1 {
		t.Errorf("%+v, %v", again, err)
	}
	settings.Defaults().Routes["x"] = settings.Route{}
	if got := settings.Defaults(); len(got.Routes) != 0 {
		t.Errorf("the defaults became %+v", got)
	}
}

// TestShapeServesBothWays: what is read is written and read again the same.
func TestShapeServesBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var members []string
		some := func(name string) bool { return rapid.Bool().Draw(t, name) }
		if some("backends") {
			members = append(members, `"backends":{"a":{"backend":"mlx","baseUrl":"http://h/v1","apiKeyEnv":"K"},"b":{"backend":"openai","offer":"named","spend":{"acknowledged":true,"dailyCapCents":3}}}`)
		}
		if some("routes") {
			members = append(members, rapid.SampledFrom([]string{
				`"routes":{}`, `"routes":{"llm.generate":{"backend":"a","model":"m"}}`,
				`"routes":{"llm.chat":{"backend":"b","model":"n"},"llm.generate":{"backend":"a","model":"m"}}`,
			}).Draw(t, "which"))
		}
		if some("concurrency") {
			members = append(members, fmt.Sprintf(`"concurrency":%d`, rapid.IntRange(1, 32).Draw(t, "n")))
		}
		if some("limits") {
			members = append(members, rapid.SampledFrom([]string{`"limits":{}`, `"limits":{"maxWallClockMs":5}`, `"limits":{"maxOutputBytes":6,"maxWallClockMs":7}`}).Draw(t, "which"))
		}
		if some("ingress") {
			members = append(members, rapid.SampledFrom([]string{`"ingress":{}`, `"ingress":{"keepSelfPrompts":false}`, `"ingress":{"keepSelfPrompts":true}`, `"ingress":{"communityPromptDays":30}`}).Draw(t, "which"))
		}
		if some("community") {
			members = append(members, rapid.SampledFrom([]string{`"community":{}`, `"community":{"maxJobsPerDay":8,"maxPayloadChars":9}`}).Draw(t, "which"))
		}
		members = rapid.Permutation(members).Draw(t, "order")
		file := []byte("{" + strings.Join(members, ",") + "}")
		s, err := settings.Shape.Read(file, limits)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := settings.Shape.Read(file, limits) // writing must not change what it writes
		text, err := settings.Shape.Append(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := settings.Shape.Read(text, limits)
		if err != nil || !reflect.DeepEqual(again, before) {
			t.Fatalf("%s became %s: %v", members, text, err)
		}
	})
}

// TestKindsAreAllRouted fails when the contract gets a kind that the section
// does not know.
func TestKindsAreAllRouted(t *testing.T) {
	for _, kind := range ai.Kinds() {
		s := settingsOf(t, `{"backends":{"a":{"backend":"mlx"}},"routes":{"`+string(kind)+`":{"backend":"a","model":"m"}}}`)
		if got := slices.Collect(maps.Keys(s.Routes)); !slices.Equal(got, []ai.Kind{kind}) {
			t.Errorf("%s: %v", kind, got)
		}
	}
}
