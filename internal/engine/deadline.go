package engine

import (
	"fmt"
	"time"
)

// Due is something that is due: the end of a session, of a check's TTL, of a hold with a MaxHold or
// of a lock-delay, or a notice of a slow grant or call. The zero value is not due.
type Due struct{ owner any }

// Due returns the end of the session by its TTL.
func (s *Session) Due() Due { return Due{s} }

// isDue reports whether the session is due by now: its TTL has passed, although its turn to be
// ended may not have come.
func (s *Session) isDue(now time.Time) bool {
	return s.life > 0 && !now.Before(s.deadline) && !s.aboutToBeRenewed()
}

// aboutToBeRenewed reports whether a renewal was due before the session is, and is only late.
func (s *Session) aboutToBeRenewed() bool {
	return s.renewal != nil && s.renewal.due.Queued() && !s.renewal.due.At().After(s.deadline)
}

// alive refuses a session that has ended, as of the newest state, or is due.
func (tx *Txn) alive(s *Session) error {
	if !s.live {
		return fmt.Errorf("%w: it is about to end", ErrNoSession)
	}
	return tx.inTime(s)
}

// inTime refuses an operation with a session that is due, and lives only because its turn has not
// come (S29). The writer then ends the session out of its turn.
func (tx *Txn) inTime(s *Session) error {
	if !s.isDue(tx.now) {
		return nil
	}
	tx.engine.refused = append(tx.engine.refused, s.Due())
	return fmt.Errorf("%w: its TTL has passed", ErrNoSession)
}
