package engine

import "slices"

// queue puts the waiter into its queues.
func (tx *Txn) queue(w *Waiter, keys []string) {
	e := tx.engine
	w.Began = tx.now
	w.claims = w.single[:]
	if len(keys) > 1 {
		w.claims = make([]claim, len(keys))
	}
	for i, key := range keys {
		c := &w.claims[i]
		c.key, c.state = key, e.state(key)
		c.state.queue.Push(w, &c.place)
	}
	w.Session.addWaiter(w)
	e.stands(w)
	if w.Slot {
		e.semaphore(w.prefix()).waiting++
	}
	if len(keys) > 1 {
		e.several = append(e.several, w)
	}
	for c := w.Carried; c != nil; c = c.Outer {
		if e.carriers == nil {
			e.carriers = make(map[any][]*Waiter)
		}
		e.carriers[c.Owner] = append(e.carriers[c.Owner], w)
	}
	e.counts.Waiters++
	if len(e.several) > 0 && (w.Session.holdsAny() || w.Carried != nil) {
		tx.promises = true
	}
	if e.slow != nil {
		e.waitBegins(w)
	}
}

// SetHold sets the hold that gets the lock of the key with that number when it is granted.
func (w *Waiter) SetHold(i int, hold *Hold) { w.claims[i].hold = hold }

// Hold returns what SetHold has set.
func (w *Waiter) Hold(i int) *Hold { return w.claims[i].hold }

// Settled reports whether the outcome is final.
func (w *Waiter) Settled() bool { return w.phase == settled }

// prefix returns the prefix of the semaphore.
func (w *Waiter) prefix() string { return PrefixOf(w.claims[0].key) }

// Keys returns the keys that the call waits for.
func (w *Waiter) Keys() []string {
	keys := make([]string, len(w.claims))
	for i := range w.claims {
		keys[i] = w.claims[i].key
	}
	return keys
}

// awaits reports whether a call with this session waits for the lock in the mode. A newer call must
// not take over the lock then: it would overtake that call.
func (s *Session) awaits(key string, mode Mode) bool { return s.firstFor(key, mode) != nil }

// firstFor returns the oldest of the calls with this session that wait for the lock in the mode, or
// nil.
func (s *Session) firstFor(key string, mode Mode) (first *Waiter) {
	for w := range s.waiters() { // the oldest is the last
		if w.phase != standing || w.Options.Mode != mode {
			continue
		}
		for i := range w.claims {
			if w.claims[i].key == key {
				first = w
			}
		}
	}
	return first
}

func (s *Session) addWaiter(w *Waiter) {
	w.waits, w.next = true, s.waiting
	if w.next != nil {
		w.next.previous = w
	}
	s.waiting = w
}

func (s *Session) removeWaiter(w *Waiter) {
	if w.previous == nil {
		s.waiting = w.next
	} else {
		w.previous.next = w.next
	}
	if w.next != nil {
		w.next.previous = w.previous
	}
	w.waits, w.previous, w.next = false, nil, nil
}

// served takes a waiter that was granted its locks, or its slot, out of its queues.
func (tx *Txn) served(w *Waiter) {
	for i := range w.claims {
		c := &w.claims[i]
		c.place.SetAside()
		// The waiters behind it may share the other locks that it waited for.
		if w.Options.Mode == Shared && len(w.claims) > 1 {
			tx.revisit(c.state)
		}
	}
	f := tx.effect(WaiterServed)
	f.Waiter, f.instant = w, tx.now
	tx.serves = true
}

// dismiss takes a waiter out of its queues with an error, and has its queues looked at.
func (tx *Txn) dismiss(w *Waiter, err error) {
	if w.phase != standing {
		return
	}
	tx.engine.standsNoLonger(w)
	w.phase, w.Err = leaving, err
	for i := range w.claims {
		c := &w.claims[i]
		c.place.SetAside()
		tx.revisit(c.state)
	}
	tx.effect(WaiterLeft).Waiter = w
}

// leave removes a waiter from its queues for good.
func (e *Engine) leave(w *Waiter) {
	if !w.waits {
		return
	}
	if w.phase == standing {
		e.standsNoLonger(w)
	}
	if w.Slot {
		sem := e.semaphore(w.prefix())
		sem.waiting--
		e.tidySemaphore(sem)
	}
	for i := range w.claims {
		c := &w.claims[i]
		c.place.Leave()
		e.tidy(c.state)
	}
	if !w.left {
		e.counts.Waiters--
		if w.Err != nil {
			e.counts.GaveUp++
		}
	}
	if len(w.claims) > 1 {
		e.several = without(e.several, w)
	}
	for c := w.Carried; c != nil; c = c.Outer {
		if e.carriers[c.Owner] = without(e.carriers[c.Owner], w); len(e.carriers[c.Owner]) == 0 {
			delete(e.carriers, c.Owner)
		}
	}
	w.Session.removeWaiter(w)
	if e.slow != nil {
		e.waitEnds(w)
	}
}

// stands counts a waiter that stands in its queues.
func (e *Engine) stands(w *Waiter) {
	w.Session.calls++
	if w.Session.holdsAny() {
		e.nested++
	}
}

// standsNoLonger is the reverse of stands.
func (e *Engine) standsNoLonger(w *Waiter) {
	w.Session.calls--
	if w.Session.holdsAny() {
		e.nested--
	}
}

// granted notes that a waiter is about to be granted what it waits for.
func (w *Waiter) granted(e *Engine) {
	e.standsNoLonger(w)
	w.phase = granted
}

// without takes the waiter, which is in the list, out of it.
func without(list []*Waiter, w *Waiter) []*Waiter {
	i := slices.Index(list, w)
	return slices.Delete(list, i, i+1)
}

// standAgain puts a waiter back into its places.
func (e *Engine) standAgain(w *Waiter) {
	w.phase, w.Err = standing, nil
	e.stands(w)
	for i := range w.claims {
		w.claims[i].place.Restore()
	}
	if w.left { // its call has returned meanwhile
		e.leave(w)
	} else if e.slow != nil {
		e.waitGoesOn(e.slow.waits[w])
	}
}
