package lockd

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockd/lockd/internal/callsite"
	"github.com/lockd/lockd/internal/ending"
	"github.com/lockd/lockd/internal/engine"
)

// KeyPolicy says what happens to a lock's key after Unlock.
type KeyPolicy uint8

// The policies.
const (
	// LeaveKey keeps the key.
	LeaveKey KeyPolicy = KeyPolicy(engine.LeaveKey)
	// RemoveAfter deletes the key, if this grant created it and no call has changed it since: a Put
	// of what it has is no change (K3). If there are waiters, the first is granted the lock, on a
	// new key. The last holder of a shared lock deletes the key, if both that holder and the one
	// that created the key asked for it. A lock that was taken over leaves its key.
	RemoveAfter KeyPolicy = KeyPolicy(engine.RemoveAfter)
)

// LockOptions configures the acquisition of a lock.
type LockOptions struct {
	// Value, if it is not nil, is written to the key with the lock, and Flags with it. If it is
	// nil, the key keeps both, and Flags have to be 0.
	Value []byte
	Flags uint64

	// Key says what happens to the key after Unlock.
	Key KeyPolicy

	// Mode is how the lock is held. The default is Exclusive.
	Mode LockMode

	// MaxHold is how long the lock may be held after its grant. Then it is lost, with
	// ErrHeldTooLong and the session's lock-delay; the session lives on. Zero means no limit; the
	// least is a millisecond. The limit belongs to the handle: a lock without a handle has none,
	// and for a lock that is taken over the limit of the new handle begins then. A Downgrade does
	// not prolong it.
	MaxHold time.Duration
}

// rules converts o to the engine's type.
func (o *LockOptions) rules() engine.LockOptions {
	if o == nil {
		return engine.LockOptions{}
	}
	return engine.LockOptions{
		Value: o.Value, Flags: o.Flags, Policy: engine.KeyPolicy(o.Key), Mode: engine.Mode(o.Mode),
	}
}

func (o *LockOptions) validate() error {
	switch {
	case o == nil:
		return nil
	case o.Key > RemoveAfter:
		return invalid("LockOptions.Key is %d, not a KeyPolicy", o.Key)
	case o.Mode > Shared:
		return invalid("LockOptions.Mode is %d, not a LockMode", o.Mode)
	case len(o.Value) > MaxValueSize:
		return invalid("LockOptions.Value has %d bytes, more than %d", len(o.Value), MaxValueSize)
	case o.Flags != 0 && o.Value == nil:
		return invalid("LockOptions.Flags is set, but is written only with a Value")
	}
	return engine.CheckTTL("LockOptions.MaxHold", o.MaxHold)
}

// maxHold returns MaxHold, or 0 for nil options.
func (o *LockOptions) maxHold() time.Duration {
	if o == nil {
		return 0
	}
	return o.MaxHold
}

// Lock is the handle on a lock that is or was held, and the only way to release it. If the process
// crashes, the next Open releases the lock and begins its lock-delay: 15 s, unless Options.Reopen
// or SessionOptions says otherwise.
type Lock struct {
	hold   engine.Hold
	site   callsite.Site // of the call that takes, or waits for, the lock
	ended  EndedError    // what Err returns; its cause is written before the end is told
	ending ending.Ending

	shared atomic.Pointer[engine.Hold] // the hold that replaced hold in a Downgrade, or nil
}

// newLock allocates a lock that is about to be held, for maxHold at most; 0 means no limit.
func newLock(maxHold time.Duration) *Lock {
	l := new(Lock)
	l.prepare(maxHold)
	return l
}

// prepare is newLock for a lock that is allocated already.
func (l *Lock) prepare(maxHold time.Duration) {
	l.site = callsite.Here()
	l.hold.Owner = l
	l.hold.SetMaxHold(maxHold)
}

// lockOf returns the handle that owns the hold.
func lockOf(hold *engine.Hold) *Lock { return hold.Owner.(*Lock) }

// session is the handle on the session that held the lock.
func (l *Lock) session() *Session { return handleOf(l.hold.Session).session }

// Key returns the lock's key.
func (l *Lock) Key() string { return l.hold.Key }

// Sequencer returns the proof of this grant, for DB.If or a Guard.
func (l *Lock) Sequencer() Sequencer {
	return sequencerOf(l.held().Sequencer())
}

