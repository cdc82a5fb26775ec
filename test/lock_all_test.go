package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// waitAll calls LockAll, and returns when the call waits or has returned.
func (h *harness) waitAll(ctx context.Context, s *lockd.Session, keys ...string) *lockCall {
	return h.lockCall(func() ([]*lockd.Lock, error) { return s.LockAll(ctx, keys, nil) })
}

// promised fails the test unless the key is free and the queue keeps the session from it.
func (h *harness) promised(s *lockd.Session, key string) {
	h.t.Helper()
	if e, _ := h.Get(key); !e.Session.IsZero() {
		h.t.Errorf("%s: held by %v", key, e.Session)
	}
	if got := h.refusal(s, key); got.Obstacle != lockd.ObstacleQueue {
		h.t.Errorf("try lock of %s: got %v", key, got)
	}
	var locked *lockd.LockedError
	err := h.Update(func(tx *lockd.Txn) error { return second(tx.Lock(key, s.ID(), nil)) })
	if !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleQueue {
		h.t.Errorf("lock of %s in a transaction: got %v", key, err)
	}
}

// Ensure that free locks are taken together: in the order of the keys, by one grant.
func TestLockAll_AtOnce(t *testing.T) {
	each(t, func(h *harness) {
		h.put("b", "v", 7)
		keys := []string{"c", "a", "b"}
		s := h.session(nil)
		before := h.Snapshot().Index()
		locks, err := s.LockAll(h.t.Context(), keys,
			&lockd.LockOptions{Value: []byte("w"), Flags: 1})
		h.must(err)
		for i, l := range locks {
			e := h.entry(l.Key())
			if l.Key() != keys[i] || l.Sequencer() != e.Sequencer() || e.Fence != before+1 ||
				string(e.Value) != "w" || e.Flags != 1 {
				h.t.Errorf("lock %d: got %v and %+v", i, l.Sequencer(), e)
			}
		}
		h.must(locks[1].Unlock())
		if locks[0].Err() != nil || locks[2].Err() != nil {
			h.t.Errorf("an Unlock ended more than its own lock")
		}
	})
}

// Ensure that a call which waits for one key holds none of the others, and that no later call
// overtakes it, by whatever method.
func TestLockAll_AllOrNothing(t *testing.T) {
	each(t, func(h *harness) {
		s, others := h.session(nil), h.session(nil)
		l := h.lock(h.session(nil), "b")
		h.put("c", "v", 0)
		keys := []string{"a", "b", "c"}
		all := h.lockCall(func() ([]*lockd.Lock, error) {
			return s.LockAll(h.t.Context(), keys, nil)
		})
		all.waits()
		clear(keys) // it is the caller's again
		h.promised(others, "a")
		h.promised(others, "c")
		one := h.wait(h.t.Context(), others, "a", nil)
		more := h.waitAll(h.t.Context(), others, "c", "d")
		one.waits()
		more.waits()
		h.promised(others, "d")
		if _, ok := h.Get("a"); ok {
			h.t.Errorf("a key was made before the lock was granted")
		}

		h.must(l.Unlock())
		all.held()
		index := h.Snapshot().Index()
		for i, key := range []string{"a", "b", "c"} {
			e := h.entry(key)
			if e.Fence != index || all.locks[i].Sequencer() != e.Sequencer() {
				h.t.Errorf("%s: got %+v, want fence %d", key, e, index)
			}
		}
		one.waits()
		more.waits()
		h.must(all.locks[0].Unlock())
		one.held()
		more.waits()
		h.must(all.locks[2].Unlock())
		more.held()
	})
}

// Ensure that LockAll gets its locks only when it is the oldest waiter of each, and keeps its place
// in every queue until then.
func TestLockAll_OldestOfEach(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		l := h.lock(h.session(nil), "a")
		first := h.wait(h.t.Context(), h.session(nil), "a", nil)
		all := h.waitAll(h.t.Context(), s, "a", "b")
		behind := h.wait(h.t.Context(), s, "b", nil)
		h.must(l.Unlock())
		held := first.held()
		all.waits()
		behind.waits()
		h.promised(s, "b")
		h.must(held.Unlock())
		all.held()
		behind.waits()
		h.must(all.locks[1].Unlock())
		behind.held()
	})
}

