package engine

import (
	"fmt"
	"time"

	"github.com/lockd/lockd/internal/expiry"
)

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

// checkTerm checks that a handle which has its lock loses it in time. The hold may be nil.
func checkTerm(hold *Hold) error {
	if hold != nil && hold.term != nil && !hold.term.due.Queued() {
		return fmt.Errorf("bug: the hold of %q has a MaxHold but no deadline", hold.Key)
	}
	return nil
}
