package lockd

import (
	"errors"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

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
	NodeGone      uint64 // ErrNodeGone
	CheckGone     uint64 // ErrCheckGone
	CheckCritical uint64 // ErrCheckCritical
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
	db.mu.LockBeside()
	stats := db.stats
	stats.Index = db.store.Published()
	stats.Err = db.refusal
	db.mu.Unlock()
	stats.Watchers = db.hub.Watchers()
	stats.LogDrops = db.logger.drops()
	return stats
}

// countRowsLocked begins with what the file has.
func (db *DB) countRowsLocked() {
	db.stats.Keys, db.stats.Sessions = db.store.Keys.Len(), db.store.Sessions.Len()
	for _, state := range db.locks {
		if state.session != nil {
			db.stats.Locks++
		}
	}
}

// countEvents adds what has become durable.
func (db *DB) countEvents(events []logEntry) {
	stats := &db.stats
	for i := range events {
		r := &events[i].Body
		switch r.kind {
		case KeyPut:
			if r.old.(*schema.Key) == nil {
				stats.Keys++
			}
		case KeyDeleted:
			stats.Keys--
		case SessionCreated:
			stats.Sessions++
		case SessionEnded:
			stats.Sessions--
			stats.Ends.addSession(r.cause)
		}
		switch r.lock {
		case LockUnchanged:
		case LockGranted:
			stats.Locks++
			stats.Grants++
		case LockHandedOn:
			stats.Grants++
			stats.Ends.addLock(r.cause)
		default:
			stats.Locks--
			stats.Ends.addLock(r.cause)
		}
	}
}

func (e *Ends) addSession(cause error) {
	switch {
	case errors.Is(cause, ErrClosed):
		e.Closed++
	case errors.Is(cause, ErrExpired):
		e.Expired++
	case errors.Is(cause, ErrDestroyed):
		e.Destroyed++
	case errors.Is(cause, ErrNodeGone):
		e.NodeGone++
	case errors.Is(cause, ErrCheckGone):
		e.CheckGone++
	case errors.Is(cause, ErrCheckCritical):
		e.CheckCritical++
	case errors.Is(cause, ErrProcessGone):
		e.ProcessGone++
	case errors.Is(cause, ErrRestored):
		e.Restored++
	}
}

// addLock leaves out the causes of sessions: those count there.
func (e *Ends) addLock(cause error) {
	switch {
	case cause == ErrUnlocked: // most of them, so it comes first
		e.Unlocked++
	case errors.Is(cause, ErrKeyDeleted):
		e.KeyDeleted++
	case errors.Is(cause, ErrForced):
		e.Forced++
	}
}

// countCommitLocked adds the outcome of one commit.
func (db *DB) countCommitLocked(writers uint64, took time.Duration, err error) {
	commits := &db.stats.Commits
	db.logCommitLocked(took, writers, err)
	if err != nil {
		commits.Failed++
		return
	}
	commits.Count++
	commits.Writers += writers
	commits.Total += took
	commits.Last = took
	commits.Max = max(commits.Max, took)
}
