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

// Engine is the state that the rules apply to: the rows, and what is kept beside them. New gives
// one; the zero value is not usable.
type Engine struct {
	rows   *store.Store
	config Config
	epoch  time.Time // just before the database was opened: see moment

	sessions   map[schema.ID]*Session
	bound      map[string]map[*Session]struct{} // by node, and by check
	grantee    *Session                         // that was granted a lock last
	locks      map[string]*lockState
	latest     *lockState             // that was looked for last; nil if it was forgotten
	spare      *lockState             // one that was forgotten, for the next
	spareShare *share                 // and a share: 3 % of sharing a lock and releasing it
	semaphores map[string]*semaphore  // by prefix
	leases     map[string]*checkLease // by check
	nodeIDs    map[string]string      // the key of the node with that ID; nil: see nodeWithID
	due        expiry.Heap
	sharers    sharers  // of a lock, as the call that gave up last was told of them
	slow       *slow    // nil: nothing is told as slow
	overdue    []string // keys whose delays are over but still have a row
	unserved   bool     // a drop may have left a free lock with a queue, or one given up

	several  []*Waiter         // that wait for several locks, in the order in which they began
	carriers map[any][]*Waiter // the calls that wait, by the owner of each lock that they carry
	nested   int               // how many waiters stand in queues whose session holds a lock

	own    Txn     // the running transaction, to be used again
	events []Event // of the transaction, to be used again

	open     *Batch // that is joined now
	flying   *Batch // that is being committed, or nil
	reusable Batch  // the memory of the batch before
	counts   Counts
}

// Config is what the rules depend on beside the rows.
type Config struct {
	// Node is the node of every session that names none, as it stands in the catalog.
	Node string

	// NewSession makes the memory of a session, which is part of a handle. Nil: new(Session).
	NewSession func() *Session

	// Slow is how long a lock may be held, or waited for, until that is told as slow. 0: for ever.
	Slow time.Duration

	// LosesRenewal reports whether a test has the renewal of a session be lost. Nil: none is.
	LosesRenewal func(id schema.ID) bool

	// Ends tells a test what is ended because it is due: the ID of a session, the key of a check in
	// the catalog, the key of a lock-delay, or fence, session and key of a hold that has come to
	// its MaxHold; else an empty name. Which comes first of two that are due at one instant is not
	// promised. Nil: no test is told.
	Ends func(due string)
}

// Session is what the rules know of a session: of one that lives, or whose end is not published.
type Session struct {
	Row *schema.Session

	// What follows is all that a renewal needs. It is short, so that with its handle a session is
	// one line of the processor's cache: to renew one of very many takes as long as it takes to get
	// hold of its memory, and lines alone stay nearer.
	*sessionRest
	live     bool          // not ended, as of the newest state
	ofKeeper bool          // a Keeper has made it, and it ends with that
	life     time.Duration // that a renewal gives it: the TTL, and the grace; 0: for ever
	deadline time.Time
}

// sessionRest is what else there is of a session: most of it is for its end.
type sessionRest struct {
	Owner any // the handle that the session is part of

	expires  expiry.Item
	renewal  *renewal            // for the calls that keep it alive; nil if none ever did
	held     *lockState          // the first of the keys whose locks it holds alone
	shares   *share              // the first of its shares of locks
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
	term      *term // nil: the handle may have the lock for ever; here it takes no padding
	Mode      Mode

	Released bool // by Release, and that is published

	policy    KeyPolicy
	givenUp   bool // the call that was granted it has returned without it
	takenOver bool // its session had the lock before, without a handle
}

