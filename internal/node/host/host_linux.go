package host

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/allodhq/allod/refusal"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/spark"
)

// maxFile bounds each file that is read here, in bytes. Package procfs reads two
// files of the kernel with a bound of its own, of 1 MiB.
const maxFile = 64 << 10

// Sampler takes looks at the machine. It keeps what the load of the processors is
// reckoned from, and can be used from several goroutines.
type Sampler struct {
	root, data string
	statfs     func(path string, buf *unix.Statfs_t) error

	mu   sync.Mutex
	last procfs.CPUStat // at the look before
	at   time.Time      // when that was; zero if there is none
	load Fraction       // up to then
}

// New returns a sampler for this machine. It takes no look yet.
func New(o Options) (*Sampler, error) {
	root := o.Root
	if root == "" {
		root = "/"
	}
	return &Sampler{root: root, data: o.Data, statfs: unix.Statfs}, nil
}

// Sample takes a look. now tells how far apart two looks are: one that comes less
// than [MinSpan] after the one before tells the same load of the processors again.
func (s *Sampler) Sample(now time.Time) Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := Facts{At: now, Architecture: runtime.GOARCH}
	f.Hostname = take(&f, Hostname, s.hostname)
	f.Kernel = take(&f, Kernel, func() (string, error) { return s.text("proc/sys/kernel/osrelease") })
	var system release
	f.OSName = take(&f, OSName, func() (_ string, err error) { system, err = s.system(); return system.name, err })
	f.OSVersion = take(&f, OSVersion, func() (string, error) { return system.version, system.versionOdd })
	f.BootID = take(&f, BootID, s.bootID)
	f.Uptime = take(&f, Uptime, s.uptime)

	var cpu procfs.Stat
	var memory procfs.Meminfo
	proc, err := procfs.NewFS(s.path("proc"))
	cpuErr, memoryErr := err, err
	if err == nil {
		cpu, cpuErr = proc.Stat()
		memory, memoryErr = proc.Meminfo()
	}
	disk, diskErr := s.disk()

	f.CPUs = take(&f, CPUs, func() (int, error) { return cpus(cpu, cpuErr) })
	f.MemoryBytes = take(&f, MemoryBytes, func() (int64, error) { return kilobytes(memory.MemTotal, memoryErr) })
	f.DiskBytes = take(&f, DiskBytes, func() (int64, error) { return disk.size, diskErr })
	f.CPULoad = take(&f, CPULoad, func() (Fraction, error) { return s.cpuLoad(now, cpu.CPUTotal, cpuErr) })
	f.MemoryLoad = take(&f, MemoryLoad, func() (Fraction, error) { return memoryLoad(memory, memoryErr) })
	f.DiskLoad = take(&f, DiskLoad, func() (Fraction, error) { return disk.load, diskErr })
	take(&f, Confinement, func() (struct{}, error) { return struct{}{}, s.confinement(proc, f.CPUs, f.MemoryBytes) })
	return f
}

// take returns what is known of a fact, and its zero value with a problem where it
// is not.
func take[T any](f *Facts, fact Fact, look func() (T, error)) T {
	v, err := look()
	if err == nil {
		return v
	}
	r := refusal.From(err)
	if fact != Confinement {
		r = r.With("The fact is " + string(fact) + ".")
	}
	f.Problems = append(f.Problems, Problem{Fact: fact, Refusal: r})
	var unknown T
	return unknown
}

func (s *Sampler) path(name string) string { return filepath.Join(s.root, name) }

