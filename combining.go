package lockd

import (
	"sync"
	"sync/atomic"
)

// gate is the mutex of a database, with flat combining. On a file, a call that finds it taken need
// not wait for it: it has to wait for a commit in any case. It leaves an errand, which is run by
// whoever has the gate. So the calls of a crowd are decided by one processor, one after the other,
// in whose cache all lies that they are decided on, and most of them sleep once, not twice.
// Measured with 64 and 512 writers: see BenchmarkCommit_Crowd.
//
// Errands that are left together are run in the order in which they were left; a call that finds
// the gate free overtakes them.
type gate struct {
	guest   guest
	mutex   sync.Mutex
	errands atomic.Pointer[errand] // that nobody has run yet, the newest first
	unlock  func()                 // runs them, and frees the mutex
}

// Lock takes the gate. It waits for it as for any mutex.
func (g *gate) Lock() {
	g.guest.mustNotBeHere()
	g.mutex.Lock()
}

// TryLock takes the gate if it is free.
func (g *gate) TryLock() bool {
	g.guest.mustNotBeHere()
	return g.mutex.TryLock()
}

// Unlock runs the errands that were left, and frees the gate. In this order: between those who
// wait for a mutex for long it is handed on, and never free for anybody else.
func (g *gate) Unlock() { g.unlock() }

// leave adds an errand. Who has the gate sees it when he frees it, or at once after that; if
// nobody has, it is seen here.
func (g *gate) leave(e *errand) {
	for {
		e.next = g.errands.Load()
		if g.errands.CompareAndSwap(e.next, e) {
			break
		}
	}
	// The look comes between the two so that a mutex which is still taken is seen as such only
	// after the errand can be seen: a TryLock that fails orders nothing.
	if g.errands.Load() != nil && g.TryLock() {
		g.Unlock()
	}
}

// take returns the errands that nobody has run, the oldest first.
func (g *gate) take() *errand {
	if g.errands.Load() == nil {
		return nil
	}
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
	handedBack bool   // nobody did it: its caller has to

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
// on beside it, so that a call is allocated only if it becomes an errand.
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

// unlock frees mu. Before that it runs the errands that were left, and after it those that came
// meanwhile.
func (db *DB) unlock() {
	db.release(db.serveLocked())
	db.serve()
}

// release frees mu, and tells those errands, and the waiters that were settled.
func (db *DB) release(answered *errand) {
	if db.store.Durable() && db.store.Pending() && !db.open.led {
		db.rouse() // rows that nobody waits for have to be committed too
	}
	told := db.told
	db.told, db.lastTold = nil, nil
	db.mu.mutex.Unlock()
	tellErrands(answered)
	tellWaiters(told)
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
		db.release(db.serveLocked())
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
		list := &answered
		if db.runErrandLocked(e); !e.handedBack {
			if e.batch, e.lead = db.joinLocked(); e.batch != nil && !e.lead {
				list = &e.batch.errands
			}
		}
		e.next, *list = *list, e
		e = next
	}
	return answered
}

// runErrandLocked decides an errand. One that panics, as the clock may, is handed back: that is
// its caller's to see, and nobody else's.
func (db *DB) runErrandLocked(e *errand) {
	e.handedBack = true
	defer func() {
		if e.handedBack {
			_ = recover()
			db.takeBackLocked(&db.own)
		}
	}()
	e.err = db.runLocked(&db.own, func(tx *Txn) (err error) {
		e.lock, err = e.do(tx, e.call)
		return err
	})
	e.handedBack = false
}

// tellErrands wakes the callers of a list, in no order.
func tellErrands(e *errand) {
	for e != nil {
		next := e.next // it is the caller's from then on
		e.told <- struct{}{}
		e = next
	}
}
