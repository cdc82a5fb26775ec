package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockd/lockd"
)

// Only these two fences keep a late write out. The test takes one down at a time, and the story has
// to notice.
var (
	putInLockd = func(db *lockd.DB, q lockd.Sequencer, text string) (lockd.Entry, error) {
		return db.If(q).Put(primaryKey, []byte(text), nil)
	}
	fenceAtJournal = (*lockd.Guard).Check
)

// journal is a resource that lockd knows nothing of. Only its guard fences it.
type journal struct {
	guard lockd.Guard
	lines []string
}

func (j *journal) add(q lockd.Sequencer, line string) error {
	if err := fenceAtJournal(&j.guard, q); err != nil {
		return err
	}
	j.lines = append(j.lines, line)
	return nil
}

// put writes to lockd as the worker that the sequencer was given to.
func (s *story) put(q lockd.Sequencer, text string) (lockd.Entry, error) {
	return putInLockd(s.db, q, text)
}

// write does what a leader does: it writes to lockd and to the journal, both fenced.
func (s *story) write(w *worker, text string) error {
	q := w.lock.Sequencer()
	entry, err := s.put(q, text)
	if err != nil {
		return err
	}
	if err := s.journal.add(q, text); err != nil {
		return err
	}
	s.say("%s wrote %s = %s at index %d, and line %d of the journal", w.name, entry.Key,
		entry.Value, entry.ModifyIndex, len(s.journal.lines))
	return nil
}

// fence lets the lost leader, which has not noticed, go on writing while the next one leads.
func (s *story) fence(ctx context.Context, lost, next *worker) error {
	if err := s.write(next, "10.0.0.20"); err != nil {
		return err
	}
	late := lost.lock.Sequencer()
	before, lines := s.db.Snapshot(), slices.Clone(s.journal.lines)
	_, err := s.put(late, "10.0.0.10")
	what := fmt.Sprintf("%s writes to lockd, too late", lost.name)
	if err := s.refused(what, err, lockd.ErrNotHeld); err != nil {
		return err
	}
	err = s.journal.add(late, "10.0.0.10")
	what = fmt.Sprintf("%s writes to the journal, too late", lost.name)
	if err := s.refused(what, err, lockd.ErrNotHeld); err != nil {
		return err
	}
	was, _ := before.Get(primaryKey)
	is, _ := s.db.Get(primaryKey)
	if is.ModifyIndex != was.ModifyIndex || !slices.Equal(s.journal.lines, lines) {
		return fmt.Errorf("a late write got through: %s = %s, journal %q", is.Key, is.Value,
			s.journal.lines)
	}
	s.say("%s is %s, as at index %d, and the journal ends with %s", is.Key, is.Value,
		is.ModifyIndex, s.journal.lines[len(s.journal.lines)-1])

	return s.handOver(ctx, next, s.workers[2])
}

// handOver lets the leader unlock: the next one has the lock in the same step.
func (s *story) handOver(ctx context.Context, leader, next *worker) error {
	before := s.db.Snapshot().Index()
	if err := leader.lock.Unlock(); err != nil {
		return err
	}
	for event, err := range s.db.Watch(ctx, lockd.KeyScope(leaderKey), before) {
		if err != nil {
			return err
		}
		if event.Ended.ID.IsZero() || event.Granted.ID != next.session.ID() {
			return fmt.Errorf("unlock at index %d was followed by %+v", before, event)
		}
		s.say("%s unlocked, and at index %d the lock went on to %s, without a lock-delay",
			leader.name, event.Index, event.Entry.Value)
		break
	}
	if err := s.leads(next); err != nil {
		return err
	}
	return s.write(next, "10.0.0.30")
}
