package lockd_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// who names a session of the world.
type who func(w *world) lockd.SessionID

func sessionA(w *world) lockd.SessionID  { return w.a.ID() }
func nobody(*world) lockd.SessionID      { return lockd.SessionID{} }
func stranger(*world) lockd.SessionID    { return lockd.SessionID{1, 2, 3} }
func theEnded(w *world) lockd.SessionID  { return w.ended.ID() }
func takes(opts *lockd.LockOptions) rule { return locks(sessionA, opts) }

type rule = func(w *world) (any, error)

// locks is the lock of a transaction.
func locks(by who, opts *lockd.LockOptions) rule {
	return func(w *world) (any, error) {
		var e lockd.Entry
		err := w.Update(func(tx *lockd.Txn) (err error) {
			e, err = tx.Lock("k", by(w), opts)
			return err
		})
		return e, err
	}
}

// unlocks is the unlock of a transaction.
func unlocks(by who) rule {
	return func(w *world) (any, error) {
		var e lockd.Entry
		err := w.Update(func(tx *lockd.Txn) (err error) {
			e, err = tx.Unlock("k", by(w))
			return err
		})
		return e, err
	}
}

// delayed is a key whose holder was lost just now.
func delayed(w *world) {
	free(w)
	lost := w.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
	w.lock(lost, "k")
	w.must(w.EndSession(lost.ID()))
}

// granted is what a lock without a value makes of the entry.
func granted(w *world, before lockd.Entry, index uint64) lockd.Entry {
	if before.Key == "" {
		before.Key, before.CreateIndex = "k", index
	}
	before.Session = w.a.ID()
	before.ModifyIndex, before.Fence = index, index
	before.LockIndex++
	return before
}

// grantedNew is what a lock with a value makes of the entry.
func grantedNew(w *world, before lockd.Entry, index uint64) lockd.Entry {
	return rewritten(w, granted(w, before, index), index)
}

func released(_ *world, before lockd.Entry, index uint64) lockd.Entry {
	before.Session, before.ModifyIndex = lockd.SessionID{}, index
	return before
}

func TestTxnLock_K13K14K15K16(t *testing.T) {
	value := &lockd.LockOptions{Value: []byte("new"), Flags: 9}
	sameValue := &lockd.LockOptions{Value: []byte("old"), Flags: 7}
	run(t, []keyRule{
		{rule: "K13", on: "absent", do: takes(nil), want: granted},
		{rule: "K13", on: "absent, value", do: takes(value), want: grantedNew},
		{rule: "K13", on: "empty value",
			do: takes(&lockd.LockOptions{Value: []byte{}}), want: granted},
		{rule: "K14", on: "free", given: free, do: takes(nil), want: granted},
		{rule: "K14", on: "free, no options", given: free, do: takes(&lockd.LockOptions{}),
			want: granted},
		{rule: "K14", on: "free, value", given: free, do: takes(value), want: grantedNew},
		{rule: "K14", on: "after a delay", want: granted, do: takes(nil),
			given: func(w *world) { delayed(w); w.advance(10 * time.Second) }},
		{rule: "K15", on: "other value", given: heldByA, do: takes(value), want: rewritten},
		{rule: "K15", on: "other flags", given: heldByA,
			do: takes(&lockd.LockOptions{Value: []byte("old")}),
			want: func(_ *world, before lockd.Entry, index uint64) lockd.Entry {
				before.Flags, before.ModifyIndex = 0, index
				return before
			}},
		{rule: "K15", on: "empty value", given: heldByA,
			do: takes(&lockd.LockOptions{Value: []byte{}, Flags: 7}),
			want: func(_ *world, before lockd.Entry, index uint64) lockd.Entry {
				before.Value, before.ModifyIndex = nil, index
				return before
			}},
		{rule: "K16", on: "same value", given: heldByA, do: takes(sameValue), want: unchanged},
		{rule: "K16", on: "none", given: heldByA, do: takes(nil), want: unchanged},
		{rule: "K16", on: "no options", given: heldByA, do: takes(&lockd.LockOptions{}),
			want: unchanged},
	})
}

// Ensure that a refused lock says what is in the way (X24, X25).
func TestTxnLock_K17K18K19K20(t *testing.T) {
	locked := func(want func(w *world) lockd.LockedError) func(w *world, err error) {
		return func(w *world, err error) {
			var got *lockd.LockedError
			if !errors.As(err, &got) || !reflect.DeepEqual(*got, want(w)) {
				w.t.Errorf("error: got %#v, want %#v", got, want(w))
			}
		}
	}
	byB := locked(func(w *world) lockd.LockedError {
		return lockd.LockedError{Key: "k", Obstacle: lockd.ObstacleHolder, Holder: w.b.ID(),
			Fence: w.entry("k").Fence, Since: w.clock.Now()}
	})
	byDelay := locked(func(w *world) lockd.LockedError {
		return lockd.LockedError{Key: "k", Obstacle: lockd.ObstacleDelay,
			Until: w.clock.Now().Add(10 * time.Second).Round(0), Remaining: 10 * time.Second}
	})
	run(t, []keyRule{
		{rule: "K17", on: "held", given: heldByB, do: takes(nil), refused: byB},
		{rule: "K17", on: "held, value", given: heldByB, refused: byB,
			do: takes(&lockd.LockOptions{Value: []byte("new")})},
		{rule: "K18", on: "delayed", given: delayed, do: takes(nil), refused: byDelay},
		{rule: "K18", on: "delayed and deleted", refused: byDelay, do: takes(nil),
			given: func(w *world) { delayed(w); w.must(second(w.Delete("k"))) }},
		{rule: "K19", on: "absent", do: locks(nobody, nil), err: lockd.ErrInvalid},
		{rule: "K19", on: "free", given: free, do: locks(nobody, nil), err: lockd.ErrInvalid},
		{rule: "K20", on: "unknown", do: locks(stranger, nil), err: lockd.ErrNoSession},
		{rule: "K20", on: "ended", given: free, do: locks(theEnded, nil),
			err: lockd.ErrNoSession},
	})
}

