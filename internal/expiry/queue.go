package expiry

import (
	"container/heap"
	"time"

	"github.com/benbjohnson/clock"
)

// Queue holds items in the order in which they are due, and wakes its owner when the first is.
// It comes from [New]; the zero value is not usable. The owner's mutex guards it.
type Queue struct {
	clock clock.Clock
	wake  func()

	items items
	sets  uint64 // how often Set was called
	alarm *alarm // the newest alarm, nil if it was stopped or none was ever set
}

// New returns an empty queue, which tells time by c.
//
// The queue calls wake whenever something may be due: on a goroutine of the clock's, and from
// within Arm and ArmNotBefore. So wake must neither block nor take the owner's mutex; one
// non-blocking send is what it is for.
func New(c clock.Clock, wake func()) *Queue {
	return &Queue{clock: c, wake: wake}
}

// Set adds the item, or moves it, to the instant at. It takes time in proportion to the logarithm
// of Len. The timer is not touched: the owner calls Arm once it has set all that it has to set.
// Set panics if the item is in another queue.
func (q *Queue) Set(it *Item, at time.Time) {
	q.check(it)
	q.sets++
	it.at, it.order = at, q.sets
	if it.queue != nil {
		heap.Fix(&q.items, int(it.position))
		return
	}
	it.queue = q
	heap.Push(&q.items, it)
}

// Remove takes the item out, in time in proportion to the logarithm of Len. It does nothing if the
// item is in no queue, and panics if the item is in another one.
func (q *Queue) Remove(it *Item) {
	q.check(it)
	if it.queue == nil {
		return
	}
	heap.Remove(&q.items, int(it.position))
	it.queue = nil
}

// Pop takes out the first item that is due, and returns it, or returns nil if none is. An item is
// due from its very instant on. Of several the earliest comes first; at one instant the lower Rank
// does, and at one rank the one that was set first.
func (q *Queue) Pop(now time.Time) *Item {
	if len(q.items) == 0 || now.Before(q.items[0].at) {
		return nil
	}
	it := q.items[0]
	q.Remove(it)
	return it
}

// Next returns the earliest instant for which an item is queued. It reports false if there is none.
func (q *Queue) Next() (time.Time, bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].at, true
}

// Len returns the number of items queued.
func (q *Queue) Len() int { return len(q.items) }

// check panics if the item is in a queue, and not in this one.
func (q *Queue) check(it *Item) {
	if it.queue != nil && it.queue != q {
		panic("expiry: item is in another queue")
	}
}
