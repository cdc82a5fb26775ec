package lockd

import (
	"fmt"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Renew renews a session by its ID, as Session.Renew does (S26). It returns ErrNoSession for a
// session that does not live, or whose TTL had passed when Renew was called, and ErrInvalid for the
// zero ID.
func (db *DB) Renew(id SessionID) error {
	called := db.writer.Time()
	s, err := db.published(id)
	if err == nil {
		err = s.renewalLost()
	}
	if err == nil {
		err = s.renew(called)
	}
	if err == nil {
		return nil
	}
	return wrap("renew", id.String(), db.refused(err))
}

// published returns the handle of a session that is published. One whose creation is not durable
// yet is not known to anybody, so it is not there (G3). That none is there needs no commit either:
// a session is published until its end is durable.
func (db *DB) published(id SessionID) (*Session, error) {
	if id.IsZero() {
		return nil, invalid("session is empty")
	}
	var s *Session
	if db.rows.Sessions.Get(string(id[:])) != nil {
		db.writer.LockBeside()
		if known := db.engine.Known(schema.ID(id)); known != nil { // else it has ended since
			s = handleOf(known).session
		}
		db.writer.Unlock()
	}
	if s == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoSession, id)
	}
	return s, nil
}

// Renew begins the session's TTL anew, from the moment of the call (G6); without a TTL it does
// nothing (S25). It moves no index, writes nothing to the file, and waits neither for a commit nor
// for the function of an Update. If the session has ended, or its TTL had passed when Renew was
// called, it returns an error that is ErrNoSession and wraps the cause, when that end is durable.
func (s *Session) Renew() error {
	err := s.renewalLost()
	if err == nil {
		err = s.renew(s.db.writer.Time())
	}
	if err == nil {
		return nil // to write the ID out takes longer than to renew
	}
	return wrap("renew", s.ID().String(), err)
}

// renew is Renew for a call that was made at that time.
func (s *Session) renew(called time.Time) error {
	db := s.db
	db.writer.LockBeside()
	err := db.writer.Refused()
	renewed := err == nil && s.state.Extend(called)
	db.writer.Unlock()
	if err != nil || renewed {
		return err
	}
	// It has ended, or is due: an update ends it now, and waits until that is durable. Or it lives
	// after all: it is kept alive and only the timer was late, or its end was dropped meanwhile.
	err = db.update(func(*engine.Txn) error {
		renewed = s.state.Extend(called)
		return nil
	})
	if err != nil || renewed {
		return err
	}
	if err := s.Err(); err != nil {
		return err
	}
	return &EndedError{Session: s.ID(), Cause: ErrExpired}
}
