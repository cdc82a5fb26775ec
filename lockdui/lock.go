package lockdui

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd"
)

// lock is a row of a table of locks: a lock, or a semaphore with all its slots.
type lock struct {
	Key   string // of a semaphore, the key that has its limit
	Limit int    // of the semaphore; 0: it is not one

	Holders []holder
	Delays  []lockDelay // of the lock, or of lost slots
	Queue   []waiter
}

// holder is a session that holds a lock, or a slot.
type holder struct {
	party
	grant
	Since time.Time     // zero: before the file was opened
	Delay time.Duration // the lock-delay that the loss of this grant begins; 0: none

	// WaitsFor are the locks that the session itself waits for, if that was looked up.
	WaitsFor []place
}

// grant identifies one of the grants that a session has of a lock.
type grant struct {
	Fence uint64
	Mode  lockd.LockMode
}

// Shared reports whether others may share the lock.
func (g grant) Shared() bool { return g.Mode == lockd.Shared }

// lockDelay is a lock-delay that lasts.
type lockDelay struct {
	Until time.Time
	Mode  lockd.LockMode // in which the lock was lost
}

// place names a lock that a session holds or waits for.
type place struct {
	Key   string
	Limit int // of the semaphore; 0: it is not one
}

// Name is what the lock is called.
func (p place) Name() string { return lockName(p.Key, p.Limit) }

// waiter is a call that waits for the lock, or for a slot.
type waiter struct {
	party
	Since time.Time
	Mode  lockd.LockMode // the mode that it asks for
	All   int            // the number of locks that it waits for at once
}

// limitSuffix follows the semaphore's prefix in its key.
const limitSuffix = "/.lock"

// Name is what the lock is called: the key, or the prefix of a semaphore.
func (l lock) Name() string { return lockName(l.Key, l.Limit) }

func lockName(key string, limit int) string {
	if limit > 0 {
		return strings.TrimSuffix(key, limitSuffix)
	}
	return key
}

// Row is the id of the row's element, by which the script finds the row in the next page.
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
	return l.Holders[0].Mode.String()
}

// Shared reports whether the lock is held in shared mode, by one holder or by more.
func (l lock) Shared() bool { return len(l.Holders) > 0 && l.Holders[0].Shared() }

// Mixed reports whether a holder or a waiter shares the lock, or asks to: then the page shows the
// mode of each.
func (l lock) Mixed() bool {
	return l.Shared() ||
		slices.ContainsFunc(l.Queue, func(w waiter) bool { return w.Mode == lockd.Shared })
}

// fence is what one call of ForceUnlock takes: the grants of one transaction, which have one fence.
type fence struct {
	Fence   uint64
	Holders []holder
}

// Fences are the fences of the holders, at most fencesShown of them.
func (l lock) Fences() []fence {
	var fences []fence
	for _, h := range l.Holders {
		if n := len(fences); n > 0 && fences[n-1].Fence == h.Fence {
			fences[n-1].Holders = append(fences[n-1].Holders, h)
		} else if n < fencesShown {
			fences = append(fences, fence{h.Fence, []holder{h}})
		}
	}
	return fences
}

const (
	fencesShown = 200
	namesShown  = 3 // of the holders with one fence
)

// Text names the holders.
func (f fence) Text() string {
	var names []string
	for _, h := range f.Holders[:min(len(f.Holders), namesShown)] {
		names = append(names, h.Text())
	}
	text := strings.Join(names, ", ")
	if more := more(f.Holders, namesShown); more != "" {
		text += " " + more
	}
	return text
}

// Delay is the lock-delay that begins when these holders lose the lock: the longest of their
// delays.
func (f fence) Delay() time.Duration {
	var longest time.Duration
	for _, h := range f.Holders {
		longest = max(longest, h.Delay)
	}
	return longest
}

// Waiting is when the waiter that has waited longest began to wait; zero if there is no waiter.
func (l lock) Waiting() time.Time {
	var first time.Time
	for _, w := range l.Queue {
		if first.IsZero() || w.Since.Before(first) {
			first = w.Since
		}
	}
	return first
}

// Held is when the holder that has held the lock longest was granted it; zero if that was before
// the file was opened, or if there are no holders.
func (l lock) Held() time.Time {
	if len(l.Holders) == 0 {
		return time.Time{}
	}
	first := l.Holders[0].Since
	for _, h := range l.Holders[1:] {
		if h.Since.Before(first) {
			first = h.Since
		}
	}
	return first
}

// add adds the holders, the delay and the waiters of info, which is the lock or one slot.
func (l *lock) add(info lockd.LockInfo) {
	for h := range holdersOf(info) {
		l.Holders = append(l.Holders, holder{
			party: partyOf(h.Session), grant: grant{h.Grant.Fence, h.Grant.Mode}, Since: h.Since,
			Delay: h.Session.LockDelay,
		})
	}
	if !info.DelayedUntil.IsZero() {
		l.Delays = append(l.Delays, lockDelay{info.DelayedUntil.Round(0), info.DelayedMode})
	}
	for _, w := range info.Queue {
		l.Queue = append(l.Queue, waiter{partyOf(w.Session), w.Since, w.Mode, len(w.Keys)})
	}
}

// holdersOf yields the holders of the lock, in either mode.
func holdersOf(info lockd.LockInfo) iter.Seq[lockd.Holder] {
	if len(info.Holders) > 0 || info.Holder.ID.IsZero() {
		return slices.Values(info.Holders)
	}
	return func(yield func(lockd.Holder) bool) {
		yield(lockd.Holder{
			Session: info.Holder, Grant: lockd.Sequencer{Fence: info.Fence}, Since: info.Since,
		})
	}
}

// sortHolders sorts the holders by their grants, the oldest first.
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
