package lockdtest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// put writes the number of a report.
type put func(db *lockd.DB, lock *lockd.Lock, number string) error

func unfenced(db *lockd.DB, _ *lockd.Lock, number string) error {
	_, err := db.Put("report", []byte(number), nil)
	return err
}

func fenced(db *lockd.DB, lock *lockd.Lock, number string) error {
	_, err := db.If(lock.Sequencer()).Put("report", []byte(number), nil)
	return err
}

// reporters returns a body with two holders of one lock, kept alive, who write reports of rising
// numbers. A holder that is paused for longer than its TTL writes its report after the next one,
// unless it is fenced.
func reporters(put put) func(w *lockdtest.World) {
	return func(w *lockdtest.World) {
		newest, shown := 0, 0
		for _, name := range []string{"ann", "bob"} {
			w.Go(name, func() {
				ctx, stop := context.WithCancel(context.Background())
				defer stop()
				s, err := w.DB().NewSession(
					&lockd.SessionOptions{Name: name, TTL: 10 * time.Second})
				if err != nil {
					return
				}
				w.Go(name+", renewed", func() { _ = s.KeepAlive(ctx) })
				lock, err := s.Lock(ctx, "report", nil)
				if err != nil {
					return
				}
				newest++
				if put(w.DB(), lock, strconv.Itoa(newest)) == nil {
					_ = lock.Unlock()
				}
			})
		}
		w.Invariant("reports get newer", func() error {
			report, _ := w.DB().Get("report")
			number, _ := strconv.Atoi(string(report.Value))
			if number < shown {
				return fmt.Errorf("report %d comes after report %d", number, shown)
			}
			shown = number
			return nil
		})
	}
}

// Ensure that the late write of a paused holder is found, and that the same write with a fence is
// never late.
func TestExplore_LateWrite(t *testing.T) {
	began := time.Now()
	found := lockdtest.Search(t, nil, reporters(unfenced))
	t.Logf("schedule %d, after %v; seed %s", found.Number, time.Since(began), found.Seed)
	if !strings.Contains(found.Text, "reports get newer: report 1 comes after report 2") {
		t.Fatalf("the late write was not found:\n%s", found.Text)
	}
	lockdtest.Explore(t, nil, reporters(fenced))
}

// Ensure that without anything that makes a holder late no late write is found, in any order.
func TestExplore_WithoutChanges(t *testing.T) {
	opts := lockdtest.ExploreOptions{Changes: lockdtest.NoChanges, Schedules: 10_000}
	lockdtest.Explore(t, &opts, reporters(unfenced))
}

// noFaults excludes all faults.
const noFaults = lockdtest.Pauses | lockdtest.LostRenewals | lockdtest.FailedCommits

// Ensure that a holder is also late without faults: where time passes before it goes on.
func TestExplore_WithoutFaults(t *testing.T) {
	opts := &lockdtest.ExploreOptions{Without: noFaults, Changes: 5}
	found := lockdtest.Search(t, opts, reporters(unfenced))
	if found.Seed == "" {
		t.Fatal("no late write was found")
	}
	for _, fault := range []string{"stands still", "is lost", "fails"} {
		if strings.Contains(found.Text, fault) {
			t.Errorf("%q in\n%s", fault, found.Text)
		}
	}
}

// Ensure that each single change of the plain schedule is run.
func TestExplore_SingleChanges(t *testing.T) {
	const points = 20
	opts := lockdtest.ExploreOptions{Without: noFaults, Changes: 1, Schedules: 4 * (points + 4)}
	for at := 1; at < points; at++ {
		found := lockdtest.Search(t, &opts, func(w *lockdtest.World) {
			passed := 0
			w.Go("ann", func() {
				for range points {
					w.Yield()
					passed++
				}
			})
			w.Go("bob", func() {
				if passed == at {
					w.Errorf("ann has passed %d points", at)
				}
			})
		})
		if found.Seed == "" {
			t.Errorf("bob has never come after %d of ann's points", at)
		}
	}
}

