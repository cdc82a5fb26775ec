package lockd

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/hub"
	"github.com/lockd/lockd/store"
)

// DB is a database of keys, locks and sessions, in memory or on one file. Its methods may be
// called by many goroutines. The zero value is not usable; New and Open give one.
type DB struct {
	time   clock.Clock
	node   string
	store  *store.Store
	hub    *hub.Hub[record]
	leases leases
	hooks  *hook.Hooks // of a test, or nil
	logger *logger     // nil: everything is discarded
	epoch  time.Time   // just before the database was opened: see moment

	over     atomic.Pointer[error] // refusal, for those who take no lock
	wake     chan struct{}         // something may be due, or a batch is without a leader
	begun    sync.Once             // the database's goroutine, or that it never will be
	closing  chan struct{}         // closed when Close begins
	finished chan struct{}         // closed when the database's goroutine has ended
	closed   chan struct{}         // closed when Close is done

	// committing has the token of the one committer, who takes it before mu. It is a channel and no
	// mutex, so that in a synctest bubble whoever waits for it counts as waiting.
	committing chan struct{}
	pace       pace           // of the committers; protected by committing
	steps      sync.WaitGroup // of a checkpoint, until they are told of; protected by committing

	// mu orders all writes and all that is decided. Under it there is no I/O, no waiting, and no
	// code of the user's but the methods of Options.Clock and its timers. It is not locked while
	// the function of an Update runs, and nobody else writes then. A context, whose type may be
	// the user's, is asked before or after it, and a log handler has a goroutine of its own. It is
	// taken before the hub's mutex and before that of an ending.
	mu         mutex       // protects what follows
	refusal    error       // ErrClosed or ErrFailed: why nothing is written any more; set by refuse
	own        Txn         // for the operations of one call, to be used again
	events     []logEntry  // of the transaction, to be used again
	open       *batch      // what is joined now
	flying     *batch      // what is being committed, or nil
	reusable   batchMemory // of the batch before
	told       *waiter     // the first to be told when mu is free
	lastTold   *waiter
	sessions   map[SessionID]*Session
	bound      map[string]map[*Session]struct{} // by node, and by check
	grantee    *Session                         // who was granted a lock last
	locks      map[string]*lockState
	latest     *lockState            // that was looked for last; nil if it was forgotten
	spare      *lockState            // one that was forgotten, for the next
	semaphores map[string]*semaphore // by prefix
	keepers    map[*Keeper]struct{}
	heartbeats map[string]*heartbeat // by check
	expiry     *expiry.Queue
	naps       *expiry.Queue // those of keepers, which wait for no commit
	overs      []string      // keys whose delays are over but still have a row
	unserved   bool          // a drop may have left a free lock with a queue, or one given up
	retry      time.Time     // with backoff: when what is due is tried again
	again      expiry.Item   // wakes at retry
	backoff    time.Duration // 0: the last commit succeeded
	reading    time.Time     // of the clock, for this write; zero if it has not been read
	stats      Stats         // what is counted, as it is told
}

// New returns an empty database in memory. It behaves as one on a file does, but that nothing is
// left after Close. A nil opts means the defaults. It returns ErrInvalid for options that are out
// of their bounds.
func New(opts *Options) (*DB, error) {
	if err := opts.validate(); err != nil {
		return nil, wrap("new", "", err)
	}
	db := newDB(opts)
	if test, ok := db.time.(*hook.Clock); ok {
		db.attach(test)
	}
	if err := db.start(opts); err != nil {
		return nil, wrap("new", "", err)
	}
	return db, nil
}

