package lockd_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// givesUp has the call begin to wait, lets the clock move by a second, ends the call's context, and
// returns the call's error.
func (h *harness) givesUp(wait func(ctx context.Context) error) error {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	waiting := start(func() error { return wait(ctx) })
	h.settle()
	if waiting.returned() {
		h.t.Fatalf("the call does not wait: %v", waiting.err)
	}
	h.advance(time.Second)
	time.Sleep(time.Minute) // in the bubble
	h.settle()
	if !waiting.returned() {
		h.t.Fatal("the call still waits")
	}
	return waiting.err
}

// obstacle fails the test unless a call says that its context has ended, and what was in the way.
func (h *harness) obstacle(err, ended error) *lockd.LockedError {
	h.t.Helper()
	locked, ok := errors.AsType[*lockd.LockedError](err)
	if !ok || !errors.Is(err, ended) || !strings.Contains(err.Error(), locked.Error()) {
		h.t.Fatalf("got %v, want %v and what was in the way", err, ended)
	}
	return locked
}

// Ensure that the error at a context's end has TryLock's refusal, and the call's own place.
func TestLock_ContextEnds_SaysWhoHolds(t *testing.T) {
	fn := func(context.Context, lockd.Sequencer) error { return nil }
	each(t, func(h *harness) {
		holder := h.session(&lockd.SessionOptions{Name: "web-1"})
		s := h.session(nil)
		h.lock(holder, "k")
		k, err := h.NewKeeper(nil)
		h.must(err)
		h.advance(time.Second)
		for what, wait := range map[string]func(ctx context.Context) error{
			"Lock": func(ctx context.Context) error { return second(s.Lock(ctx, "k", nil)) },
			"LockAll": func(ctx context.Context) error {
				return second(s.LockAll(ctx, []string{"free", "k"}, nil))
			},
			"Campaign": func(ctx context.Context) error {
				return second(s.Campaign(ctx, "k", nil))
			},
			"WithLock": func(ctx context.Context) error { return s.WithLock(ctx, "k", nil, fn) },
			"Lead":     func(ctx context.Context) error { return k.Lead(ctx, "k", nil, fn) },
		} {
			err := h.givesUp(wait)
			want := h.refusal(s, "k")
			if got := h.obstacle(err, context.DeadlineExceeded); !reflect.DeepEqual(got, want) ||
				got.HolderName != "web-1" || got.Held < 2*time.Second {
				h.t.Errorf("%s: got %+v, want %+v", what, got, want)
			}
			if what == "LockAll" && !strings.Contains(err.Error(), `key "k" is held by "web-1"`) {
				h.t.Errorf("LockAll does not say which key: %v", err)
			}
		}
		err = h.givesUp(func(ctx context.Context) error {
			return second(holder.Lock(ctx, "k", nil))
		})
		if got := h.obstacle(err, context.DeadlineExceeded); !got.Own ||
			!strings.Contains(err.Error(), "your own") {
			h.t.Errorf("a lock of its own: got %v", err)
		}
		h.must(k.Close())
	})
}

// Ensure that the error has the number of calls in front, and does not count later ones.
func TestLock_ContextEnds_SaysItsPlace(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.lock(h.session(nil), "k")
		var waits []*call
		var ends []context.CancelCauseFunc
		for range 4 {
			ctx, cancel := context.WithCancelCause(h.t.Context())
			ends = append(ends, cancel)
			waits = append(waits, start(func() error { return second(s.Lock(ctx, "k", nil)) }))
			h.settle()
		}
		bored := errors.New("bored")
		for _, step := range []struct{ who, ahead int }{{2, 2}, {1, 1}, {3, 1}, {0, 0}} {
			ends[step.who](bored)
			err := waits[step.who].wait()
			if got := h.obstacle(err, context.Canceled); got.Waiters != step.ahead ||
				errors.Is(err, bored) {
				h.t.Errorf("waiter %d: got %v, want %d ahead", step.who, err, step.ahead)
			}
		}
	})
}

// Ensure that the error counts no more than a thousand calls in front: else a crowd that gives up
// together would hold up all other calls.
func TestLock_ContextEnds_CountsAThousand(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.lock(s, "k")
		ctx, cancel := context.WithCancel(h.t.Context())
		var crowd []*call
		for range 1001 {
			crowd = append(crowd, start(func() error { return second(s.Lock(ctx, "k", nil)) }))
		}
		h.settle()
		err := h.givesUp(func(ctx context.Context) error { return second(s.Lock(ctx, "k", nil)) })
		if got := h.obstacle(err, context.DeadlineExceeded); got.Waiters != 1000 {
			h.t.Errorf("got %d ahead", got.Waiters)
		}
		cancel()
		for _, call := range crowd {
			h.obstacle(call.wait(), context.Canceled)
		}
	})
}

