package engine

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"github.com/lockd/lockd/internal/schema"
)

// shares are the holders of one lock that is shared: a share for each grant. The zero value is of a
// lock that is not shared.
type shares struct {
	n     int
	loose int                // those without a handle
	only  *share             // if there is one
	all   map[grantID]*share // if there are more

	// removes is set when a holder created the key and is to remove it (RemoveAfter): then the last
	// holder may, if it asked for that too. It goes with the last share.
	removes bool
}

// grantID tells the grants of one lock apart. Those of one session in one transaction are one
// grant.
type grantID struct {
	session *Session
	fence   uint64
}

// share is one grant of a lock that is shared.
type share struct {
	row     *schema.Share
	state   *lockState
	session *Session
	hold    *Hold   // its handle; nil if it has none
	more    []*Hold // the handles beside that, of calls that were served in the same transaction

	prev, next *share // in the list of the session's
}

func (s *share) id() grantID { return grantID{s.session, s.row.Fence} }

// find returns the share of a grant, or nil.
func (s *shares) find(id grantID) *share {
	if s.only != nil && s.only.id() == id {
		return s.only
	}
	return s.all[id]
}

func (s *shares) add(added *share) {
	s.n++
	s.loose++
	if s.n == 1 {
		s.only = added
		return
	}
	if s.all == nil {
		s.all = make(map[grantID]*share)
	}
	if s.only != nil {
		s.all[s.only.id()], s.only = s.only, nil
	}
	s.all[added.id()] = added
}

// remove takes out a share whose handles are gone.
func (s *shares) remove(removed *share) {
	s.n--
	s.loose--
	if s.only == removed {
		s.only = nil
	}
	delete(s.all, removed.id())
	if s.n == 0 {
		*s = shares{}
	}
}

// inOrder returns the shares in the order of their grants.
func (s *shares) inOrder() []*share {
	var list []*share
	if s.only != nil {
		list = append(list, s.only)
	}
	for _, one := range s.all {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *share) int {
		return cmp.Or(cmp.Compare(a.row.Fence, b.row.Fence),
			bytes.Compare(a.row.Session[:], b.row.Session[:]))
	})
	return list
}

// sharesOf yields the session's shares of the lock. The one just yielded may be removed.
func (s *Session) sharesOf(state *lockState) iter.Seq[*share] {
	return func(yield func(*share) bool) {
		if state == nil || state.shares.n == 0 {
			return
		}
		for one := s.shares; one != nil; {
			next := one.next
			if one.state == state && !yield(one) {
				return
			}
			one = next
		}
	}
}

// looseShare returns a share of the lock that the session has without a handle, or nil.
func (s *Session) looseShare(state *lockState) *share {
	if state == nil || state.shares.loose == 0 { // as a rule
		return nil
	}
	for one := range s.sharesOf(state) {
		if one.hold == nil {
			return one
		}
	}
	return nil
}

// attach makes hold a handle of the share.
func (s *share) attach(hold *Hold) {
	if s.hold == nil {
		s.hold = hold
		s.state.shares.loose--
		return
	}
	s.more = append(s.more, hold)
}

// has reports whether hold is a handle of the share.
func (s *share) has(hold *Hold) bool { return s.hold == hold || slices.Contains(s.more, hold) }

// detach takes one of its handles off the share.
func (s *share) detach(hold *Hold) {
	if s.hold != hold {
		i := slices.Index(s.more, hold)
		s.more = slices.Delete(s.more, i, i+1)
		return
	}
	if s.hold = nil; len(s.more) > 0 {
		s.hold, s.more = s.more[0], s.more[1:]
		return
	}
	s.state.shares.loose++
}

// handles are those of the share. They may be detached meanwhile.
func (s *share) handles() []*Hold {
	if s.hold == nil {
		return nil
	}
	return append([]*Hold{s.hold}, s.more...)
}

// shareOf returns the share that hold is a handle of, or nil.
func (e *Engine) shareOf(hold *Hold) *share {
	state := e.lockOf(hold.Key)
	if state == nil || state.shares.n == 0 {
		return nil
	}
	one := state.shares.find(grantID{hold.Session, hold.Fence})
	if one == nil || !one.has(hold) {
		return nil
	}
	return one
}

