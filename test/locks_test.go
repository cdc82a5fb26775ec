package lockd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// locksAs is what Locks shows, in words.
func (h *harness) locksAs() []string {
	var lines []string
	for l := range h.Locks() {
		line := l.Key
		if !l.Holder.ID.IsZero() {
			line += fmt.Sprintf(" held by %s on %s", l.Holder.Name, l.Holder.Node)
			if l.Since.IsZero() {
				line += " since before"
			} else {
				line += fmt.Sprintf(" since %d for %v", l.Since.Unix(), l.Held)
			}
			if e := h.entry(l.Key); e.Fence != l.Fence || e.Session != l.Holder.ID {
				line += fmt.Sprintf(", but the entry is %+v", e)
			}
		}
		if !l.DelayedUntil.IsZero() {
			line += fmt.Sprintf(" delayed until %d", l.DelayedUntil.Unix())
		}
		for _, w := range l.Queue {
			line += fmt.Sprintf(", %s since %d for %v", w.Session.Name, w.Since.Unix(), w.Waited)
			if len(w.Keys) > 1 {
				line += fmt.Sprint(" for all of ", w.Keys)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (h *harness) mustShow(want ...string) {
	h.t.Helper()
	if got := h.locksAs(); !slices.Equal(got, want) {
		h.t.Fatalf("locks: got  %q\nwant %q", got, want)
	}
}

// Ensure that Locks shows, in the order of the keys, the holder and since when, the waiters in
// order and how long they wait, and the end of a delay; and that it shows no free lock.
func TestLocks_ShowsHolderQueueAndDelay(t *testing.T) {
	each(t, func(h *harness) {
		h.mustShow()
		h.put("free", "v", 0)
		a, b, c := h.named("a"), h.named("b"), h.named("c")
		h.lock(a, "z")
		h.advance(2 * time.Second)
		h.lock(a, "k")
		ctx, cancel := context.WithCancel(h.t.Context())
		first := h.wait(ctx, b, "k", nil)
		h.advance(time.Second)
		h.lockCall(func() ([]*lockd.Lock, error) {
			return c.LockAll(h.t.Context(), []string{"k", "also"}, nil)
		}).waits()
		h.advance(3 * time.Second)
		h.mustShow(
			"also, c since 3 for 3s for all of [k also]",
			"k held by a on local since 2 for 4s, b since 2 for 4s, "+
				"c since 3 for 3s for all of [k also]",
			"z held by a on local since 0 for 6s",
		)

		h.must(h.EndSession(a.ID()))
		h.advance(9 * time.Second)
		h.mustShow(
			"also, c since 3 for 12s for all of [k also]",
			"k delayed until 16, b since 2 for 13s, c since 3 for 12s for all of [k also]",
			"z delayed until 16",
		)

		h.advance(2 * time.Second)
		lock := first.held()
		h.mustShow(
			"also, c since 3 for 14s for all of [k also]",
			"k held by b on local since 16 for 1s, c since 3 for 14s for all of [k also]",
		)
		cancel() // too late
		h.must(lock.Unlock())
		h.settle()
		h.mustShow("also held by c on local since 17 for 0s",
			"k held by c on local since 17 for 0s")
		h.must(c.Close())
		h.mustShow()
	})
}

// Ensure that Locks shows the holders of a semaphore's slots, the lost slots that still count, the
// waiters and the limit; and that it takes no other key for a semaphore.
func TestLocks_ShowsSemaphores(t *testing.T) {
	each(t, func(h *harness) {
		a, b, c, d := h.named("a"), h.named("b"), h.named("c"), h.named("d")
		must := func(want ...string) {
			h.t.Helper()
			var got []string
			for l := range h.Locks() {
				key := l.Key
				for _, s := range []*lockd.Session{a, b, c, d} {
					key = strings.ReplaceAll(key, s.ID().String(), s.Info().Name)
				}
				line := fmt.Sprintf("%s %q limit %d", key, l.Holder.Name, l.Limit)
				for _, w := range l.Queue {
					line += ", " + w.Session.Name
				}
				if !l.DelayedUntil.IsZero() {
					line += fmt.Sprint(", delayed until ", l.DelayedUntil.Unix())
				}
				got = append(got, line)
			}
			slices.Sort(got) // the sessions' IDs are random
			if !slices.Equal(got, want) {
				h.t.Fatalf("locks:\ngot  %q\nwant %q", got, want)
			}
		}
		h.slot(a, 2)
		h.slot(b, 2)
		must(`sem/a "a" limit 2`, `sem/b "b" limit 2`)
		waiting := h.awaitSlot(h.t.Context(), c, 2)
		h.lock(d, "sem/"+d.ID().String()) // as another client does that waits for a slot
		h.put("other/.lock", "no semaphore", 0)
		h.lock(d, "other/.lock")
		h.must(h.EndSession(b.ID()))
		must(`other/.lock "d" limit 0`, `sem/.lock "" limit 2, c`, `sem/a "a" limit 2`,
			`sem/b "" limit 2, delayed until 10`, `sem/d "d" limit 0`)
		h.advance(10 * time.Second)
		h.must(waiting.held().Release())
		must(`other/.lock "d" limit 0`, `sem/a "a" limit 2`, `sem/d "d" limit 0`)
	})
}

// Ensure that after a reopen Locks says that it does not know since when a lock is held, and that
// the next grant is known again.
func TestLocks_SinceBeforeTheFileWasOpened(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Name: "a", Lifetime: lockd.Independent})
		h.lock(s, "k")
		h.advance(time.Minute)
		h.mustShow("k held by a on local since 0 for 1m0s")
		h.reopen()
		h.mustShow("k held by a on local since before")
		refusal := h.refusal(h.session(nil), "k")
		want := `held by "a" (session ` + s.ID().String() + `) since before the file was opened`
		if !refusal.Since.IsZero() || refusal.Held != 0 || refusal.Error() != want {
			h.t.Errorf("refusal: got %v, %v, %q\nwant %q", refusal.Since, refusal.Held,
				refusal.Error(), want)
		}

		again, err := h.Session(s.ID())
		h.must(err)
		lock := h.lock(again, "k") // takes it over: the same grant
		h.mustShow("k held by a on local since before")
		h.must(lock.Unlock())
		h.lock(again, "k")
		h.mustShow("k held by a on local since 60 for 0s")
	})
}