// read reads a file below the root. It returns [ErrMissing].
func (s *Sampler) read(name string) (string, error) {
	// A pipe in a file's place must not keep the node waiting.
	file, err := os.OpenFile(s.path(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", ErrMissing.Because(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", ErrMissing.Because(err)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return "", ErrMissing.Because(err)
	}
	if len(content) > maxFile {
		return "", ErrOdd
	}
	return string(content), nil
}

// text reads a file of one line.
func (s *Sampler) text(name string) (string, error) {
	content, err := s.read(name)
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(content, "\n")
	if !spark.ValidLabel(line) {
		return "", ErrOdd
	}
	return line, nil
}

func (s *Sampler) hostname() (string, error) {
	name, err := s.text("proc/sys/kernel/hostname")
	if err == nil && !enroll.ValidHostname(name) {
		return "", ErrOdd
	}
	return name, err
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (s *Sampler) bootID() (string, error) {
	id, err := s.text("proc/sys/kernel/random/boot_id")
	if err == nil && !uuid.MatchString(id) {
		return "", ErrOdd
	}
	return id, err
}

func (s *Sampler) uptime() (time.Duration, error) {
	line, err := s.text("proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(line, " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil || !(seconds >= 0 && seconds <= MaxUptime.Seconds()) { // so is no number at all
		return 0, ErrOdd
	}
	return time.Duration(math.Round(seconds*100)) * 10 * time.Millisecond, nil
}

// release is what os-release says.
type release struct {
	name, version string
	versionOdd    error
}

// system reads os-release(5) where it lies: in /etc, and else in /usr/lib.
func (s *Sampler) system() (release, error) {
	content, err := s.read("etc/os-release")
	if errors.Is(err, fs.ErrNotExist) {
		content, err = s.read("usr/lib/os-release")
	}
	if err != nil {
		return release{versionOdd: err}, err
	}
	values := osRelease(content)
	r := release{name: "Linux", version: values["VERSION_ID"]}
	if name := values["NAME"]; name != "" {
		r.name = name
	}
	if r.version != "" && !spark.ValidLabel(r.version) {
		r.versionOdd = ErrOdd
	}
	if !spark.ValidLabel(r.name) {
		return r, ErrOdd
	}
	return r, nil
}

func cpus(stat procfs.Stat, err error) (int, error) {
	switch n := len(stat.CPU); {
	case err != nil:
		return 0, ErrMissing.Because(err)
	case n == 0:
		return 0, ErrMissing
	case n > MaxCPUs:
		return 0, ErrOdd
	default:
		return n, nil
	}
}

// kilobytes is a size that the kernel tells in units of 1024 bytes, in bytes. The
// product that package procfs offers can overflow.
func kilobytes(n *uint64, err error) (int64, error) {
	switch {
	case err != nil:
		return 0, ErrMissing.Because(err)
	case n == nil:
		return 0, ErrMissing
	case *n == 0 || *n > MaxBytes/1024:
		return 0, ErrOdd
	}
	return int64(*n) * 1024, nil
}

func memoryLoad(m procfs.Meminfo, err error) (Fraction, error) {
	total, err := kilobytes(m.MemTotal, err)
	switch {
	case err != nil:
		return Fraction{}, err
	case m.MemAvailable == nil: // before Linux 3.14
		return Fraction{}, ErrMissing
	case *m.MemAvailable > *m.MemTotal:
		return Fraction{}, ErrOdd
	}
	return Fraction{1 - float64(*m.MemAvailable)*1024/float64(total), true}, nil
}

// cpuLoad reckons the load since the look before.
func (s *Sampler) cpuLoad(now time.Time, total procfs.CPUStat, err error) (Fraction, error) {
	forget := func() { s.at, s.load = time.Time{}, Fraction{} }
	switch {
	case err != nil:
		forget()
		return Fraction{}, ErrMissing.Because(err)
	case !counted(total):
		forget()
		return Fraction{}, ErrOdd
	}
	first := s.at.IsZero()
	if span := now.Sub(s.at); !first && span >= 0 && span < MinSpan {
		if !s.load.known {
			return Fraction{}, ErrEarly
		}
		return s.load, nil
	}
	last := s.last
	s.last, s.at, s.load = total, now, Fraction{}
	if first {
		return Fraction{}, ErrEarly
	}
	var all, idle float64
	for i, now := range times(total) {
		// A counter can go back a little: that of waiting does. It counted nothing then.
		passed := max(now-times(last)[i], 0)
		all += passed
		if i < idleTimes {
			idle += passed
		}
	}
	if all <= 0 {
		return Fraction{}, ErrOdd
	}
	s.load = Fraction{min(max(1-idle/all, 0), 1), true}
	return s.load, nil
}

// idleTimes is how many of the times are idle ones.
const idleTimes = 2

// times are the parts of all processors' time, in seconds, that make up the whole.
// What guests of this machine used is in User and Nice already.
func times(c procfs.CPUStat) [8]float64 {
	return [8]float64{c.Idle, c.Iowait, c.User, c.Nice, c.System, c.IRQ, c.SoftIRQ, c.Steal}
}

// counted says whether these can be a kernel's counters, of which some are above
// zero. They come as 64 bits, in hundredths of a second.
func counted(c procfs.CPUStat) bool {
	t := times(c)
	return slices.Max(t[:]) > 0 && !slices.ContainsFunc(t[:], func(f float64) bool { return !(f >= 0 && f <= math.MaxUint64/100) })
}

// usage is what a file system tells.
type usage struct {
	size int64
	load Fraction
}

func (s *Sampler) disk() (usage, error) {
	var st unix.Statfs_t
	if err := s.statfs(s.data, &st); err != nil {
		return usage{}, ErrMissing.Because(err)
	}
	unit := uint64(st.Frsize)
	if st.Frsize <= 0 {
		unit = uint64(st.Bsize)
	}
	switch {
	case int64(unit) <= 0 || st.Blocks == 0 || st.Blocks > MaxBytes/unit, // pseudo file systems have no size
		st.Bfree > st.Blocks || st.Bavail > st.Blocks: // a negative one reads as a huge one
		return usage{}, ErrOdd
	}
	used := float64(st.Blocks - st.Bfree)
	u := usage{size: int64(st.Blocks * unit), load: Fraction{1, true}} // where all that is free is root's
	if usable := used + float64(st.Bavail); usable > 0 {
		u.load = Fraction{used / usable, true}
	}
	return u, nil
}

// confinement returns [ErrConfined] where the node's control group, or one above
// it, may use less than the machine has. Zero for the machine's size means that it
// is not known.
func (s *Sampler) confinement(proc procfs.FS, cpus int, memory int64) error {
	self, err := proc.Self()
	var groups []procfs.Cgroup
	if err == nil {
		groups, err = self.Cgroups()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // a kernel without control groups
	case err != nil:
		return ErrMissing.Because(err)
	}
	for _, g := range groups {
		for _, dir := range mounts(g) {
			for name := path.Clean("/" + g.Path); ; name = path.Dir(name) {
				if err := s.limited(path.Join("sys/fs/cgroup", dir, name), cpus, memory); err != nil {
					return err
				}
				if name == "/" {
					break
				}
			}
		}
	}
	return nil
}

// mounts are where systems have a hierarchy of control groups.
func mounts(g procfs.Cgroup) []string {
	switch {
	case g.HierarchyID == 0 && len(g.Controllers) == 0:
		return []string{"", "unified"}
	case slices.Contains(g.Controllers, "memory"):
		return []string{"memory"}
	case slices.Contains(g.Controllers, "cpu"):
		return []string{"cpu", "cpu,cpuacct"}
	}
	return nil
}

// limited judges one group's limits, those of both versions. A limit that is absent
// or that says max or -1 is none.
func (s *Sampler) limited(dir string, cpus int, memory int64) error {
	limit := func(name string, field int) (float64, bool) {
		content, err := s.read(path.Join(dir, name))
		fields := strings.Fields(content)
		if err != nil || len(fields) <= field {
			return 0, false
		}
		n, err := strconv.ParseUint(fields[field], 10, 64)
		return float64(n), err == nil
	}
	for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
		if n, ok := limit(name, 0); ok && n < float64(memory) {
			return ErrConfined
		}
	}
	quota, limited := limit("cpu.max", 0)
	period, known := limit("cpu.max", 1)
	if !limited {
		quota, limited = limit("cpu.cfs_quota_us", 0)
		period, known = limit("cpu.cfs_period_us", 0)
	}
	if limited && known && quota < period*float64(cpus) {
		return ErrConfined
	}
	return nil
}
