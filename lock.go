package lockd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/internal/waitq"
)

// KeyPolicy says what becomes of a lock's key after Unlock.
type KeyPolicy uint8

// The policies.
const (
	// LeaveKey keeps it.
	LeaveKey KeyPolicy = iota
	// RemoveAfter deletes it, if this lock created it when it was granted and nobody has written to
	// it since; a lock that was taken over did not. If others wait, the first of them gets it made
	// anew. Fences do not depend on the key.
	RemoveAfter

	leaveSlot // deletes it, for it is that of a contender, and takes the holder off the semaphore
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

func (o *LockOptions) key() KeyPolicy {
	if o == nil {
		return LeaveKey
	}
	return o.Key
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
	session   *Session
	lockIndex uint64
	fence     uint64
	ended     EndedError // what Err returns; its cause is written before the end is told
	ending

	policy    KeyPolicy
	released  bool // by Unlock; written before the end is told, and never after it
	givenUp   bool // nobody has it: the call that was granted it gave up; protected by db.mu
	takenOver bool // its session had the lock before, without a handle
}

// Key is the key of the lock.
func (l *Lock) Key() string { return l.ended.Key }

// Sequencer proves the lock: to lockd by DB.If, to anybody else through a Guard.
func (l *Lock) Sequencer() Sequencer {
	return Sequencer{
		Key: l.ended.Key, Session: l.ended.Session, LockIndex: l.lockIndex, Fence: l.fence,
	}
}

// Done returns a channel that is closed when the lock is no longer held: no later than anybody
// else is told of holding it (G10).
func (l *Lock) Done() <-chan struct{} { return l.ending.Done() }

// Err returns nil while the lock is held, and then an *EndedError with the cause, ErrUnlocked
// after Unlock. The end of the database is one for this handle, also if the file keeps the lock:
// see DB.Close.
func (l *Lock) Err() error { return l.ending.Err() }

// lose tells the end of the lock. Only the first call counts; db.mu is held.
func (l *Lock) lose(cause error) {
	if l.ended.Cause == nil {
		l.ended.Cause = cause
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
	var lock *Lock
	err := checkKey(key)
	if err == nil {
		err = opts.validate()
	}
	if err != nil {
		err = s.db.refused(err)
	} else {
		err = s.db.update(func(tx *Txn) (err error) {
			lock, err = tx.tryLock(s, key, opts)
			return err
		})
	}
	if err != nil {
		return nil, wrap("try lock", key, err)
	}
	return lock, nil
}

func (tx *Txn) tryLock(s *Session, key string, opts *LockOptions) (*Lock, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	if err := tx.delayed(key); err != nil {
		return nil, err
	}
	row := tx.db.store.Keys.Newest(key)
	if !tx.adoptable(s, key, row) || s.awaits(key) {
		if err := tx.obstructed(s, key, row); err != nil {
			return nil, err
		}
	}
	lock := tx.hold(new(Lock), s, key, opts)
	tx.took(lock)
	return lock, nil
}

// alive returns why the session, as of the newest state, has ended.
func (s *Session) alive() error {
	if s.live {
		return nil
	}
	if err := s.ending.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: it is about to end", ErrNoSession)
}

// adoptable reports whether the session holds the lock already, without a handle.
func (tx *Txn) adoptable(s *Session, key string, row *schema.Key) bool {
	return row != nil && row.Session == s.row.ID && tx.db.lockOf(key).handle == nil
}

// takeable reports whether the lock can be had at once, but for the queue.
func (tx *Txn) takeable(key string) bool {
	row := tx.db.store.Keys.Newest(key)
	free := row == nil || row.Session == schema.ID{}
	return free && tx.delayed(key) == nil
}

// hold makes lock the handle of a lock that the session may take, or has without one.
func (tx *Txn) hold(lock *Lock, s *Session, key string, opts *LockOptions) *Lock {
	row := tx.db.store.Keys.Newest(key)
	policy := opts.key()
	if row != nil {
		policy = LeaveKey // the lock does not create the key
	}
	lock.takenOver = row != nil && row.Session == s.row.ID
	if !lock.takenOver {
		row = tx.grant(key, s, opts)
	} else if opts != nil && opts.Value != nil {
		row = tx.put(key, opts.Value, opts.Flags)
	}
	return tx.handle(lock, s, row, policy)
}

// handle makes lock, which nobody knows yet, the handle of a lock that the session holds.
func (tx *Txn) handle(lock *Lock, s *Session, row *schema.Key, policy KeyPolicy) *Lock {
	lock.session, lock.lockIndex, lock.fence, lock.policy = s, row.LockIndex, row.Fence, policy
	lock.ended.Session, lock.ended.Key = s.ID(), row.Key
	tx.db.setHandle(tx.db.lockOf(row.Key), lock)
	return lock
}

// took has a handle taken back with the transaction. Those of a waiter go with it.
func (tx *Txn) took(lock *Lock) {
	tx.effect(lockHeld).lock = lock
}

// setHandle makes lock the handle of the lock that the state is of, and nil takes its handle away.
func (db *DB) setHandle(state *lockState, lock *Lock) {
	old := state.handle
	state.handle = lock
	if old != nil && old.policy == leaveSlot {
		sem := db.semaphore(prefixOf(state.key))
		delete(sem.slots, old)
		db.tidySemaphore(sem)
	}
	if lock != nil && lock.policy == leaveSlot {
		db.semaphore(prefixOf(state.key)).slots[lock] = struct{}{}
	}
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
		err := l.session.db.update(func(tx *Txn) error {
			tx.unlock(l)
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

// unlock releases the lock if it is still held by this handle.
func (tx *Txn) unlock(l *Lock) {
	state := tx.db.lockOf(l.Key())
	if state == nil || state.handle != l {
		return
	}
	row := tx.db.store.Keys.Newest(l.Key())
	tx.db.setHandle(state, nil)
	tx.effect(lockReleased).lock = l
	if l.givenUp && l.takenOver { // the session goes on having it as before
		tx.freed = append(tx.freed, l.Key())
		return
	}
	if l.policy == leaveSlot {
		tx.leaveSlot(row)
		return
	}
	if l.policy == RemoveAfter && row.CreateIndex == l.fence &&
		row.ModifyIndex == l.fence {
		tx.remove(row, ErrUnlocked)
		tx.bury(row)
		return
	}
	if !tx.handOn(state) {
		tx.release(row, ErrUnlocked)
	}
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
		err = db.update(func(tx *Txn) error { return tx.forceUnlock(key, fence, reason) })
	}
	return wrap("force unlock", key, err)
}

// lockState is what is known of a key's lock beside its row: there is one while the lock is held,
// awaited or delayed. It is protected by db.mu.
type lockState struct {
	key    string
	handle *Lock // of the holder; nil if it has none
	queue  waitq.Queue[*waiter]
	delay  *delay

	session    *Session // the holder, as of the newest state; nil if the lock is free
	prev, next *lockState
}

// lockOf returns the key's lockState, or nil if there is none. A write asks for one key some times
// in a row: only the first is a search.
func (db *DB) lockOf(key string) *lockState {
	if db.latest != nil && db.latest.key == key {
		return db.latest
	}
	state := db.locks[key]
	if state != nil {
		db.latest = state
	}
	return state
}

// state returns the key's lockState, and makes it if need be.
func (db *DB) state(key string) *lockState {
	state := db.lockOf(key)
	if state == nil {
		state, db.spare = db.spare, nil
		if state == nil {
			state = new(lockState)
		}
		state.key = key
		db.locks[key], db.latest = state, state
	}
	return state
}

// tidy forgets a lockState that says nothing. It may become another key's, so nobody may look at it
// after that.
func (db *DB) tidy(state *lockState) {
	if state.session == nil && state.handle == nil && state.delay == nil && state.queue.Empty() {
		delete(db.locks, state.key)
		db.spare = state
		if db.latest == state {
			db.latest = nil
		}
	}
}

// holder returns the session of a key that is locked.
func (db *DB) holder(id schema.ID) *Session {
	if s := db.grantee; s != nil && s.row.ID == id { // most often
		return s
	}
	return db.sessions[SessionID(id)]
}

// keyMoved keeps each session's list of the locks that it holds.
func (db *DB) keyMoved(old, new *schema.Key) {
	var from, to schema.ID
	key := ""
	if old != nil {
		from, key = old.Session, old.Key
	}
	if new != nil {
		to, key = new.Session, new.Key
	}
	if from == to {
		return
	}
	if tx := db.mu.guest.tx; tx != nil {
		tx.passed = append(tx.passed, key) // for Locks, which has to show the holder before
	}
	state := db.state(key)
	if s := state.session; s != nil {
		if state.prev != nil {
			state.prev.next = state.next
		} else {
			s.held = state.next
		}
		if state.next != nil {
			state.next.prev = state.prev
		}
		state.session, state.prev, state.next = nil, nil, nil
	}
	if to != (schema.ID{}) {
		s := db.holder(to)
		state.session, state.next = s, s.held
		if s.held != nil {
			s.held.prev = state
		}
		s.held = state
	}
	db.tidy(state)
}
