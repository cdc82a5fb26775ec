package lockd

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/waitq"
)

// request is what one call asks for: one lock, several at once, or a slot of a semaphore. The keys,
// whose locks it wants, or that of the semaphore, are handed on beside it: they are the caller's.
type request struct {
	session *Session
	opts    *LockOptions
	slot    bool // of a semaphore is what it wants, and not locks
	limit   int  // of the semaphore, as the call named it; 0: whatever it is
}

// waiter is a request that waits. It is one piece of memory, the locks that it gets included, for
// one key at least. It is protected by db.mu, but for told and what is written before it.
type waiter struct {
	request
	claims []claim // one for each key
	began  time.Time
	phase  phase
	left   bool // its call has returned
	err    error
	told   chan struct{} // closed when the locks and err are final

	waits          bool    // is in its session's list of those who wait
	previous, next *waiter // in that list; next also among those to be told

	single [1]claim // the claims, if there is one
}

// claim is where a waiter stands for one key, and the lock that it gets.
type claim struct {
	key   string
	state *lockState // of the key, for as long as the place is not left
	place waitq.Place[*waiter]
	lock  Lock // what it has been given, if it is granted; of a slot, that of the contender key
}

// phase is how far a waiter has come.
type phase uint8

const (
	standing phase = iota // in its queues
	granted               // has the locks, but that is not durable yet
	leaving               // has to go, but that is not durable yet
	settled               // told
)

// acquire takes all the locks or none, and waits for them if need be. It puts them into locks,
// which has room for one of each key.
func (s *Session) acquire(
	ctx context.Context, keys []string, opts *LockOptions, locks []*Lock,
) error {
	checkContext(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkKeys(keys); err != nil {
		return s.db.refused(err)
	}
	if err := opts.validate(); err != nil {
		return s.db.refused(err)
	}
	return s.db.acquire(ctx, request{session: s, opts: opts}, keys, locks)
}

// acquire does what the request asks for, and waits if need be.
func (db *DB) acquire(ctx context.Context, r request, keys []string, locks []*Lock) error {
	done := ctx.Done() // code of the user's, if the type is: before mu is taken
	var queued *waiter
	db.mu.Lock()
	err := db.runLocked(&db.own, func(tx *Txn) (err error) {
		queued, err = tx.acquire(r, keys, locks)
		return err
	})
	if err == nil && queued != nil {
		db.unlock()
		return db.await(ctx, queued, locks)
	}
	if done == nil {
		b, lead := db.joinLocked()
		db.unlock()
		return db.settle(b, lead, err)
	}
	b := db.followLocked()
	db.unlock()
	if err != nil {
		locks = nil // there is nothing to take back
	}
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
	for i, key := range keys {
		if err := checkKey(key); err != nil {
			return fmt.Errorf("%w (number %d of %d)", err, i+1, len(keys))
		}
		if _, twice := seen[key]; twice {
			return invalid("key %q is named twice", key)
		}
		seen[key] = struct{}{}
	}
	return nil
}

// acquire does what the request asks for at once if it can, and queues otherwise.
func (tx *Txn) acquire(r request, keys []string, locks []*Lock) (*waiter, error) {
	if err := r.session.alive(); err != nil {
		return nil, err
	}
	if r.slot {
		lock, obstacle, err := tx.acquireSlot(r.session, prefixOf(keys[0]), r.limit)
		if err != nil {
			return nil, err
		}
		if obstacle == nil {
			locks[0] = lock
			return nil, nil
		}
	} else if tx.free(r.session, keys) {
		for i, key := range keys {
			locks[i] = tx.hold(new(Lock), r.session, key, r.opts)
			tx.took(locks[i])
		}
		return nil, nil
	}
	return tx.queue(r, keys), nil
}

// queue has the request wait.
func (tx *Txn) queue(r request, keys []string) *waiter {
	db := tx.db
	w := &waiter{request: r, began: tx.clock(), told: make(chan struct{})}
	w.claims = w.single[:]
	if len(keys) > 1 {
		w.claims = make([]claim, len(keys))
	}
	for i, key := range keys {
		c := &w.claims[i]
		c.key, c.state = key, db.state(key)
		c.state.queue.Push(w, &c.place)
	}
	w.session.addWaiter(w)
	if w.slot {
		db.semaphore(w.prefix()).waiting++
	}
	db.waitsMoved()
	db.stats.Waiters++
	return w
}

// prefix is that of the semaphore.
func (w *waiter) prefix() string { return prefixOf(w.claims[0].key) }

// keys are those that it waits for.
func (w *waiter) keys() []string {
	keys := make([]string, len(w.claims))
	for i := range w.claims {
		keys[i] = w.claims[i].key
	}
	return keys
}

// awaits reports whether a call with this session waits for the lock: it would be overtaken by one
// that took over a lock without a handle.
func (s *Session) awaits(key string) bool { return s.firstFor(key) != nil }

// firstFor returns the oldest of the calls with this session that wait for the lock, or nil.
func (s *Session) firstFor(key string) (first *waiter) {
	for w := range s.waiters() { // the oldest is the last
		if w.phase != standing {
			continue
		}
		for i := range w.claims {
			if w.claims[i].key == key {
				first = w
			}
		}
	}
	return first
}

// waiters yields those who wait with this session. The one just yielded may leave.
func (s *Session) waiters() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for w := s.waiting; w != nil; {
			next := w.next
			if !yield(w) {
				return
			}
			w = next
		}
	}
}

