package gateway

import (
	"slices"
	"strings"
)

// refusedFields are the members that OpenAI's two endpoints take and a device
// cannot be asked for. A value that asks for nothing is taken; see [asksNothing].
var refusedFields = []string{
	"audio", "best_of", "echo", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
	"max_completion_tokens", "max_tokens", "metadata", "modalities", "moderation", "parallel_tool_calls", "prediction",
	"presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort",
	"response_format", "safety_identifier", "seed", "service_tier", "stop", "suffix", "temperature", "tool_choice", "tools",
	"top_logprobs", "top_p", "verbosity", "web_search_options",
}

// carriedFields are those that mean something here.
var carriedFields = []string{"messages", "model", "n", "prompt", "store", "stream", "stream_options", "user"}

// nothing are values that ask for what happens anyway, in compact form; numbers
// in any form. Null asks for nothing in every member.
var nothing = map[string]string{
	"best_of":           "1",
	"echo":              "false",
	"frequency_penalty": "0",
	"functions":         "[]",
	"logprobs":          "false",
	"modalities":        `["text"]`,
	"n":                 "1",
	"presence_penalty":  "0",
	"response_format":   `{"type":"text"}`,
	"store":             "false",
	"tool_choice":       `"none"`,
	"tools":             "[]",
}

// turnFields are the members of a turn that OpenAI's messages have and a device
// cannot be given. Clients send their own answers back, in which these are null
// or empty.
var turnFields = []string{"annotations", "audio", "function_call", "name", "refusal", "tool_call_id", "tool_calls"}

// Droppable reports whether a site may list a member to be dropped: a plain name
// that means nothing here.
func Droppable(name string) bool {
	if name == "" || len(name) > 64 || slices.Contains(carriedFields, name) {
		return false
	}
	return strings.Trim(name, lower+digits+"_") == ""
}

// Labelable reports whether a site may use a text as a label: 1 to 64 letters,
// digits and - _ . :, and neither [Auto] nor . nor .., which no path can end in.
func Labelable(name string) bool {
	return name != "" && len(name) <= 64 && name != Auto && name != "." && name != ".." &&
		strings.Trim(name, lower+upper+digits+"-_.:") == ""
}

// repeatable reports whether a member's name may be repeated in a refusal: a plain
// word, which can neither be a sentence nor lead anywhere.
func repeatable(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, lower+upper+digits+"_") == ""
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)
