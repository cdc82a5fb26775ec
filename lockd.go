package lockd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/ending"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/hub"
	"github.com/lockd/lockd/internal/writer"
	"github.com/lockd/lockd/store"
)

// New returns an empty database in memory.
func New(opts *Options) (*DB, error) {
	options, err := opts.filled()
	if err != nil {
		return nil, wrap("new", "", err)
	}
	db := newDB(&options)
	if test, ok := options.Clock.(*hook.Clock); ok && test.Rehearse {
		db.rows.Rehearse(test.Hooks.File)
	}
	return result(db, "new", "", db.start(&options))
}

// Open returns the database on the file, and creates the file if there is none. Only one DB, of any
// process, has a file open: Open waits up to Options.OpenTimeout for the file, and then returns
// ErrInUse. With SyncAlways the state that Open has read is on disk when it returns (G3).
//
// Sessions whose process is gone end, as Options.Reopen says. The others live on, each with a full
// TTL (S28). Lock-delays go on by the wall clock, never longer than their full length.
//
// The file must not be removed or replaced while it is open. Open returns ErrCorrupt (also for an
// empty file) or ErrFormat for a file that it refuses, fs.ErrNotExist for a symbolic link that
// leads nowhere, ErrCommit if the file's state, or the end of a session, cannot be made durable,
// and ErrInvalid also for a file system that needs Options.AllowNetworkFS, or a file of 2 GiB or
// more in a program of 32 bits.
func Open(path string, opts *Options) (*DB, error) {
	options, err := opts.filledFor(path)
	if err != nil {
		return nil, wrap("open", "", err)
	}
	db := newDB(&options)
	if err := db.rows.Open(path, options.file()); err != nil {
		return nil, wrap("open", "", advised(err))
	}
	if err := db.start(&options); err != nil {
		return nil, wrap("open", path, errors.Join(advised(err), db.writer.CloseFile()))
	}
	return db, nil
}

