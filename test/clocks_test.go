package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// reading is a time with a monotonic reading, which times inside a bubble do not have.
var reading = time.Now()

// wallClock is a clock like the system's: its times have a monotonic reading, which runs with the
// mock, and a wall time that can be set at will.
type wallClock struct {
	*clock.Mock
	began time.Time    // when the mock is at Unix 0; with a monotonic reading
	set   atomic.Int64 // seconds by which the wall was set
}

func (m *wallClock) Now() time.Time {
	now := m.began.Add(m.Mock.Now().Sub(time.Unix(0, 0)))
	// No call of package time sets the wall of a time and leaves its monotonic reading alone. The
	// seconds of the wall are above the 30 bits of the nanoseconds in a Time's first word.
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(m.set.Load()) << 30
	return now
}

// step sets the wall of the clock, on or back, and fails unless only the wall has moved.
func (m *wallClock) step(h *harness, by time.Duration) {
	h.t.Helper()
	before := m.Now()
	m.set.Add(int64(by / time.Second))
	after := m.Now()
	if after.Sub(before) != 0 || after.Round(0).Sub(before.Round(0)) != by {
		h.t.Fatalf("the wall was to move by %v: %v, then %v", by, before, after)
	}
}

// onWall opens the database anew on a wallClock.
func (h *harness) onWall() *wallClock {
	h.t.Helper()
	m := &wallClock{Mock: h.clock, began: reading}
	h.opts.Clock = m
	h.reopen()
	return m
}

// steps are how far the wall clock moves while the monotonic clock stands still: it was set, or the
// machine was suspended and only the wall clock ran on.
var steps = map[string]time.Duration{
	"back an hour": -time.Hour, "on an hour, or suspended": time.Hour,
	"back a year": -365 * 24 * time.Hour, "on a year": 365 * 24 * time.Hour,
}

// Ensure that a step of the wall clock while the database is open moves no deadline: a session
// lives for exactly its TTL since its last renewal, a lock-delay lasts exactly its length, and the
// waiter is granted the lock at its end.
func TestClock_G6G7_WallSteps(t *testing.T) {
	for name, by := range steps {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				m := h.onWall()
				s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: 10 * time.Second})
				lock, next := h.lock(s, "k"), h.session(nil)
				waiting := start(func() error { return second(next.Lock(h.t.Context(), "k", nil)) })
				h.settle()
				h.advance(30 * time.Second)
				m.step(h, by)
				h.must(s.Renew())
				h.advance(30 * time.Second)
				m.step(h, by)
				h.advance(30*time.Second - 1)
				if s.Err() != nil || lock.Err() != nil {
					h.t.Fatalf("1 ns before its TTL has passed: %v, %v", s.Err(), lock.Err())
				}
				h.advance(1)
				if !errors.Is(s.Err(), lockd.ErrExpired) ||
					!errors.Is(lock.Err(), lockd.ErrExpired) {
					h.t.Fatalf("at its end: %v, %v", s.Err(), lock.Err())
				}
				m.step(h, by)
				h.advance(10*time.Second - 1)
				var locked *lockd.LockedError
				if err := second(next.TryLock("k", nil)); !errors.As(err, &locked) ||
					locked.Obstacle != lockd.ObstacleDelay || locked.Remaining != 1 {
					h.t.Errorf("1 ns before the end of the delay: got %v", err)
				}
				h.advance(1)
				h.must(waiting.wait())
			})
		})
	}
}

// Ensure that Observe tells of a delay for as long as it lasts, whatever the wall clock does.
func TestClock_Observe_WallSteps(t *testing.T) {
	for name, by := range steps {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				m := h.onWall()
				h.lose(10*time.Second, "k")
				m.step(h, by)
				until := m.Now().Round(0).Add(10*time.Second - by)
				h.advance(10*time.Second - 1)
				if l := h.outlook("k").fresh()[0]; !l.Until.Equal(until) {
					h.t.Errorf("1 ns before its end: until %v, want %v", l.Until, until)
				}
				h.advance(1)
				h.outlook("k").tells("vacant")
			})
		})
	}
}

