package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// schedules is the number of schedules of each body. The promises are checked after each step:
// Explore checks those of locks, newExplored others, and the calls check their answers.
const schedules = 1000

func explore(t *testing.T, body func(x *explored)) {
	t.Helper()
	exploreWithout(t, 0, body)
}

func exploreWithout(t *testing.T, faults lockdtest.Faults, body func(x *explored)) {
	t.Helper()
	exploreWith(t, &lockdtest.ExploreOptions{Without: faults}, body)
}

func exploreWith(t *testing.T, opts *lockdtest.ExploreOptions, body func(x *explored)) {
	t.Helper()
	opts.Schedules = schedules
	if testing.Short() || raced { // one goroutine runs at a time: many schedules race no more
		opts.Schedules /= 10
	}
	lockdtest.Explore(t, opts, func(w *lockdtest.World) { body(newExplored(w)) })
}

var background = context.Background()

// Ensure that holders that are kept alive, lose their renewals or are paused exclude each other,
// and are notified of their loss, in whatever order things happen.
func TestExplore_G1G6G7G8G9G10_Holders(t *testing.T) {
	explore(t, func(x *explored) {
		done := 0
		for _, name := range []string{"ann", "bob", "cid"} {
			x.Go(name, func() {
				defer func() { done++ }()
				s := x.session(name, lockd.SessionOptions{
					TTL: 10 * time.Second, Grace: 2 * time.Second, LockDelay: 5 * time.Second,
				})
				if s == nil {
					return
				}
				if name == "cid" {
					x.Go("cid, alive", func() { s.KeepAlive(background) })
				}
				if name == "ann" {
					err := x.DB().Update(func(tx *lockd.Txn) error {
						return tx.Catalog().Attach(s.ID(), "note", nil)
					})
					if err != nil {
						x.only(err, lockd.ErrCommit, lockd.ErrNoSession)
					}
				}
				l := x.lock(background, s, "a")
				if l == nil {
					return
				}
				x.renew(s)
				if _, err := x.DB().If(l.Sequencer()).Put("a", []byte(name), nil); err != nil {
					x.only(err, lockd.ErrNotHeld, lockd.ErrCommit)
				}
				if name != "ann" { // whose session expires while it holds the lock
					x.unlock(l)
				}
			})
		}
		x.Go("try", func() {
			s := x.session("try", lockd.SessionOptions{})
			for done < 3 && s != nil {
				if l := x.tryLock(s, "a"); l != nil {
					x.unlock(l)
				}
				x.Sleep(4 * time.Second)
			}
		})
	})
}

// Ensure the same when locks are taken by force, and sessions ended by others, and by their owners.
func TestExplore_G1G7G8G10_Force(t *testing.T) {
	explore(t, func(x *explored) {
		var ann *exploredSession
		for _, name := range []string{"ann", "bob"} {
			x.Go(name, func() {
				s := x.session(name, lockd.SessionOptions{LockDelay: 5 * time.Second})
				if s == nil {
					return
				}
				if name == "ann" {
					ann = s
				}
				if l := x.lock(background, s, "a"); l != nil && name == "ann" {
					x.Yield()
					x.unlock(l)
				}
				err := s.Close()
				for errors.Is(err, lockd.ErrCommit) {
					err = s.Close()
				}
				if err != nil {
					x.only(err, lockd.ErrNoSession)
				}
				if errors.Is(s.Err(), lockd.ErrClosed) {
					x.noDelay(s)
				}
			})
		}
		x.Go("force", func() {
			if e, _ := x.DB().Get("a"); !e.Session.IsZero() {
				if err := x.DB().ForceUnlock("a", e.Fence, "explored"); err != nil {
					x.only(err, lockd.ErrNotHeld, lockd.ErrCommit)
				}
				if s := x.session("try", lockd.SessionOptions{}); s != nil {
					x.Sleep(5*time.Second - 1) // not yet over
					if l := x.tryLock(s, "a"); l != nil {
						x.unlock(l)
					}
				}
			}
			if ann != nil {
				if err := x.DB().EndSession(ann.ID()); err != nil {
					x.only(err, lockd.ErrNoSession, lockd.ErrCommit)
				}
			}
		})
		watch(x, "a")
	})
}