// Ensure that a seed is the same schedule, step by step, each time.
func TestExplore_SameSeedSameTimeline(t *testing.T) {
	found := lockdtest.Search(t, nil, reporters(unfenced))
	for n := range 100 {
		again := lockdtest.Replay(t, found.Seed, reporters(unfenced))
		_, first, _ := strings.Cut(found.Text, "\n\n")
		if _, text, _ := strings.Cut(again.Text, "\n\n"); text != first || text == "" {
			t.Fatalf("time %d of 100:\n%s\nfirst:\n%s", n, again.Text, found.Text)
		}
	}
	// Schedules that pass are repeated as exactly.
	for _, seed := range []string{"0", "3", "7.s3.t9.c12", "12.r5.p20", "5.d9", "6.w11.s20"} {
		want := lockdtest.Replay(t, seed, restarting(0)).Text
		for range 20 {
			if got := lockdtest.Replay(t, seed, restarting(0)).Text; got != want || got == "" {
				t.Fatalf("seed %s:\n%s\nand then:\n%s", seed, want, got)
			}
		}
	}
}

// Ensure that the schedule that is printed is never longer than the one that was found.
func TestExplore_Shrinks(t *testing.T) {
	for name, body := range map[string]func(w *lockdtest.World){
		"late write": reporters(unfenced), "restart": restarting(1), "counter": counter,
	} {
		found := lockdtest.Search(t, nil, body)
		t.Logf("%s: found by schedule %d of %d steps, printed %d steps with %d changes", name,
			found.Number, found.First, found.Steps, found.Changes)
		if found.Steps == 0 || found.Steps > found.First {
			t.Errorf("%s: %d steps after %d", name, found.Steps, found.First)
		}
		if again := lockdtest.Replay(t, found.Seed, body); again.Steps != found.Steps {
			t.Errorf("%s: %d steps, and %d with its seed", name, found.Steps, again.Steps)
		}
	}
}

// counter counts without a lock.
func counter(w *lockdtest.World) {
	done := 0
	for _, name := range []string{"a", "b", "c"} {
		w.Go(name, func() {
			defer func() { done++ }()
			seen, _ := w.DB().Get("counter")
			n, _ := strconv.Atoi(string(seen.Value))
			for errors.Is(put1(w.DB(), n+1), lockd.ErrCommit) {
			}
		})
	}
	w.Await(func() bool { return done == 3 })
	if e, _ := w.DB().Get("counter"); string(e.Value) != "3" {
		w.Errorf("three have counted to %s", e.Value)
	}
}

func put1(db *lockd.DB, n int) error {
	_, err := db.Put("counter", []byte(strconv.Itoa(n)), nil)
	return err
}

// restarting returns a body that counts writes before they are answered, or after. A write that is
// counted early may be lost when the process dies.
func restarting(early int) func(w *lockdtest.World) {
	return func(w *lockdtest.World) {
		answered := 0
		work := func() {
			for n := range 3 {
				if early == 1 {
					answered = n + 1
				}
				if put1(w.DB(), n+1) != nil {
					return
				}
				answered = n + 1
			}
		}
		w.Restart(func() {
			e, _ := w.DB().Get("counter")
			if n, _ := strconv.Atoi(string(e.Value)); n < answered {
				w.Errorf("%d were answered, and %d are there", answered, n)
			}
		})
		work()
	}
}

// Ensure that an answered write is still there when the process has died, and that a write which is
// not answered may be lost.
func TestExplore_Restart(t *testing.T) {
	lockdtest.Explore(t, nil, restarting(0))
	found := lockdtest.Search(t, &lockdtest.ExploreOptions{Without: lockdtest.FailedCommits},
		restarting(1))
	if !strings.Contains(found.Text, "are there") ||
		!strings.Contains(found.Text, "the process dies") {
		t.Errorf("a lost write was not found: %s", found.Text)
	}
}

