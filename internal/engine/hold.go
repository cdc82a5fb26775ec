package engine

import (
	"fmt"
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

// setHold makes hold the handle of the state's lock, or one of its handles if the lock is shared;
// nil removes the exclusive handle.
func (e *Engine) setHold(state *lockState, hold *Hold) {
	if hold != nil && hold.Mode == Shared {
		// If there is no share, the grant is being taken back too: see revert.
		if one := state.shares.find(grantID{hold.Session, hold.Fence}); one != nil {
			one.attach(hold)
			e.enterTerm(hold)
		}
		return
	}
	if old := state.hold; old != nil {
		e.leaveTerm(old)
		if old.policy == leaveSlot {
			sem := e.semaphore(PrefixOf(state.key))
			delete(sem.slots, old)
			e.tidySemaphore(sem)
		}
	}
	if state.hold = hold; hold != nil {
		e.enterTerm(hold)
		if hold.policy == leaveSlot {
			e.semaphore(PrefixOf(state.key)).slots[hold] = struct{}{}
		}
	}
}

// dropHold takes back setHold: hold is no longer a handle of its key.
func (e *Engine) dropHold(hold *Hold) {
	state := e.state(hold.Key)
	if one := e.shareOf(hold); one != nil {
		e.detach(one, hold)
	}
	if state.hold == hold {
		e.setHold(state, nil)
	}
}

// detach removes hold from the handles of the share.
func (e *Engine) detach(one *share, hold *Hold) {
	e.leaveTerm(hold)
	one.detach(hold)
}

// granted notes the session that a lock is granted to.
func (tx *Txn) granted(s *Session) {
	if e := tx.engine; e.grantees[0] != s {
		e.grantees[1], e.grantees[0] = e.grantees[0], s
	}
	if len(tx.engine.several) > 0 && s.calls > 0 {
		tx.promises = true
	}
}

// holdsAny reports whether the session holds a lock, alone or with others.
func (s *Session) holdsAny() bool { return s.held != nil || s.shares != nil }

// countNested updates e.nested when a session may have begun or ceased to hold locks; held says
// whether it held one before.
func (e *Engine) countNested(s *Session, held bool) {
	switch holds := s.holdsAny(); {
	case holds && !held:
		e.nested += s.calls
	case held && !holds:
		e.nested -= s.calls
	}
}

// adoptable reports whether the session holds the lock already, in the mode and without a handle.
func (tx *Txn) adoptable(s *Session, key string, row *schema.Key, mode Mode) bool {
	if mode == Shared {
		return s.looseShare(tx.engine.lockOf(key)) != nil
	}
	return row != nil && row.Session == s.Row.ID && tx.engine.lockOf(key).hold == nil
}

// SetMaxHold makes hold lose its lock that long after it is granted, or taken over; 0 means never.
// It is called before the lock is granted or taken over.
func (h *Hold) SetMaxHold(most time.Duration) {
	if most > 0 {
		h.term = &term{hold: h, most: most}
		h.term.due = expiry.Item{Owner: h.term, Rank: expiry.End}
	}
}

// beginTerm begins the term of hold, if it has one, at its grant.
func (tx *Txn) beginTerm(hold *Hold) {
	if t := hold.term; t != nil {
		t.until = tx.now.Add(t.most)
	}
}

// passTerm makes next, which took the place of hold, lose the lock when hold would have.
func (e *Engine) passTerm(hold, next *Hold) {
	if t := hold.term; t != nil {
		next.SetMaxHold(t.most)
		next.term.until = t.until
		e.enterTerm(next)
	}
}

// enterTerm puts the term of a handle that has its lock into the heap.
func (e *Engine) enterTerm(hold *Hold) {
	if t := hold.term; t != nil {
		e.due.Set(&t.due, t.until)
	}
}

// leaveTerm takes the term of a handle that no longer has its lock out of the heap.
func (e *Engine) leaveTerm(hold *Hold) {
	if t := hold.term; t != nil {
		e.due.Remove(&t.due)
	}
}

// isDue reports whether the handle has had its lock for as long as it may, although its turn to
// lose the lock may not have come.
func (t *term) isDue(now time.Time) bool { return !now.Before(t.until) }

// passed returns the cause with which the handle loses its lock.
func (t *term) passed() error { return fmt.Errorf("%w: MaxHold is %v", ErrHeldTooLong, t.most) }

// checkTerm checks that a handle which has its lock loses it in time. The hold may be nil.
func checkTerm(hold *Hold) error {
	if hold != nil && hold.term != nil && !hold.term.due.Queued() {
		return fmt.Errorf("bug: the hold of %q has a MaxHold but no deadline", hold.Key)
	}
	return nil
}
