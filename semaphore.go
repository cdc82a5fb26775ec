package lockd

import (
	"context"
	"path"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Slot is the handle on a slot of a semaphore that is or was held, and the only way to release it.
type Slot struct {
	lock *Lock // of the contender key
}

// Prefix returns the prefix that names the semaphore.
func (s *Slot) Prefix() string { return engine.PrefixOf(s.lock.Key()) }

// Sequencer returns the proof of the slot, for DB.If and DB.CheckSequencer. Do not give it to a
// Guard: slots are held at the same time, so a smaller fence does not mean a late write. For a
// resource that compares fences the holder of a slot needs a lock as well.
func (s *Slot) Sequencer() Sequencer { return s.lock.Sequencer() }

// Done is as Lock.Done (G10).
func (s *Slot) Done() <-chan struct{} { return s.lock.Done() }

// Err is as Lock.Err. It is ErrUnlocked after Release, and after a client removed the session from
// the holders of the semaphore.
func (s *Slot) Err() error { return s.lock.Err() }

// Context is as Lock.Context.
func (s *Slot) Context(parent context.Context) context.Context { return s.lock.Context(parent) }

// Release releases the slot, as Lock.Unlock releases a lock.
func (s *Slot) Release() error { return wrap("release", s.Prefix(), s.lock.unlock()) }

// Acquire acquires a slot of the semaphore that the prefix names. It blocks until fewer than limit
// slots are held, counting the lost slots that are in their lock-delay (G9). A session has at most
// one slot of a semaphore. One that it holds without a handle, as after a restart, is taken over.
//
// The first call creates the semaphore, with its limit. After that a limit of 0 means the
// semaphore's own, and any other has to equal it; SetLimit changes it. If the semaphore is deleted
// while the call waits, the call creates it again with its limit. Consul's official client can
// share the semaphore, outside the queue and the lock-delays: prefix/.lock has the limit and the
// holders, and each holder locks prefix/session (doc/semantics.md). Do not lock prefix/.lock
// itself: a call that waits for that lock stands in the queue for slots, and counts as a waiter for
// a slot. A deadlock among calls that wait for that lock and for slots is not found.
//
// It fails as Session.Lock does. It also returns ErrInvalid for a limit that is not between 0 and
// 2^20, and for a prefix that is not a clean path; ErrConflict if the limit is not the semaphore's,
// if prefix/.lock has a foreign value, or if the session has a slot or waits for one; and a
// *LockedError if another session holds the lock of prefix/session.
func (s *Session) Acquire(ctx context.Context, prefix string, limit int) (*Slot, error) {
	r := request{session: s, slot: true, limit: limit}
	keys := []string{prefix + engine.SemaphoreKey}
	var lock [1]*Lock
	err := r.acquire(ctx, checkSemaphore(prefix, limit, 0), keys, lock[:])
	return result(&Slot{lock[0]}, "acquire", prefix, err)
}

// TryAcquire acquires a slot as Acquire does if one is free. Otherwise it returns a *LockedError,
// even if only the session's own key prefix/session is delayed.
func (s *Session) TryAcquire(prefix string, limit int) (*Slot, error) {
	lock := newLock(0)
	err := s.try(lock, func(tx *engine.Txn) error {
		if err := checkSemaphore(prefix, limit, 0); err != nil {
			return err
		}
		return tx.TryAcquire(&lock.hold, &s.state, prefix, limit)
	})
	return result(&Slot{lock}, "try acquire", prefix, err)
}

// SetLimit sets the limit of the semaphore, between 1 and 2^20, and creates the semaphore if need
// be. If the limit rises, waiters are granted the new slots in the same transaction; if it falls,
// holders keep theirs. It refuses what Acquire refuses.
func (db *DB) SetLimit(prefix string, limit int) error {
	return wrap("set limit", prefix, db.update(func(tx *engine.Txn) error {
		if err := checkSemaphore(prefix, limit, 1); err != nil {
			return err
		}
		return tx.SetLimit(prefix, limit)
	}))
}

// checkSemaphore refuses a prefix that cannot name a semaphore, and a limit below the least or too
// large. The official client cleans paths: a prefix that is not clean would name another key there,
// and so another semaphore.
func checkSemaphore(prefix string, limit, least int) error {
	if err := engine.CheckName("prefix", prefix); err != nil {
		return err
	}
	key := prefix + engine.SemaphoreKey
	if clean := path.Join(prefix, engine.SemaphoreKey); clean != key {
		return invalid("prefix is not a clean path: its key would be %.100q, not %.100q", clean,
			key)
	}
	if longest := MaxKeySize - 1 - schema.UUIDSize; len(prefix) > longest {
		return invalid("prefix has %d bytes, more than %d", len(prefix), longest)
	}
	if limit < least || limit > engine.MaxLimit {
		return invalid("limit is %d, not between %d and %d", limit, least, engine.MaxLimit)
	}
	return nil
}
