package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// index writes something, and returns the index that it was written at.
func (h *harness) index() uint64 {
	h.t.Helper()
	e, err := h.Put("index", fmt.Append(nil, h.Snapshot().Index()), nil)
	h.must(err)
	return e.ModifyIndex
}

// Ensure that no reader sees a state change under it, and that a caller that is woken for a change
// reads a state at least as new: by an event, a channel, or the end of a handle.
func TestG3_WhoIsWokenReadsTheChange(t *testing.T) {
	each(t, func(h *harness) {
		for range 10 { // what comes too early is not always seen
			wokenReads(h)
		}
	})
}

func wokenReads(h *harness) {
	s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
	keys := []string{"k"} // telling the loss of so many leaves time to read in
	for i := range 1000 {
		keys = append(keys, fmt.Sprintf("other/%d", i))
	}
	locks, err := s.LockAll(h.t.Context(), keys, nil)
	h.must(err)
	before := h.Snapshot()
	index := before.Index()
	var calls []*call
	read := func(what string) error {
		if e, _ := h.Get("k"); !e.Session.IsZero() || h.Snapshot().Index() <= index {
			return fmt.Errorf("%s: read %+v", what, e)
		}
		return nil
	}
	wake := func(what string, done <-chan struct{}) {
		calls = append(calls, start(func() error {
			<-done
			return read(what)
		}))
	}
	wake("done of the lock", locks[0].Done())
	wake("done of the session", s.Done())
	wake("context", locks[0].Context(h.t.Context()).Done())
	for _, scope := range []lockd.Scope{lockd.KeyScope("k"), lockd.SessionsScope()} {
		calls = append(calls, start(func() error {
			state, at, err := h.Wait(h.t.Context(), scope, index, 0)
			if err == nil && (state.Index() <= index || at <= index) {
				return fmt.Errorf("waited from %d, got %d at %d", index, at, state.Index())
			}
			return errors.Join(err, read("wait"))
		}))
		calls = append(calls, start(func() error {
			for event, err := range h.Watch(h.t.Context(), scope, index) {
				if now := h.Snapshot().Index(); err == nil && now < event.Index {
					return fmt.Errorf("event %d, but read %d", event.Index, now)
				}
				return err
			}
			return errors.New("the watch has ended without an event")
		}))
	}
	h.settle()
	first, last := locks[0].Done(), locks[len(locks)-1].Done()
	calls = append(calls, start(func() error { // faster than to be woken
		for !isClosed(first) && !isClosed(last) {
			runtime.Gosched()
		}
		return read("first loss")
	}))
	h.must(h.EndSession(s.ID()))
	for _, call := range calls {
		h.must(call.wait())
	}
	if e, _ := before.Get("k"); e.Session != s.ID() || before.Index() != index {
		h.t.Fatalf("the old snapshot shows %+v at %d", e, before.Index())
	}
}

// Ensure that indexes begin at 2 or above, that each write's is above the one before, and that a
// call that changes nothing uses none: across deletions, refusals and restarts.
func TestG4_IndexesRise(t *testing.T) {
	each(t, func(h *harness) {
		last := h.index()
		if last < 2 {
			t.Fatalf("the first index is %d", last)
		}
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"delete", func() error { _, err := h.Delete("index"); return err }},
			{"delete all", func() error { _, err := h.DeleteAll(); return err }},
			{"end of a session", h.session(nil).Close},
			{"restart", func() error {
				if h.path != "" {
					h.reopen()
				}
				return nil
			}},
		} {
			at := h.index()
			h.must(step.do())
			next := h.index()
			if next <= at || at <= last {
				t.Fatalf("%s: %d, %d, %d do not rise", step.name, last, at, next)
			}
			last = next
		}
		_, err := h.CompareAndSwap("index", last-1, nil, nil)
		if !errors.Is(err, lockd.ErrConflict) || h.index() != last+1 {
			t.Fatalf("after a refusal: %v, %d, want %d", err, h.index()-1, last+1)
		}
	})
}

// Ensure that the index of a commit that failed after it was written is not used again after the
// next Open.
func TestG4_DoubtfulIndexIsNotUsedAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		var doubtful uint64
		c.failAfter(errDisk)
		mustFail(t, "update", h.Update(func(tx *lockd.Txn) error {
			doubtful = tx.Index()
			_, err := tx.Put("k", nil, nil)
			return err
		}))
		c.failAfter(nil)
		h.reopen()
		if next := h.index(); next <= doubtful {
			t.Fatalf("index %d after %d", next, doubtful)
		}
	})
}

