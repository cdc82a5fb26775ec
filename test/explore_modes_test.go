package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// asReader asks for a share of a lock.
var asReader = &lockd.LockOptions{Mode: lockd.Shared}

// Ensure that readers and writers of one lock exclude each other as their modes say, in the order
// of one queue, that only the first reader writes to the key, and that each grant is proven by its
// own sequencer.
func TestExplore_R1R2R3R6_Modes(t *testing.T) {
	explore(t, func(x *explored) {
		x.Invariant("R2: only the first who shares a lock writes to its key", x.firstWrites("a"))
		for _, name := range []string{"reads", "writes", "reads too"} {
			x.Go(name, func() {
				s := x.session(name, lockd.SessionOptions{})
				if s == nil {
					return
				}
				opts := asReader
				if name == "writes" {
					opts = nil
				}
				l := x.lockWith(background, s, "a", opts)
				if l == nil {
					return
				}
				_, err := x.DB().If(l.Sequencer()).Put(name, nil, nil)
				if errors.Is(err, lockd.ErrNotHeld) {
					x.Errorf("R6: %s holds the lock, and its sequencer does not prove it", name)
				}
				x.unlock(l)
			})
		}
		x.Go("tries", func() {
			s := x.session("tries", lockd.SessionOptions{})
			if s == nil {
				return
			}
			for _, opts := range []*lockd.LockOptions{nil, asReader} {
				if l := x.tryLockWith(s, "a", opts); l != nil {
					x.unlock(l)
				}
			}
		})
	})
}

// firstWrites returns a rule: while a share of the lock is held, its key stays as it is.
func (x *explored) firstWrites(key string) func() error {
	var fences []uint64 // of the shares after the last step
	var index uint64
	return func() error {
		e, _ := x.DB().Get(key)
		var now []uint64
		for l := range x.DB().Locks() {
			for _, h := range l.Holders {
				if l.Key == key {
					now = append(now, h.Grant.Fence)
				}
			}
		}
		before := func(fence uint64) bool { return slices.Contains(fences, fence) }
		if slices.ContainsFunc(now, before) && e.ModifyIndex != index {
			return fmt.Errorf("%s was written to at index %d, and then at %d", key, index,
				e.ModifyIndex)
		}
		fences, index = now, e.ModifyIndex
		return nil
	}
}

// Ensure that the readers that wait for a lock share it with the writer that downgrades it, and
// that the readers behind a reader of several locks share the others with it.
func TestExplore_R3R4_ReadersTogether(t *testing.T) {
	explore(t, func(x *explored) {
		readers, ended, begun := 3, 0, false
		over := func() bool { return ended == readers }
		x.Go("writes", func() {
			s := x.session("writes", lockd.SessionOptions{})
			if s == nil {
				begun = true
				return
			}
			l := x.lock(background, s, "a")
			begun = true
			if l == nil {
				return
			}
			x.Yield()
			for {
				err := l.Downgrade()
				if err == nil {
					break
				}
				x.only(err, lockd.ErrCommit)
			}
			x.Await(over)
			x.unlock(l)
		})
		for _, r := range []struct {
			name string
			keys []string
		}{
			{"reads a", []string{"a"}},
			{"reads both", []string{"a", "b"}},
			{"reads b", []string{"b"}},
		} {
			x.Go(r.name, func() {
				x.Await(func() bool { return begun })
				s := x.session(r.name, lockd.SessionOptions{})
				if s == nil {
					ended++
					return
				}
				locks := x.lockAllWith(background, s, asReader, r.keys...)
				ended++
				x.Await(over) // all of them have what they want, together
				for _, l := range locks {
					x.unlock(l)
				}
			})
		}
	})
}

