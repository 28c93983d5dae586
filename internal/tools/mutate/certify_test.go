package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/certify"
)

// TestEveryCheckHasAMutation holds that each check of package certify is seen to turn
// red.
func TestEveryCheckHasAMutation(t *testing.T) {
	const file = "test/mutations-certify.md"
	if !slices.Contains(lists, file) {
		t.Fatalf("%s is not read", file)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	proofs, problems := parse(file, string(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	const test = "TestCertify/"
	red := map[string]bool{}
	for _, p := range proofs {
		for _, m := range p.mutations {
			if id, ok := strings.CutPrefix(m.target.pattern, test); ok && m.target.pkg == "./certify" {
				red[id] = true
				about := slices.IndexFunc(certify.Checks(), func(c certify.Check) bool { return c.ID == id })
				if about < 0 || !slices.Contains(certify.Checks()[about].Musts, p.id) {
					t.Errorf("%s: %s is seen by %s, which is not about it", m.where(), m.name(), id)
				}
			}
		}
	}
	for _, c := range certify.Checks() {
		if !red[c.ID] {
			t.Errorf("no change turns %s red", c.ID)
		}
	}
}
