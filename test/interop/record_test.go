//go:build unix

package interop

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allodhq/allod/test/programs"
)

// recordedWith is the version of Node that the recording was made with.
const recordedWith = "v20."

// TestRecord records the behaviour of the published programs again. What is in
// the tree must be what these programs do, and nothing that was written by hand.
func TestRecord(t *testing.T) {
	node := programs.Node(t, ".")
	t.Parallel()
	version, err := exec.CommandContext(t.Context(), node, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	// How an address is read and which characters there are is Node's own.
	if !strings.HasPrefix(string(version), recordedWith) {
		t.Skipf("the recording was made with Node %s and this is %s", recordedWith, version)
	}
	fresh, kept := t.TempDir(), filepath.Join("..", "..", "wire", "ai", "testdata", "v2")
	if out, err := script(t, node, "record.mjs", fresh).CombinedOutput(); err != nil {
		t.Fatalf("record.mjs: %v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(fresh, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 9 {
		t.Errorf("recorded %v", files)
	}
	for _, file := range files {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(kept, filepath.Base(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the programs do: compare it with node record.mjs OUTDIR", filepath.Base(file))
		}
	}
}
