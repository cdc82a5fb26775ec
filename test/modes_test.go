package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

var shared = &lockd.LockOptions{Mode: lockd.Shared}

// share takes a share of a lock that is available.
func (h *harness) share(s *lockd.Session, key string) *lockd.Lock {
	h.t.Helper()
	l, err := s.TryLock(key, shared)
	h.must(err)
	return l
}

// await begins a call of Lock, and returns a channel that has the lock when it is granted.
func (h *harness) await(
	s *lockd.Session, key string, opts *lockd.LockOptions,
) <-chan *lockd.Lock {
	granted := make(chan *lockd.Lock, 1)
	go func() {
		if l, err := s.Lock(h.t.Context(), key, opts); err == nil {
			granted <- l
		}
	}()
	h.settle()
	return granted
}

// granted returns the lock that a call has been granted.
func (h *harness) granted(c <-chan *lockd.Lock) *lockd.Lock {
	h.t.Helper()
	h.settle()
	select {
	case l := <-c:
		return l
	default:
		h.t.Fatal("the call waits on")
		return nil
	}
}

// waits fails the test if a call has been granted its lock.
func (h *harness) waits(c <-chan *lockd.Lock) {
	h.t.Helper()
	h.settle()
	if len(c) > 0 {
		h.t.Fatal("the call has the lock")
	}
}

// holdersOf are the sessions that hold the lock, in the order of their grants.
func (h *harness) holdersOf(key string) (ids []lockd.SessionID) {
	for holder := range h.Snapshot().Holders(key) {
		ids = append(ids, holder.Session.ID)
	}
	return ids
}

// Ensure that a lock is held by one alone or shared by many, whatever call asks for it, and that a
// refusal names every holder.
func TestModes_R1R2_SharedOrExclusive(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.session(&lockd.SessionOptions{Name: "a"}), h.session(nil)
		first, second, third := h.share(a, "k"), h.share(a, "k"), h.share(b, "k")
		if e := h.entry("k"); !e.Session.IsZero() || e.LockIndex != 1 {
			h.t.Errorf("entry of a shared key: %+v", e)
		}
		fences := []uint64{
			first.Sequencer().Fence, second.Sequencer().Fence, third.Sequencer().Fence,
		}
		if fences[0] >= fences[1] || fences[1] >= fences[2] {
			h.t.Errorf("fences do not rise: %v", fences)
		}
		c := h.session(nil)
		_, err := c.TryLock("k", nil)
		var locked *lockd.LockedError
		if !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleHolder ||
			locked.HolderName != "a" || locked.Own || len(locked.Holders) != 3 ||
			locked.Holders[2].Grant != third.Sequencer() {
			h.t.Errorf("TryLock: %+v", err)
		}
		err = h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Lock("k", a.ID(), nil)
			return err
		})
		if !errors.As(err, &locked) || !locked.Own {
			h.t.Errorf("Txn.Lock by a session that shares it: %v", err)
		}
		for _, l := range []*lockd.Lock{first, second, third} {
			h.must(l.Unlock())
		}
		alone := h.lock(c, "k")
		if alone.Sequencer().LockIndex != 2 {
			h.t.Errorf("lock index: got %d", alone.Sequencer().LockIndex)
		}
		if _, err := a.TryLock("k", shared); !errors.As(err, &locked) ||
			locked.Holder != c.ID() || locked.Holders != nil || locked.Mode != lockd.Shared {
			h.t.Errorf("TryLock to share: %+v", err)
		}
	})
}

// Ensure that of two grants of a shared lock in one transaction the later has the larger lock
// index, also if the key was deleted between them and the first one joined other holders.
func TestModes_G8_DeletedInTheTransaction(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.share(h.session(nil), "k")
		h.must(h.Update(func(tx *lockd.Txn) error {
			before, err := tx.Lock("k", s.ID(), shared)
			_, failed := tx.Delete("k")
			after, again := tx.Lock("k", s.ID(), shared)
			if after.LockIndex <= before.LockIndex {
				h.t.Errorf("lock index %d after %d", after.LockIndex, before.LockIndex)
			}
			return errors.Join(err, failed, again)
		}))
	})
}

