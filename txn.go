package lockd

import (
	"iter"
	"unsafe"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Txn is a transaction. DB.Update passes it to its function. Its methods apply the rules to the
// newest state, its own writes included; none blocks. All its writes carry one index (I12), and
// become visible and durable together, or not at all. Only that function may use the Txn, on one
// goroutine. After it has returned, every method of the Txn panics, and so does a loop over one of
// its iterators.
type Txn struct {
	db    *DB
	rules *engine.Txn
	ended bool
}

// Update runs fn in a transaction. If fn returns an error, Update undoes its writes and returns the
// error as it is. A panic or runtime.Goexit of fn undoes them too, and goes on.
//
// No other write runs while fn does, so fn must not call a method of the database, its sessions or
// its locks that writes, waits or takes a Snapshot: that call never returns. (With package
// lockdtest, and with the build tag invariants, it panics.) Other reads of the database show the
// published state, without fn's writes. Other calls that write wait for fn, also if their contexts
// end meanwhile. All times are judged as of the beginning of fn, such as whether a TTL has passed.
// An Update of a second or more is logged.
func (db *DB) Update(fn func(tx *Txn) error) error {
	mustHave(fn != nil, "function")
	return db.transact(fn, fn)
}

// transact is Update for body, which calls the user's fn.
func (db *DB) transact(fn, body func(tx *Txn) error) error {
	var refusal *Error // has body's error, whose own type may make a comparison panic
	tx := &Txn{db: db}
	err := db.writer.Update(func(rules *engine.Txn) error {
		db.logger.UpdateBegins(rules.Time(), entry(fn))
		defer func() {
			tx.ended = true // before the commit, during which other calls may write
			db.logger.UpdateEnds()
		}()
		tx.rules = rules
		if err := body(tx); err != nil {
			refusal = &Error{Err: err}
			return refusal
		}
		return nil
	})
	if refusal != nil && err == error(refusal) {
		return refusal.Err // the caller's own error, as it is
	}
	return wrap("update", "", err)
}

// entry returns the address of the code of fn. With reflect, each fn would escape to the heap.
func entry(fn func(tx *Txn) error) uintptr { return **(**uintptr)(unsafe.Pointer(&fn)) }

func (tx *Txn) check() {
	if tx.ended {
		panic("lockd: use of a Txn after its Update has ended")
	}
}

// enter begins a method that may change locks or sessions. All methods that write call it, except
// those that write a value and leave the key's lock alone.
func (tx *Txn) enter() {
	tx.check()
	tx.db.writer.LockBeside()
}

// leave ends what enter began.
func (tx *Txn) leave() { tx.db.writer.Unlock() }

// Index returns the index that the transaction's writes have if Update returns nil.
func (tx *Txn) Index() uint64 {
	tx.check()
	return tx.rules.Index()
}

// Get is as Snapshot.Get.
func (tx *Txn) Get(key string) (Entry, bool) {
	tx.check()
	row := tx.rules.Get(key)
	return entryOf(row), row != nil
}

// Prefix is as Snapshot.Prefix. The loop may write, and comes to the keys that it makes ahead.
func (tx *Txn) Prefix(prefix string) iter.Seq2[string, Entry] {
	tx.check()
	return func(yield func(string, Entry) bool) {
		tx.check() // the loop may have been carried out of the function, at any step
		for key, row := range tx.rules.Prefix(prefix) {
			if !yield(key, entryOf(row)) {
				return
			}
			tx.check()
		}
	}
}

// Put is as DB.Put.
func (tx *Txn) Put(key string, value []byte, opts *PutOptions) (Entry, error) {
	tx.check()
	row, err := put(tx.rules, key, value, opts)
	return entryOf(row), wrap("put", key, err)
}

// CompareAndSwap is as DB.CompareAndSwap.
func (tx *Txn) CompareAndSwap(
	key string, index uint64, value []byte, opts *PutOptions,
) (Entry, error) {
	tx.check()
	row, err := compareAndSwap(tx.rules, key, index, value, opts)
	return entryOf(row), wrap("compare and swap", key, err)
}

// Delete is as DB.Delete.
func (tx *Txn) Delete(key string) (bool, error) {
	tx.enter()
	defer tx.leave()
	deleted, err := deleteKey(tx.rules, key)
	return result(deleted, "delete", key, err)
}

// CompareAndDelete is as DB.CompareAndDelete.
func (tx *Txn) CompareAndDelete(key string, index uint64) (bool, error) {
	tx.enter()
	defer tx.leave()
	deleted, err := compareAndDelete(tx.rules, key, index)
	return result(deleted, "compare and delete", key, err)
}

// DeletePrefix is as DB.DeletePrefix.
func (tx *Txn) DeletePrefix(prefix string) (int, error) {
	tx.enter()
	defer tx.leave()
	n, err := deletePrefix(tx.rules, prefix)
	return result(n, "delete prefix", prefix, err)
}

// DeleteAll is as DB.DeleteAll.
func (tx *Txn) DeleteAll() (int, error) {
	tx.enter()
	defer tx.leave()
	return tx.rules.DeletePrefix(""), nil
}

// Lock acquires the key's lock for a session, and creates the key if need be. It succeeds if the
// lock is free (K13, K14), and again for the session that holds the lock (K15, K16).
// LockOptions.Key and MaxHold, which are for handles, are ErrInvalid.
//
// It returns a *LockedError if the lock is held by another session (K17), delayed (K18), or
// promised to waiters (G9), ErrNoSession (K20), and ErrInvalid for an empty key or session (K19).
func (tx *Txn) Lock(key string, session SessionID, opts *LockOptions) (Entry, error) {
	tx.enter()
	defer tx.leave()
	row, err := tx.lock(key, session, opts)
	return result(entryOf(row), "lock", key, err)
}

func (tx *Txn) lock(key string, session SessionID, opts *LockOptions) (*schema.Key, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.rules().Policy != engine.LeaveKey {
		return nil, invalid("LockOptions.Key is for Session.Lock, not for Txn.Lock")
	}
	if opts.maxHold() != 0 {
		return nil, invalid("LockOptions.MaxHold is for Session.Lock, not for Txn.Lock")
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return tx.rules.Lock(key, schema.ID(session), opts.rules())
}

// Unlock releases the key's lock, without a lock-delay (K39); the key keeps its value and flags
// (K21). It returns ErrNotHeld if the session does not hold the lock, or there is no such key or
// session (K22, K23, K25).
func (tx *Txn) Unlock(key string, session SessionID) (Entry, error) {
	tx.enter()
	defer tx.leave()
	row, err := tx.unlock(key, session)
	return result(entryOf(row), "unlock", key, err)
}

func (tx *Txn) unlock(key string, session SessionID) (*schema.Key, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return tx.rules.Unlock(key, schema.ID(session))
}

// CheckSequencer returns ErrNotHeld unless the lock that q names is held by this very grant (K41).
func (tx *Txn) CheckSequencer(q Sequencer) error {
	tx.enter() // a renewal moves the deadline of the session meanwhile
	defer tx.leave()
	return wrap("check sequencer", q.Key, proves(tx.rules, q))
}

// EndSession is as DB.EndSession.
func (tx *Txn) EndSession(id SessionID) (err error) {
	tx.enter()
	defer tx.leave()
	return wrap("end session", "", endSession(tx.rules, id))
}

// Holders is as Snapshot.Holders. It yields the holders at the moment of the call.
func (tx *Txn) Holders(key string) iter.Seq[Holder] {
	tx.enter()
	defer tx.leave()
	holders := holdersOf(tx.rules.Holders(key))
	return func(yield func(Holder) bool) {
		tx.check() // the loop may have been carried out of the function, at any step
		for _, holder := range holders {
			if !yield(holder) {
				return
			}
			tx.check()
		}
	}
}
