package ai_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
)

// The recorded behaviour of the contract's own programs, run case by case. The
// counts are the recording's; a folder that lost cases must not pass.
var vectorFiles = map[string]int{
	"keys.json": 86, "signing.json": 160, "envelope.json": 122, "audience.json": 1366,
	"cost.json": 431, "schemas.json": 2703, "limits.json": 164, "version.json": 69,
	"sizeclass.json": 54, "provenance.json": 12,
}

const vectorTotal = 5167

var suggest = flag.Bool("suggest", false, "print unlisted differences from the recorded behaviour as JSON")

// vector is one recorded case. The fields are those of every kind of case.
type vector struct {
	Name   string
	Kind   string
	Schema string
	raw    json.RawMessage
}

func (v vector) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(v.raw, into); err != nil {
		t.Fatalf("the case does not have the form its test expects: %v", err)
	}
}

func loadVectors(t *testing.T, file string) []vector {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Cases []json.RawMessage }
	if err := json.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	if want := vectorFiles[file]; len(doc.Cases) != want || want == 0 {
		t.Fatalf("%s holds %d cases, recorded were %d", file, len(doc.Cases), want)
	}
	cases := make([]vector, len(doc.Cases))
	seen := map[string]bool{}
	for i, raw := range doc.Cases {
		if err := json.Unmarshal(raw, &cases[i]); err != nil {
			t.Fatal(err)
		}
		if seen[cases[i].Name] {
			t.Fatalf("%s has two cases named %q", file, cases[i].Name)
		}
		seen[cases[i].Name] = true
		cases[i].raw = raw
	}
	return cases
}

// A runner answers what Allod does with one case, in the form in which the
// recording is compared: got equals want when both agree. A runner fails the
// test only when it cannot run the case.
type runner func(t *testing.T, v vector) (got, want any)

// TestVectors runs every recorded case. A case where Allod answers otherwise
// must be listed in testdata/stricter.json with its reason; a listed case that
// agrees fails as well, so the list cannot rot.
func TestVectors(t *testing.T) {
	runners := map[string]runner{
		"keys.json": runKeys, "signing.json": runSigning, "envelope.json": runEnvelope,
		"audience.json": runAudience, "cost.json": runCost, "schemas.json": runSchemas,
		"limits.json": runLimits, "version.json": runVersion,
		"sizeclass.json": runSizeClass, "provenance.json": runProvenance,
	}
	listed := loadStricter(t)
	total := 0
	var mu sync.Mutex
	unlisted := map[string]map[string]string{}
	for file := range vectorFiles {
		cases := loadVectors(t, file)
		total += len(cases)
		t.Run(file, func(t *testing.T) {
			run := runners[file]
			if run == nil {
				t.Fatal("no runner")
			}
			for _, v := range cases {
				t.Run(v.Name, func(t *testing.T) {
					got, want := run(t, v)
					reason, isListed := listed.take(file, v.Name)
					g, w := render(got), render(want)
					switch {
					case g == w && isListed:
						t.Errorf("agrees with the recording although it is listed as stricter (%s)", reason)
					case g != w && !isListed:
						mu.Lock()
						if unlisted[file] == nil {
							unlisted[file] = map[string]string{}
						}
						unlisted[file][v.Name] = fmt.Sprintf("got %.120s, recorded %.120s", g, w)
						mu.Unlock()
						t.Errorf("got  %.400s\nwant %.400s", g, w)
					}
				})
			}
		})
	}
	if total != vectorTotal {
		t.Errorf("%d cases ran, recorded were %d", total, vectorTotal)
	}
	if left := listed.left(); len(left) > 0 {
		t.Errorf("stricter.json lists cases that do not exist: %v", left)
	}
	if *suggest {
		out, _ := json.MarshalIndent(unlisted, "", "  ")
		fmt.Printf("%s\n", out)
	}
}

func render(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "unrenderable: " + err.Error()
	}
	return strings.TrimSpace(b.String())
}

// stricter is the reviewed list of deliberate differences: reasons by a short
// name, and the cases under each.
type stricter struct {
	reasons map[string]string
	cases   map[string]string // "file\x00case" to reason name
	taken   map[string]bool
}

func loadStricter(t *testing.T) *stricter {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "stricter.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc []struct {
		Reason string
		Why    string
		Cases  map[string][]string
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	s := &stricter{reasons: map[string]string{}, cases: map[string]string{}, taken: map[string]bool{}}
	for _, d := range doc {
		if d.Reason == "" || len(d.Why) < 20 || len(d.Cases) == 0 || s.reasons[d.Reason] != "" {
			t.Fatalf("stricter.json: the entry %q needs a reason, a why and cases, once", d.Reason)
		}
		s.reasons[d.Reason] = d.Why
		for file, names := range d.Cases {
			if !slices.IsSorted(names) {
				t.Errorf("stricter.json: the cases of %q in %s are not sorted", d.Reason, file)
			}
			for _, name := range names {
				if _, twice := s.cases[file+"\x00"+name]; twice {
					t.Errorf("stricter.json lists %s: %q twice", file, name)
				}
				s.cases[file+"\x00"+name] = d.Reason
			}
		}
	}
	return s
}

func (s *stricter) take(file, name string) (reason string, ok bool) {
	reason, ok = s.cases[file+"\x00"+name]
	if ok {
		s.taken[file+"\x00"+name] = true
	}
	return reason, ok
}

func (s *stricter) left() []string {
	var left []string
	for c := range s.cases {
		if !s.taken[c] {
			left = append(left, strings.ReplaceAll(c, "\x00", ": "))
		}
	}
	sort.Strings(left)
	return left
}

// expand replaces {"$repeat":[text,n]} and {"$array":[item,n]} in a decoded
// value.
func expand(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if r, ok := v["$repeat"].([]any); ok && len(v) == 1 {
			return strings.Repeat(r[0].(string), int(r[1].(float64)))
		}
		if r, ok := v["$array"].([]any); ok && len(v) == 1 {
			item := expand(r[0])
			list := make([]any, int(r[1].(float64)))
			for i := range list {
				list[i] = item
			}
			return list
		}
		for k := range v {
			v[k] = expand(v[k])
		}
	case []any:
		for i := range v {
			v[i] = expand(v[i])
		}
	}
	return v
}

// expandText is expand for a raw text that is a string or a $repeat.
func expandText(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return expand(v).(string)
}
