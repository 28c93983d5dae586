package repocheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A tier is a group of packages that may import the same things.
type tier string

const (
	pure     tier = "pure"     // data and rules; no files, no sockets, no clock, no randomness
	kernel   tier = "kernel"   // what several parties need of the machine
	party    tier = "party"    // one side of a contract, or one thing that a user starts
	assembly tier = "assembly" // puts parties together
	command  tier = "command"  // main packages, which only wire
	workshop tier = "workshop" // tests and tools that we do not ship
)

// places says where each package stands. A package that matches nothing fails until it is placed.
// The first match counts. Packages of one pattern may import each other.
var places = []struct {
	pattern string
	tier    tier
}{
	{"key", pure},
	{"refusal", pure},
	{"internal/exact", pure},
	{"wire/...", pure},

	{"internal/database/...", kernel},
	{"internal/httpd/...", kernel},
	{"internal/ca/...", kernel},
	{"internal/datadir", kernel},
	{"internal/keyfile", kernel},
	{"internal/killpoint", kernel},
	{"internal/configfile", kernel},
	{"internal/backup", kernel},
	{"internal/carrier", kernel},
	{"internal/tty", kernel},
	{"internal/pace", kernel},
	{"internal/command", kernel},

	{"site/...", party},
	{"certify/...", party},
	{"internal/runner/...", party},
	{"internal/relay/...", party},
	{"internal/directory/...", party},
	{"internal/cloud/...", party},
	{"internal/cloudrelay/...", party},
	{"internal/node/...", party},
	{"internal/ingress/...", party},
	{"internal/gateway/...", party},
	{"internal/console/...", party},
	{"internal/service", party},
	{"internal/doctor", party},

	{"internal/compose/...", assembly},
	{"internal/catalog", assembly},
	{"internal/cli/...", assembly},

	{"cmd/...", command},
	{"examples/...", command},

	{"internal/repocheck", workshop},
	{"internal/tools/...", workshop},
	{"test/...", workshop},
}

// mayImport says which tiers a tier may import besides packages of its own pattern, and why no others.
var mayImport = map[tier]struct {
	tiers []tier
	why   string
}{
	pure: {[]tier{pure},
		"strangers import the pure packages and must get nothing else with them"},
	kernel: {[]tier{pure, kernel},
		"the kernel serves all parties, so it must know none of them"},
	party: {[]tier{pure, kernel},
		"parties trust each other little and meet only through messages; a shared type would hide that"},
	assembly: {[]tier{pure, kernel, party},
		"what assembles the parties must not depend on how it is assembled itself"},
	command: {[]tier{pure, kernel, party, assembly},
		"nothing shipped may contain a tool or a test"},
	workshop: {[]tier{pure, kernel, party, assembly, workshop},
		"main packages are started, not imported"},
}

// edges are the imports that are allowed besides, by pattern.
var edges = []struct{ from, to, why string }{
	{"internal/gateway/...", "site/...", "the gateway is an app like any other, and asks through the SDK"},
	{"internal/doctor", "internal/runner/...", "the doctor asks what the agent asks, by the agent's own packages"},
	{"internal/doctor", "internal/service", "the doctor judges the service that the agent runs as"},
	{"internal/cli/...", "internal/compose/...", "the command line starts what compose puts together"},
	{"internal/catalog", "internal/compose/...", "the catalog lists every refusal, those of compose as well"},
	{"internal/catalog", "internal/cli/...", "the catalog lists every refusal, those of the command line as well"},
}

// pureImports are what pure packages must not import themselves, and why.
var pureImports = map[string]string{
	"os/...":           "files, processes and the environment are the caller's",
	"io/fs":            "files are the caller's",
	"io/ioutil":        "files are the caller's",
	"path/filepath":    "its answers depend on the system",
	"embed":            "data of ours is Go code here, which a reader can follow",
	"net/...":          "sockets are the caller's",
	"syscall":          "the system is the caller's",
	"database/sql/...": "stores are the parties'",
	"log":              "it writes; describe a value with log/slog and let the caller write",
	"runtime/...":      "the result must depend on the arguments alone",
	"testing/...":      "nothing shipped imports testing",
	"unsafe":           "the packages that read strangers' bytes stay inside Go's own bounds",
	"crypto/rand":      "randomness is passed in, so that a run can be repeated",
	"math/rand/...":    "randomness is passed in, so that a run can be repeated",
}

// pureAllowed are exceptions from pureImports.
var pureAllowed = map[string]string{
	"net/url":   "it parses text and opens nothing",
	"net/netip": "it parses text and opens nothing",
}

