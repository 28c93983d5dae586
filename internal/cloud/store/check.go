package store

import "github.com/allodhq/allod/wire/zone"

// Every record has a Check, which returns [ErrBounds] where the record cannot be
// kept: what it is found by, and what it belongs to, has 1 to [zone.MaxID] bytes,
// every other text at most [zone.MaxText], and a document at most [MaxDocument].
// Each put asks it, and so does an engine of a file that others may have changed.

func within(ok bool) error {
	if !ok {
		return ErrBounds
	}
	return nil
}

// key is whether a record can be found by this.
func key[T ~string](s T) bool { return s != "" && len(s) <= zone.MaxID }

func text[T ~string](s T) bool { return len(s) <= zone.MaxText }

func document[T ~string | ~[]byte](d T) bool { return len(d) <= MaxDocument }

// Check returns [ErrBounds] where the record cannot be kept.
func (o Organization) Check() error { return within(key(o.ID) && text(o.Name)) }

// Check returns [ErrBounds] where the record cannot be kept.
func (o Operator) Check() error { return within(key(o.ID) && text(o.Name)) }

// Check returns [ErrBounds] where the record cannot be kept.
func (m Member) Check() error {
	return within(key(m.Organization) && key(m.Operator) && text(m.Role))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (l LoginLink) Check() error { return within(key(l.Operator) && text(l.By)) }

// Check returns [ErrBounds] where the record cannot be kept.
func (c Cluster) Check() error { return within(key(c.ID) && key(c.Organization) && text(c.Name)) }

// Check returns [ErrBounds] where the record cannot be kept.
func (r Runtime) Check() error { return within(key(r.Cluster) && text(r.Phase) && text(r.ChangedBy)) }

// Check returns [ErrBounds] where the record cannot be kept.
func (n Node) Check() error {
	return within(key(n.ID) && key(n.Cluster) && key(n.Organization) && text(n.Hostname))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (r Report) Check() error {
	return within(key(r.Node) && document(r.Report) && document(r.Receipt))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (c Credential) Check() error {
	return within(key(c.Node) && key(c.Purpose) && text(c.State) && document(c.Receipt))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (i Invitation) Check() error {
	return within(key(i.Cluster) && text(i.CreatedBy) && text(i.Enrollment))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (e Enrollment) Check() error {
	return within(key(e.ID) && key(e.Node) && document(e.Proposal) && document(e.Answer))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (s Service) Check() error {
	return within(key(s.ID) && key(s.Organization) && text(s.Cluster) && text(s.Name))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (m Machine) Check() error {
	return within(key(m.Service) && key(m.Organization) && text(m.Grant) && text(m.State))
}

// Check returns [ErrBounds] where the record cannot be kept.
func (r Receipt) Check() error { return within(key(r.Scope) && key(r.ID) && document(r.Answer)) }

// Check returns [ErrBounds] where the record cannot be kept.
func (e AuditEntry) Check() error {
	return within(text(e.Actor) && text(e.Organization) && text(e.Action) && text(e.Subject) && document(e.Detail))
}

// Limit is how long a list may get that is asked for with a limit: one outside of
// 1 to [MaxList] is [MaxList].
func Limit(limit int) int {
	if limit < 1 || limit > MaxList {
		return MaxList
	}
	return limit
}
