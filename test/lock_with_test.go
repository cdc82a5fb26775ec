package lockd_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

var errOfFn = errors.New("the function's own")

// with calls WithLock with a function of one argument.
func with(ctx context.Context, s *lockd.Session, fn func(ctx context.Context) error) error {
	return s.WithLock(ctx, "k", nil, func(ctx context.Context, _ lockd.Sequencer) error {
		return fn(ctx)
	})
}

// Ensure that the function runs under the lock, with its sequencer, and that nothing is left.
func TestWithLock_HoldsTheLock(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		var during context.Context
		fn := func(ctx context.Context, proof lockd.Sequencer) error {
			during = ctx
			if h.entry("k").Sequencer() != proof || ctx.Err() != nil {
				h.t.Errorf("got %v, held by %v, %v", proof, h.entry("k").Sequencer(), ctx.Err())
			}
			return h.CheckSequencer(proof)
		}
		h.must(s.WithLock(h.t.Context(), "k", nil, fn))
		if _, ok := h.Get("k"); ok || !errors.Is(context.Cause(during), lockd.ErrUnlocked) {
			h.t.Errorf("after it: key %v, context %v", ok, context.Cause(during))
		}
		h.put("k", "mine", 0)
		h.must(with(h.t.Context(), s, func(context.Context) error { return nil }))
		if e := h.entry("k"); string(e.Value) != "mine" || !e.Session.IsZero() {
			h.t.Errorf("a key that was there before: got %+v", e)
		}
	})
}

// Ensure that calls with one session exclude each other, in the order in which they came.
func TestWithLock_G9_InOrder(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		lock := h.lock(s, "k")
		var order []int
		var calls []*call
		for i := range 10 {
			calls = append(calls, start(func() error {
				return with(h.t.Context(), s, func(context.Context) error {
					order = append(order, i) // the lock is what keeps them apart
					return nil
				})
			}))
			h.settle()
		}
		h.must(lock.Unlock())
		for _, call := range calls {
			h.must(call.wait())
		}
		if len(order) != len(calls) || !slices.IsSorted(order) {
			h.t.Errorf("got %v", order)
		}
	})
}

// Ensure that the function's error comes back as it is.
func TestWithLock_FunctionsError(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		err := with(h.t.Context(), s, func(context.Context) error { return errOfFn })
		if err != errOfFn {
			h.t.Errorf("got %v", err)
		}
		h.must(h.lock(s, "k").Unlock())
	})
}

// Ensure that a loss comes back, with the function's error if there is one.
func TestWithLock_Loss(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
		for _, own := range []error{nil, errOfFn} {
			err := with(h.t.Context(), s, func(ctx context.Context) error {
				h.must(h.ForceUnlock("k", h.entry("k").Fence, "in a test"))
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), lockd.ErrForced) {
					h.t.Errorf("context: got %v", context.Cause(ctx))
				}
				return own
			})
			if !errors.Is(err, lockd.ErrNotHeld) || !errors.Is(err, lockd.ErrForced) ||
				own != nil && !errors.Is(err, own) {
				h.t.Errorf("got %v", err)
			}
			if _, plain := err.(*lockd.Error); plain != (own == nil) {
				h.t.Errorf("got a %T beside %v", err, own)
			}
		}
	})
}

// Ensure that without the lock the function is not called.
func TestWithLock_G11_NotTaken(t *testing.T) {
	each(t, func(h *harness) {
		s, gone := h.session(nil), h.session(nil)
		h.must(gone.Close())
		h.lock(h.session(nil), "k")
		ended, cancel := context.WithCancel(h.t.Context())
		cancel()
		never := func(context.Context) error {
			h.t.Error("called")
			return nil
		}
		if err := with(ended, s, never); !errors.Is(err, context.Canceled) {
			h.t.Errorf("ended context: got %v", err)
		}
		if err := with(h.t.Context(), gone, never); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("ended session: got %v", err)
		}
		waits := start(func() error { return with(h.t.Context(), s, never) })
		h.settle()
		h.must(s.Close())
		if err := waits.wait(); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("session that ends: got %v", err)
		}
	})
}

// Ensure that the lock is released when the function panics, or ends its goroutine, and that the
// panic or the end goes on.
func TestWithLock_PanicUnlocks(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		err := recovered(func() error {
			return with(h.t.Context(), s, func(context.Context) error { panic(errOfFn) })
		})
		if err != errOfFn {
			h.t.Errorf("panic: got %v", err)
		}
		h.must(h.lock(s, "k").Unlock())
		exit := start(func() error {
			return with(h.t.Context(), s, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		})
		<-exit.done
		h.must(h.lock(s, "k").Unlock())
	})
}

// Ensure that an Unlock that cannot be made durable is returned, with the function's error, and
// that the next commit that succeeds releases the lock, which no caller can: that of another write,
// or of the database's own retry. It releases a lock, too, that the session had before without a
// handle, and one that a panic left.
func TestWithLock_UnlockFails(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(nil)
		err := with(h.t.Context(), s, func(context.Context) error {
			c.fail(errDisk)
			return errOfFn
		})
		mustFail(t, "with lock", err)
		if !errors.Is(err, errOfFn) {
			t.Errorf("got %v", err)
		}
		h.settle() // the database has tried to release the lock
		c.fail(nil)
		h.must(h.lock(h.session(nil), "k").Unlock())

		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Lock("k", s.ID(), nil)
			return err
		}))
		err = recovered(func() error {
			return with(h.t.Context(), s, func(context.Context) error {
				c.fail(errDisk)
				panic(errOfFn)
			})
		})
		if err != errOfFn {
			t.Errorf("panic: got %v", err)
		}
		h.settle()
		c.fail(nil)
		h.advance(time.Second)
		if e := h.entry("k"); !e.Session.IsZero() {
			t.Errorf("held: %+v", e)
		}
	})
}
