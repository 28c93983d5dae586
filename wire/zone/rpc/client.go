package rpc

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/handshake"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// Outgoing is what travels beside the content of a request. Members that the
// method does not take over the carrier are left out.
type Outgoing struct {
	Carrier Carrier
	// ID is the correlation id, 1 to [MaxID] letters, digits and . _ : -. The carrier
	// makes it.
	ID string
	// Bearer is that of a node, Token the signed token of a person or a service.
	Bearer, Token zone.Secret
	// Offer is this side's offer, for tests; the zero value means [handshake.Ours].
	Offer handshake.Offer
}

func (o Outgoing) offer(m *Method) handshake.Offer {
	if o.Offer.IsZero() {
		return handshake.Ours(m.Session)
	}
	return o.Offer
}

// WriteRequest writes a request. It returns ErrRequest for one that breaks its own
// bounds, and ErrCarrier for a carrier that the method has not.
func WriteRequest[Req any](m *Method, req zone.Codec[Req], content Req, out Outgoing) ([]byte, error) {
	if m.Carriers&out.Carrier == 0 {
		return nil, ErrCarrier
	}
	if out.Carrier != Control && !validID(out.ID) {
		return nil, ErrRequest
	}
	text, err := wrap(codec.Shape(req)).with(m.Takes(out.Carrier)).Bytes(message[Req]{
		content: content, offer: out.offer(m), bearer: out.Bearer, token: zone.Identity{JWT: out.Token},
	})
	if err != nil {
		return nil, ErrRequest.Because(err)
	}
	body := appendRequest(make([]byte, 0, len(text)+192), m.Name, out.ID, out.Carrier, text)
	if len(body) > m.maxRequest() {
		return nil, ErrRequest
	}
	return body, nil
}

// AnswerRoom is the largest text that may be an answer of the method, in bytes: a
// peer may send the request back in it.
func (m *Method) AnswerRoom() int { return m.maxResponse() + m.maxRequest() }

// ReadAnswer reads the answer to a request. It returns what [ReadError] does for a
// refusal of the other side, an [*Incompatible] where the answer's offer does not
// go together with ours, ErrWait where the other side asks to wait, and ErrAnswer
// for everything that is no answer to this request.
func ReadAnswer[Res any](m *Method, res zone.Codec[Res], body []byte, sent Outgoing, registries ...refusal.Registry) (Res, error) {
	return AnswerOf(m, res, ReadFrame(body, m.AnswerRoom()), sent, registries...)
}

// AnswerOf is ReadAnswer for an envelope that was read.
func AnswerOf[Res any](m *Method, res zone.Codec[Res], f Frame, sent Outgoing, registries ...refusal.Registry) (Res, error) {
	var none Res
	if f.err != nil {
		return none, ErrAnswer.Because(f.err)
	}
	if !absent(f.e.err) { // also one without a correlation: the request was not readable
		if f.id != "" && f.id != sent.ID {
			return none, ErrAnswer
		}
		return none, readError(f.e.err, registries)
	}
	if sent.Carrier != Control && (!f.answers || f.id != sent.ID || f.e.method != m.Name) {
		return none, ErrAnswer
	}
	if !absent(f.e.retry) {
		r, err := retries.From(f.e.retry)
		if err != nil {
			return none, ErrAnswer.Because(err)
		}
		return none, ErrWait.With("").After(wait(r))
	}
	takes := Takes{Offer: m.Takes(sent.Carrier).Offer}
	if takes.Offer {
		offer, err := readOffer(f.e.response)
		if err != nil {
			return none, ErrAnswer.Because(err)
		}
		if err := handshake.Negotiate(sent.offer(m), offer); err != nil {
			return none, incompatible(err)
		}
	}
	answer, err := wrap(codec.Shape(res)).with(takes).From(f.e.response)
	if err != nil {
		return none, ErrAnswer.Because(err)
	}
	return answer.content, nil
}

func incompatible(err error) error {
	if r, ok := err.(*handshake.Refusal); ok {
		return &Incompatible{r}
	}
	return err
}

// retries is the object by which a peer asks to wait: for how many milliseconds.
var retries = exact.Shape[int64]{Fields: func(o *exact.Object, ms *int64) {
	exact.Whole(o, "waitForMs", ms, 0, 0)
	var why string
	exact.OptText(o, "reason", &why, 0, zone.MaxText)
}}
