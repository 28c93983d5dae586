package gateway

import (
	"github.com/allodhq/allod/site"
	"github.com/allodhq/allod/wire/ai"
)

// The shapes of OpenAI's answers, whole and in pieces. Members that OpenAI's
// clients expect are there also where they are null.
type (
	body[C any] struct {
		head
		Choices []C    `json:"choices"`
		Usage   *usage `json:"usage,omitzero"`
		Allod   *ran   `json:"allod,omitzero"` // in a stream, with why it ended
	}
	chatChoice struct {
		Index    int         `json:"index"`
		Message  chatMessage `json:"message"`
		LogProbs *struct{}   `json:"logprobs"`
		Finish   string      `json:"finish_reason"`
	}
	chatMessage struct {
		Role    ai.Role `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"`
	}
	chatDelta struct {
		Index    int       `json:"index"`
		Delta    delta     `json:"delta"`
		LogProbs *struct{} `json:"logprobs"`
		Finish   *string   `json:"finish_reason"`
	}
	delta struct {
		Role    ai.Role `json:"role,omitzero"`
		Content *string `json:"content,omitzero"`
	}
	textChoice struct {
		Index    int       `json:"index"`
		Text     string    `json:"text"`
		LogProbs *struct{} `json:"logprobs"`
		Finish   *string   `json:"finish_reason"`
	}

	// head is what all of them begin with.
	head struct {
		ID     string `json:"id"`
		Object string `json:"object"`
		// Created is when the job was asked, in seconds.
		Created int64 `json:"created"`
		// Model is the label that was asked.
		Model string `json:"model"`
	}
	usage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
	}
	// ran says at the end of a stream what headers say of a whole answer.
	ran struct {
		Job       ai.JobID `json:"job"`
		Machine   string   `json:"machine,omitzero"`
		Untrusted bool     `json:"untrusted"`
		Instead   string   `json:"instead,omitzero"`
	}
)

// head is what an answer begins with. A stream's pieces have another word for
// what they are, where OpenAI has one.
func (a *asked) head(piece bool) head {
	h := head{ID: "cmpl-" + string(a.job.ID), Object: "text_completion", Created: int64(a.job.CreatedAt) / 1000, Model: a.model}
	if a.kind == ai.KindChat {
		h.ID, h.Object = "chatcmpl-"+string(a.job.ID), "chat.completion"
		if piece {
			h.Object = "chat.completion.chunk"
		}
	}
	return h
}

// wholeBody is an answer in one piece.
func wholeBody(a *asked, answer site.Answer) any {
	finish := finishReason(answer)
	if a.kind == ai.KindChat {
		message := chatMessage{Role: ai.RoleAssistant, Content: answer.Text()}
		return body[chatChoice]{a.head(false), []chatChoice{{Message: message, Finish: finish}}, usageOf(answer), nil}
	}
	return body[textChoice]{a.head(false), []textChoice{{Text: answer.Text(), Finish: &finish}}, usageOf(answer), nil}
}

// pieces is an answer as the events of a stream, in order: who speaks, what is
// said, why it ended, and if it is wanted and known, what it took.
func pieces(a *asked, answer site.Answer) (list []any) {
	h, said, finish, took := a.head(true), answer.Text(), finishReason(answer), usageOf(answer)
	how := &ran{Job: a.job.ID}
	if p := answer.Provenance; p != nil {
		how.Machine, how.Untrusted = machine(a.job.Owner, p), p.Untrusted
	}
	if answer.Instead != nil {
		how.Instead = answer.Instead.Why
	}
	if a.kind == ai.KindChat {
		empty := ""
		list = append(list,
			body[chatDelta]{head: h, Choices: []chatDelta{{Delta: delta{Role: ai.RoleAssistant, Content: &empty}}}},
			body[chatDelta]{head: h, Choices: []chatDelta{{Delta: delta{Content: &said}}}},
			body[chatDelta]{head: h, Choices: []chatDelta{{Finish: &finish}}, Allod: how})
	} else {
		list = append(list,
			body[textChoice]{head: h, Choices: []textChoice{{Text: said}}},
			body[textChoice]{head: h, Choices: []textChoice{{Finish: &finish}}, Allod: how})
	}
	if a.usage && took != nil {
		list = append(list, body[chatDelta]{head: h, Choices: []chatDelta{}, Usage: took})
	}
	return list
}

// finishReason is why the model stopped, in OpenAI's words. What a device does not
// say counts as the model's own end.
func finishReason(a site.Answer) string {
	if a.Provenance != nil && a.Provenance.Stop.Reason == ai.StopLength {
		return "length"
	}
	return "stop"
}

// usageOf is what the backend counted, by the device's word; nil where it did not
// count.
func usageOf(a site.Answer) *usage {
	if a.Usage == nil {
		return nil
	}
	return &usage{a.Usage.Prompt, a.Usage.Completion, a.Usage.Prompt + a.Usage.Completion}
}