// Ensure that LockAll does not overtake another call for several keys that came before to a key
// which is free.
func TestLockAll_BehindAnother(t *testing.T) {
	each(t, func(h *harness) {
		s, holder := h.session(nil), h.session(nil)
		a, c := h.lock(holder, "a"), h.lock(holder, "c")
		older := h.waitAll(h.t.Context(), s, "b", "c")
		younger := h.waitAll(h.t.Context(), s, "a", "b")
		h.must(a.Unlock())
		younger.waits()
		h.promised(s, "a")
		h.must(c.Unlock())
		older.held()
		younger.waits()
		h.must(older.locks[0].Unlock())
		younger.held()
	})
}

// Ensure that calls that lock the same keys in another order never wait for each other in a circle.
func TestLockAll_NoCircle(t *testing.T) {
	each(t, func(h *harness) {
		gate := h.lock(h.session(nil), "b")
		var calls []*lockCall
		for _, keys := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c"}, {"a", "c"}} {
			calls = append(calls, h.waitAll(h.t.Context(), h.session(nil), keys...))
		}
		h.must(gate.Unlock())
		fence := uint64(0)
		for i, call := range calls {
			got := call.held().Sequencer().Fence
			if got <= fence {
				h.t.Errorf("call %d: fence %d after %d", i, got, fence)
			}
			fence = got
			for _, l := range call.locks {
				h.must(l.Unlock())
			}
		}
	})
}

// Ensure that a call which gives up, or whose session ends, lets the calls behind it go on.
func TestLockAll_GivesUp(t *testing.T) {
	each(t, func(h *harness) {
		holder, s, next := h.session(nil), h.session(nil), h.session(nil)
		h.lock(holder, "b")
		ctx, cancel := context.WithCancel(h.t.Context())
		gone := h.waitAll(ctx, s, "a", "b", "c")
		ends := h.waitAll(h.t.Context(), s, "a", "b", "c")
		behindA, behindC := h.wait(h.t.Context(), next, "a", nil),
			h.wait(h.t.Context(), next, "c", nil)
		cancel()
		h.settle()
		if !errors.Is(gone.err, context.Canceled) {
			h.t.Errorf("the cancelled call: got %v", gone.err)
		}
		behindA.waits()
		behindC.waits()
		h.must(h.EndSession(s.ID()))
		behindA.held()
		behindC.held()
		if gone.locks != nil || ends.locks != nil || !errors.Is(ends.err, lockd.ErrNoSession) {
			h.t.Errorf("got %v, %v, %v", gone.locks, ends.locks, ends.err)
		}
		if h.Waiters("b") != 0 {
			h.t.Errorf("%d wait for b", h.Waiters("b"))
		}
	})
}

// Ensure that LockAll waits for the longest delay, and is granted all at the instant of its end.
func TestLockAll_WaitsForDelays(t *testing.T) {
	each(t, func(h *harness) {
		for i, key := range []string{"a", "b"} {
			s := h.session(&lockd.SessionOptions{LockDelay: time.Duration(i+1) * time.Second})
			h.lock(s, key)
			h.must(h.EndSession(s.ID()))
		}
		s := h.session(nil)
		all := h.waitAll(h.t.Context(), s, "a", "b", "c")
		h.advance(time.Second)
		all.waits()
		h.promised(s, "a")
		h.advance(time.Second - 1)
		all.waits()
		h.advance(1)
		all.held()
	})
}

