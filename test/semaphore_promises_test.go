package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that waiters for slots are served in order, however the slots become free, and that no
// call overtakes them, not by TryAcquire either.
func TestG9_M6_SlotsAreServedInOrder(t *testing.T) {
	each(t, func(h *harness) {
		mayTake := h.session(nil)
		first, second := h.session(nil), h.session(nil)
		slots := []*lockd.Slot{h.slot(first, 3), h.slot(second, 3), h.slot(h.session(nil), 3)}
		var calls []*slotCall
		for _, s := range h.sessions(6) {
			calls = append(calls, h.awaitSlot(h.t.Context(), s, 3))
		}
		served := 0
		next := func(how string, n int) {
			t.Helper()
			for range n {
				calls[served].held()
				served++
			}
			for _, call := range calls[served:] {
				call.waits()
			}
			if h.fullOf(mayTake, 3).Waiters != len(calls)-served {
				t.Errorf("%s: somebody overtook", how)
			}
		}
		next("nothing", 0)
		h.must(slots[2].Release())
		next("a release", 1)
		h.must(first.Close())
		next("a session that its owner closed", 1)
		_, err := h.Delete(slots[1].Sequencer().Key)
		h.must(err)
		next("a contender's key deleted", 1)
		_, err = h.DeletePrefix("sem/")
		h.must(err)
		next("all deleted", 3)
	})
}

// Ensure that one transaction that frees several slots serves several waiters, at its own index,
// and that no other call gets between them in it.
func TestG9_SeveralSlotsAtOnce(t *testing.T) {
	each(t, func(h *harness) {
		mayTake := h.session(nil)
		holders := h.sessions(2)
		a, b := h.slot(holders[0], 2), h.slot(holders[1], 2)
		first := h.awaitSlot(h.t.Context(), h.session(nil), 2)
		second := h.awaitSlot(h.t.Context(), h.session(nil), 2)
		var index uint64
		h.must(h.Update(func(tx *lockd.Txn) error {
			index = tx.Index()
			for _, slot := range []*lockd.Slot{a, b} {
				q := slot.Sequencer()
				if _, err := tx.Unlock(q.Key, q.Session); err != nil {
					return err
				}
			}
			_, err := tx.Lock("sem/"+mayTake.ID().String(), mayTake.ID(), nil)
			return err
		}))
		for _, call := range []*slotCall{first, second} {
			if q := call.held().Sequencer(); q.Fence != index {
				t.Errorf("fence %d, want %d", q.Fence, index)
			}
		}
		h.lostSlot(a, lockd.ErrUnlocked)
		h.lostSlot(b, lockd.ErrUnlocked)
		if h.fullOf(h.session(nil), 2).Obstacle != lockd.ObstacleSlots {
			t.Error("there are more slots than the limit")
		}
	})
}

// Ensure that a call that gives up, or whose session ends, leaves the queue and holds up no other.
func TestG9_WaitersForSlotsMayGo(t *testing.T) {
	each(t, func(h *harness) {
		slot := h.slot(h.session(nil), 1)
		var calls []*slotCall
		sessions := h.sessions(5)
		ctx, cancel := context.WithCancel(h.t.Context())
		for i, s := range sessions {
			waits := h.t.Context()
			if i == 0 || i == 3 {
				waits = ctx
			}
			calls = append(calls, h.awaitSlot(waits, s, 1))
		}
		cancel()
		for _, i := range []int{0, 3} {
			if err := calls[i].wait(); !errors.Is(err, context.Canceled) || calls[i].slot != nil {
				t.Errorf("waiter %d: got %v", i, err)
			}
		}
		h.must(h.EndSession(sessions[1].ID()))
		if err := calls[1].wait(); !errors.Is(err, lockd.ErrDestroyed) ||
			!errors.Is(err, lockd.ErrNoSession) {
			t.Errorf("waiter of an ended session: got %v", err)
		}
		h.must(slot.Release())
		h.must(calls[2].held().Release())
		h.must(calls[4].held().Release())
		if len(h.holders()) != 0 || h.Waiters("sem/.lock") != 0 || h.States() != 0 {
			t.Errorf("left: %q, %d states", h.holders(), h.States())
		}
	})
}