// Ensure that readers behind a reader are served together, that a stream of readers does not starve
// a writer, and that no writer waits for a reader that came after it.
func TestModes_R3G9_OneQueue(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		first := h.share(s, "k")
		writer := h.await(s, "k", nil)
		second, third := h.await(s, "k", shared), h.await(s, "k", shared)
		next := h.await(s, "k", nil)
		h.waits(second)
		_, err := s.TryLock("k", shared)
		var locked *lockd.LockedError
		if !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleQueue ||
			locked.Waiters != 4 {
			h.t.Errorf("TryLock to share while a writer waits: %v", err)
		}
		h.must(first.Unlock())
		alone := h.granted(writer)
		h.waits(second)
		h.must(alone.Unlock())
		one, other := h.granted(second), h.granted(third)
		if one.Sequencer().Fence != other.Sequencer().Fence {
			h.t.Errorf("served in two transactions: %v and %v", one.Sequencer(),
				other.Sequencer())
		}
		h.waits(next)
		h.must(one.Unlock())
		h.waits(next)
		h.must(other.Unlock())
		h.must(h.granted(next).Unlock())
	})
}

// Ensure that LockAll takes all its keys in one mode, together with others.
func TestModes_R3_LockAll(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.session(nil), h.session(nil)
		keys := []string{"x", "y"}
		one, err := a.LockAll(h.t.Context(), keys, shared)
		h.must(err)
		other, err := b.LockAll(h.t.Context(), keys, shared)
		h.must(err)
		writer := h.await(b, "y", nil)
		for _, l := range append(one, other...) {
			h.waits(writer)
			h.must(l.Unlock())
		}
		h.must(h.granted(writer).Unlock())
	})
}

// Ensure that a call that gives up, or whose grant cannot be committed, leaves no share.
func TestModes_R8G11_GivesUp(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.session(nil), h.session(nil)
		alone := h.lock(a, "k")
		ctx, cancel := context.WithCancel(h.t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := b.Lock(ctx, "k", shared)
			done <- err
		}()
		h.settle()
		behind := h.await(b, "k", shared)
		cancel()
		var locked *lockd.LockedError
		if err := <-done; !errors.Is(err, context.Canceled) || !errors.As(err, &locked) ||
			locked.Holder != a.ID() {
			h.t.Errorf("gave up: %v", err)
		}
		h.must(alone.Unlock())
		h.must(h.granted(behind).Unlock())
		if ids := h.holdersOf("k"); ids != nil {
			h.t.Errorf("holders: %v", ids)
		}
	})
}

// Ensure that a downgrade serves the readers in front, lets no writer in between, and proves a new
// grant; and that it can be repeated, and does nothing for a lock that has ended.
func TestModes_R4_Downgrade(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		lock := h.lock(s, "k")
		before := lock.Sequencer()
		reader, writer := h.await(s, "k", shared), h.await(s, "k", nil)
		behind := h.await(s, "k", shared)
		h.must(lock.Downgrade())
		beside := h.granted(reader)
		h.waits(writer)
		h.waits(behind)
		after := lock.Sequencer()
		if after.Mode != lockd.Shared || after.Fence <= before.Fence ||
			after.Session != before.Session || after.LockIndex != before.LockIndex {
			h.t.Errorf("sequencers: %v and %v", before, after)
		}
		if err := h.CheckSequencer(before); !errors.Is(err, lockd.ErrNotHeld) {
			h.t.Errorf("the proof of before: %v", err)
		}
		h.must(h.CheckSequencer(after))
		h.must(lock.Downgrade())
		if lock.Sequencer() != after || lock.Err() != nil {
			h.t.Errorf("downgraded again: %v, %v", lock.Sequencer(), lock.Err())
		}
		h.must(lock.Unlock())
		h.must(lock.Unlock())
		h.waits(writer)
		h.must(beside.Unlock())
		h.must(h.granted(writer).Unlock())
		h.must(h.granted(behind).Unlock())
		if err := lock.Downgrade(); !errors.Is(err, lockd.ErrNotHeld) || lockd.Lost(err) {
			h.t.Errorf("downgrade after Unlock: %v", err)
		}
	})
}

