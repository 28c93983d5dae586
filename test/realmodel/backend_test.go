package realmodel_test

import (
	"context"
	"errors"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner/backend"
	"github.com/allodhq/allod/wire/ai"
)

// agentsOwn asks the server as the agent does.
func agentsOwn(t *testing.T, base string) {
	b, err := backend.Open(backend.Config{ID: "ollama", BaseURL: base})
	if err != nil {
		t.Fatal(err)
	}
	if !backend.Tested(b.ID()) {
		t.Error("this row was proved here, and backends calls it untested")
	}
	names, err := b.Models(t.Context())
	if err != nil || !slices.Contains(names, short+tag) || !backend.HasModel(names, short) {
		t.Errorf("lists %q, %v", names, err)
	}
	if err := b.Probe(t.Context(), short); err != nil {
		t.Errorf("a model that speaks does not prove itself: %v", err)
	}
	if err := b.Probe(t.Context(), quiet); !errors.Is(err, backend.ErrEmpty) {
		t.Errorf("a model that says nothing: %v", err)
	}
	if err := b.Probe(t.Context(), "allod-absent"); !errors.Is(err, backend.ErrNoModel) {
		t.Errorf("a model that is absent: %v", err)
	}
	chat := ai.Chat{System: "say ba", Messages: []ai.ChatMessage{
		{Role: ai.RoleUser, Content: "ba?"}, {Role: ai.RoleAssistant, Content: "ba"}, {Role: ai.RoleUser, Content: "du?"},
	}}
	for _, p := range []ai.Payload{ai.Generate{Prompt: "ba du ki? \U0001F600", System: "say ba"}, chat} {
		r := b.Run(t.Context(), backend.Request{Model: short, Payload: p, MaxTime: callLimit})
		if a, ok := r.Outcome.(ai.Answer); !ok || strings.TrimSpace(a.Text) == "" || !r.Usage.Counted || r.Usage.Completion != limit || r.Usage.Prompt == 0 || r.Took <= 0 {
			t.Errorf("%s: %+v", p.Kind(), r)
		}
	}
	if r := b.Run(t.Context(), backend.Request{Model: quiet, Payload: chat, MaxTime: callLimit}); r.Outcome != (ai.Answer{}) {
		t.Errorf("a model that says nothing: %+v", r)
	}
	if r := b.Run(t.Context(), backend.Request{Model: "allod-absent", Payload: chat, MaxTime: callLimit}); code(r) != backend.CodeNoModel {
		t.Errorf("a model that is absent: %+v", r)
	}
	if r := b.Run(t.Context(), backend.Request{Model: endless, Payload: chat, MaxTime: time.Millisecond}); code(r) != backend.CodeTimeout {
		t.Errorf("a model that has no time: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Given up when the server has the whole question.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }})
	if r := b.Run(ctx, backend.Request{Model: endless, Payload: chat, MaxTime: callLimit}); r.Outcome != (ai.Cancellation{}) {
		t.Errorf("a canceled run: %+v", r)
	}
	if r := b.Run(t.Context(), backend.Request{Model: short, Payload: chat, MaxTime: callLimit}); r.Outcome.Disposition() != ai.DispositionOK {
		t.Errorf("after a canceled run: %+v", r)
	}
}

func code(r backend.Result) string {
	f, _ := r.Outcome.(ai.Failure)
	return f.Code
}
