package keep_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/allodhq/allod/internal/datadir"
	"github.com/allodhq/allod/internal/exact"
	"github.com/allodhq/allod/internal/node/keep"
	"github.com/allodhq/allod/wire/zone/enroll"
)

type state struct {
	word    string
	bearer  enroll.Bearer
	receipt *enroll.PrepareResponse
}

var shape = exact.Shape[state]{Fields: func(o *exact.Object, s *state) {
	exact.OptText(o, "word", &s.word, 1, 64)
	keep.Bearer(o, "bearer", &s.bearer)
	keep.Document(o, "receipt", enroll.PrepareResponseCodec, &s.receipt)
}}

func file(t testing.TB) keep.File[state] {
	return keep.File[state]{Path: filepath.Join(t.TempDir(), "state.json"), Shape: shape}
}

func someBearer(t testing.TB, fill byte) enroll.Bearer {
	t.Helper()
	b, err := enroll.NewBearer(bytes.NewReader(bytes.Repeat([]byte{fill}, enroll.BearerBytes)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func full(t testing.TB) state {
	b := someBearer(t, 3)
	return state{"word", b, &enroll.PrepareResponse{CredentialHash: b.Hash()}}
}

func equal(a, b state) bool {
	return a.word == b.word && a.bearer.Reveal() == b.bearer.Reveal() && (a.receipt == nil) == (b.receipt == nil) && (a.receipt == nil || *a.receipt == *b.receipt)
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	f := file(t)
	if s, err := f.Load(); err != nil || !equal(s, state{}) {
		t.Errorf("nothing was saved: %+v %v", s, err)
	}
	rapid.Check(t, func(r *rapid.T) {
		want := state{word: rapid.StringMatching(`[ -~]{0,64}`).Draw(r, "word")}
		if rapid.Bool().Draw(r, "bearer") {
			want.bearer = someBearer(t, rapid.Byte().Draw(r, "fill"))
		}
		if rapid.Bool().Draw(r, "receipt") {
			want.receipt = &enroll.PrepareResponse{CredentialHash: someBearer(t, rapid.Byte().Draw(r, "other")).Hash()}
		}
		if err := f.Save(want); err != nil {
			r.Fatal(err)
		}
		if got, err := f.Load(); err != nil || !equal(got, want) {
			r.Fatalf("%v", err)
		}
	})
	left, err := os.ReadDir(filepath.Dir(f.Path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the file there is more: %v %v", left, err)
	}
	if info, err := os.Stat(f.Path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
}

// TestADamagedFileIsNeverAnAbsentOne: whatever is wrong with a file, it is refused
// and left as it is.
func TestADamagedFileIsNeverAnAbsentOne(t *testing.T) {
	f := file(t)
	if err := f.Save(full(t)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := [][]byte{nil, []byte("null"), []byte("[]"), []byte("{}x"), append(whole, whole...), bytes.ReplaceAll(whole, []byte(`"word":`), []byte(`"w":`)),
		bytes.ReplaceAll(whole, []byte(`credentialHash`), []byte(`credentialhash`)), bytes.ReplaceAll(whole, []byte(`"bearer":"A`), []byte(`"bearer":"=`)), bytes.Repeat([]byte(" "), keep.Limits.Bytes+1)}
	for n := range len(whole) - 2 { // the last two are a brace and a line's end
		damaged = append(damaged, whole[:n])
	}
	for _, text := range damaged {
		if err := os.WriteFile(f.Path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := f.Load()
		if !errors.Is(err, keep.ErrDamaged) && !errors.Is(err, datadir.ErrRead) || !equal(s, state{}) {
			t.Errorf("%.60q: %+v %v", text, s, err)
		}
		if strings.Contains(err.Error(), full(t).bearer.Reveal()) {
			t.Errorf("the error tells the bearer: %v", err)
		}
		if now, _ := os.ReadFile(f.Path); !bytes.Equal(now, text) {
			t.Errorf("%.60q was changed", text)
		}
	}
}

func TestAFileThatOthersReachIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are another thing there")
	}
	f := file(t)
	if err := f.Save(full(t)); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o644, 0o666} {
		if err := os.Chmod(f.Path, mode); err != nil {
			t.Fatal(err)
		}
		if s, err := f.Load(); !errors.Is(err, keep.ErrOpen) || !equal(s, state{}) {
			t.Errorf("%o: %v", mode, err)
		}
	}
	if err := os.Chmod(f.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err != nil {
		t.Error(err)
	}
	link := keep.File[state]{Path: f.Path + ".link", Shape: shape}
	if err := os.Symlink(f.Path, link.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := link.Load(); !errors.Is(err, keep.ErrDamaged) {
		t.Errorf("a link: %v", err)
	}
	folder := keep.File[state]{Path: filepath.Dir(f.Path), Shape: shape}
	if _, err := folder.Load(); !errors.Is(err, keep.ErrDamaged) {
		t.Errorf("a folder: %v", err)
	}
}

// TestAFailedSaveChangesNothing: the file is the old one, or there is none.
func TestAFailedSaveChangesNothing(t *testing.T) {
	f := file(t)
	if err := f.Save(full(t)); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(f.Path)
	if err := f.Save(state{word: strings.Repeat("x", 65)}); err == nil {
		t.Error("a state outside of its bounds was saved")
	}
	if now, _ := os.ReadFile(f.Path); !bytes.Equal(now, before) {
		t.Error("the file was changed")
	}
	gone := keep.File[state]{Path: filepath.Join(filepath.Dir(f.Path), "none", "state.json"), Shape: shape}
	if err := gone.Save(full(t)); !errors.Is(err, datadir.ErrWrite) {
		t.Errorf("a folder that is not there: %v", err)
	}
	taken := keep.File[state]{Path: t.TempDir(), Shape: shape}
	if err := taken.Save(full(t)); !errors.Is(err, datadir.ErrWrite) {
		t.Errorf("a folder in the place: %v", err)
	}
}

func FuzzLoad(f *testing.F) {
	text, _ := shape.Bytes(full(f))
	f.Add(text)
	f.Add([]byte(`{"receipt":"{}"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := shape.Read(text, keep.Limits)
		if err != nil {
			return
		}
		again, err := shape.Bytes(s)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := shape.Read(again, keep.Limits); err != nil || !equal(s, twice) {
			t.Fatalf("%q became %q: %v", text, again, err)
		}
	})
}
