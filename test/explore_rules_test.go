package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// explored is a World whose calls check their answers against the promises.
type explored struct {
	*lockdtest.World
	sessions []*exploredSession
	indexes  map[uint64]string // of writes, and the names of the writers
	index    uint64            // of the newest snapshot
	queues   map[string][]string
	holders  map[string]string
	passed   map[string]bool // waiters that may be, because of a delay of their own
	delays   map[string]time.Time
	restarts bool // the database may fail, and the next process goes on
}

// exploredSession is a session, with the time until which it has to live at least (G6).
type exploredSession struct {
	*lockd.Session
	name  string
	until time.Time
}

func newExplored(w *lockdtest.World) *explored {
	x := &explored{
		World: w, indexes: make(map[uint64]string), queues: make(map[string][]string),
		holders: make(map[string]string), passed: make(map[string]bool),
	}
	w.Invariant("G4: the index does not fall", x.indexRises)
	w.Invariant("G5: no lock without its session", x.locksHaveSessions)
	w.Invariant("G6: no session ends before its time", x.sessionsLive)
	w.Invariant("G7: a delay does not grow", x.delaysPass)
	w.Invariant("G9: waiters are served in order", x.queuesAreServed)
	return x
}

func (x *explored) indexRises() error {
	index := x.DB().Snapshot().Index()
	if index < x.index {
		return fmt.Errorf("it was %d, and is %d", x.index, index)
	}
	x.index = index
	return nil
}

func (x *explored) locksHaveSessions() error {
	state := x.DB().Snapshot()
	for key, entry := range state.Prefix("") {
		if _, lives := state.Session(entry.Session); !entry.Session.IsZero() && !lives {
			return fmt.Errorf("%s is held by a session that has ended", key)
		}
	}
	for a := range state.Catalog().Attachments("") {
		if _, lives := state.Session(a.Session); !lives {
			return fmt.Errorf("%s is attached to a session that has ended", a.Name)
		}
	}
	for l := range x.DB().Locks() {
		for _, w := range l.Queue {
			if _, lives := state.Session(w.Session.ID); !lives {
				return fmt.Errorf("a session that has ended waits for %s", l.Key)
			}
		}
	}
	return nil
}

// delaysPass compares the delays of locks that are free with those after the last step.
func (x *explored) delaysPass() error {
	delays := make(map[string]time.Time)
	for l := range x.DB().Locks() {
		if !l.Holder.ID.IsZero() || l.DelayedUntil.IsZero() {
			continue
		}
		delays[l.Key] = l.DelayedUntil
		if before := x.delays[l.Key]; !before.IsZero() && l.DelayedUntil.After(before) {
			return fmt.Errorf("%s was delayed until %v, and is so until %v", l.Key,
				before.UnixNano(), l.DelayedUntil.UnixNano())
		}
	}
	x.delays = delays
	return nil
}

func (x *explored) sessionsLive() error {
	now := x.Clock().Now()
	for _, s := range x.sessions {
		if errors.Is(s.Err(), lockd.ErrExpired) && now.Before(s.until) {
			return fmt.Errorf("%s has expired at %v, %v too early", s.name, now.UnixNano(),
				s.until.Sub(now))
		}
	}
	return nil
}

// queuesAreServed compares the queues with the queues after the last step: no waiter that was ahead
// of a served one may be left, except waiters that may not have a slot yet, because of a delay of
// their own. A waiter for a slot is in the queue of its semaphore.
func (x *explored) queuesAreServed() error {
	queues, holders := make(map[string][]string), make(map[string]string)
	delayed := make(map[string]bool) // the keys
	for l := range x.DB().Locks() {
		delayed[l.Key] = !l.DelayedUntil.IsZero()
		holders[l.Key] = l.Holder.Name
	}
	for l := range x.DB().Locks() {
		for _, w := range l.Queue {
			queues[l.Key] = append(queues[l.Key], w.Session.Name)
			if delayed[contender(l.Key, w.Session.ID)] {
				x.passed[w.Session.Name] = true // also by a grant that is not durable yet
			}
		}
	}
	for key, before := range x.queues {
		for i, name := range before {
			if slices.Contains(queues[key], name) || !x.served(key, name, holders) {
				continue
			}
			for _, ahead := range before[:i] {
				if slices.Contains(queues[key], ahead) && !x.passed[ahead] {
					return fmt.Errorf("%s: %s was served, and %s, ahead of it, waits on", key, name,
						ahead)
				}
			}
		}
	}
	x.queues, x.holders = queues, holders
	return nil
}

