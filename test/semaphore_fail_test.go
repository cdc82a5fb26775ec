package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a release whose commit failed leaves the slot with its handle, the waiters in their
// places, and that it can be repeated.
func TestG9_FailedReleaseKeepsTheQueue(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		slot := h.slot(h.session(nil), 1)
		first := h.awaitSlot(h.t.Context(), h.session(nil), 1)
		second := h.awaitSlot(h.t.Context(), h.session(nil), 1)
		c.fail(errDisk)
		for range 2 {
			mustFail(t, "release", slot.Release())
			h.holds(slot)
			first.waits()
			second.waits()
		}
		c.fail(nil)
		h.must(slot.Release())
		h.must(slot.Release())
		second.waits()
		h.must(first.held().Release())
		second.held()
	})
}

// Ensure that a waiter that is served before one that waits out its own delay takes its place again
// when its grant could not be committed.
func TestG9_DroppedGrantBehindADelay(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(nil)
		holder := h.slot(h.session(nil), 2)
		q := h.slot(s, 2).Sequencer()
		h.must(h.ForceUnlock(q.Key, q.Fence, "in a test"))
		first := h.awaitSlot(h.t.Context(), s, 2)
		second := h.awaitSlot(h.t.Context(), h.session(nil), 2)
		third := h.awaitSlot(h.t.Context(), h.session(nil), 2)
		c.fail(errDisk)
		for range 2 {
			mustFail(t, "release", holder.Release())
			second.waits()
		}
		c.fail(nil)
		h.must(holder.Release())
		first.waits()
		third.waits()
		slot := second.held()
		h.advance(lockd.DefaultLockDelay)
		first.held()
		third.waits()
		h.must(slot.Release())
		third.held()
	})
}

// Ensure that a write that takes a slot away, and fails, leaves the slot where it was.
func TestG10_DroppedLossOfASlot(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(nil)
		slot := h.slot(s, 1)
		waiting := h.awaitSlot(h.t.Context(), h.session(nil), 1)
		for what, lose := range map[string]func() error{
			"delete": func() error { _, err := h.Delete("sem/.lock"); return err },
			"put":    func() error { _, err := h.Put("sem/.lock", []byte("x"), nil); return err },
			"prefix": func() error { _, err := h.DeletePrefix("sem"); return err },
			"end":    func() error { return h.EndSession(s.ID()) },
			"close":  s.Close,
			"force": func() error {
				q := slot.Sequencer()
				return h.ForceUnlock(q.Key, q.Fence, "in a test")
			},
			"limit": func() error { return h.SetLimit("sem", 2) },
		} {
			c.fail(errDisk)
			mustFail(t, what, lose())
			c.fail(nil)
			h.settle()
			h.holds(slot)
			waiting.waits()
			if refusal := h.fullOf(h.session(nil), 1); refusal.Remaining != 0 {
				t.Errorf("%s left a delay: %+v", what, refusal)
			}
		}
		h.must(slot.Release())
		waiting.held()
	})
}

// Ensure that a slot whose grant was dropped is free, and goes to a call that queued meanwhile.
func TestG9_DroppedGrantOfASlotIsServedAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(nil)
		sessions := h.sessions(2)
		grant := c.held(func() error { _, err := s.TryAcquire("sem", 1); return err })
		var waiting []*slotCall
		for _, s := range sessions {
			a := &slotCall{h: h}
			a.call = start(func() (err error) {
				a.slot, err = s.Acquire(h.t.Context(), "sem", 1)
				return err
			})
			h.settle()
			waiting = append(waiting, a)
		}
		c.release(errDisk)
		mustFail(t, "try acquire", grant.wait())
		h.must(waiting[0].held().Release())
		h.must(waiting[1].held().Release())
		h.slot(s, 1)
	})
}

// Ensure that a call whose context ends while its slot is being committed returns at once, and that
// nothing of it remains, whether the commit succeeds or not.
func TestG11_GivingUpWhileBeingGrantedASlot(t *testing.T) {
	for _, outcome := range []error{nil, errDisk} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("waits %t, commit %v", waits, outcome), func(t *testing.T) {
				onFile(t, func(h *harness) { givingUpASlot(h, waits, outcome) })
			})
		}
	}
}

