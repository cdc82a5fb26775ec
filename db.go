package lockd

import (
	"errors"
	"fmt"

	"github.com/lockd/lockd/internal/ending"
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/hub"
	"github.com/lockd/lockd/internal/logger"
	"github.com/lockd/lockd/internal/writer"
	"github.com/lockd/lockd/store"
)

// DB is a database of keys, locks and sessions, in memory or on one file.
type DB struct {
	node   string
	rows   *store.Store
	engine *engine.Engine
	writer *writer.Writer
	hub    *hub.Hub[engine.Record]
	limits *expiry.Limits // the limits of the calls of Wait
	logger *logger.Logger // nil: everything is discarded
	hooks  *hook.Hooks    // set by a test, or empty
	closed chan struct{}  // closed when Close is done

	keepers map[*ending.Ending]struct{} // one for each Keeper; protected by the writer's mutex
}

// Node returns Options.Node.
func (db *DB) Node() string { return db.node }

// Err returns nil while the database takes writes, and then ErrClosed or ErrFailed.
func (db *DB) Err() error { return wrap("", "", db.writer.Refused()) }

// update runs fn as a write, and returns when the write is durable.
func (db *DB) update(fn func(tx *engine.Txn) error) error { return db.writer.Do(fn) }

// write runs fn as a write of the call named op, and returns fn's result when the write is durable.
func write[T any](
	db *DB, op, key string, fn func(tx *engine.Txn) (T, error),
) (T, error) {
	var value T
	err := db.update(func(tx *engine.Txn) (err error) {
		value, err = fn(tx)
		return err
	})
	return result(value, op, key, err)
}

// result is what a call returns: the value, or only the error if there is one.
func result[T any](value T, op, key string, err error) (T, error) {
	if err != nil {
		var none T
		return none, wrap(op, key, err)
	}
	return value, nil
}

// refused returns err, which refuses the arguments of a call. If there is one and the database
// takes no writes any more, it returns the reason for that instead.
func (db *DB) refused(err error) error {
	if err != nil {
		if refusal := db.writer.Refused(); refusal != nil {
			return refusal
		}
	}
	return err
}

// orClosed is refused for calls that only read. Such calls go on after the database has failed, so
// only ErrClosed takes the place of err.
func (db *DB) orClosed(err error) error {
	if refusal := db.refused(err); errors.Is(refusal, ErrClosed) {
		return refusal
	}
	return err
}

var errDatabaseClosed = fmt.Errorf("database %w", ErrClosed)

// waitsMoved tells a test that a call has begun or ceased to wait, or to keep a session alive.
func (db *DB) waitsMoved() {
	if db.hooks.WaitsMoved != nil {
		db.hooks.WaitsMoved()
	}
}

// mustHave panics unless the argument is there: a nil argument is a bug of the caller.
func mustHave(there bool, argument string) {
	if !there {
		panic("lockd: nil " + argument)
	}
}