// contender is the key of the slot that a waiter for a semaphore is to have, and for any other lock
// a key that is never held.
func contender(key string, id lockd.SessionID) string {
	return strings.TrimSuffix(key, ".lock") + id.String()
}

// served reports whether the session holds what it did not hold after the last step.
func (x *explored) served(key, name string, holders map[string]string) bool {
	prefix, slot := strings.CutSuffix(key, "/.lock")
	if !slot {
		return holders[key] == name && x.holders[key] != name
	}
	for key, holder := range holders {
		if strings.HasPrefix(key, prefix) && holder == name && x.holders[key] != name {
			return true
		}
	}
	return false
}

// session makes a session, or returns nil if the commit failed.
func (x *explored) session(name string, opts lockd.SessionOptions) *exploredSession {
	opts.Name = name
	until := x.Clock().Now().Add(opts.TTL + opts.Grace)
	session, err := x.DB().NewSession(&opts)
	if err != nil {
		x.only(err, lockd.ErrCommit)
		return nil
	}
	if session == nil {
		x.Errorf("G11: NewSession returned nil without an error")
		return nil
	}
	s := &exploredSession{session, name, until}
	x.sessions = append(x.sessions, s)
	if _, lives := x.DB().Snapshot().Session(s.ID()); !lives && s.Err() == nil {
		x.Errorf("G3: %s was answered, and is not published", name)
	}
	return s
}

// renew renews the session.
func (x *explored) renew(s *exploredSession) {
	until := x.Clock().Now().Add(s.Info().TTL + s.Info().Grace)
	if err := s.Renew(); err != nil {
		x.only(err, lockd.ErrNoSession, lockd.ErrCommit, lockdtest.ErrDropped)
		return
	}
	s.until = until
}

// Restart is World's, and notes that the database may fail.
func (x *explored) Restart(fn func()) {
	x.restarts = true
	x.World.Restart(fn)
}

// only fails on an error that is not among the expected ones.
func (x *explored) only(err error, expected ...error) {
	if x.restarts {
		expected = append(expected, lockd.ErrFailed)
	}
	for _, e := range expected {
		if errors.Is(err, e) {
			return
		}
	}
	x.Errorf("unexpected error: %v", err)
}

// lockInTxn takes the lock by a transaction, without a handle, and reports whether that is durable.
func (x *explored) lockInTxn(s *exploredSession, key string) bool {
	err := x.DB().Update(func(tx *lockd.Txn) error {
		_, err := tx.Lock(key, s.ID(), nil)
		return err
	})
	if err != nil {
		x.only(err, lockd.ErrCommit)
	}
	return err == nil
}

// lock waits for the lock.
func (x *explored) lock(ctx context.Context, s *exploredSession, key string) *lockd.Lock {
	return x.lockWith(ctx, s, key, nil)
}

// lockWith is lock with options.
func (x *explored) lockWith(
	ctx context.Context, s *exploredSession, key string, opts *lockd.LockOptions,
) *lockd.Lock {
	before := ctx.Err()
	l, err := s.Lock(ctx, key, opts)
	if err == nil && before != nil {
		x.Errorf("G11: %s was locked with a context that had ended", key)
	}
	if err != nil {
		x.refused(err)
		x.only(err, lockd.ErrCommit, lockd.ErrNoSession, context.Canceled)
		return nil
	}
	x.granted(l)
	if opts != nil && l.Sequencer().Mode != opts.Mode {
		x.Errorf("R1: %s was asked for %s, and is had %s", key, opts.Mode, l.Sequencer().Mode)
	}
	return l
}