// Ensure that Locks shows the state before a commit until the commit is durable: the holder, the
// waiters that are to leave the queue in their places, and no delay; and also if the commit fails.
func TestG3_LocksShowWhatIsDurable(t *testing.T) {
	for _, outcome := range []error{nil, errDisk} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				a, b, d := h.named("a"), h.named("b"), h.named("d")
				lock := h.lock(a, "k")
				h.lock(a, "other")
				h.line("k", b, d)
				before := h.locksAs()
				h.mustShow(
					"k held by a on local since 0 for 0s, b since 0 for 0s, d since 0 for 0s",
					"other held by a on local since 0 for 0s")

				unlocking := c.held(lock.Unlock)
				h.mustShow(before...)
				ending := start(func() error { return h.EndSession(a.ID()) })
				joined := start(func() error { return second(b.TryLock("new", nil)) })
				h.settle()
				h.mustShow(before...)
				c.release(outcome)
				if err := unlocking.wait(); (err == nil) != (outcome == nil) {
					t.Fatalf("unlock: %v", err)
				}
				_, _ = ending.wait(), joined.wait()
				h.settle()
				if outcome != nil {
					h.mustShow(before...)
					return
				}
				h.mustShow("k held by b on local since 0 for 0s, d since 0 for 0s",
					"new held by b on local since 0 for 0s", "other delayed until 10")
			})
		})
	}
}

// Ensure that a waiter that is about to be served and has given up meanwhile is no longer shown.
func TestLocks_ShowsNobodyWhoHasGivenUp(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		lock := h.lock(h.named("a"), "k")
		ctx, cancel := context.WithCancel(h.t.Context())
		waiting := h.wait(ctx, h.named("b"), "k", nil)
		unlocking := c.held(lock.Unlock)
		h.mustShow("k held by a on local since 0 for 0s, b since 0 for 0s")
		cancel()
		h.settle()
		if !isClosed(waiting.back) {
			t.Fatal("the call goes on")
		}
		h.mustShow("k held by a on local since 0 for 0s")
		c.release(nil)
		h.must(unlocking.wait())
		h.settle()
		h.mustShow()
	})
}

// Ensure that a delay that replaces another one is shown when it is durable, and no earlier.
func TestG3_LocksShowTheDelayThatIsDurable(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.named("a")
		h.lock(s, "k")
		ending := c.held(func() error { return h.EndSession(s.ID()) })
		h.mustShow("k held by a on local since 0 for 0s")
		c.release(nil)
		h.must(ending.wait())
		h.mustShow("k delayed until 10")

		// It is shown also while a value of the key is not durable.
		writes := c.held(func() error { return second(h.Put("k", []byte("v"), nil)) })
		h.mustShow("k delayed until 10")
		c.release(nil)
		h.must(writes.wait())
	})
}

