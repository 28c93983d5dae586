//go:build unix

package gateway

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

// TestChatCommand is allod chat with our agent behind the site.
func TestChatCommand(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	m := newModel(t)
	l.agent(m)
	chat := func(in string, args ...string) (out, errs string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), programs.Allod(t), append([]string{"chat", "--url", l.URL}, args...)...)
		var o, e strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &o, &e
		_ = cmd.Run()
		return o.String(), e.String(), cmd.ProcessState.ExitCode()
	}
	if out, errs, code := chat("", "--key-file", l.aliceFile, "what", "is", "it?"); out != "no model, but: what is it?\n" || errs != "" || code != 0 {
		t.Errorf("a prompt: %q %q %d", out, errs, code)
	}
	if out, _, code := chat("one\ntwo\n", "--key-file", l.aliceFile, "--model", "chatty"); out != "no model, but: one\ntwo\n" || code != 0 {
		t.Errorf("standard input: %q %d", out, code)
	}
	out, errs, code := chat("", "--json", "--key-file", l.KeyFile, "--user", "alice", "long")
	var got struct {
		Answer, FinishReason, Job, Machine string
		Untrusted                          *bool
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Answer != "no model, but: long" || got.FinishReason != "length" ||
		len(got.Job) != 32 || got.Machine != "own" || got.Untrusted == nil || *got.Untrusted || code != 0 {
		t.Errorf("as JSON: %q %q %d %v", out, errs, code, err)
	}
	for name, c := range map[string]struct {
		args []string
		want string // on standard error
	}{
		"nobody is named":  {[]string{"--key-file", l.KeyFile, "x"}, "(missing-required-parameter)"},
		"another user":     {[]string{"--key-file", l.aliceFile, "--user", "bob", "x"}, "(app-owner)"},
		"nobody is online": {[]string{"--key-file", l.KeyFile, "--user", "bob", "x"}, "(no-runner)"},
		"another model":    {[]string{"--key-file", l.aliceFile, "--model", "canary", "x"}, "(model-not-found)"},
	} {
		out, errs, code := chat("", c.args...)
		if out != "" || !strings.Contains(errs, c.want) || code == 0 || strings.Contains(errs, "canary") {
			t.Errorf("%s: %q %q %d", name, out, errs, code)
		}
	}
}
