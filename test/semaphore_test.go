package lockd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// slotCall is an Acquire that a goroutine of its own has called.
type slotCall struct {
	*call
	h    *harness
	slot *lockd.Slot
}

// awaitSlot calls Acquire, and returns when the call waits or has returned.
func (h *harness) awaitSlot(ctx context.Context, s *lockd.Session, limit int) *slotCall {
	a := &slotCall{h: h}
	a.call = start(func() (err error) {
		a.slot, err = s.Acquire(ctx, "sem", limit)
		return err
	})
	h.settle()
	return a
}

// held returns the slot that the call must have got by now.
func (a *slotCall) held() *lockd.Slot {
	a.h.t.Helper()
	a.h.settle()
	if !a.returned() {
		a.h.t.Fatal("the call still waits")
	}
	a.h.must(a.err)
	a.h.holds(a.slot)
	return a.slot
}

func (a *slotCall) waits() {
	a.h.t.Helper()
	a.h.settle()
	if a.returned() {
		a.h.t.Fatalf("the call does not wait: %v", a.err)
	}
}

// slot takes a slot that is free.
func (h *harness) slot(s *lockd.Session, limit int) *lockd.Slot {
	h.t.Helper()
	slot, err := s.TryAcquire("sem", limit)
	h.must(err)
	h.holds(slot)
	return slot
}

// holds fails the test unless the slot is held, wherever that can be seen.
func (h *harness) holds(slot *lockd.Slot) {
	h.t.Helper()
	q := slot.Sequencer()
	if slot.Err() != nil || isClosed(slot.Done()) {
		h.t.Fatalf("slot has ended: %v", slot.Err())
	}
	h.must(h.CheckSequencer(q))
	if want := "sem/" + q.Session.String(); q.Key != want || slot.Prefix() != "sem" {
		h.t.Fatalf("slot of %q with key %q, want %q", slot.Prefix(), q.Key, want)
	}
	if holders := h.holders(); !slices.Contains(holders, q.Session.String()) {
		h.t.Fatalf("session %s is not among the holders %q", q.Session, holders)
	}
}

// lostSlot fails the test unless the slot has ended with the cause, wherever it is told.
func (h *harness) lostSlot(slot *lockd.Slot, cause error) {
	h.t.Helper()
	q := slot.Sequencer()
	var ended *lockd.EndedError
	if err := slot.Err(); !errors.As(err, &ended) || !errors.Is(err, cause) ||
		!errors.Is(err, lockd.ErrNotHeld) || ended.Session != q.Session {
		h.t.Errorf("err of the slot: got %v, want %v", err, cause)
	}
	if !isClosed(slot.Done()) {
		h.t.Error("done of the slot is open")
	}
	if err := h.CheckSequencer(q); !errors.Is(err, lockd.ErrNotHeld) {
		h.t.Errorf("sequencer of a lost slot: got %v", err)
	}
}

// official is what the official client writes to prefix/.lock.
type official struct {
	Limit   int
	Holders map[string]bool
}

// officialFlags are on all keys that the official client writes for a semaphore.
const officialFlags = 0xe0f69a2baa414de0

// sem reads the semaphore as the official client does: the flags have to be right.
func (h *harness) sem() official {
	h.t.Helper()
	var sem official
	e := h.entry("sem/.lock")
	if e.Flags != officialFlags || !e.Session.IsZero() {
		h.t.Fatalf("flags %#x, locked by %q", e.Flags, e.Session)
	}
	h.must(json.Unmarshal(e.Value, &sem))
	return sem
}

// holders are the sessions that the semaphore names, in order.
func (h *harness) holders() []string {
	h.t.Helper()
	return slices.Sorted(maps.Keys(h.sem().Holders))
}

// fullOf is what TryAcquire is refused with.
func (h *harness) fullOf(s *lockd.Session, limit int) *lockd.LockedError {
	h.t.Helper()
	slot, err := s.TryAcquire("sem", limit)
	refusal, _ := errors.AsType[*lockd.LockedError](err)
	if refusal == nil || slot != nil {
		h.t.Fatalf("try acquire: got %v, %v", slot, err)
	}
	return refusal
}

