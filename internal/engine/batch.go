package engine

// Undecided returns the newest batch that anything decided now depends on: nil if everything is
// published.
func (e *Engine) Undecided() *Batch {
	if e.Pending() {
		return e.open
	}
	return e.flying
}

// Open returns the open batch.
func (e *Engine) Open() *Batch { return e.open }

// Pending reports whether the open batch has rows that have to be committed.
func (e *Engine) Pending() bool { return e.rows.Durable() && e.rows.Pending() }

// Again reports whether the batch has what was due by itself, and so has to be tried again if it
// is dropped.
func (b *Batch) Again() bool { return b.again }

// Write commits the rows of a batch that was taken, whole or not at all. It is called without the
// caller's lock, once, by one goroutine at a time.
func (e *Engine) Write(b *Batch) error { return e.rows.Write(b.rows) }

// Take closes the open batch, which is committed now. The one before has ended.
func (e *Engine) Take() *Batch {
	b := e.open
	b.rows = e.rows.Take()
	e.flying = b
	e.open = &Batch{effects: e.reusable.effects, events: e.reusable.events}
	e.reusable = batchMemory{}
	return b
}

// Publish shows the batch that was taken, which is durable. It returns what has to be told. The
// caller calls Reuse after that.
func (e *Engine) Publish(b *Batch) Outcome {
	e.flying = nil
	e.rows.Publish(b.rows)
	e.settle(b.effects, b.events)
	return Outcome{b.effects, b.events, b.rows.Index()}
}

// Reuse keeps the memory of a batch that has been told.
func (e *Engine) Reuse(b *Batch) {
	e.reusable = batchMemory{reusable(b.effects), reusable(b.events)}
	b.effects, b.events = nil, nil
	e.mustHold()
}

// Drop takes back a batch that could not be committed, and the open one, which was decided on it.
func (e *Engine) Drop(b *Batch) {
	follower := e.open
	e.flying, e.open = nil, new(Batch)
	e.rows.Drop(b.rows)
	e.revert(follower.effects)
	e.revert(b.effects)
	e.recallDelays()
	e.unserved = true
	e.mustHold()
}

// settle does what follows for the engine when effects and events are published.
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
	if w.phase == standing { // the database is closed
		e.standsNoLonger(w)
	}
	w.phase = settled
	e.leave(w)
}

// revert takes effects back, the last first. The rows have been taken back before.
func (e *Engine) revert(effects []Effect) {
	for i := len(effects) - 1; i >= 0; i-- {
		switch f := &effects[i]; f.Kind {
		case LockHeld:
			e.dropHold(f.Hold)
		case LockReleased, LockLost:
			state := e.state(f.Hold.Key)
			e.setHold(state, f.Hold)
			e.tidy(state)
		case LockDowngraded:
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
			e.untellHold(f.Slow.hold)
		case WaitSlow:
			e.untellWait(f.Waiter)
		}
	}
}
