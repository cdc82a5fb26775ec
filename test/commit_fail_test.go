package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a decision that was made on a commit that fails is dropped with it, and that the
// index of neither is used again.
func TestG4_FailedCommitUsesUpIndexes(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		var used uint64
		first := c.held(func() error { _, err := h.Put("first", nil, nil); return err })
		begun := c.begun()
		calls := h.crowd(3)
		c.release(errDisk)
		mustFail(t, "first", first.wait())
		for _, call := range calls {
			mustFail(t, "follower", call.wait())
		}
		if h.Snapshot().Len() != 0 {
			t.Fatal("there are keys of commits that failed")
		}
		if c.begun() != begun {
			t.Fatal("a commit began that was decided on one that had failed")
		}
		h.must(h.Update(func(tx *lockd.Txn) error {
			used = tx.Index()
			_, err := tx.Put("next", nil, nil)
			return err
		}))
		if failed := uint64(4); used <= h.firstIndex()+failed {
			t.Fatalf("index %d is used again", used)
		}
	})
}

// firstIndex is the index of the first write after the file was made, which is the node's.
func (h *harness) firstIndex() uint64 {
	h.t.Helper()
	for node := range h.Snapshot().Catalog().Nodes() {
		return node.CreateIndex
	}
	h.t.Fatal("no node")
	return 0
}

// Ensure that an Unlock whose commit failed leaves the lock with its handle, the waiters in their
// places, and that it can be repeated.
func TestG9_FailedUnlockKeepsTheQueue(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(nil)
		lock := h.lock(s, "k")
		line := h.line("k", h.sessions(3)...)
		c.fail(errDisk)
		for range 2 {
			mustFail(t, "unlock", lock.Unlock())
			if lock.Err() != nil || isClosed(lock.Done()) {
				t.Fatalf("lock ended: %v", lock.Err())
			}
			h.must(h.CheckSequencer(lock.Sequencer()))
			if h.Waiters("k") != 3 {
				t.Fatalf("waiters: got %d, want 3", h.Waiters("k"))
			}
		}
		c.fail(nil)
		h.must(lock.Unlock())
		h.must(lock.Unlock())
		line.serve(0, 1, 2)
	})
}

// Ensure that a lock whose grant was dropped, and for which others queued meanwhile, goes to the
// first of them: at once, and if that fails too, a second later or with the next write.
func TestG9_DroppedGrantIsServedAgain(t *testing.T) {
	for _, when := range []string{"at once", "a second later", "with the next write"} {
		t.Run(when, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				s, waiters := h.session(nil), h.sessions(2)
				grant := c.held(func() error { _, err := s.TryLock("k", nil); return err })
				line := h.line("k", waiters...)
				if when != "at once" {
					c.fail(errDisk)
				}
				c.release(errDisk)
				mustFail(t, "lock", grant.wait())
				h.settle()
				c.fail(nil)
				switch when {
				case "a second later":
					h.advance(time.Second - 1)
					line.mustWait(0, 1)
					h.advance(1)
				case "with the next write":
					line.mustWait(0, 1)
					_, err := h.Put("other", nil, nil)
					h.must(err)
				}
				line.serve(0, 1)
			})
		})
	}
}

// Ensure that a call that gives up after a failed commit is told of the share whose end was
// dropped, though another call gave up before, while that end was decided.
func TestG11_DroppedEndOfAShareIsForgotten(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		readers := h.sessions(2)
		var shares []*lockd.Lock
		for _, s := range readers {
			share, err := s.TryLock("k", asReader)
			h.must(err)
			shares = append(shares, share)
		}
		line := h.line("k", h.sessions(3)...)
		unlock := c.held(shares[0].Unlock)
		line.ends[0]()
		for h.Waiters("k") == 3 {
			runtime.Gosched() // until it has given up
		}
		c.release(errDisk)
		mustFail(t, "unlock", unlock.wait())
		line.mustWait(1, 2)
		line.ends[1]()
		var blocked *lockd.LockedError
		if err := line.calls[1].wait(); !errors.As(err, &blocked) {
			t.Fatalf("got %v, want a LockedError", err)
		}
		for i, s := range readers {
			if i >= len(blocked.Holders) || blocked.Holders[i].Session.ID != s.ID() {
				t.Fatalf("got %v, want both readers", blocked)
			}
		}
		line.ends[2]()
	})
}

