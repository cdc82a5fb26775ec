package lockd

import (
	"maps"
	"slices"

	"github.com/lockd/lockd/store"
)

// WithHooks returns a copy of the options whose database calls the hooks around its commits.
func (o Options) WithHooks(hooks store.Hooks) *Options {
	o.hooks = hooks
	return &o
}

// WithHooks is as that of Options.
func (o RestoreOptions) WithHooks(hooks store.Hooks) *RestoreOptions {
	o.hooks = hooks
	return &o
}

// Waiters is the number of calls that wait for the key's lock.
func (db *DB) Waiters(key string) int { return db.waiters(key) }

// RenewsAlone renews the session with nothing of it in reach but the memory of the handle.
func (s *Session) RenewsAlone() error {
	kept := s.estate
	s.estate = nil
	defer func() { s.estate = kept }()
	return s.Renew()
}

// Topics is the number of scopes that are watched.
func (db *DB) Topics() int { return db.hub.Topics() }

// States is the number of keys of which something is known beside their rows.
func (db *DB) States() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.locks)
}

// NewestIndex is the index of the newest transaction, durable or not.
func (db *DB) NewestIndex() uint64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.store.Index()
}

// Deadlines is the number of instants that the database waits for.
func (db *DB) Deadlines() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.expiry.Len() + db.naps.Len()
}

// NewestSessions are the IDs of the sessions that live, durable or not.
func (db *DB) NewestSessions() []SessionID {
	db.mu.Lock()
	defer db.mu.Unlock()
	return slices.Collect(maps.Keys(db.sessions))
}
