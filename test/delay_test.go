package lockd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

// lose has a session with this lock-delay take the lock and end by EndSession.
func (h *harness) lose(delay time.Duration, keys ...string) {
	h.t.Helper()
	s := h.session(&lockd.SessionOptions{LockDelay: delay})
	for _, key := range keys {
		h.lock(s, key)
	}
	h.must(h.EndSession(s.ID()))
}

// remaining is how long the key's delay lasts: 0 if there is none.
func (h *harness) remaining(s *lockd.Session, key string) time.Duration {
	h.t.Helper()
	l, err := s.TryLock(key, nil)
	var locked *lockd.LockedError
	switch {
	case err == nil:
		h.must(l.Unlock())
		return 0
	case !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleDelay:
		h.t.Fatalf("%s: got %v, want a delay", key, err)
	case !locked.Until.Equal(h.clock.Now().Add(locked.Remaining)):
		h.t.Errorf("%s: remaining %v until %v, it is %v", key, locked.Remaining, locked.Until,
			h.clock.Now())
	}
	return locked.Remaining
}

// Ensure that each key that a session holds at its end is delayed, for exactly its lock-delay and
// whatever its behavior; that a key that it had unlocked is not; and that only Close sets no delay.
func TestDelay_S32_SetByEveryLoss(t *testing.T) {
	for _, end := range sessionEnds {
		for name, behavior := range map[string]lockd.Behavior{
			"Release": lockd.ReleaseKeys, "Delete": lockd.DeleteKeys,
		} {
			t.Run(end.name+"_"+name, func(t *testing.T) {
				each(t, func(h *harness) {
					s, _, _ := doomed(h, behavior)
					h.must(h.lock(s, "unlocked").Unlock())
					h.must(end.end(h, s))
					want := 5 * time.Second
					if end.cause == lockd.ErrClosed {
						want = 0
					}
					next := h.session(nil)
					for _, key := range []string{"a", "b"} {
						if got := h.remaining(next, key); got != want {
							h.t.Errorf("%s: got %v, want %v", key, got, want)
						}
					}
					if got := h.remaining(next, "unlocked"); got != 0 {
						h.t.Errorf("unlocked before: got %v", got)
					}
				})
			})
		}
	}
}

// Ensure that ForceUnlock delays the key as the holder's end would, and none of its other keys.
func TestDelay_S32_ForceUnlock(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: 7 * time.Second})
		h.lock(s, "other")
		h.must(h.ForceUnlock("k", h.lock(s, "k").Sequencer().Fence, "a test"))
		if got := h.remaining(h.session(nil), "k"); got != 7*time.Second {
			h.t.Errorf("got %v", got)
		}
		if got := h.remaining(s, "k"); got != 7*time.Second {
			h.t.Errorf("for the session itself: got %v", got)
		}
		if s.Err() != nil || h.entry("other").Session != s.ID() {
			h.t.Errorf("session %v, other %+v", s.Err(), h.entry("other"))
		}
	})
}

// Ensure that a delay lasts to its last instant, is over in the next, for every method, and that
// its end is no write and wakes no watch.
func TestDelay_S33_EndsExactly(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.lose(10*time.Second, "k")
		locks := map[string]func() error{
			"try lock": func() error { return second(s.TryLock("k", nil)) },
			"txn": func() error {
				return h.txn(func(tx *lockd.Txn) error { return second(tx.Lock("k", s.ID(), nil)) })
			},
		}
		index := h.Snapshot().Index()
		woken := h.changed(h.t.Context(), lockd.PrefixScope(""), index)
		h.advance(10*time.Second - 1)
		for door, lock := range locks {
			var locked *lockd.LockedError
			if err := lock(); !errors.As(err, &locked) || locked.Remaining != 1 {
				h.t.Errorf("%s: got %v", door, err)
			}
		}
		h.advance(1)
		if got := h.Snapshot().Index(); got != index || closed(woken) {
			h.t.Errorf("the end of the delay: index was %d, is %d, woken %v", index, got,
				closed(woken))
		}
		h.must(locks["try lock"]())
	})
}

// Ensure that waiters are granted the lock at the very instant at which the delay ends, the first
// waiter first.
func TestDelay_S33_WaiterIsGrantedAtItsEnd(t *testing.T) {
	each(t, func(h *harness) {
		h.lose(10*time.Second, "k")
		first, then := h.session(nil), h.session(nil)
		var lock *lockd.Lock
		a := start(func() (err error) {
			lock, err = first.Lock(h.t.Context(), "k", nil)
			return err
		})
		h.settle()
		b := start(func() error { return second(then.Lock(h.t.Context(), "k", nil)) })
		h.advance(10*time.Second - 1)
		index := h.Snapshot().Index()
		if a.returned() || b.returned() {
			h.t.Fatalf("granted during the delay: %v, %v", a.err, b.err)
		}
		h.advance(1)
		h.must(a.wait())
		if e := h.entry("k"); e.Session != first.ID() || e.Fence != index+1 || b.returned() {
			h.t.Errorf("got %+v, want fence %d; second returned %v", e, index+1, b.returned())
		}
		h.must(lock.Unlock())
		h.must(b.wait())
		if e := h.entry("k"); e.Session != then.ID() || e.Fence != index+2 {
			h.t.Errorf("then: got %+v", e)
		}
	})
}

