package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/allodhq/allod/wire/zone"
)

// exactly holds that a codec takes a golden text, writes it again byte for byte, and
// refuses it with a member less, a member more, a name in capitals, and a member of
// another type, each with a reason that names the place (F04).
func exactly[T any](t *testing.T, what string, c zone.Codec[T], golden string) {
	t.Helper()
	v, err := c.Read([]byte(golden))
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if again, err := c.Append(nil, v); err != nil || string(again) != golden {
		t.Errorf("%s: written again as %s, %v", what, again, err)
	}
	if reasons := c.Reasons([]byte(golden), ""); len(reasons) != 0 {
		t.Errorf("%s: %q", what, reasons)
	}
	var tree any
	if err := json.Unmarshal([]byte(golden), &tree); err != nil {
		t.Fatal(err)
	}
	tried := 0
	refused := func(how, path, words string) {
		t.Helper()
		src, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		tried++
		if _, err := c.Read(src); err == nil {
			t.Errorf("%s: taken with %s at %s: %s", what, how, path, src)
		}
		if reasons := c.Reasons(src, ""); !slices.ContainsFunc(reasons, func(r string) bool { return strings.HasPrefix(r, path+" "+words) }) {
			t.Errorf("%s: %s at %s gives %q", what, how, path, reasons)
		}
	}
	const schema = "must use its exact schema"
	var walk func(path string, at any)
	walk = func(path string, at any) {
		switch at := at.(type) {
		case []any:
			for i := range at {
				walk(fmt.Sprintf("%s[%d]", path, i), at[i])
			}
		case map[string]any:
			at["phase2"] = 1
			refused("a member more", path, schema)
			delete(at, "phase2")
			for _, name := range slices.Sorted(maps.Keys(at)) {
				old := at[name]
				delete(at, name)
				refused("a member less", path, schema)
				at[strings.ToUpper(name[:1])+name[1:]] = old
				refused("a name in capitals", path, schema)
				delete(at, strings.ToUpper(name[:1])+name[1:])
				at[name] = []any{[]any{}}
				if _, list := old.([]any); list {
					refused("another type", path+"."+name+"[0]", "must be")
				} else {
					refused("another type", path+"."+name, "must be")
				}
				at[name] = old
				walk(path+"."+name, old)
			}
		}
	}
	walk("value", tree)
	if tried < 4 {
		t.Errorf("%s: nothing was tried", what)
	}
}
