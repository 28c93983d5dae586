package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// everything is a section with every member, each unlike its default.
func everything() siteConfig {
	return siteConfig{
		Data: "d", Listen: "[::1]:80", Origin: "http://a.example/x", Owner: "o", KeyFiles: []string{"k1", "k2"}, Lease: "1s", TTL: "2s", PairTTL: "3s", Liveness: "4s",
		Quota: exact.Some[int64](5), Limits: "off", TrustedProxies: []string{"10.0.0.0/8"},
		Webhooks:       []webhookConfig{{"http://10.1.2.3/in", "secret", []ai.Owner{"alice"}, []ai.State{ai.StateOK, ai.StateExpired}}},
		WebhookPrivate: []string{"10.0.0.0/8"},
		Gateway: &gatewayConfig{
			Labels: map[string]gateway.Label{"l": {Kind: ai.KindChat, Audience: ai.AudienceNamed}}, Drop: []string{"stop"}, Wait: "2m", Grace: "3s",
		},
	}
}

// fileOnly are the members that have no flag.
var fileOnly = []string{"gateway", "webhooks", "webhookPrivate"}

// ownerless is everything that can stand together: a fixed owner keeps others out.
func ownerless() siteConfig {
	c := everything()
	c.Owner = ""
	return c
}

// members are a section's members as JSON.
func members(t testing.TB, c siteConfig) map[string]string {
	t.Helper()
	text, err := siteShape.Append(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, value := range raw {
		all[name] = string(value)
	}
	return all
}

// TestSettingsAreComplete holds that each setting can be given as a flag and in
// a file, and stands in the documentation with its default.
func TestSettingsAreComplete(t *testing.T) {
	var names, flags, wantFlags []string
	for name := range members(t, everything()) {
		names = append(names, name)
	}
	for i := range reflect.TypeFor[siteConfig]().NumField() {
		if reflect.ValueOf(everything()).Field(i).IsZero() {
			t.Errorf("the field %d is missing in the test", i)
		}
	}
	newSiteServe(Env{}).Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	wantFlags = []string{"config"}
	docs, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	setup, _ := siteConfig{Data: "d"}.setup(places{})
	defaults := members(t, setup.siteConfig)
	for _, s := range siteSettings {
		wantFlags = append(wantFlags, s.flag)
		if i := slices.Index(names, s.member); i >= 0 {
			names = slices.Delete(names, i, i+1)
		} else {
			t.Errorf("%s is no member", s.member)
		}
		row := ""
		for line := range strings.Lines(string(docs)) {
			if strings.HasPrefix(line, fmt.Sprintf("| `%s` | `--%s` |", s.member, s.flag)) {
				row = line
			}
		}
		initial := strings.Trim(defaults[s.member], `"`)
		switch s.member {
		case "data":
			initial = "| |"
		case "origin":
			initial = "the address it listens on"
		case "owner":
			initial = "nobody"
		case "keyFiles":
			initial = "`site-keys.json` in `data`"
		case "trustedProxies":
			initial = "none"
		default:
			initial = "`" + initial + "` |"
		}
		if !strings.Contains(row, initial) {
			t.Errorf("docs/configuration.md does not say of %s that its default is %s: %q", s.member, initial, row)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		if slices.Contains(fileOnly, name) && !strings.Contains(string(docs), "\n| `"+name+"` | |") {
			t.Errorf("docs/configuration.md does not list %s", name)
		}
		return slices.Contains(fileOnly, name)
	})
	slices.Sort(flags)
	slices.Sort(wantFlags)
	if len(names) > 0 || !slices.Equal(flags, wantFlags) {
		t.Errorf("in a file only: %q; flags %q, want %q", names, flags, wantFlags)
	}
}

func TestOverlay(t *testing.T) {
	file := everything()
	flags := siteConfig{
		Data: "D", Listen: ":1", Origin: "http://b.example", Owner: "O", KeyFiles: []string{"K"}, Lease: "5s", TTL: "6s", PairTTL: "7s", Liveness: "8s",
		Quota: exact.Some[int64](9), Limits: "on", TrustedProxies: []string{"::/0"},
	}
	for _, s := range siteSettings {
		got, at := overlay(flags, func(flag string) bool { return flag == s.flag }, &file)
		want := members(t, file)
		want[s.member] = members(t, flags)[s.member]
		if have := members(t, got); !reflect.DeepEqual(have, want) {
			t.Errorf("with --%s: %v, want %v", s.flag, have, want)
		}
		for _, other := range siteSettings {
			place := "site." + other.member
			if other.flag == s.flag {
				place = "--" + other.flag
			}
			if at[other.member] != place {
				t.Errorf("with --%s: %s stands at %s", s.flag, other.member, at[other.member])
			}
		}
	}
	got, at := overlay(flags, func(string) bool { return false }, nil)
	if !reflect.DeepEqual(got, flags) || at["pairTtl"] != "--pair-ttl" {
		t.Errorf("without a file: %+v, %v", got, at)
	}
	if !reflect.DeepEqual(file, everything()) {
		t.Errorf("the file's values became %+v", file)
	}
}

// inFile and asFlags are the places of a file that has everything, and of a
// command line.
func inFile() places {
	_, at := overlay(siteConfig{}, func(string) bool { return false }, &siteConfig{})
	return at
}

func asFlags() places {
	_, at := overlay(siteConfig{}, nil, nil)
	return at
}

func TestSetup(t *testing.T) {
	s, problems := ownerless().setup(inFile())
	c := s.config
	if len(problems) > 0 || c.Lease != time.Second || c.TTL != 2*time.Second || c.PairTTL != 3*time.Second || c.Liveness != 4*time.Second || c.Quota != 5 ||
		!c.NoLimits || fmt.Sprint(c.TrustedProxies) != "[10.0.0.0/8]" || s.ownKeys || !reflect.DeepEqual(s.siteConfig, ownerless()) {
		t.Errorf("%+v, %+v", s, problems)
	}
	s, problems = siteConfig{Data: "d"}.setup(inFile())
	c = s.config
	if len(problems) > 0 || c.Lease != time.Minute || c.TTL != 15*time.Minute || c.PairTTL != 10*time.Minute || c.Liveness != 35*time.Second || c.Quota != 0 ||
		c.NoLimits || len(c.TrustedProxies) != 0 || !s.ownKeys || !slices.Equal(s.KeyFiles, []string{filepath.Join("d", siteKeys)}) || s.Origin != "" {
		t.Errorf("%+v, %+v", s, problems)
	}

	const span, host, ranges = "a time from 1ms to 8760h, as in 90s or 1h30m", "an address and a port from 0 to 65535, as in 127.0.0.1:8080", "a range of addresses, as in 10.0.0.0/8"
	change := func(f func(c *siteConfig)) siteConfig {
		c := ownerless()
		f(&c)
		return c
	}
	many := func(n int, text string) []string { return slices.Repeat([]string{text}, n) }
	for _, c := range []struct {
		config           siteConfig
		file, flag, need string
	}{
		{change(func(c *siteConfig) { c.Data = "" }), "site.data", "--data", "given: the folder that the site keeps its data in"},
		{change(func(c *siteConfig) { c.Listen = "canary" }), "site.listen", "--listen", host},
		{change(func(c *siteConfig) { c.Lease = "canary" }), "site.lease", "--lease", span},
		{change(func(c *siteConfig) { c.Lease = "60" }), "site.lease", "--lease", span},
		{change(func(c *siteConfig) { c.TTL = "0s" }), "site.ttl", "--ttl", span},
		{change(func(c *siteConfig) { c.TTL = "-1s" }), "site.ttl", "--ttl", span},
		{change(func(c *siteConfig) { c.PairTTL = "999us" }), "site.pairTtl", "--pair-ttl", span},
		{change(func(c *siteConfig) { c.Liveness = "8760h0m1s" }), "site.liveness", "--liveness", span},
		{change(func(c *siteConfig) { c.Liveness = "9999999h" }), "site.liveness", "--liveness", span},
		{change(func(c *siteConfig) { c.Quota.V = -1 }), "site.quota", "--quota", "a whole number from 0 to 1000000000"},
		{change(func(c *siteConfig) { c.Quota.V = 1e9 + 1 }), "site.quota", "--quota", "a whole number from 0 to 1000000000"},
		{change(func(c *siteConfig) { c.Limits = "On" }), "site.limits", "--limits", "on or off"},
		{change(func(c *siteConfig) { c.KeyFiles = many(17, "k") }), "site.keyFiles", "--key-file", "at most 16 files"},
		{change(func(c *siteConfig) { c.TrustedProxies = many(65, "::/0") }), "site.trustedProxies", "--trusted-proxy", "at most 64 ranges of addresses"},
		{change(func(c *siteConfig) { c.TrustedProxies = []string{"::/0", "10.0.0.1"} }), "site.trustedProxies[1]", "--trusted-proxy", ranges},
		{change(func(c *siteConfig) { c.TrustedProxies = []string{"::ffff:10.0.0.0/104"} }), "site.trustedProxies[0]", "--trusted-proxy", ranges},
		{change(func(c *siteConfig) { c.Origin = "https://canary:pass@a.example" }), "site.origin", "--origin", "a URL without a user name, a ? and a #"},
	} {
		for at, places := range map[string]places{c.file: inFile(), c.flag: asFlags()} {
			_, problems := c.config.setup(places)
			kind := configfile.ErrMember
			if strings.HasPrefix(at, "--") {
				kind = ErrUsage
			}
			if len(problems) != 1 || problems[0].at != at || problems[0].refusal().Kind() != kind || problems[0].refusal().Detail() != at+": must be "+c.need+"." {
				t.Errorf("%s: %+v", at, problems)
			}
		}
	}
	// At the bounds.
	fine := ownerless()
	fine.Lease, fine.TTL, fine.Quota.V, fine.KeyFiles, fine.TrustedProxies = "1ms", "8760h", 1e9, many(16, "k"), many(64, "::/0")
	if s, problems := fine.setup(inFile()); len(problems) > 0 || len(s.config.TrustedProxies) != 64 || s.config.Lease != time.Millisecond {
		t.Errorf("at the bounds: %+v", problems)
	}
	// What another package refuses keeps its name.
	for text, want := range map[string]string{"a.example": "url-invalid", "javascript:canary": "url-not-web"} {
		_, problems := siteConfig{Data: "d", Origin: text}.setup(inFile())
		if len(problems) != 1 || problems[0].refusal().Kind().Name() != want || problems[0].refusal().Detail() != "See site.origin." {
			t.Errorf("%s: %+v", text, problems)
		}
	}
	// Each mistake has its own line.
	if _, problems := (siteConfig{Listen: "x", Origin: "x", Lease: "x", TTL: "x", PairTTL: "x", Liveness: "x", Limits: "x", TrustedProxies: []string{"x", "x"}}).setup(inFile()); len(problems) != 10 {
		t.Errorf("%d problems: %+v", len(problems), problems)
	}
}

// TestOwnerIsForLoopback: a fixed owner stands only where nobody else reaches the
// site, and is refused by its name elsewhere.
func TestOwnerIsForLoopback(t *testing.T) {
	const reach = "owner-reach"
	for _, c := range []struct {
		config siteConfig
		want   string // a refusal's name, or empty
	}{
		{siteConfig{Owner: "alice"}, ""},
		{siteConfig{Owner: "alice", Listen: "127.0.0.1:8080"}, ""},
		{siteConfig{Owner: "alice", Listen: "127.9.9.9:8080"}, ""},
		{siteConfig{Owner: "alice", Listen: "[::1]:8080"}, ""},
		{siteConfig{Owner: "alice", Listen: "[::ffff:127.0.0.1]:8080"}, ""},
		{siteConfig{Owner: "alice", Origin: "http://127.0.0.1:8080"}, ""},
		{siteConfig{Owner: "alice", Origin: "http://localhost:8080/x"}, ""},
		{siteConfig{Owner: "alice", Origin: "http://[::1]"}, ""},
		{siteConfig{Owner: strings.Repeat("é", 256)}, ""},
		{siteConfig{Owner: "alice", Listen: ":8080"}, reach},
		{siteConfig{Owner: "alice", Listen: "0.0.0.0:8080"}, reach},
		{siteConfig{Owner: "alice", Listen: "[::]:8080"}, reach},
		{siteConfig{Owner: "alice", Listen: "192.168.1.5:8080"}, reach},
		{siteConfig{Owner: "alice", Listen: "localhost:8080"}, reach},
		{siteConfig{Owner: "alice", Listen: "localhost:0"}, reach},
		{siteConfig{Owner: "alice", Listen: "box.example:8080"}, reach},
		{siteConfig{Owner: "alice", Origin: "https://app.example"}, reach},
		{siteConfig{Owner: "alice", Origin: "http://localhost.app.example"}, reach},
		{siteConfig{Owner: "alice", Origin: "http://127.0.0.1.app.example"}, reach},
		{siteConfig{Owner: "alice", TrustedProxies: []string{"127.0.0.1/32"}}, reach},
		{siteConfig{Owner: strings.Repeat("é", 257)}, "config-member"},
		{siteConfig{Owner: "a\nb"}, "config-member"},
		{siteConfig{Owner: "a\xff"}, "config-member"},
		{siteConfig{Owner: "alice", Listen: "canary"}, "config-member"},
	} {
		c.config.Data = "d"
		_, problems := c.config.setup(inFile())
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("%+v: %+v", c.config, problems)
		case c.want == "":
		case len(problems) != 1 || problems[0].refusal().Kind().Name() != c.want:
			t.Errorf("%+v: %+v, want %s", c.config, problems, c.want)
		case c.want == reach && !strings.HasSuffix(problems[0].refusal().Detail(), " See site.owner."):
			t.Errorf("%+v: it does not say where: %s", c.config, problems[0].refusal().Detail())
		case strings.Contains(problems[0].refusal().Detail(), "a number is needed, such as 127.0.0.1") != slices.Contains([]string{"localhost:8080", "localhost:0", "box.example:8080"}, c.config.Listen):
			t.Errorf("%+v: %s", c.config, problems[0].refusal().Detail())
		}
	}
}