// endings are all ends of a session that a running database knows.
var endings = []struct {
	name  string
	end   func(h *harness, s *lockd.Session) error
	cause error
}{
	{"close", func(_ *harness, s *lockd.Session) error { return s.Close() }, lockd.ErrClosed},
	{"destroyed", func(h *harness, s *lockd.Session) error {
		return h.EndSession(s.ID())
	}, lockd.ErrDestroyed},
	{"expired", func(h *harness, _ *lockd.Session) error {
		h.advance(time.Minute)
		return nil
	}, lockd.ErrExpired},
	{"critical", func(h *harness, _ *lockd.Session) error {
		return h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: "n", Name: "c", Status: catalog.Critical,
			})
		})
	}, catalog.ErrCheckCritical},
	{"check removed", func(h *harness, _ *lockd.Session) error {
		return h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Catalog().DeleteCheck("n", "c")
			return err
		})
	}, catalog.ErrCheckGone},
	{"node removed", func(h *harness, _ *lockd.Session) error {
		return h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Catalog().DeleteNode("n")
			return err
		})
	}, catalog.ErrNodeGone},
}

// Ensure that a session's end, whatever its cause and behavior, is one step: all its effects have
// one index, and every delay begins at one instant.
func TestG5_EndOfASessionIsOneStep(t *testing.T) {
	for _, tc := range endings {
		for _, behavior := range []lockd.Behavior{lockd.ReleaseKeys, lockd.DeleteKeys} {
			t.Run(fmt.Sprint(tc.name, " ", behavior), func(t *testing.T) {
				each(t, func(h *harness) {
					s := boundSession(h, behavior)
					index := h.Snapshot().Index()
					h.must(tc.end(h, s))
					h.settle()
					if !errors.Is(s.Err(), tc.cause) {
						t.Fatalf("cause: got %v, want %v", s.Err(), tc.cause)
					}
					mustBeOneStep(h, s, index)
					for _, key := range []string{"a", "b"} {
						if _, there := h.Get(key); there != (behavior == lockd.ReleaseKeys) {
							t.Fatalf("key %s: there %t", key, there)
						}
						mustBeDelayed(h, key, tc.cause != lockd.ErrClosed)
					}
				})
			})
		}
	}
}

// boundSession makes a session that holds everything that a session can hold.
func boundSession(h *harness, behavior lockd.Behavior) *lockd.Session {
	h.t.Helper()
	h.must(h.Update(func(tx *lockd.Txn) error {
		return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "n"}),
			tx.Catalog().PutCheck(catalog.Check{Node: "n", Name: "c", Status: catalog.Passing}))
	}))
	s := h.session(&lockd.SessionOptions{
		TTL: time.Minute, LockDelay: 10 * time.Second, Behavior: behavior, Node: "n",
		Checks: []string{"c"},
	})
	h.lock(s, "a")
	h.lock(s, "b")
	h.must(h.Update(func(tx *lockd.Txn) error {
		return errors.Join(tx.Catalog().Attach(s.ID(), "x", nil),
			tx.Catalog().Attach(s.ID(), "y", nil))
	}))
	return s
}

// mustBeOneStep fails the test unless everything that the session had went at one index.
func mustBeOneStep(h *harness, s *lockd.Session, after uint64) {
	h.t.Helper()
	got := make(map[string]uint64)
	for _, scope := range []lockd.Scope{
		lockd.PrefixScope(""), lockd.SessionsScope(), lockd.CatalogScope(),
	} {
		for _, event := range h.events(scope, after) {
			switch {
			case event.Catalog.Kind == catalog.AttachmentDeleted:
				got["attachment "+event.Catalog.ID] = event.Index
			case event.Kind == lockd.SessionEnded:
				got["session"] = event.Index
			case event.Kind == lockd.KeyPut:
				got["key "+event.Entry.Key] = event.Index
			case event.Kind == lockd.KeyDeleted:
				got["key "+event.Previous.Key] = event.Index
			}
		}
	}
	index := h.Snapshot().IndexOf(lockd.SessionScope(s.ID()))
	want := map[string]uint64{
		"attachment x": index, "attachment y": index, "session": index, "key a": index,
		"key b": index,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.t.Fatalf("indexes: got %v, want %v", got, want)
	}
	if index != after+1 {
		h.t.Fatalf("index: got %d, want %d", index, after+1)
	}
}

// events are all events in the scope after the index, up to now.
func (h *harness) events(scope lockd.Scope, after uint64) []lockd.Event {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	var events []lockd.Event
	watching := start(func() error {
		for event, err := range h.Watch(ctx, scope, after) {
			if err != nil {
				return err
			}
			events = append(events, event)
		}
		return nil
	})
	h.settle()
	cancel()
	if err := watching.wait(); !errors.Is(err, context.Canceled) {
		h.t.Fatalf("watch: got %v", err)
	}
	return events
}

