package cluster

import (
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// The methods about services.
const (
	MethodCreateService = "createService"
	MethodListServices  = "getServices"
	MethodUpdateService = "updateService"
)

// WritableService is what a caller may write of a service (TServiceWritableData).
// Ownership is no part of it.
type WritableService struct {
	// Name is for people: 1 to [MaxName] bytes without control characters.
	Name string
	// Cluster is the one cluster of the service's organization that runs it, or "" for
	// none in particular; null in a message.
	Cluster zone.ClusterID
}

// Service is a service as the controller answers.
type Service struct {
	ID           zone.ServiceID
	Organization zone.OrganizationID
	Revision     int64 // from 1, one more with each change
	CreatedAt    zone.Millis
	Data         WritableService
}

// CreateService asks for a new service that an organization owns.
type CreateService struct {
	Organization zone.OrganizationID
	Service      WritableService
	Mutation     zone.MutationID
}

// UpdateService asks to replace the writable data of a service.
type UpdateService struct {
	Service zone.ServiceID
	// Expected is the revision that the caller read.
	Expected int64
	Data     WritableService
	Mutation zone.MutationID
}

// ServiceAnswer is the service as it was after a change.
type ServiceAnswer struct {
	Service  Service
	Replayed bool // as in [Answer]
}

// ListServices asks for the services of an organization, in the order of their
// identifiers.
type ListServices struct {
	Organization zone.OrganizationID
	Cursor       zone.Cursor
}

// ServicePage is at most [zone.MaxPage] services.
type ServicePage struct {
	Services []Service
	Next     zone.Cursor
}

// WritableServiceCodec is the object of a service's writable data.
var WritableServiceCodec zone.Codec[WritableService] = codec.Of(func(o *exact.Object, w *WritableService) {
	name(o, &w.Name)
	member.OrNull(o, "clusterId", &w.Cluster, member.ID)
})

// ServiceCodec is the object of a service.
var ServiceCodec zone.Codec[Service] = codec.Of(func(o *exact.Object, s *Service) {
	member.ID(o, "id", &s.ID)
	member.ID(o, "organizationId", &s.Organization)
	revision(o, "revision", &s.Revision)
	member.Millis(o, "createdAt", &s.CreatedAt)
	exact.Sub(o, "data", &s.Data, codec.Shape(WritableServiceCodec))
})

// CreateServiceCodec is the request of createService.
var CreateServiceCodec zone.Codec[CreateService] = codec.Of(func(o *exact.Object, c *CreateService) {
	member.ID(o, "organizationId", &c.Organization)
	exact.Sub(o, "service", &c.Service, codec.Shape(WritableServiceCodec))
	member.ID(o, "mutationId", &c.Mutation)
})

// UpdateServiceCodec is the request of updateService.
var UpdateServiceCodec zone.Codec[UpdateService] = codec.Of(func(o *exact.Object, u *UpdateService) {
	member.ID(o, "serviceId", &u.Service)
	revision(o, "expectedRevision", &u.Expected)
	exact.Sub(o, "service", &u.Data, codec.Shape(WritableServiceCodec))
	member.ID(o, "mutationId", &u.Mutation)
})

// ServiceAnswerCodec is the answer of createService and updateService.
var ServiceAnswerCodec zone.Codec[ServiceAnswer] = codec.Of(func(o *exact.Object, a *ServiceAnswer) {
	exact.Sub(o, "service", &a.Service, codec.Shape(ServiceCodec))
	exact.Bool(o, "replayed", &a.Replayed)
})

// ListServicesCodec is the request of getServices.
var ListServicesCodec zone.Codec[ListServices] = codec.Of(func(o *exact.Object, l *ListServices) {
	member.ID(o, "organizationId", &l.Organization)
	member.Cursor(o, "cursor", &l.Cursor)
})

// ServicePageCodec is the answer of getServices.
var ServicePageCodec zone.Codec[ServicePage] = codec.Of(func(o *exact.Object, p *ServicePage) {
	exact.List(o, "services", &p.Services, 0, zone.MaxPage, codec.Shape(ServiceCodec))
	member.Cursor(o, "nextCursor", &p.Next)
})

// Input is the digest of the method and the whole request, for its mutation id.
func (c CreateService) Input() (canon.Sum, error) {
	return member.Input(MethodCreateService, CreateServiceCodec, c)
}

// Input is the digest of the method and the whole request, for its mutation id.
func (u UpdateService) Input() (canon.Sum, error) {
	return member.Input(MethodUpdateService, UpdateServiceCodec, u)
}

// ValidateOrganizationID lists what keeps a text from being the identifier of an
// organization; an empty list means that it is well formed, and nothing more: who
// may use it is decided apart (F68). path is what the value is called, "value"
// where it is empty.
func ValidateOrganizationID(id, path string) []string {
	if zone.ValidID(id) {
		return nil
	}
	if path == "" {
		path = "value"
	}
	return []string{path + " must be an identifier of lower-case letters, digits and . _ - between them"}
}