// Ensure that a commit that was reported as failed may be in the file, so that a body which relies
// on the report fails, and that the wall clock may be set back before the next process begins.
func TestExplore_FailedAndSetBack(t *testing.T) {
	var failed error
	found := lockdtest.Search(t, nil, func(w *lockdtest.World) {
		failed = nil
		w.Restart(func() {
			if _, there := w.DB().Get("counter"); there && errors.Is(failed, lockd.ErrCommit) {
				w.Errorf("there, and reported as: %v", failed)
			}
		})
		failed = put1(w.DB(), 1)
	})
	for _, want := range []string{
		"there, and reported as: ",
		" DB.Put at explore_test.go:",
		" commits → the commit is in the file, and is reported as failed",
		"the database has failed: it is closed, and the next process begins",
	} {
		if !strings.Contains(found.Text, want) {
			t.Errorf("got %q, want %q", found.Text, want)
		}
	}
	if strings.Contains(found.Text, "options.go") || strings.Contains(found.Text, "hooks.go") {
		t.Errorf("a line of lockd's own is named: %q", found.Text)
	}
	found = lockdtest.Search(t, nil, func(w *lockdtest.World) {
		began := w.Clock().Now()
		w.Restart(func() {
			if now := w.Clock().Now(); now.Before(began) {
				w.Errorf("the wall clock was at %v, and is at %v", began.Unix(), now.Unix())
			}
		})
		_, _ = w.DB().NewSession(&lockd.SessionOptions{LockDelay: 7 * time.Second})
	})
	if !strings.Contains(found.Text, "the wall clock was at 0, and is at -7") ||
		!strings.Contains(found.Text, "the wall clock is set back by 7s") {
		t.Errorf("got %q", found.Text)
	}
}

// Ensure that changes which fail commits add up.
func TestExplore_CommitsFailInARow(t *testing.T) {
	failures := 0
	lockdtest.Replay(t, "0.c1.c2", func(w *lockdtest.World) {
		failures = 0
		for put1(w.DB(), 1) != nil {
			failures++
		}
	})
	if failures != 2 {
		t.Errorf("%d commits have failed, want 2", failures)
	}
}

// Ensure that a body which cannot end, or breaks a rule for bodies, fails and says why.
func TestExplore_Faults(t *testing.T) {
	lock := func(w *lockdtest.World, name, first, second string) func() {
		return func() {
			s, err := w.DB().NewSession(&lockd.SessionOptions{Name: name})
			if err != nil {
				return
			}
			defer s.Close()
			for _, key := range []string{first, second} {
				if _, err := s.Lock(context.Background(), key, nil); err != nil {
					return
				}
			}
		}
	}
	for want, body := range map[string]func(w *lockdtest.World){
		"wait: these wait for ever: ann for the lock of b; bob for the lock of a": func(
			w *lockdtest.World) {
			w.Go("ann", lock(w, "ann", "a", "b"))
			w.Go("bob", lock(w, "bob", "b", "a"))
		},
		"wait: these wait for ever: body for its condition": func(w *lockdtest.World) {
			w.Await(func() bool { return false })
		},
		"goroutine: body waits for something that is not lockd's: use World.Await, or " +
			"World.Sleep": func(w *lockdtest.World) {
			s, err := w.DB().NewSession(nil)
			if err == nil {
				<-s.Done()
			}
		},
		"panic: body: lockdtest: nil function": func(w *lockdtest.World) { w.Go("x", nil) },
		"panic: ann: lockdtest: nil function": func(w *lockdtest.World) {
			w.Go("ann", func() { w.Await(nil) })
		},
		"panic: ann: no such thing": func(w *lockdtest.World) {
			w.Go("ann", func() { panic("no such thing") })
		},
		"end: the schedule has not ended": func(w *lockdtest.World) {
			for {
				w.Yield()
			}
		},
		"the answer is 42": func(w *lockdtest.World) { w.Errorf("the answer is %d", 42) },
		"panic: the rule odd: no rule": func(w *lockdtest.World) {
			w.Invariant("odd", func() error { panic("no rule") })
			_ = put1(w.DB(), 1)
		},
		"panic: the rule waits: it calls World.Await, and must not": func(w *lockdtest.World) {
			w.Invariant("waits", func() error {
				w.Await(func() bool { return false })
				return nil
			})
			_ = put1(w.DB(), 1)
		},
		"panic: a condition of World.Await: it calls World.Sleep": func(w *lockdtest.World) {
			w.Await(func() bool { w.Sleep(time.Second); return true })
		},
		"panic: a condition of World.Await: no condition": func(w *lockdtest.World) {
			w.Await(func() bool { panic("no condition") })
		},
	} {
		found := lockdtest.Search(t, &lockdtest.ExploreOptions{Schedules: 300,
			Without: lockdtest.FailedCommits}, body)
		if !strings.Contains(found.Text, want) {
			t.Errorf("got %q, want %q", found.Text, want)
		}
	}
}

