package expiry

import (
	"time"

	"github.com/benbjohnson/clock"
)

// Queue is a [Heap] with an [Alarm] for its first item. It comes from [New]; the zero value is not
// usable. The owner's mutex guards it.
type Queue struct {
	Heap
	alarm *Alarm
}

// New returns an empty queue, which tells time by c. It calls wake as an Alarm does.
func New(c clock.Clock, wake func()) *Queue { return &Queue{alarm: NewAlarm(c, wake)} }

// Arm makes sure that the owner is woken once the earliest item is due. If it is due already, Arm
// calls wake itself, at once. Arm does nothing if the queue is empty.
func (q *Queue) Arm(now time.Time) {
	if at, ok := q.Next(); ok {
		q.alarm.Arm(now, at)
	}
}

// Stop stops the timer, and keeps the items. A wake-up that is under way may still arrive. The next
// Arm sets the timer again.
func (q *Queue) Stop() { q.alarm.Stop() }
