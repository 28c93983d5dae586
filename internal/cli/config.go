package cli

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/allodhq/allod/internal/configfile"
	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/gateway"
	"github.com/allodhq/allod/internal/runner/settings"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/site/pairpage"
	"github.com/allodhq/allod/site/webhook"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// machineConfig is what one file says of the parties on a machine. A party
// without a section is nil; each reads its own section only.
type machineConfig struct {
	Site  *siteConfig
	Agent *settings.Section
}

var machineShape = exact.Shape[machineConfig]{Fields: func(o *exact.Object, m *machineConfig) {
	exact.OptSub(o, "site", &m.Site, siteShape)
	exact.OptSub(o, "agent", &m.Agent, settings.Shape)
}}

// readMachine reads a file for a party that is about to start.
func readMachine(path string) (machineConfig, error) {
	m, err := configfile.Read(path, machineShape)
	m.resolve(filepath.Dir(path))
	return m, err
}

// resolve makes paths count from the file's folder, so that the file means the
// same wherever a command is run.
func (m machineConfig) resolve(dir string) {
	if m.Site != nil {
		m.Site.resolve(dir)
	}
}

// machineMeaning is what a file means, with defaults filled in. It reads as a
// file again.
type machineMeaning struct {
	Site  jsontext.Value `json:"site,omitzero"`
	Agent *agentMeaning  `json:"agent,omitzero"`
}

// check looks at every section without touching anything.
func (m machineConfig) check() (means machineMeaning, problems []problem) {
	if m.Site != nil {
		c, at := overlay(siteConfig{}, func(string) bool { return false }, m.Site)
		setup, found := c.setup(at)
		problems = append(append(problems, found...), setup.probe(at)...)
		text, err := siteShape.Append(nil, setup.siteConfig)
		if err != nil && len(problems) == 0 {
			problems = append(problems, about("site", err))
		}
		means.Site = text
	}
	if m.Agent != nil {
		s, err := m.Agent.Settings()
		if err != nil {
			problems = append(problems, about("agent", err))
		}
		means.Agent = meaningOf(s)
	}
	return means, problems
}

// beside is path as seen from a file in dir.
func beside(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// problem is one reason not to start, with the place where it was given:
// "site.lease" in a file, "--lease" on a command line, empty for the file as a
// whole.
type problem struct {
	at    string
	what  *refusal.Refusal
	named bool // the words of what name the place
}

// must says what a value of ours must be.
func must(at, be string) problem {
	kind := configfile.ErrMember
	if strings.HasPrefix(at, "--") {
		kind = ErrUsage
	}
	return problem{at, kind.With(at + ": must be " + be + "."), true}
}

// about is another package's refusal of what was given at a place.
func about(at string, err error) problem { return problem{at, refusal.From(err), false} }

// refusal is what a command ends with.
func (p problem) refusal() *refusal.Refusal {
	if p.named {
		return p.what
	}
	return p.what.With(strings.TrimSpace(p.what.Detail() + " See " + p.at + "."))
}

// line is the problem as one of a list.
func (p problem) line() string {
	text := p.what.Kind().Meaning()
	switch {
	case p.named && p.what.Detail() != "":
		text = p.what.Detail()
	case !p.named:
		text = strings.TrimSpace(p.at + ": " + text + " " + p.what.Detail())
	}
	return text + " (" + p.what.Kind().Name() + ")"
}

func newConfig(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:     "config",
		Short:   "Work with configuration files",
		Example: "  allod config check /etc/allod/allod.json",
	}, newConfigCheck(env))
}

// checkReport is what allod config check says.
type checkReport struct {
	Taken    bool            `json:"taken"`
	Problems []problemReport `json:"problems"`
	// Means is a machineMeaning. It is absent with problems.
	Means jsontext.Value `json:"means,omitzero"`
}

type problemReport struct {
	// Path is empty for the file as a whole.
	Path    string         `json:"path"`
	Refusal jsontext.Value `json:"refusal"`
}