// pureLinks are what pure packages must not link, even through others, and why.
var pureLinks = map[string]string{
	"net":              "whoever imports a pure package gets no sockets",
	"net/http":         "whoever imports a pure package gets no HTTP",
	"os/exec":          "whoever imports a pure package gets no processes",
	"database/sql/...": "whoever imports a pure package gets no database",
	"crypto/x509":      "it brings sockets, and reads certificates from disk",
}

// allodLinks are what cmd/allod must not link, even through others, and why.
// It is the binary that ordinary users run, on three systems and without root.
var allodLinks = map[string]string{
	"github.com/containerd/...":           "containers are cmd/allod-node's",
	"github.com/google/nftables/...":      "the firewall is cmd/allod-node's",
	"github.com/vishvananda/netlink/...":  "network devices are cmd/allod-node's",
	"github.com/vishvananda/netns/...":    "network devices are cmd/allod-node's",
	"github.com/mdlayher/netlink/...":     "network devices are cmd/allod-node's",
	"github.com/jsimonetti/rtnetlink/...": "network devices are cmd/allod-node's",
	module + "/internal/node/...":         "what runs as root is cmd/allod-node's",
	"testing/...":                         "nothing shipped imports testing",
}

// nodeLinks are what cmd/allod-node must not link, even through others, and why. It runs
// as root.
var nodeLinks = map[string]string{
	module + "/internal/cli/...":     "what ordinary users run does not run as root",
	module + "/internal/cloud/...":   "a node meets its controller through messages alone",
	module + "/internal/compose/...": "a node meets its controller through messages alone",
	module + "/internal/runner/...":  "models run without root",
	module + "/site/...":             "sites run without root",
	"database/sql/...":               "a node keeps two small files",
	"testing/...":                    "nothing shipped imports testing",
}

// place returns the pattern and the tier of a package.
func place(name string) (string, tier, bool) {
	for _, p := range places {
		if matches(p.pattern, name) {
			return p.pattern, p.tier, true
		}
	}
	return "", "", false
}

// mayImportPackage decides one import between two packages of this module.
func mayImportPackage(from, to string) (ok bool, why string) {
	fromPattern, fromTier, placed := place(from)
	toPattern, toTier, toPlaced := place(to)
	if !placed || !toPlaced {
		return true, "" // reported as not placed
	}
	allowed := mayImport[fromTier]
	if fromPattern == toPattern || slices.Contains(allowed.tiers, toTier) {
		return true, ""
	}
	for _, e := range edges {
		if matches(e.from, from) && matches(e.to, to) {
			return true, ""
		}
	}
	return false, allowed.why
}

// forbidden looks a path up in a map from patterns to reasons.
func forbidden(list map[string]string, importPath string) (why string, found bool) {
	for _, pattern := range slices.Sorted(maps.Keys(list)) {
		if matches(pattern, importPath) {
			return list[pattern], true
		}
	}
	return "", false
}

// checkPlaces finds packages that nobody placed.
func checkPlaces(pkgs []listed) (problems []string) {
	for _, p := range pkgs {
		if name, ours := local(p.ImportPath); ours {
			if _, _, ok := place(name); !ok {
				problems = append(problems, name)
			}
		}
	}
	return problems
}

// checkTiers finds imports between our packages that the tiers do not allow.
func checkTiers(pkgs []listed) (problems []string) {
	for _, p := range pkgs {
		from, ours := local(p.ImportPath)
		if !ours {
			continue
		}
		for _, imported := range p.Imports {
			to, ours := local(imported)
			if !ours {
				continue
			}
			if ok, why := mayImportPackage(from, to); !ok {
				problems = append(problems, fmt.Sprintf("%s imports %s: %s", from, to, why))
			}
		}
	}
	return problems
}

// checkPure finds what pure packages import or link and must not.
func checkPure(pkgs []listed) (problems []string) {
	byPath := index(pkgs)
	for _, p := range pkgs {
		name, ours := local(p.ImportPath)
		if _, t, _ := place(name); !ours || t != pure {
			continue
		}
		for _, imported := range p.Imports {
			if _, ok := pureAllowed[imported]; ok {
				continue
			}
			if why, found := forbidden(pureImports, imported); found {
				problems = append(problems, fmt.Sprintf("%s imports %s: %s", name, imported, why))
			}
		}
		for _, dep := range p.Deps {
			why, found := forbidden(pureLinks, dep)
			if to, ours := local(dep); ours && !found {
				if _, t, placed := place(to); placed && t != pure {
					why, found = mayImport[pure].why, true
				}
			}
			if found {
				problems = append(problems, fmt.Sprintf("%s links %s: %s (%s)", name, dep, why, chain(byPath, p.ImportPath, dep)))
			}
		}
	}
	return problems
}

