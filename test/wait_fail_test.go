package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a call that gave up a lock or a slot while it was being granted does not keep it when
// the grant succeeds and its release does not: the release is tried again.
func TestG11_DroppedGivingUp(t *testing.T) {
	for name, take := range map[string]func(ctx context.Context, s *lockd.Session) error{
		"Lock": func(ctx context.Context, s *lockd.Session) error {
			_, err := s.Lock(ctx, "sem/.lock", nil)
			return err
		},
		"Slot": func(ctx context.Context, s *lockd.Session) error {
			_, err := s.Acquire(ctx, "sem", 1)
			return err
		},
	} {
		for _, when := range []string{"at once", "a second later", "with the next write"} {
			t.Run(name+" "+when, func(t *testing.T) {
				onFile(t, func(h *harness) { droppedGivingUp(h, when, take) })
			})
		}
	}
}

func droppedGivingUp(
	h *harness, when string, take func(ctx context.Context, s *lockd.Session) error,
) {
	c := h.commits()
	s, next := h.session(nil), h.session(nil)
	ctx, cancel := context.WithCancel(h.t.Context())
	giveUp := c.held(func() error { return take(ctx, s) })
	waiting := start(func() error { return take(context.Background(), next) })
	h.settle()
	cancel()
	if err := giveUp.wait(); !errors.Is(err, context.Canceled) {
		h.t.Fatalf("take: got %v", err)
	}
	failures := 1
	if when != "at once" {
		failures = 2 // the first try of the database's own too
	}
	c.failBy(func() error { // one committer at a time
		if failures--; failures >= 0 {
			return errDisk
		}
		return nil
	})
	c.release(nil)
	h.settle()
	switch when {
	case "a second later":
		h.advance(time.Second - 1)
		if waiting.returned() {
			h.t.Fatalf("tried again too early: %v", waiting.err)
		}
		h.advance(1)
	case "with the next write":
		_, err := h.Put("other", nil, nil)
		h.must(err)
	}
	h.settle()
	if !waiting.returned() {
		h.t.Fatal("nobody holds it, but who waits for it does not get it")
	}
	h.must(waiting.err)
	if failures >= 0 {
		h.t.Fatalf("%d more commits should have failed", failures+1)
	}
}

// Ensure that a call that gives up while it takes over a lock, or a slot, leaves it to the session
// that had it before, also when the write that gives it back is dropped; and that it can be taken
// over again, first of all by a call that waits for that.
func TestG11_GivingUpATakeover(t *testing.T) {
	lock := func(ctx context.Context, s *lockd.Session) (err error) {
		_, err = s.Lock(ctx, "sem/"+s.ID().String(), nil)
		return err
	}
	for name, take := range map[string]func(ctx context.Context, s *lockd.Session) error{
		"Lock": lock,
		"LockAll": func(ctx context.Context, s *lockd.Session) error {
			_, err := s.LockAll(ctx, []string{"free", "sem/" + s.ID().String()}, nil)
			return err
		},
		"Slot": func(ctx context.Context, s *lockd.Session) error {
			_, err := s.Acquire(ctx, "sem", 1)
			return err
		},
	} {
		for _, outcome := range []error{nil, errDisk} {
			t.Run(fmt.Sprintf("%s, then %v", name, outcome), func(t *testing.T) {
				onFile(t, func(h *harness) { givenUpTakeover(h, take, lock, outcome) })
			})
		}
	}
}

func givenUpTakeover(
	h *harness, take, lock func(ctx context.Context, s *lockd.Session) error, outcome error,
) {
	// Only after a restart is there a slot without a handle.
	s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
	_, err := s.TryAcquire("sem", 1)
	h.must(err)
	c := h.commits()
	s, err = h.Session(s.ID())
	h.must(err)
	next := h.session(nil)
	key := "sem/" + s.ID().String()
	want := h.entry(key)

	put := c.held(func() error { return second(h.Put("other", nil, nil)) })
	ctx, cancel := context.WithCancel(h.t.Context())
	giveUp := start(func() error { return take(ctx, s) })
	h.settle()
	again := start(func() error { return lock(h.t.Context(), s) })
	h.settle()
	rival := h.wait(h.t.Context(), next, key, nil)
	h.settle()
	cancel()
	if err := giveUp.wait(); !errors.Is(err, context.Canceled) {
		h.t.Fatalf("take: got %v", err)
	}
	c.release(outcome)
	if err := put.wait(); !errors.Is(err, outcome) {
		h.t.Fatalf("put: got %v", err)
	}
	h.settle()
	other, _ := h.Get("free")
	if got := h.entry(key); got.Sequencer() != want.Sequencer() || !other.Session.IsZero() {
		h.t.Fatalf("got %+v, was %+v; the other: %+v", got, want, other)
	}
	h.must(again.wait())
	rival.waits()
}

