package engine

// Wait has a call wait for the locks of the keys, or for a slot of the semaphore at the one key.
// The caller has filled in Session, Options, Slot and Limit, and calls SetHold for each key before
// the transaction ends.
func (tx *Txn) Wait(w *Waiter, keys []string) {
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
	if w.Slot {
		e.semaphore(w.prefix()).waiting++
	}
	e.counts.Waiters++
}

// SetHold sets what the lock of the key with that number becomes that of when it is granted.
func (w *Waiter) SetHold(i int, hold *Hold) { w.claims[i].hold = hold }

// Hold is what SetHold has set.
func (w *Waiter) Hold(i int) *Hold { return w.claims[i].hold }

// Settled reports whether the outcome is final.
func (w *Waiter) Settled() bool { return w.phase == settled }

// Left reports whether the call has returned.
func (w *Waiter) Left() bool { return w.left }

// prefix is that of the semaphore.
func (w *Waiter) prefix() string { return PrefixOf(w.claims[0].key) }

// Keys are those that it waits for.
func (w *Waiter) Keys() []string {
	keys := make([]string, len(w.claims))
	for i := range w.claims {
		keys[i] = w.claims[i].key
	}
	return keys
}

// awaits reports whether a call with this session waits for the lock in the mode: it would be
// overtaken by one that took over a lock without a handle.
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

// served takes out of its queues a waiter that was granted what it waits for.
func (tx *Txn) served(w *Waiter) {
	for i := range w.claims {
		c := &w.claims[i]
		c.place.SetAside()
		// Those behind it may share the other locks that it waited for.
		if w.Options.Mode == Shared && len(w.claims) > 1 && c.state.queue.Len() > 0 {
			tx.freed = append(tx.freed, c.key)
		}
	}
	w.phase = granted
	f := tx.effect(WaiterServed)
	f.Waiter, f.instant = w, tx.now
}

// dismiss takes a waiter out of its queues with an error, and looks at those that stood behind.
func (tx *Txn) dismiss(w *Waiter, err error) {
	if w.phase != standing {
		return
	}
	w.phase, w.Err = leaving, err
	for i := range w.claims {
		c := &w.claims[i]
		c.place.SetAside()
		if c.state.queue.Len() > 0 {
			tx.freed = append(tx.freed, c.key)
		}
	}
	tx.effect(WaiterLeft).Waiter = w
}

// leave removes a waiter from its queues for good.
func (e *Engine) leave(w *Waiter) {
	if !w.waits {
		return
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
	w.Session.removeWaiter(w)
}

// standAgain puts a waiter back into its places.
func (e *Engine) standAgain(w *Waiter) {
	w.phase, w.Err = standing, nil
	for i := range w.claims {
		w.claims[i].place.Restore()
	}
	if w.left { // its call has returned meanwhile
		e.leave(w)
	}
}
