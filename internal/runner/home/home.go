// Package home keeps what an agent must not forget: its keys, the servers it is
// paired with, its name and whether it is paused. Each is a file in one folder
// that only this user can reach.
//
// The package refuses to go on with a damaged file: an agent that had forgotten
// whom it trusts would trust anew.
package home

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
)

// What this package refuses.
var (
	ErrNoHome = refusal.NewKind("agent-home", 500,
		"There is no folder for the agent: this user has no configuration folder.",
		"Set ALLOD_HOME to a folder of this user.")
	ErrPairings = refusal.NewKind("pairings-damaged", 500,
		"The list of paired servers is damaged, so the agent does not know whom it trusts. The file is left as it is.",
		"Restore pairings.json in the agent's folder from a backup, or move it away and connect to each site again.")
	ErrNotPaired = refusal.NewKind("not-paired", 404,
		"This machine is not paired with that server.",
		"See allod agent status for the servers it is paired with, and allod connect to pair.")
	ErrLabel = refusal.NewKind("agent-label", 400,
		"A machine's name is 1 to 120 characters without control characters.",
		"Choose another name.")
	ErrTooMany = refusal.NewKind("too-many-pairings", 409,
		"This machine is paired with as many servers as it can be.",
		"Forget one first: allod agent forget URL.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "An agent's folder", Kinds: []*refusal.Kind{ErrNoHome, ErrPairings, ErrNotPaired, ErrLabel, ErrTooMany}}

// Names of the files.
const (
	KeyFile    = "keys.json"
	ConfigFile = "config.json"
	pairings   = "pairings.json"
	label      = "label"
	paused     = "paused"
	outbox     = "outbox"
	scratch    = "scratch"
)

// MaxPairings bounds how many servers an agent is paired with.
const MaxPairings = 64

const maxPairingsFile = 4 << 20

// Dir is the agent's folder: ALLOD_HOME, or allod in the user's configuration
// folder. It returns [ErrNoHome].
func Dir() (string, error) {
	dir, err := os.Getenv("ALLOD_HOME"), error(nil)
	if dir != "" {
		dir, err = filepath.Abs(dir)
	} else if dir, err = os.UserConfigDir(); err == nil {
		dir = filepath.Join(dir, "allod")
	}
	if err != nil {
		return "", ErrNoHome.Because(err)
	}
	return dir, nil
}

// Home is an agent's folder in use by this process. It may be used by several
// goroutines.
type Home struct {
	dir     string
	release func()
	// changing is held while the list of pairings is read, changed and written.
	changing sync.Mutex
}

// Open takes the folder for this process, making it the first time. It returns
// datadir.ErrData and datadir.ErrRunning.
func Open(dir string) (*Home, error) {
	if err := datadir.Prepare(dir); err != nil {
		return nil, err
	}
	release, err := datadir.Lock(dir)
	if err != nil {
		return nil, err
	}
	sweep(dir)
	_ = os.RemoveAll(filepath.Join(dir, scratch)) // of runs that did not end
	return &Home{dir: dir, release: release}, nil
}

// sweep removes what writes that did not end have left, keys among it.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		for _, file := range []string{KeyFile, pairings, label, paused} {
			if left, _ := filepath.Match(file+".????????????????.tmp", e.Name()); left {
				_ = os.Remove(filepath.Join(dir, e.Name()))
			}
		}
	}
}

// Close lets go of the folder.
func (h *Home) Close() { h.release() }

// Dir is the folder.
func (h *Home) Dir() string { return h.dir }

// Outbox is the folder for results that are not handed in yet.
func (h *Home) Outbox() string { return filepath.Join(h.dir, outbox) }

// Scratch is the folder for the scratch folders of programs.
func (h *Home) Scratch() string { return filepath.Join(h.dir, scratch) }

// Keys returns the device's keys and makes them the first time. It returns the
// refusals of package keyfile; a damaged file is never written over.
func (h *Home) Keys(now time.Time) (key.DeviceKeys, error) {
	path := filepath.Join(h.dir, KeyFile)
	k, err := LoadKeys(h.dir)
	if !errors.Is(err, keyfile.ErrAbsent) {
		return k, err
	}
	if k, err = key.NewKeys[key.DeviceRole](rand.Reader, now); err != nil {
		return key.DeviceKeys{}, err
	}
	if err := keyfile.Create(path, k); err != nil {
		return key.DeviceKeys{}, err
	}
	return k, nil
}

