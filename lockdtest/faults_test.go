package lockdtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

var errDisk = errors.New("the disk is full")

// Ensure that Expire ends a session as its TTL does, lock-delay included, while the clock stands
// still.
func TestExpire(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		s := session(t, db, "worker", time.Minute)
		lock := tryLock(t, s, "k")
		keeping := start(func() error { return s.KeepAlive(context.Background()) })
		db.WaitForKeepAlive(s)
		began := db.Now()

		db.Expire(s)
		if !errors.Is(lock.Err(), lockd.ErrExpired) || !errors.Is(s.Err(), lockd.ErrExpired) {
			t.Fatalf("got %v and %v, want ErrExpired", lock.Err(), s.Err())
		}
		if err := keeping.wait(); !errors.Is(err, lockd.ErrExpired) {
			t.Fatalf("KeepAlive: got %v, want ErrExpired", err)
		}
		if err := s.Renew(); !errors.Is(err, lockd.ErrExpired) {
			t.Fatalf("Renew: got %v, want ErrExpired", err)
		}
		_, err := session(t, db, "", 0).TryLock("k", nil)
		locked, ok := errors.AsType[*lockd.LockedError](err)
		if !ok || locked.Remaining != lockd.DefaultLockDelay || !db.Now().Equal(began) {
			t.Fatalf("got %v, want the lock-delay from now", err)
		}
	})
}

func TestExpire_Refused(t *testing.T) {
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		db.Expire(session(t, db, "", 0))
	}, []string{"expire", "has no TTL"})
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		s := session(t, db, "", time.Minute)
		must(t, s.Close())
		db.Expire(s)
	}, []string{"expire", "no such session"})
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		s := session(t, db, "", time.Minute)
		must(t, db.Close())
		db.Expire(s)
	}, []string{"expire", "closed"})
}

// Ensure that each failure meets one commit: its write is refused with the cause and not seen, and
// can be repeated.
func TestFailNextCommit(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		errOther := errors.New("another")
		db.FailNextCommit(errDisk)
		db.FailNextCommit(errOther)
		for _, want := range []error{errDisk, errOther} {
			_, err := db.Put("k", nil, nil)
			if !errors.Is(err, lockd.ErrCommit) || !errors.Is(err, want) {
				t.Fatalf("got %v, want ErrCommit with %v", err, want)
			}
			if _, ok := db.Get("k"); ok {
				t.Fatal("what was not committed is visible")
			}
		}
		_, err := db.Put("k", nil, nil)
		must(t, err)
	})
}

// Ensure that the end of a session whose commit fails is tried again by an Advance.
func TestFailNextCommit_OfTheDatabaseItself(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		s := session(t, db, "", 10*time.Second)
		lock := tryLock(t, s, "k")
		db.FailNextCommit(errDisk)
		db.Advance(10 * time.Second)
		if s.Err() != nil || lock.Err() != nil {
			t.Fatalf("told of an end that was dropped: %v, %v", s.Err(), lock.Err())
		}
		db.Advance(time.Second) // the first pause before it tries again
		if !errors.Is(lock.Err(), lockd.ErrExpired) {
			t.Fatalf("got %v, want ErrExpired", lock.Err())
		}
	})
}

// Ensure that a held commit delays its write, and everything that depends on it, until the release.
func TestHoldCommits(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		holder, next := session(t, db, "", 0), session(t, db, "", 0)
		lock := tryLock(t, holder, "k")
		waiting := lockInTurn(db, next, "k", 0)

		release := db.HoldCommits()
		unlock := start(lock.Unlock)
		db.WaitForCommit()
		db.Advance(time.Hour)
		if isClosed(unlock.done) || isClosed(waiting.done) || lock.Err() != nil {
			t.Fatal("told before the commit")
		}
		if e, _ := db.Get("k"); e.Session != holder.ID() {
			t.Fatalf("seen before the commit: holder %v", e.Session)
		}
		release()
		release()
		must(t, unlock.wait())
		must(t, waiting.wait())
		if e, _ := db.Get("k"); e.Session != next.ID() {
			t.Fatalf("holder: got %v, want %v", e.Session, next.ID())
		}

		release = db.HoldCommits() // again
		put := start(func() error { _, err := db.Put("x", nil, nil); return err })
		db.WaitForCommit()
		release()
		must(t, put.wait())
	})
}

// Ensure that the clock can be moved while commits are held, and that events which became due
// meanwhile happened at their instant, but are notified only after the release.
func TestHoldCommits_WhileTimePasses(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		began := db.Now()
		s := session(t, db, "", 10*time.Second)
		lock := tryLock(t, s, "k")
		release := db.HoldCommits()
		db.Advance(20 * time.Second)
		if lock.Err() != nil {
			t.Fatalf("told before the commit: %v", lock.Err())
		}
		release()
		db.Advance(0)
		if !errors.Is(lock.Err(), lockd.ErrExpired) {
			t.Fatalf("got %v, want ErrExpired", lock.Err())
		}
		_, err := session(t, db, "", 0).TryLock("k", nil)
		locked, ok := errors.AsType[*lockd.LockedError](err)
		want := began.Add(10*time.Second + lockd.DefaultLockDelay)
		if !ok || !locked.Until.Equal(want) {
			t.Fatalf("got %v, want a lock-delay until %v", err, want)
		}
	})
}

