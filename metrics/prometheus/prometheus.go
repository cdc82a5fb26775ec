// Package prometheus exports what a lockd database counts to Prometheus. It is a module of its own,
// so that who needs no metrics need not have the client library.
//
// One line makes the metrics of a database part of a registry:
//
//	registry.MustRegister(prometheus.NewCollector(db))
//
// A program with several databases gives the metrics of each a label of its own:
//
//	named := client.WrapRegistererWith(client.Labels{"database": "jobs"}, registry)
//	named.MustRegister(prometheus.NewCollector(db))
//
// # Metrics
//
// All names begin with lockd_. What they count is said by the fields of [lockd.Stats].
//
//	up                         1 as long as the database writes, 0 when it is closed or has failed
//	index                      of the newest transaction
//	keys, sessions, locks      how many there are; of locks, those that are held
//	waiters, watchers          how many calls wait for a lock, or for a change
//	file_size_bytes            the size of the file
//	grants_total               how often a lock was granted
//	session_ends_total         by cause: closed, expired, destroyed, node_gone, check_gone,
//	                           check_critical, process_gone, restored
//	lock_ends_total            by cause, of locks whose sessions went on: unlocked, key_deleted,
//	                           forced
//	commit_duration_seconds    count and sum of the commits that succeeded
//	commit_last_seconds        how long the last of them took
//	commit_max_seconds         how long the longest of them took
//	commit_writers_total       how many calls waited for them; divided by their count, that is how
//	                           many share a commit
//	commit_failures_total      commits that did not succeed
//	log_records_dropped_total  records that the logger was too slow for
package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockd/lockd"
)

var _ prometheus.Collector = (*Collector)(nil)

// Collector exports the Stats of one database. Its methods may be called by many goroutines. The
// zero value is not usable; NewCollector gives one.
type Collector struct {
	db      *lockd.DB
	metrics []metric
}

// metric is how a value of the stats is exported.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	cause string // the value of the label, if there is one
	value func(s *lockd.Stats) float64
}

// NewCollector returns a collector of what the database counts. It goes on after the database's
// Close, with what was counted last. A nil db panics.
func NewCollector(db *lockd.DB) *Collector {
	if db == nil {
		panic("lockd: nil database")
	}
	c := &Collector{db: db}
	c.addGauges()
	c.addCounters()
	return c
}

func name(suffix string) string { return prometheus.BuildFQName("lockd", "", suffix) }

func (c *Collector) gauge(suffix, help string, value func(s *lockd.Stats) float64) {
	desc := prometheus.NewDesc(name(suffix), help, nil, nil)
	c.metrics = append(c.metrics, metric{desc, prometheus.GaugeValue, "", value})
}

func (c *Collector) counter(suffix, help string, value func(s *lockd.Stats) uint64) {
	desc := prometheus.NewDesc(name(suffix), help, nil, nil)
	c.metrics = append(c.metrics, metric{desc, prometheus.CounterValue, "",
		func(s *lockd.Stats) float64 { return float64(value(s)) }})
}

// ends adds a counter with a value for each cause.
func (c *Collector) ends(suffix, help string, causes []cause) {
	desc := prometheus.NewDesc(name(suffix), help, []string{"cause"}, nil)
	for _, of := range causes {
		c.metrics = append(c.metrics, metric{desc, prometheus.CounterValue, of.name,
			func(s *lockd.Stats) float64 { return float64(of.count(s)) }})
	}
}

type cause struct {
	name  string
	count func(s *lockd.Stats) uint64
}

