package lockd

import (
	"context"
	"path"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// MaxLimit is the largest limit of a semaphore. Each grant and release of a slot takes time in
// proportion to how many are held.
const MaxLimit = engine.MaxLimit

// Slot is a slot of a semaphore that is held, or was: having one is the only way to release it. Its
// methods may be called by many goroutines. The zero value is not usable; Session.Acquire and
// TryAcquire give one.
type Slot struct {
	lock *Lock // of the contender key
}

// Prefix names the semaphore.
func (s *Slot) Prefix() string { return engine.PrefixOf(s.lock.Key()) }

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
		keys := []string{prefix + engine.SemaphoreKey}
		r := request{session: s, keys: keys, slot: true, limit: limit}
		err = s.db.acquire(ctx, r, lock[:])
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
	lock := newLock()
	err := s.db.refused(checkSlot(prefix, limit))
	if err == nil {
		err = s.db.update(func(tx *engine.Txn) error {
			return tx.TryAcquire(&lock.hold, &s.state, prefix, limit)
		})
	}
	if err != nil {
		return nil, wrap("try acquire", prefix, s.cause(err))
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
		err = db.update(func(tx *engine.Txn) error { return tx.SetLimit(prefix, limit) })
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
	if err := engine.CheckName("prefix", prefix); err != nil {
		return err
	}
	key := prefix + engine.SemaphoreKey
	if clean := path.Clean(prefix); path.Join(prefix, engine.SemaphoreKey) != key {
		return invalid("prefix is not a clean path: it would be %.100q", clean)
	}
	if longest := MaxKeySize - 1 - len(schema.ID{}.UUID()); len(prefix) > longest {
		return invalid("prefix has %d bytes, more than %d", len(prefix), longest)
	}
	return nil
}
