package lockdtest

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
)

// DB is a database under test, together with its clock. The zero value is not usable; New gives
// one.
//
// The methods of Mock that move the clock (Add, Set, WaitForAllTimers) do not wait for the
// database: Advance does. The methods of DB itself that can fail the test must be called by the
// goroutine that runs the test.
type DB struct {
	*clock.Mock
	*lockd.DB

	t        testing.TB
	controls *hook.Controls
	patience time.Duration
	bubbled  bool // it was made in a bubble

	mu       sync.Mutex // protects what follows; taken after the database's own
	moved    chan struct{}
	failures []error
	drops    map[lockd.SessionID]*drops
	hold     *hold
}

var _ clock.Clock = (*DB)(nil)

// New returns a database in memory, whose clock stands at the beginning of Unix time. Nil opts mean
// the defaults, except that a nil Options.Logger means the test's own output: the records stand
// beside the failure that they explain, and are shown only if the test fails, or with -v.
// Options.Clock is nil, or a *clock.Mock that the test has already made. Advance waits only for
// this database, even if others use the same Mock.
//
// The database is checked and closed when the test and its subtests are over. New fails the test at
// once if the options are not valid.
func New(t testing.TB, opts *lockd.Options) *DB {
	t.Helper()
	options := lockd.Options{}
	if opts != nil {
		options = *opts
	}
	mock, isMock := options.Clock.(*clock.Mock)
	switch {
	case isMock && mock == nil:
		t.Fatalf("lockdtest: Options.Clock is a *clock.Mock that is nil: leave it out, or give " +
			"clock.NewMock()")
	case options.Clock == nil:
		mock = clock.NewMock()
	case mock == nil:
		t.Fatalf("lockdtest: Options.Clock is a %T: leave it nil, or give a *clock.Mock",
			options.Clock)
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	db := &DB{
		Mock: mock, t: t, patience: patience, bubbled: inBubble(),
		moved: make(chan struct{}), drops: make(map[lockd.SessionID]*drops), hold: newHold(),
	}
	kit := &hook.Clock{Clock: mock, Rehearse: true, Checked: true, Hooks: hook.Hooks{
		File:    hook.File{BeforeCommit: db.beforeCommit},
		Renewal: db.renewal, WaitsMoved: db.waitsMoved,
	}}
	options.Clock = kit
	var err error
	if db.DB, err = lockd.New(&options); err != nil {
		t.Fatal(err)
	}
	db.controls = &kit.Controls
	t.Cleanup(db.finish)
	return db
}

// Advance moves the clock by d, and returns when everything that became due has happened, each
// thing at its instant: sessions that are kept alive are renewed, sessions and lock-delays end,
// locks are granted, and handles, waiting calls and watchers are told. It stops at every deadline
// on the way, which takes the mock a millisecond or two outside a bubble. While commits are held,
// what is due is decided, but told only after their release.
//
// It is for one goroutine at a time. A negative d fails the test, and so does a call in a bubble of
// testing/synctest if the database was made outside it.
func (db *DB) Advance(d time.Duration) {
	db.t.Helper()
	db.mustReach("Advance")
	if d < 0 {
		db.t.Fatalf("lockdtest: Advance by %v: the clock cannot go back", d)
	}
	end := db.Now().Add(d)
	db.Add(0) // lets goroutines act on what they were told before; in a bubble all of them do
	for db.catchUp(); ; db.catchUp() {
		now := db.Now()
		next, ok := db.controls.Next()
		if !ok || next.After(end) {
			if !now.Before(end) {
				return
			}
			next = end
		}
		if next.After(now) { // else the deadline has become due meanwhile
			db.Set(next)
		}
	}
}

// catchUp returns when the database has done all that is due now, and has told it. While commits
// are held, it returns when all that is due is decided.
func (db *DB) catchUp() {
	db.mu.Lock()
	held := db.hold.began
	db.mu.Unlock()
	db.controls.CatchUp(held)
}

// leaving is how long a waiting call may take to return when the test is over: if its context is
// the test's, that has just ended.
const leaving = time.Second

// finish checks the database and closes it, and reports what is wrong.
func (db *DB) finish() {
	db.t.Helper()
	if db.bubbled && !inBubble() {
		db.t.Errorf("lockdtest: New was called in a bubble of testing/synctest with the T of " +
			"outside: give it the T of the function of synctest.Test")
		return
	}
	var faults []string
	var done atomic.Bool
	go func() {
		faults = append(db.endFaults(), db.close()...)
		done.Store(true)
		db.waitsMoved()
	}()
	if !db.wait(db.patience, done.Load) {
		db.t.Errorf("lockdtest: the database cannot be closed: is there a function of an Update " +
			"that has not returned?")
		return
	}
	for _, text := range faults {
		db.t.Errorf("lockdtest: %s", text)
	}
}

// close closes the database, and returns what is wrong with the state in which the test leaves it.
func (db *DB) close() []string {
	var faults []string
	db.catchUp()
	if !db.wait(leaving, func() bool { return len(db.controls.Waits()) == 0 }) {
		for _, w := range db.controls.Waits() {
			faults = append(faults, fmt.Sprintf("when the test was over, a call of session %s "+
				"still waited for %s%s: release it, or end the call's context",
				describe(w), wanted(w), db.holders(w.Keys)))
		}
	}
	if err := db.controls.Check(); err != nil {
		faults = append(faults, fmt.Sprintf("the database is not consistent: %v", err))
	}
	if err := db.Close(); err != nil {
		faults = append(faults, err.Error())
	}
	return faults
}
