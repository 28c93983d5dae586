package cloud

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/allodhq/allod/internal/cloud/who"
	"github.com/allodhq/allod/wire/zone"
	"github.com/allodhq/allod/wire/zone/nodes"
)

const namespace = "allod_controller"

// countTime is how long counting nodes for the metrics may take.
const countTime = 10 * time.Second

// Metrics are the process's numbers and the controller's.
func (c *Controller) Metrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for name, n := range map[string]struct {
		help string
		of   func() uint64
	}{
		"requests_handled_total":    {"typed requests that came as far as what decides them", func() uint64 { return c.api.Counts().Handled }},
		"heartbeats_accepted_total": {"reports of hosts that were taken", func() uint64 { return c.api.Counts().Reports }},
		"heartbeats_refused_total":  {"reports of hosts that were refused", func() uint64 { return c.api.Counts().Refused }},
		"store_commits_total":       {"commits of the store, each of one transaction or more", func() uint64 { return c.store.Stats().Commits }},
		"store_transactions_total":  {"transactions of the store that were acknowledged", func() uint64 { return c.store.Stats().Functions }},
		"store_refused_total":       {"transactions that were turned away because too many waited", func() uint64 { return c.store.Stats().Refused }},
		"store_lost_total":          {"transactions that failed with their commit", func() uint64 { return c.store.Stats().Lost }},
	} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: n.help},
			func() float64 { return float64(n.of()) }))
	}
	r.MustRegister(counted{c})
	return r
}

// counted counts nodes by their state when it is asked.
type counted struct{ c *Controller }

var nodesDesc = prometheus.NewDesc(namespace+"_nodes", "nodes by their state", []string{"state"}, nil)

// Describe names the one number.
func (counted) Describe(out chan<- *prometheus.Desc) { out <- nodesDesc }

// Collect counts.
func (n counted) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	by := map[nodes.State]int{nodes.NeverSeen: 0, nodes.Online: 0, nodes.Late: 0, nodes.Lost: 0, nodes.Removed: 0}
	for cursor := zone.Cursor(""); ; {
		page, err := n.c.nodes.List(ctx, who.Principal{Kind: who.Local}, nodes.List{Cursor: cursor})
		if err != nil {
			out <- prometheus.NewInvalidMetric(nodesDesc, err)
			return
		}
		for _, one := range page.Nodes {
			by[one.Liveness.State]++
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for state, count := range by {
		out <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(count), string(state))
	}
}
