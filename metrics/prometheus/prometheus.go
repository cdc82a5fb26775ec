// Package prometheus exports what a lockd database counts to Prometheus. It is a module of its own,
// so that a program that needs no metrics need not have the client library.
//
// One line registers the metrics of a database:
//
//	registry.MustRegister(prometheus.NewCollector(db))
//
// A program with several databases gives the metrics of each database its own label:
//
//	named := client.WrapRegistererWith(client.Labels{"database": "jobs"}, registry)
//	named.MustRegister(prometheus.NewCollector(db))
//
// # Metrics
//
// All names begin with lockd_. The fields of [lockd.Stats] say what they count.
//
//	up                         1 while the database takes writes, 0 if it is closed or has failed
//	index                      of the newest transaction
//	keys, sessions, locks      how many there are; of locks, those that are held
//	                           exclusively, slots among them
//	shares                     how many holders shared locks have
//	waiters, watchers          how many calls wait for a lock or a slot, or for a change
//	file_size_bytes            the size of the file
//	grants_total               how often a lock or a slot was granted, waited for or not
//	lock_wait_seconds          histogram of the waits for locks that ended with the grant
//	slot_wait_seconds          the same of the waits for slots of semaphores
//	waits_given_up_total       how many calls waited and returned without a grant
//	lock_hold_seconds          histogram of how long locks were held, from the grant to its end
//	slot_hold_seconds          the same of slots of semaphores
//	session_ends_total         by cause: closed, expired, destroyed, node_gone, check_gone,
//	                           check_critical, process_gone, restored
//	lock_ends_total            by cause, of locks whose sessions went on: unlocked, key_deleted,
//	                           forced, held_too_long
//	commit_duration_seconds    count and sum of the commits that succeeded
//	commit_last_seconds        how long the last of them took
//	commit_max_seconds         how long the longest of them took
//	commit_writers_total       how many calls waited for these commits; divided by their count,
//	                           that is how many calls share a commit
//	commit_failures_total      commits that did not succeed
//	log_records_dropped_total  records that the logger was too slow for
package prometheus

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/metrics/internal/figures"
)

var _ prometheus.Collector = (*Collector)(nil)

// Collector exports the Stats of one database. Its methods may be called by many goroutines. The
// zero value is not usable; NewCollector gives one.
type Collector struct {
	db         *lockd.DB
	metrics    []metric
	histograms []histogram
}

// metric is how a figure is exported.
type metric struct {
	figures.Figure
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// histogram is how a histogram is exported.
type histogram struct {
	figures.Histogram
	desc *prometheus.Desc
}

// NewCollector returns a collector of what the database counts. The collector goes on after the
// database's Close, with what was counted last. A nil db panics.
func NewCollector(db *lockd.DB) *Collector {
	if db == nil {
		panic("lockd: nil database")
	}
	c := &Collector{db: db}
	for _, f := range figures.All() {
		kind := prometheus.GaugeValue
		if f.Kind == figures.Counter {
			kind = prometheus.CounterValue
		}
		var labels []string
		if f.Values[0].Cause != "" {
			labels = []string{figures.CauseLabel}
		}
		c.metrics = append(c.metrics,
			metric{f, prometheus.NewDesc(f.Name, f.Help, labels, nil), kind})
	}
	for _, h := range figures.Histograms() {
		c.histograms = append(c.histograms,
			histogram{h, prometheus.NewDesc(h.Name, h.Help, nil, nil)})
	}
	return c
}

var durations = prometheus.NewDesc(figures.CommitDuration, figures.CommitDurationHelp, nil, nil)

// Describe sends what the collector exports. It is for the registry.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- durations
	for _, m := range c.metrics {
		descs <- m.desc
	}
	for _, h := range c.histograms {
		descs <- h.desc
	}
}

// Collect reads the counts once, and sends them. It is for the registry. It waits for no commit:
// see DB.Stats.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.db.Stats()
	metrics <- prometheus.MustNewConstSummary(durations, stats.Commits.Count,
		stats.Commits.Total.Seconds(), nil)
	for _, m := range c.metrics {
		for _, v := range m.Values {
			var labels []string
			if v.Cause != "" {
				labels = []string{v.Cause}
			}
			metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, v.Of(&stats), labels...)
		}
	}
	for _, h := range c.histograms {
		counted := h.Of(&stats)
		metrics <- prometheus.MustNewConstHistogram(h.desc, counted.Count(), counted.Seconds,
			maps.Collect(figures.Cumulative(counted)))
	}
}
