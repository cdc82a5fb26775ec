package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
)

// native makes a session of the library, which is closed when the test is over.
func (h *harness) native(opts *lockd.SessionOptions) *lockd.Session {
	h.t.Helper()
	s, err := h.db.NewSession(opts)
	check(h.t, err)
	h.t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, lockd.ErrNoSession) {
			h.t.Error(err)
		}
	})
	return s
}

// asClient lets the library take a lock that the official client uses.
var asClient = lockd.LockOptions{Value: []byte("native"), Flags: api.LockFlagValue}

func TestNative_ALockIsOneForBothSides(t *testing.T) {
	each(t, func(h *harness) {
		s := h.native(nil)
		held, err := s.TryLock("l", &asClient)
		check(h.t, err)
		client := h.lock(api.LockOptions{Key: "l"})
		waiting := locking(client, nil)
		h.waitForBegun("GET /v1/kv/l?index=", 1)
		check(h.t, held.Unlock())
		r := receive(h, waiting)
		check(h.t, r.err)
		equal(h, "LockIndex", h.get("l").LockIndex, uint64(2))

		native := call(func() error {
			var err error
			held, err = s.Lock(h.t.Context(), "l", &asClient)
			return err
		})
		h.advance(time.Second)
		equal(h, "held by the client", open(r.lost), true)
		check(h.t, client.Unlock())
		check(h.t, receive(h, native))
		receive(h, r.lost)
		p := h.get("l")
		if p.Session != s.ID().String() || string(p.Value) != "native" || p.LockIndex != 3 {
			h.t.Fatal(brief(p))
		}
		h.destroy(p.Session) // and the library is told
		receive(h, held.Done())
		if err := held.Err(); !errors.Is(err, lockd.ErrDestroyed) {
			h.t.Fatal(err)
		}
	})
}

func TestG1_BothSidesHoldALockOneAtATime(t *testing.T) {
	each(t, func(h *harness) {
		const contenders = 3 // of each side
		var holders atomic.Int32
		results := make(chan error, 2*contenders)
		for range contenders {
			lock := h.lock(api.LockOptions{Key: "l"})
			go func() {
				_, err := lock.Lock(nil)
				if err == nil {
					err = hold(&holders, 1, lock.Unlock)
				}
				results <- err
			}()
			s := h.native(nil)
			go func() {
				lock, err := s.Lock(h.t.Context(), "l", &asClient)
				if err == nil {
					err = hold(&holders, 1, lock.Unlock)
				}
				results <- err
			}()
		}
		for range 2 * contenders {
			check(h.t, receive(h, results))
		}
		equal(h, "LockIndex", h.get("l").LockIndex, uint64(2*contenders))
	})
}

func TestM1_BothSidesShareASemaphore(t *testing.T) {
	each(t, func(h *harness) {
		s := h.native(nil)
		native, err := s.TryAcquire("s", 2)
		check(h.t, err)
		client := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
		lost := h.slot(client)
		equal(h, "holders", len(h.holders("s")), 2)

		// All slots are taken. The library's slot passes to the client.
		next := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
		waiting := acquiring(next, nil)
		h.waitForBegun("GET /v1/kv/s?index=", 1)
		if _, err := h.native(nil).TryAcquire("s", 2); !isLocked(err) {
			h.t.Fatalf("a third slot of two: %v", err)
		}
		check(h.t, native.Release())
		check(h.t, receive(h, waiting).err)

		// The client's slot passes to the library.
		acquired := call(func() error {
			_, err := s.Acquire(h.t.Context(), "s", 2)
			return err
		})
		h.advance(time.Second)
		equal(h, "held by the client", open(lost), true)
		check(h.t, client.Release())
		check(h.t, receive(h, acquired))
		receive(h, lost)
		if holders := h.holders("s"); len(holders) != 2 || !holders[s.ID().String()] {
			h.t.Fatalf("holders %v without %v", holders, s.ID())
		}
	})
}

// isLocked reports whether the library was refused a lock or a slot.
func isLocked(err error) bool {
	var locked *lockd.LockedError
	return errors.As(err, &locked)
}

func TestM1_BothSidesHoldNoMoreSlotsThanThereAre(t *testing.T) {
	each(t, func(h *harness) {
		const contenders, limit = 4, 2 // of each side
		var holders atomic.Int32
		results := make(chan error, 2*contenders)
		for range contenders {
			client := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: limit})
			go func() {
				_, err := client.Acquire(nil)
				if err == nil {
					err = hold(&holders, limit, client.Release)
				}
				results <- err
			}()
			s := h.native(nil)
			go func() {
				slot, err := s.Acquire(context.Background(), "s", limit)
				if err == nil {
					err = hold(&holders, limit, slot.Release)
				}
				results <- err
			}()
		}
		for range 2 * contenders {
			check(h.t, receive(h, results))
		}
		equal(h, "holders", len(h.holders("s")), 0)
	})
}

func TestM1_ASlotOfASessionThatEndsPassesToTheOtherSide(t *testing.T) {
	each(t, func(h *harness) {
		native := h.native(nil)
		slot, err := native.TryAcquire("s", 1)
		check(h.t, err)
		client := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1})
		waiting := acquiring(client, nil)
		h.waitForBegun("GET /v1/kv/s?index=", 1)
		h.destroy(native.ID().String())
		check(h.t, receive(h, waiting).err)
		receive(h, slot.Done())

		other := h.native(nil)
		acquired := call(func() error {
			_, err := other.Acquire(h.t.Context(), "s", 1)
			return err
		})
		for id := range h.holders("s") {
			h.destroy(id)
		}
		check(h.t, await(h, acquired, time.Second)) // when the lock-delay is over
		if holders := h.holders("s"); len(holders) != 1 || !holders[other.ID().String()] {
			h.t.Fatalf("holders %v, not %v", holders, other.ID())
		}
	})
}
