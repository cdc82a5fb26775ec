package lockd

import (
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Fenced writes only while one grant of a lock is held. Each write checks that in its transaction.
// A Fenced may be copied and kept.
type Fenced struct {
	db    *DB
	proof Sequencer
}

// If returns a Fenced, whose writes are done only while the grant that proof names holds its lock.
// The lock may be that of the written key, or of any other. Otherwise, and always with a zero
// proof, the writes return ErrNotHeld.
func (db *DB) If(proof Sequencer) Fenced { return Fenced{db, proof} }

// Put is as DB.Put.
func (f Fenced) Put(key string, value []byte, opts *PutOptions) (Entry, error) {
	row, err := fenced(f, "put", key, func(tx *engine.Txn) (*schema.Key, error) {
		return put(tx, key, value, opts)
	})
	return entryOf(row), err
}

// CompareAndSwap is as DB.CompareAndSwap.
func (f Fenced) CompareAndSwap(
	key string, index uint64, value []byte, opts *PutOptions,
) (Entry, error) {
	row, err := fenced(f, "compare and swap", key, func(tx *engine.Txn) (*schema.Key, error) {
		return compareAndSwap(tx, key, index, value, opts)
	})
	return entryOf(row), err
}

// Delete is as DB.Delete.
func (f Fenced) Delete(key string) (bool, error) {
	return fenced(f, "delete", key, func(tx *engine.Txn) (bool, error) {
		return deleteKey(tx, key)
	})
}

// Update is as DB.Update. It checks the lock before it calls fn. While fn runs, no other call can
// end the grant.
func (f Fenced) Update(fn func(tx *Txn) error) error {
	mustHave(fn != nil, "function")
	return f.db.transact(fn, func(tx *Txn) error {
		tx.enter()
		err := proves(tx.rules, f.proof)
		tx.leave()
		if err != nil {
			return wrap("update", f.proof.Key, err)
		}
		return fn(tx)
	})
}

// fenced is write for a call that is done only while the lock is held.
func fenced[T any](
	f Fenced, op, key string, fn func(tx *engine.Txn) (T, error),
) (T, error) {
	return write(f.db, op, key, func(tx *engine.Txn) (value T, err error) {
		if err = proves(tx, f.proof); err == nil {
			value, err = fn(tx)
		}
		return value, err
	})
}

// CheckSequencer returns nil if, in the published state, the lock that q names is held by this very
// grant, and ErrNotHeld otherwise. Although it only reads, it returns ErrClosed and ErrFailed as a
// write does. The lock may be lost before the caller acts on the answer; DB.If checks in the
// transaction of the write.
func (db *DB) CheckSequencer(q Sequencer) error {
	err := db.writer.Refused()
	if err == nil {
		err = db.engine.Proves(q.rules())
	}
	return wrap("check sequencer", q.Key, err)
}
