package lockd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// times are the waits and holds that a test expects.
type times struct {
	lockWaits, lockHolds, slotWaits, slotHolds []time.Duration

	gaveUp uint64
}

// mustTime compares the waits and holds that Stats has with what is expected, exactly.
func (h *harness) mustTime(what string, want times) {
	h.t.Helper()
	stats := h.Stats()
	for name, of := range map[string]struct {
		got  lockd.Histogram
		want []time.Duration
	}{
		"waits for locks": {stats.LockWaits, want.lockWaits},
		"holds of locks":  {stats.LockHolds, want.lockHolds},
		"waits for slots": {stats.SlotWaits, want.slotWaits},
		"holds of slots":  {stats.SlotHolds, want.slotHolds},
	} {
		if want := histogramOf(of.want...); of.got != want {
			h.t.Errorf("%s: %s: got %+v, want %+v of %v", what, name, of.got, want, of.want)
		}
		if n := of.got.Count(); n != uint64(len(of.want)) {
			h.t.Errorf("%s: %s: the count is %d, want %d", what, name, n, len(of.want))
		}
	}
	if stats.GaveUp != want.gaveUp {
		h.t.Errorf("%s: %d calls gave up, want %d", what, stats.GaveUp, want.gaveUp)
	}
	if h.t.Failed() {
		h.t.FailNow()
	}
}

// histogramOf counts the durations. They are of half seconds, so that their sum is exact.
func histogramOf(durations ...time.Duration) (h lockd.Histogram) {
	bounds := lockd.HistogramBounds()
	for _, d := range durations {
		bucket := len(bounds)
		for i, bound := range bounds {
			if d <= bound {
				bucket = i
				break
			}
		}
		h.Buckets[bucket]++
		h.Seconds += d.Seconds()
	}
	return h
}

const (
	half    = time.Second / 2
	seconds = time.Second
)

// Ensure that the bounds rise, that a duration falls into the bucket of the first bound that is not
// shorter, and that one which is longer than all falls into the last.
func TestTimes_Buckets(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		bounds := lockd.HistogramBounds()
		if len(bounds)+1 != len(lockd.Histogram{}.Buckets) || bounds[0] != time.Millisecond ||
			bounds[len(bounds)-1] != 6*time.Hour {
			t.Fatalf("bounds: %v", bounds)
		}
		s, total := h.session(nil), time.Duration(0)
		hold := func(d time.Duration) {
			lock := h.lock(s, "k")
			h.advance(d)
			h.must(lock.Unlock())
			total += d
		}
		hold(0)
		want := lockd.Histogram{}
		want.Buckets[0] = 1
		for i, bound := range bounds {
			hold(bound)
			hold(bound + 1)
			want.Buckets[i]++
			want.Buckets[i+1]++
		}
		got := h.Stats().LockHolds
		if got.Buckets != want.Buckets {
			t.Errorf("buckets: got  %v\nwant %v", got.Buckets, want.Buckets)
		}
		if off := got.Seconds - total.Seconds(); off > 1e-6 || off < -1e-6 {
			t.Errorf("seconds: got %v, want %v", got.Seconds, total.Seconds())
		}
		bounds[0] = 0
		if again := lockd.HistogramBounds()[0]; again != time.Millisecond {
			t.Errorf("the caller's slice is everybody's: the first bound is %v", again)
		}
	})
}

// Ensure that a grant at once is no wait, that one from the queue is, and that a hold ends with an
// unlock, with the hand-on to the next, and with its key.
func TestTimes_LockWaitsAndHolds(t *testing.T) {
	each(t, func(h *harness) {
		var want times
		a, b := h.session(nil), h.session(nil)
		first := h.lock(a, "k")
		h.mustTime("granted at once", want)

		h.advance(half)
		waits := h.wait(h.t.Context(), b, "k", nil)
		h.advance(4 * seconds)
		h.mustTime("while it waits", want)
		h.must(first.Unlock())
		next := waits.held()
		want.lockWaits = append(want.lockWaits, 4*seconds)
		want.lockHolds = append(want.lockHolds, 4*seconds+half)
		h.mustTime("handed on", want)

		h.advance(time.Hour)
		h.must(next.Unlock())
		want.lockHolds = append(want.lockHolds, time.Hour)
		h.mustTime("unlocked", want)

		h.lock(a, "k")
		h.advance(2 * seconds)
		h.put("k", "written to meanwhile", 0)
		h.advance(seconds)
		if _, err := h.Delete("k"); err != nil {
			h.t.Fatal(err)
		}
		want.lockHolds = append(want.lockHolds, 3*seconds)
		h.mustTime("deleted", want)

		h.must(h.txn(func(tx *lockd.Txn) error {
			_, err := tx.Lock("k", a.ID(), nil)
			return errors.Join(err, second(tx.Unlock("k", a.ID())))
		}))
		h.mustTime("locked and unlocked in one transaction", want)

		h.must(h.txn(func(tx *lockd.Txn) error { return second(tx.Lock("k", a.ID(), nil)) }))
		h.advance(half)
		adopted := h.lock(a, "k")
		h.advance(half)
		h.must(adopted.Unlock())
		want.lockHolds = append(want.lockHolds, seconds)
		h.mustTime("taken over", want)
	})
}

