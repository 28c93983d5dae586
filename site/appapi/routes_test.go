package appapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
)

// document is what these tests read of openapi.json.
type document struct {
	Paths map[string]map[string]struct {
		Security   []map[string][]string
		Parameters []struct{ Name, In string }
		Responses  map[string]any
	}
	Components struct{ Schemas map[string]any }
}

func readDocument(t *testing.T) (d document, whole any) {
	t.Helper()
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(openAPI, &whole); err != nil {
		t.Fatal(err)
	}
	return d, whole
}

// TestRoutesAreDescribed holds that the description has every path that is served
// and no other, with the scope that it needs and the parameters that it takes.
func TestRoutesAreDescribed(t *testing.T) {
	type shape struct{ scope, query string }
	served, told := map[string]shape{}, map[string]shape{}
	for _, r := range (&api{}).routes() {
		served[r.pattern] = shape{string(r.scope), strings.Join(slices.Sorted(slices.Values(r.query)), " ")}
	}
	d, _ := readDocument(t)
	for path, operations := range d.Paths {
		for method, o := range operations {
			var query, inPath []string
			for _, p := range o.Parameters {
				switch p.In {
				case "query":
					query = append(query, p.Name)
				case "path":
					inPath = append(inPath, "{"+p.Name+"}")
				}
			}
			slices.Sort(query)
			pattern := strings.ToUpper(method) + " " + path
			if len(o.Security) != 1 || len(o.Security[0]) != 1 || o.Security[0]["appKey"] == nil {
				t.Fatalf("%s: security %v", pattern, o.Security)
			}
			told[pattern] = shape{strings.Join(o.Security[0]["appKey"], " "), strings.Join(query, " ")}
			if strings.Count(path, "{") != len(inPath) || len(inPath) == 1 && !strings.Contains(path, inPath[0]) {
				t.Errorf("%s: parameters %v", pattern, inPath)
			}
			if _, ok := o.Responses["401"]; !ok {
				t.Errorf("%s does not say that it needs a key", pattern)
			}
			if _, ok := o.Responses["403"]; ok != (len(o.Security[0]["appKey"]) > 0) {
				t.Errorf("%s: a scope is refused with 403, and only one that is needed", pattern)
			}
		}
	}
	if !maps.Equal(served, told) {
		t.Errorf("served    %v\ndescribed %v", served, told)
	}
}

// TestDescriptionIsStrict holds that no object of the description lets members
// through that are not listed.
func TestDescriptionIsStrict(t *testing.T) {
	d, _ := readDocument(t)
	found := 0
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, v := range v {
				walk(at, v)
			}
		case map[string]any:
			if v["type"] == "object" {
				found++
				if v["additionalProperties"] != false {
					t.Errorf("%s is open", at)
				}
			}
			for name, v := range v {
				walk(at+"."+name, v)
			}
		}
	}
	for name, v := range d.Components.Schemas {
		walk(name, v)
	}
	if found < 15 {
		t.Errorf("only %d objects were found", found)
	}
}

// TestDescribedWords holds that the description lists the words and bounds that
// the code has.
func TestDescribedWords(t *testing.T) {
	_, doc := readDocument(t)
	at := func(path string) any {
		v := doc.(map[string]any)["components"].(map[string]any)["schemas"]
		for name := range strings.SplitSeq(path, ".") {
			v = v.(map[string]any)[name]
		}
		return v
	}
	words := func(path string, want ...string) {
		t.Helper()
		list, _ := at(path).(map[string]any)["enum"].([]any)
		got := make([]string, len(list))
		for i, w := range list {
			got[i], _ = w.(string)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	words("Kind", texts(ai.Kinds())...)
	words("Audience", texts(ai.Audiences())...)
	words("AskedAudience", append(texts(ai.Audiences()), "private", "team")...)
	words("State", texts(ai.States())...)
	words("NoRunner", texts([]site.NoRunner{site.NonePaired, site.NoneOnline, site.NoneCapable, site.NoneAdmitted})...)
	words("Job.properties.reason", texts([]site.Reason{site.ReasonApp, site.ReasonDependency, site.ReasonTTL, site.ReasonDeadline})...)
	words("ChatMessage.properties.role", texts(ai.Roles())...)
	words("Provenance.properties.backendClass", texts(backend.Classes())...)
	words("Provenance.properties.stop", texts(ai.StopReasons())...)
	words("Capability.properties.offerScope", texts(ai.OfferScopes())...)
	words("Runner.properties.platform", texts(ai.Platforms())...)
	words("Pairing.properties.platform", texts(ai.Platforms())...)
	for path, want := range map[string]int64{
		"GeneratePayload.properties.prompt.maxLength": ai.MaxTextUnits,
		"ChatPayload.properties.messages.maxItems":    ai.MaxMessages,
		"Ask.properties.id.maxLength":                 site.MaxIDUnits,
		"Ask.properties.owner.maxLength":              site.MaxIDUnits,
		"Ask.properties.dependsOn.maxItems":           site.MaxDependsOn,
		"Ask.properties.allowedOwners.maxItems":       site.MaxAllowed,
		"Ask.properties.ttlMs.maximum":                site.MaxJobDeadline.Milliseconds(),
		"JobPage.properties.jobs.maxItems":            site.MaxPage,
		"LinkAsk.properties.owner.maxLength":          site.MaxIDUnits,
		"LinkAsk.properties.ttlMs.minimum":            site.MinLinkTTL.Milliseconds(),
		"LinkAsk.properties.ttlMs.maximum":            site.MaxLinkTTL.Milliseconds(),
		"LinkAsk.properties.ttlMs.default":            site.DefaultLinkTTL.Milliseconds(),
	} {
		if got := at(path); got != float64(want) {
			t.Errorf("%s is %v, want %d", path, got, want)
		}
	}
}

func texts[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}