// Open returns the database on the file, and creates the file if there is none. Only one DB at a
// time, of this process or another one, has a file open. It waits for that up to
// Options.OpenTimeout and returns ErrInUse then. A file that is written to again and again grows to
// about 8 MB, however few its keys are: that is mostly its log.
//
// What is at the path is a whole database or nothing: a file without a byte is ErrCorrupt, and a
// symbolic link that leads nowhere is fs.ErrNotExist. While the file is open nobody may remove it,
// or rename another one over it: the lock is on the file, not on its name, so that a second Open
// would make another database there. The next write finds out if the file has no name left at all,
// and is not acknowledged: the database has failed then, with fs.ErrNotExist. What was committed
// before is lost with the file. One that has another name, or is moved, goes on there.
//
// Sessions bound to a process that is gone end with ErrProcessGone, and their lock-delays begin
// (see Options.Reopen); the others live on with their TTLs anew (S28); lock-delays go on by the
// wall clock, but never for longer than their full length, which begins anew once if that clock was
// set back.
//
// What Open reads is on disk when it returns, with SyncAlways, also if it was written by a process
// that was killed before it was (G3). It costs one sync, which has nothing to do as a rule.
//
// It returns ErrCorrupt or ErrFormat for a file that it refuses and leaves as it is, ErrCommit if
// what is in it, or the end of a session, cannot be made durable, and ErrInvalid for options that
// are out of their bounds, and for a file where Options.AllowNetworkFS would have to be set. A nil
// opts means the defaults.
func Open(path string, opts *Options) (*DB, error) {
	err := opts.validate()
	if err == nil {
		err = checkName("path", path)
	}
	if err != nil {
		return nil, wrap("open", "", err)
	}
	db := newDB(opts)
	_, db.pace.off = db.time.(hook.Unpaced)
	if err := db.store.Open(path, opts.file()); err != nil {
		return nil, wrap("open", "", advised(err))
	}
	if err := db.start(opts); err != nil {
		return nil, wrap("open", path, errors.Join(advised(err), db.closeStore()))
	}
	return db, nil
}

func newDB(opts *Options) *DB {
	db := &DB{
		time:     opts.clock(),
		node:     opts.node(),
		store:    store.New(),
		logger:   newLogger(opts),
		wake:     make(chan struct{}, 1),
		closing:  make(chan struct{}),
		finished: make(chan struct{}),
		closed:   make(chan struct{}),

		committing: make(chan struct{}, 1),

		sessions:   make(map[SessionID]*Session),
		bound:      make(map[string]map[*Session]struct{}),
		locks:      make(map[string]*lockState),
		keepers:    make(map[*Keeper]struct{}),
		heartbeats: make(map[string]*heartbeat),

		semaphores: make(map[string]*semaphore),
	}
	db.mu.turn = make(chan struct{}, 1)
	db.mu.guest.checked = checking
	db.openBatch()
	return db
}

// start takes up what the store has, and ends what did not outlive its process.
func (db *DB) start(opts *Options) error {
	db.hub = hub.New[record](opts.history(), db.store.Index())
	db.expiry, db.naps = expiry.New(db.time, db.rouse), expiry.New(db.time, db.rouse)
	db.store.Keys.OnMove(db.keyMoved)
	db.store.Attachments.OnMove(db.attachmentMoved)
	if err := db.checkReferences(); err != nil {
		return err
	}
	if err := db.store.Secure(); err != nil {
		return fmt.Errorf("%w: %w", ErrCommit, err)
	}
	db.mu.Lock()
	db.epoch = db.now().Add(-1)
	db.takeUpLocked()
	db.countRowsLocked()
	db.mu.Unlock()
	db.logger.start(db)

	err := db.update(func(tx *Txn) error {
		tx.shortenDelays()
		// Nobody has written to one yet. For the newest row its leaf would be unfolded.
		if db.store.Nodes.Get(folded(db.node)) != nil {
			return nil
		}
		return tx.PutNode(Node{Name: db.node})
	})
	if err == nil {
		err = db.endOrphans(opts.reopen())
	}
	if err != nil {
		db.rest()
		db.mu.Lock()
		db.stopLocked()
		db.mu.Unlock()
		db.closeLogger()
	}
	return err
}

