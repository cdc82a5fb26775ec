package lockd_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

var removeAfter = &lockd.LockOptions{Key: lockd.RemoveAfter}

// Ensure that a key that a lock made goes with its Unlock, and that fences go on rising.
func TestRemoveAfter_TheKeyGoes(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		fence := uint64(0)
		for range 3 {
			l, err := s.TryLock("k", removeAfter)
			h.must(err)
			if q := l.Sequencer(); q.LockIndex != 1 || q.Fence <= fence {
				h.t.Errorf("got %v after fence %d", q, fence)
			}
			fence = l.Sequencer().Fence
			h.must(l.Unlock())
			h.must(l.Unlock())
			h.lost(l, lockd.ErrUnlocked)
			if e, ok := h.Get("k"); ok {
				h.t.Errorf("the key is left: %+v", e)
			}
			if got := h.Snapshot().IndexOf(lockd.KeyScope("k")); got != h.Snapshot().Index() {
				h.t.Errorf("no tombstone: index %d", got)
			}
		}
		l, err := s.TryLock("k", &lockd.LockOptions{Key: lockd.RemoveAfter, Value: []byte("v")})
		h.must(err)
		h.must(l.Unlock())
		if e, ok := h.Get("k"); ok {
			h.t.Errorf("the key that was made with a value is left: %+v", e)
		}
	})
}

// Ensure that a chain of waiters leaves no key: each grant makes it anew, in the transaction of the
// Unlock before.
func TestRemoveAfter_Chain(t *testing.T) {
	each(t, func(h *harness) {
		l, err := h.session(nil).TryLock("k", removeAfter)
		h.must(err)
		var chain []*lockCall
		for range 3 {
			chain = append(chain, h.wait(h.t.Context(), h.session(nil), "k", removeAfter))
		}
		for _, next := range chain {
			h.must(l.Unlock())
			index := h.Snapshot().Index()
			l = next.held()
			e := h.entry("k")
			if e.CreateIndex != index || e.Fence != index || e.LockIndex != 1 ||
				l.Sequencer() != e.Sequencer() {
				h.t.Errorf("got %+v at %d", e, index)
			}
		}
		h.must(l.Unlock())
		if e, ok := h.Get("k"); ok {
			h.t.Errorf("the key is left: %+v", e)
		}
	})
}

// Ensure that only the clean Unlock of the lock that made the key removes it, and only if the key
// has not been written since.
func TestRemoveAfter_TheKeyStays(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(h *harness)
		then   func(h *harness, l *lockd.Lock) error
	}{
		"it was there before": {
			func(h *harness) { h.put("k", "", 0) },
			func(_ *harness, l *lockd.Lock) error { return l.Unlock() },
		},
		"somebody wrote to it": {nil, func(h *harness, l *lockd.Lock) error {
			h.put("k", "", 1)
			return l.Unlock()
		}},
		"somebody deleted it and made it again": {nil,
			func(h *harness, l *lockd.Lock) error {
				h.must(second(h.Delete("k")))
				h.put("k", "", 0)
				if err := l.Unlock(); !errors.Is(err, lockd.ErrKeyDeleted) {
					h.t.Errorf("unlock: got %v", err)
				}
				return nil
			}},
		"the session ended": {nil, func(h *harness, l *lockd.Lock) error {
			return h.EndSession(l.Sequencer().Session)
		}},
		"the session was closed": {nil, func(h *harness, l *lockd.Lock) error {
			s, err := h.Session(l.Sequencer().Session)
			h.must(err)
			return s.Close()
		}},
		"it was forced": {nil, func(h *harness, l *lockd.Lock) error {
			return h.ForceUnlock("k", l.Sequencer().Fence, "")
		}},
		"a transaction released it": {nil, func(h *harness, l *lockd.Lock) error {
			return h.Update(func(tx *lockd.Txn) error {
				return second(tx.Unlock("k", l.Sequencer().Session))
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				if tt.before != nil {
					tt.before(h)
				}
				l, err := h.session(nil).TryLock("k", removeAfter)
				h.must(err)
				h.must(tt.then(h, l))
				if e := h.entry("k"); !e.Session.IsZero() {
					h.t.Errorf("the key: got %+v", e)
				}
			})
		})
	}
}

// Ensure that another caller's no-op does not keep the key, and a waiter without RemoveAfter does.
func TestRemoveAfter_NoOpAndKeeper(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		l, err := s.TryLock("k", removeAfter)
		h.must(err)
		h.must(second(h.Put("k", nil, nil)))
		keeper := h.wait(h.t.Context(), s, "k", nil)
		h.must(l.Unlock())
		h.must(keeper.held().Unlock())
		if e := h.entry("k"); e.LockIndex != 1 {
			h.t.Errorf("the key of the second: got %+v", e)
		}
	})
}

