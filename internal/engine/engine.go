package engine

import (
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// New returns an engine on the rows, which Load takes up.
func New(rows *store.Store, config Config) *Engine {
	if config.NewSession == nil {
		config.NewSession = func() *Session { return new(Session) }
	}
	e := &Engine{
		rows: rows, config: config,
		sessions:   make(map[schema.ID]*Session),
		bound:      make(map[string]map[*Session]struct{}),
		locks:      make(map[string]*lockState),
		semaphores: make(map[string]*semaphore),
		leases:     make(map[string]*checkLease),
		open:       new(Batch),
	}
	e.own.engine = e
	return e
}

// Load takes up the rows that the store has, which fit together, at the instant at which it was
// opened: it makes what is kept beside them. It is called once, before anything else.
func (e *Engine) Load(now time.Time) {
	e.epoch = now.Add(-1)
	e.rows.Keys.OnMove(e.keyMoved)
	e.rows.Attachments.OnMove(e.attachmentMoved)
	for _, row := range e.rows.Sessions.Ascend("") {
		s := e.adopt(row)
		e.restart(s, now)
	}
	for _, row := range e.rows.Locked() {
		e.keyMoved(nil, row)
		e.counts.Locks++
	}
	for _, row := range e.rows.Attachments.Ascend("") {
		e.attachmentMoved(nil, row)
	}
	for key, row := range e.rows.Checks.Ascend("") {
		if lapses(row) {
			e.setLease(newCheckLease(key), now.Add(row.TTL))
		}
	}
	e.loadDelays(now)
	e.counts.Keys, e.counts.Sessions = e.rows.Keys.Len(), e.rows.Sessions.Len()
}

// loadDelays goes by the wall clock, which may have been set: never longer than a delay was.
func (e *Engine) loadDelays(now time.Time) {
	for key, row := range e.rows.Delays.Ascend("") {
		left := min(row.Until.Sub(now.Round(0)), row.Length)
		if left <= 0 {
			e.overdue = append(e.overdue, key)
			continue
		}
		d := newDelay(key, now.Add(left))
		d.slot = e.mayHaveLostSlot(key)
		e.swapDelay(e.state(key), d)
	}
}

// Begin writes what an opened database begins with: delays that last shorter than their rows say,
// because the wall clock was set back since, and the node of the process.
func (tx *Txn) Begin() {
	e := tx.engine
	for key, row := range e.rows.Delays.Ascend("") {
		state := e.locks[key]
		if state == nil || state.delay == nil {
			continue
		}
		// The next Open does not begin them anew once more.
		if until := state.delay.until.Round(0); until.Before(row.Until) {
			shorter := *row
			shorter.Until = until
			e.rows.Delays.Put(key, shorter)
		}
	}
	// Nothing has been written to a node yet. For the newest row its leaf would be unfolded.
	if e.rows.Nodes.Get(Folded(e.config.Node)) == nil {
		tx.putNode(schema.Node{Name: e.config.Node})
	}
}

// Begin begins a transaction at the instant. The one before has ended.
func (e *Engine) Begin(now time.Time) *Txn {
	tx := &e.own
	tx.now, tx.again, tx.shared = now, false, false
	tx.freed, tx.passed = reusable(tx.freed), reusable(tx.passed)
	tx.causes, tx.ends, tx.locked = emptied(tx.causes), emptied(tx.ends), emptied(tx.locked)
	return tx
}

// Share has the transaction note what LockViews needs to show the state before it: the caller's
// lock is free between the calls of its methods from now on, until Unshare.
func (tx *Txn) Share() { tx.shared = true }

// Unshare ends Share.
func (tx *Txn) Unshare() { tx.shared = false }

// Index is the index that the transaction's writes carry.
func (tx *Txn) Index() uint64 { return tx.next() }

// Time is the instant of the transaction.
func (tx *Txn) Time() time.Time { return tx.now }

// Undo takes back what the transaction did.
func (tx *Txn) Undo() {
	tx.engine.rows.Undo()
	tx.engine.revert(tx.effects)
	tx.effects = reusable(tx.effects)
	tx.engine.mustHold()
}

// Seal keeps what the transaction did: it serves the queues, and joins the open batch. It returns
// what is published with that, and so has to be told now: all of it in memory, and on a file what
// depends on no batch.
func (tx *Txn) Seal() Outcome {
	e := tx.engine
	tx.handOff()
	if e.rows.Wrote() {
		tx.sweepDelays()
		e.open.again = e.open.again || tx.again
	}
	e.events = tx.record(e.events[:0])
	e.rows.Seal()
	var told Outcome
	if !e.rows.Durable() {
		e.rows.PublishMemory()
		told = e.settle(Outcome{tx.effects, e.events, e.rows.Published()})
	} else if b := e.Undecided(); b != nil {
		// What has no row of its own is decided on the batches that are not durable yet.
		b.effects = append(b.effects, tx.effects...)
		b.events = append(b.events, e.events...)
	} else {
		told = e.settle(Outcome{tx.effects, nil, e.rows.Published()})
	}
	e.mustHold()
	return told
}

// Done gives back the memory of the outcome of Seal, which has been told.
func (tx *Txn) Done() {
	tx.effects, tx.engine.events = reusable(tx.effects), reusable(tx.engine.events)
}

// maxReusable is how many effects and events there may be in memory that is kept.
const maxReusable = 4096

// emptied returns the map to be used again, unless it has grown: then it would take longer to empty
// each time.
func emptied[K comparable, V any](m map[K]V) map[K]V {
	const small = 8
	switch {
	case len(m) == 0:
		return m
	case len(m) > small:
		return nil
	}
	clear(m)
	return m
}

// reusable returns the list, empty, to be used again, unless it has grown. It has nothing any more
// that would be kept in memory by it.
func reusable[T any](list []T) []T {
	if cap(list) > maxReusable {
		return nil
	}
	clear(list)
	return list[:0]
}

// Durable reports whether there is a file: whether what is sealed joins a batch.
func (e *Engine) Durable() bool { return e.rows.Durable() }

// Undecided returns the newest batch that anything decided now depends on: nil if everything is
// published.
func (e *Engine) Undecided() *Batch {
	if e.Pending() {
		return e.open
	}
	return e.flying
}

// Open returns the open batch.
func (e *Engine) Open() *Batch { return e.open }

// Pending reports whether the open batch has rows that have to be committed.
func (e *Engine) Pending() bool { return e.rows.Durable() && e.rows.Pending() }

// Again reports whether the batch has what was due by itself, and so has to be tried again if it
// is dropped.
func (b *Batch) Again() bool { return b.again }

// Index is the index of the last transaction of a batch that was taken.
func (b *Batch) Index() uint64 { return b.rows.Index() }

// Write commits the rows of a batch that was taken, whole or not at all. It is called without the
// caller's lock, once, by one goroutine at a time.
func (b *Batch) Write() error { return b.rows.Write() }

// Take closes the open batch, which is committed now. The one before has ended.
func (e *Engine) Take() *Batch {
	b := e.open
	b.rows = e.rows.Take()
	e.flying = b
	e.open = &Batch{effects: e.reusable.effects, events: e.reusable.events}
	e.reusable = batchMemory{}
	return b
}

// Publish shows the batch that was taken, which is durable. It returns what has to be told. The
// caller calls Reuse after that.
func (e *Engine) Publish(b *Batch) Outcome {
	e.flying = nil
	e.rows.Publish(b.rows)
	return e.settle(Outcome{b.effects, b.events, b.rows.Index()})
}

// Reuse keeps the memory of a batch that has been told.
func (e *Engine) Reuse(b *Batch) {
	e.reusable = batchMemory{reusable(b.effects), reusable(b.events)}
	b.effects, b.events = nil, nil
	e.mustHold()
}

// Drop takes back a batch that could not be committed, and the open one, which was decided on it.
func (e *Engine) Drop(b *Batch) {
	follower := e.open
	e.flying, e.open = nil, new(Batch)
	e.rows.Drop(b.rows)
	e.revert(follower.effects)
	e.revert(b.effects)
	e.recallDelays()
	e.unserved = true
	e.mustHold()
}

// settle does what follows for the engine when effects and events are published.
func (e *Engine) settle(o Outcome) Outcome {
	for i := range o.Effects {
		switch f := &o.Effects[i]; f.Kind {
		case SessionEnded:
			delete(e.sessions, f.Session.Row.ID)
			e.unbind(f.Session)
		case WaiterServed, WaiterLeft:
			e.Settle(f.Waiter)
		}
	}
	e.count(o.Events)
	return o
}

// Settle ends a wait.
func (e *Engine) Settle(w *Waiter) {
	w.phase = settled
	e.leave(w)
}

// revert takes effects back, the last first. The rows have been taken back before.
func (e *Engine) revert(effects []Effect) {
	for i := len(effects) - 1; i >= 0; i-- {
		switch f := &effects[i]; f.Kind {
		case LockHeld:
			e.dropHold(f.Hold)
		case LockReleased, LockLost:
			e.setHold(e.state(f.Hold.Key), f.Hold)
		case SessionMade:
			e.unmake(f.Session)
		case SessionEnded:
			e.revive(f.Session)
		case delaySet:
			e.swapDelay(e.state(f.delay.key), f.replaced)
		case leaseBegun:
			e.setLease(f.lease, f.until)
		case WaiterServed:
			for i := range f.Waiter.claims {
				e.dropHold(f.Waiter.claims[i].hold)
			}
			e.standAgain(f.Waiter)
		case WaiterLeft:
			e.standAgain(f.Waiter)
		}
	}
}

// dropHold takes back that hold became that of its key.
func (e *Engine) dropHold(hold *Hold) {
	state := e.state(hold.Key)
	if state.hold == hold {
		e.setHold(state, nil)
	}
	e.tidy(state)
}

// Sessions returns the sessions that live and are chosen, the oldest first.
func (e *Engine) Sessions(chosen func(*Session) bool) []*Session {
	var sessions []*Session
	for _, s := range e.sessions {
		if s.live && chosen(s) {
			sessions = append(sessions, s)
		}
	}
	sortByAge(sessions)
	return sessions
}

// Rows is the store, for what reads rows only.
func (e *Engine) Rows() *store.Store { return e.rows }

// Counts is what has been counted.
func (e *Engine) Counts() Counts { return e.counts }

// Raise has the next indexes be above that one. No transaction may be running.
func (e *Engine) Raise(index uint64) error {
	// maxFloor leaves more indexes above it than can ever be used, before they begin anew.
	const maxFloor = 1 << 62
	if index > maxFloor && index > e.rows.Index() {
		return invalid("index %d, which the next ones would be above, is more than %d", index,
			uint64(maxFloor))
	}
	e.rows.Raise(index)
	return nil
}

// Running returns the running transaction.
func (e *Engine) Running() *Txn { return &e.own }
