package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	modelserver "github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/internal/runner/client"
)

// talkTo runs a conversation with a server of the test's own.
func talkTo(t *testing.T, in string, answer http.HandlerFunc) (out, errs string, err error) {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	at, err := client.ParseServer(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	err = chatClient{server: at, key: "canary-key", user: "alice", model: "label"}.talk(t.Context(), Env{In: strings.NewReader(in), Out: &o, Err: &e})
	return o.String(), e.String(), err
}

// chatJob is an id as the gateway gives them.
var chatJob = strings.Repeat("0f", 16)

func ran(w http.ResponseWriter, machine, untrusted string) {
	w.Header().Set("X-Allod-Job", chatJob)
	w.Header().Set("X-Allod-Machine", machine)
	w.Header().Set("X-Allod-Untrusted", untrusted)
}

func says(w http.ResponseWriter, content string) {
	ran(w, "own", "false")
	text, _ := json.Marshal(content)
	fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%s},"finish_reason":"stop"}]}`, text)
}

// TestTalk holds that a conversation keeps its turns, that a turn which failed is
// none, and what the terminal is spared.
func TestTalk(t *testing.T) {
	var bodies []string
	out, errs, err := talkTo(t, "one\n\n  \nfails\nlies\ntwo\nthree", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies = append(bodies, string(body))
		if r.Header.Get("Authorization") != "Bearer canary-key" || r.Header.Get("X-Allod-Cancel-On-Disconnect") != "true" || r.URL.Path != "/v1/chat/completions" {
			t.Errorf("%s %v", r.URL.Path, r.Header)
		}
		switch len(bodies) {
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"message":"canary","type":"server_error","param":null,"code":"no_runner"}}`)
		case 3:
			_, _ = io.WriteString(w, "canary, a sign-in page")
		case 4:
			ran(w, "shared", "true")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"theirs"},"finish_reason":"length"}]}`)
		default:
			says(w, "answer \x1b[2J\n")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "> answer \ufffd[2J\n> > > > > theirs\n> answer \ufffd[2J\n> \n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	for _, part := range []string{"Ctrl-D", "(no-runner)", "(server-answer)", "need not be the user's own", "longest answer"} {
		if strings.Count(errs, part) != 1 {
			t.Errorf("%q is there %d times in %q", part, strings.Count(errs, part), errs)
		}
	}
	if strings.Contains(out+errs, "canary") {
		t.Errorf("a secret or another's words: %q %q", out, errs)
	}
	turn := func(role, content string) string { return `{"role":"` + role + `","content":"` + content + `"}` }
	const begin, end = `{"model":"label","messages":[`, `],"user":"alice"}`
	first := turn("user", "one") + "," + turn("assistant", `answer \u001b[2J\n`)
	want := []string{
		begin + turn("user", "one") + end,
		begin + first + "," + turn("user", "fails") + end,
		begin + first + "," + turn("user", "lies") + end,
		begin + first + "," + turn("user", "two") + end,
		begin + first + "," + turn("user", "two") + "," + turn("assistant", "theirs") + "," + turn("user", "three") + end,
	}
	if !reflect.DeepEqual(bodies, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(bodies, "\n"), strings.Join(want, "\n"))
	}
}

// TestTalkIsBounded holds that a long conversation keeps its newest turns.
func TestTalkIsBounded(t *testing.T) {
	longest := 0
	_, _, err := talkTo(t, strings.Repeat("x\n", 200), func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Messages []any }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		longest = max(longest, len(q.Messages))
		says(w, "y")
	})
	if err != nil || longest != 256 {
		t.Errorf("%d turns, %v", longest, err)
	}
}

// TestTalkStops holds that a conversation ends while nothing is typed.
func TestTalkStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	in, typed := io.Pipe()
	defer typed.Close()
	if err := (chatClient{}).talk(ctx, Env{In: in, Out: io.Discard, Err: io.Discard}); err != context.Canceled {
		t.Errorf("ended with %v", err)
	}
}

// TestChatRefusals holds whose words a refusal is in.
func TestChatRefusals(t *testing.T) {
	refused := func(code, param string) string {
		return fmt.Sprintf(`{"error":{"message":"canary","type":"canary","param":%s,"code":%q}}`, param, code)
	}
	for name, c := range map[string]struct {
		status int
		text   string
		want   string
	}{
		"a wrong key":          {401, refused("invalid_api_key", "null"), "app-key: "},
		"no user":              {400, refused("missing_required_parameter", `"user"`), "See the flag --user."},
		"no model":             {404, refused("model_not_found", `"model"`), "See the flag --model."},
		"another member":       {400, refused("unsupported_parameter", `"canary"`), "unsupported-parameter: "},
		"the device":           {502, refused("timeout", "null"), "The device reports: The model server did not finish"},
		"a device of others":   {502, refused("canary", "null"), "The device reports: "},
		"another code":         {500, refused("canary", "null"), "server-answer: "},
		"the site's own fault": {500, refused("internal", "null"), "server-answer: "},
		"no code":              {500, refused("", "null"), "server-answer: "},
		"the app's own shape":  {404, `{"error":"app-path"}`, "server-answer: "},
		"no JSON":              {502, `<html>canary`, "server-answer: "},
	} {
		err := chatRefusal(c.status, []byte(c.text))
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestChatAnswers holds what of an answer is believed.
func TestChatAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		header, value string
		finish        string
		taken         bool
	}{
		"as it should be":      {"", "", "stop", true},
		"cut":                  {"", "", "length", true},
		"another's machine":    {"X-Allod-Machine", "shared", "stop", true},
		"no machine":           {"X-Allod-Machine", "", "stop", false},
		"an odd machine":       {"X-Allod-Machine", "canary", "stop", false},
		"another model":        {"X-Allod-Instead", "backend-unreachable", "stop", true},
		"for an odd reason":    {"X-Allod-Instead", "canary canary", "stop", false},
		"no job":               {"X-Allod-Job", "", "stop", false},
		"a job that is a text": {"X-Allod-Job", strings.Repeat("canary!", 4) + "0000", "stop", false},
		"a long job":           {"X-Allod-Job", strings.Repeat("0", 33), "stop", false},
		"another end":          {"", "", "canary", false},
		"no end":               {"", "", "", false},
	} {
		out, errs, err := talkTo(t, "one", func(w http.ResponseWriter, _ *http.Request) {
			ran(w, "own", "false")
			if c.header != "" {
				w.Header().Set(c.header, c.value)
			}
			fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"x"},"finish_reason":%q}]}`, c.finish)
		})
		if err != nil || strings.Contains(out, "x") != c.taken || strings.Contains(errs, "(server-answer)") == c.taken || strings.Contains(out+errs, "canary") {
			t.Errorf("%s: %q %q %v", name, out, errs, err)
		}
	}
	_, errs, _ := talkTo(t, "one", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Allod-Instead", "backend-unreachable")
		says(w, "x")
	})
	if want := "Another model than the device's first choice answered (backend-unreachable). " + modelserver.ErrUnreachable.Meaning() + "\n"; !strings.Contains(errs, want) {
		t.Errorf("%q, want %q", errs, want)
	}
	_, errs, _ = talkTo(t, "one", func(w http.ResponseWriter, _ *http.Request) {
		says(w, strings.Repeat("x", 8<<20))
	})
	if !strings.Contains(errs, "longer than 8 MiB") {
		t.Errorf("a long answer: %.300q", errs)
	}
}

