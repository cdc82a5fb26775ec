package lockd

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// batch is what one commit makes durable, and who waits for it. It is protected by DB.mu, but
// for the channels and the count, and for err once it is decided.
type batch struct {
	done    chan struct{} // closed when the outcome is told
	err     error         // why it was dropped
	decided bool          // the outcome is known; whoever commits may read it without DB.mu too
	led     bool          // somebody commits it, or will
	again   bool          // it has what the database does by itself, and has to try again
	due     int           // how much of what was due its writers have ended
	effects []effect
	events  []logEntry

	callers atomic.Int64  // who joined it and did not leave it; its leader counts from the start
	empty   chan struct{} // closed when all have left
}

// leave is called by everybody who joined, when it runs again and last of all.
func (b *batch) leave() {
	if b.callers.Add(-1) == 0 {
		close(b.empty)
	}
}

// openBatch makes the batch that is joined from now on.
func (db *DB) openBatch() {
	db.open = &batch{
		done: make(chan struct{}), empty: make(chan struct{}),
		effects: db.reusable.effects, events: db.reusable.events,
	}
	db.open.callers.Store(1)
	db.reusable = batchMemory{}
}

// batchMemory is what a batch needed, for a later one.
type batchMemory struct {
	effects []effect
	events  []logEntry
}

// maxReusable is how many effects and events there may be in memory that is kept.
const maxReusable = 4096

// reuse keeps the memory of a batch that has been told.
func (db *DB) reuse(b *batch) {
	db.reusable = batchMemory{reusable(b.effects), reusable(b.events)}
	b.effects, b.events = nil, nil
}

// undecidedLocked returns the newest batch that anything decided now depends on: nil if
// everything is published.
func (db *DB) undecidedLocked() *batch {
	if db.store.Durable() && db.store.Pending() {
		return db.open
	}
	return db.flying
}

// joinLocked makes the caller one of those who wait for that batch, and who have to leave it. The
// first to join the open one leads it: it has to commit it, which includes leaving.
func (db *DB) joinLocked() (b *batch, lead bool) {
	if b = db.leadLocked(); b != nil {
		return b, true
	}
	return db.followLocked(), false
}

// leadLocked returns the open batch if it has rows and nobody leads it yet: the caller does then.
func (db *DB) leadLocked() *batch {
	b := db.undecidedLocked()
	if b == nil || b.led {
		return nil
	}
	b.led = true
	return b
}

// followLocked is joinLocked for who must not lead, because it may have to leave early.
func (db *DB) followLocked() *batch {
	b := db.undecidedLocked()
	if b != nil {
		b.callers.Add(1)
	}
	return b
}

// commit does steps 6 to 8 for the open batch, which the caller leads.
func (db *DB) commit(b *batch) {
	defer b.leave()
	db.committing <- struct{}{}
	if b.decided { // it was dropped with the one before: Close need not wait for who led it
		<-db.committing
		return
	}
	db.tidyFile() // while others join: see BenchmarkCommit_Crowd
	db.pace.gather(b)

	db.mu.Lock()
	rows := db.store.Take()
	db.flying = b
	db.openBatch()
	callers := b.callers.Load()
	db.unlock()

	began := db.now()
	err := db.store.Write(rows)
	took := lasted(began, db.now())
	var found error
	if err != nil {
		found = db.lookInFile()
	}

	var follower *batch
	db.mu.Lock()
	db.flying = nil
	db.countCommitLocked(uint64(callers), took, err)
	if err == nil {
		db.store.Publish(rows)
		if db.backoff > 0 {
			db.backoff = 0
			db.armLocked()
		}
		b.decided = true
		db.tellLocked(b.effects, b.events, rows.Index())
		db.reuse(b)
	} else {
		db.store.Drop(rows)
		follower = db.dropLocked(b, err, found)
	}
	db.mustHold()
	db.pace.last, db.pace.expected = b, callers
	if db.open.led {
		db.pace.expected += db.open.callers.Load()
	}
	db.unlock()
	db.endCommit(b)
	close(b.done)
	if follower != nil {
		close(follower.done)
	}
}

// endCommit lets others commit. If a batch that is durable has left much to be done in the file,
// that comes before, while they decide what they will commit.
func (db *DB) endCommit(b *batch) {
	if b.err != nil || !db.store.Untidy() {
		<-db.committing
		return
	}
	go func() {
		db.tidyFile()
		<-db.committing
	}()
}

