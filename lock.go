package lockd

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/lockd/lockd/internal/engine"
)

// KeyPolicy says what happens to a lock's key after Unlock.
type KeyPolicy uint8

// The policies.
const (
	// LeaveKey keeps it.
	LeaveKey KeyPolicy = KeyPolicy(engine.LeaveKey)
	// RemoveAfter deletes it, if the grant of this lock created it and no call has written to it
	// since. A lock that was taken over leaves it. If there are waiters, the first of them gets the
	// lock, on a key made anew.
	RemoveAfter KeyPolicy = KeyPolicy(engine.RemoveAfter)
)

// LockOptions adds to the taking of a lock. A nil *LockOptions and the zero value add nothing.
type LockOptions struct {
	// Value, if it is not nil, is written to the key with the lock, and Flags with it. Otherwise
	// the key keeps both.
	Value []byte
	Flags uint64

	// Key says what happens to the key after Unlock. The default is LeaveKey.
	Key KeyPolicy
}

// rules is o as the rules know it.
func (o *LockOptions) rules() engine.LockOptions {
	if o == nil {
		return engine.LockOptions{}
	}
	return engine.LockOptions{Value: o.Value, Flags: o.Flags, Policy: engine.KeyPolicy(o.Key)}
}

func (o *LockOptions) validate() error {
	switch {
	case o == nil:
		return nil
	case o.Key > RemoveAfter:
		return invalid("LockOptions.Key is %d, not a KeyPolicy", o.Key)
	case len(o.Value) > MaxValueSize:
		return invalid("LockOptions.Value has %d bytes, more than %d", len(o.Value), MaxValueSize)
	case o.Flags != 0 && o.Value == nil:
		return invalid("LockOptions.Flags is set, but is written only with a Value")
	}
	return nil
}

// Lock is the handle on a lock that is or was held, and the only way to release it. Its methods may
// be called by many goroutines. The zero value is not usable; Session.Lock, TryLock and LockAll
// give one.
type Lock struct {
	hold  engine.Hold
	ended EndedError // what Err returns; its cause is written before the end is told
	ending
	released bool // by Unlock; written before the end is told, and never after it
}

// newLock makes the memory of a lock that is about to be held.
func newLock() *Lock {
	l := new(Lock)
	l.hold.Owner = l
	return l
}

// lockOf returns the handle that the hold is part of.
func lockOf(hold *engine.Hold) *Lock { return hold.Owner.(*Lock) }

// session is the handle on the session that held the lock.
func (l *Lock) session() *Session { return handleOf(l.hold.Session).session }

// Key returns the key of the lock.
func (l *Lock) Key() string { return l.hold.Key }

// Sequencer returns the proof of this grant: for DB.If, or for a Guard.
func (l *Lock) Sequencer() Sequencer { return sequencerOf(l.hold.Sequencer()) }

// Done returns a channel that is closed when the lock is no longer held, no later than another
// caller is told of holding it (G10).
func (l *Lock) Done() <-chan struct{} { return l.ending.Done() }

// Err returns nil while the lock is held, and then an *EndedError with the cause: ErrUnlocked after
// Unlock. Lost tells a loss from that. DB.Close ends every handle, also if the file keeps the lock.
func (l *Lock) Err() error { return l.ending.Err() }

// lose tells the end of the lock. Only the first call counts. The caller holds the
// writer's mutex.
func (l *Lock) lose(cause error) {
	if l.ended.Cause == nil {
		l.ended = EndedError{SessionID(l.hold.Session.Row.ID), l.hold.Key, cause}
		l.end(&l.ended)
	}
}

// Context returns a child of parent that is cancelled when the lock is no longer held;
// context.Cause then returns what Err does.
func (l *Lock) Context(parent context.Context) context.Context {
	checkContext(parent)
	return l.ending.context(parent)
}

// Lock acquires the key's lock. It blocks until the lock is held and that is durable: until the
// holder has released it, or was lost and its lock-delay is over. Waiters are served in the order
// in which they began to wait (G9), also those of one session: two goroutines with one session
// exclude each other, and a goroutine that locks a key twice waits for itself.
//
// A lock that the session holds without a handle, by Txn.Lock or from before a restart, is taken
// over as it is, ahead of the waiters.
//
// If ctx ends first, the error is ctx's and also a *LockedError that says what was in the way. It
// is no *LockedError if ctx had ended before the call, or if only a commit was in the way.
func (s *Session) Lock(ctx context.Context, key string, opts *LockOptions) (*Lock, error) {
	var lock [1]*Lock
	if err := s.acquire(ctx, []string{key}, opts, lock[:]); err != nil {
		return nil, wrap("lock", key, err)
	}
	return lock[0], nil
}

