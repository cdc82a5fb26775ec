package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// slow is a clock whose timers never ring, and of which one reading can be held up: it returns
// late, with the time at which it was asked for.
type slow struct {
	*clock.Mock
	never *clock.Mock
	gate  atomic.Pointer[chan struct{}]
}

func (c *slow) AfterFunc(d time.Duration, f func()) *clock.Timer { return c.never.AfterFunc(d, f) }

func (c *slow) Now() time.Time {
	now := c.Mock.Now()
	if gate := c.gate.Swap(nil); gate != nil {
		<-*gate
	}
	return now
}

// hold holds up the next reading, until the function is called.
func (c *slow) hold() (release func()) {
	gate := make(chan struct{})
	c.gate.Store(&gate)
	return func() { close(gate) }
}

// slowly opens the database anew on a slow clock.
func (h *harness) slowly() *slow {
	h.t.Helper()
	c := &slow{Mock: h.clock, never: clock.NewMock()}
	h.opts.Clock = c
	h.reopen()
	return c
}

// Ensure that a session lives to the last instant of its TTL and grace, and not in the next.
func TestSession_S26_EndsExactly(t *testing.T) {
	for _, opts := range []lockd.SessionOptions{
		{TTL: time.Second}, {TTL: time.Second, Grace: 300 * time.Millisecond}, {TTL: lockd.MinTTL},
		{TTL: lockd.MinTTL, Grace: 1}, {TTL: 400 * 24 * time.Hour},
	} {
		t.Run(fmt.Sprintf("%v and %v", opts.TTL, opts.Grace), func(t *testing.T) {
			each(t, func(h *harness) {
				h.advance(123456789)
				s := h.session(&opts)
				index := h.Snapshot().Index()
				h.advance(opts.TTL + opts.Grace - 1)
				if s.Err() != nil || closed(s.Done()) {
					h.t.Fatalf("1 ns before: got %v", s.Err())
				}
				h.advance(1)
				if !errors.Is(s.Err(), lockd.ErrExpired) || !closed(s.Done()) {
					h.t.Fatalf("at the end: got %v", s.Err())
				}
				if got := h.Snapshot().Index(); got != index+1 {
					h.t.Errorf("index: was %d, is %d", index, got)
				}
				h.checkDead(s)
			})
		})
	}
}

// Ensure that comparing times decides, and not a timer: with timers that never ring, a session can
// be renewed until 1 ns before its end, and from its end on it can do nothing.
func TestSession_S26X10_TimersOnlyWake(t *testing.T) {
	for _, test := range []struct {
		at    time.Duration
		alive bool
	}{{time.Second - 1, true}, {time.Second, false}, {time.Second + 1, false}} {
		for _, door := range []string{"renew", "lock", "put", "session"} {
			t.Run(fmt.Sprint(test.at, " ", door), func(t *testing.T) {
				each(t, func(h *harness) {
					h.slowly()
					s := h.session(&lockd.SessionOptions{TTL: time.Second})
					h.advance(test.at)
					var err error
					switch door {
					case "renew":
						err = s.Renew()
					case "lock":
						err = second(s.TryLock("k", nil))
					case "put": // any write ends it
						h.put("k", "v", 0)
						err = s.Err()
					case "session":
						err = second(h.DB.Session(s.ID()))
					}
					if test.alive {
						h.must(err)
						h.must(s.Err())
						return
					}
					if !errors.Is(err, lockd.ErrNoSession) ||
						!errors.Is(s.Err(), lockd.ErrExpired) {
						h.t.Errorf("got %v, session %v", err, s.Err())
					}
				})
			})
		}
	}
}

