package lockdtest_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// Ensure that Advance returns when all that became due is notified, and nothing else is.
func TestAdvance_ReturnsWhenAllIsTold(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		for range 20 {
			first := session(t, db, "first", 10*time.Second)
			lock := tryLock(t, first, "k")
			next := session(t, db, "next", 0)
			waiting := lockInTurn(db, next, "k", 0)

			db.Advance(10*time.Second - 1)
			if first.Err() != nil || lock.Err() != nil {
				t.Fatalf("ended too early: %v, %v", first.Err(), lock.Err())
			}
			db.Advance(1)
			if !isClosed(first.Done()) || !isClosed(lock.Done()) {
				t.Fatal("the end is not told when Advance returns")
			}
			db.Advance(lockd.DefaultLockDelay - 1)
			if e, _ := db.Get("k"); !e.Session.IsZero() {
				t.Fatalf("granted in the lock-delay, to %v", e.Session)
			}
			db.Advance(1)
			if e, _ := db.Get("k"); e.Session != next.ID() {
				t.Fatalf("holder: got %v, want %v", e.Session, next.ID())
			}
			must(t, waiting.wait())
			must(t, next.Close())
		}
	})
}

// Ensure that a timeout of the Mock ends a wait when the clock has moved that far, and not before.
func TestAdvance_TimeoutOfTheMock(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		tryLock(t, session(t, db, "holder", 0), "k")
		ctx, cancel := db.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		next := session(t, db, "next", 0)
		waiting := start(func() error {
			_, err := next.Lock(ctx, "k", nil)
			return err
		})
		db.WaitForWaiters("k", 1)

		db.Advance(5*time.Second - 1)
		if err := ctx.Err(); err != nil {
			t.Fatalf("too early: %v", err)
		}
		db.Advance(1)
		if err := waiting.wait(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

// Ensure that one long Advance does everything at its instant: a holder's end, its lock-delay, the
// next grant, and the end of the next holder.
func TestAdvance_EachThingAtItsInstant(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		began := db.Now()
		tryLock(t, session(t, db, "a", 10*time.Second), "k") // until 10 s, delay until 25 s
		b := session(t, db, "b", 30*time.Second)             // holds from 25 s to 30 s
		waiting := lockInTurn(db, b, "k", 0)

		db.Advance(40 * time.Second)
		must(t, waiting.wait())
		if !errors.Is(b.Err(), lockd.ErrExpired) {
			t.Fatalf("b: got %v, want ErrExpired", b.Err())
		}
		_, err := session(t, db, "c", 0).TryLock("k", nil)
		locked, ok := errors.AsType[*lockd.LockedError](err)
		if want := began.Add(45 * time.Second); !ok || !locked.Until.Equal(want) {
			t.Fatalf("got %v, want a lock-delay until %v", err, want)
		}
		if got := db.Since(began); got != 40*time.Second {
			t.Fatalf("the clock moved by %v", got)
		}
	})
}

// Ensure that things happen in the order of their instants, and at one instant renewals before
// ends and ends before grants.
func TestAdvance_InOrder(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		noDelay := func(name string, ttl, delay time.Duration) *lockd.Session {
			s, err := db.NewSession(&lockd.SessionOptions{Name: name, TTL: ttl, LockDelay: delay})
			must(t, err)
			return s
		}
		lost := noDelay("lost", 5*time.Second, 5*time.Second) // its delay is over at 10 s
		tryLock(t, lost, "k")
		waiter := noDelay("waiter", 0, 0)
		waiting := lockInTurn(db, waiter, "k", 0)
		noDelay("late", 12*time.Second, 0)
		noDelay("at once", 10*time.Second, 0)
		kept := noDelay("kept", 10*time.Second, 0)
		ctx, cancel := context.WithCancel(t.Context())
		keeping := start(func() error { return kept.KeepAlive(ctx) })
		db.WaitForKeepAlive(kept)
		index := db.Snapshot().Index()

		db.Advance(time.Minute)
		must(t, waiting.wait())
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		must(t, kept.Renew())

		var got []string
		scopes := []lockd.Scope{lockd.SessionsScope(), lockd.KeyScope("k")}
		type moment struct {
			index uint64
			what  string
		}
		var moments []moment
		for _, scope := range scopes {
			watch, stop := context.WithCancel(t.Context())
			for event, err := range db.Watch(watch, scope, index) {
				must(t, err)
				switch {
				case event.Kind == lockd.SessionEnded:
					moments = append(moments, moment{event.Index, event.Session.Name})
				case !event.Granted.ID.IsZero():
					moments = append(moments, moment{event.Index, "granted"})
				}
				if event.Kind == lockd.SessionEnded && event.Session.Name == "late" ||
					!event.Granted.ID.IsZero() {
					break
				}
			}
			stop()
		}
		slices.SortFunc(moments, func(a, b moment) int { return int(a.index) - int(b.index) })
		for _, m := range moments {
			got = append(got, m.what)
		}
		if want := []string{"lost", "at once", "granted", "late"}; !slices.Equal(got, want) {
			t.Fatalf("order: got %q, want %q", got, want)
		}
	})
}