// shareMoved keeps the shares of each lock and of each session.
func (e *Engine) shareMoved(old, new *schema.Share) {
	if e.own.shared {
		e.own.passedShares = append(e.own.passedShares, cmp.Or(old, new))
	}
	if old != nil {
		state := e.lockOf(old.Key)
		e.dropShare(state.shares.find(grantID{e.holder(old.Session), old.Fence}))
		e.tidy(state)
	}
	if new != nil {
		state, s := e.state(new.Key), e.holder(new.Session)
		one := &share{row: new, state: state, session: s, next: s.shares}
		if s.shares != nil {
			s.shares.prev = one
		}
		s.shares = one
		state.shares.add(one)
	}
}

// dropShare forgets a share. When its row is taken back, its handles may still be there: what they
// did is reverted after that.
func (e *Engine) dropShare(one *share) {
	for one.hold != nil {
		one.detach(one.hold)
	}
	if one.prev != nil {
		one.prev.next = one.next
	} else {
		one.session.shares = one.next
	}
	if one.next != nil {
		one.next.prev = one.prev
	}
	one.state.shares.remove(one)
}

// grantShare gives the session a share of a lock that no session holds alone. Only the first holder
// writes to the key, which it creates if need be (R2).
func (tx *Txn) grantShare(key string, s *Session, opts LockOptions) *schema.Share {
	e, fence := tx.engine, tx.next()
	row := tx.Get(key)
	if state := e.lockOf(key); state == nil || state.shares.n == 0 {
		draft, next := tx.draft(key)
		next.LockIndex, next.Fence = 1+max(next.LockIndex, tx.locked[key]), fence
		if opts.Value != nil {
			next.Value, next.Flags = bytes.Clone(opts.Value), opts.Flags
		}
		row = tx.write(draft)
		if state == nil || state.delay == nil { // that of a lost reader lasts on
			tx.dropDelay(key)
		}
	} else if opts.Value != nil {
		row = tx.Put(key, opts.Value, opts.Flags)
	}
	if again := e.state(key).shares.find(grantID{s, fence}); again != nil {
		return again.row
	}
	e.grantee = s
	return e.rows.Shares.Put(schema.ShareKey(key, fence, s.Row.ID), schema.Share{
		Key: key, Session: s.Row.ID, LockIndex: row.LockIndex, Fence: fence,
		Granted: e.moment(tx.now),
	})
}

// endShare is the end of a share, whose handles lose it.
func (tx *Txn) endShare(one *share, cause error) {
	for one.hold != nil {
		hold := one.hold
		one.detach(hold)
		f := tx.effect(LockLost)
		f.Hold, f.Cause = hold, cause
	}
	tx.removeShare(one, cause)
}

// removeShare removes the row of a share that has no handle, and looks at the queue.
func (tx *Txn) removeShare(one *share, cause error) {
	state, key := one.state, one.row.Key
	if cause != ErrUnlocked { // which is what an end means, if nothing is said
		if tx.shareEnds == nil {
			tx.shareEnds = make(map[Sequencer]error)
		}
		tx.shareEnds[SequencerOfShare(one.row)] = cause
	}
	if state.shares.removes && state.shares.n == 1 {
		tx.effect(removesEnded).share = one
	}
	if state.queue.Len() > 0 {
		tx.freed = append(tx.freed, key)
	}
	// Which tidies the state.
	tx.engine.rows.Shares.Delete(schema.ShareKey(key, one.row.Fence, one.row.Session))
}

// endShares ends all shares of a lock, whose key is gone.
func (tx *Txn) endShares(state *lockState, cause error) {
	for _, one := range state.shares.inOrder() {
		tx.endShare(one, cause)
	}
}

