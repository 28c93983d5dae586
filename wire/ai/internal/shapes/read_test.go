package shapes_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/v0"
)

func TestWhatIsWrittenReadsBack(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		rapid.Check(t, func(t *rapid.T) {
			v := s.valid.Draw(t, "value")
			body, err := s.write(v)
			if err != nil {
				t.Fatalf("a valid value is not written: %v", err)
			}
			got, err := s.read(body)
			if err != nil {
				t.Fatalf("what was written is not read: %v\n%s", err, body)
			}
			if !reflect.DeepEqual(got, v) {
				t.Fatalf("wrote %#v\nread  %#v", v, got)
			}
			again, err := s.write(got)
			if err != nil || string(again) != string(body) {
				t.Fatalf("%v\nwritten first %s\nthen          %s", err, body, again)
			}
		})
	})
}

// TestMessagesFollowTheirRules changes a valid message in every way that a rule
// speaks of, and in some that none does.
func TestMessagesFollowTheirRules(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		tried := map[string]bool{}
		for _, v := range s.examples(t) {
			body, err := s.write(v)
			if err != nil {
				t.Fatal(err)
			}
			tree := treeOf(t, body)
			for _, e := range edits(tree, s.rule()) {
				if e.long && raceEnabled && s.name != "Generate" {
					continue
				}
				if tried[e.at+" "+e.what] {
					continue // the same edit of another example tells nothing more
				}
				tried[e.at+" "+e.what] = true
				e.apply()
				body := bodyOf(t, tree)
				got, err := s.read(body)
				switch {
				case e.taken && err != nil:
					t.Errorf("%s: %s is refused: %v", e.at, e.what, err)
				case !e.taken && err == nil:
					t.Errorf("%s: %s is taken", e.at, e.what)
				case err != nil:
					checkRefusal(t, s, got, err)
				case e.same && !reflect.DeepEqual(got, v):
					t.Errorf("%s: %s changed what was read", e.at, e.what)
				default:
					checkKept(t, s, e, tree, got)
				}
				e.undo()
			}
			if again := treeOf(t, body); !reflect.DeepEqual(again, tree) {
				t.Fatal("an edit was not undone, so the test is wrong")
			}
		}
	})
}

// checkRefusal holds what is promised of every refusal: its kind, the zero
// value, and that nothing of the input is in its text.
func checkRefusal(t *testing.T, s subject, got any, err error) {
	t.Helper()
	if !isBadRequest(err) {
		t.Errorf("refused with %#v", err)
	}
	if zero := reflect.Zero(s.typ); got != nil && !reflect.DeepEqual(got, zero.Interface()) {
		t.Errorf("an error came with the value %#v", got)
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		for _, input := range []string{canary, strings.ToUpper(canary), "8675309"} {
			if strings.Contains(e.Error(), input) {
				t.Errorf("the error repeats the input: %v", e)
			}
		}
	}
}

// checkKept holds that a value that was read is written as it was sent, but for
// what the contract drops, and reads back.
func checkKept(t *testing.T, s subject, e edit, sent map[string]any, got any) {
	t.Helper()
	body, err := s.write(got)
	if err != nil {
		t.Errorf("%s: %s is read and not written: %v", e.at, e.what, err)
		return
	}
	if again, err := s.read(body); err != nil || !reflect.DeepEqual(again, got) {
		t.Errorf("%s: %s does not read back: %v", e.at, e.what, err)
	}
	want, have := plainTree(sent), plainTree(treeOf(t, body))
	if !e.same && !reflect.DeepEqual(want, have) {
		t.Errorf("%s: %s\nsent    %.300v\nwritten %.300v", e.at, e.what, want, have)
	}
}

// plainTree is a tree without the differences that reading does not keep: how a
// number is written, white space around a URL, and optional members that are as
// good as absent.
func plainTree(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, err := strconv.ParseFloat(v.String(), 64)
		if err != nil {
			return v
		}
		return math.Abs(f) // no member is below zero, and -0 is 0
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plainTree(v[i])
		}
		return list
	case map[string]any:
		members := map[string]any{}
		for name, m := range v {
			switch {
			case (name == "system" || name == "ownerLabel") && m == "", (name == "duplicate" || name == "stopReported") && m == false:
				continue
			case name == "verificationUrl" || name == "artifactUrl":
				m = strings.Trim(m.(string), " \t\n\u00a0\ufeff\u2028")
			}
			members[name] = plainTree(m)
		}
		return members
	}
	return v
}

