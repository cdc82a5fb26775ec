package lockd

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/ending"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Lock-delays.
const (
	// NoLockDelay means no lock-delay.
	NoLockDelay time.Duration = -1

	// DefaultLockDelay is the lock-delay of a session that names none.
	DefaultLockDelay = 15 * time.Second
	// MaxLockDelay is the longest lock-delay.
	MaxLockDelay = 60 * time.Second
)

// MinTTL is the shortest TTL and lock-delay.
const MinTTL = engine.MinTTL // 1 ms

// SessionOptions configures a session.
type SessionOptions struct {
	// Name is for people. It need not be unique.
	Name string

	// TTL is how long the session lives without a renewal. It is exact (S26). Zero means for ever.
	//
	// A process that dies needs no TTL: the next Open ends its sessions. A TTL is for clients over
	// a network, for Independent sessions, and for work that may hang and renews its session by
	// Session.Renew. With Session.KeepAlive or a Keeper such work also needs a catalog.Check with a
	// TTL.
	TTL time.Duration

	// Grace is added to the TTL before the session ends, for renewals over a network.
	// SessionInfo.TTL does not include it.
	Grace time.Duration

	// LockDelay is how long no session is granted a lock after its holder was lost (S32). Zero
	// means DefaultLockDelay, NoLockDelay none.
	LockDelay time.Duration

	// Behavior says what happens to the locked keys at the end.
	Behavior Behavior

	// Lifetime says whether the session ends with its process.
	Lifetime Lifetime

	// Node is the node of the catalog that the session is bound to. Empty means Options.Node.
	Node string

	// Checks are IDs of checks of the node. The session ends when one becomes critical or is
	// removed.
	Checks []string

	// Meta describes the holder, in at most MaxKeySize bytes.
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
		return engine.CheckName("SessionOptions.Name", o.Name)
	}
	if err := engine.CheckTTL("SessionOptions.TTL", o.TTL); err != nil {
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
	case o.LockDelay > 0 && o.LockDelay < MinTTL:
		return engine.TooShort("SessionOptions.LockDelay", o.LockDelay, MinTTL)
	case o.LockDelay > MaxLockDelay:
		return invalid("SessionOptions.LockDelay is %v, more than %v", o.LockDelay, MaxLockDelay)
	case o.Behavior > DeleteKeys:
		return invalid("SessionOptions.Behavior is %d, not a Behavior", o.Behavior)
	case o.Lifetime > Independent:
		return invalid("SessionOptions.Lifetime is %d, not a Lifetime", o.Lifetime)
	case len(o.Node) > MaxKeySize:
		return engine.CheckName("SessionOptions.Node", o.Node)
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

// Session is the handle on a session, which all callers share.
type Session struct {
	_ noCopy

	// The two fit one line of the processor's cache: see engine.Session and BenchmarkRenew.
	db    *DB
	state engine.Session
}

// sessionHandle has the rest of a Session, most of it for the session's end.
type sessionHandle struct {
	session *Session
	ending  ending.Ending
}

// newHandle allocates a session and its handle.
func (db *DB) newHandle() *engine.Session {
	s := &Session{db: db}
	s.state.SetOwner(&sessionHandle{session: s})
	return &s.state
}

// handleOf returns the handle of the session.
func handleOf(s *engine.Session) *sessionHandle { return s.Owner.(*sessionHandle) }

// noCopy makes go vet report each copy of the struct that it is in.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// NewSession creates a session, whose TTL runs from the call. It returns catalog.ErrNoNode,
// ErrNoCheck or ErrCheckCritical for a node or check that the session cannot be bound to (S16 to
// S18).
func (db *DB) NewSession(opts *SessionOptions) (*Session, error) {
	if opts == nil {
		opts = &SessionOptions{}
	}
	return write(db, "new session", opts.Name, func(tx *engine.Txn) (*Session, error) {
		if err := opts.validate(); err != nil {
			return nil, err
		}
		s, err := tx.NewSession(opts.row(db.newID()))
		if err != nil {
			return nil, err
		}
		return handleOf(s).session, nil
	})
}

// row returns the row of a new session.
func (o *SessionOptions) row(id schema.ID) schema.Session {
	return schema.Session{
		ID: id, Name: o.Name, Node: o.Node, TTL: o.TTL, Grace: o.Grace,
		LockDelay: o.lockDelay(), Behavior: uint8(o.Behavior), Lifetime: uint8(o.Lifetime),
		Checks: slices.Clone(o.Checks), Meta: maps.Clone(o.Meta),
	}
}

// Session returns the handle on a live session. It blocks until the session is durable. Although it
// only reads, it returns ErrClosed and ErrFailed as a write does.
func (db *DB) Session(id SessionID) (*Session, error) {
	return write(db, "session", "", func(tx *engine.Txn) (*Session, error) {
		s, err := tx.Session(schema.ID(id))
		if err != nil {
			return nil, err
		}
		return handleOf(s).session, nil
	})
}

// SessionInfo describes the published session, and reports whether there is one. It takes no lock.
func (db *DB) SessionInfo(id SessionID) (SessionInfo, bool) {
	return infoOf(db.rows.Sessions.Get(string(id[:])))
}

// Sessions yields the handle on every session that lives when the loop begins, the oldest first. It
// holds the database's lock for a time proportional to the number of sessions.
func (db *DB) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		db.writer.LockBeside()
		live := db.engine.PublishedSessions()
		db.writer.Unlock()
		engine.SortByAge(live)
		for _, s := range live {
			if !yield(handleOf(s).session) {
				return
			}
		}
	}
}