// Ensure that a waiter whose grant was dropped is granted the lock later, before later waiters.
func TestG9_WaiterWhoseGrantWasDroppedIsFirst(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute, LockDelay: time.Second})
		h.lock(s, "k")
		line := h.line("k", h.sessions(2)...)
		h.advance(time.Minute) // the session ends, the delay begins
		c.fail(errDisk)
		h.advance(time.Second) // the grant fails
		line.mustWait(0, 1)
		h.advance(time.Second - 1)
		c.fail(nil)
		line.mustWait(0, 1)
		h.advance(1)
		line.serve(0, 1)
	})
}

// Ensure that a delay that is over leaves the file with the next write, also if the first such
// write is dropped: it must not begin again after a restart with the clock set back.
func TestG7_DroppedSweepOfADelay(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
		h.lock(s, "k")
		h.must(h.EndSession(s.ID()))
		h.advance(10 * time.Second)
		c.fail(errDisk)
		_, err := h.Put("other", nil, nil)
		mustFail(t, "put", err)
		c.fail(nil)
		_, err = h.Put("other", nil, nil)
		h.must(err)
		h.must(h.Close())
		h.clock.Set(h.clock.Now().Add(-5 * time.Second))
		h.open()
		h.lock(h.session(nil), "k")
	})
}

// Ensure that a session whose end was dropped lives on with all its locks, and can be ended again.
func TestG5_DroppedEndOfASession(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute, Behavior: lockd.DeleteKeys})
		lock := h.lock(s, "k")
		h.must(h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().Attach(s.ID(), "a", []byte("v"))
		}))
		line := h.line("k", h.session(nil))
		waiting := start(func() error {
			_, err := s.Lock(h.t.Context(), "k", nil) // behind the waiter in line
			return err
		})
		h.settle()
		c.fail(errDisk)
		mustFail(t, "end", h.EndSession(s.ID()))
		mustFail(t, "close", s.Close())
		c.fail(nil)
		h.settle()
		if s.Err() != nil || lock.Err() != nil || waiting.returned() {
			t.Fatalf("ended: session %v, lock %v, waiter %v", s.Err(), lock.Err(), waiting.err)
		}
		h.must(s.Renew())
		if again, err := h.Session(s.ID()); err != nil || again != s {
			t.Fatalf("session: got %p, %v, want %p", again, err, s)
		}
		if _, ok := h.Snapshot().Catalog().Attachment("a"); !ok || h.Waiters("k") != 2 {
			t.Fatalf("attachment %t, waiters %d", ok, h.Waiters("k"))
		}
		h.advance(time.Minute - 1)
		if s.Err() != nil {
			t.Fatalf("ended before its time: %v", s.Err())
		}
		h.advance(1) // the dropped end is on the heap again
		if !errors.Is(s.Err(), lockd.ErrExpired) || !errors.Is(lock.Err(), lockd.ErrExpired) {
			t.Fatalf("session %v, lock %v", s.Err(), lock.Err())
		}
		if err := waiting.wait(); !errors.Is(err, lockd.ErrNoSession) {
			t.Fatalf("waiter: got %v", err)
		}
		h.advance(lockd.DefaultLockDelay)
		line.serve(0)
	})
}

