package writer

import "sync/atomic"

// batch is what one commit makes durable, for the calls that wait for it. It is protected by the
// mutex, but for the channels and the count, and for err once it is decided.
type batch struct {
	done    chan struct{} // closed when the outcome is told
	err     error         // why it was dropped
	decided bool          // the outcome is known; its leader may read it without the mutex too
	led     bool          // a call commits it, or will
	due     int           // how much of what was due its writers have ended

	callers atomic.Int64  // that joined it and did not leave it; its leader counts from the start
	empty   chan struct{} // closed when all have left
}

// newBatch returns a batch that is joined from now on.
func newBatch() *batch {
	b := &batch{done: make(chan struct{}), empty: make(chan struct{})}
	b.callers.Store(1)
	return b
}

// leave is called by each call that joined, when it runs again and last of all.
func (b *batch) leave() {
	if b.callers.Add(-1) == 0 {
		close(b.empty)
	}
}

// undecided returns the newest batch that anything decided now depends on: nil if everything is
// published.
func (w *Writer) undecided() *batch {
	if w.Engine.Pending() {
		return w.open
	}
	return w.flying
}

// join makes the caller one of the calls that wait for that batch, and that have to leave it. The
// first to join the open one leads it: it has to commit it, which includes leaving.
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
