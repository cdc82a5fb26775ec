package engine

import (
	"bytes"
	"fmt"

	"github.com/lockd/lockd/internal/schema"
)

// Lock acquires the key's lock for a session, as Consul does: it succeeds on a key that is free,
// which it creates if need be (K13, K14), and again for the session that holds it (K15, K16). It
// returns a *Blocked if the lock is held by another session (K17), delayed (K18), or promised to a
// queue (G9), and ErrNoSession for a session that does not live (K20).
func (tx *Txn) Lock(key string, session schema.ID, opts LockOptions) (*schema.Key, error) {
	if blocked := tx.delayed(key); blocked != nil { // before the session is looked at (K35)
		return nil, blocked
	}
	s, err := tx.Session(session)
	if err != nil {
		return nil, err
	}
	row := tx.Get(key)
	if row != nil && row.Session == s.Row.ID {
		if opts.Value != nil {
			row = tx.Put(key, opts.Value, opts.Flags)
		}
		return row, nil
	}
	if blocked := tx.obstructed(s, key, row); blocked != nil {
		return nil, blocked
	}
	return tx.grant(key, s, opts), nil
}

// delayed returns what to refuse the lock with while its lock-delay lasts, and nil then.
func (tx *Txn) delayed(key string) *Blocked {
	state := tx.engine.lockOf(key)
	if state == nil || state.delay == nil {
		return nil
	}
	remaining := state.delay.until.Sub(tx.now)
	if remaining <= 0 {
		return nil
	}
	return &Blocked{
		Key: key, Obstacle: ByDelay, Waiters: state.queue.Len(),
		Until: state.delay.until.Round(0), Remaining: remaining,
	}
}

// obstructed returns what to refuse the lock of row with if it is held, or promised to a queue, and
// nil otherwise. The row is nil if there is no such key.
func (tx *Txn) obstructed(s *Session, key string, row *schema.Key) *Blocked {
	held := row != nil && !row.Session.IsZero()
	state := tx.engine.lockOf(key)
	if !held && (state == nil || state.queue.Len() == 0) {
		return nil
	}
	blocked := &Blocked{Key: key, Obstacle: ByQueue, Waiters: state.queue.Len()}
	if held {
		blocked.Obstacle = ByHolder
		tx.describeHolder(blocked, s, row)
	}
	return blocked
}

// describeHolder adds to a refusal for s which session holds the lock of row, and since when.
func (tx *Txn) describeHolder(blocked *Blocked, s *Session, row *schema.Key) {
	holder := tx.engine.holder(row.Session)
	blocked.Holder, blocked.Fence = row.Session, row.Fence
	blocked.HolderName, blocked.Own = holder.Row.Name, holder == s
	if since := tx.engine.Instant(row.Granted); !since.IsZero() {
		blocked.Since, blocked.Held = since.Round(0), Lasted(since, tx.now)
	}
}

// grant gives a free lock to the session (K13, K14). The index of the grant is its fence. Of two
// grants in one transaction the later has the larger lock index, also if the key was deleted
// between them (G8).
func (tx *Txn) grant(key string, s *Session, opts LockOptions) *schema.Key {
	draft, next := tx.draft(key)
	next.Session, next.Fence = s.Row.ID, tx.next()
	next.Granted = tx.engine.moment(tx.now)
	tx.engine.grantee = s
	next.LockIndex = 1 + max(next.LockIndex, tx.locked[key])
	if opts.Value != nil {
		next.Value, next.Flags = bytes.Clone(opts.Value), opts.Flags
	}
	tx.dropDelay(key)
	return tx.write(draft)
}

// Unlock releases the key's lock, which the session must hold; the key keeps its value and flags
// (K21). It sets no lock-delay (K39). It returns ErrNotHeld if the session does not hold it, or
// there is no such key or session (K22, K23, K25), and ErrInvalid for the zero ID (K24).
func (tx *Txn) Unlock(key string, session schema.ID) (*schema.Key, error) {
	if session.IsZero() { // which a free key has
		return nil, invalid("session is empty")
	}
	row := tx.Get(key)
	if row == nil || row.Session != session {
		return nil, fmt.Errorf("%w: not by session %s", ErrNotHeld, session)
	}
	return tx.release(row, ErrUnlocked), nil
}

