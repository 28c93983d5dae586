package shapes

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
)

func (d *Dialect) lease() exact.Shape[ai.Lease] {
	return exact.Shape[ai.Lease]{Unknown: d.lenient(), Fields: leaseFields}
}

func leaseFields(o *exact.Object, l *ai.Lease) {
	exact.Text(o, "id", &l.ID, 1, 0)
	exact.Text(o, "runnerId", &l.RunnerID, 1, 0)
	exact.Whole(o, "expiresAt", &l.ExpiresAt, 1, 0)
}

// grant is the pair in a heartbeat's answer.
var grant = exact.Shape[ai.Grant]{Fields: grantFields}

// heldGrant is the pair in requests.
func (d *Dialect) heldGrant() exact.Shape[ai.Grant] {
	return exact.Shape[ai.Grant]{Unknown: d.lenient(), Fields: grantFields}
}

func grantFields(o *exact.Object, g *ai.Grant) {
	exact.Text(o, "jobId", &g.JobID, 1, 0)
	exact.Text(o, "leaseId", &g.LeaseID, 1, 0)
}

func (d *Dialect) stub() exact.Shape[ai.Stub] { return exact.Shape[ai.Stub]{Fields: d.stubFields} }

func (d *Dialect) claimedStub() exact.Shape[ai.ClaimedStub] {
	lease := d.lease()
	return exact.Shape[ai.ClaimedStub]{Fields: func(o *exact.Object, s *ai.ClaimedStub) {
		d.stubFields(o, &s.Stub)
		exact.Sub(o, "lease", &s.Lease, lease)
		if d.Grants {
			exact.OptSub(o, "grant", &s.Grant, signedGrant)
		}
	}}
}

func (d *Dialect) stubFields(o *exact.Object, s *ai.Stub) {
	exact.Text(o, "id", &s.ID, 1, 0)
	exact.Word(o, "kind", &s.Kind, ai.Kinds())
	exact.Text(o, "owner", &s.Owner, 1, 0)
	exact.Text(o, "site", &s.Site, 1, 0)
	named(o, "audience", &s.Audience, d.Audiences)
	if d.Grants {
		exact.OptText(o, "purpose", &s.Purpose, 1, 0)
	}
	exact.Word(o, "sizeClass", &s.SizeClass, ai.SizeClasses())
	exact.Bool(o, "streaming", &s.Streaming)
	exact.Whole(o, "deadlineAt", &s.DeadlineAt, 1, 0)
}

// signedGrant is the control plane's word that a device may run a job.
var signedGrant = exact.Shape[ai.SignedGrant]{Fields: func(o *exact.Object, g *ai.SignedGrant) {
	exact.Text(o, "grantId", &g.GrantID, 1, 0)
	exact.Text(o, "jobId", &g.JobID, 1, 0)
	exact.Text(o, "site", &g.Site, 1, 0)
	exact.Text(o, "user", &g.User, 1, 0)
	exact.Text(o, "owner", &g.Owner, 1, 0)
	exact.Text(o, "purpose", &g.Purpose, 1, 0)
	exact.Text(o, "kind", &g.Kind, 1, 0)
	exact.Text(o, "service", &g.Service, 1, 0)
	exact.Whole(o, "issuedAt", &g.IssuedAt, 1, 0)
	exact.Text(o, "signature", &g.Signature, 1, 0)
}}

func chatMessageFields(o *exact.Object, m *ai.ChatMessage) {
	exact.Word(o, "role", &m.Role, ai.Roles())
	exact.Text(o, "content", &m.Content, 0, ai.MaxTextUnits)
}

var generate = exact.Shape[ai.Generate]{Fields: func(o *exact.Object, g *ai.Generate) {
	exact.Text(o, "prompt", &g.Prompt, 1, ai.MaxTextUnits)
	exact.OptText(o, "system", &g.System, 0, ai.MaxTextUnits)
	total(o, *g)
}}

func (d *Dialect) chat() exact.Shape[ai.Chat] {
	message := exact.Shape[ai.ChatMessage]{Unknown: d.lenient(), Fields: chatMessageFields}
	return exact.Shape[ai.Chat]{Fields: func(o *exact.Object, c *ai.Chat) {
		exact.List(o, "messages", &c.Messages, 1, ai.MaxMessages, message)
		exact.OptText(o, "system", &c.System, 0, ai.MaxTextUnits)
		total(o, *c)
	}}
}

func total(o *exact.Object, p ai.Payload) {
	if !o.Failed() && p.TextUnits() > ai.MaxPayloadUnits {
		o.Fail(exact.ErrRange, "at most 4000000 UTF-16 code units in all")
	}
}

func (d *Dialect) kinded() exact.Shape[ai.Payload] {
	return exact.Shape[ai.Payload]{Unknown: d.lenient(), Fields: d.kindedFields()}
}

// kindedFields are a kind and the payload that belongs to it.
func (d *Dialect) kindedFields() func(*exact.Object, *ai.Payload) {
	chat := d.chat()
	return func(o *exact.Object, p *ai.Payload) {
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

func (d *Dialect) claimedJob() exact.Shape[ai.ClaimedJob] {
	lease, payload := d.lease(), d.kindedFields()
	return exact.Shape[ai.ClaimedJob]{Fields: func(o *exact.Object, j *ai.ClaimedJob) {
		exact.Text(o, "id", &j.ID, 1, 0)
		payload(o, &j.Payload)
		named(o, "audience", &j.Audience, d.Audiences)
		exact.Text(o, "owner", &j.Owner, 1, 0)
		exact.OptText(o, "site", &j.Site, 1, 0)
		if d.Services {
			exact.OptText(o, "service", &j.Service, 1, 0)
			optMillis(o, "deadlineAt", &j.DeadlineAt)
		}
		exact.Sub(o, "lease", &j.Lease, lease)
	}}
}