// Ensure that a session that is kept alive is renewed on the way, however many TTLs pass at once,
// and that one that is not kept alive is not.
func TestAdvance_KeepsAliveOverManyTTLs(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		kept, other := session(t, db, "kept", 2*time.Second), session(t, db, "other", 2*time.Second)
		lock := tryLock(t, kept, "k")
		ctx, cancel := context.WithCancel(t.Context())
		keeping := start(func() error { return kept.KeepAlive(ctx) })
		db.WaitForKeepAlive(kept)

		db.Advance(time.Minute)
		if kept.Err() != nil || lock.Err() != nil {
			t.Fatalf("lost: %v, %v", kept.Err(), lock.Err())
		}
		if !errors.Is(other.Err(), lockd.ErrExpired) {
			t.Fatalf("not kept alive: got %v, want ErrExpired", other.Err())
		}
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		db.Advance(2 * time.Second)
		if !errors.Is(kept.Err(), lockd.ErrExpired) {
			t.Fatalf("after KeepAlive: got %v, want ErrExpired", kept.Err())
		}
	})
}

// Ensure that Advance ends all sessions that are due, also if they are more than one write ends.
func TestAdvance_ManyAtOneInstant(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		sessions := make([]*lockd.Session, 2500)
		for i := range sessions {
			sessions[i] = session(t, db, "", time.Second)
		}
		db.Advance(time.Second)
		for i, s := range sessions {
			if s.Err() == nil {
				t.Fatalf("session %d lives", i)
			}
		}
	})
}

// slowToEnd makes a session whose end, in 10 s, takes the database long: it holds many locks.
func slowToEnd(t *testing.T, db *lockdtest.DB) *lockd.Session {
	t.Helper()
	s := session(t, db, "large", 10*time.Second)
	must(t, db.Update(func(tx *lockd.Txn) error {
		for i := range 10_000 {
			if _, err := tx.Lock(strconv.Itoa(i), s.ID(), nil); err != nil {
				return err
			}
		}
		return nil
	}))
	return s
}

// Ensure that Advance returns after the notification of what is due, however long the commit takes.
func TestAdvance_WaitsForTheDatabase(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		large := slowToEnd(t, db)
		db.Advance(10 * time.Second)
		if large.Err() == nil {
			t.Fatal("the end is not told when Advance returns")
		}
	})
}

// Ensure that an end that becomes due while the database is busy with an earlier one is not late.
func TestAdvance_NothingIsLateBehindOthers(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		slowToEnd(t, db)
		tryLock(t, session(t, db, "b", 11*time.Second), "k") // its delay is over at 26 s
		db.Advance(26 * time.Second)
		tryLock(t, session(t, db, "c", 0), "k")
	})
}

