package hook

import (
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/store"
)

// Clock is the clock of a database under test. It is given to one database at a time. One that
// lockd.New makes commits as one on a file does, but to nowhere.
// The zero value is not usable: Mock has to be set, and of the Hooks Renewal and WaitsMoved.
type Clock struct {
	*clock.Mock

	// Hooks are set before the database is made.
	Hooks Hooks

	// Door is set by lockd.New and lockd.Open.
	Door Door
}

// Hooks are called by the database. But for BeforeCommit, AfterCommit, Handed and Turns they are
// called under its lock: they must neither wait nor call what takes it.
type Hooks struct {
	// BeforeCommit is called before each commit, by the goroutine that commits. Its error fails the
	// commit.
	BeforeCommit func() error

	// AfterCommit is called by the same goroutine when the commit is done. Its error makes it fail
	// nevertheless.
	AfterCommit func() error

	// Renewal is called before a session is renewed: by its Renew, or because it is kept alive. An
	// error means that the renewal is lost, and Renew returns it.
	Renewal func(session [16]byte) error

	// WaitsMoved is called when a call has begun or ceased to wait for a lock or to keep a session
	// alive.
	WaitsMoved func()

	// Published is called when something has been published, before anything is told of it but
	// losses.
	Published func()

	// NewID names a new session.
	NewID func() [16]byte

	// Handed is called by a call that is about to return a lock or a slot.
	Handed func(Held)

	// Turns decides which goroutine goes on.
	Turns Turns
}

// File has the hooks around a commit, to a file or to nowhere.
func (h *Hooks) File() store.Hooks {
	return store.Hooks{BeforeCommit: h.BeforeCommit, AfterCommit: h.AfterCommit}
}

// Door is what a test may do to the database beside what users may. Its functions may be called by
// many goroutines.
type Door struct {
	// Next returns the next instant at which the database has something to do. It reports false
	// if there is none.
	Next func() (time.Time, bool)

	// CatchUp does all that is due, and returns when everything that was decided is told; or, when
	// held is closed, is decided.
	CatchUp func(held <-chan struct{})

	// Expire makes the session's time be up, and decides its end. It returns an error if that
	// cannot be.
	Expire func(session [16]byte) error

	// Waiters returns how many calls wait for the key's lock.
	Waiters func(key string) int

	// Waits returns all calls that wait for locks.
	Waits func() []Wait

	// KeptAlive reports whether a call keeps the session alive.
	KeptAlive func(session [16]byte) bool

	// Check returns an error if the state is not consistent, which is a bug of the database's.
	Check func() error
}

// Wait is a call that waits for the locks of the keys, or for a slot of a semaphore.
type Wait struct {
	Keys    []string // or the semaphore's own
	Slot    bool     // of a semaphore is what it waits for, and not locks
	Session [16]byte
	Name    string // of the session
}
