package lockd

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

// Behavior says what the end of a session does to the keys whose locks it holds.
type Behavior uint8

// The behaviors.
const (
	// ReleaseKeys takes the locks off the keys, which stay (K33).
	ReleaseKeys Behavior = iota
	// DeleteKeys removes the keys (K34).
	DeleteKeys
)

// String returns the behavior as Consul writes it.
func (b Behavior) String() string { return name(b, "release", "delete") }

// Lifetime says whether a session can outlive the process that made it.
type Lifetime uint8

// The lifetimes.
const (
	// BoundToProcess ends the session with its process: cleanly by DB.Close, and after a crash
	// by the next Open.
	BoundToProcess Lifetime = iota
	// Independent lets the session live on in the file. Its TTL runs while the file is open, and
	// begins anew with each Open (S28). That of a Keeper lives on only after a crash.
	Independent
)

// String returns the lifetime in words.
func (l Lifetime) String() string { return name(l, "bound to process", "independent") }

// Lock-delays.
const (
	// NoLockDelay as a lock-delay means none; zero means DefaultLockDelay.
	NoLockDelay time.Duration = -1

	// DefaultLockDelay is the lock-delay of a session that names none.
	DefaultLockDelay = 15 * time.Second
	// MinLockDelay is the shortest lock-delay, if there is one.
	MinLockDelay = time.Millisecond
	// MaxLockDelay is the longest lock-delay.
	MaxLockDelay = 60 * time.Second
)

// MinTTL is the shortest TTL of a session or a check, if it has one. What is below is most likely a
// number without its unit, and would be over before anybody could renew it.
const MinTTL = time.Millisecond

// SessionOptions configures a session. A nil *SessionOptions and the zero value mean the
// defaults.
type SessionOptions struct {
	// Name is for people. It need not be unique.
	Name string

	// TTL is how long the session lives without being renewed; exactly so (S26). Zero means for
	// ever; the least is MinTTL.
	//
	// A process that dies needs no TTL to be noticed: the next Open ends its sessions (Lifetime).
	// A TTL is for holders that are reached over a network, for sessions that are Independent, and
	// for work that may hang. It notices work that hangs only if the work itself renews, by
	// Session.Renew before each of its steps. Session.KeepAlive and a Keeper renew beside the work,
	// and go on when that hangs: with them, the work puts a Check with a TTL that the session has
	// among its Checks.
	TTL time.Duration

	// Grace is added to the TTL before the session ends, and not shown as part of it. It is for
	// holders whose renewals come over a network.
	Grace time.Duration

	// LockDelay keeps a lock from everybody for a time after its holder was lost (S32). Zero
	// means DefaultLockDelay, NoLockDelay none; the least is MinLockDelay, the most MaxLockDelay.
	LockDelay time.Duration

	// Behavior says what happens to the held keys at the end. The default is ReleaseKeys.
	Behavior Behavior

	// Lifetime says whether the session ends with its process. The default, BoundToProcess, does.
	Lifetime Lifetime

	// Node is the node in the catalog that the session is bound to. Empty means the node of this
	// process.
	Node string

	// Checks are IDs of checks of the node. None may be critical; when one becomes so, or is
	// removed, the session ends.
	Checks []string

	// Meta is for people and programs that ask who holds a lock: a host, a process, a purpose. It
	// may have MaxKeySize bytes in all.
	Meta map[string]string
}

func (o *SessionOptions) lockDelay() time.Duration {
	switch o.LockDelay {
	case 0:
		return DefaultLockDelay
	case NoLockDelay:
		return 0
	}
	return o.LockDelay
}

func (o *SessionOptions) validate() error {
	if len(o.Name) > MaxKeySize {
		return checkName("SessionOptions.Name", o.Name)
	}
	if err := checkTTL("SessionOptions.TTL", o.TTL); err != nil {
		return err
	}
	switch {
	case o.Grace < 0:
		return invalid("SessionOptions.Grace is %v, below 0", o.Grace)
	case o.Grace > 0 && o.TTL == 0:
		return invalid("SessionOptions.Grace is %v, but there is no TTL to add it to", o.Grace)
	case o.TTL+o.Grace < o.TTL:
		return invalid("SessionOptions.TTL and Grace together are too long")
	case o.LockDelay < 0 && o.LockDelay != NoLockDelay:
		return invalid("SessionOptions.LockDelay is %v, below 0; NoLockDelay means none",
			o.LockDelay)
	case o.LockDelay > 0 && o.LockDelay < MinLockDelay:
		return tooShort("SessionOptions.LockDelay", o.LockDelay, MinLockDelay)
	case o.LockDelay > MaxLockDelay:
		return invalid("SessionOptions.LockDelay is %v, more than %v", o.LockDelay, MaxLockDelay)
	case o.Behavior > DeleteKeys:
		return invalid("SessionOptions.Behavior is %d, not a Behavior", o.Behavior)
	case o.Lifetime > Independent:
		return invalid("SessionOptions.Lifetime is %d, not a Lifetime", o.Lifetime)
	case len(o.Node) > MaxKeySize:
		return checkName("SessionOptions.Node", o.Node)
	}
	size := 0
	for key, value := range o.Meta {
		size += len(key) + len(value)
	}
	if size > MaxKeySize {
		return invalid("SessionOptions.Meta has %d bytes, more than %d", size, MaxKeySize)
	}
	return nil
}