// Ensure that the delay of a lost reader keeps out writers, for the longest of the readers' delays,
// and no reader; that a force takes only the share that it names; and that a key with DeleteKeys
// stays while others share its lock.
func TestExplore_R5_LostReaders(t *testing.T) {
	explore(t, func(x *explored) {
		for _, name := range []string{"ann", "bob", "cid"} {
			opts := map[string]lockd.SessionOptions{
				"ann": {LockDelay: 10 * time.Second, Behavior: lockd.DeleteKeys},
				"bob": {LockDelay: 2 * time.Second}, "cid": {},
			}[name]
			x.Go(name, func() {
				s := x.session(name, opts)
				if s == nil {
					return
				}
				l, err := s.TryLock("a", asReader)
				var locked *lockd.LockedError
				if errors.As(err, &locked) && locked.Obstacle == lockd.ObstacleDelay {
					x.Errorf("R5: %s is to wait for the delay of a reader", name)
				}
				if err != nil {
					return
				}
				x.granted(l)
				x.Yield()
				switch name {
				case "ann":
					for errors.Is(x.DB().EndSession(s.ID()), lockd.ErrCommit) {
					}
				case "bob":
					fence, err := l.Sequencer().Fence, lockd.ErrCommit
					for errors.Is(err, lockd.ErrCommit) {
						err = x.DB().ForceUnlock("a", fence, "explored")
					}
				case "cid":
					x.Yield()
					if errors.Is(l.Err(), lockd.ErrForced) {
						x.Errorf("R5: bob was forced, and cid has lost its share")
					}
					x.unlock(l)
				}
			})
		}
		x.Go("writes", func() {
			if s := x.session("writes", lockd.SessionOptions{}); s != nil {
				x.Yield()
				if l := x.lock(background, s, "a"); l != nil {
					x.unlock(l)
				}
			}
		})
		x.Invariant("R5: a key stays while its lock is shared", func() error {
			for l := range x.DB().Locks() {
				if _, there := x.DB().Get(l.Key); !there && len(l.Holders) > 0 {
					return fmt.Errorf("%s is shared by %d, and is not there", l.Key, len(l.Holders))
				}
			}
			return nil
		})
	})
}

// Ensure that a session that shares a lock without a handle can take it over, ahead of a call that
// waits for the lock exclusively, and gives back all its shares with an Unlock in a transaction.
func TestExplore_R7_WithoutHandles(t *testing.T) {
	explore(t, func(x *explored) {
		x.Go("owner", func() {
			s := x.session("owner", lockd.SessionOptions{})
			if s == nil {
				return
			}
			if l := x.tryLockWith(s, "a", asReader); l == nil {
				return
			}
			err := x.DB().Update(func(tx *lockd.Txn) error {
				_, err := tx.Lock("b", s.ID(), asReader)
				return err
			})
			if err != nil {
				x.only(err, lockd.ErrCommit)
				return
			}
			waits := 0
			x.passed["writes a"] = true // by a session that has the lock already
			for _, key := range []string{"a", "b"} {
				x.Go("writes "+key, func() {
					waits++
					if s := x.session("writes "+key, lockd.SessionOptions{}); s != nil {
						if l := x.lock(background, s, key); l != nil {
							x.unlock(l)
						}
					}
				})
			}
			x.Await(func() bool { return waits == 2 })
			if l := x.lockWith(background, s, "b", asReader); l != nil {
				x.unlock(l)
			}
			x.tryLockWith(s, "a", asReader)
			for _, key := range []string{"a", "b"} {
				x.unlockInTxn(s, key)
			}
		})
	})
}

// unlockInTxn gives back, by a transaction, all grants of the lock to the session.
func (x *explored) unlockInTxn(s *exploredSession, key string) {
	for {
		err := x.DB().Update(func(tx *lockd.Txn) error {
			_, err := tx.Unlock(key, s.ID())
			return err
		})
		if !errors.Is(err, lockd.ErrCommit) {
			if err != nil {
				x.only(err, lockd.ErrNotHeld)
			}
			return
		}
	}
}

// Ensure that readers have their shares after a crash, the newest first, also when their end was
// dropped, and that the delay of a reader goes on as the delay of a reader.
func TestExplore_R5R7R8_RestartOfReaders(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		var kept lockd.SessionID
		lost := false
		x.Restart(func() {
			var fences []uint64
			for l := range x.DB().Locks() {
				for _, h := range l.Holders {
					fences = append(fences, h.Grant.Fence)
				}
			}
			if !kept.IsZero() {
				if len(fences) == 0 {
					x.Errorf("R8: the readers have lost the lock by the end of their process")
				}
				for range 3 {
					x.Yield()
				}
				if errors.Is(x.DB().EndSession(kept), lockd.ErrCommit) && len(fences) > 0 {
					x.takesNewest(kept, slices.Max(fences))
				}
			}
			s := x.session("next", lockd.SessionOptions{})
			if s == nil {
				return
			}
			_, err := s.TryLock("b", asReader)
			var locked *lockd.LockedError
			if errors.As(err, &locked) && locked.Obstacle == lockd.ObstacleDelay && lost {
				x.Errorf("R5: a reader is to wait for the delay of a reader")
			}
		})
		x.Go("ann", func() {
			s := x.session("ann", lockd.SessionOptions{Lifetime: lockd.Independent})
			if s == nil {
				return
			}
			for range 2 {
				if x.tryLockWith(s, "a", asReader) == nil {
					return
				}
			}
			kept = s.ID()
			for range 5 {
				x.Yield()
			}
		})
		x.Go("bob", func() {
			s := x.session("bob", lockd.SessionOptions{LockDelay: 5 * time.Second})
			if s == nil || x.tryLockWith(s, "b", asReader) == nil {
				return
			}
			lost = x.DB().EndSession(s.ID()) == nil
			x.Sleep(time.Second)
		})
	})
}

