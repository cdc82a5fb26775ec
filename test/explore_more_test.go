package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// Ensure that the end of the database ends the handles and keepers that are still open, leaves no
// session of a keeper, and has released the lock of a call that had given up.
func TestExplore_G11G12_Close(t *testing.T) {
	explore(t, func(x *explored) {
		kept := lockd.SessionOptions{Lifetime: lockd.Independent}
		x.Restart(func() {}) // so that some schedules are on a file, which keeps sessions
		x.Go("ann", func() {
			if s := x.session("ann", lockd.SessionOptions{}); s != nil {
				if l := x.lock(background, s, "a"); l != nil {
					x.unlock(l)
				}
			}
		})
		ctx, cancel := context.WithCancel(background)
		gaveUp := false
		x.Go("bob", func() {
			if s := x.session("bob", kept); s != nil {
				l := x.lock(ctx, s, "a")
				if gaveUp = l == nil; !gaveUp {
					x.unlock(l)
				}
			}
		})
		x.Go("gives up", func() {
			x.Yield()
			cancel()
		})
		var k *lockd.Keeper
		x.Go("keeper", func() {
			var err error
			k, err = x.DB().NewKeeper(&lockd.SessionOptions{
				Name: "keeper", Lifetime: lockd.Independent, TTL: 10 * time.Second,
			})
			if err != nil {
				x.only(err)
				return
			}
			if _, err := k.Session(background); err != nil {
				x.only(err, lockd.ErrClosed)
			}
		})
		x.Go("cid", func() {
			s := x.session("cid", kept)
			if s == nil {
				return
			}
			l := x.lock(background, s, "c")
			if l == nil {
				return
			}
			err := s.KeepAlive(background)
			x.only(err, lockd.ErrClosed)
			if errors.Is(err, lockd.ErrFailed) {
				return // the next process finds what is in the file
			}
			x.told(s.Err(), lockd.ErrNoSession)
			x.told(l.Err(), lockd.ErrNotHeld)
			if k != nil && !errors.Is(k.Err(), lockd.ErrClosed) {
				x.Errorf("G12: the database is closed, and the keeper tells %v", k.Err())
			}
			for s := range x.DB().Snapshot().Sessions() {
				if s.Name == "keeper" {
					x.Errorf("G12: the database is closed, and the session of a keeper lives")
				}
			}
			for l := range x.DB().Locks() {
				if l.Key == "a" && l.Holder.Name == "bob" && gaveUp {
					x.Errorf("G11: bob gave up, and the file says that it holds the lock")
				}
			}
		})
	})
}

// told checks the error of a handle when the database has been closed: it is the one of an ended
// handle, except for a session or a lock that is kept in the file.
func (x *explored) told(err, ended error) {
	isKept := err != nil && strings.Contains(err.Error(), "is kept in the file")
	if !errors.Is(err, lockd.ErrClosed) || errors.Is(err, ended) == isKept {
		x.Errorf("G12: the database is closed, and a handle tells %v", err)
	}
}

// Ensure that of two calls that take over a lock from their own session the second is served when
// the first has given up.
func TestExplore_G9_TwoTakeOver(t *testing.T) {
	explore(t, func(x *explored) {
		ctx, cancel := context.WithCancel(background)
		x.Go("owner", func() {
			other := x.session("other", lockd.SessionOptions{})
			s := x.session("owner", lockd.SessionOptions{})
			if other == nil || s == nil {
				return
			}
			b := x.lock(background, other, "b")
			if b == nil {
				return
			}
			if !x.lockInTxn(s, "a") {
				return
			}
			calls := 0
			x.Go("waits", func() {
				if w := x.session("waits", lockd.SessionOptions{}); w != nil {
					if l := x.lock(background, w, "a"); l != nil {
						x.unlock(l)
					}
				}
			})
			x.Go("both", func() {
				defer func() { calls++ }()
				for _, l := range x.lockAll(ctx, s, "a", "b") {
					x.unlock(l)
				}
			})
			x.Go("one", func() {
				defer func() { calls++ }()
				if l := x.lock(background, s, "a"); l != nil {
					x.unlock(l)
				}
			})
			x.Await(func() bool { return calls == 2 })
			x.unlock(b)
			for errors.Is(s.Close(), lockd.ErrCommit) {
			}
		})
		x.Go("gives up", func() {
			x.Sleep(time.Second)
			cancel()
		})
	})
}

// Ensure that a keeper keeps its session alive, however late the renewals are.
func TestExplore_G6_Kept(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		for _, name := range []string{"ann", "bob"} {
			x.Go(name, func() {
				k, err := x.DB().NewKeeper(&lockd.SessionOptions{
					Name: name, TTL: 10 * time.Second,
				})
				if err != nil {
					x.Errorf("%v", err)
					return
				}
				s, err := k.Session(background)
				if err != nil {
					x.Errorf("%v", err)
					return
				}
				x.Sleep(35 * time.Second)
				if err := s.Err(); err != nil {
					x.Errorf("G6: %s was kept alive, and has ended: %v", name, err)
				}
				for errors.Is(k.Close(), lockd.ErrCommit) {
				}
			})
		}
	})
}