// lockAll waits for all the locks.
func (x *explored) lockAll(ctx context.Context, s *exploredSession, keys ...string) []*lockd.Lock {
	return x.lockAllWith(ctx, s, nil, keys...)
}

// lockAllWith is lockAll with options.
func (x *explored) lockAllWith(
	ctx context.Context, s *exploredSession, opts *lockd.LockOptions, keys ...string,
) []*lockd.Lock {
	locks, err := s.LockAll(ctx, keys, opts)
	if err != nil {
		x.refused(err)
		x.only(err, lockd.ErrCommit, lockd.ErrNoSession, context.Canceled)
		return nil
	}
	for _, l := range locks {
		x.granted(l)
	}
	return locks
}

// tryLock takes the lock if it is free.
func (x *explored) tryLock(s *exploredSession, key string) *lockd.Lock {
	return x.tryLockWith(s, key, nil)
}

// tryLockWith is tryLock with options.
func (x *explored) tryLockWith(
	s *exploredSession, key string, opts *lockd.LockOptions,
) *lockd.Lock {
	ahead := slices.Clone(x.queues[key])
	l, err := s.TryLock(key, opts)
	if err != nil {
		x.refused(err)
		var locked *lockd.LockedError
		if !errors.As(err, &locked) {
			x.only(err, lockd.ErrCommit, lockd.ErrNoSession)
		}
		return nil
	}
	x.granted(l)
	for _, name := range ahead {
		if slices.Contains(x.queues[key], name) && !x.passed[name] {
			x.Errorf("G9: %s was locked by %s, and %s, ahead of it, waits on", key, s.name, name)
		}
	}
	return l
}

// refused checks that a refusal tells only of what is published. Get is no point of the schedule:
// no other call comes between the refusal and Get.
func (x *explored) refused(err error) {
	var locked *lockd.LockedError
	if !errors.As(err, &locked) || len(locked.Holders) > 0 { // whose fences the key does not have
		return
	}
	if e, _ := x.DB().Get(locked.Key); e.Fence < locked.Fence {
		x.Errorf("G3: refused because of fence %d, and fence %d is published: %v", locked.Fence,
			e.Fence, err)
	}
}

// granted checks that a grant is published.
func (x *explored) granted(l *lockd.Lock) {
	if l == nil {
		x.Errorf("G11: a nil lock without an error")
		return
	}
	proof := l.Sequencer()
	if proof.Mode == lockd.Shared {
		return // Explore looks at what is published
	}
	if e, _ := x.DB().Get(l.Key()); e.Fence < proof.Fence {
		x.Errorf("G3: the lock of %s was returned with fence %d, and %d is published", l.Key(),
			proof.Fence, e.Fence)
	}
}

// unlock releases the lock, however often the commit fails.
func (x *explored) unlock(l *lockd.Lock) {
	for {
		err := l.Unlock()
		if !errors.Is(err, lockd.ErrCommit) {
			if err != nil {
				x.only(err, lockd.ErrNotHeld)
			}
			return
		}
	}
}

// put writes the value, and checks that it is published when the call is answered, at an index that
// no other write has had.
func (x *explored) put(name, key string) {
	e, err := x.DB().Put(key, []byte(name), nil)
	if err != nil {
		x.only(err, lockd.ErrCommit)
		if !e.Session.IsZero() || e.Key != "" {
			x.Errorf("G11: Put returned an entry with its error")
		}
		return
	}
	x.wrote(name, key, e.ModifyIndex)
}

// wrote checks a write that was answered.
func (x *explored) wrote(name, key string, index uint64) {
	if got, _ := x.DB().Get(key); got.ModifyIndex < index {
		x.Errorf("G3: a write of %s at index %d was answered, and %d is published", key, index,
			got.ModifyIndex)
	}
	x.used(name, index)
}

// used notes an index that a write has had.
func (x *explored) used(name string, index uint64) {
	if other, twice := x.indexes[index]; twice {
		x.Errorf("G4: index %d is that of a write of %s, and of one of %s", index, name, other)
	}
	x.indexes[index] = name
}
