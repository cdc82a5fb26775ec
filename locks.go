package lockd

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/engine"
)

// LockInfo describes one lock that is held, delayed or waited for.
type LockInfo struct {
	Key string

	// Holder is the session that holds the lock, or the first of those that share it; zero if the
	// lock is free. Fence and Since are of its grant, as in a Holder, and Held is the time since
	// then, if known.
	Holder SessionInfo
	Fence  uint64
	Since  time.Time
	Held   time.Duration

	// Holders has all that share the lock, in the order of their grants; nil if none does.
	Holders []Holder

	// DelayedUntil is the end of the lock-delay, or zero. DelayedMode is the mode in which the lock
	// was lost: after Shared only exclusive requests are kept out (R5).
	DelayedUntil time.Time
	DelayedMode  LockMode

	// Limit is the semaphore's limit at its keys: prefix/.lock, which has the queue, and
	// prefix/session of each slot; 0 at any other key.
	Limit int

	// Queue has the waiters, the next to be served first.
	Queue []WaiterInfo
}

// WaiterInfo describes one call that waits for a lock.
type WaiterInfo struct {
	Session SessionInfo
	Since   time.Time     // when the call began to wait
	Waited  time.Duration // how long ago that is
	Mode    LockMode      // the requested mode

	// Keys are all the locks that the call waits for: LockAll may wait although this lock is free.
	Keys []string
}

// Locks yields every lock that is held, delayed or waited for, in the order of the keys, as they
// are when the loop begins. Until a grant is committed, its session is a waiter. Locks holds the
// database's lock for a time proportional to the number of locks and waiters.
func (db *DB) Locks() iter.Seq[LockInfo] {
	return func(yield func(LockInfo) bool) {
		views, now := db.lockViews(db.engine.LockViews)
		slices.SortFunc(views, func(a, b engine.LockView) int { return cmp.Compare(a.Key, b.Key) })
		db.lockInfos(views, now)(yield)
	}
}

// MostAwaited returns the n locks that most calls wait for, or fewer, as Locks describes them.
// Their order is by the number of waiters, most first, then by the wait of the first waiter,
// longest first, and then by key. It holds the database's lock for a time proportional to the
// number of locks that Locks yields plus the number of waiters for those n.
func (db *DB) MostAwaited(n int) []LockInfo {
	views, now := db.lockViews(func(now time.Time) []engine.LockView {
		return db.engine.MostAwaited(n, now)
	})
	return slices.Collect(db.lockInfos(views, now))
}

// lockViews returns the locks that see chooses, and the time at which it saw them.
func (db *DB) lockViews(
	see func(now time.Time) []engine.LockView,
) (views []engine.LockView, now time.Time) {
	db.writer.LockBeside()
	defer db.writer.Unlock()
	now = db.writer.Time()
	return see(now), now
}

// lockInfos describes the locks, which were seen at that time.
func (db *DB) lockInfos(views []engine.LockView, now time.Time) iter.Seq[LockInfo] {
	return func(yield func(LockInfo) bool) {
		limits := make(engine.Limits)
		for i := range views {
			info := db.lockInfo(&views[i], now)
			info.Limit = views[i].Limit(limits)
			if !yield(info) {
				return
			}
		}
	}
}

// lockInfo describes a lock that was seen at that time.
func (db *DB) lockInfo(v *engine.LockView, now time.Time) LockInfo {
	info := LockInfo{Key: v.Key, Holders: holdersOf(v.Shares)}
	until, mode := v.Delay()
	info.DelayedUntil, info.DelayedMode = until, LockMode(mode)
	if len(info.Holders) > 0 {
		first := info.Holders[0]
		info.Holder, info.Fence, info.Since = first.Session, first.Grant.Fence, first.Since
		info.Held = engine.Lasted(first.Since, now)
	}
	if v.Holder != nil {
		info.Holder, info.Fence = sessionInfo(v.Holder), v.Row.Fence
		info.Since, info.Held = v.Row.Granted, engine.Lasted(v.Row.Granted, now)
	}
	for _, w := range v.Waiters() {
		info.Queue = append(info.Queue, waiterInfo(w, now))
	}
	return info
}

// waiterInfo describes a call that waits, as of that time.
func waiterInfo(w *engine.Waiter, now time.Time) WaiterInfo {
	return WaiterInfo{
		Session: sessionInfo(w.Session.Row), Since: w.Began,
		Waited: engine.Lasted(w.Began, now), Mode: LockMode(w.Options.Mode), Keys: w.Keys(),
	}
}

// Holder is one grant of a held lock: the only grant, or one of several that share the lock.
type Holder struct {
	Session SessionInfo
	Grant   Sequencer // ForceUnlock takes its fence
	Since   time.Time // when it was granted; zero if that was before the file was opened
}

// holdersOf converts the holders to the type that users know.
func holdersOf(holders []engine.Holder) []Holder {
	list := slices.Grow([]Holder(nil), len(holders))
	for _, h := range holders {
		list = append(list, Holder{sessionInfo(h.Session), sequencerOf(h.Grant), h.Since})
	}
	return list
}
