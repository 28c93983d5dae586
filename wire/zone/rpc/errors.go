package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// MaxReasons is how many reasons an error names at most.
const MaxReasons = exact.MaxProblems

// maxWait is the longest wait that is believed of the other side.
const maxWait = time.Hour

// fault is an error as it travels (decision O07).
type fault struct {
	text string
	data exact.Value
}

var faults = exact.Shape[fault]{Fields: func(o *exact.Object, f *fault) {
	exact.Text(o, "text", &f.text, 0, 2*zone.MaxText)
	exact.OptAny(o, "data", &f.data)
}}

// details is the data of a named refusal.
type details struct {
	code    string
	detail  string
	reasons []reason
	wait    exact.Opt[int64]
}

// reason is one of the reasons of a validator.
type reason string

// ourDetails are those that we write, and theirs what we look for in the data of
// others, who may have more to say.
var (
	ourDetails = exact.Shape[details]{Fields: detailFields}
	theirs     = exact.Shape[details]{Unknown: exact.Drop, Fields: detailFields}
)

func detailFields(o *exact.Object, d *details) {
	exact.Text(o, "code", &d.code, 1, 128)
	exact.OptText(o, "detail", &d.detail, 0, zone.MaxText)
	exact.OptTexts(o, "reasons", &d.reasons)
	exact.OptWhole(o, "retryAfterMs", &d.wait, 0, 0)
}

// invalid is a request that breaks its schema, with every reason.
type invalid struct{ reasons []string }

// Invalid refuses a request for those reasons, each as "<path> <words>" (decision
// O08), for handlers that judge more than a codec can. Those beyond [MaxReasons]
// are left out. It is ErrSchema.
func Invalid(reasons ...string) error {
	return &invalid{reasons[:min(len(reasons), MaxReasons)]}
}

// Error is that of ErrSchema.
func (*invalid) Error() string { return ErrSchema.Error() }

// Unwrap is ErrSchema.
func (*invalid) Unwrap() error { return ErrSchema }

// Reasons are the reasons of an error of [Invalid], or nil, on either side.
func Reasons(err error) []string {
	var i *invalid
	if errors.As(err, &i) {
		return i.reasons
	}
	return nil
}

// appendError writes an error as it travels: a refusal of the handshake as its own
// text and data, a named refusal as "<name>: <reason>" and its code, and any other
// error as internal, without its text.
func appendError(dst []byte, err error) []byte {
	var incompatible *handshake.Refusal
	if errors.As(err, &incompatible) {
		if data, e := handshake.RefusalCodec.Append(nil, *incompatible); e == nil {
			return appendFault(dst, incompatible.Error(), data)
		}
	}
	r := refusal.From(err)
	d := details{code: r.Kind().Name(), detail: r.Detail()}
	for _, text := range Reasons(err) {
		d.reasons = append(d.reasons, reason(text))
	}
	if wait := r.RetryAfter(); wait > 0 {
		d.wait = exact.Some(int64((wait-1)/time.Millisecond) + 1)
	}
	data, e := ourDetails.Append(nil, d)
	if e != nil {
		// A detail of ours that is too long or no text is left out.
		r = refusal.From(r.Kind())
		data = []byte(`{"code":"` + r.Kind().Name() + `"}`)
	}
	return appendFault(dst, r.Error(), data)
}

func appendFault(dst []byte, text string, data []byte) []byte {
	v, err := exact.Parse(data, codec.Limits)
	if err != nil {
		v = exact.Value{}
	}
	out, err := faults.Append(dst, fault{text, v})
	if err != nil { // cannot happen: kinds are short and valid
		return append(dst, `{"text":"`+refusal.Internal.Name()+`","data":{"code":"`+refusal.Internal.Name()+`"}}`...)
	}
	return out
}

// named turns a handler's error into the one that travels and is logged.
func named(ctx context.Context, err error) error {
	var incompatible *handshake.Refusal
	if errors.As(err, &incompatible) || Reasons(err) != nil {
		return err
	}
	r := refusal.From(err)
	if r.Kind() == refusal.Internal && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return ErrDeadline.Because(err)
	}
	return r
}

// Incompatible is a refusal of the handshake by the other side, or by this one
// about the other's answer. No other error asks for its wait (F03).
type Incompatible struct {
	// Refusal names both sides.
	Refusal *handshake.Refusal
}

// Error is the refusal's one line for logs.
func (i *Incompatible) Error() string { return i.Refusal.Error() }

// Unwrap is the refusal.
func (i *Incompatible) Unwrap() error { return i.Refusal }

// Wait is how long to wait before the next offer: 300 seconds.
func (i *Incompatible) Wait() time.Duration { return handshake.RetryInterval }

// ReadError reads the error member of an answer. It returns an [*Incompatible]
// only where the data is exactly a refusal of the handshake; a refusal of a kind
// that one of the registries knows, with the other side's detail, reasons and wait;
// and else ErrForeign.
func ReadError(text []byte, registries ...refusal.Registry) error {
	v, err := exact.Parse(text, codec.Limits)
	if err != nil {
		return ErrAnswer.Because(err)
	}
	return readError(v, registries)
}

func readError(v exact.Value, registries []refusal.Registry) error {
	f, err := faults.From(v)
	if err != nil {
		return ErrAnswer.Because(err)
	}
	if r, err := codec.Shape(handshake.RefusalCodec).From(f.data); err == nil {
		return &Incompatible{&r}
	}
	d, err := theirs.From(f.data)
	if err != nil {
		return ErrForeign
	}
	kind := find(d.code, registries)
	if kind == nil {
		if validCode(d.code) {
			return ErrForeign.With("It calls it " + d.code + ".")
		}
		return ErrForeign
	}
	if kind == ErrSchema && len(d.reasons) > 0 {
		reasons := make([]string, 0, min(len(d.reasons), MaxReasons))
		for _, r := range d.reasons[:cap(reasons)] {
			reasons = append(reasons, printable(string(r)))
		}
		return Invalid(reasons...)
	}
	r := kind.With(printable(d.detail))
	if d.wait.Set {
		r = r.After(wait(d.wait.V))
	}
	return r
}

// wait is a wait in milliseconds that the other side asks for, within reason.
func wait(ms int64) time.Duration {
	return time.Duration(min(ms, maxWait.Milliseconds())) * time.Millisecond
}

// find looks a code up. That of the handshake counts with its whole data only.
func find(code string, registries []refusal.Registry) *refusal.Kind {
	if code == handshake.ErrIncompatible.Name() {
		return nil
	}
	for _, r := range registries {
		if k := r.Find(code); k != nil {
			return k
		}
	}
	for _, r := range []refusal.Registry{Kinds, handshake.Kinds, refusal.Kinds} {
		if k := r.Find(code); k != nil {
			return k
		}
	}
	return nil
}

// validCode reports whether a name can be one of a refusal, which is harmless to
// print.
func validCode(code string) bool {
	if code == "" || len(code) > maxMethod {
		return false
	}
	for _, c := range []byte(code) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// printable is a text of the other side without what could move a terminal's
// cursor.
func printable(s string) string {
	out := []rune(s)
	for i, r := range out {
		if r < ' ' || 0x7f <= r && r < 0xa0 || r == 0x2028 || r == 0x2029 || 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 {
			out[i] = '.'
		}
	}
	return string(out)
}