// tidyFile does what the last batch has left to be done in the file. A step of a checkpoint goes on
// beside the next commits, so that they wait for it only while it writes: see BenchmarkCommit_Crowd
// and BenchmarkExpiry_File. That it has failed is logged; it is tried again, or the next one fails.
func (db *DB) tidyFile() {
	step := db.store.Tidy()
	if step == nil {
		return
	}
	db.steps.Go(func() {
		runtime.Gosched() // those who were woken meanwhile come first
		db.logStep(step())
	})
}

// closeStore closes the file when nobody writes to it any more.
func (db *DB) closeStore() error {
	db.committing <- struct{}{}
	defer func() { <-db.committing }()
	err := db.store.Close()
	db.steps.Wait()
	return err
}

// Backoff of what the database itself tries again.
const (
	firstBackoff = time.Second
	lastBackoff  = time.Minute
)

// dropLocked takes back what rode in a batch that could not be committed, and in the open one,
// which was decided on it. It returns the open one. The database has failed if found says that it
// is not known what the file has.
func (db *DB) dropLocked(b *batch, cause, found error) *batch {
	follower := db.open
	db.openBatch() // in the same step: nobody may join what is lost
	db.revertLocked(follower.effects)
	db.revertLocked(b.effects)
	db.recallDelays()
	err := fmt.Errorf("%w: %w", ErrCommit, cause)
	for _, dropped := range []*batch{b, follower} {
		dropped.decided, dropped.err = true, err
	}
	db.unserved = true
	if found != nil {
		db.failLocked(fmt.Errorf("%w: %w, and then %w", ErrFailed, cause, found))
		return follower
	}
	if b.again || follower.again {
		db.backoff = min(max(firstBackoff, 2*db.backoff), lastBackoff)
		db.retry = db.now().Add(db.backoff)
		db.expiry.Set(&db.again, db.retry)
		db.armLocked()
	} else {
		db.rouse() // the first attempt of the database's own
	}
	return follower
}

// lookInFile returns an error unless the file is as it was published: what failed may have come
// when the commit was in it.
func (db *DB) lookInFile() error {
	index, err := db.store.FileIndex()
	if err != nil {
		return err
	}
	if published := db.store.Published(); index != published {
		return fmt.Errorf("index %d is in the file, and %d was published", index, published)
	}
	return nil
}

// failLocked ends all writing: it is not known what the file has.
func (db *DB) failLocked(err error) {
	if db.refusal == nil {
		db.refuse(err)
	}
	db.logFailureLocked(err)
	db.stopLocked()
	db.endAllLocked(err)
}

// effect is what a transaction decided beside the rows. It is told when its batch is durable, and
// reverted if that is dropped.
type effect struct {
	kind      effectKind
	lock      *Lock
	waiter    *waiter
	session   *Session
	delay     *delay
	replaced  *delay
	heartbeat *heartbeat
	until     time.Time
	cause     error
}

// effect adds one to those of the transaction, to be filled in.
func (tx *Txn) effect(kind effectKind) *effect {
	n := len(tx.effects)
	tx.effects = slices.Grow(tx.effects, 1)[:n+1] // what is beyond the end is zero
	e := &tx.effects[n]
	e.kind = kind
	return e
}

type effectKind uint8

const (
	lockHeld     effectKind = iota + 1 // lock became the handle of its key
	lockReleased                       // lock no longer is, by its own Unlock
	lockLost                           // lock no longer is, for another cause
	sessionMade
	sessionEnded
	delaySet     // delay took the place of replaced
	ttlBegun     // heartbeat got another deadline than until
	waiterServed // the locks of waiter became handles
	waiterLeft
)

// tellLocked makes effects and events of a durable batch known, in the order of G10: first what
// was lost, then the watchers, then those who were granted something.
func (db *DB) tellLocked(effects []effect, events []logEntry, index uint64) {
	for i := range effects {
		switch e := &effects[i]; e.kind {
		case lockReleased:
			e.lock.released = true
			e.lock.lose(ErrUnlocked)
		case lockLost:
			e.lock.lose(e.cause)
		case sessionEnded:
			delete(db.sessions, e.session.ID())
			db.unbind(e.session)
			e.session.end(e.cause)
		}
	}
	if len(events) > 0 {
		db.countEvents(events)
		db.logEvents(events)
		db.hub.Publish(events, index)
	}
	for i := range effects {
		switch e := &effects[i]; e.kind {
		case waiterServed, waiterLeft:
			db.settleWaiter(e.waiter)
		}
	}
}

