package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// mustCount compares all that Stats counts except the commits, the size of the file, the index and
// Err.
func (h *harness) mustCount(want lockd.Stats) {
	h.t.Helper()
	got := h.Stats()
	if got.Index != h.Snapshot().Index() {
		h.t.Errorf("index: got %d, want %d", got.Index, h.Snapshot().Index())
	}
	got.Index, got.Commits, got.FileSize = 0, want.Commits, want.FileSize
	if got != want {
		h.t.Fatalf("stats: got  %+v\nwant %+v", got, want)
	}
}

// Ensure that the exclusive grant which a Downgrade ends counts as one that was unlocked (R4).
func TestStats_R4_DowngradeCountsAsAnUnlock(t *testing.T) {
	each(t, func(h *harness) {
		lock := h.lock(h.session(nil), "k")
		h.must(lock.Downgrade())
		got := h.Stats()
		if got.Ends.Unlocked != 1 || got.LockHolds.Count() != 1 || got.Grants != 2 {
			h.t.Errorf("unlocked %d, holds %d, grants %d, want 1, 1, 2", got.Ends.Unlocked,
				got.LockHolds.Count(), got.Grants)
		}
	})
}

// Ensure that Stats counts what there is, and what has happened.
func TestStats_Counts(t *testing.T) {
	each(t, func(h *harness) {
		want := lockd.Stats{}
		h.mustCount(want)

		h.put("free", "v", 0)
		h.put("free", "w", 0)
		a, b := h.named("a"), h.named("b")
		want.Keys, want.Sessions = 1, 2
		h.mustCount(want)

		lock := h.lock(a, "k")
		want.Keys, want.Locks, want.Grants = 2, 1, 1
		h.mustCount(want)

		ctx, cancel := context.WithCancel(h.t.Context())
		first, second := h.wait(h.t.Context(), b, "k", nil), h.wait(ctx, b, "k", nil)
		want.Waiters = 2
		h.mustCount(want)
		cancel()
		h.settle()
		if second.err == nil {
			h.t.Fatal("the wait goes on")
		}
		want.Waiters, want.GaveUp = 1, 1
		h.mustCount(want)
		h.must(lock.Unlock())
		first.held()
		want.Waiters, want.Grants, want.Ends.Unlocked = 0, 2, 1
		want.LockWaits, want.LockHolds = histogramOf(0), histogramOf(0)
		h.mustCount(want)

		watching, stop := context.WithCancel(h.t.Context())
		go func() {
			for range h.Watch(watching, lockd.PrefixScope(""), h.Stats().Index) {
			}
		}()
		h.settle()
		for range 2 {
			h.changed(h.t.Context(), lockd.KeyScope("never"), h.Stats().Index)
		}
		want.Watchers = 3
		h.mustCount(want)
		h.put("never", "v", 0)
		h.settle()
		want.Keys, want.Watchers = 3, 1
		h.mustCount(want)
		stop()
		h.settle()
		want.Watchers = 0
		h.mustCount(want)

		if _, err := h.DeleteAll(); err != nil {
			h.t.Fatal(err)
		}
		want.Keys, want.Locks, want.Ends.KeyDeleted = 0, 0, 1
		want.LockHolds = histogramOf(0, 0)
		h.mustCount(want)
	})
}

