package engine

import (
	"bytes"
	"iter"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Get returns the newest row of the key, or nil.
func (tx *Txn) Get(key string) *schema.Key { return tx.engine.rows.Keys.Newest(key) }

// Prefix yields the newest rows of the keys that begin with the prefix, in order. The loop may
// write.
func (tx *Txn) Prefix(prefix string) iter.Seq2[string, *schema.Key] {
	return tx.engine.rows.Keys.Prefix(prefix)
}

// Put writes value and flags and leaves the lock alone (K1 to K3).
func (tx *Txn) Put(key string, value []byte, flags uint64) *schema.Key {
	row := tx.Get(key)
	if row != nil && row.Flags == flags && bytes.Equal(row.Value, value) {
		return row
	}
	draft, next := tx.draft(key)
	next.Value, next.Flags = bytes.Clone(value), flags
	return tx.write(draft)
}

// CheckIndex refuses a key whose modify index is not index (K4 to K8). Index 0 means that the key
// must not exist.
func (tx *Txn) CheckIndex(key string, index uint64) error {
	row := tx.Get(key)
	switch {
	case row == nil && index != 0:
		return conflict("the key does not exist")
	case row != nil && index == 0:
		return conflict("the key exists, its modify index is %d", row.ModifyIndex)
	case row != nil && row.ModifyIndex != index:
		return conflict("modify index is %d, not %d", row.ModifyIndex, index)
	}
	return nil
}

// Delete removes the key, locked or not, and reports whether it existed (K26, K27).
func (tx *Txn) Delete(key string) bool {
	row := tx.Get(key)
	if row == nil {
		return false
	}
	tx.remove(row, ErrKeyDeleted)
	return true
}

// CompareAndDelete is Delete for a key whose modify index is index (K28 to K30).
func (tx *Txn) CompareAndDelete(key string, index uint64) (deleted bool, err error) {
	row := tx.Get(key)
	if row == nil {
		return false, nil
	}
	if row.ModifyIndex != index {
		return false, conflict("modify index is %d, not %d", row.ModifyIndex, index)
	}
	return tx.Delete(key), nil
}

// DeletePrefix removes the keys that begin with the prefix, under one tombstone (K31), and returns
// how many there were.
func (tx *Txn) DeletePrefix(prefix string) int {
	n, known := 0, false
	for _, row := range tx.Prefix(prefix) {
		tx.removeRow(row, ErrKeyDeleted)
		n++
		known = known || !tx.made(row)
	}
	if known {
		tx.engine.rows.Bury(GravePrefix, prefix)
	}
	return n
}

// draft returns a draft of the newest row of the key, or of a new row, and the row in it.
func (tx *Txn) draft(key string) (*store.Draft[schema.Key], *schema.Key) {
	draft := tx.engine.rows.Keys.Draft(key)
	row := draft.Row()
	if row.Key == "" {
		row.Key, row.CreateIndex = key, tx.Index()
	}
	return draft, row
}

// write makes the draft the newest row of its key.
func (tx *Txn) write(draft *store.Draft[schema.Key]) *schema.Key {
	row := draft.Row()
	row.ModifyIndex = tx.Index()
	tx.engine.rows.Keys.Write(row.Key, draft)
	return row
}

// made reports whether this transaction made the key. No other transaction has seen the key, so its
// deletion moves no index. An earlier key of that name has its own tombstone.
func (tx *Txn) made(row *schema.Key) bool { return row.CreateIndex == tx.Index() }

// remove deletes a key, and leaves its tombstone. The cause is why its lock ends, if it is locked.
func (tx *Txn) remove(row *schema.Key, cause error) {
	tx.removeRow(row, cause)
	if !tx.made(row) {
		tx.engine.rows.Bury(GraveKey, row.Key)
	}
}

// removeRow is remove without the tombstone.
func (tx *Txn) removeRow(row *schema.Key, cause error) {
	tx.engine.rows.Keys.Delete(row.Key)
	if row.Fence == tx.Index() {
		tx.keepLockIndex(row)
	}
	tx.explain(SequencerOf(row), cause)
	if state := tx.engine.lockOf(row.Key); state != nil {
		for _, one := range state.shares.inOrder() {
			tx.endShare(one, cause)
		}
	}
	tx.unhold(row, cause)
}

// keepLockIndex notes the lock index of a grant of this transaction, so that the next grant has a
// larger one even if the key is deleted in between (K41).
func (tx *Txn) keepLockIndex(row *schema.Key) {
	if tx.locked == nil {
		tx.locked = make(map[string]uint64)
	}
	tx.locked[row.Key] = row.LockIndex
}

// release releases the lock of a key, which keeps all else (K33; for K21 see Unlock).
func (tx *Txn) release(row *schema.Key, cause error) *schema.Key {
	draft, next := tx.draft(row.Key)
	next.Session = schema.ID{}
	written := tx.write(draft)
	tx.explain(SequencerOf(row), cause)
	tx.unhold(row, cause)
	return written
}

// explain keeps why a grant has ended, for the event that tells it. An event without an explanation
// tells an unlock. The grant of a key that was free has no session.
func (tx *Txn) explain(grant Sequencer, cause error) {
	if grant.Session.IsZero() || cause == ErrUnlocked {
		return
	}
	if tx.causes == nil {
		tx.causes = make(map[Sequencer]error)
	}
	tx.causes[grant] = cause
}

// unhold does what follows from the end of a grant; row is the key's row before that. The handle
// loses the lock, and handOff looks at the lock's queue when the transaction is sealed.
func (tx *Txn) unhold(row *schema.Key, cause error) {
	e := tx.engine
	state := e.lockOf(row.Key)
	if state == nil {
		return
	}
	if hold := state.hold; hold != nil {
		e.setHold(state, nil)
		f := tx.effect(LockLost)
		f.Hold, f.Cause = hold, cause
	}
	tx.revisit(state)
}

// keyMoved updates each session's list of the locks that it holds.
func (e *Engine) keyMoved(old, new *schema.Key) {
	if e.slow != nil {
		e.keyHeld(old, new)
	}
	var from, to schema.ID
	key := ""
	if old != nil {
		from, key = old.Session, old.Key
	}
	if new != nil {
		to, key = new.Session, new.Key
	}
	if from == to {
		return
	}
	if e.own.shared {
		e.own.passed = append(e.own.passed, key)
	}
	if len(e.semaphores) > 0 {
		e.contenderMoved(key, from, to)
	}
	state := e.state(key)
	if s := state.session; s != nil {
		if state.prev != nil {
			state.prev.next = state.next
		} else {
			s.held = state.next
		}
		if state.next != nil {
			state.next.prev = state.prev
		}
		state.session, state.prev, state.next = nil, nil, nil
		e.countNested(s, true)
	}
	if !to.IsZero() {
		s := e.holder(to)
		held := s.holdsAny()
		state.session, state.next = s, s.held
		if s.held != nil {
			s.held.prev = state
		}
		s.held = state
		e.countNested(s, held)
	}
}
