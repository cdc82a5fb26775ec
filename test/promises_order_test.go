package lockd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that waiters are served in the order in which they began to wait, whichever of them give
// up, and that each call that gives up returns its own error.
func TestG9_WaitersAreServedInOrder(t *testing.T) {
	each(t, func(h *harness) {
		h.must(h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutNode(catalog.Node{Name: "n"})
		}))
		sessions := h.sessions(4)
		sessions = append(sessions,
			h.session(&lockd.SessionOptions{Node: "n"}),
			h.session(&lockd.SessionOptions{TTL: time.Minute}))
		sessions = append(sessions, h.sessions(2)...)
		lock := h.lock(h.session(nil), "k")
		line := h.line("k", sessions...)

		line.ends[0]()
		h.must(h.EndSession(sessions[2].ID()))
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Catalog().DeleteNode("n")
			return err
		}))
		h.advance(time.Minute)
		h.must(sessions[7].Close())
		line.mustWait(1, 3, 6)
		for i, want := range map[int]error{
			0: context.Canceled, 2: lockd.ErrDestroyed, 4: catalog.ErrNodeGone,
			5: lockd.ErrExpired, 7: lockd.ErrClosed,
		} {
			if err := line.calls[i].wait(); !errors.Is(err, want) || line.locks[i] != nil {
				t.Errorf("waiter %d: got %v, %v, want %v", i, line.locks[i], err, want)
			}
		}
		h.must(lock.Unlock())
		line.serve(1, 3, 6)
	})
}

// Ensure that the order holds whichever waiters give up, also if the first does, and that each
// waiter is served alone.
func TestG9_AnyoneMayGiveUp(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	each(t, func(h *harness) {
		random := rand.New(rand.NewPCG(seed, 0))
		for range 10 {
			lock := h.lock(h.session(nil), "k")
			line := h.line("k", h.sessions(8)...)
			var left []int
			for i := range line.calls {
				left = append(left, i)
			}
			for len(left) > 0 {
				if n := random.IntN(len(left)); random.IntN(2) == 0 {
					line.ends[left[n]]()
					left = slices.Delete(left, n, n+1)
					line.mustWait(left...)
					continue
				}
				h.must(lock.Unlock())
				line.mustWait(left[1:]...)
				lock = line.locks[left[0]]
				left = left[1:]
			}
			h.must(lock.Unlock())
		}
	})
}

// doors are the ways to take a lock without waiting for it.
var doors = map[string]func(h *harness, s *lockd.Session, key string) error{
	"TryLock": func(_ *harness, s *lockd.Session, key string) error {
		_, err := s.TryLock(key, nil)
		return err
	},
	"Txn.Lock": func(h *harness, s *lockd.Session, key string) error {
		return h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Lock(key, s.ID(), nil)
			return err
		})
	},
}

// mustBePromised fails the test unless the lock was refused because calls wait for it.
func mustBePromised(t *testing.T, door string, err error) {
	t.Helper()
	refusal, refused := errors.AsType[*lockd.LockedError](err)
	if !refused || refusal.Obstacle != lockd.ObstacleQueue {
		t.Fatalf("%s: got %v, want a lock that is promised to its queue", door, err)
	}
}

// Ensure that a free lock that is promised to a call which waits for other locks too cannot be
// taken by any method.
func TestG9_FreeLockIsPromised(t *testing.T) {
	each(t, func(h *harness) {
		outside := h.session(nil)
		held := h.lock(h.session(nil), "held")
		var all []*lockd.Lock
		waiting := start(func() (err error) {
			all, err = h.session(nil).LockAll(h.t.Context(), []string{"free", "held"}, nil)
			return err
		})
		h.settle()
		for name, door := range doors {
			mustBePromised(t, name, door(h, outside, "free"))
		}
		line := h.line("free", outside) // also a call that would wait
		if _, there := h.Get("free"); there {
			t.Fatal("held before all of them can be had")
		}
		h.must(held.Unlock())
		h.must(waiting.wait())
		line.mustWait(0)
		h.must(errors.Join(all[0].Unlock(), all[1].Unlock()))
		line.serve(0)
	})
}

// Ensure that a lock that is freed in a transaction while calls wait for it cannot be taken in the
// same transaction: not after an unlock, a deletion, or the end of the holder.
func TestG9_NobodyOvertakesInOneTransaction(t *testing.T) {
	for name, free := range map[string]func(tx *lockd.Txn, s *lockd.Session) error{
		"unlock": func(tx *lockd.Txn, s *lockd.Session) error {
			_, err := tx.Unlock("k", s.ID())
			return err
		},
		"delete": func(tx *lockd.Txn, _ *lockd.Session) error {
			_, err := tx.Delete("k")
			return err
		},
		"delete all": func(tx *lockd.Txn, _ *lockd.Session) error {
			_, err := tx.DeleteAll()
			return err
		},
		"end": func(tx *lockd.Txn, s *lockd.Session) error { return tx.EndSession(s.ID()) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				outside := h.session(nil)
				s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
				h.lock(s, "k")
				line := h.line("k", h.sessions(2)...)
				var again, other error
				h.must(h.Update(func(tx *lockd.Txn) error {
					h.must(free(tx, s))
					_, again = tx.Lock("k", s.ID(), nil)
					_, other = tx.Lock("k", outside.ID(), nil)
					return nil
				}))
				if name == "end" {
					again = other // there is no such session any more
				}
				mustBePromised(t, "the holder", again)
				mustBePromised(t, "another", other)
				line.serve(0, 1)
			})
		})
	}
}

