package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/runner"
	"github.com/allodhq/allod/internal/runner/ingress"
	"github.com/allodhq/allod/internal/runner/sharing"
	"github.com/allodhq/allod/wire/ai"
	"github.com/allodhq/allod/wire/ai/backend"
	"github.com/allodhq/allod/wire/ai/match"
)

var shareRows = []runner.BackendStatus{
	{Name: "free", Cost: backend.Free}, {Name: "paid", Cost: backend.Metered, CapCents: 250, PriceCents: 90},
	{Name: "new", Cost: backend.Metered}, {Name: "mine", Cost: backend.Subscription},
	{Name: "both", Model: "a", Cost: backend.Free}, {Name: "both", Model: "b:cloud", Cost: backend.Metered},
}

// TestMoneyInTheQuestion: what costs money is asked about with the sums in the
// question, and what cannot be shared is not asked about.
func TestMoneyInTheQuestion(t *testing.T) {
	for name, c := range map[string]struct {
		backend        string
		scope          ai.OfferScope
		ceiling, price int64
		want           sharing.Terms
		asks           []string // nil for no question
		err            error
	}{
		"free to named":             {"free", ai.OfferNamed, 0, 0, sharing.Terms{Scope: ai.OfferNamed}, nil, nil},
		"free to anybody":           {"free", ai.OfferPublic, 0, 0, sharing.Terms{Scope: ai.OfferPublic}, []string{"Whoever may ask"}, nil},
		"paid, as set before":       {"paid", ai.OfferNamed, 0, 0, sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 250, Price: 90}, []string{"$2.50 in any 24 hours", "$0.90 for a million tokens", "people on your list"}, nil},
		"paid, set anew, to anyone": {"paid", ai.OfferPublic, 7, 5, sharing.Terms{Scope: ai.OfferPublic, Acknowledged: true, Ceiling: 7, Price: 5}, []string{"$0.07", "$0.05", "whoever may ask"}, nil},
		"paid, price unknown":       {"new", ai.OfferNamed, 100, 0, sharing.Terms{Scope: ai.OfferNamed, Acknowledged: true, Ceiling: 100}, []string{"$1.00", "$15.00 for a million tokens"}, nil},
		"paid without an end":       {"new", ai.OfferNamed, 0, 0, sharing.Terms{}, nil, sharing.ErrNoCeiling},
		"the costliest counts":      {"both", ai.OfferNamed, 0, 0, sharing.Terms{}, nil, sharing.ErrNoCeiling},
		"a subscription":            {"mine", ai.OfferNamed, 100, 0, sharing.Terms{}, nil, match.ErrSubscription},
		"none":                      {"else", ai.OfferSelf, 0, 0, sharing.Terms{}, nil, runner.ErrNoBackend},
	} {
		terms, question, err := widened(shareRows, c.backend, c.scope, c.ceiling, c.price)
		if terms != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || (question == "") != (c.asks == nil) {
			t.Errorf("%s: %+v, %q, %v", name, terms, question, err)
		}
		for _, part := range c.asks {
			if !strings.Contains(question, part) {
				t.Errorf("%s: %q does not say %q", name, question, part)
			}
		}
	}
}

// TestNarrowingWithdraws: to the owner alone nothing is asked, and the consent to
// pay is gone; the numbers stay for the next time.
func TestNarrowingWithdraws(t *testing.T) {
	for name, want := range map[string]sharing.Terms{
		"free": {Scope: ai.OfferSelf}, "paid": {Scope: ai.OfferSelf, Ceiling: 250, Price: 90}, "mine": {Scope: ai.OfferSelf},
	} {
		if terms, question, err := widened(shareRows, name, ai.OfferSelf, 0, 0); terms != want || question != "" || err != nil {
			t.Errorf("%s: %+v, %q, %v", name, terms, question, err)
		}
	}
}

// TestLogOfARefusal: an owner reads whose job was refused and by which numbers.
func TestLogOfARefusal(t *testing.T) {
	var b strings.Builder
	err := writeLog(&b, []ingress.Line{{
		Type: ingress.TypeOutcome, At: time.Date(2030, 1, 1, 12, 0, 0, 0, time.Local), JobID: "j1", Server: "https://app.example", Owner: "kim", Audience: ai.AudienceNamed,
		Outcome: "refused", Detail: "metered-ceiling-reached", Reason: "The limit is $0.07 within 24 hours.",
	}})
	const want = "2030-01-01 12:00:00  j1  refused (metered-ceiling-reached) a named job of kim at https://app.example. The limit is $0.07 within 24 hours.\n"
	if err != nil || b.String() != want {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestSpendingIsRead: sums, estimates and what is left, as an owner reads them.
func TestSpendingIsRead(t *testing.T) {
	var b strings.Builder
	err := writeSpending(&b, runner.Spending{
		Rows: []runner.SpentRow{
			{Day: "2030-01-02", Backend: "paid", Owner: "alice", Own: true, Jobs: 2, Prompt: 10, Completion: 20, Amount: 300_000_000},
			{Day: "2030-01-02", Backend: "paid", Owner: "kim", Jobs: 1, Prompt: 1, Completion: 2, Amount: 2_000_000, Estimated: 2_000_000},
			{Day: "2030-01-01", Backend: "paid", Owner: "kim", Jobs: 3, Amount: 4_000_000, Estimated: 1_000_000},
		},
		Backends: []runner.SpendingLimit{{Backend: "z"}, {Backend: "paid", Limit: 500_000_000, Used: 6_000_000, Reserved: 1_000_000, Reset: time.Date(2030, 1, 3, 4, 5, 6, 0, time.Local)}},
		JobsHour: 1, JobsDay: 4, MostHour: 20, MostDay: 100,
	})
	const want = `DAY         BACKEND  OWNER        JOBS  TOKENS IN  OUT  COST
2030-01-02  paid     alice (you)  2     10         20   $3.00
2030-01-02  paid     kim          1     1          2    $0.02, estimated
2030-01-01  paid     kim          3     0          0    $0.04, of which $0.01 estimated

Jobs of others: 1 of 20 within an hour, 4 of 100 within 24 hours.
paid for others within 24 hours: $0.06 used and $0.01 reserved of $5.00. The first of it is free again on 2030-01-03 04:05:06.
z for others within 24 hours: nothing, since no ceiling was set.
`
	if err != nil || b.String() != want {
		t.Errorf("%s, %v", b.String(), err)
	}
}
