package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockd/lockd"
)

// restart gives the file to another process, kills that process, and looks at what remains.
func (s *story) restart(ctx context.Context) error {
	primary, _ := s.db.Get(primaryKey)
	if err := s.db.Close(); err != nil {
		return err
	}
	last, err := s.kill(ctx)
	if err != nil {
		return err
	}
	opened := time.Now()
	db, err := lockd.Open(s.path, nil)
	if err != nil {
		return err
	}
	s.db = db
	count, _ := s.db.Get(countKey)
	n, err := strconv.Atoi(string(count.Value))
	// What was written and not acknowledged may be there, or not.
	if err != nil || n < last.Count || n == last.Count && count.ModifyIndex != last.Index {
		return fmt.Errorf("%d was acknowledged at index %d, and %q is there, from index %d",
			last.Count, last.Index, count.Value, count.ModifyIndex)
	}
	s.say("%s is %d, and %d was the last that was acknowledged", count.Key, n, last.Count)
	still, _ := s.db.Get(primaryKey)
	if string(still.Value) != string(primary.Value) || still.ModifyIndex != primary.ModifyIndex {
		return fmt.Errorf("%s was %s, from index %d, and is %s, from index %d", primaryKey,
			primary.Value, primary.ModifyIndex, still.Value, still.ModifyIndex)
	}
	s.say("%s is still %s, from index %d", still.Key, still.Value, still.ModifyIndex)

	if err := s.takeOver(ctx, last.Backup); err != nil {
		return err
	}
	if err := s.died(ctx, last.Leader); err != nil {
		return err
	}
	return s.succeed(ctx, opened)
}

// takeOver takes over the lock of the session that outlived its process: it is the same grant.
func (s *story) takeOver(ctx context.Context, backup lockd.Sequencer) error {
	session, err := s.db.Session(backup.Session)
	if err != nil {
		return err
	}
	lock, err := session.Lock(ctx, backupKey, nil)
	if err != nil {
		return err
	}
	if lock.Sequencer() != backup {
		return fmt.Errorf("%s was held by %s and is by %s", backupKey, backup, lock.Sequencer())
	}
	s.say("session %q outlived its process, and still holds %s", session.Info().Name,
		lock.Sequencer())
	return s.db.CheckSequencer(backup)
}

// died looks at the end of the session that was bound to its process.
func (s *story) died(ctx context.Context, leader lockd.Sequencer) error {
	scope := lockd.SessionScope(leader.Session)
	ended := s.db.Snapshot().IndexOf(scope)
	for event, err := range s.db.Watch(ctx, scope, ended-1) {
		if err != nil {
			return err
		}
		what := fmt.Sprintf("session %q ended at index %d", event.Session.Name, event.Index)
		if err := s.refused(what, event.Cause, lockd.ErrProcessGone); err != nil {
			return err
		}
		break
	}
	return s.refused("its sequencer proves nothing now", s.db.CheckSequencer(leader),
		lockd.ErrNotHeld)
}

// succeed lets one more worker lead, when the lock-delay of the process that is gone is over.
func (s *story) succeed(ctx context.Context, opened time.Time) error {
	w, err := s.hire(ctx, "mysql-5")
	if err != nil {
		return err
	}
	w.campaign(ctx)
	if err := s.leads(w); err != nil {
		return err
	}
	waited := time.Since(opened)
	if waited < s.ttl {
		return fmt.Errorf("%s leads %v after the restart, with a lock-delay of %v", w.name,
			waited, s.ttl)
	}
	s.say("%s led %v after the restart, since the lock-delay was %v", w.name, ms(waited), s.ttl)
	return s.write(w, "10.0.0.50")
}