func TestListens(t *testing.T) {
	for _, good := range []string{
		"127.0.0.1:0", ":80", "[::1]:65535", "[fe80::1%eth0]:1", "localhost:80", "a-b.example:80", "a_b.example.:80", "1.a:1", "4a:1", "[localhost]:1", "0.0.0.0:1",
	} {
		if !listens(good) {
			t.Errorf("%s is refused", good)
		}
	}
	for _, bad := range []string{
		"", "x", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1:http", "256.0.0.1:0", "1.2.3:0", "::1:80", "[::1]", "[::g]:1", "a b:1",
		"a..b:1", ".a:1", "http://a:1", "a/b:1", "a.1:1", "ä:1", "a\n:1", strings.Repeat("a.", 127) + "b:1", "127.0.0.1:080:1", "a@b:1",
	} {
		if listens(bad) {
			t.Errorf("%s is taken", bad)
		}
	}
}

func TestOrigins(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.example": "https://a.example", "HTTP://A.Example:80/": "http://a.example", " http://a.example/x/\n": "http://a.example/x",
		"http://a.example/@": "http://a.example/@", "http://127.1:8080": "http://127.0.0.1:8080", "http://a.example/" + strings.Repeat("x", 2026): "http://a.example/" + strings.Repeat("x", 2026),
	} {
		if got, p := readOrigin("o", text); p != nil || got != want {
			t.Errorf("%s: %s, %+v", text, got, p)
		}
	}
	for _, text := range []string{
		"", "a.example", "javascript:a", "ftp://a.example", "https://u@a.example", "https://u:p@a.example/", "https://:p@a.example", "https://a.example/?", "https://a.example?x", "https://a.example/#",
		"https://a.example#x", "http://a.example/" + strings.Repeat("x", 2027), "http://a.example/" + strings.Repeat("x", 3000),
	} {
		if got, p := readOrigin("o", text); p == nil || got != "" || strings.Contains(p.line(), "a.example") {
			t.Errorf("%s: %s, %+v", text, got, p)
		}
	}
}