// Ensure that a call that waits for a slot is not granted the lock of the semaphore's key, when a
// session that has locked the key releases it.
func TestSemaphore_G1_KeyLockedByHand(t *testing.T) {
	each(t, func(h *harness) {
		slot := h.slot(h.session(nil), 1)
		lock := h.lock(h.session(nil), "sem/.lock")
		waiting := h.awaitSlot(h.t.Context(), h.session(nil), 1)
		h.must(lock.Unlock())
		waiting.waits()
		if got := h.holders(); len(got) != 1 { // holders fails if the key is locked
			h.t.Errorf("holders: got %q", got)
		}
		h.must(slot.Release())
		h.must(waiting.held().Release())
	})
}

// Ensure that no more slots are given than the limit says, each with a fence of its own and a
// sequencer that proves it.
func TestG1_NoMoreSlotsThanTheLimit(t *testing.T) {
	each(t, func(h *harness) {
		var slots []*lockd.Slot
		sessions := h.sessions(4)
		for _, s := range sessions[:3] {
			slots = append(slots, h.slot(s, 3))
		}
		for i, slot := range slots[1:] {
			if a, b := slots[i].Sequencer().Fence, slot.Sequencer().Fence; a >= b {
				t.Errorf("fences %d, %d", a, b)
			}
		}
		h.nothingMoves("a refusal", func() {
			refusal := h.fullOf(sessions[3], 3)
			text := "all slots are taken, the limit is 3, the longest by session " +
				sessions[0].ID().String() + " for 0s"
			if refusal.Obstacle != lockd.ObstacleSlots || refusal.Limit != 3 ||
				refusal.Holder != sessions[0].ID() || refusal.Error() != text ||
				refusal.Fence != slots[0].Sequencer().Fence {
				t.Errorf("refusal: %+v: %v", refusal, refusal)
			}
		})
		held := h.If(slots[1].Sequencer())
		_, err := held.Put("k", nil, nil)
		h.must(err)
		h.must(slots[1].Release())
		if _, err := held.Put("k", []byte("late"), nil); !errors.Is(err, lockd.ErrNotHeld) {
			t.Errorf("late write: got %v", err)
		}
		h.slot(sessions[3], 3)
		h.holds(slots[0])
		h.holds(slots[2])
	})
}

// Ensure that a slot is one transaction: the semaphore's key and the contender's have its index,
// and a release takes back both.
func TestSlot_M1M4_IsOneTransaction(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		index := h.Snapshot().Index()
		slot := h.slot(s, 2)
		key := "sem/" + s.ID().String()
		for _, key := range []string{"sem/.lock", key} {
			if e := h.entry(key); e.ModifyIndex != index+1 || e.Flags != officialFlags {
				t.Errorf("%s: %+v", key, e)
			}
		}
		if q := slot.Sequencer(); q.Fence != index+1 || q != h.entry(key).Sequencer() {
			t.Errorf("sequencer: %+v", q)
		}
		want := fmt.Sprintf(`{"Limit":2,"Holders":{%q:true}}`, s.ID().String())
		if got := string(h.entry("sem/.lock").Value); got != want {
			t.Errorf("semaphore: got %s, want %s", got, want)
		}
		h.must(slot.Release())
		if got := string(h.entry("sem/.lock").Value); got != `{"Limit":2,"Holders":{}}` {
			t.Errorf("semaphore: got %s", got)
		}
		if _, ok := h.Get(key); ok || h.Snapshot().Index() != index+2 {
			t.Errorf("contender there: %t, index %d", ok, h.Snapshot().Index())
		}
		if s.Err() != nil {
			t.Errorf("session: %v", s.Err())
		}
	})
}

// Ensure that a slot that is released twice is released once, also if the session has another one
// by then.
func TestSlot_M4_ReleaseMayBeRepeated(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		first := h.slot(s, 1)
		ctx := first.Context(h.t.Context())
		h.must(first.Release())
		second := h.slot(s, 1)
		h.nothingMoves("a second release", func() { h.must(first.Release()) })
		h.lostSlot(first, lockd.ErrUnlocked)
		if !errors.Is(context.Cause(ctx), lockd.ErrUnlocked) {
			t.Errorf("context: %v", context.Cause(ctx))
		}
		h.holds(second)
	})
}

