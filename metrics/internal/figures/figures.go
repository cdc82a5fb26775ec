// Package figures names what lockd.Stats counts, for the modules that export it: each figure has
// one name, one text and one place where it is read, whatever it is exported to.
//
// It registers nothing, and knows no client library.
package figures

import (
	"iter"

	"github.com/lockd/lockd"
)

// Figure is one value of the stats, or one for each of several causes.
type Figure struct {
	Name   string // in the form of Prometheus, with the prefix lockd_
	Help   string // one sentence
	Kind   Kind
	Values []Value
}

// Kind says how a figure moves. The zero value is Gauge.
type Kind uint8

// The kinds.
const (
	Gauge   Kind = iota // goes up and down
	Counter             // goes up
)

// Value is where a figure is read.
type Value struct {
	Cause string // the value of the label CauseLabel; empty if the figure has no label
	Of    func(s *lockd.Stats) float64
}

// CauseLabel is the label of a figure that has a value for each cause.
const CauseLabel = "cause"

// Histogram is one histogram of the stats.
type Histogram struct {
	Name string
	Help string
	Of   func(s *lockd.Stats) *lockd.Histogram
}

// How long commits took: their count and their sum, which have no buckets.
const (
	CommitDuration     = "lockd_commit_duration_seconds"             // the name of both
	CommitDurationHelp = "How long the commits took that succeeded." // and their help
)

// All returns every figure, except the commits' duration.
func All() []Figure {
	return append(gauges(), counters()...)
}

func gauges() []Figure {
	return []Figure{
		gauge("up", "Whether the database writes: 0 when it is closed or has failed.", up),
		gauge("index", "Index of the newest transaction.",
			func(s *lockd.Stats) float64 { return float64(s.Index) }),
		gauge("keys", "Keys that exist.",
			func(s *lockd.Stats) float64 { return float64(s.Keys) }),
		gauge("sessions", "Sessions that live.",
			func(s *lockd.Stats) float64 { return float64(s.Sessions) }),
		gauge("locks", "Locks that are held exclusively, slots among them.",
			func(s *lockd.Stats) float64 { return float64(s.Locks) }),
		gauge("shares", "Holders of locks that are shared.",
			func(s *lockd.Stats) float64 { return float64(s.Shares) }),
		gauge("waiters", "Calls that wait for a lock or a slot.",
			func(s *lockd.Stats) float64 { return float64(s.Waiters) }),
		gauge("watchers", "Calls that wait for a change.",
			func(s *lockd.Stats) float64 { return float64(s.Watchers) }),
		gauge("file_size_bytes", "Size of the file, 0 in memory.",
			func(s *lockd.Stats) float64 { return float64(s.FileSize) }),
		gauge("commit_last_seconds", "How long the last commit took that succeeded.",
			func(s *lockd.Stats) float64 { return s.Commits.Last.Seconds() }),
		gauge("commit_max_seconds", "How long the longest commit took that succeeded.",
			func(s *lockd.Stats) float64 { return s.Commits.Max.Seconds() }),
	}
}

func up(s *lockd.Stats) float64 {
	if s.Err != nil {
		return 0
	}
	return 1
}

func counters() []Figure {
	return []Figure{
		counter("grants_total", "Grants of locks and slots, waited for or not.",
			func(s *lockd.Stats) uint64 { return s.Grants }),
		counter("waits_given_up_total", "Calls that waited and returned without a grant.",
			func(s *lockd.Stats) uint64 { return s.GaveUp }),
		counter("commit_writers_total", "Calls that waited for a commit that succeeded.",
			func(s *lockd.Stats) uint64 { return s.Commits.Writers }),
		counter("commit_failures_total", "Commits that did not succeed.",
			func(s *lockd.Stats) uint64 { return s.Commits.Failed }),
		counter("log_records_dropped_total",
			"Log records dropped because the logger was too slow.",
			func(s *lockd.Stats) uint64 { return s.LogDrops }),
		ends("session_ends_total", "Ends of sessions, by their cause.",
			end("closed", func(s *lockd.Stats) uint64 { return s.Ends.Closed }),
			end("expired", func(s *lockd.Stats) uint64 { return s.Ends.Expired }),
			end("destroyed", func(s *lockd.Stats) uint64 { return s.Ends.Destroyed }),
			end("node_gone", func(s *lockd.Stats) uint64 { return s.Ends.NodeGone }),
			end("check_gone", func(s *lockd.Stats) uint64 { return s.Ends.CheckGone }),
			end("check_critical", func(s *lockd.Stats) uint64 { return s.Ends.CheckCritical }),
			end("process_gone", func(s *lockd.Stats) uint64 { return s.Ends.ProcessGone }),
			end("restored", func(s *lockd.Stats) uint64 { return s.Ends.Restored })),
		ends("lock_ends_total", "Ends of locks whose sessions went on, by their cause.",
			end("unlocked", func(s *lockd.Stats) uint64 { return s.Ends.Unlocked }),
			end("key_deleted", func(s *lockd.Stats) uint64 { return s.Ends.KeyDeleted }),
			end("forced", func(s *lockd.Stats) uint64 { return s.Ends.Forced }),
			end("held_too_long", func(s *lockd.Stats) uint64 { return s.Ends.HeldTooLong })),
	}
}

func gauge(name, help string, of func(s *lockd.Stats) float64) Figure {
	return Figure{"lockd_" + name, help, Gauge, []Value{{"", of}}}
}

func counter(name, help string, of func(s *lockd.Stats) uint64) Figure {
	return ends(name, help, end("", of))
}

// ends is a counter with a value for each cause.
func ends(name, help string, causes ...Value) Figure {
	return Figure{"lockd_" + name, help, Counter, causes}
}

func end(cause string, of func(s *lockd.Stats) uint64) Value {
	return Value{cause, func(s *lockd.Stats) float64 { return float64(of(s)) }}
}

// Histograms returns every histogram.
func Histograms() []Histogram {
	return []Histogram{
		{"lockd_lock_wait_seconds",
			"How long calls waited that had to wait for locks, and were granted them.",
			func(s *lockd.Stats) *lockd.Histogram { return &s.LockWaits }},
		{"lockd_lock_hold_seconds", "How long locks were held, from the grant to its end.",
			func(s *lockd.Stats) *lockd.Histogram { return &s.LockHolds }},
		{"lockd_slot_wait_seconds",
			"How long calls waited that had to wait for a slot, and were granted it.",
			func(s *lockd.Stats) *lockd.Histogram { return &s.SlotWaits }},
		{"lockd_slot_hold_seconds",
			"How long slots of semaphores were held, from the grant to its end.",
			func(s *lockd.Stats) *lockd.Histogram { return &s.SlotHolds }},
	}
}

// Cumulative yields each bound of the histogram, in seconds, with how many durations were no
// longer: what Prometheus calls a bucket. It does not yield the bucket +Inf, which is the count.
func Cumulative(h *lockd.Histogram) iter.Seq2[float64, uint64] {
	return func(yield func(bound float64, n uint64) bool) {
		var n uint64
		for i, bound := range lockd.HistogramBounds() {
			n += h.Buckets[i]
			if !yield(bound.Seconds(), n) {
				return
			}
		}
	}
}
