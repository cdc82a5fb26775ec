package lockd

import (
	"bytes"
	"fmt"
	"iter"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Kinds of tombstones.
const (
	graveKey     = 'k'
	gravePrefix  = 'p'
	graveSession = 's'
)

// Marks.
const (
	markSessions = "sessions" // the index of the last change of any session
	markCatalog  = "catalog"  // and that of the catalog
	markRestored = "restored" // the index of the last restoring that had to carry one over
)

// Txn is a transaction: what the function of an Update is given. Its methods apply the rules to
// the newest state, its own writes included; none of them blocks. All that it writes carries one
// index (I12) and becomes visible, durable and told at once, or not at all.
//
// It may be used only inside that function and by one goroutine; afterwards every method panics,
// and so does the next step of a loop over what Prefix or Attachments yields. The zero value is not
// usable.
type Txn struct {
	db      *DB
	ended   bool
	turn    bool      // it has the turn of mu: see mutex
	now     time.Time // valid if clocked
	clocked bool

	effects []effect            // what is decided outside the tables
	freed   []string            // keys whose queue has to be looked at
	passed  []string            // keys whose holders have changed, while its function runs
	causes  map[string]loss     // why the lock of a key ended, where the key does not tell
	ends    map[SessionID]error // why sessions ended
	locked  map[string]uint64   // the last lock index of a key that it has locked and deleted
}

// Update runs fn in a transaction. It blocks until what fn wrote is durable, and, if fn wrote
// nothing or returned an error, until what it saw is.
//
// If fn returns an error, panics or calls runtime.Goexit, nothing that it did remains, and Update
// returns the error as it is, or goes on panicking. Update also returns ErrClosed, ErrFailed or
// ErrCommit, with nothing changed. There is no limit on the number of operations.
//
// Nothing else is written while fn runs, so it must not wait, and must not call what waits for it:
// methods of this database, its sessions or its locks that write, wait, or take a Snapshot. Such a
// call never returns; in a database of package lockdtest, and in a build with -tags=invariants, it
// panics and says where it is. What Txn has in their place is for fn. fn may call what only names a
// thing, such as Session.ID and Lock.Sequencer, and what shows the published state, without fn's
// writes: DB.Get, DB.Stats, DB.Locks and DB.History. These answer for others too, as does
// Session.Renew, however long fn takes; if that is a second or more, Options.Logger is told while
// it lasts. A nil fn panics.
func (db *DB) Update(fn func(tx *Txn) error) error {
	checkUpdate(fn)
	var refusal *Error // carries fn's error, which may be of a type that cannot be compared
	db.mu.LockTurn()
	tx := &Txn{db: db, turn: true}
	defer tx.endTurn()
	err := db.transactLocked(tx, func(tx *Txn) error {
		err := tx.call(fn)
		tx.outlast()
		if err != nil {
			refusal = &Error{Err: err}
			return refusal
		}
		return nil
	})
	if refusal != nil && err == error(refusal) {
		return refusal.Err // as it is, for it is the caller's
	}
	return wrap("update", "", err)
}

// checkUpdate refuses what is a caller's bug.
func checkUpdate(fn func(tx *Txn) error) {
	if fn == nil {
		panic("lockd: nil function")
	}
}

func (tx *Txn) check() {
	if tx.ended {
		panic("lockd: use of a Txn after its Update has ended")
	}
}

// Index is the index that the transaction's writes carry. It means nothing to anybody else before
// Update has returned nil: if the commit fails, then after a restart it may be another's.
func (tx *Txn) Index() uint64 {
	tx.check()
	return tx.db.store.Next()
}

// outlast is called after code of the user's, which may have taken long: the transaction keeps its
// reading of the clock, and the timer is set by another one.
func (tx *Txn) outlast() {
	if !tx.db.reading.IsZero() {
		tx.clock()
		tx.db.reading = time.Time{}
	}
}

// clock reads the database's clock, once in a write.
func (tx *Txn) clock() time.Time {
	if !tx.clocked {
		tx.now, tx.clocked = tx.db.reading, true
		if tx.now.IsZero() {
			tx.now = tx.db.now()
		}
	}
	return tx.now
}

// Get returns the key's entry, and whether there is one.
func (tx *Txn) Get(key string) (Entry, bool) {
	tx.check()
	row := tx.db.store.Keys.Newest(key)
	return entryOf(row), row != nil
}

// Prefix yields the keys that begin with the prefix, in order, with their entries. The loop may
// write. It is a single-use iterator.
func (tx *Txn) Prefix(prefix string) iter.Seq2[string, Entry] {
	tx.check()
	return func(yield func(string, Entry) bool) {
		tx.check() // the loop may have been carried out of the function, at any step
		for key, row := range tx.db.store.Keys.Prefix(prefix) {
			if !yield(key, entryOf(row)) {
				return
			}
			tx.check()
		}
	}
}

// Put is DB.Put within the transaction.
func (tx *Txn) Put(key string, value []byte, opts *PutOptions) (entry Entry, err error) {
	tx.check()
	defer label(&err, "put", key)
	if err := admit(key, value); err != nil {
		return Entry{}, err
	}
	return entryOf(tx.put(key, value, opts.flags())), nil
}

// CompareAndSwap is DB.CompareAndSwap within the transaction.
func (tx *Txn) CompareAndSwap(
	key string, index uint64, value []byte, opts *PutOptions,
) (entry Entry, err error) {
	tx.check()
	defer label(&err, "compare and swap", key)
	if err := admit(key, value); err != nil {
		return Entry{}, err
	}
	if err := tx.checkIndex(key, index); err != nil {
		return Entry{}, err
	}
	return entryOf(tx.put(key, value, opts.flags())), nil
}

// admit refuses what can be neither a key nor a value.
func admit(key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return checkValue(value)
}

// put writes value and flags and leaves the lock alone (K1 to K3).
func (tx *Txn) put(key string, value []byte, flags uint64) *schema.Key {
	row := tx.db.store.Keys.Newest(key)
	if row != nil && row.Flags == flags && bytes.Equal(row.Value, value) {
		return row
	}
	draft, next := tx.draft(key)
	next.Value, next.Flags = bytes.Clone(value), flags
	return tx.write(draft)
}

// draft returns what may become the newest row of the key: as it is, or a new one.
func (tx *Txn) draft(key string) (*store.Draft[schema.Key], *schema.Key) {
	draft := tx.db.store.Keys.Draft(key)
	row := draft.Row()
	if row.Key == "" {
		row.Key, row.CreateIndex = key, tx.db.store.Next()
	}
	return draft, row
}

// write makes the draft the newest row of its key.
func (tx *Txn) write(draft *store.Draft[schema.Key]) *schema.Key {
	row := draft.Row()
	row.ModifyIndex = tx.db.store.Next()
	tx.db.store.Keys.Write(row.Key, draft)
	return row
}

// Delete is DB.Delete within the transaction.
func (tx *Txn) Delete(key string) (deleted bool, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "delete", key)
	if err := checkKey(key); err != nil {
		return false, err
	}
	row := tx.db.store.Keys.Newest(key)
	if row == nil {
		return false, nil
	}
	tx.remove(row, ErrKeyDeleted)
	tx.bury(row)
	return true, nil
}

