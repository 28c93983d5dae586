package handshake

import (
	"strings"
	"time"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/internal/codec"
)

// What this package refuses.
var (
	ErrIncompatible = refusal.NewKind("protocol-incompatible", Status,
		"The two sides speak releases of the zone contract that do not go together.",
		"Upgrade the side that is older. Allod asks again every five minutes by itself.")
	ErrOffer = refusal.NewKind("protocol-offer-invalid", 400,
		"The request does not say by which release of the zone contract it is meant, or not in the one way to say it.",
		"Send the member protocol with exactly interfacesVersion and minimumPeerVersion, each as in 32.0.0.")
	ErrMinimum = refusal.NewKind("protocol-minimum", 500,
		"This program was built to accept no peer of its own release.",
		"Report this: the oldest peer that a program accepts must be of its own major version and not above its own release.")
)

// Kinds are this package's refusals.
var Kinds = refusal.Registry{Title: "Zone: the handshake", Kinds: []*refusal.Kind{ErrIncompatible, ErrOffer, ErrMinimum}}

const (
	// Status is the HTTP status of a refusal on the Spark routes, which use it for
	// nothing else. It is judged by its body all the same (decision O18).
	Status = 409
	// RetryInterval is how long a refused client waits before it offers again
	// (refusedOfferRetryIntervalMs). Other errors do not use it.
	RetryInterval = 300 * time.Second
	// Member is the name under which an offer travels.
	Member = "protocol"
)

// Session is a kind of session. A program has one offer for each kind, and raises
// the oldest peer it accepts for one kind at a time.
type Session string

// The kinds of session (decision O19).
const (
	SparkNode      Session = "sparkNode"
	SparkSwarmNode Session = "sparkSwarmNode"
	PalletRuntime  Session = "palletRuntime"
	CloudlyClient  Session = "cloudlyClient"
	ClusterRelay   Session = "clusterRelay"
	ClusterIngress Session = "clusterIngress"
)

// Offer is what one side brings to a session. The zero value is no offer; every
// other value is well formed. Values compare with ==.
type Offer struct {
	speaks  Version
	accepts Version
}

// minimums are the oldest peers that this build accepts. One is raised together
// with the change that begins to need a newer peer.
var minimums = map[Session]string{
	SparkNode: "32.0.0", SparkSwarmNode: "32.0.0", PalletRuntime: "32.0.0",
	CloudlyClient: "32.0.0", ClusterRelay: "32.0.0", ClusterIngress: "32.0.0",
}

// Ours is this build's offer for a kind of session, and no offer for a kind that
// is none.
func Ours(s Session) Offer {
	o, err := New(minimums[s])
	if err != nil {
		return Offer{}
	}
	return o
}

// New is this build's offer with that oldest accepted peer. It returns ErrMinimum
// for one that is no version, is of another major, or is above [zone.Release].
func New(minimum string) (Offer, error) { return Make(zone.Release, minimum) }

// Make is the offer of a build of that release. It returns what [New] does.
func Make(release, minimum string) (Offer, error) {
	speaks, ok := ParseVersion(release)
	accepts, ok2 := ParseVersion(minimum)
	if !ok || !ok2 || !fits(speaks, accepts) {
		return Offer{}, ErrMinimum
	}
	return Offer{speaks, accepts}, nil
}

// fits reports whether a release can accept peers from that version on.
func fits(speaks, accepts Version) bool {
	return speaks.major == accepts.major && accepts.compare(speaks) <= 0
}

// Speaks is the release that the side speaks (interfacesVersion).
func (o Offer) Speaks() Version { return o.speaks }

// Accepts is the oldest peer that the side accepts (minimumPeerVersion).
func (o Offer) Accepts() Version { return o.accepts }

// IsZero reports whether o is no offer.
func (o Offer) IsZero() bool { return o == Offer{} }

// OfferCodec is the object of an offer (IProtocolOffer).
var OfferCodec zone.Codec[Offer] = codec.Of(func(o *exact.Object, v *Offer) {
	version(o, "interfacesVersion", &v.speaks)
	version(o, "minimumPeerVersion", &v.accepts)
	if !o.Failed() && !fits(v.speaks, v.accepts) {
		o.Fail(exact.ErrRange, "an offer whose minimumPeerVersion is of the same major version and not above")
	}
})

func version(o *exact.Object, name string, p *Version) {
	text := p.String()
	exact.Spelled(o, name, &text, maxVersion, "a release as in 32.0.0", func(s string) bool {
		_, ok := ParseVersion(s)
		return ok
	})
	*p, _ = ParseVersion(text)
}

// Validate lists what keeps a JSON text from being an offer; an empty list means
// that it is one. path is what the value is called, "value" where it is empty.
func Validate(src []byte, path string) []string { return OfferCodec.Reasons(src, path) }

// ValidateOn lists the same about the member "protocol" of a body.
func ValidateOn(body []byte, path string) []string {
	_, reasons := read(body, path)
	return reasons
}

// Read reads the offer of a body and looks at nothing else in it. It returns
// ErrOffer with every reason.
func Read(body []byte) (Offer, error) {
	offer, reasons := read(body, "")
	if len(reasons) > 0 {
		return Offer{}, ErrOffer.With(strings.Join(reasons, "; ") + ".")
	}
	return offer, nil
}

// read parses the body once, so that what is judged is what is returned.
func read(body []byte, path string) (Offer, []string) {
	v, err := exact.Parse(body, codec.Limits)
	if err != nil {
		return Offer{}, codec.Unreadable(err, path)
	}
	if path == "" {
		path = "value"
	}
	v, _ = v.Member(Member)
	shape := codec.Shape(OfferCodec)
	if reasons := codec.Reasons(shape.Problems(v), path+"."+Member); len(reasons) > 0 {
		return Offer{}, reasons
	}
	offer, err := shape.From(v)
	if err != nil {
		return Offer{}, codec.Unreadable(err, path)
	}
	return offer, nil
}

// Negotiate returns nil where a local and a remote side go together, and else a
// [*Refusal] by the local one. Different majors come first, then a remote side
// that is too old, then a local one. It returns ErrOffer where one is no offer.
func Negotiate(local, remote Offer) error {
	switch {
	case local.IsZero() || remote.IsZero():
		return ErrOffer
	case local.speaks.major != remote.speaks.major:
		return &Refusal{MajorMismatch, local, remote}
	case remote.speaks.compare(local.accepts) < 0:
		return &Refusal{PeerBelowMinimum, local, remote}
	case local.speaks.compare(remote.accepts) < 0:
		return &Refusal{SelfBelowPeerMinimum, local, remote}
	}
	return nil
}
