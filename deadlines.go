package lockd

import (
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/expiry"
)

// deadline is the end of one call of Wait by its limit. It must not be copied while it is in a
// heap. The zero value is in none.
type deadline struct {
	due    expiry.Item
	passed chan struct{} // closed when it has passed
}

// deadlines are those of all calls of Wait that have a limit. They need neither the writer's mutex
// nor its goroutine, so that no function of an Update and no failed commit delays them.
type deadlines struct {
	time func() time.Time

	mu      sync.Mutex // protects what follows; no other is locked under it
	queue   *expiry.Queue
	stopped bool
}

func (d *deadlines) init(time func() time.Time, c clock.Clock) {
	d.time = time
	// Not end itself: the queue may call it under mu.
	d.queue = expiry.New(c, func() { go d.end() })
}

// add begins a deadline, which passes after the limit.
func (d *deadlines) add(one *deadline, limit time.Duration) {
	one.passed = make(chan struct{})
	one.due.Owner = one
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return // the call ends with the database
	}
	now := d.time()
	d.queue.Set(&one.due, now.Add(limit))
	d.queue.Arm(now)
}

// remove takes the deadline out, if it has not passed.
func (d *deadlines) remove(one *deadline) {
	if one.passed == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue.Remove(&one.due)
}

// end ends those that have passed.
func (d *deadlines) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	now := d.time()
	for due := d.queue.Pop(now); due != nil; due = d.queue.Pop(now) {
		close(due.Owner.(*deadline).passed)
	}
	d.queue.Arm(now)
}

// next returns the earliest instant, and whether there is one.
func (d *deadlines) next() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.queue.Next()
	return at, ok && !d.stopped
}

// len is how many there are.
func (d *deadlines) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queue.Len()
}

// stop stops the timer: no deadline passes any more.
func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.queue.Stop()
}
