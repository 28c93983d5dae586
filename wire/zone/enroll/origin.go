package enroll

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/allodhq/allod/internal/exact"
)

// MaxOrigin is the longest origin, in bytes: the scheme, the longest name of a host
// and a port.
const MaxOrigin = len(scheme) + maxHost + len(":65535")

const (
	scheme  = "https://"
	maxHost = 253
	// defaultPort is the port that an origin leaves out.
	defaultPort = 443
)

// Origin is where a controller is reached: https, a host, and a port where it is
// not 443, in the one spelling that browsers, and this package, write. The zero
// value is none. Values compare with ==.
type Origin struct {
	host string // IPv6 without brackets
	port uint16
}

// ParseOrigin reads an origin and refuses every other spelling of it, so that two
// origins are the same exactly where their texts are: another scheme, upper case, a
// path or a slash, a user, port 443, a number with leading zeros, a dot at the end,
// an address that is not in its shortest form. It returns [ErrOrigin].
func ParseOrigin(text string) (Origin, error) {
	rest, ok := strings.CutPrefix(text, scheme)
	if !ok || len(text) > MaxOrigin {
		return Origin{}, ErrOrigin
	}
	host, number, hasPort := rest, "", false
	if end := strings.LastIndexByte(rest, ':'); end > strings.LastIndexByte(rest, ']') {
		host, number, hasPort = rest[:end], rest[end+1:], true
	}
	o := Origin{port: defaultPort}
	if hasPort {
		port, err := strconv.ParseUint(number, 10, 16)
		if err != nil || port == 0 || port == defaultPort || strconv.FormatUint(port, 10) != number {
			return Origin{}, ErrOrigin
		}
		o.port = uint16(port)
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		// Browsers write an IPv4 address within an IPv6 one in another way.
		if !ok || err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" || a.String() != inner {
			return Origin{}, ErrOrigin
		}
		o.host = inner
		return o, nil
	}
	if !validHost(host) {
		return Origin{}, ErrOrigin
	}
	o.host = host
	return o, nil
}

// validHost reports whether s is a name of lower-case labels, or an IPv4 address.
func validHost(s string) bool {
	if s == "" || len(s) > maxHost {
		return false
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	// Browsers take a host whose last label is a number for an IPv4 address, in
	// spellings of their own.
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
		a, err := netip.ParseAddr(s)
		return err == nil && a.Is4() && a.String() == s
	}
	return true
}

// String is the origin in its one spelling, or "" for none. It is no secret.
func (o Origin) String() string {
	switch {
	case o.IsZero():
		return ""
	case o.port == defaultPort:
		return scheme + o.bracketed()
	}
	return scheme + o.bracketed() + ":" + strconv.Itoa(int(o.port))
}

// Host is the name or the address alone, for checking a certificate.
func (o Origin) Host() string { return o.host }

// Address is host and port as they are dialed, the port written out always. It is
// "" for none.
func (o Origin) Address() string {
	if o.IsZero() {
		return ""
	}
	return o.bracketed() + ":" + strconv.Itoa(int(o.port))
}

// IsZero reports whether there is no origin.
func (o Origin) IsZero() bool { return o == Origin{} }

func (o Origin) bracketed() string {
	if strings.Contains(o.host, ":") {
		return "[" + o.host + "]"
	}
	return o.host
}

func originMember(o *exact.Object, name string, p *Origin) {
	text := p.String()
	exact.Spelled(o, name, &text, MaxOrigin, "an https origin in its one spelling", func(s string) bool {
		_, err := ParseOrigin(s)
		return err == nil
	})
	if !o.Writing() {
		*p, _ = ParseOrigin(text)
	}
}
