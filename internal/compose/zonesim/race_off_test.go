//go:build !race

package zonesim

const raced = false