// Ensure that a renewal begins the whole TTL and grace anew, and that nothing else does.
func TestSession_S25S27(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second, Grace: 2 * time.Second})
		h.advance(12*time.Second - 1)
		h.must(s.Renew())
		h.advance(12*time.Second - 1)
		h.must(s.Err())
		h.must(h.lock(s, "k").Unlock())
		h.lock(s, "k")
		h.put("k", "v", 0)
		h.must(h.txn(func(tx *lockd.Txn) error { return tx.Catalog().Attach(s.ID(), "a", nil) }))
		if again, err := h.DB.Session(s.ID()); again != s || err != nil {
			h.t.Errorf("handle: %v, %v", again, err)
		}
		if got := s.Info().TTL; got != 10*time.Second {
			h.t.Errorf("TTL: got %v", got)
		}
		h.advance(1)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("lived on: %v", s.Err())
		}
		without := h.session(nil)
		h.must(without.Renew())
		h.advance(24 * time.Hour)
		h.must(without.Renew())
	})
}

// Ensure that a renewal of a session that has ended says so, with the cause, and changes nothing.
func TestSession_S24(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: time.Second})
		h.must(h.EndSession(s.ID()))
		index := h.Snapshot().Index()
		err := s.Renew()
		var ended *lockd.EndedError
		if !errors.Is(err, lockd.ErrNoSession) || !errors.Is(err, lockd.ErrDestroyed) ||
			!errors.As(err, &ended) || ended.Session != s.ID() || ended.Key != "" {
			h.t.Errorf("got %v", err)
		}
		if h.Snapshot().Index() != index {
			h.t.Errorf("index: was %d, is %d", index, h.Snapshot().Index())
		}
	})
}

// Ensure that a renewal is judged by the time of its call, and guarantees one more TTL from there,
// although it comes to be done when the session was due.
func TestSession_S26X11_JudgedByItsCall(t *testing.T) {
	each(t, func(h *harness) {
		c := h.slowly()
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		h.advance(10*time.Second - 1)
		release := c.hold()
		renewal := start(s.Renew)
		h.settle()
		h.advance(3 * time.Second)
		release()
		h.must(renewal.wait())
		h.advance(7*time.Second - 1)
		h.put("k", "1", 0) // ends what is due
		h.must(s.Err())
		h.advance(1)
		h.put("k", "2", 0)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("lived on: %v", s.Err())
		}
	})
}

// Ensure that a renewal that was called in time, but came after the end, returns the end's cause.
func TestSession_X11_RenewalAfterTheEnd(t *testing.T) {
	each(t, func(h *harness) {
		c := h.slowly()
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		h.advance(9 * time.Second)
		release := c.hold()
		renewal := start(s.Renew)
		h.settle()
		h.advance(time.Second)
		h.put("k", "v", 0)
		release()
		if err := renewal.wait(); !errors.Is(err, lockd.ErrExpired) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that a renewal that was called first and is done last does not shorten what the other
// guaranteed.
func TestSession_X11_RenewalsOutOfOrder(t *testing.T) {
	each(t, func(h *harness) {
		c := h.slowly()
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		release := c.hold()
		first := start(s.Renew)
		h.settle()
		h.advance(9 * time.Second)
		h.must(s.Renew())
		release()
		h.must(first.wait())
		h.advance(10*time.Second - 1)
		h.put("k", "v", 0)
		h.must(s.Err())
	})
}

// Ensure that at one instant a renewal comes before an end, and an end before a grant: a session
// that is kept alive at the very instant at which it is due lives on.
func TestSession_S26_OrderAtOneInstant(t *testing.T) {
	each(t, func(h *harness) {
		kept := h.session(&lockd.SessionOptions{TTL: 2 * time.Second})
		keeping := start(func() error { return kept.KeepAlive(h.t.Context()) })
		h.settle()
		lost := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
		h.lock(lost, "k")
		h.must(h.EndSession(lost.ID()))
		waiter := h.session(&lockd.SessionOptions{TTL: 5 * time.Second})
		dying := start(func() error { return second(waiter.Lock(h.t.Context(), "k", nil)) })
		h.settle()
		heir := h.session(nil)
		next := start(func() error { return second(heir.Lock(h.t.Context(), "k", nil)) })
		h.advance(5*time.Second - 1)
		if dying.returned() || next.returned() {
			h.t.Fatalf("returned before the delay was over: %v, %v", dying.err, next.err)
		}
		h.advance(1)
		if err := dying.wait(); !errors.Is(err, lockd.ErrExpired) {
			h.t.Errorf("the one whose session ends at that instant: %v", err)
		}
		h.must(next.wait())
		h.must(kept.Err())
		h.must(kept.Close())
		if err := keeping.wait(); !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("keep alive: got %v", err)
		}
	})
}

// Ensure that KeepAlive renews in memory alone until its context ends, and returns its error.
func TestSession_KeepAlive(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		ctx, cancel := context.WithCancel(h.t.Context())
		index := h.Snapshot().Index()
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		h.advance(25 * time.Hour)
		if keeping.returned() || s.Err() != nil || h.Snapshot().Index() != index {
			h.t.Fatalf("kept: %v, session %v, index %d after %d", keeping.err, s.Err(),
				h.Snapshot().Index(), index)
		}
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
		// Renewed last between half a TTL ago and now.
		h.advance(5*time.Second - 1)
		h.must(s.Err())
		h.advance(5*time.Second + 1)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("lived on: %v", s.Err())
		}
	})
}