// takesNewest has the session take over a share, which has to be the one of the newest grant.
func (x *explored) takesNewest(id lockd.SessionID, fence uint64) {
	s, err := x.DB().Session(id)
	if err != nil {
		x.only(err)
		return
	}
	l, err := s.TryLock("a", asReader)
	if err != nil {
		x.only(err, lockd.ErrCommit)
		return
	}
	if got := l.Sequencer().Fence; got != fence {
		x.Errorf("R7: a session took over the share of fence %d, and its newest has %d", got, fence)
	}
}

// Ensure that a key which the holders of its lock made goes with the last of them, unless the key
// has been written to.
func TestExplore_R9_RemoveAfter(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		names, done := []string{"ann", "bob", "cid"}, 0
		left, failed := false, false
		for _, name := range names {
			x.Go(name, func() {
				defer func() { done++ }()
				s := x.session(name, lockd.SessionOptions{})
				if s == nil {
					return
				}
				opts := &lockd.LockOptions{Key: lockd.RemoveAfter, Mode: lockd.Shared}
				if name == "ann" {
					opts.Mode = lockd.Exclusive
				}
				l := x.lockWith(background, s, "a", opts)
				if l == nil {
					return
				}
				if name == "ann" {
					if err := l.Downgrade(); err != nil {
						x.only(err, lockd.ErrCommit)
					}
				}
				x.Yield()
				x.unlock(l)
			})
		}
		x.Go("writes", func() {
			defer func() { done++ }()
			if _, there := x.DB().Get("a"); !there {
				return
			}
			_, err := x.DB().Put("a", []byte("written"), nil)
			left, failed = err == nil, err != nil
		})
		x.Await(func() bool { return done == len(names)+1 })
		x.Sleep(time.Minute)
		if _, there := x.DB().Get("a"); there != left && !failed {
			x.Errorf("R9: written %t, and there %t", left, there)
		}
	})
}

// Ensure that a key that was not made with its lock stays, when a failed commit ended a share,
// deleted the key and made it anew.
func TestExplore_R9_DroppedRemoval(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		removes := &lockd.LockOptions{Key: lockd.RemoveAfter, Mode: lockd.Shared}
		var sessions []*exploredSession
		for _, name := range []string{"ann", "bob", "cid"} {
			s := x.session(name, lockd.SessionOptions{})
			if s == nil {
				return
			}
			sessions = append(sessions, s)
		}
		if _, err := x.DB().Put("a", nil, nil); err != nil {
			return
		}
		first := x.lockWith(background, sessions[0], "a", removes)
		if first == nil {
			return
		}
		done, deleted, tried, released := 0, false, false, false
		begins := func(name string, fn func()) {
			x.Go(name, func() { fn(); done++ })
		}
		begins("ann", func() {
			x.unlock(first)
			released = true
		})
		begins("deletes", func() {
			_, err := x.DB().Delete("a")
			deleted, tried = err == nil, true
		})
		begins("bob", func() {
			if l := x.lockWith(background, sessions[1], "a", removes); l != nil {
				x.unlock(l)
			}
		})
		begins("cid", func() {
			x.Await(func() bool { return tried })
			if l := x.lockWith(background, sessions[2], "a", removes); l != nil {
				x.Await(func() bool { return released })
				x.unlock(l)
			}
		})
		x.Await(func() bool { return done == 4 })
		if _, there := x.DB().Get("a"); !there && !deleted {
			x.Errorf("R9: nobody has deleted the key, nor made it with its lock, and it is gone")
		}
	})
}