// Ensure that an invalid use of a semaphore is refused, with a word about what to do instead.
func TestAcquire_M1M2M7M8_Misuse(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		h.slot(s, 2)
		h.put("taken/.lock", "not a semaphore", 0)
		h.put("none/.lock", `{"Limit":0,"Holders":{}}`, 0)
		h.put("list/.lock", `{"Limit":1,"Holders":7}`, 0)
		ended := h.session(nil)
		h.must(ended.Close())
		for _, tc := range []struct {
			session *lockd.Session
			prefix  string
			limit   int
			is      error
			says    string
		}{
			{other, "sem", -1, lockd.ErrInvalid, "limit is -1, not between 0 and 1048576"},
			{other, "sem", 1<<20 + 1, lockd.ErrInvalid, "limit is 1048577"},
			{other, "", 1, lockd.ErrInvalid, "prefix is empty"},
			{other, "sem/", 2, lockd.ErrInvalid, `its key would be "sem/.lock", not "sem//.lock"`},
			{other, "a//b", 2, lockd.ErrInvalid, `its key would be "a/b/.lock"`},
			{other, ".", 2, lockd.ErrInvalid, `its key would be ".lock", not "./.lock"`},
			{other, "/", 2, lockd.ErrInvalid, `its key would be "/.lock", not "//.lock"`},
			{other, strings.Repeat("p", lockd.MaxKeySize), 2, lockd.ErrInvalid, "16384 bytes"},
			{other, strings.Repeat("p", lockd.MaxKeySize-36), 2, lockd.ErrInvalid, "16347"},
			{other, "sem", 3, lockd.ErrConflict, "is 2, not 3: name 0 to go by its own"},
			{other, "new", 0, lockd.ErrConflict, "has no limit: name one, or call SetLimit"},
			{other, "taken", 0, lockd.ErrConflict,
				`the value of "taken/.lock" is not a semaphore's`},
			{other, "sem/", 0, lockd.ErrInvalid, `its key would be "sem/.lock", not "sem//.lock"`},
			{s, "sem", 0, lockd.ErrConflict, "take a session for each"},
			{ended, "sem", 0, lockd.ErrNoSession, "has ended"},
			{s, "sem", 2, lockd.ErrConflict, "take a session for each"},
			{other, "taken", 2, lockd.ErrConflict,
				`the value of "taken/.lock" is not a semaphore's`},
			{other, "none", 2, lockd.ErrConflict, "its limit is 0"},
			{other, "list", 2, lockd.ErrConflict,
				`the value of "list/.lock" is not a semaphore's`},
			{ended, "sem", 2, lockd.ErrNoSession, "has ended"},
		} {
			h.nothingMoves(tc.says, func() {
				tried, err := tc.session.TryAcquire(tc.prefix, tc.limit)
				slot, waited := tc.session.Acquire(h.t.Context(), tc.prefix, tc.limit)
				for _, err := range []error{err, waited} {
					if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
						t.Errorf("got %v, want %q", err, tc.says)
					}
				}
				if tried != nil || slot != nil {
					t.Error("a slot with an error")
				}
			})
		}
		for _, err := range []error{h.SetLimit("sem", 0), h.SetLimit("sem/", 1)} {
			if !errors.Is(err, lockd.ErrInvalid) {
				t.Errorf("set limit: got %v", err)
			}
		}
		if text := h.SetLimit("sem", 0).Error(); !strings.Contains(text, "not between 1 and") {
			t.Errorf("set limit: got %s", text)
		}
		if err := h.SetLimit("taken", 1); !errors.Is(err, lockd.ErrConflict) {
			t.Errorf("set limit: got %v", err)
		}
		longest := strings.Repeat("p", lockd.MaxKeySize-37)
		_, err := other.TryAcquire(longest, 1)
		h.must(err)
	})
}

// Ensure that a session that waits for a slot cannot wait for a second one, and that a context that
// ended before takes none.
func TestAcquire_M8_OnceForEachSession(t *testing.T) {
	each(t, func(h *harness) {
		holder, s := h.session(nil), h.session(nil)
		slot := h.slot(holder, 1)
		first := h.awaitSlot(h.t.Context(), s, 1)
		if _, err := s.Acquire(h.t.Context(), "sem", 1); !errors.Is(err, lockd.ErrConflict) {
			t.Errorf("second wait: got %v", err)
		}
		if _, err := s.TryAcquire("sem", 1); !errors.Is(err, lockd.ErrConflict) {
			t.Errorf("try while waiting: got %v", err)
		}
		h.must(slot.Release())
		h.must(first.held().Release())
		ctx, cancel := context.WithCancel(h.t.Context())
		cancel()
		if got, err := s.Acquire(ctx, "sem", 1); !errors.Is(err, context.Canceled) || got != nil {
			t.Errorf("ended context: got %v, %v", got, err)
		}
		if len(h.holders()) != 0 {
			t.Errorf("holders: %q", h.holders())
		}
	})
}

