package lockd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/schema"
)

// Renew renews a session by its ID, as Session.Renew does (S26).
func (db *DB) Renew(id SessionID) error {
	called := db.writer.Time()
	s, err := db.published(id)
	if err == nil {
		err = s.renew(called)
	}
	if err == nil {
		return nil
	}
	return wrap("renew", id.String(), db.refused(err))
}

// published returns the handle on a published session. A session whose creation is not durable yet
// is unknown to every caller, so it does not exist (G3). To answer that there is no session needs
// no commit either: a session stays published until its end is durable.
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
// nothing (S25). It writes nothing and moves no index, and waits neither for a commit nor for the
// function of an Update. If the session has ended, or its TTL had passed at the call, Renew returns
// when the end is durable.
func (s *Session) Renew() error { return s.wrap("renew", s.renew(s.db.writer.Time())) }

// renew is Renew for a call made at the given time.
func (s *Session) renew(called time.Time) error {
	if err := s.renewalLost(); err != nil {
		return err
	}
	db := s.db
	db.writer.LockBeside()
	err := db.writer.Refused()
	renewed := err == nil && s.state.Extend(called)
	db.writer.Unlock()
	if err != nil || renewed {
		return err
	}
	return s.renewLate(context.Background(), func() bool { return s.state.Extend(called) })
}

// renewLate calls renew, which reports whether it renewed the session, for a session that has ended
// or is due. The write ends it now, and renewLate waits until the end is durable. Or the session
// lives after all: it is kept alive and only the timer was late, or its end was dropped.
func (s *Session) renewLate(ctx context.Context, renew func() bool) error {
	renewed := false
	outcome, _ := s.db.writer.Start(ctx.Done(), func(tx *engine.Txn) (queued bool, err error) {
		if renewed = renew(); !renewed && s.state.Live() {
			tx.EndDue(s.state.Due()) // more is due than one write ends
		}
		return false, nil
	})
	if err := outcome.Wait(ctx, nil); err != nil || renewed {
		return err
	}
	return cmp.Or(s.Err(), error(&EndedError{Session: s.ID(), Cause: ErrExpired}))
}

// Deadline returns when the session ends by its TTL unless it is renewed before, by the database's
// clock: the TTL and the grace after the last renewal (G6). It reports false if the session has no
// TTL.
//
// The deadline is not in the file: an Open begins the TTL anew (S28). A session that KeepAlive or a
// Keeper renews lives on past its deadline if only their timer is late. When a session has ended,
// its deadline stays.
func (s *Session) Deadline() (deadline time.Time, ok bool) {
	s.db.writer.LockBeside()
	defer s.db.writer.Unlock()
	return s.state.Deadline()
}

// KeepAlive renews the session in time until ctx or the session ends, and returns ctx's error or
// the session's. Until then the session lives even if its work hangs: see SessionOptions.TTL.
func (s *Session) KeepAlive(ctx context.Context) error {
	mustHave(ctx != nil, "context")
	s.db.writer.MustNotBeFunction()
	if err := s.startKeeping(ctx); err != nil {
		return s.wrap("keep alive", err)
	}
	defer s.stopKeeping()
	defer s.db.writer.Wait(hook.Ending, nil)()
	select {
	case <-s.Done():
		return s.wrap("keep alive", s.Err())
	case <-ctx.Done():
		return s.wrap("keep alive", ctx.Err())
	}
}

// startKeeping renews the session and keeps it alive from the same moment on, also while the
// function of an Update runs. After an error nothing keeps it alive.
func (s *Session) startKeeping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db, called := s.db, s.db.writer.Time()
	kept := false
	keep := func() bool {
		if kept = s.state.Extend(called); kept {
			if db.engine.Keep(&s.state, called) {
				db.writer.Arm()
			}
			db.waitsMoved()
		}
		return kept
	}
	db.writer.LockBeside()
	err := db.writer.Refused()
	if err == nil {
		keep()
	}
	db.writer.Unlock()
	if err != nil || kept {
		return err
	}
	err = s.renewLate(ctx, keep)
	if err != nil && kept {
		s.stopKeeping()
	}
	return err
}

func (s *Session) stopKeeping() {
	s.db.writer.LockBeside()
	defer s.db.writer.Unlock()
	s.db.engine.StopKeeping(&s.state, s.db.writer.Time())
	s.db.waitsMoved()
}

// renewalLost asks a test whether a renewal of the session is lost, and returns why.
func (s *Session) renewalLost() error {
	if s.db.hooks.Renewal == nil || s.Err() != nil {
		return nil
	}
	return s.db.hooks.Renewal(s.state.Row.ID)
}
