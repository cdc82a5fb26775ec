//go:build !lockddebug

package lockd_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// logSlow opens the database anew, with a log of what is slow after 5 s.
func (h *harness) logSlow() *logged {
	h.t.Helper()
	log := &logged{level: slog.LevelWarn}
	h.opts.Slow = 5 * time.Second
	h.log(log)
	return log
}

// Ensure that a lock that is held for longer than Options.Slow is logged once, and so is a call
// that waits for longer, with the waiter and the holder.
func TestSlow_R12_HeldAndAwaited(t *testing.T) {
	each(t, func(h *harness) {
		log := h.logSlow()
		a, b, c := h.named("a"), h.named("b"), h.session(nil)
		names := map[string]*lockd.Session{"a": a, "b": b, "c": c}
		lock := h.lock(a, "k")
		first := h.wait(h.t.Context(), b, "k", nil)
		h.advance(time.Second)
		second := h.wait(h.t.Context(), c, "k", shared)
		h.advance(4*time.Second - 1)
		h.mustLog(log, names)
		h.advance(1)
		fence := lock.Sequencer().Fence
		h.mustLog(log, names,
			fmt.Sprintf("5 WARN lock held long: key=k mode=exclusive fence=%d session=<a> name=a "+
				"held=5s waiters=2 first=\"b\" (session <b>)", fence),
			fmt.Sprintf("5 WARN lock awaited long: key=k mode=exclusive session=<b> name=b "+
				"waited=5s obstacle=held ahead=0 holder=\"a\" (session <a>) fence=%d "+
				"held=5s", fence),
		)
		h.advance(time.Second)
		h.mustLog(log, names,
			fmt.Sprintf("6 WARN lock awaited long: key=k mode=shared session=<c> waited=5s "+
				"obstacle=held ahead=1 holder=\"a\" (session <a>) fence=%d held=6s", fence))
		h.advance(time.Minute)
		h.mustLog(log, names)
		h.must(lock.Unlock())
		h.must(first.held().Unlock())
		h.must(second.held().Unlock())
		if n := h.Deadlines(); n != 0 {
			h.t.Errorf("%d deadlines are left", n)
		}
	})
}

// Ensure that each holder of a shared lock is logged, and a call that waits for all of them with
// their number.
func TestSlow_R12_Shared(t *testing.T) {
	each(t, func(h *harness) {
		log := h.logSlow()
		a, b, c := h.named("a"), h.named("b"), h.named("c")
		names := map[string]*lockd.Session{"a": a, "b": b, "c": c}
		one, two := h.share(a, "k"), h.share(b, "k")
		waiting := h.wait(h.t.Context(), c, "k", nil)
		h.advance(5 * time.Second)
		fence := one.Sequencer().Fence
		h.mustLog(log, names,
			fmt.Sprintf("5 WARN lock held long: key=k mode=shared fence=%d session=<a> name=a "+
				"held=5s waiters=1 first=\"c\" (session <c>)", fence),
			fmt.Sprintf("5 WARN lock held long: key=k mode=shared fence=%d session=<b> name=b "+
				"held=5s waiters=1 first=\"c\" (session <c>)", two.Sequencer().Fence),
			fmt.Sprintf("5 WARN lock awaited long: key=k mode=exclusive session=<c> name=c "+
				"waited=5s obstacle=held ahead=0 holder=\"a\" (session <a>) fence=%d held=5s "+
				"holders=2", fence),
		)
		h.must(one.Unlock())
		h.must(two.Unlock())
		h.must(waiting.held().Unlock())
	})
}

// Ensure that a slot is logged like a lock.
func TestSlow_R12_Slot(t *testing.T) {
	each(t, func(h *harness) {
		log := h.logSlow()
		a, b := h.named("a"), h.named("b")
		names := map[string]*lockd.Session{"a": a, "b": b}
		slot := h.slot(a, 1)
		waiting := h.awaitSlot(h.t.Context(), b, 1)
		h.advance(5 * time.Second)
		fence := slot.Sequencer().Fence
		h.mustLog(log, names,
			fmt.Sprintf("5 WARN lock held long: key=sem/<a> mode=exclusive fence=%d session=<a> "+
				"name=a held=5s waiters=1 first=\"b\" (session <b>)", fence),
			fmt.Sprintf("5 WARN lock awaited long: key=sem/.lock mode=exclusive session=<b> "+
				"name=b waited=5s obstacle=all slots taken ahead=0 holder=\"a\" "+
				"(session <a>) fence=%d held=5s", fence),
		)
		h.must(slot.Release())
		h.must(waiting.held().Release())
	})
}

// Ensure that a lock without a handle is logged too, and without the time if it is not known since
// when it is held.
func TestSlow_R12_WithoutAHandle(t *testing.T) {
	onFile(t, func(h *harness) {
		log := h.logSlow()
		s := h.session(&lockd.SessionOptions{Name: "a", Lifetime: lockd.Independent})
		names := map[string]*lockd.Session{"a": s}
		h.must(h.txn(func(tx *lockd.Txn) error { return second(tx.Lock("k", s.ID(), nil)) }))
		fence := h.entry("k").Fence
		h.advance(5 * time.Second)
		h.mustLog(log, names,
			fmt.Sprintf("5 WARN lock held long: key=k mode=exclusive fence=%d session=<a> name=a "+
				"held=5s waiters=0", fence))
		h.reopen()
		h.advance(5*time.Second - 1)
		h.mustLog(log, names)
		h.advance(1)
		h.mustLog(log, names,
			fmt.Sprintf("10 WARN lock held long: key=k mode=exclusive fence=%d session=<a> name=a "+
				"waiters=0", fence))
	})
}

// Ensure that a grant whose commit is slow is not logged before it is durable, and not at all if
// the commit fails.
func TestSlow_R12G3_NotBeforeItIsDurable(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		log := h.logSlow()
		s := h.named("a")
		for _, failure := range []error{errDisk, nil} {
			locking := c.held(func() error { return second(s.TryLock("k", nil)) })
			h.advance(10 * time.Second)
			if lines := log.take(); len(lines) != 0 {
				h.t.Errorf("before the commit: %q", lines)
			}
			c.release(failure)
			if err := locking.wait(); (err == nil) != (failure == nil) {
				h.t.Errorf("got %v after %v", err, failure)
			}
			h.settle()
			held := 0
			for _, line := range log.take() {
				if strings.Contains(line, "lock held long") {
					held++
				}
			}
			if held != 0 == (failure != nil) {
				h.t.Errorf("logged %d times after %v", held, failure)
			}
		}
	})
}

// Ensure that without Options.Slow nothing is logged, and nothing has a deadline.
func TestSlow_R12_Off(t *testing.T) {
	each(t, func(h *harness) {
		log := &logged{level: slog.LevelWarn}
		h.log(log)
		lock := h.lock(h.session(nil), "k")
		waiting := h.wait(h.t.Context(), h.session(nil), "k", nil)
		if n := h.Deadlines(); n != 0 {
			h.t.Errorf("%d deadlines", n)
		}
		h.advance(time.Hour)
		h.mustLog(log, nil)
		h.must(lock.Unlock())
		h.must(waiting.held().Unlock())
	})
}