// held returns the hold that the handle has, or had last.
func (l *Lock) held() *engine.Hold { return cmp.Or(l.shared.Load(), &l.hold) }

// Done returns a channel that is closed when the lock is no longer held (G10).
func (l *Lock) Done() <-chan struct{} { return l.ending.Done() }

// Err returns nil while the lock is held, and then an *EndedError with the cause: ErrUnlocked after
// Unlock. Lost tells a loss from an unlock.
func (l *Lock) Err() error { return l.ending.Err() }

// lose tells the end of the lock. Only the first call counts. The caller holds the
// writer's mutex.
func (l *Lock) lose(cause error) {
	if l.ended.Cause == nil {
		l.ended = EndedError{SessionID(l.hold.Session.Row.ID), l.hold.Key, cause}
		l.ending.End(&l.ended)
	}
}

// Context returns a child of parent that is cancelled when the lock is no longer held, with Err as
// its cause. It carries the lock: calls that wait under it are refused if they would wait for ever
// (DeadlockError). It stays in memory until parent ends or the lock does.
func (l *Lock) Context(parent context.Context) context.Context {
	mustHave(parent != nil, "context")
	return context.WithValue(l.ending.Context(parent), carriedLocks{},
		&engine.Carried{Owner: l, Outer: carriedBy(parent)})
}

// Unlock releases the lock, without a lock-delay (G7); the first waiter is granted it in the same
// transaction.
//
// It returns nil, also when repeated. If the lock has ended otherwise, maybe with its session, it
// changes nothing, and returns ErrNotHeld and the cause. If the database was closed and its file
// keeps the lock, it returns ErrClosed. After ErrCommit the lock is still held, and Unlock may be
// called again.
func (l *Lock) Unlock() error { return wrap("unlock", l.Key(), l.unlock()) }

func (l *Lock) unlock() error { return l.end((*engine.Txn).Release) }

// abandon is unlock for a call that returns without the handle.
func (l *Lock) abandon() error { return l.end((*engine.Txn).Abandon) }

func (l *Lock) end(release func(*engine.Txn, *engine.Hold)) error {
	for hold := l.held(); l.Err() == nil; hold = l.held() {
		err := l.session().db.update(func(tx *engine.Txn) error {
			release(tx, hold)
			return nil
		})
		if err != nil || l.held() == hold {
			return cmp.Or(err, l.outcome())
		}
		// A concurrent Downgrade came first, and has been told by now.
	}
	return l.outcome()
}

// outcome is what Unlock returns for a lock that has ended.
func (l *Lock) outcome() error {
	if l.held().Released {
		return nil
	}
	return l.Err()
}

// Downgrade makes an exclusive lock shared, in one transaction: no other holder comes in between,
// and the waiters in front that can share the lock are granted it too (R4). The handle goes on with
// a new Sequencer; the old one proves nothing any more. A shared lock is left as it is. Downgrade
// fails as Unlock does; a lock that was released is ErrNotHeld. There is no way back, because two
// holders would wait for each other: a caller that may have to write takes the lock exclusively,
// and downgrades it when the write is done.
func (l *Lock) Downgrade() error {
	hold, err := l.held(), l.Err()
	if err == nil {
		next := &engine.Hold{Owner: l}
		err = l.session().db.update(func(tx *engine.Txn) error { return tx.Downgrade(hold, next) })
		if errors.Is(err, ErrNotHeld) { // the lock has ended, or another call has downgraded it
			if err = l.Err(); err == nil && l.held() == hold {
				err = ErrNotHeld
			}
		}
	}
	return wrap("downgrade", l.Key(), err)
}

// ForceUnlock takes the lock from its holder, whose handle ends with ErrForced and the reason, and
// begins the lock-delay. The fence, as in Entry, LockedError or Holder, names the grant: if that
// grant has ended, ForceUnlock returns ErrNotHeld. Of a shared lock it takes every grant with that
// fence: grants of one transaction share it.
func (db *DB) ForceUnlock(key string, fence uint64, reason string) error {
	return wrap("force unlock", key, db.update(func(tx *engine.Txn) error {
		if err := checkKey(key); err != nil {
			return err
		}
		return tx.ForceUnlock(key, fence, reason)
	}))
}
