package engine

import "iter"

// The first waiter for a lock may wait for another lock too, and meanwhile keeps the waiters behind
// it from the first lock, even if that is free. If the session of a waiter behind it holds the
// other lock, each of the two would wait for the other for ever. So the waiter behind passes (R13).
//
// No waiter loses its turn by that: the first waiter cannot be served before that session releases
// the other lock, nor the waiters between the two before the first. This holds if a session
// releases nothing while one of its calls waits. If goroutines share a session, a waiter may lose
// its turn.

// passes reports whether a request of the session, with the locks that the request carries, is
// served ahead of the waiters for the lock.
func (tx *Txn) passes(s *Session, carried *Carried, state *lockState) bool {
	if !s.holdsAny() && carried == nil { // as a rule
		return false
	}
	return tx.keepersOfFirst(state).include(s, carried)
}

// keepers are the sessions and owners whose locks have to be released before a waiter is served,
// directly or because the waiter waits for others that wait for these locks. A nil *keepers is
// empty.
type keepers struct {
	tx       *Txn
	sessions map[*Session]struct{}
	owners   map[any]struct{} // of the locks' holds, for the calls that carry them
	seen     map[*Waiter]struct{}
}

// keepersOfFirst returns the keepers that keep the first waiter for the lock from its other locks.
// There are none if the waiter waits for this lock only, or if the lock's delay is over and its end
// is due: endDelay serves the queue.
func (tx *Txn) keepersOfFirst(state *lockState) *keepers {
	front := state.queue.Front()
	if front == nil || state.delay != nil && !state.delay.lasts(Exclusive, tx.now) {
		return nil
	}
	return tx.keepersOf(front.Waiter, state)
}

// keepersOf returns the keepers that keep w, a waiter for the lock, from its other locks.
func (tx *Txn) keepersOf(w *Waiter, state *lockState) *keepers {
	if w.Slot || len(w.claims) == 1 {
		return nil
	}
	k := &keepers{
		tx: tx, sessions: make(map[*Session]struct{}), owners: make(map[any]struct{}),
		seen: map[*Waiter]struct{}{w: {}},
	}
	for i := range w.claims {
		if c := &w.claims[i]; c.state != state {
			k.addHolders(w, c)
			k.addAhead(c)
		}
	}
	return k
}

// include reports whether a request of the session, with the carried locks, comes from a keeper.
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

// add adds the keepers of the waiter. If walked is not nil, the caller walks its queue from the
// front, and has come to all waiters that stand in front of w there: add leaves these out.
func (k *keepers) add(w *Waiter, walked *lockState) {
	if _, seen := k.seen[w]; seen || w.phase != standing {
		return
	}
	k.seen[w] = struct{}{}
	for i := range w.claims {
		c := &w.claims[i]
		k.addHolders(w, c)
		if c.state != walked {
			k.addAhead(c)
		}
	}
}

// addAhead adds the keepers of the waiters in front of the claim's place.
func (k *keepers) addAhead(c *claim) {
	for place := range c.state.queue.Places() {
		if place == &c.place {
			break
		}
		k.add(place.Waiter, c.state)
	}
}

// addHolders adds the holders that keep the waiter from the lock of the claim, and the keepers of
// the calls that wait with their sessions or carry the lock.
func (k *keepers) addHolders(w *Waiter, c *claim) {
	for s, hold := range k.tx.holdersAgainst(w, c) {
		if _, known := k.sessions[s]; !known {
			k.sessions[s] = struct{}{}
			for other := range s.waiters() {
				k.add(other, nil)
			}
		}
		if hold == nil {
			continue
		}
		if _, known := k.owners[hold.Owner]; !known {
			k.owners[hold.Owner] = struct{}{}
			for _, other := range k.tx.engine.carriers[hold.Owner] {
				k.add(other, nil)
			}
		}
	}
}

// holdersAgainst yields the holders that keep the waiter from the lock of its claim, with their
// handles, or nil for a holder without a handle. All holders of slots keep a waiter from a slot.
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
				if len(one.holds) == 0 && !yield(one.session, nil) {
					return
				}
				for _, hold := range one.holds {
					if !yield(one.session, hold) {
						return
					}
				}
			}
		}
	}
}
