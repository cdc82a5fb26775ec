package lockdtest

import (
	"errors"
	"fmt"

	"github.com/lockd/lockd"
)

// ErrDropped is returned by Session.Renew when DropRenewals loses the renewal. The session goes on
// as it was.
var ErrDropped = errors.New("renewal dropped by the test")

// Expire ends the session now, as if its TTL had passed since it was renewed last: with cause
// lockd.ErrExpired, and its lock-delay. It returns when the end is told; while commits are held,
// when the end is decided. It fails the test if the session has ended, or has no TTL.
func (db *DB) Expire(s *lockd.Session) {
	db.t.Helper()
	db.mustReach("Expire")
	if err := db.controls.Expire(s.ID()); err != nil {
		db.t.Fatalf("lockdtest: expire: %v", err)
	}
	db.catchUp()
}

// FailNextCommit makes the next commit fail with err: the calls that wait for the commit get
// lockd.ErrCommit, which wraps err, and nothing of the commit is visible. What the database does by
// itself, such as ending a session, is tried again. Each further call fails one more commit, in the
// order of the calls. A nil err fails the test, and so does a failure that no commit has met when
// the test is over.
func (db *DB) FailNextCommit(err error) {
	db.t.Helper()
	if err == nil {
		db.t.Fatalf("lockdtest: FailNextCommit with a nil error")
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.failures = append(db.failures, err)
}

// HoldCommits makes every commit from now on wait, before it has done anything, until release is
// called: writes block, and what they wrote is not visible. Repeated calls of release do nothing.
// Commits that are still held when the test is over are released. A call of HoldCommits while
// commits are held fails the test.
func (db *DB) HoldCommits() (release func()) {
	db.t.Helper()
	db.mu.Lock()
	held := db.hold
	again := held.on()
	if !again {
		close(held.began)
	}
	db.mu.Unlock()
	if again {
		db.t.Fatalf("lockdtest: HoldCommits while commits are held: release them first")
	}
	return func() { db.release(held) }
}

// DropRenewals loses the next n renewals of the session, as if its process was paused or cut off:
// Renew returns ErrDropped; KeepAlive and Keeper, which renew every half TTL, go on. The renewal
// with which KeepAlive begins is not lost. A later call for the same session replaces n; 0 ends the
// losses. The test fails if n is negative, if the session does not live in this database, and if no
// renewal was lost when the test is over.
func (db *DB) DropRenewals(s *lockd.Session, n int) {
	db.t.Helper()
	if n < 0 {
		db.t.Fatalf("lockdtest: DropRenewals of %d renewals", n)
	}
	if _, ours := db.Snapshot().Session(s.ID()); !ours && n > 0 {
		db.t.Fatalf("lockdtest: DropRenewals(%s): no such session lives in this database: it has "+
			"ended, or is another's", s.ID())
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.drops[s.ID()] = &drops{asked: n, left: n}
}

// drops are the renewals that one session loses.
type drops struct{ asked, left int }

// renewal is called by the database before each renewal, under the database's lock or not.
func (db *DB) renewal(session [16]byte) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	d := db.drops[session]
	if d == nil || d.left == 0 {
		return nil
	}
	d.left--
	return ErrDropped
}

// hold is one use of HoldCommits, past, present or to come.
type hold struct {
	began chan struct{} // closed when commits are held
	ended chan struct{} // closed when they are released
	held  bool          // a commit waits for the release, or waited
}

func newHold() *hold {
	return &hold{began: make(chan struct{}), ended: make(chan struct{})}
}

func (h *hold) on() bool {
	select {
	case <-h.began:
		return true
	default:
		return false
	}
}

// release lets the commits go on that the hold keeps waiting, unless that was done before.
func (db *DB) release(held *hold) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.hold == held && held.on() {
		close(held.ended)
		db.hold = newHold()
	}
}

func (db *DB) holdsCommit() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.hold.held
}

// beforeCommit is called before each commit, by the goroutine that commits.
func (db *DB) beforeCommit() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if held := db.hold; held.on() {
		held.held = true
		db.movedLocked()
		db.mu.Unlock()
		<-held.ended
		db.mu.Lock()
	}
	if len(db.failures) == 0 {
		return nil
	}
	err := db.failures[0]
	db.failures = db.failures[1:]
	return err
}

// endFaults ends all faults, and returns those that never came about.
func (db *DB) endFaults() []string {
	var unused []string
	db.mu.Lock()
	held, failures, losses := db.hold, db.failures, db.drops
	db.failures, db.drops = nil, make(map[lockd.SessionID]*drops)
	db.mu.Unlock()
	db.release(held)
	for _, err := range failures {
		unused = append(unused, fmt.Sprintf("FailNextCommit(%q): no commit came after it", err))
	}
	for id, d := range losses {
		if d.asked > 0 && d.left == d.asked {
			unused = append(unused,
				fmt.Sprintf("DropRenewals(%s, %d): no renewal came after it", id, d.asked))
		}
	}
	return unused
}