// Ensure that the loop over Locks may do whatever it likes: nothing is locked meanwhile.
func TestLocks_LoopMayWrite(t *testing.T) {
	each(t, func(h *harness) {
		s := h.named("a")
		for i := range 5 {
			h.lock(s, fmt.Sprint(i))
		}
		n := 0
		for l := range h.Locks() {
			h.must(h.ForceUnlock(l.Key, l.Fence, "in a loop"))
			if n++; n == 3 {
				break
			}
		}
		if got := len(h.locksAs()); got != 5 { // two held, three delayed
			h.t.Errorf("locks: got %d, want 5", got)
		}
	})
}

// Ensure that after Close Locks shows the last state: locks that live on in the file, and no waits.
func TestLocks_AfterClose(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Name: "a", Lifetime: lockd.Independent})
		h.lock(s, "k")
		h.lock(h.named("b"), "gone")
		waiting := h.wait(h.t.Context(), s, "gone", nil)
		h.must(h.Close())
		h.settle()
		if !closed(waiting.back) {
			h.t.Fatal("the call still waits")
		}
		h.mustShow("k held by a on local since 0 for 0s")
	})
}

// Ensure that every method that shows something may be called while others write.
func TestSeeing_Concurrently(t *testing.T) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		writers.Go(func() {
			for i := range 300 {
				s, err := db.NewSession(&lockd.SessionOptions{Name: "a"})
				if err != nil {
					t.Error(err)
					return
				}
				l, err := s.Lock(t.Context(), "k", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					err = l.Unlock()
				}
				if err != nil || s.Close() != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Go(func() {
		for !closed(stop) {
			for l := range db.Locks() {
				if l.Key != "k" || l.Holder.ID.IsZero() && l.Queue == nil {
					t.Errorf("lock: got %+v", l)
				}
			}
			if stats := db.Stats(); stats.Locks > 1 || stats.Waiters > 3 {
				t.Errorf("stats: got %+v", stats)
			}
			for _, h := range db.History("k") {
				if h.Granted.Name != "a" && h.Ended.Name != "a" || h.Key != "k" || h.Time.IsZero() {
					t.Errorf("transition: got %+v", h)
				}
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	if got := db.Stats(); got.Grants != 900 || got.Locks != 0 || got.Sessions != 0 ||
		got.Waiters != 0 || got.Ends.Closed != 900 || got.Ends.Unlocked != 450 {
		t.Errorf("stats: got %+v", got)
	}
}

// Ensure that a lock is shown until its release is durable, also if there is no waiter and no other
// state of it.
func TestG3_LocksShowALockUntilItsReleaseIsDurable(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		lock := h.lock(h.named("a"), "k")
		unlocking := c.held(lock.Unlock)
		h.mustShow("k held by a on local since 0 for 0s")
		c.release(nil)
		h.must(unlocking.wait())
		h.mustShow()
	})
}

// Ensure that MostAwaited yields the locks with the most waiters first, then the lock whose first
// waiter has waited longest, and then by the key; that it leaves out locks without waiters; and
// that a waiter whose grant is not durable waits on.
func TestMostAwaited_Order(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		must := func(n int, want ...string) {
			h.t.Helper()
			var got []string
			for _, l := range h.MostAwaited(n) {
				got = append(got, fmt.Sprint(l.Key, len(l.Queue)))
			}
			if !slices.Equal(got, want) {
				h.t.Fatalf("the %d most awaited: got %q, want %q", n, got, want)
			}
		}
		held := map[string]*lockd.Lock{}
		for _, key := range []string{"quiet", "a", "b", "c", "many"} {
			held[key] = h.lock(h.session(nil), key)
		}
		must(1)
		wait := func(key string) { h.wait(h.t.Context(), h.session(nil), key, nil) }
		wait("c")
		h.advance(time.Second)
		wait("many")
		wait("many")
		wait("b")
		wait("a")
		must(-1)
		must(0)
		must(1, "many2")
		must(3, "many2", "c1", "a1")
		must(100, "many2", "c1", "a1", "b1")

		unlock := c.held(held["many"].Unlock)
		must(2, "many2", "c1")
		c.release(nil)
		h.must(unlock.wait())
		h.settle()
		must(4, "c1", "a1", "b1", "many1")
	})
}