// noDelay checks that a session that was closed has left no delay (G7).
func (x *explored) noDelay(s *exploredSession) {
	delayed := false
	for l := range x.DB().Locks() {
		delayed = delayed || l.Key == "a" && !l.DelayedUntil.IsZero()
	}
	history := x.DB().History("a") // no point: it is as new as the locks
	if n := len(history); delayed && n > 0 && history[n-1].Ended.ID == s.ID() &&
		errors.Is(history[n-1].Cause, lockd.ErrClosed) {
		x.Errorf("G7: %s was closed, and its lock is delayed", s.name)
	}
}

// watch checks that a watcher that is notified of a change reads a state at least as new (G3).
func watch(x *explored, key string) {
	x.Go("watch", func() {
		last := uint64(0)
		for e, err := range x.DB().Watch(background, lockd.KeyScope(key), 0) {
			if err != nil {
				x.only(err, lockd.ErrClosed)
				return
			}
			now, _ := x.DB().Get(key)
			if state := x.DB().Snapshot(); state.Index() < e.Index || e.Index <= last ||
				now.ModifyIndex < e.Entry.ModifyIndex {
				x.Errorf("G3: told of index %d after %d, and %d is published", e.Index, last,
					state.Index())
			}
			last = e.Index
		}
	})
}

// Ensure that calls which want several locks, and give up, are served in order and leave nothing.
func TestExplore_G9G11_GivingUp(t *testing.T) {
	explore(t, func(x *explored) {
		done := 0
		x.Go("all", func() {
			defer func() { done++ }()
			if s := x.session("all", lockd.SessionOptions{}); s != nil {
				for _, l := range x.lockAll(background, s, "a", "b") {
					x.unlock(l)
				}
			}
		})
		ctx, cancel := context.WithCancel(background)
		for _, name := range []string{"one", "two", "ends"} {
			x.Go(name, func() {
				defer func() { done++ }()
				s := x.session(name, lockd.SessionOptions{})
				if s == nil {
					return
				}
				ctx := ctx
				if name == "ends" {
					ctx = background
				}
				l := x.lock(ctx, s, map[string]string{"one": "a", "two": "b", "ends": "a"}[name])
				if l != nil {
					x.unlock(l)
				}
			})
		}
		x.Go("gives up", func() {
			x.Yield()
			cancel()
		})
		x.Go("tries", func() {
			defer func() { done++ }()
			if s := x.session("tries", lockd.SessionOptions{}); s != nil {
				if l := x.tryLock(s, "a"); l != nil {
					x.unlock(l)
				}
			}
		})
		x.Await(func() bool { return done == 5 })
		x.Sleep(5 * time.Minute) // what failed has been tried again
		for l := range x.DB().Locks() {
			x.Errorf("G11: all calls have returned, and %s is held by %q, with %d waiters", l.Key,
				l.Holder.Name, len(l.Queue))
		}
	})
}

// Ensure that transactions, of which some are refused, are seen whole or not at all, at indexes of
// their own, and only when they are durable.
func TestExplore_G3G4G8G11_Updates(t *testing.T) {
	explore(t, func(x *explored) {
		refusal := errors.New("refused")
		for _, name := range []string{"ann", "bob", "cid"} {
			x.Go(name, func() {
				x.put(name, "x")
				var index uint64
				err := x.DB().Update(func(tx *lockd.Txn) error {
					index = tx.Index()
					tx.Put("x", []byte(name), nil)
					tx.Put("y", []byte(name), nil)
					if name == "cid" {
						return refusal
					}
					return nil
				})
				switch {
				case err == nil:
					x.wrote(name, "y", index)
				case errors.Is(err, lockd.ErrCommit) && name != "cid":
					x.used(name, index)
				default:
					x.only(err, refusal, lockd.ErrCommit)
				}
				seen, _ := x.DB().Get("y")
				_, err = x.DB().CompareAndSwap("y", seen.ModifyIndex, seen.Value, nil)
				if err != nil {
					x.only(err, lockd.ErrConflict, lockd.ErrCommit)
				}
			})
		}
		x.Go("renew", func() {
			id := lockd.SessionID{15: 1} // Explore counts them
			if x.DB().Renew(id) == nil {
				if _, lives := x.DB().Snapshot().Session(id); !lives {
					x.Errorf("G3: a session was renewed that is not published")
				}
			}
		})
		x.Go("new", func() { x.session("new", lockd.SessionOptions{}) })
		x.Invariant("G11: what is refused is not there", func() error {
			if e, _ := x.DB().Get("y"); string(e.Value) == "cid" {
				return errors.New("y is there")
			}
			return nil
		})
		watch(x, "x")
	})
}

