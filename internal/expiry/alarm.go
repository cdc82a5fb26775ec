package expiry

import (
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// slack is how far the clock may move while a timer is being set, and so how late the timer may be
// because of that. A running clock moves by much less; a clock that is moved by hand may jump.
const slack = time.Millisecond

// Alarm wakes its owner at an instant, by one timer. NewAlarm gives one; the zero value is not
// usable. The owner's mutex guards it.
type Alarm struct {
	clock clock.Clock
	wake  func()
	run   *run // the newest run of the timer, nil if it was stopped or none ever began
}

// NewAlarm returns an alarm that is not set, which tells time by c.
//
// The alarm calls wake on a goroutine of the clock, and from within Arm. So wake must neither block
// nor take the owner's mutex; it is meant for one non-blocking send.
func NewAlarm(c clock.Clock, wake func()) *Alarm { return &Alarm{clock: c, wake: wake} }

// run is one run of the timer. A run is never reset, but replaced by a new one, so that the end of
// one run cannot be taken for the end of another.
type run struct {
	at    time.Time
	timer *clock.Timer
	rang  atomic.Bool // set by the clock's goroutine, before it wakes the owner
}

// pending reports whether the run will certainly still ring. If its instant has passed, the run may
// still ring, because its timer is late or its clock was set, but that is not certain.
func (r *run) pending(now time.Time) bool {
	return r != nil && now.Before(r.at) && !r.rang.Load()
}

// Arm makes sure that the owner is woken at the instant at. If the instant has come already, Arm
// calls wake itself, at once.
//
// An alarm that is set for an earlier instant stays set: an owner that is woken too early looks,
// finds nothing due and calls Arm again. So Arm sets the timer only if the owner would be woken too
// late, and costs next to nothing otherwise. To judge whether the alarm that is set will still
// ring, Arm takes now for the present time: it may be an earlier reading of the clock.
func (a *Alarm) Arm(now, at time.Time) {
	if now.Before(at) && a.run.pending(now) && !at.Before(a.run.at) {
		return
	}
	a.Stop()
	if now.Before(at) {
		now = a.clock.Now() // the owner's reading is older by what it has done since
	}
	for now.Before(at) {
		a.run = a.start(now, at)

		// A timer is told how long to wait, not until when. If the clock has jumped since it was
		// read, the timer will be late by as much, and a clock that is moved by hand may never get
		// there.
		moved := a.clock.Now()
		if moved.Sub(now) < slack {
			return
		}
		a.Stop()
		now = moved
	}
	a.wake()
}

// Stop stops the timer. A call of wake that has begun may still arrive. The next Arm sets the timer
// again.
func (a *Alarm) Stop() {
	if a.run != nil {
		a.run.timer.Stop()
		a.run = nil
	}
}

// start sets a timer for the instant at.
func (a *Alarm) start(now, at time.Time) *run {
	r := &run{at: at}
	// AfterFunc, because nothing has to be received from it: a clock that is moved by hand stands
	// still until the channel of a timer is drained.
	r.timer = a.clock.AfterFunc(at.Sub(now), func() {
		r.rang.Store(true)
		a.wake()
	})
	return r
}
