package expiry

import (
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// slack is how far the clock may move while a timer is being set, and so how late the timer may be
// for that reason. A clock that runs moves by much less; one that is moved by hand may jump.
const slack = time.Millisecond

// alarm is one run of the timer. An alarm is never set anew but replaced, so that the end of one
// run cannot be taken for the end of another.
type alarm struct {
	at    time.Time
	timer *clock.Timer
	rang  atomic.Bool // set by the clock's goroutine, before it wakes the owner
}

// pending reports whether the alarm can still be relied upon to ring. One whose instant has passed
// cannot, although it may still ring: its timer is late, or its clock was set.
func (a *alarm) pending(now time.Time) bool {
	return a != nil && now.Before(a.at) && !a.rang.Load()
}

// Arm makes sure that the owner is woken once the earliest item is due. If it is due already, Arm
// calls wake itself, at once. Arm does nothing if the queue is empty.
//
// An alarm that is set for earlier stands, for an owner that is woken too early looks, finds
// nothing due and calls Arm again. So Arm sets the timer only if the owner would be woken too late,
// and costs next to nothing otherwise. Whether one that stands will ring is judged by now, which
// may be a reading of the clock that the owner had already.
func (q *Queue) Arm(now time.Time) {
	if at, ok := q.Next(); ok {
		q.arm(now, at)
	}
}

// ArmNotBefore is like Arm, but the owner is woken no earlier than at the instant earliest, however
// long an item has been due: for an owner who could not deal with what is due, and has to try
// again. An alarm that is set for earlier is stopped. The next Arm knows nothing of earliest.
func (q *Queue) ArmNotBefore(now, earliest time.Time) {
	at, ok := q.Next()
	if !ok {
		return
	}
	if at.Before(earliest) {
		at = earliest
	}
	if q.alarm != nil && q.alarm.at.Before(earliest) {
		q.Stop()
	}
	q.arm(now, at)
}

// Stop stops the timer, and keeps the items. A wake-up that is under way may still arrive. The next
// Arm sets the timer again.
func (q *Queue) Stop() {
	if q.alarm != nil {
		q.alarm.timer.Stop()
		q.alarm = nil
	}
}

// arm makes sure that the owner is woken at the instant at, or before.
func (q *Queue) arm(now, at time.Time) {
	if now.Before(at) && q.alarm.pending(now) && !at.Before(q.alarm.at) {
		return
	}
	q.Stop()
	if now.Before(at) {
		now = q.clock.Now() // the owner's reading is older by what it has done since
	}
	for now.Before(at) {
		q.alarm = q.start(now, at)

		// A timer is told how long to wait, not until when. If the clock has jumped since it was
		// read, the timer will be late by as much, and a clock that is moved by hand may never get
		// there.
		moved := q.clock.Now()
		if moved.Sub(now) < slack {
			return
		}
		q.Stop()
		now = moved
	}
	q.wake()
}

// start sets a timer for the instant at.
func (q *Queue) start(now, at time.Time) *alarm {
	a := &alarm{at: at}
	// AfterFunc, because nothing has to be received from it: a clock that is moved by hand stands
	// still until the channel of a timer is drained.
	a.timer = q.clock.AfterFunc(at.Sub(now), func() {
		a.rang.Store(true)
		q.wake()
	})
	return a
}
