package engine

import (
	"fmt"
	"slices"
	"time"
)

// Next returns the earliest instant at which something is due, and whether there is one.
func (e *Engine) Next() (time.Time, bool) { return e.due.Next() }

// Deadlines returns how many instants the engine waits for.
func (e *Engine) Deadlines() int { return e.due.Len() }

// AnyDue reports whether PopDue has deadlines to look at, or PopUnserved reports true.
func (e *Engine) AnyDue() bool { return e.due.Len() > 0 || e.unserved }

// PopDue returns the first thing that is due, in the order of the deadlines (G5). The caller ends
// it in a transaction of its own. PopDue itself does the renewals that are due, and puts back the
// items that were renewed before; as a rule neither needs a transaction. It looks at no more than
// most deadlines, and returns how many it looked at. It reports false if nothing that it looked at
// is due.
func (e *Engine) PopDue(now time.Time, most int) (due Due, looked int, ok bool) {
	for ; looked < most; looked++ {
		it := e.due.Pop(now)
		if it == nil {
			return Due{}, looked, false
		}
		switch owner := it.Owner.(type) {
		case *renewal:
			e.renew(owner, now)
			continue
		case *Session:
			renewed := e.early(it, owner.deadline)
			if renewed && !(owner.stalls && now.Before(owner.deadline)) {
				continue // if it is due after all, its turn comes at its own deadline
			}
		case *checkLease:
			if e.early(it, owner.deadline) { // it was put again
				continue
			}
		case *slowWait:
			if owner.waiter.phase != standing { // its outcome is decided, and may be taken back
				continue
			}
		}
		return Due{it.Owner}, looked + 1, true
	}
	return Due{}, looked, false
}

// PopRefused returns the end of a session, or of a hold with a MaxHold, if one of the last
// transactions has refused an operation because the session or the hold is due. That end comes out
// of turn: earlier deadlines may be due too. PopRefused reports false if there is none.
func (e *Engine) PopRefused(now time.Time) (due Due, ok bool) {
	for n := len(e.refused); n > 0; n-- {
		due := e.refused[n-1]
		e.refused = slices.Delete(e.refused, n-1, n)
		switch owner := due.owner.(type) {
		case *Session:
			ok = owner.live && owner.isDue(now) // else it has ended since, or was renewed
		case *term:
			ok = owner.due.Queued() && owner.isDue(now) // else the lock has ended since
		}
		if ok {
			return due, true
		}
	}
	return Due{}, false
}

// name is what a test is told: see Config.Ends.
func (d Due) name() string {
	switch owner := d.owner.(type) {
	case *Session:
		return owner.Row.ID.UUID()
	case *checkLease:
		return owner.check
	case *term:
		hold := owner.hold
		return fmt.Sprintf("%d%s%s", hold.Fence, hold.Session.Row.ID.UUID(), hold.Key)
	case *delay:
		return owner.key
	}
	return ""
}

// EndDue ends what is due.
func (tx *Txn) EndDue(due Due) {
	if tx.engine.config.Ends != nil {
		tx.engine.config.Ends(due.name())
	}
	switch owner := due.owner.(type) {
	case *Session:
		tx.endLapsed(owner)
	case *checkLease:
		tx.lapse(owner)
	case *term:
		tx.endTerm(owner)
	case *delay:
		tx.endDelay(owner)
	case *slowHold:
		tx.reportHold(owner)
	case *slowWait:
		tx.reportWait(owner)
	}
	tx.again = true
}

// endLapsed ends a session whose TTL has passed. If the session was renewed in time after all, and
// only the renewal came late, endLapsed goes on with the queues that stopped at its calls instead.
func (tx *Txn) endLapsed(s *Session) {
	if s.isDue(tx.now) {
		renewed := s.deadline.Add(-s.life)
		tx.EndSession(s, &lapse{tx.now.Sub(renewed)})
		return
	}
	s.stalls = false
	for w := range s.waiters() {
		tx.freed = append(tx.freed, w.Keys()...)
	}
	tx.promises = true
}

// PopUnserved reports whether ServeAll has to be called, and forgets it.
func (e *Engine) PopUnserved() bool {
	unserved := e.unserved
	e.unserved = false
	return unserved
}

// endDelay ends a delay, and gives the lock to its first waiter. Without a waiter it writes
// nothing: a later write removes the row of the delay.
func (tx *Txn) endDelay(d *delay) {
	e := tx.engine
	e.swapDelay(e.lockOf(d.key), nil)
	e.overdue = append(e.overdue, d.key)
	tx.serve(d.key)
	tx.serveContenders(PrefixOf(d.key))
}

// endTerm takes the lock from a handle that has had it for as long as it may, as ForceUnlock would.
func (tx *Txn) endTerm(t *term) {
	cause := t.passed()
	if one := tx.engine.shareOf(t.hold); one != nil {
		tx.loseShare(one, cause)
		return
	}
	tx.lose(tx.Get(t.hold.Key), cause)
}

// reportHold adds the effect that tells that a grant is slow, once the current state is durable.
func (tx *Txn) reportHold(h *slowHold) {
	h.reported = true
	e := tx.engine
	s := &Slow{
		Key: h.grant.Key, Mode: h.grant.Mode, Fence: h.grant.Fence,
		Session: e.holder(h.grant.Session).Row, At: tx.now, hold: h,
	}
	s.Lasted = Lasted(h.granted, tx.now)
	queue := s.Key
	if tx.isSlot(s.Key) {
		queue = PrefixOf(s.Key) + SemaphoreKey
	}
	if state := e.lockOf(queue); state != nil {
		s.Waiters = state.queue.Len()
		if first := state.queue.Front(); first != nil {
			s.First = first.Waiter.Session.Row
		}
	}
	f := tx.effect(HoldSlow)
	f.Slow = s
	state := e.lockOf(s.Key)
	one := state.shares.find(grantID{e.holder(h.grant.Session), s.Fence})
	switch {
	case one == nil:
		f.Hold = state.hold
	case len(one.holds) > 0:
		f.Hold = one.holds[0]
	}
}

// reportWait adds the effect that tells that a call has waited for long.
func (tx *Txn) reportWait(s *slowWait) {
	s.reported = true
	w := s.waiter
	f := tx.effect(WaitSlow)
	f.Waiter = w
	f.Slow = &Slow{
		Key: w.claims[0].key, Mode: w.Options.Mode, Session: w.Session.Row, At: tx.now,
		Lasted: Lasted(w.Began, tx.now), Blocked: tx.obstacle(w),
	}
	if blocked := f.Slow.Blocked; blocked != nil {
		f.Slow.Key = blocked.Key
	}
}
