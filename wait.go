package lockd

import (
	"context"
	"fmt"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/writer"
)

// request is what one call asks for: one lock, several at once, or a slot of a semaphore. The keys
// whose locks it wants, or the one of the semaphore, are handed on beside it: they stay the
// caller's.
type request struct {
	session *Session
	opts    engine.LockOptions
	slot    bool // of a semaphore is what it wants, and not locks
	limit   int  // of the semaphore, as the call named it; 0: whatever it is
}

// waiter is a call that waits. It is one piece of memory, the lock that it gets included, for one
// key.
type waiter struct {
	engine.Waiter
	told  chan struct{} // closed when the locks and Err are final
	locks []*Lock       // one for each key
	one   [1]*Lock
	lock  Lock
}

// waiterOf returns what the call waits with.
func waiterOf(w *engine.Waiter) *waiter { return w.Owner.(*waiter) }

// acquire takes all the locks or none, and waits for them if need be. It puts them into locks,
// which has room for one of each key.
func (s *Session) acquire(
	ctx context.Context, keys []string, opts *LockOptions, locks []*Lock,
) error {
	checkContext(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkKeys(keys); err != nil {
		return s.db.refused(err)
	}
	if err := opts.validate(); err != nil {
		return s.db.refused(err)
	}
	return s.db.acquire(ctx, request{session: s, opts: opts.rules()}, keys, locks)
}

// acquire does what the request asks for, and waits if need be.
func (db *DB) acquire(ctx context.Context, r request, keys []string, locks []*Lock) error {
	var queued *waiter
	// The context, whose type may be the user's, is asked before the writer's mutex is locked.
	outcome, waits := db.writer.Start(ctx.Done(), func(tx *engine.Txn) (bool, error) {
		var err error
		queued, err = r.do(tx, keys, locks)
		return queued != nil, err
	})
	var err error
	if waits {
		err = db.await(ctx, queued, locks)
	} else {
		err = outcome.Wait(ctx, func(tx *engine.Txn) {
			for _, lock := range locks {
				tx.GiveUp(&lock.hold)
			}
		})
	}
	if err == nil {
		db.handed(locks...)
	}
	return r.session.cause(err)
}

func checkKeys(keys []string) error {
	if len(keys) == 0 {
		return invalid("no keys are named")
	}
	if len(keys) == 1 {
		return checkKey(keys[0])
	}
	seen := make(map[string]struct{}, len(keys))
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return fmt.Errorf("%w (number %d of %d)", err, i+1, len(keys))
		}
		if _, twice := seen[key]; twice {
			return invalid("key %q is named twice", key)
		}
		seen[key] = struct{}{}
	}
	return nil
}

// do does what the request asks for at once if it can, and queues otherwise.
func (r *request) do(tx *engine.Txn, keys []string, locks []*Lock) (*waiter, error) {
	if r.slot {
		lock := newLock()
		prefix := keys[0][:len(keys[0])-len(engine.SemaphoreKey)]
		blocked, err := tx.Acquire(&lock.hold, &r.session.state, prefix, r.limit)
		if err != nil {
			return nil, err
		}
		if blocked == nil {
			locks[0] = lock
			return nil, nil
		}
		return r.queue(tx, keys), nil
	}
	free, err := tx.Free(&r.session.state, keys)
	if err != nil {
		return nil, err
	}
	if !free {
		return r.queue(tx, keys), nil
	}
	for i, key := range keys {
		locks[i] = newLock()
		tx.Hold(&locks[i].hold, &r.session.state, key, r.opts)
	}
	return nil, nil
}

// queue has the request wait.
func (r *request) queue(tx *engine.Txn, keys []string) *waiter {
	w := &waiter{told: make(chan struct{})}
	w.Owner, w.Session, w.Options = w, &r.session.state, r.opts
	w.Slot, w.Limit = r.slot, r.limit
	w.locks = w.one[:]
	if len(keys) > 1 {
		w.locks = make([]*Lock, len(keys))
	}
	w.lock.hold.Owner = &w.lock
	w.locks[0] = &w.lock
	for i := 1; i < len(w.locks); i++ {
		w.locks[i] = newLock()
	}
	tx.Wait(&w.Waiter, keys)
	for i, lock := range w.locks {
		w.SetHold(i, &lock.hold)
	}
	r.session.db.waitsMoved()
	return w
}

// await waits until the waiter is told, or ctx ends, and puts what it was granted into locks.
func (db *DB) await(ctx context.Context, w *waiter, locks []*Lock) error {
	var keys []string
	if db.hooks != nil {
		keys = w.Keys()
	}
	over := db.writer.Wait(hook.Locks, keys)
	select {
	case <-w.told:
		over()
	case <-ctx.Done():
		over()
		// Both may be ready: what was told wins, and withdraw sees which it is.
		if blocked, gone := db.withdraw(w); gone {
			return gaveUp(ctx.Err(), len(w.locks), blocked)
		}
		<-w.told
	}
	if w.Err != nil {
		return w.Err
	}
	copy(locks, w.locks)
	return nil
}

// withdraw takes the waiter out, unless it has been told, and returns what was in its way. A grant
// that is decided and not told is released; that joins the open batch, and no call here waits for
// it.
func (db *DB) withdraw(w *waiter) (blocked *engine.Blocked, gone bool) {
	db.writer.DoSoon(func(tx *engine.Txn) {
		if !w.Settled() {
			blocked, gone = tx.Withdraw(&w.Waiter), true
			db.waitsMoved()
		}
	})
	return blocked, gone
}

// gaveUp is what a call for so many locks returns that has waited, when its context has ended: that
// error, and what was in the way.
func gaveUp(ended error, locks int, blocked *engine.Blocked) error {
	switch {
	case blocked == nil:
		return writer.BeforeDurable(ended)
	case locks > 1:
		return fmt.Errorf("%w: key %q is %w", ended, blocked.Key, lockedError(blocked))
	}
	return fmt.Errorf("%w: %w", ended, lockedError(blocked))
}
