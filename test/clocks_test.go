package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

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
