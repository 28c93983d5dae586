package control

import (
	"context"
	"errors"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/frame"
)

// What this package refuses.
var (
	ErrSystem = refusal.NewKind("control-system", 501,
		"The control socket of a node works on Linux only.",
		"Run the node on Linux.")
	ErrPath = refusal.NewKind("control-path", 400,
		"The path of the control socket cannot be used: it is relative, not in its shortest form, or longer than 107 bytes.",
		"Give a short absolute path, as the default is; the kernel takes no longer one.")
	ErrFolder = refusal.NewKind("control-folder", 500,
		"The folder of a control socket cannot be used: it cannot be made or read, or other users can reach it.",
		"Give --socket in a folder of its own that only this user reaches, as chmod 700 makes it. Spark's is beside that one and has the name spark.")
	ErrListen = refusal.NewKind("control-listen", 500,
		"The control socket cannot be made.",
		"Check that the folder exists or can be made, that this user owns it, and that nothing else lies at the socket's path.")
	ErrInUse = refusal.NewKind("control-in-use", 409,
		"Another process answers on the control socket.",
		"Stop it first. If it is a service, use its own command to do so.")
	ErrUser = refusal.NewKind("control-user", 403,
		"The control socket must belong to the user whose requests it takes, and this process is another user's.",
		"Start the node as root, or name this user.")
	ErrPeer = refusal.NewKind("control-peer", 403,
		"The process at the other end of the control socket belongs to another user.",
		"Ask as the user that the node runs as, which is root.")
	ErrSilent = refusal.NewKind("control-no-answer", 503,
		"Nobody answers on the control socket, or the answer did not come in time.",
		"Check that the node runs, wait a moment if it is just starting, and look in its log.")
	ErrMessage = refusal.NewKind("control-message", 400,
		"The frame on the control socket is not the message that belongs there.",
		"Use the same version on both sides of the socket.")
	ErrMethod = refusal.NewKind("control-method", 404,
		"The other side of the control socket does not know this method.",
		"Use the same version on both sides of the socket.")
	ErrAnswer = refusal.NewKind("control-answer", 500,
		"The answer cannot be sent: it is no JSON value, or larger than an answer may be.",
		"Report this; what was asked may have been done.")
	ErrRefused = refusal.NewKind("control-refused", 400,
		"The other side of the control socket refused the request.",
		"Look at the name of its refusal, and in its log.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "The control socket of a node", Kinds: []*refusal.Kind{
	ErrSystem, ErrPath, ErrFolder, ErrListen, ErrInUse, ErrUser, ErrPeer, ErrSilent, ErrMessage, ErrMethod, ErrAnswer, ErrRefused,
}}

// The bounds of a message.
const (
	// MaxMethod is the longest name of a method, in bytes.
	MaxMethod = 64
	// MaxText is the longest text of an error, in UTF-16 code units.
	MaxText = 4096
	// maxCode is the longest name of a refusal.
	maxCode = 128
	// maxDepth and maxValues bound what a frame can make its reader keep. An
	// enrollment is three levels deep and has some dozens of values.
	maxDepth  = 16
	maxValues = 2048
)

// Handler answers one request. request is one JSON value without white space and is
// the handler's to keep; response must be one JSON value. ctx ends with the exchange's deadline, and
// when the server ends. An error that is an [*Error] is sent as it is, any other
// one as the refusal that it is: by name, and [refusal.Internal] where it has none.
type Handler func(ctx context.Context, method string, request []byte) (response []byte, err error)

// Methods is a handler that has one function for each method. For any other method
// it returns [ErrMethod].
type Methods map[string]func(ctx context.Context, request []byte) (response []byte, err error)

// Handle is a [Handler].
func (m Methods) Handle(ctx context.Context, method string, request []byte) ([]byte, error) {
	f, ok := m[method]
	if !ok {
		return nil, ErrMethod
	}
	return f(ctx, request)
}

// Error is a refusal as it travels (decision O07). Match on Code and on nothing
// else.
type Error struct {
	// Text is "<name>: <reason>", of at most [MaxText] UTF-16 code units.
	Text string
	// Data is one JSON value, or nil.
	Data []byte
	// Code is the refusal's name as Data has it in its member code, or "". It is
	// read, and not sent besides.
	Code string
}

// Error is the text.
func (e *Error) Error() string { return e.Text }

type ask struct {
	method  string
	request exact.Value
}

var askShape = exact.Shape[ask]{Fields: func(o *exact.Object, a *ask) {
	exact.Text(o, "method", &a.method, 1, MaxMethod)
	exact.Any(o, "request", &a.request)
}}

