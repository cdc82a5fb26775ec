package engine

import "iter"

// A waiter for several locks keeps those behind it from a lock that is free, while it waits for
// another. If that one is held by a session that stands behind it, each would wait for the other
// for ever. So the session passes (R13). If a session that waits releases nothing meanwhile, the
// first waiter could not be served before, and those behind it not before the first: they lose no
// turn by it. Where goroutines share a session they may.

// passes reports whether a request of the session's, with the locks that it carries, is served
// ahead of those who wait for the lock.
func (tx *Txn) passes(s *Session, carried *Carried, state *lockState) bool {
	if !s.holdsAny() && carried == nil { // as a rule
		return false
	}
	return tx.keepersOfFirst(state).include(s, carried)
}

// keepers are those that keep a waiter from being served: whose locks have to be released before,
// directly or because others wait for them whom the waiter waits for. Nil are none.
type keepers struct {
	tx       *Txn
	sessions map[*Session]struct{}
	owners   map[any]struct{} // of the locks' holds, for the calls that carry them
	seen     map[*Waiter]struct{}
}

// keepersOfFirst returns those of the first who waits for the lock, as far as another lock is the
// reason: none if it waits for this one only, or if the end of the lock's delay is due, which looks
// at the queue.
func (tx *Txn) keepersOfFirst(state *lockState) *keepers {
	front := state.queue.Front()
	if front == nil || state.delay != nil && !state.delay.lasts(Exclusive, tx.now) {
		return nil
	}
	return tx.keepersOf(front.Waiter, state)
}

// keepersOf returns those of a waiter for the lock, as far as another lock is the reason.
func (tx *Txn) keepersOf(w *Waiter, state *lockState) *keepers {
	if w.Slot || len(w.claims) == 1 {
		return nil
	}
	k := &keepers{
		tx: tx, sessions: make(map[*Session]struct{}), owners: make(map[any]struct{}),
		seen: map[*Waiter]struct{}{w: {}},
	}
	k.addOthers(w, state)
	return k
}

// include reports whether a request of the session's, with the locks that it carries, is one of
// theirs.
func (k *keepers) include(s *Session, carried *Carried) bool {
	if k == nil {
		return false
	}
	if _, ok := k.sessions[s]; ok {
		return true
	}
	for ; carried != nil; carried = carried.Outer {
		if _, ok := k.owners[carried.Owner]; ok {
			return true
		}
	}
	return false
}

// add adds those that keep the waiter.
func (k *keepers) add(w *Waiter) {
	if _, seen := k.seen[w]; seen || w.phase != standing {
		return
	}
	k.seen[w] = struct{}{}
	k.addOthers(w, nil)
}

// addOthers adds those that keep the waiter from its locks, but for the one given.
func (k *keepers) addOthers(w *Waiter, but *lockState) {
	for i := range w.claims {
		c := &w.claims[i]
		if c.state == but {
			continue
		}
		k.addHolders(w, c)
		for place := range c.state.queue.Places() {
			if place == &c.place {
				break
			}
			k.addAhead(place.Waiter, c.state)
		}
	}
}

// addAhead adds those that keep a waiter which stands in front of another one at the lock, whose
// queue is walked.
func (k *keepers) addAhead(w *Waiter, state *lockState) {
	if _, seen := k.seen[w]; seen {
		return
	}
	k.seen[w] = struct{}{}
	for i := range w.claims {
		if c := &w.claims[i]; c.state == state {
			k.addHolders(w, c)
		}
	}
	k.addOthers(w, state)
}

// addHolders adds the holders that keep the waiter from the lock of the claim.
func (k *keepers) addHolders(w *Waiter, c *claim) {
	for s, hold := range k.tx.holdersAgainst(w, c) {
		k.addHolder(s, hold)
	}
}

// addHolder adds the holder of a lock, and those that keep its session, and the calls that carry
// the lock.
func (k *keepers) addHolder(s *Session, hold *Hold) {
	if _, known := k.sessions[s]; !known {
		k.sessions[s] = struct{}{}
		for w := range s.waiters() {
			k.add(w)
		}
	}
	if hold == nil {
		return
	}
	if _, known := k.owners[hold.Owner]; !known {
		k.owners[hold.Owner] = struct{}{}
		for _, w := range k.tx.engine.carriers[hold.Owner] {
			k.add(w)
		}
	}
}

// holdersAgainst yields the holders that keep the waiter from the lock of its claim, with their
// handles: nil for a lock without one. A slot is kept by all who have one.
func (tx *Txn) holdersAgainst(w *Waiter, c *claim) iter.Seq2[*Session, *Hold] {
	return func(yield func(*Session, *Hold) bool) {
		state := c.state
		switch {
		case w.Slot:
			tx.slotHolders(w.prefix(), yield)
		case state.session != nil:
			if !tx.adoptable(w.Session, c.key, tx.Get(c.key), w.Options.Mode) {
				yield(state.session, state.hold)
			}
		case w.Options.Mode == Exclusive:
			for _, one := range state.shares.inOrder() {
				if one.hold == nil && !yield(one.session, nil) {
					return
				}
				for _, hold := range one.handles() {
					if !yield(one.session, hold) {
						return
					}
				}
			}
		}
	}
}