// Ensure that an expiry whose commit fails is tried again after 1 s, and then after twice as long
// each time, up to 1 min.
func TestS29G6_FailedExpiryIsTriedAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute})
		lock := h.lock(s, "k")
		c.fail(errDisk)
		tries := c.begun()
		for _, wait := range []time.Duration{60, 1, 2, 4, 8, 16, 32, 60, 60} {
			h.advance(wait*time.Second - 1)
			if c.begun() != tries {
				t.Fatalf("tried before %v were over", wait*time.Second)
			}
			h.advance(1)
			if tries++; c.begun() != tries {
				t.Fatalf("tries after %v: got %d, want %d", wait*time.Second, c.begun(), tries)
			}
			if s.Err() != nil || lock.Err() != nil {
				t.Fatalf("ended, but not on disk: %v, %v", s.Err(), lock.Err())
			}
		}
		c.fail(nil)
		h.advance(time.Minute - 1)
		if s.Err() != nil {
			t.Fatal("tried before the minute was over")
		}
		h.advance(1)
		if !errors.Is(s.Err(), lockd.ErrExpired) || !errors.Is(lock.Err(), lockd.ErrExpired) {
			t.Fatalf("session %v, lock %v", s.Err(), lock.Err())
		}
	})
}

// Ensure that an expiry whose commit failed is committed with the next write, and that the session
// cannot be renewed until then.
func TestS29_FailedExpiryGoesWithTheNextWrite(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute})
		c.fail(errDisk)
		h.advance(time.Minute)
		mustFail(t, "renew", s.Renew())
		c.fail(nil)
		tries := c.begun()
		_, err := h.Put("k", nil, nil)
		h.must(err)
		if c.begun() != tries+1 || !errors.Is(s.Err(), lockd.ErrExpired) {
			t.Fatalf("%d commits, session %v", c.begun()-tries, s.Err())
		}
		ended := h.Snapshot().IndexOf(lockd.SessionScope(s.ID()))
		if ended >= h.entry("k").ModifyIndex {
			t.Fatalf("ended at %d, written at %d", ended, h.entry("k").ModifyIndex)
		}
	})
}

// Ensure that a call whose context ends while its grant is being committed returns at once, and
// that nothing of the grant remains, whether the commit succeeds or not.
func TestG11_GivingUpWhileBeingGranted(t *testing.T) {
	for _, tc := range []struct {
		name    string
		waiting bool  // or the lock is free
		outcome error // of the commit
	}{
		{"free lock", false, nil},
		{"free lock, commit fails", false, errDisk},
		{"handed on", true, nil},
		{"handed on, commit fails", true, errDisk},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onFile(t, func(h *harness) { givingUp(h, tc.waiting, tc.outcome) })
		})
	}
}

func givingUp(h *harness, waiting bool, outcome error) {
	t := h.t
	c := h.commits()
	s, next := h.session(nil), h.session(nil)
	ctx, cancel := context.WithCancel(t.Context())
	lock := func() error {
		l, err := s.Lock(ctx, "k", nil)
		if l != nil {
			t.Error("a lock with an error")
		}
		return err
	}
	var first, giveUp *call
	if waiting {
		holder := h.lock(h.session(nil), "k")
		giveUp = start(lock)
		h.settle()
		first = c.held(holder.Unlock)
	} else {
		giveUp = c.held(lock)
	}
	line := h.line("k", next)
	cancel()
	if err := giveUp.wait(); !errors.Is(err, context.Canceled) { // the commit is still held
		t.Fatalf("lock: got %v", err)
	}
	line.stillWaits()
	c.release(outcome)
	h.settle()
	if first != nil {
		if err := first.wait(); !errors.Is(err, outcome) {
			t.Fatalf("unlock: got %v, want %v", err, outcome)
		}
	}
	if waiting && outcome != nil { // the holder has it again
		h.must(h.ForceUnlock("k", h.entry("k").Fence, "test"))
	}
	h.advance(lockd.DefaultLockDelay) // long enough for every retry
	line.serve(0)
	if e := h.entry("k"); !e.Session.IsZero() || h.Waiters("k") != 0 {
		t.Fatalf("left: %v, %d waiters", e.Session, h.Waiters("k"))
	}
}

