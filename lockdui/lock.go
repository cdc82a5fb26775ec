package lockdui

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd"
)

// lock is a row of a table of locks: a lock, or a semaphore with all its slots.
type lock struct {
	Key   string // of a semaphore the one that has its limit
	Limit int    // of the semaphore; 0: it is none

	Holders []holder
	Delays  []time.Time // ends of lock-delays: of the lock, or of lost slots
	Queue   []waiter
}

// holder is a session that holds a lock, or a slot.
type holder struct {
	party
	Mode  string
	Fence uint64
	Since time.Time // zero: before the file was opened

	// WaitsFor are the locks that the session itself waits for, where that is looked for.
	WaitsFor []place
}

// place is a lock, as sessions name those that they hold or wait for.
type place struct {
	Key   string
	Limit int // of the semaphore; 0: it is none
}

// Name is what the lock is called.
func (p place) Name() string { return lockName(p.Key, p.Limit) }

// waiter is a call that waits.
type waiter struct {
	party
	Since time.Time
	All   int // how many locks it waits for at once
}

// limitSuffix is what a semaphore's key has behind the semaphore's prefix.
const limitSuffix = "/.lock"

// Name is what the lock is called: the key, or the prefix of a semaphore.
func (l lock) Name() string { return lockName(l.Key, l.Limit) }

func lockName(key string, limit int) string {
	if limit > 0 {
		return strings.TrimSuffix(key, limitSuffix)
	}
	return key
}

// Row is a name of the row, so that the page finds it again.
func (l lock) Row() string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(l.Key)) // never fails
	return fmt.Sprintf("k-%x", hash.Sum64())
}

// Mode is how the lock is held; empty if it is free.
func (l lock) Mode() string {
	if len(l.Holders) == 0 {
		return ""
	}
	return l.Holders[0].Mode
}

// modeExclusive is the mode of a lock that one session holds alone.
const modeExclusive = "exclusive"

// Waiting is the instant since when the first of the waiters waits; zero if there are none.
func (l lock) Waiting() time.Time {
	var first time.Time
	for _, w := range l.Queue {
		if first.IsZero() || w.Since.Before(first) {
			first = w.Since
		}
	}
	return first
}

// Held is the instant since when it is held by the oldest of its holders, if that is known.
func (l lock) Held() time.Time {
	var first time.Time
	for _, h := range l.Holders {
		if first.IsZero() || !h.Since.IsZero() && h.Since.Before(first) {
			first = h.Since
		}
	}
	return first
}

// add takes what is known of the lock, or of one slot.
func (l *lock) add(info lockd.LockInfo) {
	if !info.Holder.ID.IsZero() {
		l.Holders = append(l.Holders,
			holder{
				party: partyOf(info.Holder), Mode: modeExclusive, Fence: info.Fence,
				Since: info.Since,
			})
	}
	if !info.DelayedUntil.IsZero() {
		l.Delays = append(l.Delays, info.DelayedUntil.Round(0))
	}
	for _, w := range info.Queue {
		l.Queue = append(l.Queue, waiter{partyOf(w.Session), w.Since, len(w.Keys)})
	}
}

// sortHolders puts those first that have held it for longest.
func (l *lock) sortHolders() {
	slices.SortStableFunc(l.Holders, func(a, b holder) int { return cmp.Compare(a.Fence, b.Fence) })
}

// locksOf returns the locks with the prefix, in the order of their keys. The slots of a semaphore
// make one row with it.
func locksOf(db *lockd.DB, prefix string) []*lock {
	var locks []*lock
	semaphores := make(map[string]*lock)
	for info := range db.Locks() {
		key := semaphoreKey(info)
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		l := semaphores[key]
		if l == nil {
			l = &lock{Key: key, Limit: info.Limit}
			locks = append(locks, l)
		}
		if info.Limit > 0 {
			semaphores[key] = l
		}
		l.add(info)
	}
	for _, l := range semaphores {
		l.sortHolders()
	}
	return locks
}

// semaphoreKey is the key of the semaphore that the lock is a slot of, or else the lock's own.
func semaphoreKey(info lockd.LockInfo) string {
	if info.Limit == 0 || strings.HasSuffix(info.Key, limitSuffix) {
		return info.Key
	}
	return info.Key[:strings.LastIndexByte(info.Key, '/')] + limitSuffix
}

// lockAt returns what is known of one key: a lock, a slot, or a semaphore with all its slots.
func lockAt(db *lockd.DB, key string) lock {
	found := lock{Key: key}
	for info := range db.Locks() {
		if info.Key != key && semaphoreKey(info) != key {
			continue
		}
		if semaphoreKey(info) == key {
			found.Limit = info.Limit
		}
		found.add(info)
	}
	found.sortHolders()
	return found
}
