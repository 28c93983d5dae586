//go:build !race

package ai_test

const raceEnabled = false