// Ensure that a commit can be held and then fail, with all that was decided on it.
func TestHoldCommits_AndFail(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		release := db.HoldCommits()
		first := start(func() error { _, err := db.Put("first", nil, nil); return err })
		db.WaitForCommit()
		db.FailNextCommit(errDisk)
		release()
		if err := first.wait(); !errors.Is(err, errDisk) {
			t.Fatalf("got %v, want %v", err, errDisk)
		}
		if _, ok := db.Get("first"); ok {
			t.Fatal("what was not committed is visible")
		}
	})
}

// Ensure that Renew reports a dropped renewal, and that enough of them in a row end a session that
// is kept alive, exactly when its TTL has passed since the last renewal that was not dropped.
func TestDropRenewals(t *testing.T) {
	for _, test := range []struct {
		name  string
		drops int
		ends  time.Duration // 0: the session does not end
	}{{"one", 1, 0}, {"two", 2, 10 * time.Second}} {
		t.Run(test.name, func(t *testing.T) {
			both(t, func(t *testing.T, db *lockdtest.DB) {
				s := session(t, db, "", 10*time.Second)
				keeping := start(func() error { return s.KeepAlive(context.Background()) })
				db.WaitForKeepAlive(s)
				db.DropRenewals(s, test.drops)
				if test.ends == 0 {
					db.Advance(time.Minute)
					must(t, s.Err())
					must(t, s.Close())
				} else {
					db.Advance(test.ends - 1)
					must(t, s.Err())
					db.Advance(1)
					if !errors.Is(s.Err(), lockd.ErrExpired) {
						t.Fatalf("got %v, want ErrExpired", s.Err())
					}
				}
				if err := keeping.wait(); !errors.Is(err, lockd.ErrNoSession) {
					t.Fatalf("KeepAlive: %v", err)
				}
			})
		})
	}
}

// Ensure that a Keeper loses its session in the same way, and makes another session.
func TestDropRenewals_Keeper(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		keeper, err := db.NewKeeper(&lockd.SessionOptions{TTL: 10 * time.Second})
		must(t, err)
		first, err := keeper.Session(t.Context())
		must(t, err)
		db.Advance(time.Minute)
		must(t, first.Err())
		db.DropRenewals(first, 2)
		db.Advance(10 * time.Second)
		if !errors.Is(first.Err(), lockd.ErrExpired) {
			t.Fatalf("got %v, want ErrExpired", first.Err())
		}
		next, err := keeper.Session(t.Context())
		must(t, err)
		if next.ID() == first.ID() || next.Err() != nil {
			t.Fatalf("next session %v: %v", next.ID(), next.Err())
		}
		must(t, keeper.Close())
	})
}

func TestDropRenewals_Renew(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		s, other := session(t, db, "", 10*time.Second), session(t, db, "", 10*time.Second)
		db.DropRenewals(s, 2)
		db.Advance(9 * time.Second)
		must(t, other.Renew())
		if err := s.Renew(); !errors.Is(err, lockdtest.ErrDropped) {
			t.Fatalf("got %v, want ErrDropped", err)
		}
		db.Advance(time.Second)
		if s.Err() == nil || other.Err() != nil {
			t.Fatalf("got %v and %v, want only the first to end", s.Err(), other.Err())
		}
		if err := s.Renew(); !errors.Is(err, lockd.ErrExpired) {
			t.Fatalf("after the end: got %v, want ErrExpired", err)
		}

		db.DropRenewals(other, 2)
		if err := db.Renew(other.ID()); !errors.Is(err, lockdtest.ErrDropped) {
			t.Fatalf("got %v, want ErrDropped", err)
		}
		db.DropRenewals(other, 0)
		must(t, other.Renew())
	})
}

// Ensure that losses may be ended when the test is over, by a cleanup from before the database.
func TestDropRenewals_EndedAfterTheTest(t *testing.T) {
	fails(t, func(t testing.TB) {
		var db *lockdtest.DB
		var s *lockd.Session
		t.Cleanup(func() { db.DropRenewals(s, 0) })
		db = lockdtest.New(t, nil)
		s = session(t, db, "", time.Second)
	})
}

func TestFaults_Refused(t *testing.T) {
	fails(t, func(t testing.TB) { lockdtest.New(t, nil).FailNextCommit(nil) },
		[]string{"FailNextCommit with a nil error"})
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		db.HoldCommits()
		db.HoldCommits()
	}, []string{"HoldCommits while commits are held"})
	fails(t, func(t testing.TB) {
		db := lockdtest.New(t, nil)
		db.DropRenewals(session(t, db, "", time.Second), -1)
	}, []string{"DropRenewals of -1"})
	fails(t, func(t testing.TB) {
		db, another := lockdtest.New(t, nil), lockdtest.New(t, nil)
		db.DropRenewals(session(t, another, "", time.Second), 1)
		t.Error("it goes on")
	}, []string{"no such session lives in this database"})
}
