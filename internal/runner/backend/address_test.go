package backend

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/ai"
	wirebackend "github.com/allodhq/allod/wire/ai/backend"
)

// kindOf is the kind of a refusal, or nil for anything else.
func kindOf(err error) *refusal.Kind {
	if err == nil {
		return nil
	}
	return refusal.From(err).Kind()
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		id   wirebackend.ID
		base string
		want *refusal.Kind
	}{
		{"", "", wirebackend.ErrUnknown},
		{"Ollama", "http://127.0.0.1", wirebackend.ErrUnknown},
		{"gemini-cli", "", wirebackend.ErrUnknown},
		{"codex-cli", "", ErrProcessClass},
		{"claude-cli", "", ErrProcessClass},
		{"claude-cli", "http://169.254.169.254", ErrProcessClass},
		{wirebackend.Generic, "", ErrNoURL},
		{wirebackend.Generic, " \n", ErrNoURL},

		{"ollama", "127.0.0.1:11434", ErrURL},
		{"ollama", "/v1", ErrURL},
		{"ollama", "http://", ErrURL},
		{"ollama", "http://256.1.1.1/v1", ErrURL},
		{"ollama", "http://[::1%25lo]/v1", ErrURL},
		{"ollama", "http://a b/", ErrURL},
		{"ollama", "http://a.example/" + strings.Repeat("x", 4096), ErrURL},
		{"ollama", "ftp://127.0.0.1/v1", ErrScheme},
		{"ollama", "file:///v1", ErrScheme},
		{"ollama", "localhost:11434", ErrScheme},
		{"ollama", "unix:///run/x", ErrScheme},
		{"ollama", "http://user@127.0.0.1/v1", ErrCredentials},
		{"ollama", "http://user:pass@169.254.169.254/v1", ErrCredentials},
		{"ollama", "http://:pass@127.0.0.1/v1", ErrCredentials},

		{"ollama", "http://metadata.google.internal/v1", ErrMetadata},
		{"ollama", "http://METADATA.google.internal./v1", ErrMetadata},
		{"ollama", "http://metadata.google.internal../v1", ErrMetadata},
		{"ollama", "http://metadata.goog/", ErrMetadata},
		{"ollama", "http://metadata./", ErrMetadata},
		{"ollama", "https://instance-data:8080/", ErrMetadata},
		{"ollama", "http://instance-data.ec2.internal/", ErrMetadata},
		{"ollama", "http://169.254.169.254/v1", ErrMetadata},
		{"ollama", "http://0xa9fea9fe/", ErrMetadata},
		{"ollama", "http://2852039166/?q", ErrMetadata},
		{"ollama", "http://169.254.169.254./", ErrMetadata},
		{"ollama", "http://169.254.170.2/", ErrMetadata},
		{"ollama", "http://[fd00:ec2::254]/v1", ErrMetadata},
		{"ollama", "http://[::ffff:169.254.169.254]/v1", ErrMetadata},
		{"ollama", "http://[64:ff9b::a9fe:a9fe]/v1", ErrMetadata},
		{"ollama", "http://[2002:a9fe:a9fe::]/v1", ErrMetadata},
		{"ollama", "http://169.254.1.1/", ErrLinkLocal},
		{"ollama", "http://[fe80::1]/", ErrLinkLocal},
		{"ollama", "http://[febf::1]/", ErrLinkLocal},
		{"ollama", "http://[::ffff:a9fe:101]/", ErrLinkLocal},
		{"ollama", "http://0.0.0.0:11434/v1", ErrWildcard},
		{"ollama", "http://0/v1", ErrWildcard},
		{"ollama", "http://0.1.2.3/v1", ErrWildcard},
		{"ollama", "http://[::]:11434/v1", ErrWildcard},
		{"ollama", "http://[::ffff:0.0.0.0]/", ErrWildcard},
		{"ollama", "http://./", ErrWildcard},
		{"ollama", "http://224.0.0.1/", ErrMulticast},
		{"ollama", "http://[ff02::1]/", ErrMulticast},
		{"ollama", "http://255.255.255.255/", ErrMulticast},
		{"ollama", "http://127.0.0.1/v1?key=1", ErrQuery},
		{"ollama", "http://127.0.0.1/v1?", ErrQuery},
		{"ollama", "http://127.0.0.1/v1#", ErrQuery},
		// The contract takes these for local by their letters, and they are not.
		{wirebackend.Generic, "http://[fc::1]/v1", ErrNotLocal},
		{wirebackend.Generic, "http://[fd7::1]/v1", ErrNotLocal},
	} {
		b, err := Open(Config{ID: c.id, BaseURL: c.base})
		if kindOf(err) != c.want || b != nil {
			t.Errorf("%s at %q: %v", c.id, c.base, err)
		}
		if err != nil && len(c.base) > 3 && strings.Contains(err.Error(), c.base) {
			t.Errorf("%q: the refusal repeats it", c.base)
		}
	}
	for _, text := range []string{"a\nb", "a b", "ключ", "a\x00", "a\x7f", strings.Repeat("k", maxKey+1)} {
		if _, err := Open(Config{ID: "ollama", Key: NewKey(text)}); kindOf(err) != ErrKey {
			t.Errorf("key %q: %v", text, err)
		}
	}
	// The address is judged before the key, and the key at its bound is one.
	if _, err := Open(Config{ID: "ollama", BaseURL: "http://0/", Key: NewKey("a b")}); kindOf(err) != ErrWildcard {
		t.Error(err)
	}
	if _, err := Open(Config{ID: "ollama", Key: NewKey(strings.Repeat("k", maxKey))}); err != nil {
		t.Error(err)
	}
}

