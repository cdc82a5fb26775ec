package lockd

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"path"
	"strings"

	"github.com/lockd/lockd/internal/schema"
)

// MaxLimit is the largest limit of a semaphore. Each grant and release of a slot takes time in
// proportion to how many are held.
const MaxLimit = 1 << 20

const (
	// semaphoreKey, after the prefix, is where a semaphore keeps its limit and holders.
	semaphoreKey = "/.lock"

	// semaphoreFlags are on all keys of a semaphore: Consul's official client wants them there.
	semaphoreFlags = 0xe0f69a2baa414de0
)

// Slot is a slot of a semaphore that is held, or was: having one is the only way to release it. Its
// methods may be called by many goroutines. The zero value is not usable; Session.Acquire and
// TryAcquire give one.
type Slot struct {
	lock *Lock // of the contender key
}

// Prefix names the semaphore.
func (s *Slot) Prefix() string { return prefixOf(s.lock.Key()) }

// Sequencer proves the slot: it is that of the contender key, prefix/session, which is locked for
// as long as the slot is held. DB.If and DB.CheckSequencer go by that key.
//
// It is not for a Guard, or any other resource that compares fences. Slots are held side by side,
// so a smaller fence does not mean that its holder is late: the newest slot would shut out the
// others. Who writes to such a resource takes the lock of what it writes as well, such as one row,
// and presents the sequencer of that lock, as in the example.
func (s *Slot) Sequencer() Sequencer { return s.lock.Sequencer() }

// Done returns a channel that is closed when the slot is no longer held: no later than anybody
// else is told of holding it (G10).
func (s *Slot) Done() <-chan struct{} { return s.lock.Done() }

// Err returns nil while the slot is held, and then an *EndedError with the cause, ErrUnlocked
// after Release, and also when somebody took the session off the holders of the semaphore.
func (s *Slot) Err() error { return s.lock.Err() }

// Context returns a child of parent that is cancelled when the slot is no longer held;
// context.Cause then gives what Err does. A nil parent panics.
func (s *Slot) Context(parent context.Context) context.Context { return s.lock.Context(parent) }

// Release gives the slot back; the first who waits for one has it in the same transaction. It sets
// no lock-delay (G7), and the session lives on. It blocks until that is durable.
//
// It returns nil, also when repeated. If the slot was lost before, it changes nothing, not even if
// the same session has a slot again, and returns an error that is ErrNotHeld and wraps the cause;
// if the database was closed and its file keeps the slot, one that is ErrClosed. After ErrCommit
// the slot is still held, and Release may be called again.
func (s *Slot) Release() error { return wrap("release", s.Prefix(), s.lock.unlock()) }

// Acquire takes a slot of the semaphore, and waits for one if need be: until fewer than limit are
// held, or lost and in their lock-delay. Those who wait are served in the order in which they began
// to (G9). A session whose slot was taken by force gets no other during its lock-delay: it keeps
// its place, and those behind it are served meanwhile. A slot that the session has and that has no
// handle, as after a restart, is taken over as it is. Slots have no order among their fences: see
// Slot.Sequencer for what that means to a resource outside lockd.
//
// SetLimit makes a semaphore, and so does the first to take a slot, with the limit that it names.
// From then on a limit of 0 means the semaphore's own, and any other has to be the same as that.
// SetLimit changes it, also for those who wait; who names the old one is refused after that, and
// who names 0 is not. If the semaphore is deleted while the call waits, the limit that it named
// makes it again.
//
// The semaphore is kept as Consul's official client does: the limit and the holders at the key
// prefix/.lock, and for each holder a key prefix/session, locked by it. Clients that go by these
// keys share the semaphore; they do not stand in the queue, and do not heed lock-delays, so the
// order and the delays hold among those who call Acquire and TryAcquire.
//
// It blocks until the slot is held and that is durable. If ctx ends first, nothing is left held
// that the session did not hold before, and the error is ctx's and also a *LockedError that says
// what was in the way, as Session.Lock's is. It returns ErrInvalid for a limit that is not between
// 0 and MaxLimit, or a prefix that is empty or no clean path, such as one that ends in a slash;
// ErrConflict if the semaphore has another limit than the one named, or has none and the limit is
// 0, if prefix/.lock has something else than a semaphore, or if the session has, or waits for, a
// slot: a caller that needs several takes a session for each; a *LockedError if another session has
// taken prefix/session; an error that is ErrNoSession and wraps the cause if the session has ended
// or does so; ErrClosed, ErrFailed or ErrCommit. A nil ctx panics.
func (s *Session) Acquire(ctx context.Context, prefix string, limit int) (*Slot, error) {
	checkContext(ctx)
	err := ctx.Err()
	if err == nil {
		err = s.db.refused(checkSlot(prefix, limit))
	}
	var lock [1]*Lock
	if err == nil {
		r := request{session: s, slot: true, limit: limit}
		err = s.db.acquire(ctx, r, []string{prefix + semaphoreKey}, lock[:])
	}
	if err != nil {
		return nil, wrap("acquire", prefix, err)
	}
	return &Slot{lock[0]}, nil
}

