package httpd

import (
	"bytes"
	"context"
	"crypto/tls"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"
)

// handshakeEvery is how often failed handshakes are logged at most.
const handshakeEvery = time.Minute

// NewTLS is [New] by TLS, for HTTP/2 and HTTP/1.1. The certificates are the
// config's; of the rest of it, its protocols are offered after those of HTTP.
//
// Only TLS 1.3 is spoken: who connects is one of our programs or a browser of
// today, and what an older version still allows, such as a certificate that is
// read on the way, is then nobody's question. A handshake may take as long as the
// headers of a request. A client that fails in it, as every scanner of ports does,
// is counted, and logged once in a minute together with the others.
func NewTLS(address string, handler http.Handler, config *tls.Config, log *slog.Logger) (*Server, error) {
	s, err := New(address, handler, log)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	config.MinVersion = tls.VersionTLS13
	protocols := []string{"h2", "http/1.1"}
	for _, p := range config.NextProtos {
		if !slices.Contains(protocols, p) {
			protocols = append(protocols, p)
		}
	}
	config.NextProtos = protocols
	s.server.TLSConfig = config
	s.server.ErrorLog = quietly(log, s.server.ErrorLog)
	return s, nil
}

// handshakes takes the lines that a server writes and holds back those of failed
// handshakes.
type handshakes struct {
	log  *slog.Logger
	rest *log.Logger

	mu    sync.Mutex
	count int
	next  time.Time
}

func quietly(to *slog.Logger, rest *log.Logger) *log.Logger {
	return log.New(&handshakes{log: to, rest: rest}, "", 0)
}

// The words with which net/http begins what a client alone is to blame for.
var handshakeWords = [][]byte{[]byte("http: TLS handshake error"), []byte("http2: server: error reading preface")}

// Write takes one line.
func (h *handshakes) Write(line []byte) (int, error) {
	if !slices.ContainsFunc(handshakeWords, func(w []byte) bool { return bytes.HasPrefix(line, w) }) {
		h.rest.Print(string(line))
		return len(line), nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count++
	if now := time.Now(); !now.Before(h.next) {
		// The last one's reason is enough to see what is wrong where all fail.
		h.log.WarnContext(context.Background(), "handshakes of TLS failed", "count", h.count, "last", string(bytes.TrimSpace(line)))
		h.count, h.next = 0, now.Add(handshakeEvery)
	}
	return len(line), nil
}