// TestChatCancels holds that a job which goes on without anybody who waits is
// canceled, and named where that fails.
func TestChatCancels(t *testing.T) {
	for name, c := range map[string]struct {
		code   string
		status int
		job    string
		cancel int // the status of the answer; 0 where nobody may ask
		want   string
		not    string
	}{
		"pending":               {"job_pending", 504, chatJob, 200, "(job-canceled)", chatJob},
		"pending, and it stays": {"job_pending", 504, chatJob, 500, "The job is " + chatJob, "job-canceled"},
		"pending without an id": {"job_pending", 504, "", 0, "(job-pending)", "The job is"},
		"pending with a path":   {"job_pending", 504, "../../../canary/canary/canary/xx", 0, "(job-pending)", "canary"},
		"the site stops":        {"site_stopping", 503, chatJob, 200, "(job-canceled)", chatJob},
		"the site is gone":      {"site_stopping", 503, chatJob, 502, "The job is " + chatJob, "job-canceled"},
		"the device failed":     {"timeout", 502, chatJob, 0, "(device-failed)", "The job is"},
	} {
		asked := 0
		_, errs, err := talkTo(t, "one", func(w http.ResponseWriter, r *http.Request) {
			asked++
			if asked == 1 {
				if c.job != "" {
					w.Header().Set("X-Allod-Job", c.job)
				}
				w.WriteHeader(c.status)
				fmt.Fprintf(w, `{"error":{"message":"m","type":"server_error","param":null,"code":%q}}`, c.code)
				return
			}
			if body, err := io.ReadAll(r.Body); err != nil || len(body) > 0 || c.cancel == 0 || r.Method != "POST" ||
				r.URL.Path != "/v1/jobs/"+c.job+"/cancel" || r.Header.Get("Authorization") != "Bearer canary-key" {
				t.Errorf("%s: %s %s %q", name, r.Method, r.URL.Path, body)
			}
			w.WriteHeader(c.cancel)
		})
		if err != nil || !strings.Contains(errs, c.want) || strings.Contains(errs, c.not) || (asked == 2) != (c.cancel > 0) {
			t.Errorf("%s: asked %d times, %q %v", name, asked, errs, err)
		}
	}
}

// TestChatWaits holds that a site which never answers is not waited for for ever.
func TestChatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		through := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
		at, err := client.ParseServer("http://127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, err = chatClient{server: at, key: "k", model: "m", transport: through}.ask(t.Context(), []chatTurn{{"user", "x"}})
		if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "15 minutes") || time.Since(begin) != 15*time.Minute {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// TestChatFollowsNobody holds that a site's answer cannot send the key elsewhere.
func TestChatFollowsNobody(t *testing.T) {
	_, errs, err := talkTo(t, "one", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			t.Errorf("%s was asked too", r.URL.Path)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	if err != nil || !strings.Contains(errs, "(server-answer)") {
		t.Errorf("%v %q", err, errs)
	}
}

func TestPromptOf(t *testing.T) {
	for name, c := range map[string]struct {
		words []string
		in    string
		want  string // empty where it is refused
	}{
		"words":             {[]string{"a", "b"}, "x", "a b"},
		"standard input":    {nil, "a\nb\r\n\n", "a\nb"},
		"nothing":           {nil, "\n", ""},
		"an empty word":     {[]string{""}, "x", ""},
		"no UTF-8":          {nil, "\xff", ""},
		"the longest":       {nil, strings.Repeat("é", 1_000_000), strings.Repeat("é", 1_000_000)},
		"longer":            {nil, strings.Repeat("a", 1_000_001), ""},
		"much longer":       {nil, strings.Repeat("\n", 5_000_000) + "a", ""},
		"four bytes a unit": {nil, strings.Repeat("😀", 500_000), strings.Repeat("😀", 500_000)},
	} {
		got, err := promptOf(c.words, strings.NewReader(c.in))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %.20q %v", name, got, err)
		}
	}
}
