package cli

import (
	"strings"
	"testing"

	"github.com/allodhq/allod/certify"
)

func TestWriteCertified(t *testing.T) {
	r := certify.Report{
		Server: "https://app.example", Versions: []string{"0", "2"}, Untested: []string{"3"}, Passed: 2, Failed: 1, NotProved: 3,
		Results: []certify.Result{
			{ID: "A01", Title: "One", Version: "0", Outcome: certify.Passed},
			{ID: "A02", Title: "Two", Musts: []string{"TTL_EXPIRY"}, Version: "0", Outcome: certify.Failed, Why: "it did\x1b not", Evidence: []certify.Step{
				{Sent: "device: claim", Got: "200, granted 0: ", Times: 3}, {Sent: "app: cancel", Got: "done", Times: 1},
			}},
			{ID: "A03", Title: "Three", Version: "0", Outcome: certify.NotProved, Why: "it takes too long"},
			{ID: "A01", Title: "One", Version: "2", Outcome: certify.Passed},
			{ID: "A02", Title: "Two", Version: "2", Outcome: certify.NotProved, Why: "it is not there"},
			{ID: "A03", Title: "Three", Version: "2", Outcome: certify.NotProved, Why: "it takes too long"},
		},
		Unprovable: []certify.Unprovable{{Must: "M_ONE", Why: "Nobody sees it."}, {Must: "M_TWO", Why: "Nobody tells."}, {Must: "M_THREE", Why: "Nobody sees it."}},
	}
	const want = `check  version 0   version 2   what
A01    passed      passed      One
A02    FAILED      not proved  Two
A03    not proved  not proved  Three

A02 in version 0 FAILED: it did` + "\ufffd" + ` not.
  It is about TTL_EXPIRY. What was sent, and what came back:
    device: claim -> 200, granted 0: , 3 times
    app: cancel -> done

A03 is not proved: it takes too long.

A02 is not proved: it is not there.

The server also names versions that this program does not speak: 3.

Not provable from outside of a server:
  Nobody sees it.
    M_ONE
    M_THREE
  Nobody tells.
    M_TWO

2 passed, 1 failed, 3 not proved.
`
	var b strings.Builder
	if err := writeCertified(&b, r); err != nil || b.String() != want {
		t.Errorf("%v, wrote\n%s", err, b.String())
	}
	b.Reset()
	audited := certify.Report{Versions: []string{"0", "2"}, Passed: 1, Results: []certify.Result{{ID: "B01", Title: "One", Outcome: certify.Passed}}}
	if err := writeCertified(&b, audited); err != nil || b.String() != "check  outcome  what\nB01    passed   One\n\n1 passed, 0 failed, 0 not proved.\n" {
		t.Errorf("%v, wrote\n%s", err, b.String())
	}
}