// Ensure that a session may have slots of several semaphores, one of each.
func TestAcquire_M1_SemaphoresAreTheirOwn(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		for _, prefix := range []string{"a", "a/b", "ab", "a/b/c", "/a"} {
			_, err := s.TryAcquire(prefix, 1)
			h.must(err)
			_, err = h.session(nil).TryAcquire(prefix, 1)
			if refusal, ok := errors.AsType[*lockd.LockedError](err); !ok ||
				refusal.Key != prefix+"/.lock" {
				t.Errorf("%s: got %v", prefix, err)
			}
		}
	})
}

// Ensure that SetLimit changes the limit for all: a waiter is served if there is room, and a holder
// keeps its slot if there is not.
func TestSetLimit_M7_ChangesItForAll(t *testing.T) {
	each(t, func(h *harness) {
		sessions := h.sessions(6)
		h.must(h.SetLimit("sem", 1)) // it has not been used yet
		first := h.slot(sessions[0], 1)
		var calls []*slotCall
		for _, s := range sessions[1:5] {
			calls = append(calls, h.awaitSlot(h.t.Context(), s, 1))
		}
		index := h.Snapshot().Index()
		h.must(h.SetLimit("sem", 3))
		held := []*lockd.Slot{calls[0].held(), calls[1].held()}
		calls[2].waits()
		if h.Snapshot().Index() != index+1 || h.sem().Limit != 3 {
			t.Errorf("index %d after %d, %+v", h.Snapshot().Index(), index, h.sem())
		}
		if _, err := sessions[5].TryAcquire("sem", 1); !errors.Is(err, lockd.ErrConflict) {
			t.Errorf("old limit: got %v", err)
		}
		h.must(h.SetLimit("sem", 1))
		h.nothingMoves("the same limit", func() { h.must(h.SetLimit("sem", 1)) })
		for _, slot := range append(held, first) {
			h.holds(slot)
		}
		h.must(first.Release())
		h.must(held[0].Release())
		calls[2].waits()
		h.must(held[1].Release())
		h.must(calls[2].held().Release())
		h.must(calls[3].held().Release())
	})
}

// Ensure that a limit of 0 means the semaphore's own, whatever that is and becomes, so that
// SetLimit breaks no call that names no limit.
func TestAcquire_M7_LimitOfZeroIsTheSemaphoresOwn(t *testing.T) {
	each(t, func(h *harness) {
		sessions := h.sessions(7)
		h.must(h.SetLimit("sem", 2))
		first := h.slot(sessions[0], 0)
		second := h.awaitSlot(h.t.Context(), sessions[1], 0).held()
		if refusal := h.fullOf(sessions[2], 0); refusal.Obstacle != lockd.ObstacleSlots ||
			refusal.Limit != 2 || refusal.Holder != sessions[0].ID() {
			t.Errorf("refusal: %+v", refusal)
		}
		waiting := h.awaitSlot(h.t.Context(), sessions[2], 0)
		waiting.waits()
		h.must(h.SetLimit("sem", 3))
		waiting.held()
		if refusal := h.fullOf(sessions[3], 0); refusal.Limit != 3 {
			t.Errorf("refusal: %+v", refusal)
		}
		waiting = h.awaitSlot(h.t.Context(), sessions[3], 0)
		h.must(h.SetLimit("sem", 1))
		h.must(first.Release())
		h.must(second.Release())
		waiting.waits()
		if h.sem().Limit != 1 {
			t.Errorf("limit: %+v", h.sem())
		}
		foreign := sessions[4] // it knows only the limit that is there
		h.contend(foreign)
		h.join(foreign, 4)
		waiting.held()
		if slot := h.slot(foreign, 0); h.sem().Limit != 4 || slot.Err() != nil {
			t.Errorf("taken over: %+v, %v", h.sem(), slot.Err())
		}
		h.slot(sessions[5], 4)
		h.fullOf(sessions[6], 0)
	})
}