// Ensure that an Unlock which is called while the loss of its lock is not durable yet does not
// release the next lock, of the same session.
func TestLock_Unlock_WhileItsLossIsCommitted(t *testing.T) {
	onFile(t, func(h *harness) {
		var holding atomic.Bool
		gate := make(chan struct{})
		h.hook(store.Hooks{BeforeCommit: func() error {
			if holding.Load() {
				<-gate
			}
			return nil
		}})
		s := h.session(nil)
		l := h.lock(s, "k")
		holding.Store(true)
		passed, unlocked := make(chan error, 1), make(chan error, 1)
		go func() {
			passed <- h.Update(func(tx *lockd.Txn) error {
				if _, err := tx.Unlock("k", s.ID()); err != nil {
					return err
				}
				return second(tx.Lock("k", s.ID(), nil))
			})
		}()
		h.settle()
		go func() { unlocked <- l.Unlock() }()
		h.settle()
		if l.Err() != nil || len(passed)+len(unlocked) > 0 {
			h.t.Errorf("something was told before it was durable: %v", l.Err())
		}
		close(gate)
		h.must(<-passed)
		err := <-unlocked
		if !errors.Is(err, lockd.ErrNotHeld) || !errors.Is(err, lockd.ErrUnlocked) {
			h.t.Errorf("unlock: got %v", err)
		}
		if e := h.entry("k"); e.Session != s.ID() || e.Fence <= l.Sequencer().Fence {
			h.t.Errorf("the later lock: got %+v", e)
		}
	})
}

// Ensure that ForceUnlock takes away the lock of that fence, with the lock-delay, and no other.
func TestForceUnlock(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
		h.put("k", "v", 7)
		h.must(h.lock(s, "k").Unlock())
		old := h.entry("k").Fence
		l := h.lock(s, "k")
		bystander := h.lock(s, "other")
		waiting := h.wait(h.t.Context(), h.session(nil), "k", nil)
		was := h.entry("k")
		for _, tt := range []struct {
			key   string
			fence uint64
			want  error
			text  string
		}{
			{"k", old, lockd.ErrNotHeld, "has passed"},
			{"k", was.Fence + 1, lockd.ErrNotHeld, "was not granted"},
			{"k", 0, lockd.ErrNotHeld, "has passed"},
			{"absent", was.Fence, lockd.ErrNotHeld, "the lock is free"},
			{"", was.Fence, lockd.ErrInvalid, "empty"},
		} {
			h.nothingMoves("refused", func() {
				err := h.ForceUnlock(tt.key, tt.fence, "")
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
					h.t.Errorf("%q, %d: got %v", tt.key, tt.fence, err)
				}
			})
		}
		locked := h.refusal(s, "k")
		h.must(h.ForceUnlock("k", locked.Fence, "stuck since noon"))
		h.lost(l, lockd.ErrForced)
		if !strings.HasSuffix(l.Err().Error(), "unlocked by force: stuck since noon") {
			h.t.Errorf("the text of the cause: %v", l.Err())
		}
		was.Session, was.ModifyIndex = lockd.SessionID{}, h.Snapshot().Index()
		same(h, "the key", h.entry("k"), was)
		if s.Err() != nil || bystander.Err() != nil {
			h.t.Errorf("more than the lock ended: %v, %v", s.Err(), bystander.Err())
		}
		h.nothingMoves("forced again", func() {
			if err := h.ForceUnlock("k", locked.Fence, ""); !errors.Is(err, lockd.ErrNotHeld) {
				h.t.Errorf("forced again: got %v", err)
			}
		})
		if got := h.refusal(s, "k"); got.Remaining != 5*time.Second || got.Waiters != 1 {
			h.t.Errorf("the delay: got %+v", got)
		}
		h.advance(5*time.Second - 1)
		waiting.waits()
		h.advance(1)
		waiting.held()
	})
}

// Ensure that a lock without a handle can be taken away too, and that without a lock-delay the next
// waiter has it in the same transaction.
func TestForceUnlock_NoHandleNoDelay(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
		h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("k", s.ID(), nil)) }))
		waiting := h.wait(h.t.Context(), s, "j", nil).held()
		next := h.wait(h.t.Context(), h.session(nil), "k", nil)
		before := h.Snapshot().Index()
		h.must(h.ForceUnlock("k", h.entry("k").Fence, ""))
		if got := next.held().Sequencer(); got.Fence != before+1 || got.LockIndex != 2 {
			h.t.Errorf("the next: got %v after %d", got, before)
		}
		if waiting.Err() != nil {
			h.t.Errorf("another lock: %v", waiting.Err())
		}
	})
}

// Ensure that the cause of a lock that is taken away without a reason is a whole sentence.
func TestForceUnlock_NoReason(t *testing.T) {
	each(t, func(h *harness) {
		l := h.lock(h.session(nil), "k")
		h.must(h.ForceUnlock("k", l.Sequencer().Fence, ""))
		h.lost(l, lockd.ErrForced)
		if !strings.HasSuffix(l.Err().Error(), "no longer held: unlocked by force") {
			h.t.Errorf("the text of the cause: %v", l.Err())
		}
	})
}

// Ensure that a lock that was taken over does not remove the key: another caller created it, and
// may have written to it in the same transaction.
func TestRemoveAfter_KeepsWhatWasTakenOver(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Put("k", []byte("precious"), nil)
			_, lockErr := tx.Lock("k", s.ID(), nil)
			return errors.Join(err, lockErr)
		}))
		l, err := s.TryLock("k", &lockd.LockOptions{Key: lockd.RemoveAfter})
		h.must(err)
		h.must(l.Unlock())
		if e := h.entry("k"); string(e.Value) != "precious" {
			t.Fatalf("entry: got %+v", e)
		}
	})
}