// Ensure that a commit that may or may not be in the file ends all writing and every hold, that
// reads go on, and that opening the file anew settles it.
func TestG10G12_Failed(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent, TTL: time.Minute})
		lock := h.lock(s, "k")
		ctx := lock.Context(h.t.Context())
		line := h.line("k", h.session(nil))
		keeping := start(func() error { return s.KeepAlive(h.t.Context()) })
		h.settle()
		index := h.Snapshot().Index()
		c.failAfter(errDisk)
		_, err := h.Put("doubtful", []byte("v"), nil)
		mustFail(t, "put", err)
		h.settle()
		for what, err := range map[string]error{
			"session": s.Err(), "lock": lock.Err(), "context": context.Cause(ctx),
			"waiter": line.calls[0].wait(), "keep alive": keeping.wait(),
		} {
			if !errors.Is(err, lockd.ErrFailed) || !errors.Is(err, errDisk) {
				t.Errorf("%s: got %v, want ErrFailed with its cause", what, err)
			}
		}
		if !isClosed(s.Done()) || !isClosed(lock.Done()) {
			t.Error("Done is open")
		}
		if !errors.Is(s.Err(), lockd.ErrNoSession) || !errors.Is(lock.Err(), lockd.ErrNotHeld) {
			t.Errorf("got %v and %v, want that they have ended", s.Err(), lock.Err())
		}
		for _, err := range h.Watch(h.t.Context(), lockd.KeyScope("k"), index+10) {
			if !errors.Is(err, lockd.ErrInvalid) {
				t.Errorf("watch from an index that is not reached: got %v, want ErrInvalid", err)
			}
		}
		_, err = h.Put("k", nil, nil)
		for what, err := range map[string]error{
			"put": err, "unlock": lock.Unlock(), "renew": s.Renew(), "close": s.Close(),
			"read": h.Update(func(*lockd.Txn) error { return nil }),
		} {
			if !errors.Is(err, lockd.ErrFailed) {
				t.Errorf("%s: got %v, want ErrFailed", what, err)
			}
		}
		if _, ok := h.Get("doubtful"); ok || h.Snapshot().Index() != index {
			t.Error("the write is visible")
		}
		h.advance(time.Hour) // nothing is tried again
		if h.entry("k").Session != s.ID() {
			t.Error("reads do not go on")
		}
		c.failAfter(nil)
		h.reopen()
		if h.entry("doubtful").ModifyIndex <= index || h.entry("k").Session != s.ID() {
			t.Errorf("after the reopen: %+v, %+v", h.entry("doubtful"), h.entry("k"))
		}
	})
}

// Ensure that when commits fail at random under many writers, successful writes are there and
// failed ones are not, no index is used twice, and no lock or waiter is lost.
func TestG4G9G11_RandomFailures(t *testing.T) {
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
		st := &storm{harness: h, indexes: make(map[uint64]bool), values: make(map[string]string)}
		var calls []*call
		for i := range 12 {
			calls = append(calls, start(func() error {
				return st.writer(i, rand.New(rand.NewPCG(seed, uint64(i)+1)))
			}))
		}
		for !allReturned(calls) {
			h.advance(time.Second) // for the retries
		}
		for _, call := range calls {
			h.must(call.err)
		}
		c.fail(nil)
		st.check()
		h.reopen()
		st.check()
	})
}

func allReturned(calls []*call) bool {
	for _, call := range calls {
		if !call.returned() {
			return false
		}
	}
	return true
}

// storm is writers whose commits fail at random, and the state that they expect to leave.
type storm struct {
	*harness
	mu      sync.Mutex // protects what follows
	indexes map[uint64]bool
	values  map[string]string // as of the last success
	count   int               // successful calls of countUp
	holders holders           // of the lock
}

// holders counts the goroutines that believe that they hold something.
type holders struct{ inside atomic.Int64 }

// within returns an error if more goroutines than the limit hold it, the caller included.
func (h *holders) within(limit int) error {
	n := h.inside.Add(1)
	runtime.Gosched()
	h.inside.Add(-1)
	if n > int64(limit) {
		return fmt.Errorf("%d hold what %d may", n, limit)
	}
	return nil
}