// newTrial returns a temporary database in memory, in which the rows of a backup are tried against
// the rules. It logs nothing. Its node has a random name, which no row of a backup has. The default
// of the clock is the real one.
func newTrial(clock clock.Clock) *DB {
	db, err := New(&Options{
		Clock: clock, Node: rand.Text(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic("lockd: bug: a trial is refused: " + err.Error())
	}
	return db
}

// newDB makes a database from filled options. It is not started, and has no file yet.
func newDB(opts *Options) *DB {
	db := &DB{
		node: opts.Node, rows: store.New(), closed: make(chan struct{}),
		keepers: make(map[*ending.Ending]struct{}),
	}
	test, tested := opts.Clock.(*hook.Clock)
	if !tested {
		test = new(hook.Clock)
	}
	db.hooks = &test.Hooks
	db.engine = engine.New(db.rows, engine.Config{
		Node: db.node, NewSession: db.newHandle, LosesRenewal: db.losesRenewal,
		Slow: opts.Slow, Ends: test.Hooks.Ends,
	})
	db.writer = writer.New(writer.Config{
		Clock: opts.Clock, Engine: db.engine, Host: host{db}, Commit: ErrCommit, Failure: ErrFailed,
		Unpaced: test.Unpaced || test.Hooks.Turns != nil, Checked: test.Checked,
		Turns: test.Hooks.Turns,
	})
	db.limits = expiry.NewLimits(db.writer.Time, opts.Clock)
	db.logger = db.newLogger(opts)
	if tested {
		test.Controls = db.controls()
	}
	return db
}

// start loads the state that the store has, and ends sessions as opts.Reopen says.
func (db *DB) start(opts *Options) error {
	if err := db.engine.CheckReferences(); err != nil {
		return err
	}
	if err := db.rows.Secure(); err != nil {
		return fmt.Errorf("%w: %w", ErrCommit, err)
	}
	db.writer.Lock()
	db.engine.Load(db.writer.Time())
	db.writer.Unlock()
	db.hub = hub.New[engine.Record](opts.History, db.rows.Index())

	err := db.update(func(tx *engine.Txn) error {
		tx.Initialize()
		return nil
	})
	if err == nil {
		err = db.endOrphans(opts.Reopen)
	}
	if err != nil {
		db.writer.Rest()
		db.limits.Stop()
		db.logger.Close()
	}
	return err
}

// endOrphans ends the sessions whose process is gone, each at an index of its own.
func (db *DB) endOrphans(policy ReopenPolicy) error {
	if policy == EndNone {
		return nil
	}
	return db.writer.DoAll(func() error {
		end := endWith(ErrProcessGone)
		if policy == EndBoundWithoutDelay {
			end = func(tx *engine.Txn, s *engine.Session) {
				tx.EndSessionAfter(s, ErrProcessGone, 0)
			}
		}
		return db.endEach((*engine.Session).BoundToProcess, end)
	})
}

// endEach calls end for the chosen sessions, the oldest first, each in a transaction of its own
// (G5). It is called by the body of writer.DoAll or writer.Close.
func (db *DB) endEach(
	chosen func(*engine.Session) bool, end func(tx *engine.Txn, s *engine.Session),
) error {
	var errs []error
	for _, s := range db.engine.Sessions(chosen) {
		errs = append(errs, db.writer.Apply(func(tx *engine.Txn) error {
			end(tx, s)
			return nil
		}))
	}
	return errors.Join(errs...)
}

// endWith returns a function that ends a session with the cause.
func endWith(cause error) func(*engine.Txn, *engine.Session) {
	return func(tx *engine.Txn, s *engine.Session) { tx.EndSession(s, cause) }
}

// Close ends the database (G12). Sessions that are bound to the process, or are a Keeper's, end
// without lock-delays. For other sessions only the handles end, with ErrClosed, which is neither
// ErrNoSession nor ErrNotHeld.
//
// Close returns ErrCommit if the end could not be made durable, and ErrFailed if the database had
// failed before: then the next Open finds what it finds after a crash. A repeated call waits for
// the first, and returns nil.
func (db *DB) Close() error {
	err, first := db.writer.Close(errDatabaseClosed, db.windUp)
	if !first {
		<-db.closed
		return nil
	}
	db.writer.Rest()
	db.limits.Stop()
	db.writer.EndAll(func() { db.endAll(errDatabaseClosed) })
	db.hub.Close()
	err = errors.Join(err, db.writer.CloseFile())
	db.logger.Close() // after CloseFile, in which a step of a checkpoint may fail
	close(db.closed)
	return wrap("close", "", err)
}

// windUp ends the calls that wait and the sessions of this process, and releases the locks of calls
// that have returned without them.
func (db *DB) windUp() error {
	err := db.writer.Apply(func(tx *engine.Txn) error {
		tx.DismissAll(errDatabaseClosed)
		tx.ReleaseGivenUp()
		return nil
	})
	return errors.Join(err,
		db.endEach((*engine.Session).ClosesWithDatabase, endWith(errDatabaseClosed)))
}

// endAll ends every remaining wait, lock, session and keeper, without a write. If the file keeps
// the session, only the handles end. The caller holds the writer's mutex.
func (db *DB) endAll(why error) {
	refusal := db.writer.Refused()
	for _, s := range db.engine.AllSessions() {
		cause := why
		if why == errDatabaseClosed && db.rows.Durable() && !s.BoundToProcess() {
			cause = &kept{why}
		}
		for _, hold := range s.Held() {
			lockOf(hold).lose(cause)
		}
		handleOf(s).ending.End(&EndedError{Session: SessionID(s.Row.ID), Cause: cause})
	}
	for _, w := range db.engine.AllWaiters() {
		w.Err = refusal
		db.engine.Settle(w)
		db.settled(w)
	}
	for end := range db.keepers {
		end.End(refusal)
	}
}
