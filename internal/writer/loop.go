package writer

import (
	"runtime"
	"sync"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
)

// loop is the writer's goroutine.
type loop struct {
	wake     chan struct{} // something may be due, or a batch is without a leader
	begun    sync.Once     // the goroutine, or that it never will be
	closing  chan struct{} // closed when Close begins
	finished chan struct{} // closed when the goroutine has ended
}

// Rouse wakes the writer's goroutine, which begins with the first call. It never blocks.
func (w *Writer) Rouse() {
	select {
	case w.loop.wake <- struct{}{}:
	default: // it is awake already
	}
	w.loop.begun.Do(func() { go w.attendAll() })
}

// Rest ends the writer's goroutine.
func (w *Writer) Rest() {
	close(w.loop.closing)
	w.loop.begun.Do(func() { close(w.loop.finished) })
	over := w.hold()
	<-w.loop.finished
	over()
}

// Stop stops the timer. The caller holds the mutex.
func (w *Writer) Stop() { w.alarm.Stop() }

// attendAll is the writer's goroutine: it ends what is due, and leads batches that no call leads.
func (w *Writer) attendAll() {
	defer close(w.loop.finished)
	defer w.joinTurns()()
	for {
		over := w.Wait(hook.Work, nil)
		select {
		case <-w.loop.closing:
			return
		case <-w.loop.wake:
		}
		over()
		w.mutex.Lock()
		more := w.attend()
		b, undecided := w.lead(), w.undecided()
		w.unlock()
		switch {
		case b != nil:
			w.commit(b)
		case more && undecided != nil:
			over := w.hold()
			<-undecided.done
			over()
		case more: // in memory there is no commit to wait for
			runtime.Gosched()
		}
	}
}

// attend does what is due of the writer's own accord. It reports whether there may be more.
func (w *Writer) attend() (more bool) {
	if w.refusal != nil {
		return false
	}
	w.instant = w.Time()
	if w.retry.backoff == 0 || !w.instant.Before(w.retry.at) {
		more = w.endDue(maxDue) == maxDue
	}
	w.arm()
	return more
}

// maxDue is how many things that are due one batch has room for on behalf of the calls that write,
// and again on behalf of the writer's own goroutine, which waits for a batch before it goes on: so
// much every other call may have to wait for.
const maxDue = 100

// endDue ends what is due by the instant, each thing in a transaction of its own. It looks at so
// many deadlines at most, and returns at how many it did.
func (w *Writer) endDue(most int) (done int) {
	if w.retry.waits && !w.instant.Before(w.retry.at) {
		w.retry.waits = false
	}
	if !w.Engine.AnyDue() {
		return 0
	}
	for done < most {
		due, looked, ok := w.Engine.PopDue(w.instant, most-done)
		done += looked
		if !ok {
			break
		}
		_ = w.Apply(certain(func(tx *engine.Txn) { tx.EndDue(due) }))
	}
	if w.Engine.PopUnserved() {
		_ = w.Apply(certain((*engine.Txn).ServeAll))
	}
	return done
}

// arm sets the timer for what is due next, by the write's reading of the clock. That is older by a
// few microseconds, and decides only whether the alarm that stands can be left: one that is set
// reads the clock itself.
func (w *Writer) arm() {
	if at, ok := w.next(); ok {
		w.alarm.Arm(w.instant, at)
	}
}

// next returns the next instant at which there is something to do, and whether there is one. It is
// not before that of a retry. An alarm that is set for earlier wakes the writer once for nothing.
func (w *Writer) next() (time.Time, bool) {
	at, ok := w.Engine.Next()
	if w.retry.waits || ok && w.retry.backoff > 0 && at.Before(w.retry.at) {
		return w.retry.at, true
	}
	return at, ok
}

// Next returns the next instant at which there is something to do. It reports false if there is
// none, or nothing is written any more. The caller holds the mutex.
func (w *Writer) Next() (time.Time, bool) {
	if w.refusal != nil {
		return time.Time{}, false
	}
	return w.next()
}

// CatchUp does all that is due, and returns when everything that was decided is told; or, when held
// is closed, is decided. It is for tests: the writer's goroutine, which does the same, may be late.
func (w *Writer) CatchUp(held <-chan struct{}) {
	for {
		w.mutex.Lock()
		w.attend()
		undecided := w.undecided()
		now := w.Time()
		next, ok := w.Next()
		again := ok && !now.Before(next) // one write ends a limited number of sessions
		w.unlock()
		if undecided != nil {
			select {
			case <-undecided.done:
				again = true // it may have failed, or others may have joined the next one
			case <-held:
			}
		}
		if !again {
			return
		}
	}
}

// Close ends all writing with that error, when body has applied what is left to be written, and
// waits until that is durable. A writer that has failed does not call body, and returns why. It
// reports false, and does nothing, if it was closed with the same error before.
func (w *Writer) Close(why error, body func() error) (err error, first bool) {
	w.Lock()
	if w.refusal == why {
		w.Unlock()
		return nil, false
	}
	if err = w.refusal; err == nil {
		w.instant = w.Time()
		err = body()
	}
	w.Refuse(why)
	b, lead := w.join()
	w.unlock()
	if outcome := w.settle(b, lead, nil); outcome != nil {
		return outcome, true
	}
	return err, true
}
