//go:build !race

package v0_test

const raceEnabled = false
