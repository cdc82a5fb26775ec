package lockd_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// deadlock returns the DeadlockError that err has to be.
func (h *harness) deadlock(err error) *lockd.DeadlockError {
	h.t.Helper()
	var found *lockd.DeadlockError
	if !errors.As(err, &found) {
		h.t.Fatalf("got %v, want a DeadlockError", err)
	}
	return found
}

// Ensure that a session whose lock a call for several keys waits for gets the key that is promised
// to that call, by every method, and no other session does; and that both go on then.
func TestG9_R13_HolderPassesACallForSeveral(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		a := h.lock(s, "a")
		all := h.waitAll(h.t.Context(), h.session(nil), "a", "b")
		h.promised(h.session(nil), "b")

		h.must(h.lock(s, "b").Unlock())
		h.must(h.Update(func(tx *lockd.Txn) error {
			return second(tx.Lock("b", s.ID(), nil))
		}))
		h.must(h.Update(func(tx *lockd.Txn) error { return second(tx.Unlock("b", s.ID())) }))
		b := h.wait(h.t.Context(), s, "b", nil).held()
		all.waits()
		h.must(b.Unlock())
		all.waits()
		h.must(a.Unlock())
		all.held()
	})
}

// Ensure that a session passes as soon as the call for several keys waits for its lock, although it
// stood behind before: here by way of a third session.
func TestG9_R13_PassesWhenItIsWaitedFor(t *testing.T) {
	each(t, func(h *harness) {
		one, two := h.session(nil), h.session(nil)
		h.lock(one, "b")
		c := h.lock(two, "c")
		all := h.waitAll(h.t.Context(), h.session(nil), "b", "d")
		behind := h.wait(h.t.Context(), two, "d", nil)
		behind.waits()
		link := h.wait(h.t.Context(), one, "c", nil)
		d := behind.held()
		all.waits()
		h.must(d.Unlock())
		h.must(c.Unlock())
		h.must(link.held().Unlock())
		all.waits()
	})
}

// Ensure that the call which closes a circle is refused, with every step of it, and the others wait
// on and are served.
func TestDeadlock_R14_NamesEveryStep(t *testing.T) {
	each(t, func(h *harness) {
		one := h.session(&lockd.SessionOptions{Name: "one"})
		two := h.session(&lockd.SessionOptions{Name: "two"})
		a := h.lock(one, "a")
		h.advance(time.Second)
		b := h.lock(two, "b")
		h.advance(2 * time.Second)
		first := h.wait(a.Context(h.t.Context()), one, "b", nil)
		first.waits()
		h.advance(3 * time.Second)

		before := h.Snapshot().Index()
		lock, err := two.Lock(b.Context(h.t.Context()), "a", nil)
		found := h.deadlock(err)
		want := `lockd: lock "a": deadlock: "two" (session ` + two.ID().String() +
			`) holds "b" for 5s and asks for "a"; "one" (session ` + one.ID().String() +
			`) holds "a" for 6s and waits for "b" for 3s`
		if lock != nil || err.Error() != want {
			h.t.Errorf("got  %v\nwant %s", err, want)
		}
		if len(found.Steps) != 2 {
			h.t.Fatalf("got %d steps", len(found.Steps))
		}
		old := lockd.DeadlockError{Steps: slices.Clone(found.Steps)}
		old.Steps[1].Holds.Since = time.Time{} // as of a lock from before the file was opened
		if !strings.Contains(old.Error(), ` holds "a" and waits for "b" for 3s`) {
			h.t.Errorf("with a lock of unknown age: %v", &old)
		}
		for i, want := range []struct {
			holds  lockd.Sequencer
			awaits string
			waited time.Duration
		}{{b.Sequencer(), "a", 0}, {a.Sequencer(), "b", 3 * time.Second}} {
			step := found.Steps[i]
			if step.Holds.Grant != want.holds || step.Awaits != want.awaits ||
				step.Waiter.Waited != want.waited ||
				step.Waiter.Session.ID != step.Holds.Session.ID ||
				!slices.Equal(step.Waiter.Keys, []string{want.awaits}) {
				h.t.Errorf("step %d: got %+v", i, step)
			}
		}
		if h.Snapshot().Index() != before || h.Waiters("a") != 0 || a.Err() != nil {
			h.t.Errorf("the refusal has changed something")
		}

		h.must(b.Unlock())
		h.must(first.held().Unlock())
		h.must(a.Unlock())
	})
}

// Ensure that README shows the text that the refusal has.
func TestREADME_Deadlock(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	each(t, func(h *harness) {
		web := h.session(&lockd.SessionOptions{Name: "web"})
		mail := h.session(&lockd.SessionOptions{Name: "mail"})
		users := h.lock(web, "users")
		h.advance(3 * time.Second)
		orders := h.lock(mail, "orders")
		h.advance(2 * time.Second)
		first := h.wait(users.Context(h.t.Context()), web, "orders", nil)
		h.advance(time.Second)
		_, err := mail.Lock(orders.Context(h.t.Context()), "users", nil)
		h.deadlock(err)
		want := strings.NewReplacer(mail.ID().String(), "5e…", web.ID().String(), "1c…",
			"; ", ";\n").Replace(err.Error())
		if !strings.Contains(string(readme), "```\n"+want+"\n```") {
			h.t.Errorf("README does not show\n%s", want)
		}
		h.must(orders.Unlock())
		first.held()
	})
}

