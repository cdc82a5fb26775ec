package engine

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/hub"
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
	semaphores map[string]*semaphore  // by prefix
	leases     map[string]*checkLease // by check
	due        expiry.Heap
	overdue    []string // keys whose delays are over but still have a row
	unserved   bool     // a drop may have left a free lock with a queue, or one given up

	own    Txn     // the running transaction, to be used again
	events []Event // of the transaction, to be used again

	open     *Batch      // that is joined now
	flying   *Batch      // that is being committed, or nil
	reusable batchMemory // of the batch before
	counts   Counts
}

// Config is what the rules depend on beside the rows.
type Config struct {
	// Node is the node of every session that names none, as it stands in the catalog.
	Node string

	// NewSession makes the memory of a session, which is part of a handle. Nil: new(Session).
	NewSession func() *Session

	// LosesRenewal reports whether a test has the renewal of a session be lost. Nil: none is.
	LosesRenewal func(id schema.ID) bool
}

// Session is what the rules know of a session: of one that lives, or whose end is not published.
type Session struct {
	Row *schema.Session

	// What follows is all that a renewal needs. It is short, so that with its handle a session is
	// one line of the processor's cache: to renew one of very many takes as long as it takes to get
	// hold of its memory, and lines alone stay nearer.
	*sessionRest
	live     bool          // not ended, as of the newest state
	life     time.Duration // that a renewal gives it: the TTL, and the grace; 0: for ever
	deadline time.Time
}

// sessionRest is what else there is of a session: most of it is for its end.
type sessionRest struct {
	Owner any // the handle that the session is part of

	expires  expiry.Item
	ofKeeper bool                // a Keeper has made it, and it ends with that
	renewal  *renewal            // for the calls that keep it alive; nil if none ever did
	held     *lockState          // the first of the keys whose locks it holds
	waiting  *Waiter             // the newest of the calls that wait
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

	policy    KeyPolicy
	givenUp   bool // the call that was granted it has returned without it
	takenOver bool // its session had the lock before, without a handle
}

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
}

// Waiter is a call that waits for locks, or for a slot. It is part of what the call waits with.
type Waiter struct {
	Owner   any // what the call waits with
	Session *Session
	Options LockOptions
	Slot    bool // of a semaphore is what it waits for, and not locks
	Limit   int  // of the semaphore, as the call named it; 0: whatever it is
	Began   time.Time
	Err     error // why it goes without what it waited for; final once it is settled

	claims []claim // one for each key
	phase  phase
	left   bool // its call has returned

	waits          bool    // is in its session's list of those that wait
	previous, next *Waiter // in that list

	single [1]claim // the claims, if there is one
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

	session    *Session // the holder, as of the newest state; nil if the lock is free
	prev, next *lockState
}

