package backend

import (
	"testing"

	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// TestRows holds that every backend of the class http has its row, and that the
// rows that share an address can tell themselves apart.
func TestRows(t *testing.T) {
	known, sharing := map[wirebackend.ID]bool{}, map[string][]wirebackend.ID{}
	for _, id := range wirebackend.IDs() {
		d, _ := wirebackend.Find(id)
		if _, ok := rows[id]; ok != (d.Class == wirebackend.HTTP) {
			t.Errorf("%s has a row: %v", id, ok)
		}
		known[id] = true
		if d.DefaultBaseURL != "" {
			sharing[d.DefaultBaseURL] = append(sharing[d.DefaultBaseURL], id)
		}
	}
	for id, r := range rows {
		if !known[id] {
			t.Errorf("the row %s is in no table", id)
		}
		if len(r.listHeader)%2 != 0 || r.tokens != "" && r.tokens != maxCompletionTokens {
			t.Errorf("the row %s is malformed", id)
		}
	}
	for base, ids := range sharing {
		for _, id := range ids {
			if shared := len(ids) > 1; shared != (rows[id].says != nil) {
				t.Errorf("%s at %s, shared %v", id, base, shared)
			}
		}
	}
	if len(sharing["http://127.0.0.1:8080/v1"]) != 3 {
		t.Error("nothing is shared, so this test proves nothing")
	}
}

// TestTested names the rows that test/realmodel runs.
func TestTested(t *testing.T) {
	for _, id := range append(wirebackend.IDs(), "", "unknown") {
		if want := id == "ollama"; Tested(id) != want {
			t.Errorf("%s: %v", id, !want)
		}
	}
}

func TestHasModel(t *testing.T) {
	listed := []string{"llama3.2:latest", "Qwen2.5:7b", "gpt-x", ":latest"}
	for wanted, want := range map[string]bool{
		"llama3.2": true, "llama3.2:latest": true, "LLAMA3.2:LATEST": true, "qwen2.5:7B": true, "gpt-x": true, "GPT-X:latest": true, ":latest": true,
		"llama3": false, "llama3.2:8b": false, "qwen2.5": false, "qwen2.5:latest": false, "gpt-x:7b": false, "": false, "latest": false, "llama3.2:latest:latest": false,
	} {
		if got := HasModel(listed, wanted); got != want {
			t.Errorf("%q: %v", wanted, got)
		}
	}
	if HasModel(nil, "a") {
		t.Error("an empty list has a model")
	}
}