// Ensure that KeepAlive renews from its call on also if it is called while the function of an
// Update runs, and up to its end, although nothing is renewed on time meanwhile.
func TestSession_KeepAlive_BesideAnUpdate(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		ctx, cancel := context.WithCancel(h.t.Context())
		u := h.updating()
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		h.advance(5 * time.Second)
		h.advance(6 * time.Second)
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("keep alive: got %v", err)
		}
		u.fail()
		h.settle()
		h.must(s.Err())
		h.advance(10*time.Second - 1)
		h.must(s.Err())
		h.advance(1)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("it is renewed after the end of the call: %v", s.Err())
		}
	})
}

// Ensure that KeepAlive returns when its context ends although a commit is in the way, and neither
// renews nor keeps anything alive if the context had ended before.
func TestSession_G11_KeepAliveGivesUp(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: time.Second})
		before, _ := s.Deadline()
		canceled, cancel := context.WithCancel(h.t.Context())
		cancel()
		h.advance(time.Second / 2)
		if err := s.KeepAlive(canceled); !errors.Is(err, context.Canceled) {
			t.Errorf("keep alive: got %v", err)
		}
		if after, _ := s.Deadline(); !after.Equal(before) {
			t.Errorf("deadline: was %v, is %v", before, after)
		}

		held := c.held(func() error {
			h.advance(time.Second / 2)
			return second(h.Put("k", nil, nil)) // which ends the session first
		})
		ctx, cancel := context.WithCancel(h.t.Context())
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("keep alive: got %v", err)
		}
		c.release(nil)
		h.must(held.wait())
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			t.Errorf("session: %v", s.Err())
		}
	})
}

// Ensure that KeepAlive starts no goroutine: there are those of its callers, and whatever the
// runtime and other tests have beside them, but not twice as many.
func TestSession_KeepAlive_StartsNoGoroutine(t *testing.T) {
	each(t, func(h *harness) {
		const sessions = 200
		ctx, cancel := context.WithCancel(h.t.Context())
		before := runtime.NumGoroutine()
		var keeping []*call
		for range sessions {
			s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
			keeping = append(keeping, start(func() error { return s.KeepAlive(ctx) }))
		}
		h.settle()
		if n := runtime.NumGoroutine() - before; n > sessions+sessions/2 {
			h.t.Errorf("%d more goroutines for %d callers", n, sessions)
		}
		cancel()
		for _, k := range keeping {
			if err := k.wait(); !errors.Is(err, context.Canceled) {
				h.t.Errorf("got %v", err)
			}
		}
	})
}