// LoadKeys reads the keys of a folder that may be in use by another process. It
// returns the refusals of package keyfile.
func LoadKeys(dir string) (key.DeviceKeys, error) {
	return keyfile.Load[key.DeviceRole](filepath.Join(dir, KeyFile))
}

// Site is a site that was approved on this machine. It stays listed for the life
// of the pairing, so that another key under its name is known for what it is.
type Site struct {
	Identity key.Site
	// SignsReach is whether the site was seen to sign what a job may reach. From
	// then on it must.
	SignsReach bool
	// By is how it was approved; empty means with the pairing.
	By By
	// At is when; zero means with the pairing.
	At ai.Millis
	// From is the key that it came after. It is set if and only if By is
	// [BySuccession].
	From ai.KeyID
	// Next is the key that came after it, and Until is when it stops counting;
	// empty and zero mean that it is not followed.
	Next  ai.KeyID
	Until ai.Millis
	// ChangedAt is when another key was first shown under its name; zero means
	// never.
	ChangedAt ai.Millis
}

// By is how a site was approved.
type By string

// The ways to approve a site.
const (
	ByPairing    By = "pairing"    // it was there when the owner paired the machine
	ByOwner      By = "owner"      // the owner approved it later
	BySuccession By = "succession" // a key that was approved signed that this one comes after it
)

// Pending is a site that is offered and was not approved here.
type Pending struct {
	Identity key.Site
	// SeenAt is when it was first offered under this very key.
	SeenAt ai.Millis
}

// Bounds of a pairing.
const (
	// MaxSites is how many sites one pairing can have approved, those that are
	// followed by another among them.
	MaxSites = 256
	// MaxPending is how many sites of one pairing can wait.
	MaxPending = 64
)

// Pairing is one server that the agent is paired with.
type Pairing struct {
	// Server is its address in normal form.
	Server   string
	RunnerID ai.RunnerID
	Owner    ai.Owner
	// OwnerLabel is a name for people; empty means none.
	OwnerLabel string
	Sites      map[ai.KeyID]Site
	// Pending are the sites that the server offered last and that were not approved
	// here; nil means none. They are served nothing.
	Pending  map[ai.KeyID]Pending
	PairedAt ai.Millis
	// Protocol is the version of the protocol that was agreed on with the server;
	// zero means none yet.
	Protocol Protocol
	// TwoAgentsAt is when the server said that another live agent uses this
	// machine's keys; zero means never. Nothing is done for the server from then on.
	TwoAgentsAt ai.Millis
}

// Protocol is a version that was agreed on.
type Protocol struct {
	Version string
	// At is when the server was last asked for a newer one.
	At ai.Millis
}

// rows are the file's form of pairings.
type rows struct{ list []row }

type row struct {
	Pairing
	sites   map[ai.KeyID]siteRow
	pending map[ai.KeyID]pendingRow
}

// siteRow is a site; the identity of the embedded one is not used.
type siteRow struct {
	Site
	identity ai.PublicIdentity
}

type pendingRow struct {
	identity ai.PublicIdentity
	seenAt   ai.Millis
}

func identityFields(o *exact.Object, p *ai.PublicIdentity) {
	exact.Text(o, "identity", &p.Identity, 1, 0)
	exact.Text(o, "encryption", &p.Encryption, 1, 0)
	exact.Text(o, "encryptionSig", &p.EncryptionSig, 1, 0)
}

// optMillis is an optional time; absent reads as zero, and zero is not written.
func optMillis(o *exact.Object, name string, p *ai.Millis) {
	v := exact.Opt[ai.Millis]{V: *p, Set: *p != 0}
	exact.OptWhole(o, name, &v, 1, 0)
	*p = v.V
}

var siteShape = exact.Shape[siteRow]{Fields: func(o *exact.Object, s *siteRow) {
	identityFields(o, &s.identity)
	exact.OptBool(o, "signsReach", &s.SignsReach)
	exact.OptWord(o, "approvedBy", &s.By, []By{ByPairing, ByOwner, BySuccession})
	optMillis(o, "approvedAt", &s.At)
	exact.OptText(o, "succeeds", &s.From, 1, 64)
	exact.OptText(o, "succeededBy", &s.Next, 1, 64)
	optMillis(o, "countsUntil", &s.Until)
	optMillis(o, "changedAt", &s.ChangedAt)
}}