// checkTTL refuses what is no TTL of a session or a check.
func checkTTL(field string, ttl time.Duration) error {
	switch {
	case ttl < 0:
		return invalid("%s is %v, below 0", field, ttl)
	case ttl > 0 && ttl < MinTTL:
		return tooShort(field, ttl, MinTTL)
	}
	return nil
}

// tooShort refuses a duration that most likely lacks its unit.
func tooShort(field string, d, least time.Duration) error {
	return invalid("%s is %v, below %v; was a unit forgotten, as in %d * time.Second?", field, d,
		least, d.Nanoseconds())
}

// SessionInfo describes a session. None of it ever changes (S3). The zero value is no session.
type SessionInfo struct {
	ID          SessionID
	Name        string
	Node        string
	TTL         time.Duration
	Grace       time.Duration
	LockDelay   time.Duration // 0: none
	Behavior    Behavior
	Lifetime    Lifetime
	Checks      []string          // shared: do not change it
	Meta        map[string]string // shared: do not change it
	CreateIndex uint64
}

func sessionInfo(row *schema.Session) SessionInfo {
	return SessionInfo{
		ID: SessionID(row.ID), Name: row.Name, Node: row.Node, TTL: row.TTL, Grace: row.Grace,
		LockDelay: row.LockDelay, Behavior: Behavior(row.Behavior),
		Lifetime: Lifetime(row.Lifetime), Checks: row.Checks, Meta: row.Meta,
		CreateIndex: row.CreateIndex,
	}
}

// Session is a handle on a session: what takes locks. There is one for each session, shared by
// all who ask for it; its methods may be called by many goroutines. The zero value is not
// usable; DB.NewSession and DB.Session give one.
type Session struct {
	_ noCopy

	db  *DB
	row *schema.Session
	*estate

	// What follows is protected by db.mu. With db, it is all that a renewal needs. A Session is one
	// line of the processor's cache: to renew one of very many takes as long as it takes to get
	// hold of its memory, and lines alone stay nearer. See BenchmarkRenew.
	live     bool          // not ended, as of the newest state
	life     time.Duration // that a renewal gives it: the TTL, and the grace; 0: for ever
	deadline time.Time
}

// estate is what else there is of a session: most of it is for its end. It is protected by db.mu.
type estate struct {
	ending // has a mutex of its own

	expires  expiry.Item
	ofKeeper bool                // a Keeper has made it, and it ends with that
	renewal  *renewal            // for those who keep it alive; nil if nobody ever did
	held     *lockState          // the first of the keys whose locks it holds
	waiting  *waiter             // the newest of the calls that wait
	attached map[string]struct{} // names of its attachments
}

// noCopy has go vet tell who copies what it is in.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// NewSession creates a session. It blocks until the session is durable; its TTL runs from the
// call.
//
// It returns ErrInvalid, ErrNoNode, ErrNoCheck, ErrCheckCritical (S16 to S18), ErrClosed,
// ErrFailed or ErrCommit, with nothing changed.
func (db *DB) NewSession(opts *SessionOptions) (*Session, error) {
	if opts == nil {
		opts = &SessionOptions{}
	}
	var created *Session
	err := db.refused(opts.validate())
	if err == nil {
		err = db.update(func(tx *Txn) (err error) {
			created, err = tx.newSession(opts)
			return err
		})
	}
	return result(created, "new session", opts.Name, err)
}

func (tx *Txn) newSession(opts *SessionOptions) (*Session, error) {
	db := tx.db
	node := opts.Node
	if node == "" {
		node = db.node
	}
	if db.store.Nodes.Newest(folded(node)) == nil {
		return nil, missing(ErrNoNode, node)
	}
	for _, id := range opts.Checks {
		check := db.store.Checks.Newest(catalogKey(node, id))
		if check == nil {
			return nil, missing(ErrNoCheck, id)
		}
		if Status(check.Status) == Critical {
			return nil, missing(ErrCheckCritical, id)
		}
	}
	id := schema.ID(uuid.New())
	row := db.store.Sessions.Put(string(id[:]), schema.Session{
		ID: id, Name: opts.Name, Node: node, TTL: opts.TTL, Grace: opts.Grace,
		LockDelay: opts.lockDelay(), Behavior: uint8(opts.Behavior),
		Lifetime: uint8(opts.Lifetime), Checks: slices.Clone(opts.Checks),
		Meta: maps.Clone(opts.Meta), CreateIndex: db.store.Next(),
	})
	s := db.adopt(row)
	s.restart(tx.clock)
	tx.effect(sessionMade).session = s
	return s, nil
}

