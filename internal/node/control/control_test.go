package control_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/node/control"
	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/frame"
)

// canary is in what is asked and answered, and must be in no log.
const canary = "cAnArY-7731"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			os.Exit(role(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// place is a path for a socket that is short enough, in a folder that is yet to be
// made.
func place(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the control socket works on Linux only")
	}
	dir, err := os.MkdirTemp("", "allod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "pallet", "control.sock")
}

func own() uint32 { return uint32(os.Geteuid()) }

// log keeps what a server says.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// serve runs a server for the length of a test.
func serve(t *testing.T, path string, o control.Options, h control.Handler) *log {
	t.Helper()
	l := &log{}
	o.User, o.Log = own(), slog.New(slog.NewTextHandler(l, nil))
	s, err := control.Listen(path, o, h)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	t.Cleanup(func() {
		if strings.Contains(l.String(), canary) {
			t.Error("the log has a message")
		}
	})
	return l
}

func run(t *testing.T, s *control.Server) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	end = func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return end
}

func ask(t *testing.T, path, method, request string) (string, error) {
	t.Helper()
	response, err := control.Ask(t.Context(), path, control.Options{User: own()}, method, []byte(request))
	return string(response), err
}

// codeOf is the name of the refusal that a server sent, or "".
func codeOf(err error) string {
	var e *control.Error
	if !errors.Is(err, control.ErrRefused) || !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

var errOdd = errors.New("no name, and " + canary)

// echo answers with what it got.
func echo(_ context.Context, method string, request []byte) ([]byte, error) {
	return slices.Concat([]byte(`{"method":"`+method+`", "got": `), request, []byte("}")), nil
}

// framed is a frame that is made by hand.
func framed(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

func TestF10Exchange(t *testing.T) {
	path := place(t)
	secret := &control.Error{Text: "protocol-incompatible: no", Data: []byte(`{"code":"protocol-incompatible","refusing":{"x":[]}}`)}
	logged := serve(t, path, control.Options{}, control.Methods{
		"echo":    func(ctx context.Context, r []byte) ([]byte, error) { return echo(ctx, "echo", r) },
		"named":   func(context.Context, []byte) ([]byte, error) { return nil, datadir.ErrWrite.Because(errOdd) },
		"odd":     func(context.Context, []byte) ([]byte, error) { return nil, errOdd },
		"whole":   func(context.Context, []byte) ([]byte, error) { return nil, fmt.Errorf("around it: %w", secret) },
		"textual": func(context.Context, []byte) ([]byte, error) { return nil, &control.Error{Text: "only text"} },
		"both":    func(context.Context, []byte) ([]byte, error) { return []byte("1"), datadir.ErrRead },
	}.Handle)
	for request, want := range map[string]string{
		` {"a" : 1} `: `{"a":1}`, "null": "null", `"` + canary + `"`: `"` + canary + `"`, "[ ]": "[]", `{"\u0061":1e3}`: `{"\u0061":1e3}`,
	} {
		if got, err := ask(t, path, "echo", request); err != nil || got != `{"method":"echo","got":`+want+`}` {
			t.Errorf("%s: %s, %v", request, got, err)
		}
	}
	for method, want := range map[string]control.Error{
		"named":   {Code: "data-write", Text: datadir.ErrWrite.Error(), Data: []byte(`{"code":"data-write"}`)},
		"odd":     {Code: "internal", Text: refusal.Internal.Error(), Data: []byte(`{"code":"internal"}`)},
		"whole":   {Code: "protocol-incompatible", Text: secret.Text, Data: secret.Data},
		"textual": {Text: "only text"},
		"both":    {Code: "data-read", Text: datadir.ErrRead.Error(), Data: []byte(`{"code":"data-read"}`)},
		"unknown": {Code: "control-method", Text: control.ErrMethod.Error(), Data: []byte(`{"code":"control-method"}`)},
		"Echo":    {Code: "control-method", Text: control.ErrMethod.Error(), Data: []byte(`{"code":"control-method"}`)},
	} {
		got, err := ask(t, path, method, "{}")
		var e *control.Error
		if !errors.Is(err, control.ErrRefused) || !errors.As(err, &e) || got != "" {
			t.Errorf("%s: %s, %v", method, got, err)
			continue
		}
		if e.Code != want.Code || e.Text != want.Text || string(e.Data) != string(want.Data) || strings.Contains(e.Text, canary) {
			t.Errorf("%s: %+v", method, e)
		}
	}
	if !strings.Contains(logged.String(), "data-write") {
		t.Error("nothing was logged")
	}
	logged.text.Reset() // errOdd is the cause of a refusal, which logs may have
	for _, method := range []string{"", strings.Repeat("m", control.MaxMethod+1)} {
		if _, err := ask(t, path, method, "{}"); !errors.Is(err, control.ErrMessage) {
			t.Errorf("%q: %v", method, err)
		}
	}
	for _, request := range []string{"", "{", "1 2", "\"\xff\""} {
		if _, err := ask(t, path, "echo", request); !errors.Is(err, control.ErrMessage) {
			t.Errorf("%q: %v", request, err)
		}
	}
}

// TestF10Sizes: the bounds are those of the frames, with all that is around the
// request and the response.
func TestF10Sizes(t *testing.T) {
	path := place(t)
	var calls atomic.Int32
	serve(t, path, control.Options{}, func(_ context.Context, method string, request []byte) ([]byte, error) {
		calls.Add(1)
		switch method {
		case "large":
			return fmt.Appendf(nil, "%q", strings.Repeat("a", frame.MaxResponse-len(`{"response":""}`))), nil
		case "larger":
			return fmt.Appendf(nil, "%q", strings.Repeat("a", frame.MaxResponse-len(`{"response":""}`)+1)), nil
		case "nothing":
			return nil, nil
		case "no JSON":
			return []byte("{"), nil
		case "deep":
			return []byte(strings.Repeat("[", 40) + strings.Repeat("]", 40)), nil
		}
		return fmt.Append(nil, len(request)), nil
	})
	room := frame.MaxRequest - len(`{"method":"size","request":""}`)
	if got, err := ask(t, path, "size", `"`+strings.Repeat("a", room)+`"`); err != nil || got != fmt.Sprint(room+2) {
		t.Errorf("the largest request: %.40s, %v", got, err)
	}
	before := calls.Load()
	if _, err := ask(t, path, "size", `"`+strings.Repeat("a", room+1)+`"`); !errors.Is(err, frame.ErrTooLarge) || calls.Load() != before {
		t.Errorf("a request of 32769 bytes: %v", err)
	}
	if got, err := ask(t, path, "large", "{}"); err != nil || len(got) != frame.MaxResponse-len(`{"response":}`) {
		t.Errorf("the largest answer: %d bytes, %v", len(got), err)
	}
	for _, method := range []string{"larger", "nothing", "no JSON", "deep"} {
		if got, err := ask(t, path, method, "{}"); codeOf(err) != "control-answer" || got != "" {
			t.Errorf("%s: %.40s, %v", method, got, err)
		}
	}
	if _, err := ask(t, path, "size", strings.Repeat("[", 40)+strings.Repeat("]", 40)); !errors.Is(err, control.ErrMessage) {
		t.Errorf("a deep request: %v", err)
	}
}

func dial(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}

// TestF10HostileFrames: each is refused by name, and reaches no handler.
func TestF10HostileFrames(t *testing.T) {
	path := place(t)
	serve(t, path, control.Options{}, func(context.Context, string, []byte) ([]byte, error) {
		t.Error("a hostile frame reached the handler")
		return []byte("1"), nil
	})
	const good = `{"method":"m","request":"` + canary + `"}`
	long := `{"method":"m","request":"` + strings.Repeat("a", frame.MaxRequest) + `"}`
	for what, c := range map[string]struct{ bytes, code string }{
		"length 0":            {"\x00\x00\x00\x00", "frame-empty"},
		"length 32769":        {framed(long[:frame.MaxRequest-1] + `"}`), "frame-too-large"},
		"a huge length":       {"\xff\xff\xff\xff" + good, "frame-too-large"},
		"far more than that":  {"\xff\xff\xff\xff" + strings.Repeat(good, 1000), "frame-too-large"},
		"nothing":             {"", "frame-cut"},
		"a cut length":        {"\x00\x00", "frame-cut"},
		"a cut body":          {framed(good)[:20], "frame-cut"},
		"one trailing byte":   {framed(good) + "\n", "frame-trailing"},
		"a second frame":      {framed(good) + framed(good), "frame-trailing"},
		"not UTF-8":           {framed("{\"method\":\"m\",\"request\":\"\xff\"}"), "frame-text"},
		"two values":          {framed(good + good), "frame-text"},
		"a name twice":        {framed(`{"method":"m","method":"n","request":1}`), "frame-text"},
		"no object":           {framed(`[]`), "control-message"},
		"no method":           {framed(`{"request":1}`), "control-message"},
		"no request":          {framed(`{"method":"m"}`), "control-message"},
		"another member":      {framed(`{"method":"m","request":1,"bearer":"` + canary + `"}`), "control-message"},
		"another spelling":    {framed(`{"Method":"m","request":1}`), "control-message"},
		"a method of no type": {framed(`{"method":null,"request":1}`), "control-message"},
		"an empty method":     {framed(`{"method":"","request":1}`), "control-message"},
		"a long method":       {framed(`{"method":"` + strings.Repeat("m", 65) + `","request":1}`), "control-message"},
		"a deep request":      {framed(`{"method":"m","request":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`), "control-message"},
		"too many values":     {framed(`{"method":"m","request":[` + strings.Repeat("1,", 3000) + `1]}`), "control-message"},
		"an answer":           {framed(`{"response":1}`), "control-message"},
	} {
		conn := dial(t, path)
		if _, err := io.WriteString(conn, c.bytes); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		got, err := frame.Read(conn, frame.MaxResponse)
		if err != nil || !bytes.Contains(got, []byte(`"data":{"code":"`+c.code+`"}}`)) || bytes.Contains(got, []byte(canary)) {
			t.Errorf("%s: %s, %v", what, got, err)
		}
	}
}

// TestF10AnswerAfterHalfClose: a client that closes its half right after its frame
// still gets its answer, however long that takes.
func TestF10AnswerAfterHalfClose(t *testing.T) {
	path := place(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	serve(t, path, control.Options{}, func(context.Context, string, []byte) ([]byte, error) {
		close(arrived)
		<-goOn
		return []byte(`"late"`), nil
	})
	conn := dial(t, path)
	if _, err := io.WriteString(conn, framed(`{"method":"m","request":1}`)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
		t.Error("the handler ran before the end of the request was seen")
	case <-time.After(20 * time.Millisecond):
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	<-arrived // so the half-close was seen, and the connection lives on
	close(goOn)
	if got, err := io.ReadAll(conn); err != nil || string(got) != "\x00\x00\x00\x13"+`{"response":"late"}` {
		t.Errorf("%q, %v", got, err)
	}
}

// TestF10SlowPeers: nobody holds an exchange beyond its deadline, and whoever tries
// reaches no handler.
func TestF10SlowPeers(t *testing.T) {
	const deadline = 300 * time.Millisecond
	path := place(t)
	serve(t, path, control.Options{Deadline: deadline}, func(ctx context.Context, method string, _ []byte) ([]byte, error) {
		switch method {
		case "ping":
			return []byte("1"), nil
		case "wait":
			<-ctx.Done()
			return []byte("2"), nil
		}
		t.Error("the request of a slow peer reached the handler")
		return []byte("3"), nil
	})
	whole := framed(`{"method":"m","request":1}`)
	var peers sync.WaitGroup
	for what, c := range map[string]struct {
		first, step string
		closes      bool
	}{
		"silent":               {},
		"a length alone":       {first: whole[:4]},
		"no half-close":        {first: whole},
		"a byte now and then":  {first: framed(strings.Repeat(" ", 100))[:4], step: " "},
		"never ends":           {first: framed(strings.Repeat(" ", 30000))[:100], step: " "},
		"takes no answer":      {first: framed(`{"method":"wait","request":1}`), closes: true},
		"silent for long":      {first: whole[:5], step: ""},
		"a half-close at last": {first: whole[:7], step: "x"},
	} {
		peers.Go(func() {
			begin := time.Now()
			conn := dial(t, path)
			_, _ = io.WriteString(conn, c.first)
			if c.closes {
				_ = conn.CloseWrite()
			}
			if c.step != "" {
				go func() {
					for {
						if _, err := io.WriteString(conn, c.step); err != nil {
							return
						}
						time.Sleep(deadline / 20)
					}
				}()
			}
			_ = conn.SetReadDeadline(begin.Add(20 * time.Second))
			got, err := io.ReadAll(conn)
			took := time.Since(begin)
			if errors.Is(err, os.ErrDeadlineExceeded) || took < deadline-50*time.Millisecond || took > 10*time.Second {
				t.Errorf("%s: ended after %v with %q, %v", what, took, got, err)
			}
		})
	}
	peers.Wait()
	// Who stopped waiting has given its place back.
	for range control.MaxExchanges + 1 {
		if got, err := ask(t, path, "ping", "{}"); err != nil || got != "1" {
			t.Fatalf("%s, %v", got, err)
		}
	}
}

// TestBoundedExchanges: one more than the bound waits, and gets its turn.
func TestBoundedExchanges(t *testing.T) {
	path := place(t)
	var now, most atomic.Int32
	entered, goOn := make(chan struct{}, 100), make(chan struct{})
	serve(t, path, control.Options{}, func(context.Context, string, []byte) ([]byte, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		entered <- struct{}{}
		<-goOn
		return []byte("1"), nil
	})
	var clients sync.WaitGroup
	for range control.MaxExchanges + 8 {
		clients.Go(func() {
			if got, err := ask(t, path, "m", "{}"); err != nil || got != "1" {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	for range control.MaxExchanges {
		<-entered
	}
	select {
	case <-entered:
		t.Error("more exchanges than the bound")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	clients.Wait()
	if most.Load() != control.MaxExchanges {
		t.Errorf("%d exchanges at once", most.Load())
	}
}

func TestF10OwnerAndMode(t *testing.T) {
	path := place(t)
	serve(t, path, control.Options{}, echo)
	for name, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o600, filepath.Dir(path): fs.ModeDir | 0o700} {
		info, err := os.Lstat(name)
		if err != nil || info.Mode() != want || owner(info) != own() {
			t.Errorf("%s: %v, %v", filepath.Base(name), info, err)
		}
	}
	// A folder that others can reach is refused and left as it is.
	path = place(t)
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(path, control.Options{User: own()}, echo); !errors.Is(err, control.ErrFolder) {
		t.Errorf("a folder of all: %v", err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	// A process of another user than the one that is served does not listen at all.
	if _, err := control.Listen(place(t), control.Options{User: own() + 1}, echo); !errors.Is(err, control.ErrUser) {
		t.Errorf("another user's socket: %v", err)
	}
}

// TestF10ForeignPeer needs no second user: here both ends expect one that they do
// not meet. TestF10NonRootPeer has a real one.
func TestF10ForeignPeer(t *testing.T) {
	path := place(t)
	logged := &log{}
	s, err := control.Listen(path, control.Options{User: own(), Log: slog.New(slog.NewTextHandler(logged, nil))}, func(context.Context, string, []byte) ([]byte, error) {
		t.Error("a foreign request reached the handler")
		return []byte("1"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Expect(own() + 1)
	run(t, s)
	if _, err := ask(t, path, "m", `"`+canary+`"`); codeOf(err) != "control-peer" {
		t.Errorf("a foreign client: %v", err)
	}
	if _, err := control.Ask(t.Context(), path, control.Options{User: own() + 1}, "m", []byte("{}")); !errors.Is(err, control.ErrPeer) {
		t.Errorf("a foreign server: %v", err)
	}
	if text := logged.String(); !strings.Contains(text, fmt.Sprintf("user=%d", own())) || strings.Contains(text, canary) {
		t.Errorf("the log: %s", text)
	}
	// The verdict waits for no byte.
	conn := dial(t, path)
	if got, err := io.ReadAll(io.LimitReader(conn, 20)); err != nil || len(got) != 20 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPaths(t *testing.T) {
	dir := filepath.Dir(place(t))
	pad := func(size int) string { return dir + "/" + strings.Repeat("s", size-len(dir)-1) }
	for _, path := range []string{
		"", "control.sock", "./control.sock", "@control", "\x00control", dir + "/../x.sock", dir + "//x.sock", dir + "/x\x00y", "/", dir + "/",
		pad(control.MaxPath + 1), pad(4000),
	} {
		if _, err := control.Listen(path, control.Options{User: own()}, echo); !errors.Is(err, control.ErrPath) || strings.Contains(refusal.Terminal(err), dir) {
			t.Errorf("listening on %q: %v", path, err)
		}
		if _, err := ask(t, path, "m", "{}"); !errors.Is(err, control.ErrPath) {
			t.Errorf("asking %q: %v", path, err)
		}
	}
	if len(control.Path) > control.MaxPath {
		t.Error("the path of a node is too long")
	}
	path := pad(control.MaxPath)
	serve(t, path, control.Options{}, echo)
	if _, err := ask(t, path, "m", "{}"); err != nil {
		t.Errorf("a path of %d bytes: %v", len(path), err)
	}
}

// TestStaleSocket: only a socket of a dead server is replaced, and nothing else
// that lies there is touched.
func TestStaleSocket(t *testing.T) {
	o := control.Options{User: own()}
	path := place(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if _, err := control.Listen(path, o, echo); !errors.Is(err, control.ErrInUse) {
		t.Errorf("a server that is not ours lives: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := control.Listen(path, o, echo) // nobody listens any more
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.Listen(path, o, echo); !errors.Is(err, control.ErrInUse) {
		t.Errorf("our own server lives: %v", err)
	}
	end := run(t, s)
	if got, err := ask(t, path, "m", "1"); err != nil || got != `{"method":"m","got":1}` {
		t.Errorf("%s, %v", got, err)
	}
	end()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stayed: %v", err)
	}

	for what, put := range map[string]func() error{
		"a file":   func() error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"a folder": func() error { return os.Mkdir(path, 0o700) },
		"a link":   func() error { return os.Symlink("elsewhere.sock", path) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Lstat(path)
		_, err := control.Listen(path, o, echo)
		after, gone := os.Lstat(path)
		if !errors.Is(err, control.ErrListen) || gone != nil || !os.SameFile(before, after) {
			t.Errorf("%s: %v, %v", what, err, gone)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	s, err = control.Listen(path, o, echo) // so every refusal let go of the folder
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err = control.Listen(path, o, echo); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// TestEnd: what a handler has is answered, and what has not arrived is dropped.
func TestEnd(t *testing.T) {
	path := place(t)
	arrived := make(chan struct{})
	s, err := control.Listen(path, control.Options{User: own()}, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		close(arrived)
		<-ctx.Done()
		return []byte(`"done"`), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	end := run(t, s)
	slow := dial(t, path)
	if _, err := io.WriteString(slow, "\x00\x00"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		got, err := control.Ask(context.Background(), path, control.Options{User: own()}, "m", []byte("1"))
		if err == nil && string(got) != `"done"` {
			err = errors.New(string(got))
		}
		answered <- err
	}()
	<-arrived
	begin := time.Now()
	end()
	if took := time.Since(begin); took > control.Deadline/2 {
		t.Errorf("the end took %v", took)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if _, err := ask(t, path, "m", "{}"); !errors.Is(err, control.ErrSilent) {
		t.Errorf("after the end: %v", err)
	}
}

// TestF10HostileServer: an answer is taken whole or not at all.
func TestF10HostileServer(t *testing.T) {
	const good = `{"response":"` + canary + `"}`
	large := `{"response":"` + strings.Repeat("a", frame.MaxResponse-len(`{"response":""}`)) + `"}`
	for what, c := range map[string]struct {
		bytes string
		open  bool
		want  error
	}{
		"an answer":         {framed(good), false, nil},
		"16384 bytes":       {framed(large), false, nil},
		"16385 bytes":       {framed(large[:20] + "a" + large[20:]), false, frame.ErrTooLarge},
		"length 0":          {"\x00\x00\x00\x00", false, frame.ErrEmpty},
		"nothing":           {"", false, control.ErrSilent},
		"a cut length":      {"\x00\x00", false, control.ErrSilent},
		"a cut body":        {framed(good)[:15], false, control.ErrSilent},
		"silence":           {"", true, control.ErrSilent},
		"no half-close":     {framed(good), true, control.ErrSilent},
		"one trailing byte": {framed(good) + " ", false, frame.ErrTrailing},
		"a second frame":    {framed(good) + framed(good), true, frame.ErrTrailing},
		"not UTF-8":         {framed("{\"response\":\"\xff\"}"), false, frame.ErrText},
		"no JSON":           {framed("yes"), false, frame.ErrText},
		"no object":         {framed("[]"), false, control.ErrMessage},
		"neither":           {framed("{}"), false, control.ErrMessage},
		"both":              {framed(`{"response":1,"error":{"text":"t"}}`), false, control.ErrMessage},
		"another member":    {framed(`{"response":1,"more":1}`), false, control.ErrMessage},
		"an error null":     {framed(`{"error":null}`), false, control.ErrMessage},
		"an error, no text": {framed(`{"error":{"data":1}}`), false, control.ErrMessage},
		"an error's more":   {framed(`{"error":{"text":"t","code":"c"}}`), false, control.ErrMessage},
		"a long text":       {framed(`{"error":{"text":"` + strings.Repeat("t", 4097) + `"}}`), false, control.ErrMessage},
		"an error":          {framed(`{"error":{"text":"t","data":{"code":7}}}`), false, control.ErrRefused},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			path := place(t)
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			done := make(chan struct{})
			defer func() { <-done }()
			hold := make(chan struct{})
			defer close(hold)
			go func() {
				defer close(done)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if got, err := frame.Read(conn, frame.MaxRequest); err != nil || string(got) != `{"method":"m","request":{"x":1}}` {
					t.Errorf("the request: %s, %v", got, err)
				}
				_, _ = io.WriteString(conn, c.bytes)
				if c.open {
					<-hold
				}
			}()
			o := control.Options{User: own()}
			if c.open && errors.Is(c.want, control.ErrSilent) {
				o.Deadline = 100 * time.Millisecond
			}
			got, err := control.Ask(t.Context(), path, o, "m", []byte(`{"x": 1}`))
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || (len(got) > 0) != (c.want == nil) {
				t.Errorf("%.40s, %v", got, err)
			}
			if o.Deadline != 0 && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the cause is lost: %v", errors.Unwrap(err))
			}
			if err != nil && strings.Contains(refusal.Terminal(err), canary) {
				t.Error("an answer is shown in a refusal")
			}
		})
	}
}

// TestAskGivesUp: with its context, at once.
func TestAskGivesUp(t *testing.T) {
	path := place(t)
	if _, err := ask(t, path, "m", "{}"); !errors.Is(err, control.ErrSilent) {
		t.Errorf("no folder: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	serve(t, path, control.Options{}, func(handling context.Context, _ string, _ []byte) ([]byte, error) {
		cancel()
		<-handling.Done()
		return []byte("1"), nil
	})
	begin := time.Now()
	if _, err := control.Ask(ctx, path, control.Options{User: own()}, "m", []byte("{}")); !errors.Is(err, control.ErrSilent) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if took := time.Since(begin); took > control.Deadline/2 {
		t.Errorf("giving up took %v", took)
	}
}