func (s *Session) addWaiter(w *waiter) {
	w.waits, w.next = true, s.waiting
	if w.next != nil {
		w.next.previous = w
	}
	s.waiting = w
}

func (s *Session) removeWaiter(w *waiter) {
	if w.previous == nil {
		s.waiting = w.next
	} else {
		w.previous.next = w.next
	}
	if w.next != nil {
		w.next.previous = w.previous
	}
	w.waits, w.previous, w.next = false, nil, nil
}

// free reports whether all the locks can be had at once, and nobody would be overtaken.
func (tx *Txn) free(s *Session, keys []string) bool {
	for _, key := range keys {
		state := tx.db.lockOf(key)
		free := (state == nil || state.queue.Len() == 0) && tx.takeable(key)
		if !free && !(tx.adoptable(s, key, tx.db.store.Keys.Newest(key)) && !s.awaits(key)) {
			return false
		}
	}
	return true
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
		tx.freed = reusable(tx.freed)
	}
}

// serve grants those who wait for the key what they wait for, in their order, until one has to wait
// on. A lock that its holder has without a handle can be had by a call of the holder's only, which
// waits for none of the others.
func (tx *Txn) serve(key string) {
	for {
		state := tx.db.lockOf(key)
		if state == nil {
			return
		}
		next := tx.nextWaiter(state)
		if next == nil {
			return
		}
		if tx.serveFirst(next) {
			continue
		}
		if state.session == nil || state.handle != nil {
			return
		}
		own := state.session.firstFor(key)
		if own == nil || own.slot || own == next || !tx.serveFirst(own) {
			return
		}
	}
}

// nextWaiter returns the waiter of the queue whose turn it is: the first, but for those that could
// have no slot because the contender key of their own session is delayed. It returns nil if there
// is none.
func (tx *Txn) nextWaiter(state *lockState) *waiter {
	for w := range state.queue.All() {
		if !w.slot || tx.delayed(contenderKey(w.prefix(), w.session.ID())) == nil {
			return w
		}
	}
	return nil
}

// serveFirst grants a waiter what it waits for: its locks, if all of them can be had and it is its
// turn for each, or its slot, for which it has to be the first. It reports whether it did.
func (tx *Txn) serveFirst(w *waiter) bool {
	if w.slot {
		if !tx.serveSlot(w) {
			return false
		}
	} else {
		for i := range w.claims {
			if !tx.inTurn(w, &w.claims[i]) {
				return false
			}
		}
		for i := range w.claims {
			c := &w.claims[i]
			tx.hold(&c.lock, w.session, c.key, w.opts)
		}
	}
	tx.served(w)
	return true
}

// inTurn reports whether the waiter is the next to have the lock of the claim, and can have it.
func (tx *Txn) inTurn(w *waiter, c *claim) bool {
	if tx.adoptable(w.session, c.key, tx.db.store.Keys.Newest(c.key)) {
		return w.session.firstFor(c.key) == w
	}
	return c.state.queue.Front() == &c.place && tx.takeable(c.key)
}

// served takes out of its queues a waiter that was granted what it waits for.
func (tx *Txn) served(w *waiter) {
	for i := range w.claims {
		w.claims[i].place.SetAside()
	}
	w.phase = granted
	tx.effect(waiterServed).waiter = w
}

// handOn gives the lock, which its holder releases, to the first who waits for it, in one write. It
// reports false if that has to be done in steps: the lock is freed, and looked at when the
// transaction is through.
func (tx *Txn) handOn(state *lockState) bool {
	first := state.queue.Front()
	if first == nil || state.delay != nil {
		return false
	}
	w := first.Waiter
	if w.slot || len(w.claims) > 1 {
		return false
	}
	tx.handle(&w.claims[0].lock, w.session, tx.grant(state.key, w.session, w.opts), LeaveKey)
	tx.served(w)
	return true
}

