//go:build !race

package compose

// raced is whether the race detector is on, which makes a simulation slow.
const raced = false