// Ensure that a lock with a MaxHold of three seconds is lost then, with its delay, and that no
// other lock is lost, whether exclusive, shared or downgraded.
func TestExplore_R11_MaxHold(t *testing.T) {
	const most = 3 * time.Second
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		for _, name := range []string{"alone", "shared", "downgrades"} {
			x.Go(name, func() {
				key := "a"
				if name == "downgrades" {
					key = "b" // where no other session is: its three seconds begin at once
				}
				s := x.session(name, lockd.SessionOptions{LockDelay: 5 * time.Second})
				if s == nil {
					return
				}
				opts := &lockd.LockOptions{MaxHold: most}
				if name == "shared" {
					opts.Mode = lockd.Shared
				}
				for _, hangs := range []bool{false, true} {
					began := x.Clock().Now()
					l := x.lockWith(background, s, key, opts)
					if l == nil {
						return
					}
					if name == "downgrades" {
						if err := l.Downgrade(); err != nil {
							x.only(err, lockd.ErrCommit, lockd.ErrHeldTooLong)
						}
					}
					if hangs {
						x.Await(func() bool { return l.Err() != nil })
					}
					held := x.Clock().Now().Sub(began)
					if errors.Is(l.Err(), lockd.ErrHeldTooLong) && held < most {
						x.Errorf("R11: %s was not held for %v, and is taken away", l.Key(), most)
					}
					x.unlock(l)
				}
			})
		}
		x.Go("holds", func() {
			s := x.session("holds", lockd.SessionOptions{})
			if s == nil {
				return
			}
			l := x.lock(background, s, "a")
			if l == nil {
				return
			}
			x.Sleep(time.Minute)
			if err := l.Err(); err != nil {
				x.Errorf("R11: a lock that may be held for ever has ended: %v", err)
			}
			x.unlock(l)
		})
	})
}

// Ensure that the MaxHold of a lock that was released ends no other lock.
func TestExplore_R11_Released(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		for _, mode := range []lockd.LockMode{lockd.Exclusive, lockd.Shared} {
			x.Go(mode.String(), func() {
				s := x.session(mode.String(), lockd.SessionOptions{})
				if s == nil {
					return
				}
				for _, most := range []time.Duration{3 * time.Second, 0} {
					opts := &lockd.LockOptions{Mode: mode, MaxHold: most}
					if most == 0 {
						opts = nil
					}
					l := x.lockWith(background, s, mode.String(), opts)
					if l == nil {
						return
					}
					if most == 0 {
						x.Sleep(time.Minute)
						if err := l.Err(); err != nil {
							x.Errorf("R11: a lock that may be held for ever has ended: %v", err)
						}
					}
					x.unlock(l)
				}
			})
		}
	})
}

// Ensure that a lock whose MaxHold is over at the instant at which another lock's delay is over
// ends before the other lock is granted.
func TestExplore_R11_EndsBeforeGrants(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals, func(x *explored) {
		const over = 5 * time.Second
		lost, ended := false, false
		x.Go("lost", func() {
			defer func() { lost = true }()
			s := x.session("lost", lockd.SessionOptions{TTL: over, LockDelay: over})
			if s != nil && x.lock(background, s, "a") != nil {
				x.Await(func() bool { return s.Err() != nil })
			}
		})
		x.Go("holds", func() {
			defer func() { ended = true }()
			s := x.session("holds", lockd.SessionOptions{})
			if s == nil {
				return
			}
			x.Await(func() bool { return lost })
			l := x.lockWith(background, s, "b", &lockd.LockOptions{MaxHold: over})
			if l != nil {
				x.Await(func() bool { return l.Err() != nil })
			}
		})
		x.Go("waits", func() {
			s := x.session("waits", lockd.SessionOptions{})
			if s == nil {
				return
			}
			x.Yield()
			if l := x.lock(background, s, "a"); l != nil {
				x.Await(func() bool { return ended })
				x.endsBefore("b", l.Sequencer().Fence)
				x.unlock(l)
			}
		})
	})
}

