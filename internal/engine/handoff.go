package engine

import (
	"cmp"
	"slices"
)

// handOff gives every lock and slot that the transaction freed to its first waiter. A grant may
// write to a semaphore, so handOff looks at the semaphores again after it. It also looks again at
// locks that are promised to a waiter which others may pass now. It looks at the locks in the order
// of their keys, because the result depends on the order: of two waiters that write to one key, the
// second one's value stays.
func (tx *Txn) handOff() {
	for decided := -1; decided != len(tx.effects) || tx.promises; {
		decided = len(tx.effects)
		if len(tx.engine.semaphores) > 0 {
			tx.lookAtSemaphores()
		}
		slices.Sort(tx.freed)
		for i := 0; i < len(tx.freed); i++ {
			tx.serve(tx.freed[i])
		}
		tx.freed = reusable(tx.freed)
		if decided == len(tx.effects) && tx.promises { // waiters whose turn it is come first
			tx.promises = tx.servePasser()
		}
	}
}

// serve grants the waiters for the key what they wait for, in order, until a waiter has to go on
// waiting.
func (tx *Txn) serve(key string) {
	for {
		state := tx.engine.lockOf(key)
		if state == nil {
			return
		}
		next := tx.nextWaiter(state)
		if next == nil {
			return
		}
		if !tx.serveFirst(next) && !tx.serveLoose(state, next) {
			return
		}
	}
}

// serveLoose serves a call of a session that holds the lock without a handle: only such a call can
// take the lock over, and it need not be the first in the queue. serveLoose reports whether it
// served a call other than first.
func (tx *Txn) serveLoose(state *lockState, first *Waiter) bool {
	serve := func(s *Session, mode Mode) bool {
		own := s.firstFor(state.key, mode)
		return own != nil && !own.Slot && own != first && tx.serveFirst(own)
	}
	if state.session != nil && state.hold == nil {
		return serve(state.session, Exclusive)
	}
	if state.shares.loose == 0 || tx.engine.nested == 0 { // as a rule no holder waits
		return false
	}
	for _, one := range state.shares.inOrder() {
		if len(one.holds) == 0 && serve(one.session, Shared) {
			return true
		}
	}
	return false
}

// serveFirst grants a waiter all of its locks, if they can be granted and it is the waiter's turn
// for each; or its slot, for which the waiter has to be the first. It reports whether it did. A
// waiter whose session is due is granted nothing, because ends come before grants (S26). It keeps
// its place, because there may be thousands of such waiters; endLapsed has the queue served.
func (tx *Txn) serveFirst(w *Waiter) bool {
	tx.promises = tx.promises || len(w.claims) > 1 // w may pass others, or others may pass w
	if w.Session.isDue(tx.now) {
		w.Session.stalls = true
		return false
	}
	if w.Slot {
		if !tx.serveSlot(w) {
			return false
		}
	} else {
		for i := range w.claims {
			if !tx.inTurn(w, &w.claims[i]) {
				return false
			}
		}
		w.granted(tx.engine)
		for i := range w.claims {
			c := &w.claims[i]
			tx.take(c.hold, w.Session, c.key, w.Options)
		}
	}
	tx.served(w)
	return true
}

// servePasser serves the first waiter that passes a waiter for several locks, and reports whether
// there was one. It comes last, because the grants before it decide which waiters pass.
func (tx *Txn) servePasser() bool {
	if tx.engine.nested+len(tx.engine.carriers) == 0 { // no waiter holds a lock
		return false
	}
	tx.passing = true
	defer func() { tx.passing = false }()
	for _, w := range tx.engine.several {
		for i := range w.claims {
			c := &w.claims[i]
			if c.state.queue.Front() == &c.place && tx.servePasserOf(c.state) {
				return true
			}
		}
	}
	return false
}

// servePasserOf serves the first waiter in the queue that passes the front of the queue.
func (tx *Txn) servePasserOf(state *lockState) bool {
	if state.session != nil || state.queue.Len() < 2 {
		return false
	}
	keepers := tx.keepersOfFirst(state)
	if keepers == nil {
		return false
	}
	front := state.queue.Front().Waiter
	for place := range state.queue.Places() {
		w := place.Waiter
		if w != front && !w.Slot && keepers.include(w.Session, w.Carried) && tx.serveFirst(w) {
			return true
		}
	}
	return false
}