// CompareAndDelete is DB.CompareAndDelete within the transaction.
func (tx *Txn) CompareAndDelete(key string, index uint64) (deleted bool, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "compare and delete", key)
	if err := checkKey(key); err != nil {
		return false, err
	}
	row := tx.db.store.Keys.Newest(key)
	if row == nil {
		return false, nil
	}
	if row.ModifyIndex != index {
		return false, conflict("modify index is %d, not %d", row.ModifyIndex, index)
	}
	tx.remove(row, ErrKeyDeleted)
	tx.bury(row)
	return true, nil
}

// DeletePrefix is DB.DeletePrefix within the transaction.
func (tx *Txn) DeletePrefix(prefix string) (n int, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "delete prefix", prefix)
	if prefix == "" {
		return 0, invalid("prefix is empty, which means every key: DeleteAll does that")
	}
	if err := checkName("prefix", prefix); err != nil {
		return 0, err
	}
	return tx.removePrefix(prefix), nil
}

// DeleteAll is DB.DeleteAll within the transaction.
func (tx *Txn) DeleteAll() (int, error) {
	tx.enter()
	defer tx.leave()
	return tx.removePrefix(""), nil
}

// removePrefix deletes under one tombstone (K31).
func (tx *Txn) removePrefix(prefix string) int {
	n, known := 0, false
	for _, row := range tx.db.store.Keys.Prefix(prefix) {
		tx.remove(row, ErrKeyDeleted)
		n++
		known = known || !tx.made(row)
	}
	if known {
		tx.db.store.Bury(gravePrefix, prefix)
	}
	return n
}

// made reports whether the key is of this transaction: nobody has seen it, so that it goes moves no
// index. If there was another one before, that has its tombstone.
func (tx *Txn) made(row *schema.Key) bool { return row.CreateIndex == tx.db.store.Next() }

