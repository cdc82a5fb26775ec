package engine

import "time"

// Begin begins a transaction at the instant. The transaction before it has ended.
func (e *Engine) Begin(now time.Time) *Txn {
	tx := &e.own
	tx.now, tx.again, tx.serves = now, false, false
	tx.causes, tx.locked = nil, nil
	if len(tx.shareGrants)+len(tx.shareEnds) > 0 {
		tx.shareGrants, tx.shareEnds = reusable(tx.shareGrants), reusable(tx.shareEnds)
	}
	return tx
}

// Share makes the transaction note what LockViews needs to show the state before it. From then on
// until Unshare, the caller's lock is free between the calls of the transaction's methods.
func (tx *Txn) Share() { tx.shared = true }

// Unshare ends Share.
func (tx *Txn) Unshare() {
	tx.shared, tx.passed, tx.passedShares = false, reusable(tx.passed), nil
}

// Index is the index that the transaction's writes carry.
func (tx *Txn) Index() uint64 { return tx.next() }

// Time is the instant of the transaction.
func (tx *Txn) Time() time.Time { return tx.now }

// Undo takes back what the transaction did.
func (tx *Txn) Undo() {
	tx.engine.rows.Undo()
	tx.engine.revert(tx.effects)
	tx.effects, tx.freed = reusable(tx.effects), reusable(tx.freed)
	tx.engine.mustHold()
}

// Seal keeps what the transaction did: it serves the queues, and joins the open batch. It returns
// what is published at once, and so has to be told now: everything in memory, and on a file the
// effects that depend on no batch.
func (tx *Txn) Seal() (outcome Outcome) {
	e := tx.engine
	tx.handOff()
	if e.rows.Wrote() {
		tx.sweepDelays()
		e.open.again = e.open.again || tx.again
	}
	e.events = tx.record(e.events[:0])
	e.rows.Seal()
	if !e.rows.Durable() {
		e.rows.PublishMemory()
		outcome = Outcome{tx.effects, e.events, e.rows.Published()}
		e.settle(outcome.Effects, outcome.Events)
	} else if b := e.Undecided(); b != nil {
		// Effects without rows, too, depend on the batches that are not durable yet.
		b.effects = append(b.effects, tx.effects...)
		b.events = append(b.events, e.events...)
	} else {
		outcome = Outcome{tx.effects, nil, e.rows.Published()}
		e.settle(outcome.Effects, nil)
	}
	e.mustHold()
	return outcome
}

// Done keeps the memory of Seal's outcome, which has been told, for the next transaction.
func (tx *Txn) Done() {
	tx.effects, tx.engine.events = reusable(tx.effects), reusable(tx.engine.events)
}

// Running returns the running transaction.
func (e *Engine) Running() *Txn { return &e.own }