// inTurn reports whether the waiter is the next to have the lock of the claim, and can have it.
func (tx *Txn) inTurn(w *Waiter, c *claim) bool {
	mode, s := w.Options.Mode, w.Session
	if tx.adoptable(s, c.key, tx.Get(c.key), mode) &&
		(w.next == nil || s.firstFor(c.key, mode) == w) { // the oldest is the last
		return true
	}
	return tx.takeable(c.key, mode) && (c.state.queue.Front() == &c.place ||
		tx.passing && tx.passes(s, w.Carried, c.state))
}

// handOn grants the lock, which its holder releases, to the first waiter, with one write to the
// key. If it reports false, the caller has to release the lock; then handOff looks at the queue
// when the transaction is sealed.
func (tx *Txn) handOn(state *lockState) bool {
	first := state.queue.Front()
	if first == nil || state.delay != nil {
		return false
	}
	w := first.Waiter
	if w.Slot || len(w.claims) > 1 || w.Options.Mode == Shared || w.Session.isDue(tx.now) {
		return false
	}
	w.granted(tx.engine)
	tx.assign(w.claims[0].hold, w.Session, tx.grant(state.key, w.Session, w.Options), LeaveKey)
	tx.served(w)
	return true
}

// ServeAll looks at every queue after a drop: a lock may be free although no other transaction will
// look at its queue, or may be held for a call that has returned.
func (tx *Txn) ServeAll() {
	tx.again = true
	tx.ReleaseGivenUp()
	for _, state := range tx.engine.locks {
		tx.revisit(state)
	}
	tx.dismissDeadlocked()
}

// ReleaseGivenUp releases again the locks that GiveUp or Abandon has released, if a drop has taken
// the release back. It releases them in the order of the keys, because the result depends on the
// order: releasing a semaphore's own key deletes the key, unless the release of a slot has written
// to it.
func (tx *Txn) ReleaseGivenUp() {
	var givenUp []*Hold
	add := func(hold *Hold) {
		if hold != nil && hold.givenUp {
			givenUp = append(givenUp, hold)
		}
	}
	for _, state := range tx.engine.locks {
		add(state.hold)
		for _, one := range state.shares.inOrder() {
			for _, hold := range one.holds {
				add(hold)
			}
		}
	}
	slices.SortStableFunc(givenUp, func(a, b *Hold) int { return cmp.Compare(a.Key, b.Key) })
	for _, hold := range givenUp {
		tx.Release(hold)
	}
}

// GiveUp releases a lock that was granted to a call that has returned without it. No handle remains
// by which a caller could release it: if the release is dropped and the grant is not, the next
// write releases the lock.
func (tx *Txn) GiveUp(hold *Hold) {
	hold.givenUp = true
	tx.Release(hold)
}

// Abandon is GiveUp for a handle that its caller had, and that no caller will have after it.
func (tx *Txn) Abandon(hold *Hold) {
	hold.takenOver = false // else GiveUp would leave the session what it had before
	tx.GiveUp(hold)
}

// Release releases the lock of hold, if hold still has it. The first waiter is granted the lock in
// the same transaction.
func (tx *Txn) Release(hold *Hold) {
	e := tx.engine
	if hold.Mode == Shared {
		tx.releaseShare(hold)
		return
	}
	state := e.lockOf(hold.Key)
	if state == nil || state.hold != hold {
		return
	}
	row := tx.Get(hold.Key)
	e.setHold(state, nil)
	tx.effect(LockReleased).Hold = hold
	if hold.givenUp && hold.takenOver { // the session keeps the lock, as before
		tx.revisit(state)
		return
	}
	if hold.policy == leaveSlot {
		tx.leaveSlot(row)
		return
	}
	if hold.policy == RemoveAfter && row.ModifyIndex == row.Fence {
		tx.remove(row, ErrUnlocked)
		return
	}
	if !tx.handOn(state) {
		tx.release(row, ErrUnlocked)
	}
}

// DismissAll takes all waiters out of their queues with an error.
func (tx *Txn) DismissAll(err error) {
	for _, s := range tx.engine.Sessions(func(*Session) bool { return true }) {
		for w := range s.waiters() {
			tx.dismiss(w, err)
		}
	}
}