// TestTextThatIsNoMessage has what cannot be built from a tree.
func TestTextThatIsNoMessage(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		v := s.examples(t)[0]
		body, err := s.write(v)
		if err != nil {
			t.Fatal(err)
		}
		good := string(body)
		deep := strings.Repeat("[", 9) + strings.Repeat("]", 9)
		for what, bad := range map[string]string{
			"nothing": "", "null": "null", "a list": "[" + good + "]", "a text": `"` + canary + `"`, "a number": "8675309", "a word": canary,
			"cut":                       good[:len(good)-1],
			"cut within a name":         `{"` + canary,
			"followed by another":       good + good,
			"followed by text":          good + canary,
			"followed by a zero byte":   good + "\x00",
			"with a byte order mark":    "\ufeff" + good,
			"with a comment":            "/*" + canary + "*/" + good,
			"with a comma at the end":   good[:len(good)-1] + ",}",
			"with a name twice":         `{"` + canary + `":1,"` + canary + `":1}`,
			"with an escaped name":      `{"\u0063anarybird":1,"` + canary + `":1}`,
			"with its members twice":    good[:len(good)-1] + "," + good[1:],
			"with invalid UTF-8":        good[:len(good)-1] + `,"` + canary + "\xff" + `":1}`,
			"with a surrogate alone":    good[:len(good)-1] + `,"` + canary + `\ud800":1}`,
			"with an overlong encoding": good[:len(good)-1] + `,"` + canary + "\xc0\xaf" + `":1}`,
			"with a raw control":        good[:len(good)-1] + `,"` + canary + "\x01" + `":1}`,
			"deeper than any message":   good[:len(good)-1] + `,"` + canary + `":` + deep + `}`,
			"with too many values":      good[:len(good)-1] + `,"` + canary + `":[` + strings.Repeat("0,", 1<<16) + `0]}`,
			"very deep":                 strings.Repeat("[", 100_000),
		} {
			got, err := s.read([]byte(bad))
			if err == nil {
				t.Errorf("%s is taken", what)
				continue
			}
			checkRefusal(t, s, got, err)
		}
		if got, err := s.read([]byte(" \t\r\n" + good + " \t\r\n")); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("white space around is not taken: %v", err)
		}
	})
}

// TestDroppedMembersAreBounded holds that a dropped member, which only version
// "0" has, is read past within the same bounds, so that it is no way around them.
func TestDroppedMembersAreBounded(t *testing.T) {
	good := `{"messages":[{"role":"user","content":"c","x":%}]}`
	for what, c := range map[string]struct {
		value string
		taken bool
	}{
		"as deep as allowed": {strings.Repeat("[", 5) + strings.Repeat("]", 5), true},
		"one deeper":         {strings.Repeat("[", 6) + strings.Repeat("]", 6), false},
		"as many as allowed": {"[" + strings.Repeat("0,", 1<<16-7) + "0]", true},
		"one more":           {"[" + strings.Repeat("0,", 1<<16-6) + "0]", false},
		"the same name":      {`{"a":1,"a":2}`, false},
	} {
		v, err := v0.Codec().Chat.Read([]byte(strings.Replace(good, "%", c.value, 1)))
		if (err == nil) != c.taken {
			t.Errorf("%s: %v", what, err)
		}
		if c.taken && !reflect.DeepEqual(v, ai.Chat{Messages: []ai.ChatMessage{{Role: "user", Content: "c"}}}) {
			t.Errorf("%s: read %v", what, v)
		}
	}
}

// TestValuesNeverBound holds that the bound on the number of values is wider
// than the bound on bytes, so that Write needs to look at bytes only.
func TestValuesNeverBound(t *testing.T) {
	for _, e := range editions {
		// Nothing written has more values for its bytes than a list of short texts.
		m := e.codec.ReleaseResponse
		n := (ai.MaxBody - len(`{"released":[]}`) + 1) / len(`"a",`)
		body, err := m.Write(ai.ReleaseResponse{Released: slices.Repeat([]ai.JobID{"a"}, n)})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Read(body); err != nil || len(got.Released) != n {
			t.Errorf("%d short texts in %d bytes are written and not read: %v", n, len(body), err)
		}
		if _, err := m.Write(ai.ReleaseResponse{Released: slices.Repeat([]ai.JobID{"a"}, n+1)}); err == nil {
			t.Error("one more is written")
		}
	}
}

// TestDuplicatesAreRefusedAtEveryDepth repeats each member of each object.
func TestDuplicatesAreRefusedAtEveryDepth(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		for _, v := range s.examples(t) {
			body, err := s.write(v)
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range body {
				if c != '{' || inString(body, i) || body[i+1] == '}' {
					continue
				}
				// The name at the start of an object, put in a second time.
				end := i + 2
				for body[end] != '"' || body[end-1] == '\\' {
					end++
				}
				name := string(body[i+1 : end+1])
				bad := string(body[:i+1]) + name + `:"` + canary + `",` + string(body[i+1:])
				got, err := s.read([]byte(bad))
				if err == nil {
					t.Fatalf("the name %s is taken twice", name)
				}
				checkRefusal(t, s, got, err)
			}
		}
	})
}

func inString(body []byte, at int) bool {
	in := false
	for i := 0; i < at; i++ {
		switch {
		case in && body[i] == '\\':
			i++
		case body[i] == '"':
			in = !in
		}
	}
	return in
}

// TestLimits holds the limit of each message, on both ways, to the byte.
func TestLimits(t *testing.T) {
	sealed := []string{"FetchResponse", "ResultRequest", "Generate", "Chat", "Outcome", "Kinded", "Job", "Result"}
	each(t, func(t *testing.T, s subject) {
		want := ai.MaxBody
		if slices.Contains(sealed, s.name) {
			want = ai.MaxSealedBody
		}
		if s.limit != want {
			t.Errorf("the limit is %d", s.limit)
		}
		if s.large() && raceEnabled {
			t.Skip("texts of many megabytes are slow under the race detector")
		}
		v := s.examples(t)[0]
		body, err := s.write(v)
		if err != nil {
			t.Fatal(err)
		}
		padded := append(body, strings.Repeat(" ", s.limit+1-len(body))...)
		if got, err := s.read(padded[:s.limit]); err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("a body of the limit is refused: %v", err)
		}
		got, err := s.read(padded)
		if err == nil {
			t.Error("a body one byte above the limit is taken")
		} else {
			checkRefusal(t, s, got, err)
			if !strings.Contains(err.Error(), exact.ErrTooLarge.Name()) {
				t.Errorf("it is refused for another reason: %v", err)
			}
		}
	})
}
