package supervisor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var errBroken = errors.New("broken")

// TestPartsAreKeptUp runs a part that dies again and again, one that lives for long
// in between, and one that never dies, in virtual time.
func TestPartsAreKeptUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var changes []Change
		var at []time.Duration
		ctx, end := context.WithTimeout(t.Context(), 10*time.Minute)
		defer end()
		steady := Part{"steady", func(ctx context.Context, up func(string)) error {
			up("here")
			<-ctx.Done()
			return ctx.Err()
		}}
		n := 0
		weak := Part{"weak", func(ctx context.Context, up func(string)) error {
			n++
			at = append(at, time.Since(begun))
			if n == 12 {
				up("for long")
				time.Sleep(Lived)
			}
			return errBroken
		}}
		Run(ctx, []Part{steady, weak}, func(c Change) { changes = append(changes, c) })

		of := func(name string) (list []Change) {
			for _, c := range changes {
				if c.Part == name {
					list = append(list, c)
				}
			}
			return list
		}
		want := []Change{{Part: "steady", State: Starting, Starts: 1}, {Part: "steady", State: Up, Where: "here", Starts: 1}, {Part: "steady", State: Ended, Starts: 1}}
		if got := of("steady"); !slices.Equal(got, want) {
			t.Errorf("steady: %+v", got)
		}
		var pauses []time.Duration
		for _, c := range of("weak") {
			if c.State == Died {
				pauses = append(pauses, c.Pause)
				if !errors.Is(c.Err, errBroken) {
					t.Errorf("died of %v", c.Err)
				}
			}
		}
		s := time.Second
		first := []time.Duration{s / 4, s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s, 30 * s, 30 * s, s / 4, s / 2}
		if len(pauses) < len(first) || !slices.Equal(pauses[:len(first)], first) {
			t.Errorf("the pauses are %v, want %v", pauses, first)
		}
		for i, p := range first[:11] {
			if got := at[i+1] - at[i]; got != p {
				t.Errorf("start %d came %v after the one before, want %v", i+2, got, p)
			}
		}
		if got := of("weak"); got[len(got)-1].State != Ended {
			t.Errorf("the last change is %+v", got[len(got)-1])
		}
	})
}

// TestEndIsPrompt: who waits for a part to be started again ends at once.
func TestEndIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		began := time.Now()
		Run(ctx, []Part{{"weak", func(context.Context, func(string)) error { return errBroken }}}, func(c Change) {
			if c.Pause == Rarely {
				began = time.Now()
				end()
			}
		})
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// TestMain lets this binary be the program that is run.
func TestMain(m *testing.M) {
	switch os.Getenv("SUPERVISOR_TEST") {
	case "waits":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		_, _ = os.Stdout.WriteString("ready\n")
		<-asked
		_, _ = os.Stdout.WriteString("asked to end\n")
	case "fails":
		_, _ = os.Stdout.WriteString("last words\n")
		os.Exit(3)
	default:
		os.Exit(m.Run())
	}
}

// said hands out what a process writes.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return s.text.Write(b)
}

func TestProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("ends when it is told to", func(t *testing.T) {
		t.Setenv("SUPERVISOR_TEST", "waits")
		ctx, end := context.WithCancel(t.Context())
		out := &said{more: make(chan struct{}, 1)}
		var pid int
		done := make(chan error, 1)
		go func() { done <- Process(ctx, self, nil, out, func(p int) { pid = p }) }()
		<-out.more
		end()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if runtime.GOOS != "windows" {
			if said := out.text.String(); said != "ready\nasked to end\n" {
				t.Errorf("it said %q", said)
			}
			if p, err := os.FindProcess(pid); err != nil || p.Signal(syscall.Signal(0)) == nil {
				t.Error("the process is still there")
			}
		}
	})
	t.Run("says that it ended by itself", func(t *testing.T) {
		t.Setenv("SUPERVISOR_TEST", "fails")
		var out bytes.Buffer
		err := Process(t.Context(), self, []string{"x"}, &out, nil)
		var exit *exec.ExitError
		if !errors.Is(err, ErrProcess) || !errors.As(err, &exit) || exit.ExitCode() != 3 || out.String() != "last words\n" {
			t.Errorf("%v, said %q", err, out.String())
		}
	})
	t.Run("is not there", func(t *testing.T) {
		if err := Process(t.Context(), self+"-absent", nil, &bytes.Buffer{}, nil); !errors.Is(err, ErrProcess) {
			t.Errorf("%v", err)
		}
	})
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := &Lines{Prefix: "node: ", To: &out, Lock: &sync.Mutex{}}
	for _, text := range []string{"one\ntw", "o", "\n\nthree", strings.Repeat("x", maxLine), "\n"} {
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%d %v", n, err)
		}
	}
	want := "node: one\nnode: two\nnode: \nnode: three" + strings.Repeat("x", maxLine) + "\nnode: \n"
	if out.String() != want {
		t.Errorf("got %.60q", out.String())
	}
}