// Ensure that a delay is judged by comparing times: with timers that never ring it is over when its
// time has come, and the next write grants the lock to the waiter.
func TestDelay_S33X10_TimersOnlyWake(t *testing.T) {
	each(t, func(h *harness) {
		h.slowly()
		s := h.session(nil)
		h.lose(10*time.Second, "a", "b")
		waiting := start(func() error { return second(s.Lock(h.t.Context(), "b", nil)) })
		h.settle()
		h.advance(10*time.Second - 1)
		if got := h.remaining(s, "a"); got != 1 {
			h.t.Errorf("1 ns before: got %v", got)
		}
		h.advance(1)
		if waiting.returned() {
			h.t.Fatalf("nothing has woken the database, and yet: %v", waiting.err)
		}
		h.lock(s, "a")
		h.must(waiting.wait())
	})
}

// Ensure that a timer that is late only makes the grant late.
func TestDelay_S33X10_LateTimer(t *testing.T) {
	each(t, func(h *harness) {
		h.opts.Clock = &late{h.clock, time.Hour}
		h.reopen()
		h.lose(10*time.Second, "k")
		s := h.session(nil)
		waiting := start(func() error { return second(s.Lock(h.t.Context(), "k", nil)) })
		h.settle()
		h.advance(time.Hour + 10*time.Second)
		h.must(waiting.wait())
	})
}

// Ensure that a delay that is set while another lasts takes its place, longer or shorter.
func TestDelay_S32_Overwritten(t *testing.T) {
	for _, length := range []time.Duration{2 * time.Second, 30 * time.Second} {
		t.Run(length.String(), func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
				short := h.session(&lockd.SessionOptions{LockDelay: length})
				h.lock(s, "k")
				h.must(h.txn(func(tx *lockd.Txn) error {
					if err := tx.EndSession(s.ID()); err != nil {
						return err
					}
					var locked *lockd.LockedError
					if _, err := tx.Lock("k", short.ID(), nil); !errors.As(err, &locked) ||
						locked.Remaining != 10*time.Second {
						h.t.Errorf("in the transaction: got %v", err)
					}
					return nil
				}))
				h.advance(10 * time.Second)
				h.lock(short, "k")
				h.must(h.EndSession(short.ID()))
				next := h.session(nil)
				if got := h.remaining(next, "k"); got != length {
					h.t.Errorf("got %v, want %v", got, length)
				}
				h.advance(length - 1)
				if got := h.remaining(next, "k"); got != 1 {
					h.t.Errorf("1 ns before: got %v", got)
				}
				h.advance(1)
				h.lock(next, "k")
			})
		})
	}
}

// Ensure that nothing but time ends a delay: no write, no delete, no new creation, no other end.
func TestDelay_S33_NothingElseEndsIt(t *testing.T) {
	each(t, func(h *harness) {
		h.lose(10*time.Second, "k", "dir/k")
		s := h.session(nil)
		for name, op := range map[string]func() error{
			"put":    func() error { return second(h.Put("k", []byte("v"), nil)) },
			"delete": func() error { return second(h.Delete("k")) },
			"prefix": func() error { return second(h.DeletePrefix("dir")) },
			"all":    func() error { return second(h.DeleteAll()) },
			"other":  func() error { h.lose(time.Second, "other"); return nil },
			"none":   func() error { h.lose(lockd.NoLockDelay, "another"); return nil },
		} {
			h.must(op())
			if a, b := h.remaining(s, "k"), h.remaining(s, "dir/k"); a != b || a != 10*time.Second {
				h.t.Errorf("after %s: got %v and %v", name, a, b)
			}
		}
	})
}

// Ensure that a transaction that is undone leaves no delay behind, and keeps an earlier delay.
func TestDelay_S34X8_Undone(t *testing.T) {
	each(t, func(h *harness) {
		mine := errors.New("mine")
		s := h.session(&lockd.SessionOptions{LockDelay: 30 * time.Second})
		h.lock(s, "k")
		err := h.txn(func(tx *lockd.Txn) error {
			h.must(tx.EndSession(s.ID()))
			return mine
		})
		if !errors.Is(err, mine) {
			h.t.Fatalf("update: got %v", err)
		}
		next := h.session(nil)
		if l, err := s.TryLock("k", nil); err == nil {
			h.t.Errorf("locked twice: %v", l)
		}
		h.must(h.txn(func(tx *lockd.Txn) error { return second(tx.Unlock("k", s.ID())) }))
		if got := h.remaining(next, "k"); got != 0 {
			h.t.Errorf("a delay of %v was left behind", got)
		}
	})
}

