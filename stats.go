package lockd

import (
	"time"

	"github.com/lockd/lockd/internal/engine"
)

// Stats has the counts of a database: what it has now, and what has happened since it was opened.
// The fields down to Ends, except Waiters, GaveUp and Watchers, count what is durable.
type Stats struct {
	Index    uint64 // of the newest transaction that is published
	Keys     int
	Sessions int
	Locks    int // held exclusively, slots among them
	Shares   int // holders of shared locks
	Waiters  int // calls that wait for a lock or a slot
	Watchers int // calls of Watch and Wait that wait

	Grants uint64 // how often a lock or a slot was granted

	// LockWaits and SlotWaits count the waits of the calls that were granted their locks or slot; a
	// call of LockAll is one wait. A wait lasts from joining the queue to the grant (Holder.Since),
	// before its commit.
	LockWaits, SlotWaits Histogram

	// GaveUp is how many calls waited, and ended with an error: because of their context, their
	// session or the database. Their waits are in no histogram.
	GaveUp uint64

	// LockHolds and SlotHolds count the grants of locks and slots that have ended, for any cause.
	// Each holder of a shared lock counts by itself. A Downgrade ends one grant and begins another.
	// Grants from before the file was opened are left out. A slot is held as long as its key
	// prefix/session, which Consul's own client locks before it waits.
	LockHolds, SlotHolds Histogram

	// Ends counts ends by cause. Each field is named after its error, in this package or in package
	// catalog. The fields down to Restored count sessions, the others count locks whose sessions
	// lived on.
	Ends struct {
		Closed        uint64
		Expired       uint64
		Destroyed     uint64
		NodeGone      uint64
		CheckGone     uint64
		CheckCritical uint64
		ProcessGone   uint64
		Restored      uint64

		Unlocked    uint64
		KeyDeleted  uint64
		Forced      uint64
		HeldTooLong uint64
	}

	// Commits says what writing to the file has cost. All except Failed count successful commits.
	Commits struct {
		Count   uint64
		Failed  uint64
		Writers uint64        // calls that waited for them
		Total   time.Duration // how long they took together
		Last    time.Duration // how long the last took
		Max     time.Duration // how long the longest took
	}

	// FileSize is the size of the file in bytes, its log and its free room included; 0 in memory,
	// and after Close.
	FileSize int64

	LogDrops uint64 // records dropped because Options.Logger was too slow

	// Err is ErrClosed or ErrFailed if the database takes no writes.
	Err error
}

// Histogram counts durations by their length. The zero value has counted none.
type Histogram struct {
	// Buckets count the durations. Bucket i counts those up to HistogramBounds()[i] that no bucket
	// before it counts, and the last bucket those above all bounds.
	Buckets [len(engine.Bounds{}) + 1]uint64

	// Seconds is the sum of the durations. A time.Duration could overflow.
	Seconds float64
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for _, bucket := range h.Buckets {
		n += bucket
	}
	return n
}

// HistogramBounds returns the upper bounds of the buckets of every Histogram, the shortest first:
// from a millisecond to six hours. The slice is the caller's.
func HistogramBounds() []time.Duration {
	bounds := engine.HistogramBounds()
	return bounds[:]
}

// Stats returns the counts, and asks the file system for the file's size.
func (db *DB) Stats() Stats {
	db.writer.LockBeside()
	counts := db.engine.Counts()
	stats := Stats{
		Index: db.rows.Published(), Keys: counts.Keys, Sessions: counts.Sessions,
		Locks: counts.Locks, Shares: counts.Shares, Waiters: counts.Waiters, Grants: counts.Grants,
		GaveUp: counts.GaveUp, Ends: counts.Ends,
		LockWaits: Histogram(counts.LockWaits), LockHolds: Histogram(counts.LockHolds),
		SlotWaits: Histogram(counts.SlotWaits), SlotHolds: Histogram(counts.SlotHolds),
		Commits: db.writer.Commits(), Err: db.writer.Refused(),
	}
	db.writer.Unlock()
	stats.Watchers = db.hub.Watchers()
	stats.FileSize = db.rows.Size()
	stats.LogDrops = db.logger.Drops()
	return stats
}
