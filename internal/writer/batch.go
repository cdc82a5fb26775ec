package writer

import "sync/atomic"

// batch tells the calls that wait for one commit how the commit ended. The mutex protects it,
// except the channels and callers, and except err once decided is true.
type batch struct {
	done    chan struct{} // closed when the outcome is told
	err     error         // why it was dropped
	decided bool          // the outcome is known; its leader may read it without the mutex too
	led     bool          // a call commits it, or will
	due     int           // deadlines that its writers have looked at: see maxDue

	callers atomic.Int64  // calls that joined and have not left; the leader counts from the start
	empty   chan struct{} // closed when all callers have left
}

// newBatch returns a batch that calls can join.
func newBatch() *batch {
	b := &batch{done: make(chan struct{}), empty: make(chan struct{})}
	b.callers.Store(1)
	return b
}

// leave leaves the batch. The leader calls it when the commit is done, every other call when it
// runs again.
func (b *batch) leave() {
	if b.callers.Add(-1) == 0 {
		close(b.empty)
	}
}

// undecided returns the newest batch on which a decision made now depends, or nil if everything is
// published.
func (w *Writer) undecided() *batch {
	if w.Engine.Pending() {
		return w.open
	}
	return w.flying
}

// join adds the caller to the calls that wait for the undecided batch; each of them has to leave
// the batch. The first call to join the open batch leads it: that call has to commit the batch, and
// commit leaves it.
func (w *Writer) join() (b *batch, lead bool) {
	if b = w.lead(); b != nil {
		return b, true
	}
	return w.follow(), false
}

// lead returns the open batch if it has rows and is not led yet: the caller leads it then.
func (w *Writer) lead() *batch {
	b := w.undecided()
	if b == nil || b.led {
		return nil
	}
	b.led = true
	return b
}

// follow is join for a call that must not lead, because it may have to leave early.
func (w *Writer) follow() *batch {
	b := w.undecided()
	if b != nil {
		b.callers.Add(1)
	}
	return b
}
