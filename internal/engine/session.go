package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

// The values in a session's row that a rule names. Package lockd documents all values.
const (
	deleteKeys     = 1 // a Behavior
	boundToProcess = 0 // a Lifetime
)

// NewSession makes a session of the row, whose ID has never been used (S16 to S18); an empty Node
// means the node of the process. It returns ErrNoNode, ErrNoCheck or ErrCheckCritical.
func (tx *Txn) NewSession(row schema.Session) (*Session, error) {
	e := tx.engine
	if row.Node == "" {
		row.Node = e.config.Node
	}
	if tx.Node(row.Node) == nil {
		return nil, missing(ErrNoNode, row.Node)
	}
	for _, id := range row.Checks {
		check := tx.Check(row.Node, id)
		if check == nil {
			return nil, missing(ErrNoCheck, id)
		}
		if check.Status == Critical {
			return nil, missing(ErrCheckCritical, id)
		}
	}
	row.CreateIndex = tx.Index()
	s := e.adopt(e.rows.Sessions.Put(string(row.ID[:]), row), tx.now)
	tx.effect(SessionMade).Session = s
	return s, nil
}

// Session returns the live session with the ID, for an operation with it. It returns ErrNoSession
// if there is none, or it is due, and ErrInvalid for the zero ID.
func (tx *Txn) Session(id schema.ID) (*Session, error) {
	s, err := tx.LiveSession(id)
	if err == nil {
		err = tx.inTime(s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// LiveSession is Session for what ends the session, which may be due.
func (tx *Txn) LiveSession(id schema.ID) (*Session, error) {
	if id.IsZero() {
		return nil, invalid("session is empty")
	}
	s := tx.engine.sessions[id]
	if s == nil || !s.live {
		return nil, fmt.Errorf("%w: %s", ErrNoSession, id)
	}
	return s, nil
}

// Known returns the session with the ID, if it lives or its end is not published, or nil.
func (e *Engine) Known(id schema.ID) *Session { return e.sessions[id] }

// adopt makes the Session of a row, and begins its TTL, if it has one.
func (e *Engine) adopt(row *schema.Session, now time.Time) *Session {
	s := e.config.NewSession()
	s.Row, s.live, s.life = row, true, row.TTL+row.Grace
	s.expires = expiry.Item{Owner: s, Rank: expiry.End}
	if s.life > 0 {
		s.deadline = now.Add(s.life)
		e.due.Set(&s.expires, s.deadline)
	}
	e.sessions[row.ID] = s
	e.bind(s)
	return s
}

// bind and unbind maintain e.bound: the sessions of each node, and those bound to each check.
func (e *Engine) bind(s *Session) {
	for _, key := range s.bindings() {
		if e.bound[key] == nil {
			e.bound[key] = make(map[*Session]struct{})
		}
		e.bound[key][s] = struct{}{}
	}
}

func (e *Engine) unbind(s *Session) {
	for _, key := range s.bindings() {
		if delete(e.bound[key], s); len(e.bound[key]) == 0 {
			delete(e.bound, key)
		}
	}
}

func (s *Session) bindings() []string {
	keys := []string{Folded(s.Row.Node)}
	for _, id := range s.Row.Checks {
		keys = append(keys, CatalogKey(s.Row.Node, id))
	}
	return keys
}

// SetOwner sets the handle that the session is part of.
func (s *Session) SetOwner(owner any) { s.sessionRest = &sessionRest{Owner: owner} }

// Live reports whether the session has not ended, as of the newest state.
func (s *Session) Live() bool { return s.live }

// Deadline returns when the session is due unless it is renewed before, and whether it is ever due.
// It no longer changes once the session has ended.
func (s *Session) Deadline() (time.Time, bool) { return s.deadline, s.life > 0 }

// EndSession ends a session in one step, whatever the cause (G5, S31).
func (tx *Txn) EndSession(s *Session, cause error) {
	delay := s.Row.LockDelay
	if errors.Is(cause, ErrClosed) { // its owner says that it has stopped
		delay = 0
	}
	tx.EndSessionAfter(s, cause, delay)
}

// EndSessionAfter is EndSession with another lock-delay than the session's.
func (tx *Txn) EndSessionAfter(s *Session, cause error, delay time.Duration) {
	e := tx.engine
	s.live, s.missed = false, time.Time{}
	e.due.Remove(&s.expires)
	if s.renewal != nil {
		e.due.Remove(&s.renewal.due)
	}
	f := tx.effect(SessionEnded)
	f.Session, f.Cause = s, cause

	key := string(s.Row.ID[:])
	e.rows.Sessions.Delete(key)
	e.rows.Bury(GraveSession, key)
	// All delays first: whether a slot is lost depends on a key that may go with the session.
	for state := s.held; state != nil; state = state.next {
		tx.setDelay(state.key, delay, Exclusive)
	}
	for one := s.shares; one != nil; one = one.next {
		tx.setDelay(one.state.key, delay, Shared)
	}
	for s.held != nil { // each step takes the first off the list
		row := tx.Get(s.held.key)
		if s.Row.Behavior == deleteKeys {
			tx.remove(row, cause)
		} else {
			tx.release(row, cause)
		}
	}
	tx.endSharesOf(s, cause)
	for _, name := range slices.Sorted(maps.Keys(s.attached)) {
		e.rows.Attachments.Delete(name)
	}
	for w := range s.waiters() {
		tx.dismiss(w, fmt.Errorf("%w: %w", ErrNoSession, cause))
	}
}

// endSharesOf ends the shares of a session. If the session deletes its keys, it deletes a key only
// as the last holder (R5).
func (tx *Txn) endSharesOf(s *Session, cause error) {
	for s.shares != nil {
		one := s.shares
		last, row := one.state.shares.n == 1, tx.Get(one.state.key)
		if last && s.Row.Behavior == deleteKeys {
			tx.remove(row, cause)
			continue
		}
		tx.endShare(one, cause)
	}
}

// revive takes the end of the session back. A renewal that came meanwhile counts.
func (e *Engine) revive(s *Session) {
	s.live = true
	if s.life == 0 {
		return
	}
	s.Extend(s.missed)
	e.due.Set(&s.expires, s.deadline)
	if s.renewal != nil && s.renewal.callers > 0 {
		e.due.Set(&s.renewal.due, s.renewal.due.At())
	}
}

// unmake takes the making of the session back.
func (e *Engine) unmake(s *Session) {
	s.live = false
	delete(e.sessions, s.Row.ID)
	e.unbind(s)
	e.due.Remove(&s.expires)
	if s.renewal != nil { // it is a keeper's
		e.due.Remove(&s.renewal.due)
	}
}

// BoundToProcess reports whether the session ends with its process, however that ends.
func (s *Session) BoundToProcess() bool { return s.Row.Lifetime == boundToProcess }

// ClosesWithDatabase reports whether a clean end of the database ends the session.
func (s *Session) ClosesWithDatabase() bool { return s.BoundToProcess() || s.ofKeeper }

// EndWithKeeper makes the session end with the Keeper that has made it.
func (s *Session) EndWithKeeper() { s.ofKeeper = true }

// Keep keeps the session alive for one more caller, until StopKeeping. Extend has renewed the
// session as of called, the moment of the caller's call. The next renewal counts from that moment
// too, so it comes before the deadline even if Keep is late. Keep reports whether it has set a
// deadline: whether the session has a TTL, and this is the first caller.
func (e *Engine) Keep(s *Session, called time.Time) bool {
	if s.renewal == nil {
		s.renewal = &renewal{session: s}
		s.renewal.due = expiry.Item{Owner: s.renewal, Rank: expiry.Renewal}
	}
	s.renewal.callers++
	if s.life == 0 || s.renewal.callers > 1 {
		return false
	}
	e.due.Set(&s.renewal.due, s.renewal.next(called))
	return true
}

// StopKeeping ends Keep for one caller. A renewal that is due by now, and only late, is done first.
func (e *Engine) StopKeeping(s *Session, now time.Time) {
	if s.renewal.callers--; s.renewal.callers > 0 {
		return
	}
	if due := &s.renewal.due; due.Queued() && !now.Before(due.At()) {
		e.renew(s.renewal, now)
	}
	e.due.Remove(&s.renewal.due)
}

// Kept reports whether a call keeps the session alive.
func (s *Session) Kept() bool { return s.renewal != nil && s.renewal.callers > 0 }

// next returns when to renew after the renewal at renewed: later than that, however short the TTL.
func (r *renewal) next(renewed time.Time) time.Time {
	return renewed.Add(max(1, r.session.Row.TTL/2))
}

// renew renews on behalf of the calls that keep the session alive. The renewal was due before the
// session was, so it counts, however late the timer is.
func (e *Engine) renew(r *renewal, now time.Time) {
	loses := e.config.LosesRenewal
	if loses == nil || !loses(r.session.Row.ID) {
		r.session.deadline = now.Add(r.session.life)
	}
	e.due.Set(&r.due, r.next(now))
}

// Extend renews the session, as of the moment of the call, unless it has ended or was due then. It
// reports whether the session lives on.
func (s *Session) Extend(called time.Time) bool {
	switch {
	case !s.live:
		if called.Before(s.deadline) && called.After(s.missed) {
			s.missed = called
		}
		return false
	case s.life == 0:
		return true
	case s.isDue(called):
		return false
	}
	// A renewal that was called earlier but comes later does not shorten the deadline.
	if until := called.Add(s.life); until.After(s.deadline) {
		s.deadline = until
	}
	return true
}

// Expire makes the session due now.
func (e *Engine) Expire(s *Session, now time.Time) {
	s.deadline = now
	e.due.Set(&s.expires, now)
}
