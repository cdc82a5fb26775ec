package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// hasty is a clock whose timers ring early, and ring again when they are set anew.
type hasty struct{ *clock.Mock }

func (c hasty) AfterFunc(d time.Duration, fn func()) *clock.Timer {
	return c.Mock.AfterFunc(max(1, d/2), fn)
}

// Ensure that timers which ring too early end nothing too soon, and nothing too late.
func TestClock_G6G7_EarlyTimer(t *testing.T) {
	each(t, func(h *harness) {
		h.opts.Clock = hasty{h.clock}
		h.reopen()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: 10 * time.Second})
		next := h.session(nil)
		lock := h.lock(s, "k")
		waiting := start(func() error { return second(next.Lock(h.t.Context(), "k", nil)) })
		h.settle()
		h.creep(time.Minute)
		if lock.Err() != nil {
			h.t.Fatalf("1 ns before its TTL has passed: %v", lock.Err())
		}
		h.advance(1)
		if !errors.Is(lock.Err(), lockd.ErrExpired) {
			h.t.Fatalf("at its end: %v", lock.Err())
		}
		h.creep(10 * time.Second)
		if waiting.returned() {
			h.t.Fatalf("1 ns before the end of the delay: %v", waiting.err)
		}
		h.advance(1)
		h.must(waiting.wait())
	})
}

// creep moves the clock to 1 ns before d has passed, by half of the remaining time at a time.
func (h *harness) creep(d time.Duration) {
	for left := d - 1; left > 0; {
		by := (left + 1) / 2
		h.advance(by)
		left -= by
	}
}

// Ensure that with timers which never ring every write, however late, renews a session that is kept
// alive before it looks at the session's end; and that when the session is no longer kept alive,
// the first write after its TTL has passed ends it.
func TestClock_G6_NeverRingsKeptAlive(t *testing.T) {
	each(t, func(h *harness) {
		h.slowly()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: lockd.NoLockDelay})
		lock := h.lock(s, "k")
		ctx, cancel := context.WithCancel(h.t.Context())
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		for i := range 3 {
			h.advance(time.Hour)
			h.put("tick", fmt.Sprint(i), 0)
			if lock.Err() != nil {
				h.t.Fatalf("after %d hours: %v", i+1, lock.Err())
			}
		}
		cancel()
		_ = keeping.wait()
		h.advance(time.Minute - 1)
		h.put("tick", "before", 0)
		if lock.Err() != nil {
			h.t.Fatalf("1 ns before its TTL has passed: %v", lock.Err())
		}
		h.advance(1)
		h.lock(h.session(nil), "k")
		if !errors.Is(lock.Err(), lockd.ErrExpired) {
			h.t.Errorf("lock: got %v", lock.Err())
		}
	})
}

// Ensure that a timer which is late makes the end of a session late, and its lock-delay no shorter.
func TestClock_G6G7_LateTimer(t *testing.T) {
	each(t, func(h *harness) {
		const by = time.Hour
		h.opts.Clock = &late{h.clock, by}
		h.reopen()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: 10 * time.Second})
		lock, next := h.lock(s, "k"), h.session(nil)
		waiting := start(func() error { return second(next.Lock(h.t.Context(), "k", nil)) })
		h.settle()
		h.advance(time.Minute + by - 1)
		if lock.Err() != nil {
			h.t.Fatalf("something has woken the database, and yet no timer: %v", lock.Err())
		}
		h.advance(1)
		if !errors.Is(lock.Err(), lockd.ErrExpired) {
			h.t.Fatalf("lock: got %v", lock.Err())
		}
		h.advance(10*time.Second - 1)
		if err := second(next.TryLock("k", nil)); waiting.returned() || err == nil {
			h.t.Fatalf("granted during the delay: %v, %v", waiting.err, err)
		}
		h.advance(by + 1)
		h.must(waiting.wait())
	})
}

