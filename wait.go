package lockd

import (
	"context"
	"time"

	"github.com/lockd/lockd/internal/waitq"
)

// request is what one call asks for: one lock, several at once, or a slot of a semaphore.
type request struct {
	session *Session
	keys    []string // whose locks it wants, or the key of the semaphore
	opts    *LockOptions
	limit   int // of the semaphore; 0: it wants locks
}

// waiter is a request that waits. It is protected by db.mu, but for told and what is written before
// it.
type waiter struct {
	request
	places []*waitq.Place[*waiter] // one for each key
	began  time.Time
	phase  phase
	left   bool // its call has returned

	locks []*Lock
	err   error
	told  chan struct{} // closed when locks and err are final
}

// phase is how far a waiter has come.
type phase uint8

const (
	standing phase = iota // in its queues
	granted               // has the locks, but that is not durable yet
	leaving               // has to go, but that is not durable yet
	settled               // told
)

// acquire takes all the locks or none, and waits for them if need be.
func (s *Session) acquire(
	ctx context.Context, keys []string, opts *LockOptions,
) ([]*Lock, error) {
	checkContext(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	if err := opts.validate(); err != nil {
		return nil, err
	}
	return s.db.acquire(ctx, request{session: s, keys: keys, opts: opts})
}

// acquire does what the request asks for, and waits if need be.
func (db *DB) acquire(ctx context.Context, r request) ([]*Lock, error) {
	var locks []*Lock
	var queued *waiter
	db.mu.Lock()
	err := db.runLocked(&db.own, func(tx *Txn) (err error) {
		locks, queued, err = tx.acquire(r)
		return err
	})
	if err == nil && queued != nil {
		db.unlock()
		return db.await(ctx, queued)
	}
	if ctx.Done() == nil {
		b, lead := db.joinLocked()
		db.unlock()
		if err = db.settle(b, lead, err); err != nil {
			return nil, err
		}
		return locks, nil
	}
	b := db.undecidedLocked()
	if b != nil {
		b.joined.Add(1) // but others lead it: this call may have to return before it is done
	}
	db.unlock()
	return db.confirm(ctx, locks, err, b)
}

func checkKeys(keys []string) error {
	if len(keys) == 0 {
		return invalid("no keys are named")
	}
	if len(keys) == 1 {
		return checkKey(keys[0])
	}
	seen := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return err
		}
		if _, twice := seen[key]; twice {
			return invalid("key %q is named twice", key)
		}
		seen[key] = struct{}{}
	}
	return nil
}

// acquire does what the request asks for at once if it can, and queues otherwise.
func (tx *Txn) acquire(r request) ([]*Lock, *waiter, error) {
	s := r.session
	if err := s.alive(); err != nil {
		return nil, nil, err
	}
	if r.limit > 0 {
		lock, obstacle, err := tx.acquireSlot(r)
		if err != nil {
			return nil, nil, err
		}
		if obstacle == nil {
			return []*Lock{lock}, nil, nil
		}
	} else if tx.free(r) {
		return tx.holdAll(r), nil, nil
	}
	w := &waiter{request: r, began: tx.clock(), told: make(chan struct{})}
	for _, key := range r.keys {
		w.places = append(w.places, tx.db.state(key).queue.Push(w))
	}
	if s.waiting == nil {
		s.waiting = make(map[*waiter]struct{})
	}
	s.waiting[w] = struct{}{}
	if r.limit > 0 {
		tx.db.semaphore(r.prefix()).waiting++
	}
	tx.db.waitsMoved()
	tx.db.stats.Waiters++
	return nil, w, nil
}

// free reports whether all the locks can be had at once, and nobody would be overtaken.
func (tx *Txn) free(r request) bool {
	for _, key := range r.keys {
		state := tx.db.locks[key]
		empty := state == nil || state.queue.Len() == 0
		first := empty && tx.takeable(r.session, key)
		if !first && !(tx.adoptable(r.session, key, tx.db.store.Keys.Newest(key)) &&
			!r.session.awaits(key)) {
			return false
		}
	}
	return true
}

func (tx *Txn) holdAll(r request) []*Lock {
	locks := make([]*Lock, len(r.keys))
	for i, key := range r.keys {
		locks[i] = tx.hold(r.session, key, r.opts)
	}
	return locks
}

// handOff gives every lock and slot that the transaction freed to the first who waits for it. What
// is granted may be a write to a semaphore, so it is looked at again after that.
func (tx *Txn) handOff() {
	for decided := -1; decided != len(tx.effects); {
		decided = len(tx.effects)
		if len(tx.db.semaphores) > 0 {
			tx.lookAtSemaphores()
		}
		for i := 0; i < len(tx.freed); i++ {
			tx.serve(tx.freed[i])
		}
		tx.freed = tx.freed[:0]
	}
}