// Ensure that timers and contexts of the standard library run by the clock of the World.
func TestExplore_Clock(t *testing.T) {
	lockdtest.Explore(t, &lockdtest.ExploreOptions{Schedules: 100}, func(w *lockdtest.World) {
		w.Go("waits", func() {
			s, err := w.DB().NewSession(nil)
			if err != nil {
				return
			}
			other, err := w.DB().NewSession(nil)
			if err != nil {
				return
			}
			l, err := other.TryLock("a", nil)
			if err != nil {
				return
			}
			began := w.Clock().Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err = s.Lock(ctx, "a", nil)
			if took := w.Clock().Now().Sub(began); !errors.Is(err, context.DeadlineExceeded) ||
				took < time.Minute-time.Second || took > 3*time.Minute {
				w.Errorf("Lock returned %v after %v", err, took)
			}
			began = w.Clock().Now()
			w.Sleep(time.Hour)
			if took := w.Clock().Now().Sub(began); took < time.Hour {
				w.Errorf("Sleep took %v", took)
			}
			_ = l
		})
	})
}

// Ensure that a call which waits until its context ends is not said to wait for ever, although time
// passes at a moment at which a session is due to be renewed, and was often renewed before.
func TestExplore_WaitsBesideRenewals(t *testing.T) {
	found := lockdtest.Search(t, &lockdtest.ExploreOptions{
		Schedules: 300, Changes: 1, Without: lockdtest.FailedCommits | lockdtest.LostRenewals,
	}, func(w *lockdtest.World) {
		s, err := w.DB().NewSession(&lockd.SessionOptions{TTL: time.Second})
		if err != nil {
			w.Errorf("%v", err)
			return
		}
		w.Go("alive", func() { _ = s.KeepAlive(context.Background()) })
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if _, err := s.TryLock("a", nil); err == nil {
			_, _ = s.Lock(ctx, "a", nil)
		}
	})
	if found.Text != "" {
		t.Error(found.Text)
	}
}

// Ensure that the clock stops at the first timer of the standard library that wakes a goroutine,
// and that a goroutine may sleep for as long as it likes.
func TestExplore_ClockStopsAtTimers(t *testing.T) {
	lockdtest.Explore(t, &lockdtest.ExploreOptions{
		Schedules: 1, Changes: lockdtest.NoChanges,
	}, func(w *lockdtest.World) {
		holder, err := w.DB().NewSession(nil)
		if err == nil {
			_, err = holder.TryLock("a", nil)
		}
		var s *lockd.Session
		if err == nil {
			s, err = w.DB().NewSession(&lockd.SessionOptions{TTL: 10 * time.Second})
		}
		for range 5 {
			if err != nil {
				break
			}
			began := w.Clock().Now()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			_, waited := s.Lock(ctx, "a", nil)
			cancel()
			took := w.Clock().Now().Sub(began)
			if !errors.Is(waited, context.DeadlineExceeded) || took < 3*time.Second ||
				took > 3*time.Second+100*time.Millisecond {
				w.Errorf("Lock returned %v after %v", waited, took)
			}
			err = s.Renew()
		}
		if err != nil {
			w.Errorf("%v", err)
			return
		}
		w.Go("alive", func() { _ = s.KeepAlive(context.Background()) })
		w.Sleep(2 * time.Hour)
	})
}

// Ensure that a process that dies while no commit is under way commits nothing more: the lock that
// it held is delayed in the next process.
func TestExplore_DiesWithoutACommit(t *testing.T) {
	died := 0
	lockdtest.Explore(t, &lockdtest.ExploreOptions{Schedules: 500}, func(w *lockdtest.World) {
		holds := false
		w.Restart(func() {
			began := w.Clock().Now()
			s, err := w.DB().NewSession(nil)
			if err != nil || !holds {
				return
			}
			died++
			l, err := s.TryLock("k", nil)
			if err == nil && w.Clock().Now().Sub(began) < lockd.DefaultLockDelay/2 {
				w.Errorf("granted at once: %v", l.Sequencer())
			}
		})
		s, err := w.DB().NewSession(nil)
		if err != nil {
			return
		}
		if _, err := s.TryLock("k", nil); err != nil {
			return
		}
		holds = true
		w.Sleep(time.Second)
		holds = false
	})
	if died == 0 {
		t.Error("no process has died")
	}
}

