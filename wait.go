package lockd

import (
	"context"

	"github.com/lockd/lockd/internal/waitq"
)

// waiter is one call that waits for one lock or for several at once. It is protected by db.mu,
// but for told and what is written before it.
type waiter struct {
	session *Session
	keys    []string
	opts    *LockOptions
	places  []*waitq.Place[*waiter]
	phase   phase
	left    bool // its call has returned

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
	db := s.db
	var locks []*Lock
	var queued *waiter
	db.mu.Lock()
	err := db.runLocked(&db.own, func(tx *Txn) (err error) {
		locks, queued, err = tx.acquire(s, keys, opts)
		return err
	})
	if err == nil && queued != nil {
		db.unlock()
		return db.await(ctx, queued)
	}
	if err != nil || ctx.Done() == nil {
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
	return db.confirm(ctx, locks, b)
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

// acquire takes the locks at once if it can, and queues otherwise.
func (tx *Txn) acquire(
	s *Session, keys []string, opts *LockOptions,
) ([]*Lock, *waiter, error) {
	if err := s.alive(); err != nil {
		return nil, nil, err
	}
	atOnce := true
	for _, key := range keys {
		state := tx.db.locks[key]
		empty := state == nil || state.queue.Len() == 0
		atOnce = atOnce && (empty && tx.takeable(s, key) ||
			tx.adoptable(s, key, tx.db.store.Keys.Newest(key)) && !s.awaits(key))
	}
	if atOnce {
		locks := make([]*Lock, len(keys))
		for i, key := range keys {
			locks[i] = tx.hold(s, key, opts)
		}
		return locks, nil, nil
	}
	w := &waiter{session: s, keys: keys, opts: opts, told: make(chan struct{})}
	for _, key := range keys {
		w.places = append(w.places, tx.db.state(key).queue.Push(w))
	}
	if s.waiting == nil {
		s.waiting = make(map[*waiter]struct{})
	}
	s.waiting[w] = struct{}{}
	tx.db.waitsMoved()
	return nil, w, nil
}

// handOff gives every lock that the transaction freed to the first who waits for it.
func (tx *Txn) handOff() {
	for i := 0; i < len(tx.freed); i++ {
		tx.serve(tx.freed[i])
	}
}

// serve grants the key's first waiter its locks if all of them can be had and it is the first of
// each.
func (tx *Txn) serve(key string) {
	db := tx.db
	state := db.locks[key]
	if state == nil {
		return
	}
	place := state.queue.Front()
	if place == nil {
		return
	}
	w := place.Waiter
	for i, wanted := range w.keys {
		if db.locks[wanted].queue.Front() != w.places[i] || !tx.takeable(w.session, wanted) {
			return
		}
	}
	w.locks = make([]*Lock, len(w.keys))
	for i, wanted := range w.keys {
		w.locks[i] = tx.hold(w.session, wanted, w.opts)
		w.places[i].SetAside()
	}
	w.phase = granted
	tx.effects = append(tx.effects, effect{kind: waiterServed, waiter: w})
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
	w.places = nil
	delete(w.session.waiting, w)
	db.waitsMoved()
}

// serveAll looks at every queue: after a drop, a lock may be free for which nobody else will.
func (tx *Txn) serveAll() {
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
	_ = db.runLocked(&db.own, func(tx *Txn) error { // nothing refuses it
		if w.phase == standing {
			tx.freed = append(tx.freed, w.keys...)
			db.leave(w)
		}
		for _, lock := range w.locks {
			tx.unlock(lock)
		}
		return nil
	})
	return true
}

// confirm waits until locks that were granted at once are durable with the batch, or ctx ends,
// which releases them.
func (db *DB) confirm(ctx context.Context, locks []*Lock, b *batch) ([]*Lock, error) {
	if b == nil {
		return locks, nil
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
	return locks, nil
}

// takeBack releases locks whose grant is not durable yet, unless it has become so.
func (db *DB) takeBack(locks []*Lock, b *batch) bool {
	db.mu.Lock()
	defer db.unlock()
	if b.decided || db.refusal != nil {
		return false // nothing can be released any more
	}
	_ = db.runLocked(&db.own, func(tx *Txn) error { // nothing refuses it
		for _, lock := range locks {
			tx.unlock(lock)
		}
		return nil
	})
	return true
}
