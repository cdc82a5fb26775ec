package engine

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/internal/waitq"
	"github.com/lockd/lockd/store"
)

// Engine is the state that the rules apply to: the rows, and what is kept beside them. New makes
// one; the zero value is not usable.
type Engine struct {
	rows   *store.Store
	config Config
	opened time.Time // when the database was opened

	sessions   map[schema.ID]*Session
	bound      map[string]map[*Session]struct{} // by node, and by check
	grantees   [2]*Session                      // that were granted a lock last, the newest first
	locks      map[string]*lockState
	latest     *lockState             // the lockState found last; it may be empty
	spare      *lockState             // a forgotten lockState, to be used again
	spareShare *share                 // as spare; saves 3 % of sharing and releasing a lock
	semaphores map[string]*semaphore  // by prefix
	leases     map[string]*checkLease // by check
	nodeIDs    map[string]string      // by ID, the key of the node; nil: see nodeWithID
	due        expiry.Heap
	refused    []Due     // for which an operation was refused, so that they end next
	sharers    sharers   // of the lock that a call gave up on last
	slotsHeld  slotsHeld // of the semaphore that a call gave up on last
	slow       *slow     // nil: nothing is told as slow
	overdue    []string  // keys whose delays are over but still have a row
	unserved   bool      // after a drop: ServeAll may have work to do

	several  []*Waiter         // waiters for several locks, in the order in which they began
	carriers map[any][]*Waiter // the calls that wait, by the owner of each lock that they carry
	nested   int               // how many waiters whose session holds a lock stand in queues

	own    Txn     // the running transaction, to be used again
	events []Event // of the transaction, to be used again

	open     *Batch // that transactions join now
	flying   *Batch // that is being committed, or nil
	reusable Batch  // the memory of an earlier batch
	counts   Counts
}

// Config is what the rules depend on beside the rows.
type Config struct {
	// Node is the node of every session that names none, as it stands in the catalog.
	Node string

	// NewSession makes the memory of a session, which is part of a handle, and sets the owner.
	// Nil: it is part of none.
	NewSession func() *Session

	// Slow is how long a lock may be held, or waited for, until that is told as slow. 0: for ever.
	Slow time.Duration

	// LosesRenewal reports whether a test loses the renewal of a session. Nil: none is lost.
	LosesRenewal func(id schema.ID) bool

	// Ends tells a test what is ended because it is due: the ID of a session, the key of a check in
	// the catalog, the key of a lock-delay, or the fence, session and key of a hold that has
	// reached its MaxHold; otherwise an empty name. The order of ends that are due at one instant
	// is not promised. Nil means that there is no test.
	Ends func(due string)
}

// Session is what the rules know of a session that lives, or whose end is not published.
type Session struct {
	Row *schema.Session

	// The fields below are all that a renewal needs. They are small, so that a session with its
	// handle fits one line of the processor's cache. If there are very many sessions, a renewal
	// takes as long as it takes to fetch that line.
	*sessionRest
	live     bool          // not ended, as of the newest state
	ofKeeper bool          // a Keeper has made it, and it ends with the Keeper
	stalls   bool          // it was due at the turn of one of its calls, which was not served
	life     time.Duration // how long a renewal lasts: the TTL and the grace; 0: for ever
	deadline time.Time
}

// sessionRest is the rest of a session: most of it is for its end.
type sessionRest struct {
	Owner any // the handle that the session is part of

	expires  expiry.Item
	renewal  *renewal            // for the calls that keep it alive; nil if none ever did
	held     *lockState          // the first of the keys whose locks it holds alone
	shares   *share              // the first of its shares of locks
	missed   time.Time           // call of the last renewal in time after its end: see revive
	waiting  *Waiter             // the newest of the calls that wait
	calls    int                 // how many of them stand in their queues
	attached map[string]struct{} // names of its attachments
}

// renewal renews a session from the heap, half a TTL after the last time.
type renewal struct {
	session *Session
	due     expiry.Item
	callers int
}

// Hold is a lock that a handle has, or had. It is part of the handle.
type Hold struct {
	Owner     any // the handle
	Session   *Session
	Key       string
	LockIndex uint64
	Fence     uint64
	term      *term // nil: the handle may have the lock for ever
	Mode      Mode

	Released bool // by Release, which is published

	policy    KeyPolicy
	givenUp   bool // no caller has the handle, and the lock is to be released
	takenOver bool // its session had the lock before, without a handle
}

