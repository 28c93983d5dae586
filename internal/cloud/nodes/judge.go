package nodes

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

// facts are what is known about a node.
type facts struct {
	node          store.Node
	seen          *nodes.Seen
	damaged       bool // the record of its last report cannot be read
	spark, pallet *store.Credential
	aside         []enroll.Purpose // whose credentials' records cannot be read
}

// judge is the only place that says how a node is, and why: what is listed, shown
// and explained all comes from here.
func judge(f facts, t Times, now zone.Millis) (nodes.Liveness, []nodes.Finding) {
	var found []nodes.Finding
	add := func(name, sentence string, args ...any) {
		found = append(found, nodes.Finding{Name: name, Sentence: fmt.Sprintf(sentence, args...)})
	}
	age := func(since zone.Millis) int64 { return max(int64(now-since), 0) }
	words := func(d int64) string { // a node says what it likes about its clock
		return (time.Duration(min(d, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond).Round(time.Second).String()
	}

	if f.node.RemovedAt != 0 {
		add("removed", "The node was removed %s ago, and nothing that it sends counts any more. To have the machine again, run allod-node leave on it and join it with a new line from allod node invite.", words(age(f.node.RemovedAt)))
		return nodes.Liveness{State: nodes.Removed, Age: age(f.node.RemovedAt)}, found
	}
	l := nodes.Liveness{State: nodes.NeverSeen, Age: age(f.node.JoinedAt)}
	if f.seen != nil {
		l.Age = age(f.seen.AcceptedAt)
		switch {
		case l.Age > t.Lost.Milliseconds():
			l.State = nodes.Lost
		case l.Age > t.Late.Milliseconds():
			l.State = nodes.Late
		default:
			l.State = nodes.Online
		}
	}
	switch l.State {
	case nodes.NeverSeen:
		add("never-reported", "The node joined %s ago and has not reported yet. Run allod-node run on the machine; allod-node doctor says what keeps it from here.", words(l.Age))
	case nodes.Late:
		add("report-late", "The last report is %s old, and one is due every %s. The node may be busy, or its network may drop some.", words(l.Age), spark.Interval)
	case nodes.Lost:
		add("report-lost", "Nothing was heard for %s. The machine may be off or cut off; allod-node doctor on it says what it sees. What it runs goes on without the controller.", words(l.Age))
	}
	if f.damaged {
		add("report-damaged", "The controller's record of the node's last report cannot be read. The next report replaces it; if it stays, look at the controller's disk.")
	}
	if f.seen != nil {
		if off := f.seen.Report.ObservedAt - f.seen.AcceptedAt; max(off, -off) > zone.Millis(t.Skew.Milliseconds()) {
			side, by := "ahead of", off
			if off < 0 {
				side, by = "behind", -off
			}
			add("clock-differs", "The node's clock is %s %s the controller's. Set it right, by NTP: certificates and credentials depend on it.", words(int64(by)), side)
		}
	}
	for _, c := range []struct {
		purpose enroll.Purpose
		have    *store.Credential
	}{{enroll.Spark, f.spark}, {enroll.Pallet, f.pallet}} {
		switch {
		case slices.Contains(f.aside, c.purpose):
			add(string(c.purpose)+"-record-damaged", "The controller's record of the credential of %s cannot be read, so it counts no more. Put the store back from a backup, or remove the node and join it again.", c.purpose)
		case c.have == nil && c.purpose == enroll.Pallet:
			add("pallet-missing", "The node has no authority for Pallet, so it can run no workloads. On the machine, run allod-node join --adopt. If it still has the old one, stop allod-node run and run allod-node leave --pallet first.")
		case c.have == nil:
			add("spark-missing", "The node has no authority for Spark, so it cannot report. Remove it and join it again.")
		case now >= c.have.ExpiresAt:
			add(string(c.purpose)+"-expired", "The credential of %s expired %s ago, since the node was away for too long to renew it. Remove the node and join it again.", c.purpose, words(age(c.have.ExpiresAt)))
		case c.have.Rotate:
			add(string(c.purpose)+"-rotation-asked", "A new credential for %s was asked for, and the node has not made it yet. It does so when it next asks.", c.purpose)
		case now-c.have.IssuedAt >= zone.Millis(t.Renew.Milliseconds()):
			add(string(c.purpose)+"-rotation-due", "The credential of %s is due for renewal and expires in %s. The node renews it by itself when it next asks.", c.purpose, words(int64(c.have.ExpiresAt-now)))
		}
	}
	return l, found
}
