package lockd

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/internal/waitq"
)

// LockInfo describes the lock of one key: one that is held, delayed or waited for. A slot of a
// semaphore is the lock of its contender key. The zero value is none.
type LockInfo struct {
	Key string

	// Holder is the session that holds the lock; the zero SessionInfo if it is free. Fence is of
	// the grant, and Since is when that was: the zero time if it was before the file was opened.
	// Held is how long ago that is, and 0 if it is not known.
	Holder SessionInfo
	Fence  uint64
	Since  time.Time
	Held   time.Duration

	// DelayedUntil is the end of a lock-delay; the zero time if there is none.
	DelayedUntil time.Time

	// Limit is that of the semaphore, at the keys of one, and 0 at any other: at prefix/.lock,
	// where those wait who want a slot, and at prefix/session of each slot, held or lost and
	// delayed.
	Limit int

	// Queue has those who wait, the next to be served first.
	Queue []WaiterInfo
}

// WaiterInfo describes one call that waits for a lock. The zero value is none.
type WaiterInfo struct {
	Session SessionInfo
	Since   time.Time     // when the call began to wait
	Waited  time.Duration // how long ago that is

	// Keys are all the locks that the call waits for: several if it is LockAll, which gets them
	// together, and so may wait although this one is free.
	Keys []string
}

// Locks yields every lock that is held, delayed or waited for, in the order of the keys, as all of
// them are at the beginning of the loop. It shows what is durable: a grant that is still being
// committed is not one yet, and who is to have it still waits.
//
// It waits neither for the file nor for the function of an Update, and cannot fail. It takes the
// database's lock for a time in proportion to the number of these locks and of those who wait, and
// not while the loop runs. After Close it goes on answering.
func (db *DB) Locks() iter.Seq[LockInfo] {
	return func(yield func(LockInfo) bool) {
		seen, now := db.seen()
		slices.SortFunc(seen, func(a, b sight) int { return cmp.Compare(a.key, b.key) })
		limits := make(map[*schema.Key]roster)
		for i := range seen {
			info := seen[i].info(db, now)
			info.Limit = seen[i].limit(limits)
			if !yield(info) {
				return
			}
		}
	}
}

// sight is one lock as it was seen under mu: what does not change any more, to be described later.
type sight struct {
	key       string
	row       *schema.Key // nil: there is no such key
	holder    *schema.Session
	delay     *delay
	queue     []*waitq.Place[*waiter]
	semaphore *schema.Key // that it may be a key of; nil if there is none
}

// seen looks at all locks as they are published, and reads the clock.
func (db *DB) seen() ([]sight, time.Time) {
	db.mu.LockBeside()
	defer db.mu.Unlock()
	now := db.now()
	pending := db.pendingLocked()
	seen := make([]sight, 0, len(db.locks))
	see := func(key string, delay *delay, queue []*waitq.Place[*waiter]) {
		s := sight{key: key, row: db.store.Keys.Get(key), queue: queue}
		if s.row != nil && s.row.Session != (schema.ID{}) {
			s.holder = db.store.Sessions.Get(string(s.row.Session[:]))
		}
		if delay != nil && now.Before(delay.until) {
			s.delay = delay
		}
		if key == prefixOf(key)+semaphoreKey || !contenderOf(key).IsZero() {
			s.semaphore = db.store.Keys.Get(prefixOf(key) + semaphoreKey)
		}
		if s.holder != nil || s.delay != nil || len(s.queue) > 0 {
			seen = append(seen, s)
		}
	}
	for key, state := range db.locks {
		delay, queue := state.delay, slices.Collect(state.queue.Places())
		if p := pending[key]; p != nil {
			if p.replaces {
				delay = p.delay
			}
			queue = append(queue, p.aside...)
			delete(pending, key)
		}
		see(key, delay, queue)
	}
	for key, p := range pending {
		see(key, p.delay, p.aside)
	}
	return seen, now
}

// undecided is what the batches that are not durable yet change of one lock, beside its row.
type undecided struct {
	replaces bool // the lock-delay, which is published as delay
	delay    *delay
	aside    []*waitq.Place[*waiter] // of those who still wait until their outcome is told
}

// pendingLocked returns what is to be shown as it was before, by key; and every key that changed.
func (db *DB) pendingLocked() map[string]*undecided {
	p := make(pending)
	for _, b := range []*batch{db.flying, db.open} { // the older one first
		if b == nil {
			continue
		}
		for i := range b.events {
			if b.events[i].Space == spaceKeys {
				p.of(b.events[i].Name)
			}
		}
		p.addEffects(b.effects)
	}
	if tx := db.mu.guest.tx; tx != nil { // the function of its Update runs
		for _, key := range tx.passed {
			p.of(key)
		}
		p.addEffects(tx.effects)
	}
	return p
}

// pending is what is undecided, by key.
type pending map[string]*undecided

// of returns what is undecided of the key.
func (p pending) of(key string) *undecided {
	if p[key] == nil {
		p[key] = &undecided{}
	}
	return p[key]
}

// addEffects adds what the effects, which are later than those before, have changed.
func (p pending) addEffects(effects []effect) {
	for i := range effects {
		switch e := &effects[i]; e.kind {
		case delaySet:
			if u := p.of(e.delay.key); !u.replaces {
				u.replaces, u.delay = true, e.replaced
			}
		case waiterServed, waiterLeft:
			if e.waiter.left {
				continue
			}
			for j := range e.waiter.claims {
				c := &e.waiter.claims[j]
				u := p.of(c.key)
				u.aside = append(u.aside, &c.place)
			}
		}
	}
}

// limit returns that of the semaphore of which it is a slot, or the key. It reads each semaphore
// once, and keeps what it has read.
func (s *sight) limit(read map[*schema.Key]roster) int {
	if s.semaphore == nil {
		return 0
	}
	slots, ok := read[s.semaphore]
	if !ok {
		// What is no semaphore has the limit 0.
		slots, _ = rosterOf(prefixOf(s.key), s.semaphore)
		read[s.semaphore] = slots
	}
	if s.semaphore.Key == s.key || slots.has(s.row) || s.delay != nil && s.delay.slot {
		return slots.limit
	}
	return 0 // another client's, which has no slot yet
}

// info describes what was seen.
func (s *sight) info(db *DB, now time.Time) LockInfo {
	info := LockInfo{Key: s.key}
	if s.holder != nil {
		info.Holder, info.Fence = sessionInfo(s.holder), s.row.Fence
		if since := db.instant(s.row.Granted); !since.IsZero() {
			info.Since, info.Held = since.Round(0), lasted(since, now)
		}
	}
	if s.delay != nil {
		info.DelayedUntil = s.delay.until.Round(0)
	}
	slices.SortFunc(s.queue, func(a, b *waitq.Place[*waiter]) int {
		return cmp.Compare(a.Ticket(), b.Ticket())
	})
	for _, place := range s.queue {
		w := place.Waiter
		info.Queue = append(info.Queue, WaiterInfo{
			Session: w.session.Info(), Since: w.began.Round(0), Waited: lasted(w.began, now),
			Keys: w.keys(),
		})
	}
	return info
}