// Ensure that each end of a session or a lock counts once, under its cause.
func TestStats_EndsByCause(t *testing.T) {
	counts := map[error]func(s *lockd.Stats) *uint64{
		lockd.ErrClosed:          func(s *lockd.Stats) *uint64 { return &s.Ends.Closed },
		lockd.ErrExpired:         func(s *lockd.Stats) *uint64 { return &s.Ends.Expired },
		lockd.ErrDestroyed:       func(s *lockd.Stats) *uint64 { return &s.Ends.Destroyed },
		catalog.ErrNodeGone:      func(s *lockd.Stats) *uint64 { return &s.Ends.NodeGone },
		catalog.ErrCheckGone:     func(s *lockd.Stats) *uint64 { return &s.Ends.CheckGone },
		catalog.ErrCheckCritical: func(s *lockd.Stats) *uint64 { return &s.Ends.CheckCritical },
		lockd.ErrRestored:        func(s *lockd.Stats) *uint64 { return &s.Ends.Restored },
		lockd.ErrUnlocked:        func(s *lockd.Stats) *uint64 { return &s.Ends.Unlocked },
		lockd.ErrKeyDeleted:      func(s *lockd.Stats) *uint64 { return &s.Ends.KeyDeleted },
		lockd.ErrForced:          func(s *lockd.Stats) *uint64 { return &s.Ends.Forced },
	}
	if fields := reflect.TypeOf(lockd.Stats{}.Ends).NumField(); len(counts)+2 != fields {
		t.Fatalf("Ends has %d fields: two more than these are ProcessGone and HeldTooLong", fields)
	}
	ends := append([]sessionEnd{
		{"Unlock", func(h *harness, s *lockd.Session) error {
			return h.txn(func(tx *lockd.Txn) error { return second(tx.Unlock("a", s.ID())) })
		}, lockd.ErrUnlocked},
		{"Delete", func(h *harness, _ *lockd.Session) error {
			return second(h.Delete("a"))
		}, lockd.ErrKeyDeleted},
		{"Force", func(h *harness, _ *lockd.Session) error {
			return h.ForceUnlock("a", h.entry("a").Fence, "why")
		}, lockd.ErrForced},
	}, sessionEnds...)
	for _, end := range ends {
		t.Run(end.name, func(t *testing.T) {
			each(t, func(h *harness) {
				s, _, _ := doomed(h, lockd.DeleteKeys)
				before := h.Stats()
				h.must(end.end(h, s))
				h.settle()
				after, want := h.Stats(), before
				*counts[end.cause](&want)++
				if after.Ends != want.Ends {
					h.t.Errorf("ends: got  %+v\nwant %+v", after.Ends, want.Ends)
				}
				gone, locks := 0, 1
				if s.Err() != nil {
					gone, locks = 1, 2
				}
				if before.Sessions-after.Sessions != gone || before.Locks-after.Locks != locks {
					h.t.Errorf("sessions and locks: got %+v, after %+v", after, before)
				}
			})
		})
	}
}

// Ensure that after an Open the counts begin with what the file has, and with the sessions that a
// crash has ended.
func TestStats_Reopened(t *testing.T) {
	onFile(t, func(h *harness) {
		live := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		h.lock(live, "live")
		h.lock(h.named("b"), "bound")
		h.put("free", "v", 0)
		h.reopen()
		h.mustCount(lockd.Stats{Keys: 3, Sessions: 1, Locks: 1})

		h.lock(h.named("b"), "bound")
		after := h.crash(h.clock)
		got, want := after.Stats(), lockd.Stats{}
		want.Ends.ProcessGone = 1
		if got.Ends != want.Ends || got.Sessions != 1 || got.Locks != 1 {
			h.t.Errorf("after a crash: got %+v", got)
		}
	})
}

// Ensure that a restore counts as what it is: sessions that end, and other keys.
func TestStats_Restored(t *testing.T) {
	each(t, func(h *harness) {
		h.put("kept", "v", 0)
		backup := h.backup()
		h.put("gone", "v", 0)
		h.lock(h.named("a"), "locked")
		h.must(h.Restore(bytes.NewReader(backup)))
		want := lockd.Stats{Keys: 1, Grants: 1, LockHolds: histogramOf(0)}
		want.Ends.Restored = 1
		h.mustCount(want)
	})
}

