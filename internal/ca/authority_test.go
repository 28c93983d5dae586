//go:build unix

package ca_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/ca"
	"github.com/allodhq/allod/internal/keyfile"
	"github.com/allodhq/allod/refusal"
)

var begin = time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// at is a clock that stands.
func at(now time.Time) func() time.Time { return func() time.Time { return now } }

// counting gives the bytes 1, 2, 3 and so on, a long way from random.
type counting struct{ next byte }

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		c.next++
		p[i] = c.next
	}
	return len(p), nil
}

// none is a source that has no randomness.
type none struct{}

func (none) Read([]byte) (int, error) { return 0, errors.New("none") }

func open(t *testing.T, dir string, clock func() time.Time) *ca.Authority {
	t.Helper()
	a, err := ca.Open(dir, rand.Reader, clock)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) != 0 {
		t.Fatalf("this is no certificate: %s", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const openEnv = "ALLOD_TEST_OPEN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(openEnv); dir != "" {
		fmt.Println("ready")
		_, _ = io.ReadAll(os.Stdin) // all start together
		a, err := ca.Open(dir, rand.Reader, time.Now)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(a.Pin())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestGolden holds the pin to what openssl computes of a known key, and what is
// made of known randomness at a known time to the same bytes each time.
func TestGolden(t *testing.T) {
	var first []byte
	for range 2 {
		dir := t.TempDir()
		a, err := ca.Open(dir, new(counting), at(begin))
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Pin().String(); got != golden {
			t.Errorf("the pin is %s", got)
		}
		content, err := os.ReadFile(filepath.Join(dir, ca.File))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = content
		}
		if !bytes.Equal(first, content) {
			t.Error("the same randomness made another authority")
		}
	}
	// By hand: on P-256 a SubjectPublicKeyInfo is these 26 bytes, then the point.
	c := parse(t, first[bytes.Index(first, []byte("-----BEGIN CERT")):])
	prefix, _ := hex.DecodeString("3059301306072a8648ce3d020106082a8648ce3d030107034200")
	spki := c.Raw[bytes.Index(c.Raw, prefix):][:len(prefix)+65]
	sum := sha256.Sum256(spki)
	if got := base64.RawURLEncoding.EncodeToString(sum[:]); got != golden {
		t.Errorf("by hand it is %s", got)
	}
}

// TestOpenSSL asks another implementation for the pin and for its view of the
// chain.
func TestOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("this machine has no openssl")
	}
	openssl := func(in []byte, words ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "openssl", words...)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", words, err, out)
		}
		return out
	}
	dir := t.TempDir()
	a := open(t, dir, time.Now)
	s, err := a.Server("cloud.example.org", "192.0.2.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := openssl(openssl(openssl(a.Certificate(), "x509", "-noout", "-pubkey"), "pkey", "-pubin", "-outform", "DER"), "dgst", "-sha256", "-binary")
	if got := base64.RawURLEncoding.EncodeToString(sum); got != a.Pin().String() {
		t.Errorf("openssl's pin is %s, ours %s", got, a.Pin())
	}
	root := filepath.Join(dir, "root.pem")
	if err := os.WriteFile(root, a.Certificate(), 0o600); err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]})
	for _, host := range [][]string{{"-verify_hostname", "cloud.example.org"}, {"-verify_ip", "192.0.2.1"}, {"-verify_ip", "::1"}} {
		openssl(text, append([]string{"verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", root}, host...)...)
	}
}

