package people

import (
	"context"
	"slices"
	"strconv"

	"github.com/allodhq/allod/internal/cloud/act"
	"github.com/allodhq/allod/internal/cloud/page"
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/admin"
)

// owner is an organization by its id, or "" where there is none. Whether it is there
// or not, it reads the same.
func owner(tx store.Tx, id zone.OrganizationID) (zone.OrganizationID, error) {
	_, found, err := tx.Organization(id)
	if !found {
		id = ""
	}
	return id, err
}

// see returns nil where the caller may see an organization.
func see(tx store.Tx, by who.Principal, id zone.OrganizationID) error {
	o, err := owner(tx, id)
	if err != nil {
		return err
	}
	return by.See(tx, o)
}

// CreateOrganization makes an organization without members. It returns
// who.ErrInstallation, store.ErrTaken and act.ErrMutation.
func (p *People) CreateOrganization(ctx context.Context, by who.Principal, r admin.CreateOrganization) (admin.CreateOrganizationAnswer, error) {
	if err := by.Install(); err != nil {
		return admin.CreateOrganizationAnswer{}, err
	}
	return change[admin.CreateOrganization, admin.CreateOrganizationAnswer]{
		act:     act.Act{By: by, Action: admin.MethodCreateOrganization, Subject: "organization/" + string(r.OrganizationID)},
		request: r, requests: admin.CreateOrganizationCodec, input: r.Input, id: r.MutationID,
		answers: admin.CreateOrganizationAnswerCodec, replayed: func(a *admin.CreateOrganizationAnswer) *bool { return &a.Replayed },
		decide: func(tx store.Tx, now zone.Millis) (admin.CreateOrganizationAnswer, error) {
			_, found, err := tx.Organization(r.OrganizationID)
			if err == nil && found {
				err = store.ErrTaken
			}
			if err != nil {
				return admin.CreateOrganizationAnswer{}, err
			}
			o := store.Organization{ID: r.OrganizationID, Name: r.Name, CreatedAt: now}
			return admin.CreateOrganizationAnswer{Organization: organization(o, "")}, tx.PutOrganization(o)
		},
	}.run(ctx, p)
}

func organization(o store.Organization, role string) admin.Organization {
	return admin.Organization{OrganizationID: o.ID, Name: o.Name, CreatedAt: o.CreatedAt, Role: admin.Role(role)}
}

// GetOrganizations lists the organizations that the caller is a member of, and all
// to who administers the installation. It returns page.ErrCursor.
func (p *People) GetOrganizations(ctx context.Context, by who.Principal, r admin.GetOrganizations) (admin.GetOrganizationsAnswer, error) {
	answer := admin.GetOrganizationsAnswer{Organizations: []admin.Organization{}}
	err := p.c.Store.Read(ctx, func(tx store.Tx) error {
		memberships, err := tx.Memberships(by.Operator)
		if err != nil {
			return err
		}
		roles := map[zone.OrganizationID]string{}
		for _, m := range memberships {
			roles[m.Organization] = m.Role
		}
		read := tx.Organizations
		if !by.Everything() {
			read = func(after zone.OrganizationID, limit int) (list []store.Organization, err error) {
				for _, m := range memberships {
					if m.Organization <= after || len(list) == limit {
						continue
					}
					o, found, err := tx.Organization(m.Organization)
					if err != nil {
						return nil, err
					}
					if found {
						list = append(list, o)
					}
				}
				return list, nil
			}
		}
		list, next, err := page.Read(r.Cursor, zone.MaxPage, read, func(o store.Organization) zone.OrganizationID { return o.ID })
		for _, o := range list {
			answer.Organizations = append(answer.Organizations, organization(o, roles[o.ID]))
		}
		answer.NextCursor = next
		return err
	})
	if err != nil {
		return admin.GetOrganizationsAnswer{}, err
	}
	return answer, nil
}

// GetAudit lists what was done in an organization that the caller may see, or
// everywhere. It returns who.ErrAbsent, who.ErrInstallation and page.ErrCursor.
func (p *People) GetAudit(ctx context.Context, by who.Principal, r admin.GetAudit) (admin.GetAuditAnswer, error) {
	answer := admin.GetAuditAnswer{Entries: []admin.Entry{}}
	if r.OrganizationID == "" {
		if err := by.Install(); err != nil {
			return admin.GetAuditAnswer{}, err
		}
	}
	before, err := sequence(r.Cursor)
	if err != nil {
		return admin.GetAuditAnswer{}, err
	}
	limit := int(min(max(r.Limit, 1), zone.MaxPage))
	err = p.c.Store.Read(ctx, func(tx store.Tx) error {
		if r.OrganizationID != "" {
			if err := see(tx, by, r.OrganizationID); err != nil {
				return err
			}
		}
		list, err := tx.Audit(r.OrganizationID, before, limit+1)
		if err != nil {
			return err
		}
		size := 0
		for i, e := range list {
			size += len(e.Actor) + len(e.Action) + len(e.Subject) + len(e.Detail)
			if i > 0 && (i == limit || size > maxAudit) {
				answer.NextCursor = zone.After(strconv.FormatInt(list[i-1].Seq, 10))
				break
			}
			answer.Entries = append(answer.Entries, admin.Entry{
				Sequence: e.Seq, At: e.At, Actor: e.Actor, OrganizationID: e.Organization,
				Action: e.Action, Subject: e.Subject, Detail: e.Detail,
			})
		}
		return nil
	})
	if err != nil {
		return admin.GetAuditAnswer{}, err
	}
	return answer, nil
}

