package act

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
)

// What this package refuses.
var (
	ErrMutation = refusal.NewKind("mutation-conflict", 409,
		"Another change was asked for under this mutation id.",
		"Take a new mutation id for a new change, and the same request for a repeat.")
	ErrRevision = refusal.NewKind("revision-conflict", 409,
		"What you wanted to change was changed meanwhile, or is not at the counter that you named.",
		"Read it again, decide again, and name the counter that you read.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: changes", Kinds: []*refusal.Kind{ErrMutation, ErrRevision}}

// Act is one thing that somebody does.
type Act struct {
	By           who.Principal
	Organization zone.OrganizationID // "" for the installation
	Action       string              // the method's name
	Subject      string              // kind and id, as in node/a7
	Detail       string              // JSON without secrets; may be ""
	At           zone.Millis
}

// Record writes an act into the audit log. It returns who.ErrEnded where whoever does
// it was put out since they were let in.
func Record(tx store.Tx, a Act) error {
	if err := a.By.Stands(tx); err != nil {
		return err
	}
	return record(tx, a)
}

func record(tx store.Records, a Act) error {
	return tx.AppendAudit(store.AuditEntry{
		At: a.At, Actor: a.By.Actor(), Organization: a.Organization, Action: a.Action, Subject: a.Subject, Detail: a.Detail,
	})
}

// Once runs decide, keeps its answer under the mutation id, and records the act.
// For a repeat it returns the answer that was kept, and replayed. input is the
// digest of the whole request, without its proof. The caller has found that the
// principal may do this, in the same transaction. It returns who.ErrEnded as [Record]
// does, also for a repeat, ErrMutation, and decide's error, after which nothing is
// kept.
func Once(tx store.Tx, a Act, id zone.MutationID, input canon.Sum, decide func() (answer []byte, err error)) (answer []byte, replayed bool, err error) {
	if err := a.By.Stands(tx); err != nil {
		return nil, false, err
	}
	scope := string(a.Organization)
	if scope == "" {
		scope = installation
	}
	kept, found, err := tx.Receipt(scope, id)
	if err != nil {
		return nil, false, err
	}
	if found {
		if kept.Input != input {
			return nil, false, ErrMutation
		}
		return kept.Answer, true, nil
	}
	if answer, err = decide(); err != nil {
		return nil, false, err
	}
	if err = tx.PutReceipt(store.Receipt{Scope: scope, ID: id, Input: input, Answer: answer, At: a.At}); err != nil {
		return nil, false, err
	}
	return answer, false, record(tx, a) // by who they were before it
}

// installation is the scope of changes that belong to no organization. It cannot be
// an organization's id, since it ends in a dot.
const installation = "installation."
