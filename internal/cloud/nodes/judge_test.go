package nodes

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allodhq/allod/internal/cloud/store"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/enroll"
	"github.com/allodhq/allod/wire/zone/nodes"
	"github.com/allodhq/allod/wire/zone/spark"
)

// negative finds a time below zero.
var negative = regexp.MustCompile(` -[0-9]`)

// TestF77EveryStateHasItsAgeAndItsFindings goes over the edges of each state.
func TestF77EveryStateHasItsAgeAndItsFindings(t *testing.T) {
	const day, joined = 24 * time.Hour, 1_000_000
	seen := func(at zone.Millis, ahead time.Duration) *nodes.Seen {
		return &nodes.Seen{AcceptedAt: at, Report: spark.Report{ObservedAt: at + zone.Millis(ahead.Milliseconds())}}
	}
	credential := func(at zone.Millis, asked bool) *store.Credential {
		return &store.Credential{IssuedAt: at, ExpiresAt: at + zone.Millis((90 * day).Milliseconds()), Rotate: asked}
	}
	node := store.Node{JoinedAt: joined}
	for _, c := range []struct {
		what  string
		f     facts
		after time.Duration // since it joined
		state nodes.State
		age   time.Duration
		found string
	}{
		{"joined now", facts{}, 0, nodes.NeverSeen, 0, "never-reported"},
		{"joined long ago", facts{}, 29 * day, nodes.NeverSeen, 29 * day, "never-reported"},
		{"a clock that was set back", facts{}, -time.Hour, nodes.NeverSeen, 0, "never-reported"},
		{"reported now", facts{seen: seen(joined, 0)}, 0, nodes.Online, 0, ""},
		{"30 s", facts{seen: seen(joined, 0)}, 30 * time.Second, nodes.Online, 30 * time.Second, ""},
		{"30.001 s", facts{seen: seen(joined, 0)}, 30*time.Second + time.Millisecond, nodes.Late, 30*time.Second + time.Millisecond, "report-late"},
		{"5 min", facts{seen: seen(joined, 0)}, 5 * time.Minute, nodes.Late, 5 * time.Minute, "report-late"},
		{"5 min and 1 ms", facts{seen: seen(joined, 0)}, 5*time.Minute + time.Millisecond, nodes.Lost, 5*time.Minute + time.Millisecond, "report-lost"},
		{"ahead, as far as may be", facts{seen: seen(joined, 30*time.Second)}, 0, nodes.Online, 0, ""},
		{"ahead", facts{seen: seen(joined, 30*time.Second+time.Millisecond)}, 0, nodes.Online, 0, "clock-differs"},
		{"behind", facts{seen: seen(joined, -time.Hour)}, 0, nodes.Online, 0, "clock-differs"},
		{"a damaged report", facts{damaged: true}, time.Minute, nodes.NeverSeen, time.Minute, "never-reported report-damaged"},
		{"asked", facts{seen: seen(joined, 0), spark: credential(joined, true), pallet: credential(joined, true)}, 0, nodes.Online, 0, "spark-rotation-asked pallet-rotation-asked"},
		{"no Pallet", facts{seen: seen(joined, 0), spark: credential(joined, false)}, 0, nodes.Online, 0, "pallet-missing"},
		{"no Spark", facts{seen: seen(joined, 0), pallet: credential(joined, false)}, 0, nodes.Online, 0, "spark-missing"},
		{"records that cannot be read", facts{seen: seen(joined, 0), aside: []enroll.Purpose{enroll.Spark, enroll.Pallet}}, 0, nodes.Online, 0, "spark-record-damaged pallet-record-damaged"},
		{"30 days", facts{seen: seen(joined+zone.Millis((30*day).Milliseconds()), 0)}, 30 * day, nodes.Online, 0, "spark-rotation-due pallet-rotation-due"},
		{"a moment before", facts{seen: seen(joined+zone.Millis((30*day).Milliseconds())-1, 0)}, 30*day - time.Millisecond, nodes.Online, 0, ""},
		{"90 days", facts{}, 90 * day, nodes.NeverSeen, 90 * day, "never-reported spark-expired pallet-expired"},
		{"removed", facts{node: store.Node{JoinedAt: joined, RemovedAt: joined + 1000}, seen: seen(joined, time.Hour), damaged: true}, time.Minute, nodes.Removed, 59 * time.Second, "removed"},
	} {
		if c.f.node == (store.Node{}) {
			c.f.node = node
		}
		missing := strings.Contains(c.found, "missing") || strings.Contains(c.found, "record-damaged")
		if c.f.spark == nil && c.f.pallet == nil && !missing {
			c.f.spark, c.f.pallet = credential(joined, false), credential(joined, false)
		}
		l, findings := judge(c.f, Times{}.withDefaults(), zone.At(zone.Millis(joined).Time().Add(c.after)))
		var names []string
		for _, f := range findings {
			names = append(names, f.Name)
			if !zone.ValidID(f.Name) || len(f.Sentence) > zone.MaxText || !strings.HasSuffix(f.Sentence, ".") || strings.Contains(f.Sentence, "%!") || negative.MatchString(f.Sentence) {
				t.Errorf("%s: the finding %+v", c.what, f)
			}
		}
		if l != (nodes.Liveness{State: c.state, Age: c.age.Milliseconds()}) || strings.Join(names, " ") != c.found {
			t.Errorf("%s: %+v %v, want %s %s %q", c.what, l, names, c.state, c.age, c.found)
		}
		if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) || len(names) > nodes.MaxFindings {
			t.Errorf("%s: %v", c.what, names)
		}
	}
}

// TestF09MetadataIsMadeOfFiveFacts: what is told of a credential has none of what
// must never be told: the bearer, its hash, the peer, the process.
func TestF09MetadataIsMadeOfFiveFacts(t *testing.T) {
	const marker = "zqmarker"
	kept := store.Credential{
		Node: marker, Purpose: "spark", State: "active", Generation: 7, Epoch: 9, Receipt: []byte(marker), IssuedAt: 1, ExpiresAt: 2,
	}
	for i := range kept.Hash {
		kept.Hash[i], kept.Request[i] = 0xA7, 0xB8
	}
	m := New(Config{}).metadata(kept, 1)
	text, err := enroll.MetadataCodec.Append(nil, m)
	if want := `{"purpose":"spark","state":"active","generation":7,"sessionEpoch":9,"rotationRequired":false}`; err != nil || string(text) != want {
		t.Errorf("%s %v", text, err)
	}
	for _, forbidden := range []string{marker, "a7a7", "b8b8"} {
		if strings.Contains(strings.ToLower(fmt.Sprintf("%s %+v", text, m)), forbidden) {
			t.Errorf("the metadata has %q", forbidden)
		}
	}
	if n := reflect.TypeFor[enroll.Metadata]().NumField(); n != 5 {
		t.Errorf("the metadata has %d facts: look whether the new one may be told", n)
	}
}