// maxAudit bounds the texts of one page of the audit log, in bytes. Written as JSON,
// and with the rest of 256 entries, they stay below zone.MaxBytes.
const maxAudit = 128 << 10

// sequence reads the cursor of an audit log.
func sequence(c zone.Cursor) (int64, error) {
	key, ok := c.Key()
	if ok && key == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(key, 10, 64)
	if !ok || err != nil || n < 1 || strconv.FormatInt(n, 10) != key {
		return 0, page.ErrCursor
	}
	return n, nil
}

// SetMember gives an operator a role in an organization, changes it, or takes it
// away. Whoever administers only the organization can do so with its members. It
// returns who.ErrAbsent, who.ErrRole, act.ErrMutation, and store.ErrBounds for one
// membership too many.
func (p *People) SetMember(ctx context.Context, by who.Principal, r admin.SetMember) (admin.SetMemberAnswer, error) {
	return change[admin.SetMember, admin.SetMemberAnswer]{
		act:     act.Act{By: by, Organization: r.OrganizationID, Action: admin.MethodSetMember, Subject: subject(r.OperatorID)},
		request: r, requests: admin.SetMemberCodec, input: r.Input, id: r.MutationID,
		answers: admin.SetMemberAnswerCodec, replayed: func(a *admin.SetMemberAnswer) *bool { return &a.Replayed },
		may: func(tx store.Tx) error {
			o, err := owner(tx, r.OrganizationID)
			if err != nil {
				return err
			}
			return by.Change(tx, o)
		},
		decide: func(tx store.Tx, _ zone.Millis) (admin.SetMemberAnswer, error) {
			_, member, err := tx.Member(r.OrganizationID, r.OperatorID)
			if err != nil {
				return admin.SetMemberAnswer{}, err
			}
			_, exists, err := tx.Operator(r.OperatorID)
			if err == nil && (!exists || !member && !by.Everything()) {
				err = who.ErrAbsent
			}
			if err != nil {
				return admin.SetMemberAnswer{}, err
			}
			return admin.SetMemberAnswer{OrganizationID: r.OrganizationID, OperatorID: r.OperatorID, Role: r.Role},
				tx.PutMember(store.Member{Organization: r.OrganizationID, Operator: r.OperatorID, Role: string(r.Role)})
		},
	}.run(ctx, p)
}

// GetOperators lists the members of an organization that the caller may see, or all
// operators. It returns who.ErrAbsent, who.ErrInstallation and page.ErrCursor.
func (p *People) GetOperators(ctx context.Context, by who.Principal, r admin.GetOperators) (admin.GetOperatorsAnswer, error) {
	answer := admin.GetOperatorsAnswer{Operators: []admin.Operator{}}
	if r.OrganizationID == "" {
		if err := by.Install(); err != nil {
			return admin.GetOperatorsAnswer{}, err
		}
	}
	err := p.c.Store.Read(ctx, func(tx store.Tx) (err error) {
		if r.OrganizationID == "" {
			var list []store.Operator
			list, answer.NextCursor, err = page.Read(r.Cursor, zone.MaxPage, tx.Operators, func(o store.Operator) zone.OperatorID { return o.ID })
			for _, o := range list {
				answer.Operators = append(answer.Operators, person(o, ""))
			}
			return err
		}
		if err := see(tx, by, r.OrganizationID); err != nil {
			return err
		}
		members := func(after zone.OperatorID, limit int) ([]store.Member, error) {
			return tx.Members(r.OrganizationID, after, limit)
		}
		list, next, err := page.Read(r.Cursor, zone.MaxPage, members, func(m store.Member) zone.OperatorID { return m.Operator })
		answer.NextCursor = next
		for _, m := range list {
			o, found, err := tx.Operator(m.Operator)
			if err != nil {
				return err
			}
			if found {
				answer.Operators = append(answer.Operators, person(o, m.Role))
			}
		}
		return err
	})
	if err != nil {
		return admin.GetOperatorsAnswer{}, err
	}
	return answer, nil
}

func person(o store.Operator, role string) admin.Operator {
	return admin.Operator{
		OperatorID: o.ID, Name: o.Name, Installation: o.Installation, Disabled: o.Disabled, CreatedAt: o.CreatedAt, Role: admin.Role(role),
	}
}