// Ensure that a waiter that named no limit is refused when the semaphore goes, and that the waiters
// behind it that did name one make the semaphore again.
func TestAcquire_M7_NoLimitWhenTheSemaphoreGoes(t *testing.T) {
	each(t, func(h *harness) {
		h.slot(h.session(nil), 1)
		var calls []*slotCall
		for _, limit := range []int{0, 1, 0, 1} {
			calls = append(calls, h.awaitSlot(h.t.Context(), h.session(nil), limit))
		}
		h.must(second(h.Delete("sem/.lock")))
		if err := calls[0].wait(); !errors.Is(err, lockd.ErrConflict) || calls[0].slot != nil ||
			!strings.Contains(err.Error(), "has no limit") {
			t.Errorf("who named none: got %v", err)
		}
		slot := calls[1].held()
		for _, call := range calls[2:] {
			call.waits()
			h.must(slot.Release())
			slot = call.held()
		}
	})
}

// Ensure that the keys are those of the official client, in both directions: what it writes is
// heeded, and what it needs is there.
func TestSemaphore_M10_IsSharedWithForeignClients(t *testing.T) {
	each(t, func(h *harness) {
		native, foreign := h.session(nil), h.session(nil)
		h.contend(foreign)
		h.join(foreign, 1)
		waiting := h.awaitSlot(h.t.Context(), native, 1)
		waiting.waits()
		if _, ok := h.Get("sem/" + native.ID().String()); ok {
			t.Error("a native waiter owns a key")
		}
		h.depart(foreign)
		slot := waiting.held()
		h.contend(foreign) // it waits: its contender key takes no slot
		if got := h.holders(); len(got) != 1 {
			t.Errorf("holders: %q", got)
		}
		h.must(slot.Release())
		h.holds(h.slot(native, 1))
	})
}

// contend acquires the contender key, as the official client does before it looks for a slot.
func (h *harness) contend(s *lockd.Session) {
	h.t.Helper()
	h.must(h.Update(func(tx *lockd.Txn) error {
		_, err := tx.Lock("sem/"+s.ID().String(), s.ID(),
			&lockd.LockOptions{Value: []byte("about me"), Flags: officialFlags})
		return err
	}))
}

// join adds the session to the holders, as the official client does when it has found a free slot.
func (h *harness) join(s *lockd.Session, limit int) {
	h.t.Helper()
	h.change(func(sem *official) { sem.Limit, sem.Holders[s.ID().String()] = limit, true })
}

// depart is what the official client does to release a slot: two writes.
func (h *harness) depart(s *lockd.Session) {
	h.t.Helper()
	h.change(func(sem *official) { delete(sem.Holders, s.ID().String()) })
	_, err := h.Delete("sem/" + s.ID().String())
	h.must(err)
}

// change writes the semaphore by compare and swap.
func (h *harness) change(fn func(sem *official)) {
	h.t.Helper()
	sem := official{Holders: map[string]bool{}}
	e, ok := h.Get("sem/.lock")
	if ok {
		sem = h.sem()
	}
	fn(&sem)
	value, err := json.Marshal(sem)
	h.must(err)
	_, err = h.CompareAndSwap("sem/.lock", e.ModifyIndex, value,
		&lockd.PutOptions{Flags: officialFlags})
	h.must(err)
}

// Ensure that the form of the guide is read too: a list, without flags, which may name dead
// sessions, and that it is written in the official form.
func TestSemaphore_M2_ReadsTheGuidesList(t *testing.T) {
	each(t, func(h *harness) {
		live, dead, native := h.session(nil), h.session(nil), h.session(nil)
		h.contend(live)
		text := fmt.Sprintf(`{"Limit": 2, "Holders": [%q, %q, "nobody"]}`,
			strings.ToUpper(live.ID().String()), dead.ID())
		h.put("sem/.lock", text, 0)
		slot := h.slot(native, 2)
		if got := h.holders(); len(got) != 2 || slices.Contains(got, dead.ID().String()) {
			t.Errorf("holders: %q", got)
		}
		h.fullOf(dead, 2)
		h.must(slot.Release())
	})
	each(t, func(h *harness) { // a key made with nothing in it is no semaphore yet
		h.put("sem/.lock", "", 0)
		h.slot(h.session(nil), 1)
	})
}

