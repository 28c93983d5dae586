package ca

import (
	"net"
	"net/netip"
	"strings"
)

// Bounds of the names of a server.
const (
	MaxHosts = 32
	// maxName and maxLabel are in bytes (RFC 1035, 2.3.4, without the last dot).
	maxName  = 253
	maxLabel = 63
)

// Host is a DNS name in lower case, or an IP address.
type Host struct {
	name    string
	address netip.Addr
}

// ReadHost reads a DNS name or an IP address. A name is of ASCII letters, digits
// and hyphens; an IPv4 address within IPv6 is the IPv4 address. It returns
// [ErrHostName] for anything else: a port, a wildcard, a zone, a last dot.
func ReadHost(text string) (Host, error) {
	if len(text) > maxName {
		return Host{}, ErrHostName
	}
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return Host{}, ErrHostName
		}
		return Host{address: a.Unmap()}, nil
	}
	name := strings.ToLower(text)
	digits := false
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return Host{}, ErrHostName
		}
		digits = strings.Trim(label, "0123456789") == ""
	}
	if digits { // such as 127.1, which some systems take for an address
		return Host{}, ErrHostName
	}
	return Host{name: name}, nil
}

// Name is the DNS name, or nothing where the host is an address.
func (h Host) Name() string { return h.name }

// String is the name or the address, as a certificate's reader compares it.
func (h Host) String() string {
	if h.name != "" {
		return h.name
	}
	return h.address.String()
}

// readHosts reads 1 to [MaxHosts] hosts and leaves out what is there twice.
func readHosts(texts []string) (names []string, addresses []net.IP, err error) {
	if len(texts) == 0 || len(texts) > MaxHosts {
		return nil, nil, ErrHostName
	}
	seen := map[Host]bool{}
	for _, text := range texts {
		h, err := ReadHost(text)
		switch {
		case err != nil:
			return nil, nil, err
		case seen[h]:
		case h.name != "":
			names = append(names, h.name)
		default:
			addresses = append(addresses, h.address.AsSlice())
		}
		seen[h] = true
	}
	return names, addresses, nil
}
