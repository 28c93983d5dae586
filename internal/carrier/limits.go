package carrier

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/allodhq/allod/refusal"
)

// Limits bound what others can take of this side. A zero field has the default
// that its comment names.
type Limits struct {
	// Sockets are open at once, 4096 in all and 256 for one address.
	Sockets, SocketsPerAddress int
	// Requests are under way at once over HTTP, 1024 in all and 64 for one address. The
	// admin socket has as many as one address, beside all others.
	Requests, RequestsPerAddress int
	// Concurrent requests of the peer are under way on one socket, 16. Before it has
	// a session there is one. Those whose answers the peer does not read count.
	Concurrent int
	// Pending calls of this side wait for answers on one socket, 32. The next one
	// waits for its turn.
	Pending int

	// BodyTime is how long one body or message may take to arrive, 30 s.
	BodyTime time.Duration
	// WorkTime is how long a handler has, 30 s.
	WorkTime time.Duration
	// WriteTime is how long a peer may take to read one message, 15 s. Then it is cut
	// off.
	WriteTime time.Duration
	// OpenTime is how long a socket may be without a session, 10 s.
	OpenTime time.Duration
	// PingEvery is the time between two pings, 20 s, and PongTime how long the peer
	// has to answer one, 10 s.
	PingEvery, PongTime time.Duration
}

func (l Limits) filled() Limits {
	number := func(p *int, n int) {
		if *p <= 0 {
			*p = n
		}
	}
	number(&l.Sockets, 4096)
	number(&l.SocketsPerAddress, 256)
	number(&l.Requests, 1024)
	number(&l.RequestsPerAddress, 64)
	number(&l.Concurrent, 16)
	number(&l.Pending, 32)
	span := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	span(&l.BodyTime, 30*time.Second)
	span(&l.WorkTime, 30*time.Second)
	span(&l.WriteTime, 15*time.Second)
	span(&l.OpenTime, 10*time.Second)
	span(&l.PingEvery, 20*time.Second)
	span(&l.PongTime, 10*time.Second)
	return l
}

// door counts who is inside, in all and by address.
type door struct {
	all, each int

	mu     sync.Mutex
	inside int
	by     map[netip.Prefix]int
}

func newDoor(all, each int) *door { return &door{all: all, each: each, by: map[netip.Prefix]int{}} }

// enter lets one in from a remote address, or returns ErrCrowded or
// ErrAddressCrowded. leave must be called once.
func (d *door) enter(remote string) (leave func(), err error) {
	from := block(remote)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.inside >= d.all:
		return nil, ErrCrowded.With("").After(crowdedWait)
	case from.IsValid() && d.by[from] >= d.each:
		return nil, ErrAddressCrowded.With("").After(crowdedWait)
	}
	d.inside++
	if from.IsValid() {
		d.by[from]++
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.inside--
		if from.IsValid() {
			if d.by[from]--; d.by[from] == 0 {
				delete(d.by, from) // or the table would grow with every address ever seen
			}
		}
	}, nil
}

// Guard is a listener that takes at most all connections at once, and each from one
// address. What is beyond is closed at once. It belongs below TLS, whose start is
// work.
func Guard(l net.Listener, all, each int) net.Listener {
	return &guarded{l, newDoor(all, each)}
}

type guarded struct {
	net.Listener
	door *door
}

// Accept waits for the next connection that may come in.
func (g *guarded) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		leave, err := g.door.enter(conn.RemoteAddr().String())
		if err == nil {
			return &guest{Conn: conn, leave: sync.OnceFunc(leave)}, nil
		}
		_ = conn.Close() // it is unwanted
	}
}

type guest struct {
	net.Conn
	leave func()
}

// Close makes room for another one.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}

// crowdedWait is how long whoever finds it crowded is asked to wait.
const crowdedWait = 5 * time.Second

// block is what counts as one address: an IPv4 address, or the 64 bits of IPv6 that
// one customer has. Local connections have none.
func block(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	a := at.Addr().Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// host is the address without its port, for limits and logs of a party.
func host(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return at.Addr().Unmap().String()
}

// nameOf is the name of a refusal in err.
func nameOf(err error) string {
	if err == nil {
		return ""
	}
	return refusal.From(err).Kind().Name()
}