// Ensure that when a call gives up while it takes over a lock that its session has, the session's
// next call takes it over, although others have waited for longer: no other session can have it.
func TestG11_GivenUpTakeoverStrandsNobody(t *testing.T) {
	type take func(ctx context.Context, s *lockd.Session) error
	takes := map[string]take{
		"Lock": func(ctx context.Context, s *lockd.Session) error {
			return second(s.Lock(ctx, "k", nil))
		},
		"LockAll": func(ctx context.Context, s *lockd.Session) error {
			return second(s.LockAll(ctx, []string{"free", "k"}, nil))
		},
	}
	for first, giveUp := range takes {
		for next, again := range takes {
			for _, outcome := range []error{nil, errDisk} {
				t.Run(fmt.Sprintf("%s, then %s, commit: %v", first, next, outcome),
					func(t *testing.T) {
						onFile(t, func(h *harness) { takeoverGoesOn(h, giveUp, again, outcome) })
					})
			}
		}
	}
}

func takeoverGoesOn(
	h *harness, giveUp, again func(ctx context.Context, s *lockd.Session) error, outcome error,
) {
	c := h.commits()
	s, other := h.session(nil), h.session(nil)
	h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("k", s.ID(), nil)) }))
	want := h.entry("k").Sequencer()

	put := c.held(func() error { return second(h.Put("other", nil, nil)) })
	ctx, cancel := context.WithCancel(h.t.Context())
	gone := start(func() error { return giveUp(ctx, s) })
	h.settle()
	rival := h.wait(h.t.Context(), other, "k", nil)
	goesOn := start(func() error { return again(h.t.Context(), s) })
	h.settle()
	cancel()
	if err := gone.wait(); !errors.Is(err, context.Canceled) {
		h.t.Fatalf("take: got %v", err)
	}
	c.release(outcome)
	if err := put.wait(); !errors.Is(err, outcome) {
		h.t.Fatalf("put: got %v", err)
	}
	h.settle()
	if !goesOn.returned() {
		h.t.Fatal("the session has the lock, and its call waits for it")
	}
	h.must(goesOn.err)
	rival.waits()
	if got := h.entry("k").Sequencer(); got != want {
		h.t.Errorf("taken over: got %v, want %v", got, want)
	}
}

// Ensure that a lock which was granted to a call that has given up is not left in the file when the
// database is closed, although its release could not be committed before: Close writes the release,
// or says that it could not.
func TestG11G12_CloseWritesWhatIsOwed(t *testing.T) {
	for _, outcome := range []error{nil, errDisk} {
		for what, take := range map[string]func(context.Context, *lockd.Session) error{
			"Lock": func(ctx context.Context, s *lockd.Session) error {
				return second(s.Lock(ctx, "k", nil))
			},
			"LockAll": func(ctx context.Context, s *lockd.Session) error {
				return second(s.LockAll(ctx, []string{"j", "k"}, nil))
			},
			"Acquire": func(ctx context.Context, s *lockd.Session) error {
				return second(s.Acquire(ctx, "k", 1))
			},
			"Campaign": func(ctx context.Context, s *lockd.Session) error {
				return second(s.Campaign(ctx, "k", nil))
			},
		} {
			t.Run(fmt.Sprintf("%s, commit: %v", what, outcome), func(t *testing.T) {
				onFile(t, func(h *harness) { closedWithDebts(h, take, outcome) })
			})
		}
	}
}

func closedWithDebts(
	h *harness, take func(context.Context, *lockd.Session) error, outcome error,
) {
	c := h.commits()
	s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
	ctx, cancel := context.WithCancel(h.t.Context())
	gone := c.held(func() error { return take(ctx, s) })
	cancel()
	if err := gone.wait(); !errors.Is(err, context.Canceled) {
		h.t.Fatalf("take: got %v", err)
	}
	c.fail(errDisk) // what gives it up, and the database's own next try
	c.release(nil)
	h.settle()
	c.fail(outcome)

	if err := h.Close(); !errors.Is(err, outcome) || (err == nil) != (outcome == nil) ||
		outcome != nil && !errors.Is(err, lockd.ErrCommit) {
		h.t.Fatalf("close: got %v, want %v", err, outcome)
	}
	c.fail(nil)
	h.open()
	held := 0
	for range h.Locks() {
		held++
	}
	if outcome == nil && held > 0 {
		h.t.Errorf("%d locks are held by nobody, and Close returned nil", held)
	}
}

