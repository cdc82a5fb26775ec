package lockd

import (
	"sync"
	"sync/atomic"
)

// gate is the mutex of a database, with flat combining. On a file, a call that finds it taken need
// not wait for it: it has to wait for a commit in any case. It leaves an errand, which is run by
// whoever frees the gate. So the calls of a crowd are decided by one processor, one after the
// other, in whose cache all lies that they are decided on, and each of them sleeps once, not twice.
// Measured with 64 and 512 writers: see BenchmarkCommit_Crowd.
type gate struct {
	sync.Mutex
	errands atomic.Pointer[errand] // that nobody has run yet, the newest first
	serve   func()                 // runs them, unless somebody else has the gate
}

// Unlock frees the gate, and sees to the errands that were left meanwhile.
func (g *gate) Unlock() {
	g.Mutex.Unlock()
	if g.errands.Load() != nil {
		g.serve()
	}
}

// leave adds an errand. Who has the gate sees it when he frees it, and if nobody has, it is seen
// here.
func (g *gate) leave(e *errand) {
	for {
		e.next = g.errands.Load()
		if g.errands.CompareAndSwap(e.next, e) {
			break
		}
	}
	if g.TryLock() {
		g.Unlock()
	}
}

// take returns the errands that nobody has run, the oldest first.
func (g *gate) take() *errand {
	var oldest *errand
	for e := g.errands.Swap(nil); e != nil; {
		e, e.next, oldest = e.next, oldest, e
	}
	return oldest
}

// errand is a call that is left to somebody else.
type errand struct {
	do   deed
	call call

	lock       *Lock
	err        error
	batch      *batch // that the outcome depends on, or nil
	lead       bool   // its caller has to commit that
	handedBack bool   // nobody had the time: its caller has to do it

	next *errand       // of a list that it is in
	told chan struct{} // gets one when what is above is final, and the batch decided or to be led
}

// call is what a deed is done with: the arguments of one call.
type call struct {
	session *Session
	key     string
	opts    *LockOptions
	lock    *Lock
}

// deed is what a call does in its transaction. It is a plain function, and its arguments are handed
// on beside it, so that only those calls have to be in memory that become errands.
type deed func(tx *Txn, c call) (*Lock, error)

// perform is update for the calls that crowds make.
func (db *DB) perform(do deed, c call) (*Lock, error) {
	if !db.mu.TryLock() {
		if db.store.Durable() {
			return db.send(do, c)
		}
		db.mu.Lock()
	}
	return db.performLocked(do, c)
}

func (db *DB) performLocked(do deed, c call) (lock *Lock, err error) {
	err = db.transactLocked(&db.own, func(tx *Txn) (err error) {
		lock, err = do(tx, c)
		return err
	})
	return lock, err
}

// send leaves the call to who has the gate, and waits for the outcome.
func (db *DB) send(do deed, c call) (*Lock, error) {
	e := &errand{do: do, call: c, told: make(chan struct{}, 1)}
	db.mu.leave(e)
	<-e.told
	if e.handedBack {
		db.mu.Lock()
		return db.performLocked(do, c)
	}
	return e.lock, db.settle(e.batch, e.lead, e.err)
}

// maxRounds is how often in a row one call serves those that came while it did. Those of a crowd
// come once for each commit, but a refusal is an answer at once.
const maxRounds = 16

// serve runs the errands that were left, unless somebody else has mu, who will.
func (db *DB) serve() {
	for range maxRounds {
		if db.mu.errands.Load() == nil || !db.mu.TryLock() {
			return
		}
		answered := db.serveLocked()
		told := db.settledLocked()
		db.mu.Mutex.Unlock() // the errands that came meanwhile are of the next round
		tellErrands(answered)
		tellWaiters(told)
	}
	left := db.mu.take()
	for e := left; e != nil; e = e.next {
		e.handedBack = true
	}
	tellErrands(left)
}

// serveLocked runs the errands that were left. It returns those that need not wait for a batch, or
// have to lead it; the others are told with their batches.
func (db *DB) serveLocked() (answered *errand) {
	for e := db.mu.take(); e != nil; {
		next := e.next
		e.err = db.runLocked(&db.own, func(tx *Txn) (err error) {
			e.lock, err = e.do(tx, e.call)
			return err
		})
		e.batch, e.lead = db.joinLocked()
		list := &answered
		if e.batch != nil && !e.lead {
			list = &e.batch.errands
		}
		e.next, *list = *list, e
		e = next
	}
	return answered
}

// tellErrands wakes the callers of a list.
func tellErrands(e *errand) {
	for e != nil {
		next := e.next // it is the caller's from then on
		e.told <- struct{}{}
		e = next
	}
}