// Ensure that when a delay is over the lock goes to the first waiter whose session lives, also if a
// session ends, and a new call comes, at that very instant.
func TestG9_AtTheEndOfADelay(t *testing.T) {
	each(t, func(h *harness) {
		outside := h.session(nil)
		s := h.session(&lockd.SessionOptions{LockDelay: time.Minute})
		h.lock(s, "k")
		h.must(h.EndSession(s.ID()))
		ends := h.session(&lockd.SessionOptions{TTL: time.Minute})
		line := h.line("k", append([]*lockd.Session{ends}, h.sessions(2)...)...)
		h.advance(time.Minute - 1)
		line.mustWait(0, 1, 2)
		trying := start(func() error { return doors["TryLock"](h, outside, "k") })
		h.advance(1)
		if err := trying.wait(); err == nil {
			t.Fatal("granted to one from outside")
		}
		if err := line.calls[0].wait(); !errors.Is(err, lockd.ErrExpired) {
			t.Fatalf("waiter 0: got %v", err)
		}
		line.serve(1, 2)
	})
}

// Ensure that a call that waits for a lock and for others too neither overtakes nor is overtaken.
func TestG9_LockAllKeepsItsPlaces(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.lock(h.session(nil), "a"), h.lock(h.session(nil), "b")
		before := h.line("b", h.session(nil))
		var all []*lockd.Lock
		both := start(func() (err error) {
			all, err = h.session(nil).LockAll(h.t.Context(), []string{"a", "b"}, nil)
			return err
		})
		h.settle()
		after := h.line("a", h.session(nil))
		h.must(a.Unlock())
		after.mustWait(0)
		h.must(b.Unlock())
		if both.returned() {
			t.Fatalf("overtook: %v", both.err)
		}
		before.serve(0)
		h.must(both.wait())
		after.mustWait(0)
		h.must(errors.Join(all[1].Unlock(), all[0].Unlock()))
		after.serve(0)
	})
}

// Ensure that every Done of a lost lock is closed before the next holder, or a watcher of any
// change, is notified, however many there are.
func TestG10_LossIsToldFirst(t *testing.T) {
	const locks = 3000 // telling so many takes longer than waking one
	for name, lose := range map[string]func(h *harness, s *lockd.Session) error{
		"end":    func(h *harness, s *lockd.Session) error { return h.EndSession(s.ID()) },
		"close":  func(_ *harness, s *lockd.Session) error { return s.Close() },
		"delete": func(h *harness, _ *lockd.Session) error { _, err := h.DeleteAll(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
				keys := make([]string, locks)
				for i := range keys {
					keys[i] = fmt.Sprintf("k/%04d", i)
				}
				held, err := s.LockAll(h.t.Context(), keys, nil)
				h.must(err)
				allTold := func() error {
					open := 0
					for _, lock := range held {
						if !isClosed(lock.Done()) || lock.Err() == nil {
							open++
						}
					}
					if open > 0 {
						return fmt.Errorf("of %d locks %d were not told lost", locks, open)
					}
					return nil
				}
				for _, lock := range held {
					lock.Done() // makes the channel
				}
				calls := watchLoss(h, allTold)
				calls["waiter"] = start(func() error {
					_, err := h.session(nil).Lock(h.t.Context(), keys[locks-1], nil)
					return errors.Join(err, allTold())
				})
				h.settle()
				h.must(lose(h, s))
				h.must(allTold())
				for who, call := range calls {
					if err := call.wait(); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				}
			})
		})
	}
}

// watchLoss has watchers of several kinds call check when they see the first change.
func watchLoss(h *harness, check func() error) map[string]*call {
	index := h.Snapshot().Index()
	return map[string]*call{
		"wait": start(func() error {
			_, _, err := h.Wait(h.t.Context(), lockd.PrefixScope("k/"), index, 0)
			return errors.Join(err, check())
		}),
		"watch": start(func() error {
			for _, err := range h.Watch(h.t.Context(), lockd.PrefixScope("k/"), index) {
				return errors.Join(err, check())
			}
			return errors.New("the watch has ended without an event")
		}),
	}
}

// grants are the handles of each key that were returned to callers.
type grants struct {
	mu    sync.Mutex // protects what follows
	locks map[string][]*lockd.Lock
}

