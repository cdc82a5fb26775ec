package lockd

import (
	"errors"
	"fmt"

	"github.com/lockd/lockd/internal/schema"
)

// checkLocked compares what is kept beside the rows with the rows.
func (db *DB) checkLocked() error {
	if err := db.store.Check(); err != nil {
		return err
	}
	held := 0
	for key, row := range db.store.Keys.Ascend("") {
		if row.Session == (schema.ID{}) {
			continue
		}
		held++
		if err := db.checkHeld(key, row); err != nil {
			return err
		}
	}
	for key, state := range db.locks {
		if state.session != nil {
			held--
		}
		if err := db.checkState(key, state); err != nil {
			return err
		}
	}
	if held != 0 {
		return fmt.Errorf("bug: %d more keys are locked than sessions hold", held)
	}
	if err := errors.Join(db.checkSemaphores(), db.checkStats()); err != nil {
		return err
	}
	beats := 0
	for key, row := range db.store.Checks.Ascend("") {
		if !lapses(row) {
			continue
		}
		beats++
		if b := db.heartbeats[key]; b == nil || !b.due.Queued() {
			return fmt.Errorf("bug: check %q has a TTL but no deadline", key)
		}
	}
	if n := len(db.heartbeats); n != beats {
		return fmt.Errorf("bug: %d checks have a deadline, but %d a TTL", n, beats)
	}
	return db.checkSessions()
}

// checkStats compares what is counted with what there is, if all of that is published.
func (db *DB) checkStats() error {
	if db.undecidedLocked() != nil {
		return nil
	}
	locks, waiters := 0, 0
	for _, s := range db.sessions {
		for state := s.held; state != nil; state = state.next {
			locks++
		}
		for w := range s.waiters() {
			if !w.left {
				waiters++
			}
		}
	}
	got, want := db.stats, db.stats
	want.Keys, want.Sessions = db.store.Keys.Len(), db.store.Sessions.Len()
	want.Locks, want.Waiters = locks, waiters
	if got != want {
		return fmt.Errorf("bug: counted %+v, found %+v", got, want)
	}
	return nil
}

// checkHeld checks a key that is locked.
func (db *DB) checkHeld(key string, row *schema.Key) error {
	state := db.locks[key]
	if state == nil || state.session == nil || state.session.row.ID != row.Session {
		return fmt.Errorf("bug: key %q is locked, but its session does not know", key)
	}
	if !state.session.live {
		return fmt.Errorf("bug: key %q is locked by a session that has ended", key)
	}
	if handle := state.handle; handle != nil && handle.Sequencer() != entryOf(row).Sequencer() {
		return fmt.Errorf("bug: key %q has the handle of another grant", key)
	}
	return nil
}

// checkState checks what is known of a key's lock.
func (db *DB) checkState(key string, state *lockState) error {
	if state.key != key {
		return fmt.Errorf("bug: key %q has the state of %q", key, state.key)
	}
	if state.session == nil && state.handle != nil {
		return fmt.Errorf("bug: key %q is free, but has a handle", key)
	}
	place := state.queue.Front()
	if place == nil || db.unserved {
		return nil
	}
	if s := state.session; s != nil && state.handle == nil {
		if own := s.firstFor(key); own != nil && !own.slot && len(own.claims) == 1 {
			return fmt.Errorf("bug: key %q is held by the session of a call that waits for it", key)
		}
	}
	if place.Waiter.slot {
		return db.checkWaits(state)
	}
	if state.session != nil || state.delay != nil {
		return nil
	}
	// A free key with a queue exists only while its first waiter waits for other keys too.
	if len(place.Waiter.claims) == 1 {
		return fmt.Errorf("bug: key %q is free, but not given to who waits for it", key)
	}
	return nil
}

// checkWaits checks the first who waits for a slot, and not for a delay of its own.
func (db *DB) checkWaits(state *lockState) error {
	var w *waiter
	for w = range state.queue.All() {
		if !w.slot {
			return nil // it waits for the lock of the semaphore's key
		}
		own := db.locks[contenderKey(w.prefix(), w.session.ID())]
		if own == nil || own.delay == nil {
			break
		}
		w = nil
	}
	if w == nil {
		return nil
	}
	key := state.key
	slots, err := rosterOf(w.prefix(), db.store.Keys.Newest(key))
	if err != nil {
		return fmt.Errorf("bug: %q is no semaphore, but somebody waits for it", key)
	}
	if slots.limit == 0 { // it was deleted, but the slots that were lost still count
		slots.limit = w.limit
	}
	taken := len(db.semaphores[w.prefix()].lost)
	for id := range slots.holders {
		row := db.store.Keys.Newest(contenderKey(w.prefix(), id))
		if row != nil && SessionID(row.Session) == id {
			taken++
		}
	}
	if taken < slots.limit {
		return fmt.Errorf("bug: %q has a slot, but does not give it to who waits", key)
	}
	return nil
}

// checkSemaphores compares what is kept beside the rows of semaphores with them.
func (db *DB) checkSemaphores() error {
	for prefix, sem := range db.semaphores {
		slots, err := rosterOf(prefix, db.store.Keys.Newest(prefix+semaphoreKey))
		for lock := range sem.slots {
			if err != nil || !slots.holders[lock.session.ID()] ||
				db.locks[lock.Key()] == nil || db.locks[lock.Key()].handle != lock {
				return fmt.Errorf("bug: %q is held, but the semaphore does not know",
					lock.Key())
			}
		}
		for lost := range sem.lost {
			if db.locks[lost.key] == nil || db.locks[lost.key].delay != lost {
				return fmt.Errorf("bug: %q counts as lost, but is not delayed", lost.key)
			}
		}
		if len(sem.slots)+len(sem.lost)+sem.waiting == 0 {
			return fmt.Errorf("bug: nothing is known of semaphore %q", prefix)
		}
	}
	return nil
}

func (db *DB) checkSessions() error {
	live := 0
	for id, s := range db.sessions {
		if s.live {
			live++
		}
		if s.live != (db.store.Sessions.Newest(string(id[:])) != nil) {
			return fmt.Errorf("bug: session %s has no row, or has ended and has one", id)
		}
		var prev *lockState
		for state := s.held; state != nil; state = state.next {
			if state.session != s || state.prev != prev || db.locks[state.key] != state {
				return fmt.Errorf("bug: the list of what session %s holds is broken", id)
			}
			prev = state
		}
		if s.live && s.life > 0 && !s.expires.Queued() {
			return fmt.Errorf("bug: session %s has a TTL but no deadline", id)
		}
	}
	if live != db.store.Sessions.Len() {
		return fmt.Errorf("bug: %d sessions live, %d have rows", live, db.store.Sessions.Len())
	}
	return nil
}
