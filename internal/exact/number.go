package exact

import (
	"math"
	"strconv"
)

// MaxWhole is 2^53-1, the largest whole number that every reader of the
// contracts holds exactly.
const MaxWhole = 1<<53 - 1

// Number is a JSON number as a JavaScript reader sees it: the IEEE 754 double
// nearest to the text. 1e2, 100 and 100.0 are one Number. A text beyond the
// largest double reads as an infinity.
type Number float64

// parseNumber reads the text of a JSON number, whose syntax has been checked.
func parseNumber(raw []byte) Number {
	f, _ := strconv.ParseFloat(string(raw), 64) // out of range gives ±Inf or 0, as in JavaScript
	return Number(f)
}

// Whole returns the number as an integer, and whether it is one from
// -[MaxWhole] to [MaxWhole].
func (n Number) Whole() (int64, bool) {
	f := float64(n)
	if f != math.Trunc(f) || math.Abs(f) > MaxWhole {
		return 0, false
	}
	return int64(f), true
}

// Opt is a member that may be absent, null, or hold a value: three different
// things to the contracts. [Nullable] alone reads and writes a null; every other
// accessor refuses one with [ErrType].
type Opt[T any] struct {
	// Set is false when the member is absent.
	Set bool
	// Null is true when the member is the JSON null. Then V is the zero value.
	Null bool
	// V is the value.
	V T
}

// Some is a member that holds v.
func Some[T any](v T) Opt[T] { return Opt[T]{Set: true, V: v} }