func (c *Collector) addGauges() {
	c.gauge("up", "Whether the database writes: 0 when it is closed or has failed.",
		func(s *lockd.Stats) float64 {
			if s.Err != nil {
				return 0
			}
			return 1
		})
	c.gauge("index", "Index of the newest transaction.",
		func(s *lockd.Stats) float64 { return float64(s.Index) })
	c.gauge("keys", "Keys that exist.",
		func(s *lockd.Stats) float64 { return float64(s.Keys) })
	c.gauge("sessions", "Sessions that live.",
		func(s *lockd.Stats) float64 { return float64(s.Sessions) })
	c.gauge("locks", "Locks that are held exclusively.",
		func(s *lockd.Stats) float64 { return float64(s.Locks) })
	c.gauge("shares", "Holders of locks that are shared.",
		func(s *lockd.Stats) float64 { return float64(s.Shares) })
	c.gauge("waiters", "Calls that wait for a lock.",
		func(s *lockd.Stats) float64 { return float64(s.Waiters) })
	c.gauge("watchers", "Calls and channels that wait for a change.",
		func(s *lockd.Stats) float64 { return float64(s.Watchers) })
	c.gauge("file_size_bytes", "Size of the file, 0 in memory.",
		func(s *lockd.Stats) float64 { return float64(s.FileSize) })
	c.gauge("commit_last_seconds", "How long the last commit took that succeeded.",
		func(s *lockd.Stats) float64 { return s.Commits.Last.Seconds() })
	c.gauge("commit_max_seconds", "How long the longest commit took that succeeded.",
		func(s *lockd.Stats) float64 { return s.Commits.Max.Seconds() })
}

func (c *Collector) addCounters() {
	c.counter("grants_total", "Grants of locks.",
		func(s *lockd.Stats) uint64 { return s.Grants })
	c.counter("commit_writers_total", "Calls that waited for a commit that succeeded.",
		func(s *lockd.Stats) uint64 { return s.Commits.Writers })
	c.counter("commit_failures_total", "Commits that did not succeed.",
		func(s *lockd.Stats) uint64 { return s.Commits.Failed })
	c.counter("log_records_dropped_total", "Log records dropped because the logger was too slow.",
		func(s *lockd.Stats) uint64 { return s.LogDrops })
	c.ends("session_ends_total", "Ends of sessions, by their cause.", []cause{
		{"closed", func(s *lockd.Stats) uint64 { return s.Ends.Closed }},
		{"expired", func(s *lockd.Stats) uint64 { return s.Ends.Expired }},
		{"destroyed", func(s *lockd.Stats) uint64 { return s.Ends.Destroyed }},
		{"node_gone", func(s *lockd.Stats) uint64 { return s.Ends.NodeGone }},
		{"check_gone", func(s *lockd.Stats) uint64 { return s.Ends.CheckGone }},
		{"check_critical", func(s *lockd.Stats) uint64 { return s.Ends.CheckCritical }},
		{"process_gone", func(s *lockd.Stats) uint64 { return s.Ends.ProcessGone }},
		{"restored", func(s *lockd.Stats) uint64 { return s.Ends.Restored }},
	})
	c.ends("lock_ends_total", "Ends of locks whose sessions went on, by their cause.", []cause{
		{"unlocked", func(s *lockd.Stats) uint64 { return s.Ends.Unlocked }},
		{"key_deleted", func(s *lockd.Stats) uint64 { return s.Ends.KeyDeleted }},
		{"forced", func(s *lockd.Stats) uint64 { return s.Ends.Forced }},
		{"held_too_long", func(s *lockd.Stats) uint64 { return s.Ends.HeldTooLong }},
	})
}

var durations = prometheus.NewDesc(name("commit_duration_seconds"),
	"How long the commits took that succeeded.", nil, nil)

// Describe sends what the collector exports. It is for the registry.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- durations
	var last *prometheus.Desc
	for _, m := range c.metrics {
		if m.desc != last { // the causes of one metric follow each other
			descs <- m.desc
		}
		last = m.desc
	}
}

// Collect counts once, and sends what it found. It is for the registry. It waits for no commit:
// see DB.Stats.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.db.Stats()
	metrics <- prometheus.MustNewConstSummary(durations, stats.Commits.Count,
		stats.Commits.Total.Seconds(), nil)
	for _, m := range c.metrics {
		var labels []string
		if m.cause != "" {
			labels = []string{m.cause}
		}
		metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&stats), labels...)
	}
}
