package who

import (
	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
)

// What this package refuses.
var (
	ErrAbsent = refusal.NewKind("zone-absent", 404,
		"There is nothing of that name that you may see.",
		"Check the name, and that you are a member of the organization that it belongs to.")
	ErrRole = refusal.NewKind("zone-role", 403,
		"Your role in this organization does not allow this.",
		"Ask an administrator of the organization to do it, or to make you one.")
	ErrInstallation = refusal.NewKind("zone-installation", 403,
		"Only an administrator of the whole installation may do this.",
		"Do it by the command on the controller's machine, with --data and its data folder.")
	ErrEnded = refusal.NewKind("zone-session-ended", 401,
		"The session was ended, or its owner may not come in any more.",
		"Log in again by a new login link. If that is refused too, ask an administrator of the installation.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: who may do what", Kinds: []*refusal.Kind{ErrAbsent, ErrRole, ErrInstallation, ErrEnded}}

// Kind is a kind of principal.
type Kind string

// The kinds of principals.
const (
	// Local is whoever reaches the admin socket: the user that runs the controller.
	Local Kind = "local"
	// Operator is a person with a token.
	Operator Kind = "operator"
	// Machine is a program that acts for one service (F14).
	Machine Kind = "machine"
	// Node is one program of a node (F09).
	Node Kind = "node"
)

// Roles in an organization.
const (
	// Administrator changes everything that belongs to the organization.
	Administrator = "administrator"
	// Viewer sees it.
	Viewer = "viewer"
)

// Principal is on whose behalf the controller is asked. The zero value is nobody.
type Principal struct {
	Kind Kind
	// Operator is who it is, for an operator.
	Operator zone.OperatorID
	// Installation is whether an operator administers the whole installation.
	Installation bool
	// Generation is an operator's when they were let in, for [Principal.Stands]; 0 where
	// nobody asked.
	Generation int64
	// Service and Organization are what a machine acts for.
	Service      zone.ServiceID
	Organization zone.OrganizationID
	// Node and Purpose are which program of which node it is.
	Node    zone.NodeID
	Purpose string
}

// Everything reports whether the principal administers the whole installation.
func (p Principal) Everything() bool {
	return p.Kind == Local || p.Kind == Operator && p.Installation
}

// Actor is the principal's name in the audit log.
func (p Principal) Actor() string {
	switch p.Kind {
	case Operator:
		return string(p.Operator)
	case Machine:
		return "service/" + string(p.Service)
	case Node:
		return "node/" + string(p.Node)
	default:
		return string(p.Kind)
	}
}

// See returns nil where the principal may see what belongs to an organization, and
// ErrAbsent where not. It reads the store once, whatever the answer; o is "" for
// what does not exist.
func (p Principal) See(tx store.People, o zone.OrganizationID) error {
	_, err := p.role(tx, o)
	return err
}

// Change returns nil where the principal may change what belongs to an
// organization, ErrRole where it may only see it, and ErrAbsent else. It reads the
// store as [Principal.See] does.
func (p Principal) Change(tx store.People, o zone.OrganizationID) error {
	role, err := p.role(tx, o)
	if err == nil && role != Administrator {
		return ErrRole
	}
	return err
}

func (p Principal) role(tx store.People, o zone.OrganizationID) (string, error) {
	m, found, err := tx.Member(o, p.Operator)
	switch {
	case err != nil:
		return "", err
	case o == "":
		return "", ErrAbsent
	case p.Everything():
		return Administrator, nil
	case p.Kind != Operator || !found || m.Role == "":
		return "", ErrAbsent
	}
	return m.Role, nil
}

// Install returns nil where the principal may change the installation itself, and
// ErrInstallation where not.
func (p Principal) Install() error {
	if !p.Everything() {
		return ErrInstallation
	}
	return nil
}

// Stands returns nil where an operator still is who they were when they were let in,
// and ErrEnded where they were disabled, their sessions ended, or they administer the
// installation no more. A change that waits for its turn asks once more, in the
// transaction that makes it, since others may have been made meanwhile.
func (p Principal) Stands(tx store.People) error {
	if p.Kind != Operator || p.Generation == 0 {
		return nil
	}
	o, found, err := tx.Operator(p.Operator)
	if err == nil && (!found || o.Disabled || o.Generation != p.Generation || p.Installation && !o.Installation) {
		err = ErrEnded
	}
	return err
}