func newConfigCheck(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a configuration file would be taken, and what it means",
		Long: `Reads a configuration file as the parties do, looks at what it names, such as key
files, and touches nothing. It lists every problem and ends with the first one's
exit code, or shows the file's meaning with defaults filled in. Run it as the user
who will start the parties. docs/configuration.md lists the members.`,
		Example: "  allod config check /etc/allod/allod.json --json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return ErrUsage.With("Give the path of one configuration file.")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			means, problems := checkFile(args[0])
			r := checkReport{Taken: len(problems) == 0}
			for _, p := range problems {
				r.Problems = append(r.Problems, problemReport{p.at, refusal.JSON(p.refusal())})
			}
			if r.Taken {
				text, err := json.Marshal(means, json.Deterministic(true), jsontext.WithIndent("  "))
				if err != nil {
					return err
				}
				r.Means = text
			}
			err := print(cmd, env, r, func(w io.Writer) error { return writeCheck(w, r.Means, problems) })
			if err != nil || r.Taken {
				return err
			}
			return problems[0].refusal()
		},
	}
}

// checkFile finds everything that is wrong with a file, those things first that
// keep it from being read.
func checkFile(path string) (machineMeaning, []problem) {
	m, refused, err := configfile.Examine(path, machineShape)
	if err != nil {
		return machineMeaning{}, []problem{{"", refusal.From(err), true}}
	}
	var problems []problem
	for _, p := range refused {
		problems = append(problems, problem{p.Path, p.Refusal(), true})
	}
	m.resolve(filepath.Dir(path))
	means, found := m.check()
	for _, p := range found {
		// What could not be read was left out, and may be all that is missing here.
		if !slices.ContainsFunc(refused, func(q configfile.Problem) bool { return q.Spoils(p.at) }) {
			problems = append(problems, p)
		}
	}
	return means, problems
}

func writeCheck(w io.Writer, means jsontext.Value, problems []problem) error {
	if len(problems) > 0 {
		text := "The file would not be taken:\n\n"
		for _, p := range problems {
			text += "  " + p.line() + "\n"
		}
		_, err := io.WriteString(w, text)
		return err
	}
	_, err := fmt.Fprintf(w, "The file would be taken. With defaults filled in it means:\n\n%s\n", inert(string(means)))
	return err
}

// Bounds of a site's section.
const (
	maxListen   = 300 // UTF-16 code units
	maxKeyFiles = 16
	maxProxies  = 64
	maxQuota    = 1_000_000_000
	minTime     = time.Millisecond
	maxTime     = 365 * 24 * time.Hour
)

// What a site's section means where it says nothing.
const (
	defaultListen   = "127.0.0.1:0"
	defaultLease    = "1m"
	defaultTTL      = "15m"
	defaultPairTTL  = "10m"
	defaultLiveness = "35s"
)

// siteConfig is a site's settings as a person wrote them, in the section "site"
// of a file or as flags of allod site serve. What is empty has its default.
type siteConfig struct {
	Data, Listen, Origin, Owner   string
	KeyFiles                      []string
	Lease, TTL, PairTTL, Liveness string
	Quota                         exact.Opt[int64]
	Limits                        string
	TrustedProxies                []string
	// What follows is in a file only: labels and lists are no flags.
	Gateway        *gatewayConfig
	Webhooks       []webhookConfig
	WebhookPrivate []string
}

var siteShape = exact.Shape[siteConfig]{Fields: func(o *exact.Object, c *siteConfig) {
	exact.OptText(o, "data", &c.Data, 1, 0)
	exact.OptText(o, "listen", &c.Listen, 1, maxListen)
	exact.OptText(o, "origin", &c.Origin, 1, weburl.MaxURL)
	exact.OptText(o, "owner", &c.Owner, 1, site.MaxIDUnits)
	exact.OptTexts(o, "keyFiles", &c.KeyFiles)
	exact.OptText(o, "lease", &c.Lease, 1, 64)
	exact.OptText(o, "ttl", &c.TTL, 1, 64)
	exact.OptText(o, "pairTtl", &c.PairTTL, 1, 64)
	exact.OptText(o, "liveness", &c.Liveness, 1, 64)
	exact.OptWhole(o, "quota", &c.Quota, 0, maxQuota)
	exact.OptText(o, "limits", &c.Limits, 1, 64)
	exact.OptTexts(o, "trustedProxies", &c.TrustedProxies)
	webhookFields(o, c)
	exact.OptSub(o, "gateway", &c.Gateway, gatewayShape)
}}

