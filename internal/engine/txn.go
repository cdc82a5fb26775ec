package engine

import (
	"slices"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Txn is the running transaction. Begin gives it, and Seal and Undo end it.
type Txn struct {
	engine *Engine
	now    time.Time
	again  bool // no call asked for what it does, so it is tried again after a drop
	shared bool // see Share
	serves bool // it has granted a waiter what it waits for

	effects  []Effect          // what is decided outside the tables
	freed    []string          // keys whose queue has to be looked at
	promises bool              // a waiter may pass a waiter for several locks: see servePasser
	passing  bool              // servePasser looks for a waiter that passes
	passed   []string          // keys whose holders have changed since Share
	locked   map[string]uint64 // see keepLockIndex

	causes       map[Sequencer]error // why a grant ended, unless it was unlocked
	passedShares []*schema.Share     // like passed, for locks that are shared
}

// Effect is a decision of a transaction that is not in the rows. The caller is told of it when its
// batch is durable; if the batch is dropped, the effect is reverted.
type Effect struct {
	Kind    EffectKind
	Hold    *Hold
	Next    *Hold // of a downgrade
	Waiter  *Waiter
	Session *Session
	Cause   error
	Slow    *Slow // what is slow; with the Hold, if there is a handle, or the Waiter

	delay    *delay
	replaced *delay
	lease    *checkLease
	instant  time.Time // the deadline that lease had, or that at which Waiter was served
}

// EffectKind says what an effect is.
type EffectKind uint8

// The kinds.
const (
	LockHeld       EffectKind = iota + 1 // Hold has got the lock of its key
	LockReleased                         // Hold no longer has the lock, by its own release
	LockLost                             // Hold no longer has the lock, for another cause
	LockDowngraded                       // Hold no longer has the lock: Next shares it instead
	SessionMade                          // Session was made
	SessionEnded                         // Session has ended, for Cause
	WaiterServed                         // the holds of Waiter have got the locks of their keys
	WaiterLeft                           // Waiter goes with an error
	HoldSlow                             // a lock is held for long, as Slow says
	WaitSlow                             // Waiter waits for long, as Slow says

	delaySet   // delay took the place of replaced
	leaseBegun // lease got another deadline than instant
)

// effect adds an effect to the transaction, to be filled in.
func (tx *Txn) effect(kind EffectKind) *Effect {
	n := len(tx.effects)
	tx.effects = slices.Grow(tx.effects, 1)[:n+1] // what is beyond the end is zero
	e := &tx.effects[n]
	e.Kind = kind
	return e
}

// Index is the index that the transaction's writes carry.
func (tx *Txn) Index() uint64 { return tx.engine.rows.Next() }

// reusable returns the list, empty, to be used again, or nil if it has grown large. It clears the
// list, so that the list keeps nothing else in memory.
func reusable[T any](list []T) []T {
	if cap(list) > maxReusable {
		return nil
	}
	clear(list)
	return list[:0]
}

// maxReusable is the largest capacity of a list whose memory is kept.
const maxReusable = 4096

// revisit has handOff look at the queue of the lock, if there is one.
func (tx *Txn) revisit(state *lockState) {
	if state.queue.Len() > 0 {
		tx.freed = append(tx.freed, state.key)
	}
}

// Batch is what one commit makes durable, beside its rows.
type Batch struct {
	rows    *store.Batch // once it is taken
	effects []Effect
	events  []Event
	again   bool // it has work that no call asked for, which has to be tried again
}

// Outcome is what has been published, and has to be told in this order (G10): first the effects
// LockReleased, LockLost, LockDowngraded and SessionEnded, then the events, and then WaiterServed,
// WaiterLeft, HoldSlow and WaitSlow. The other effects are not told. An Outcome is valid until the
// next call of a method that changes anything.
type Outcome struct {
	Effects []Effect
	Events  []Event
	Index   uint64 // that is published
}