// Ensure that all waiters are refused when the semaphore is overwritten with something else.
func TestG9_WaitersForWhatIsNoSemaphore(t *testing.T) {
	each(t, func(h *harness) {
		h.slot(h.session(nil), 1)
		var calls []*slotCall
		for _, s := range h.sessions(3) {
			calls = append(calls, h.awaitSlot(h.t.Context(), s, 1))
		}
		h.put("sem/.lock", "something else", 0)
		for _, call := range calls {
			if err := call.wait(); !errors.Is(err, lockd.ErrConflict) || call.slot != nil {
				t.Errorf("waiter: got %v", err)
			}
		}
	})
}

// Ensure that 10,000 sessions that wait for a slot, or a lock, get it in the order in which they
// began to wait, and that none of them is woken for another one's turn.
func TestG9_TenThousandWait(t *testing.T) {
	ctx := context.Background()
	t.Run("ForASlot", func(t *testing.T) {
		tenThousandWait(t, func(s *lockd.Session) (func() error, error) {
			slot, err := s.Acquire(ctx, "sem", 1)
			if err != nil {
				return nil, err
			}
			return slot.Release, nil
		})
	})
	t.Run("ForALock", func(t *testing.T) {
		tenThousandWait(t, func(s *lockd.Session) (func() error, error) {
			lock, err := s.Lock(ctx, "k", nil)
			if err != nil {
				return nil, err
			}
			return lock.Unlock, nil
		})
	})
}

// tenThousandWait has one session take what only one can have, and the others wait for it. Take
// returns how to give it back.
func tenThousandWait(t *testing.T, take func(*lockd.Session) (func() error, error)) {
	t.Helper()
	const waiters = 10_000
	inBubble(t, "", func(h *harness) {
		leave, err := take(h.session(nil))
		h.must(err)
		sessions := h.sessions(waiters)
		var order []int // one at a time
		calls := make([]*call, waiters)
		for i, s := range sessions {
			calls[i] = start(func() error {
				leave, err := take(s)
				if err != nil {
					return err
				}
				order = append(order, i)
				return leave()
			})
			h.settle()
		}
		before := wakeUps(t)
		h.must(leave())
		for _, call := range calls {
			h.must(call.wait())
		}
		// Each is woken once; the rest is this goroutine, the runtime's own, and other tests'.
		if woken := wakeUps(t) - before; woken > 4*waiters {
			t.Errorf("%d wake-ups for %d waiters", woken, waiters)
		}
		if len(order) != waiters || !slices.IsSorted(order) {
			t.Errorf("%d served, in order %t", len(order), slices.IsSorted(order))
		}
	})
}

// wakeUps is how often any goroutine became ready to run, and then ran.
func wakeUps(t *testing.T) uint64 {
	t.Helper()
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		t.Fatalf("%s is not there", sample[0].Name)
	}
	var n uint64
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += count
	}
	return n
}

// Ensure that a slot whose holder was lost counts until its delay is over, also when the session
// that held it lives on, and when another client has taken the holder off.
func TestG7_M5_LostSlotCounts(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(h *harness, slot *lockd.Slot)
	}{
		{"Destroyed", func(h *harness, slot *lockd.Slot) {
			h.must(h.EndSession(slot.Sequencer().Session))
		}},
		{"Expired", func(h *harness, _ *lockd.Slot) { h.advance(time.Minute) }},
		{"Forced", func(h *harness, slot *lockd.Slot) {
			q := slot.Sequencer()
			h.must(h.ForceUnlock(q.Key, q.Fence, "in a test"))
		}},
		{"AndForgotten", func(h *harness, slot *lockd.Slot) {
			h.must(h.EndSession(slot.Sequencer().Session))
			foreign := h.session(nil) // it knows no delays
			h.contend(foreign)
			h.change(func(sem *official) { sem.Holders = map[string]bool{} })
			h.join(foreign, 2)
			h.depart(foreign)
		}},
		{"AndRenamed", func(h *harness, slot *lockd.Slot) {
			h.must(h.EndSession(slot.Sequencer().Session))
			_, err := h.DeletePrefix("sem/")
			h.must(err)
			h.must(h.SetLimit("sem", 2))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, func(h *harness) {
				const delay = 10 * time.Second
				s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: delay})
				slot := h.slot(s, 2)
				tc.lose(h, slot)
				h.slot(h.session(nil), 2) // of the other
				refusal := h.fullOf(h.session(nil), 2)
				if refusal.Obstacle != lockd.ObstacleSlots || refusal.Remaining != delay ||
					!refusal.Until.Equal(h.clock.Now().Add(delay)) {
					t.Errorf("refusal: %+v", refusal)
				}
				waiting := h.awaitSlot(h.t.Context(), h.session(nil), 2)
				h.advance(delay - 1)
				waiting.waits()
				h.advance(1)
				waiting.held()
			})
		})
	}
}