// siteSettings names each setting as a member and as a flag.
var siteSettings = []struct {
	member, flag string
	take         func(to, from *siteConfig)
}{
	{"data", "data", func(to, from *siteConfig) { to.Data = from.Data }},
	{"listen", "listen", func(to, from *siteConfig) { to.Listen = from.Listen }},
	{"origin", "origin", func(to, from *siteConfig) { to.Origin = from.Origin }},
	{"owner", "owner", func(to, from *siteConfig) { to.Owner = from.Owner }},
	{"keyFiles", "key-file", func(to, from *siteConfig) { to.KeyFiles = from.KeyFiles }},
	{"lease", "lease", func(to, from *siteConfig) { to.Lease = from.Lease }},
	{"ttl", "ttl", func(to, from *siteConfig) { to.TTL = from.TTL }},
	{"pairTtl", "pair-ttl", func(to, from *siteConfig) { to.PairTTL = from.PairTTL }},
	{"liveness", "liveness", func(to, from *siteConfig) { to.Liveness = from.Liveness }},
	{"quota", "quota", func(to, from *siteConfig) { to.Quota = from.Quota }},
	{"limits", "limits", func(to, from *siteConfig) { to.Limits = from.Limits }},
	{"trustedProxies", "trusted-proxy", func(to, from *siteConfig) { to.TrustedProxies = from.TrustedProxies }},
}

// places says of each member where it was given.
type places map[string]string

// entry is the place of one entry of a list.
func (at places) entry(member string, i int) string {
	if strings.HasPrefix(at[member], "--") {
		return at[member] // which is repeated instead
	}
	return at[member] + "[" + strconv.Itoa(i) + "]"
}

// overlay lays flags over the section of a file, which may be nil: a flag that
// was given wins.
func overlay(flags siteConfig, given func(flag string) bool, file *siteConfig) (siteConfig, places) {
	var c siteConfig
	if file != nil {
		c = *file
	}
	at := places{}
	for _, s := range siteSettings {
		at[s.member] = "site." + s.member
		if file == nil || given(s.flag) {
			s.take(&c, &flags)
			at[s.member] = "--" + s.flag
		}
	}
	return c, at
}

func (c *siteConfig) resolve(dir string) {
	c.Data = beside(dir, c.Data)
	for i, path := range c.KeyFiles {
		c.KeyFiles[i] = beside(dir, path)
	}
	for i := range c.Webhooks {
		c.Webhooks[i].SecretFile = beside(dir, c.Webhooks[i].SecretFile)
	}
}

// siteSetup is a site's settings as the program uses them, and in words, with
// defaults filled in.
type siteSetup struct {
	siteConfig
	// ownKeys is set where no key file was named: one in the data folder is used,
	// and made the first time.
	ownKeys bool
	config  site.Config
	gateway gateway.Config
	// webhooks has no secrets until they are opened.
	webhooks webhook.Config
}