var pendingShape = exact.Shape[pendingRow]{Fields: func(o *exact.Object, p *pendingRow) {
	identityFields(o, &p.identity)
	exact.Whole(o, "seenAt", &p.seenAt, 1, 0)
}}

var rowShape = exact.Shape[row]{Fields: func(o *exact.Object, r *row) {
	exact.Text(o, "server", &r.Server, 1, 2048)
	exact.Text(o, "runnerId", &r.RunnerID, 1, 0)
	exact.Text(o, "owner", &r.Owner, 1, 0)
	exact.OptText(o, "ownerLabel", &r.OwnerLabel, 1, 0)
	exact.Map(o, "sites", &r.sites, siteShape)
	exact.OptMap(o, "pending", &r.pending, pendingShape)
	exact.Whole(o, "pairedAt", &r.PairedAt, 1, 0)
	spoken := &r.Protocol
	if *spoken == (Protocol{}) {
		spoken = nil // and then it is not written
	}
	exact.OptSub(o, "protocol", &spoken, protocolShape)
	if spoken != nil {
		r.Protocol = *spoken
	}
	optMillis(o, "twoAgentsAt", &r.TwoAgentsAt)
}}

var protocolShape = exact.Shape[Protocol]{Fields: func(o *exact.Object, p *Protocol) {
	exact.Text(o, "version", &p.Version, 1, 16)
	exact.Whole(o, "askedAt", &p.At, 1, 0)
}}

var pairingLimits = exact.Limits{Bytes: maxPairingsFile, Depth: 8, Values: 1 << 17}

// Marshal writes a pairing as it stands in the file. It returns [ErrPairings] for
// one that could not be read again.
func (p Pairing) Marshal() ([]byte, error) {
	text, err := rowShape.Append(nil, p.row())
	if err != nil {
		return nil, ErrPairings.Because(err)
	}
	if _, err := ParsePairing(text); err != nil {
		return nil, err
	}
	return text, nil
}

// ParsePairing reads what [Pairing.Marshal] wrote. It returns [ErrPairings].
func ParsePairing(text []byte) (Pairing, error) {
	r, err := rowShape.Read(text, pairingLimits)
	if err != nil {
		return Pairing{}, ErrPairings.Because(err)
	}
	return r.pairing()
}

func (p Pairing) row() row {
	r := row{Pairing: p, sites: map[ai.KeyID]siteRow{}}
	for id, s := range p.Sites {
		r.sites[id] = siteRow{s, ai.PublicIdentityOf(s.Identity)}
	}
	for id, s := range p.Pending {
		if r.pending == nil {
			r.pending = map[ai.KeyID]pendingRow{} // else it is not written
		}
		r.pending[id] = pendingRow{ai.PublicIdentityOf(s.Identity), s.SeenAt}
	}
	return r
}

func (r row) pairing() (Pairing, error) {
	if len(r.sites) > MaxSites || len(r.pending) > MaxPending {
		return Pairing{}, ErrPairings
	}
	r.Sites = map[ai.KeyID]Site{}
	for id, s := range r.sites {
		var err error
		if s.Identity, err = named(s.identity, id); err != nil || !s.whole() {
			return Pairing{}, ErrPairings.Because(err)
		}
		r.Sites[id] = s.Site
	}
	for id, s := range r.pending {
		identity, err := named(s.identity, id)
		if _, approved := r.sites[id]; err != nil || approved {
			return Pairing{}, ErrPairings.Because(err)
		}
		if r.Pending == nil {
			r.Pending = map[ai.KeyID]Pending{}
		}
		r.Pending[id] = Pending{identity, s.seenAt}
	}
	return r.Pairing, nil
}

// named is a site's identity, which must be the one that its id names.
func named(p ai.PublicIdentity, id ai.KeyID) (key.Site, error) {
	s, err := p.Site()
	if err == nil && s.Fingerprint().String() != string(id) {
		err = key.ErrText
	}
	return s, err
}

// whole reports whether what is said of a site fits together. Half of it would
// let a key count for longer than its owner was told.
func (s Site) whole() bool {
	return (s.From != "") == (s.By == BySuccession) && (s.Next == "") == (s.Until == 0)
}

var rowsShape = exact.Shape[rows]{Fields: func(o *exact.Object, r *rows) {
	version := int64(1)
	exact.Whole(o, "version", &version, 1, 1)
	exact.List(o, "pairings", &r.list, 0, MaxPairings, rowShape)
}}