// Ensure that a slot that was lost counts as long as its delay lasts, although the semaphore is
// deleted meanwhile.
func TestG7G9_M5_LostSlotOutlivesTheSemaphore(t *testing.T) {
	each(t, func(h *harness) {
		const delay = 10 * time.Second
		s := h.session(&lockd.SessionOptions{LockDelay: delay})
		h.slot(s, 1)
		waiting := h.awaitSlot(h.t.Context(), h.session(nil), 1)
		h.must(h.EndSession(s.ID()))
		h.must(second(h.Delete("sem/.lock")))
		h.advance(delay - 1)
		waiting.waits()
		h.advance(1)
		waiting.held()
	})
}

// Ensure that a slot lost before a restart counts after it until its delay is over, even if another
// client took the holder off the semaphore, or deleted or emptied the semaphore's key.
func TestG7_M5_LostSlotCountsAfterARestart(t *testing.T) {
	for what, change := range map[string]func(h *harness){
		"taken off": func(h *harness) {
			h.change(func(sem *official) { sem.Holders = map[string]bool{} })
		},
		"deleted": func(h *harness) { h.must(second(h.Delete("sem/.lock"))) },
		"emptied": func(h *harness) { h.must(second(h.Put("sem/.lock", nil, nil))) },
	} {
		t.Run(what, func(t *testing.T) {
			onFile(t, func(h *harness) {
				const delay = 10 * time.Second
				s := h.session(&lockd.SessionOptions{LockDelay: delay})
				h.slot(s, 1)
				h.must(h.EndSession(s.ID()))
				change(h)
				h.advance(time.Second)
				h.reopen()
				waiting := h.awaitSlot(h.t.Context(), h.session(nil), 1)
				refusal := h.fullOf(h.session(nil), 1)
				if refusal.Remaining != delay-time.Second {
					t.Errorf("refusal: %+v", refusal)
				}
				h.advance(delay - time.Second - 1)
				waiting.waits()
				h.advance(1)
				waiting.held()
			})
		})
	}
}

// Ensure that no slot is kept back after a release, after an owner has closed its session, or by a
// contender that had no slot.
func TestG7_NoDelayForSlotsThatWereLeft(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.must(h.slot(s, 1).Release())
		h.slot(s, 1)
		h.must(s.Close())
		foreign := h.session(nil)
		h.contend(foreign)
		h.must(h.EndSession(foreign.ID())) // its contender key is delayed
		h.slot(h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay}), 1)
	})
}

// Ensure that a session whose slot was taken by force waits for its own delay before it gets
// another, and that the calls behind it are served meanwhile, whether they wait or try.
func TestG7G9_M6_OwnDelayHoldsUpNobody(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		q := h.slot(s, 4).Sequencer()
		h.must(h.ForceUnlock(q.Key, q.Fence, "in a test"))
		if refusal := h.fullOf(s, 4); refusal.Obstacle != lockd.ObstacleDelay {
			t.Errorf("refusal: %+v", refusal)
		}
		first := h.awaitSlot(h.t.Context(), s, 4)
		first.waits()
		h.awaitSlot(h.t.Context(), h.session(nil), 4).held()
		slot := h.slot(h.session(nil), 4)
		h.slot(h.session(nil), 4)
		second := h.awaitSlot(h.t.Context(), h.session(nil), 4) // the lost slot counts
		refusal := h.fullOf(h.session(nil), 4)
		if refusal.Obstacle != lockd.ObstacleSlots || refusal.Waiters != 2 {
			t.Errorf("refusal: %+v", refusal)
		}
		third := h.awaitSlot(h.t.Context(), h.session(nil), 4)
		second.waits()
		h.must(slot.Release())
		slot = second.held()
		third.waits()
		h.advance(lockd.DefaultLockDelay - 1)
		first.waits()
		h.must(slot.Release())
		slot = third.held()
		h.advance(1)
		first.held()
		h.fullOf(h.session(nil), 4)
		h.must(slot.Release())
	})
}

