package engine

import "fmt"

// Proves returns ErrNotHeld unless the lock that q names is held by that very grant, as of the
// newest state (K41), and neither its session (S29) nor its MaxHold is due (R11).
func (tx *Txn) Proves(q Sequencer) error {
	if err := tx.engine.lasts(q); err != nil {
		return err
	}
	if tx.inTime(tx.engine.holder(q.Session)) != nil {
		return fmt.Errorf("%w: the TTL of session %s has passed", ErrNotHeld, q.Session)
	}
	if t := tx.termOf(q); t != nil {
		tx.engine.refused = append(tx.engine.refused, Due{t})
		return fmt.Errorf("%w: %w", ErrNotHeld, t.passed())
	}
	return nil
}

// termOf returns a term that is over by now, of a handle on the grant; nil if there is none. The
// grant lasts.
func (tx *Txn) termOf(q Sequencer) *term {
	state := tx.engine.lockOf(q.Key)
	holds := []*Hold{state.hold}
	if q.Mode == Shared {
		holds = state.shares.find(grantID{tx.engine.holder(q.Session), q.Fence}).holds
	}
	for _, hold := range holds {
		if hold != nil && hold.term != nil && hold.term.isDue(tx.now) {
			return hold.term
		}
	}
	return nil
}
