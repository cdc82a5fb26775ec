package consulapi

import (
	"net/http"
	"time"

	"github.com/lockd/lockd"
)

// metrics has the counts of the database in the format of Consul's agent (A10).
type metrics struct {
	Timestamp string
	Gauges    []gauge
	Points    []struct{} // there are none
	Counters  []sample
	Samples   []sample
}

// gauge is a current value, such as the number of keys.
type gauge struct {
	Name   string
	Value  float64
	Labels map[string]string
}

// sample counts events, or sums up how long they took. Consul's samples cover the last ten seconds.
// These cover the time since the database was opened, so Rate and Stddev stay 0.
type sample struct {
	Name   string
	Count  uint64
	Rate   float64
	Sum    float64
	Min    float64
	Max    float64
	Mean   float64
	Stddev float64
	Labels map[string]string
}

// agentMetrics answers with the counts of the database.
func (h *handler) agentMetrics(r *request) (answer, error) {
	if r.query.Get("format") == "prometheus" {
		return answer{}, refuse(http.StatusUnsupportedMediaType,
			"The format prometheus is not served here: lockd serve has it under /metrics")
	}
	stats := h.db.Stats()
	up := 1.0
	if stats.Err != nil {
		up = 0
	}
	return ok(metrics{
		Timestamp: time.Now().UTC().Round(time.Second).String(),
		Gauges: []gauge{
			newGauge("up", up),
			newGauge("index", float64(stats.Index)),
			newGauge("keys", float64(stats.Keys)),
			newGauge("sessions", float64(stats.Sessions)),
			newGauge("locks", float64(stats.Locks)),
			newGauge("shares", float64(stats.Shares)),
			newGauge("waiters", float64(stats.Waiters)),
			newGauge("watchers", float64(stats.Watchers)),
			newGauge("file.size", float64(stats.FileSize)),
			newGauge("queries.blocked", float64(h.blocked.Load())),
		},
		Points: []struct{}{},
		Counters: append([]sample{
			newCounter("grants", stats.Grants, nil),
			newCounter("waits.given_up", stats.GaveUp, nil),
			newCounter("commits.failed", stats.Commits.Failed, nil),
			newCounter("commits.writers", stats.Commits.Writers, nil),
			newCounter("log.drops", stats.LogDrops, nil),
		}, newEnds(&stats)...),
		Samples: []sample{
			newDurations("commits", stats.Commits.Count, stats.Commits.Total.Seconds(),
				stats.Commits.Max),
			newHistogram("lock.waits", &stats.LockWaits),
			newHistogram("lock.holds", &stats.LockHolds),
			newHistogram("slot.waits", &stats.SlotWaits),
			newHistogram("slot.holds", &stats.SlotHolds),
		},
	}), nil
}

// newGauge returns a gauge whose name begins with the program's, as names in Consul do.
func newGauge(name string, value float64) gauge {
	return gauge{"lockd." + name, value, map[string]string{}}
}

func newCounter(name string, count uint64, labels map[string]string) sample {
	if labels == nil {
		labels = map[string]string{}
	}
	c := sample{Name: "lockd." + name, Count: count, Sum: float64(count), Labels: labels}
	if count > 0 {
		c.Min, c.Max, c.Mean = 1, 1, 1
	}
	return c
}

// newEnds returns a counter for each cause of an end.
func newEnds(stats *lockd.Stats) (counters []sample) {
	ends := &stats.Ends
	for _, end := range []struct {
		name, cause string
		count       uint64
	}{
		{"sessions.ended", "closed", ends.Closed},
		{"sessions.ended", "expired", ends.Expired},
		{"sessions.ended", "destroyed", ends.Destroyed},
		{"sessions.ended", "node_gone", ends.NodeGone},
		{"sessions.ended", "check_gone", ends.CheckGone},
		{"sessions.ended", "check_critical", ends.CheckCritical},
		{"sessions.ended", "process_gone", ends.ProcessGone},
		{"sessions.ended", "restored", ends.Restored},
		{"locks.ended", "unlocked", ends.Unlocked},
		{"locks.ended", "key_deleted", ends.KeyDeleted},
		{"locks.ended", "forced", ends.Forced},
		{"locks.ended", "held_too_long", ends.HeldTooLong},
	} {
		counters = append(counters,
			newCounter(end.name, end.count, map[string]string{"cause": end.cause}))
	}
	return counters
}

// newDurations returns how long count things took, in milliseconds like Consul's samples of
// durations. The shortest duration is not known, and the longest may be 0 for the same reason.
func newDurations(name string, count uint64, seconds float64, longest time.Duration) sample {
	d := sample{
		Name: "lockd." + name, Count: count, Sum: seconds * 1000, Max: longest.Seconds() * 1000,
		Labels: map[string]string{},
	}
	if count > 0 {
		d.Mean = d.Sum / float64(count)
	}
	return d
}

func newHistogram(name string, h *lockd.Histogram) sample {
	return newDurations(name, h.Count(), h.Seconds, 0)
}
