package engine

import (
	"fmt"
	"time"
)

// over reports whether the session's time is up by now, although it may not have been ended yet.
func (s *Session) over(now time.Time) bool {
	return s.life > 0 && !now.Before(s.deadline) && !s.aboutToBeRenewed()
}

// aboutToBeRenewed reports whether a renewal was due before the session is, and is only late.
func (s *Session) aboutToBeRenewed() bool {
	return s.renewal != nil && s.renewal.due.Queued() && !s.renewal.due.At().After(s.deadline)
}

// alive refuses a session that has ended, as of the newest state, or whose time is up.
func (tx *Txn) alive(s *Session) error {
	if !s.live {
		return fmt.Errorf("%w: it is about to end", ErrNoSession)
	}
	return tx.inTime(s)
}

// inTime refuses an operation with a session that lives only because other things are due before
// it: the session ends next, out of its turn.
func (tx *Txn) inTime(s *Session) error {
	if !s.over(tx.now) {
		return nil
	}
	tx.engine.refused = append(tx.engine.refused, s)
	return fmt.Errorf("%w: its TTL has passed", ErrNoSession)
}