// TryAcquire takes a slot of the semaphore if that can be done at once. It does not wait for the
// slot, only until the answer is durable. It returns a *LockedError that says what is in the way:
// that all slots are taken, and by whom for longest, until when the session's own key is delayed,
// or that others have waited longer; else as Acquire does.
func (s *Session) TryAcquire(prefix string, limit int) (*Slot, error) {
	var lock *Lock
	err := s.db.refused(checkSlot(prefix, limit))
	if err == nil {
		err = s.db.update(func(tx *Txn) (err error) {
			lock, err = tx.tryAcquire(s, prefix, limit)
			return err
		})
	}
	if err != nil {
		return nil, wrap("try acquire", prefix, err)
	}
	return &Slot{lock}, nil
}

// SetLimit changes how many slots the semaphore has, and makes the semaphore if need be. If there
// are more of them now, those who wait get them in the same transaction; if there are fewer, those
// who hold one keep it, and no other is given until there is room. Calls of Acquire and TryAcquire
// that are made after that name the new limit, or 0, which stands for whatever it is.
//
// It blocks until that is durable. It returns ErrInvalid for a limit that is not between 1 and
// MaxLimit, or a prefix that Acquire refuses, ErrConflict if prefix/.lock has something else than a
// semaphore, ErrClosed, ErrFailed or ErrCommit, with nothing changed.
func (db *DB) SetLimit(prefix string, limit int) error {
	err := checkSemaphore(prefix)
	if err == nil {
		err = checkLimit(limit)
	}
	if err = db.refused(err); err == nil {
		err = db.update(func(tx *Txn) error { return tx.setLimit(prefix, limit) })
	}
	return wrap("set limit", prefix, err)
}

// checkSlot refuses what Acquire and TryAcquire cannot be asked for. A limit of 0 is the
// semaphore's own.
func checkSlot(prefix string, limit int) error {
	if err := checkSemaphore(prefix); err != nil || limit == 0 {
		return err
	}
	return checkLimit(limit)
}

func checkLimit(limit int) error {
	if limit < 1 || limit > MaxLimit {
		return invalid("limit is %d, not between 1 and %d", limit, MaxLimit)
	}
	return nil
}

// checkSemaphore refuses what cannot be a semaphore. One that the official client would keep at
// another key, because it cleans paths, would be another semaphore there.
func checkSemaphore(prefix string) error {
	if err := checkName("prefix", prefix); err != nil {
		return err
	}
	if clean := path.Clean(prefix); path.Join(prefix, semaphoreKey) != prefix+semaphoreKey {
		return invalid("prefix is not a clean path: it would be %.100q", clean)
	}
	if longest := MaxKeySize - 1 - len(SessionID{}.text()); len(prefix) > longest {
		return invalid("prefix has %d bytes, more than %d", len(prefix), longest)
	}
	return nil
}

// prefixOf names the semaphore that a key is of, if it is of one: what comes before the last slash.
func prefixOf(key string) string { return key[:max(0, strings.LastIndexByte(key, '/'))] }

func contenderKey(prefix string, id SessionID) string { return prefix + "/" + id.text() }

// contenderOf returns the session of which key is the contender key; the zero ID if it is none.
func contenderOf(key string) SessionID {
	prefix := prefixOf(key)
	if len(key)-len(prefix) != 1+len(SessionID{}.text()) {
		return SessionID{}
	}
	id, ok := parseSessionID(key[len(prefix)+1:])
	if !ok || contenderKey(prefix, id) != key {
		return SessionID{}
	}
	return id
}

// roster is what a semaphore's key says. A limit of 0 means that there is no semaphore yet.
type roster struct {
	prefix  string
	limit   int
	holders map[SessionID]bool
}

// roster reads the semaphore, as it is now.
func (tx *Txn) roster(prefix string) (roster, error) {
	return rosterOf(prefix, tx.db.store.Keys.Newest(prefix+semaphoreKey))
}

