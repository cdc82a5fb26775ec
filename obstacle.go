package lockd

import (
	"fmt"

	"github.com/lockd/lockd/internal/schema"
)

// gaveUp is what a call that has waited returns when its context has ended: that error, and what
// was in the way.
func gaveUp(ended error, w *waiter, obstacle *LockedError) error {
	switch {
	case obstacle == nil:
		return beforeDurable(ended)
	case len(w.claims) > 1:
		return fmt.Errorf("%w: key %q is %w", ended, obstacle.Key, obstacle)
	}
	return fmt.Errorf("%w: %w", ended, obstacle)
}

// beforeDurable is what a call returns whose context has ended while only a commit was in the way.
func beforeDurable(ended error) error {
	return fmt.Errorf("%w, before the answer was durable", ended)
}

// obstacle returns what is in the way of a waiter in the published state, or nil if only a commit
// is. What is newer is not durable, and the waiter is about to leave without waiting for that (G3).
func (tx *Txn) obstacle(w *waiter) *LockedError {
	if w.slot {
		return tx.slotObstacle(w)
	}
	for i := range w.claims {
		if refusal := tx.lockObstacle(w, &w.claims[i]); refusal != nil {
			return refusal
		}
	}
	return nil
}

// lockObstacle returns what is in the way of a waiter's claim to a lock.
func (tx *Txn) lockObstacle(w *waiter, c *claim) *LockedError {
	db := tx.db
	if refusal := tx.delayed(c.key); refusal != nil && db.isPublished(c.state.delay) {
		refusal.Waiters = db.ahead(c)
		return refusal
	}
	refusal := &LockedError{Key: c.key, Waiters: db.ahead(c)}
	row := db.store.Keys.Get(c.key)
	switch {
	case row != nil && row.Session != schema.ID{}:
		if row.Session == w.session.row.ID && db.takesOver(w, c) {
			return nil
		}
		refusal.Obstacle = ObstacleHolder
		tx.describeHolder(refusal, w.session, row)
	case refusal.Waiters > 0:
		refusal.Obstacle = ObstacleQueue
	default:
		return nil
	}
	return refusal
}

// takesOver reports whether the waiter is the one to take over the lock, which its session holds,
// or has done so.
func (db *DB) takesOver(w *waiter, c *claim) bool {
	if c.state.handle == nil {
		return w.session.firstFor(c.key) == w
	}
	return c.state.handle == &c.lock
}

// slotObstacle returns what is in the way of a waiter for a slot.
func (tx *Txn) slotObstacle(w *waiter) *LockedError {
	db, c := tx.db, &w.claims[0]
	own := contenderKey(w.prefix(), w.session.ID())
	if refusal := tx.delayed(own); refusal != nil && db.isPublished(db.lockOf(own).delay) {
		refusal.Waiters = db.ahead(c)
		return refusal
	}
	slots, err := rosterOf(w.prefix(), db.store.Keys.Get(c.key))
	if err == nil {
		err = slots.begin(w.limit)
	}
	if err != nil {
		return nil // it is no semaphore any more: the waiter was about to be told
	}
	refusal := &LockedError{
		Key: c.key, Obstacle: ObstacleSlots, Limit: slots.limit, Waiters: db.ahead(c),
	}
	taken := tx.countLost(refusal, slots.prefix, db.isPublished)
	for range slots.held(db.store.Keys.Get) {
		taken++
	}
	switch {
	case taken >= slots.limit:
		tx.nameHolder(refusal, w.session, slots.held(db.store.Keys.Get))
		return refusal
	case refusal.Waiters > 0:
		return &LockedError{
			Key: c.key, Obstacle: ObstacleQueue, Limit: slots.limit, Waiters: refusal.Waiters,
		}
	}
	return nil
}

// isPublished reports whether the delay is the one that the key's published row is of.
func (db *DB) isPublished(d *delay) bool {
	row := db.store.Delays.Get(d.key)
	return row != nil && row.Until.Equal(d.until.Round(0))
}

// maxAhead is how many of those in front of a waiter that gives up are counted: a crowd whose
// contexts end together would stop writers for a time in proportion to its square.
const maxAhead = 1000

// ahead returns how many wait in front of the claim's place. Those whose outcome is decided and not
// yet durable wait on until they are told.
func (db *DB) ahead(c *claim) int {
	n := c.place.Ahead(maxAhead)
	for _, b := range [...]*batch{db.flying, db.open} {
		if b == nil {
			continue
		}
		for i := range b.effects {
			e := &b.effects[i]
			if e.kind == waiterServed || e.kind == waiterLeft {
				n += e.waiter.asideBefore(c)
			}
		}
	}
	return min(n, maxAhead)
}

// asideBefore returns 1 if a waiter that is set aside came to the claim's key before that, and its
// call still waits.
func (w *waiter) asideBefore(c *claim) int {
	if w.left {
		return 0
	}
	for i := range w.claims {
		other := &w.claims[i]
		if other.state == c.state && other.place.Ticket() < c.place.Ticket() {
			return 1
		}
	}
	return 0
}