// checkAllod finds what cmd/allod links and must not, and checkNode what cmd/allod-node does.
func checkAllod(pkgs []listed) []string { return checkBinary(pkgs, "cmd/allod", allodLinks) }
func checkNode(pkgs []listed) []string  { return checkBinary(pkgs, "cmd/allod-node", nodeLinks) }

func checkBinary(pkgs []listed, name string, list map[string]string) (problems []string) {
	byPath := index(pkgs)
	for _, dep := range byPath[module+"/"+name].Deps {
		if why, found := forbidden(list, dep); found {
			problems = append(problems, fmt.Sprintf("%s links %s: %s (%s)", name, dep, why, chain(byPath, module+"/"+name, dep)))
		}
	}
	return problems
}

func index(pkgs []listed) map[string]listed {
	m := map[string]listed{}
	for _, p := range pkgs {
		m[p.ImportPath] = p
	}
	return m
}

// chain is a shortest way of imports from one package to another. It tells who is to blame.
func chain(byPath map[string]listed, from, to string) string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		if queue[0] == to {
			break
		}
		for _, next := range byPath[queue[0]].Imports {
			if _, seen := before[next]; !seen {
				before[next] = queue[0]
				queue = append(queue, next)
			}
		}
	}
	var way []string
	for at := to; at != ""; at = before[at] {
		way = append(way, strings.TrimPrefix(at, module+"/"))
	}
	slices.Reverse(way)
	return strings.Join(way, " -> ")
}

// onEachSystem runs a check on each system and says on which ones a problem shows.
func onEachSystem(all map[string][]listed, check func([]listed) []string) []string {
	where := map[string][]string{}
	for _, goos := range systems {
		for _, problem := range check(all[goos]) {
			where[problem] = append(where[problem], goos)
		}
	}
	var problems []string
	for _, problem := range slices.Sorted(maps.Keys(where)) {
		if len(where[problem]) < len(systems) {
			problem += " [" + strings.Join(where[problem], ", ") + " only]"
		}
		problems = append(problems, problem)
	}
	return problems
}

func TestEveryPackageHasAPlace(t *testing.T) {
	report(t, rule{
		"These packages stand in no tier.",
		"the tiers keep I/O out of the contracts and the parties apart; a package outside of them escapes the rule",
		"add the package to places in internal/repocheck/tiers_test.go; docs and reviewers decide where it belongs",
	}, onEachSystem(mustList(t), checkPlaces))
}

func TestTiers(t *testing.T) {
	report(t, rule{
		"These imports cross the tiers.",
		"each line says it",
		"move the shared part down (wire for what crosses the wire, the kernel for what touches the machine), or pass it in",
	}, onEachSystem(mustList(t), checkTiers))
}

func TestPurePackagesDoNoIO(t *testing.T) {
	report(t, rule{
		"These pure packages reach outside of their arguments.",
		"the contracts must run the same in a browser test, a fuzzer, a simulation and a stranger's program; each line says more",
		"take the bytes, the time or the reader as an argument and leave the I/O to the caller",
	}, onEachSystem(mustList(t), checkPure))
}

func TestAllodStaysLight(t *testing.T) {
	all := mustList(t)
	if index(all["linux"])[module+"/cmd/allod"].ImportPath == "" {
		t.Fatal("there is no cmd/allod, so this test would prove nothing")
	}
	report(t, rule{
		"cmd/allod links what it must not.",
		"ordinary users run it on three systems and without root; each line says more",
		"move the code to a package that only cmd/allod-node imports",
	}, onEachSystem(all, checkAllod))
}

func TestNodeStaysSmall(t *testing.T) {
	all := mustList(t)
	if index(all["linux"])[module+"/cmd/allod-node"].ImportPath == "" {
		t.Fatal("there is no cmd/allod-node, so this test would prove nothing")
	}
	report(t, rule{
		"cmd/allod-node links what it must not.",
		"it runs as root on every machine of a cloud; each line says more",
		"move what both sides need down to wire or to the kernel",
	}, onEachSystem(all, checkNode))
}

