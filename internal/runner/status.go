package runner

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/runner/allowlist"
	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
	"github.com/allodhq/allod/internal/runner/confine"
	"github.com/allodhq/allod/internal/runner/home"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/lane"
	"github.com/allodhq/allod/internal/runner/ledger"
	"github.com/allodhq/allod/internal/runner/outbox"
	"github.com/allodhq/allod/internal/runner/program"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/envelope"
	"github.com/allodhq/allod/wire/ai/match"
)

// Status is what an owner is shown of the agent.
type Status struct {
	Version     string `json:"version"`
	Fingerprint string `json:"fingerprint"`
	Name        string `json:"name,omitzero"`
	Running     bool   `json:"running"`
	Paused      bool   `json:"paused"`
	// Root is whether the agent runs as root, which it need not.
	Root     bool            `json:"root"`
	Servers  []ServerStatus  `json:"servers"`
	Backends []BackendStatus `json:"backends"`
	// Isolation is what this machine does for backends that are programs.
	Isolation Isolation `json:"isolation"`
	// Allowed is how many people's jobs are taken besides the owner's.
	Allowed int `json:"allowed"`
	// Problems are the reasons why nothing, or not all, is served, each with the
	// way out.
	Problems []string `json:"problems"`
}

// Isolation is what keeps the programs that the agent starts away from what their
// owner did not hand to them.
type Isolation struct {
	// Enforced is whether programs run behind walls.
	Enforced bool `json:"enforced"`
	// Open is what this kernel leaves open and a newer one would close.
	Open []string `json:"open,omitzero"`
	// Refusal names why there are no walls.
	Refusal string `json:"refusal,omitzero"`
}

func isolation(c confine.Confinement) Isolation {
	if c.Reason != nil {
		return Isolation{Refusal: c.Reason.Kind().Name()}
	}
	return Isolation{Enforced: c.Enforced, Open: c.Missing}
}

// openProblem says that programs run without walls where there are any, and why.
func openProblem(s Status, reason *refusal.Refusal) []string {
	if reason == nil || !s.HasPrograms() {
		return nil
	}
	k := reason.Kind()
	return []string{strings.Join([]string{k.Meaning(), reason.Detail(), k.WayOut()}, " ")}
}

// ServerStatus is what is shown of one paired server.
type ServerStatus struct {
	Server     string   `json:"server"`
	Owner      ai.Owner `json:"owner"`
	OwnerLabel string   `json:"ownerLabel,omitzero"`
	// Sites are the fingerprints that were approved here and count.
	Sites []string `json:"sites"`
	// SiteDetails are all sites, those among them that wait or count no more.
	SiteDetails []SiteStatus `json:"siteDetails,omitzero"`
	// State is starting, serving, unreachable, nothing-to-serve, revoked, two-agents
	// or stopped.
	State string `json:"state"`
	// Refusal names why, where there is a reason.
	Refusal string `json:"refusal,omitzero"`
	// Protocol is the version of the protocol that was agreed on with the server;
	// it is left out before it answered a request.
	Protocol string `json:"protocol,omitzero"`
	// AnsweredSeconds is how long ago the server last answered a heartbeat; it is
	// left out before the first.
	AnsweredSeconds *int64 `json:"answeredSeconds,omitzero"`
	// JobsRunning and ResultsKept count work in flight and results that are not
	// handed in yet.
	JobsRunning int `json:"jobsRunning"`
	ResultsKept int `json:"resultsKept"`
}