// Ensure that the delay is tested inside the transaction: a transaction that ends a session and
// locks its key for another is refused.
func TestDelay_X9_InsideTheTransaction(t *testing.T) {
	each(t, func(h *harness) {
		s, next := h.session(nil), h.session(nil)
		h.lock(s, "k")
		index := h.Snapshot().Index()
		err := h.txn(func(tx *lockd.Txn) error {
			h.must(tx.EndSession(s.ID()))
			return second(tx.Lock("k", next.ID(), nil))
		})
		var locked *lockd.LockedError
		if !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleDelay ||
			locked.Remaining != lockd.DefaultLockDelay {
			h.t.Errorf("got %v", err)
		}
		if s.Err() != nil || h.entry("k").Session != s.ID() || h.Snapshot().Index() != index {
			h.t.Errorf("something is left of it: %v, %+v", s.Err(), h.entry("k"))
		}
	})
}

// Ensure that after a restart a delay lasts for its rest by the wall clock, and never for longer
// than its full length, whatever the clock was set to; after a crash too.
func TestDelay_S34X7_Persisted(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 123, time.UTC)
	for name, test := range map[string]struct {
		opened time.Time
		left   time.Duration
	}{
		"AtOnce":      {began, 10 * time.Second},
		"Meanwhile":   {began.Add(4*time.Second + 1), 6*time.Second - 1},
		"JustBefore":  {began.Add(10*time.Second - 1), 1},
		"JustOver":    {began.Add(10 * time.Second), 0},
		"Forward":     {began.Add(1000 * time.Hour), 0},
		"SetBack":     {began.Add(-1000 * time.Hour), 10 * time.Second},
		"SetBack1970": {time.Unix(0, 0), 10 * time.Second},
	} {
		for _, how := range []string{"Close", "Crash"} {
			t.Run(name+"_"+how, func(t *testing.T) {
				onFile(t, func(h *harness) {
					h.clock.Set(began)
					h.lose(10*time.Second, "k", "waited for")
					c := clock.NewMock()
					c.Set(test.opened)
					next := h
					if how == "Crash" {
						next = h.crash(c)
					} else {
						h.clock, h.opts.Clock = c, c
						h.reopen()
					}
					next.goesOn(test.left)
				})
			})
		}
	}
}

// goesOn checks that the delays of "k" and "waited for" have this much time left.
func (h *harness) goesOn(left time.Duration) {
	h.t.Helper()
	s := h.session(nil)
	if got := h.remaining(s, "k"); got != left {
		h.t.Errorf("after the restart: got %v, want %v", got, left)
	}
	waiting := start(func() error { return second(s.Lock(h.t.Context(), "waited for", nil)) })
	h.settle()
	if left > 0 {
		h.advance(left - 1)
		if got := h.remaining(s, "k"); got != 1 || waiting.returned() {
			h.t.Errorf("1 ns before: got %v, granted %v", got, waiting.returned())
		}
		h.advance(1)
	}
	h.must(waiting.wait())
	h.lock(s, "k")
}

// Ensure that a delay that is over, or that a grant has removed, does not come back after a
// restart, not even if the clock is set back.
func TestDelay_S34_Gone(t *testing.T) {
	onFile(t, func(h *harness) {
		began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		h.clock.Set(began)
		h.lose(10*time.Second, "granted", "over")
		h.advance(10 * time.Second)
		h.must(h.lock(h.session(nil), "granted").Unlock()) // the write removes the other delay too
		c := clock.NewMock()
		c.Set(began)
		next := h.crash(c)
		s := next.session(nil)
		for _, key := range []string{"granted", "over"} {
			if got := next.remaining(s, key); got != 0 {
				h.t.Errorf("%s: got %v", key, got)
			}
		}
	})
}

// Ensure that a delay that begins in the transaction that removes the rows of delays that are over,
// the one of its own key among them, outlasts a restart.
func TestDelay_G7S34_BegunWhereTheOldOneIsRemoved(t *testing.T) {
	onFile(t, func(h *harness) {
		h.clock.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		opts := &lockd.SessionOptions{LockDelay: 10 * time.Second}
		first, second := h.session(opts), h.session(opts)
		h.lock(first, "k")
		h.must(h.EndSession(first.ID()))
		h.advance(10 * time.Second)
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Lock("k", second.ID(), nil)
			return errors.Join(err, tx.EndSession(second.ID()))
		}))
		h.reopen()
		if got := h.remaining(h.session(nil), "k"); got != 10*time.Second {
			h.t.Errorf("after the restart: got %v", got)
		}
	})
}