// Ensure that no more sessions have slots than there are, lost slots included, and that the waiters
// are served in order.
func TestExplore_G7G9_Slots(t *testing.T) {
	explore(t, func(x *explored) {
		for _, name := range []string{"ann", "bob", "cid"} {
			x.Go(name, func() {
				s := x.session(name, lockd.SessionOptions{
					TTL: 10 * time.Second, LockDelay: 5 * time.Second,
				})
				if s == nil {
					return
				}
				if name != "ann" {
					x.Go(name+", alive", func() { s.KeepAlive(background) })
				}
				slot, err := s.Acquire(background, "pool", 2)
				if err != nil {
					x.only(err, lockd.ErrCommit, lockd.ErrNoSession)
					return
				}
				x.Sleep(time.Second)
				if name == "ann" {
					return
				}
				for errors.Is(slot.Release(), lockd.ErrCommit) {
				}
			})
		}
		x.Invariant("G7: a lost slot counts until its delay is over", func() error {
			taken, now := 0, x.Clock().Now()
			for l := range x.DB().Locks() {
				if l.Key != "pool/.lock" && (!l.Holder.ID.IsZero() || l.DelayedUntil.After(now)) {
					taken++
				}
			}
			if taken > 2 {
				return fmt.Errorf("%d slots of 2 are taken or lost", taken)
			}
			return nil
		})
	})
}

// Ensure the same when slots are taken by force: the session gets no other slot during its delay,
// and holds up no other session meanwhile.
func TestExplore_G7G9_ForcedSlots(t *testing.T) {
	explore(t, func(x *explored) {
		for _, name := range []string{"ann", "bob"} {
			x.Go(name, func() {
				s := x.session(name, lockd.SessionOptions{LockDelay: 5 * time.Second})
				if s == nil {
					return
				}
				for range 2 {
					slot, err := s.Acquire(background, "pool", 2)
					if err != nil {
						x.only(err, lockd.ErrCommit, lockd.ErrConflict)
						return
					}
					x.Yield()
					for errors.Is(slot.Release(), lockd.ErrCommit) {
					}
				}
			})
		}
		x.Go("force", func() {
			for l := range x.DB().Locks() {
				if l.Key != "pool/.lock" && !l.Holder.ID.IsZero() {
					if err := x.DB().ForceUnlock(l.Key, l.Fence, "explored"); err != nil {
						x.only(err, lockd.ErrNotHeld, lockd.ErrCommit)
					}
				}
			}
		})
	})
}

// Ensure that a call which takes over a lock, and gives up, leaves the lock to its session, and
// that the waiters are served when the session has ended.
func TestExplore_G9G11_TakingOver(t *testing.T) {
	explore(t, func(x *explored) {
		ctx, cancel := context.WithCancel(background)
		x.Go("owner", func() {
			s := x.session("owner", lockd.SessionOptions{})
			if s == nil {
				return
			}
			if !x.lockInTxn(s, "a") {
				return
			}
			held, _ := x.DB().Get("a")
			x.Go("waits", func() {
				if s := x.session("waits", lockd.SessionOptions{}); s != nil {
					if l := x.lock(background, s, "a"); l != nil {
						x.unlock(l)
					}
				}
			})
			l := x.lock(ctx, s, "a")
			if l == nil {
				x.Sleep(5 * time.Minute)
				if e, _ := x.DB().Get("a"); e.Session != held.Session || e.Fence != held.Fence {
					x.Errorf("G11: a call that gave up has cost its session the lock")
				}
			}
			for errors.Is(s.Close(), lockd.ErrCommit) {
			}
		})
		x.Go("gives up", func() { cancel() })
	})
}

// Ensure that a keeper never has two sessions, and at most one leads.
func TestExplore_G1_Keepers(t *testing.T) {
	explore(t, func(x *explored) {
		for _, name := range []string{"ann", "bob"} {
			x.Go(name, func() {
				k, err := x.DB().NewKeeper(&lockd.SessionOptions{
					Name: name, TTL: 10 * time.Second, LockDelay: 5 * time.Second,
				})
				if err != nil {
					x.Errorf("%v", err)
					return
				}
				ctx, cancel := context.WithCancel(background)
				err = k.Lead(ctx, "leader", []byte(name),
					func(held context.Context, proof lockd.Sequencer) error {
						x.Yield()
						e, _ := x.DB().Get("leader")
						if held.Err() == nil && e.Session != proof.Session {
							x.Errorf("G10: %s leads, and %s is not told", e.Session, name)
						}
						if s, ok := k.Current(); ok {
							s.Close()
						}
						x.Sleep(time.Second)
						cancel()
						return nil
					})
				if err != nil {
					x.only(err, context.Canceled, lockd.ErrNotHeld, lockd.ErrCommit)
				}
				x.kept(k)
				for errors.Is(k.Close(), lockd.ErrCommit) {
				}
			})
		}
		x.Invariant("a keeper has one session", x.oneEach)
	})
}