// adopt makes the handle of a session's row.
func (db *DB) adopt(row *schema.Session) *Session {
	s := &Session{db: db, row: row, live: true, life: row.TTL + row.Grace, estate: new(estate)}
	s.expires = expiry.Item{Owner: s, Rank: expiry.End}
	db.sessions[SessionID(row.ID)] = s
	db.bind(s)
	return s
}

// restart begins a TTL, if the session has one.
func (s *Session) restart(clock func() time.Time) {
	if s.life == 0 {
		return
	}
	s.deadline = clock().Add(s.life)
	// The heap may hold an older deadline: it is put right when that comes up.
	if !s.expires.Queued() {
		s.db.expiry.Set(&s.expires, s.deadline)
	}
}

// Session returns the handle on a session that lives. It blocks until it is durable that it does.
// It returns ErrNoSession for any other ID, ErrInvalid for the zero one, ErrClosed, ErrFailed or
// ErrCommit.
func (db *DB) Session(id SessionID) (*Session, error) {
	var found *Session
	err := db.update(func(tx *Txn) (err error) {
		found, err = tx.session(id)
		return err
	})
	return result(found, "session", "", err)
}

// EndSession ends a session from outside, with cause ErrDestroyed: its keys are released or
// deleted, and its lock-delay follows (S32), for its owner may not know. It blocks until that is
// durable. It returns ErrNoSession for one that does not live, ErrInvalid for the zero ID,
// ErrClosed, ErrFailed or ErrCommit, with nothing changed.
func (db *DB) EndSession(id SessionID) error {
	err := db.update(func(tx *Txn) error { return tx.EndSession(id) })
	return wrap("end session", "", err)
}

// EndSession is DB.EndSession within the transaction.
func (tx *Txn) EndSession(id SessionID) (err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "end session", "")
	s, err := tx.session(id)
	if err != nil {
		return err
	}
	tx.endSession(s, ErrDestroyed)
	return nil
}

// endSession is the end of a session, whatever its cause, in one step (G5, S31).
func (tx *Txn) endSession(s *Session, cause error) {
	delay := s.row.LockDelay
	if errors.Is(cause, ErrClosed) { // its owner says that it has stopped
		delay = 0
	}
	tx.endSessionWith(s, cause, delay)
}

// endSessionWith is endSession with another lock-delay than the session's.
func (tx *Txn) endSessionWith(s *Session, cause error, delay time.Duration) {
	db := tx.db
	ended := &EndedError{Session: SessionID(s.row.ID), Cause: cause}
	s.live = false
	db.expiry.Remove(&s.expires)
	if s.renewal != nil {
		db.expiry.Remove(&s.renewal.due)
	}
	tx.effects = append(tx.effects, effect{kind: sessionEnded, session: s, cause: ended})
	if tx.ends == nil {
		tx.ends = make(map[SessionID]error)
	}
	tx.ends[ended.Session] = cause

	key := string(s.row.ID[:])
	db.store.Sessions.Delete(key)
	db.store.Bury(graveSession, key)
	// All delays first: whether a slot is lost depends on a key that may go with the session.
	for state := s.held; state != nil; state = state.next {
		tx.setDelay(state.key, delay)
	}
	for s.held != nil { // each step takes the first off the list
		row := db.store.Keys.Newest(s.held.key)
		if Behavior(s.row.Behavior) == DeleteKeys {
			tx.remove(row, cause)
			tx.bury(row)
		} else {
			tx.release(row, cause)
		}
	}
	tx.detachAll(s)
	for w := range s.waiters() {
		tx.dismiss(w, ended)
	}
}

// lapse is the cause when the session is found to be due now.
func (s *Session) lapse(now time.Time) error {
	renewed := s.deadline.Add(-s.life)
	return &lapse{now.Sub(renewed)}
}

// revive takes the end of the session back.
func (s *Session) revive() {
	s.live = true
	if s.life == 0 {
		return
	}
	s.db.expiry.Set(&s.expires, s.deadline)
	if s.renewal != nil && s.renewal.callers > 0 {
		s.db.expiry.Set(&s.renewal.due, s.renewal.due.At())
	}
}

