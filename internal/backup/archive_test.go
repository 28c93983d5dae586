package backup

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

var created = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// archive writes two parts and returns the archive, the recovery key and the
// parts' contents.
func archive(t *testing.T) (sealed []byte, recoveryKey string, contents map[string]string) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	contents = map[string]string{"site.db": strings.Repeat("canary row ", 20_000), "site-keys.json": "canary key"}
	var parts []Part
	for _, name := range []string{"site.db", "site-keys.json"} {
		path := filepath.Join(t.TempDir(), "somewhere")
		if err := os.WriteFile(path, []byte(contents[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, Part{Name: name, Path: path})
	}
	var out bytes.Buffer
	if err := Write(&out, identity.Recipient(), "site", created, parts); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), identity.String(), contents
}

func TestRestore(t *testing.T) {
	sealed, recoveryKey, contents := archive(t)
	if bytes.Contains(sealed, []byte("canary")) || bytes.Contains(sealed, []byte("site-keys")) {
		t.Error("the archive shows what it holds")
	}
	dir := filepath.Join(t.TempDir(), "new")
	m, err := Restore(bytes.NewReader(sealed), recoveryKey, dir)
	if err != nil {
		t.Fatal(err)
	}
	if m.Party != "site" || !m.Created.Equal(created) || len(m.Files) != 2 {
		t.Errorf("manifest %+v", m)
	}
	for name, want := range contents {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s differs, %v", name, err)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// TestDamagedArchives cuts and changes an archive everywhere that matters: none
// restores, and none leaves anything behind.
func TestDamagedArchives(t *testing.T) {
	sealed, recoveryKey, _ := archive(t)
	try := func(name string, damaged []byte, key string, want error) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "new")
		m, err := Restore(bytes.NewReader(damaged), key, dir)
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
		if !reflect.DeepEqual(m, Manifest{}) {
			t.Errorf("%s: an error came with %+v", name, m)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s left the folder behind: %v", name, err)
		}
	}
	for n := 0; n < len(sealed); n += 1 + len(sealed)/40 {
		try("cut", sealed[:n], recoveryKey, ErrArchive)
	}
	try("cut by a byte", sealed[:len(sealed)-1], recoveryKey, ErrArchive)
	for n := 0; n < len(sealed); n += 1 + len(sealed)/60 {
		changed := bytes.Clone(sealed)
		changed[n] ^= 1
		dir := filepath.Join(t.TempDir(), "new")
		if _, err := Restore(bytes.NewReader(changed), recoveryKey, dir); err == nil {
			t.Errorf("an archive with byte %d changed was restored", n)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("byte %d changed: the folder was left behind", n)
		}
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	try("another key", sealed, other.String(), ErrRecoveryKey)
	try("no key", sealed, "AGE-SECRET-KEY-1CANARY", ErrRecoveryKey)
	try("nothing", nil, recoveryKey, ErrArchive)
}

// TestLyingManifests seals archives whose manifest and parts do not agree: the
// seal alone is no proof, since anyone can seal to a public key.
func TestLyingManifests(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	part := func(name, content string) Part {
		path := filepath.Join(t.TempDir(), "part")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return Part{Name: name, Path: path}
	}
	for _, name := range []string{"", "../escape", "/etc/passwd", "a/b", "UPPER", ".hidden", "a b", strings.Repeat("a", 200)} {
		if err := Write(&bytes.Buffer{}, identity.Recipient(), "site", created, []Part{part(name, "x")}); !errors.Is(err, ErrFiles) {
			t.Errorf("a part named %q: %v", name, err)
		}
	}
	twice := []Part{part("a", "x"), part("a", "y")}
	var out bytes.Buffer
	if err := Write(&out, identity.Recipient(), "site", created, twice); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(&out, identity.String(), filepath.Join(t.TempDir(), "new")); !errors.Is(err, ErrArchive) {
		t.Errorf("a name that stands twice: %v", err)
	}
}

func TestRestoreWritesOverNothing(t *testing.T) {
	sealed, recoveryKey, _ := archive(t)
	dir := t.TempDir()
	kept := filepath.Join(dir, "site.db")
	if err := os.WriteFile(kept, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(bytes.NewReader(sealed), recoveryKey, dir); !errors.Is(err, ErrTaken) {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(kept); err != nil || string(got) != "mine" {
		t.Errorf("the folder was changed: %q, %v", got, err)
	}
	empty := t.TempDir()
	if _, err := Restore(bytes.NewReader(sealed), recoveryKey, empty); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestRecovery(t *testing.T) {
	dir := t.TempDir()
	load := func() *Recovery {
		t.Helper()
		r, err := LoadRecovery(dir)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// Until it is kept, a new key is made and shown each time.
	lost := load()
	first := load()
	if !strings.HasPrefix(first.ShownOnce(), "AGE-SECRET-KEY-1") || first.ShownOnce() == lost.ShownOnce() {
		t.Error("a key that was not kept came back, or none was shown")
	}
	if err := first.Keep(); err != nil {
		t.Fatal(err)
	}
	again := load()
	if again.ShownOnce() != "" || again.To.(*age.X25519Recipient).String() != first.To.(*age.X25519Recipient).String() {
		t.Error("the second time another key came, or it was shown again")
	}
	if err := errors.Join(again.Keep(), again.Keep()); err != nil {
		t.Errorf("keeping what is kept: %v", err)
	}
	if err := lost.Keep(); !errors.Is(err, ErrFiles) {
		t.Errorf("a second new key was kept over the first: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	path := filepath.Join(dir, entries[0].Name())
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "SECRET") {
		t.Errorf("the folder keeps the recovery key, %v", err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRecovery(dir); !errors.Is(err, ErrRecipient) {
		t.Errorf("a damaged file: %v", err)
	}
}