// Ensure that the error has the lock-delay in the way, or that the lock is promised to another.
func TestLock_ContextEnds_SaysDelayAndQueue(t *testing.T) {
	each(t, func(h *harness) {
		lost := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
		h.lock(lost, "k")
		h.must(h.EndSession(lost.ID()))
		s, other := h.session(nil), h.session(nil)
		err := h.givesUp(func(ctx context.Context) error { return second(s.Lock(ctx, "k", nil)) })
		want := h.refusal(s, "k")
		if got := h.obstacle(err, context.DeadlineExceeded); !reflect.DeepEqual(got, want) ||
			got.Obstacle != lockd.ObstacleDelay || got.Remaining != 9*time.Second {
			h.t.Errorf("delay: got %+v, want %+v", got, want)
		}

		all := h.waitAll(h.t.Context(), other, "j", "k")
		err = h.givesUp(func(ctx context.Context) error { return second(s.Lock(ctx, "j", nil)) })
		want = h.refusal(s, "j")
		if got := h.obstacle(err, context.DeadlineExceeded); !reflect.DeepEqual(got, want) ||
			got.Obstacle != lockd.ObstacleQueue || got.Waiters != 1 {
			h.t.Errorf("queue: got %+v, want %+v", got, want)
		}
		h.advance(10 * time.Second)
		all.held()
	})
}

// Ensure that a lock that the session has, and would take over, is not in the way of a call that
// waits for another lock too.
func TestLockAll_ContextEnds_OwnIsNotInTheWay(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("a", s.ID(), nil)) }))
		h.lock(other, "b")
		err := h.givesUp(func(ctx context.Context) error {
			return second(s.LockAll(ctx, []string{"a", "b"}, nil))
		})
		if got := h.obstacle(err, context.DeadlineExceeded); got.Key != "b" ||
			got.Holder != other.ID() {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that the error of Acquire has what TryAcquire is refused with, and the call's place.
func TestAcquire_ContextEnds_SaysWhoHolds(t *testing.T) {
	each(t, func(h *harness) {
		acquire := func(s *lockd.Session) func(ctx context.Context) error {
			return func(ctx context.Context) error { return second(s.Acquire(ctx, "pool", 2)) }
		}
		first := h.session(&lockd.SessionOptions{Name: "first", LockDelay: 10 * time.Second})
		lost := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
		for _, s := range []*lockd.Session{first, lost} {
			h.must(second(s.TryAcquire("pool", 2)))
		}
		h.must(h.EndSession(lost.ID()))
		s := h.session(nil)
		err := h.givesUp(acquire(s))
		want := h.slotRefusal(s, "pool", 2)
		if got := h.obstacle(err, context.DeadlineExceeded); !reflect.DeepEqual(got, want) ||
			got.Obstacle != lockd.ObstacleSlots || got.HolderName != "first" || got.Limit != 2 ||
			got.Remaining != 9*time.Second {
			h.t.Errorf("slots: got %+v, want %+v", got, want)
		}

		ctx, cancel := context.WithCancel(h.t.Context())
		waiting := start(func() error { return acquire(h.session(nil))(ctx) })
		h.settle()
		err = h.givesUp(acquire(s))
		if got := h.obstacle(err, context.DeadlineExceeded); got.Waiters != 1 {
			h.t.Errorf("place: got %+v", got)
		}
		cancel()
		if err := waiting.wait(); h.obstacle(err, context.Canceled).Waiters != 0 {
			h.t.Errorf("the first: got %v", err)
		}
	})
}

// slotRefusal is what TryAcquire is refused with.
func (h *harness) slotRefusal(s *lockd.Session, prefix string, limit int) *lockd.LockedError {
	h.t.Helper()
	_, err := s.TryAcquire(prefix, limit)
	locked, ok := errors.AsType[*lockd.LockedError](err)
	if !ok {
		h.t.Fatalf("try acquire: got %v", err)
	}
	return locked
}

// Ensure that the error of a call which gives up has nothing that is not durable: while a commit is
// under way it has the state before.
func TestLock_G3_ContextEnds_TellsOnlyWhatIsDurable(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		holder, s := h.session(nil), h.session(nil)
		gone := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
		k, lost := h.lock(holder, "k"), h.lock(gone, "lost")
		slot, err := gone.TryAcquire("pool", 1)
		h.must(err)

		type wait struct {
			*call
			end context.CancelFunc
		}
		waitFor := func(take func(ctx context.Context) error) wait {
			ctx, cancel := context.WithCancel(h.t.Context())
			w := wait{start(func() error { return take(ctx) }), cancel}
			h.settle()
			return w
		}
		lockOf := func(key string) func(ctx context.Context) error {
			return func(ctx context.Context) error { return second(s.Lock(ctx, key, nil)) }
		}
		first, next := waitFor(lockOf("k")), waitFor(lockOf("k"))
		behindLost := waitFor(lockOf("lost"))
		forSlot := waitFor(func(ctx context.Context) error {
			return second(s.Acquire(ctx, "pool", 1))
		})

		unlock := c.held(k.Unlock)
		end := start(func() error { return h.EndSession(gone.ID()) })
		taken := start(func() error { return second(holder.TryLock("free", nil)) })
		h.settle()
		behindTaken := waitFor(lockOf("free"))

		next.end()
		if got := h.obstacle(next.wait(), context.Canceled); got.Holder != holder.ID() ||
			got.Waiters != 1 {
			t.Errorf("behind one who is being granted the lock: got %+v", got)
		}
		first.end()
		if got := h.obstacle(first.wait(), context.Canceled); got.Holder != holder.ID() ||
			got.Waiters != 0 {
			t.Errorf("who is being granted the lock: got %+v", got)
		}
		behindLost.end()
		if got := h.obstacle(behindLost.wait(), context.Canceled); got.Holder != gone.ID() ||
			got.Obstacle != lockd.ObstacleHolder {
			t.Errorf("behind a session that is being ended: got %+v", got)
		}
		forSlot.end()
		if got := h.obstacle(forSlot.wait(), context.Canceled); got.Holder != gone.ID() ||
			got.Obstacle != lockd.ObstacleSlots || got.Remaining != 0 {
			t.Errorf("a slot of a session that is being ended: got %+v", got)
		}
		behindTaken.end()
		err = behindTaken.wait()
		if _, told := errors.AsType[*lockd.LockedError](err); told ||
			!errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "durable") {
			t.Errorf("behind a grant that is not durable: got %v", err)
		}
		c.release(nil)
		for _, call := range []*call{unlock, end, taken} {
			h.must(call.wait())
		}
		if lost.Err() == nil || slot.Err() == nil {
			t.Errorf("lost: %v, %v", lost.Err(), slot.Err())
		}
	})
}