// setup reads the settings. With problems the setup means nothing beyond what
// has none.
func (c siteConfig) setup(at places) (s siteSetup, problems []problem) {
	refuse := func(p problem) { problems = append(problems, p) }
	s.siteConfig = c
	if c.Data == "" {
		refuse(must(at["data"], "given: the folder that the site keeps its data in"))
	}
	if s.Listen == "" {
		s.Listen = defaultListen
	}
	if !listens(s.Listen) {
		refuse(must(at["listen"], "an address and a port from 0 to 65535, as in 127.0.0.1:8080"))
	}
	if c.Origin != "" {
		origin, err := readOrigin(at["origin"], c.Origin)
		if err != nil {
			refuse(*err)
		}
		s.Origin = origin
	}
	if c.Owner != "" {
		if !utf8.ValidString(c.Owner) || ai.TextUnits(c.Owner) > site.MaxIDUnits || strings.ContainsFunc(c.Owner, unicode.IsControl) {
			refuse(must(at["owner"], fmt.Sprintf("1 to %d characters without control characters", site.MaxIDUnits)))
		}
		switch {
		case listens(s.Listen) && named(s.Listen):
			refuse(about(at["owner"], ErrOwnerReach.With("The site listens on a name, which can lead anywhere: a number is needed, such as 127.0.0.1.")))
		case listens(s.Listen) && !loopback(s.Listen):
			refuse(about(at["owner"], ErrOwnerReach.With("The site listens on an address that is not a loopback one.")))
		case s.Origin != "" && !loopbackOrigin(s.Origin):
			refuse(about(at["owner"], ErrOwnerReach.With("The origin is not on a loopback address.")))
		case len(c.TrustedProxies) > 0:
			refuse(about(at["owner"], ErrOwnerReach.With("There are proxies, and who comes through one is not on this machine.")))
		}
	}
	if len(c.KeyFiles) == 0 {
		s.ownKeys, s.KeyFiles = true, []string{filepath.Join(c.Data, siteKeys)}
	}
	if len(c.KeyFiles) > maxKeyFiles {
		refuse(must(at["keyFiles"], fmt.Sprintf("at most %d files", maxKeyFiles)))
	}
	for _, d := range []struct {
		member  string
		text    *string
		initial string
		into    *time.Duration
	}{
		{"lease", &s.Lease, defaultLease, &s.config.Lease},
		{"ttl", &s.TTL, defaultTTL, &s.config.TTL},
		{"pairTtl", &s.PairTTL, defaultPairTTL, &s.config.PairTTL},
		{"liveness", &s.Liveness, defaultLiveness, &s.config.Liveness},
	} {
		if *d.text == "" {
			*d.text = d.initial
		}
		span, err := time.ParseDuration(*d.text)
		if err != nil || span < minTime || span > maxTime {
			refuse(must(at[d.member], "a time from 1ms to 8760h, as in 90s or 1h30m"))
		}
		*d.into = span
	}
	s.Quota.Set = true
	if s.Quota.V < 0 || s.Quota.V > maxQuota {
		refuse(must(at["quota"], fmt.Sprintf("a whole number from 0 to %d", maxQuota)))
	}
	s.config.Quota = int(s.Quota.V)
	switch s.Limits {
	case "", "on":
		s.Limits = "on"
	case "off":
		s.config.NoLimits = true
	default:
		refuse(must(at["limits"], "on or off"))
	}
	if len(c.TrustedProxies) > maxProxies {
		refuse(must(at["trustedProxies"], fmt.Sprintf("at most %d ranges of addresses", maxProxies)))
	}
	if s.TrustedProxies == nil {
		s.TrustedProxies = []string{}
	}
	for i, text := range c.TrustedProxies[:min(len(c.TrustedProxies), maxProxies)] {
		prefix, ok := readRange(text)
		if !ok {
			refuse(must(at.entry("trustedProxies", i), "a range of addresses, as in 10.0.0.0/8"))
			continue
		}
		s.config.TrustedProxies = append(s.config.TrustedProxies, prefix)
	}
	var face gatewayConfig
	if c.Gateway != nil {
		face = *c.Gateway
	}
	face, config, found := face.setup()
	s.Gateway, s.gateway = &face, config
	return s, slices.Concat(problems, found, s.setupWebhooks())
}

// probe looks at what the settings name and touches nothing.
func (s siteSetup) probe(at places) (problems []problem) {
	if s.Data != "" && exists(s.Data) {
		if err := datadir.Prepare(s.Data); err != nil {
			problems = append(problems, about(at["data"], err))
		}
	}
	problems = append(problems, s.probeWebhooks()...)
	if s.ownKeys && !exists(s.KeyFiles[0]) {
		return problems
	}
	_, found := s.keys(at)
	return append(problems, found...)
}

// keys loads the key files.
func (s siteSetup) keys(at places) (keys []key.SiteKeys, problems []problem) {
	for i, path := range s.KeyFiles[:min(len(s.KeyFiles), maxKeyFiles)] {
		k, err := site.LoadKeys(path)
		if err != nil {
			place := at["data"]
			if !s.ownKeys {
				place = at.entry("keyFiles", i)
			}
			problems = append(problems, about(place, err))
		}
		keys = append(keys, k...)
	}
	return keys, problems
}

// hostName is what may stand for an address. Names whose last part is a number
// are none: they would be read as addresses.
var hostName = regexp.MustCompile(`^([A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*\.?$`)

// listens reports whether an address has the form of one to listen on. Whether
// it is free shows only when it is used.
func listens(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return host == "" || err == nil || len(host) < 254 && hostName.MatchString(host)
}

