package sqlite

import (
	"math"
	"strconv"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
)

var links = &table[store.LoginLink]{
	what: "login link",
	into: func(v *store.LoginLink) []any {
		return []any{(*digest)(&v.Code), &v.Operator, &v.Generation, &v.By, &v.ByGeneration, &v.CreatedAt, &v.ExpiresAt, &v.UsedAt}
	},
	name: func(v *store.LoginLink) string { return brief(v.Code) },
}

const (
	linkGet = `SELECT code, operator, generation, made_by, made_by_generation, created_at, expires_at, used_at FROM login_links WHERE code = ?`
	linkPut = `INSERT INTO login_links (code, operator, generation, made_by, made_by_generation, created_at, expires_at, used_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (code) DO UPDATE SET operator = excluded.operator, generation = excluded.generation, made_by = excluded.made_by,
		made_by_generation = excluded.made_by_generation, created_at = excluded.created_at, expires_at = excluded.expires_at, used_at = excluded.used_at`
	linkPrune = `DELETE FROM login_links WHERE code IN
		(SELECT code FROM login_links WHERE expires_at < ? ORDER BY expires_at, code LIMIT ?)`
)

func (t *tx) LoginLink(code store.Hash) (store.LoginLink, bool, error) {
	return one(t, links, linkGet, code[:])
}

func (t *tx) PutLoginLink(l store.LoginLink) error {
	return t.put(l.Check(), linkPut, l.Code[:], l.Operator, l.Generation, l.By, l.ByGeneration, l.CreatedAt, l.ExpiresAt, l.UsedAt)
}

var receipts = &table[store.Receipt]{
	what: "receipt",
	into: func(v *store.Receipt) []any {
		return []any{&v.Scope, &v.ID, (*digest)(&v.Input), (*document)(&v.Answer), &v.At}
	},
	name: func(v *store.Receipt) string { return v.Scope + "/" + string(v.ID) },
}

const (
	receiptGet = `SELECT scope, id, input, answer, at FROM receipts WHERE scope = ? AND id = ?`
	receiptPut = `INSERT INTO receipts (scope, id, input, answer, at) VALUES (?, ?, ?, ?, ?)`
	// Rows are found by their own numbers.
	receiptPrune = `DELETE FROM receipts WHERE rowid IN
		(SELECT rowid FROM receipts WHERE at < ? ORDER BY at, scope, id LIMIT ?)`
)

func (t *tx) Receipt(scope string, id zone.MutationID) (store.Receipt, bool, error) {
	return one(t, receipts, receiptGet, scope, id)
}

func (t *tx) PutReceipt(r store.Receipt) error {
	return t.put(r.Check(), receiptPut, r.Scope, r.ID, some(r.Input), doc(r.Answer), r.At)
}

var entries = &table[store.AuditEntry]{
	what: "audit entry",
	into: func(v *store.AuditEntry) []any {
		return []any{&v.Seq, &v.At, &v.Actor, &v.Organization, &v.Action, &v.Subject, &v.Detail}
	},
	name: func(v *store.AuditEntry) string { return strconv.FormatInt(v.Seq, 10) },
}

const (
	auditColumns = `SELECT seq, at, actor, organization, action, subject, detail FROM audit `
	auditAll     = auditColumns + `WHERE seq < ? ORDER BY seq DESC`
	auditList    = auditColumns + `WHERE organization = ? AND seq < ? ORDER BY seq DESC`
	auditPut     = `INSERT INTO audit (at, actor, organization, action, subject, detail) VALUES (?, ?, ?, ?, ?, ?)`
)

func (t *tx) AppendAudit(e store.AuditEntry) error {
	return t.put(e.Check(), auditPut, e.At, e.Actor, e.Organization, e.Action, e.Subject, e.Detail)
}

func (t *tx) Audit(o zone.OrganizationID, before int64, limit int) ([]store.AuditEntry, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	if o == "" {
		return list(t, entries, limit, auditAll, before)
	}
	return list(t, entries, limit, auditList, o, before)
}

func (t *tx) Prune(before zone.Millis, limit int) error {
	for _, query := range []string{linkPrune, invitationPrune, receiptPrune} {
		if err := t.put(nil, query, before, store.Limit(limit)); err != nil {
			return err
		}
	}
	return nil
}
