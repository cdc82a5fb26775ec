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
	wake     chan struct{} // something may be due, or a batch has no leader
	begun    sync.Once     // the goroutine has begun, or never will
	closing  chan struct{} // closed when Close begins
	finished chan struct{} // closed when the goroutine has ended
}

// rouse wakes the writer's goroutine, which begins with the first call. It never blocks.
func (w *Writer) rouse() {
	select {
	case w.loop.wake <- struct{}{}:
	default: // it is awake already
	}
	w.loop.begun.Do(func() { go w.attendAll() })
}

// Rest ends the writer's goroutine, and stops the timer.
func (w *Writer) Rest() {
	close(w.loop.closing)
	w.loop.begun.Do(func() { close(w.loop.finished) })
	end := w.hold()
	<-w.loop.finished
	end()
	w.Lock()
	defer w.Unlock()
	w.alarm.Stop()
}

// attendAll is the writer's goroutine: it ends what is due, and leads batches that no call leads.
func (w *Writer) attendAll() {
	defer close(w.loop.finished)
	defer w.joinTurns()()
	for {
		end := w.Wait(hook.Work, nil)
		select {
		case <-w.loop.closing:
			return
		case <-w.loop.wake:
		}
		end()
		w.mutex.Lock()
		more := w.attend()
		b, undecided := w.lead(), w.undecided()
		w.unlock()
		switch {
		case b != nil:
			w.commit(b)
		case more && undecided != nil:
			end := w.hold()
			<-undecided.done
			end()
		case more: // in memory there is no commit to wait for
			runtime.Gosched()
		}
	}
}

// attend ends what is due, apart from any write by a call. It reports whether more may be due.
func (w *Writer) attend() (more bool) {
	if w.Refused() != nil {
		return false
	}
	w.instant = w.Time()
	if w.retry.backoff == 0 || !w.instant.Before(w.retry.at) {
		more = w.endDue(maxDue) == maxDue
	}
	w.arm()
	return more
}

// maxDue is how many deadlines the calls that write may look at for one batch. The writer's
// goroutine may look at as many more, and waits for the batch before it goes on. So any other call
// may have to wait until these are ended.
const maxDue = 100

// endDue ends what is due by the instant, each thing in a transaction of its own. It looks at no
// more deadlines than most, and returns how many it looked at.
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

// endRefused ends the sessions and holds for which the last write has refused an operation because
// they are due, each in a transaction of its own. The refused call waits until the end is durable
// (G3).
func (w *Writer) endRefused() {
	for {
		due, ok := w.Engine.PopRefused(w.instant)
		if !ok {
			return
		}
		_ = w.Apply(certain(func(tx *engine.Txn) { tx.EndDue(due) }))
	}
}

// arm sets the timer for what is due next. The instant of the write is a few microseconds old, and
// decides only whether the alarm can stay as it is: an alarm that is set anew reads the clock
// itself.
func (w *Writer) arm() {
	if at, ok := w.Next(); ok {
		w.alarm.Arm(w.instant, at)
	}
}

// Next returns the next instant at which there is something to do. It reports false if there is
// none, or nothing is written any more. The instant is never before that of a retry: an alarm that
// was set for an earlier instant wakes the writer once in vain. The caller holds the mutex.
func (w *Writer) Next() (time.Time, bool) {
	if w.Refused() != nil {
		return time.Time{}, false
	}
	at, ok := w.Engine.Next()
	if w.retry.waits || ok && w.retry.backoff > 0 && at.Before(w.retry.at) {
		return w.retry.at, true
	}
	return at, ok
}

// CatchUp does everything that is due. It returns when everything that was decided is told, or,
// after held is closed, when everything is decided. It is for tests, because the writer's
// goroutine, which does the same, may be late.
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

// Close ends all writing with the error why, after body has applied the last writes, and waits
// until these are durable. If the writer has failed, Close does not call body, and returns the
// failure. If the writer was closed with the same error before, Close does nothing and reports
// false.
func (w *Writer) Close(why error, body func() error) (err error, first bool) {
	w.Lock()
	if err = w.Refused(); err == why {
		w.Unlock()
		return nil, false
	}
	if err == nil {
		w.instant = w.Time()
		err = body()
	}
	w.refusal.Store(&why)
	b, lead := w.join()
	w.unlock()
	if outcome := w.settle(b, lead, nil); outcome != nil {
		return outcome, true
	}
	return err, true
}
