package lockd

import (
	"runtime"
	"time"
)

// rouse wakes the database's goroutine, which begins with the first call. It never blocks.
func (db *DB) rouse() {
	select {
	case db.wake <- struct{}{}:
	default: // it is awake already
	}
	db.begun.Do(func() { go db.run() })
}

// rest ends the database's goroutine.
func (db *DB) rest() {
	close(db.closing)
	db.begun.Do(func() { close(db.finished) })
	<-db.finished
}

// run is the database's goroutine: it ends what is due, and leads batches that nobody leads.
func (db *DB) run() {
	defer close(db.finished)
	for {
		select {
		case <-db.closing:
			return
		case <-db.wake:
		}
		db.mu.Lock()
		more := db.attendLocked()
		b, undecided := db.leadLocked(), db.undecidedLocked()
		db.unlock()
		switch {
		case b != nil:
			db.commit(b)
		case more && undecided != nil:
			<-undecided.done
		case more: // in memory there is no commit to wait for
			runtime.Gosched()
		}
	}
}

// attendLocked does what is due of the database's own accord. It reports whether there may be more.
func (db *DB) attendLocked() (more bool) {
	if db.refusal != nil {
		return false
	}
	if db.backoff == 0 || !db.now().Before(db.retry) {
		more = db.endDueLocked(maxDue) == maxDue
	}
	db.armLocked()
	db.endNapsLocked()
	return more
}

// maxDue is how many things that are due one batch has room for on behalf of those who write, and
// again on behalf of the database's own goroutine, which waits for a batch before it goes on: so
// much everybody else may have to wait for.
const maxDue = 100

// endDueLocked ends what is due by now, each thing in a transaction of its own, in the order of
// the deadlines (G5). It ends so many at most, and returns how many it did.
func (db *DB) endDueLocked(most int) (done int) {
	if db.expiry.Len() == 0 && !db.unserved {
		return 0
	}
	now := db.now()
	db.reading = now
	for ; done < most; done++ {
		due := db.expiry.Pop(now)
		if due == nil {
			break
		}
		switch owner := due.Owner.(type) {
		case *renewal:
			owner.renewLocked(now)
		case *Session:
			if due.At().Before(owner.deadline) { // it was renewed
				db.expiry.Set(due, owner.deadline)
				continue
			}
			db.stepLocked(now, func(tx *Txn) { tx.endSession(owner, owner.lapse(now)) })
		case *heartbeat:
			if due.At().Before(owner.deadline) { // it was put again
				db.expiry.Set(due, owner.deadline)
				continue
			}
			db.stepLocked(now, func(tx *Txn) { tx.lapse(owner) })
		case *delay:
			db.stepLocked(now, func(tx *Txn) { tx.endDelay(owner) })
		}
	}
	if db.unserved {
		db.unserved = false
		db.stepLocked(now, (*Txn).serveAll)
	}
	return done
}

// stepLocked does one thing that is due.
func (db *DB) stepLocked(now time.Time, step func(tx *Txn)) {
	index := db.store.Index()
	_ = db.applyLocked(&db.own, func(tx *Txn) error { // fn gives no error
		tx.now, tx.clocked = now, true
		step(tx)
		return nil
	})
	if db.store.Index() > index {
		db.open.again = true
	}
}

// stopLocked stops all timers.
func (db *DB) stopLocked() {
	db.expiry.Stop()
	db.naps.Stop()
	db.logger.stopLocked()
}

// armLocked sets the timer for what is due next. The write is over, and with it its reading of the
// clock.
func (db *DB) armLocked() {
	if db.expiry.Len() > 0 {
		db.armAsOf(db.reading)
	}
	db.reading = time.Time{}
}

// armAsOf sets the timer by the write's reading of the clock, if there is one. It is older by a few
// microseconds, and decides only whether the alarm that stands can be left: one that is set reads
// the clock itself.
func (db *DB) armAsOf(reading time.Time) {
	if reading.IsZero() {
		reading = db.now()
	}
	if db.backoff > 0 {
		db.expiry.ArmNotBefore(reading, db.retry)
	} else {
		db.expiry.Arm(reading)
	}
}
