package host

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/spark"
)

// tree is what the files of a machine hold, by their paths.
type tree map[string]string

// machine is a small computer, with numbers that a reader can reckon with.
func machine() tree {
	return tree{
		"proc/sys/kernel/hostname":       "node-a\n",
		"proc/sys/kernel/osrelease":      "6.12.9-amd64\n",
		"proc/sys/kernel/random/boot_id": "0b9c7a52-6a0e-4f57-9c0e-1f1f3f2b7d11\n",
		"proc/uptime":                    "93784.25 180000.00\n",
		"proc/stat": `cpu  1000 200 300 8000 400 10 20 70 500 0
cpu0 500 100 150 4000 200 5 10 35 250 0
cpu1 500 100 150 4000 200 5 10 35 250 0
intr 3 0 1 2
ctxt 5
btime 1700000000
processes 9
procs_running 1
procs_blocked 0
softirq 10 0 1 2 3 4 0 0 0 0 0
`,
		"proc/meminfo": `MemTotal:        8000000 kB
MemFree:          500000 kB
MemAvailable:    6000000 kB
Buffers:           10000 kB
HugePages_Total:       0
`,
		"etc/os-release": `PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
NAME="Debian GNU/Linux"
VERSION_ID="13"
ID=debian
`,
		"proc/7/cgroup": "0::/system.slice/allod-node.service\n",
		"sys/fs/cgroup/system.slice/allod-node.service/memory.max": "max\n",
		"sys/fs/cgroup/system.slice/allod-node.service/cpu.max":    "max 100000\n",
	}
}

func (m tree) with(changes tree) tree {
	for name, content := range changes {
		m[name] = content
	}
	return m
}

func (m tree) without(names ...string) tree {
	for _, name := range names {
		delete(m, name)
	}
	return m
}

// put writes the files below a folder, in place of those that are there.
func (m tree) put(t *testing.T, root string) {
	t.Helper()
	for _, dir := range []string{"proc", "sys", "etc"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range m {
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "proc")); err == nil {
		if err := os.Symlink("7", filepath.Join(root, "proc", "self")); err != nil {
			t.Fatal(err)
		}
	}
}

// disk is a file system of 10 GB with 4 GB in it, of which root keeps 1 GB.
func disk(_ string, st *unix.Statfs_t) error {
	*st = unix.Statfs_t{Blocks: 2_500_000, Bfree: 1_500_000, Bavail: 1_250_000, Bsize: 1 << 20, Frsize: 4000}
	return nil
}

