package zonesim

import (
	"flag"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	simSeed  = flag.Uint64("seed", 0, "run the simulation with this seed only, and print every event")
	simSeeds = flag.Int("seeds", 2000, "how many seeds the simulation runs")
)

// TestZoneSimulation runs machines, their controller and an operator through
// trouble, once for each seed. After every event the controller must have accepted
// exactly what the model says, and at the end everybody has joined.
func TestZoneSimulation(t *testing.T) {
	if *simSeed != 0 {
		_, seen, err := Run(*simSeed, Options{Log: os.Stdout})
		t.Logf("%+v", seen)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := *simSeeds
	if raced {
		seeds = min(seeds, 24)
	}
	var next, failures atomic.Int64
	var mu sync.Mutex
	var total Seen
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := uint64(next.Add(1))
				if seed > uint64(seeds) || failures.Load() >= 5 {
					return
				}
				_, seen, err := Run(seed, Options{})
				if err != nil {
					failures.Add(1)
					t.Errorf("seed %d: %v\nreplay: go test ./internal/compose/zonesim -run TestZoneSimulation -seed %d", seed, err, seed)
				}
				mu.Lock()
				for i := range reflect.ValueOf(seen).NumField() {
					f := reflect.ValueOf(&total).Elem().Field(i)
					f.SetInt(f.Int() + reflect.ValueOf(seen).Field(i).Int())
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds: %+v", seeds, total)
	// What never happened was never tried.
	for i := range reflect.ValueOf(total).NumField() {
		if reflect.ValueOf(total).Field(i).Int() == 0 {
			t.Errorf("in %d seeds there was no %s", seeds, reflect.TypeOf(total).Field(i).Name)
		}
	}
}

// TestZoneSimulationReplays: the same seed is the same run, to the last event.
func TestZoneSimulationReplays(t *testing.T) {
	run := func(seed uint64) string {
		trace, _, err := Run(seed, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return trace
	}
	for seed := uint64(1); seed <= 3; seed++ {
		if first, again := run(seed), run(seed); first != again {
			t.Errorf("seed %d: %s and %s", seed, first, again)
		}
	}
	if run(1) == run(2) {
		t.Error("two seeds are one run, so the comparison proves nothing")
	}
}