// Ensure that each handle is notified of the loss of its own share, before the next holder is
// notified, and that a lost reader keeps out writers only.
func TestModes_R5G10_LossOfAReader(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
		other := h.session(nil)
		one, two, stays := h.share(s, "k"), h.share(s, "k"), h.share(other, "k")
		writer := h.await(other, "k", nil)
		h.must(h.EndSession(s.ID()))
		for _, l := range []*lockd.Lock{one, two} {
			if !errors.Is(l.Err(), lockd.ErrDestroyed) || !lockd.Lost(l.Err()) {
				h.t.Errorf("a handle of the session: %v", l.Err())
			}
		}
		if stays.Err() != nil {
			h.t.Errorf("another reader: %v", stays.Err())
		}
		h.must(stays.Unlock())
		h.waits(writer)
		h.advance(10*time.Second - 1)
		h.waits(writer)
		h.advance(1)
		h.must(h.granted(writer).Unlock())

		h.lose(10*time.Second, "other")
		_, err := other.TryLock("other", shared)
		var locked *lockd.LockedError
		if !errors.As(err, &locked) || locked.Obstacle != lockd.ObstacleDelay {
			h.t.Errorf("a reader after the loss of a writer: %v", err)
		}
	})
}

// Ensure that readers may come during the delay of a lost reader, also after a restart.
func TestModes_R5R8_DelayOfAReader(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: time.Minute})
		h.share(s, "k")
		h.must(h.EndSession(s.ID()))
		h.reopen()
		next := h.session(nil)
		reader := h.share(next, "k")
		h.must(reader.Unlock())
		if got := h.remaining(next, "k"); got != time.Minute {
			h.t.Errorf("a writer: delayed for %v", got)
		}
		for info := range h.Locks() {
			if info.Key != "k" || info.DelayedMode != lockd.Shared || info.Holders != nil {
				h.t.Errorf("locks: %+v", info)
			}
		}
	})
}

// Ensure that a fence names one reader, and that a session deletes a key only as its last holder.
func TestModes_R5_ForcedAndDeleted(t *testing.T) {
	each(t, func(h *harness) {
		a := h.session(&lockd.SessionOptions{Behavior: lockd.DeleteKeys})
		b := h.session(&lockd.SessionOptions{Behavior: lockd.DeleteKeys})
		one, two := h.share(a, "k"), h.share(b, "k")
		h.must(h.ForceUnlock("k", one.Sequencer().Fence, "a test"))
		if !errors.Is(one.Err(), lockd.ErrForced) || two.Err() != nil {
			h.t.Errorf("after ForceUnlock: %v, %v", one.Err(), two.Err())
		}
		err := h.ForceUnlock("k", one.Sequencer().Fence, "again")
		if !errors.Is(err, lockd.ErrNotHeld) {
			h.t.Errorf("ForceUnlock again: %v", err)
		}
		three := h.share(a, "k")
		h.must(b.Close())
		if _, ok := h.Get("k"); !ok || three.Err() != nil {
			h.t.Errorf("the key: %t; the other holder: %v", ok, three.Err())
		}
		h.must(a.Close())
		if _, ok := h.Get("k"); ok {
			h.t.Error("the last holder has left the key")
		}
	})
}

// Ensure that a share is proved by its own sequencer only, and fenced writes by it.
func TestModes_R6K41_Proof(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		one, two := h.share(s, "k"), h.share(s, "k")
		q := one.Sequencer()
		_, err := h.If(q).Put("data", nil, nil)
		h.must(err)
		h.must(one.Unlock())
		if _, err := h.If(q).Put("data", []byte("late"), nil); !errors.Is(err, lockd.ErrNotHeld) {
			h.t.Errorf("a write after Unlock: %v", err)
		}
		h.must(h.CheckSequencer(two.Sequencer()))
		forged := two.Sequencer()
		forged.Mode = lockd.Exclusive
		if err := h.CheckSequencer(forged); !errors.Is(err, lockd.ErrNotHeld) {
			h.t.Errorf("a share as an exclusive hold: %v", err)
		}
	})
}

