package allowlist_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/runner/allowlist"
	"github.com/allodhq/allod/wire/ai"
)

// TestList compares the list with a plain one, over any order of changes.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "allod")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var want []allowlist.Entry
		servers := rapid.SampledFrom([]string{"https://a.example", "https://a.example/x", "http://127.0.0.1:1"})
		owners := rapid.SampledFrom([]ai.Owner{"a", "A", "b", "a ", "😀", "__proto__", ai.Owner(strings.Repeat("o", 1024))})
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			server, owner := servers.Draw(t, "server"), owners.Draw(t, "owner")
			at := slices.IndexFunc(want, func(e allowlist.Entry) bool { return e.Server == server && e.Owner == owner })
			switch rapid.SampledFrom([]string{"add", "remove", "leave"}).Draw(t, "step") {
			case "add":
				e := allowlist.Entry{Server: server, Owner: owner, Note: rapid.SampledFrom([]string{"", "n"}).Draw(t, "note"), AddedAt: ai.Millis(i + 1)}
				if err := allowlist.Add(dir, e); err != nil {
					t.Fatal(err)
				}
				if at < 0 {
					want = append(want, e)
				}
			case "remove":
				if err := allowlist.Remove(dir, server, owner); (at < 0) != errors.Is(err, allowlist.ErrNotListed) || at >= 0 && err != nil {
					t.Fatal(err)
				}
				if at >= 0 {
					want = slices.Delete(want, at, at+1)
				}
			case "leave":
				if err := allowlist.RemoveServer(dir, server); err != nil {
					t.Fatal(err)
				}
				want = slices.DeleteFunc(want, func(e allowlist.Entry) bool { return e.Server == server })
			}
			got, err := allowlist.Read(dir)
			if err != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("%v, %v, want %v", got, err, want)
			}
			var of []ai.Owner
			for _, e := range want {
				if e.Server == server {
					of = append(of, e.Owner)
				}
			}
			if got := allowlist.Of(got, server); !slices.Equal(got, of) {
				t.Fatalf("%v at %s, want %v", got, server, of)
			}
		}
	})
}

// TestDamaged: a list that cannot be read has nobody, and is not written over.
func TestDamaged(t *testing.T) {
	const entry = `{"server":"https://a.example","owner":"o","addedAt":1}`
	for _, content := range []string{
		``, `{}`, `null`, `[]`, `{"version":1}`, `{"version":2,"entries":[]}`, `{"version":1,"entries":[` + entry, `{"version":1,"entries":[{}]}`,
		`{"version":1,"entries":[` + entry + `,` + entry + `]}`, `{"version":1,"entries":[],"x":1}`,
		`{"version":1,"entries":[{"server":"s","owner":"","addedAt":1}]}`, `{"version":1,"entries":[{"server":"s","owner":"a\nb","addedAt":1}]}`,
		`{"version":1,"entries":[{"server":"s","owner":"o","addedAt":0}]}`, `{"version":1,"entries":[{"server":"s","owner":"o","note":"\u001b","addedAt":1}]}`,
		`{"version":1,"entries":[{"server":"s","owner":"` + strings.Repeat("o", 1025) + `","addedAt":1}]}`,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, allowlist.FileName)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for what, do := range map[string]func() error{
			"read":   func() error { list, err := allowlist.Read(dir); return errors.Join(err, none(list)) },
			"add":    func() error { return allowlist.Add(dir, allowlist.Entry{Server: "s", Owner: "o", AddedAt: 1}) },
			"remove": func() error { return allowlist.Remove(dir, "https://a.example", "o") },
			"leave":  func() error { return allowlist.RemoveServer(dir, "https://a.example") },
		} {
			if err := do(); !errors.Is(err, allowlist.ErrDamaged) {
				t.Errorf("%s %q: %v", what, content, err)
			}
		}
		if left, _ := os.ReadFile(path); string(left) != content {
			t.Errorf("%q was written over: %q", content, left)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, allowlist.FileName), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := allowlist.Read(dir); !errors.Is(err, datadir.ErrRead) {
		t.Error(err)
	}
}

func none(list []allowlist.Entry) error {
	if list != nil {
		return fmt.Errorf("%d people of a damaged list", len(list))
	}
	return nil
}

// TestEntries: what no list can have is refused before it is written.
func TestEntries(t *testing.T) {
	dir := t.TempDir()
	for _, e := range []allowlist.Entry{
		{Server: "s", AddedAt: 1}, {Server: "s", Owner: "a\x1b[2J", AddedAt: 1}, {Server: "s", Owner: "a\ufffd", AddedAt: 1}, {Server: "s", Owner: "a\u0085", AddedAt: 1},
		{Server: "s", Owner: ai.Owner(strings.Repeat("o", 1025)), AddedAt: 1}, {Server: "s", Owner: "o", Note: strings.Repeat("n", 201), AddedAt: 1},
		{Server: "s", Owner: "o", Note: "a\nb", AddedAt: 1}, {Owner: "o", AddedAt: 1}, {Server: "s", Owner: "o"},
	} {
		if err := allowlist.Add(dir, e); !errors.Is(err, allowlist.ErrEntry) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, allowlist.FileName)); err == nil {
		t.Error("a file was made")
	}
}

// TestFull: the list ends where its file can still be read.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString(`{"version":1,"entries":[`)
	for i := range allowlist.MaxEntries {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"server":"https://a.example","owner":"%04d%s","note":"%s","addedAt":1}`, i, strings.Repeat("o", 1020), strings.Repeat("n", 200))
	}
	b.WriteString(`]}`)
	if err := os.WriteFile(filepath.Join(dir, allowlist.FileName), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := allowlist.Read(dir); err != nil || len(list) != allowlist.MaxEntries {
		t.Fatalf("%d, %v", len(list), err)
	}
	if err := allowlist.Add(dir, allowlist.Entry{Server: "s", Owner: "o", AddedAt: 1}); !errors.Is(err, allowlist.ErrFull) {
		t.Error(err)
	}
	if err := allowlist.Remove(dir, "https://a.example", ai.Owner("0007"+strings.Repeat("o", 1020))); err != nil {
		t.Error(err)
	}
	if err := allowlist.Add(dir, allowlist.Entry{Server: "s", Owner: "o", AddedAt: 1}); err != nil {
		t.Error(err)
	}
}