// TestMeaningIsStable holds that what a file means, written as a file, means the
// same.
func TestMeaningIsStable(t *testing.T) {
	maybe := func(texts ...string) *rapid.Generator[string] { return rapid.SampledFrom(append(texts, "")) }
	rapid.Check(t, func(t *rapid.T) {
		c := siteConfig{
			Data: rapid.SampledFrom([]string{"d", "/d", "./d/../e"}).Draw(t, "data"), Listen: maybe(":1", "localhost:0").Draw(t, "listen"),
			Origin: maybe("http://A.example/", "https:a.example/b", "http://1").Draw(t, "origin"), Lease: maybe("60s", "1.5h").Draw(t, "lease"),
			TTL: maybe("1ms").Draw(t, "ttl"), Limits: maybe("on", "off").Draw(t, "limits"),
			KeyFiles:       rapid.SliceOfN(rapid.SampledFrom([]string{"k", "/k", "ä \u202e"}), 0, 3).Draw(t, "keys"),
			TrustedProxies: rapid.SliceOfN(rapid.SampledFrom([]string{"10.1.0.0/8", "::/0"}), 0, 3).Draw(t, "proxies"),
		}
		if rapid.Bool().Draw(t, "has quota") {
			c.Quota = exact.Some(rapid.Int64Range(0, 1e9).Draw(t, "quota"))
		}
		if rapid.Bool().Draw(t, "has webhooks") {
			c.Webhooks, c.WebhookPrivate = everything().Webhooks, everything().WebhookPrivate
		}
		first, problems := c.setup(inFile())
		if len(problems) > 0 {
			t.Fatalf("%+v", problems)
		}
		text, err := siteShape.Append(nil, first.siteConfig)
		if err != nil {
			t.Fatal(err)
		}
		again, err := configfile.ReadBytes(text, siteShape)
		if err != nil {
			t.Fatal(err)
		}
		second, problems := again.setup(inFile())
		second.ownKeys = first.ownKeys // the path is written, but not whose choice it was
		if len(problems) > 0 || !reflect.DeepEqual(second, first) {
			t.Fatalf("%s means %+v, %+v, want %+v", text, second, problems, first)
		}
	})
}