// TestCertificates holds what the certificates say.
func TestCertificates(t *testing.T) {
	a := open(t, t.TempDir(), at(begin))
	root := parse(t, a.Certificate())
	if !root.IsCA || !root.BasicConstraintsValid || root.MaxPathLen != 0 || !root.MaxPathLenZero || root.KeyUsage != x509.KeyUsageCertSign ||
		len(root.ExtKeyUsage) != 1 || root.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth || len(root.SubjectKeyId) == 0 || root.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("the CA certificate is %+v", root)
	}
	if root.NotBefore != begin.Add(-time.Hour) || root.NotAfter != begin.Add(ca.Life) || ca.Life < 10*365*day {
		t.Errorf("it is valid from %v until %v", root.NotBefore, root.NotAfter)
	}
	s, err := a.Server("b.example", "A.example", "192.0.2.1", "a.example", "::1", "::ffff:192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	served, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(served.Certificate) != 2 || !bytes.Equal(served.Certificate[1], root.Raw) {
		t.Error("the CA certificate is not served behind the leaf")
	}
	leaf := served.Leaf
	if leaf.IsCA || !leaf.BasicConstraintsValid || leaf.KeyUsage != x509.KeyUsageDigitalSignature ||
		len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth || !bytes.Equal(leaf.AuthorityKeyId, root.SubjectKeyId) {
		t.Errorf("the leaf is %+v", leaf)
	}
	if leaf.NotBefore != begin.Add(-time.Hour) || leaf.NotAfter != begin.Add(30*day) {
		t.Errorf("it is valid from %v until %v", leaf.NotBefore, leaf.NotAfter)
	}
	if got := fmt.Sprint(leaf.DNSNames, leaf.IPAddresses); got != "[b.example a.example] [192.0.2.1 ::1]" {
		t.Errorf("it is for %s", got)
	}
	if leaf.SerialNumber.Cmp(root.SerialNumber) == 0 || leaf.SerialNumber.Sign() <= 0 || leaf.SerialNumber.BitLen() != 127 || root.SerialNumber.BitLen() != 127 {
		t.Errorf("the serial numbers are %x and %x", leaf.SerialNumber, root.SerialNumber)
	}
	if bytes.Equal(leaf.RawSubjectPublicKeyInfo, root.RawSubjectPublicKeyInfo) {
		t.Error("the leaf has the authority's key")
	}
	for name, hosts := range map[string][]string{
		"none": nil, "no name": {""}, "a port": {"a.example:443"}, "a wildcard": {"a.example", "*.example"},
		"too many": strings.Split(strings.Repeat("a.example,", ca.MaxHosts)+"b.example", ","),
	} {
		if s, err := a.Server(hosts...); !errors.Is(err, ca.ErrHostName) || s != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenAgain(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, at(begin))
	info, err := os.Stat(filepath.Join(dir, ca.File))
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
	b, err := ca.Open(dir, none{}, at(begin.Add(365*day)))
	if err != nil || b.Pin() != a.Pin() || !bytes.Equal(b.Certificate(), a.Certificate()) {
		t.Fatalf("later it is another authority: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	// A restored copy is the same authority.
	content, err := os.ReadFile(filepath.Join(dir, ca.File))
	if err != nil {
		t.Fatal(err)
	}
	restored := t.TempDir()
	if err := os.WriteFile(filepath.Join(restored, ca.File), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := open(t, restored, at(begin)); c.Pin() != a.Pin() {
		t.Error("the restored one is another authority")
	}
}

// TestProcesses: of several that open one folder at once, all have the same
// authority.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	type process struct {
		cmd   *exec.Cmd
		start io.Closer
		out   io.Reader
	}
	var all []process
	for range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), openEnv+"="+dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ready := make([]byte, len("ready\n"))
		if _, err := io.ReadFull(out, ready); err != nil {
			t.Fatal(err)
		}
		all = append(all, process{cmd, in, out})
	}
	for _, p := range all {
		if err := p.start.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var pins []string
	for _, p := range all {
		said, err := io.ReadAll(p.out)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		pins = append(pins, strings.TrimSpace(string(said)))
	}
	for _, pin := range pins {
		if pin != open(t, dir, time.Now).Pin().String() {
			t.Errorf("they have %q", pins)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

// TestDamaged: a file with anything else than what was written is refused, and
// stays as it is.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ca.File)
	open(t, dir, at(begin))
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	open(t, other, at(begin))
	foreign, err := os.ReadFile(filepath.Join(other, ca.File))
	if err != nil {
		t.Fatal(err)
	}
	middle := bytes.Index(good, []byte("-----BEGIN CERT"))
	cases := map[string][]byte{
		"nothing": {}, "no PEM": []byte("key"), "the key alone": good[:middle], "the certificate alone": good[middle:],
		"the other way round": append(bytes.Clone(good[middle:]), good[:middle]...),
		"another's key":       append(bytes.Clone(foreign[:bytes.Index(foreign, []byte("-----BEGIN CERT"))]), good[middle:]...),
		"twice":               append(bytes.Clone(good), good...),
		"too long":            append(bytes.Clone(good), make([]byte, 8000)...),
		"a line more":         append([]byte("# mine\n"), good...),
		"other line ends":     bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")),
	}
	for i := range good {
		flipped := bytes.Clone(good)
		if flipped[i] ^= 1; i%5 == 0 {
			flipped[i] ^= 0x21
		}
		cases[fmt.Sprintf("byte %d", i)] = flipped
		if i%7 == 0 {
			cases[fmt.Sprintf("%d bytes", i)] = good[:i]
		}
	}
	for name, content := range cases {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := ca.Open(dir, rand.Reader, at(begin))
		if !errors.Is(err, ca.ErrDamaged) || a != nil {
			t.Errorf("%s: %v", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
			t.Errorf("%s: the file has changed: %v", name, err)
		}
	}
}

// TestForeignAuthorities: a well-formed file whose certificate is none that we make
// is damaged too.
func TestForeignAuthorities(t *testing.T) {
	for name, change := range map[string]func(*x509.Certificate){
		"no authority":   func(c *x509.Certificate) { c.IsCA = false; c.MaxPathLenZero = false },
		"may not sign":   func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature },
		"says no usages": func(c *x509.Certificate) { c.KeyUsage = 0 },
	} {
		k := newKey(t)
		c := template(begin)
		asRoot(c)
		change(c)
		pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		content := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issue(t, c, c, k, k).Raw})...)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ca.File), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ca.Open(dir, rand.Reader, at(begin)); !errors.Is(err, ca.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFiles: what is no plain file of this user's alone is refused by name and
// stays.
func TestFiles(t *testing.T) {
	for _, mode := range []fs.FileMode{0o601, 0o604, 0o610, 0o640, 0o644, 0o666} {
		dir := t.TempDir()
		open(t, dir, at(begin))
		path := filepath.Join(dir, ca.File)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ca.Open(dir, rand.Reader, at(begin)); !errors.Is(err, keyfile.ErrOpen) {
			t.Errorf("%o: %v", mode, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%o became %v, %v", mode, info.Mode(), err)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ca.File), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Open(dir, rand.Reader, at(begin)); !errors.Is(err, keyfile.ErrUnreadable) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := ca.Open(filepath.Join(dir, "absent"), rand.Reader, at(begin)); !errors.Is(err, keyfile.ErrUnreadable) {
		t.Errorf("no folder: %v", err)
	}
	dir = t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, ca.File)); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Open(dir, rand.Reader, at(begin)); err == nil {
		t.Error("an authority was made where a link leads to nowhere")
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("it was made through a link")
	}
}

func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := ca.Open(dir, none{}, at(begin)); !errors.Is(err, refusal.Internal) {
		t.Errorf("no randomness: %v", err)
	}
	if _, err := ca.Open(dir, bytes.NewReader(make([]byte, 1000)), at(begin)); !errors.Is(err, refusal.Internal) {
		t.Errorf("zeros for randomness: %v", err)
	}
	// A clock that has lost its battery makes no authority.
	if _, err := ca.Open(dir, rand.Reader, at(time.Unix(100, 0))); !errors.Is(err, ca.ErrTime) {
		t.Errorf("in 1970: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	open(t, dir, at(begin))
	for when, want := range map[time.Time]error{
		begin.Add(-time.Hour - 1): ca.ErrTime, begin.Add(-time.Hour): nil, begin.Add(ca.Life): nil, begin.Add(ca.Life + time.Second): ca.ErrTime,
	} {
		b, err := ca.Open(dir, rand.Reader, at(when))
		if !errors.Is(err, want) || (b == nil) != (want != nil) {
			t.Errorf("%v: %v", when, err)
		}
	}
}

// TestServeFails: where nothing new can be made, what is there is served as long
// as it is valid.
func TestServeFails(t *testing.T) {
	now, dry := begin, false
	source := readerFunc(func(p []byte) (int, error) {
		if dry {
			return 0, errors.New("none")
		}
		return rand.Read(p)
	})
	a, err := ca.Open(t.TempDir(), source, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Server("localhost")
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	dry = true
	now = begin.Add(30 * day)
	if c, err := s.GetCertificate(nil); err != nil || c != first {
		t.Errorf("in its last second: %v", err)
	}
	now = begin.Add(30*day + time.Second)
	if _, err := s.GetCertificate(nil); !errors.Is(err, refusal.Internal) {
		t.Errorf("after it: %v", err)
	}
	dry = false
	if c, err := s.GetCertificate(nil); err != nil || c == first {
		t.Errorf("with randomness again: %v", err)
	}
	// Near the authority's end certificates end with it, and after it there are
	// none.
	now = begin.Add(ca.Life - day)
	if c, err := s.GetCertificate(nil); err != nil || c.Leaf.NotAfter != begin.Add(ca.Life) {
		t.Errorf("on the last day: %v, %v", c.Leaf.NotAfter, err)
	}
	now = begin.Add(ca.Life + time.Second)
	if _, err := s.GetCertificate(nil); !errors.Is(err, ca.ErrTime) {
		t.Errorf("after the authority's life: %v", err)
	}
	if _, err := a.Server("localhost"); !errors.Is(err, ca.ErrTime) {
		t.Errorf("a new server after it: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestNothingPrintsTheKey prints an authority and what it refuses in many ways.
func TestNothingPrintsTheKey(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, at(begin))
	content, err := os.ReadFile(filepath.Join(dir, ca.File))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := private.(interface{ Bytes() ([]byte, error) }).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Server("localhost")
	if err != nil {
		t.Fatal(err)
	}
	var texts bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&texts, nil))
	broken := bytes.Replace(content, []byte("PRIVATE"), []byte("PRIVATe"), 1)
	if err := os.WriteFile(filepath.Join(dir, ca.File), broken, 0o600); err != nil {
		t.Fatal(err)
	}
	_, damaged := ca.Open(dir, rand.Reader, at(begin))
	for _, v := range []any{a, s, struct{ A *ca.Authority }{a}, damaged} {
		log.InfoContext(context.Background(), "m", "v", v)
		fmt.Fprintf(&texts, "%v %+v %#v %s %q %x %d", v, v, v, v, v, v, v)
	}
	for _, secret := range []string{
		hex.EncodeToString(raw[:8]), fmt.Sprint(raw[:8]), strings.Trim(fmt.Sprint(raw[:8]), "[]"), base64.StdEncoding.EncodeToString(raw[:9]),
		strings.Split(string(content), "\n")[1][:20],
		new(big.Int).SetBytes(raw).String(),
	} {
		if strings.Contains(texts.String(), secret) {
			t.Error("a text holds the key")
		}
	}
}
