package lockd_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// lockCall is a Lock or LockAll that a goroutine of its own has called.
type lockCall struct {
	h     *harness
	locks []*lockd.Lock
	err   error
	back  chan struct{} // closed when the call has returned
}

// wait calls Lock, and returns when the call waits or has returned.
func (h *harness) wait(
	ctx context.Context, s *lockd.Session, key string, opts *lockd.LockOptions,
) *lockCall {
	return h.lockCall(func() ([]*lockd.Lock, error) {
		l, err := s.Lock(ctx, key, opts)
		return []*lockd.Lock{l}, err
	})
}

func (h *harness) lockCall(call func() ([]*lockd.Lock, error)) *lockCall {
	a := &lockCall{h: h, back: make(chan struct{})}
	go func() {
		defer close(a.back)
		a.locks, a.err = call()
	}()
	h.settle()
	return a
}

// held returns the lock that the call must have got by now.
func (a *lockCall) held() *lockd.Lock {
	a.h.t.Helper()
	a.h.settle()
	if !closed(a.back) {
		a.h.t.Fatal("the call still waits")
	}
	a.h.must(a.err)
	return a.locks[0]
}

func (a *lockCall) waits() {
	a.h.t.Helper()
	a.h.settle()
	if closed(a.back) {
		a.h.t.Fatalf("the call does not wait: %v", a.err)
	}
}

// refusal is what TryLock is refused with.
func (h *harness) refusal(s *lockd.Session, key string) *lockd.LockedError {
	h.t.Helper()
	var locked *lockd.LockedError
	if l, err := s.TryLock(key, nil); !errors.As(err, &locked) || l != nil {
		h.t.Fatalf("try lock: got %v, %v", l, err)
	}
	return locked
}

// nothingMoves fails the test if fn changes anything.
func (h *harness) nothingMoves(what string, fn func()) {
	h.t.Helper()
	before := h.Snapshot()
	fn()
	if got := h.Snapshot().Index(); got != before.Index() {
		h.t.Errorf("%s: index %d after %d", what, got, before.Index())
	}
}

// lost fails the test unless the lock has ended with the cause, wherever it is told.
func (h *harness) lost(l *lockd.Lock, cause error) {
	h.t.Helper()
	var ended *lockd.EndedError
	if err := l.Err(); !errors.As(err, &ended) || !errors.Is(err, cause) ||
		!errors.Is(err, lockd.ErrNotHeld) || ended.Key != l.Key() ||
		ended.Session != l.Sequencer().Session {
		h.t.Errorf("err of the lock: got %v, want %v", err, cause)
	}
	if !closed(l.Done()) {
		h.t.Errorf("done of the lock is open")
	}
}

func TestSession_K33_ReleasesItsKeys(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Behavior: lockd.ReleaseKeys})
		was := make(map[string]lockd.Entry)
		for _, key := range []string{"a", "b"} {
			h.put(key, "v", 7)
			h.lock(s, key)
			was[key] = h.entry(key)
		}
		free := h.put("free", "v", 0)
		h.must(s.Close())
		index := h.Snapshot().Index()
		for key, want := range was {
			want.Session, want.ModifyIndex = lockd.SessionID{}, index
			same(h, key, h.entry(key), want)
		}
		same(h, "a key that it did not hold", h.entry("free"), free)
	})
}

func TestSession_K34_DeletesItsKeys(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Behavior: lockd.DeleteKeys})
		h.put("a", "v", 0)
		h.put("free", "v", 0)
		h.must(h.lock(s, "free").Unlock())
		locks := []*lockd.Lock{h.lock(s, "a"), h.lock(s, "b")}
		h.must(h.EndSession(s.ID()))
		index := h.Snapshot().Index()
		if got := listed(h, "", ""); !slices.Equal(got, []string{"free"}) {
			h.t.Fatalf("keys: got %v", got)
		}
		for _, l := range locks {
			if got := h.Snapshot().IndexOf(lockd.KeyScope(l.Key())); got != index {
				h.t.Errorf("tombstone of %s: got %d, want %d", l.Key(), got, index)
			}
			h.lost(l, lockd.ErrDestroyed)
		}
	})
}

// Ensure that deleting a locked key ends the lock and nothing else: no delay, the session lives.
func TestDelete_K37_TakesTheLock(t *testing.T) {
	each(t, func(h *harness) {
		s, next := h.session(nil), h.session(nil)
		l := h.lock(s, "k")
		h.must(second(h.Delete("k")))
		h.lost(l, lockd.ErrKeyDeleted)
		if s.Err() != nil {
			h.t.Errorf("the session: got %v", s.Err())
		}
		again := h.lock(next, "k").Sequencer()
		if again.LockIndex != 1 || again.Fence <= l.Sequencer().Fence {
			h.t.Errorf("the next grant: got %v after %v", again, l.Sequencer())
		}
	})
}