// dismiss takes a waiter out of its queues with an error, and looks at those who stood behind.
func (tx *Txn) dismiss(w *waiter, err error) {
	if w.phase != standing {
		return
	}
	w.phase, w.err = leaving, err
	for i := range w.claims {
		c := &w.claims[i]
		c.place.SetAside()
		if c.state.queue.Len() > 0 {
			tx.freed = append(tx.freed, c.key)
		}
	}
	tx.effect(waiterLeft).waiter = w
}

// leave removes a waiter from its queues for good.
func (db *DB) leave(w *waiter) {
	if !w.waits {
		return
	}
	if w.slot {
		sem := db.semaphore(w.prefix())
		sem.waiting--
		db.tidySemaphore(sem)
	}
	for i := range w.claims {
		c := &w.claims[i]
		c.place.Leave()
		db.tidy(c.state)
	}
	if !w.left {
		db.stats.Waiters--
	}
	w.session.removeWaiter(w)
	db.waitsMoved()
}

// serveAll looks at every queue: after a drop, a lock may be free for which nobody else will, or
// held by nobody.
func (tx *Txn) serveAll() {
	tx.unlockGivenUp()
	for key, state := range tx.db.locks {
		if state.queue.Len() > 0 {
			tx.freed = append(tx.freed, key)
		}
	}
	slices.Sort(tx.freed)
}

// unlockGivenUp releases what is held by nobody, because a drop has kept it from being released. It
// goes by the keys, for what is left of one may depend on another: who gives up the key of a
// semaphore removes it unless a slot that was given up has been written to it.
func (tx *Txn) unlockGivenUp() {
	for _, key := range slices.Sorted(maps.Keys(tx.db.locks)) {
		state := tx.db.locks[key]
		if state != nil && state.handle != nil && state.handle.givenUp {
			tx.unlock(state.handle)
		}
	}
}

// await waits until the waiter is told, or ctx ends, and puts what it was granted into locks.
func (db *DB) await(ctx context.Context, w *waiter, locks []*Lock) error {
	select {
	case <-w.told:
	case <-ctx.Done():
		// Both may be ready: what was told wins, and withdraw sees which it is.
		if obstacle, gone := db.withdraw(w); gone {
			return gaveUp(ctx.Err(), w, obstacle)
		}
		<-w.told
	}
	if w.err != nil {
		return w.err
	}
	for i := range locks {
		locks[i] = &w.claims[i].lock
	}
	return nil
}

// withdraw takes the waiter out, unless it has been told, and returns what was in its way. A grant
// that is decided and not told is released; that joins the open batch, and nobody here waits for
// it.
func (db *DB) withdraw(w *waiter) (obstacle *LockedError, gone bool) {
	db.mu.Lock()
	defer db.unlock()
	if w.phase == settled || db.refusal != nil {
		return nil, false // it is told, or will be when the last commit is through
	}
	_ = db.runLocked(&db.own, func(tx *Txn) error { // nothing refuses it
		if w.phase == settled {
			return nil // in memory by what was due
		}
		obstacle = tx.obstacle(w)
		w.left = true
		db.stats.Waiters--
		switch w.phase {
		case standing:
			for i := range w.claims {
				tx.freed = append(tx.freed, w.claims[i].key)
			}
			db.leave(w)
		case granted:
			for i := range w.claims {
				tx.giveUp(&w.claims[i].lock)
			}
		}
		return nil
	})
	return obstacle, w.left
}

// giveUp releases a lock that was granted to a call that has returned without it. Nobody else
// can: if that is dropped and the grant is not, it is released with the next write.
func (tx *Txn) giveUp(lock *Lock) {
	lock.givenUp = true
	tx.unlock(lock)
}

// confirm waits until what was decided at once, that these locks are granted or that err is why
// not, is durable with the batch, or ctx ends, which releases the locks.
func (db *DB) confirm(ctx context.Context, locks []*Lock, err error, b *batch) error {
	if b == nil {
		return err
	}
	defer b.leave()
	select {
	case <-b.done:
	case <-ctx.Done():
		if db.takeBack(locks, b) {
			return beforeDurable(ctx.Err())
		}
		<-b.done
	}
	if b.err != nil {
		return b.err
	}
	return err
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
			tx.giveUp(lock)
		}
		return nil
	})
	return true
}
