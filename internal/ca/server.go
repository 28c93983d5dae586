package ca

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"time"
)

// Server has the certificate of a controller's listener. It is safe for several
// goroutines.
type Server struct {
	ca        *Authority
	names     []string
	addresses []net.IP

	mu      sync.Mutex
	current *tls.Certificate
}

// Server makes the certificate for these DNS names and IP addresses, 1 to
// [MaxHosts]. It returns [ErrHostName] and [ErrTime].
func (a *Authority) Server(hosts ...string) (*Server, error) {
	names, addresses, err := readHosts(hosts)
	if err != nil {
		return nil, err
	}
	s := &Server{ca: a, names: names, addresses: addresses}
	_, err = s.GetCertificate(nil)
	return s, err
}

// Config serves the certificate by TLS 1.3. Whoever listens for HTTP adds bounds
// (see httpd.NewTLS).
func (s *Server) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: s.GetCertificate}
}

// GetCertificate returns the certificate, with the CA certificate behind it so
// that a client who knows only the pin finds the key. It is made anew at two
// thirds of its life, and where the clock was set back to before it. A client that
// asks for another name gets it too, and can say then what is wrong. It returns
// [ErrTime], and what the randomness fails with, only where no certificate is
// valid any more.
func (s *Server) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.ca.clock()
	valid := s.current != nil && !now.Before(s.current.Leaf.NotBefore) && !now.After(s.current.Leaf.NotAfter)
	if valid && now.Before(s.current.Leaf.NotBefore.Add(backdate+renewAfter)) {
		return s.current, nil
	}
	made, err := s.make(now)
	if err == nil {
		s.current = made
	} else if !valid {
		return nil, err
	}
	return s.current, nil
}

func (s *Server) make(now time.Time) (*tls.Certificate, error) {
	der, key, err := s.ca.issue(now, s.names, s.addresses)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, s.ca.certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}