// Ensure that a delete hands the key, made anew, to the first waiter, in the same transaction.
func TestDelete_K37_HandsOn(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		old := h.lock(s, "k")
		first := h.wait(h.t.Context(), s, "k", &lockd.LockOptions{Value: []byte("w"), Flags: 3})
		second_ := h.wait(h.t.Context(), s, "k", nil)
		var index uint64
		h.must(h.Update(func(tx *lockd.Txn) error {
			index = tx.Index()
			h.must(second(tx.Put("k", []byte("gone"), nil)))
			return second(tx.Delete("k"))
		}))
		got := first.held()
		second_.waits()
		h.lost(old, lockd.ErrKeyDeleted)
		same(h, "the key", h.entry("k"), lockd.Entry{
			Key: "k", Value: []byte("w"), Flags: 3, Session: s.ID(), CreateIndex: index,
			ModifyIndex: index, LockIndex: 1, Fence: index,
		})
		if got.Sequencer() != h.entry("k").Sequencer() {
			h.t.Errorf("the handle: got %v", got.Sequencer())
		}
	})
}

// Ensure that a delay belongs to the name of the key, and hinders nothing but a lock.
func TestLock_K38_DelayOfAName(t *testing.T) {
	each(t, func(h *harness) {
		s, next := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second}), h.session(nil)
		h.lock(s, "k")
		h.must(h.EndSession(s.ID()))
		steps := []func() error{
			func() error { return second(h.Put("k", []byte("w"), nil)) },
			func() error {
				return second(h.CompareAndSwap("k", h.entry("k").ModifyIndex, nil, nil))
			},
			func() error { return second(h.Delete("k")) },
			func() error { return second(h.CompareAndSwap("k", 0, []byte("new"), nil)) },
			func() error { return second(h.DeletePrefix("k")) },
			func() error { return second(h.Put("k", nil, nil)) },
		}
		for i, step := range steps {
			h.must(step())
			h.advance(time.Second)
			got := h.refusal(next, "k")
			want := 10*time.Second - time.Duration(i+1)*time.Second
			if got.Obstacle != lockd.ObstacleDelay || got.Remaining != want {
				h.t.Errorf("after step %d: got %+v, want %v", i, got, want)
			}
		}
		h.lock(next, "k2")
		h.advance(4*time.Second - time.Nanosecond)
		if got := h.refusal(next, "k"); got.Remaining != time.Nanosecond {
			h.t.Errorf("just before its end: got %+v", got)
		}
		h.advance(time.Nanosecond)
		h.lock(next, "k")
	})
}

// Ensure that a lock which is given up sets no delay, by whatever method.
func TestUnlock_K39_SetsNoDelay(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: lockd.MaxLockDelay})
		next := h.session(nil)
		h.must(h.lock(s, "k").Unlock())
		h.must(h.lock(next, "k").Unlock())
		h.lock(s, "k")
		h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Unlock("k", s.ID())) }))
		h.must(h.lock(next, "k").Unlock())
		h.lock(s, "k")
		h.must(s.Close())
		h.lock(next, "k")
	})
}

// Ensure that Unlock releases the lock, returns nil each time, and ends the handle.
func TestLock_Unlock(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		l := h.lock(s, "k")
		if l.Err() != nil || closed(l.Done()) || l.Key() != "k" {
			h.t.Fatalf("a lock that is held: %v", l.Err())
		}
		if l.Sequencer() != h.entry("k").Sequencer() || l.Sequencer().LockIndex != 1 {
			h.t.Fatalf("sequencer: got %v", l.Sequencer())
		}
		h.must(l.Unlock())
		h.lost(l, lockd.ErrUnlocked)
		if e := h.entry("k"); !e.Session.IsZero() || e.LockIndex != 1 {
			h.t.Fatalf("the key: got %+v", e)
		}
		h.nothingMoves("repeated", func() { h.must(l.Unlock()) })

		later := h.lock(s, "k")
		h.nothingMoves("repeated while it is held again", func() { h.must(l.Unlock()) })
		if later.Err() != nil || h.entry("k").Sequencer() != later.Sequencer() {
			h.t.Fatalf("the later lock: %v", later.Err())
		}
	})
}

