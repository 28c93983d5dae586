package ai_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/v0"
	"github.com/allodhq/allod/wire/ai/v2"
)

// recording is the recorded behaviour of the contract's own programs at one
// version, run case by case.
type recording struct {
	folder string
	codec  ai.Codec
	// files has the counts of the recording; a folder that lost cases must not
	// pass.
	files map[string]int
	total int
	// words are the version's own for audiences and offers, where they differ
	// from the values'.
	words map[string]string
	// apart has the schemas of things that no message carries, and how many cases
	// they have.
	apart  map[string]int
	places map[string]place
}

// first holds the keys as well, which are of no version.
var first = &recording{
	folder: "testdata",
	codec:  v0.Codec(),
	files: map[string]int{
		"keys.json": 86, "signing.json": 160, "envelope.json": 122, "audience.json": 1366,
		"cost.json": 431, "schemas.json": 2703, "limits.json": 164, "version.json": 69,
		"sizeclass.json": 54, "provenance.json": 12,
	},
	total:  5167,
	places: placesOf(v0.Codec(), aWording{self: "self"}),
}

var second = &recording{
	folder: "testdata/v2",
	codec:  v2.Codec(),
	files: map[string]int{
		"schemas.json": 5114, "audience.json": 1195, "cost.json": 681, "limits.json": 213, "version.json": 69,
		"provenance.json": 63, "grant.json": 57, "succession.json": 35, "envelope.json": 31,
	},
	total: 7458,
	words: map[string]string{"private": "self", "team": "named"},
	apart: map[string]int{
		// What a site offers to a control plane, before there is any job.
		"Purpose": 88, "Manifest": 56, "PurposeRouting": 15,
		// What a daemon tells its owner.
		"RefusalReason": 14, "JobRefused": 42,
	},
	places: placesOf(v2.Codec(), aWording{self: "private", service: `"service":"s",`, stops: true}),
}

var recordings = []*recording{first, second}

// value is what a word of the version means here. A word that is none of its
// own becomes one that nothing knows.
func (r *recording) value(word string) string {
	if r.words == nil {
		return word
	}
	return r.words[word]
}

// word is what the version calls a value.
func (r *recording) word(value string) string {
	for word, v := range r.words {
		if v == value {
			return word
		}
	}
	return value
}

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

func (r *recording) load(t *testing.T, file string) []vector {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.FromSlash(r.folder), file))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Cases []json.RawMessage }
	if err := json.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	if want := r.files[file]; len(doc.Cases) != want || want == 0 {
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
type runner func(t *testing.T, r *recording, v vector) (got, want any)

// TestVectors runs every recorded case. A case where Allod answers otherwise
// must be listed in the folder's stricter.json with its reason; a listed case
// that agrees fails as well, so the list cannot rot.
func TestVectors(t *testing.T) {
	for _, r := range recordings {
		t.Run(r.codec.Version, func(t *testing.T) { runAll(t, r) })
	}
}

func runAll(t *testing.T, r *recording) {
	runners := map[string]runner{
		"keys.json": runKeys, "signing.json": runSigning, "envelope.json": runEnvelope,
		"audience.json": runAudience, "cost.json": runCost, "schemas.json": runSchemas,
		"limits.json": runLimits, "version.json": runVersion,
		"sizeclass.json": runSizeClass, "provenance.json": runProvenance,
		"grant.json": runGrant, "succession.json": runSuccession,
	}
	listed := loadStricter(t, r.folder)
	total := 0
	var mu sync.Mutex
	unlisted := map[string]map[string]string{}
	apart := map[string]int{}
	for file := range r.files {
		cases := r.load(t, file)
		total += len(cases)
		t.Run(file, func(t *testing.T) {
			run := runners[file]
			if run == nil {
				t.Fatal("no runner")
			}
			for _, v := range cases {
				if r.apart[v.Schema] > 0 {
					apart[v.Schema]++
					continue
				}
				t.Run(v.Name, func(t *testing.T) {
					got, want := run(t, r, v)
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
	if total != r.total {
		t.Errorf("there are %d cases, recorded were %d", total, r.total)
	}
	if !maps.Equal(apart, r.apart) {
		t.Errorf("not run were %v, and no message carries %v", apart, r.apart)
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

func loadStricter(t *testing.T, folder string) *stricter {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.FromSlash(folder), "stricter.json"))
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
