package home_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

var t0 = time.UnixMilli(1785499200123)

// siteOf is the site of a number.
func siteOf(number byte) key.Site {
	secret := make([]byte, 64)
	for i := range secret {
		secret[i] = byte(i*37+11) ^ number
	}
	k, err := key.NewKeys[key.SiteRole](bytes.NewReader(secret), t0)
	if err != nil {
		panic(err) // only without randomness
	}
	return k.Identity()
}

func sitesOf(numbers ...byte) map[ai.KeyID]home.Site {
	sites := map[ai.KeyID]home.Site{}
	for _, n := range numbers {
		id := siteOf(n)
		sites[ai.KeyID(id.Fingerprint().String())] = home.Site{Identity: id, SignsReach: n%2 == 1}
	}
	return sites
}

func pairingOf(server string) home.Pairing {
	return home.Pairing{
		Server: server, RunnerID: "runner_1", Owner: "alice", OwnerLabel: "Alice <alice@app.example>",
		Sites: sitesOf(1, 2), PairedAt: ai.MillisOf(t0),
	}
}

func mustBe(t *testing.T, what string, err error, kind *refusal.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %s", what, err, kind.Name())
	}
}

// open opens a folder until the test ends.
func open(t *testing.T, dir string) *home.Home {
	t.Helper()
	h, err := home.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// folder is a name for an agent's folder that is not there yet.
func folder(t *testing.T) string { return filepath.Join(t.TempDir(), "allod") }

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func pairingsOf(t *testing.T, h *home.Home) []home.Pairing {
	t.Helper()
	list, err := h.Pairings()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDir(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ALLOD_HOME", dir)
	if got, err := home.Dir(); err != nil || got != dir {
		t.Errorf("%s, %v", got, err)
	}
	t.Chdir(dir)
	t.Setenv("ALLOD_HOME", "sub")
	if got, err := home.Dir(); err != nil || !filepath.IsAbs(got) || filepath.Base(got) != "sub" {
		t.Errorf("a relative folder: %s, %v", got, err)
	}
	t.Setenv("ALLOD_HOME", "")
	if runtime.GOOS != "linux" {
		return
	}
	t.Setenv("XDG_CONFIG_HOME", "/config")
	if got, err := home.Dir(); err != nil || got != "/config/allod" {
		t.Errorf("by default: %s, %v", got, err)
	}
	for _, unusable := range []string{"", "relative"} {
		t.Setenv("HOME", "")
		t.Setenv("XDG_CONFIG_HOME", unusable)
		got, err := home.Dir()
		mustBe(t, "no configuration folder", err, home.ErrNoHome)
		if got != "" {
			t.Errorf("an error came with %s", got)
		}
	}
	// A folder that is relative to nowhere.
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PWD", "")
	t.Setenv("ALLOD_HOME", "sub")
	got, err := home.Dir()
	mustBe(t, "a working folder that is gone", err, home.ErrNoHome)
	if got != "" {
		t.Errorf("an error came with %s", got)
	}
}

func TestOpen(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	if h.Dir() != dir || filepath.Dir(h.Outbox()) != dir {
		t.Errorf("the folders are %s and %s", h.Dir(), h.Outbox())
	}
	_, err := home.Open(dir)
	mustBe(t, "twice", err, datadir.ErrRunning)
	h.Close()
	if runtime.GOOS != "windows" {
		if err := os.Chmod(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		_, err = home.Open(dir)
		mustBe(t, "open to others", err, datadir.ErrData)
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
}

// TestOpenSweeps what writes that did not end have left, and nothing else.
func TestOpenSweeps(t *testing.T) {
	dir := folder(t)
	open(t, dir).Close()
	gone := []string{"keys.json.0123456789abcdef.tmp", "pairings.json.0123456789abcdef.tmp", "label.0123456789abcdef.tmp", "paused.0123456789abcdef.tmp"}
	stay := []string{"keys.json", "pairings.json", "config.json.tmp", "config.json.0123456789abcdef.tmp", "keys.json.tmp", "mine.0123456789abcdef.tmp", "keys.json.0123456789abcdef.tmp~"}
	for _, name := range append(gone, stay...) {
		write(t, filepath.Join(dir, name), []byte("x"))
	}
	open(t, dir)
	for _, name := range gone {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range stay {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysAreMadeOnce(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	if _, err := home.LoadKeys(dir); !errors.Is(err, keyfile.ErrAbsent) {
		t.Fatalf("before: %v", err)
	}
	first, err := h.Keys(t0)
	if err != nil || first.IsZero() || !first.Created().Equal(t0) {
		t.Fatalf("made at %v: %v", first.Created(), err)
	}
	h.Close()
	h = open(t, dir)
	again, err := h.Keys(t0.Add(time.Hour))
	if err != nil || again.Identity() != first.Identity() {
		t.Errorf("other keys: %v", err)
	}
	loaded, err := home.LoadKeys(dir)
	if err != nil || loaded.Identity() != first.Identity() {
		t.Errorf("other keys are loaded: %v", err)
	}
}

func TestKeysAreNeverMadeOverAFile(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	if _, err := h.Keys(t0); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, home.KeyFile)
	good := content(t, path)
	for what, damaged := range map[string][]byte{
		"empty": {}, "cut": good[:len(good)/2], "one byte off": bytes.Replace(good, []byte(`"`), []byte(`'`), 1),
		"zeros": make([]byte, len(good)), "a site's": []byte("{}"), "twice": append(bytes.Clone(good), good...),
	} {
		write(t, path, damaged)
		k, err := h.Keys(t0)
		mustBe(t, what, err, key.ErrFile)
		if !k.IsZero() {
			t.Errorf("%s: an error came with keys", what)
		}
		if !bytes.Equal(content(t, path), damaged) {
			t.Errorf("%s: the file was changed", what)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	write(t, path, good)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := h.Keys(t0)
	mustBe(t, "open to others", err, keyfile.ErrOpen)
	// A link to nowhere is a file that was moved away, not one that never was.
	if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(dir, "moved"), path)); err != nil {
		t.Fatal(err)
	}
	k, err := h.Keys(t0)
	mustBe(t, "a link to nowhere", err, keyfile.ErrExists)
	if !k.IsZero() {
		t.Error("an error came with keys")
	}
	if _, err := os.Lstat(filepath.Join(dir, "moved")); err == nil {
		t.Error("keys were made through a link")
	}
}

// TestPairings: paired, replaced in its place, forgotten, over restarts.
func TestPairings(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	if list := pairingsOf(t, h); list != nil {
		t.Errorf("a new folder has %v", list)
	}
	_, err := h.Forget("https://a.example")
	mustBe(t, "forgetting what is not there", err, home.ErrNotPaired)
	if _, err := os.Lstat(filepath.Join(dir, "pairings.json")); err == nil {
		t.Error("forgetting nothing made a file")
	}
	var want []home.Pairing
	for _, server := range []string{"https://a.example", "http://localhost:8080", "https://b.example/sub"} {
		p := pairingOf(server)
		if err := h.Pair(p); err != nil {
			t.Fatal(err)
		}
		want = append(want, p)
	}
	want[0].RunnerID, want[0].OwnerLabel, want[0].Sites = "runner_2", "", sitesOf(3)
	want[0].Protocol = home.Protocol{Version: "2", At: 1785499200124}
	if err := h.Pair(want[0]); err != nil {
		t.Fatal(err)
	}
	h.Close()
	h = open(t, dir)
	if got := pairingsOf(t, h); !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for _, absent := range []string{"https://a.example/", "https://A.example", "", "https://b.example"} {
		_, err := h.Forget(absent)
		mustBe(t, absent, err, home.ErrNotPaired)
	}
	gone, err := h.Forget("http://localhost:8080")
	if err != nil || !reflect.DeepEqual(gone, want[1]) {
		t.Errorf("forgot %v, %v", gone, err)
	}
	_, err = h.Forget("http://localhost:8080")
	mustBe(t, "forgetting twice", err, home.ErrNotPaired)
	want = []home.Pairing{want[0], want[2]}
	if got := pairingsOf(t, h); !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	for _, p := range want {
		if _, err := h.Forget(p.Server); err != nil {
			t.Error(err)
		}
	}
	if list := pairingsOf(t, h); len(list) != 0 {
		t.Errorf("%v is left", list)
	}
	if info, err := os.Stat(filepath.Join(dir, "pairings.json")); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestMaxPairings(t *testing.T) {
	h := open(t, folder(t))
	server := func(i int) string { return fmt.Sprintf("https://s%d.example", i) }
	for i := range home.MaxPairings {
		if err := h.Pair(pairingOf(server(i))); err != nil {
			t.Fatal(i, err)
		}
	}
	mustBe(t, "one more", h.Pair(pairingOf("https://more.example")), home.ErrTooMany)
	if got := len(pairingsOf(t, h)); got != home.MaxPairings {
		t.Errorf("%d are there", got)
	}
	if err := h.Pair(pairingOf(server(5))); err != nil {
		t.Errorf("one again: %v", err)
	}
	if _, err := h.Forget(server(7)); err != nil {
		t.Fatal(err)
	}
	if err := h.Pair(pairingOf("https://more.example")); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

// TestLargePairings: what a server can make of an approval never makes a list
// that cannot be read again.
func TestLargePairings(t *testing.T) {
	h := open(t, folder(t))
	refused := false
	for i := range home.MaxPairings {
		p := pairingOf(fmt.Sprintf("https://s%d.example", i))
		p.Owner = ai.Owner(strings.Repeat("\x01", ai.MaxBody)) // six bytes each in the file
		before := len(pairingsOf(t, h))
		err := h.Pair(p)
		after := len(pairingsOf(t, h))
		switch {
		case err == nil && after != before+1, err != nil && after != before:
			t.Fatalf("%d pairings, then %d: %v", before, after, err)
		case err != nil:
			mustBe(t, "large", err, home.ErrTooMany)
			refused = true
		}
		if refused {
			break
		}
	}
	if !refused {
		t.Error("nothing was too large")
	}
	if err := h.Pair(pairingOf("https://small.example")); err != nil {
		t.Errorf("a small one: %v", err)
	}
}

func TestPairRefusesWhatCouldNotBeRead(t *testing.T) {
	h := open(t, folder(t))
	if err := h.Pair(pairingOf("https://a.example")); err != nil {
		t.Fatal(err)
	}
	want := pairingsOf(t, h)
	for what, spoil := range map[string]func(p *home.Pairing){
		"no server":            func(p *home.Pairing) { p.Server = "" },
		"a long server":        func(p *home.Pairing) { p.Server = "https://" + strings.Repeat("a", 2048) },
		"no runner":            func(p *home.Pairing) { p.RunnerID = "" },
		"no owner":             func(p *home.Pairing) { p.Owner = "" },
		"an owner of no text":  func(p *home.Pairing) { p.Owner = "\xff" },
		"no time":              func(p *home.Pairing) { p.PairedAt = 0 },
		"a time too late":      func(p *home.Pairing) { p.PairedAt = 1 << 53 },
		"a version of no time": func(p *home.Pairing) { p.Protocol = home.Protocol{Version: "0"} },
		"a time of no version": func(p *home.Pairing) { p.Protocol = home.Protocol{At: 1} },
		"a version too late":   func(p *home.Pairing) { p.Protocol = home.Protocol{Version: "0", At: 1 << 53} },
		"a long version":       func(p *home.Pairing) { p.Protocol = home.Protocol{Version: strings.Repeat("0", 17), At: 1} },
		"a version of no text": func(p *home.Pairing) { p.Protocol = home.Protocol{Version: "\xff", At: 1} },
		"nobody's identity":    func(p *home.Pairing) { p.Sites = map[ai.KeyID]home.Site{"BYOLLM": {}} },
		"another's name":       func(p *home.Pairing) { p.Sites = map[ai.KeyID]home.Site{"BYOLLM": {Identity: siteOf(1)}} },
		"a site without name":  func(p *home.Pairing) { p.Sites = map[ai.KeyID]home.Site{"": {Identity: siteOf(1)}} },
		"succeeds nobody":      func(p *home.Pairing) { p.Sites = oneSite(home.Site{By: home.BySuccession}) },
		"succeeds unasked":     func(p *home.Pairing) { p.Sites = oneSite(home.Site{By: home.ByOwner, From: "BYOLLM"}) },
		"followed for ever":    func(p *home.Pairing) { p.Sites = oneSite(home.Site{Next: "BYOLLM"}) },
		"ends for nobody":      func(p *home.Pairing) { p.Sites = oneSite(home.Site{Until: 1}) },
		"an unknown approval":  func(p *home.Pairing) { p.Sites = oneSite(home.Site{By: "mallory"}) },
		"a long follower":      func(p *home.Pairing) { p.Sites = oneSite(home.Site{Next: ai.KeyID(strings.Repeat("B", 65)), Until: 1}) },
		"too many sites": func(p *home.Pairing) {
			for n := range home.MaxSites + 1 {
				id := manySites(n)
				p.Sites[ai.KeyID(id.Fingerprint().String())] = home.Site{Identity: id}
			}
		},
		"too many that wait": func(p *home.Pairing) {
			p.Pending = map[ai.KeyID]home.Pending{}
			for n := range home.MaxPending + 1 {
				id := manySites(n)
				p.Pending[ai.KeyID(id.Fingerprint().String())] = home.Pending{Identity: id, SeenAt: 1}
			}
		},
		"nobody waits": func(p *home.Pairing) { p.Pending = map[ai.KeyID]home.Pending{"BYOLLM": {SeenAt: 1}} },
		"another waits": func(p *home.Pairing) {
			p.Pending = map[ai.KeyID]home.Pending{"BYOLLM": {Identity: siteOf(9), SeenAt: 1}}
		},
		"waits since ever": func(p *home.Pairing) { p.Pending = map[ai.KeyID]home.Pending{nameOf(siteOf(9)): {Identity: siteOf(9)}} },
		"waits and is approved": func(p *home.Pairing) {
			p.Pending = map[ai.KeyID]home.Pending{nameOf(siteOf(1)): {Identity: siteOf(1), SeenAt: 1}}
			p.Sites[nameOf(siteOf(1))] = home.Site{Identity: siteOf(1)}
		},
		"a name that vanishes": func(p *home.Pairing) { p.Sites = map[ai.KeyID]home.Site{"__proto__": {Identity: siteOf(1)}} },
	} {
		p := pairingOf("https://b.example")
		spoil(&p)
		mustBe(t, what, h.Pair(p), home.ErrPairings)
		if text, err := p.Marshal(); !errors.Is(err, home.ErrPairings) || text != nil {
			t.Errorf("%s is marshalled as %s, %v", what, text, err)
		}
		if got := pairingsOf(t, h); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %v", what, got)
		}
	}
}

func nameOf(s key.Site) ai.KeyID { return ai.KeyID(s.Fingerprint().String()) }

// oneSite is a list of one site with what is said of it.
func oneSite(s home.Site) map[ai.KeyID]home.Site {
	s.Identity = siteOf(1)
	return map[ai.KeyID]home.Site{nameOf(s.Identity): s}
}

// manySites is the site number n of more than a byte can count.
func manySites(n int) key.Site {
	k, err := key.NewKeys[key.SiteRole](strings.NewReader(strings.Repeat(fmt.Sprintf("%016d", n), 4)), time.UnixMilli(1))
	if err != nil {
		panic(err)
	}
	return k.Identity()
}

// TestSitesInTheFile: what is said of sites besides their keys are members of their
// own, so that a file of before they were kept reads, and is written as it was.
func TestSitesInTheFile(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	path := filepath.Join(dir, "pairings.json")
	id := siteOf(1)
	text := ai.PublicIdentityOf(id)
	identity := `"identity":"` + text.Identity + `","encryption":"` + text.Encryption + `","encryptionSig":"` + text.EncryptionSig + `"`
	next := nameOf(siteOf(2))
	file := func(site, more string) string { // more stands behind the sites
		return `{"version":1,"pairings":[{"server":"https://a.example","runnerId":"runner_1","owner":"alice",` +
			`"ownerLabel":"Alice <alice@app.example>","sites":{"` + string(nameOf(id)) + `":{` + identity + site + `}}` + more + `,"pairedAt":1785499200123}]}` + "\n"
	}
	for _, c := range []struct {
		site string
		want home.Site
	}{
		{"", home.Site{}},
		{`,"signsReach":true,"approvedBy":"owner","approvedAt":2`, home.Site{SignsReach: true, By: home.ByOwner, At: 2}},
		{`,"approvedBy":"succession","approvedAt":2,"succeeds":"` + string(next) + `"`, home.Site{By: home.BySuccession, At: 2, From: next}},
		{`,"approvedBy":"pairing","approvedAt":1,"succeededBy":"` + string(next) + `","countsUntil":3,"changedAt":4`, home.Site{By: home.ByPairing, At: 1, Next: next, Until: 3, ChangedAt: 4}},
	} {
		p := pairingOf("https://a.example")
		c.want.Identity = id
		p.Sites = map[ai.KeyID]home.Site{nameOf(id): c.want}
		write(t, path, []byte(file(c.site, "")))
		if got := pairingsOf(t, h); !reflect.DeepEqual(got, []home.Pairing{p}) {
			t.Errorf("%q reads as %+v", c.site, got)
		}
		if err := h.Pair(p); err != nil {
			t.Error(err)
		}
		if got := string(content(t, path)); got != file(c.site, "") {
			t.Errorf("%q is written as %s", c.site, got)
		}
	}
	waiting := home.Pending{Identity: siteOf(2), SeenAt: 5}
	w := ai.PublicIdentityOf(waiting.Identity)
	more := `,"pending":{"` + string(next) + `":{"identity":"` + w.Identity + `","encryption":"` + w.Encryption + `","encryptionSig":"` + w.EncryptionSig + `","seenAt":5}}`
	write(t, path, []byte(file("", more)))
	p := pairingsOf(t, h)[0]
	if !reflect.DeepEqual(p.Pending, map[ai.KeyID]home.Pending{next: waiting}) {
		t.Errorf("waiting: %+v", p.Pending)
	}
	if err := h.Pair(p); err != nil || string(content(t, path)) != file("", more) {
		t.Errorf("%v: %s", err, content(t, path))
	}
}

// TestProtocolInTheFile: the version that was agreed on is one more member, so
// that a file of before it was kept reads, and is written as it was.
func TestProtocolInTheFile(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	path := filepath.Join(dir, "pairings.json")
	p := pairingOf("https://a.example")
	p.Sites = map[ai.KeyID]home.Site{}
	file := func(more string) string {
		return `{"version":1,"pairings":[{"server":"https://a.example","runnerId":"runner_1","owner":"alice",` +
			`"ownerLabel":"Alice <alice@app.example>","sites":{},"pairedAt":1785499200123` + more + `}]}` + "\n"
	}
	for more, want := range map[string]home.Protocol{
		"": {},
		`,"protocol":{"version":"0","askedAt":1785499200124}`:                   {Version: "0", At: 1785499200124},
		`,"protocol":{"version":"0123456789abcdef","askedAt":9007199254740991}`: {Version: "0123456789abcdef", At: 1<<53 - 1},
	} {
		p.Protocol = want
		write(t, path, []byte(file(more)))
		if got := pairingsOf(t, h); !reflect.DeepEqual(got, []home.Pairing{p}) {
			t.Errorf("%q reads as %+v", more, got)
		}
		if err := h.Pair(p); err != nil {
			t.Error(err)
		}
		if got := string(content(t, path)); got != file(more) {
			t.Errorf("%q is written as %s", more, got)
		}
	}
	for _, more := range []string{
		`"protocol":null`, `"protocol":"0"`, `"protocol":{}`, `"protocol":{"version":"0"}`, `"protocol":{"askedAt":1}`,
		`"protocol":{"version":"","askedAt":1}`, `"protocol":{"version":0,"askedAt":1}`, `"protocol":{"version":"0123456789abcdefg","askedAt":1}`,
		`"protocol":{"version":"0","askedAt":0}`, `"protocol":{"version":"0","askedAt":-1}`, `"protocol":{"version":"0","askedAt":1.5}`,
		`"protocol":{"version":"0","askedAt":"1"}`, `"protocol":{"version":"0","askedAt":9007199254740992}`,
		`"protocol":{"version":"0","askedAt":1,"also":1}`, `"protocol":{"version":"0","askedAt":1},"protocol":{"version":"0","askedAt":1}`,
	} {
		write(t, path, []byte(file(","+more)))
		list, err := h.Pairings()
		mustBe(t, more, err, home.ErrPairings)
		if list != nil {
			t.Errorf("%s: an error came with a list", more)
		}
	}
}

// TestTwoAgentsInTheFile: that a pairing met another agent is kept with it, and
// ends with it.
func TestTwoAgentsInTheFile(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	p := pairingOf("https://a.example")
	p.TwoAgentsAt = 1785499200125
	if err := h.Pair(p); err != nil {
		t.Fatal(err)
	}
	if got := pairingsOf(t, h); !reflect.DeepEqual(got, []home.Pairing{p}) {
		t.Errorf("it reads as %+v", got)
	}
	path := filepath.Join(dir, "pairings.json")
	file := string(content(t, path))
	const member = `,"twoAgentsAt":1785499200125`
	if !strings.Contains(file, member) {
		t.Fatalf("the file says %s", file)
	}
	for _, bad := range []string{`,"twoAgentsAt":0`, `,"twoAgentsAt":-1`, `,"twoAgentsAt":null`, `,"twoAgentsAt":true`} {
		write(t, path, []byte(strings.Replace(file, member, bad, 1)))
		_, err := h.Pairings()
		mustBe(t, bad, err, home.ErrPairings)
	}
	// A new pairing begins without it.
	write(t, path, []byte(file))
	p.TwoAgentsAt = 0
	if err := h.Pair(p); err != nil || strings.Contains(string(content(t, path)), "twoAgentsAt") {
		t.Errorf("paired anew: %v, %s", err, content(t, path))
	}
}

// TestPairAtOnce: lanes remember what they learn and owners pair at the same
// time; none undoes the other.
func TestPairAtOnce(t *testing.T) {
	h := open(t, folder(t))
	server := func(i int) string { return fmt.Sprintf("https://s%d.example", i) }
	for i := range 4 {
		if err := h.Pair(pairingOf(server(i))); err != nil {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			var err error
			if i < 4 {
				_, err = h.Forget(server(i))
			} else {
				err = h.Pair(pairingOf(server(i)))
			}
			if err != nil {
				t.Error(err)
			}
			if _, err := h.Pairings(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	got := map[string]bool{}
	for _, p := range pairingsOf(t, h) {
		got[p.Server] = true
	}
	if want := map[string]bool{server(4): true, server(5): true, server(6): true, server(7): true}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v are left", got)
	}
}

// TestDamagedPairings: no damage is taken for fewer pairings, and the file is
// left for its owner to mend.
func TestDamagedPairings(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	for _, server := range []string{"https://a.example", "https://b.example"} {
		if err := h.Pair(pairingOf(server)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "pairings.json")
	good := string(content(t, path))
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the file has no %s: %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	one, two := siteOf(1), siteOf(2)
	first, _ := json.Marshal(one.Fingerprint().String())
	damaged := map[string]string{
		"empty": "", "white space": " \n", "null": "null", "a list": "[]", "an empty object": "{}", "no list": `{"version":1}`,
		"a null list": `{"version":1,"pairings":null}`, "no version": `{"pairings":[]}`, "text behind": good + "x", "two files": good + good,
		"zeros": strings.Repeat("\x00", len(good)), "a mark before": "\ufeff" + good, "half a character": swap("alice", "\xff"),
		"another version":    swap(`"version":1`, `"version":2`),
		"a version as text":  swap(`"version":1`, `"version":"1"`),
		"an unknown member":  swap(`"version":1`, `"version":1,"also":1`),
		"a member too many":  swap(`"runnerId"`, `"also":1,"runnerId"`),
		"a name in capitals": swap(`"runnerId"`, `"RunnerId"`),
		"no runner":          swap(`"runnerId":"runner_1",`, ``),
		"an empty runner":    swap(`"runner_1"`, `""`),
		"a null owner":       swap(`"alice"`, `null`),
		"an owner twice":     swap(`"owner":"alice"`, `"owner":"alice","owner":"bob"`),
		"an empty label":     swap(`"Alice <alice@app.example>"`, `""`),
		"a time of nothing":  swap(`"pairedAt":1785499200123`, `"pairedAt":0`),
		"half a millisecond": swap(`"pairedAt":1785499200123`, `"pairedAt":1.5`),
		"a server twice":     swap("https://b.example", "https://a.example"),
		"another key":        swap(one.Signing().String(), two.Signing().String()),
		"another box":        swap(one.Sealing().String(), two.Sealing().String()),
		"another binding":    swap(one.Binding().String(), two.Binding().String()),
		"another whole site": strings.NewReplacer(one.Signing().String(), two.Signing().String(), one.Sealing().String(), two.Sealing().String(), one.Binding().String(), two.Binding().String()).Replace(good),
		"another name":       swap(string(first), `"BYOLLM-AAAA"`),
		"no name":            swap(string(first), `""`),
		"signsReach of text": swap(`"signsReach":true`, `"signsReach":"true"`),
		"deep":               strings.Repeat("[", 10_000),
		"many":               `{"version":1,"pairings":[` + strings.Repeat("{},", home.MaxPairings) + `{}]}`,
	}
	for i := 0; i < len(good)-1; i += 7 { // without the line feed alone it is good
		damaged[fmt.Sprint("cut at ", i)] = good[:i]
	}
	for what, text := range damaged {
		write(t, path, []byte(text))
		list, err := h.Pairings()
		mustBe(t, what, err, home.ErrPairings)
		if list != nil {
			t.Errorf("%s: an error came with a list", what)
		}
		mustBe(t, what+", pairing", h.Pair(pairingOf("https://c.example")), home.ErrPairings)
		gone, err := h.Forget("https://a.example")
		mustBe(t, what+", forgetting", err, home.ErrPairings)
		if !reflect.DeepEqual(gone, home.Pairing{}) {
			t.Errorf("%s: an error came with a pairing", what)
		}
		if got := string(content(t, path)); got != text {
			t.Fatalf("%s: the file became %s", what, got)
		}
	}
	write(t, path, []byte(good))
	if got := len(pairingsOf(t, h)); got != 2 {
		t.Errorf("%d pairings are read from the good file", got)
	}
	// What cannot be read at all is no empty list either.
	huge := bytes.Repeat([]byte(" "), 4<<20+1)
	write(t, path, huge)
	_, err := h.Pairings()
	mustBe(t, "huge", err, datadir.ErrRead)
	mustBe(t, "huge, pairing", h.Pair(pairingOf("https://c.example")), datadir.ErrRead)
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	_, err = h.Pairings()
	mustBe(t, "a folder", err, datadir.ErrRead)
}

// TestMutatedPairings: one flipped byte is refused, or changes a text that means
// something else and never a key.
func TestMutatedPairings(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	want := pairingOf("https://a.example")
	if err := h.Pair(want); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pairings.json")
	good := content(t, path)
	for i := range good {
		for _, flip := range []byte{1, 0x20} {
			bad := bytes.Clone(good)
			bad[i] ^= flip
			write(t, path, bad)
			list, err := h.Pairings()
			if err != nil {
				mustBe(t, fmt.Sprint("byte ", i), err, home.ErrPairings)
				continue
			}
			if len(list) != 1 || !sameKeys(list[0].Sites, want.Sites) {
				t.Fatalf("byte %d: %s is read as %v", i, bad, list)
			}
		}
	}
}

func sameKeys(a, b map[ai.KeyID]home.Site) bool {
	for id, s := range a {
		if b[id].Identity != s.Identity {
			return false
		}
	}
	return len(a) == len(b)
}

func TestParsePairingIsTheInverse(t *testing.T) {
	text := func(min int) *rapid.Generator[string] { return rapid.StringN(min, 40, -1) }
	rapid.Check(t, func(t *rapid.T) {
		p := home.Pairing{
			Server:   "https://" + text(0).Draw(t, "server"),
			RunnerID: ai.RunnerID(text(1).Draw(t, "runner")), Owner: ai.Owner(text(1).Draw(t, "owner")),
			OwnerLabel: text(0).Draw(t, "label"), Sites: map[ai.KeyID]home.Site{},
			PairedAt: ai.Millis(rapid.Int64Range(1, 1<<53-1).Draw(t, "at")),
		}
		if rapid.Bool().Draw(t, "agreed") {
			p.Protocol = home.Protocol{
				Version: rapid.StringOfN(rapid.RuneFrom([]rune("0129.-x")), 1, 16, -1).Draw(t, "version"), At: ai.Millis(rapid.Int64Range(1, 1<<53-1).Draw(t, "asked")),
			}
		}
		for _, n := range rapid.SliceOfNDistinct(rapid.Byte(), 0, 3, rapid.ID).Draw(t, "sites") {
			id := siteOf(n)
			site := home.Site{Identity: id, SignsReach: rapid.Bool().Draw(t, "reach")}
			millis := rapid.Int64Range(1, 1<<53-1)
			if site.By = rapid.SampledFrom([]home.By{"", home.ByPairing, home.ByOwner, home.BySuccession}).Draw(t, "by"); site.By == home.BySuccession {
				site.From = ai.KeyID(rapid.StringN(1, 64, 64).Draw(t, "from"))
			}
			if rapid.Bool().Draw(t, "followed") {
				site.Next, site.Until = ai.KeyID(rapid.StringN(1, 64, 64).Draw(t, "next")), ai.Millis(millis.Draw(t, "until"))
			}
			site.At, site.ChangedAt = ai.Millis(rapid.Int64Range(0, 1<<53-1).Draw(t, "approved")), ai.Millis(rapid.Int64Range(0, 1<<53-1).Draw(t, "changed"))
			p.Sites[nameOf(id)] = site
		}
		for _, n := range rapid.SliceOfNDistinct(rapid.ByteRange(100, 200), 0, 3, rapid.ID).Draw(t, "waiting") {
			if id := siteOf(n); p.Sites[nameOf(id)].Identity.IsZero() {
				if p.Pending == nil {
					p.Pending = map[ai.KeyID]home.Pending{}
				}
				p.Pending[nameOf(id)] = home.Pending{Identity: id, SeenAt: ai.Millis(rapid.Int64Range(1, 1<<53-1).Draw(t, "seen"))}
			}
		}
		marshalled, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := home.ParsePairing(marshalled)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("%s is read as %v, %v", marshalled, got, err)
		}
	})
}

func FuzzParsePairing(f *testing.F) {
	good, err := pairingOf("https://a.example").Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte("alice"), []byte(`\u0061\ud83d\ude00`), 1))
	f.Add([]byte(`{"server":"s","runnerId":"r","owner":"o","sites":{},"pairedAt":1e3}`))
	f.Add([]byte(`{"server":"s","runnerId":"r","owner":"o","sites":{"__proto__":{}},"pairedAt":1}`))
	f.Add([]byte(`{"server":"s","runnerId":"r","owner":"o","sites":{},"pairedAt":1,"protocol":{"version":"0","askedAt":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		p, err := home.ParsePairing(text)
		if !bytes.Equal(text, before) {
			t.Fatal("reading changed the text")
		}
		if err != nil {
			if !errors.Is(err, home.ErrPairings) || !reflect.DeepEqual(p, home.Pairing{}) {
				t.Fatalf("%v, %v", p, err)
			}
			return
		}
		for id, s := range p.Sites {
			if s.Identity.Fingerprint().String() != string(id) {
				t.Fatalf("%s is %s", id, s.Identity)
			}
		}
		again, err := p.Marshal()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if q, err := home.ParsePairing(again); err != nil || !reflect.DeepEqual(p, q) {
			t.Fatalf("%v became %v, %v", p, q, err)
		}
	})
}

func TestLabel(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	if got, err := h.Label(); got != "" || err != nil {
		t.Errorf("at first: %q, %v", got, err)
	}
	for _, good := range []string{"a", "gpu box", "Ünï 🖥", strings.Repeat("x", 120), strings.Repeat("🖥", 60), strings.Repeat("\u20ac", 120), "a\u00a0b", "\u200b"} {
		if err := h.SetLabel(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
		if got, err := h.Label(); got != good || err != nil {
			t.Errorf("%q is read as %q, %v", good, got, err)
		}
	}
	bad := []string{
		"", " ", " a", "a ", "\u00a0a", "a\u2028", "a\nb", "a\tb", "a\x00", "\x1b[31mred", "a\x7f", "a\u0085b", "a\u009fb", "\xff", "a\ufffd",
		strings.Repeat("x", 121), strings.Repeat("🖥", 61), strings.Repeat("x", 119) + "🖥",
	}
	for _, bad := range bad {
		mustBe(t, fmt.Sprintf("%q", bad), h.SetLabel(bad), home.ErrLabel)
		mustBe(t, fmt.Sprintf("%q", bad), home.CheckLabel(bad), home.ErrLabel)
	}
	if got, err := h.Label(); got != "\u200b" || err != nil {
		t.Errorf("a refused name was taken: %q, %v", got, err)
	}
	// A file that a person edited.
	path := filepath.Join(dir, "label")
	for text, want := range map[string]string{"by hand": "by hand", "by hand\r\n": "by hand", "\n\n": "", "": ""} {
		write(t, path, []byte(text))
		if got, err := h.Label(); got != want || err != nil {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"two\nlines", "\xff\xfe", "a\x1b[31m", strings.Repeat("x", 121)} {
		write(t, path, []byte(text))
		got, err := h.Label()
		mustBe(t, text, err, home.ErrLabel)
		if got != "" {
			t.Errorf("an error came with %q", got)
		}
	}
	write(t, path, make([]byte, 4<<10+1))
	_, err := h.Label()
	mustBe(t, "huge", err, datadir.ErrRead)
	if err := h.SetLabel("mended"); err != nil {
		t.Error(err)
	}
	if got, err := h.Label(); got != "mended" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPaused(t *testing.T) {
	dir := folder(t)
	h := open(t, dir)
	for _, on := range []bool{false, true, true, false, false, true} {
		if err := h.SetPaused(on); err != nil {
			t.Fatal(err)
		}
		if h.Paused() != on {
			t.Errorf("paused is not %v", on)
		}
		h.Close()
		h = open(t, dir)
		if h.Paused() != on {
			t.Errorf("after a restart paused is not %v", on)
		}
	}
	// What cannot be looked at counts as paused. A folder that is a file has no
	// files that could be.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write(t, dir, nil)
	if !h.Paused() && runtime.GOOS != "windows" {
		t.Error("what cannot be looked at does not count as paused")
	}
	mustBe(t, "pausing", h.SetPaused(true), datadir.ErrWrite)
	if runtime.GOOS != "windows" {
		mustBe(t, "resuming", h.SetPaused(false), datadir.ErrWrite)
	}
}