// rosterOf reads both forms of the holders: the official client's, an object with a name for each,
// and the guide's, a list. It does not look at the flags, which the guide does not set (X3).
func rosterOf(prefix string, row *schema.Key) (roster, error) {
	r := roster{prefix: prefix, holders: make(map[SessionID]bool)}
	if row == nil || len(row.Value) == 0 {
		return r, nil
	}
	var text struct {
		Limit   int
		Holders json.RawMessage
	}
	err := json.Unmarshal(row.Value, &text)
	var names []string
	if err == nil && len(text.Holders) > 0 && text.Holders[0] == '{' {
		var object map[string]json.RawMessage
		err = json.Unmarshal(text.Holders, &object)
		for name := range object {
			names = append(names, name)
		}
	} else if err == nil && len(text.Holders) > 0 {
		err = json.Unmarshal(text.Holders, &names)
	}
	if err != nil {
		return r, conflict("%q is not that of a semaphore: %v", row.Key, err)
	}
	if text.Limit < 1 || text.Limit > MaxLimit {
		return r, conflict("%q is not that of a semaphore: its limit is %d", row.Key, text.Limit)
	}
	for _, name := range names {
		if id, ok := parseSessionID(name); ok { // nobody else can hold anything
			r.holders[id] = true
		}
	}
	r.limit = text.Limit
	return r, nil
}

// writeRoster brings the semaphore's key up to date, without those who hold nothing any more. Their
// contender keys, of no use to anybody, go with them.
func (tx *Txn) writeRoster(r roster) {
	for id := range r.holders {
		row := tx.db.store.Keys.Newest(contenderKey(r.prefix, id))
		if row != nil && SessionID(row.Session) == id {
			continue
		}
		delete(r.holders, id)
		if row != nil && row.Session == (schema.ID{}) {
			tx.remove(row, ErrKeyDeleted)
			tx.bury(row)
		}
	}
	text, err := json.Marshal(struct {
		Limit   int
		Holders map[SessionID]bool
	}{r.limit, r.holders})
	if err != nil {
		panic("lockd: bug: " + err.Error())
	}
	tx.put(r.prefix+semaphoreKey, text, semaphoreFlags)
}

func (tx *Txn) setLimit(prefix string, limit int) error {
	r, err := tx.roster(prefix)
	if err != nil || r.limit == limit {
		return err
	}
	r.limit = limit
	tx.writeRoster(r)
	return nil
}

func (tx *Txn) tryAcquire(s *Session, prefix string, limit int) (*Lock, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	lock, obstacle, err := tx.acquireSlot(s, prefix, limit)
	if err == nil && obstacle != nil {
		slots, _ := tx.roster(prefix) // it has been read before
		tx.nameHolder(obstacle, s, slots.held(tx.db.store.Keys.Newest))
		err = obstacle
	}
	return lock, err
}

// nameHolder adds to a refusal for want of slots who of the holders has one for longest.
func (tx *Txn) nameHolder(refusal *LockedError, s *Session, holders iter.Seq[*schema.Key]) {
	if refusal.Obstacle != ObstacleSlots {
		return
	}
	var longest *schema.Key
	for row := range holders {
		if longest == nil ||
			cmp.Or(cmp.Compare(row.Fence, longest.Fence), cmp.Compare(row.Key, longest.Key)) < 0 {
			longest = row
		}
	}
	if longest != nil {
		tx.describeHolder(refusal, s, longest)
	}
}

// acquireSlot gives the session a slot, or says what it may wait for, or why it must not.
func (tx *Txn) acquireSlot(s *Session, prefix string, limit int) (*Lock, *LockedError, error) {
	key := prefix + semaphoreKey
	slots, err := tx.roster(prefix)
	switch {
	case err != nil:
		return nil, nil, err
	case slots.limit != 0 && limit != 0 && slots.limit != limit:
		return nil, nil, conflict("the limit of the semaphore is %d, not %d: name 0 to go by "+
			"its own, or change it by SetLimit", slots.limit, limit)
	case s.awaits(key):
		return nil, nil, conflict("session %s waits for a slot: %s", s.ID(), oneSlotEach)
	}
	if err := slots.begin(limit); err != nil {
		return nil, nil, err
	}
	row, obstacle, err := tx.seekSlot(s, slots)
	if err != nil || obstacle != nil {
		return nil, obstacle, err
	}
	state := tx.db.lockOf(key)
	if state != nil && tx.nextWaiter(state) != nil && !slots.has(row) {
		return nil, &LockedError{
			Key: key, Obstacle: ObstacleQueue, Waiters: state.queue.Len(), Limit: slots.limit,
		}, nil
	}
	lock := tx.holdSlot(new(Lock), s, slots, row)
	tx.took(lock)
	return lock, nil, nil
}