// Ensure that in a bubble the goroutines of the test act at the instant of their notification.
func TestAdvance_BubbleWaitsForTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := lockdtest.New(t, nil)
		began := db.Now()
		var told []time.Duration
		done := make(chan struct{})
		go func() { // makes a session as soon as the one before has ended
			defer close(done)
			for range 4 {
				s := session(t, db, "", 3*time.Second)
				<-s.Done()
				told = append(told, db.Since(began))
			}
		}()
		db.Advance(20 * time.Second)
		<-done
		want := []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second, 12 * time.Second}
		if !slices.Equal(told, want) {
			t.Fatalf("ends: got %v, want %v", told, want)
		}
	})
}

// Ensure that in a bubble a waiter that was granted its lock goes on before the clock moves.
func TestAdvance_BubbleBeginsWhenTheTestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := lockdtest.New(t, nil)
		began := db.Now()
		lock := tryLock(t, session(t, db, "", 0), "k")
		next := session(t, db, "", 0)
		var granted time.Time
		waiting := start(func() error {
			_, err := next.Lock(context.Background(), "k", nil)
			granted = db.Now()
			return err
		})
		db.WaitForWaiters("k", 1)
		must(t, lock.Unlock())
		db.Advance(time.Minute)
		must(t, waiting.wait())
		if !granted.Equal(began) {
			t.Fatalf("the waiter went on %v after the grant", granted.Sub(began))
		}
	})
}

// Ensure that Advance moves the clock of a database that is closed too, and never back.
func TestAdvance_Bounds(t *testing.T) {
	both(t, func(t *testing.T, db *lockdtest.DB) {
		session(t, db, "", time.Second)
		must(t, db.Close())
		began := db.Now()
		db.Advance(time.Minute)
		if got := db.Since(began); got != time.Minute {
			t.Fatalf("moved by %v", got)
		}
	})
	fails(t, func(t testing.TB) { lockdtest.New(t, nil).Advance(-1) },
		[]string{"Advance by -1ns", "cannot go back"})
}

// Ensure that a call in a bubble, on a database that was made outside it, fails the test in words
// instead of waiting for ever.
func TestAdvance_InABubbleOfItsOwn(t *testing.T) {
	want := "made outside: call lockdtest.New in the function of synctest.Test"
	for name, do := range map[string]func(db *lockdtest.DB, s *lockd.Session){
		"Advance":          func(db *lockdtest.DB, _ *lockd.Session) { db.Advance(time.Minute) },
		"Expire":           func(db *lockdtest.DB, s *lockd.Session) { db.Expire(s) },
		"WaitForWaiters":   func(db *lockdtest.DB, _ *lockd.Session) { db.WaitForWaiters("k", 1) },
		"WaitForKeepAlive": func(db *lockdtest.DB, s *lockd.Session) { db.WaitForKeepAlive(s) },
		"WaitForCommit":    func(db *lockdtest.DB, _ *lockd.Session) { db.WaitForCommit() },
	} {
		fails(t, func(tb testing.TB) {
			db := lockdtest.New(tb, nil)
			s := session(tb, db, "", time.Minute)
			synctest.Test(t, func(*testing.T) {
				<-start(func() error { do(db, s); return nil }).done
			})
		}, []string{"lockdtest: " + name + " inside a bubble", want})
	}
	synctest.Test(t, func(t *testing.T) { lockdtest.New(t, nil).Advance(time.Minute) })
}

// Ensure that a call with the test's own context ends before anything is checked, and that one with
// another context is found to wait.
func TestCleanup_FindsCallsByTheirContexts(t *testing.T) {
	for _, own := range []bool{true, false} {
		var waiting *call
		var wanted [][]string
		if !own {
			wanted = [][]string{{"still waited for the lock of [\"k\"]"}}
		}
		fails(t, func(t testing.TB) {
			db := lockdtest.New(t, nil)
			tryLock(t, session(t, db, "", 0), "k")
			s, ctx := session(t, db, "", 0), t.Context()
			if !own {
				ctx = context.Background()
			}
			waiting = start(func() error { _, err := s.Lock(ctx, "k", nil); return err })
			db.WaitForWaiters("k", 1)
		}, wanted...)
		if err := waiting.wait(); own != errors.Is(err, context.Canceled) {
			t.Errorf("own context %v: got %v", own, err)
		}
	}
}