// Status describes the agent. It returns home.ErrPairings.
func (a *Agent) Status() (Status, error) {
	pairings, err := a.home.Pairings()
	if err != nil {
		return Status{}, err
	}
	name, err := a.home.Label()
	if err != nil {
		return Status{}, err
	}
	a.mu.Lock()
	running, paused := a.run != nil, a.paused
	a.mu.Unlock()
	s := Status{
		Version: a.config.Version, Fingerprint: a.Fingerprint().String(), Name: name,
		Running: running, Paused: paused || a.home.Paused(), Root: os.Geteuid() == 0,
		Servers: []ServerStatus{}, Backends: a.shelf.status(), Problems: []string{},
	}
	walls := confine.State()
	s.Isolation = isolation(walls)
	for _, p := range pairings {
		s.Servers = append(s.Servers, a.serverStatus(p))
	}
	s.Problems = append(problems(s), openProblem(s, walls.Reason)...)
	list, err := a.Allowed()
	s.Allowed = len(list)
	_, broken := a.purse.known()
	for _, err := range []error{err, broken} {
		if err != nil {
			r := refusal.From(err)
			s.Problems = append(s.Problems, r.Kind().Meaning()+" "+r.Kind().WayOut())
		}
	}
	return s, nil
}

// HasPrograms reports whether a backend is a program.
func (s Status) HasPrograms() bool {
	return slices.ContainsFunc(s.Backends, func(b BackendStatus) bool { return classOf(b.ID) == wirebackend.Process })
}

func (a *Agent) serverStatus(p home.Pairing) ServerStatus {
	row := ServerStatus{
		Server: p.Server, Owner: p.Owner, OwnerLabel: p.OwnerLabel, Sites: []string{}, State: "stopped", Protocol: p.Protocol.Version,
	}
	row.SiteDetails = sitesOf([]home.Pairing{p}, ai.MillisOf(a.config.Clock()))
	for i, s := range row.SiteDetails {
		row.SiteDetails[i].Identity = SiteIdentity{} // which Sites has
		if s.State == SiteApproved || s.State == SiteRetiring {
			row.Sites = append(row.Sites, string(s.Fingerprint))
		}
	}
	a.mu.Lock()
	r := a.lanes[p.Server]
	a.mu.Unlock()
	if p.TwoAgentsAt != 0 {
		row.State, row.Refusal = "two-agents", client.ErrTwoAgents.Name()
	}
	if r == nil {
		return row
	}
	r.driver.mu.Lock()
	st := r.driver.status
	r.driver.mu.Unlock()
	row.JobsRunning, row.ResultsKept = st.Running, st.Kept
	row.Protocol = r.driver.device.Spoken().Version // also where it could not be kept
	if !st.Answered.IsZero() {
		age := int64(a.config.Clock().Add(st.ahead).Sub(st.Answered) / time.Second)
		row.AnsweredSeconds = &age
	}
	switch {
	case st.revoked:
		row.State, row.Refusal = "revoked", ai.ErrRevoked.Name()
	case st.twoAgents:
		row.State, row.Refusal = "two-agents", client.ErrTwoAgents.Name()
	case !st.Asked:
		row.State = "starting"
	case !st.Reachable:
		row.State = "unreachable"
		if st.last.What == lane.NoteUnreachable {
			row.Refusal = refusal.From(st.last.Err).Kind().Name()
		}
	case len(st.Serving) == 0:
		row.State = "nothing-to-serve"
	default:
		row.State = "serving"
	}
	return row
}

// problems says in sentences why something is not served.
func problems(s Status) []string {
	var out []string
	add := func(text string) { out = append(out, text) }
	if len(s.Servers) == 0 {
		add("This machine is paired with no site. Pair it: allod connect URL.")
	}
	if s.Paused {
		add("The agent is paused and takes no work. Let it go on: allod agent resume.")
	}
	if s.Running && !slices.ContainsFunc(s.Backends, func(b BackendStatus) bool { return b.State == "ready" || b.State == "unproven" }) {
		add("No model is ready, so nothing is offered. See allod agent backends.")
	}
	for _, r := range s.Servers {
		switch r.State {
		case "stopped":
			if s.Running {
				add(r.Server + " is not served, although the agent runs: its pairing could not be opened. Look in the agent's log, and start the agent again.")
			}
		case "revoked":
			add(r.Server + " revoked this machine. Pair again if you want to go on: allod connect " + r.Server)
		case "two-agents":
			add(r.Server + " saw another live agent that uses this machine's keys, and serves neither. If you copied this machine's folder, stop or remove all copies but one, and pair that anew: allod connect " + r.Server + ". If you did not, somebody may have your keys: revoke this machine in the app, and pair from a new folder.")
		case "unreachable":
			add(r.Server + " does not answer, or refuses. The agent keeps trying." + because(r.Refusal))
		case "nothing-to-serve":
			add(r.Server + " offers no site that was approved on this machine. See allod agent sites for what it offers.")
		}
		siteProblems(r, add)
	}
	if out == nil {
		return []string{}
	}
	return out
}