// serve grants those who wait for the key what they wait for, in their order, until one has to wait
// on.
func (tx *Txn) serve(key string) {
	for {
		state := tx.db.locks[key]
		if state == nil {
			return
		}
		first := state.queue.Front()
		if first == nil || !tx.serveFirst(first.Waiter) {
			return
		}
	}
}

// serveFirst grants the first waiter of a key what it waits for: its locks, if all of them can be
// had and it is the first of each, or its slot. It reports whether it did.
func (tx *Txn) serveFirst(w *waiter) bool {
	if w.limit > 0 {
		lock := tx.serveSlot(w)
		if lock == nil {
			return false
		}
		w.locks = []*Lock{lock}
	} else {
		for i, wanted := range w.keys {
			first := tx.db.locks[wanted].queue.Front()
			if first != w.places[i] || !tx.takeable(w.session, wanted) {
				return false
			}
		}
		w.locks = tx.holdAll(w.request)
	}
	for _, place := range w.places {
		place.SetAside()
	}
	w.phase = granted
	tx.effects = append(tx.effects, effect{kind: waiterServed, waiter: w})
	return true
}

// dismiss takes a waiter out of its queues with an error, and looks at those who stood behind.
func (tx *Txn) dismiss(w *waiter, err error) {
	if w.phase != standing {
		return
	}
	w.phase, w.err = leaving, err
	for i, place := range w.places {
		place.SetAside()
		if tx.db.locks[w.keys[i]].queue.Len() > 0 {
			tx.freed = append(tx.freed, w.keys[i])
		}
	}
	tx.effects = append(tx.effects, effect{kind: waiterLeft, waiter: w})
}

// leave removes a waiter from its queues for good.
func (db *DB) leave(w *waiter) {
	for i, place := range w.places {
		place.Leave()
		db.tidy(db.locks[w.keys[i]])
	}
	if w.limit > 0 && w.places != nil {
		sem := db.semaphore(w.prefix())
		sem.waiting--
		db.tidySemaphore(sem)
	}
	w.places = nil
	if _, waits := w.session.waiting[w]; waits && !w.left {
		db.stats.Waiters--
	}
	delete(w.session.waiting, w)
	db.waitsMoved()
}

// serveAll looks at every queue: after a drop, a lock may be free for which nobody else will, or
// held by nobody.
func (tx *Txn) serveAll() {
	for _, state := range tx.db.locks {
		if state.handle != nil && state.handle.givenUp {
			tx.unlock(state.handle)
		}
	}
	for key, state := range tx.db.locks {
		if state.queue.Len() > 0 {
			tx.freed = append(tx.freed, key)
		}
	}
}

// await waits until the waiter is told, or ctx ends.
func (db *DB) await(ctx context.Context, w *waiter) ([]*Lock, error) {
	select {
	case <-w.told:
	case <-ctx.Done():
		// Both may be ready: what was told wins, and withdraw sees which it is.
		if db.withdraw(w) {
			return nil, ctx.Err()
		}
		<-w.told
	}
	return w.locks, w.err
}

// withdraw takes the waiter out, unless it has been told. A grant that is decided and not told
// is released; that joins the open batch, and nobody here waits for it.
func (db *DB) withdraw(w *waiter) bool {
	db.mu.Lock()
	defer db.unlock()
	if w.phase == settled || db.refusal != nil {
		return false // it is told, or will be when the last commit is through
	}
	w.left = true
	db.stats.Waiters--
	_ = db.runLocked(&db.own, func(tx *Txn) error { // nothing refuses it
		if w.phase == standing {
			tx.freed = append(tx.freed, w.keys...)
			db.leave(w)
		}
		tx.giveUp(w.locks)
		return nil
	})
	return true
}

// giveUp releases locks that were granted to a call that has returned without them. Nobody else
// can: if that is dropped and the grant is not, they are released with the next write.
func (tx *Txn) giveUp(locks []*Lock) {
	for _, lock := range locks {
		lock.givenUp = true
		tx.unlock(lock)
	}
}

// confirm waits until what was decided at once, that these locks are granted or that err is why
// not, is durable with the batch, or ctx ends, which releases the locks.
func (db *DB) confirm(
	ctx context.Context, locks []*Lock, err error, b *batch,
) ([]*Lock, error) {
	if b == nil {
		return locks, err
	}
	select {
	case <-b.done:
	case <-ctx.Done():
		if db.takeBack(locks, b) {
			return nil, ctx.Err()
		}
		<-b.done
	}
	if b.err != nil {
		return nil, b.err
	}
	return locks, err
}

// takeBack releases locks whose grant is not durable yet, unless it has become so.
func (db *DB) takeBack(locks []*Lock, b *batch) bool {
	db.mu.Lock()
	defer db.unlock()
	if b.decided || db.refusal != nil {
		return false // nothing can be released any more
	}
	_ = db.runLocked(&db.own, func(tx *Txn) error { // nothing refuses it
		tx.giveUp(locks)
		return nil
	})
	return true
}
