//go:build unix

package adversarial

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/allodhq/allod/test/programs"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

type object = map[string]any

// machine is alice's: an agent in a process of its own, which is paired with a site
// in another and has one backend, mine. What that plays is in the file mode, of a
// program and of a server alike.
type machine struct {
	fake
	login string // the file in which a program keeps its login
	site  *programs.Site
	agent *programs.Agent
	works *programs.Process
}

// newMachine starts one. The members are added to the agent's section.
func newMachine(t *testing.T, id wirebackend.ID, mode string, members object) *machine {
	t.Helper()
	m := pairedMachine(t, id, mode, members)
	m.run("llm.generate", "llm.chat")
	return m
}

// pairedMachine is one whose agent does not run yet.
func pairedMachine(t *testing.T, id wirebackend.ID, mode string, members object) *machine {
	t.Helper()
	// The name of a socket is short.
	home, err := os.MkdirTemp("", "alice-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	m := &machine{fake: fake{t: t, id: id, dir: t.TempDir(), home: home}}
	folder := filepath.Join(m.home, ".config", "allod")
	m.scratch = filepath.Join(folder, "scratch")
	m.set("mode", mode)
	row := object{"backend": id}
	if name := names[id]; name != "" {
		if os.Geteuid() != 0 {
			m.install(name)
		}
	} else {
		row["baseUrl"], row["apiKeyEnv"] = m.server().URL+"/v1", "OPENAI_API_KEY"
	}
	route := object{"backend": "mine", "model": "model-1"}
	section := object{"backends": object{"mine": row}, "routes": object{"llm.generate": route, "llm.chat": route}, "concurrency": 4}
	for name, v := range members {
		section[name] = v
	}
	var env []string
	for name, value := range m.environment() {
		if name != "TMPDIR" && name != "LD_PRELOAD" { // which the agent itself obeys
			env = append(env, name+"="+value)
		}
	}
	m.agent = programs.AgentIn(t, folder, env...)
	m.agent.Configure(section)
	m.site = programs.Serve(t, "--data", filepath.Join(t.TempDir(), "site"))
	m.agent.Pair(m.site.URL, func(code string) { m.site.Approve(code) })
	return m
}

// install puts the program into a folder of its own, with a login in the home.
func (m *machine) install(name string) {
	m.t.Helper()
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	// No link, since behind walls the program sees the folder that it is in.
	text, err := os.ReadFile(self)
	if err != nil {
		m.t.Fatal(err)
	}
	m.login = filepath.Join(m.home, map[string]string{"claude": ".claude/.credentials.json", "codex": ".codex/auth.json"}[name])
	if err := errors.Join(os.WriteFile(filepath.Join(m.dir, name), text, 0o755), os.Mkdir(filepath.Dir(m.login), 0o700), os.WriteFile(m.login, nil, 0o600)); err != nil {
		m.t.Fatal(err)
	}
	m.set("reports", m.login)
}

// server plays a model server.
func (m *machine) server() *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			MaxTokens int `json:"max_tokens"`
			Messages  []struct{ Content string }
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &q) != nil || len(q.Messages) == 0 {
			_, _ = io.WriteString(w, `{"data":[{"id":"model-1"}]}`)
			return
		}
		mode := m.get("mode")
		if q.MaxTokens > 0 && q.MaxTokens < 1000 && mode == "echo" {
			mode = "" // a proof, which asks for a few tokens only
		}
		answer := func(text string) {
			_, _ = fmt.Fprintf(w, `{"choices":[{"finish_reason":"stop","message":{"content":"%s"}}],"usage":%s}`,
				quoted(text), cmp.Or(m.get("usage"), `{"prompt_tokens":2,"completion_tokens":4}`))
		}
		switch mode {
		case "":
			answer("ready")
		case "echo":
			answer(q.Messages[len(q.Messages)-1].Content)
		case "raw":
			code, _ := strconv.Atoi(m.get("code"))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, m.get("out"))
		case "key":
			answer(r.Header.Get("Authorization"))
		case "redirect":
			http.Redirect(w, r, "/elsewhere/"+secret, http.StatusTemporaryRedirect)
		case "killed":
			panic(http.ErrAbortHandler)
		case "hang":
			m.set("hangs", "here")
			<-r.Context().Done()
		case "flood":
			for chunk := []byte(strings.Repeat("{flood\n", 1000)); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}
	}))
	m.t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (m *machine) get(file string) string {
	b, _ := os.ReadFile(filepath.Join(m.dir, file))
	return string(b)
}

