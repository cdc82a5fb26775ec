package lockd

import "time"

// Stats has counts of a database: what there is now, and what happened since it was opened. All but
// Waiters and Watchers count what is durable.
type Stats struct {
	Index    uint64 // of the newest transaction that is published
	Keys     int
	Sessions int
	Locks    int // locks that are held exclusively
	Shares   int // holders of locks that are shared
	Waiters  int // calls of Lock and LockAll that wait
	Watchers int // calls of Watch and Wait that wait

	Grants uint64 // how often a lock was granted

	// Ends counts ends by cause: of sessions down to Restored, then of locks whose session lived
	// on.
	Ends struct {
		Closed        uint64 // ErrClosed
		Expired       uint64 // ErrExpired
		Destroyed     uint64 // ErrDestroyed
		NodeGone      uint64 // catalog.ErrNodeGone
		CheckGone     uint64 // catalog.ErrCheckGone
		CheckCritical uint64 // catalog.ErrCheckCritical
		ProcessGone   uint64 // ErrProcessGone
		Restored      uint64 // ErrRestored

		Unlocked    uint64 // ErrUnlocked
		KeyDeleted  uint64 // ErrKeyDeleted
		Forced      uint64 // ErrForced
		HeldTooLong uint64 // ErrHeldTooLong
	}

	// Commits says what writing to the file has cost.
	Commits struct {
		Count   uint64        // how many succeeded
		Failed  uint64        // how many did not
		Writers uint64        // calls that waited for those that succeeded
		Total   time.Duration // how long those took together
		Last    time.Duration // how long the last of them took
		Max     time.Duration // how long the longest of them took
	}

	// FileSize is the size of the file in bytes, its log included, as the file system tells; 0 in
	// memory, and after Close. It counts also room that is free inside the file.
	FileSize int64

	LogDrops uint64 // records that were not logged, because Options.Logger was too slow

	// Err is nil while the database takes writes, and then ErrClosed or ErrFailed.
	Err error
}

// Stats returns the counts. It holds the database's lock for an instant, and then asks the file
// system for the size of the file.
func (db *DB) Stats() Stats {
	db.writer.LockBeside()
	counts := db.engine.Counts()
	stats := Stats{
		Index: db.rows.Published(), Keys: counts.Keys, Sessions: counts.Sessions,
		Locks: counts.Locks, Shares: counts.Shares, Waiters: counts.Waiters, Grants: counts.Grants,
		Ends: counts.Ends, Commits: db.writer.Commits(), Err: db.writer.Refused(),
	}
	db.writer.Unlock()
	stats.Watchers = db.hub.Watchers()
	stats.FileSize = db.rows.Size()
	stats.LogDrops = db.logger.Drops()
	return stats
}
