package engine

import (
	"bytes"
	"fmt"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Lock acquires the key's lock for a session, as Consul does: it succeeds on a key that is free,
// which it creates if need be (K13, K14), and again for the session that holds it (K15, K16). It
// returns a *Blocked if the lock is held by another session, or in another mode (K17, R1), delayed
// (K18), or promised to a queue (G9), and ErrNoSession for a session that does not live (K20).
func (tx *Txn) Lock(key string, session schema.ID, opts LockOptions) (*schema.Key, error) {
	if blocked := tx.delayed(key, opts.Mode); blocked != nil { // before the session (K35)
		return nil, blocked
	}
	s, err := tx.Session(session)
	if err != nil {
		return nil, err
	}
	row := tx.Get(key)
	if tx.holds(s, key, row, opts.Mode) {
		if opts.Value != nil {
			row = tx.Put(key, opts.Value, opts.Flags)
		}
		return row, nil
	}
	if blocked := tx.obstructed(s, key, row, opts.Mode); blocked != nil {
		return nil, blocked
	}
	if opts.Mode == Shared {
		opts.Policy = LeaveKey // a policy belongs to a handle, and there is none
		tx.grantShare(key, s, opts)
		row = tx.Get(key)
		tx.keepLockIndex(row) // the deletion of the key does not, if the session joined others
		return row, nil
	}
	return tx.grant(key, s, opts), nil
}

// holds reports whether the session holds the lock of row in the mode.
func (tx *Txn) holds(s *Session, key string, row *schema.Key, mode Mode) bool {
	if mode == Exclusive {
		return row != nil && row.Session == s.Row.ID
	}
	for range s.sharesOf(tx.engine.lockOf(key)) {
		return true
	}
	return false
}

// delayed returns the refusal of the lock while its lock-delay lasts, and nil afterwards.
func (tx *Txn) delayed(key string, mode Mode) *Blocked {
	state := tx.engine.lockOf(key)
	if state == nil || !state.delay.lasts(mode, tx.now) {
		return nil
	}
	return &Blocked{
		Key: key, Obstacle: ByDelay, Mode: mode, Waiters: state.queue.Len(),
		Until: state.delay.until.Round(0), Remaining: state.delay.until.Sub(tx.now),
	}
}

// obstructed returns the refusal of the lock of the key, whose row is row, if the lock is held, or
// is promised to a queue that the session does not pass. Otherwise it returns nil. row is nil if
// there is no such key.
func (tx *Txn) obstructed(s *Session, key string, row *schema.Key, mode Mode) *Blocked {
	held := isLocked(row)
	state := tx.engine.lockOf(key)
	shared := state != nil && state.shares.n > 0 && mode == Exclusive
	if !held && !shared &&
		(state == nil || state.queue.Len() == 0 || tx.passes(s, nil, state)) {
		return nil
	}
	blocked := &Blocked{Key: key, Obstacle: ByQueue, Mode: mode, Waiters: state.queue.Len()}
	switch {
	case held:
		blocked.Obstacle = ByHolder
		tx.describeHolder(blocked, s, row)
	case shared:
		blocked.Obstacle = ByHolder
		blocked.Holders = tx.Holders(key)
		tx.describeFirst(blocked, s)
	}
	return blocked
}

// describeFirst adds to a refusal for s the first of blocked.Holders, and whether s is one of them.
func (tx *Txn) describeFirst(blocked *Blocked, s *Session) {
	first := blocked.Holders[0]
	tx.describe(blocked, s, first.Grant.Session, first.Grant.Fence, first.Since)
	for _, one := range blocked.Holders {
		blocked.Own = blocked.Own || one.Grant.Session == s.Row.ID
	}
}

// describeHolder adds to a refusal for s which session holds the lock of row, and since when.
func (tx *Txn) describeHolder(blocked *Blocked, s *Session, row *schema.Key) {
	tx.describe(blocked, s, row.Session, row.Fence, row.Granted)
}

// describe adds one grant, which the session with the ID has, to a refusal for s.
func (tx *Txn) describe(blocked *Blocked, s *Session, id schema.ID, fence uint64, since time.Time) {
	holder := tx.engine.holder(id)
	blocked.Holder, blocked.Fence = id, fence
	blocked.HolderName, blocked.Own = holder.Row.Name, holder == s
	blocked.Since, blocked.Held = since, Lasted(since, tx.now)
}

// grant gives a free lock to the session (K13, K14). The index of the grant is its fence. Of two
// grants in one transaction the later has the larger lock index, even if the key was deleted
// between them (G8).
func (tx *Txn) grant(key string, s *Session, opts LockOptions) *schema.Key {
	draft, next := tx.draft(key)
	next.Session, next.Fence = s.Row.ID, tx.Index()
	next.Granted = tx.now
	tx.granted(s)
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
	if session.IsZero() { // a free key's session
		return nil, invalid("session is empty")
	}
	row := tx.Get(key)
	if row != nil && row.Session == session {
		return tx.release(row, ErrUnlocked), nil
	}
	shared := false
	if s := tx.engine.sessions[session]; s != nil {
		for one := range s.sharesOf(tx.engine.lockOf(key)) { // all of them
			tx.endShare(one, ErrUnlocked)
			shared = true
		}
	}
	if !shared {
		return nil, fmt.Errorf("%w: not by session %s", ErrNotHeld, session)
	}
	return row, nil
}

// ForceUnlock takes the lock from the holder of one grant. The holder may not know yet, so its
// session's lock-delay follows. From a shared lock it takes the shares with that fence. It returns
// ErrNotHeld if the grant has ended.
func (tx *Txn) ForceUnlock(key string, fence uint64, reason string) error {
	cause := ErrForced
	if reason != "" {
		cause = fmt.Errorf("%w: %s", ErrForced, reason)
	}
	if state := tx.engine.lockOf(key); state != nil && state.shares.n > 0 {
		return tx.forceShares(state, fence, cause)
	}
	row := tx.Get(key)
	if !isLocked(row) {
		return fmt.Errorf("%w: the lock is free", ErrNotHeld)
	}
	if row.Fence != fence {
		return otherFence(fence, row.Fence)
	}
	tx.lose(row, cause)
	return nil
}

// lose takes the lock of row from the session that has it alone, whose lock-delay follows.
func (tx *Txn) lose(row *schema.Key, cause error) {
	delay := tx.engine.holder(row.Session).Row.LockDelay
	tx.release(row, cause)
	tx.setDelay(row.Key, delay, Exclusive)
}

// forceShares is ForceUnlock of a lock that is shared.
func (tx *Txn) forceShares(state *lockState, fence uint64, cause error) error {
	found := false
	for _, one := range state.shares.inOrder() {
		if one.row.Fence() == fence {
			found = true
			tx.loseShare(one, cause)
		}
	}
	if !found {
		return fmt.Errorf("%w: no session shares the lock with fence %d", ErrNotHeld, fence)
	}
	return nil
}

// loseShare takes a share from its session, whose lock-delay follows (R5).
func (tx *Txn) loseShare(one *share, cause error) {
	key, delay := one.state.key, one.session.Row.LockDelay
	tx.endShare(one, cause)
	tx.setDelay(key, delay, Shared)
}

// TryLock gives hold the key's lock, if it can be had at once. It returns a *Blocked if it cannot,
// and ErrNoSession if the session has ended.
func (tx *Txn) TryLock(hold *Hold, s *Session, key string, opts LockOptions) error {
	if err := tx.alive(s); err != nil {
		return err
	}
	if blocked := tx.delayed(key, opts.Mode); blocked != nil {
		return blocked
	}
	row := tx.Get(key)
	if !tx.adoptable(s, key, row, opts.Mode) || s.awaits(key, opts.Mode) {
		if blocked := tx.obstructed(s, key, row, opts.Mode); blocked != nil {
			return blocked
		}
	}
	tx.Hold(hold, s, key, opts)
	return nil
}

// takeable reports whether the lock can be had at once in the mode, apart from the queue (R1).
func (tx *Txn) takeable(key string, mode Mode) bool {
	if isLocked(tx.Get(key)) {
		return false
	}
	state := tx.engine.lockOf(key)
	return state == nil ||
		!state.delay.lasts(mode, tx.now) && (mode == Shared || state.shares.n == 0)
}

// Free reports whether a call that carries the given locks can have the locks of all the keys at
// once, in the mode, and overtakes only waiters that it may pass. It returns ErrNoSession if the
// session has ended.
func (tx *Txn) Free(s *Session, keys []string, mode Mode, carried *Carried) (bool, error) {
	if err := tx.alive(s); err != nil {
		return false, err
	}
	for _, key := range keys {
		state := tx.engine.lockOf(key)
		free := tx.takeable(key, mode) &&
			(state == nil || state.queue.Len() == 0 || tx.passes(s, carried, state))
		if !free && !(tx.adoptable(s, key, tx.Get(key), mode) && !s.awaits(key, mode)) {
			return false, nil
		}
	}
	return true, nil
}

// Hold gives hold a lock that is free, or that the session has without a handle.
func (tx *Txn) Hold(hold *Hold, s *Session, key string, opts LockOptions) {
	tx.take(hold, s, key, opts)
	tx.effect(LockHeld).Hold = hold
}

// take is Hold without its effect, for a waiter: the effect WaiterServed covers its holds.
func (tx *Txn) take(hold *Hold, s *Session, key string, opts LockOptions) {
	row := tx.Get(key)
	if opts.Mode == Shared {
		tx.takeShare(hold, s, key, row, opts)
		return
	}
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

// assign gives hold, which nothing refers to yet, a lock that the session holds.
func (tx *Txn) assign(hold *Hold, s *Session, row *schema.Key, policy KeyPolicy) {
	hold.Session, hold.Key, hold.policy, hold.Mode = s, row.Key, policy, Exclusive
	hold.LockIndex, hold.Fence = row.LockIndex, row.Fence
	tx.beginTerm(hold)
	tx.engine.setHold(tx.engine.lockOf(row.Key), hold)
}
