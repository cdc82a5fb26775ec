package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockd/lockd/internal/schema"
)

// writeRoster writes the semaphore's key. It leaves out the idle holders, which no longer hold
// their contender keys, and deletes these contender keys if they are free.
func (tx *Txn) writeRoster(r roster) {
	if len(r.idle) > 0 {
		r.holders = slices.DeleteFunc(slices.Clone(r.holders), func(id schema.ID) bool {
			_, idle := r.idle[id]
			return idle && tx.dropIdle(r.prefix, id)
		})
	}
	r.row, r.idle = tx.Put(r.prefix+SemaphoreKey, r.text(), semaphoreFlags), nil
	if sem := tx.engine.semaphores[r.prefix]; sem != nil {
		sem.roster = r // which still names all that have a handle, if it did before
	}
}

// dropIdle deletes the contender key of a holder that does not hold it, if the key is free. It
// reports false if the holder has been granted the key since the roster was read.
func (tx *Txn) dropIdle(prefix string, id schema.ID) bool {
	row := tx.Get(contenderKey(prefix, id))
	if row != nil && row.Session == id {
		return false
	}
	if row != nil && row.Session.IsZero() {
		tx.remove(row, ErrKeyDeleted)
	}
	return true
}

// SetLimit changes how many slots the semaphore has, and makes it if need be. It returns
// ErrConflict if its key has a value that is not a semaphore's.
func (tx *Txn) SetLimit(prefix string, limit int) error {
	r, err := tx.rosterOf(prefix)
	if err != nil || r.limit == limit {
		return err
	}
	r.limit = limit
	tx.writeRoster(r)
	return nil
}

// TryAcquire gives hold a slot, if one can be had at once. It returns a *Blocked if none can,
// ErrConflict if the session must not wait for a slot, and ErrNoSession if the session has ended.
func (tx *Txn) TryAcquire(hold *Hold, s *Session, prefix string, limit int) error {
	blocked, err := tx.Acquire(hold, s, prefix, limit)
	if err != nil || blocked == nil {
		return err
	}
	if blocked.Obstacle == BySlots {
		slots, _ := tx.rosterOf(prefix) // it has been read before
		if longest := longestHeld(slots.held(tx.Get)); longest != nil {
			tx.describeHolder(blocked, s, longest)
		}
	}
	return blocked
}

// Acquire gives hold a slot, or returns what the session may wait for, or why it must not wait.
func (tx *Txn) Acquire(hold *Hold, s *Session, prefix string, limit int) (*Blocked, error) {
	if err := tx.alive(s); err != nil {
		return nil, err
	}
	key := prefix + SemaphoreKey
	slots, err := tx.rosterOf(prefix)
	switch {
	case err != nil:
		return nil, err
	case slots.limit != 0 && limit != 0 && slots.limit != limit:
		return nil, conflict("the limit of the semaphore is %d, not %d: name 0 to go by "+
			"its own, or change it by SetLimit", slots.limit, limit)
	case s.awaits(key, Exclusive):
		return nil, conflict("session %s waits for a slot: %s", s.Row.ID, oneSlotEach)
	}
	if err := slots.begin(limit); err != nil {
		return nil, err
	}
	row, obstacle, err := tx.seekSlot(s, slots)
	if err != nil || obstacle != nil {
		return obstacle, err
	}
	state := tx.engine.lockOf(key)
	if state != nil && tx.nextWaiter(state) != nil && !slots.has(row) {
		return &Blocked{
			Key: key, Obstacle: ByQueue, Waiters: state.queue.Len(), Limit: slots.limit,
		}, nil
	}
	tx.holdSlot(hold, s, slots, row)
	tx.effect(LockHeld).Hold = hold
	return nil, nil
}

const oneSlotEach = "it can have one slot of a semaphore, so take a session for each"

// serveSlot gives w, the first waiter for a slot, a slot, and reports whether it did. Otherwise no
// slot can be had, or the waiter was dismissed with an error.
func (tx *Txn) serveSlot(w *Waiter) bool {
	slots, err := tx.rosterOf(w.prefix())
	if err == nil {
		err = slots.begin(int(w.Limit))
	}
	var row *schema.Key
	var obstacle *Blocked
	if err == nil {
		row, obstacle, err = tx.seekSlot(w.Session, slots)
	}
	if err != nil {
		tx.dismiss(w, err)
		return false
	}
	if obstacle != nil {
		return false
	}
	w.granted(tx.engine)
	tx.holdSlot(w.claims[0].hold, w.Session, slots, row)
	return true
}

// seekSlot returns what keeps a session from a slot, apart from the queue: an obstacle that will
// pass, or an error for one that may not. It also returns the session's contender key, if there is
// one.
func (tx *Txn) seekSlot(s *Session, slots roster) (*schema.Key, *Blocked, error) {
	key := contenderKey(slots.prefix, s.Row.ID)
	if delayed := tx.delayed(key, Exclusive); delayed != nil {
		return nil, delayed, nil
	}
	row := tx.Get(key)
	switch {
	case row == nil || row.Session != s.Row.ID:
		if err := tx.obstructed(s, key, row, Exclusive); err != nil {
			return nil, nil, err
		}
	case tx.engine.lockOf(key).hold != nil:
		return nil, nil, conflict("session %s holds %q: %s", s.Row.ID, key, oneSlotEach)
	case slots.has(row):
		return row, nil, nil
	}
	return row, tx.full(slots, slots.taken(), func(*delay) bool { return true }), nil
}