// ForceUnlock takes the lock of one grant from its holder, which may not know: the lock-delay of
// the session follows. It returns ErrNotHeld if that grant has passed.
func (tx *Txn) ForceUnlock(key string, fence uint64, reason string) error {
	row := tx.Get(key)
	if row == nil || row.Session.IsZero() {
		return fmt.Errorf("%w: the lock is free", ErrNotHeld)
	}
	if row.Fence != fence {
		return fmt.Errorf("%w: fence %d has passed, the lock is held with fence %d", ErrNotHeld,
			fence, row.Fence)
	}
	holder := tx.engine.sessions[row.Session]
	cause := ErrForced
	if reason != "" {
		cause = fmt.Errorf("%w: %s", ErrForced, reason)
	}
	tx.release(row, cause)
	tx.setDelay(key, holder.Row.LockDelay)
	return nil
}

// TryLock makes hold that of the key's lock, if that can be had at once. It returns a *Blocked if
// it cannot, and ErrNoSession if the session has ended.
func (tx *Txn) TryLock(hold *Hold, s *Session, key string, opts LockOptions) error {
	if err := s.alive(); err != nil {
		return err
	}
	if blocked := tx.delayed(key); blocked != nil {
		return blocked
	}
	row := tx.Get(key)
	if !tx.adoptable(s, key, row) || s.awaits(key) {
		if blocked := tx.obstructed(s, key, row); blocked != nil {
			return blocked
		}
	}
	tx.Hold(hold, s, key, opts)
	return nil
}

// alive refuses a session that has ended, as of the newest state.
func (s *Session) alive() error {
	if s.live {
		return nil
	}
	return fmt.Errorf("%w: it is about to end", ErrNoSession)
}

// adoptable reports whether the session holds the lock already, without a handle.
func (tx *Txn) adoptable(s *Session, key string, row *schema.Key) bool {
	return row != nil && row.Session == s.Row.ID && tx.engine.lockOf(key).hold == nil
}

// takeable reports whether the lock can be had at once, but for the queue.
func (tx *Txn) takeable(key string) bool {
	row := tx.Get(key)
	return (row == nil || row.Session.IsZero()) && tx.delayed(key) == nil
}

// Free reports whether all the locks can be had at once, and no waiter would be overtaken. It
// returns ErrNoSession if the session has ended.
func (tx *Txn) Free(s *Session, keys []string) (bool, error) {
	if err := s.alive(); err != nil {
		return false, err
	}
	for _, key := range keys {
		state := tx.engine.lockOf(key)
		free := (state == nil || state.queue.Len() == 0) && tx.takeable(key)
		if !free && !(tx.adoptable(s, key, tx.Get(key)) && !s.awaits(key)) {
			return false, nil
		}
	}
	return true, nil
}

// Hold makes hold that of a lock that is free, or that the session has without a handle.
func (tx *Txn) Hold(hold *Hold, s *Session, key string, opts LockOptions) {
	tx.take(hold, s, key, opts)
	tx.effect(LockHeld).Hold = hold
}

// take is Hold without its effect. The holds of a waiter go with it.
func (tx *Txn) take(hold *Hold, s *Session, key string, opts LockOptions) {
	row := tx.Get(key)
	policy := opts.Policy
	if row != nil {
		policy = LeaveKey // the lock does not create the key
	}
	hold.takenOver = row != nil && row.Session == s.Row.ID
	if !hold.takenOver {
		row = tx.grant(key, s, opts)
	} else if opts.Value != nil {
		row = tx.Put(key, opts.Value, opts.Flags)
	}
	tx.assign(hold, s, row, policy)
}

// assign makes hold, which nothing refers to yet, that of a lock that the session holds.
func (tx *Txn) assign(hold *Hold, s *Session, row *schema.Key, policy KeyPolicy) {
	hold.Session, hold.Key, hold.policy = s, row.Key, policy
	hold.LockIndex, hold.Fence = row.LockIndex, row.Fence
	tx.engine.setHold(tx.engine.lockOf(row.Key), hold)
}
