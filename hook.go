package lockd

import (
	"time"

	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

// attach gives a test its hooks and its door. The database then commits as one on a file does,
// but to nowhere.
func (db *DB) attach(test *hook.Clock) {
	db.hooks = &test.Hooks
	db.mu.guest.checked = true
	db.store.Rehearse(store.Hooks{BeforeCommit: test.Hooks.BeforeCommit})
	test.Door = hook.Door{
		Next: db.next, CatchUp: db.catchUp, Expire: db.expire,
		Waiters: db.waiters, Waits: db.waits, KeptAlive: db.keptAlive, Check: db.check,
	}
}

// renewalLost asks a test whether a renewal of the session is lost, and returns why.
func (s *Session) renewalLost() error {
	if s.db.hooks == nil || s.Err() != nil {
		return nil
	}
	return s.db.hooks.Renewal(s.row.ID)
}

// waitsMoved tells a test that a call has begun or ceased to wait, or to keep a session alive.
func (db *DB) waitsMoved() {
	if db.hooks != nil {
		db.hooks.WaitsMoved()
	}
}

func (db *DB) next() (time.Time, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.nextLocked()
}

func (db *DB) nextLocked() (time.Time, bool) {
	if db.refusal != nil {
		return time.Time{}, false
	}
	at, ok := db.expiry.Next()
	if ok && db.backoff > 0 && at.Before(db.retry) {
		at = db.retry
	}
	if over, naps := db.naps.Next(); naps && (!ok || over.Before(at)) {
		return over, true
	}
	return at, ok
}

func (db *DB) catchUp(held <-chan struct{}) {
	for {
		db.mu.Lock()
		db.attendLocked() // as the database's goroutine does, which may be late
		undecided := db.undecidedLocked()
		next, ok := db.nextLocked()
		more := ok && !db.now().Before(next) // one write ends only so many sessions
		db.unlock()
		if undecided != nil {
			select {
			case <-undecided.done:
				more = true // it may have failed, or others may have joined the next one
			case <-held:
			}
		}
		if !more {
			return
		}
	}
}

func (db *DB) expire(id [16]byte) error {
	db.mu.Lock()
	defer db.unlock()
	if db.refusal != nil {
		return db.refusal
	}
	db.endDueLocked(maxDue)
	defer db.armLocked()
	s, err := (&Txn{db: db}).session(id)
	if err != nil {
		return err
	}
	if s.life == 0 {
		return invalid("session %s has no TTL that could pass", s.ID())
	}
	s.deadline = db.now()
	db.expiry.Set(&s.expires, s.deadline)
	db.endDueLocked(maxDue)
	return nil
}

func (db *DB) waiters(key string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	if state := db.locks[key]; state != nil {
		return state.queue.Len()
	}
	return 0
}

func (db *DB) waits() []hook.Wait {
	db.mu.Lock()
	defer db.mu.Unlock()
	var waits []hook.Wait
	for _, s := range db.sessions {
		for w := range s.waiters() {
			waits = append(waits, hook.Wait{
				Keys: w.keys(), Slot: w.slot, Session: s.row.ID, Name: s.row.Name,
			})
		}
	}
	return waits
}

func (db *DB) keptAlive(id [16]byte) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	s := db.sessions[id]
	return s != nil && s.renewal != nil && s.renewal.callers > 0
}

func (db *DB) check() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.checkLocked()
}