// Ensure that after a loss Unlock tells the cause, changes nothing, and never releases a later
// lock, not even one of the same session.
func TestLock_Unlock_AfterALoss(t *testing.T) {
	for name, tt := range map[string]struct {
		lose  func(h *harness, s *lockd.Session, fence uint64) error
		cause error
		ends  bool // the session
	}{
		"TxnUnlock": {func(h *harness, s *lockd.Session, _ uint64) error {
			return h.Update(func(tx *lockd.Txn) error { return second(tx.Unlock("k", s.ID())) })
		}, lockd.ErrUnlocked, false},
		"TxnUnlockAndLock": {func(h *harness, s *lockd.Session, _ uint64) error {
			return h.Update(func(tx *lockd.Txn) error {
				h.must(second(tx.Unlock("k", s.ID())))
				return second(tx.Lock("k", s.ID(), nil))
			})
		}, lockd.ErrUnlocked, false},
		"Delete": {func(h *harness, _ *lockd.Session, _ uint64) error {
			return second(h.Delete("k"))
		}, lockd.ErrKeyDeleted, false},
		"DeletePrefix": {func(h *harness, _ *lockd.Session, _ uint64) error {
			return second(h.DeletePrefix("k"))
		}, lockd.ErrKeyDeleted, false},
		"ForceUnlock": {func(h *harness, _ *lockd.Session, fence uint64) error {
			return h.ForceUnlock("k", fence, "an operator")
		}, lockd.ErrForced, false},
		"EndSession": {func(h *harness, s *lockd.Session, _ uint64) error {
			return h.EndSession(s.ID())
		}, lockd.ErrDestroyed, true},
		"Expiry": {func(h *harness, _ *lockd.Session, _ uint64) error {
			h.advance(time.Minute)
			return nil
		}, lockd.ErrExpired, true},
		"SessionClose": {func(_ *harness, s *lockd.Session, _ uint64) error {
			return s.Close()
		}, lockd.ErrClosed, true},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{
					TTL: time.Minute, LockDelay: lockd.NoLockDelay,
				})
				next := h.session(nil)
				l := h.lock(s, "k")
				ctx := l.Context(h.t.Context())
				h.must(tt.lose(h, s, l.Sequencer().Fence))
				h.settle()
				h.lost(l, tt.cause)
				if !errors.Is(context.Cause(ctx), tt.cause) {
					h.t.Errorf("cause of the context: got %v", context.Cause(ctx))
				}
				later := s
				if tt.ends {
					later = next
				}
				now := h.lock(later, "k")
				for range 2 {
					h.nothingMoves("unlock", func() {
						err := l.Unlock()
						if !errors.Is(err, lockd.ErrNotHeld) || !errors.Is(err, tt.cause) {
							h.t.Errorf("unlock: got %v", err)
						}
					})
				}
				if now.Err() != nil || h.entry("k").Sequencer() != now.Sequencer() {
					h.t.Errorf("the later lock: %v", now.Err())
				}
				h.must(now.Unlock())
			})
		})
	}
}

// Ensure that a lock without a handle is taken over as it is, without a write, and has a handle
// like any other then (X33).
func TestLock_TakesOverATxnsLock(t *testing.T) {
	for name, take := range map[string]func(s *lockd.Session) (*lockd.Lock, error){
		"Lock": func(s *lockd.Session) (*lockd.Lock, error) {
			return s.Lock(context.Background(), "k", nil)
		},
		"TryLock": func(s *lockd.Session) (*lockd.Lock, error) { return s.TryLock("k", nil) },
		"LockAll": func(s *lockd.Session) (*lockd.Lock, error) {
			locks, err := s.LockAll(context.Background(), []string{"k"}, nil)
			return locks[0], err
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(nil)
				h.must(h.lock(s, "k").Unlock())
				h.must(h.Update(func(tx *lockd.Txn) error {
					return second(tx.Lock("k", s.ID(), nil))
				}))
				waiting := h.wait(h.t.Context(), h.session(nil), "k", nil)
				want := h.entry("k").Sequencer()
				var l *lockd.Lock
				h.nothingMoves("taking over", func() {
					var err error
					l, err = take(s)
					h.must(err)
				})
				if l.Sequencer() != want || want.LockIndex != 2 {
					h.t.Errorf("sequencer: got %v, want %v", l.Sequencer(), want)
				}
				waiting.waits()
				if got := h.refusal(s, "k"); got.Holder != s.ID() {
					h.t.Errorf("a second handle: got %v", got)
				}
				// A transaction may still lock the key, and leaves the handle alone.
				h.nothingMoves("K16", func() {
					h.must(h.Update(func(tx *lockd.Txn) error {
						return second(tx.Lock("k", s.ID(), nil))
					}))
				})
				h.must(l.Unlock())
				h.must(waiting.held().Unlock())
			})
		})
	}
}

