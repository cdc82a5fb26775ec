package expiry

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"
)

// Limit bounds how long one call waits. It must not be copied after Add. The zero value has not
// begun.
type Limit struct {
	due    Item
	passed chan struct{}
}

// Passed returns a channel that is closed when the limit has passed, and nil before Add.
func (l *Limit) Passed() <-chan struct{} { return l.passed }

// Limits are the limits of all calls of one owner. They have a mutex of their own, and each ring of
// their alarm starts a goroutine, so that nothing else that the owner does delays them. Their
// methods may be called by many goroutines, and none blocks. NewLimits makes them; the zero value
// is not usable.
type Limits struct {
	time func() time.Time

	mu      sync.Mutex // protects what follows; no other is locked under it
	heap    Heap
	alarm   *Alarm // for the first limit of the heap
	stopped bool
}

// NewLimits returns limits whose timer runs on the clock c. They read the time with now.
func NewLimits(now func() time.Time, c clock.Clock) *Limits {
	l := &Limits{time: now}
	// Not End itself: the alarm may call it under mu.
	l.alarm = NewAlarm(c, func() { go l.End() })
	return l
}

// Add begins a limit, which passes after d. None passes after Stop.
func (l *Limits) Add(one *Limit, d time.Duration) {
	one.passed = make(chan struct{})
	one.due.Owner = one
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	now := l.time()
	l.heap.Set(&one.due, now.Add(d))
	l.arm(now)
}

// arm makes sure that the first limit is ended once it has passed.
func (l *Limits) arm(now time.Time) {
	if at, ok := l.heap.Next(); ok {
		l.alarm.Arm(now, at)
	}
}

// Remove takes a limit out, if it was added and has not passed.
func (l *Limits) Remove(one *Limit) {
	if one.passed == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heap.Remove(&one.due)
}

// End ends the limits that have passed.
func (l *Limits) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	now := l.time()
	for due := l.heap.Pop(now); due != nil; due = l.heap.Pop(now) {
		close(due.Owner.(*Limit).passed)
	}
	l.arm(now)
}

// Next returns the earliest instant at which a limit passes, and whether there is one.
func (l *Limits) Next() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.heap.Next()
	return at, ok && !l.stopped
}

// Len returns the number of limits that are queued.
func (l *Limits) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heap.Len()
}

// Stop stops the timer: no limit passes any more.
func (l *Limits) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.alarm.Stop()
}
