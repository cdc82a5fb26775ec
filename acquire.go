package lockd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/writer"
)

// request is what one call asks for: one lock, several at once, or a slot of a semaphore. The keys
// of the locks, or the semaphore's key, are a separate argument: the slice stays the caller's.
type request struct {
	session *Session
	opts    engine.LockOptions
	carried *engine.Carried // the locks that the call's context carries
	maxHold time.Duration   // of each lock; 0: no limit
	slot    bool            // the request is for a slot of a semaphore, not for locks
	limit   int             // of the semaphore, as the call gave it; 0: any limit
}

// waiter is a call that waits. For one key, the waiter and its lock are one allocation.
type waiter struct {
	engine.Waiter
	done chan struct{} // closed when the locks and Err are final
	lock Lock          // of the first key
}

// waiterOf returns the waiter that contains w.
func waiterOf(w *engine.Waiter) *waiter { return w.Owner.(*waiter) }

// acquire acquires all the locks or none, and waits if need be. It puts them into locks, which has
// one element for each key.
func (s *Session) acquire(
	ctx context.Context, keys []string, opts *LockOptions, locks []*Lock,
) error {
	r := request{session: s, opts: opts.rules(), maxHold: opts.maxHold()}
	return r.acquire(ctx, cmp.Or(checkKeys(keys), opts.validate()), keys, locks)
}