// Ensure that LockAll is one wait and several holds, and that what another call promised counts
// from when the call came.
func TestTimes_LockAll(t *testing.T) {
	each(t, func(h *harness) {
		var want times
		holder := h.lock(h.session(nil), "b")
		s := h.session(nil)
		all := h.waitAll(h.t.Context(), s, "a", "b", "c")
		h.advance(seconds)
		h.must(holder.Unlock())
		all.held()
		want.lockWaits = append(want.lockWaits, seconds)
		want.lockHolds = append(want.lockHolds, seconds)
		h.mustTime("granted", want)
		h.advance(2 * seconds)
		h.must(s.Close())
		want.lockHolds = append(want.lockHolds, 2*seconds, 2*seconds, 2*seconds)
		h.mustTime("closed", want)
	})
}

// Ensure that a lock lost with its session's TTL was held until then, and that its next holder has
// waited until the end of the lock-delay.
func TestTimes_LostByTTL(t *testing.T) {
	each(t, func(h *harness) {
		var want times
		lost := h.session(&lockd.SessionOptions{TTL: 10 * seconds, LockDelay: 5 * seconds})
		h.lock(lost, "k")
		h.advance(2 * seconds)
		waits := h.wait(h.t.Context(), h.session(nil), "k", nil)
		h.advance(8 * seconds)
		want.lockHolds = append(want.lockHolds, 10*seconds)
		h.mustTime("lost", want)
		h.advance(5 * seconds)
		waits.held()
		want.lockWaits = append(want.lockWaits, 13*seconds)
		h.mustTime("after the delay", want)
	})
}

// Ensure that a call that ends without what it waited for counts as one that gave up, whatever
// ended it, and is no wait.
func TestTimes_GaveUp(t *testing.T) {
	each(t, func(h *harness) {
		var want times
		holder, slot := h.lock(h.session(nil), "k"), h.slot(h.session(nil), 1)
		ctx, cancel := context.WithCancel(h.t.Context())
		doomed := h.session(nil)
		calls := []*lockCall{
			h.wait(ctx, h.session(nil), "k", nil),
			h.waitAll(ctx, h.session(nil), "a", "k"),
			h.wait(h.t.Context(), doomed, "k", nil),
		}
		slotCalls := []*slotCall{
			h.awaitSlot(ctx, h.session(nil), 1), h.awaitSlot(h.t.Context(), doomed, 1),
		}
		last := h.wait(h.t.Context(), h.session(nil), "k", nil)
		h.advance(seconds)
		h.mustTime("while they wait", want)
		cancel()
		h.settle()
		want.gaveUp = 3
		h.mustTime("their context has ended", want)
		h.must(h.EndSession(doomed.ID()))
		h.settle()
		want.gaveUp = 5
		h.mustTime("their session has ended", want)
		for _, call := range calls {
			if call.err == nil {
				h.t.Fatal("a call goes on")
			}
		}
		for _, call := range slotCalls {
			if call.err == nil {
				h.t.Fatal("a call for a slot goes on")
			}
		}
		h.must(slot.Release())
		want.slotHolds = append(want.slotHolds, seconds)
		h.mustTime("released", want)
		h.must(h.Close())
		h.settle()
		want.gaveUp++
		want.lockHolds = append(want.lockHolds, seconds) // the end of a bound session is written
		h.mustTime("the database is closed", want)
		if !errors.Is(last.err, lockd.ErrClosed) || !errors.Is(holder.Err(), lockd.ErrClosed) {
			h.t.Errorf("closed: got %v and %v", last.err, holder.Err())
		}
	})
}

// Ensure that each holder of a shared lock counts by itself, and that a downgrade is the end of one
// hold and the beginning of another.
func TestTimes_SharedAndDowngraded(t *testing.T) {
	each(t, func(h *harness) {
		var want times
		a, b := h.session(nil), h.session(nil)
		first := h.share(a, "k")
		h.advance(seconds)
		second := h.share(b, "k")
		writer := h.await(h.session(nil), "k", nil)
		h.advance(seconds)
		h.must(first.Unlock())
		want.lockHolds = append(want.lockHolds, 2*seconds)
		h.mustTime("the first reader", want)
		h.advance(seconds)
		h.must(second.Unlock())
		lock := h.granted(writer)
		want.lockHolds = append(want.lockHolds, 2*seconds)
		want.lockWaits = append(want.lockWaits, 2*seconds)
		h.mustTime("the second reader", want)

		reader := h.await(a, "k", shared)
		h.advance(4 * seconds)
		h.must(lock.Downgrade())
		joined := h.granted(reader)
		want.lockHolds = append(want.lockHolds, 4*seconds)
		want.lockWaits = append(want.lockWaits, 4*seconds)
		h.mustTime("downgraded", want)
		h.advance(half)
		h.must(lock.Unlock())
		h.must(joined.Unlock())
		want.lockHolds = append(want.lockHolds, half, half)
		h.mustTime("the downgraded lock", want)

		h.share(a, "k")
		h.advance(seconds)
		_, err := h.Delete("k")
		h.must(err)
		want.lockHolds = append(want.lockHolds, seconds)
		h.mustTime("deleted", want)
	})
}