// Ensure that a slot that the session already has, without a handle, is taken over as it is: here a
// slot that it took as a foreign client.
func TestAcquire_M8_TakesOver(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.contend(s)
		h.join(s, 1)
		waiting := h.awaitSlot(h.t.Context(), h.session(nil), 1)
		fence := h.entry("sem/" + s.ID().String()).Fence
		var slot *lockd.Slot
		h.nothingMoves("taking over", func() { slot = h.slot(s, 1) })
		if slot.Sequencer().Fence != fence {
			t.Errorf("fence: got %d, want %d", slot.Sequencer().Fence, fence)
		}
		waiting.waits()
		h.must(slot.Release())
		waiting.held()
	})
}

// Ensure that a session that has the contender key but no slot gets one, with a new fence, and
// keeps what it had written there.
func TestAcquire_M8_ContenderGetsASlot(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.contend(s)
		h.slot(h.session(nil), 2) // a later grant than the contender's
		before := h.entry("sem/" + s.ID().String())
		slot := h.slot(s, 2)
		e := h.entry("sem/" + s.ID().String())
		if e.LockIndex != before.LockIndex+1 || e.Fence != h.Snapshot().Index() ||
			string(e.Value) != "about me" || slot.Sequencer() != e.Sequencer() {
			t.Errorf("contender: %+v", e)
		}
	})
}

// Ensure that a session that has another session's contender key keeps no call waiting for ever.
func TestAcquire_M6_ContenderKeyOfAnother(t *testing.T) {
	each(t, func(h *harness) {
		thief, s, next := h.session(nil), h.session(nil), h.session(nil)
		holder := h.slot(h.session(nil), 1)
		waiting := h.awaitSlot(h.t.Context(), s, 1)
		behind := h.awaitSlot(h.t.Context(), next, 1)
		lock := h.lock(thief, "sem/"+s.ID().String())
		_, err := s.Acquire(h.t.Context(), "other", 1)
		h.must(err)
		h.must(holder.Release())
		refusal, _ := errors.AsType[*lockd.LockedError](waiting.wait())
		if refusal == nil || refusal.Holder != thief.ID() || refusal.Key != lock.Key() {
			t.Errorf("waiter: got %v", waiting.err)
		}
		h.must(behind.held().Release())
		if refusal := h.fullOf(s, 1); refusal.Holder != thief.ID() {
			t.Errorf("try: got %v", refusal)
		}
		h.must(lock.Unlock())
		h.slot(s, 1)
	})
}

// Ensure that a slot ends when another client removes the session from the holders, and that its
// sequencer proves nothing from then on.
func TestSlot_M9_TakenByAnother(t *testing.T) {
	for _, tc := range []struct {
		name  string
		take  func(h *harness, s *lockd.Session) error
		cause error
	}{
		{"Written", func(h *harness, s *lockd.Session) error {
			h.change(func(sem *official) { delete(sem.Holders, s.ID().String()) })
			return nil
		}, lockd.ErrUnlocked},
		{"Overwritten", func(h *harness, _ *lockd.Session) error {
			_, err := h.Put("sem/.lock", []byte("{}"), nil)
			return err
		}, lockd.ErrKeyDeleted},
		{"Deleted", func(h *harness, _ *lockd.Session) error {
			_, err := h.Delete("sem/.lock")
			return err
		}, lockd.ErrKeyDeleted},
		{"PrefixDeleted", func(h *harness, _ *lockd.Session) error {
			_, err := h.DeletePrefix("sem")
			return err
		}, lockd.ErrKeyDeleted},
		{"ContenderDeleted", func(h *harness, s *lockd.Session) error {
			_, err := h.Delete("sem/" + s.ID().String())
			return err
		}, lockd.ErrKeyDeleted},
		{"ContenderUnlocked", func(h *harness, s *lockd.Session) error {
			return h.Update(func(tx *lockd.Txn) error {
				_, err := tx.Unlock("sem/"+s.ID().String(), s.ID())
				return err
			})
		}, lockd.ErrUnlocked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(nil)
				slot := h.slot(s, 1)
				h.must(tc.take(h, s))
				h.lostSlot(slot, tc.cause)
				h.nothingMoves("release of a lost slot", func() {
					err := slot.Release()
					if !errors.Is(err, lockd.ErrNotHeld) || !errors.Is(err, tc.cause) {
						t.Errorf("release: got %v", err)
					}
				})
				if h.States() != 0 {
					t.Errorf("%d keys of which something is known", h.States())
				}
				if tc.name != "Overwritten" { // no delay: somebody decided it
					h.slot(h.session(nil), 1)
				}
			})
		})
	}
}