// Ensure that KeepAlive returns when the session ends, or cannot be renewed, and says why.
func TestSession_KeepAlive_Ends(t *testing.T) {
	for name, test := range map[string]struct {
		ttl   time.Duration
		end   func(h *harness, s *lockd.Session) error
		cause error
	}{
		"Close": {time.Second, func(_ *harness, s *lockd.Session) error { return s.Close() },
			lockd.ErrClosed},
		"EndSession": {time.Second, func(h *harness, s *lockd.Session) error {
			return h.EndSession(s.ID())
		}, lockd.ErrDestroyed},
		"WithoutTTL": {0, func(h *harness, s *lockd.Session) error {
			return h.EndSession(s.ID())
		}, lockd.ErrDestroyed},
		"DB": {time.Second, func(h *harness, _ *lockd.Session) error { return h.Close() },
			lockd.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{TTL: test.ttl})
				keeping := start(func() error { return s.KeepAlive(h.t.Context()) })
				h.settle()
				h.advance(time.Hour)
				if keeping.returned() {
					h.t.Fatalf("returned: %v", keeping.err)
				}
				h.must(test.end(h, s))
				if err := keeping.wait(); !errors.Is(err, test.cause) {
					h.t.Errorf("got %v, want %v", err, test.cause)
				}
				if err := s.KeepAlive(h.t.Context()); !errors.Is(err, test.cause) {
					h.t.Errorf("once more: got %v, want %v", err, test.cause)
				}
			})
		})
	}
}

// Ensure that a KeepAlive that stops does not stop another one of the same session.
func TestSession_KeepAlive_Twice(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: time.Second})
		ctx, cancel := context.WithCancel(h.t.Context())
		first := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		other := start(func() error { return s.KeepAlive(h.t.Context()) })
		h.advance(10 * time.Second)
		cancel()
		h.settle()
		h.advance(10 * time.Second)
		if !first.returned() || other.returned() || s.Err() != nil {
			h.t.Errorf("first %v, other %v, session %v", first.returned(), other.returned(),
				s.Err())
		}
		h.must(s.Close())
		if err := other.wait(); !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that the end of KeepAlive is no renewal, however many calls have kept the session alive:
// the session ends a TTL after the last renewal, also if an end of it was taken back meanwhile.
func TestSession_G6_EndOfKeepAliveIsNoRenewal(t *testing.T) {
	for _, calls := range []int{1, 2} {
		each(t, func(h *harness) {
			s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
			ctx, cancel := context.WithCancel(h.t.Context())
			for range calls {
				start(func() error { return s.KeepAlive(ctx) })
			}
			h.settle()
			h.advance(7 * time.Second) // renewed after 5
			cancel()
			h.settle()
			if at, _ := s.Deadline(); !at.Equal(h.clock.Now().Add(8 * time.Second)) {
				h.t.Errorf("%d calls: the deadline is in %v", calls, at.Sub(h.clock.Now()))
			}
			u := h.updating()
			u.step(func(tx *lockd.Txn) error { return tx.EndSession(s.ID()) })
			u.fail()
			h.advance(8*time.Second - 1)
			h.must(s.Err())
			h.advance(1)
			if !errors.Is(s.Err(), lockd.ErrExpired) {
				h.t.Errorf("%d calls: after a TTL: got %v, want ErrExpired", calls, s.Err())
			}
		})
	}
}

// Ensure that the shortest TTL can be kept alive.
func TestSession_KeepAlive_ShortestTTL(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: lockd.MinTTL})
		keeping := start(func() error { return s.KeepAlive(h.t.Context()) })
		h.settle()
		for range 5 {
			h.advance(lockd.MinTTL)
		}
		h.must(s.Err())
		h.must(s.Close())
		if err := keeping.wait(); !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that one write ends no more than 100 sessions that are due, in the order of their
