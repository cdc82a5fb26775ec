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

// Ensure that the end of the database tells the handles and keepers that nobody has closed, leaves
// no session of a keeper, and has released the lock of a call that had given up.
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
				x.Errorf("%v", err)
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
			x.only(s.KeepAlive(background), lockd.ErrClosed)
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

// told checks what a handle tells when the database has been closed: that it has ended, and not
// that what the file keeps has.
func (x *explored) told(err, ended error) {
	isKept := err != nil && strings.Contains(err.Error(), "is kept in the file")
	if !errors.Is(err, lockd.ErrClosed) || errors.Is(err, ended) == isKept {
		x.Errorf("G12: the database is closed, and a handle tells %v", err)
	}
}

// Ensure that of two calls which are to take a lock over from their own session the second is
// served when the first has given up.
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
		x.Go("ann", func() {
			const ttl = 10 * time.Second
			made := x.session("ann", lockd.SessionOptions{TTL: ttl})
			if made != nil && made.until.Equal(x.Clock().Now().Add(ttl)) { // no time has passed
				s = made
				x.Await(func() bool { return s.Err() != nil })
			}
		})
		const long = 1000 * time.Second // where time passes although the database could go on
		x.Go("sleeps", func() { x.Sleep(long) })
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

// Ensure that a session which may have no slot yet, because one was taken from it by force, keeps
// no slot that is released from those behind it.
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
		waits := x.waiting(slot.Prefix())
		left := func(name string) bool { return !slices.Contains(waits, name) }
		if len(next) > 0 && !slices.ContainsFunc(next, left) {
			x.Errorf("G9: a slot was released, and all of %q, who are next, wait on", next)
		}
		return
	}
}

// nextOf are the first that waits for a slot and has no delay of its own, and those in front.
func (x *explored) nextOf(prefix string) []string {
	names := x.waiting(prefix)
	for i, name := range names {
		if !x.passed[name] {
			return names[:i+1]
		}
	}
	return nil
}

// waiting are those who wait for a slot.
func (x *explored) waiting(prefix string) (names []string) {
	for l := range x.DB().Locks() {
		for _, w := range l.Queue {
			if l.Key == prefix+"/.lock" {
				names = append(names, w.Session.Name)
			}
		}
	}
	return names
}