// full returns a refusal if no slot is free, and nil otherwise. Of the slots, taken are held. A
// lost slot is not free while its delay lasts, if counts accepts the delay.
func (tx *Txn) full(slots roster, taken int, counts func(*delay) bool) *Blocked {
	key := slots.prefix + SemaphoreKey
	refusal := &Blocked{Key: key, Obstacle: BySlots, Limit: slots.limit}
	if state := tx.engine.lockOf(key); state != nil {
		refusal.Waiters = state.queue.Len()
	}
	if sem := tx.engine.semaphores[slots.prefix]; sem != nil {
		for lost := range sem.lost {
			remaining := lost.until.Sub(tx.now)
			if remaining <= 0 || !counts(lost) {
				continue
			}
			taken++
			if refusal.Remaining == 0 || remaining < refusal.Remaining {
				refusal.Until, refusal.Remaining = lost.until.Round(0), remaining
			}
		}
	}
	if taken < slots.limit {
		return nil
	}
	return refusal
}

// holdSlot gives hold a slot that the session may take, or has without a handle. It writes both
// keys in one transaction, so that the sequencer of the contender key proves the slot.
func (tx *Txn) holdSlot(hold *Hold, s *Session, slots roster, row *schema.Key) {
	id := s.Row.ID
	hold.takenOver = slots.has(row)
	if !hold.takenOver {
		value := []byte{}
		if row != nil {
			value = append(value, row.Value...)
		}
		row = tx.grant(contenderKey(slots.prefix, id), s,
			LockOptions{Value: value, Flags: semaphoreFlags})
		tx.engine.semaphore(slots.prefix) // makes it: assign adds hold, writeRoster the roster
		tx.writeRoster(slots.with(id))
	}
	tx.assign(hold, s, row, leaveSlot)
}

// leaveSlot gives back the slot whose contender key is row.
func (tx *Txn) leaveSlot(row *schema.Key) {
	tx.remove(row, ErrUnlocked)
	// The semaphore lists the holder, or the slot would have been lost.
	if slots, err := tx.rosterOf(PrefixOf(row.Key)); err == nil && slots.limit > 0 {
		tx.writeRoster(slots)
	}
}

// serveContenders has the waiters for a slot served, if there are any.
func (tx *Txn) serveContenders(prefix string) {
	if len(tx.engine.semaphores) == 0 {
		return
	}
	key := prefix + SemaphoreKey
	if state := tx.engine.lockOf(key); state != nil {
		if first := state.queue.Front(); first != nil && first.Waiter.Slot {
			tx.freed = append(tx.freed, key)
		}
	}
}

// lookAtSemaphores does what follows when the transaction, by whichever call, wrote to a
// semaphore's own key or to the key of a contender.
func (tx *Txn) lookAtSemaphores() {
	touched := make(map[*semaphore]struct{})
	for old, new := range tx.engine.rows.Keys.Changes() {
		if sem := tx.engine.semaphores[PrefixOf(cmp.Or(new, old).Key)]; sem != nil {
			touched[sem] = struct{}{}
		}
	}
	order := slices.SortedFunc(maps.Keys(touched), func(a, b *semaphore) int {
		return cmp.Compare(a.prefix, b.prefix)
	})
	for _, sem := range order {
		tx.takeSlots(sem)
		tx.serveContenders(sem.prefix)
	}
}

// takeSlots ends the slots of handles whose sessions the semaphore no longer names, because an
// operator or another client has written to it. It deletes the contender key with the slot:
// otherwise the key would still prove the slot.
func (tx *Txn) takeSlots(sem *semaphore) {
	slots, err := tx.rosterOf(sem.prefix)
	if sem.named {
		return
	}
	cause := ErrUnlocked
	if err != nil || slots.limit == 0 {
		cause = ErrKeyDeleted // and the roster names no holder
	}
	var ended []*Hold
	for hold := range sem.slots {
		if !slots.names(hold.Session.Row.ID) {
			ended = append(ended, hold)
		}
	}
	slices.SortFunc(ended, func(a, b *Hold) int { return cmp.Compare(a.Key, b.Key) })
	for _, hold := range ended {
		tx.remove(tx.Get(hold.Key), cause)
	}
	sem.named = true
}

// nextWaiter returns the waiter of the queue whose turn it is, or nil: the first, apart from those
// that cannot have a slot because the contender key of their own session is delayed.
func (tx *Txn) nextWaiter(state *lockState) *Waiter {
	for place := range state.queue.Places() {
		w := place.Waiter
		if !w.Slot || tx.delayed(contenderKey(w.prefix(), w.Session.Row.ID), Exclusive) == nil {
			return w
		}
	}
	return nil
}