// Ensure that a failure that does not come again is told all the same, and why it does not.
func TestExplore_BodyThatDoesNotRepeat(t *testing.T) {
	for what, then := range map[string]func(){
		"passes":          func() {},
		"fails otherwise": func() { panic("the eighth run") },
	} {
		runs := 0
		found := lockdtest.Search(t, &lockdtest.ExploreOptions{Schedules: 20},
			func(w *lockdtest.World) {
				if runs++; runs == 7 {
					w.Errorf("the seventh run")
				} else if runs > 7 {
					then()
				}
				_ = put1(w.DB(), 1)
			})
		for _, want := range []string{
			"lockdtest: the seventh run\n", "The same schedule " + what,
			"does not do the same each time",
		} {
			if !strings.Contains(found.Text, want) {
				t.Errorf("got %q, want %q", found.Text, want)
			}
		}
	}
}

// Ensure that all goroutines end with the database, also those that watch.
func TestExplore_Watch(t *testing.T) {
	ended := 0
	lockdtest.Explore(t, &lockdtest.ExploreOptions{Schedules: 50}, func(w *lockdtest.World) {
		w.Go("watch", func() {
			scope := lockd.PrefixScope("")
			for _, err := range w.DB().Watch(context.Background(), scope, 0) {
				if err != nil && !errors.Is(err, lockd.ErrClosed) {
					w.Errorf("%v", err)
				}
			}
			ended++
		})
		_ = put1(w.DB(), 1)
	})
	if ended != 50 {
		t.Errorf("%d of 50 watchers have ended", ended)
	}
}

func TestExplore_Options(t *testing.T) {
	for want, opts := range map[string]lockdtest.ExploreOptions{
		"Schedules is -1": {Schedules: -1},
		"Changes is -2":   {Changes: -2},
		"Without is 8":    {Without: lockdtest.Pauses << 1},
	} {
		if err := lockdtest.CheckOptions(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, seed := range []string{"", "x", "1.", "1.x3", "1.s", "1.s3x", ".s3", "-1",
		"1.s-3", "1.s0", "1.s+3", "1.s9.t3"} {
		if _, err := lockdtest.CheckSeed(seed); err == nil {
			t.Errorf("seed %q is taken", seed)
		}
	}
	for _, seed := range []string{"0", "18446744073709551615", "7.s1.t2.p3.r4.c5.d6.w7.u8.b9"} {
		if again, err := lockdtest.CheckSeed(seed); err != nil || again != seed {
			t.Errorf("seed %q: got %q, %v", seed, again, err)
		}
	}
}

// Ensure that the renewals of a session are lost while the goroutine that made it stands still: so
// schedules in which nothing else fails come to a lock that was lost behind its holder's back.
func TestExplore_PauseLosesTheLock(t *testing.T) {
	lost := false
	without := lockdtest.FailedCommits | lockdtest.LostRenewals
	lockdtest.Explore(t, &lockdtest.ExploreOptions{Schedules: 200, Without: without},
		func(w *lockdtest.World) {
			w.Go("worker", func() {
				k, err := w.DB().NewKeeper(&lockd.SessionOptions{TTL: 10 * time.Second})
				if err != nil {
					w.Errorf("keeper: %v", err)
					return
				}
				s, err := k.Session(context.Background())
				if err == nil {
					var lock *lockd.Lock
					if lock, err = s.TryLock("k", nil); err == nil {
						w.Yield()
						lost = lost || errors.Is(lock.Err(), lockd.ErrExpired)
					}
				}
				if err != nil && !errors.Is(err, lockd.ErrNoSession) {
					w.Errorf("lock: %v", err)
				}
				_ = k.Close()
			})
		})
	if !lost {
		t.Error("no schedule has lost the lock")
	}
}
