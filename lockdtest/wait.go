package lockdtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
)

// patience is how long the test waits for its own goroutines. In a bubble that time passes as soon
// as all of them are blocked.
const patience = 10 * time.Second

// WaitForWaiters blocks until at least n calls wait for the key's lock; calls that wait for a slot
// of a semaphore wait at prefix/.lock. It fails the test if that takes more than 10 s of real time,
// or, in a bubble, as soon as every goroutine is blocked.
func (db *DB) WaitForWaiters(key string, n int) {
	db.t.Helper()
	db.mustReach("WaitForWaiters")
	if !db.wait(db.patience, func() bool { return db.controls.Waiters(key) >= n }) {
		db.t.Fatalf("lockdtest: calls that wait for the lock of %q: got %d, want %d%s", key,
			db.controls.Waiters(key), n, db.holders([]string{key}))
	}
}

// WaitForKeepAlive blocks until KeepAlive, which another goroutine is to call, keeps the session
// alive. It fails the test as WaitForWaiters does.
func (db *DB) WaitForKeepAlive(s *lockd.Session) {
	db.t.Helper()
	db.mustReach("WaitForKeepAlive")
	if !db.wait(db.patience, func() bool { return db.controls.KeptAlive(s.ID()) }) {
		db.t.Fatalf("lockdtest: nothing keeps session %s alive", s.ID())
	}
}

// WaitForCommit blocks until a commit is held by HoldCommits. It fails the test as WaitForWaiters
// does.
func (db *DB) WaitForCommit() {
	db.t.Helper()
	db.mustReach("WaitForCommit")
	if !db.wait(db.patience, db.holdsCommit) {
		db.t.Fatalf("lockdtest: no commit is held: HoldCommits comes first, and then a write")
	}
}

// wait returns true when the condition holds, or false if it does not hold within atMost.
func (db *DB) wait(atMost time.Duration, condition func() bool) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		db.mu.Lock()
		moved := db.moved
		db.mu.Unlock()
		if condition() {
			return true
		}
		select {
		case <-moved:
		case <-timer.C:
			return condition()
		}
	}
}

// waitsMoved makes every wait check its condition again. The database calls it under its own lock.
func (db *DB) waitsMoved() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.movedLocked()
}

func (db *DB) movedLocked() {
	close(db.moved)
	db.moved = make(chan struct{})
}

// describe names the session of a wait.
func describe(w hook.Wait) string {
	id := lockd.SessionID(w.Session).String()
	if w.Name == "" {
		return id
	}
	return fmt.Sprintf("%q (%s)", w.Name, id)
}

const semaphoreKey = "/.lock" // after the prefix: where calls wait for a slot

// wanted says what a call waits for.
func wanted(w hook.Wait) string {
	if !w.Slot {
		return fmt.Sprintf("the lock of %q", w.Keys)
	}
	return fmt.Sprintf("a slot of %q", strings.TrimSuffix(w.Keys[0], semaphoreKey))
}

// holders names the keys whose locks are held, with the sessions that hold them. For the key of a
// semaphore it names the slots that are held.
func (db *DB) holders(keys []string) string {
	var text strings.Builder
	for l := range db.Locks() {
		named := slices.Contains(keys, l.Key)
		if l.Limit > 0 {
			named = slices.Contains(keys, path.Dir(l.Key)+semaphoreKey)
		}
		switch {
		case !named:
		case len(l.Holders) > 0:
			for _, holder := range l.Holders {
				fmt.Fprintf(&text, ", %q is shared by session %s", l.Key, holder.Session.ID)
			}
		case !l.Holder.ID.IsZero():
			fmt.Fprintf(&text, ", %q is held by session %s", l.Key, l.Holder.ID)
		}
	}
	return text.String()
}
