package lockd

import "time"

// Stats is what a database counts: how much there is now, and how often things have happened since
// it was opened. All of it is durable, as everything that is shown, but for Waiters and Watchers,
// which are calls. The zero value is what is known of no database.
type Stats struct {
	Index    uint64 // of the newest transaction that is published
	Keys     int
	Sessions int
	Locks    int // keys whose lock is held
	Waiters  int // calls of Lock and LockAll that wait
	Watchers int // calls of Watch that wait, and channels of Changed that are open

	Grants  uint64 // how often a lock was granted
	Ends    Ends
	Commits Commits

	LogDrops uint64 // records that were not logged, because Options.Logger was too slow

	// Err is why the database writes no more: it is ErrClosed or ErrFailed, and nil as long as it
	// does.
	Err error
}

// Ends counts what has ended, by the cause. The zero value is nothing.
type Ends struct {
	// Sessions. What their end took from them is not counted again below.

	Closed        uint64 // ErrClosed
	Expired       uint64 // ErrExpired
	Destroyed     uint64 // ErrDestroyed
	NodeGone      uint64 // catalog.ErrNodeGone
	CheckGone     uint64 // catalog.ErrCheckGone
	CheckCritical uint64 // catalog.ErrCheckCritical
	ProcessGone   uint64 // ErrProcessGone
	Restored      uint64 // ErrRestored

	// Locks.

	Unlocked   uint64 // ErrUnlocked
	KeyDeleted uint64 // ErrKeyDeleted
	Forced     uint64 // ErrForced
}

// Commits says what writing to the file has cost. In memory there is nothing to write, and it
// stays zero.
type Commits struct {
	Count   uint64        // how many succeeded
	Failed  uint64        // how many did not
	Writers uint64        // how many calls waited for those that succeeded, all together
	Total   time.Duration // how long those took, all together
	Last    time.Duration // how long the last of them took
	Max     time.Duration // how long the longest of them took
}

// Stats counts. It takes the database's lock for an instant, and no longer with more to count; it
// never waits for the file, or for the function of an Update. After Close it goes on answering.
func (db *DB) Stats() Stats {
	db.writer.LockBeside()
	counts := db.engine.Counts()
	stats := Stats{
		Index: db.rows.Published(), Keys: counts.Keys, Sessions: counts.Sessions,
		Locks: counts.Locks, Waiters: counts.Waiters, Grants: counts.Grants,
		Ends: Ends(counts.Ends), Commits: db.commits, Err: db.writer.Refused(),
	}
	db.writer.Unlock()
	stats.Watchers = db.watch.hub.Watchers()
	stats.LogDrops = db.watch.logger.drops()
	return stats
}

// countCommit adds the outcome of one commit. The caller holds the writer's mutex.
func (db *DB) countCommit(writers uint64, took time.Duration, err error) {
	db.logCommit(took, writers, err)
	if err != nil {
		db.commits.Failed++
		return
	}
	db.commits.Count++
	db.commits.Writers += writers
	db.commits.Total += took
	db.commits.Last = took
	db.commits.Max = max(db.commits.Max, took)
}