// settleWaiter ends a wait: its call is told when mu is free.
func (db *DB) settleWaiter(w *waiter) {
	w.phase = settled
	db.leave(w)
	if db.told == nil {
		db.told = w
	} else {
		db.lastTold.next = w
	}
	db.lastTold = w
}

// revertLocked takes effects back, the last first. The rows have been taken back before.
func (db *DB) revertLocked(effects []effect) {
	for i := len(effects) - 1; i >= 0; i-- {
		switch e := &effects[i]; e.kind {
		case lockHeld:
			db.dropHandle(e.lock)
		case lockReleased, lockLost:
			db.setHandle(db.state(e.lock.Key()), e.lock)
		case sessionMade:
			e.session.live = false
			delete(db.sessions, e.session.ID())
			db.unbind(e.session)
			db.expiry.Remove(&e.session.expires)
			if e.session.renewal != nil { // it is a keeper's
				db.expiry.Remove(&e.session.renewal.due)
			}
		case sessionEnded:
			e.session.revive()
		case delaySet:
			db.swapDelay(db.state(e.delay.key), e.replaced)
		case ttlBegun:
			db.setHeartbeat(e.heartbeat, e.until)
		case waiterServed:
			for i := range e.waiter.claims {
				db.dropHandle(&e.waiter.claims[i].lock)
			}
			db.standAgain(e.waiter)
		case waiterLeft:
			db.standAgain(e.waiter)
		}
	}
}

// dropHandle takes back that lock became the handle of its key.
func (db *DB) dropHandle(lock *Lock) {
	state := db.state(lock.Key())
	if state.handle == lock {
		db.setHandle(state, nil)
	}
	db.tidy(state)
}

// standAgain puts a waiter back into its places.
func (db *DB) standAgain(w *waiter) {
	w.phase, w.err = standing, nil
	for i := range w.claims {
		w.claims[i].place.Restore()
	}
	if w.left { // its call has returned meanwhile
		db.leave(w)
	}
}

// pace decides when a batch is closed. Those who were answered by the last commit are about to
// call again, and would just miss the next one: so the next one begins when each of them has had
// its turn to run, which takes a few microseconds for each, and no timer. Without it, a closed loop
// of many writers commits half of them at a time, and the other half meanwhile. Measured with 64
// and 512 writers: see BenchmarkCommit_Crowd.
type pace struct {
	off      bool   // nobody is waited for: see hook.Unpaced
	last     *batch // the last one that was decided
	expected int64  // how many would join the next one if all came again
	skip     int    // batches for which nobody is waited for
	penalty  int    // how many to skip next time
}

const (
	maxPenalty = 4096

	perCaller       = time.Microsecond // spent at most on those who run, but have not joined
	yieldsPerCaller = 8
)

// gather waits until all callers of the last batch run again, and briefly for them to join b.
func (p *pace) gather(b *batch) {
	switch {
	case p.off || p.last == nil:
		return
	case p.skip > 0:
		p.skip--
		return
	}
	select {
	case <-p.last.empty: // as when a lone writer comes again
		return
	default:
	}
	began := time.Now()
	waited := func() time.Duration { return time.Since(began) }
	<-p.last.empty
	p.linger(b, waited)
	if waited() <= 100*time.Microsecond+time.Duration(p.expected)*10*time.Microsecond {
		p.penalty /= 2
		return
	}
	// The processors are busy with something else, whose time slices all of them had to wait for.
	p.penalty = min(8+2*p.penalty, maxPenalty)
	p.skip = p.penalty
}

// linger yields while callers that run are still on their way.
func (p *pace) linger(b *batch, waited func() time.Duration) {
	enough := waited() + time.Duration(p.expected)*perCaller
	for range yieldsPerCaller * p.expected {
		if b.callers.Load() >= p.expected || waited() > enough {
			return
		}
		runtime.Gosched()
	}
}

// sortByAge orders sessions by when they were made.
func sortByAge(sessions []*Session) {
	slices.SortFunc(sessions, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(a.row.CreateIndex, b.row.CreateIndex),
			slices.Compare(a.row.ID[:], b.row.ID[:]))
	})
}