// run starts the agent, and waits until it offers so many kinds and the site knows.
func (m *machine) run(kinds ...string) {
	m.t.Helper()
	m.works = m.agent.Run()
	// What the site knows may be from when they were paired.
	m.works.Said.Shows(m.t, fmt.Sprintf("offers=%d\n", len(kinds)))
	for _, kind := range kinds {
		m.offers(kind)
	}
}

func (m *machine) offers(kind string) {
	m.t.Helper()
	if !m.available("alice", "self", kind, true) {
		m.t.Fatalf("alice's machine never offers %s:\n%s", kind, m.works.Said)
	}
}

// available waits until the site says so, or the other.
func (m *machine) available(owner, audience, kind string, want bool) bool {
	m.t.Helper()
	return programs.Eventually(m.t, func() bool {
		return m.site.Call("GET", "/v1/availability?owner="+owner+"&audience="+audience+"&kind="+kind, nil)["available"] == want
	})
}

// ask enqueues a job and returns its id.
func (m *machine) ask(kind, owner, audience string, payload any) string {
	m.t.Helper()
	id, _ := m.site.Call("POST", "/v1/jobs", object{"kind": kind, "owner": owner, "audience": audience, "payload": payload})["id"].(string)
	return id
}

// post enqueues a job as it stands, and returns what is answered.
func (m *machine) post(body string) (status int, answer string) {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, m.site.URL+"/v1/jobs", strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+m.site.Key)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// prompt is a job of alice's for herself.
func (m *machine) prompt(text any) string {
	m.t.Helper()
	return m.ask("llm.generate", "alice", "self", object{"prompt": text})
}

// end waits for the end of a job and returns it as an app sees it.
func (m *machine) end(id string) (job object) {
	m.t.Helper()
	if !programs.Eventually(m.t, func() bool {
		job = m.site.Call("GET", "/v1/jobs/"+url.PathEscape(id)+"?waitMs=20000", nil)
		return job["state"] != "queued" && job["state"] != "claimed" && job["state"] != "running"
	}) {
		m.t.Fatalf("it never ends: %v\n%s", job, m.works.Said)
	}
	return job
}

// answer is what came of a job that has to end well.
func (m *machine) answer(id string) string {
	m.t.Helper()
	job := m.end(id)
	out, _ := job["outcome"].(object)
	text, ok := out["text"].(string)
	if job["state"] != "ok" || !ok {
		m.t.Fatalf("job %v\n%s", job, m.works.Said)
	}
	return text
}

// tell runs a command of the agent's. What it says, on both outputs, must not be
// able to act on a terminal, and not hold a key. Its exit code is zero, unless refused names a refusal.
func (m *machine) tell(refused string, args ...string) (out string) {
	m.t.Helper()
	cmd := m.agent.Command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	m.inert(stdout.String())
	m.inert(stderr.String())
	if strings.Contains(stdout.String()+stderr.String(), secret) {
		m.t.Errorf("allod %q shows a key", args)
	}
	if (err != nil) != (refused != "") || refused != "" && !strings.Contains(stderr.String()+stdout.String(), refused) {
		m.t.Fatalf("allod %q: %v\n%s%s", args, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// tellJSON is [machine.tell] with --json.
func (m *machine) tellJSON(v any, args ...string) {
	m.t.Helper()
	text := m.tell("", append(slices.Clone(args), "--json")...)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		m.t.Fatalf("allod %q: %v in %.500s", args, err, text)
	}
}

// inert holds that a text cannot act on a terminal.
func (m *machine) inert(text string) {
	m.t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp))
	}); i >= 0 {
		m.t.Errorf("a terminal would act on %q", text[max(0, i-20):min(len(text), i+20)])
	}
}

// reports are what a program noted under a name, in order.
func (m *machine) reports(file string) (found []json.RawMessage) {
	m.t.Helper()
	text, err := os.ReadFile(m.login)
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var r report
		if err := json.Unmarshal(line, &r); err != nil {
			m.t.Fatalf("%v in %.200q", err, line)
		}
		if r.File == file {
			found = append(found, r.Value)
		}
	}
	return found
}

// runs are what a program saw of each job that it was given.
func (m *machine) runs() (all []seen) {
	m.t.Helper()
	for _, text := range m.reports("seen") {
		var s seen
		if err := json.Unmarshal(text, &s); err != nil {
			m.t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// bothClasses are a server and every program.
var bothClasses = []wirebackend.ID{wirebackend.Generic, "claude-cli", wirebackend.CodexCLI}

func eachClass(t *testing.T, test func(t *testing.T, id wirebackend.ID)) {
	t.Parallel()
	for _, id := range bothClasses {
		t.Run(string(id), func(t *testing.T) {
			if os.Geteuid() == 0 {
				t.Skip("nothing is started for root")
			}
			t.Parallel()
			test(t, id)
		})
	}
}