// Ensure that after a step of the wall clock while the database is open, what is told of a grant
// has the wall time of the grant, and how long it has lasted by the monotonic clock, also when a
// caller takes the difference of two times.
func TestClock_WallSteps_TimesThatAreTold(t *testing.T) {
	for name, by := range steps {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				l := &logged{}
				h.opts.Logger = slog.New(l)
				m := h.onWall()
				h.advance(time.Minute)
				m.step(h, by)
				s, other := h.session(nil), h.session(nil)
				h.lock(s, "alone")
				h.share(s, "shared")
				granted, want := m.Now().Round(0), m.Now().Unix()
				h.settle()
				for _, line := range l.take() {
					if strings.Contains(line, "granted") &&
						!strings.HasPrefix(line, fmt.Sprint(want, " ")) {
						h.t.Errorf("at %d: logged %q", want, line)
					}
				}
				h.advance(2 * time.Second)
				m.step(h, by)
				h.advance(3 * time.Second)
				for info := range h.Locks() {
					if !info.Since.Equal(granted) || info.Held != 5*time.Second {
						h.t.Errorf("%s: since %v for %v, want %v", info.Key, info.Since,
							info.Held, granted)
					}
					r := h.refusal(other, info.Key)
					if !r.Since.Equal(granted) || r.Held != 5*time.Second {
						h.t.Errorf("%s is refused: since %v for %v, want %v", info.Key, r.Since,
							r.Held, granted)
					}
					events := h.History(info.Key)
					last := events[len(events)-1]
					if !last.Time.Equal(granted) {
						h.t.Errorf("%v: at %v, want %v", last, last.Time, granted)
					}
					for _, at := range []time.Time{info.Since, r.Since, last.Time} {
						if got := m.Now().Sub(at); got != 5*time.Second {
							h.t.Errorf("%v: %v ago, want 5 s", last, got)
						}
					}
				}
			})
		})
	}
}

// Ensure that after a step of the wall clock while the file was open, and a restart, a delay lasts
// for its rest by the wall clock, and never for longer than its length; and that it then ends by
// the monotonic clock again, whatever the wall clock does.
func TestClock_G7_WallStepsThenRestart(t *testing.T) {
	for name, test := range map[string]struct{ by, left time.Duration }{
		"not at all": {0, 7 * time.Second},
		"on a bit":   {2 * time.Second, 5 * time.Second},
		"on an hour": {time.Hour, 0},
		"back a bit": {-2 * time.Second, 9 * time.Second},
		"back more":  {-time.Hour, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				m := h.onWall()
				h.lose(10*time.Second, "k")
				h.advance(3 * time.Second)
				m.step(h, test.by)
				h.reopen()
				s := h.session(nil)
				waiting := start(func() error { return second(s.Lock(h.t.Context(), "k", nil)) })
				h.settle()
				m.step(h, time.Hour)
				if test.left > 0 {
					h.advance(test.left - 1)
					if waiting.returned() {
						h.t.Fatalf("granted during the delay: %v", waiting.err)
					}
					h.advance(1)
				}
				h.must(waiting.wait())
			})
		})
	}
}

// Ensure that a wall clock that was set back while the file was closed makes a delay begin anew
// once, and not with every Open after that.
func TestClock_G7_SetBackThenRestarts(t *testing.T) {
	onFile(t, func(h *harness) {
		m := h.onWall()
		h.lose(10*time.Second, "k")
		h.advance(3 * time.Second)
		h.must(h.Close())
		m.step(h, -time.Hour)
		h.open()
		left := 10 * time.Second
		for range 4 {
			var locked *lockd.LockedError
			err := second(h.session(nil).TryLock("k", nil))
			if !errors.As(err, &locked) || locked.Remaining != left ||
				!locked.Until.Equal(m.Now().Add(left)) {
				t.Fatalf("got %v, want a delay of %v", err, left)
			}
			h.advance(2 * time.Second)
			left -= 2 * time.Second
			h.reopen()
		}
		index := h.Snapshot().Index()
		h.reopen() // this Open has no delay to shorten
		if got := h.Snapshot().Index(); got != index {
			t.Errorf("index %d, then %d", index, got)
		}
		h.advance(left)
		h.lock(h.session(nil), "k")
	})
}

