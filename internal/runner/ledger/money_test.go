package ledger

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestMoneyText(t *testing.T) {
	for m, want := range map[Money]string{
		0: "$0.00", Cent: "$0.01", 42 * Cent: "$0.42", Dollar: "$1.00", 5*Dollar + 7*Cent: "$5.07", MaxMoney: "$1000000.00",
		1: "$0.00000001", 9: "$0.00000009", 10: "$0.0000001", 99: "$0.00000099", 100: "$0.000001", 101: "$0.0000011",
		1500: "$0.000015", 123_456: "$0.0013", 990_000: "$0.0099", 990_001: "$0.01", Cent - 1: "$0.01",
		Cent + Cent/2 - 1: "$0.01", Cent + Cent/2: "$0.02", 10*Cent - 1: "$0.10", Dollar - 1: "$1.00",
		-Cent: "-$0.01", math.MaxInt64: "$92233720368.55", -math.MaxInt64: "-$92233720368.55",
	} {
		if got := m.String(); got != want {
			t.Errorf("%d is %s, want %s", int64(m), got, want)
		}
	}
}

func TestPrice(t *testing.T) {
	for _, c := range []struct {
		tokens, rate int64
		want         Money
	}{
		{0, 1500, 0}, {1, 1500, 1500}, {1_000_000, 1500, 15 * Dollar}, {-1, 1500, 0}, {1500, -1, 0}, {-1, -1, 0},
		{1, int64(MaxMoney), MaxMoney}, {1, int64(MaxMoney) + 1, MaxMoney}, {2, int64(MaxMoney) / 2, MaxMoney},
		{math.MaxInt64, math.MaxInt64, MaxMoney}, {math.MaxInt64, 2, MaxMoney}, {math.MinInt64, math.MinInt64, 0},
	} {
		if got := Price(c.tokens, c.rate); got != c.want {
			t.Errorf("%d tokens at %d: %d, want %d", c.tokens, c.rate, got, c.want)
		}
	}
	if Cents(42) != 42*Cent || Cents(-1) != 0 || Cents(math.MaxInt64) != MaxMoney {
		t.Error("cents")
	}
	numbers := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-10, 1<<40))
	rapid.Check(t, func(t *rapid.T) {
		tokens, rate := numbers.Draw(t, "tokens"), numbers.Draw(t, "rate")
		want := new(big.Int).Mul(big.NewInt(max(tokens, 0)), big.NewInt(max(rate, 0)))
		if top := big.NewInt(int64(MaxMoney)); want.Cmp(top) > 0 {
			want = top
		}
		if got := Price(tokens, rate); int64(got) != want.Int64() {
			t.Fatalf("%d, want %v", got, want)
		}
	})
}

func TestPlus(t *testing.T) {
	for _, c := range [][3]Money{
		{1, 2, 3}, {-5, 2, 2}, {MaxMoney, 1, MaxMoney}, {math.MaxInt64, math.MaxInt64, MaxMoney}, {math.MinInt64, math.MinInt64, 0},
	} {
		if got := c[0].Plus(c[1]); got != c[2] {
			t.Errorf("%d plus %d is %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