// takeUpLocked makes what is kept beside the rows: handles, lists, deadlines.
func (db *DB) takeUpLocked() {
	s := db.store
	var now time.Time
	if s.Sessions.Len() > 0 || s.Delays.Len() > 0 || s.Checks.Len() > 0 {
		now = db.now()
	}
	for _, row := range s.Sessions.Ascend("") {
		db.adopt(row).restart(func() time.Time { return now })
	}
	for _, row := range s.Locked() {
		db.keyMoved(nil, row)
	}
	for _, row := range s.Attachments.Ascend("") {
		db.attachmentMoved(nil, row)
	}
	for key, row := range s.Checks.Ascend("") {
		if lapses(row) {
			db.setHeartbeat(newHeartbeat(key), now.Add(row.TTL))
		}
	}
	for key, row := range s.Delays.Ascend("") {
		// By the wall clock, which may have been set: never longer than the delay was.
		left := min(row.Until.Sub(now.Round(0)), row.Length)
		if left <= 0 {
			db.overs = append(db.overs, key)
			continue
		}
		d := newDelay(key, now.Add(left))
		d.slot = db.mayHaveLostSlot(key)
		db.swapDelay(db.state(key), d)
	}
}

// endOrphans ends the sessions whose process is gone, each at an index of its own.
func (db *DB) endOrphans(policy ReopenPolicy) error {
	if policy == EndNone {
		return nil
	}
	db.mu.Lock()
	err := db.endEachLocked((*Session).bound, func(tx *Txn, s *Session) {
		if policy == EndBoundWithoutDelay {
			tx.endSessionWith(s, ErrProcessGone, 0)
		} else {
			tx.endSession(s, ErrProcessGone)
		}
	})
	db.armLocked()             // for the delays
	b, lead := db.joinLocked() // before the database's goroutine could: a drop has to be seen here
	db.unlock()
	return errors.Join(err, db.settle(b, lead, nil))
}

// endEachLocked calls end for the sessions that are chosen, the oldest first, each in a transaction
// of its own (G5).
func (db *DB) endEachLocked(
	chosen func(*Session) bool, end func(tx *Txn, s *Session),
) error {
	var sessions []*Session
	for _, s := range db.sessions {
		if s.live && chosen(s) {
			sessions = append(sessions, s)
		}
	}
	sortByAge(sessions)
	var errs []error
	for _, s := range sessions {
		errs = append(errs, db.applyLocked(&db.own, func(tx *Txn) error {
			end(tx, s)
			return nil
		}))
	}
	return errors.Join(errs...)
}

// endWith returns what ends a session with the cause.
func endWith(cause error) func(*Txn, *Session) {
	return func(tx *Txn, s *Session) { tx.endSession(s, cause) }
}

// Node is the name under which this process stands in the catalog: Options.Node.
func (db *DB) Node() string { return db.node }

// Err returns nil while the database takes writes, and then an error that is ErrClosed or
// ErrFailed. It waits for nobody.
func (db *DB) Err() error {
	if refusal := db.over.Load(); refusal != nil {
		return wrap("", "", *refusal)
	}
	return nil
}

// Schedule calls fn in a goroutine of its own when d has passed on the database's clock, for who
// waits beside it and is to be driven by the same clock in a test. It returns a function that
// prevents the call, and reports whether it did: false says that fn was called, or is being
// called, or was prevented before. The end of the database changes nothing about it. A nil fn
// panics.
func (db *DB) Schedule(d time.Duration, fn func()) (stop func() bool) {
	if fn == nil {
		panic("lockd: Schedule of a nil function")
	}
	if d <= 0 { // a mock that stands still would never call it
		go fn()
		return func() bool { return false }
	}
	return db.time.AfterFunc(d, fn).Stop
}

// now reads the clock. Nothing else does.
func (db *DB) now() time.Time { return db.time.Now() }

// update does fn as a write, and returns when that is durable. Calls that wait for more than that,
// or for somebody else, begin and end a write themselves; all of them come through applyLocked.
func (db *DB) update(fn func(tx *Txn) error) error { return db.transact(&db.own, fn) }