// releaseShare releases the share of hold, which is its last handle or one of several.
func (tx *Txn) releaseShare(hold *Hold) {
	one := tx.engine.shareOf(hold)
	if one == nil {
		return
	}
	one.detach(hold)
	tx.effect(LockReleased).Hold = hold
	if one.hold != nil { // another handle of the same grant has it
		return
	}
	if hold.givenUp && hold.takenOver { // the session goes on having it as before
		tx.freed = append(tx.freed, hold.Key)
		return
	}
	row := tx.Get(hold.Key)
	last := one.state.shares.n == 1
	tx.removeShare(one, ErrUnlocked)
	if last && hold.policy == RemoveAfter && row.ModifyIndex == row.Fence {
		tx.remove(row, ErrUnlocked)
		tx.bury(row)
	}
}

// releaseGivenUpOf releases the handles of the share whose calls have returned without them.
func (tx *Txn) releaseGivenUpOf(one *share) {
	for _, hold := range one.handles() {
		if hold.givenUp {
			tx.Release(hold)
		}
	}
}

// endSharesOf is the end of a session for its shares: a key that it is to delete goes with the last
// holder (R5).
func (tx *Txn) endSharesOf(s *Session, cause error) {
	for s.shares != nil {
		one := s.shares
		last, row := one.state.shares.n == 1, tx.Get(one.row.Key)
		if last && s.Row.Behavior == DeleteKeys {
			tx.remove(row, cause)
			tx.bury(row)
			continue
		}
		tx.endShare(one, cause)
	}
}

// Downgrade makes a lock that hold has alone one that next shares, in the same transaction: no
// other session has it in between, and the waiters in front that can share it are served (R4). It
// changes nothing of one that is shared already, and returns ErrNotHeld if hold has no lock any
// more.
func (tx *Txn) Downgrade(hold, next *Hold) error {
	e := tx.engine
	if hold.Mode == Shared && e.shareOf(hold) != nil {
		return nil
	}
	state := e.lockOf(hold.Key)
	if state == nil || state.hold != hold {
		return ErrNotHeld
	}
	row, policy := tx.Get(hold.Key), hold.policy
	if policy == RemoveAfter && row.ModifyIndex != row.Fence {
		policy = LeaveKey
	}
	e.setHold(state, nil)
	draft, free := tx.draft(hold.Key)
	free.Session, free.Fence = schema.ID{}, tx.next()
	tx.write(draft)
	tx.explain(row, errDowngraded)
	share := e.rows.Shares.Put(schema.ShareKey(row.Key, tx.next(), row.Session), schema.Share{
		Key: row.Key, Session: row.Session, LockIndex: row.LockIndex, Fence: tx.next(),
		Granted: e.moment(tx.now),
	})
	tx.assignShare(next, hold.Session, share, policy)
	f := tx.effect(LockDowngraded)
	f.Hold, f.Next = hold, next
	if state.queue.Len() > 0 {
		tx.freed = append(tx.freed, row.Key)
	}
	return nil
}

// takeShare is take of a lock that is shared, or free.
func (tx *Txn) takeShare(hold *Hold, s *Session, key string, row *schema.Key, opts LockOptions) {
	e, policy := tx.engine, opts.Policy
	state := e.lockOf(key)
	own := s.looseShare(state)
	if own != nil {
		hold.takenOver = true
		if opts.Value != nil {
			tx.Put(key, opts.Value, opts.Flags)
		}
		tx.assignShare(hold, s, own.row, LeaveKey)
		return
	}
	if row != nil && (state == nil || !state.shares.removes) {
		policy = LeaveKey // neither this holder nor another one created the key
	}
	tx.assignShare(hold, s, tx.grantShare(key, s, opts), policy)
}

// assignShare makes hold, which nothing refers to yet, a handle of a share.
func (tx *Txn) assignShare(hold *Hold, s *Session, row *schema.Share, policy KeyPolicy) {
	hold.Session, hold.Key, hold.policy, hold.Mode = s, row.Key, policy, Shared
	hold.LockIndex, hold.Fence = row.LockIndex, row.Fence
	state := tx.engine.lockOf(row.Key)
	tx.engine.setHold(state, hold)
	state.shares.removes = state.shares.removes || policy == RemoveAfter
}
