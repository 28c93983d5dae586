// Package protocol picks the version of the AI contract that a request
// declares, before anything else of it is looked at (MUST
// VERSION_HANDSHAKE_REQUIRED).
//
// A request declares its version in the body's member protocolVersion, or, where
// it has no body or the body lacks the member, in the query. An unsupported or
// absent version is refused with what this side speaks, and consumes nothing.
//
// The package refuses to guess: there is no default version.
package protocol

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/v0"
	"github.com/allodhq/allod/wire/ai/v2"
)

// member is the name under which a version is declared.
const member = "protocolVersion"

// spoken are the codecs of the versions this module speaks, the oldest first.
var spoken = []ai.Codec{v0.Codec(), v2.Codec()}

func codecs() []ai.Codec { return spoken }

// Supported returns the versions this module speaks, the oldest first.
func Supported() []string {
	all := codecs()
	versions := make([]string, len(all))
	for i, c := range all {
		versions[i] = c.Version
	}
	return versions
}

// Minimum is the oldest version this module speaks.
func Minimum() string { return Supported()[0] }

// Latest is the codec of the newest version this module speaks.
func Latest() ai.Codec {
	all := codecs()
	return all[len(all)-1]
}

// Find returns the codec of a version, and whether this module speaks it.
func Find(version string) (ai.Codec, bool) {
	for _, c := range codecs() {
		if c.Version == version {
			return c, true
		}
	}
	return ai.Codec{}, false
}

// Best returns the codec of the newest version that is both one of the given and
// spoken by this module, and whether there is one.
func Best(versions []string) (best ai.Codec, ok bool) {
	for _, c := range codecs() {
		if slices.Contains(versions, c.Version) {
			best, ok = c, true
		}
	}
	return best, ok
}

// Choose returns the codec for a request with that body and query. limit is the
// endpoint's largest body in bytes. The error is an *ai.Error: a bad-request for
// a body that is too large or not JSON, else an unsupported-protocol-version
// with supported and minimum. The whole body is parsed, since JSON comes before
// the version in the order of checks, and before who is calling; what its
// members mean is for the codec's Read.
func Choose(body []byte, limit int, query string) (ai.Codec, error) {
	root, err := exact.Parse(body, exact.Limits{Bytes: limit, Depth: maxDepth, Values: maxValues})
	if err != nil {
		return ai.Codec{}, badRequest(err)
	}
	declared, ok := root.Member(member)
	if !ok {
		return ChooseByQuery(query)
	}
	text, _ := declared.Text()
	return find(text)
}

// ChooseByQuery returns the codec for a request without a body. The first value
// counts; only & separates. The error is an unsupported-protocol-version as for
// [Choose].
func ChooseByQuery(query string) (ai.Codec, error) {
	for pair := range strings.SplitSeq(strings.TrimPrefix(query, "?"), "&") {
		name, value, _ := strings.Cut(pair, "=")
		if unescape(name) == member {
			return find(unescape(value))
		}
	}
	return find("")
}

// Bounds for looking at a body before its version is known; each version's own
// are no wider.
const (
	maxDepth  = 8
	maxValues = 1 << 16
)

func find(declared string) (ai.Codec, error) {
	if c, ok := Find(declared); ok {
		return c, nil
	}
	// The message never repeats the declared text. Versions are compared as
	// text, as the contract's other servers do. Who is older than the newest is
	// behind: that one is there for it.
	side := "This server is behind: upgrade it."
	if declared < Latest().Version {
		side = "The caller is behind: upgrade it."
	}
	e := ai.ErrorOf(ai.ErrUnsupportedVersion.With(side))
	e.Supported, e.Minimum = Supported(), Minimum()
	return ai.Codec{}, e
}

func badRequest(err error) error {
	var p *exact.Problem
	if errors.As(err, &p) {
		return ai.BadRequest(p.Sentence())
	}
	return ai.ErrorOf(err)
}

// unescape decodes a part of a query. A part that is not well escaped stays as
// it is and so matches nothing.
func unescape(part string) string {
	if text, err := url.QueryUnescape(part); err == nil {
		return text
	}
	return part
}
