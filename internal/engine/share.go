package engine

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/lockd/lockd/internal/schema"
)

// shareOf returns the share that hold is a handle of, or nil.
func (e *Engine) shareOf(hold *Hold) *share {
	state := e.lockOf(hold.Key)
	if state == nil || state.shares.n == 0 {
		return nil
	}
	one := state.shares.find(grantID{hold.Session, hold.Fence})
	if one == nil || !slices.Contains(one.holds, hold) {
		return nil
	}
	return one
}

// shareMoved updates the shares of each lock and of each session.
func (e *Engine) shareMoved(old, new *schema.Share) {
	if old != nil && new != nil { // still the same grant: see keepKey
		one := e.shareOfRow(old)
		one.row, one.state.shares.removes = new, new.Removes
		return
	}
	if e.slow != nil {
		e.shareHeld(old, new)
	}
	if e.own.shared {
		e.own.passedShares = append(e.own.passedShares, cmp.Or(old, new))
	}
	if old != nil {
		e.dropShare(e.shareOfRow(old))
	}
	if new != nil {
		state, s := e.state(new.Key()), e.holder(new.Session())
		held := s.holdsAny()
		one := e.spareShare
		if e.spareShare = nil; one == nil {
			one = &share{}
		}
		*one = share{row: new, state: state, session: s, next: s.shares}
		one.holds = one.first[:0]
		if s.shares != nil {
			s.shares.prev = one
		}
		s.shares = one
		e.countNested(s, held)
		state.shares.add(one)
	}
}

// shareOfRow returns the share that has the row.
func (e *Engine) shareOfRow(row *schema.Share) *share {
	state := e.lockOf(row.Key())
	if one := state.shares.only; one != nil && one.row == row {
		return one
	}
	return state.shares.find(grantID{e.holder(row.Session()), row.Fence()})
}

// dropShare forgets a share. Its memory may be used for another grant, so the caller must not look
// at it after that. When its row is taken back, its handles may remain: their effects are reverted
// later.
func (e *Engine) dropShare(one *share) {
	for len(one.holds) > 0 {
		e.detach(one, one.holds[0])
	}
	if one.prev != nil {
		one.prev.next = one.next
	} else {
		one.session.shares = one.next
	}
	if one.next != nil {
		one.next.prev = one.prev
	}
	e.countNested(one.session, true)
	one.state.shares.remove(one)
	*one = share{}
	e.spareShare = one
}

// grantShare gives the session a share of a lock that no session holds alone. The first holder
// writes to the key, and creates it if need be (R2). Later holders write only their values.
func (tx *Txn) grantShare(key string, s *Session, opts LockOptions) *share {
	fence, state := tx.Index(), tx.engine.state(key)
	var row *schema.Key
	switch {
	case state.shares.n == 0:
		draft, next := tx.draft(key)
		next.LockIndex, next.Fence = 1+max(next.LockIndex, tx.locked[key]), fence
		if opts.Value != nil {
			next.Value, next.Flags = bytes.Clone(opts.Value), opts.Flags
		}
		row = tx.write(draft)
		if state.delay == nil { // else the delay of a lost reader lasts on
			tx.dropDelay(key)
		}
	case opts.Value != nil:
		before := tx.Get(key)
		if row = tx.Put(key, opts.Value, opts.Flags); row != before && row.Fence == fence {
			tx.keepKey(state) // its indexes do not tell of this write (R9)
		}
	default:
		row = tx.Get(key)
	}
	if again := state.shares.find(grantID{s, fence}); again != nil {
		return again
	}
	tx.granted(s)
	return tx.putShare(row, s, state.shares.removes || opts.Policy == RemoveAfter)
}

// keepKey makes the key of a shared lock stay when the last holder leaves: another call than the
// one that created the key has written to it. All shares of the lock are of this transaction.
func (tx *Txn) keepKey(state *lockState) {
	if !state.shares.removes {
		return
	}
	for _, one := range state.shares.inOrder() {
		row := *one.row
		row.Removes = false
		tx.engine.rows.Shares.Put(row.Row, row)
		for _, hold := range one.holds {
			hold.policy = LeaveKey
		}
	}
}