// Ensure that an unlock keeps value and flags (X2), and that only the holder's unlock counts.
func TestTxnUnlock_K21K22K23K24K25(t *testing.T) {
	run(t, []keyRule{
		{rule: "K21", on: "held", given: heldByA, do: unlocks(sessionA), want: released},
		{rule: "K22", on: "free", given: free, do: unlocks(sessionA), err: lockd.ErrNotHeld},
		{rule: "K22", on: "held by another", given: heldByB, do: unlocks(sessionA),
			err: lockd.ErrNotHeld},
		{rule: "K23", on: "absent", do: unlocks(sessionA), err: lockd.ErrNotHeld},
		{rule: "K24", on: "held", given: heldByA, do: unlocks(nobody), err: lockd.ErrInvalid},
		{rule: "K24", on: "free", given: free, do: unlocks(nobody), err: lockd.ErrInvalid},
		{rule: "K25", on: "unknown", given: heldByA, do: unlocks(stranger),
			err: lockd.ErrNotHeld},
		{rule: "K25", on: "ended", given: heldByA, do: unlocks(theEnded),
			err: lockd.ErrNotHeld},
	})
}

// Ensure that of several obstacles a lock is refused for the first in the order of the rule.
func TestTxnLock_K35_Order(t *testing.T) {
	each(t, func(h *harness) {
		w := &world{harness: h, a: h.session(nil), b: h.session(nil)}
		delayed(w)
		refused := func(what string, got lockd.Obstacle, key string, id lockd.SessionID) {
			h.t.Helper()
			var locked *lockd.LockedError
			err := h.Update(func(tx *lockd.Txn) error { return second(tx.Lock(key, id, nil)) })
			if !errors.As(err, &locked) || locked.Obstacle != got {
				h.t.Errorf("%s: got %v", what, err)
			}
		}
		unknown := lockd.SessionID{9}
		err := h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("", unknown, nil)) })
		if !errors.Is(err, lockd.ErrInvalid) {
			h.t.Errorf("an empty key and an unknown session: got %v", err)
		}
		refused("delay and no session", lockd.ObstacleDelay, "k", lockd.SessionID{})
		refused("delay and an unknown session", lockd.ObstacleDelay, "k", unknown)
		go func() { _, _ = w.b.Lock(h.t.Context(), "k", nil) }()
		h.settle()
		refused("delay and a queue", lockd.ObstacleDelay, "k", w.a.ID())

		h.advance(10 * time.Second) // now b holds it
		if err := second(locks(nobody, nil)(w)); !errors.Is(err, lockd.ErrInvalid) {
			h.t.Errorf("held, and no session: got %v", err)
		}
		if err := second(locks(stranger, nil)(w)); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("held, and an unknown session: got %v", err)
		}
		go func() { _, _ = w.a.Lock(h.t.Context(), "k", nil) }()
		h.settle()
		refused("held, and a queue", lockd.ObstacleHolder, "k", w.a.ID())
	})
}

// Ensure that a lock is judged on the state that its own transaction has made: the delay of a
// session's end in it counts (X9), and so does the queue behind an unlock in it.
func TestTxnLock_K35_OnItsOwnState(t *testing.T) {
	each(t, func(h *harness) {
		s, next := h.session(nil), h.session(nil)
		h.lock(s, "k")
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(tx.EndSession(s.ID()))
			var locked *lockd.LockedError
			_, err := tx.Lock("k", next.ID(), nil)
			if !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleDelay {
				h.t.Errorf("after the end in this transaction: got %v", err)
			}
			if _, err := tx.Lock("other", s.ID(), nil); !errors.Is(err, lockd.ErrNoSession) {
				h.t.Errorf("by the session that ended in it: got %v", err)
			}
			return nil
		}))
		first := h.lock(next, "q")
		go func() { _, _ = next.Lock(h.t.Context(), "q", nil) }()
		h.settle()
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(second(tx.Unlock("q", next.ID())))
			var locked *lockd.LockedError
			_, err := tx.Lock("q", next.ID(), nil)
			if !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleQueue {
				h.t.Errorf("after the unlock in this transaction: got %v", err)
			}
			return nil
		}))
		if !errors.Is(first.Err(), lockd.ErrUnlocked) {
			h.t.Errorf("the handle: got %v", first.Err())
		}
	})
}

// Ensure that an ID in capitals is the same session in every call (X20).
func TestSessionID_K36_AnyCase(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		capitals := strings.ToUpper(s.ID().String())
		id, err := lockd.ParseSessionID(capitals)
		h.must(err)
		var read lockd.SessionID
		h.must(read.UnmarshalText([]byte(capitals)))
		if id != s.ID() || read != id || id.String() == capitals {
			h.t.Fatalf("parsed: got %v and %v, want %v", id, read, s.ID())
		}
		h.lock(s, "k")
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.heldIn(tx, "k", id)
			return second(tx.Unlock("k", id))
		}))
		if _, ok := h.Snapshot().Session(id); !ok {
			h.t.Errorf("the session is not found")
		}
		h.must(h.EndSession(id))
	})
}