// deadlines and each at its own index; that until its turn a session lives, but is not renewed;
// and that the rest end without another write.
func TestSession_S29_BoundedWork(t *testing.T) {
	each(t, func(h *harness) {
		const n, most = 2_500, 100
		h.opts.Sync, h.opts.History = lockd.SyncNever, 2*n+10
		h.slowly()
		made := make([]*lockd.Session, n)
		crowd := make([]*call, n)
		for i := range made {
			crowd[i] = start(func() (err error) {
				// The later in the slice, the earlier due.
				ttl := time.Minute - time.Duration(i)
				made[i], err = h.NewSession(&lockd.SessionOptions{TTL: ttl})
				return err
			})
		}
		for _, c := range crowd {
			h.must(c.wait())
		}
		index := h.Snapshot().Index()
		h.advance(time.Hour)
		var at uint64
		h.must(h.txn(func(tx *lockd.Txn) error {
			at = tx.Index()
			if _, ok := tx.Get("k"); ok {
				return errors.New("the key exists")
			}
			return tx.EndSession(made[0].ID()) // its turn has not come
		}))
		if at != index+most+1 {
			h.t.Errorf("the write ended %d sessions, want %d", at-index-1, most)
		}
		h.settle()
		if got := h.Snapshot().Index(); got != index+n {
			h.t.Errorf("index: got %d, want %d", got, index+n)
		}
		for i, s := range made {
			cause, place := lockd.ErrExpired, uint64(n-i)
			switch {
			case i == 0:
				cause, place = lockd.ErrDestroyed, most+1
			case place > most:
				place++
			}
			got := h.Snapshot().IndexOf(lockd.SessionScope(s.ID()))
			if !errors.Is(s.Err(), cause) || got != index+place {
				h.t.Fatalf("session %d: %v at %d, want %d", i, s.Err(), got-index, place)
			}
		}
	})
}

// Ensure that a session that is due and has not been ended yet cannot be renewed.
func TestSession_S29_DueIsNotRenewed(t *testing.T) {
	each(t, func(h *harness) {
		const n = 251
		h.opts.Sync = lockd.SyncNever
		h.slowly()
		made := make([]*lockd.Session, n)
		for i := range made {
			made[i] = h.session(&lockd.SessionOptions{TTL: time.Second})
		}
		h.advance(time.Second)
		last := made[n-1]
		err := last.Renew() // which ends 100 others
		if !errors.Is(err, lockd.ErrExpired) || !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("got %v", err)
		}
		h.settle()
		if !errors.Is(last.Err(), lockd.ErrExpired) {
			h.t.Errorf("session: got %v", last.Err())
		}
	})
}

// Ensure that a session that is kept alive can be renewed by its owner too, when the timer is so
// late that its time were up, and so many are to be renewed that its turn does not come.
func TestSession_KeepAlive_LateWithMany(t *testing.T) {
	each(t, func(h *harness) {
		const n = 600 // more than twice what one batch has room for
		h.opts.Sync = lockd.SyncNever
		h.slowly()
		ctx, cancel := context.WithCancel(h.t.Context())
		made := make([]*lockd.Session, n)
		keeping := make([]*call, n)
		for i := range made {
			made[i] = h.session(&lockd.SessionOptions{TTL: time.Second})
			keeping[i] = start(func() error { return made[i].KeepAlive(ctx) })
		}
		h.settle()
		h.advance(time.Hour)
		h.must(made[n-1].Renew())
		h.settle()
		for _, s := range made {
			h.must(s.Err())
		}
		cancel()
		for _, k := range keeping {
			if err := k.wait(); !errors.Is(err, context.Canceled) {
				h.t.Errorf("got %v", err)
			}
		}
	})
}

// Ensure that 100,000 sessions with a TTL need no goroutine of their own, and all end with one
// timer that is late.
func TestSession_X10_ManySessions(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		n := 100_000
		if raced { // calls that come one by one
			n /= 10
		}
		h.opts.Clock = &late{h.clock, time.Hour}
		h.reopen()
		goroutines := runtime.NumGoroutine()
		made := make([]*lockd.Session, n)
		for i := range made {
			s, err := h.NewSession(&lockd.SessionOptions{TTL: time.Minute + time.Duration(i%1000)})
			if err != nil {
				h.t.Fatal(err)
			}
			made[i] = s
		}
		// A few may belong to the runtime or to other tests.
		if got := runtime.NumGoroutine(); got > goroutines+n/1000 {
			h.t.Errorf("%d goroutines after %d", got, goroutines)
		}
		index := h.Snapshot().Index()
		h.clock.Add(2 * time.Hour)
		h.settle()
		if got, want := h.Snapshot().Index(), index+uint64(n); got != want {
			h.t.Errorf("index: got %d, want %d", got, want)
		}
		for i, s := range made {
			if !errors.Is(s.Err(), lockd.ErrExpired) {
				h.t.Fatalf("session %d: %v", i, s.Err())
			}
		}
	})
}
