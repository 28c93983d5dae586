package backend_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// TestIsLocalHost has both sides of each border. A host that is wrongly local
// costs its owner money that the owner did not agree to.
func TestIsLocalHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "a.localhost": true, "a.b.LOCALHOST": true, "[localhost]": true, ".localhost": true,
		"localhost.": false, "localhost.example": false, "a.localhost.example": false, "notlocalhost": false, "local": false, "localhos": false, "localhost ": false,
		"localhost:80": false, "localhost/": false, "a@localhost": false, "localhost.localdomain": false, "locаlhost": false, // a Cyrillic letter

		"127.0.0.0": true, "127.0.0.1": true, "127.255.255.255": true, "126.255.255.255": false, "128.0.0.0": false,
		"10.0.0.0": true, "10.255.255.255": true, "9.255.255.255": false, "11.0.0.0": false,
		"172.16.0.0": true, "172.31.255.255": true, "172.15.255.255": false, "172.32.0.0": false,
		"192.168.0.0": true, "192.168.255.255": true, "192.167.255.255": false, "192.169.0.0": false,
		"0.0.0.0": false, "169.254.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"1.1.1.1": false, "192.0.2.1": false, "198.18.0.1": false,
		// Other spellings of an address. A URL parser writes them out first.
		"127.1": false, "127.0.1": false, "2130706433": false, "0x7f.0.0.1": false, "0177.0.0.1": false, "127.0.0.01": false,
		"127.0.0.1.": false, " 127.0.0.1": false, "127.0.0.1:80": false, "[127.0.0.1]": true, "127.0.0.256": false, "127.0.0.1.1": false, "١٢٧.0.0.1": false,
		// A name that begins like an address.
		"127.0.0.1.example": false, "10.example": false, "192.168.0.1.nip.io": false,

		"::1": true, "[::1]": true, "[::1": true, "::1]": true, "::": false, "[::]": false, "::2": false, "::1:0": false, "1::1": false,
		"0:0:0:0:0:0:0:1": false, "::0001": false, "::0:1": false, "[[::1]]": false,
		"fc00::1": true, "FD12::1": true, "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": true, "[fd00::1]": true, "fc::1": true, "fd::": true,
		"fe80::1": false, "fb00::1": false, "fe00::1": false, "ff02::1": false, "2001:db8::1": false, "64:ff9b::7f00:1": false,
		"fc00": false, "fd": false, "fc00::": true, "fcdn.example": false, "fd.example": false, "fc00::1.example": false,
		"::ffff:127.0.0.1": false, "::ffff:7f00:1": false, "[::ffff:10.0.0.1]": false, "::127.0.0.1": false,
		"::1%lo": false, "fe80::1%eth0": false,
		"": false, "[]": false, "[": false, ".": false, "example": false, "host.docker.internal": false, "\x00": false, "\xff": false,
	} {
		if got := backend.IsLocalHost(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// TestLocalAddressesAgree compares with the tables of net/netip, for addresses
// as a URL parser writes them. The contract looks at the text of an IPv6
// address, so a short first group such as fc or fd7 is local too.
func TestLocalAddressesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var addr netip.Addr
		if rapid.Bool().Draw(t, "IPv4") {
			b := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "bytes"))
			if rapid.Bool().Draw(t, "near") {
				b[0] = rapid.SampledFrom([]byte{9, 10, 126, 127, 128, 172, 192}).Draw(t, "first")
				b[1] = rapid.SampledFrom([]byte{0, 15, 16, 31, 32, 167, 168, 169, 255}).Draw(t, "second")
			}
			addr = netip.AddrFrom4(b)
		} else {
			b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
			if rapid.Bool().Draw(t, "near") {
				b[0] = rapid.SampledFrom([]byte{0x00, 0x0f, 0xfb, 0xfc, 0xfd, 0xfe}).Draw(t, "first")
				b[1] = rapid.SampledFrom([]byte{0x0f, 0xb0, 0xbf, 0xc0, 0xd0, 0xdf, 0xe0, 0xfb, 0xfc, 0xfd, 0xfe}).Draw(t, "second")
			}
			addr = netip.AddrFrom16(b)
		}
		if addr.Is4In6() {
			return // never local, which the table above holds
		}
		host := addr.String()
		if addr.Is6() {
			host = "[" + host + "]"
		}
		want := addr.IsLoopback() || addr.IsPrivate()
		if b := addr.As16(); addr.Is6() {
			group := int(b[0])<<8 | int(b[1])
			want = want || group == 0xfc || group == 0xfd || group>>4 == 0xfc || group>>4 == 0xfd
		}
		if got := backend.IsLocalHost(host); got != want {
			t.Fatalf("%s: %v", host, got)
		}
		u, err := weburl.Parse("http://" + host + ":8080/v1")
		if err != nil || backend.IsLocalHost(u.Host()) != want {
			t.Fatalf("%s in a URL: %v, %v", host, u, err)
		}
	})
}