// Ensure that the text of a sequencer has its mode, and that a text without a mode is refused.
func TestModes_R6_Text(t *testing.T) {
	q := lockd.Sequencer{
		Key: "a:b", Session: lockd.SessionID{1}, LockIndex: 2, Fence: 3, Mode: lockd.Shared,
	}
	want := "3:2:shared:01000000-0000-0000-0000-000000000000:a:b"
	if q.String() != want {
		t.Errorf("got %q, want %q", q, want)
	}
	if got, err := lockd.ParseSequencer(want); got != q || err != nil {
		t.Errorf("parsed: %v, %v", got, err)
	}
	for _, text := range []string{
		"3:2:01000000-0000-0000-0000-000000000000:k",
		"3:2::01000000-0000-0000-0000-000000000000:k",
		"3:2:SHARED:01000000-0000-0000-0000-000000000000:k",
	} {
		if got, err := lockd.ParseSequencer(text); !errors.Is(err, lockd.ErrInvalid) {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
}

// Ensure that a Guard admits readers side by side, and neither a writer after a later grant nor a
// reader after a later writer.
func TestModes_R6_Guard(t *testing.T) {
	grant := func(fence, index uint64, mode lockd.LockMode) lockd.Sequencer {
		return lockd.Sequencer{
			Key: "k", Session: lockd.SessionID{1}, LockIndex: index, Fence: fence, Mode: mode,
		}
	}
	var g lockd.Guard
	for i, step := range []struct {
		lockd.Sequencer
		admitted bool
	}{
		{grant(5, 1, lockd.Exclusive), true},
		{grant(7, 2, lockd.Shared), true},
		{grant(6, 3, lockd.Shared), true},     // beside the one before
		{grant(6, 3, lockd.Exclusive), false}, // 7 was here, when the key had been deleted
		{grant(5, 1, lockd.Exclusive), false},
		{grant(4, 1, lockd.Shared), false},
		{grant(7, 2, lockd.Shared), true},
		{grant(8, 3, lockd.Exclusive), true},
		{grant(8, 4, lockd.Exclusive), true}, // of the same transaction, and later
		{grant(8, 3, lockd.Exclusive), false},
		{grant(7, 2, lockd.Shared), false},
		{grant(9, 4, lockd.Shared), true}, // a downgrade
		{grant(8, 4, lockd.Exclusive), false},
		{grant(10, 5, lockd.Exclusive), true},
		{grant(10, 6, lockd.Shared), true}, // of the same transaction, and later
		{grant(10, 5, lockd.Exclusive), false},
		{grant(11, 9, lockd.Shared), true},
		{grant(11, 7, lockd.Shared), true},     // of the same transaction, and beside it
		{grant(11, 8, lockd.Exclusive), false}, // the share that came later was here
	} {
		err := g.Check(step.Sequencer)
		if step.admitted != (err == nil) || err != nil && !errors.Is(err, lockd.ErrNotHeld) {
			t.Errorf("step %d, %v: got %v", i, step.Sequencer, err)
		}
	}
}

// Ensure that shares of Independent sessions outlast a restart, and are taken over in their mode.
func TestModes_R7R8_TakenOverAfterARestart(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		bound := h.session(nil)
		kept := h.share(s, "k").Sequencer()
		h.share(bound, "k")
		h.reopen()
		if ids := h.holdersOf("k"); len(ids) != 1 || ids[0] != s.ID() {
			h.t.Fatalf("holders: %v", ids)
		}
		h.must(h.CheckSequencer(kept))
		again, err := h.Session(s.ID())
		h.must(err)
		writer := h.await(h.session(nil), "k", nil)
		lock, err := again.Lock(h.t.Context(), "k", shared) // ahead of the waiter
		h.must(err)
		if lock.Sequencer() != kept {
			h.t.Errorf("taken over: %v, want %v", lock.Sequencer(), kept)
		}
		h.waits(writer)
		h.must(lock.Unlock())
		h.must(h.granted(writer).Unlock())
		h.must(h.Close())
		h.must(lockd.Verify(h.path, nil))
		h.must(lockd.Compact(h.path, nil))
		h.open()
	})
}

// Ensure that a restored database has no share.
func TestModes_R8_Restored(t *testing.T) {
	each(t, func(h *harness) {
		var backup bytes.Buffer
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		lock := h.share(s, "k")
		h.must(h.Backup(&backup))
		h.must(h.Restore(&backup))
		if !errors.Is(lock.Err(), lockd.ErrRestored) || h.holdersOf("k") != nil {
			h.t.Errorf("after Restore: %v, held by %v", lock.Err(), h.holdersOf("k"))
		}
	})
}