// Ensure that a lock can be taken over with a value, and after the file was opened anew.
func TestLock_TakesOver_WithAValueAndAfterReopen(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		old := h.lock(s, "k")
		h.reopen()
		if err := old.Err(); !closed(old.Done()) || !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("the old handle: got %v", err)
		}
		s, err := h.Session(s.ID())
		h.must(err)
		l, err := s.TryLock("k", &lockd.LockOptions{Value: []byte("mine"), Flags: 2})
		h.must(err)
		if l.Sequencer() != old.Sequencer() {
			h.t.Errorf("sequencer: got %v, want %v", l.Sequencer(), old.Sequencer())
		}
		e := h.entry("k")
		if string(e.Value) != "mine" || e.Flags != 2 || e.Sequencer() != l.Sequencer() ||
			e.ModifyIndex != h.Snapshot().Index() {
			h.t.Errorf("the key: got %+v", e)
		}
		if err := old.Unlock(); errors.Is(err, lockd.ErrNotHeld) ||
			!errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("unlock of the old handle: got %v", err)
		}
		if l.Err() != nil {
			h.t.Errorf("the new handle: %v", l.Err())
		}
	})
}

// Ensure that two goroutines with one session exclude each other (X33).
func TestLock_OneSessionTwice(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Name: "one"})
		first := h.wait(h.t.Context(), s, "k", nil).held()
		next := h.wait(h.t.Context(), s, "k", nil)
		next.waits()
		got := h.refusal(s, "k")
		if got.Holder != s.ID() || got.HolderName != "one" || got.Waiters != 1 {
			h.t.Errorf("try lock: got %+v", got)
		}
		h.must(first.Unlock())
		l := next.held()
		if l.Sequencer().Fence <= first.Sequencer().Fence || l.Sequencer().LockIndex != 2 {
			h.t.Errorf("the second grant: got %v", l.Sequencer())
		}
		h.must(first.Unlock())
		if l.Err() != nil {
			h.t.Errorf("a repeated Unlock of the first handle ended the second: %v", l.Err())
		}
	})
}

// Ensure that a lock passes to the next inside the transaction that frees it (X34), without a
// touch to the value (X27).
func TestLock_IsHandedOn(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 7)
		l := h.lock(h.session(nil), "k")
		next := h.session(nil)
		waiting := h.wait(h.t.Context(), next, "k", nil)
		was, before := h.entry("k"), h.Snapshot().Index()
		h.must(l.Unlock())
		got := waiting.held()
		index := h.Snapshot().Index()
		same(h, "the key", h.entry("k"), lockd.Entry{
			Key: "k", Value: []byte("v"), Flags: 7, Session: next.ID(), Fence: index,
			CreateIndex: was.CreateIndex, ModifyIndex: index, LockIndex: was.LockIndex + 1,
		})
		if index != before+1 || got.Sequencer() != h.entry("k").Sequencer() {
			h.t.Errorf("the hand-over: index %d after %d, %v", index, before, got.Sequencer())
		}
	})
}

// Ensure that a context that has ended takes no lock, free or not, and that a context that ends
// while the call waits leaves nothing.
func TestLock_ContextEnds(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		ctx, cancel := context.WithCancel(h.t.Context())
		l := h.lock(s, "k")
		waiting := h.wait(ctx, s, "k", nil)
		cancel()
		h.settle()
		if !closed(waiting.back) || !errors.Is(waiting.err, context.Canceled) ||
			waiting.locks[0] != nil || h.Waiters("k") != 0 {
			h.t.Fatalf("got %v, %d waiting", waiting.err, h.Waiters("k"))
		}
		h.must(l.Unlock())
		if e := h.entry("k"); !e.Session.IsZero() {
			h.t.Errorf("the key after it: got %+v", e)
		}
		h.nothingMoves("an ended context", func() {
			got, err := s.Lock(ctx, "k", nil)
			all, errAll := s.LockAll(ctx, []string{"k", "absent"}, nil)
			if got != nil || all != nil || !errors.Is(err, context.Canceled) ||
				!errors.Is(errAll, context.Canceled) {
				h.t.Errorf("got %v, %v and %v, %v", got, err, all, errAll)
			}
		})
	})
}

