//go:build unix

package gateway

import (
	"slices"
	"testing"

	"github.com/openai/openai-go/v3"

	"github.com/allodhq/allod/test/programs"
)

// daemon starts the published daemon as alice's machine.
func (l *lane) daemon(m *programs.Model) {
	l.t.Helper()
	d := programs.NewDaemon(l.t, m, []string{"llm.generate", "llm.chat"})
	connecting, code := d.Connect(l.URL)
	l.Approve(code)
	if rc := connecting.Ended(l.t); rc != 0 {
		l.t.Fatalf("connect: exit %d\n%s", rc, connecting.Said)
	}
	l.online(d.Start("run"))
}

// TestPublishedDaemon is openai-go with the published daemon behind the site.
func TestPublishedDaemon(t *testing.T) {
	t.Parallel()
	l := newLane(t)
	m := newModel(t)
	l.daemon(m)
	c := l.client(l.alice)
	got, err := c.Chat.Completions.New(t.Context(), hello("one"))
	// The published daemon makes one message of any job.
	if err != nil || got.Choices[0].Message.Content != "no model, but: User: one" {
		t.Fatalf("%v %v\n%s", got, err, l.Said)
	}
	// What a daemon counts or says of the end is its own affair.
	t.Logf("it answers %s", got.RawJSON())
	text, err := c.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "auto", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("once")},
	})
	if err != nil || text.Choices[0].Text != "no model, but: once" {
		t.Errorf("%v %v", text, err)
	}
	if !slices.Contains(m.Questions(), "user: once") {
		t.Errorf("the model was asked %q", m.Questions())
	}
}