// LockAll acquires the locks of all the keys, or none. It gets them in one transaction, when all
// are free and it is the first waiter of each. So callers that lock several keys at once, and hold
// none of them, never deadlock.
//
// A key for which the call is the first waiter stays free while another key is busy, and is refused
// to other callers (ObstacleQueue): a deadline bounds that. A lock that the session holds without a
// handle is taken over; one that has a handle is waited for.
//
// The locks come in the order of the keys. They share one fence, but for those that are taken over.
// LockAll blocks and fails as Lock does. A key named twice is ErrInvalid.
func (s *Session) LockAll(
	ctx context.Context, keys []string, opts *LockOptions,
) ([]*Lock, error) {
	locks := make([]*Lock, len(keys))
	if err := s.acquire(ctx, keys, opts, locks); err != nil {
		return nil, wrap("lock all", strings.Join(keys, ", "), err)
	}
	return locks, nil
}

// TryLock acquires the key's lock if it is free, as Lock does, and does not wait for it otherwise.
// It blocks until the answer is durable. If the lock is held, by this session too, delayed, or
// promised to waiters, it returns a *LockedError that says so.
func (s *Session) TryLock(key string, opts *LockOptions) (*Lock, error) {
	lock := newLock()
	err := checkKey(key)
	if err == nil {
		err = opts.validate()
	}
	if err != nil {
		err = s.db.refused(err)
	} else {
		err = s.db.update(func(tx *engine.Txn) error {
			return tx.TryLock(&lock.hold, &s.state, key, opts.rules())
		})
	}
	if err != nil {
		return nil, wrap("try lock", key, s.cause(err))
	}
	s.db.handed(lock)
	return lock, nil
}

// cause is the error of a call with the session: the end of the session, if that is why.
func (s *Session) cause(err error) error {
	if errors.Is(err, ErrNoSession) {
		return cmp.Or(s.Err(), err)
	}
	return err
}

// Unlock releases the lock; the first waiter is granted it in the same transaction. It sets no
// lock-delay (G7). It blocks until that is durable.
//
// It returns nil, also when repeated. If the lock was lost before, it changes nothing, and returns
// an error that is ErrNotHeld and wraps the cause. If the database was closed and its file keeps
// the lock, it returns ErrClosed. After ErrCommit the lock is still held, and Unlock may be called
// again.
func (l *Lock) Unlock() error { return wrap("unlock", l.Key(), l.unlock()) }

func (l *Lock) unlock() error {
	if l.Err() == nil {
		err := l.session().db.update(func(tx *engine.Txn) error {
			tx.Release(&l.hold)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if l.released {
		return nil
	}
	return l.Err()
}

// WithLock runs fn while it holds the key's lock. It acquires the lock as Lock does, calls fn on
// the caller's goroutine, and unlocks when fn has returned, panicked or called runtime.Goexit. fn
// gets a context that is cancelled when the lock is lost or ctx ends, and the proof of the lock.
// The key is deleted with the lock, as RemoveAfter says.
//
// It returns fn's error as it is. If the lock was lost before fn returned, the error is also
// ErrNotHeld and wraps the cause: the last work of fn may have been done without the lock. If the
// lock could not be acquired, fn is not called, and the error is Lock's. If Unlock fails, the error
// is Unlock's too; after ErrCommit the session holds the lock until it ends.
func (s *Session) WithLock(
	ctx context.Context, key string, fn func(ctx context.Context, proof Sequencer) error,
) error {
	checkFunction(fn)
	lock, err := s.Lock(ctx, key, &LockOptions{Key: RemoveAfter})
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			_ = lock.Unlock() // fn's panic is what its caller has to hear of
		}
	}()
	err = fn(lock.Context(ctx), lock.Sequencer())
	returned = true
	if unlocked := lock.Unlock(); unlocked != nil {
		return errors.Join(err, unlocked)
	}
	return err
}

// checkFunction refuses what is a caller's bug.
func checkFunction(fn func(ctx context.Context, proof Sequencer) error) {
	if fn == nil {
		panic("lockd: nil function")
	}
}

// ForceUnlock takes the lock from its holder. The holder's handle ends with ErrForced and the
// reason, and its session's lock-delay follows. It blocks until that is durable. The fence, as in
// Entry or LockedError, names the grant: if that has ended, ForceUnlock returns ErrNotHeld, and a
// later holder keeps the lock.
func (db *DB) ForceUnlock(key string, fence uint64, reason string) error {
	err := db.refused(checkKey(key))
	if err == nil {
		err = db.update(func(tx *engine.Txn) error { return tx.ForceUnlock(key, fence, reason) })
	}
	return wrap("force unlock", key, err)
}