// term is how long a handle may have its lock at most: there is one for each handle that was made
// with a MaxHold. It stands in the heap while the handle has the lock, and at no other time.
type term struct {
	hold  *Hold
	most  time.Duration
	until time.Time
	over  expiry.Item
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

// Waiter is a call that waits for locks, or for a slot. It is part of what the call waits with. It
// is short: a hand-off finds that of the next call in no cache.
type Waiter struct {
	Owner   any // what the call waits with
	Session *Session
	Options LockOptions
	Carried *Carried // by the call's context
	Began   time.Time
	Err     error // why it goes without what it waited for; final once it is settled
	Limit   int32 // of the semaphore, as the call named it; 0: whatever it is
	Slot    bool  // of a semaphore is what it waits for, and not locks

	phase phase
	left  bool // its call has returned
	waits bool // is in its session's list of those that wait

	previous, next *Waiter // in that list

	claims []claim  // one for each key
	single [1]claim // the claims, if there is one
}

// Carried is a lock that the context of a call carries, and those that it carries beside it. Nil is
// none.
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

// claim is where a waiter stands for one key, and the lock that it gets.
type claim struct {
	key   string
	state *lockState // of the key, for as long as the place is not left
	place waitq.Place[*Waiter]
	hold  *Hold // what it has been given, if it is granted; of a slot, that of the contender key
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
// awaited or delayed.
type lockState struct {
	key   string
	hold  *Hold // the handle's; nil if the holder has none
	queue waitq.Queue[*Waiter]
	delay *delay

	session    *Session // the exclusive holder, as of the newest state; nil if there is none
	prev, next *lockState

	shares shares // of the holders that share the lock, as of the newest state
}

// delay keeps a lock from everybody after its holder was lost. It belongs to the name of the key,
// whether there is such a key or not (K38).
type delay struct {
	key   string
	until time.Time
	slot  bool // of a semaphore: it was lost, and counts until the delay is over
	mode  Mode // in which the lock was lost: Shared keeps exclusive holders out only (R5)
	over  expiry.Item
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
}

// checkLease is when a check becomes critical unless it is put again: there is one for each that
// has a TTL and is not critical.
type checkLease struct {
	check    string // its key in the catalog
	deadline time.Time
	due      expiry.Item
}

// lockOf returns the key's lockState, or nil if there is none. A write asks for one key some times
// in a row: only the first is a search.
func (e *Engine) lockOf(key string) *lockState {
	if e.latest != nil && e.latest.key == key {
		return e.latest
	}
	state := e.locks[key]
	if state != nil {
		e.latest = state
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
		e.locks[key], e.latest = state, state
	}
	return state
}

// tidy forgets a lockState that says nothing. It may become another key's, so it must not be looked
// at after that.
func (e *Engine) tidy(state *lockState) {
	if state.session == nil && state.hold == nil && state.delay == nil && state.shares.n == 0 &&
		state.queue.Empty() {
		delete(e.locks, state.key)
		e.spare = state
		if e.latest == state {
			e.latest = nil
		}
	}
}

// holder returns the session of a key that is locked.
func (e *Engine) holder(id schema.ID) *Session {
	if s := e.grantee; s != nil && s.Row.ID == id { // most often
		return s
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

// tidySemaphore forgets a semaphore of which nothing is known.
func (e *Engine) tidySemaphore(sem *semaphore) {
	if len(sem.slots)+len(sem.lost)+sem.waiting == 0 {
		delete(e.semaphores, sem.prefix)
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
			slices.Compare(a.Row.ID[:], b.Row.ID[:]))
	})
}

// Lasted is how long something has lasted that began then: no less than no time, although the clock
// may have been set back since.
func Lasted(began, now time.Time) time.Duration { return max(0, now.Sub(began)) }

// moment is how rows and events keep an instant: in nanoseconds after the epoch, and so never 0,
// which is what they have of an instant that is not known.
func (e *Engine) moment(now time.Time) int64 { return max(1, int64(now.Sub(e.epoch))) }

// Instant is the instant of a row's or an event's moment, and the zero time for 0.
func (e *Engine) Instant(moment int64) time.Time {
	if moment == 0 {
		return time.Time{}
	}
	return e.epoch.Add(time.Duration(moment))
}