func TestTiersControl(t *testing.T) {
	pkg := func(name string, imports ...string) listed {
		return listed{ImportPath: module + "/" + name, Imports: imports, Deps: imports}
	}
	ours := func(name string) string { return module + "/" + name }

	t.Run("places", func(t *testing.T) {
		mustFind(t, checkPlaces([]listed{pkg("internal/novelty"), pkg("keys"), pkg("wire/ai"), {ImportPath: "fmt"}}),
			"internal/novelty", "keys")
	})
	t.Run("tiers", func(t *testing.T) {
		mustFind(t, checkTiers([]listed{
			pkg("wire/ai", ours("internal/exact"), ours("internal/database")),
			pkg("internal/database", ours("key"), ours("internal/httpd"), ours("internal/relay")),
			pkg("internal/relay", ours("wire/ai"), ours("internal/relay/queue"), ours("internal/directory")),
			pkg("internal/runner", ours("internal/runner/backend"), ours("internal/keyfile"), ours("site")),
			pkg("internal/gateway", ours("site"), ours("internal/relay")),
			pkg("site", ours("internal/gateway")),
			pkg("internal/compose", ours("site"), ours("internal/cli")),
			pkg("internal/catalog", ours("internal/cli"), ours("internal/compose"), ours("refusal")),
			pkg("internal/cli", ours("internal/compose"), ours("internal/tools/dist")),
			pkg("cmd/allod", ours("internal/cli"), ours("internal/repocheck")),
			pkg("test/whole", ours("internal/cli"), ours("site")),
		}),
			"wire/ai imports internal/database",
			"internal/database imports internal/relay",
			"internal/relay imports internal/directory",
			"internal/runner imports site",
			"internal/gateway imports internal/relay",
			"site imports internal/gateway",
			"internal/compose imports internal/cli",
			"internal/cli imports internal/tools/dist",
			"cmd/allod imports internal/repocheck",
		)
	})
	t.Run("pure imports", func(t *testing.T) {
		mustFind(t, checkPure([]listed{
			pkg("key", "os", "os/signal", "fmt", "log/slog"),
			pkg("wire/ai", "net/url", "net/mail", "unsafe", "crypto/rand", "runtime/debug", "io"),
			pkg("internal/exact", "log", "testing/iotest", "embed"),
			pkg("internal/database", "os", "net"),
		}),
			"key imports os:", "key imports os/signal:",
			"wire/ai imports net/mail:", "wire/ai imports unsafe:", "wire/ai imports crypto/rand:", "wire/ai imports runtime/debug:",
			"internal/exact imports log:", "internal/exact imports testing/iotest:", "internal/exact imports embed:",
		)
	})
	t.Run("pure links", func(t *testing.T) {
		mustFind(t, checkPure([]listed{
			{ImportPath: ours("wire/ai"), Imports: []string{"example.org/a"}, Deps: []string{"example.org/a", "example.org/b", "net/http", ours("internal/httpd")}},
			{ImportPath: "example.org/a", Imports: []string{"example.org/b", ours("internal/httpd")}},
			{ImportPath: "example.org/b", Imports: []string{"net/http"}},
		}),
			"(wire/ai -> example.org/a -> example.org/b -> net/http)",
			"wire/ai links "+ours("internal/httpd"),
		)
	})
	t.Run("cmd/allod", func(t *testing.T) {
		mustFind(t, checkAllod([]listed{
			{ImportPath: ours("cmd/allod"), Deps: []string{"fmt", "github.com/containerd/containerd/v2/client", "github.com/mdlayher/netlink"}},
			{ImportPath: ours("cmd/allod-node"), Deps: []string{"github.com/google/nftables"}},
		}),
			"cmd/allod links github.com/containerd/containerd/v2/client", "cmd/allod links github.com/mdlayher/netlink")
	})
	t.Run("cmd/allod-node", func(t *testing.T) {
		mustFind(t, checkNode([]listed{
			{ImportPath: ours("cmd/allod-node"), Deps: []string{"fmt", ours("internal/node/spark"), ours("internal/cloud/nodes"), "database/sql"}},
			{ImportPath: ours("cmd/allod"), Deps: []string{ours("internal/cloud/nodes"), "database/sql"}},
		}),
			"cmd/allod-node links "+ours("internal/cloud/nodes"), "cmd/allod-node links database/sql")
	})
	t.Run("one system", func(t *testing.T) {
		all := map[string][]listed{"linux": {pkg("key", "fmt")}, "darwin": {pkg("key", "fmt")}, "windows": {pkg("key", "syscall")}}
		mustFind(t, onEachSystem(all, checkPure), "[windows only]")
	})
}

// TestPlacesAreMeant finds a pattern that can never match because one above it takes everything.
func TestPlacesAreMeant(t *testing.T) {
	for i, p := range places {
		name := strings.TrimSuffix(p.pattern, "/...")
		if got, _, _ := place(name); got != p.pattern {
			t.Errorf("places[%d]: %s is hidden behind %s", i, p.pattern, got)
		}
		if _, ok := mayImport[p.tier]; !ok {
			t.Errorf("places[%d]: nobody says what the tier %q may import", i, p.tier)
		}
	}
}