// Ensure that many delays, begun in another order than that of their keys, are still there after
// all of them have begun anew.
func TestClock_G2G7_SetBackWithManyDelays(t *testing.T) {
	onFile(t, func(h *harness) {
		m := h.onWall()
		const keys = 50
		for i := range keys {
			h.lose(time.Minute, fmt.Sprintf("k%02d", i*7%keys))
		}
		h.must(h.Close())
		m.step(h, -time.Hour)
		h.open()
		h.reopen()
		for i := range keys {
			key := fmt.Sprintf("k%02d", i)
			var locked *lockd.LockedError
			err := second(h.session(nil).TryLock(key, nil))
			if !errors.As(err, &locked) || locked.Remaining != time.Minute {
				t.Errorf("%s: got %v, want a delay of a minute", key, err)
			}
		}
	})
}

// Ensure that a delay goes on after a restart whatever the year is.
func TestClock_G7_AnyYear(t *testing.T) {
	for _, year := range []int{1601, 1969, 2038, 2262, 2263, 9999} {
		t.Run(fmt.Sprint(year), func(t *testing.T) {
			onFile(t, func(h *harness) {
				h.clock.Set(time.Date(year, 12, 31, 23, 59, 55, 7, time.UTC))
				h.lose(10*time.Second, "k")
				h.advance(3 * time.Second)
				h.reopen()
				if got := h.remaining(h.session(nil), "k"); got != 7*time.Second {
					t.Errorf("got %v, want 7s", got)
				}
			})
		})
	}
}

// Ensure that a session that outlives its process has exactly one TTL from the Open on, wherever
// the wall clock was set while the file was closed.
func TestClock_G6_SetWhileClosed(t *testing.T) {
	for name, by := range steps {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				m := h.onWall()
				id := h.session(&lockd.SessionOptions{
					TTL: time.Minute, Lifetime: lockd.Independent,
				}).ID()
				h.advance(59 * time.Second)
				h.must(h.Close())
				m.step(h, by)
				h.open()
				s, err := h.DB.Session(id)
				h.must(err)
				h.advance(time.Minute - 1)
				if s.Err() != nil {
					h.t.Fatalf("1 ns before its TTL has passed: %v", s.Err())
				}
				h.advance(1)
				if !errors.Is(s.Err(), lockd.ErrExpired) {
					h.t.Errorf("at its end: %v", s.Err())
				}
			})
		})
	}
}

// Ensure that no session loses its locks because the machine is suspended for an hour, with a
// monotonic clock that stands still: it can be renewed, has one more TTL, and proves its locks.
func TestClock_G6_Suspended(t *testing.T) {
	each(t, func(h *harness) {
		m := h.onWall()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute})
		lock := h.lock(s, "k")
		ctx, cancel := context.WithCancel(h.t.Context())
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		h.advance(29 * time.Second)
		m.step(h, time.Hour)
		h.advance(10 * time.Minute)
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("keep alive: got %v", err)
		}
		m.step(h, time.Hour)
		h.must(s.Renew())
		h.advance(time.Minute - 1)
		h.must(h.CheckSequencer(lock.Sequencer()))
		h.advance(1)
		if !errors.Is(lock.Err(), lockd.ErrExpired) {
			h.t.Errorf("lock: got %v", lock.Err())
		}
	})
}