func givingUpASlot(h *harness, waits bool, outcome error) {
	c := h.commits()
	s, next := h.session(nil), h.session(nil)
	ctx, cancel := context.WithCancel(h.t.Context())
	acquire := func() error {
		slot, err := s.Acquire(ctx, "sem", 1)
		if slot != nil {
			h.t.Error("a slot with an error")
		}
		return err
	}
	var holder *lockd.Slot
	var release, giveUp *call
	if waits {
		holder = h.slot(h.session(nil), 1)
		giveUp = start(acquire)
		h.settle()
		release = c.held(holder.Release)
	} else {
		giveUp = c.held(acquire)
	}
	cancel()
	if err := giveUp.wait(); !errors.Is(err, context.Canceled) { // the commit is still held
		h.t.Fatalf("acquire: got %v", err)
	}
	c.release(outcome)
	h.settle()
	if waits {
		if err := release.wait(); !errors.Is(err, outcome) {
			h.t.Fatalf("release: got %v, want %v", err, outcome)
		}
		h.must(holder.Release())
	}
	h.advance(time.Minute) // long enough for every retry
	h.must(h.slot(next, 1).Release())
	if n := h.Snapshot().Len(); n != 1 || len(h.holders()) != 0 || h.States() != 0 {
		h.t.Fatalf("left: %d keys, %q, %d states", n, h.holders(), h.States())
	}
}

// Ensure that when commits fail at random under many callers that take slots, there are never more
// holders than slots, and no slot is lost.
func TestG1G9G11_RandomFailuresWithSlots(t *testing.T) {
	const limit = 3
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	onFile(t, func(h *harness) {
		c := h.commits()
		random := rand.New(rand.NewPCG(seed, 0))
		c.failBy(func() error { // one committer at a time
			if random.IntN(4) == 0 {
				return errDisk
			}
			return nil
		})
		p := &pool{harness: h, limit: limit}
		var calls []*call
		for i := range 10 {
			calls = append(calls, start(func() error {
				return p.work(rand.New(rand.NewPCG(seed, uint64(i)+1)))
			}))
		}
		for !allReturned(calls) {
			h.advance(time.Second) // for the retries
		}
		for _, call := range calls {
			h.must(call.err)
		}
		c.fail(nil)
		p.check()
		h.reopen()
		p.check()
	})
}

// pool is workers who share a semaphore, while commits fail at random.
type pool struct {
	*harness
	limit   int
	holders holders // of a slot
}

func (p *pool) work(random *rand.Rand) error {
	for range 8 {
		s, _ := p.NewSession(&lockd.SessionOptions{LockDelay: time.Second})
		if s == nil {
			continue
		}
		for range 6 {
			if err := p.once(s, random); err != nil {
				return err
			}
		}
		for { // it ends, in one way or another, whatever the commits do
			err := s.Close()
			if random.IntN(2) == 0 {
				err = p.EndSession(s.ID())
			}
			if err == nil || errors.Is(err, lockd.ErrNoSession) {
				break
			}
		}
	}
	return nil
}

// once takes a slot, and gives it back.
func (p *pool) once(s *lockd.Session, random *rand.Rand) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if random.IntN(4) == 0 {
		go cancel()
	}
	var slot *lockd.Slot
	var err error
	if random.IntN(3) == 0 {
		slot, err = s.TryAcquire("sem", p.limit)
	} else {
		slot, err = s.Acquire(ctx, "sem", p.limit)
	}
	if (slot == nil) != (err != nil) {
		return fmt.Errorf("slot %v with error %v", slot, err)
	}
	if err != nil {
		_, full := errors.AsType[*lockd.LockedError](err)
		if full || errors.Is(err, context.Canceled) {
			return nil
		}
		return expected(err)
	}
	if err := p.inSlot(slot); err != nil {
		return err
	}
	for {
		// After ErrCommit the slot is still held.
		if err := slot.Release(); err == nil || expected(err) != nil {
			return err
		}
	}
}

func (p *pool) inSlot(slot *lockd.Slot) error {
	if err := p.holders.within(p.limit); err != nil {
		return err
	}
	return slot.Err()
}

// check fails the test unless all slots can be taken, and not one more.
func (p *pool) check() {
	p.t.Helper()
	p.advance(time.Minute)
	var slots []*lockd.Slot
	for range p.limit {
		slots = append(slots, p.slot(p.session(nil), p.limit))
	}
	p.fullOf(p.session(nil), p.limit)
	for _, slot := range slots {
		p.must(slot.Release())
	}
	if p.States() != 0 || p.Waiters("sem/.lock") != 0 {
		p.t.Errorf("%d states, %d waiters", p.States(), p.Waiters("sem/.lock"))
	}
}