// Ensure that a key that a shared lock created goes with the last holder that asked for it.
func TestModes_R9_RemoveAfter(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		opts := &lockd.LockOptions{Mode: lockd.Shared, Key: lockd.RemoveAfter}
		for _, written := range []bool{false, true} {
			one, err := s.TryLock("k", opts)
			h.must(err)
			two, err := s.TryLock("k", opts)
			h.must(err)
			h.must(one.Unlock())
			if written {
				_, err := h.Put("k", []byte("v"), nil)
				h.must(err)
			}
			h.must(two.Unlock())
			if _, ok := h.Get("k"); ok != written {
				h.t.Errorf("written: %t, left: %t", written, ok)
			}
		}
		alone, err := s.TryLock("down", &lockd.LockOptions{Key: lockd.RemoveAfter})
		h.must(err)
		h.must(alone.Downgrade())
		h.must(alone.Unlock())
		if _, ok := h.Get("down"); ok {
			h.t.Error("a key that was created, and whose lock was downgraded, is left")
		}
	})
}

// Ensure that the key stays if another call has written to it with its own share, even in the
// transaction of the grant or the Downgrade that the key was created or shared by.
func TestModes_R9_WrittenByAnotherShare(t *testing.T) {
	each(t, func(h *harness) {
		writes := &lockd.LockOptions{Mode: lockd.Shared, Value: []byte("v")}
		maker, writer := h.session(nil), h.session(nil)
		mustStay := func(what string, last *lockd.Lock, writer *lockCall) {
			h.t.Helper()
			h.must(writer.held().Unlock())
			h.must(last.Unlock())
			if e, found := h.Get("k"); !found || string(e.Value) != "v" {
				h.t.Errorf("%s: the key is %+v, %t", what, e, found)
			}
			h.must(second(h.Delete("k")))
		}
		alone, err := maker.TryLock("k", &lockd.LockOptions{Key: lockd.RemoveAfter})
		h.must(err)
		waiting := h.wait(h.t.Context(), writer, "k", writes)
		h.must(alone.Downgrade())
		mustStay("downgraded", alone, waiting)

		h.lock(h.session(nil), "k")
		first := h.wait(h.t.Context(), maker, "k",
			&lockd.LockOptions{Mode: lockd.Shared, Key: lockd.RemoveAfter})
		waiting = h.wait(h.t.Context(), writer, "k", writes)
		h.must(second(h.Delete("k"))) // both are granted the lock of a new key
		mustStay("created", first.held(), waiting)
	})
}

// Ensure that after an Open the key stays: the file does not record the request to remove it.
func TestModes_R9_AfterOpen(t *testing.T) {
	onFile(t, func(h *harness) {
		opts := &lockd.LockOptions{Mode: lockd.Shared, Key: lockd.RemoveAfter}
		maker := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		_, err := maker.TryLock("k", opts)
		h.must(err)
		h.reopen()
		last, err := h.session(nil).TryLock("k", opts)
		h.must(err)
		h.must(h.EndSession(maker.ID()))
		h.must(last.Unlock())
		if _, ok := h.Get("k"); !ok {
			h.t.Error("the key is gone")
		}
	})
}

// Ensure that a watch of a key gets each grant and each end of a share, and that a Wait for the
// key, whose row is as it was, or for its prefix goes on.
func TestModes_R2_Watched(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Name: "reader"})
		one := h.share(s, "k")
		from := h.Snapshot().Index()
		at := h.entry("k").ModifyIndex
		changed := h.changed(h.t.Context(), lockd.KeyScope("k"), at)
		below := h.changed(h.t.Context(), lockd.PrefixScope(""), at)
		two := h.share(s, "k")
		h.must(one.Unlock())
		h.must(h.ForceUnlock("k", two.Sequencer().Fence, "a test"))
		h.settle()
		select {
		case <-changed:
			h.t.Error("Wait has returned, but the entry is as it was")
		case <-below:
			h.t.Error("Wait for a prefix has returned, but the entries are as they were")
		default:
		}
		want := []struct {
			kind           lockd.EventKind
			granted, ended lockd.SessionID
			share          lockd.Sequencer
			cause          error
		}{
			{lockd.ShareGranted, s.ID(), lockd.SessionID{}, two.Sequencer(), nil},
			{lockd.ShareEnded, lockd.SessionID{}, s.ID(), one.Sequencer(), lockd.ErrUnlocked},
			{lockd.ShareEnded, lockd.SessionID{}, s.ID(), two.Sequencer(), lockd.ErrForced},
		}
		for e, err := range h.Watch(h.t.Context(), lockd.KeyScope("k"), from) {
			h.must(err)
			if e.Kind != want[0].kind || e.Granted.ID != want[0].granted ||
				e.Ended.ID != want[0].ended || e.Share != want[0].share || e.Key != "k" ||
				!errors.Is(e.Cause, want[0].cause) {
				h.t.Errorf("event: %+v, want %+v", e, want[0])
			}
			if want = want[1:]; len(want) == 0 {
				break
			}
		}
		_, err := h.Put("k", []byte("v"), nil)
		h.must(err)
		h.settle()
		<-changed
		<-below
		history := h.History("k")
		if len(history) != 4 || !strings.HasSuffix(history[3].String(),
			`"k" share lost by "reader" (session `+s.ID().String()+`): unlocked by force: a test`) {
			h.t.Errorf("history: %v", history)
		}
		if stats := h.Stats(); stats.Shares != 0 || stats.Locks != 0 || stats.Grants != 2 {
			h.t.Errorf("stats: %+v", stats)
		}
	})
}