func TestOpenTakes(t *testing.T) {
	for _, c := range []struct {
		id         wirebackend.ID
		base, want string
		cost       wirebackend.Cost
	}{
		{"ollama", "", "http://127.0.0.1:11434/v1", wirebackend.Free},
		{"ollama", " http://LOCALHOST:80/v1// ", "http://localhost/v1", wirebackend.Free},
		{"ollama", "http://models.example/v1", "http://models.example/v1", wirebackend.Free}, // the table decides
		{"openai", "", "https://api.openai.com/v1", wirebackend.Metered},
		{"openai", "http://127.0.0.1/", "http://127.0.0.1", wirebackend.Metered},
		{wirebackend.Generic, "http://127.1:8080", "http://127.0.0.1:8080", wirebackend.Free},
		{wirebackend.Generic, "http://[fd00::1]/v1", "http://[fd00::1]/v1", wirebackend.Free},
		{wirebackend.Generic, "http://localhost./v1", "http://localhost./v1", wirebackend.Metered},
		{wirebackend.Generic, "https://a.example/ä b/v1", "https://a.example/%C3%A4%20b/v1", wirebackend.Metered},
		{wirebackend.Generic, "http://[::ffff:127.0.0.1]/v1", "http://[::ffff:7f00:1]/v1", wirebackend.Metered},
		{wirebackend.Generic, "http://100.64.1.2/v1", "http://100.64.1.2/v1", wirebackend.Metered},
	} {
		b, err := Open(Config{ID: c.id, BaseURL: c.base})
		if err != nil {
			t.Errorf("%s at %q: %v", c.id, c.base, err)
			continue
		}
		if b.ID() != c.id || b.BaseURL() != c.want || b.Cost() != c.cost {
			t.Errorf("%s at %q: %s, %s, %s", c.id, c.base, b.ID(), b.BaseURL(), b.Cost())
		}
	}
	for _, id := range wirebackend.IDs() {
		d, _ := wirebackend.Find(id)
		if d.DefaultBaseURL == "" {
			continue
		}
		if b, err := Open(Config{ID: id}); err != nil || b.BaseURL() != d.DefaultBaseURL || b.Cost() != d.Cost {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestNoProxyAndNoOldConnections(t *testing.T) {
	b, err := Open(Config{ID: "ollama"})
	if err != nil {
		t.Fatal(err)
	}
	if tr := b.client.Transport.(*http.Transport); tr.Proxy != nil || !tr.DisableKeepAlives || !tr.DisableCompression || tr.MaxResponseHeaderBytes != maxHeaders {
		t.Error("the transport would use a proxy, an old connection, packed answers or endless headers")
	}
}

func TestJudge(t *testing.T) {
	for text, want := range map[string]*refusal.Kind{
		"127.0.0.1": nil, "10.1.2.3": nil, "192.168.1.1": nil, "100.64.0.1": nil, "8.8.8.8": nil, "::1": nil, "fd00::1": nil, "2001:db8::1": nil,
		"::ffff:127.0.0.1": nil, "64:ff9b::808:808": nil, "2002:808:808::1": nil, "1.0.0.0": nil, "223.255.255.255": nil,
		"::1%lo": nil, "fec0::1": nil,

		"169.254.169.254": ErrMetadata, "169.254.170.2": ErrMetadata, "169.254.170.23": ErrMetadata, "100.100.100.200": ErrMetadata, "168.63.129.16": ErrMetadata,
		"fd00:ec2::254": ErrMetadata, "fd00:ec2::254%eth0": ErrMetadata, "fd00:ec2::23": ErrMetadata, "fd20:ce::254": ErrMetadata,
		"::ffff:169.254.169.254": ErrMetadata, "::ffff:169.254.169.254%eth0": ErrMetadata, "::169.254.169.254": ErrMetadata, "::ffff:0:169.254.169.254": ErrMetadata,
		"64:ff9b::169.254.169.254": ErrMetadata, "64:ff9b:1::169.254.169.254": ErrMetadata, "2002:a9fe:a9fe::1": ErrMetadata,
		"2001:0:808:808::5601:5601":   ErrMetadata, // Teredo's client is written inverted
		"2001:0:a9fe:a9fe::":          ErrMetadata,
		"2001:db8::5efe:a9fe:a9fe":    ErrMetadata, // ISATAP
		"2001:db8::200:5efe:a9fe:aa2": ErrLinkLocal,

		"169.254.0.1": ErrLinkLocal, "fe80::1": ErrLinkLocal, "fe80::1%eth0": ErrLinkLocal, "febf::": ErrLinkLocal, "64:ff9b::a9fe:1": ErrLinkLocal, "2002:a9fe:1::": ErrLinkLocal,
		"0.0.0.0": ErrWildcard, "::": ErrWildcard, "0.1.2.3": ErrWildcard, "::ffff:0.0.0.0": ErrWildcard, "64:ff9b::": ErrWildcard, "::2": ErrWildcard,
		"224.0.0.1": ErrMulticast, "239.255.255.255": ErrMulticast, "ff02::1": ErrMulticast, "ff0e::1": ErrMulticast, "255.255.255.255": ErrMulticast,
		"64:ff9b::224.0.0.1": ErrMulticast, "::ffff:224.0.0.1": ErrMulticast,
	} {
		if got := kindOf(judge(netip.MustParseAddr(text))); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	if got := kindOf(judge(netip.Addr{})); got != ErrWildcard {
		t.Errorf("no address: %v", got)
	}
}

// hosts is a name service and a network that remember what was asked of them.
type hosts struct {
	answers [][]string // one per look-up, the last again and again
	err     error
	reach   []string // the IPs that answer; empty means all
	asked   []string
	dialled []string
}

func (h *hosts) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	h.asked = append(h.asked, host)
	if h.err != nil {
		return nil, h.err
	}
	var addrs []netip.Addr
	for _, a := range h.answers[min(len(h.asked), len(h.answers))-1] {
		addrs = append(addrs, netip.MustParseAddr(a))
	}
	return addrs, nil
}

// dial connects to a server that knows one model.
func (h *hosts) dial(_ context.Context, network, address string) (net.Conn, error) {
	h.dialled = append(h.dialled, network+" "+address)
	host, _, _ := net.SplitHostPort(address)
	if len(h.reach) > 0 && !slices.Contains(h.reach, host) {
		return nil, errors.New("no route")
	}
	here, there := net.Pipe()
	go serveRaw(there, "HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n"+`{"data": [{"id": "m"}]}`)
	return here, nil
}

// serveRaw reads a request's head and writes a text.
func serveRaw(c net.Conn, text string) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for n := 0; !strings.Contains(string(buf[:n]), "\r\n\r\n"); {
		m, err := c.Read(buf[n:])
		if err != nil {
			return
		}
		n += m
	}
	_, _ = c.Write([]byte(text))
}

func TestConnect(t *testing.T) {
	const name, generic, metered = "http://localhost:8080/v1", wirebackend.Generic, wirebackend.ID("openai")
	for what, c := range map[string]struct {
		id      wirebackend.ID
		base    string
		net     hosts
		want    *refusal.Kind
		dialled []string
	}{
		"local":              {generic, name, hosts{answers: [][]string{{"127.0.0.1"}}}, nil, []string{"tcp 127.0.0.1:8080"}},
		"private":            {generic, name, hosts{answers: [][]string{{"10.0.0.1"}}}, nil, []string{"tcp 10.0.0.1:8080"}},
		"unique local":       {generic, name, hosts{answers: [][]string{{"fd00::7"}}}, nil, []string{"tcp [fd00::7]:8080"}},
		"mapped":             {generic, name, hosts{answers: [][]string{{"::ffff:127.0.0.1"}}}, nil, []string{"tcp 127.0.0.1:8080"}},
		"with a zone":        {generic, name, hosts{answers: [][]string{{"::1%lo"}}}, nil, []string{"tcp [::1]:8080"}},
		"second answers":     {generic, name, hosts{answers: [][]string{{"::1", "127.0.0.1"}}, reach: []string{"127.0.0.1"}}, nil, []string{"tcp [::1]:8080", "tcp 127.0.0.1:8080"}},
		"literal":            {generic, "http://127.0.0.1/v1", hosts{}, nil, []string{"tcp 127.0.0.1:80"}},
		"elsewhere":          {generic, name, hosts{answers: [][]string{{"8.8.8.8"}}}, ErrNotLocal, nil},
		"one elsewhere":      {generic, name, hosts{answers: [][]string{{"127.0.0.1", "2001:db8::1"}}}, ErrNotLocal, nil},
		"shared space":       {generic, name, hosts{answers: [][]string{{"100.64.0.1"}}}, ErrNotLocal, nil},
		"translated private": {generic, name, hosts{answers: [][]string{{"64:ff9b::a00:1"}}}, ErrNotLocal, nil},
		"one metadata":       {generic, name, hosts{answers: [][]string{{"127.0.0.1", "169.254.169.254"}}}, ErrMetadata, nil},
		"mapped metadata":    {metered, "", hosts{answers: [][]string{{"::ffff:169.254.169.254"}}}, ErrMetadata, nil},
		"link-local":         {metered, "", hosts{answers: [][]string{{"8.8.8.8", "fe80::1%eth0"}}}, ErrLinkLocal, nil},
		"wildcard":           {metered, "", hosts{answers: [][]string{{"0.0.0.0"}}}, ErrWildcard, nil},
		"multicast":          {metered, "", hosts{answers: [][]string{{"ff02::1"}}}, ErrMulticast, nil},
		"metered elsewhere":  {generic, "http://a.example/v1", hosts{answers: [][]string{{"8.8.8.8"}}}, nil, []string{"tcp 8.8.8.8:80"}},
		"free by the table":  {"ollama", "http://a.example/v1", hosts{answers: [][]string{{"8.8.8.8"}}}, nil, []string{"tcp 8.8.8.8:80"}},
		"no address":         {generic, name, hosts{answers: [][]string{{}}}, ErrUnreachable, nil},
		"no name":            {generic, name, hosts{err: errors.New("canary")}, ErrUnreachable, nil},
		"nobody answers":     {generic, name, hosts{answers: [][]string{{"10.0.0.1"}}, reach: []string{"-"}}, ErrUnreachable, []string{"tcp 10.0.0.1:8080"}},
		"too many": {
			generic, name, hosts{answers: [][]string{slices.Repeat([]string{"10.0.0.1"}, 20)}, reach: []string{"-"}},
			ErrUnreachable, slices.Repeat([]string{"tcp 10.0.0.1:8080"}, maxAddresses),
		},
		"the last of many": {generic, name, hosts{answers: [][]string{append(slices.Repeat([]string{"10.0.0.1"}, 20), "169.254.0.1")}}, ErrLinkLocal, nil},
	} {
		t.Run(what, func(t *testing.T) {
			b, err := Open(Config{ID: c.id, BaseURL: c.base, Dial: c.net.dial, Resolve: c.net.resolve})
			if err != nil {
				t.Fatal(err)
			}
			models, err := b.Models(t.Context())
			// What is not dialled at all needs no TLS either.
			if c.id == metered && err == nil {
				t.Fatal("the server speaks no TLS")
			}
			if kindOf(err) != c.want || err == nil && !slices.Equal(models, []string{"m"}) || !slices.Equal(c.net.dialled, c.dialled) {
				t.Errorf("%v, %v, dialled %v", models, err, c.net.dialled)
			}
			if err == nil {
				return
			}
			if found := !strings.Contains(err.Error(), "was not found"); found != (c.net.err == nil && what != "no address") {
				t.Errorf("%v", err)
			}
			if strings.Contains(err.Error(), "canary") {
				t.Error("the refusal shows the resolver's text")
			}
			got := b.Run(t.Context(), Request{Model: "m", Payload: ai.Generate{Prompt: "p"}}).Outcome
			if want := (ai.Failure{Code: CodeUnreachable, Message: ErrUnreachable.Meaning(), Retryable: c.want == ErrUnreachable}); got != want {
				t.Errorf("run: %+v", got)
			}
		})
	}
}

// TestRebinding holds that a name is judged again at each connection.
func TestRebinding(t *testing.T) {
	net := hosts{answers: [][]string{{"127.0.0.1"}, {"203.0.113.9"}, {"169.254.169.254"}}}
	b, err := Open(Config{ID: wirebackend.Generic, BaseURL: "http://localhost/", Dial: net.dial, Resolve: net.resolve})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []*refusal.Kind{nil, ErrNotLocal, ErrMetadata} {
		if _, err := b.Models(t.Context()); kindOf(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if !slices.Equal(net.dialled, []string{"tcp 127.0.0.1:80"}) {
		t.Errorf("dialled %v", net.dialled)
	}
}

// TestDeadAddress holds that an address that never answers leaves time for the
// next one.
func TestDeadAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hosts{answers: [][]string{{"10.0.0.1", "10.0.0.2"}}}
		b, err := Open(Config{ID: wirebackend.Generic, BaseURL: "http://localhost/", Resolve: h.resolve, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "10.0.0.1:80" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return h.dial(ctx, network, address)
		}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, _, err = b.list(t.Context(), time.Minute)
		if took := time.Since(start); err != nil || took != attemptTime {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// FuzzBase holds that what is taken is dialled as it was judged.
func FuzzBase(f *testing.F) {
	for _, text := range []string{
		"http://127.0.0.1:8080/v1", "http://user@h/", "http://[::ffff:169.254.169.254]/", "http://0xa9.254.43518/", "http:\\\\h\\x", "http://h/?q#f",
		"https://metadata./", "http://a%2eb/", "http://１２７.0.0.1", "http://[64:ff9b::1]/",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		base, host, err := readBase(text)
		if err != nil {
			if base != "" || host != "" || Kinds.Find(kindOf(err).Name()) == nil {
				t.Fatalf("%q: %q, %v", text, base, err)
			}
			return
		}
		if again, _, err := readBase(base); err != nil || again != base {
			t.Fatalf("%q is %q, which is %q, %v", text, base, again, err)
		}
		for _, path := range []string{"/models", "/chat/completions"} {
			u, err := url.Parse(base + path)
			if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Hostname() != strings.Trim(host, "[]") || !strings.HasSuffix(u.Path, path) {
				t.Fatalf("%q is %q, which goes to %v, %v", text, base, u, err)
			}
			if addr, err := netip.ParseAddr(u.Hostname()); err == nil && judge(addr) != nil {
				t.Fatalf("%q is %q, at a refused address", text, base)
			}
		}
	})
}

// TestCostOfModels: a server that is free because it is here is not where one of
// its models runs elsewhere, and no model makes a paid server cheaper. It is the
// contract's own rule.
func TestCostOfModels(t *testing.T) {
	for _, c := range []struct {
		id         wirebackend.ID
		base       string
		here, away wirebackend.Cost
	}{
		{"ollama", "", wirebackend.Free, wirebackend.Metered},
		{"ollama", "http://203.0.113.1/v1", wirebackend.Free, wirebackend.Metered},
		{wirebackend.Generic, "http://127.0.0.1:1/v1", wirebackend.Free, wirebackend.Metered},
		{wirebackend.Generic, "https://203.0.113.1/v1", wirebackend.Metered, wirebackend.Metered},
		{"openai", "", wirebackend.Metered, wirebackend.Metered},
		{"openai", "http://127.0.0.1:1/v1", wirebackend.Metered, wirebackend.Metered},
	} {
		b, err := Open(Config{ID: c.id, BaseURL: c.base})
		if err != nil {
			t.Fatal(err)
		}
		for model, away := range map[string]bool{
			"": false, "m": false, "cloud": false, "m:120b": false, "m:cloudy": false, "m:cloud:q4": false, "cloud:m": false,
			"m:cloud": true, "m:120b-cloud": true, "reg.example:5000/m:cloud": true,
		} {
			want := c.here
			if away {
				want = c.away
			}
			rule, err := wirebackend.CostOf(c.id, b.BaseURL(), model)
			if got := b.CostOf(model); got != want || got != rule || err != nil {
				t.Errorf("%s at %q with %q: %s, and by the rule %s, %v", c.id, c.base, model, got, rule, err)
			}
		}
		if b.Cost() != c.here {
			t.Errorf("%s at %q itself: %s", c.id, c.base, b.Cost())
		}
	}
}