const oneSlotEach = "it can have one slot of a semaphore, so take a session for each"

// serveSlot gives the first who waits for a slot one, and reports whether it did: else none is to
// be had, or the waiter had to go with an error.
func (tx *Txn) serveSlot(w *waiter) bool {
	slots, err := tx.roster(w.prefix())
	if err == nil {
		err = slots.begin(w.limit)
	}
	var row *schema.Key
	var obstacle *LockedError
	if err == nil {
		row, obstacle, err = tx.seekSlot(w.session, slots)
	}
	if err != nil {
		tx.dismiss(w, err)
		return false
	}
	if obstacle != nil {
		return false
	}
	tx.holdSlot(&w.claims[0].lock, w.session, slots, row)
	return true
}

// seekSlot says what keeps a session from a slot, but for the queue: something that passes, or an
// error if it need not. It returns the row of the session's contender key, if there is one.
func (tx *Txn) seekSlot(s *Session, slots roster) (*schema.Key, *LockedError, error) {
	key := contenderKey(slots.prefix, s.ID())
	if delayed := tx.delayed(key); delayed != nil {
		return nil, delayed, nil
	}
	row := tx.db.store.Keys.Newest(key)
	switch {
	case row == nil || row.Session != s.row.ID:
		if err := tx.obstructed(s, key, row); err != nil {
			return nil, nil, err
		}
	case tx.db.lockOf(key).handle != nil:
		return nil, nil, conflict("session %s holds %q: %s", s.ID(), key, oneSlotEach)
	case slots.has(row):
		return row, nil, nil
	}
	return row, tx.full(slots), nil
}

// begin gives the semaphore, if there is none yet, the limit that a call has named.
func (r *roster) begin(limit int) error {
	if r.limit == 0 {
		r.limit = limit
	}
	if r.limit == 0 {
		return conflict("the semaphore has no limit: name one, or call SetLimit before")
	}
	return nil
}

// has reports whether the holder of a contender key is one of the semaphore.
func (r roster) has(contender *schema.Key) bool {
	return contender != nil && r.holders[SessionID(contender.Session)]
}

// held yields the contender keys, as read gives them, whose holders have a slot.
func (r roster) held(read func(key string) *schema.Key) iter.Seq[*schema.Key] {
	return func(yield func(*schema.Key) bool) {
		for id := range r.holders {
			row := read(contenderKey(r.prefix, id))
			if row != nil && SessionID(row.Session) == id && !yield(row) {
				return
			}
		}
	}
}

// full returns nil if there is a slot that nobody has, and none that was lost stands for.
func (tx *Txn) full(slots roster) *LockedError {
	taken := 0
	for range slots.held(tx.db.store.Keys.Newest) {
		taken++
	}
	key := slots.prefix + semaphoreKey
	refusal := &LockedError{Key: key, Obstacle: ObstacleSlots, Limit: slots.limit}
	if state := tx.db.lockOf(key); state != nil {
		refusal.Waiters = state.queue.Len()
	}
	taken += tx.countLost(refusal, slots.prefix, func(*delay) bool { return true })
	if taken < slots.limit {
		return nil
	}
	return refusal
}

// countLost returns how many lost slots of the semaphore are delayed, of those that count, and adds
// to a refusal when the first of them comes back.
func (tx *Txn) countLost(
	refusal *LockedError, prefix string, counts func(*delay) bool,
) (taken int) {
	sem := tx.db.semaphores[prefix]
	if sem == nil {
		return 0
	}
	for lost := range sem.lost {
		remaining := lost.until.Sub(tx.clock())
		if remaining <= 0 || !counts(lost) {
			continue
		}
		taken++
		if refusal.Remaining == 0 || remaining < refusal.Remaining {
			refusal.Until, refusal.Remaining = lost.until.Round(0), remaining
		}
	}
	return taken
}

// holdSlot makes lock the handle of a slot that the session may take, or has without one. Both keys
// are written in the one transaction, so that the contender's sequencer proves the slot.
func (tx *Txn) holdSlot(lock *Lock, s *Session, slots roster, row *schema.Key) *Lock {
	id := s.ID()
	lock.takenOver = slots.has(row)
	if !lock.takenOver {
		value := []byte{}
		if row != nil {
			value = append(value, row.Value...)
		}
		row = tx.grant(contenderKey(slots.prefix, id), s,
			&LockOptions{Value: value, Flags: semaphoreFlags})
		slots.holders[id] = true
		tx.writeRoster(slots)
	}
	return tx.handle(lock, s, row, leaveSlot)
}

