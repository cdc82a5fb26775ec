package engine

import (
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

func newDelay(key string, until time.Time) *delay {
	d := &delay{key: key, until: until}
	d.due = expiry.Item{Owner: d, Rank: expiry.Grant}
	return d
}

// delayOf returns the key's delay, or nil. If its end is not done yet, it may be over.
func (e *Engine) delayOf(key string) *delay {
	if state := e.locks[key]; state != nil {
		return state.delay
	}
	return nil
}

// setDelay begins a lock-delay now, after the loss of a lock that was held in the mode. It replaces
// a delay that lasts (S32), but the delay of a lost reader never shortens one that lasts (R5).
func (tx *Txn) setDelay(key string, length time.Duration, mode Mode) {
	if length <= 0 {
		return
	}
	e := tx.engine
	state := e.state(key)
	d := newDelay(key, tx.now.Add(length))
	d.mode = mode
	if mode == Shared && state.delay.lasts(Exclusive, tx.now) && !d.until.After(state.delay.until) {
		return
	}
	d.slot = tx.isSlot(key)
	f := tx.effect(delaySet)
	f.delay, f.replaced = d, state.delay
	e.swapDelay(state, d)
	e.rows.Delays.Put(key, schema.Delay{
		Key: key, Until: d.until.Round(0), Length: length, Index: tx.Index(), Mode: uint8(mode),
	})
}

// swapDelay replaces the lock's delay by d; nil removes it.
func (e *Engine) swapDelay(state *lockState, d *delay) {
	if old := state.delay; old != nil {
		e.due.Remove(&old.due)
		if old.slot {
			sem := e.semaphore(PrefixOf(old.key))
			delete(sem.lost, old)
			e.tidySemaphore(sem)
		}
	}
	state.delay = d
	if d != nil {
		e.due.Set(&d.due, d.until)
		if d.slot {
			e.semaphore(PrefixOf(d.key)).lost[d] = struct{}{}
		}
	}
}

// DelayLasts reports whether the delay of a published row lasts. The row alone does not tell: it
// stays until a later write, and its end is by the wall clock, which may have been set since.
func (e *Engine) DelayLasts(row *schema.Delay, now time.Time) bool {
	d := e.delayOf(row.Key)
	return d.lasts(Exclusive, now) && row.Until.Equal(d.until.Round(0))
}

// maxSweep is how many rows of delays that are over one write removes at most.
const maxSweep = 64

// sweepDelays removes rows of delays that are over, as part of a write that is made anyway.
func (tx *Txn) sweepDelays() {
	e := tx.engine
	if len(e.overdue) == 0 {
		return
	}
	swept := e.overdue[max(0, len(e.overdue)-maxSweep):]
	for _, key := range swept {
		if e.delayOf(key) == nil { // else a new delay uses the row
			tx.dropDelay(key)
		}
	}
	clear(swept)
	e.overdue = e.overdue[:len(e.overdue)-len(swept)]
}

// recallDelays finds again which keys have delays that are over, because a drop brings back the
// rows that were swept.
func (e *Engine) recallDelays() {
	e.overdue = e.overdue[:0]
	for key := range e.rows.Delays.Ascend("") {
		if e.delayOf(key) == nil {
			e.overdue = append(e.overdue, key)
		}
	}
}

// dropDelay removes the row of a delay that is over, if there is one.
func (tx *Txn) dropDelay(key string) {
	if tx.engine.rows.Delays.Len() > 0 && tx.engine.rows.Delays.Newest(key) != nil {
		tx.engine.rows.Delays.Delete(key)
	}
}

// isSlot reports whether the key is the contender key of a holder of a semaphore.
func (tx *Txn) isSlot(key string) bool {
	id := contenderOf(key)
	if id.IsZero() {
		return false
	}
	slots, err := tx.rosterOf(PrefixOf(key))
	return err == nil && slots.names(id)
}
