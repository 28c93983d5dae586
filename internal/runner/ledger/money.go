package ledger

import (
	"fmt"
	"math/bits"
)

// Money is an amount in millionths of a US cent, in which tokens times cents per
// million tokens is exact. It is 0 to [MaxMoney]; what computes one saturates.
type Money int64

// Amounts.
const (
	Cent   Money = 1_000_000
	Dollar       = 100 * Cent
	// MaxMoney is a million dollars, more than any one job or ceiling.
	MaxMoney = 1_000_000 * Dollar
)

// Cents is a number of cents. A negative one is none.
func Cents(n int64) Money { return Price(n, int64(Cent)) }

// Price is what tokens cost at so many cents per million tokens. Negative
// numbers count as zero.
func Price(tokens, centsPerMillion int64) Money {
	hi, lo := bits.Mul64(uint64(max(tokens, 0)), uint64(max(centsPerMillion, 0)))
	if hi != 0 || lo > uint64(MaxMoney) {
		return MaxMoney
	}
	return Money(lo)
}

// Plus is the sum of two amounts.
func (m Money) Plus(n Money) Money {
	m, n = m.bounded(), n.bounded()
	return (m + n).bounded()
}

// bounded brings what a caller or a file says into the bounds.
func (m Money) bounded() Money { return min(max(m, 0), MaxMoney) }

// String is the amount in dollars for people, as $0.42: to the nearest cent, and
// below one cent to two digits that are not zero, rounded up.
func (m Money) String() string {
	switch {
	case m < 0:
		return "-" + (-m).String()
	case m == 0 || m >= Cent:
		cents := m / Cent
		if m%Cent >= Cent/2 {
			cents++
		}
		return fmt.Sprintf("$%d.%02d", cents/100, cents%100)
	}
	step := Money(1) // a unit of the second digit
	for m/step >= 100 {
		step *= 10
	}
	m = (m + step - 1) / step * step
	if m == Cent {
		return "$0.01"
	}
	text := fmt.Sprintf("%08d", int64(m)) // a dollar is a 1 and eight zeros
	for text[len(text)-1] == '0' {
		text = text[:len(text)-1]
	}
	return "$0." + text
}