// delay keeps a lock from everybody after its holder was lost. It belongs to the name of the key,
// whether there is such a key or not (K38).
type delay struct {
	key   string
	until time.Time
	slot  bool // of a semaphore: it was lost, and counts until the delay is over
	over  expiry.Item
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

// Txn is the running transaction. Begin gives it, and Seal and Undo end it.
type Txn struct {
	engine *Engine
	now    time.Time
	again  bool // what it does is due by itself, and has to be tried again
	shared bool // see Share

	effects []Effect            // what is decided outside the tables
	freed   []string            // keys whose queue has to be looked at
	passed  []string            // keys whose holders have changed, while it is shared
	causes  map[string]loss     // why the lock of a key ended, where the key does not tell
	ends    map[schema.ID]error // why sessions ended
	locked  map[string]uint64   // the last lock index of a key that it has locked and deleted
}

// loss is why the lock of one grant was over.
type loss struct {
	fence uint64
	cause error
}

// Effect is what a transaction decided beside the rows. It is told when its batch is durable, and
// reverted if that is dropped.
type Effect struct {
	Kind    EffectKind
	Hold    *Hold
	Waiter  *Waiter
	Session *Session
	Cause   error

	delay    *delay
	replaced *delay
	lease    *checkLease
	until    time.Time
}

// EffectKind says what an effect is.
type EffectKind uint8

// The kinds.
const (
	LockHeld     EffectKind = iota + 1 // Hold became the handle's of its key
	LockReleased                       // Hold no longer is, by its own release
	LockLost                           // Hold no longer is, for another cause
	SessionMade                        // SessionMade: Session was made
	SessionEnded                       // SessionEnded: Session has ended, for Cause
	WaiterServed                       // the holds of Waiter became those of their keys
	WaiterLeft                         // Waiter goes with an error

	delaySet   // delay took the place of replaced
	leaseBegun // lease got another deadline than until
)

// Event is one change of one row, for those who watch.
type Event = hub.Event[Record]

// Record is what an event keeps: pointers to rows, which are immutable.
type Record struct {
	Kind     RecordKind
	Lock     LockChange
	Moment   int64 // 0 unless Lock changed, or a session began or ended
	Cause    error
	Old, New any
	Holder   *schema.Session // to which the lock was granted
	Delay    *schema.Delay   // that the lock is in since then
}

// RecordKind says what changed. The kind of a deletion follows that of the put.
type RecordKind uint8

// The kinds.
const (
	KeyPut            RecordKind = iota + 1 // KeyPut: a key was made, or changed
	KeyDeleted                              // KeyDeleted: a key was deleted
	SessionCreated                          // SessionCreated: a session began
	SessionGone                             // SessionGone: a session ended
	NodePut                                 // NodePut: a node was made, or changed
	NodeDeleted                             // NodeDeleted: a node was removed
	ServicePut                              // ServicePut: a service was made, or changed
	ServiceDeleted                          // ServiceDeleted: a service was removed
	CheckPut                                // CheckPut: a check was made, or changed
	CheckDeleted                            // CheckDeleted: a check was removed
	AttachmentPut                           // AttachmentPut: an attachment was made, or changed
	AttachmentDeleted                       // AttachmentDeleted: an attachment was removed
)

// LockChange says what a change of a key did to its lock.
type LockChange uint8

// The changes.
const (
	Unchanged LockChange = iota // Unchanged: it is as it was
	Granted                     // Granted: it was free, and is held
	HandedOn                    // HandedOn: it went from one holder, or grant, to the next
	Released                    // Released: its holder released it
	Lost                        // Lost: its holder's session ended, or it was taken by force
	Deleted                     // Deleted: its key was deleted
)

// Batch is what one commit makes durable, beside its rows.
type Batch struct {
	rows    *store.Batch // once it is taken
	effects []Effect
	events  []Event
	again   bool // it has what is due by itself, and has to be tried again
}

// batchMemory is what a batch needed, for a later one.
type batchMemory struct {
	effects []Effect
	events  []Event
}

// Outcome is what has been published, and has to be told in this order (G10): first the effects
// LockReleased, LockLost and SessionEnded, then the events, and then WaiterServed and WaiterLeft.
// It is valid until the next call of a method that changes anything.
type Outcome struct {
	Effects []Effect
	Events  []Event
	Index   uint64 // that is published
}

// Counts is what the engine counts, as it is published; but for Waiters, which are calls.
type Counts struct {
	Keys, Sessions, Locks, Waiters int
	Grants                         uint64
	Ends                           Ends
}

// Ends counts what has ended, by the cause. Locks that a session's end took are not counted again.
type Ends struct {
	Closed, Expired, Destroyed, NodeGone, CheckGone, CheckCritical, ProcessGone, Restored uint64

	Unlocked, KeyDeleted, Forced uint64
}

// Spaces of names among the events.
const (
	SpaceKeys     = 'k' // SpaceKeys: the keys
	SpaceSessions = 's' // SpaceSessions: the IDs of sessions
	SpaceCatalog  = 'c' // SpaceCatalog: the catalog, all under one empty name
)

// Kinds of tombstones.
const (
	GraveKey     = 'k' // GraveKey: of one key
	GravePrefix  = 'p' // GravePrefix: of the keys with a prefix
	GraveSession = 's' // GraveSession: of one session
)

// Marks.
const (
	MarkSessions = "sessions" // the index of the last change of any session
	MarkCatalog  = "catalog"  // and that of the catalog
	markRestored = "restored" // the index of the last restoring that had to carry one over
)

// effect adds one to those of the transaction, to be filled in.
func (tx *Txn) effect(kind EffectKind) *Effect {
	n := len(tx.effects)
	tx.effects = slices.Grow(tx.effects, 1)[:n+1] // what is beyond the end is zero
	e := &tx.effects[n]
	e.Kind = kind
	return e
}

// next is the index that the transaction's writes carry.
func (tx *Txn) next() uint64 { return tx.engine.rows.Next() }

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
	if state.session == nil && state.hold == nil && state.delay == nil && state.queue.Empty() {
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

// setHold makes hold that of the lock that the state is of, and nil takes it away.
func (e *Engine) setHold(state *lockState, hold *Hold) {
	old := state.hold
	state.hold = hold
	if old != nil && old.policy == leaveSlot {
		sem := e.semaphore(PrefixOf(state.key))
		delete(sem.slots, old)
		e.tidySemaphore(sem)
	}
	if hold != nil && hold.policy == leaveSlot {
		e.semaphore(PrefixOf(state.key)).slots[hold] = struct{}{}
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

// sortByAge orders sessions by when they were made.
func sortByAge(sessions []*Session) {
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
