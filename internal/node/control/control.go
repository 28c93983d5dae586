package control

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/frame"
)

const (
	// Path is where Pallet listens (decision O23).
	Path = "/run/serve.zone/pallet/control.sock"
	// MaxPath is the longest path of a socket that the kernel takes, in bytes.
	MaxPath = 107
	// Deadline is how long an exchange may take, from the connection to the last
	// byte of the answer.
	Deadline = 10 * time.Second
	// MaxExchanges is how many exchanges a server holds at once. Further clients
	// wait until one ends; their own deadline runs meanwhile.
	MaxExchanges = 16

	// linger is how long, and maxDrain how many bytes, a server reads on after an
	// answer that came before the request's end, so that a client that still
	// writes can see the answer. Both are within the deadline.
	linger   = 250 * time.Millisecond
	maxDrain = 2 * frame.MaxRequest
	// pause is how long a server waits after it could not take a connection, as
	// when the process has no descriptors left.
	pause = 100 * time.Millisecond
)

// Options are the same for both sides. The zero value is a node's.
type Options struct {
	// User is the user id that the other side's process must have, and on the
	// server's side this process as well: 0, which is root, but in tests.
	User uint32
	// Deadline bounds one exchange; 0 means [Deadline].
	Deadline time.Duration
	// Log gets a line for each exchange that went wrong; nil means none. It holds
	// names and user ids, and no byte of a message.
	Log *slog.Logger
}

func (o Options) deadline() time.Duration {
	if o.Deadline <= 0 {
		return Deadline
	}
	return o.Deadline
}

// Server is a control socket in use.
type Server struct {
	listener *net.UnixListener
	handler  Handler
	options  Options
	log      *slog.Logger
	release  func()
	slots    chan struct{}
}