// Ensure that Close of a database that has failed says that it could not write what it should.
func TestG12_CloseOfAFailedDatabaseSaysSo(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.lock(h.session(nil), "k")
		c.failAfter(errDisk)
		mustFail(t, "put", second(h.Put("doubtful", nil, nil)))
		if err := h.Close(); !errors.Is(err, lockd.ErrFailed) || !errors.Is(err, errDisk) ||
			errors.Is(err, lockd.ErrClosed) {
			t.Errorf("close: got %v, want ErrFailed with its cause", err)
		}
		h.must(h.Close())
	})
}

// Ensure that a call that waits for several locks at once keeps its places when a commit fails,
// whether it is the commit of the release or of the grant, and has all of them later, at one index.
func TestG9G11_DroppedGrantOfAll(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		held := h.lock(h.session(nil), "b")
		var locks []*lockd.Lock
		s := h.session(nil)
		all := start(func() (err error) {
			locks, err = s.LockAll(h.t.Context(), []string{"a", "b"}, nil)
			return err
		})
		h.settle()
		behind := h.line("b", h.session(nil))
		c.fail(errDisk)
		for range 2 {
			mustFail(t, "unlock", held.Unlock())
			behind.mustWait(0)
			if all.returned() || h.Waiters("b") != 2 || held.Err() != nil {
				t.Fatalf("returned %t, %v; %d wait; held: %v", all.returned(), all.err,
					h.Waiters("b"), held.Err())
			}
		}
		c.fail(nil)
		h.must(held.Unlock())
		h.must(all.wait())
		behind.mustWait(0)
		a, b := h.entry("a"), h.entry("b")
		if len(locks) != 2 || a.Session != s.ID() || b.Session != s.ID() || a.Fence != b.Fence {
			t.Fatalf("%d locks: %+v, %+v", len(locks), a, b)
		}
		for _, lock := range locks {
			h.must(lock.Unlock())
		}
		behind.serve(0)
	})
}

// Ensure that every wait, in whatever call, ends with ErrFailed and its cause when the database
// fails; that watchers get no event of a commit that may not be in the file, and end with Close.
func TestG3G12_FailedEndsEveryWait(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.lock(h.session(nil), "k")
		_, err := h.session(nil).TryAcquire("pool", 1)
		h.must(err)
		s, ctx := h.session(nil), h.t.Context()
		waits := map[string]*call{
			"Lock": start(func() error { return second(s.Lock(ctx, "k", nil)) }),
			"LockAll": start(func() error {
				return second(s.LockAll(ctx, []string{"a", "k"}, nil))
			}),
			"Acquire":  start(func() error { return second(s.Acquire(ctx, "pool", 1)) }),
			"Campaign": start(func() error { return second(s.Campaign(ctx, "k", nil)) }),
		}
		from := h.Snapshot().Index()
		changed := h.changed(ctx, lockd.PrefixScope(""), from)
		events := 0
		watch := start(func() error {
			for _, err := range h.Watch(ctx, lockd.PrefixScope(""), from) {
				if err != nil {
					return err
				}
				events++
			}
			return nil
		})
		h.settle()
		for what, wait := range waits {
			if wait.returned() {
				t.Fatalf("%s does not wait: %v", what, wait.err)
			}
		}
		c.failAfter(errDisk)
		mustFail(t, "put", second(h.Put("doubtful", nil, nil)))
		for what, wait := range waits {
			if err := wait.wait(); !errors.Is(err, lockd.ErrFailed) || !errors.Is(err, errDisk) {
				t.Errorf("%s: got %v, want ErrFailed with its cause", what, err)
			}
		}
		h.settle()
		if events != 0 || watch.returned() || isClosed(changed) {
			t.Errorf("%d events; Watch returned %t, Wait %t", events, watch.returned(),
				isClosed(changed))
		}
		limited := start(func() error {
			_, at, err := h.Wait(ctx, lockd.SessionScope(s.ID()), from, time.Minute)
			if at > from {
				t.Errorf("waited from %d, at %d", from, at)
			}
			return err
		})
		h.settle()
		h.advance(time.Minute)
		if !limited.returned() || limited.err != nil {
			t.Errorf("the limit has passed: Wait returned %t, %v", limited.returned(), limited.err)
		}
		h.shut()
		if err := watch.wait(); !errors.Is(err, lockd.ErrClosed) || events != 0 {
			t.Errorf("watch: got %v, %d events", err, events)
		}
		h.settle()
		if !isClosed(changed) {
			t.Error("Wait has not returned")
		}
	})
}
