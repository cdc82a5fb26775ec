package lockd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that the limit of a Wait goes by the database's clock, that the state at that time comes
// back with it, and that nothing of it is left when the call returns earlier.
func TestWait_Limit(t *testing.T) {
	each(t, func(h *harness) {
		scope := lockd.KeyScope("k")
		e, deadlines := h.put("k", "v", 0), h.Deadlines()
		var state *lockd.Snapshot
		var at uint64
		wait := func(ctx context.Context) *call {
			c := start(func() (err error) {
				state, at, err = h.Wait(ctx, scope, e.ModifyIndex, time.Minute)
				return err
			})
			h.settle()
			if got := h.Deadlines() - deadlines; got != 1 {
				h.t.Errorf("%d deadlines", got)
			}
			return c
		}
		limited := wait(h.t.Context())
		newest := h.put("other", "v", 0).ModifyIndex
		h.advance(time.Minute - 1)
		if limited.returned() {
			h.t.Fatal("returned early")
		}
		h.advance(1)
		if !limited.returned() || limited.err != nil || at != e.ModifyIndex ||
			state.Index() != newest {
			h.t.Errorf("returned %t: %d, %v", limited.returned(), at, limited.err)
		}

		ctx, cancel := context.WithCancel(h.t.Context())
		limited = wait(ctx)
		cancel()
		if err := limited.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("with a context that ends: %v", err)
		}
		limited = wait(h.t.Context())
		e = h.put("k", "w", 0)
		if err := limited.wait(); err != nil || at != e.ModifyIndex {
			h.t.Errorf("with a change: %d, %v", at, err)
		}
		if got := h.Deadlines(); got != deadlines {
			h.t.Errorf("%d deadlines, were %d", got, deadlines)
		}
	})
}

func TestErr(t *testing.T) {
	each(t, func(h *harness) {
		h.must(h.DB.Err())
		h.must(h.Close())
		if err := h.DB.Err(); !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestNode(t *testing.T) {
	each(t, func(h *harness) {
		if h.Node() != "local" {
			t.Errorf("the default is %q", h.Node())
		}
		h.opts.Node = "Alpha"
		h.must(h.Close())
		h.open()
		if _, ok := h.Snapshot().Catalog().Node(h.Node()); !ok || h.Node() != "Alpha" {
			t.Errorf("%q is not in the catalog", h.Node())
		}
	})
}