func sampler(t *testing.T, m tree) (s *Sampler, root string) {
	t.Helper()
	root = t.TempDir()
	m.put(t, root)
	s, err := New(Options{Root: root, Data: root})
	if err != nil {
		t.Fatal(err)
	}
	s.statfs = disk
	return s, root
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// look takes the first look at a machine.
func look(t *testing.T, m tree) Facts {
	t.Helper()
	s, _ := sampler(t, m)
	return s.Sample(noon)
}

// problems are the names of what is wrong, by fact.
func problems(f Facts) map[Fact]string {
	m := map[Fact]string{}
	for _, p := range f.Problems {
		m[p.Fact] = p.Refusal.Kind().Name()
	}
	return m
}

func mustHave(t *testing.T, what string, f Facts, want map[Fact]string) {
	t.Helper()
	if got := problems(f); !reflect.DeepEqual(got, want) || len(got) != len(f.Problems) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestF11Facts: the golden values are reckoned by hand from the files above.
func TestF11Facts(t *testing.T) {
	got := look(t, machine())
	want := Facts{
		At: noon, Hostname: "node-a", Kernel: "6.12.9-amd64", OSName: "Debian GNU/Linux", OSVersion: "13",
		Architecture: runtime.GOARCH, BootID: "0b9c7a52-6a0e-4f57-9c0e-1f1f3f2b7d11",
		Uptime: 26*time.Hour + 3*time.Minute + 4*time.Second + 250*time.Millisecond,
		CPUs:   2, MemoryBytes: 8_192_000_000, DiskBytes: 10_000_000_000,
		MemoryLoad: Fraction{0.25, true},
		DiskLoad:   Fraction{4.0 / 9, true}, // 4 GB used, 5 GB free for all
		Problems:   got.Problems,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	mustHave(t, "the first look", got, map[Fact]string{CPULoad: "host-too-early"})
	if text := refusal.Terminal(got.Problems[0].Refusal); !strings.Contains(text, "The fact is cpuLoad.") {
		t.Error(text)
	}
}

// TestF11CPULoad: in hundredths of a second, over all processors. The columns are
// user, nice, system, idle, iowait, irq, softirq, steal, guest and guest_nice.
func TestF11CPULoad(t *testing.T) {
	stat := func(total string) tree {
		m := machine()
		m["proc/stat"] = "cpu  " + total + "\ncpu0 " + total + "\n"
		return m
	}
	s, root := sampler(t, stat("1000 200 300 8000 400 10 20 70 500 0"))
	mustHave(t, "the first look", s.Sample(noon), map[Fact]string{CPULoad: "host-too-early"})
	now := noon
	for _, c := range []struct {
		what  string
		after time.Duration
		total string
		want  float64 // negative: unknown
		name  string
	}{
		{"a moment later", 999 * time.Millisecond, "1500 200 300 8000 400 10 20 70 500 0", -1, "host-too-early"},
		{"3 of 4 seconds idle", time.Millisecond, "1060 210 320 8250 450 13 22 75 560 0", 0.25, ""},
		{"too soon after", 500 * time.Millisecond, "9060 210 320 8250 450 13 22 75 560 0", 0.25, ""},
		{"a tenth busy since", 500 * time.Millisecond, "1070 210 320 8340 450 13 22 75 570 0", 0.1, ""},
		{"nothing but work", 10 * time.Second, "2070 210 320 8340 450 13 22 75 570 0", 1, ""},
		{"nothing but idleness", 10 * time.Second, "2070 210 320 9340 450 13 22 75 570 0", 0, ""},
		{"waiting for a disk", 10 * time.Second, "2070 210 320 9340 1450 13 22 75 570 0", 0, ""},
		{"taken by others", 10 * time.Second, "2070 210 320 9370 1450 13 22 85 570 0", 0.25, ""},
		{"waiting went back", 10 * time.Second, "2080 210 320 9380 1000 13 22 85 570 0", 0.5, ""},
		{"an hour asleep", time.Hour, "2080 211 320 9381 1000 13 22 85 570 0", 0.5, ""},
		{"nothing passed", 10 * time.Second, "2080 211 320 9381 1000 13 22 85 570 0", -1, "host-fact-odd"},
		{"and then something", 10 * time.Second, "2081 211 320 9381 1000 13 22 85 570 0", 1, ""},
		{"all went back", 10 * time.Second, "1 1 1 1 1 1 1 1 1 1", -1, "host-fact-odd"},
		{"and on from there", 10 * time.Second, "2 1 1 4 1 1 1 1 1 1", 0.25, ""},
		{"the clock went back", -time.Hour, "3 1 1 5 1 1 1 1 1 1", 0.5, ""},
		{"an old kernel", 10 * time.Second, "4 1 1 8", 0.25, ""},
		{"a negative one", 10 * time.Second, "-4 1 1 9 1 1 1 1 1 1", -1, "host-fact-odd"},
		{"the look after it", 10 * time.Second, "5 1 1 9 1 1 1 1 1 1", -1, "host-too-early"},
		{"no number", 10 * time.Second, "NaN 1 1 9 1 1 1 1 1 1", -1, "host-fact-odd"},
		{"no end", 10 * time.Second, "+Inf 1 1 9 1 1 1 1 1 1", -1, "host-fact-odd"},
		{"too many", 10 * time.Second, "1e300 1 1 9 1 1 1 1 1 1", -1, "host-fact-odd"},
		{"all zero", 10 * time.Second, "0 0 0 0 0 0 0 0 0 0", -1, "host-fact-odd"},
		{"very many", 10 * time.Second, "18446744073709551615 1 1 9 1 1 1 1 1 1", -1, "host-too-early"},
	} {
		now = now.Add(c.after)
		stat(c.total).put(t, root)
		f := s.Sample(now)
		load, known := f.CPULoad.Value()
		if known != (c.want >= 0) || known && math.Abs(load-c.want) > 1e-9 || !known && load != 0 {
			t.Errorf("%s: %v, %v", c.what, load, known)
		}
		want := map[Fact]string{}
		if c.name != "" {
			want[CPULoad] = c.name
		}
		mustHave(t, c.what, f, want)
	}
}

// TestF11OddFacts: each costs what it says and nothing else.
func TestF11OddFacts(t *testing.T) {
	const missing, odd, early, confined = "host-fact-missing", "host-fact-odd", "host-too-early", "host-confined"
	stat := func(text string) tree { return tree{"proc/stat": text} }
	mem := func(text string) tree { return tree{"proc/meminfo": text} }
	long := strings.Repeat("a", 300)
	group := "sys/fs/cgroup/system.slice/allod-node.service/"
	for what, c := range map[string]struct {
		m    tree
		want map[Fact]string
	}{
		"nothing at all": {tree{}, map[Fact]string{
			Hostname: missing, Kernel: missing, OSName: missing, OSVersion: missing, BootID: missing, Uptime: missing, CPUs: missing,
			MemoryBytes: missing, CPULoad: missing, MemoryLoad: missing,
		}},
		"no hostname":            {machine().without("proc/sys/kernel/hostname"), map[Fact]string{Hostname: missing}},
		"an empty hostname":      {machine().with(tree{"proc/sys/kernel/hostname": "\n"}), map[Fact]string{Hostname: odd}},
		"a long hostname":        {machine().with(tree{"proc/sys/kernel/hostname": long}), map[Fact]string{Hostname: odd}},
		"a huge hostname":        {machine().with(tree{"proc/sys/kernel/hostname": strings.Repeat("a", 1<<20)}), map[Fact]string{Hostname: odd}},
		"a hostname of commands": {machine().with(tree{"proc/sys/kernel/hostname": "a\x1b[2J\n"}), map[Fact]string{Hostname: odd}},
		"a hostname of words":    {machine().with(tree{"proc/sys/kernel/hostname": "my machine\n"}), map[Fact]string{Hostname: odd}},
		"no name":                {machine().with(tree{"proc/sys/kernel/hostname": "(none)\n"}), map[Fact]string{Hostname: odd}},
		"a kernel of commands":   {machine().with(tree{"proc/sys/kernel/osrelease": "6\x1b[2J\n"}), map[Fact]string{Kernel: odd}},
		"a hostname of bytes":    {machine().with(tree{"proc/sys/kernel/hostname": "a\xff\n"}), map[Fact]string{Hostname: odd}},
		"a kernel of two lines":  {machine().with(tree{"proc/sys/kernel/osrelease": "6.1\n6.2\n"}), map[Fact]string{Kernel: odd}},
		"no boot id":             {machine().with(tree{"proc/sys/kernel/random/boot_id": "0b9c7a52\n"}), map[Fact]string{BootID: odd}},
		"a boot id in capitals":  {machine().with(tree{"proc/sys/kernel/random/boot_id": "0B9C7A52-6A0E-4F57-9C0E-1F1F3F2B7D11\n"}), map[Fact]string{BootID: odd}},
		"an empty uptime":        {machine().with(tree{"proc/uptime": ""}), map[Fact]string{Uptime: odd}},
		"a negative uptime":      {machine().with(tree{"proc/uptime": "-1.00 2.00\n"}), map[Fact]string{Uptime: odd}},
		"an uptime of no number": {machine().with(tree{"proc/uptime": "NaN 2.00\n"}), map[Fact]string{Uptime: odd}},
		"an endless uptime":      {machine().with(tree{"proc/uptime": "+Inf 2.00\n"}), map[Fact]string{Uptime: odd}},
		"an uptime of ages":      {machine().with(tree{"proc/uptime": "1e18 2.00\n"}), map[Fact]string{Uptime: odd}},

		"no os-release":            {machine().without("etc/os-release"), map[Fact]string{OSName: missing, OSVersion: missing}},
		"a huge os-release":        {machine().with(tree{"etc/os-release": strings.Repeat("# comment\n", 10000)}), map[Fact]string{OSName: odd, OSVersion: odd}},
		"an odd name":              {machine().with(tree{"etc/os-release": "NAME=\"a\x07b\"\nVERSION_ID=1\n"}), map[Fact]string{OSName: odd}},
		"a long version":           {machine().with(tree{"etc/os-release": "NAME=a\nVERSION_ID=" + long + "\n"}), map[Fact]string{OSVersion: odd}},
		"no stat":                  {machine().without("proc/stat"), map[Fact]string{CPUs: missing, CPULoad: missing}},
		"an empty stat":            {machine().with(stat("")), map[Fact]string{CPUs: missing, CPULoad: odd}},
		"words in stat":            {machine().with(stat("cpu a b c\ncpu0 a b c\n")), map[Fact]string{CPUs: missing, CPULoad: missing}},
		"a processor of no number": {machine().with(stat("cpu 1 1 1 1\ncpuX 1 1 1 1\n")), map[Fact]string{CPUs: missing, CPULoad: missing}},
		"half a word in stat":      {machine().with(stat("cp")), map[Fact]string{CPUs: missing, CPULoad: odd}},
		"a line that never ends":   {machine().with(stat("cpu 1 1 1 1\ncpu0 1 1 1 1\n" + strings.Repeat("a ", 1<<20))), map[Fact]string{CPULoad: early}},
		"too many processors":      {machine().with(stat("cpu 1 1 1 1\n" + manyCPUs(MaxCPUs+1))), map[Fact]string{CPUs: odd, CPULoad: early}},

		"no meminfo":             {machine().without("proc/meminfo"), map[Fact]string{MemoryBytes: missing, MemoryLoad: missing}},
		"an empty meminfo":       {machine().with(mem("")), map[Fact]string{MemoryBytes: missing, MemoryLoad: missing}},
		"words in meminfo":       {machine().with(mem("MemTotal: lots kB\n")), map[Fact]string{MemoryBytes: missing, MemoryLoad: missing}},
		"a negative memory":      {machine().with(mem("MemTotal: -8 kB\nMemAvailable: 1 kB\n")), map[Fact]string{MemoryBytes: missing, MemoryLoad: missing}},
		"no memory":              {machine().with(mem("MemTotal: 0 kB\nMemAvailable: 0 kB\n")), map[Fact]string{MemoryBytes: odd, MemoryLoad: odd}},
		"memory that overflows":  {machine().with(mem("MemTotal: 18014398509481985 kB\nMemAvailable: 1 kB\n")), map[Fact]string{MemoryBytes: odd, MemoryLoad: odd}},
		"memory beyond a double": {machine().with(mem("MemTotal: 8796093022208 kB\nMemAvailable: 1 kB\n")), map[Fact]string{MemoryBytes: odd, MemoryLoad: odd}},
		"an old kernel's memory": {machine().with(mem("MemTotal: 8 kB\nMemFree: 1 kB\n")), map[Fact]string{MemoryLoad: missing}},
		"more free than there":   {machine().with(mem("MemTotal: 8 kB\nMemAvailable: 9 kB\n")), map[Fact]string{MemoryLoad: odd}},

		"a memory limit":       {machine().with(tree{group + "memory.max": "1000000\n"}), map[Fact]string{Confinement: confined}},
		"a limit of a slice":   {machine().with(tree{"sys/fs/cgroup/system.slice/memory.max": "8191999999\n"}), map[Fact]string{Confinement: confined}},
		"a limit of all":       {machine().with(tree{"sys/fs/cgroup/cpu.max": "199999 100000\n"}), map[Fact]string{Confinement: confined}},
		"a limit beyond":       {machine().with(tree{group + "memory.max": "8192000000\n", group + "cpu.max": "200000 100000\n"}), map[Fact]string{}},
		"a limit of words":     {machine().with(tree{group + "memory.max": "little\n", group + "cpu.max": "\n"}), map[Fact]string{}},
		"a container":          {machine().with(tree{"proc/7/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1\n"}), map[Fact]string{Confinement: confined}},
		"a path that climbs":   {machine().with(tree{"proc/7/cgroup": "0::/../../../../etc\n", "memory.max": "1\n"}), map[Fact]string{}},
		"no control groups":    {machine().without("proc/7/cgroup").with(tree{"proc/7/stat": ""}), map[Fact]string{}},
		"odd control groups":   {machine().with(tree{"proc/7/cgroup": "what\n"}), map[Fact]string{Confinement: missing}},
		"the older limits":     {machine().with(tree{"proc/7/cgroup": "3:memory:/a/b\n2:cpu,cpuacct:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n"}), map[Fact]string{Confinement: confined}},
		"the older quota":      {machine().with(tree{"proc/7/cgroup": "2:cpu,cpuacct:/a\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}), map[Fact]string{Confinement: confined}},
		"no older limits":      {machine().with(tree{"proc/7/cgroup": "3:memory:/a\n2:cpu:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n"}), map[Fact]string{}},
		"limits, size unknown": {machine().without("proc/stat", "proc/meminfo").with(tree{group + "memory.max": "1\n", group + "cpu.max": "1 100000\n"}), map[Fact]string{CPUs: missing, CPULoad: missing, MemoryBytes: missing, MemoryLoad: missing}},
	} {
		want := map[Fact]string{CPULoad: early}
		for fact, name := range c.want {
			want[fact] = name
		}
		f := look(t, c.m)
		mustHave(t, what, f, want)
		for fact, told := range map[Fact]bool{
			Hostname: f.Hostname != "", Kernel: f.Kernel != "", OSName: f.OSName != "", OSVersion: f.OSVersion != "",
			BootID: f.BootID != "", Uptime: f.Uptime != 0, CPUs: f.CPUs != 0, MemoryBytes: f.MemoryBytes != 0,
			MemoryLoad: f.MemoryLoad.known, CPULoad: f.CPULoad.known,
		} {
			if _, wrong := want[fact]; told == wrong {
				t.Errorf("%s: %s is told: %v", what, fact, told)
			}
		}
		for _, p := range f.Problems {
			if text := refusal.Terminal(p.Refusal); strings.Contains(text, "/proc/") || strings.Contains(text, "no such file") || strings.Contains(text, long) {
				t.Errorf("%s: %s", what, text)
			}
		}
	}
}

func manyCPUs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "cpu%d 1 1 1 1\n", i)
	}
	return b.String()
}

// TestF11Disk: the columns are those of df.
func TestF11Disk(t *testing.T) {
	const missing, odd = "host-fact-missing", "host-fact-odd"
	for what, c := range map[string]struct {
		st   unix.Statfs_t
		err  error
		size int64
		load float64
		name string
	}{
		"half":                 {unix.Statfs_t{Blocks: 100, Bfree: 50, Bavail: 50, Frsize: 512, Bsize: 4096}, nil, 51200, 0.5, ""},
		"no fragments":         {unix.Statfs_t{Blocks: 100, Bfree: 50, Bavail: 50, Bsize: 4096}, nil, 409600, 0.5, ""},
		"empty":                {unix.Statfs_t{Blocks: 100, Bfree: 100, Bavail: 90, Frsize: 1}, nil, 100, 0, ""},
		"full for all":         {unix.Statfs_t{Blocks: 100, Bfree: 5, Bavail: 0, Frsize: 1}, nil, 100, 1, ""},
		"full for root":        {unix.Statfs_t{Blocks: 100, Frsize: 1}, nil, 100, 1, ""},
		"all of it root's":     {unix.Statfs_t{Blocks: 100, Bfree: 100, Frsize: 1}, nil, 100, 1, ""},
		"as large as can be":   {unix.Statfs_t{Blocks: 1 << 41, Bfree: 1 << 40, Bavail: 1 << 40, Frsize: 4095}, nil, 4095 << 41, 0.5, ""},
		"too large":            {unix.Statfs_t{Blocks: 1 << 41, Bfree: 1 << 40, Bavail: 1 << 40, Frsize: 4096}, nil, 0, -1, odd},
		"overflows":            {unix.Statfs_t{Blocks: math.MaxUint64, Bfree: 1, Bavail: 1, Frsize: math.MaxInt64}, nil, 0, -1, odd},
		"no size":              {unix.Statfs_t{Frsize: 4096, Bsize: 4096}, nil, 0, -1, odd},
		"no unit":              {unix.Statfs_t{Blocks: 100, Bfree: 50, Bavail: 50}, nil, 0, -1, odd},
		"a negative unit":      {unix.Statfs_t{Blocks: 100, Bfree: 50, Bavail: 50, Frsize: -1, Bsize: -1}, nil, 0, -1, odd},
		"more free than there": {unix.Statfs_t{Blocks: 100, Bfree: 101, Bavail: 50, Frsize: 1}, nil, 0, -1, odd},
		"less than nothing":    {unix.Statfs_t{Blocks: 100, Bfree: 50, Bavail: math.MaxUint64, Frsize: 1}, nil, 0, -1, odd},
		"no folder":            {unix.Statfs_t{}, syscall.ENOENT, 0, -1, missing},
	} {
		s, root := sampler(t, machine())
		s.statfs = func(path string, st *unix.Statfs_t) error {
			if path != root {
				t.Errorf("asked for %s", path)
			}
			*st = c.st
			return c.err
		}
		f := s.Sample(noon)
		want := map[Fact]string{CPULoad: "host-too-early"}
		if c.name != "" {
			want[DiskBytes], want[DiskLoad] = c.name, c.name
		}
		mustHave(t, what, f, want)
		if load, known := f.DiskLoad.Value(); f.DiskBytes != c.size || known != (c.load >= 0) || known && load != c.load {
			t.Errorf("%s: %d bytes, %v, %v", what, f.DiskBytes, load, known)
		}
	}
}

// TestNoFileIsWaitedFor: a pipe or a folder in a file's place.
func TestNoFileIsWaitedFor(t *testing.T) {
	s, root := sampler(t, machine().without("proc/sys/kernel/hostname", "etc/os-release"))
	if err := errors.Join(
		unix.Mkfifo(filepath.Join(root, "proc/sys/kernel/hostname"), 0o600),
		os.MkdirAll(filepath.Join(root, "etc/os-release"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	mustHave(t, "a pipe and a folder", s.Sample(noon), map[Fact]string{
		Hostname: "host-fact-missing", OSName: "host-fact-missing", OSVersion: "host-fact-missing", CPULoad: "host-too-early",
	})
}

// TestF11ThisMachine compares with what other programs and calls say about it.
func TestF11ThisMachine(t *testing.T) {
	data := t.TempDir()
	s, err := New(Options{Data: data})
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			t.Skipf("%s is missing here, or says nothing: %v", name, err)
		}
		return strings.TrimSpace(string(out))
	}
	f := s.Sample(noon)
	for _, p := range f.Problems {
		if p.Fact != CPULoad && p.Fact != Confinement {
			t.Errorf("%s: %v", p.Fact, p.Refusal)
		}
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if late := time.Duration(info.Uptime)*time.Second - f.Uptime; late < -2*time.Second || late > time.Minute {
		t.Errorf("up for %v, and sysinfo says %ds", f.Uptime, info.Uptime)
	}
	if total := int64(info.Totalram) * int64(info.Unit); f.MemoryBytes/1024 != total/1024 {
		t.Errorf("%d bytes of memory, and sysinfo says %d", f.MemoryBytes, total)
	}
	if load, known := f.MemoryLoad.Value(); !known || load <= 0 || load >= 1 {
		t.Errorf("the memory's load: %v, %v", load, known)
	}
	names := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}
	for what, c := range map[string]struct{ got, want string }{
		"hostname":     {f.Hostname, run("uname", "-n")},
		"kernel":       {f.Kernel, run("uname", "-r")},
		"architecture": {f.Architecture, names[run("uname", "-m")]},
		"processors":   {strconv.Itoa(f.CPUs), run("getconf", "_NPROCESSORS_ONLN")},
		"system":       {f.OSName + "\n" + f.OSVersion, run("sh", "-c", `. /etc/os-release; printf '%s\n%s\n' "$NAME" "$VERSION_ID"`)},
		"boot id":      {f.BootID, run("cat", "/proc/sys/kernel/random/boot_id")},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, and the other source says %q", what, c.got, c.want)
		}
	}
	var unit, blocks, free, avail float64
	if _, err := fmt.Sscan(run("stat", "-f", "-c", "%S %b %f %a", data), &unit, &blocks, &free, &avail); err != nil {
		t.Fatal(err)
	}
	if load, known := f.DiskLoad.Value(); float64(f.DiskBytes) != unit*blocks || !known || math.Abs(load-(blocks-free)/(blocks-free+avail)) > 0.02 {
		t.Errorf("%d bytes, %v used; stat says %v, %v, %v, %v", f.DiskBytes, load, unit, blocks, free, avail)
	}

	// Work for a while: one processor is busy, whatever the others do.
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
		_ = math.Sqrt(float64(begin.UnixNano()))
	}
	again := s.Sample(noon.Add(MinSpan))
	if load, known := again.CPULoad.Value(); !known || load < 0.4/float64(f.CPUs) || load > 1 {
		t.Errorf("the load after work: %v, %v", load, known)
	}
	if again.BootID != f.BootID || again.Uptime <= f.Uptime {
		t.Errorf("a second look: %s, %v", again.BootID, again.Uptime)
	}
}

// TestOSRelease: a shell reads the same.
func TestOSRelease(t *testing.T) {
	for content, want := range map[string]string{
		"NAME=Fedora\n":                              "Fedora",
		"NAME=\"Debian GNU/Linux\"\n":                "Debian GNU/Linux",
		"NAME='one $x `y` \\\"'\n":                   "one $x `y` \\\"",
		"NAME=\"a \\\"b\\\" \\$c \\`d\\` \\\\ e\"\n": "a \"b\" $c `d` \\ e",
		"NAME=\"back\\slash\"\n":                     "back\\slash",
		"# NAME=x\nNAME=y\n#NAME=z\n":                "y",
		"NAME=first\nNAME=last\n":                    "last",
		"NAME=\"\"\n":                                "",
		"NAME=\n":                                    "",
		"\n\nID=x\n\nNAME=no-newline":                "no-newline",
		"NAME=\"Gr\u00fc\u00df\"\nMORE=\"=\"\n":      "Gr\u00fc\u00df",
		"NAME=a=b\n":                                 "a=b",
		"  NAME=indented  \n":                        "indented",
	} {
		if got := osRelease(content)["NAME"]; got != want {
			t.Errorf("%q: %q", content, got)
		}
		sh := exec.Command("sh", "-c", `. "$1"; printf %s "$NAME"`, "sh", filepath.Join(t.TempDir(), "os-release"))
		if err := os.WriteFile(sh.Args[len(sh.Args)-1], []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := sh.Output(); errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			t.Log("there is no shell to compare with")
		} else if err != nil || string(got) != want {
			t.Errorf("%q: the shell reads %q, %v", content, got, err)
		}
	}
	// What a shell would run, or not take, is no value.
	for _, content := range []string{
		"NAME=two words\n", "NAME=\"open\n", "NAME='open\n", "NAME=\"\n", "NAME=$HOME\n", "NAME=\"$HOME\"\n", "NAME=`id`\n", "NAME=\"`id`\"\n",
		"NAME=a\"b\"\n", "NAME='a'b'\n", "NAME=\"a\"b\"\n", "NAME=\"a\\\"\n", "NAME\n", "=NAME\n", "export NAME=x\n",
	} {
		if got, ok := osRelease(content)["NAME"]; ok {
			t.Errorf("%q: %q", content, got)
		}
	}
}

// TestOSReleaseDefaults are those of os-release(5).
func TestOSReleaseDefaults(t *testing.T) {
	m := machine().with(tree{"etc/os-release": "ID=arch\n"})
	if f := look(t, m); f.OSName != "Linux" || f.OSVersion != "" {
		t.Errorf("%q, %q", f.OSName, f.OSVersion)
	}
	m = machine().without("etc/os-release").with(tree{"usr/lib/os-release": "NAME=\"NixOS\"\nVERSION_ID=26.05\n"})
	if f := look(t, m); f.OSName != "NixOS" || f.OSVersion != "26.05" {
		t.Errorf("%q, %q", f.OSName, f.OSVersion)
	}
}

// FuzzFiles: whatever the files hold, what is told is within its bounds, and what
// is not told has its problem.
func FuzzFiles(f *testing.F) {
	m := machine()
	f.Add(m["proc/stat"], m["proc/meminfo"], m["proc/uptime"], m["etc/os-release"], m["proc/7/cgroup"])
	f.Add("cpu", "MemTotal: 1 kB", "1", "NAME='", "0::")
	f.Add("cpu 9e99 -1 NaN\ncpu-1 1", "MemTotal: 0x10 kB\nMemAvailable: 99 kB", "-0", "NAME=\"\\", "1:cpu,memory:/../a")
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, stat, mem, uptime, release, cgroup string) {
		machine().with(tree{"proc/stat": stat, "proc/meminfo": mem, "proc/uptime": uptime, "etc/os-release": release, "proc/7/cgroup": cgroup}).put(t, root)
		s, err := New(Options{Root: root, Data: root})
		if err != nil {
			t.Fatal(err)
		}
		s.statfs = disk
		for i := range 2 {
			facts := s.Sample(noon.Add(time.Duration(i) * time.Minute))
			wrong := problems(facts)
			for fact, f := range map[Fact]Fraction{CPULoad: facts.CPULoad, MemoryLoad: facts.MemoryLoad, DiskLoad: facts.DiskLoad} {
				if _, ok := wrong[fact]; f.known == ok || !(f.value >= 0 && f.value <= 1) {
					t.Fatalf("%s: %+v", fact, f)
				}
			}
			if facts.CPUs < 0 || facts.CPUs > MaxCPUs || facts.MemoryBytes < 0 || facts.MemoryBytes > MaxBytes || facts.Uptime < 0 || facts.Uptime > MaxUptime {
				t.Fatalf("%+v", facts)
			}
			for _, text := range []string{facts.OSName, facts.OSVersion} {
				if text != "" && !spark.ValidLabel(text) {
					t.Fatalf("%q", text)
				}
			}
		}
	})
}