// Ensure that a session that has ended gets no lock, and that its end stops its waiting calls.
func TestLock_SessionEnds(t *testing.T) {
	each(t, func(h *harness) {
		s, holder := h.session(nil), h.session(nil)
		h.lock(holder, "k")
		waiting := h.wait(h.t.Context(), s, "k", nil)
		behind := h.wait(h.t.Context(), holder, "k", nil)
		h.must(h.EndSession(s.ID()))
		h.settle()
		for _, err := range []error{
			waiting.err,
			second(s.TryLock("free", nil)),
			second(s.Lock(h.t.Context(), "free", nil)),
			second(s.LockAll(h.t.Context(), []string{"free"}, nil)),
		} {
			if !errors.Is(err, lockd.ErrNoSession) || !errors.Is(err, lockd.ErrDestroyed) {
				h.t.Errorf("got %v", err)
			}
		}
		behind.waits()
		if _, ok := h.Get("free"); ok || h.Waiters("k") != 1 {
			h.t.Errorf("something is left: %d waiting", h.Waiters("k"))
		}
	})
}

// Ensure that the context of a lock ends with it, with its cause, and with its parent.
func TestLock_Context(t *testing.T) {
	type name struct{}
	each(t, func(h *harness) {
		s := h.session(nil)
		l := h.lock(s, "k")
		mine := errors.New("mine")
		parent, cancel := context.WithCancelCause(
			context.WithValue(h.t.Context(), name{}, "value"))
		first, other := l.Context(parent), l.Context(h.t.Context())
		if first.Value(name{}) != "value" || first.Err() != nil || other.Err() != nil {
			h.t.Fatalf("a new context: %v, %v", first.Value(name{}), first.Err())
		}
		cancel(mine)
		h.settle()
		if !errors.Is(first.Err(), context.Canceled) || context.Cause(first) != mine {
			h.t.Errorf("after its parent: got %v", context.Cause(first))
		}
		if l.Err() != nil || other.Err() != nil {
			h.t.Errorf("the end of a parent ended more: %v, %v", l.Err(), other.Err())
		}
		h.must(h.EndSession(s.ID()))
		late := l.Context(h.t.Context())
		for _, ctx := range []context.Context{other, late} {
			if !closed(ctx.Done()) || context.Cause(ctx) != l.Err() ||
				!errors.Is(context.Cause(ctx), lockd.ErrDestroyed) {
				h.t.Errorf("after the loss: got %v", context.Cause(ctx))
			}
		}
		if context.Cause(first) != mine {
			h.t.Errorf("the cause has changed to %v", context.Cause(first))
		}
	})
}

// Ensure that a refusal says who holds the lock, until when it is delayed, or that others wait.
func TestLockedError_Text(t *testing.T) {
	each(t, func(h *harness) {
		h.advance(time.Hour)
		named := h.session(&lockd.SessionOptions{Name: `the "first"`, LockDelay: time.Minute})
		s := h.session(nil)
		text := func(key, want string) {
			h.t.Helper()
			want = strings.NewReplacer("NAMED", named.ID().String(), "OTHER",
				s.ID().String()).Replace(want)
			if _, err := s.TryLock(key, nil); err == nil || err.Error() != want {
				h.t.Errorf("got  %v\nwant %s", err, want)
			}
		}
		l := h.lock(named, "k")
		text("k", `lockd: try lock "k": held by "the \"first\"" (session NAMED) for 0s`)
		h.advance(3*time.Minute + 12*time.Second)
		ctx, cancel := context.WithCancel(h.t.Context())
		one, two := h.wait(ctx, s, "k", nil), h.wait(ctx, s, "k", nil)
		text("k", `lockd: try lock "k": held by "the \"first\"" (session NAMED) for 3m12s, `+
			`2 ahead of you`)
		h.must(h.EndSession(named.ID()))
		h.lost(l, lockd.ErrDestroyed)
		h.advance(1500 * time.Millisecond)
		text("k", `lockd: try lock "k": delayed for another 58.5s, until `+
			`1970-01-01T01:04:12.000Z, because its last holder was lost, 2 ahead of you`)
		cancel()
		h.settle()
		one.h.settle()
		if one.err == nil || two.err == nil {
			h.t.Fatalf("the calls go on: %v, %v", one.err, two.err)
		}
		text("k", `lockd: try lock "k": delayed for another 58.5s, until `+
			`1970-01-01T01:04:12.000Z, because its last holder was lost`)
		h.lock(s, "mine")
		text("mine", `lockd: try lock "mine": held by session OTHER, your own, for 0s`)
		h.advance(1234 * time.Millisecond)
		text("mine", `lockd: try lock "mine": held by session OTHER, your own, for 1.2s`)

		h.lock(h.session(nil), "busy")
		h.lockCall(func() ([]*lockd.Lock, error) {
			return s.LockAll(h.t.Context(), []string{"busy", "promised"}, nil)
		}).waits()
		text("promised", `lockd: try lock "promised": promised to those who wait for it, `+
			`1 ahead of you`)
	})
}
