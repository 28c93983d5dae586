//go:build !killpoints

package killpoint

// At does nothing.
func At(Point) {}