// told fails if a lock is returned while an older one of its key does not know its loss (G1, G10).
func (g *grants) told(lock *lockd.Lock) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, other := range g.locks[lock.Key()] {
		older := other
		if other.Sequencer().Fence > lock.Sequencer().Fence {
			older = lock
		}
		if other.Sequencer().Fence == lock.Sequencer().Fence || !isClosed(older.Done()) {
			return fmt.Errorf("%v and %v are held at once", other.Sequencer(), lock.Sequencer())
		}
	}
	g.locks[lock.Key()] = append(g.locks[lock.Key()], lock)
	return nil
}

// Ensure that at no index two sessions hold a lock, and that a caller that is granted a lock never
// finds the grant before still held: under everything that can happen to a lock.
func TestG1G10_OneHolder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	each(t, func(h *harness) {
		g := &grants{locks: make(map[string][]*lockd.Lock)}
		index := h.Snapshot().Index()
		var calls []*call
		for i := range 8 {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			calls = append(calls, start(func() error {
				for range 40 {
					if err := g.takeAndLose(h, random); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for !allReturned(calls) {
			h.advance(time.Second)
		}
		for _, call := range calls {
			h.must(call.err)
		}
		holders, fences := make(map[string]lockd.Sequencer), make(map[string]uint64)
		for _, event := range h.events(lockd.PrefixScope(""), index) {
			before, now := holding(event.Previous), holding(event.Entry)
			key := cmp.Or(event.Entry.Key, event.Previous.Key)
			if before != holders[key] {
				t.Fatalf("index %d: %v held %q, not %v", event.Index, before, key, holders[key])
			}
			if now != holders[key] && now.Fence != 0 {
				if now.Fence != event.Index || now.Fence <= fences[key] {
					t.Fatalf("index %d: fence %d after %d", event.Index, now.Fence, fences[key])
				}
				fences[key] = now.Fence
			}
			holders[key] = now
		}
		if len(fences) == 0 {
			t.Fatal("nothing was granted")
		}
	})
}

// holding is the sequencer of the lock's holder, and the zero one if there is none.
func holding(e lockd.Entry) lockd.Sequencer {
	if e.Session.IsZero() {
		return lockd.Sequencer{}
	}
	return e.Sequencer()
}

// Ensure that a held lock cannot be taken by another session, by any method, from its grant on.
func TestG1_NoDoorToAHeldLock(t *testing.T) {
	each(t, func(h *harness) {
		outside := h.session(nil)
		lock := h.lock(h.session(nil), "k")
		line := h.line("k", outside)
		for name, door := range doors {
			err := door(h, outside, "k")
			refusal, refused := errors.AsType[*lockd.LockedError](err)
			if !refused || refusal.Obstacle != lockd.ObstacleHolder {
				t.Fatalf("%s: got %v, want a lock that is held", name, err)
			}
			h.must(h.CheckSequencer(lock.Sequencer()))
		}
		line.mustWait(0)
		h.must(lock.Unlock())
		line.serve(0)
	})
}

// takeAndLose takes a lock, or several, in one way and loses it in another.
func (g *grants) takeAndLose(h *harness, random *rand.Rand) error {
	s, err := h.NewSession(&lockd.SessionOptions{
		LockDelay: []time.Duration{lockd.NoLockDelay, time.Second}[random.IntN(2)],
		Behavior:  lockd.Behavior(random.IntN(2)),
		TTL:       []time.Duration{0, 3 * time.Second}[random.IntN(2)],
	})
	if err != nil {
		return err
	}
	key := string(rune('a' + random.IntN(2)))
	var locks []*lockd.Lock
	switch random.IntN(3) {
	case 0:
		locks, err = s.LockAll(h.t.Context(), []string{"b", "a"}, nil)
	case 1:
		var lock *lockd.Lock
		if lock, err = s.TryLock(key, nil); err == nil {
			locks = append(locks, lock)
		}
	case 2:
		var lock *lockd.Lock
		if lock, err = s.Lock(h.t.Context(), key, nil); err == nil {
			locks = append(locks, lock)
		}
	}
	for _, lock := range locks {
		if err := g.told(lock); err != nil {
			return err
		}
	}
	_, locked := errors.AsType[*lockd.LockedError](err)
	switch {
	case locked, errors.Is(err, lockd.ErrExpired):
		return nil
	case err != nil:
		return err
	}
	_ = g.lose(h, s, locks[random.IntN(len(locks))], random.IntN(6)) // it may be lost already
	if err := s.Close(); !errors.Is(err, lockd.ErrNoSession) {
		return err
	}
	return nil
}

func (g *grants) lose(h *harness, s *lockd.Session, lock *lockd.Lock, how int) error {
	switch how {
	case 0:
		return lock.Unlock()
	case 1:
		return h.EndSession(s.ID())
	case 2:
		return h.ForceUnlock(lock.Key(), lock.Sequencer().Fence, "test")
	case 3:
		_, err := h.CompareAndDelete(lock.Key(), lock.Sequencer().Fence)
		return err
	case 4:
		return h.Update(func(tx *lockd.Txn) error {
			_, err := tx.Unlock(lock.Key(), s.ID())
			return err
		})
	}
	return s.Close()
}