// Ensure that slots have waits and holds of their own, whatever ends them, and that neither a key
// beside them nor the lock of the semaphore's own key counts with them.
func TestTimes_Slots(t *testing.T) {
	each(t, func(h *harness) {
		var want times
		a, b, c := h.session(nil), h.session(nil), h.session(nil)
		first := h.slot(a, 1)
		waits := h.awaitSlot(h.t.Context(), b, 1)
		h.advance(seconds)
		h.must(first.Release())
		waits.held()
		want.slotWaits = append(want.slotWaits, seconds)
		want.slotHolds = append(want.slotHolds, seconds)
		h.mustTime("released", want)

		h.advance(2 * seconds)
		h.must(h.EndSession(b.ID()))
		want.slotHolds = append(want.slotHolds, 2*seconds)
		h.mustTime("lost", want)

		h.advance(15 * seconds) // the lock-delay
		slot := h.slot(c, 1)
		h.advance(3 * seconds)
		h.change(func(sem *official) { delete(sem.Holders, c.ID().String()) })
		h.lostSlot(slot, lockd.ErrUnlocked)
		want.slotHolds = append(want.slotHolds, 3*seconds)
		h.mustTime("taken off the holders", want)

		for _, key := range []string{
			"user/" + a.ID().String(), "user/" + c.ID().String(), "other/.lock",
		} {
			lock := h.lock(a, key)
			h.advance(half)
			h.must(lock.Unlock())
			want.lockHolds = append(want.lockHolds, half)
			h.mustTime("the lock of "+key, want)
		}
	})
}

// Ensure that the slot of another client, which has no handle, counts from when it locked its key.
func TestTimes_SlotOfAnotherClient(t *testing.T) {
	each(t, func(h *harness) {
		var want times
		s := h.session(nil)
		h.contend(s)
		h.advance(seconds)
		h.join(s, 1)
		h.advance(seconds)
		h.depart(s)
		want.slotHolds = append(want.slotHolds, 2*seconds)
		h.mustTime("departed", want)

		h.contend(s)
		h.join(s, 1)
		h.advance(half)
		slot := h.slot(s, 1) // takes it over
		h.advance(half)
		h.must(slot.Release())
		want.slotHolds = append(want.slotHolds, seconds)
		h.mustTime("taken over", want)
	})
}

// Ensure that a hand-off that is not durable counts for nothing: not while its commit is held, and
// not when the commit fails. It counts later, as what it is then.
func TestTimes_FailedCommit(t *testing.T) {
	onFile(t, func(h *harness) {
		var want times
		c := h.commits()
		lock := h.lock(h.session(nil), "k")
		waits := h.wait(h.t.Context(), h.session(nil), "k", nil)
		h.advance(half)
		unlock := c.held(lock.Unlock)
		h.mustTime("while the commit is held", want)
		c.fail(errDisk)
		c.release(errDisk)
		mustFail(h.t, "unlock", unlock.wait())
		h.settle()
		waits.waits()
		h.mustTime("failed", want)

		c.fail(nil)
		h.advance(half)
		h.must(lock.Unlock())
		second := waits.held()
		want.lockHolds = append(want.lockHolds, seconds)
		want.lockWaits = append(want.lockWaits, seconds)
		h.mustTime("succeeded", want)

		ctx, cancel := context.WithCancel(h.t.Context())
		waits = h.wait(ctx, h.session(nil), "k", nil)
		h.advance(2 * seconds)
		unlock = c.held(second.Unlock)
		cancel() // the grant is decided
		h.settle()
		if !errors.Is(waits.err, context.Canceled) {
			h.t.Fatalf("the call: %v", waits.err)
		}
		want.gaveUp++
		h.mustTime("gave up while it was granted", want)
		c.release(nil)
		h.must(unlock.wait())
		h.settle()
		want.lockHolds = append(want.lockHolds, 2*seconds, 0)
		h.mustTime("granted to a call that had returned", want)
	})
}

// Ensure that after an Open the times begin anew, and that a grant from before counts for nothing
// when it ends: it is not known how long the lock was held.
func TestTimes_Reopened(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		h.lock(s, "k")
		h.share(s, "shared")
		h.slot(s, 1)
		h.advance(seconds)
		h.reopen()
		h.mustTime("reopened", times{})
		s, err := h.Session(s.ID())
		h.must(err)
		again := h.lock(s, "k")
		h.advance(seconds)
		h.must(again.Unlock())
		h.must(s.Close())
		h.mustTime("ended", times{})

		lock := h.lock(h.session(nil), "k")
		h.advance(seconds)
		h.must(lock.Unlock())
		h.mustTime("a grant since then", times{lockHolds: []time.Duration{seconds}})
	})
}
