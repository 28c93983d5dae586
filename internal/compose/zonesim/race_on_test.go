//go:build race

package zonesim

// raced is whether the race detector is on, which makes a simulation slow.
const raced = true
