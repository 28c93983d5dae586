package site

import (
	"net/http"
	"net/netip"
	"testing"
)

func TestAddress(t *testing.T) {
	l := newLimits(Config{TrustedProxies: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"), netip.MustParsePrefix("fe80::/10"),
	}})
	for _, test := range []struct {
		name, connection string
		said             []string
		want             string
	}{
		{"IPv4", "192.0.2.1:1234", nil, "192.0.2.1"},
		{"its neighbour", "192.0.2.2:1234", nil, "192.0.2.2"},
		{"IPv6", "[2001:db8:1:2:3:4:5:6]:1234", nil, "2001:db8:1:2::/64"},
		{"of the same network", "[2001:db8:1:2:ffff:ffff:ffff:ffff]:1", nil, "2001:db8:1:2::/64"},
		{"of the next one", "[2001:db8:1:3::]:1", nil, "2001:db8:1:3::/64"},
		{"IPv4 in IPv6", "[::ffff:192.0.2.1]:1234", nil, "192.0.2.1"},
		{"a zone", "[fe80::1%eth0]:1234", nil, "fe80::/64"},
		{"no port", "192.0.2.1", nil, "192.0.2.1"},
		{"no address", "@", nil, "@"},

		{"nobody trusted", "192.0.2.1:1", []string{"198.51.100.1"}, "192.0.2.1"},
		{"a proxy that says nothing", "10.0.0.1:1", nil, "10.0.0.1"},
		{"a proxy", "10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a proxy by IPv6", "[2001:db8:ffff::1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a proxy in a zone", "[fe80::1%eth0]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"what the caller says", "10.0.0.1:1", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{"in two lines", "10.0.0.1:1", []string{"203.0.113.9", "198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.0.0.1:1", []string{"198.51.100.1, 10.0.0.2"}, "198.51.100.1"},

		{"with a port", "10.0.0.1:1", []string{"198.51.100.1:5678"}, "198.51.100.1"},
		{"IPv6 said", "10.0.0.1:1", []string{"2001:db8:1:2:3::4"}, "2001:db8:1:2::/64"},
		{"in brackets", "10.0.0.1:1", []string{"[2001:db8:1:2:3::4]"}, "2001:db8:1:2::/64"},
		{"in brackets with a port", "10.0.0.1:1", []string{"[2001:db8:1:2:3::4]:5678"}, "2001:db8:1:2::/64"},
		{"IPv4 in IPv6 with a port", "10.0.0.1:1", []string{"[::ffff:198.51.100.1]:5678"}, "198.51.100.1"},
		{"two proxies with ports", "10.0.0.1:1", []string{"198.51.100.1:5678, 10.0.0.2:9"}, "198.51.100.1"},

		{"no address said", "10.0.0.1:1", []string{"198.51.100.1, unknown"}, "10.0.0.1"},
		{"nothing said", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"half a bracket", "10.0.0.1:1", []string{"[2001:db8::1"}, "10.0.0.1"},
		{"the other half", "10.0.0.1:1", []string{"2001:db8::1]"}, "10.0.0.1"},
	} {
		r := &http.Request{RemoteAddr: test.connection, Header: http.Header{}}
		for _, line := range test.said {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := l.address(r); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