// putShare makes a new share of the key's lock.
func (tx *Txn) putShare(key *schema.Key, s *Session, removes bool) *share {
	name := schema.ShareKey(key.Key, tx.Index(), s.Row.ID)
	tx.engine.rows.Shares.Put(name, schema.Share{
		Row: name, LockIndex: key.LockIndex, Granted: tx.now, Removes: removes,
	})
	return s.shares // where shareMoved has put it
}

// endShare ends a share, whose handles lose it.
func (tx *Txn) endShare(one *share, cause error) {
	for len(one.holds) > 0 {
		hold := one.holds[0]
		tx.engine.detach(one, hold)
		f := tx.effect(LockLost)
		f.Hold, f.Cause = hold, cause
	}
	tx.removeShare(one, cause)
}

// removeShare removes the row of a share that has no handle, and looks at the queue.
func (tx *Txn) removeShare(one *share, cause error) {
	tx.revisit(one.state)
	tx.explain(SequencerOfShare(one.row), cause)
	tx.engine.rows.Shares.Delete(one.row.Row) // which tidies the state
}

// releaseShare releases the share for hold, which may be one of several handles of it.
func (tx *Txn) releaseShare(hold *Hold) {
	one := tx.engine.shareOf(hold)
	if one == nil {
		return
	}
	tx.engine.detach(one, hold)
	tx.effect(LockReleased).Hold = hold
	if len(one.holds) > 0 { // another handle of the same grant has it
		return
	}
	if hold.givenUp && hold.takenOver { // the session goes on having it as before
		tx.revisit(one.state)
		return
	}
	last := one.state.shares.n == 1
	tx.removeShare(one, ErrUnlocked)
	if last && hold.policy == RemoveAfter {
		if row := tx.Get(hold.Key); row.ModifyIndex == row.Fence {
			tx.remove(row, ErrUnlocked)
		}
	}
}

// Downgrade turns the exclusive lock of hold into a share of next, in one transaction: no other
// session has the lock in between, and the waiters in front that can share it are served (R4). It
// changes nothing if hold shares the lock already, and returns ErrNotHeld if hold no longer has the
// lock.
func (tx *Txn) Downgrade(hold, next *Hold) error {
	e := tx.engine
	if hold.Mode == Shared && e.shareOf(hold) != nil {
		return nil
	}
	state := e.lockOf(hold.Key)
	if state == nil || state.hold != hold || tx.inTime(hold.Session) != nil {
		return ErrNotHeld
	}
	row, policy := tx.Get(hold.Key), hold.policy
	if policy == RemoveAfter && row.ModifyIndex != row.Fence {
		policy = LeaveKey
	}
	e.setHold(state, nil)
	draft, free := tx.draft(hold.Key)
	free.Session, free.Fence = schema.ID{}, tx.Index()
	tx.write(draft)
	tx.explain(SequencerOf(row), errDowngraded)
	tx.assignShare(next, tx.putShare(row, hold.Session, policy == RemoveAfter), policy)
	e.passTerm(hold, next)
	f := tx.effect(LockDowngraded)
	f.Hold, f.Next = hold, next
	tx.revisit(state)
	return nil
}

// takeShare is take for a lock that is shared, or free.
func (tx *Txn) takeShare(hold *Hold, s *Session, key string, row *schema.Key, opts LockOptions) {
	if own := s.looseShare(tx.engine.lockOf(key)); own != nil {
		hold.takenOver = true
		if opts.Value != nil {
			tx.Put(key, opts.Value, opts.Flags)
		}
		tx.assignShare(hold, own, LeaveKey)
		return
	}
	policy := opts.Policy
	if row != nil {
		opts.Policy = LeaveKey // this holder does not create the key
	}
	one := tx.grantShare(key, s, opts)
	if !one.state.shares.removes {
		policy = LeaveKey
	}
	tx.assignShare(hold, one, policy)
}

// assignShare makes hold, which nothing refers to yet, a handle of the share.
func (tx *Txn) assignShare(hold *Hold, one *share, policy KeyPolicy) {
	hold.Session, hold.Key, hold.policy, hold.Mode = one.session, one.state.key, policy, Shared
	hold.LockIndex, hold.Fence = one.row.LockIndex, one.row.Fence()
	tx.beginTerm(hold)
	one.attach(hold)
	tx.engine.enterTerm(hold)
}