// acquire does what the request asks for, and waits if need be. fault is why the arguments of the
// call are refused, or nil.
func (r *request) acquire(
	ctx context.Context, fault error, keys []string, locks []*Lock,
) error {
	mustHave(ctx != nil, "context")
	if err := ctx.Err(); err != nil {
		return err
	}
	db := r.session.db
	if fault != nil {
		return db.refused(fault)
	}
	// ctx may be of the user's own type, and panic. So Value and Done are called once, before the
	// writer's mutex is locked, and Err only when nothing is left to give up.
	r.carried = carriedBy(ctx)
	done := ctx.Done()
	var queued *waiter
	outcome, waits := db.writer.Start(done, func(tx *engine.Txn) (bool, error) {
		var err error
		queued, err = r.do(tx, keys, locks)
		return queued != nil, err
	})
	var err error
	if waits {
		err = db.await(ctx, done, queued, locks)
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

// do grants the request at once if it can, and queues it otherwise.
func (r *request) do(tx *engine.Txn, keys []string, locks []*Lock) (*waiter, error) {
	if r.slot {
		locks[0] = newLock(0)
		prefix := engine.PrefixOf(keys[0])
		blocked, err := tx.Acquire(&locks[0].hold, &r.session.state, prefix, r.limit)
		if err != nil || blocked == nil {
			return nil, err
		}
		return r.queue(tx, keys)
	}
	free, err := tx.Free(&r.session.state, keys, r.opts.Mode, r.carried)
	if err != nil {
		return nil, err
	}
	if !free {
		return r.queue(tx, keys)
	}
	for i, key := range keys {
		locks[i] = newLock(r.maxHold)
		tx.Hold(&locks[i].hold, &r.session.state, key, r.opts)
	}
	return nil, nil
}

// queue queues the request, unless it would wait for ever.
func (r *request) queue(tx *engine.Txn, keys []string) (*waiter, error) {
	w := &waiter{done: make(chan struct{})}
	w.Owner, w.Session, w.Options, w.Carried = w, &r.session.state, r.opts, r.carried
	w.Slot, w.Limit = r.slot, int32(r.limit) // at most MaxLimit
	if err := tx.Wait(&w.Waiter, keys); err != nil {
		return nil, err
	}
	w.lock.prepare(r.maxHold)
	w.SetHold(0, &w.lock.hold)
	for i := 1; i < len(keys); i++ {
		w.SetHold(i, &newLock(r.maxHold).hold)
	}
	r.session.db.waitsMoved()
	return w, nil
}

// await waits until w's outcome is final or ctx, whose Done is given, ends, and puts the granted
// locks into locks.
func (db *DB) await(
	ctx context.Context, done <-chan struct{}, w *waiter, locks []*Lock,
) error {
	var keys []string
	if db.hooks.Turns != nil {
		keys = w.Keys()
	}
	end := db.writer.Wait(hook.Locks, keys)
	select {
	case <-w.done:
		end()
	case <-done:
		end()
		// Both may be ready: a final outcome wins, and withdraw checks for it under the mutex.
		if blocked, gone := db.withdraw(w); gone {
			return gaveUp(ctx.Err(), len(locks), blocked)
		}
		<-w.done
	}
	if w.Err != nil {
		return w.Err
	}
	for i := range locks {
		locks[i] = lockOf(w.Hold(i))
	}
	return nil
}

// withdraw removes the waiter, unless its outcome is final, and returns what was in its way. A
// grant that is decided but not final is released; the release joins the open batch, and no call
// waits for its commit.
func (db *DB) withdraw(w *waiter) (blocked *engine.Blocked, gone bool) {
	db.writer.DoSoon(func(tx *engine.Txn) {
		if !w.Settled() {
			blocked, gone = tx.Withdraw(&w.Waiter), true
			db.waitsMoved()
		}
	})
	return blocked, gone
}

// gaveUp is the error of a call whose context ended while it waited for the given number of locks:
// the context's error, and what was in the way.
func gaveUp(ended error, locks int, blocked *engine.Blocked) error {
	switch {
	case blocked == nil:
		return writer.BeforeDurable(ended)
	case locks > 1:
		return fmt.Errorf("%w: key %q is %w", ended, blocked.Key, lockedError(blocked))
	}
	return fmt.Errorf("%w: %w", ended, lockedError(blocked))
}

// Lock acquires the key's lock. It blocks until the holder has released it, or was lost and its
// lock-delay is over. Waiters are served in order (G9), including waiters of one session: two
// goroutines with one session exclude each other, and a goroutine that locks a key twice waits for
// itself, unless both calls share the lock. A lock that the session holds in this mode without a
// handle, by Txn.Lock or from before a restart, is taken over as it is, ahead of the waiters (R7).
//
// The end of ctx ends the wait, never the lock. If ctx ends first, the error is also a *LockedError
// that says what was in the way, unless ctx had ended before the call or only a commit was in the
// way. If ctx carries the locks that its goroutine holds, a call that would wait for ever is
// refused with a *DeadlockError (R14).
func (s *Session) Lock(ctx context.Context, key string, opts *LockOptions) (*Lock, error) {
	var lock [1]*Lock
	err := s.acquire(ctx, []string{key}, opts, lock[:])
	return result(lock[0], "lock", key, err)
}

// LockAll acquires the locks of all the keys, in one transaction, when all are free and the call is
// the first waiter for each. While another of them is not free, a free lock is promised to the call
// if it is the first waiter: others are refused the lock (ObstacleQueue) or wait behind, except
// those that pass the call (G9). So sessions that lock keys in the same order, by LockAll or one by
// one, never wait for each other for ever (R13).
//
// LockAll takes over a lock that the session holds without a handle, and waits for a lock that has
// a handle. The locks come in the order of the keys, and share one fence, except those that were
// taken over. LockAll fails as Lock does. A key named twice is ErrInvalid.
func (s *Session) LockAll(
	ctx context.Context, keys []string, opts *LockOptions,
) ([]*Lock, error) {
	locks := make([]*Lock, len(keys))
	if err := s.acquire(ctx, keys, opts, locks); err != nil {
		return nil, wrap("lock all", strings.Join(keys, ", "), err)
	}
	return locks, nil
}

// TryLock acquires the key's lock as Lock does if it need not wait. Otherwise it returns a
// *LockedError, also if this session is the holder.
func (s *Session) TryLock(key string, opts *LockOptions) (*Lock, error) {
	lock := newLock(opts.maxHold())
	err := s.try(lock, func(tx *engine.Txn) error {
		if err := cmp.Or(checkKey(key), opts.validate()); err != nil {
			return err
		}
		return tx.TryLock(&lock.hold, &s.state, key, opts.rules())
	})
	return result(lock, "try lock", key, err)
}

// try takes the lock by one write, which does not wait for it.
func (s *Session) try(lock *Lock, take func(tx *engine.Txn) error) error {
	err := s.db.update(take)
	if err == nil {
		s.db.handed(lock)
	}
	return s.cause(err)
}

// cause returns err, or the end of the session if err is that there is no session.
func (s *Session) cause(err error) error {
	if errors.Is(err, ErrNoSession) {
		return cmp.Or(s.Err(), err)
	}
	return err
}

// WithLock acquires the key's lock as Lock does, calls fn on the caller's goroutine, and unlocks
// when fn has returned, panicked or called runtime.Goexit. fn gets the proof of the lock, and a
// context that is cancelled when the lock is lost or ctx ends. With nil opts the key is deleted
// with the lock (RemoveAfter).
//
// It returns fn's error as it is. If the lock ended before fn returned, the error is also
// ErrNotHeld and the cause. If Unlock fails, the error is Unlock's too; after ErrCommit the next
// commit that succeeds releases the lock.
func (s *Session) WithLock(
	ctx context.Context, key string, opts *LockOptions,
	fn func(ctx context.Context, proof Sequencer) error,
) error {
	mustHave(fn != nil, "function")
	if opts == nil {
		opts = &LockOptions{Key: RemoveAfter}
	}
	lock, err := s.Lock(ctx, key, opts)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			_ = lock.abandon() // the caller has to hear of fn's panic, not of this error
		}
	}()
	err = fn(lock.Context(ctx), lock.Sequencer())
	returned = true
	return joined(err, wrap("unlock", key, lock.abandon()))
}
