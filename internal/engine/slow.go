package engine

import (
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

// Slow is a lock, or a slot, that is held or waited for longer than Config.Slow. It is told once.
type Slow struct {
	Key     string
	Mode    Mode
	Session *schema.Session // the session that holds, or waits
	At      time.Time       // the instant at which the other fields were so
	Lasted  time.Duration   // so far; 0 if it is not known

	Fence   uint64          // of a hold
	Waiters int             // of a hold: how many calls wait
	First   *schema.Session // of a hold: the session of the first of them, or nil

	Blocked *Blocked // of a wait: what is in the way, or nil if only a commit is

	hold *slowHold
}

// slow has the deadlines at which the caller is told that a grant, with a handle or without, or a
// call that waits is slow.
type slow struct {
	holds map[Sequencer]*slowHold
	waits map[*Waiter]*slowWait
}

// slowHold is when the caller is told that a grant is slow. It is in the heap while the grant lasts
// and the caller has not been told. After that it is kept until the end of the grant is published,
// because the end may be taken back.
type slowHold struct {
	grant    Sequencer
	granted  time.Time // zero if that was before the database was opened
	reported bool
	due      expiry.Item
}

// slowWait is when a call that waits is told as slow. It is kept until the call's outcome is final.
type slowWait struct {
	waiter   *Waiter
	reported bool
	due      expiry.Item
}

// keyHeld updates the deadlines of slow holds when an exclusive grant of the key begins or ends.
func (e *Engine) keyHeld(old, new *schema.Key) {
	held, holds := isLocked(old), isLocked(new)
	switch {
	case held && holds && SequencerOf(old) == SequencerOf(new):
		return
	case held:
		e.holdEnds(SequencerOf(old))
	}
	if holds {
		e.holdBegins(SequencerOf(new), new.Granted)
	}
}

// shareHeld is keyHeld for a shared lock: old or new is nil.
func (e *Engine) shareHeld(old, new *schema.Share) {
	if old != nil {
		e.holdEnds(SequencerOfShare(old))
	}
	if new != nil {
		e.holdBegins(SequencerOfShare(new), new.Granted)
	}
}

func (e *Engine) holdBegins(grant Sequencer, granted time.Time) {
	if e.slow.holds[grant] != nil { // its end is taken back
		return
	}
	h := &slowHold{grant: grant, granted: granted}
	h.due = expiry.Item{Owner: h, Rank: expiry.Notice}
	e.slow.holds[grant] = h
	e.holdGoesOn(h)
}

// holdGoesOn sets the deadline of a grant that lasts and was not reported. For a grant from before
// the database was opened, the time counts from the opening.
func (e *Engine) holdGoesOn(h *slowHold) {
	from := h.granted
	if from.IsZero() {
		from = e.opened
	}
	e.due.Set(&h.due, from.Add(e.config.Slow))
}

func (e *Engine) holdEnds(grant Sequencer) {
	if h := e.slow.holds[grant]; !h.reported {
		e.due.Remove(&h.due)
		delete(e.slow.holds, grant)
	}
}

// forgetEnded forgets the grants whose ends are published.
func (e *Engine) forgetEnded(events []Event) {
	for i := range events {
		r := &events[i].Body
		if r.Former == nil {
			continue
		}
		switch old := r.Old.(type) {
		case *schema.Key:
			delete(e.slow.holds, SequencerOf(old))
		case *schema.Share:
			delete(e.slow.holds, SequencerOfShare(old))
		}
	}
}

// waitBegins gives a call that begins to wait its deadline.
func (e *Engine) waitBegins(w *Waiter) {
	s := &slowWait{waiter: w}
	s.due = expiry.Item{Owner: s, Rank: expiry.Notice}
	e.slow.waits[w] = s
	e.waitGoesOn(s)
}

// waitGoesOn sets the deadline of a call that stands in its queues, unless it was reported.
func (e *Engine) waitGoesOn(s *slowWait) {
	if !s.reported {
		e.due.Set(&s.due, s.waiter.Began.Add(e.config.Slow))
	}
}

// waitEnds forgets a call whose outcome is final.
func (e *Engine) waitEnds(w *Waiter) {
	e.due.Remove(&e.slow.waits[w].due)
	delete(e.slow.waits, w)
}

// unreportHold takes back that a grant was reported. The rows have been taken back before.
func (e *Engine) unreportHold(h *slowHold) {
	h.reported = false
	if e.lasts(h.grant) != nil { // the grant was taken back too
		delete(e.slow.holds, h.grant)
		return
	}
	e.holdGoesOn(h)
}

// unreportWait takes back that a call was reported.
func (e *Engine) unreportWait(w *Waiter) {
	if s := e.slow.waits[w]; s != nil { // else its call has returned meanwhile
		s.reported = false
		e.waitGoesOn(s)
	}
}
