package backend

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai/weburl"
)

// Bounds of one connection's making.
const (
	// maxAddresses is how many addresses of a host are tried, the first first. All
	// are judged.
	maxAddresses = 8
	// attemptTime is for one of them, so that a dead one leaves time for the next.
	attemptTime = 5 * time.Second
)

// metadataHosts are names of metadata services, without a final dot.
var metadataHosts = []string{
	"metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal", "metadata",
}

// metadataAddresses are addresses of metadata services. Some of them are
// link-local too; they are named here so that the refusal says why.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"),
	netip.MustParseAddr("169.254.170.2"),
	netip.MustParseAddr("169.254.170.23"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd00:ec2::23"),
	netip.MustParseAddr("fd20:ce::254"),
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // several systems take all of it as this machine
	broadcast   = netip.MustParseAddr("255.255.255.255")
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local  = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour   = netip.MustParsePrefix("2002::/16")
	teredo      = netip.MustParsePrefix("2001::/32")
	compatible  = netip.MustParsePrefix("::/96")
	translated  = netip.MustParsePrefix("::ffff:0:0:0/96")
)

// readBase judges a base URL by its text and returns its normal form, which
// ends in no slash, and its host.
func readBase(text string) (base, host string, err error) {
	u, err := weburl.Parse(text)
	if err != nil {
		return "", "", ErrURL
	}
	if u.Scheme() != "http" && u.Scheme() != "https" {
		return "", "", ErrScheme
	}
	// net/http reads the URL with another parser. What the two would read
	// differently, of which no case is known, is not dialled.
	p, err := url.Parse(u.String())
	if err != nil || p.Hostname() == "" || p.Hostname() != strings.Trim(u.Host(), "[]") {
		return "", "", ErrURL
	}
	if p.User != nil {
		return "", "", ErrCredentials
	}
	// A final dot makes no other name.
	name := strings.TrimRight(p.Hostname(), ".")
	if slices.Contains(metadataHosts, name) {
		return "", "", ErrMetadata
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		if err := judge(addr); err != nil {
			return "", "", err
		}
	} else if name == "" {
		return "", "", ErrWildcard
	}
	if strings.ContainsAny(u.String(), "?#") {
		return "", "", ErrQuery
	}
	return strings.TrimRight(u.String(), "/"), u.Host(), nil
}

// judge refuses addresses that no model server has. It looks through forms that
// carry another address to that one.
func judge(addr netip.Addr) error {
	if !addr.IsValid() {
		return ErrWildcard
	}
	addr = plain(addr)
	for _, a := range append(embedded(addr), addr) {
		switch {
		case slices.Contains(metadataAddresses, a):
			return ErrMetadata
		case a.IsLinkLocalUnicast():
			return ErrLinkLocal
		case a.IsUnspecified() || thisNetwork.Contains(a):
			return ErrWildcard
		case a.IsMulticast() || a == broadcast:
			return ErrMulticast
		}
	}
	return nil
}

// plain is an address as it is judged and dialled: without a zone, since an
// address that has one is in no prefix, and without the IPv4-mapped form.
func plain(addr netip.Addr) netip.Addr { return addr.WithZone("").Unmap() }

// local reports whether a plain address is this machine or a private network.
// Forms that carry such an address are not local: a translator elsewhere
// decides where they lead.
func local(addr netip.Addr) bool { return addr.IsLoopback() || addr.IsPrivate() }

// embedded are the IPv4 addresses that an IPv6 address carries, to which a
// translator or tunnel would deliver.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() || addr.IsUnspecified() || addr.IsLoopback() {
		return nil
	}
	b := addr.As16()
	four := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at : at+4])) }
	switch {
	case nat64.Contains(addr), nat64Local.Contains(addr), compatible.Contains(addr), translated.Contains(addr):
		return []netip.Addr{four(12)}
	case sixToFour.Contains(addr):
		return []netip.Addr{four(2)}
	case teredo.Contains(addr):
		client := four(12).As4()
		for i := range client {
			client[i] ^= 0xff
		}
		return []netip.Addr{four(4), netip.AddrFrom4(client)}
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP
		return []netip.Addr{four(12)}
	}
	return nil
}

// dialer connects to judged addresses only.
type dialer struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// local is set where the backend is free only because its host is local by
	// name.
	local bool
}

// runKey is where a request's own context is kept in its context. The transport
// connects on, detached from the request, when that is over, for the next one to
// use the connection. Ours are not used again, so connecting ends with the
// request.
type runKey struct{}

// connect resolves the host, judges every address, and dials one after the
// other until one answers. One address that is refused refuses the host: whoever
// answers for the name chooses which one is tried.
func (d dialer) connect(ctx context.Context, _, address string) (net.Conn, error) {
	if run, ok := ctx.Value(runKey{}).(context.Context); ok {
		ctx = run
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, ErrURL
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, ErrURL
	}
	addrs, err := d.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	var last error
	for _, addr := range addrs {
		attempt, cancel := context.WithTimeout(ctx, attemptTime)
		conn, err := d.dial(attempt, "tcp", netip.AddrPortFrom(addr, uint16(port)).String())
		cancel()
		if err == nil {
			return conn, nil
		}
		last = err
	}
	r := ErrUnreachable.Because(last)
	if errors.Is(last, syscall.ECONNREFUSED) {
		r = r.With("Nothing listens at the address.")
	}
	return nil, r
}

func (d dialer) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	var found []netip.Addr
	if addr, err := netip.ParseAddr(host); err == nil {
		found = []netip.Addr{addr}
	} else if found, err = d.resolve(ctx, host); err != nil || len(found) == 0 {
		return nil, refusal.From(ErrUnreachable).With("The name of its host was not found.").Because(err)
	}
	addrs := make([]netip.Addr, 0, len(found))
	for _, addr := range found {
		if err := judge(addr); err != nil {
			return nil, err
		}
		addr = plain(addr)
		if d.local && !local(addr) {
			return nil, ErrNotLocal
		}
		addrs = append(addrs, addr)
	}
	return addrs[:min(len(addrs), maxAddresses)], nil
}

func systemDial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

func systemResolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
