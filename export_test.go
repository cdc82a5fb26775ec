package lockd

import "github.com/lockd/lockd/store"

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

// Topics is the number of scopes that are watched.
func (db *DB) Topics() int { return db.watch.hub.Topics() }

// States is the number of keys of which something is known beside their rows.
func (db *DB) States() int {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.engine.States()
}

// NewestIndex is the index of the newest transaction, durable or not.
func (db *DB) NewestIndex() uint64 {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.rows.Index()
}

// Deadlines is the number of instants that the database waits for.
func (db *DB) Deadlines() int {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.engine.Deadlines() + db.watch.naps.Len()
}

// NewestSessions are the IDs of the sessions that live, durable or not.
func (db *DB) NewestSessions() []SessionID {
	db.writer.Lock()
	defer db.writer.Unlock()
	var ids []SessionID
	for _, s := range db.engine.AllSessions() {
		ids = append(ids, SessionID(s.Row.ID))
	}
	return ids
}
