package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
)

// File is the authority's name in a controller's data folder. It holds the key,
// as PKCS #8, and the certificate, both as PEM. Whoever has it is the controller
// for every node, so it belongs into the backup and nowhere else.
const File = "ca.pem"

// Times of certificates.
const (
	// Life is how long an authority is valid. Nodes trust its key and nothing
	// renews it, so it is longer than a machine lives.
	Life = 20 * 365 * 24 * time.Hour
	// LeafLife is how long a server certificate is valid: a stolen one is of use
	// for that long, since nobody asks for revocations.
	LeafLife = 30 * 24 * time.Hour
	// renewAfter leaves a third of the life for a client whose clock is ahead.
	renewAfter = LeafLife * 2 / 3
	// backdate puts NotBefore into the past. A client whose clock is a little
	// behind would otherwise refuse each certificate that is new, and with it the
	// very first join.
	backdate = time.Hour
)

// earliest is when the clock of a machine may stand at the least for it to make
// an authority. A clock that has lost its battery starts in 1970, and what is made
// then has run out before its life begins.
var earliest = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	maxFile  = 4 << 10 // in bytes; ours has about 800
	keyBlock = "PRIVATE KEY"
	crtBlock = "CERTIFICATE"
	serial   = 16 // bytes of randomness (RFC 5280, 4.1.2.2: at most 20 octets)
)

// Authority is a controller's certificate authority. It is safe for several
// goroutines.
type Authority struct {
	clock       func() time.Time
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey

	mu   sync.Mutex // a reader of randomness need not bear several readers
	rand io.Reader
}

// Format hides the key, whatever the verb.
func (*Authority) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "(certificate authority)") }

// Open loads the authority of a data folder. Where there is none it makes one: of
// several processes that do so at once, all get the one that won. It returns
// [ErrDamaged], [ErrTime], and [keyfile.ErrOpen], [keyfile.ErrPlatform] and
// [keyfile.ErrUnreadable]; after each of them the file is as it was.
func Open(dir string, rand io.Reader, clock func() time.Time) (*Authority, error) {
	path := filepath.Join(dir, File)
	content, err := keyfile.LoadSecret(path, maxFile)
	if errors.Is(err, keyfile.ErrAbsent) {
		content, err = create(path, rand, clock())
	}
	if err != nil {
		return nil, err
	}
	a, err := parse(content)
	if err != nil {
		return nil, err
	}
	if err := a.validAt(clock()); err != nil {
		return nil, err
	}
	a.rand, a.clock = rand, clock
	return a, nil
}

// validAt returns [ErrTime] outside of the authority's life.
func (a *Authority) validAt(now time.Time) error {
	if now.Before(a.certificate.NotBefore) || now.After(a.certificate.NotAfter) {
		return ErrTime
	}
	return nil
}

// Pin is the digest of the authority's key, for join lines.
func (a *Authority) Pin() Pin { return PinOf(a.certificate) }

// Certificate is the CA certificate as PEM: for a node to keep, and for an
// operator's browser. It holds no secret.
func (a *Authority) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: crtBlock, Bytes: a.certificate.Raw})
}

// create makes an authority in a new file and returns what the file holds.
func create(path string, rand io.Reader, now time.Time) ([]byte, error) {
	if now.Before(earliest) {
		return nil, ErrTime.With("A new one would be made with a wrong date.")
	}
	key, err := newKey(rand)
	if err != nil {
		return nil, err
	}
	number, err := newSerial(rand)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, refusal.Internal.Because(err)
	}
	// The name tells two authorities apart in a browser's list.
	name := pkix.Name{CommonName: "Allod CA " + hex.EncodeToString(number.Bytes()[:4])}
	der, err := sign(&x509.Certificate{
		SerialNumber: number, Subject: name,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(Life),
		BasicConstraintsValid: true, IsCA: true,
		// No authority below this one (RFC 5280, 4.2.1.9). Names are not
		// constrained: a controller that is restored keeps its authority and may
		// have another name then. It can vouch for servers only, so a browser
		// that trusts it takes no mail and no program from it.
		MaxPathLenZero: true,
		KeyUsage:       x509.KeyUsageCertSign,
		ExtKeyUsage:    []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, nil, key, key)
	if err != nil {
		return nil, err
	}
	content := encode(pkcs8, der)
	if err := keyfile.CreateSecret(path, content); errors.Is(err, keyfile.ErrExists) {
		return keyfile.LoadSecret(path, maxFile) // another process was first
	} else if err != nil {
		return nil, err
	}
	return content, nil
}