// term is how long a handle may have its lock at most: each handle that was made with a MaxHold has
// one. The term stands in the heap only while the handle has the lock.
type term struct {
	hold  *Hold
	most  time.Duration
	until time.Time
	due   expiry.Item
}

// Mode says whether a lock is held by one session alone.
type Mode uint8

// The modes.
const (
	Exclusive Mode = iota // of one holder
	Shared                // of any number of holders
)

// KeyPolicy says what becomes of a lock's key when it is released.
type KeyPolicy uint8

// The policies.
const (
	LeaveKey    KeyPolicy = iota // keeps it
	RemoveAfter                  // deletes it, if the grant made it and nothing was written since
	leaveSlot                    // deletes it, and takes the holder off the semaphore
)

// LockOptions adds to the taking of a lock. The zero value adds nothing.
type LockOptions struct {
	Value  []byte // is written to the key with the lock, unless it is nil
	Flags  uint64
	Policy KeyPolicy
	Mode   Mode
}

// Waiter is a call that waits for locks, or for a slot. It is part of the caller's record of the
// call. It is short, because at a hand-off the next call's Waiter is in no cache.
type Waiter struct {
	Owner   any // what the call waits with
	Session *Session
	Options LockOptions
	Carried *Carried // by the call's context
	Began   time.Time
	Err     error // why it goes without what it waited for; final once it is settled
	Limit   int32 // of the semaphore, as the call named it; 0: whatever it is
	Slot    bool  // it waits for a slot of a semaphore, and not for locks

	phase phase
	left  bool // its call has returned
	waits bool // is in its session's list of waiters

	previous, next *Waiter // in that list

	claims []claim  // one for each key
	single [1]claim // the claims, if there is one
}

// Carried is a lock that the context of a call carries; Outer has the other locks. Nil means none.
type Carried struct {
	Owner any // of the lock's hold
	Outer *Carried
}

// has reports whether the owner's lock is among those carried.
func (c *Carried) has(owner any) bool {
	for ; c != nil; c = c.Outer {
		if c.Owner == owner {
			return true
		}
	}
	return false
}

// claim is where a waiter stands for one key, and the hold that gets the lock.
type claim struct {
	key   string
	state *lockState // of the key, until the place is left
	place waitq.Place[*Waiter]
	hold  *Hold // gets the lock with the grant; for a slot, the lock of the contender key
}

// phase is how far a waiter has come.
type phase uint8

const (
	standing phase = iota // in its queues
	granted               // has the locks, but that is not durable yet
	leaving               // has to go, but that is not durable yet
	settled               // its outcome is final
)

// lockState is what is known of a key's lock beside its row: there is one while the lock is held,
// awaited or delayed, and perhaps until a write looks for another one.
type lockState struct {
	key   string
	hold  *Hold // of the exclusive holder; nil if it has no handle
	queue waitq.Queue[*Waiter]
	delay *delay

	session    *Session // the exclusive holder, as of the newest state; nil if there is none
	prev, next *lockState

	shares shares // of the holders that share the lock, as of the newest state
}

// delay is the lock-delay of a key, after the loss of a holder. It belongs to the name of the key,
// whether the key exists or not (K38).
type delay struct {
	key   string
	until time.Time
	slot  bool // a slot of a semaphore was lost, and counts until the delay is over
	mode  Mode // in which the lock was lost: Shared keeps exclusive holders out only (R5)
	due   expiry.Item
}

// lasts reports whether the delay keeps the lock from a holder in the mode.
func (d *delay) lasts(mode Mode, now time.Time) bool {
	return d != nil && now.Before(d.until) && (d.mode == Exclusive || mode == Exclusive)
}

// semaphore is what is known of a semaphore beside its rows: there is one while a slot has a
// handle, is awaited, or is lost and delayed.
type semaphore struct {
	prefix  string
	slots   map[*Hold]struct{}  // handles, of the contender keys
	lost    map[*delay]struct{} // of the contender keys
	waiting int                 // how many stand in the queue for a slot, or are set aside

	roster roster // read last; Txn.rosterOf tells whether it is still that of the newest state
	named  bool   // the roster names the sessions of all slots
}