// Ensure that a call that waits for a lock that its own session has in the other mode, without a
// handle, says so when it gives up: it takes over nothing.
func TestLock_ContextEnds_OwnLockOfTheOtherMode(t *testing.T) {
	each(t, func(h *harness) {
		for name, held := range map[string]lockd.LockMode{
			"alone": lockd.Exclusive, "shared": lockd.Shared,
		} {
			s := h.session(nil)
			h.must(h.Update(func(tx *lockd.Txn) error {
				return second(tx.Lock(name, s.ID(), &lockd.LockOptions{Mode: held}))
			}))
			other := &lockd.LockOptions{Mode: lockd.Shared - held}
			for _, keys := range [][]string{{name}, {"free", name}} {
				err := h.givesUp(func(ctx context.Context) error {
					return second(s.LockAll(ctx, keys, other))
				})
				r := h.obstacle(err, context.DeadlineExceeded)
				if r.Obstacle != lockd.ObstacleHolder || !r.Own || r.Key != name {
					h.t.Errorf("%q: got %+v", keys, r)
				}
			}
		}
	})
}

// Ensure that a call whose lock was free says that only the commit was in its way.
func TestLock_ContextEnds_DuringTheCommit(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(nil)
		ctx, cancel := context.WithCancel(h.t.Context())
		taking := c.held(func() error { return second(s.Lock(ctx, "k", nil)) })
		cancel()
		err := taking.wait()
		want := `lockd: lock "k": context canceled, before the answer was durable`
		if !errors.Is(err, context.Canceled) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		c.release(nil)
	})
}

// Ensure that a call that is refused, and whose context ends before the refusal is durable, returns
// the context's error (G3): it has nothing to give up.
func TestLock_G3G11_GivesUpARefusal(t *testing.T) {
	for name, lock := range map[string]func(context.Context, *lockd.Session) error{
		"Lock": func(ctx context.Context, s *lockd.Session) error {
			return second(s.Lock(ctx, "k", nil))
		},
		"LockAll": func(ctx context.Context, s *lockd.Session) error {
			return second(s.LockAll(ctx, []string{"k", "l"}, nil))
		},
		"Acquire": func(ctx context.Context, s *lockd.Session) error {
			return second(s.Acquire(ctx, "s", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				s := h.session(nil)
				ending := c.held(func() error { return h.EndSession(s.ID()) })
				ctx, cancel := context.WithCancel(h.t.Context())
				locking := start(func() error { return lock(ctx, s) })
				h.settle()
				if locking.returned() {
					t.Fatalf("refused before the end is durable: %v", locking.err)
				}
				cancel()
				if err := locking.wait(); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want that the context has ended", err)
				}
				c.release(nil)
				h.must(ending.wait())
			})
		})
	}
}
