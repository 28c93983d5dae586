package carrier

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/rpc"
)

// endTime is how long a socket may take to say goodbye.
const endTime = 3 * time.Second

// maxDrops is how many drops a session that is being opened is compared with.
const maxDrops = 64

// Socket is one WebSocket, at either end. Both ends may call each other, once a
// session is open. It is safe for concurrent use.
type Socket struct {
	shared
	conn   *websocket.Conn
	below  io.Closer // the connection under conn
	peer   string
	server *Server // nil at the end that dialed

	ctx    context.Context
	cancel context.CancelFunc
	gone   chan struct{} // closed when the socket has ended
	wg     sync.WaitGroup

	hands chan struct{} // requests of the peer that are under way
	turns chan struct{} // calls of this side that wait

	mu      sync.Mutex
	session *rpc.Session
	ready   bool        // the peer has been told of its session
	timer   *time.Timer // of the session's end, or of a socket without one
	opening int
	drops   []func(rpc.Principal) bool
	pending map[string]waiting
	room    int // for answers to calls of this side
	why     error
}

// waiting is a call that waits for its answer.
type waiting struct {
	answer chan rpc.Frame
	opens  bool
}

func newSocket(s shared, conn *websocket.Conn, below io.Closer, peer string, server *Server) *Socket {
	k := &Socket{
		shared: s, conn: conn, below: below, peer: peer, server: server,
		gone:    make(chan struct{}),
		hands:   make(chan struct{}, s.limits.Concurrent),
		turns:   make(chan struct{}, s.limits.Pending),
		pending: map[string]waiting{},
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// start begins to read and to ping.
func (k *Socket) start() {
	k.mu.Lock()
	if k.server != nil {
		k.awaitSession()
	}
	k.measure()
	k.mu.Unlock()
	k.wg.Add(2)
	go func() { defer k.wg.Done(); k.read() }()
	go func() { defer k.wg.Done(); k.ping() }()
}

// wait returns when the socket has ended and nothing of it runs any more.
func (k *Socket) wait() {
	<-k.gone
	k.wg.Wait()
}

// Peer is the address of the other end, without its port.
func (k *Socket) Peer() string { return k.peer }

// Session is the tag of the socket, or nil.
func (k *Socket) Session() *rpc.Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session
}

// Done is closed when the socket has ended.
func (k *Socket) Done() <-chan struct{} { return k.gone }

// Err is why the socket has ended, or nil while it has not: a refusal of the other
// side where it named one, and else ErrUnreachable.
func (k *Socket) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.why
}

// Close ends the socket and returns when nothing of it runs any more.
func (k *Socket) Close() {
	k.end(nil)
	k.wait()
}

// end ends the socket once, telling the other side the name of err, and nothing
// where the connection is broken anyway.
func (k *Socket) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil {
		return
	}
	code, reason := websocket.StatusNormalClosure, ""
	if err != nil {
		code, reason = websocket.StatusPolicyViolation, nameOf(err)
	}
	switch {
	case err == nil:
		err = ErrUnreachable
	case errors.Is(err, ErrShutdown):
		code = websocket.StatusGoingAway
	}
	k.why = err
	if k.timer != nil {
		k.timer.Stop()
	}
	// A peer that does not say goodbye back is cut off. The library alone would read
	// what is left of a message first, as slowly as the peer likes.
	cut := time.AfterFunc(endTime, func() {
		k.cancel()
		_ = k.below.Close() // it is lost either way
	})
	k.wg.Go(func() {
		_ = k.conn.Close(code, reason) // whatever comes of it, it is closed
		cut.Stop()
		k.cancel()
		close(k.gone)
	})
}

// fail ends the socket after its connection broke.
func (k *Socket) fail(err error) {
	var said websocket.CloseError
	if errors.As(err, &said) {
		for _, registry := range known([]refusal.Registry{refusal.Kinds}) {
			if kind := registry.Find(said.Reason); kind != nil {
				k.end(kind)
				return
			}
		}
	}
	k.end(ErrUnreachable.Because(err))
}