// Ensure that a call whose context ends when its lock is due, while the timer is late, either has
// the lock or leaves nothing held: what is due is done first, also by a call that gives up.
func TestG11_ContextEndsWhenDue(t *testing.T) {
	type take func(ctx context.Context, s *lockd.Session) (release func() error, err error)
	lockAll := func(keys ...string) take {
		return func(ctx context.Context, s *lockd.Session) (func() error, error) {
			locks, err := s.LockAll(ctx, keys, nil)
			return func() (err error) {
				for _, lock := range locks {
					err = errors.Join(err, lock.Unlock())
				}
				return err
			}, err
		}
	}
	for name, take := range map[string]take{
		"one lock":      lockAll("sem/.lock"),
		"several locks": lockAll("sem/.lock", "other"),
		"a slot": func(ctx context.Context, s *lockd.Session) (func() error, error) {
			slot, err := s.Acquire(ctx, "sem", 1)
			return func() error { return slot.Release() }, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				h.opts.Clock = &late{h.clock, time.Hour}
				h.reopen()
				lost := h.session(&lockd.SessionOptions{
					TTL: time.Minute, LockDelay: lockd.NoLockDelay,
				})
				h.must(second(take(h.t.Context(), lost)))
				ctx, cancel := context.WithCancel(h.t.Context())
				s, next := h.session(nil), h.session(nil)
				var release func() error
				giveUp := start(func() (err error) {
					release, err = take(ctx, s)
					return err
				})
				h.settle()
				h.advance(time.Minute)
				cancel()
				err := giveUp.wait()
				h.settle()
				if lost.Err() == nil {
					h.t.Fatal("the session is due, and has not ended")
				}
				if err == nil {
					h.must(release())
				} else if !errors.Is(err, context.Canceled) {
					h.t.Fatal(err)
				}
				waiting := start(func() error { return second(take(h.t.Context(), next)) })
				h.settle()
				if !waiting.returned() || h.Stats().Waiters != 0 {
					h.t.Fatalf("who gave up with %v holds it; stats: %+v", err, h.Stats())
				}
				h.must(waiting.err)
			})
		})
	}
}

// timed is a clock that counts the timers that are set once over is true.
type timed struct {
	*clock.Mock
	over atomic.Bool // no timer should be set any more
	late atomic.Int64
}

func (c *timed) AfterFunc(d time.Duration, fn func()) *clock.Timer {
	if c.over.Load() {
		c.late.Add(1)
	}
	return c.Mock.AfterFunc(d, fn)
}

// endsAtOnce is a context that ends when a call has asked for the first time whether it has ended.
type endsAtOnce struct {
	context.Context // has ended
	asked           bool
}

func (c *endsAtOnce) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return c.Context.Err()
}

// Ensure that sessions that begin to be kept alive while their database is being closed set no
// timer after that. A failure is a matter of chance, so there are many databases.
func TestClose_G12_SetsNoTimer(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	databases := 500
	if raced { // a failure comes within ten then
		databases /= 10
	}
	for range databases {
		c := &timed{Mock: clock.NewMock()}
		db, err := lockd.New(&lockd.Options{Clock: c})
		if err != nil {
			t.Fatal(err)
		}
		const sessions = 4
		var ready sync.WaitGroup
		kept := make(chan error, sessions)
		lifetimes := [2]lockd.Lifetime{lockd.BoundToProcess, lockd.Independent}
		for i := range sessions {
			s, err := db.NewSession(&lockd.SessionOptions{
				TTL: time.Minute, Lifetime: lifetimes[i%len(lifetimes)],
			})
			if err != nil {
				t.Fatal(err)
			}
			ready.Add(1)
			go func() {
				err := s.KeepAlive(&endsAtOnce{Context: canceled})
				ready.Done()
				for errors.Is(err, context.Canceled) {
					err = s.KeepAlive(&endsAtOnce{Context: canceled})
				}
				kept <- err
			}()
		}
		ready.Wait()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		c.over.Store(true)
		for range sessions {
			if err := <-kept; !errors.Is(err, lockd.ErrClosed) {
				t.Fatalf("kept alive: got %v", err)
			}
		}
		if n := c.late.Load(); n > 0 {
			t.Fatalf("%d timers were set after Close", n)
		}
	}
}

// Ensure that no timer is left after Close: the clock, which lives on, keeps nothing of the
// database in memory (G12).
func TestClose_G12_LeavesNoTimer(t *testing.T) {
	c := clock.NewMock()
	freed := func() weak.Pointer[lockd.DB] {
		db, err := lockd.New(&lockd.Options{
			Clock: c, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.NewSession(&lockd.SessionOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(*lockd.Txn) error { return nil }); err != nil {
			t.Fatal(err)
		}
		waiting := start(func() error {
			_, _, err := db.Wait(t.Context(), lockd.KeyScope("k"), db.Stats().Index, time.Hour)
			return err
		})
		for db.Stats().Watchers == 0 {
			runtime.Gosched()
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := waiting.wait(); !errors.Is(err, lockd.ErrClosed) {
			t.Fatalf("wait: got %v", err)
		}
		return weak.Make(db)
	}()
	for range 3 { // what has a finalizer is freed by the second cycle
		runtime.GC()
	}
	if freed.Value() != nil {
		t.Error("the database is still in memory")
	}
	runtime.KeepAlive(c)
}