// bury leaves the tombstone of a key that is removed.
func (tx *Txn) bury(row *schema.Key) {
	if !tx.made(row) {
		tx.db.store.Bury(graveKey, row.Key)
	}
}

// remove deletes the row of a key; the tombstone is the caller's: see bury. The cause is why its
// lock ends, if it is held.
func (tx *Txn) remove(row *schema.Key, cause error) {
	tx.db.store.Keys.Delete(row.Key)
	if row.Fence == tx.db.store.Next() {
		if tx.locked == nil {
			tx.locked = make(map[string]uint64)
		}
		tx.locked[row.Key] = row.LockIndex
	}
	tx.explain(row, cause)
	tx.unhold(row, cause)
}

// release takes the lock off a key, which keeps all else (K33; for K21 see Unlock).
func (tx *Txn) release(row *schema.Key, cause error) *schema.Key {
	draft, next := tx.draft(row.Key)
	next.Session = schema.ID{}
	written := tx.write(draft)
	if cause != ErrUnlocked { // which is what a release means, if nothing is said
		tx.explain(row, cause)
	}
	tx.unhold(row, cause)
	return written
}

// loss is why the lock of one grant was over.
type loss struct {
	fence uint64
	cause error
}

// explain keeps why the lock of row is over, for the event that will tell of it.
func (tx *Txn) explain(row *schema.Key, cause error) {
	if row.Session == (schema.ID{}) {
		return
	}
	if tx.causes == nil {
		tx.causes = make(map[string]loss)
	}
	if _, earlier := tx.causes[row.Key]; !earlier {
		tx.causes[row.Key] = loss{row.Fence, cause}
	}
}

// unhold does what follows when the lock of row, as it was, is over: its handle loses it, and
// its queue is looked at when fn is through.
func (tx *Txn) unhold(row *schema.Key, cause error) {
	state := tx.db.lockOf(row.Key)
	if state == nil {
		return
	}
	tx.loseHandle(state, cause)
	if state.queue.Len() > 0 {
		tx.freed = append(tx.freed, row.Key)
	}
	tx.db.tidy(state)
}

// loseHandle takes its handle from a lock, if it has one.
func (tx *Txn) loseHandle(state *lockState, cause error) {
	if handle := state.handle; handle != nil {
		tx.db.setHandle(state, nil)
		e := tx.effect(lockLost)
		e.lock, e.cause = handle, cause
	}
}

// Lock acquires the key's lock for a session, as Consul does: it succeeds on a key that is free,
// which it creates if need be (K13, K14), and again for the session that holds it (K15, K16).
// LockOptions.Value is written with it; LockOptions.Key is for handles, and refused here.
//
// It returns a *LockedError if the lock is held by another session (K17), delayed (K18), or
// promised to those who wait for it (G9), ErrNoSession for a session that does not live (K20),
// and ErrInvalid for an empty key or session (K19).
func (tx *Txn) Lock(key string, session SessionID, opts *LockOptions) (entry Entry, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "lock", key)
	if err := opts.validate(); err != nil {
		return Entry{}, err
	}
	if opts.key() != LeaveKey {
		return Entry{}, invalid("LockOptions.Key is for Session.Lock, not for Txn.Lock")
	}
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	if err := tx.delayed(key); err != nil { // before the session is looked at (K35)
		return Entry{}, err
	}
	s, err := tx.session(session)
	if err != nil {
		return Entry{}, err
	}
	row := tx.db.store.Keys.Newest(key)
	if row != nil && row.Session == s.row.ID {
		if opts != nil && opts.Value != nil {
			row = tx.put(key, opts.Value, opts.Flags)
		}
		return entryOf(row), nil
	}
	if err := tx.obstructed(s, key, row); err != nil {
		return Entry{}, err
	}
	return entryOf(tx.grant(key, s, opts)), nil
}

// session returns the session that lives under the ID.
func (tx *Txn) session(id SessionID) (*Session, error) {
	if id.IsZero() {
		return nil, invalid("session is empty")
	}
	s := tx.db.sessions[id]
	if s == nil || !s.live {
		return nil, fmt.Errorf("%w: %s", ErrNoSession, id)
	}
	return s, nil
}

// delayed returns what to refuse the lock with while its lock-delay lasts.
func (tx *Txn) delayed(key string) *LockedError {
	state := tx.db.lockOf(key)
	if state == nil || state.delay == nil {
		return nil
	}
	remaining := state.delay.until.Sub(tx.clock())
	if remaining <= 0 {
		return nil
	}
	return &LockedError{
		Key: key, Obstacle: ObstacleDelay, Waiters: state.queue.Len(),
		Until: state.delay.until.Round(0), Remaining: remaining,
	}
}

