package lockd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that Schedule goes by the database's clock, and not at all once it is stopped.
func TestSchedule(t *testing.T) {
	each(t, func(h *harness) {
		calls := make(chan time.Duration, 3)
		call := func(d time.Duration) func() { return func() { calls <- d } }
		h.Schedule(time.Minute, call(time.Minute))
		stop := h.Schedule(time.Minute, call(0))
		if !stop() || stop() {
			t.Error("stop did not report what it did")
		}
		h.advance(time.Minute - 1)
		if len(calls) > 0 {
			t.Errorf("called early: %v", <-calls)
		}
		h.advance(1)
		if len(calls) != 1 || <-calls != time.Minute {
			t.Error("not called in time")
		}
		if stop := h.Schedule(-1, call(-1)); stop() {
			t.Error("stop says that it prevented a call that was due")
		}
		h.settle()
		if len(calls) != 1 {
			t.Error("not called at once")
		}
		defer func() {
			if cause := recover(); cause != "lockd: Schedule of a nil function" {
				t.Errorf("panic is %v", cause)
			}
		}()
		h.Schedule(1, nil)
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