func TestCostOf(t *testing.T) {
	urls := []string{"", "http://127.0.0.1:8080/v1", "https://api.example/v1", "no URL"}
	costs := map[backend.ID]backend.Cost{"claude-cli": backend.Subscription, "codex-cli": backend.Subscription}
	for _, id := range []backend.ID{"ollama", "mlx", "llamacpp", "vllm", "lmstudio", "jan", "localai"} {
		costs[id] = backend.Free
	}
	for _, id := range []backend.ID{"anthropic", "openai", "gemini", "grok", "groq", "openrouter", "together", "deepseek", "mistral"} {
		costs[id] = backend.Metered
	}
	for _, id := range backend.IDs() {
		if id == backend.Generic {
			continue
		}
		for _, u := range urls { // no address changes what the table says
			if cost, err := backend.CostOf(id, u, ""); err != nil || cost != costs[id] || cost == "" {
				t.Errorf("%s at %q: %s, %v", id, u, cost, err)
			}
		}
		delete(costs, id)
	}
	if len(costs) > 0 {
		t.Errorf("not in the table: %v", costs)
	}
	for u, want := range map[string]backend.Cost{
		"http://127.0.0.1:8080/v1": "free", "https://localhost": "free", "http://a.localhost/": "free", "http://[::1]:1/": "free",
		"http://192.168.1.2/": "free", "http://127.1": "free", "http://0x7f000001/": "free", "http://0177.0.0.1": "free", "http://[0:0::0:1]": "free",
		"HTTP://LOCALHOST": "free", "http://user:pass@localhost/": "free", "  http://localhost  ": "free", "http:\\\\localhost": "free",
		"http://[fd00::1]/": "free", "ws://localhost": "free",
		"": "metered", "no URL": "metered", "localhost": "metered", "localhost:8080": "metered", "//localhost/": "metered", "http://": "metered",
		"https://api.example": "metered", "http://localhost.": "metered", "http://localhost.example/": "metered",
		"http://localhost@api.example/": "metered", "http://api.example/localhost": "metered", "http://api.example#localhost": "metered",
		"http://api.example?@localhost": "metered", "http://api.example\\@localhost": "metered",
		"http://[::ffff:127.0.0.1]/": "metered", "http://0.0.0.0/": "metered", "http://169.254.169.254/": "metered", "http://[::]": "metered",
		"http://127.0.0.1.nip.io/": "metered", "http://256.0.0.1/": "metered", "file:///v1": "metered", "data:,localhost": "metered",
		"http://localhost:99999/": "metered", "http://[::1%25lo]/": "metered",
	} {
		if cost, err := backend.CostOf(backend.Generic, u, ""); err != nil || cost != want {
			t.Errorf("%q: %s, %v", u, cost, err)
		}
	}
	for _, id := range []backend.ID{"", "Ollama", "ollama ", " ollama", "gemini-cli", "openai-http\x00"} {
		if cost, err := backend.CostOf(id, "http://localhost", ""); !errors.Is(err, backend.ErrUnknown) || cost != "" {
			t.Errorf("%q: %s, %v", id, cost, err)
		}
		if d, ok := backend.Find(id); ok || d != (backend.Descriptor{}) {
			t.Errorf("%q is found: %v", id, d)
		}
	}
}

func TestTable(t *testing.T) {
	seen := map[backend.ID]bool{}
	for _, id := range backend.IDs() {
		d, ok := backend.Find(id)
		if !ok || d.ID != id || seen[id] {
			t.Errorf("%s is found as %v, %v", id, d, ok)
		}
		seen[id] = true
		if !slices.Contains(backend.Classes(), d.Class) || d.Cost != "" && !slices.Contains(backend.Costs(), d.Cost) {
			t.Errorf("%s has the class %q and the cost %q", id, d.Class, d.Cost)
		}
		if (d.Cost == "") != (id == backend.Generic) || (d.Class == backend.Process) != (d.Cost == backend.Subscription) {
			t.Errorf("%s has the class %q and the cost %q", id, d.Class, d.Cost)
		}
		if d.Class == backend.Process || id == backend.Generic {
			if d.DefaultBaseURL != "" {
				t.Errorf("%s has the address %s", id, d.DefaultBaseURL)
			}
			continue
		}
		u, err := weburl.ParseWeb(d.DefaultBaseURL)
		if err != nil || u.String() != d.DefaultBaseURL || strings.HasSuffix(d.DefaultBaseURL, "/") {
			t.Errorf("%s has the address %s: %v", id, d.DefaultBaseURL, err)
			continue
		}
		// What costs nothing is on this machine, and what costs is reached in
		// secret.
		if backend.IsLocalHost(u.Host()) != (d.Cost == backend.Free) || (u.Scheme() == "https") != (d.Cost == backend.Metered) {
			t.Errorf("%s costs %s at %s", id, d.Cost, d.DefaultBaseURL)
		}
	}
	backend.IDs()[0] = "changed" // by a caller
	if backend.IDs()[0] == "changed" {
		t.Error("a caller can change the table")
	}
}