// Pairings returns the servers in the order in which they were first paired. It
// returns datadir.ErrRead and [ErrPairings].
func (h *Home) Pairings() ([]Pairing, error) { return LoadPairings(h.dir) }

// LoadPairings reads the servers of a folder that may be in use by another
// process. It returns what [Home.Pairings] does.
func LoadPairings(dir string) ([]Pairing, error) {
	content, err := datadir.Read(filepath.Join(dir, pairings), maxPairingsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return parsePairings(content)
}

func parsePairings(content []byte) ([]Pairing, error) {
	read, err := rowsShape.Read(content, pairingLimits)
	if err != nil {
		return nil, ErrPairings.Because(err)
	}
	var list []Pairing
	for _, r := range read.list {
		p, err := r.pairing()
		if err != nil {
			return nil, err
		}
		if indexOf(list, p.Server) >= 0 {
			return nil, ErrPairings // which of the two counts?
		}
		list = append(list, p)
	}
	return list, nil
}

func indexOf(list []Pairing, server string) int {
	return slices.IndexFunc(list, func(p Pairing) bool { return p.Server == server })
}

// write writes the list, unless it could not be read again.
func (h *Home) write(list []Pairing) error {
	var r rows
	for _, p := range list {
		r.list = append(r.list, p.row())
	}
	content, err := rowsShape.Append(nil, r)
	if err != nil {
		return ErrPairings.Because(err)
	}
	content = append(content, '\n')
	switch _, err := parsePairings(content); {
	case errors.Is(err, exact.ErrTooLarge), errors.Is(err, exact.ErrTooMany):
		return ErrTooMany.With("The list would be larger than the agent reads.")
	case err != nil:
		return err
	}
	return datadir.Replace(filepath.Join(h.dir, pairings), content)
}

// Pair records a pairing, in the place of an earlier one with the same server.
// It returns the refusals of [Home.Pairings], also for a pairing that could not
// be read again, [ErrTooMany] and datadir.ErrWrite, and then nothing changed.
func (h *Home) Pair(p Pairing) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	list, err := h.Pairings()
	if err != nil {
		return err
	}
	switch i := indexOf(list, p.Server); {
	case i >= 0:
		list[i] = p
	case len(list) >= MaxPairings:
		return ErrTooMany
	default:
		list = append(list, p)
	}
	return h.write(list)
}

// Forget removes a pairing and returns it. It returns [ErrNotPaired] and what
// [Home.Pair] does.
func (h *Home) Forget(server string) (Pairing, error) {
	h.changing.Lock()
	defer h.changing.Unlock()
	list, err := h.Pairings()
	if err != nil {
		return Pairing{}, err
	}
	i := indexOf(list, server)
	if i < 0 {
		return Pairing{}, ErrNotPaired
	}
	gone := list[i]
	if err := h.write(slices.Delete(list, i, i+1)); err != nil {
		return Pairing{}, err
	}
	return gone, nil
}

// Label is the machine's name as its owner chose it, or "". It returns
// datadir.ErrRead, and [ErrLabel] for a file that holds no name.
func (h *Home) Label() (string, error) {
	content, err := datadir.Read(filepath.Join(h.dir, label), 4<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return "", nil
	}
	if err := CheckLabel(text); err != nil {
		return "", err
	}
	return text, nil
}

// SetLabel names the machine. It returns [ErrLabel] and datadir.ErrWrite.
func (h *Home) SetLabel(text string) error {
	if err := CheckLabel(text); err != nil {
		return err
	}
	return datadir.Replace(filepath.Join(h.dir, label), []byte(text+"\n"))
}

// CheckLabel returns [ErrLabel] for a text that cannot be a machine's name.
func CheckLabel(text string) error {
	bad := func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffd' }
	if n := ai.TextUnits(text); n < 1 || n > ai.MaxLabelUnits || strings.TrimSpace(text) != text || strings.ContainsFunc(text, bad) {
		return ErrLabel
	}
	return nil
}

// Paused is whether the owner paused the agent.
func (h *Home) Paused() bool {
	_, err := os.Stat(filepath.Join(h.dir, paused))
	// What cannot be looked at counts as paused.
	return !errors.Is(err, fs.ErrNotExist)
}

// SetPaused pauses the agent, also after a restart, or lets it go on. It returns
// datadir.ErrWrite.
func (h *Home) SetPaused(on bool) error {
	path := filepath.Join(h.dir, paused)
	if on {
		return datadir.Replace(path, nil)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return datadir.ErrWrite.Because(err)
	}
	return nil
}