// checkLease is when a check becomes critical unless it is put again: each check that has a TTL and
// is not critical has one.
type checkLease struct {
	check    string // its key in the catalog
	deadline time.Time
	due      expiry.Item
}

// lockOf returns the key's lockState, or nil if there is none. A write asks for one key several
// times in a row: only the first call searches.
func (e *Engine) lockOf(key string) *lockState {
	if e.latest != nil && e.latest.key == key {
		return e.latest
	}
	if e.latest != nil && len(e.locks) == 1 { // no other lock is held, awaited or delayed
		return nil
	}
	state := e.locks[key]
	if state != nil {
		e.found(state)
	}
	return state
}

// state returns the key's lockState, and makes it if need be.
func (e *Engine) state(key string) *lockState {
	state := e.lockOf(key)
	if state == nil {
		state, e.spare = e.spare, nil
		if state == nil {
			state = new(lockState)
		}
		state.key = key
		e.locks[key] = state
		e.found(state)
	}
	return state
}

// found makes state the latest one, and tidies the one before.
func (e *Engine) found(state *lockState) {
	before := e.latest
	if e.latest = state; before != nil {
		e.tidy(before)
	}
}

// tidy forgets a lockState that is empty, but not the latest one: the next write is often to the
// same key (BenchmarkPair_Hot). The memory of a forgotten one may be used for another key, so the
// caller must not look at it after that.
func (e *Engine) tidy(state *lockState) {
	if state != e.latest && state.empty() {
		delete(e.locks, state.key)
		e.spare = state
	}
}

// empty reports whether the lock is neither held nor awaited nor delayed.
func (s *lockState) empty() bool {
	return s.session == nil && s.hold == nil && s.delay == nil && s.shares.n == 0 &&
		s.queue.Empty()
}

// isLocked reports whether a session holds the lock of the row alone. The row may be nil.
func isLocked(row *schema.Key) bool { return row != nil && !row.Session.IsZero() }

// holder returns the session with the ID, which holds a lock, or held one before the running
// transaction: so the session is known.
func (e *Engine) holder(id schema.ID) *Session {
	for _, s := range e.grantees { // most often: a hand-off is from one of them to the other
		if s != nil && s.Row.ID == id {
			return s
		}
	}
	return e.sessions[id]
}

// semaphore returns what is known of a semaphore, and makes it if need be.
func (e *Engine) semaphore(prefix string) *semaphore {
	sem := e.semaphores[prefix]
	if sem == nil {
		sem = &semaphore{
			prefix: prefix, slots: make(map[*Hold]struct{}), lost: make(map[*delay]struct{}),
		}
		e.semaphores[prefix] = sem
	}
	return sem
}

// tidySemaphore forgets a semaphore of which nothing is known beside its rows.
func (e *Engine) tidySemaphore(sem *semaphore) {
	if len(sem.slots)+len(sem.lost)+sem.waiting == 0 {
		delete(e.semaphores, sem.prefix)
	}
}

// contenderMoved updates the idle holders of a semaphore when the session that holds the key's lock
// has changed, or changes back because a write is taken back. It ignores a key that is no contender
// key.
func (e *Engine) contenderMoved(key string, from, to schema.ID) {
	sem := e.semaphores[PrefixOf(key)]
	if sem == nil {
		return
	}
	switch id := contenderOf(key); {
	case id.IsZero() || !sem.roster.names(id):
	case to == id:
		delete(sem.roster.idle, id)
	case from == id:
		sem.roster.setIdle(id)
	}
}

// waiters yields the calls that wait with this session. The one just yielded may leave.
func (s *Session) waiters() iter.Seq[*Waiter] {
	return func(yield func(*Waiter) bool) {
		for w := s.waiting; w != nil; {
			next := w.next
			if !yield(w) {
				return
			}
			w = next
		}
	}
}

// SortByAge orders sessions by when they were made.
func SortByAge(sessions []*Session) {
	slices.SortFunc(sessions, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(a.Row.CreateIndex, b.Row.CreateIndex),
			compareIDs(a.Row.ID, b.Row.ID))
	})
}

// Lasted returns how long something that began then has lasted; 0 if began is zero, because that is
// not known. It is never negative, even if the clock was set back since.
func Lasted(began, now time.Time) time.Duration {
	if began.IsZero() {
		return 0
	}
	return max(0, now.Sub(began))
}