// TestRunsElsewhere holds which names of models hand the work on, and that such a
// model is never free.
func TestRunsElsewhere(t *testing.T) {
	for model, want := range map[string]bool{
		"": false, "m": false, "cloud": false, "m:26b": false, "m:cloud": true, "m:20b-cloud": true, "m:notcloud": true, ":cloud": true,
		"m:a:cloud": true, "m:cloud:a": false, "m:cloud:": false, "m:CLOUD": false, "m:cloud ": false, "m:cloudy": false, "cloud:m": false,
		"m:\u0441loud": false, "m:\xffcloud": true, "m:\ncloud": true, "m:cloud\n": false,
	} {
		if got := backend.RunsElsewhere(model); got != want {
			t.Errorf("%q: %v", model, got)
		}
		for _, id := range backend.IDs() {
			d, _ := backend.Find(id)
			cost := d.Cost
			if cost == "" { // at an address of this machine
				cost = backend.Free
			}
			if want && cost == backend.Free {
				cost = backend.Metered
			}
			if got, err := backend.CostOf(id, "http://localhost", model); err != nil || got != cost {
				t.Errorf("%s with %q: %s, %v", id, model, got, err)
			}
		}
	}
}

// TestTableIsTheContracts compares with the recorded table.
func TestTableIsTheContracts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "testdata", "v2", "limits.json"))
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
	rows := 0
	for _, c := range recorded.Cases {
		id, ok := strings.CutPrefix(c.Name, "backend ")
		if !ok {
			continue
		}
		var want struct {
			ID             backend.ID
			Class          backend.Class
			Cost           *backend.Cost
			DefaultBaseURL string
		}
		if err := json.Unmarshal(c.Value, &want); err != nil {
			t.Fatal(err)
		}
		if want.ID == "" {
			continue // recorded as none of the table
		}
		rows++
		got, ok := backend.Find(backend.ID(id))
		if want.Cost == nil {
			want.Cost = new(backend.Cost)
		}
		if !ok || got != (backend.Descriptor{ID: want.ID, Class: want.Class, Cost: *want.Cost, DefaultBaseURL: want.DefaultBaseURL}) {
			t.Errorf("%s is %+v, recorded as %s", id, got, c.Value)
		}
	}
	if rows != len(backend.IDs()) {
		t.Errorf("%d rows are recorded, and the table has %d", rows, len(backend.IDs()))
	}
}

// FuzzCostOf judges any address.
func FuzzCostOf(f *testing.F) {
	for _, u := range []string{"http://127.1", "http://[fd00::1]", "http://a.localhost:1/", "http://0x7f.1", "foo://１２７.0.0.1", ""} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cost, err := backend.CostOf(backend.Generic, text, "")
		if err != nil || cost != backend.Free && cost != backend.Metered {
			t.Fatalf("%q costs %s, %v", text, cost, err)
		}
		u, err := weburl.Parse(text)
		if err != nil {
			if cost != backend.Metered {
				t.Fatalf("%q is no URL and free", text)
			}
			return
		}
		// The text and its normal form cost the same, so that judging one and
		// dialling the other is no way around the bill.
		if again, err := backend.CostOf(backend.Generic, u.String(), ""); err != nil || again != cost {
			t.Fatalf("%q costs %s and %q costs %s, %v", text, cost, u, again, err)
		}
	})
}

// TestKinds holds the names, statuses and order of the refusals. Programs and
// documents name them.
func TestKinds(t *testing.T) {
	want := []string{"backend-unknown 400"}
	var got []string
	for _, k := range backend.Kinds.Kinds {
		got = append(got, fmt.Sprint(k.Name(), " ", k.Status()))
	}
	if !slices.Equal(got, want) || backend.Kinds.Title != "Backends" {
		t.Errorf("%q: %q", backend.Kinds.Title, got)
	}
}