func (st *storm) writer(i int, random *rand.Rand) error {
	var s *lockd.Session
	for s == nil { // until the commit succeeds
		s, _ = st.NewSession(nil)
	}
	for n := range 40 {
		if err := st.put(fmt.Sprintf("own/%d", i), fmt.Sprint(n)); err != nil {
			return err
		}
		if err := st.countUp(); err != nil {
			return err
		}
		if err := st.critical(s, random.IntN(2) == 0); err != nil {
			return err
		}
		if err := st.read(); err != nil {
			return err
		}
	}
	return nil
}

// read fails unless each read, by whatever method, is at least as new as the one before.
func (st *storm) read() error {
	first, _ := st.Get("count")
	snapshot := st.Snapshot()
	second, _ := snapshot.Get("count")
	third, _ := st.Get("count")
	if first.ModifyIndex > second.ModifyIndex || second.ModifyIndex > third.ModifyIndex {
		return fmt.Errorf("read %d, %d, %d", first.ModifyIndex, second.ModifyIndex,
			third.ModifyIndex)
	}
	for key, e := range snapshot.Prefix("") {
		if e.Key != key || e.ModifyIndex > snapshot.Index() {
			return fmt.Errorf("the snapshot at %d has %q as %+v", snapshot.Index(), key, e)
		}
	}
	return nil
}

// expected returns nil for success and for a failed commit, and any other error as it is.
func expected(err error) error {
	if errors.Is(err, lockd.ErrCommit) && errors.Is(err, errDisk) {
		return nil
	}
	return err
}

func (st *storm) put(key, value string) error {
	_, err := st.Put(key, []byte(value), nil)
	if err == nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.values[key] = value
	}
	return expected(err)
}

// countUp adds one to the counter that all writers share.
func (st *storm) countUp() error {
	err := st.Update(func(tx *lockd.Txn) error {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.indexes[tx.Index()] {
			return fmt.Errorf("index %d is used again", tx.Index())
		}
		st.indexes[tx.Index()] = true
		e, _ := tx.Get("count")
		n, _ := strconv.Atoi(string(e.Value))
		_, err := tx.Put("count", []byte(strconv.Itoa(n+1)), nil)
		return err
	})
	if err == nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.count++
	}
	return expected(err)
}

// critical takes the lock that all writers share, and releases it.
func (st *storm) critical(s *lockd.Session, wait bool) error {
	var lock *lockd.Lock
	var err error
	if wait {
		lock, err = s.Lock(context.Background(), "lock", nil)
	} else if lock, err = s.TryLock("lock", nil); err != nil {
		if _, locked := errors.AsType[*lockd.LockedError](err); locked {
			return nil
		}
	}
	if (lock == nil) != (err != nil) {
		return fmt.Errorf("lock %v with error %v", lock, err)
	}
	if err != nil {
		return expected(err)
	}
	for {
		if err := st.alone(lock); err != nil {
			return err
		}
		// After ErrCommit the lock is still held.
		if err := lock.Unlock(); err == nil || expected(err) != nil {
			return err
		}
	}
}

// alone fails if another goroutine believes that it holds the lock.
func (st *storm) alone(lock *lockd.Lock) error {
	if err := st.holders.within(1); err != nil {
		return err
	}
	return lock.Err()
}

func (st *storm) check() {
	st.t.Helper()
	for key, want := range st.values {
		if got := string(st.entry(key).Value); got != want {
			st.t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
	if got := string(st.entry("count").Value); got != strconv.Itoa(st.count) {
		st.t.Errorf("count: got %s, want %d", got, st.count)
	}
	if e := st.entry("lock"); !e.Session.IsZero() || st.Waiters("lock") != 0 {
		st.t.Errorf("lock: held by %q, %d waiters", e.Session, st.Waiters("lock"))
	}
}