// endsBefore checks that the lock of the key ended before the grant with that fence, if both were
// at one instant.
func (x *explored) endsBefore(key string, fence uint64) {
	var granted time.Time
	for _, e := range x.DB().History("a") {
		if !e.Granted.ID.IsZero() && e.Index == fence {
			granted = e.Time
		}
	}
	for _, e := range x.DB().History(key) {
		if errors.Is(e.Cause, lockd.ErrHeldTooLong) && e.Time.Equal(granted) && e.Index > fence {
			x.Errorf("R11: %s ended at the instant of the grant with fence %d, at index %d", key,
				fence, e.Index)
		}
	}
}

// Ensure that sessions that lock keys in one order, one by one or together, never wait for each
// other for ever.
func TestExplore_G9R13_OrderedLocks(t *testing.T) {
	explore(t, func(x *explored) {
		for _, name := range []string{"ann", "bob", "cid"} {
			x.passed[name] = true // by a session that holds what it waits for
			x.Go(name, func() {
				s := x.session(name, lockd.SessionOptions{})
				if s == nil {
					return
				}
				switch name {
				case "ann":
					if a := x.lock(background, s, "a"); a != nil {
						if b := x.lock(background, s, "b"); b != nil {
							x.unlock(b)
						}
						x.unlock(a)
					}
				case "bob":
					for _, l := range x.lockAll(background, s, "a", "b") {
						x.unlock(l)
					}
				case "cid":
					if b := x.lock(background, s, "b"); b != nil {
						x.Yield()
						x.unlock(b)
					}
				}
			})
		}
	})
}

// Ensure that calls whose contexts carry their locks never wait for each other for ever: one of the
// calls is refused.
func TestExplore_R14_Carried(t *testing.T) {
	explore(t, func(x *explored) {
		done := 0
		x.Go("ann", func() {
			defer func() { done++ }()
			if s := x.session("ann", lockd.SessionOptions{}); s != nil {
				if a := x.lockWith(background, s, "a", asReader); a != nil {
					x.under(a, s, "b", nil)
					x.unlock(a)
				}
			}
		})
		x.Go("writes", func() {
			if s := x.session("writes", lockd.SessionOptions{}); s != nil {
				if a := x.lock(background, s, "a"); a != nil {
					x.unlock(a)
				}
			}
		})
		x.Go("bob", func() {
			s := x.session("bob", lockd.SessionOptions{})
			if s == nil {
				return
			}
			b := x.lock(background, s, "b")
			if b == nil {
				return
			}
			two := 0
			x.Go("bob too", func() {
				x.under(b, s, "a", asReader)
				two++
			})
			x.Yield()
			_ = b.Unlock() // if that fails, bob waits for the other call before it tries again
			x.Await(func() bool { return two == 1 })
			x.unlock(b)
		})
	})
}

// Ensure the same when the circle shows only after the commit of a release, on which the calls were
// decided, has failed.
func TestExplore_R14_DroppedRelease(t *testing.T) {
	exploreWithout(t, lockdtest.LostRenewals|lockdtest.Pauses, func(x *explored) {
		holds, unlocks, two, done := false, false, false, false
		x.Go("bob", func() {
			defer func() { holds, unlocks = true, true }()
			s := x.session("bob", lockd.SessionOptions{})
			if s == nil {
				return
			}
			b := x.lock(background, s, "b")
			if b == nil {
				return
			}
			x.Go("bob too", func() {
				defer func() { two = true }()
				x.Await(func() bool { return unlocks })
				x.under(b, s, "a", nil)
			})
			holds = true
			x.Await(func() bool { return done || len(x.queues["b"]) > 0 })
			unlocks = true
			_ = b.Unlock() // if that fails, bob waits for the other call before it tries again
			x.Await(func() bool { return two })
			x.unlock(b)
		})
		x.Go("ann", func() {
			defer func() { done = true }()
			s := x.session("ann", lockd.SessionOptions{})
			if s == nil {
				return
			}
			if a := x.lock(background, s, "a"); a != nil {
				x.Await(func() bool { return holds })
				x.under(a, s, "b", nil)
				x.unlock(a)
			}
		})
	})
}

// under locks the key by a call that carries the lock, and unlocks it.
func (x *explored) under(
	held *lockd.Lock, s *exploredSession, key string, opts *lockd.LockOptions,
) {
	l, err := s.Lock(held.Context(background), key, opts)
	if err == nil {
		x.unlock(l)
		return
	}
	var deadlock *lockd.DeadlockError
	if !errors.As(err, &deadlock) {
		x.only(err, lockd.ErrCommit, lockd.ErrNotHeld, context.Canceled)
	}
}
