package engine

// obstacle returns what is in the way of a waiter in the published state, or nil if only a commit
// is. Newer state is not durable, and a waiter that gives up does not wait for that (G3).
func (tx *Txn) obstacle(w *Waiter) *Blocked {
	if w.Slot {
		return tx.slotObstacle(w)
	}
	for i := range w.claims {
		if refusal := tx.lockObstacle(w, &w.claims[i]); refusal != nil {
			return refusal
		}
	}
	return nil
}

// lockObstacle returns what is in the way of a waiter's claim to a lock.
func (tx *Txn) lockObstacle(w *Waiter, c *claim) *Blocked {
	e := tx.engine
	mode := w.Options.Mode
	if refusal := tx.delayed(c.key, mode); refusal != nil && e.isPublished(c.state.delay) {
		refusal.Waiters = e.ahead(c)
		return refusal
	}
	refusal := &Blocked{Key: c.key, Mode: mode, Waiters: e.ahead(c)}
	row := e.rows.Keys.Get(c.key)
	if mode == Exclusive {
		refusal.Holders = e.sharersOf(c.key)
	}
	switch {
	case len(refusal.Holders) > 0:
		refusal.Obstacle = ByHolder
		tx.describeFirst(refusal, w.Session)
	case isLocked(row):
		if mode == Exclusive && row.Session == w.Session.Row.ID && e.takesOver(w, c) {
			return nil
		}
		refusal.Obstacle = ByHolder
		tx.describeHolder(refusal, w.Session, row)
	case refusal.Waiters > 0:
		refusal.Obstacle = ByQueue
	default:
		return nil
	}
	return refusal
}

// takesOver reports whether the waiter is the next to take over the lock, which its session holds,
// or has taken it over.
func (e *Engine) takesOver(w *Waiter, c *claim) bool {
	if c.state.hold == nil {
		return w.Session.firstFor(c.key, w.Options.Mode) == w
	}
	return c.state.hold == c.hold
}

// slotObstacle returns what is in the way of a waiter for a slot.
func (tx *Txn) slotObstacle(w *Waiter) *Blocked {
	e, c := tx.engine, &w.claims[0]
	own := contenderKey(w.prefix(), w.Session.Row.ID)
	if refusal := tx.delayed(own, Exclusive); refusal != nil && e.isPublished(e.delayOf(own)) {
		refusal.Waiters = e.ahead(c)
		return refusal
	}
	held := e.publishedSlots(c.key)
	slots := held.slots
	if held.err != nil || slots.begin(int(w.Limit)) != nil {
		return nil // the key is no longer a semaphore: the waiter was about to be told
	}
	ahead := e.ahead(c)
	if refusal := tx.full(slots, held.taken, e.isPublished); refusal != nil {
		refusal.Waiters = ahead
		if held.longest != nil {
			tx.describeHolder(refusal, w.Session, held.longest)
		}
		return refusal
	}
	if ahead > 0 {
		return &Blocked{Key: c.key, Obstacle: ByQueue, Limit: slots.limit, Waiters: ahead}
	}
	return nil
}

// isPublished reports whether the key's published row is the row of the delay.
func (e *Engine) isPublished(d *delay) bool {
	row := e.rows.Delays.Get(d.key)
	return row != nil && row.Until.Equal(d.until.Round(0))
}

// maxAhead limits how many waiters are counted in front of a waiter that gives up. Without the
// limit, if n waiters gave up together, writers would wait for a time in proportion to the square
// of n.
const maxAhead = 1000

// ahead returns how many calls wait in front of the claim's place, up to maxAhead. A call whose
// outcome is decided, but not durable, still counts.
func (e *Engine) ahead(c *claim) int {
	n := c.place.Ahead(maxAhead)
	for _, b := range [...]*Batch{e.flying, e.open} {
		if b == nil {
			continue
		}
		for i := range b.effects {
			f := &b.effects[i]
			if f.Kind == WaiterServed || f.Kind == WaiterLeft {
				n += f.Waiter.asideBefore(c)
			}
		}
	}
	return min(n, maxAhead)
}

// asideBefore returns 1 if w, which is set aside, joined the claim's queue before the claim, and
// the call of w still waits. Otherwise it returns 0.
func (w *Waiter) asideBefore(c *claim) int {
	if w.left {
		return 0
	}
	for i := range w.claims {
		other := &w.claims[i]
		if other.state == c.state && other.place.Ticket() < c.place.Ticket() {
			return 1
		}
	}
	return 0
}

// Withdraw removes a waiter whose call gives up, and returns what is in the way of the waiter in
// the published state, or nil if only a commit is. If a grant to the waiter is decided, Withdraw
// releases it.
func (tx *Txn) Withdraw(w *Waiter) *Blocked {
	blocked := tx.obstacle(w)
	w.left = true
	if tx.engine.counts.Waiters--; tx.engine.counts.Waiters == 0 {
		tx.engine.sharers, tx.engine.slotsHeld = sharers{}, slotsHeld{}
	}
	tx.engine.counts.GaveUp++
	switch w.phase {
	case standing:
		for i := range w.claims {
			tx.freed = append(tx.freed, w.claims[i].key)
		}
		tx.engine.leave(w)
	case granted:
		for i := range w.claims {
			tx.GiveUp(w.claims[i].hold)
		}
	}
	return blocked
}