// Ensure that when a clock jumps by an hour and no timer has rung yet, as after a suspension that
// the clock counts, a session whose TTL has passed cannot be renewed or take a lock, and that its
// lock is not granted before the lock-delay has passed, which begins when the end is noticed.
func TestClock_G6G7_JumpBeforeAnyTimer(t *testing.T) {
	for name, first := range map[string]func(s, next *lockd.Session) error{
		"renew":      func(s, _ *lockd.Session) error { return s.Renew() },
		"own lock":   func(s, _ *lockd.Session) error { return second(s.TryLock("other", nil)) },
		"other lock": func(_, next *lockd.Session) error { return second(next.TryLock("k", nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				h.slowly()
				s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: 10 * time.Second})
				next := h.session(nil)
				h.lock(s, "k")
				h.advance(time.Hour)
				if err := first(s, next); err == nil {
					h.t.Error("the first call succeeded")
				}
				if !errors.Is(s.Err(), lockd.ErrExpired) {
					h.t.Errorf("session: got %v", s.Err())
				}
				if got := h.remaining(next, "k"); got != 10*time.Second {
					h.t.Errorf("delay: got %v", got)
				}
				h.advance(10*time.Second - 1)
				if got := h.remaining(next, "k"); got != 1 {
					h.t.Errorf("1 ns before its end: got %v", got)
				}
				h.advance(1)
				h.lock(next, "k")
			})
		})
	}
}

// Ensure that a lock-delay that a write begins ends in time, counted from the write's one reading
// of the clock, although the write went on for some time after that.
func TestClock_G7_SlowWrite(t *testing.T) {
	for _, by := range []time.Duration{time.Microsecond, 999 * time.Microsecond, 4 * time.Second} {
		t.Run(by.String(), func(t *testing.T) { testSlowWrite(t, by) })
	}
}

func testSlowWrite(t *testing.T, by time.Duration) {
	each(t, func(h *harness) {
		h.session(&lockd.SessionOptions{TTL: time.Hour}) // so that each write looks at what is due
		holder := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
		h.lock(holder, "k")
		next := h.session(nil)
		waiting := start(func() error { return second(next.Lock(h.t.Context(), "k", nil)) })
		h.settle()
		h.must(h.Update(func(tx *lockd.Txn) error {
			err := tx.EndSession(holder.ID())
			h.clock.Add(by)
			return err
		}))
		h.advance(10*time.Second - by - 1)
		if waiting.returned() {
			h.t.Fatalf("1 ns before the end of the delay: %v", waiting.err)
		}
		h.advance(1)
		if !waiting.returned() {
			h.t.Fatal("not granted at the end of the delay")
		}
		h.must(waiting.wait())
	})
}

// Ensure that a write notices a deadline that passed while the write went on, although no timer has
// rung: because the timer is late, or because the clock was set.
func TestClock_G6_DueDuringWrite(t *testing.T) {
	for name, test := range map[string]struct {
		clock func(m *clock.Mock) clock.Clock
		move  func(c clock.Clock)
	}{
		"a late timer": {
			func(m *clock.Mock) clock.Clock { return &late{m, time.Hour} },
			func(c clock.Clock) { c.(*late).Mock.Add(2 * time.Minute) },
		},
		"a clock that is set": {
			func(m *clock.Mock) clock.Clock { return &setClock{Mock: m} },
			func(c clock.Clock) { c.(*setClock).ahead = 2 * time.Minute },
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				c := test.clock(h.clock)
				h.opts.Clock = c
				h.reopen()
				s := h.session(&lockd.SessionOptions{TTL: time.Minute})
				h.must(h.Update(func(tx *lockd.Txn) error {
					test.move(c)
					return second(tx.Put("k", nil, nil))
				}))
				h.settle()
				if !errors.Is(s.Err(), lockd.ErrExpired) {
					h.t.Errorf("a minute after its TTL has passed: %v", s.Err())
				}
			})
		})
	}
}

// setClock is a clock that was set ahead without its timers.
type setClock struct {
	*clock.Mock
	ahead time.Duration
}

func (c *setClock) Now() time.Time { return c.Mock.Now().Add(c.ahead) }

