package cluster

import (
	"unicode"
	"unicode/utf8"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/canon"
	"github.com/allodhq/allod/wire/zone/internal/codec"
	"github.com/allodhq/allod/wire/zone/internal/member"
)

// The methods about clusters.
const (
	MethodCreate  = "createCluster"
	MethodList    = "getClusters"
	MethodUpdate  = "updateCluster"
	MethodRuntime = "getClusterRuntime"
)

// MaxName is the longest name of a cluster or a service, in bytes.
const MaxName = 200

// Writable is what a caller may write of a cluster.
type Writable struct {
	// Name is for people: 1 to [MaxName] bytes without control characters.
	Name string
}

// Cluster is a cluster as the controller answers (ICluster).
type Cluster struct {
	ID           zone.ClusterID
	Organization zone.OrganizationID
	Revision     int64 // from 1, one more with each change
	CreatedAt    zone.Millis
	Data         Writable
}

// Create asks for a new cluster of an organization.
type Create struct {
	Organization zone.OrganizationID
	Cluster      Writable
	Mutation     zone.MutationID
}

// Update asks to replace the writable data of a cluster.
type Update struct {
	Cluster zone.ClusterID
	// Expected is the revision that the caller read.
	Expected int64
	Data     Writable
	Mutation zone.MutationID
}

// Answer is the cluster as it was after a change.
type Answer struct {
	Cluster Cluster
	// Replayed is whether this answers a repeat: the change was made when it was first
	// asked for, and there may have been later ones.
	Replayed bool
}

// List asks for the clusters of an organization, in the order of their identifiers.
type List struct {
	Organization zone.OrganizationID
	Cursor       zone.Cursor
}

// Page is at most [zone.MaxPage] clusters.
type Page struct {
	Clusters []Cluster
	Next     zone.Cursor
}

// WritableCodec is the object of a cluster's writable data.
var WritableCodec zone.Codec[Writable] = codec.Of(func(o *exact.Object, w *Writable) {
	name(o, &w.Name)
})

// Codec is the object of a cluster.
var Codec zone.Codec[Cluster] = codec.Of(func(o *exact.Object, c *Cluster) {
	member.ID(o, "id", &c.ID)
	member.ID(o, "organizationId", &c.Organization)
	revision(o, "revision", &c.Revision)
	member.Millis(o, "createdAt", &c.CreatedAt)
	exact.Sub(o, "data", &c.Data, codec.Shape(WritableCodec))
})

// CreateCodec is the request of createCluster.
var CreateCodec zone.Codec[Create] = codec.Of(func(o *exact.Object, c *Create) {
	member.ID(o, "organizationId", &c.Organization)
	exact.Sub(o, "cluster", &c.Cluster, codec.Shape(WritableCodec))
	member.ID(o, "mutationId", &c.Mutation)
})

// UpdateCodec is the request of updateCluster.
var UpdateCodec zone.Codec[Update] = codec.Of(func(o *exact.Object, u *Update) {
	member.ID(o, "clusterId", &u.Cluster)
	revision(o, "expectedRevision", &u.Expected)
	exact.Sub(o, "cluster", &u.Data, codec.Shape(WritableCodec))
	member.ID(o, "mutationId", &u.Mutation)
})

// AnswerCodec is the answer of createCluster and updateCluster.
var AnswerCodec zone.Codec[Answer] = codec.Of(func(o *exact.Object, a *Answer) {
	exact.Sub(o, "cluster", &a.Cluster, codec.Shape(Codec))
	exact.Bool(o, "replayed", &a.Replayed)
})

// ListCodec is the request of getClusters.
var ListCodec zone.Codec[List] = codec.Of(func(o *exact.Object, l *List) {
	member.ID(o, "organizationId", &l.Organization)
	member.Cursor(o, "cursor", &l.Cursor)
})

// PageCodec is the answer of getClusters.
var PageCodec zone.Codec[Page] = codec.Of(func(o *exact.Object, p *Page) {
	exact.List(o, "clusters", &p.Clusters, 0, zone.MaxPage, codec.Shape(Codec))
	member.Cursor(o, "nextCursor", &p.Next)
})

// Input is the digest of the method and the whole request, for its mutation id.
func (c Create) Input() (canon.Sum, error) { return member.Input(MethodCreate, CreateCodec, c) }

// Input is the digest of the method and the whole request, for its mutation id.
func (u Update) Input() (canon.Sum, error) { return member.Input(MethodUpdate, UpdateCodec, u) }

// name is a name for people. Control characters would act on the terminal of whoever
// lists it, and others reorder or hide what stands around them. The two joiners do
// not, and some scripts and pictures are written with them.
func name(o *exact.Object, p *string) {
	exact.Spelled(o, "name", p, MaxName, "a name of 1 to 200 bytes without control characters", func(s string) bool {
		for _, r := range s {
			if r != '\u200c' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) {
				return false
			}
		}
		return s != "" && utf8.ValidString(s)
	})
}

func revision(o *exact.Object, name string, p *int64) { exact.Whole(o, name, p, 1, 0) }
