package engine

import (
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Begin begins a transaction at the instant. The transaction before it has ended.
func (e *Engine) Begin(now time.Time) *Txn {
	tx := &e.own
	tx.now, tx.again, tx.serves, tx.promises = now, false, false, false
	tx.causes, tx.locked = nil, nil
	return tx
}

// Share makes the transaction note what LockViews needs to show the state before it. From then on
// until Unshare, the caller's lock is free between the calls of the transaction's methods. Methods
// that write values alone are called without it, so LockViews must not look at the tables' changes.
func (tx *Txn) Share() { tx.shared = true }

// Unshare ends Share.
func (tx *Txn) Unshare() {
	tx.shared, tx.passed, tx.passedShares = false, reusable(tx.passed), nil
}

// Time is the instant of the transaction.
func (tx *Txn) Time() time.Time { return tx.now }

// Undo takes back what the transaction did.
func (tx *Txn) Undo() {
	tx.engine.rows.Undo()
	tx.engine.revert(tx.effects)
	tx.effects, tx.freed = reusable(tx.effects), reusable(tx.freed)
	tx.engine.mustHold()
}

// Seal keeps what the transaction did: it serves the queues, and joins the open batch. It returns
// what is published at once, and so has to be told now: everything in memory, and on a file the
// effects that depend on no batch.
func (tx *Txn) Seal() (outcome Outcome) {
	e := tx.engine
	tx.handOff()
	if e.rows.Wrote() {
		tx.sweepDelays()
		e.open.again = e.open.again || tx.again
	}
	e.events = tx.record(e.events[:0])
	e.rows.Seal()
	if !e.rows.Durable() {
		e.rows.PublishMemory()
		outcome = Outcome{tx.effects, e.events, e.rows.Published()}
		e.settle(outcome.Effects, outcome.Events)
	} else if b := e.Undecided(); b != nil {
		// Effects without rows, too, depend on the batches that are not durable yet.
		b.effects = append(b.effects, tx.effects...)
		b.events = append(b.events, e.events...)
	} else {
		outcome = Outcome{tx.effects, nil, e.rows.Published()}
		e.settle(outcome.Effects, nil)
	}
	e.mustHold()
	return outcome
}

// Done keeps the memory of Seal's outcome, which has been told, for the next transaction.
func (tx *Txn) Done() {
	tx.effects, tx.engine.events = reusable(tx.effects), reusable(tx.engine.events)
}

// Running returns the running transaction.
func (e *Engine) Running() *Txn { return &e.own }

// Undecided returns the newest batch on which a decision made now depends, or nil if everything is
// published.
func (e *Engine) Undecided() *Batch {
	if e.Pending() {
		return e.open
	}
	return e.flying
}

// Pending reports whether the open batch has rows that have to be committed.
func (e *Engine) Pending() bool { return e.rows.Durable() && e.rows.Pending() }

// Write commits the rows of a taken batch, all or none. It is called without the caller's lock,
// once for each batch, by one goroutine at a time.
func (e *Engine) Write(b *Batch) error { return e.rows.Write(b.rows) }

// Take closes the open batch, for the caller to commit. The batch before it has ended.
func (e *Engine) Take() *Batch {
	b, next := e.open, e.reusable
	b.rows = e.rows.Take()
	e.flying, e.open, e.reusable = b, &next, Batch{}
	return b
}

// Publish publishes the taken batch, which is durable, and returns what has to be told. The caller
// calls Reuse after telling it.
func (e *Engine) Publish(b *Batch) Outcome {
	e.flying = nil
	e.rows.Publish(b.rows)
	e.settle(b.effects, b.events)
	return Outcome{b.effects, b.events, b.rows.Index()}
}

// Reuse keeps the memory of a batch whose outcome has been told.
func (e *Engine) Reuse(b *Batch) {
	e.reusable = Batch{effects: reusable(b.effects), events: reusable(b.events)}
	b.effects, b.events = nil, nil
	e.mustHold()
}

// Drop takes back a batch that could not be committed, and the open batch, which was decided on it.
// It reports whether one of them did work that no call asked for: such work has to be tried again.
func (e *Engine) Drop(b *Batch) (again bool) {
	e.sharers, e.slotsHeld = sharers{}, slotsHeld{} // the next state has the dropped index
	follower := e.open
	e.flying, e.open = nil, new(Batch)
	e.rows.Drop(b.rows)
	e.revert(follower.effects)
	e.revert(b.effects)
	e.recallDelays()
	e.unserved = true
	e.mustHold()
	return b.again || follower.again
}

// settle updates the engine when effects and events are published.
func (e *Engine) settle(effects []Effect, events []Event) {
	for i := range effects {
		switch f := &effects[i]; f.Kind {
		case LockReleased:
			f.Hold.Released = true
		case SessionEnded:
			delete(e.sessions, f.Session.Row.ID)
			e.unbind(f.Session)
		case WaiterServed:
			e.counts.countWait(f)
			e.Settle(f.Waiter)
		case WaiterLeft:
			e.Settle(f.Waiter)
		}
	}
	e.count(events)
	if e.slow != nil {
		e.forgetEnded(events)
	}
}

// Settle ends a wait.
func (e *Engine) Settle(w *Waiter) {
	e.leave(w)
	w.phase = settled
}

// revert takes effects back, the last first. The rows have already been taken back.
func (e *Engine) revert(effects []Effect) {
	for i := len(effects) - 1; i >= 0; i-- {
		switch f := &effects[i]; f.Kind {
		case LockHeld:
			e.dropHold(f.Hold)
		case LockReleased, LockLost, LockDowngraded:
			e.setHold(e.state(f.Hold.Key), f.Hold)
		case SessionMade:
			e.unmake(f.Session)
		case SessionEnded:
			e.revive(f.Session)
		case delaySet:
			e.swapDelay(e.state(f.delay.key), f.replaced)
		case leaseBegun:
			e.setLease(f.lease, f.instant)
		case WaiterServed:
			for i := range f.Waiter.claims {
				e.dropHold(f.Waiter.claims[i].hold)
			}
			e.standAgain(f.Waiter)
		case WaiterLeft:
			e.standAgain(f.Waiter)
		case HoldSlow:
			e.unreportHold(f.Slow.hold)
		case WaitSlow:
			e.unreportWait(f.Waiter)
		}
	}
}

// count adds the published events to the counts.
func (e *Engine) count(events []Event) {
	counts := &e.counts
	for i := range events {
		r := &events[i].Body
		switch r.Kind {
		case KeyPut:
			if r.Old.(*schema.Key) == nil {
				counts.Keys++
			}
		case KeyDeleted:
			counts.Keys--
		case SessionCreated:
			counts.Sessions++
		case SessionGone:
			counts.Sessions--
			counts.Ends.addSession(r.Cause)
		}
		held := &counts.Locks
		if r.Kind == ShareGranted || r.Kind == ShareEnded {
			held = &counts.Shares
		}
		if r.Former != nil {
			*held--
			counts.countHold(r)
			counts.Ends.addLock(r.Cause)
		}
		if r.Holder != nil {
			*held++
			counts.Grants++
		}
	}
}

// countWait counts how long a served call waited. It leaves out a call that has given up meanwhile,
// which Withdraw has counted.
func (c *Counts) countWait(served *Effect) {
	w := served.Waiter
	if w.left {
		return
	}
	waits := &c.LockWaits
	if w.Slot {
		waits = &c.SlotWaits
	}
	waits.Add(Lasted(w.Began, served.instant))
}

// countHold counts how long the ended grant lasted, unless its beginning is not known.
func (c *Counts) countHold(ended *Record) {
	holds, granted := &c.LockHolds, time.Time{}
	if ended.Kind == ShareEnded {
		granted = ended.Old.(*schema.Share).Granted
	} else {
		row := ended.Old.(*schema.Key)
		if granted = row.Granted; isContender(row) {
			holds = &c.SlotHolds
		}
	}
	if !granted.IsZero() {
		holds.Add(Lasted(granted, ended.Time))
	}
}

// isContender reports whether the row, which is locked, is the contender key of its holder. It
// compares the flags first, because other keys almost never have a semaphore's flags.
func isContender(row *schema.Key) bool {
	return row.Flags == semaphoreFlags && contenderOf(row.Key) == row.Session
}