// bound reports whether the session ends with its process, however that ends.
func (s *Session) bound() bool { return Lifetime(s.row.Lifetime) == BoundToProcess }

// closesWithDB reports whether Close of the database ends the session.
func (s *Session) closesWithDB() bool { return s.bound() || s.ofKeeper }

// Info describes the session.
func (s *Session) Info() SessionInfo { return sessionInfo(s.row) }

// ID names the session.
func (s *Session) ID() SessionID { return SessionID(s.row.ID) }

// Done returns a channel that is closed when the session has ended, and that is durable.
func (s *Session) Done() <-chan struct{} { return s.ending.Done() }

// Err returns nil while the session lives, and then an *EndedError with the cause. The end of the
// database is one for this handle, also if the session lives on in the file: see DB.Close.
func (s *Session) Err() error { return s.ending.Err() }

// KeepAlive renews the session in time, until ctx ends, which returns its error, or the session
// does, which returns that. It blocks all the while and starts no goroutine. A nil ctx panics.
//
// The session then lives for as long as this process runs, however busy that is, and whether its
// work goes on or hangs: SessionOptions.TTL says how to notice that.
func (s *Session) KeepAlive(ctx context.Context) error {
	checkContext(ctx)
	if err := s.startKeeping(); err != nil {
		return wrap("keep alive", s.ID().String(), err)
	}
	defer s.stopKeeping()
	select {
	case <-s.Done():
		return wrap("keep alive", s.ID().String(), s.Err())
	case <-ctx.Done():
		return wrap("keep alive", s.ID().String(), ctx.Err())
	}
}

// renewal renews a session from the heap, half a TTL after the last time.
type renewal struct {
	session *Session
	due     expiry.Item
	callers int
}

func (s *Session) startKeeping() error {
	if err := s.renew(s.db.now()); err != nil {
		return err
	}
	db := s.db
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.refusal != nil { // since it was renewed: nobody would stop a timer
		return cmp.Or(s.Err(), db.refusal)
	}
	if now := db.now(); s.keepLocked(now) {
		db.expiry.Arm(now)
	}
	return nil
}

// aboutToBeRenewed reports whether a renewal was due before the session is, and is only late.
func (s *Session) aboutToBeRenewed() bool {
	return s.renewal != nil && s.renewal.due.Queued() && !s.renewal.due.At().After(s.deadline)
}

// keepLocked has the session renewed for one more caller. It reports whether it is the first, and
// there is something to renew.
func (s *Session) keepLocked(now time.Time) bool {
	if s.renewal == nil {
		s.renewal = &renewal{session: s}
		s.renewal.due = expiry.Item{Owner: s.renewal, Rank: expiry.Renewal}
	}
	s.renewal.callers++
	s.db.waitsMoved()
	if s.life == 0 || s.renewal.callers > 1 {
		return false
	}
	s.db.expiry.Set(&s.renewal.due, s.renewal.next(now))
	return true
}

func (s *Session) stopKeeping() {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.renewal.callers--; s.renewal.callers == 0 {
		s.db.expiry.Remove(&s.renewal.due)
	}
	s.db.waitsMoved()
}

// next is when to renew after a renewal now: always later, however short the TTL is.
func (r *renewal) next(now time.Time) time.Time {
	return now.Add(max(1, r.session.row.TTL/2))
}

// renewLocked renews on behalf of those who keep the session alive. The renewal was due before
// the session was, so it counts, however late the timer is.
func (r *renewal) renewLocked(now time.Time) {
	if r.session.renewalLost() == nil {
		r.session.deadline = now.Add(r.session.life)
	}
	r.session.db.expiry.Set(&r.due, r.next(now))
}

// Close ends the session, for its owner: its keys are released or deleted, without a lock-delay
// (G7). It blocks until that is durable. It returns nil, also when repeated, unless the session
// had ended otherwise: then an error that is ErrNoSession and wraps the cause.
func (s *Session) Close() error {
	if s.Err() == nil {
		err := s.db.update(func(tx *Txn) error {
			if s.live {
				tx.endSession(s, ErrClosed)
			}
			return nil
		})
		if err != nil {
			return wrap("close session", s.ID().String(), err)
		}
	}
	ended := s.Err()
	if !errors.Is(ended, ErrClosed) {
		return wrap("close session", s.ID().String(), ended)
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if s.live { // the database was closed, and the session lives on in the file
		return wrap("close session", s.ID().String(), s.db.refusal)
	}
	return nil
}

// checkContext refuses what is a caller's bug.
func checkContext(ctx context.Context) {
	if ctx == nil {
		panic("lockd: nil context")
	}
}

// folded is the form in which names of the catalog are compared (S39, N17).
func folded(name string) string { return strings.ToLower(name) }
