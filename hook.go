package lockd

import (
	"time"

	"github.com/google/uuid"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/internal/schema"
)

// controls returns the functions by which a test drives and inspects the database.
func (db *DB) controls() hook.Controls {
	return hook.Controls{
		Next: db.next, CatchUp: db.catchUp, Expire: db.expire,
		Waiters: db.waiters, Waits: locked(db, db.waits), KeptAlive: db.keptAlive,
		Check:       locked(db, db.engine.Check),
		Topics:      func() int { return db.hub.Topics() },
		States:      locked(db, db.engine.States),
		NewestIndex: locked(db, db.rows.Index),
		Deadlines: locked(db, func() int {
			return db.engine.Deadlines() + db.limits.Len()
		}),
		NewestSessions: locked(db, func() (ids [][16]byte) {
			for _, s := range db.engine.AllSessions() {
				ids = append(ids, s.Row.ID)
			}
			return ids
		}),
	}
}

// locked returns a function that calls read under the writer's mutex.
func locked[T any](db *DB, read func() T) func() T {
	return func() T {
		db.writer.Lock()
		defer db.writer.Unlock()
		return read()
	}
}

// losesRenewal reports whether a test makes the session lose its renewal.
func (db *DB) losesRenewal(id schema.ID) bool {
	s := db.engine.Known(id)
	return s != nil && handleOf(s).session.renewalLost() != nil
}

// handed tells a test of the locks that a call is about to return.
func (db *DB) handed(locks ...*Lock) {
	if db.hooks.Handed == nil {
		return
	}
	for _, l := range locks {
		proof := l.Sequencer()
		db.hooks.Handed(hook.Held{
			Key: proof.Key, Session: proof.Session, Fence: proof.Fence,
			Err:    l.Err,
			Shared: func() bool { return l.held().Mode == engine.Shared },
			Holds:  func() bool { return db.engine.Proves(l.held().Sequencer()) == nil },
		})
	}
}

// newID returns the ID of a new session, which a test may choose.
func (db *DB) newID() schema.ID {
	if db.hooks.NewID == nil {
		return schema.ID(uuid.New())
	}
	return db.hooks.NewID()
}

func (db *DB) next() (time.Time, bool) {
	db.writer.Lock()
	at, ok := db.writer.Next()
	db.writer.Unlock()
	if passes, one := db.limits.Next(); one && (!ok || passes.Before(at)) {
		return passes, true
	}
	return at, ok
}

func (db *DB) catchUp(held <-chan struct{}) {
	db.writer.CatchUp(held)
	db.limits.End()
}

// expire decides the end of the session by its TTL, and does not wait until the end is durable.
func (db *DB) expire(id [16]byte) (err error) {
	begun := db.writer.DoSoon(func(tx *engine.Txn) {
		var s *engine.Session
		if s, err = tx.LiveSession(id); err == nil && s.Row.TTL == 0 {
			err = invalid("session %s has no TTL that could pass", s.Row.ID)
		}
		if err == nil {
			db.engine.Expire(s, tx.Time())
		}
	})
	if !begun {
		return db.writer.Refused()
	}
	if err == nil {
		db.writer.DoSoon(func(*engine.Txn) {}) // every write first ends what is due
	}
	return err
}

func (db *DB) waiters(key string) int {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.engine.WaitersFor(key)
}

// waits returns the calls that wait for locks. The caller holds the writer's mutex.
func (db *DB) waits() (waits []hook.Wait) {
	for _, w := range db.engine.AllWaiters() {
		waits = append(waits, hook.Wait{
			Keys: w.Keys(), Slot: w.Slot, Session: w.Session.Row.ID, Name: w.Session.Row.Name,
		})
	}
	return waits
}

func (db *DB) keptAlive(id [16]byte) bool {
	db.writer.Lock()
	defer db.writer.Unlock()
	s := db.engine.Known(id)
	return s != nil && s.Kept()
}