// Ensure that a key that is deleted while LockAll waits is made again only with the grant of all.
func TestLockAll_KeyDeleted(t *testing.T) {
	each(t, func(h *harness) {
		s, others := h.session(nil), h.session(nil)
		h.lock(others, "a")
		l := h.lock(others, "b")
		all := h.waitAll(h.t.Context(), s, "a", "b")
		h.must(second(h.Delete("a")))
		all.waits()
		h.promised(h.session(nil), "a")
		if _, ok := h.Get("a"); ok {
			h.t.Errorf("the deleted key is there again")
		}
		h.must(l.Unlock())
		all.held()
		if a, b := h.entry("a"), h.entry("b"); a.CreateIndex != b.Fence || a.LockIndex != 1 {
			h.t.Errorf("got %+v and %+v", a, b)
		}
	})
}

// Ensure that LockAll takes over the locks of its session that have no handle, and waits for those
// that have one.
func TestLockAll_LocksOfItsOwn(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("a", s.ID(), nil)) }))
		mine := h.lock(s, "b")
		all := h.waitAll(h.t.Context(), s, "a", "b")
		all.waits()
		was := h.entry("a").Sequencer()
		h.must(mine.Unlock())
		if got := all.held().Sequencer(); got != was {
			h.t.Errorf("the lock that it had: got %v, want %v", got, was)
		}
	})
}

// Ensure that many keys are locked at once, and that a refused list takes none.
func TestLockAll_ManyKeys(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		h.nothingMoves("a key twice", func() {
			locks, err := s.LockAll(h.t.Context(), append(slices.Clone(keys), "k500"), nil)
			if !errors.Is(err, lockd.ErrInvalid) || locks != nil {
				h.t.Errorf("got %v, %v", locks, err)
			}
		})
		locks, err := s.LockAll(h.t.Context(), keys, nil)
		h.must(err)
		for i, l := range locks {
			if l.Key() != keys[i] || l.Sequencer().Fence != locks[0].Sequencer().Fence {
				h.t.Fatalf("lock %d: got %v", i, l.Sequencer())
			}
		}
	})
}

// Ensure that no call of a session overtakes another call of that session by taking over a lock
// that the session has without a handle.
func TestG9_TakingOverOvertakesNobody(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		b := h.lock(other, "b")
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Lock("a", s.ID(), nil)
			return err
		}))
		got := make(chan []*lockd.Lock, 1)
		go func() {
			locks, _ := s.LockAll(h.t.Context(), []string{"a", "b"}, nil)
			got <- locks
		}()
		h.settle()
		if l, err := s.TryLock("a", nil); err == nil {
			t.Fatalf("overtook: %v", l.Sequencer())
		}
		h.must(b.Unlock())
		if locks := <-got; len(locks) != 2 {
			t.Fatalf("locks: got %v", locks)
		}
	})
}

// Ensure that a call which waits for a lock that its session has without a handle, and for another
// lock that is busy, is not held up by the waiters for the first lock: they wait for its session.
func TestLockAll_G9_TakingOverWaitsForNobodyElse(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("a", s.ID(), nil)) }))
		was := h.entry("a").Sequencer()
		b := h.lock(other, "b")
		rival := h.wait(h.t.Context(), other, "a", nil)
		all := h.waitAll(h.t.Context(), s, "a", "b")
		all.waits()
		next := h.wait(h.t.Context(), s, "a", nil)
		h.must(b.Unlock())
		if got := all.held().Sequencer(); got != was {
			h.t.Errorf("the lock that it had: got %v, want %v", got, was)
		}
		rival.waits()
		h.must(all.locks[0].Unlock())
		h.must(rival.held().Unlock())
		next.held()
	})
}

// Ensure that when such a call gives up, the session's next one takes the lock over.
func TestLockAll_G9_GivesUpTakingOver(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("a", s.ID(), nil)) }))
		h.lock(other, "b")
		rival := h.wait(h.t.Context(), other, "a", nil)
		ctx, cancel := context.WithCancel(h.t.Context())
		all := h.waitAll(ctx, s, "a", "b")
		next := h.wait(h.t.Context(), s, "a", nil)
		next.waits() // the call before it came first
		cancel()
		next.held()
		rival.waits()
		if !errors.Is(all.err, context.Canceled) {
			h.t.Errorf("the call that gave up: got %v", all.err)
		}
	})
}