// CreateOperator makes an operator, who can log in once somebody makes them a
// login link. It returns who.ErrInstallation, store.ErrTaken and act.ErrMutation.
func (p *People) CreateOperator(ctx context.Context, by who.Principal, r admin.CreateOperator) (admin.CreateOperatorAnswer, error) {
	if err := by.Install(); err != nil {
		return admin.CreateOperatorAnswer{}, err
	}
	return change[admin.CreateOperator, admin.CreateOperatorAnswer]{
		act:     act.Act{By: by, Action: admin.MethodCreateOperator, Subject: subject(r.OperatorID)},
		request: r, requests: admin.CreateOperatorCodec, input: r.Input, id: r.MutationID,
		answers: admin.CreateOperatorAnswerCodec, replayed: func(a *admin.CreateOperatorAnswer) *bool { return &a.Replayed },
		decide: func(tx store.Tx, now zone.Millis) (admin.CreateOperatorAnswer, error) {
			_, found, err := tx.Operator(r.OperatorID)
			if err == nil && (found || slices.Contains(actors, string(r.OperatorID))) {
				err = store.ErrTaken
			}
			if err != nil {
				return admin.CreateOperatorAnswer{}, err
			}
			o := store.Operator{ID: r.OperatorID, Name: r.Name, Installation: r.Installation, Generation: 1, CreatedAt: now}
			return admin.CreateOperatorAnswer{Operator: person(o, "")}, tx.PutOperator(o)
		},
	}.run(ctx, p)
}

// actors are the names in the audit log of those who are no operators. An operator
// of such a name would write in theirs.
var actors = []string{string(who.Local), string(controller.Kind)}

// DisableOperator ends everything that an operator may do, with their tokens and
// login links, or lets them in again. It returns who.ErrInstallation,
// who.ErrAbsent, ErrLast and act.ErrMutation.
func (p *People) DisableOperator(ctx context.Context, by who.Principal, r admin.DisableOperator) (admin.DisableOperatorAnswer, error) {
	if err := by.Install(); err != nil {
		return admin.DisableOperatorAnswer{}, err
	}
	return change[admin.DisableOperator, admin.DisableOperatorAnswer]{
		act:     act.Act{By: by, Action: admin.MethodDisableOperator, Subject: subject(r.OperatorID)},
		request: r, requests: admin.DisableOperatorCodec, input: r.Input, id: r.MutationID,
		answers: admin.DisableOperatorAnswerCodec, replayed: func(a *admin.DisableOperatorAnswer) *bool { return &a.Replayed },
		decide: func(tx store.Tx, _ zone.Millis) (admin.DisableOperatorAnswer, error) {
			o, err := operator(tx, r.OperatorID)
			if err != nil {
				return admin.DisableOperatorAnswer{}, err
			}
			if r.Disabled && o.Installation && !o.Disabled {
				if err := another(tx, o.ID); err != nil {
					return admin.DisableOperatorAnswer{}, err
				}
			}
			if r.Disabled && !o.Disabled {
				o.Generation++ // so that nothing comes back when they are let in again
			}
			o.Disabled = r.Disabled
			return admin.DisableOperatorAnswer{Operator: person(o, "")}, tx.PutOperator(o)
		},
	}.run(ctx, p)
}

// another returns nil where somebody besides an operator administers the
// installation, and ErrLast where nobody does.
func another(tx store.Tx, than zone.OperatorID) error {
	after := zone.OperatorID("")
	for {
		list, err := tx.Operators(after, store.MaxList)
		if err != nil {
			return err
		}
		for _, o := range list {
			if o.ID != than && o.Installation && !o.Disabled {
				return nil
			}
			after = o.ID
		}
		if len(list) < store.MaxList {
			return ErrLast
		}
	}
}

// EndSessions ends all tokens and login links of an operator; everybody may end
// their own. It returns who.ErrInstallation, who.ErrAbsent and act.ErrMutation.
func (p *People) EndSessions(ctx context.Context, by who.Principal, r admin.EndSessions) (admin.EndSessionsAnswer, error) {
	if by.Kind != who.Operator || by.Operator != r.OperatorID {
		if err := by.Install(); err != nil {
			return admin.EndSessionsAnswer{}, err
		}
	}
	return change[admin.EndSessions, admin.EndSessionsAnswer]{
		act:     act.Act{By: by, Action: admin.MethodEndSessions, Subject: subject(r.OperatorID)},
		request: r, requests: admin.EndSessionsCodec, input: r.Input, id: r.MutationID,
		answers: admin.EndSessionsAnswerCodec, replayed: func(a *admin.EndSessionsAnswer) *bool { return &a.Replayed },
		decide: func(tx store.Tx, _ zone.Millis) (admin.EndSessionsAnswer, error) {
			o, err := operator(tx, r.OperatorID)
			if err != nil {
				return admin.EndSessionsAnswer{}, err
			}
			o.Generation++
			return admin.EndSessionsAnswer{OperatorID: o.ID}, tx.PutOperator(o)
		},
	}.run(ctx, p)
}
