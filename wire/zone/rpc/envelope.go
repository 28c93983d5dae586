package rpc

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
)

// Bounds of an envelope.
const (
	// MaxID is the longest correlation id, in bytes.
	MaxID = 128
	// depth and values are those of a message and of the envelope around it.
	depth  = zone.MaxDepth + 2
	values = zone.MaxValues + 64
)

type phase string

const (
	asks    phase = "request"
	answers phase = "response"
)

// envelope is what travels (decision O06). Peers of the published library write
// null for what is not there yet, and send the request back in the answer.
type envelope struct {
	method            string
	request, response exact.Value
	err               exact.Value
	correlation       *correlation
	retry             exact.Value
	local             exact.Value
	quiet             bool
}

type correlation struct {
	id    string
	phase phase
}

var envelopes = exact.Shape[envelope]{Fields: func(o *exact.Object, e *envelope) {
	exact.OptText(o, "method", &e.method, 0, maxMethod)
	exact.OptAny(o, "request", &e.request)
	exact.OptAny(o, "response", &e.response)
	exact.OptAny(o, "error", &e.err)
	exact.OptSub(o, "correlation", &e.correlation, correlations)
	exact.OptAny(o, "retry", &e.retry)
	// The library's own book-keeping, which says nothing to anybody else.
	exact.OptAny(o, "localData", &e.local)
	exact.OptBool(o, "skipHooks", &e.quiet)
	if !o.Writing() && !o.Failed() && !(absent(e.local) || e.local.IsObject() && e.local.Len() == 0) {
		o.Fail(exact.ErrRange, "localData that is empty")
	}
}}

var correlations = exact.Shape[correlation]{Fields: func(o *exact.Object, c *correlation) {
	exact.Spelled(o, "id", &c.id, MaxID, "an id of letters, digits and . _ : -", validID)
	exact.Word(o, "phase", &c.phase, []phase{asks, answers})
}}

// validID keeps ids to what needs no escaping anywhere.
func validID(id string) bool {
	if id == "" || len(id) > MaxID {
		return false
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == ':' || c == '-') {
			return false
		}
	}
	return true
}

// absent reports whether a member is not there, or null.
func absent(v exact.Value) bool { return v.IsZero() || v.IsNull() }

// Frame is one envelope as it came in.
type Frame struct {
	e       envelope
	id      string
	answers bool
	size    int
	err     error
}

// ReadFrame reads an envelope of at most max bytes. A text that is none gives a
// frame all the same, which [Server.ServeFrame] refuses and which has an id where
// one could be read; Err says why.
func ReadFrame(body []byte, max int) Frame {
	f := Frame{size: len(body)}
	if len(body) > max {
		f.err = ErrTooLarge
		return f
	}
	v, err := exact.Parse(body, exact.Limits{Bytes: max, Depth: depth, Values: values})
	if err != nil {
		f.err = ErrEnvelope.Because(err)
		return f
	}
	// Whatever else is wrong, an answer finds its way by the correlation.
	if c, ok := v.Member("correlation"); ok {
		if c, err := correlations.From(c); err == nil {
			f.id, f.answers = c.id, c.phase == answers
		}
	}
	if f.e, err = envelopes.From(v); err != nil {
		f.err = ErrEnvelope.Because(err)
	}
	return f
}

// Err is why the text is no envelope, or nil.
func (f Frame) Err() error { return f.err }

// ID is the correlation id, or empty.
func (f Frame) ID() string { return f.id }

// IsAnswer reports whether the frame answers a request of this side.
func (f Frame) IsAnswer() bool { return f.answers }

// Failed reports whether the frame holds an error.
func (f Frame) Failed() bool { return !absent(f.e.err) }

// Method is the name that the frame names, of at most 64 characters. It is input.
func (f Frame) Method() string { return f.e.method }

// Refuse is the answer that refuses a request for that error before any server
// judged it, because of the connection it came on.
func Refuse(f Frame, over Carrier, err error) []byte {
	return appendAnswer(nil, "", f.id, over, "error", appendError(nil, err))
}

// appendRequest writes a request around its content, as the published library
// does.
func appendRequest(dst []byte, method, id string, over Carrier, content []byte) []byte {
	dst = append(append(append(dst, `{"method":"`...), method...), `","request":`...)
	dst = append(dst, content...)
	if over != Control {
		dst = append(append(append(dst, `,"response":null,"correlation":{"id":"`...), id...), `","phase":"request"}`...)
	}
	return append(dst, '}')
}

// appendAnswer writes an answer around its content, which is the member named
// response or error. The request is not sent back.
func appendAnswer(dst []byte, method, id string, over Carrier, member string, content []byte) []byte {
	dst = append(dst, '{')
	if over != Control {
		dst = append(append(append(dst, `"method":"`...), method...), `",`...)
		if id != "" {
			dst = append(append(append(dst, `"correlation":{"id":"`...), id...), `","phase":"response"},`...)
		}
	}
	dst = append(append(append(dst, '"'), member...), `":`...)
	return append(append(dst, content...), '}')
}