func encode(pkcs8, der []byte) []byte {
	return append(pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: pkcs8}),
		pem.EncodeToMemory(&pem.Block{Type: crtBlock, Bytes: der})...)
}

// parse reads what [create] wrote, and insists on exactly that. It returns
// [ErrDamaged].
func parse(content []byte) (*Authority, error) {
	first, rest := pem.Decode(content)
	if first == nil {
		return nil, ErrDamaged
	}
	second, _ := pem.Decode(rest)
	if second == nil || !bytes.Equal(encode(first.Bytes, second.Bytes), content) {
		return nil, ErrDamaged
	}
	private, err := x509.ParsePKCS8PrivateKey(first.Bytes)
	if err != nil {
		return nil, ErrDamaged // the cause might hold the key
	}
	key, ok := private.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, ErrDamaged
	}
	// The library does not look at every byte.
	if again, err := x509.MarshalPKCS8PrivateKey(key); err != nil || !bytes.Equal(again, first.Bytes) {
		return nil, ErrDamaged
	}
	certificate, err := x509.ParseCertificate(second.Bytes)
	if err != nil || !isAuthority(certificate) || !key.PublicKey.Equal(certificate.PublicKey) {
		return nil, ErrDamaged
	}
	return &Authority{key: key, certificate: certificate}, nil
}

// isAuthority reports whether a certificate is that of an authority and was
// signed by its own key: what it says, such as its life, is then said by the key's
// holder and not by whoever sent it.
func isAuthority(c *x509.Certificate) bool {
	return c.BasicConstraintsValid && c.IsCA && c.KeyUsage&x509.KeyUsageCertSign != 0 &&
		c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

// issue makes a server certificate and its key, for these hosts, from now on. It
// returns [ErrTime].
func (a *Authority) issue(now time.Time, names []string, addresses []net.IP) (der []byte, key *ecdsa.PrivateKey, err error) {
	if err := a.validAt(now); err != nil {
		return nil, nil, err
	}
	a.mu.Lock()
	key, err = newKey(a.rand)
	var number *big.Int
	if err == nil {
		number, err = newSerial(a.rand)
	}
	a.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	from, until := now.Add(-backdate), now.Add(LeafLife)
	if from.Before(a.certificate.NotBefore) {
		from = a.certificate.NotBefore
	}
	if until.After(a.certificate.NotAfter) {
		until = a.certificate.NotAfter
	}
	der, err = sign(&x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: "Allod controller"},
		NotBefore: from, NotAfter: until,
		BasicConstraintsValid: true, // it says that this is no authority
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              names, IPAddresses: addresses,
	}, a.certificate, key, a.key)
	return der, key, err
}

// sign makes a certificate; without a parent it signs itself. Signatures are those
// of RFC 6979, which need no randomness.
func sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) ([]byte, error) {
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(nil, template, parent, key.Public(), by)
	if err != nil {
		return nil, refusal.Internal.Because(err)
	}
	return der, nil
}

// newKey makes a key on P-256, which every client of TLS takes, browsers too. The
// library's own function reads no randomness that is passed in, so candidates are
// tried, as FIPS 186-5, A.2.2 has it: all but one in four billion are good.
func newKey(rand io.Reader) (*ecdsa.PrivateKey, error) {
	var candidate [32]byte
	for range 8 {
		if _, err := io.ReadFull(rand, candidate[:]); err != nil {
			return nil, refusal.Internal.Because(err)
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), candidate[:]); err == nil {
			return key, nil
		}
	}
	return nil, refusal.Internal.Because(errors.New("the source of randomness gives no key"))
}

// newSerial makes a serial number: positive, and never seen before.
func newSerial(rand io.Reader) (*big.Int, error) {
	var b [serial]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		return nil, refusal.Internal.Because(err)
	}
	b[0] = b[0]&0x7f | 0x40 // no leading zero, so its length is always the same
	return new(big.Int).SetBytes(b[:]), nil
}
