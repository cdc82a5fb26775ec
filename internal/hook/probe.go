package hook

import (
	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/store"
)

// Probe is a clock whose database, in memory or on a file, lets a test of this module look inside.
// It is given to one database at a time. The zero value is not usable: Clock has to be set.
type Probe struct {
	clock.Clock

	// File has hooks around what is written to a file. It is read by lockd.Open and lockd.Restore.
	File store.Hooks

	// Published, if it is set, is called under the database's lock when something has been
	// published, before watchers are told of it. It must not call what takes that lock.
	Published func()

	// Ends, if it is set, is called under the database's lock with the name of each thing that is
	// ended because it is due: see engine.Config. It must not call what takes that lock.
	Ends func(due string)

	// Inside is set by lockd.New and lockd.Open.
	Inside Inside
}

// Inside is what a test may see of a database that is not shown to users. Its functions may be
// called by many goroutines.
type Inside struct {
	// Waiters returns how many calls wait for the key's lock.
	Waiters func(key string) int

	// Topics returns how many scopes are watched.
	Topics func() int

	// States returns of how many keys something is known beside their rows.
	States func() int

	// NewestIndex returns the index of the newest transaction, durable or not.
	NewestIndex func() uint64

	// Deadlines returns how many instants the database waits for.
	Deadlines func() int

	// NewestSessions returns the IDs of the sessions that live, durable or not.
	NewestSessions func() [][16]byte
}