// Ensure the same of a keeper whose session is ended before its making is durable.
func TestExplore_G11_KeeperOfEndedSession(t *testing.T) {
	explore(t, func(x *explored) {
		x.Invariant("a keeper has one session", x.oneEach)
		k, err := x.DB().NewKeeper(&lockd.SessionOptions{Name: "ann"})
		if err != nil {
			x.Errorf("%v", err)
			return
		}
		x.Go("ann", func() { x.kept(k) })
		x.Go("ends", func() {
			if err := x.DB().EndSession(lockd.SessionID{15: 1}); err != nil { // Explore counts them
				x.only(err, lockd.ErrNoSession, lockd.ErrCommit)
			}
		})
		x.Go("too", func() { x.kept(k) })
	})
}

// oneEach finds two sessions of one name.
func (x *explored) oneEach() error {
	seen := make(map[string]bool)
	for s := range x.DB().Snapshot().Sessions() {
		if seen[s.Name] {
			return fmt.Errorf("%s has two", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

// kept asks the keeper for its session twice: a new session comes after the end of the one before.
func (x *explored) kept(k *lockd.Keeper) {
	var before *lockd.Session
	for range 2 {
		s, err := k.Session(background)
		if err != nil {
			x.only(err, lockd.ErrClosed)
			return
		}
		if before != nil && before != s && before.Err() == nil {
			x.Errorf("a keeper has told of a session, and not of the end of the one before")
		}
		before = s
	}
}

// Ensure that answered writes are there when the process has died, and that a holder still holds
// its lock, or has lost it with its delay.
func TestExplore_G2G7G8_Restart(t *testing.T) {
	explore(t, func(x *explored) {
		answered := make(map[string]uint64) // indexes of writes, by their keys
		var kept lockd.SessionID
		var keptLock lockd.Sequencer
		work := func(round string) func() {
			return func() {
				for _, name := range []string{"ann", "bob"} {
					x.Go(name+round, func() {
						opts := lockd.SessionOptions{LockDelay: 5 * time.Second}
						if name == "bob" {
							opts.Lifetime = lockd.Independent
						}
						s := x.session(name+round, opts)
						if s == nil {
							return
						}
						if l := x.lock(background, s, name); l != nil {
							if name == "bob" {
								kept, keptLock = s.ID(), l.Sequencer()
							}
							x.Sleep(time.Second)
							if e, err := x.DB().If(l.Sequencer()).Put(name, nil, nil); err == nil {
								answered[name] = e.ModifyIndex
							}
							if name == "bob" {
								kept = lockd.SessionID{}
							}
							x.unlock(l)
						}
						if e, err := x.DB().Put(name+"/x", []byte(round), nil); err == nil {
							answered[name+"/x"] = e.ModifyIndex
							x.wrote(name, name+"/x", e.ModifyIndex)
						}
					})
				}
			}
		}
		x.Go("cid", func() {
			s := x.session("cid", lockd.SessionOptions{LockDelay: 5 * time.Second})
			if s == nil || x.lock(background, s, "cid") == nil {
				return
			}
			if err := x.DB().EndSession(s.ID()); err != nil {
				x.only(err, lockd.ErrCommit)
			}
		})
		x.Restart(func() {
			for key, index := range answered {
				if e, _ := x.DB().Get(key); e.ModifyIndex < index {
					x.Errorf("G2: a write of %s at index %d was answered; the next process has %d",
						key, index, e.ModifyIndex)
				}
			}
			e, _ := x.DB().Get("bob")
			if !kept.IsZero() && (e.Session != kept || e.Fence != keptLock.Fence) {
				x.Errorf("G2: bob has lost its lock by the end of its process")
			}
			for s := range x.DB().Snapshot().Sessions() {
				if s.Lifetime == lockd.BoundToProcess {
					x.Errorf("session %s is bound to the process that has died", s.Name)
				}
				for err := lockd.ErrCommit; errors.Is(err, lockd.ErrCommit); {
					err = x.DB().EndSession(s.ID)
				}
			}
			work("'")()
		})
		work("")()
	})
}
