package v0

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
)

// lease drops unknown members, as recorded.
var lease = exact.Shape[ai.Lease]{Unknown: exact.Drop, Fields: func(o *exact.Object, l *ai.Lease) {
	exact.Text(o, "id", &l.ID, 1, 0)
	exact.Text(o, "runnerId", &l.RunnerID, 1, 0)
	exact.Whole(o, "expiresAt", &l.ExpiresAt, 1, 0)
}}

// grant is the pair in a heartbeat's answer; heldGrant the pair in requests,
// which drops unknown members.
var (
	grant     = exact.Shape[ai.Grant]{Fields: grantFields}
	heldGrant = exact.Shape[ai.Grant]{Unknown: exact.Drop, Fields: grantFields}
)

func grantFields(o *exact.Object, g *ai.Grant) {
	exact.Text(o, "jobId", &g.JobID, 1, 0)
	exact.Text(o, "leaseId", &g.LeaseID, 1, 0)
}

var (
	stub        = exact.Shape[ai.Stub]{Fields: stubFields}
	claimedStub = exact.Shape[ai.ClaimedStub]{Fields: func(o *exact.Object, s *ai.ClaimedStub) {
		stubFields(o, &s.Stub)
		exact.Sub(o, "lease", &s.Lease, lease)
	}}
)

func stubFields(o *exact.Object, s *ai.Stub) {
	exact.Text(o, "id", &s.ID, 1, 0)
	exact.Word(o, "kind", &s.Kind, ai.Kinds())
	exact.Text(o, "owner", &s.Owner, 1, 0)
	exact.Text(o, "site", &s.Site, 1, 0)
	exact.Word(o, "audience", &s.Audience, ai.Audiences())
	exact.Word(o, "sizeClass", &s.SizeClass, ai.SizeClasses())
	exact.Bool(o, "streaming", &s.Streaming)
	exact.Whole(o, "deadlineAt", &s.DeadlineAt, 1, 0)
}

// chatMessage drops unknown members, as recorded.
var chatMessage = exact.Shape[ai.ChatMessage]{Unknown: exact.Drop, Fields: func(o *exact.Object, m *ai.ChatMessage) {
	exact.Word(o, "role", &m.Role, ai.Roles())
	exact.Text(o, "content", &m.Content, 0, ai.MaxTextUnits)
}}

var generate = exact.Shape[ai.Generate]{Fields: func(o *exact.Object, g *ai.Generate) {
	exact.Text(o, "prompt", &g.Prompt, 1, ai.MaxTextUnits)
	exact.OptText(o, "system", &g.System, 0, ai.MaxTextUnits)
	total(o, *g)
}}

var chat = exact.Shape[ai.Chat]{Fields: func(o *exact.Object, c *ai.Chat) {
	exact.List(o, "messages", &c.Messages, 1, ai.MaxMessages, chatMessage)
	exact.OptText(o, "system", &c.System, 0, ai.MaxTextUnits)
	total(o, *c)
}}

func total(o *exact.Object, p ai.Payload) {
	if !o.Failed() && p.TextUnits() > ai.MaxPayloadUnits {
		o.Fail(exact.ErrRange, "at most 4000000 UTF-16 code units in all")
	}
}

// kinded drops unknown members, as recorded.
var kinded = exact.Shape[ai.Payload]{Unknown: exact.Drop, Fields: kindedFields}

// kindedFields are a kind and the payload that belongs to it.
func kindedFields(o *exact.Object, p *ai.Payload) {
	var kind ai.Kind
	if o.Writing() {
		switch payload := (*p).(type) {
		case ai.Generate, ai.Chat:
			kind = payload.Kind()
		default: // nothing, or a pointer, whose members would be lost
			o.Fail(exact.ErrMissing, "a payload")
			return
		}
	}
	exact.Word(o, "kind", &kind, ai.Kinds())
	switch kind {
	case ai.KindGenerate:
		either(o, "payload", p, generate)
	case ai.KindChat:
		either(o, "payload", p, chat)
	}
}

// either reads or writes a member whose shape was chosen by another member.
func either[I, T any](o *exact.Object, name string, p *I, s exact.Shape[T]) {
	var v T
	if o.Writing() {
		v, _ = any(*p).(T)
	}
	exact.Sub(o, name, &v, s)
	if !o.Failed() {
		*p = any(v).(I)
	}
}

var claimedJob = exact.Shape[ai.ClaimedJob]{Fields: func(o *exact.Object, j *ai.ClaimedJob) {
	exact.Text(o, "id", &j.ID, 1, 0)
	kindedFields(o, &j.Payload)
	exact.Word(o, "audience", &j.Audience, ai.Audiences())
	exact.Text(o, "owner", &j.Owner, 1, 0)
	exact.OptText(o, "site", &j.Site, 1, 0)
	exact.Sub(o, "lease", &j.Lease, lease)
}}