// siteProblems says which sites of a server wait for the owner, and which showed
// another key.
func siteProblems(r ServerStatus, add func(string)) {
	var waiting []string
	for _, s := range r.SiteDetails {
		switch {
		case s.State == SitePending:
			waiting = append(waiting, string(s.Fingerprint))
		case s.ChangedAt != 0:
			add(r.Server + " showed another key under the name of the site " + string(s.Fingerprint) + " than the one that was approved on this machine. The other key is refused for as long as the pairing lasts. Ask whoever runs the site what happened; to trust it anew: allod agent forget " + r.Server + ", then connect again.")
		}
	}
	switch len(waiting) {
	case 0:
	case 1:
		add(r.Server + " offers a site that waits for your approval, and is served nothing. Compare its fingerprint with whoever runs it, then: allod agent approve " + waiting[0])
	default:
		add(r.Server + " offers " + strconv.Itoa(len(waiting)) + " sites that wait for your approval, and are served nothing. See allod agent sites.")
	}
}

// Offers are what the agent offers, as pairing shows it.
func (s Status) Offers() []ai.Capability {
	offers := []ai.Capability{}
	for _, b := range s.Backends {
		if b.State != string(backend.Ready) && b.State != string(backend.Unproven) {
			continue
		}
		for _, k := range b.Kinds {
			offers = append(offers, ai.Capability{Kind: k, Service: b.Name, BackendID: b.ID, BackendClass: classOf(b.ID), Model: b.Model, OfferScope: ai.OfferSelf})
		}
	}
	return offers
}

func because(refusal string) string {
	if refusal == "" {
		return ""
	}
	return " The reason is named " + refusal + "."
}

// Why collects what the agent knows about a job from its log, the oldest first.
func Why(dir string, job ai.JobID) (lines []ingress.Line, err error) {
	_, err = ingress.Read(dir, func(l ingress.Line) {
		if l.JobID == job {
			l.Prompt = "" // why, not what
			lines = append(lines, l)
		}
	})
	return lines, err
}

// Explain finds the refusal behind a detail of the log, or nil.
func Explain(detail string) *refusal.Kind {
	if detail == "" {
		return nil
	}
	// First, since one of them has the name of a refusal that the log never has.
	switch detail {
	case backend.CodeUnreachable, backend.CodeUnauthorized, backend.CodeNoModel, backend.CodeBackend, backend.CodeTimeout, backend.CodeTooLarge:
		return backend.KindOf(detail)
	}
	for _, r := range []refusal.Registry{
		Kinds, backend.Kinds, lane.Kinds, allowlist.Kinds, sharing.Kinds, program.Kinds, ledger.Kinds, client.Kinds, match.Kinds, envelope.Kinds, ai.Refusals, home.Kinds, datadir.Kinds, ingress.Kinds, outbox.Kinds, key.Kinds,
	} {
		if k := r.Find(detail); k != nil {
			return k
		}
	}
	return nil
}

// trimmed is a name for a machine that has none: user and host.
func trimmed(text string) string {
	text = strings.TrimSpace(text)
	for ai.TextUnits(text) > ai.MaxLabelUnits {
		r := []rune(text)
		text = strings.TrimSpace(string(r[:len(r)-1]))
	}
	return text
}