// Ensure that the commits of a file are counted and timed, with how many waited for them, and that
// in memory there are none.
func TestStats_Commits(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		h.put("k", "v", 0)
		if got := h.Stats().Commits; got != (lockd.Stats{}).Commits {
			h.t.Errorf("in memory: got %+v", got)
		}
	})
	onFile(t, func(h *harness) {
		c := h.commits()
		before := h.Stats().Commits
		took := func(d time.Duration) {
			c.failBy(func() error { h.clock.Add(d); return nil })
		}
		took(30 * time.Millisecond)
		h.put("k", "1", 0)
		took(10 * time.Millisecond)
		h.put("k", "2", 0)
		got := h.Stats().Commits
		want := before
		want.Count += 2
		want.Writers += 2
		want.Total += 40 * time.Millisecond
		want.Last, want.Max = 10*time.Millisecond, 30*time.Millisecond
		if got != want {
			h.t.Fatalf("commits: got  %+v\nwant %+v", got, want)
		}

		took(0)
		first := c.held(func() error { return second(h.Put("new", []byte("3"), nil)) })
		if got := h.Stats(); got.Keys != 1 || got.Commits != want { // it waits for no commit
			h.t.Errorf("while a commit is held: got %+v", got)
		}
		calls := h.crowd(5)
		c.release(nil)
		h.must(first.wait())
		for _, call := range calls {
			h.must(call.wait())
		}
		got = h.Stats().Commits
		if got.Count != want.Count+2 || got.Writers != want.Writers+6 || got.Last != 0 ||
			got.Total != want.Total || got.Max != want.Max {
			h.t.Fatalf("commits: got  %+v\nafter %+v", got, want)
		}

		c.fail(errDisk)
		mustFail(t, "put", second(h.Put("k", []byte("4"), nil)))
		c.fail(nil)
		failed := h.Stats()
		if failed.Commits.Failed != 1 || failed.Commits.Count != got.Count || failed.Err != nil {
			h.t.Errorf("after a failure: got %+v", failed)
		}
	})
}

// Ensure that Stats tells the size of the file as the file system does, also when it has grown, and
// while a commit is held; that there is none in memory; and that a closed file is not looked at.
func TestStats_FileSize(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		h.put("k", "v", 0)
		if got := h.Stats().FileSize; got != 0 {
			h.t.Errorf("in memory: got %d", got)
		}
	})
	onFile(t, func(h *harness) {
		mustTell := func() int64 {
			h.t.Helper()
			info, err := os.Stat(h.path)
			h.must(err)
			if got := h.Stats().FileSize; got != info.Size() || got == 0 {
				h.t.Fatalf("got %d bytes, the file has %d", got, info.Size())
			}
			return info.Size()
		}
		before := mustTell()
		c := h.commits()
		call := c.held(func() error { return second(h.Put("held", []byte("v"), nil)) })
		mustTell()
		c.release(nil)
		h.must(call.wait())
		for i := range 3 {
			h.put(fmt.Sprintf("large/%d", i), strings.Repeat("x", 16<<20), 0)
		}
		if after := mustTell(); after <= before {
			h.t.Errorf("%d bytes before three large keys, %d after", before, after)
		}
		h.must(h.Close())
		if got := h.Stats().FileSize; got != 0 {
			h.t.Errorf("closed: got %d", got)
		}
	})
}

// Ensure that Stats tells that the database writes no more, and why, and goes on counting what is
// there.
func TestStats_ErrSaysWhyNothingIsWritten(t *testing.T) {
	each(t, func(h *harness) {
		h.put("k", "v", 0)
		h.must(h.Close())
		if got := h.Stats(); !errors.Is(got.Err, lockd.ErrClosed) || got.Keys != 1 {
			h.t.Errorf("closed: got %+v", got)
		}
	})
	onFile(t, func(h *harness) {
		c := h.commits()
		c.failAfter(errDisk)
		if err := second(h.Put("k", []byte("v"), nil)); err == nil {
			h.t.Fatal("the put succeeded")
		}
		if got := h.Stats(); !errors.Is(got.Err, lockd.ErrFailed) || got.Keys != 0 ||
			got.Commits.Failed != 1 {
			h.t.Errorf("failed: got %+v", got)
		}
	})
}