// Ensure that taking and releasing a lock read the clock once each, also while something is due
// later: a reading is slow beside much else.
func TestClock_OneReading(t *testing.T) {
	each(t, func(h *harness) {
		c := &countingClock{Mock: h.clock}
		h.opts.Clock = c
		h.reopen()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute})
		h.must(h.lock(s, "k").Unlock())
		before := c.readings.Load()
		lock := h.lock(s, "k")
		h.must(lock.Unlock())
		most := before + 2
		if h.path != "" {
			most += 4 // for the duration of each commit
		}
		if got := c.readings.Load(); got > most {
			h.t.Errorf("readings: got %d, want %d", got-before, most-before)
		}
	})
}

// countingClock counts how often it is read.
type countingClock struct {
	*clock.Mock
	readings atomic.Int64
}

func (c *countingClock) Now() time.Time {
	c.readings.Add(1)
	return c.Mock.Now()
}

// Ensure that no duration that is reported of a lock or a commit is negative, whatever the clock
// does meanwhile.
func TestClock_SetBack_NothingLastsLessThanNoTime(t *testing.T) {
	each(t, func(h *harness) {
		h.advance(time.Hour)
		s, other := h.session(nil), h.session(nil)
		h.lock(s, "k")
		waiting := h.wait(h.t.Context(), other, "k", nil)
		h.clock.Set(h.clock.Now().Add(-time.Minute))
		h.settle()

		if got := h.refusal(other, "k"); got.Held != 0 || !strings.Contains(got.Error(), "for 0s") {
			h.t.Errorf("refusal: held for %v: %v", got.Held, got)
		}
		for info := range h.Locks() {
			if info.Held != 0 || len(info.Queue) != 1 || info.Queue[0].Waited != 0 {
				h.t.Errorf("lock: got %+v", info)
			}
		}
		waiting.waits()
		h.must(s.Close())
		waiting.held()
	})
}

// Ensure the same of a commit during which the clock is set back.
func TestClock_SetBack_CommitTakesNoLessThanNoTime(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		before := h.Stats().Commits
		c.failBy(func() error {
			h.clock.Set(h.clock.Now().Add(-time.Minute))
			return nil
		})
		h.put("k", "v", 0)
		if got := h.Stats().Commits; got.Count != before.Count+1 || got.Last != 0 ||
			got.Total != before.Total {
			h.t.Errorf("commits: got %+v, before %+v", got, before)
		}
	})
}

// Ensure that with a clock without a monotonic reading that is set back, nothing ends before its
// time by that clock, and that a session or delay that begins afterwards ends in time, although
// older ones end much later.
func TestClock_G6G7_SetBackWithoutMonotonic(t *testing.T) {
	each(t, func(h *harness) {
		h.advance(24 * time.Hour)
		old := h.session(&lockd.SessionOptions{TTL: time.Minute})
		h.lose(10*time.Second, "old")
		h.advance(5 * time.Second)
		h.clock.Set(h.clock.Now().Add(-time.Hour))
		h.settle()

		young := h.session(&lockd.SessionOptions{TTL: time.Minute})
		h.lose(10*time.Second, "young")
		next := h.session(nil)
		waiting := start(func() error { return second(next.Lock(h.t.Context(), "young", nil)) })
		h.settle()
		h.advance(10*time.Second - 1)
		if waiting.returned() {
			h.t.Fatalf("granted during the delay: %v", waiting.err)
		}
		h.advance(1)
		h.must(waiting.wait())
		h.advance(50*time.Second - 1)
		if young.Err() != nil {
			h.t.Fatalf("1 ns before its TTL has passed: %v", young.Err())
		}
		h.advance(1)
		if !errors.Is(young.Err(), lockd.ErrExpired) || old.Err() != nil {
			h.t.Errorf("young %v, old %v", young.Err(), old.Err())
		}
		h.advance(59*time.Minute + 5*time.Second - 1) // the clock is back where it was
		if got := h.remaining(next, "old"); got != 1 {
			h.t.Errorf("old delay: got %v", got)
		}
		h.advance(50 * time.Second)
		if old.Err() != nil {
			h.t.Errorf("1 ns before its end: %v", old.Err())
		}
		h.advance(1)
		if !errors.Is(old.Err(), lockd.ErrExpired) {
			h.t.Errorf("at its end: %v", old.Err())
		}
	})
}

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