// mustBeDelayed fails the test unless the key's lock is delayed for 10 s from now, or not at all.
func mustBeDelayed(h *harness, key string, delayed bool) {
	h.t.Helper()
	lock, err := h.session(nil).TryLock(key, nil)
	refusal, refused := errors.AsType[*lockd.LockedError](err)
	switch {
	case !delayed:
		h.must(err)
		h.must(lock.Unlock())
	case !refused || refusal.Obstacle != lockd.ObstacleDelay:
		h.t.Fatalf("lock %s: got %v, want a delay", key, err)
	case refusal.Remaining != 10*time.Second:
		h.t.Fatalf("delay of %s: got %v", key, refusal.Remaining)
	}
}

// Ensure that sessions that end at one instant end each at an index of its own.
func TestG5_EachEndHasAnIndex(t *testing.T) {
	each(t, func(h *harness) {
		var sessions []*lockd.Session
		for range 3 {
			sessions = append(sessions, h.session(&lockd.SessionOptions{TTL: time.Minute}))
		}
		h.advance(time.Minute)
		var indexes []uint64
		for _, s := range sessions {
			if !errors.Is(s.Err(), lockd.ErrExpired) {
				t.Fatalf("got %v", s.Err())
			}
			indexes = append(indexes, h.Snapshot().IndexOf(lockd.SessionScope(s.ID())))
		}
		slices.Sort(indexes)
		if len(slices.Compact(indexes)) != 3 {
			t.Fatalf("indexes: got %v", indexes)
		}
	})
}

// Ensure that a session ends exactly when its TTL and grace have passed since its last successful
// renewal, and not before.
func TestG6_EndsExactlyAtItsTTL(t *testing.T) {
	for _, grace := range []time.Duration{0, 5 * time.Second} {
		t.Run(fmt.Sprint("grace ", grace), func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{TTL: time.Minute, Grace: grace})
				lock := h.lock(s, "k")
				for range 3 {
					h.advance(time.Minute + grace - 1)
					h.must(s.Renew())
				}
				h.advance(time.Minute + grace - 1)
				if s.Err() != nil || lock.Err() != nil {
					t.Fatalf("ended before its time: %v, %v", s.Err(), lock.Err())
				}
				h.advance(1)
				if !errors.Is(s.Err(), lockd.ErrExpired) {
					t.Fatalf("lives: %v", s.Err())
				}
				if !errors.Is(lock.Err(), lockd.ErrExpired) {
					t.Fatalf("is held: %v", lock.Err())
				}
				if err := s.Renew(); !errors.Is(err, lockd.ErrNoSession) {
					t.Fatalf("renew: got %v", err)
				}
			})
		})
	}
}

// late is a clock whose timers ring late.
type late struct {
	*clock.Mock
	by time.Duration
}

func (l *late) AfterFunc(d time.Duration, fn func()) *clock.Timer {
	return l.Mock.AfterFunc(d+l.by, fn)
}

// Ensure that a session that is kept alive lives however late the clock's timers are, and has one
// more TTL when KeepAlive ends.
func TestG6_KeptAliveHoweverLate(t *testing.T) {
	for _, by := range []time.Duration{0, time.Hour} {
		t.Run(fmt.Sprint("late by ", by), func(t *testing.T) {
			each(t, func(h *harness) {
				h.must(h.Close())
				h.opts.Clock = &late{h.clock, by}
				h.open()
				s := h.session(&lockd.SessionOptions{TTL: time.Minute})
				ctx, cancel := context.WithCancel(h.t.Context())
				keeping := start(func() error { return s.KeepAlive(ctx) })
				h.settle()
				for range 100 {
					h.advance(47 * time.Second)
				}
				h.must(s.Renew())
				cancel()
				if err := keeping.wait(); !errors.Is(err, context.Canceled) {
					t.Fatalf("keep alive: got %v", err)
				}
				h.advance(time.Minute - 1)
				if by > 0 {
					h.must(s.Renew())
					return
				}
				if s.Err() != nil {
					t.Fatalf("ended before its time: %v", s.Err())
				}
				h.advance(1)
				if !errors.Is(s.Err(), lockd.ErrExpired) {
					t.Fatalf("lives: %v", s.Err())
				}
			})
		})
	}
}

