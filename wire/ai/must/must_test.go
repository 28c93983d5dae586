package must_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/ai/must"
)

var idForm = regexp.MustCompile(`^[A-Z]+(_[A-Z]+)+$`)

func TestRegister(t *testing.T) {
	seen, statements := map[string]bool{}, map[string]bool{}
	for _, m := range must.All() {
		if !idForm.MatchString(m.ID) {
			t.Errorf("%q is no id", m.ID)
		}
		if seen[m.ID] {
			t.Errorf("%s is there twice", m.ID)
		}
		seen[m.ID] = true
		checkSentence(t, m.ID, m.Statement)
		if statements[m.Statement] {
			t.Errorf("%s says what another says", m.ID)
		}
		statements[m.Statement] = true
		if !slices.Contains([]must.Enforcer{must.Daemon, must.Server, must.Both}, m.EnforcedBy) {
			t.Errorf("%s is kept by %q", m.ID, m.EnforcedBy)
		}
		if len(m.ProvedBy) == 0 {
			t.Errorf("nothing proves %s", m.ID)
		}
		for i, p := range m.ProvedBy {
			if !slices.Contains([]must.Proof{must.Conformance, must.Adversarial, must.Construction, must.Operator}, p) || slices.Contains(m.ProvedBy[:i], p) {
				t.Errorf("%s is proved by %q", m.ID, m.ProvedBy)
			}
		}
		if !strings.Contains(m.Source, "§") {
			t.Errorf("%s has the source %q", m.ID, m.Source)
		}
	}
	if len(seen) == 0 || len(must.AllRetired()) == 0 {
		t.Error("a register is empty, so the test shows nothing")
	}
	for _, r := range must.AllRetired() {
		if !idForm.MatchString(r.ID) {
			t.Errorf("%q is no id", r.ID)
		}
		if seen[r.ID] {
			t.Errorf("%s is retired and in force", r.ID)
		}
		if !slices.ContainsFunc(must.All(), func(m must.Must) bool { return m.ID == r.SupersededBy }) {
			t.Errorf("%s is superseded by %s, which is not in force", r.ID, r.SupersededBy)
		}
		seen[r.ID] = true
		checkSentence(t, r.ID, r.Why)
	}
	must.All()[0].ID = "changed" // by a caller
	if must.All()[0].ID == "changed" {
		t.Error("a caller can change the register")
	}
}

// TestRegisterIsTheContracts compares with what was recorded.
func TestRegisterIsTheContracts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "testdata", "limits.json"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Cases []struct {
			Name  string
			Value json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	entries := 0
	for _, c := range recorded.Cases {
		var ids []string
		switch id, ok := strings.CutPrefix(c.Name, "MUST "); {
		case ok:
			entries++
			var want struct {
				ID, Source string
				EnforcedBy must.Enforcer
				VerifiedBy []must.Proof
			}
			if err := json.Unmarshal(c.Value, &want); err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(must.All(), func(m must.Must) bool { return m.ID == id })
			if i < 0 {
				t.Errorf("%s is missing", id)
				continue
			}
			got := must.All()[i]
			if got.ID != want.ID || got.Source != want.Source || got.EnforcedBy != want.EnforcedBy || !slices.Equal(got.ProvedBy, want.VerifiedBy) {
				t.Errorf("%+v, recorded as %s", got, c.Value)
			}
		case c.Name == "MUST_IDS":
			if err := json.Unmarshal(c.Value, &ids); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(must.All(), ids, func(m must.Must, id string) bool { return m.ID == id }) {
				t.Error("the ids or their order are not the recorded ones")
			}
		}
	}
	if entries != len(must.All()) {
		t.Errorf("%d are recorded, and the register has %d", entries, len(must.All()))
	}
}

// checkSentence holds that a text is whole sentences, and none of the contract's
// own, which speak of what MUST be done.
func checkSentence(t *testing.T, id, text string) {
	t.Helper()
	switch {
	case len(strings.Fields(text)) < 5, strings.TrimSpace(text) != text, !strings.HasSuffix(text, "."), strings.HasSuffix(text, ".."):
		t.Errorf("%s says no sentence: %q", id, text)
	case text[:1] != strings.ToUpper(text[:1]), strings.Contains(text, "  "), strings.Contains(text, "\n"):
		t.Errorf("%s says no sentence: %q", id, text)
	case strings.Contains(text, "MUST"), strings.Contains(text, id):
		t.Errorf("%s repeats its id or the contract: %q", id, text)
	}
}

var (
	// reference is the word with one id or a list of them. The list may go on
	// over commas and "and".
	reference = regexp.MustCompile(`\bMUSTs?\s+[A-Z]+(?:_[A-Z]+)+(?:(?:,\s+|\s+and\s+|,\s+and\s+)[A-Z]+(?:_[A-Z]+)+)*`)
	idInside  = regexp.MustCompile(`[A-Z]+(?:_[A-Z]+)+`)
	// margin is what stands before the text of a line in a comment or a quote.
	margin = regexp.MustCompile(`(?m)^[ \t]*(?://+|\*|>)[ \t]?`)
)

// mentioned lists the ids that a text refers to.
func mentioned(text string) (ids []string) {
	for _, found := range reference.FindAllString(margin.ReplaceAllString(text, ""), -1) {
		ids = append(ids, idInside.FindAllString(found, -1)...)
	}
	return ids
}

// TestMentionedIdsExist reads the whole repository. A MUST that is named and not
// in force is a promise that nobody looks up.
func TestMentionedIdsExist(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	inForce := map[string]bool{}
	for _, m := range must.All() {
		inForce[m.ID] = true
	}
	here, err := filepath.Abs("must_test.go")
	if err != nil {
		t.Fatal(err)
	}
	files, references := 0, 0
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "dist") {
				return filepath.SkipDir
			}
			return nil
		}
		if path == here || !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, id := range mentioned(string(text)) {
			references++
			if !inForce[id] {
				short, _ := filepath.Rel(root, path)
				t.Errorf("%s refers to MUST %s, which is not in force", short, id)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 || references < 10 {
		t.Errorf("%d references in %d files, so the test reads too little", references, files)
	}
}

func TestMentioned(t *testing.T) {
	for text, want := range map[string][]string{
		"(MUST A_B)":                       {"A_B"},
		"MUSTs A_B and C_D_E.":             {"A_B", "C_D_E"},
		"MUSTs A_B, C_D, and E_F":          {"A_B", "C_D", "E_F"},
		"\t// works (MUST\n\t// A_B).":     {"A_B"},
		"// (MUSTs A_B and\n// C_D). E_F.": {"A_B", "C_D"},
		"> MUST\n> A_B":                    {"A_B"},
		"* MUST A_B":                       {"A_B"},
		"A_B MUST be, and must C_D":        nil,
		"MUST_IDS, MUST, A_B, MUSTA_B":     nil,
		"MUST A":                           nil,
	} {
		if got := mentioned(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v", text, got)
		}
	}
}
