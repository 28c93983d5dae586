package envelope

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/key"
	"github.com/allodhq/allod/wire/ai"
)

// bodyVersion is the v member of a signed body. Openers do not look at it.
const bodyVersion = "byollm/v1/envelope"

// body is what a sender signs.
type body struct {
	v          string
	jobID      ai.JobID
	sender     ai.KeyID
	recipient  ai.KeyID
	deadlineAt ai.Millis
	direction  ai.Direction
	plaintext  string
	reach      *Reach
	usage      *ai.Usage
	instead    *ai.Instead

	// plaintextMissing is set by readBody, since a missing plaintext is judged
	// after the context.
	plaintextMissing bool
}

// bodyShape writes bodies. The order of the members is part of the recorded
// bytes; stub, usage and instead are Allod's own and come last.
var bodyShape = exact.Shape[body]{Fields: func(o *exact.Object, b *body) {
	exact.Text(o, "v", &b.v, 1, 0)
	exact.Text(o, "jobId", &b.jobID, 1, 0)
	exact.Text(o, "senderKeyId", &b.sender, 1, 0)
	exact.Text(o, "recipientKeyId", &b.recipient, 1, 0)
	exact.Whole(o, "deadlineAt", &b.deadlineAt, 1, 0)
	exact.Word(o, "direction", &b.direction, ai.Directions())
	exact.Text(o, "plaintext", &b.plaintext, 0, 0)
	exact.OptSub(o, "stub", &b.reach, reachShape)
	exact.OptSub(o, "usage", &b.usage, usageShape)
	exact.OptSub(o, "instead", &b.instead, insteadShape)
}}

// usageShape drops unknown members: usage decides nothing.
var usageShape = exact.Shape[ai.Usage]{Unknown: exact.Drop, Fields: func(o *exact.Object, u *ai.Usage) {
	exact.Whole(o, "promptTokens", &u.Prompt, 0, 0)
	exact.Whole(o, "completionTokens", &u.Completion, 0, 0)
}}

// insteadShape drops unknown members, as usageShape does. What it leaves open is
// asked of [ai.Instead.Valid].
var insteadShape = exact.Shape[ai.Instead]{Unknown: exact.Drop, Fields: func(o *exact.Object, i *ai.Instead) {
	exact.Text(o, "model", &i.Model, 1, 0)
	exact.Text(o, "why", &i.Why, 1, 0)
}}

// reachShape refuses unknown members: one that is not understood could be a
// limit that is not kept.
var reachShape = exact.Shape[Reach]{Fields: func(o *exact.Object, r *Reach) {
	exact.Word(o, "kind", &r.Kind, ai.Kinds())
	exact.Word(o, "audience", &r.Audience, ai.Audiences())
	exact.Text(o, "owner", &r.Owner, 1, 0)
	exact.Text(o, "site", &r.Site, 1, 0)
}}

// readBody reads a signed body as the contract's openers do: members that are
// absent or of another type make the context differ instead of the form, and
// members it does not know are dropped.
func readBody(signed []byte) (body, error) {
	root, err := exact.Parse(signed, limits)
	if err != nil {
		return body{}, ErrMalformed
	}
	var b body
	b.jobID = ai.JobID(textOf(root, "jobId"))
	b.sender = ai.KeyID(textOf(root, "senderKeyId"))
	b.recipient = ai.KeyID(textOf(root, "recipientKeyId"))
	b.direction = ai.Direction(textOf(root, "direction"))
	if v, ok := root.Member("deadlineAt"); ok {
		if n, ok := v.Number(); ok {
			if whole, ok := n.Whole(); ok {
				b.deadlineAt = ai.Millis(whole)
			}
		}
	}
	v, _ := root.Member("plaintext")
	plaintext, ok := v.Text()
	b.plaintext, b.plaintextMissing = plaintext, !ok
	if v, ok := root.Member("stub"); ok {
		reach, err := reachShape.From(v)
		if err != nil {
			return body{}, ErrMalformed
		}
		b.reach = &reach
	}
	if v, ok := root.Member("usage"); ok {
		// Another sender may mean something else by the name.
		if usage, err := usageShape.From(v); err == nil {
			b.usage = &usage
		}
	}
	if v, ok := root.Member("instead"); ok {
		if instead, err := insteadShape.From(v); err == nil && instead.Valid() {
			b.instead = &instead
		}
	}
	return b, nil
}

func textOf(object exact.Value, name string) string {
	v, _ := object.Member(name)
	text, _ := v.Text()
	return text
}

// writeInner is what is sealed: the signed body and its signature.
func writeInner(signed []byte, signature key.Signature) []byte {
	inner := make([]byte, 0, base64url.EncodedLen(len(signed))+128)
	inner = append(inner, `{"body":"`...)
	inner = base64url.AppendEncode(inner, signed)
	inner = append(inner, `","signature":"`...)
	inner = append(inner, signature.String()...)
	return append(inner, `"}`...)
}

// readInner returns the signed body and its signature. It returns
// [ErrMalformed], or [ErrSignature] where there is a text that is no signature.
func readInner(inner []byte) (signed []byte, signature key.Signature, err error) {
	root, err := exact.Parse(inner, limits)
	if err != nil {
		return nil, key.Signature{}, ErrMalformed
	}
	b, _ := root.Member("body")
	s, _ := root.Member("signature")
	bodyText, ok1 := b.Text()
	signatureText, ok2 := s.Text()
	if !ok1 || !ok2 {
		return nil, key.Signature{}, ErrMalformed
	}
	if signed, err = decode(bodyText); err != nil {
		return nil, key.Signature{}, ErrMalformed
	}
	if signature, err = key.ParseSignature(signatureText); err != nil {
		return nil, key.Signature{}, ErrSignature
	}
	return signed, signature, nil
}

// decode reads base64url in its one form. The strict decoder still skips line
// breaks, so a text with any is refused by its length.
func decode(text string) ([]byte, error) {
	b, err := base64url.DecodeString(text)
	if err == nil && base64url.EncodedLen(len(b)) != len(text) {
		return nil, ErrMalformed
	}
	return b, err
}