// leaveSlot gives back the slot of which row is the contender key.
func (tx *Txn) leaveSlot(row *schema.Key) {
	tx.remove(row, ErrUnlocked)
	tx.bury(row)
	// It lists the holder, or the slot would have been lost.
	if slots, err := tx.roster(prefixOf(row.Key)); err == nil && slots.limit > 0 {
		tx.writeRoster(slots)
	}
}

// semaphore is what is known of a semaphore beside its rows: there is one while a slot has a
// handle, is awaited, or is lost and delayed. It is protected by db.mu.
type semaphore struct {
	prefix  string
	slots   map[*Lock]struct{}  // handles, of the contender keys
	lost    map[*delay]struct{} // of the contender keys
	waiting int                 // who stand in the queue of its key for a slot, or are set aside
}

// semaphore returns what is known of a semaphore, and makes it if need be.
func (db *DB) semaphore(prefix string) *semaphore {
	sem := db.semaphores[prefix]
	if sem == nil {
		sem = &semaphore{
			prefix: prefix, slots: make(map[*Lock]struct{}), lost: make(map[*delay]struct{}),
		}
		db.semaphores[prefix] = sem
	}
	return sem
}

// tidySemaphore forgets a semaphore of which nothing is known.
func (db *DB) tidySemaphore(sem *semaphore) {
	if len(sem.slots)+len(sem.lost)+sem.waiting == 0 {
		delete(db.semaphores, sem.prefix)
	}
}

// losesSlot reports whether the key, whose lock was just lost, is that of a holder.
func (tx *Txn) losesSlot(key string) bool {
	id := contenderOf(key)
	if id.IsZero() {
		return false
	}
	slots, err := tx.roster(prefixOf(key))
	return err == nil && slots.holders[id]
}

// mayHaveLostSlot reports whether a delay that outlasted a restart may stand for a slot. If others
// have taken the holder off meanwhile, that does not show any more; a delay too many does less harm
// than one too few.
func (db *DB) mayHaveLostSlot(key string) bool {
	if contenderOf(key).IsZero() {
		return false
	}
	prefix := prefixOf(key)
	slots, err := rosterOf(prefix, db.store.Keys.Newest(prefix+semaphoreKey))
	return err == nil && slots.limit > 0
}

// slotLost has a delay that begins stand for a slot, if it was lost.
func (db *DB) slotLost(d *delay) {
	if d.slot {
		db.semaphore(prefixOf(d.key)).lost[d] = struct{}{}
	}
}

// slotBack is the end of that.
func (db *DB) slotBack(d *delay) {
	if d.slot {
		sem := db.semaphore(prefixOf(d.key))
		delete(sem.lost, d)
		db.tidySemaphore(sem)
	}
}

// serveContenders has those served who wait for a slot, if there are any.
func (tx *Txn) serveContenders(prefix string) {
	if len(tx.db.semaphores) == 0 {
		return
	}
	key := prefix + semaphoreKey
	if state := tx.db.lockOf(key); state != nil {
		if first := state.queue.Front(); first != nil && first.Waiter.slot {
			tx.freed = append(tx.freed, key)
		}
	}
}

// lookAtSemaphores does what follows for semaphores from what the transaction wrote, whoever wrote
// it: to a semaphore's own key, or to that of a contender.
func (tx *Txn) lookAtSemaphores() {
	touched := make(map[*semaphore]struct{})
	for old, new := range tx.db.store.Keys.Changes() {
		key := nameOf(old, new, func(k *schema.Key) string { return k.Key })
		if sem := tx.db.semaphores[prefixOf(key)]; sem != nil {
			touched[sem] = struct{}{}
		}
	}
	for sem := range touched {
		tx.takeSlots(sem)
		tx.serveContenders(sem.prefix)
	}
}

// takeSlots takes the slots from those handles that the semaphore does not name any more: an
// operator, or another client, has written to it. The contender key goes with its slot, which it
// would still prove otherwise.
func (tx *Txn) takeSlots(sem *semaphore) {
	slots, err := tx.roster(sem.prefix)
	cause := ErrUnlocked
	if err != nil || slots.limit == 0 {
		cause, slots.holders = ErrKeyDeleted, nil
	}
	for lock := range sem.slots {
		if slots.holders[lock.session.ID()] {
			continue
		}
		row := tx.db.store.Keys.Newest(lock.Key())
		tx.remove(row, cause)
		tx.bury(row)
	}
}