// Ensure that an end whose commit fails is tried again after one second, then two, then four.
func TestExplore_G6_EndIsTriedAgain(t *testing.T) {
	exploreWithout(t, lockdtest.Pauses, func(x *explored) {
		var s *exploredSession
		asleep := false
		x.Go("ann", func() {
			x.Await(func() bool { return asleep })
			const ttl = 10 * time.Second
			made := x.session("ann", lockd.SessionOptions{TTL: ttl})
			if made != nil && made.until.Equal(x.Clock().Now().Add(ttl)) { // no time has passed
				s = made
				x.Await(func() bool { return s.Err() != nil })
			}
		})
		const long = 1000 * time.Second // where time passes although the database could go on
		x.Go("sleeps", func() {
			asleep = true
			x.Sleep(long)
		})
		told := false
		x.Invariant("G6: tried again after 1 s, 2 s and 4 s", func() error {
			if s == nil || s.Err() == nil || told {
				return nil
			}
			told = true
			now := x.Clock().Now()
			switch late := now.Sub(s.until); late {
			case 0, time.Second, 3 * time.Second, 7 * time.Second:
				return nil
			default:
				if now.Sub(time.Unix(0, 0)) >= long {
					return nil
				}
				return fmt.Errorf("ann has ended %v after her time", late)
			}
		})
	})
}

// Ensure that a session which may not have a slot yet, because its own was taken by force, keeps no
// released slot from the sessions behind it.
func TestExplore_G9_OwnDelayHoldsUpNobody(t *testing.T) {
	explore(t, func(x *explored) {
		tries := map[string]int{"ann": 2, "bob": 1, "cid": 1, "dan": 1}
		done := 0
		for _, name := range []string{"ann", "bob", "cid", "dan"} {
			x.Go(name, func() {
				defer func() { done++ }()
				s := x.session(name, lockd.SessionOptions{LockDelay: 5 * time.Second})
				if s == nil {
					return
				}
				for range tries[name] {
					slot, err := s.Acquire(background, "pool", 2)
					if err != nil {
						x.only(err, lockd.ErrCommit)
						return
					}
					x.Sleep(time.Second)
					x.release(slot)
				}
			})
		}
		x.Go("force", func() {
			x.Await(func() bool { return x.DB().Stats().Locks > 0 || done == 4 })
			for l := range x.DB().Locks() {
				if l.Holder.Name == "ann" {
					x.passed["ann"] = true
					err := x.DB().ForceUnlock(l.Key, l.Fence, "explored")
					if err != nil {
						x.only(err, lockd.ErrNotHeld, lockd.ErrCommit)
					}
				}
			}
		})
	})
}

// release releases the slot, however often the commit fails, and checks that it was handed on.
func (x *explored) release(slot *lockd.Slot) {
	for {
		next := x.nextOf(slot.Prefix())
		err := slot.Release()
		if errors.Is(err, lockd.ErrCommit) {
			continue
		}
		if err != nil {
			x.only(err, lockd.ErrNotHeld)
			return
		}
		waits := x.waiting(slot.Prefix() + "/.lock")
		left := func(name string) bool { return !slices.Contains(waits, name) }
		if len(next) > 0 && !slices.ContainsFunc(next, left) {
			x.Errorf("G9: a slot was released, and all of %q, who are next, wait on", next)
		}
		return
	}
}

// nextOf returns the waiters for a slot, up to the first one without a delay of its own.
func (x *explored) nextOf(prefix string) []string {
	names := x.waiting(prefix + "/.lock")
	for i, name := range names {
		if !x.passed[name] {
			return names[:i+1]
		}
	}
	return nil
}

// waiting returns the sessions that wait for a lock, or at prefix/.lock for a slot.
func (x *explored) waiting(key string) (names []string) {
	for l := range x.DB().Locks() {
		for _, w := range l.Queue {
			if l.Key == key {
				names = append(names, w.Session.Name)
			}
		}
	}
	return names
}

// Ensure that Close writes the release for a call that gave up while its grant was being committed,
// although that has failed twice. It takes a commit that others overtake, and two that fail.
func TestExplore_G11_CloseWritesWhatIsOwed(t *testing.T) {
	opts := &lockdtest.ExploreOptions{
		Without: lockdtest.LostRenewals | lockdtest.Pauses, Changes: 5,
	}
	exploreWith(t, opts, func(x *explored) {
		ctx, cancel := context.WithCancel(background)
		gaveUp := false
		x.Go("lasts", func() {
			s := x.session("lasts", lockd.SessionOptions{})
			if s == nil {
				return
			}
			x.only(s.KeepAlive(background), lockd.ErrClosed)
			if e, _ := x.DB().Get("a"); !e.Session.IsZero() && gaveUp {
				x.Errorf("G11: ann gave up, and has the lock when the database is closed")
			}
		})
		x.Go("ann", func() {
			s := x.session("ann", lockd.SessionOptions{Lifetime: lockd.Independent})
			for range 5 {
				if s == nil || gaveUp || ctx.Err() != nil {
					return
				}
				if l := x.lock(ctx, s, "a"); l != nil {
					x.unlock(l)
				} else {
					gaveUp = ctx.Err() != nil
				}
			}
		})
		x.Go("gives up", func() { cancel() })
	})
}