// Ensure that a session that waits out its own delay keeps its place: after the delay no call
// behind it is served before it, whenever a slot is free then.
func TestG7G9_M6_OwnDelayKeepsThePlace(t *testing.T) {
	each(t, func(h *harness) {
		forced := h.sessions(2)
		holder := h.slot(h.session(nil), 3)
		var calls []*slotCall
		for _, s := range forced {
			q := h.slot(s, 3).Sequencer()
			h.must(h.ForceUnlock(q.Key, q.Fence, "in a test"))
			calls = append(calls, h.awaitSlot(h.t.Context(), s, 3))
			h.advance(time.Second)
		}
		calls = append(calls, h.awaitSlot(h.t.Context(), h.session(nil), 3))
		h.must(h.SetLimit("sem", 1)) // so no slot is free when the delays are over
		h.advance(lockd.DefaultLockDelay)
		for i, call := range calls {
			for _, behind := range calls[i:] {
				behind.waits()
			}
			if refusal := h.fullOf(h.session(nil), 1); refusal.Waiters != len(calls)-i {
				t.Errorf("refusal: %+v", refusal)
			}
			h.must(holder.Release())
			holder = call.held()
		}
	})
}

// Ensure that when a call is granted a slot, the session that lost the slot has been notified.
func TestG10_LossOfASlotIsToldFirst(t *testing.T) {
	each(t, func(h *harness) {
		for name, lose := range map[string]func(s *lockd.Session) error{
			"session": func(s *lockd.Session) error { return s.Close() },
			"holders": func(*lockd.Session) error { _, err := h.Delete("sem/.lock"); return err },
			"contender": func(s *lockd.Session) error {
				_, err := h.Delete("sem/" + s.ID().String())
				return err
			},
		} {
			s := h.session(nil)
			lost := h.slot(s, 1)
			next := start(func() error {
				slot, err := h.session(nil).Acquire(context.Background(), "sem", 1)
				if err != nil {
					return err
				}
				if !isClosed(lost.Done()) {
					return fmt.Errorf("%s: who lost it was not told", name)
				}
				return slot.Release()
			})
			h.settle()
			h.must(lose(s))
			h.must(next.wait())
		}
	})
}

// Ensure that Close ends slots and waits for slots.
func TestG12_CloseEndsSlots(t *testing.T) {
	each(t, func(h *harness) {
		kept := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		slots := []*lockd.Slot{h.slot(h.session(nil), 2), h.slot(kept, 2)}
		waiting := h.awaitSlot(context.Background(), h.session(nil), 2)
		h.must(h.Close())
		for _, slot := range slots {
			if !errors.Is(slot.Err(), lockd.ErrClosed) || !isClosed(slot.Done()) {
				t.Errorf("slot: %v", slot.Err())
			}
		}
		if err := waiting.wait(); !errors.Is(err, lockd.ErrClosed) || waiting.slot != nil {
			t.Errorf("waiter: %v", err)
		}
		_, err := kept.TryAcquire("sem", 2)
		if !errors.Is(err, lockd.ErrClosed) || !errors.Is(h.SetLimit("sem", 1), lockd.ErrClosed) {
			t.Errorf("after the close: got %v", err)
		}
	})
}

// Ensure that a slot of a session that outlives its process is still held after a restart, and can
// be taken over as it is, and that the slots of other sessions are free.
func TestSlot_M8_AfterARestart(t *testing.T) {
	onFile(t, func(h *harness) {
		kept := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		proof := h.slot(kept, 2).Sequencer()
		h.slot(h.session(nil), 2)
		h.reopen()
		h.must(h.CheckSequencer(proof))
		again, err := h.Session(kept.ID())
		h.must(err)
		h.slot(h.session(nil), 2)
		waiting := h.awaitSlot(h.t.Context(), h.session(nil), 2)
		waiting.waits()
		var slot *lockd.Slot
		h.nothingMoves("taking over", func() {
			taken := h.awaitSlot(h.t.Context(), again, 2)
			slot = taken.held()
		})
		if slot.Sequencer() != proof {
			t.Errorf("sequencer: got %v, want %v", slot.Sequencer(), proof)
		}
		h.must(slot.Release())
		waiting.held()
	})
}

// Ensure that a semaphore leaves nothing behind of lost holders.
func TestSemaphore_M3_DoesNotRot(t *testing.T) {
	each(t, func(h *harness) {
		for range 20 {
			s := h.session(&lockd.SessionOptions{LockDelay: time.Second})
			h.slot(s, 1)
			h.must(h.EndSession(s.ID()))
			h.advance(time.Second)
		}
		h.must(h.slot(h.session(nil), 1).Release())
		if n := h.Snapshot().Len(); n != 1 || h.States() != 0 {
			t.Errorf("%d keys, %d states", n, h.States())
		}
	})
}