func (db *DB) transact(tx *Txn, fn func(tx *Txn) error) error {
	db.mu.Lock()
	return db.transactLocked(tx, fn)
}

// transactLocked is transact for who has mu, which it frees.
func (db *DB) transactLocked(tx *Txn, fn func(tx *Txn) error) error {
	returned := false
	defer func() {
		if !returned {
			db.takeBackLocked(tx)
			db.unlock()
		}
	}()
	err := db.runLocked(tx, fn)
	returned = true
	// Before anybody hears of the outcome, what fn saw has to be durable.
	b, lead := db.joinLocked()
	db.unlock()
	return db.settle(b, lead, err)
}

// settle waits for the batch, and returns the outcome: err, if it was decided on a state that
// has become durable.
func (db *DB) settle(b *batch, lead bool, err error) error {
	if b == nil {
		return err
	}
	if lead {
		db.commit(b)
	} else {
		<-b.done
		b.leave()
	}
	if b.err != nil {
		return b.err
	}
	return err
}

// runLocked does steps 1 to 5 of a write: what is due first, then fn in tx, then what fn freed.
func (db *DB) runLocked(tx *Txn, fn func(tx *Txn) error) error {
	if db.refusal != nil {
		return db.refusal
	}
	due := db.endDueLocked(maxDue - db.open.due)
	if db.store.Durable() { // else there are no batches: each write is one
		db.open.due += due
	}
	err := db.applyLocked(tx, fn)
	db.armLocked()
	return err
}

// applyLocked is the one way to change anything: it runs fn in tx, and keeps what it did, or none
// of it. If fn does not return, it is takeBackLocked that takes it back.
func (db *DB) applyLocked(tx *Txn, fn func(tx *Txn) error) error {
	tx.begin(db)
	err := fn(tx)
	if err == nil {
		tx.seal()
	} else {
		tx.undo()
	}
	tx.ended = true
	db.mustHold()
	return err
}

// takeBackLocked does what is left to do of a write whose fn panicked, or ended its goroutine.
func (db *DB) takeBackLocked(tx *Txn) {
	tx.undo()
	tx.ended = true
	db.mustHold()
	db.armLocked()
}

// begin makes tx ready, and keeps the memory of the transaction before, whose effects are gone.
func (tx *Txn) begin(db *DB) {
	tx.db, tx.ended, tx.clocked = db, false, false
	tx.freed, tx.causes, tx.ends = reusable(tx.freed), emptied(tx.causes), emptied(tx.ends)
	tx.locked = emptied(tx.locked)
}

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

// seal keeps what the transaction did: it serves the queues, and joins the batch.
func (tx *Txn) seal() {
	db := tx.db
	tx.handOff()
	if db.store.Wrote() {
		tx.sweepDelays()
	}
	db.events = tx.log(db.events[:0])
	db.store.Seal()
	if !db.store.Durable() {
		db.store.PublishMemory()
		db.tellLocked(tx.effects, db.events, db.store.Published())
	} else if b := db.undecidedLocked(); b != nil {
		// What has no row of its own is decided on the batches that are not durable yet.
		b.effects = append(b.effects, tx.effects...)
		b.events = append(b.events, db.events...)
	} else {
		db.tellLocked(tx.effects, nil, db.store.Published())
	}
	tx.effects, db.events = reusable(tx.effects), reusable(db.events)
}

// undo takes back what the transaction did.
func (tx *Txn) undo() {
	tx.db.store.Undo()
	tx.db.revertLocked(tx.effects)
	tx.effects = reusable(tx.effects)
}

// unlock frees mu after a write, and wakes the calls whose waits it settled.
func (db *DB) unlock() {
	if db.store.Durable() && db.store.Pending() && !db.open.led {
		db.rouse() // rows that no caller waits for have to be committed too
	}
	told := db.told
	db.told, db.lastTold = nil, nil
	db.mu.Unlock()
	tellWaiters(told)
}