// snapshot is everything about the files below a folder.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		fmt.Fprintln(&all, path, info.Mode(), info.ModTime(), info.Size())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// allod runs a command line.
func allod(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(t.Context(), Env{Out: &o, Err: &e}, args)
	return code, o.String(), e.String()
}

// example is the file that the documentation shows.
func example(t *testing.T) string {
	t.Helper()
	docs, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(docs), "\n    //")
	text, _, found := strings.Cut(rest, "\n    }\n")
	if !found {
		t.Fatal("docs/configuration.md shows no file")
	}
	return "//" + strings.ReplaceAll(text, "\n    ", "\n") + "\n}\n"
}

// TestExampleOfTheDocumentation checks the documented file with its folders
// moved, and that checking touches nothing.
func TestExampleOfTheDocumentation(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no key files here")
	}
	dir := t.TempDir()
	text := example(t)
	for _, folder := range []string{"/etc/allod", "/var/lib/allod"} {
		if !strings.Contains(text, folder) {
			t.Errorf("the example does not name %s", folder)
		}
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "/etc/allod", dir), "/var/lib/allod", filepath.Join(dir, "data"))
	path := filepath.Join(dir, "allod.json")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errs := allod(t, "config", "check", path)
	if code != 4 || !strings.Contains(out, "site.keyFiles[0]: There is no key file at this path. (key-file-absent)") || strings.Count(out, "\n") != 3 {
		t.Errorf("without the key file: %d\n%s%s", code, out, errs)
	}
	if _, err := site.CreateKeys(filepath.Join(dir, "site-keys.json"), rand.Reader, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	code, out, errs = allod(t, "config", "check", "--json", path)
	if code != 0 || errs != "" {
		t.Fatalf("%d\n%s%s", code, out, errs)
	}
	if after := snapshot(t, dir); after != before {
		t.Errorf("checking changed\n%sinto\n%s", before, after)
	}
	var r struct {
		Taken    bool
		Problems []any
		Means    json.RawMessage
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Taken || r.Problems == nil || len(r.Problems) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	m, err := configfile.ReadBytes(r.Means, machineShape)
	if err != nil {
		t.Fatal(err)
	}
	if want := (siteConfig{
		Data: filepath.Join(dir, "data"), Listen: "127.0.0.1:8080", Origin: "https://app.example", KeyFiles: []string{filepath.Join(dir, "site-keys.json")},
		Lease: "1m", TTL: "1h", PairTTL: "10m", Liveness: "35s", Quota: exact.Some[int64](100), Limits: "on", TrustedProxies: []string{"127.0.0.1/32"},
		Gateway: &gatewayConfig{Wait: "9m", Grace: "10s"},
	}); !reflect.DeepEqual(*m.Site, want) {
		t.Errorf("it means %+v, want %+v", *m.Site, want)
	}
}

// TestCheckOfWhatCannotBeShown holds that a file's texts cannot play with the
// terminal.
func TestCheckOfWhatCannotBeShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(path, []byte(`{"site":{"data":"\u001b[2J\u202e\u009b\n"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := allod(t, "config", "check", path)
	if code != 0 || strings.ContainsAny(out, "\x1b\u202e\u009b") || !strings.Contains(out, "\ufffd") {
		t.Errorf("%d %q", code, out)
	}
}

// TestCheckAgreesWithServe holds that the refusal of a check is the one with
// which serving would end.
func TestCheckAgreesWithServe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no key files here")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "open"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		``, `[]`, `{"sight":1}`, `{"site":{"quota":-1,"x":1}}`, `{"site":{}}`, `{"site":{"data":"open"}}`, `{"site":{"data":"d","keyFiles":["k"]}}`, `{"site":{"data":"d","origin":"x","limits":"x"}}`,
		`{"site":{"data":"c.json"}}`, `{"site":{"data":"open","lease":"0s","keyFiles":["k"]}}`,
	} {
		path := filepath.Join(dir, "c.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := allod(t, "config", "check", path, "--json")
		serving, _, served := allod(t, "site", "serve", "--config", path, "--json")
		name := func(errs string) string {
			var r struct{ Error string }
			_ = json.Unmarshal([]byte(errs), &r)
			return r.Error
		}
		if code == 0 || code != serving || name(errs) == "" || name(errs) != name(served) {
			t.Errorf("%s: check ends with %d %s and serve with %d %s", text, code, errs, serving, served)
		}
	}
}

// TestServeFromAFile runs a site with the settings of a file.
func TestServeFromAFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no key files here")
	}
	dir := t.TempDir()
	k, err := site.CreateKeys(filepath.Join(dir, "k.json"), rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "c.json")
	if err := os.WriteFile(path, []byte(`{"site": {"data": "data", "keyFiles": ["k.json"], "listen": "127.0.0.2:0"}} // here`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags   []string
		address string
	}{{nil, "127.0.0.2:"}, {[]string{"--listen", "127.0.0.1:0"}, "127.0.0.1:"}} {
		if runtime.GOOS != "linux" && c.flags == nil {
			continue // there is no second loopback address elsewhere
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		out, in := io.Pipe()
		ended := make(chan int, 1)
		var errs bytes.Buffer
		go func() {
			code := Run(ctx, Env{Out: in, Err: &errs}, append([]string{"site", "serve", "--config", path, "--json"}, c.flags...))
			in.Close()
			ended <- code
		}()
		line, err := bufio.NewReader(out).ReadBytes('\n')
		if err != nil {
			t.Fatalf("no first line: %v, %d\n%s", err, <-ended, &errs)
		}
		var first started
		if err := json.Unmarshal(line, &first); err != nil || !strings.HasPrefix(first.Listening, c.address) || first.SiteKeyID != k.Fingerprint().String() ||
			first.AppKeyFile != filepath.Join(dir, "data", appKeyFile) {
			t.Errorf("%q: %s %v", c.flags, line, err)
		}
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("%q: it ends with %d\n%s", c.flags, code, &errs)
		}
	}
	if exists(filepath.Join(dir, "data", siteKeys)) {
		t.Error("a key file was made beside the one that was named")
	}
}

// TestProblemLines holds how a problem is shown, by its place and never twice.
func TestProblemLines(t *testing.T) {
	for want, p := range map[string]problem{
		"site.a: must be b. (config-member)": must("site.a", "b"),
		"--a: must be b. (usage)":            must("--a", "b"),
		"site.a: The data folder cannot be used: it cannot be made or read, or other users can reach it. (data-folder)": about("site.a", datadir.ErrData),
		"site.a: The configuration file cannot be read. It is here. (config-unreadable)":                                about("site.a", configfile.ErrUnreadable.With("It is here.")),
		"There is no configuration file at this path. (config-absent)":                                                  {"", refusal.From(configfile.ErrAbsent), true},
	} {
		if got := p.line(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := about("site.a", configfile.ErrUnreadable.With("It is here.")).refusal().Detail(); got != "It is here. See site.a." {
		t.Error(got)
	}
}

// TestAgentSection holds that the sections stand beside each other: each is
// checked, and shown so that it reads as the same section again.
func TestAgentSection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.json")
	check := func(text string) (code int, out, errs string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return allod(t, "config", "check", path, "--json")
	}
	for _, text := range []string{
		`{"agent":{}}`,
		`{"site":{"data":"d"},"agent":{"concurrency":3,"limits":{"maxWallClockMs":1000,"maxOutputBytes":5},"ingress":{"keepSelfPrompts":false,"communityPromptDays":30}}}`,
		`{"agent":{"backends":{}}}`,
		`{"agent":{"backends":{"b":{"backend":"ollama","baseUrl":"http://127.0.0.1:1"},"a":{"backend":"openai","apiKeyEnv":"KEY","offer":"named","spend":{"acknowledged":true,"dailyCapCents":7}}},"community":{"maxJobsPerDay":3},"routes":{"llm.chat":{"backend":"b","model":"m"},"llm.generate":{"backend":"a","model":"n"}}}}`,
	} {
		code, out, errs := check(text)
		var r struct{ Means json.RawMessage }
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
			t.Errorf("%s: %d %v\n%s%s", text, code, err, out, errs)
			continue
		}
		first, err := configfile.ReadBytes([]byte(text), machineShape)
		if err != nil {
			t.Fatal(err)
		}
		second, err := configfile.ReadBytes(r.Means, machineShape)
		if err != nil {
			t.Fatalf("%s: %v", r.Means, err)
		}
		want, err := first.Agent.Settings()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := second.Agent.Settings(); err != nil || !reflect.DeepEqual(got, want) || (first.Site == nil) != (second.Site == nil) {
			t.Errorf("%s means %s", text, r.Means)
		}
	}
	for text, want := range map[string]struct {
		code int
		path string
		name string
	}{
		`{"agent":{"concurrency":0}}`: {2, "agent.concurrency", "config-member"},
		`{"agent":{"canary":0}}`:      {2, "agent", "config-member"},
		`{"agent":{"backends":{"x":{"backend":"openai","offer":"public"}}}}`:              {3, "agent.backends[0]", "metered-no-spend-consent"},
		`{"agent":{"routes":{"llm.chat":{"backend":"canary","model":"m"}}}}`:              {2, "agent", "route-unknown"},
		`{"agent":{"routes":{"llm.chat":{"backend":"b","model":1}}},"site":{"data":"d"}}`: {2, "agent.routes.llm.chat.model", "config-member"},
	} {
		code, out, errs := check(text)
		var r struct {
			Taken    bool
			Problems []struct {
				Path    string
				Refusal struct{ Error string }
			}
			Means any
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != want.code || r.Taken || r.Means != nil || len(r.Problems) != 1 ||
			r.Problems[0].Path != want.path || r.Problems[0].Refusal.Error != want.name || strings.Contains(out+errs, "canary") {
			t.Errorf("%s: %d %v\n%s%s", text, code, err, out, errs)
		}
	}
	// The same file is shown the same way each time.
	var backends []string
	for i := range 20 {
		backends = append(backends, fmt.Sprintf(`"b%d":{"backend":"ollama"}`, i))
	}
	text := `{"agent":{"backends":{` + strings.Join(backends, ",") + `}}}`
	if _, first, _ := check(text); first == "" {
		t.Error("nothing is shown")
	} else if _, second, _ := check(text); second != first {
		t.Errorf("shown as %s and as %s", first, second)
	}
	// Both sections' problems are listed, and none that only follows from another.
	for text, want := range map[string]string{
		`{"agent":{"concurrency":0},"site":{"lease":"x"}}`:                                             "agent.concurrency site.data site.lease",
		`{"agent":{"canary":0,"routes":{"llm.chat":{"backend":"b","model":"m"}}},"site":{"data":"d"}}`: "agent agent",
		`{"agent":{"backends":{"b":{"backend":1}},"routes":{"llm.chat":{"backend":"b","model":"m"}}}}`: "agent.backends[0].backend",
		`{"site":{"data":1,"trustedProxies":["x","",1]}}`:                                              "site.data site.trustedProxies[1]",
		`{"site":{"data":1,"canary":1,"lease":"x"}}`:                                                   "site.data site site.lease",
	} {
		_, out, _ := check(text)
		var r struct{ Problems []struct{ Path string } }
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range r.Problems {
			got = append(got, p.Path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