// obstructed returns a *LockedError for s if row is locked, or its lock is promised to a queue.
func (tx *Txn) obstructed(s *Session, key string, row *schema.Key) error {
	held := row != nil && row.Session != schema.ID{}
	state := tx.db.lockOf(key)
	if !held && (state == nil || state.queue.Len() == 0) {
		return nil
	}
	refusal := &LockedError{Key: key, Obstacle: ObstacleQueue, Waiters: state.queue.Len()}
	if held {
		refusal.Obstacle = ObstacleHolder
		tx.describeHolder(refusal, s, row)
	}
	return refusal
}

// describeHolder adds to a refusal for s who holds the lock of row, and since when.
func (tx *Txn) describeHolder(refusal *LockedError, s *Session, row *schema.Key) {
	holder := tx.db.holder(row.Session)
	refusal.Holder, refusal.Fence = SessionID(row.Session), row.Fence
	refusal.HolderName, refusal.Own = holder.row.Name, holder == s
	if since := tx.db.instant(row.Granted); !since.IsZero() {
		refusal.Since, refusal.Held = since.Round(0), lasted(since, tx.clock())
	}
}

// grant gives a free lock to the session (K13, K14). The index of the grant is its fence. Of two
// grants in one transaction the later has the larger lock index, also if the key was deleted
// between them (G8).
func (tx *Txn) grant(key string, s *Session, opts *LockOptions) *schema.Key {
	draft, next := tx.draft(key)
	next.Session, next.Fence, next.Granted = s.row.ID, tx.db.store.Next(), tx.db.moment(tx.clock())
	tx.db.grantee = s
	next.LockIndex = 1 + max(next.LockIndex, tx.locked[key])
	if opts != nil && opts.Value != nil {
		next.Value, next.Flags = bytes.Clone(opts.Value), opts.Flags
	}
	tx.dropDelay(key)
	return tx.write(draft)
}

// Unlock releases the key's lock, which the session must hold; the key keeps its value and flags
// (K21). It sets no lock-delay (K39). It returns ErrNotHeld if the session does not hold it, or
// there is no such key or session (K22, K23, K25), and ErrInvalid for an empty key or session.
func (tx *Txn) Unlock(key string, session SessionID) (entry Entry, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "unlock", key)
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	if session.IsZero() {
		return Entry{}, invalid("session is empty")
	}
	row := tx.db.store.Keys.Newest(key)
	if row == nil || SessionID(row.Session) != session {
		return Entry{}, fmt.Errorf("%w: not by session %s", ErrNotHeld, session)
	}
	return entryOf(tx.release(row, ErrUnlocked)), nil
}

// forceUnlock takes the lock of one grant from whoever holds it, who may not know: the
// lock-delay of the session follows.
func (tx *Txn) forceUnlock(key string, fence uint64, reason string) error {
	row := tx.db.store.Keys.Newest(key)
	if row == nil || row.Session == (schema.ID{}) {
		return fmt.Errorf("%w: the lock is free", ErrNotHeld)
	}
	if row.Fence != fence {
		return fmt.Errorf("%w: fence %d has passed, the lock is held with fence %d", ErrNotHeld,
			fence, row.Fence)
	}
	holder := tx.db.sessions[SessionID(row.Session)]
	cause := ErrForced
	if reason != "" {
		cause = fmt.Errorf("%w: %s", ErrForced, reason)
	}
	tx.release(row, cause)
	tx.setDelay(key, holder.row.LockDelay)
	return nil
}

// checkIndex takes index 0 to mean that there must be no such key.
func (tx *Txn) checkIndex(key string, index uint64) error {
	row := tx.db.store.Keys.Newest(key)
	switch {
	case row == nil && index != 0:
		return conflict("the key does not exist")
	case row != nil && index == 0:
		return conflict("the key exists, its modify index is %d", row.ModifyIndex)
	case row != nil && row.ModifyIndex != index:
		return conflict("modify index is %d, not %d", row.ModifyIndex, index)
	}
	return nil
}

// CheckSequencer returns ErrNotHeld unless the lock that q names is held, by this very grant.
func (tx *Txn) CheckSequencer(q Sequencer) (err error) {
	tx.check()
	defer label(&err, "check sequencer", q.Key)
	return tx.proves(q)
}

// proves says whether the lock that q names is held by this very grant (K41).
func (tx *Txn) proves(q Sequencer) error { return proves(q, tx.db.store.Keys.Newest(q.Key)) }
