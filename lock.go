package lockd

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/lockd/lockd/internal/engine"
)

// KeyPolicy says what becomes of a lock's key after Unlock.
type KeyPolicy uint8

// The policies.
const (
	// LeaveKey keeps it.
	LeaveKey KeyPolicy = KeyPolicy(engine.LeaveKey)
	// RemoveAfter deletes it, if this lock created it when it was granted and nobody has written to
	// it since; a lock that was taken over did not. If others wait, the first of them gets it made
	// anew. Fences do not depend on the key.
	RemoveAfter KeyPolicy = KeyPolicy(engine.RemoveAfter)
)

// LockOptions adds to the taking of a lock. A nil *LockOptions and the zero value add nothing.
type LockOptions struct {
	// Value, if it is not nil, is written to the key with the lock, and Flags with it. Else the
	// key keeps both.
	Value []byte
	Flags uint64

	// Key says what becomes of the key after Unlock. The default is LeaveKey.
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

// Lock is a lock that is held, or was: having one is the only way to release it. A lock has at
// most one. Its methods may be called by many goroutines. The zero value is not usable;
// Session.Lock, TryLock and LockAll give one.
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

// Key is the key of the lock.
func (l *Lock) Key() string { return l.hold.Key }

// Sequencer proves the lock: to lockd by DB.If, to anybody else through a Guard.
func (l *Lock) Sequencer() Sequencer { return sequencerOf(l.hold.Sequencer()) }

// Done returns a channel that is closed when the lock is no longer held: no later than anybody
// else is told of holding it (G10).
func (l *Lock) Done() <-chan struct{} { return l.ending.Done() }

// Err returns nil while the lock is held, and then an *EndedError with the cause, ErrUnlocked
// after Unlock; Lost tells a loss from that. The end of the database is one for this handle, also
// if the file keeps the lock: see DB.Close.
func (l *Lock) Err() error { return l.ending.Err() }

// lose tells the end of the lock. Only the first call counts; db.mu is held.
func (l *Lock) lose(cause error) {
	if l.ended.Cause == nil {
		l.ended = EndedError{SessionID(l.hold.Session.Row.ID), l.hold.Key, cause}
		l.end(&l.ended)
	}
}

// Context returns a child of parent that is cancelled when the lock is no longer held;
// context.Cause then gives what Err does. A nil parent panics.
func (l *Lock) Context(parent context.Context) context.Context {
	checkContext(parent)
	return l.ending.context(parent)
}

// Lock takes the key's lock, and waits for it if need be: until the holder releases it or is
// lost, and then until the lock-delay is over. Those who wait are served in the order in which
// they began to (G9), whatever their sessions: two goroutines with one session exclude each other
// too, and who has the lock and asks for it again waits for itself. A lock that the session got by
// Txn.Lock, or had before a restart, and that has no handle, is taken over as it is, and left to
// the session if ctx ends. Those who wait for that session to release it are not waited for.
//
// It blocks until the lock is held and that is durable. If ctx ends first, nothing is left held
// that the session did not hold before, and the error is ctx's and also a *LockedError that says
// what was in the way: who holds the lock and for how long, or until when it is delayed, and how
// many stood before the call. It has none if ctx had ended before the call, or if only a commit was
// in the way, which the text says. It returns an error that is ErrNoSession and wraps the cause if
// the session has ended or does so; ErrInvalid, ErrClosed, ErrFailed or ErrCommit. A nil ctx
// panics.
func (s *Session) Lock(ctx context.Context, key string, opts *LockOptions) (*Lock, error) {
	var lock [1]*Lock
	if err := s.acquire(ctx, []string{key}, opts, lock[:]); err != nil {
		return nil, wrap("lock", key, err)
	}
	return lock[0], nil
}

// LockAll takes the locks of all the keys, or none: it gets them in one transaction, when all are
// free and it is the oldest waiter of each, and is granted nothing until then. So those who lock
// several keys at once, and hold none of them, never wait for each other in a circle.
//
// While it waits it keeps its place for each key. A key for which it is the first stays free as
// long as another one is busy, and is refused to everybody else (ObstacleQueue): one busy key keeps
// the others from being used, which a context with a deadline bounds. What the session holds
// already, it goes on holding meanwhile: locks without a handle are taken over with the rest, and
// one with a handle is waited for until that is unlocked.
//
// The locks come in the order of the keys, and share one fence, but for those that are taken over.
// Blocking and errors are as in Lock; a key named twice is ErrInvalid.
func (s *Session) LockAll(
	ctx context.Context, keys []string, opts *LockOptions,
) ([]*Lock, error) {
	locks := make([]*Lock, len(keys))
	if err := s.acquire(ctx, keys, opts, locks); err != nil {
		return nil, wrap("lock all", strings.Join(keys, ", "), err)
	}
	return locks, nil
}

// TryLock takes the key's lock if that can be done at once. It does not wait for the lock, only
// until the answer is durable. It returns a *LockedError that says what is in the way: who holds
// the lock, which may be the session itself, until when it is delayed, or that others have waited
// longer; else as Lock does.
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
	return lock, nil
}

// cause is the error of a call with the session: the end of the session, if that is why.
func (s *Session) cause(err error) error {
	if errors.Is(err, ErrNoSession) {
		return cmp.Or(s.Err(), err)
	}
	return err
}

// Unlock releases the lock; the first who waits for it has it in the same transaction. It sets no
// lock-delay (G7). It blocks until that is durable.
//
// It returns nil, also when repeated. If the lock was lost before, it changes nothing, not even
// if the same session holds the lock again, and returns an error that is ErrNotHeld and wraps the
// cause; if the database was closed and its file keeps the lock, one that is ErrClosed. After
// ErrCommit the lock is still held, and Unlock may be called again.
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

// WithLock runs fn while it holds the key's lock. It takes it as Lock does, calls fn, on the
// caller's goroutine, with a context that is cancelled when the lock is lost or ctx ends, and with
// the sequencer that proves the lock; when fn has returned, it unlocks. A key that was not there
// before, and that nobody has written to since, goes with the lock.
//
// It returns fn's error as it is. If the lock was lost before fn returned, the error is also
// ErrNotHeld and wraps the cause: what fn did last, it may have done without the lock. If the lock
// could not be taken, fn is not called, and the error is Lock's. If Unlock fails, the error is
// Unlock's too; after ErrCommit the session then holds the lock until it ends.
//
// If fn panics or calls runtime.Goexit, the lock is released, and that goes on. A nil ctx or fn
// panics.
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

// ForceUnlock takes a lock away from its holder, who may not know: the lock-delay of its session
// follows. The fence, as in Entry or LockedError, says which grant is meant, so that a later
// holder is never hit; of two grants that one transaction made, it is the later. The holder's
// handle ends with ErrForced and the reason. It blocks until that is durable. It returns ErrNotHeld
// if that grant has passed, ErrInvalid for an empty key, ErrClosed, ErrFailed or ErrCommit, with
// nothing changed.
func (db *DB) ForceUnlock(key string, fence uint64, reason string) error {
	err := db.refused(checkKey(key))
	if err == nil {
		err = db.update(func(tx *engine.Txn) error { return tx.ForceUnlock(key, fence, reason) })
	}
	return wrap("force unlock", key, err)
}