// Ensure that a call has its lock if it is served after its context has ended, and before it goes
// on.
func TestExplore_G11_ServedAndCancelled(t *testing.T) {
	explore(t, func(x *explored) {
		ctx, cancel := context.WithCancel(background)
		done := false
		waits := func() bool { return done || len(x.queues["a"]) > 0 }
		x.Go("ann", func() {
			if s := x.session("ann", lockd.SessionOptions{}); s != nil {
				if l := x.lock(background, s, "a"); l != nil {
					x.Await(waits)
					x.unlock(l)
				}
			}
		})
		x.Go("bob", func() {
			if s := x.session("bob", lockd.SessionOptions{}); s != nil {
				if l := x.lock(ctx, s, "a"); l != nil {
					x.unlock(l)
				}
			}
			done = true
		})
		x.Go("gives up", func() {
			x.Await(waits)
			cancel()
		})
		x.Await(func() bool { return done })
		x.Sleep(5 * time.Minute) // the failed commits have been tried again
		for l := range x.DB().Locks() {
			if l.Holder.Name == "bob" {
				x.Errorf("G11: the call of bob has returned without the lock, which it has")
			}
		}
	})
}

// Ensure that a delay that was over when a write succeeded does not come back, although the wall
// clock is set back and an earlier write has failed.
func TestExplore_G7_ClockSetBack(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		const delay = 5 * time.Second
		over := false
		x.Restart(func() {
			for l := range x.DB().Locks() {
				if l.Key == "a" && over {
					x.Errorf("G7: the delay of %s was over, and lasts until %s", l.Key,
						l.DelayedUntil)
				}
			}
		})
		x.Go("ann", func() {
			s := x.session("ann", lockd.SessionOptions{LockDelay: delay})
			if s == nil || x.lock(background, s, "a") == nil || x.DB().EndSession(s.ID()) != nil {
				return
			}
			x.Sleep(delay)
			for range 5 {
				if _, err := x.DB().Put("b", nil, nil); err == nil {
					over = true
				}
				x.Yield()
			}
		})
	})
}

// Ensure that a call which comes when more is due than one write ends overtakes no waiter: a waiter
// for a slot that comes back then has it.
func TestExplore_G9_ManyAtOnce(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		const delay, atOnce = 5 * time.Second, 100 // and the slot
		x.Go("owner", func() {
			s := x.session("owner", lockd.SessionOptions{LockDelay: delay})
			if s == nil {
				return
			}
			if _, err := s.Acquire(background, "pool", 1); err != nil {
				x.only(err, lockd.ErrCommit)
				return
			}
			keys := make([]string, atOnce)
			for i := range keys {
				keys[i] = fmt.Sprint("key ", i)
			}
			x.lockAll(background, s, keys...)
			for errors.Is(x.DB().EndSession(s.ID()), lockd.ErrCommit) {
			}
		})
		for _, name := range []string{"waits", "comes"} {
			x.Go(name, func() {
				s := x.session(name, lockd.SessionOptions{})
				if s == nil {
					return
				}
				if name == "comes" {
					x.Sleep(delay)
				}
				ahead := slices.Clone(x.queues["pool/.lock"])
				slot, err := s.Acquire(background, "pool", 1)
				if err != nil {
					x.only(err, lockd.ErrCommit)
					return
				}
				for _, other := range ahead {
					if slices.Contains(x.queues["pool/.lock"], other) {
						x.Errorf("G9: %s has a slot, and %s has waited for one before", name, other)
					}
				}
				x.release(slot)
			})
		}
	})
}

// Ensure that no call of a session overtakes another of its own by taking over a lock that the
// session has without a handle.
func TestExplore_G9_OwnLockAll(t *testing.T) {
	explore(t, func(x *explored) {
		s := x.session("owner", lockd.SessionOptions{})
		other := x.session("other", lockd.SessionOptions{})
		if s == nil || other == nil || !x.lockInTxn(s, "a") {
			return
		}
		b := x.lock(background, other, "b")
		if b == nil {
			return
		}
		x.Go("both", func() {
			for _, l := range x.lockAll(background, s, "a", "b") {
				x.unlock(l)
			}
		})
		x.Go("one", func() {
			if l := x.tryLock(s, "a"); l != nil {
				x.unlock(l)
			}
		})
		x.Yield()
		x.unlock(b)
	})
}