// Ensure that every context of a lock carries the lock: contexts of WithLock, of slots, of leaders,
// and their children; and that a context of several locks carries them all.
func TestDeadlock_R14_WhatContextsCarry(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		h.must(s.WithLock(h.t.Context(), "k", nil,
			func(ctx context.Context, _ lockd.Sequencer) error {
				child, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				_, err := s.Lock(child, "k", nil)
				h.deadlock(err)
				return s.WithLock(child, "l", nil,
					func(ctx context.Context, _ lockd.Sequencer) error {
						for _, keys := range [][]string{{"k"}, {"l"}, {"free", "k"}} {
							_, err := s.LockAll(ctx, keys, nil)
							h.deadlock(err)
						}
						return nil
					})
			}))

		slot, err := s.Acquire(h.t.Context(), "sem", 1)
		h.must(err)
		other := h.session(nil)
		_, err = other.Acquire(slot.Context(h.t.Context()), "sem", 1)
		if text := h.deadlock(err).Error(); !strings.Contains(text, `"sem/.lock"`) {
			h.t.Errorf("a slot: got %s", text)
		}
		leader, err := s.Campaign(h.t.Context(), "leader", nil)
		h.must(err)
		_, err = other.Campaign(leader.Context(h.t.Context()), "leader", nil)
		h.deadlock(err)

		keeper, err := h.NewKeeper(nil)
		h.must(err)
		h.must(keeper.Lead(h.t.Context(), "term", nil,
			func(ctx context.Context, _ lockd.Sequencer) error {
				h.deadlock(keeper.Lead(ctx, "term", nil, unused))
				return nil
			}))
	})
}

// Ensure that a circle of two sessions is refused whichever call closes it: for several locks, for
// a slot or for a leadership.
func TestDeadlock_R14_EveryCall(t *testing.T) {
	each(t, func(h *harness) {
		one, two := h.session(nil), h.session(nil)
		a, b := h.lock(one, "a"), h.lock(two, "b")
		slot, err := one.Acquire(h.t.Context(), "sem", 1)
		h.must(err)
		leader, err := one.Campaign(h.t.Context(), "leader", nil)
		h.must(err)
		carries := b.Context(h.t.Context())
		for _, circle := range []struct {
			held context.Context
			call func() error
		}{
			{a.Context(h.t.Context()), func() error {
				_, err := two.LockAll(carries, []string{"a", "free"}, nil)
				return err
			}},
			{slot.Context(h.t.Context()), func() error {
				_, err := two.Acquire(carries, "sem", 1)
				return err
			}},
			{leader.Context(h.t.Context()), func() error {
				_, err := two.Campaign(carries, "leader", nil)
				return err
			}},
		} {
			ctx, cancel := context.WithCancel(circle.held)
			first := h.wait(ctx, one, "b", nil)
			first.waits()
			if found := h.deadlock(circle.call()); len(found.Steps) != 2 {
				h.t.Errorf("got %v", found)
			}
			cancel()
			<-first.back
			if !errors.Is(first.err, context.Canceled) {
				h.t.Errorf("the call that waited before: got %v", first.err)
			}
		}
	})
}

func unused(context.Context, lockd.Sequencer) error { return nil }

// Ensure that no call is refused that could go on: a call that does not wait, a lock that is held
// under a context that does not carry it, goroutines that share a session, and a released lock.
func TestDeadlock_R14_NoFalseAlarm(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		a, b := h.lock(s, "a"), h.lock(other, "b")
		if got := h.refusal(s, "a"); !got.Own {
			h.t.Errorf("try lock: got %v", got)
		}
		// One goroutine of s has d and waits for a, which another goroutine of s will release.
		d := h.lock(s, "d")
		own := h.wait(d.Context(h.t.Context()), s, "a", nil)
		own.waits()
		h.must(a.Unlock())
		a = own.held()
		h.must(d.Unlock())
		// One goroutine of s waits for b, and another one has a, which it will release.
		first := h.wait(h.t.Context(), s, "b", nil)
		second := h.wait(b.Context(h.t.Context()), other, "a", nil)
		second.waits()
		h.must(a.Unlock())
		h.must(second.held().Unlock())
		h.must(b.Unlock())
		first.held()

		c := h.lock(s, "c")
		carries := context.WithoutCancel(c.Context(h.t.Context()))
		h.must(c.Unlock())
		h.lock(other, "c")
		again := h.wait(carries, s, "c", nil)
		again.waits()
	})
}

// Ensure that a downgraded lock is carried by the contexts from before: a reader of another session
// that stands behind a writer waits for it.
func TestDeadlock_R14_DowngradedAndQueued(t *testing.T) {
	each(t, func(h *harness) {
		one, two := h.session(nil), h.session(nil)
		a := h.lock(one, "a")
		ctx := a.Context(h.t.Context())
		h.must(a.Downgrade())
		b := h.lock(two, "b")
		writer := h.wait(h.t.Context(), h.session(nil), "a", nil)
		first := h.wait(ctx, one, "b", nil)
		_, err := two.Lock(b.Context(h.t.Context()), "a", &lockd.LockOptions{Mode: lockd.Shared})
		h.deadlock(err)
		h.must(b.Unlock())
		h.must(first.held().Unlock())
		h.must(a.Unlock())
		writer.held()
	})
}
