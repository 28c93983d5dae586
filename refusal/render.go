package refusal

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// HTTP renders err as an HTTP answer: the status, and a body of type
// application/json as [JSON] makes it. A nil error is a programming mistake and
// comes out as [Internal].
func HTTP(err error) (status int, body []byte) {
	if err == nil {
		err = Internal
	}
	r := From(err)
	return r.kind.status, JSON(r)
}

// JSON renders err as one JSON object: error (the name), message (meaning and
// detail), wayOut and, where the caller should wait, retryAfter in whole
// seconds, rounded up. It is what every command prints under --json.
func JSON(err error) []byte {
	r := From(err)
	if r == nil {
		r = From(Internal)
	}
	b := appendMember([]byte{'{'}, "error", r.kind.name)
	b = appendMember(append(b, ','), "message", r.message())
	b = appendMember(append(b, ','), "wayOut", r.kind.wayOut)
	if r.retryAfter > 0 {
		b = append(b, `,"retryAfter":`...)
		b = append(b, jsontext.Int(r.RetrySeconds()).String()...)
	}
	return append(b, '}')
}

// Terminal renders err for a person at a terminal: what happened, then the way
// out, then the name to search for. It has no final newline.
func Terminal(err error) string {
	r := From(err)
	if r == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString(r.message())
	b.WriteString("\n" + r.kind.wayOut)
	b.WriteString("\n(" + r.kind.name + ")")
	return b.String()
}

// ExitCode is the exit code of a command that ends with err, by the class of
// the refusal's status. docs/refusals.md lists the same table.
//
//	0 no error            5 conflict (409)
//	1 failed (5xx, other) 6 wait and try again (429, 503)
//	2 bad input (400)     7 not built yet (501)
//	3 not allowed (401, 403)
//	4 not found (404)
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	switch From(err).kind.status {
	case 400:
		return 2
	case 401, 403:
		return 3
	case 404:
		return 4
	case 409:
		return 5
	case 429, 503:
		return 6
	case 501:
		return 7
	}
	return 1
}

func (r *Refusal) message() string {
	if r.detail == "" {
		return r.kind.meaning
	}
	return r.kind.meaning + " " + r.detail
}

// appendMember cannot fail: names are ASCII, and jsontext replaces invalid
// UTF-8 before it reports it.
func appendMember(b []byte, name, value string) []byte {
	b, _ = jsontext.AppendQuote(b, name)
	b = append(b, ':')
	b, _ = jsontext.AppendQuote(b, value)
	return b
}