type answer struct {
	response exact.Value
	err      *refused
}

// refused is an [Error] as it is written.
type refused struct {
	text string
	data exact.Value
}

var answerShape = exact.Shape[answer]{Fields: func(o *exact.Object, a *answer) {
	exact.OptAny(o, "response", &a.response)
	exact.OptSub(o, "error", &a.err, refusedShape)
	if !o.Failed() && there(a.response) == (a.err != nil) {
		o.Fail(exact.ErrUnknown, "a response or an error")
	}
}}

var refusedShape = exact.Shape[refused]{Fields: func(o *exact.Object, r *refused) {
	exact.Text(o, "text", &r.text, 1, MaxText)
	exact.OptAny(o, "data", &r.data)
}}

// there says whether v is a value, and not the zero one.
func there(v exact.Value) bool { return len(v.Append(nil)) > 0 }

// code is the part of an error's data that decides anything.
type code struct{ code string }

var codeShape = exact.Shape[code]{Unknown: exact.Drop, Fields: func(o *exact.Object, c *code) {
	exact.Text(o, "code", &c.code, 1, maxCode)
}}

func limits(size int) exact.Limits {
	return exact.Limits{Bytes: size, Depth: maxDepth, Values: maxValues}
}

// appendAsk returns the frame of a request. It returns [ErrMessage], and the
// refusals of package frame.
func appendAsk(method string, request []byte) ([]byte, error) {
	if len(request) > frame.MaxRequest {
		return nil, frame.ErrTooLarge
	}
	v, err := exact.Parse(request, limits(frame.MaxRequest))
	if err != nil {
		return nil, ErrMessage.Because(err)
	}
	body, err := askShape.Append(nil, ask{method, v})
	if err != nil {
		return nil, ErrMessage.Because(err)
	}
	out, err := frame.Append(nil, body, frame.MaxRequest)
	if err != nil {
		return nil, err
	}
	if _, err := readAsk(body); err != nil {
		return nil, err // so would the server: the bounds are those of the whole
	}
	return out, nil
}

// readAsk reads the value of a request's frame. It returns [ErrMessage].
func readAsk(body []byte) (ask, error) {
	a, err := askShape.Read(body, limits(frame.MaxRequest))
	if err != nil {
		return ask{}, ErrMessage.Because(err)
	}
	return a, nil
}

// appendAnswer returns the frame of what a handler returned. What cannot be sent
// becomes [ErrAnswer], which can.
func appendAnswer(response []byte, failed error) ([]byte, error) {
	f, err := answerFrame(response, failed)
	if err == nil {
		return f, nil
	}
	f, again := answerFrame(nil, ErrAnswer)
	if again != nil {
		return nil, again // cannot be: it is short, and our own
	}
	return f, ErrAnswer.Because(err)
}

func answerFrame(response []byte, failed error) ([]byte, error) {
	var a answer
	var err error
	if failed == nil {
		a.response, err = exact.Parse(response, limits(frame.MaxResponse))
	} else {
		a.err, err = travelling(failed)
	}
	if err != nil {
		return nil, err
	}
	body, err := answerShape.Append(nil, a)
	if err != nil {
		return nil, err
	}
	if _, err := exact.Parse(body, limits(frame.MaxResponse)); err != nil {
		return nil, err // the reader would refuse it
	}
	return frame.Append(nil, body, frame.MaxResponse)
}

// travelling is the error as it is sent.
func travelling(err error) (*refused, error) {
	e := &Error{}
	if !errors.As(err, &e) || e == nil {
		r := refusal.From(err)
		data, err := codeShape.Append(nil, code{r.Kind().Name()})
		if err != nil {
			return nil, err
		}
		e = &Error{Text: r.Error(), Data: data}
	}
	sent := &refused{text: e.Text}
	if e.Data != nil {
		v, err := exact.Parse(e.Data, limits(frame.MaxResponse))
		if err != nil {
			return nil, err
		}
		sent.data = v
	}
	return sent, nil
}

// readAnswer reads the value of an answer's frame. It returns [ErrRefused] with an
// [*Error] as its cause, and [ErrMessage].
func readAnswer(body []byte) ([]byte, error) {
	a, err := answerShape.Read(body, limits(frame.MaxResponse))
	if err != nil {
		return nil, ErrMessage.Because(err)
	}
	if a.err == nil {
		return a.response.Append(nil), nil
	}
	e := &Error{Text: a.err.text, Data: a.err.data.Append(nil)}
	if c, err := codeShape.From(a.err.data); err == nil {
		e.Code = c.code
	}
	return nil, ErrRefused.Because(e)
}