// Listen makes the socket at path, and its folder where that is missing: both
// belong to this process's user, who must be o.User, with the modes 0600 and 0700.
// A socket that is there is replaced only if nobody answers on it and no other
// process holds the folder. It returns [ErrSystem], [ErrPath], [ErrUser],
// [ErrInUse] and [ErrListen], and [ErrFolder] for a folder that others can reach.
func Listen(path string, o Options, h Handler) (*Server, error) {
	switch {
	case !supported:
		return nil, ErrSystem
	case !usable(path):
		return nil, ErrPath
	case os.Geteuid() != int(o.User):
		return nil, ErrUser
	}
	dir := filepath.Dir(path)
	if err := datadir.Prepare(dir); err != nil {
		return nil, ErrFolder.Because(err)
	}
	release, err := datadir.Lock(dir)
	switch {
	case errors.Is(err, datadir.ErrRunning):
		return nil, ErrInUse
	case err != nil:
		return nil, ErrFolder.Because(err)
	}
	l, err := listen(path)
	if err != nil {
		release()
		return nil, err
	}
	s := &Server{listener: l, handler: h, options: o, log: o.Log, release: release, slots: make(chan struct{}, MaxExchanges)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// usable says whether the kernel takes the path as it is. A path that begins
// otherwise than with a slash could name a socket without a file, which has no
// owner and no mode.
func usable(path string) bool {
	return len(path) <= MaxPath && filepath.IsAbs(path) && filepath.Clean(path) == path &&
		filepath.Dir(path) != path && !strings.Contains(path, "\x00")
}

// listen makes the socket. The caller holds the folder's lock.
func listen(path string) (*net.UnixListener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, ErrListen.Because(err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, ErrListen.With("There is a file at its path that is no socket.")
	default:
		// The lock says that no server of ours lives. Somebody else's may.
		conn, err := net.DialTimeout("unix", path, pause)
		switch {
		case err == nil:
			_ = conn.Close()
			return nil, ErrInUse
		case !errors.Is(err, syscall.ECONNREFUSED):
			return nil, ErrInUse.Because(err) // a full queue, for one
		}
		if err := os.Remove(path); err != nil {
			return nil, ErrListen.Because(err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, ErrListen.Because(err)
	}
	// Until here the folder alone keeps others out, and it does.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, ErrListen.Because(err)
	}
	return l, nil
}

// Run serves until ctx ends and removes the socket. Then requests that have not
// arrived whole are dropped, and those that a handler has, whose context has ended
// as well, are still answered. It can be called once.
func (s *Server) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()
	defer s.release()
	var exchanges sync.WaitGroup
	defer exchanges.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case s.slots <- struct{}{}:
		}
		conn, err := s.listener.AcceptUnix()
		if err == nil {
			exchanges.Go(func() {
				defer func() { <-s.slots }()
				s.exchange(ctx, conn)
			})
			continue
		}
		<-s.slots
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		s.log.WarnContext(ctx, "the control socket could not take a connection", "error", err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Close ends a server that was never run.
func (s *Server) Close() error {
	defer s.release()
	return s.listener.Close()
}

// exchange serves one connection.
func (s *Server) exchange(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	end := time.Now().Add(s.options.deadline())
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if err := conn.SetDeadline(end); err != nil {
		s.log.WarnContext(ctx, "a control exchange has no deadline", "error", err.Error())
		return
	}
	// A client that has not sent its request by now must not hold up the end.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	response, failed, whole := s.serve(ctx, conn)
	out, err := appendAnswer(response, failed)
	if err != nil {
		s.log.ErrorContext(ctx, "an answer on the control socket was replaced", "refusal", refusal.From(err))
	}
	if failed != nil {
		s.log.WarnContext(ctx, "a control exchange was refused", "refusal", refusal.From(failed))
	}
	_, err = conn.Write(out)
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		s.log.WarnContext(ctx, "an answer on the control socket was not taken", "error", err.Error())
		return
	}
	if whole {
		return
	}
	// Closing now would take the answer away from a client that still writes.
	if !stop() {
		return
	}
	if soon := time.Now().Add(linger); soon.Before(end) {
		_ = conn.SetReadDeadline(soon)
	}
	_, _ = io.CopyN(io.Discard, conn, maxDrain)
}

// serve reads a request and has it answered; whole says that its end was seen.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) (response []byte, failed error, whole bool) {
	user, err := peer(conn)
	switch {
	case err != nil:
		return nil, ErrPeer.Because(err), false
	case user != s.options.User:
		s.log.WarnContext(ctx, "a process of another user spoke to the control socket", "user", user)
		return nil, ErrPeer, false
	}
	body, err := frame.Read(conn, frame.MaxRequest)
	if err != nil {
		return nil, err, false
	}
	a, err := readAsk(body)
	if err != nil {
		return nil, err, true
	}
	response, err = s.handler(ctx, a.method, a.request.Append(nil))
	return response, err, true
}

// Ask has one exchange with the server at path. request is one JSON value, and so
// is the response, of a process of o.User. What the server refuses comes back as
// [ErrRefused], with an [*Error] as its cause that has the server's words. Else it
// returns [ErrSystem], [ErrPath], [ErrPeer], [ErrSilent] and [ErrMessage], and the
// refusals of package frame.
//
// After ErrSilent, and after a refusal of the answer, what was asked may have been
// done; so methods are made to be asked again.
func Ask(ctx context.Context, path string, o Options, method string, request []byte) (response []byte, err error) {
	switch {
	case !supported:
		return nil, ErrSystem
	case !usable(path):
		return nil, ErrPath
	}
	out, err := appendAsk(method, request)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.deadline())
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, ErrSilent.Because(err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, ErrSystem
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // for the deadline and for who gave up
	defer stop()
	switch user, err := peer(conn); {
	case err != nil:
		return nil, ErrPeer.Because(err)
	case user != o.User:
		return nil, ErrPeer
	}
	// A server that refuses early stops reading, and its answer says why.
	_, sent := conn.Write(out)
	if sent == nil {
		sent = conn.CloseWrite()
	}
	body, err := frame.Read(conn, frame.MaxResponse)
	switch {
	case errors.Is(err, frame.ErrCut), errors.Is(err, frame.ErrOpen):
		return nil, ErrSilent.Because(errors.Join(ctx.Err(), sent, err))
	case err != nil:
		return nil, err
	}
	return readAnswer(body)
}