// awaitSession gives the peer time to open a session. k.mu is held.
func (k *Socket) awaitSession() {
	if k.timer != nil {
		k.timer.Stop()
	}
	k.timer = time.AfterFunc(k.limits.OpenTime, func() { k.end(rpc.ErrNoSession) })
}

// tag sets the session, before its answer goes out.
func (k *Socket) tag(s rpc.Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil {
		return
	}
	k.session = &s
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
	if !s.Ends.IsZero() {
		k.timer = time.AfterFunc(s.Ends.Sub(k.clock()), k.untag)
	}
	k.measure()
}

// tell is called when an answer that may have opened a session is out. Only now can
// the peer know of it and take calls.
func (k *Socket) tell() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready = k.session != nil
}

// takesCalls reports whether the peer can be called, and is a match.
func (k *Socket) takesCalls(match func(rpc.Principal) bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ready && k.session != nil && match(k.session.Principal)
}

// untag drops a session at its end. A new one may be opened on the same socket.
func (k *Socket) untag() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.why != nil || k.session == nil || k.clock().Before(k.session.Ends) {
		return // another one was opened meanwhile
	}
	k.session, k.ready = nil, false
	k.measure()
	k.awaitSession()
}

// drop ends the socket if its session is a match. While one is being opened, in
// the place of the old one if there is one, it has to wait for which one it is.
func (k *Socket) drop(match func(rpc.Principal) bool) bool {
	k.mu.Lock()
	hit := k.session != nil && match(k.session.Principal)
	if k.opening > 0 {
		if k.drops = append(k.drops, match); len(k.drops) <= maxDrops {
			k.mu.Unlock()
			return hit
		}
		hit = true
	}
	k.mu.Unlock()
	if hit {
		k.end(rpc.ErrSessionOver)
	}
	return hit
}

// opened is told when a request that might open a session is over.
func (k *Socket) opened() {
	k.mu.Lock()
	hit := false
	if k.opening--; k.opening == 0 {
		for _, match := range k.drops {
			hit = hit || k.session != nil && match(k.session.Principal)
		}
		k.drops = nil
	}
	k.mu.Unlock()
	if hit {
		k.end(rpc.ErrSessionOver)
	}
}

// measure sets how large the next message may be. k.mu is held.
func (k *Socket) measure() { k.conn.SetReadLimit(int64(k.maxMessage())) }

func (k *Socket) maxMessage() int {
	n := k.room
	if k.answers != nil {
		n = max(n, k.answers.MaxBody(rpc.Socket, k.session))
	}
	return max(n, 4<<10)
}

// read takes messages until the socket ends. It never waits for anybody but the
// peer, so that answers and pongs always get through.
func (k *Socket) read() {
	for {
		body, err := k.message()
		if err != nil {
			k.fail(err)
			return
		}
		k.mu.Lock()
		size := k.maxMessage()
		k.mu.Unlock()
		f := rpc.ReadFrame(body, max(size, len(body))) // the connection held the bound
		switch {
		case f.ID() == "":
			k.end(rpc.ErrEnvelope) // nobody could match an answer
			return
		case f.IsAnswer():
			k.answer(f)
		default:
			k.request(f)
		}
	}
}

var errBinary = errors.New("carrier: a binary message")

// message reads one message. The peer has time until it begins, and then only a
// while until it ends.
func (k *Socket) message() ([]byte, error) {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	kind, r, err := k.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	late := time.AfterFunc(k.limits.BodyTime, cancel)
	defer late.Stop()
	if kind != websocket.MessageText {
		k.end(ErrMediaType)
		return nil, errBinary
	}
	return io.ReadAll(r) // the connection holds the bound
}

// answer hands an answer to whoever waits for it. One that nobody waits for any
// more came too late.
func (k *Socket) answer(f rpc.Frame) {
	k.mu.Lock()
	w, ok := k.pending[f.ID()]
	delete(k.pending, f.ID())
	k.mu.Unlock()
	if !ok {
		return
	}
	if w.opens && !f.Failed() && f.Err() == nil {
		// Before the next message is looked at: it may be the other side's first call.
		k.tag(rpc.Session{Principal: rpc.Principal{Caller: rpc.Controller}})
	}
	w.answer <- f // has room for it
}