// loopback reports whether only this machine reaches an address to listen on. A
// name could lead anywhere by the time it is used.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// named reports whether an address to listen on has a name for its host.
func named(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err != nil
}

// loopbackOrigin reports whether an origin in its normal form names this machine.
func loopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && pairpage.Loopback(u.Host)
}

// readOrigin reads where people reach a site and returns it in its normal form,
// to which paths are appended.
func readOrigin(at, text string) (string, *problem) {
	u, err := weburl.ParseWeb(text)
	if err != nil {
		p := about(at, err)
		return "", &p
	}
	_, rest, _ := strings.Cut(u.String(), "//")
	authority, _, _ := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") || strings.ContainsAny(rest, "?#") {
		// Devices get it, and a name in it may come with a password.
		p := must(at, "a URL without a user name, a ? and a #")
		return "", &p
	}
	origin := strings.TrimSuffix(u.String(), "/")
	if _, err := weburl.ParseWeb(origin + pairpage.Path); err != nil {
		p := must(at, fmt.Sprintf("a URL of at most %d bytes", weburl.MaxURL-len(pairpage.Path)))
		return "", &p
	}
	return origin, nil
}

// agentMeaning is an agent's settings as a section of a file.
type agentMeaning struct {
	Backends map[string]agentBackend `json:"backends,omitzero"`
	Routes   map[ai.Kind]agentRoute  `json:"routes,omitempty"`
	// Concurrency is how many jobs run at once.
	Concurrency int            `json:"concurrency"`
	Limits      agentLimits    `json:"limits"`
	Ingress     agentIngress   `json:"ingress"`
	Community   agentCommunity `json:"community"`
}

type agentBackend struct {
	ID      backend.ID    `json:"backend"`
	BaseURL string        `json:"baseUrl,omitzero"`
	KeyEnv  string        `json:"apiKeyEnv,omitzero"`
	Offer   ai.OfferScope `json:"offer"`
	Spend   *agentSpend   `json:"spend,omitzero"`
}

type agentSpend struct {
	Acknowledged bool  `json:"acknowledged"`
	Ceiling      int64 `json:"dailyCapCents,omitzero"`
	Price        int64 `json:"centsPerMillionTokens,omitzero"`
}

type agentCommunity struct {
	PerHour    int   `json:"maxJobsPerHour"`
	PerDay     int   `json:"maxJobsPerDay"`
	MaxTime    int64 `json:"maxWallClockMs"`
	MaxOutput  int   `json:"maxOutputBytes"`
	MaxPayload int   `json:"maxPayloadChars"`
}

type agentRoute struct {
	Backend string `json:"backend"`
	Model   string `json:"model"`
}

type agentLimits struct {
	MaxTime   int64 `json:"maxWallClockMs"`
	MaxOutput int   `json:"maxOutputBytes"`
}

type agentIngress struct {
	KeepPrompts bool `json:"keepSelfPrompts"`
	Days        int  `json:"communityPromptDays"`
}

func meaningOf(s settings.Settings) *agentMeaning {
	c := s.Community
	m := &agentMeaning{
		Routes: map[ai.Kind]agentRoute{}, Concurrency: s.Concurrency,
		Limits: agentLimits{s.MaxTime.Milliseconds(), s.MaxOutput}, Ingress: agentIngress{s.KeepPrompts, s.CommunityPromptDays},
		Community: agentCommunity{c.JobsPerHour, c.JobsPerDay, c.MaxTime.Milliseconds(), c.MaxOutput, c.MaxPayload},
	}
	if s.Backends != nil {
		m.Backends = map[string]agentBackend{}
	}
	for name, b := range s.Backends {
		m.Backends[name] = backendMeaning(b)
	}
	for kind, r := range s.Routes {
		m.Routes[kind] = agentRoute(r)
	}
	return m
}

func backendMeaning(b settings.Backend) agentBackend {
	row := agentBackend{ID: b.ID, BaseURL: b.BaseURL, KeyEnv: b.KeyEnv, Offer: cmp.Or(b.Terms.Scope, ai.OfferSelf)}
	if t := b.Terms; t.Acknowledged || t.Ceiling > 0 || t.Price > 0 {
		row.Spend = &agentSpend{t.Acknowledged, t.Ceiling, t.Price}
	}
	return row
}