// tellWaiters wakes the calls of a list.
func tellWaiters(w *waiter) {
	for w != nil {
		next := w.next
		w.next = nil
		close(w.told)
		w = next
	}
}

// Close ends the database. Calls that wait, and locks that are held, end with ErrClosed; sessions
// that are bound to the process, or a Keeper's, end cleanly, without lock-delays, and the others
// stay in the file, with their locks: only the handles on them end, with an error that is
// ErrClosed, and not ErrNoSession or ErrNotHeld. It blocks until that is durable and the database's
// goroutine has ended. Then every call that writes, waits, or asks for a session or about a lock
// returns ErrClosed; Get, Snapshot and Backup go on answering from the last state.
//
// It returns an error if it could not write what it should: ErrCommit if that could not be made
// durable, and ErrFailed if the database had failed before. The next Open ends the sessions then,
// but for those that are Independent, which end by their TTLs. A lock that was granted to a call
// which returned ErrCommit, or gave up, may be left to a session with lifetime Independent: see
// Crash in the package comment. A repeated call waits for the first, and returns nil.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.refusal != nil && errors.Is(db.refusal, ErrClosed) {
		db.mu.Unlock()
		<-db.closed
		return nil
	}
	b, lead, err := db.windUpLocked()
	db.unlock()
	err = errors.Join(err, db.settle(b, lead, nil))

	db.rest()
	db.mu.Lock()
	db.stopLocked()
	db.endAllLocked(errDatabaseClosed)
	db.unlock()
	db.hub.Close()
	err = errors.Join(err, db.closeStore())
	db.closeLogger() // when a step has been told of
	close(db.closed)
	return wrap("close", "", err)
}

// refuse ends all writing, and says why.
func (db *DB) refuse(why error) {
	db.refusal = why
	db.over.Store(&why)
}

// refused returns err, by which the arguments of a call are refused before anything else is looked
// at; or, if the database takes no writes any more, why.
func (db *DB) refused(err error) error {
	if err != nil {
		if refusal := db.over.Load(); refusal != nil {
			return *refusal
		}
	}
	return err
}

// orClosed is refused for calls that read, and go on when the database has failed.
func (db *DB) orClosed(err error) error {
	if refusal := db.refused(err); errors.Is(refusal, ErrClosed) {
		return refusal
	}
	return err
}

var errDatabaseClosed = fmt.Errorf("database %w", ErrClosed)

// windUpLocked refuses all writes from now on, after ending the sessions of this process and
// releasing what is held by nobody.
func (db *DB) windUpLocked() (b *batch, lead bool, err error) {
	if err = db.refusal; err == nil {
		err = db.applyLocked(&db.own, func(tx *Txn) error {
			for _, s := range db.sessions {
				for w := range s.waiters() {
					tx.dismiss(w, errDatabaseClosed)
				}
			}
			if db.unserved {
				tx.unlockGivenUp()
			}
			return nil
		})
		end := endWith(errDatabaseClosed)
		err = errors.Join(err, db.endEachLocked((*Session).closesWithDB, end))
	}
	db.refuse(errDatabaseClosed)
	b, lead = db.joinLocked()
	return b, lead, err
}

// endAllLocked ends every wait, lock, session and keeper that is left, without a write: their
// handles, of what a file keeps.
func (db *DB) endAllLocked(why error) {
	for _, s := range db.sessions {
		cause := why
		if why == errDatabaseClosed && db.store.Durable() && !s.bound() {
			cause = &kept{why}
		}
		ended := &EndedError{Session: s.ID(), Cause: cause}
		for state := s.held; state != nil; state = state.next {
			if handle := state.handle; handle != nil {
				handle.lose(cause)
			}
		}
		s.end(ended)
		for w := range s.waiters() {
			w.err = db.refusal
			db.settleWaiter(w)
		}
	}
	for k := range db.keepers {
		k.end(db.refusal)
	}
}