// Ensure that a transaction sees the holders as it has made them.
func TestModes_R7_Transaction(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.session(nil), h.session(nil)
		held := func(tx *lockd.Txn) (n int) {
			for holder := range tx.Holders("k") {
				n++
				if holder.Grant.Mode != lockd.Shared {
					h.t.Errorf("holder: %+v", holder)
				}
			}
			return n
		}
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, first := tx.Lock("k", a.ID(), shared)
			_, second := tx.Lock("k", b.ID(), shared)
			_, again := tx.Lock("k", a.ID(), shared)
			if n := held(tx); n != 2 {
				h.t.Errorf("%d holders", n)
			}
			_, unlocked := tx.Unlock("k", b.ID())
			if n := held(tx); n != 1 {
				h.t.Errorf("%d holders after Unlock", n)
			}
			return errors.Join(first, second, again, unlocked)
		}))
		if ids := h.holdersOf("k"); len(ids) != 1 || ids[0] != a.ID() {
			h.t.Errorf("holders: %v", ids)
		}
	})
}

// Ensure that an Unlock which comes while a Downgrade is committed releases the shared lock that
// the handle has then: it does not return nil and leave the lock held (G11).
func TestModes_R4G11_UnlockDuringADowngrade(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		lock := h.lock(h.session(nil), "k")
		downgrading := c.held(lock.Downgrade)
		unlocking := start(lock.Unlock)
		h.settle()
		c.release(nil)
		h.must(downgrading.wait())
		h.must(unlocking.wait())
		if !errors.Is(lock.Err(), lockd.ErrUnlocked) {
			t.Errorf("the handle: got %v, want ErrUnlocked", lock.Err())
		}
		if ids := h.holdersOf("k"); ids != nil {
			t.Errorf("still held by %v", ids)
		}
	})
}

// Ensure that a lock that another session got meanwhile is not downgraded, though the commit that
// took it from its first holder still runs.
func TestModes_R4_DowngradeOfALockThatIsLost(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s, other := h.session(nil), h.session(nil)
		lock := h.lock(s, "k")
		taken := c.held(func() error {
			return h.txn(func(tx *lockd.Txn) error {
				return errors.Join(second(tx.Unlock("k", s.ID())),
					second(tx.Lock("k", other.ID(), nil)))
			})
		})
		downgraded := start(lock.Downgrade)
		h.settle()
		c.release(nil)
		h.must(taken.wait())
		if err := downgraded.wait(); !errors.Is(err, lockd.ErrNotHeld) {
			t.Errorf("got %v, want ErrNotHeld", err)
		}
		if e := h.entry("k"); e.Session != other.ID() {
			t.Errorf("the key is locked by %v, want %v", e.Session, other.ID())
		}
	})
}

// Ensure that of two calls of Downgrade at once both succeed: after the second, too, the lock is
// shared, and the handle proves it.
func TestModes_R4_TwoDowngradesAtOnce(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		lock := h.lock(h.session(nil), "k")
		first := c.held(lock.Downgrade)
		second := start(lock.Downgrade)
		h.settle()
		c.release(nil)
		h.must(first.wait())
		h.must(second.wait())
		h.must(h.CheckSequencer(lock.Sequencer()))
		h.must(lock.Unlock())
	})
}
