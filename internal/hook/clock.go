package hook

import (
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/store"
)

// Clock is the clock of a database that is tested or measured. It is given to one database at a
// time. The zero value is not usable: the Clock in it has to be set.
type Clock struct {
	clock.Clock

	// Hooks are set before the database is made.
	Hooks Hooks

	// Rehearse makes a database of lockd.New commit as a database on a file does, but to nowhere.
	Rehearse bool

	// Checked makes a call by the function of an Update panic if it would wait for itself.
	Checked bool

	// Unpaced makes a database on a file commit at once: a commit does not wait for the callers
	// that the commit before has answered. It is there to measure what that wait is worth, and what
	// it costs in a busy program.
	Unpaced bool

	// Controls is set by lockd.New and lockd.Open.
	Controls Controls
}

// Hooks are called by the database; nil ones are not. All except those of File, Handed and Turns
// may be called under its lock: they must neither wait nor call what takes that lock.
type Hooks struct {
	// File has hooks around what is written to a file. A database that rehearses calls those around
	// a commit too, on the goroutine that commits.
	File File

	// Renewal is called before a session is renewed: by its Renew, or because it is kept alive. An
	// error means that the renewal is lost, and Renew returns it.
	Renewal func(session [16]byte) error

	// WaitsMoved is called when a call has begun or ceased to wait for a lock or to keep a session
	// alive.
	WaitsMoved func()

	// Published is called when something has been published, before anything except losses is told
	// of it.
	Published func()

	// Ends is called with the name of each thing that is ended because it is due: see
	// engine.Config.
	Ends func(due string)

	// NewID names a new session.
	NewID func() [16]byte

	// Handed is called by a call that is about to return a lock or a slot.
	Handed func(Held)

	// Turns decides which goroutine goes on.
	Turns Turns
}

// File are hooks around what is written to a file.
type File = store.Hooks

// Controls are the functions by which a test drives and inspects a database, beside what users
// have. They may be called by many goroutines.
type Controls struct {
	// Next returns the next instant at which the database has something to do. It reports false
	// if there is none.
	Next func() (time.Time, bool)

	// CatchUp does all that is due, and returns when everything that was decided is told, or, once
	// held is closed, when everything is decided.
	CatchUp func(held <-chan struct{})

	// Expire lets the session's TTL pass at once, and decides its end. It returns an error if it
	// cannot.
	Expire func(session [16]byte) error

	// Waiters returns how many calls wait for the key's lock.
	Waiters func(key string) int

	// Waits returns all calls that wait for locks.
	Waits func() []Wait

	// KeptAlive reports whether a call keeps the session alive.
	KeptAlive func(session [16]byte) bool

	// Check returns an error if the state is not consistent, which is a bug in the database.
	Check func() error

	// Topics returns how many scopes are watched.
	Topics func() int

	// States returns the number of keys of which something is known beside their rows.
	States func() int

	// NewestIndex returns the index of the newest transaction, durable or not.
	NewestIndex func() uint64

	// Deadlines returns how many instants the database waits for.
	Deadlines func() int

	// NewestSessions returns the IDs of the sessions that live, durable or not.
	NewestSessions func() [][16]byte
}

// Wait is a call that waits for the locks of the keys, or for a slot of a semaphore.
type Wait struct {
	Keys    []string // or the key of the semaphore
	Slot    bool     // it waits for a slot of a semaphore, not for locks
	Session [16]byte
	Name    string // of the session
}