// Ensure that nothing is granted during a delay, by any method, and that the first waiter has the
// lock at the very instant at which the delay is over.
func TestG7_NobodyDuringADelay(t *testing.T) {
	each(t, func(h *harness) {
		s, next := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second}), h.session(nil)
		h.lock(s, "k")
		h.must(h.EndSession(s.ID()))
		line := h.line("k", next)
		all := start(func() error {
			_, err := h.session(nil).LockAll(h.t.Context(), []string{"free", "k"}, nil)
			return err
		})
		h.settle()
		_, err := h.Put("k", []byte("anybody may write"), nil)
		h.must(err)
		h.advance(10*time.Second - 1)
		line.mustWait(0)
		if all.returned() {
			t.Fatalf("lock all returned %v", all.err)
		}
		_, tried := next.TryLock("k", nil)
		inside := h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Lock("k", next.ID(), nil)
			return err
		})
		for _, err := range []error{tried, inside} {
			refusal, refused := errors.AsType[*lockd.LockedError](err)
			if !refused || refusal.Obstacle != lockd.ObstacleDelay || refusal.Remaining != 1 {
				t.Fatalf("got %v, want a delay of 1 ns", err)
			}
		}
		h.advance(1)
		line.serve(0)
		h.must(all.wait())
	})
}

// Ensure that a delay goes on after a restart, by the wall clock, and never for longer than its
// full length.
func TestG7_DelaysSurviveARestart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		moved time.Duration // the clock, while the file is closed
		left  time.Duration
	}{
		{"at once", 0, 8 * time.Second},
		{"during the delay", 3 * time.Second, 5 * time.Second},
		{"after the delay", time.Hour, 0},
		{"clock set back", -time.Hour, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				h.clock.Set(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
				s := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
				h.lock(s, "k")
				h.must(h.EndSession(s.ID()))
				h.advance(2 * time.Second)
				h.must(h.Close())
				h.clock.Set(h.clock.Now().Add(tc.moved))
				h.open()
				next := h.session(nil)
				if tc.left > 0 {
					h.advance(tc.left - 1)
					if _, err := next.TryLock("k", nil); err == nil {
						t.Fatal("granted during the delay")
					}
					h.advance(1)
				}
				h.lock(next, "k")
			})
		})
	}
}

// Ensure that a holder that releases a lock of its own will leaves no delay behind.
func TestG7_NoDelayAfterAVoluntaryEnd(t *testing.T) {
	each(t, func(h *harness) {
		next := h.session(nil)
		for name, end := range map[string]func(*lockd.Session, *lockd.Lock) error{
			"unlock": func(_ *lockd.Session, l *lockd.Lock) error { return l.Unlock() },
			"close":  func(s *lockd.Session, _ *lockd.Lock) error { return s.Close() },
			"unlock and end": func(s *lockd.Session, l *lockd.Lock) error {
				return errors.Join(l.Unlock(), h.EndSession(s.ID()))
			},
		} {
			s := h.session(nil)
			h.must(end(s, h.lock(s, "k")))
			lock, err := next.TryLock("k", nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			h.must(lock.Unlock())
		}
	})
}

// Ensure that the fences of a key rise, whatever lies between two grants, that the fences of other
// keys do not fall, and that the grants of one transaction share one.
func TestG8_FencesRise(t *testing.T) {
	each(t, func(h *harness) {
		last := uint64(0)
		for _, between := range []func(l *lockd.Lock) error{
			func(l *lockd.Lock) error { return l.Unlock() },
			func(*lockd.Lock) error { _, err := h.Delete("k"); return err },
			func(l *lockd.Lock) error {
				_, err := h.DeleteAll()
				return err
			},
			func(l *lockd.Lock) error {
				return errors.Join(l.Unlock(), h.Update(func(tx *lockd.Txn) error {
					_, err := tx.Delete("k")
					return err
				}))
			},
			func(l *lockd.Lock) error {
				err := h.ForceUnlock("k", l.Sequencer().Fence, "test")
				h.advance(time.Minute)
				return err
			},
			func(*lockd.Lock) error {
				if h.path != "" {
					h.reopen()
				}
				_, err := h.Delete("k")
				return err
			},
			func(*lockd.Lock) error { return nil },
		} {
			s := h.session(nil)
			lock := h.lock(s, "k")
			other := h.lock(s, "other").Sequencer()
			q := lock.Sequencer()
			if q.Fence <= last || other.Fence < q.Fence || h.entry("k").Fence != q.Fence {
				t.Fatalf("fences: %d, then %d, and of another key %d", last, q.Fence, other.Fence)
			}
			last = other.Fence
			h.must(between(lock))
			if h.path != "" && s.Err() != nil {
				continue // the restart has ended it
			}
			h.must(s.Close())
		}
		s := h.session(nil)
		locks, err := s.LockAll(h.t.Context(), []string{"c", "b", "a"}, nil)
		h.must(err)
		for _, lock := range locks {
			if lock.Sequencer().Fence != locks[0].Sequencer().Fence {
				t.Fatalf("fences of one transaction: %v, %v", lock.Sequencer(),
					locks[0].Sequencer())
			}
		}
	})
}