// request serves a request of the peer, unless too many are under way.
func (k *Socket) request(f rpc.Frame) {
	k.mu.Lock()
	session := k.session
	opening := session == nil || k.answers != nil && k.answers.Opens(f)
	taken := false
	if !opening || k.opening == 0 {
		select {
		case k.hands <- struct{}{}:
			taken = true
		default:
		}
	}
	if taken && opening {
		k.opening++
	}
	k.mu.Unlock()
	if !taken {
		k.write(rpc.Refuse(f, rpc.Socket, ErrBusy))
		return
	}
	k.wg.Go(func() {
		defer func() { <-k.hands }()
		k.write(k.serve(f, session, opening))
		if opening {
			k.tell()
		}
	})
}

// serve answers a request of the peer.
func (k *Socket) serve(f rpc.Frame, session *rpc.Session, opening bool) []byte {
	if opening {
		defer k.opened()
	}
	if k.answers == nil {
		return rpc.Refuse(f, rpc.Socket, rpc.ErrMethod)
	}
	began := k.clock()
	ctx, cancel := context.WithTimeout(k.ctx, k.limits.WorkTime)
	defer cancel()
	a := k.answers.ServeFrame(ctx, f, rpc.Incoming{Carrier: rpc.Socket, Session: session, Peer: k.peer, Now: began})
	k.record(ctx, a, k.peer, began)
	if a.Opened != nil {
		k.tag(*a.Opened)
	}
	return a.Body
}

// write sends one message. A peer that does not read is cut off after a while.
func (k *Socket) write(body []byte) {
	ctx, cancel := context.WithTimeout(k.ctx, k.limits.WriteTime)
	defer cancel()
	if err := k.conn.Write(ctx, websocket.MessageText, body); err != nil {
		k.fail(err)
	}
}

// ping asks now and then whether the peer is there.
func (k *Socket) ping() {
	tick := time.NewTicker(k.limits.PingEvery)
	defer tick.Stop()
	for {
		select {
		case <-k.gone:
			return
		case <-k.ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(k.ctx, k.limits.PongTime)
		err := k.conn.Ping(ctx)
		cancel()
		if err != nil {
			k.fail(err)
			return
		}
	}
}

func (k *Socket) over() rpc.Carrier { return rpc.Socket }

func (k *Socket) newID() (string, error) { return newID(k.rand) }

// exchange makes one call and waits for its answer.
func (k *Socket) exchange(ctx context.Context, m *rpc.Method, id string, body []byte, _ []refusal.Registry) (rpc.Frame, error) {
	select {
	case k.turns <- struct{}{}:
		defer func() { <-k.turns }()
	case <-ctx.Done():
		return rpc.Frame{}, ErrNoAnswer.Because(ctx.Err())
	case <-k.gone:
		return rpc.Frame{}, k.Err()
	}
	w := waiting{make(chan rpc.Frame, 1), m.Opens && k.server == nil}
	k.mu.Lock()
	switch {
	case k.why != nil:
		k.mu.Unlock()
		return rpc.Frame{}, k.Err()
	case k.server != nil && !k.ready:
		k.mu.Unlock()
		return rpc.Frame{}, rpc.ErrNoSession
	}
	k.pending[id] = w
	if room := m.AnswerRoom(); room > k.room {
		k.room = room
		k.measure()
	}
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.pending, id)
		k.mu.Unlock()
	}()
	k.write(body)
	select {
	case f := <-w.answer:
		return f, nil
	case <-ctx.Done():
		return rpc.Frame{}, ErrNoAnswer.Because(ctx.Err())
	case <-k.gone:
		return rpc.Frame{}, k.Err()
	}
}

// distrust ends a socket whose answer cannot be believed, since a session may hang
// on it.
func (k *Socket) distrust(m *rpc.Method) {
	if m.Opens && k.server == nil && k.Session() != nil {
		k.end(rpc.ErrAnswer)
	}
}
