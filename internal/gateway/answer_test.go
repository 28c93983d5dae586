package gateway

import (
	"context"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/allodhq/allod/internal/database"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// TestUsageAndEnd holds what an answer says beyond its text, in each of its forms.
func TestUsageAndEnd(t *testing.T) {
	a := &asked{kind: ai.KindChat, job: site.Job{ID: "j", Owner: "alice", CreatedAt: 1999}}
	a.model, a.usage = "auto", true
	answer := site.Answer{
		Outcome: ai.Answer{Text: "x"}, Usage: &ai.Usage{Prompt: 3, Completion: 4},
		Provenance: &ai.Provenance{RunnerOwner: "alice", Stop: ai.Stop{Reason: ai.StopLength, Reported: true}},
	}
	const (
		head  = `{"id":"chatcmpl-j","object":"chat.completion`
		rest  = `,"created":1,"model":"auto","choices":[`
		usage = `"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`
	)
	is := func(what string, v any, want string) {
		t.Helper()
		text, err := json.Marshal(v)
		if err != nil || string(text) != want {
			t.Errorf("%s: %v\n%s, want\n%s", what, err, text, want)
		}
	}
	is("whole", wholeBody(a, answer), head+`"`+rest+
		`{"index":0,"message":{"role":"assistant","content":"x","refusal":null},"logprobs":null,"finish_reason":"length"}],`+usage)
	list := pieces(a, answer)
	if len(list) != 4 {
		t.Fatalf("%d pieces", len(list))
	}
	is("the last choice", list[2], head+`.chunk"`+rest+
		`{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"allod":{"job":"j","machine":"own","untrusted":false}}`)
	answer.Instead = &ai.Instead{Model: "secret-model-name", Why: "backend-unreachable"}
	is("the last choice of another model", pieces(a, answer)[2], head+`.chunk"`+rest+
		`{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"allod":{"job":"j","machine":"own","untrusted":false,"instead":"backend-unreachable"}}`)
	is("the usage", list[3], head+`.chunk"`+rest+`],`+usage)
	if a.usage = false; len(pieces(a, answer)) != 3 {
		t.Error("usage that nobody asked for")
	}
	a.usage, answer.Usage = true, nil
	if len(pieces(a, answer)) != 3 {
		t.Error("usage that nobody counted")
	}
	a.kind = ai.KindGenerate
	answer.Usage = &ai.Usage{}
	is("a text", wholeBody(a, answer), `{"id":"cmpl-j","object":"text_completion"`+rest+
		`{"index":0,"text":"x","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`)

	for reason, want := range map[ai.StopReason]string{"": "stop", ai.StopEnd: "stop", ai.StopSequence: "stop", ai.StopUnknown: "stop", ai.StopLength: "length"} {
		if got := finishReason(site.Answer{Provenance: &ai.Provenance{Stop: ai.Stop{Reason: reason}}}); got != want {
			t.Errorf("%q: %s, want %s", reason, got, want)
		}
	}
	if finishReason(site.Answer{}) != "stop" {
		t.Error("an answer without a provenance")
	}
}

// TestEndsInStopping holds which errors stay what they are while a site stops.
func TestEndsInStopping(t *testing.T) {
	for _, err := range []error{
		ErrCanceled, ErrExpired, ErrPending, ErrGivenBack, nobody(site.NonePaired), &problem{what: ErrDevice, code: "timeout"},
	} {
		if !ends(err) {
			t.Errorf("%v is no end", err)
		}
	}
	for _, err := range []error{context.Canceled, database.ErrCancelled.Because(context.Canceled), refusal.Internal} {
		if ends(err) {
			t.Errorf("%v is an end", err)
		}
	}
}