// EndSession ends a session from outside, with ErrDestroyed and its lock-delay (S32).
func (db *DB) EndSession(id SessionID) error {
	err := db.update(func(tx *engine.Txn) error { return endSession(tx, id) })
	return wrap("end session", "", err)
}

func endSession(tx *engine.Txn, id SessionID) error {
	s, err := tx.LiveSession(schema.ID(id))
	if err == nil {
		tx.EndSession(s, ErrDestroyed)
	}
	return err
}

// Info describes the session.
func (s *Session) Info() SessionInfo { return sessionInfo(s.state.Row) }

// ID returns the session's ID.
func (s *Session) ID() SessionID { return SessionID(s.state.Row.ID) }

// Done returns a channel that is closed when the session has ended and its end is durable.
func (s *Session) Done() <-chan struct{} { return handleOf(&s.state).ending.Done() }

// Err returns nil while the session lives, and then an *EndedError with the cause.
func (s *Session) Err() error { return handleOf(&s.state).ending.Err() }

// Close ends the session, without a lock-delay (G7). A repeated call returns nil. If the session
// has ended for another cause, Close changes nothing, and returns ErrNoSession and the cause. If
// the database was closed and its file keeps the session, Close returns ErrClosed. After ErrCommit
// the session still lives, and Close may be called again.
func (s *Session) Close() error { return s.wrap("close session", s.close()) }

func (s *Session) close() error {
	if s.Err() == nil {
		err := s.db.update(func(tx *engine.Txn) error {
			if s.state.Live() {
				tx.EndSession(&s.state, ErrClosed)
			}
			return nil
		})
		if err != nil && err != errDatabaseClosed { // after which only the file may keep s
			return err
		}
	}
	if ended := s.Err(); ended != nil && !errors.Is(ended, ErrClosed) {
		return ended
	}
	s.db.writer.Lock()
	defer s.db.writer.Unlock()
	if s.state.Live() && s.db.rows.Durable() { // the database was closed, and its file keeps s
		return s.db.writer.Refused()
	}
	return nil
}

// wrap is wrap with the session's ID, but does not format it for nil: a renewal takes less time.
func (s *Session) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return wrap(op, s.ID().String(), err)
}
