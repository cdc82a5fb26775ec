package lockd_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// crowd is calls that are made while an Update has the database to itself.
type crowd struct {
	*harness
	s     *lockd.Session
	locks []*lockd.Lock
	errs  []error
	then  func() // called when all of them are decided; may be nil
}

// during makes so many calls, one after the other, while an Update runs that then ends with end. It
// returns when all have returned, the Update with updated.
func (c *crowd) during(
	n int, end func(tx *lockd.Txn) error, call func(i int) error,
) (updated error) {
	c.locks = append(c.locks, make([]*lockd.Lock, n-len(c.locks))...)
	c.errs = make([]error, n)
	c.settle() // the database's goroutine, too, has nothing to do
	inside, goOn := make(chan struct{}), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		updated = recovered(func() error {
			return c.Update(func(tx *lockd.Txn) error {
				close(inside)
				<-goOn
				return end(tx)
			})
		})
	})
	<-inside
	for i := range n {
		running.Go(func() { c.errs[i] = call(i) })
		c.settle() // it waits now, and not for a mutex
	}
	close(goOn)
	if c.then != nil {
		c.settle()
		c.then()
	}
	running.Wait()
	return updated
}

func (c *crowd) tryLock(i int) (err error) {
	c.locks[i], err = c.s.TryLock(fmt.Sprint("lock", i), nil)
	return err
}

func (c *crowd) unlock(i int) error { return c.locks[i].Unlock() }

func put(tx *lockd.Txn) error {
	_, err := tx.Put("k", fmt.Append(nil, tx.Index()), nil)
	return err
}

// Ensure that calls that find the database taken are decided in their order when it is free, and
// ride in one commit, whatever became of the one that had it.
func TestCombining_InOrder(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(tx *lockd.Txn) error
		want error
	}{
		{"write", put, nil},
		{"nothing written", func(*lockd.Txn) error { return nil }, nil},
		{"refused", func(*lockd.Txn) error { return errOwn }, errOwn},
		{"panic", func(*lockd.Txn) error { panic(errOwn) }, errOwn},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := &crowd{harness: h, s: h.session(nil)}
				before := h.Stats()
				if err := c.during(5, tt.end, c.tryLock); err != tt.want {
					t.Errorf("update: got %v, want %v", err, tt.want)
				}
				h.must(errors.Join(c.errs...))
				if got := h.Stats().Commits.Count - before.Commits.Count; got != 1 {
					t.Errorf("got %d commits, want 1", got)
				}
				for i := range c.locks[1:] {
					one, next := c.locks[i].Sequencer(), c.locks[i+1].Sequencer()
					if one.Fence >= next.Fence {
						t.Errorf("fence %d, and %d for the call after it", one.Fence, next.Fence)
					}
				}
				if err := c.during(5, tt.end, c.unlock); err != tt.want {
					t.Errorf("update: got %v, want %v", err, tt.want)
				}
				h.must(errors.Join(c.errs...))
				for i, l := range c.locks {
					if err := l.Err(); !errors.Is(err, lockd.ErrUnlocked) {
						t.Errorf("lock %d: got %v, want %v", i, err, lockd.ErrUnlocked)
					}
				}
			})
		})
	}
}

// Ensure that each of them hears that it was refused, and that the others are not touched by it.
func TestCombining_Refused(t *testing.T) {
	onFile(t, func(h *harness) {
		c := &crowd{harness: h, s: h.session(nil)}
		h.must(c.during(3, put, func(i int) (err error) {
			c.locks[i], err = c.s.TryLock([]string{"a", "a", "b"}[i], nil)
			return err
		}))
		h.must(errors.Join(c.errs[0], c.errs[2]))
		if held := new(lockd.LockedError); !errors.As(c.errs[1], &held) || c.locks[1] != nil ||
			held.Fence != c.locks[0].Sequencer().Fence {
			t.Errorf("got %v, %v, want that the lock is held", c.locks[1], c.errs[1])
		}
	})
}

// Ensure that all of them are dropped with the commit that they ride in, and can be made again.
func TestCombining_Dropped(t *testing.T) {
	onFile(t, func(h *harness) {
		c := &crowd{harness: h, s: h.session(nil)}
		var broken atomic.Bool
		h.hook(store.Hooks{BeforeCommit: func() error {
			if broken.Load() {
				return errOwn
			}
			return nil
		}})
		c.s = h.session(nil)
		for _, call := range []func(int) error{c.tryLock, c.unlock} {
			broken.Store(true)
			if err := c.during(4, put, call); !errors.Is(err, lockd.ErrCommit) {
				t.Errorf("update: got %v, want %v", err, lockd.ErrCommit)
			}
			for i, err := range c.errs {
				if !errors.Is(err, lockd.ErrCommit) {
					t.Errorf("call %d: got %v, want %v", i, err, lockd.ErrCommit)
				}
			}
			broken.Store(false)
			h.must(c.during(4, put, call))
			h.must(errors.Join(c.errs...))
		}
	})
}

// Ensure that those are dropped too that were decided on a commit that fails, whether they ride in
// the one after it, or have nothing to commit.
func TestCombining_DroppedWithTheOneBefore(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(tx *lockd.Txn) error
		keys []string
	}{
		{"riders", put, []string{"b", "a", "c"}},
		{"refused", func(*lockd.Txn) error { return nil }, []string{"a", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				hold, armed := make(chan struct{}), false
				h.hook(store.Hooks{BeforeCommit: func() error {
					if !armed {
						return nil
					}
					armed = false
					<-hold
					return errOwn
				}})
				c := &crowd{harness: h, s: h.session(nil), then: func() { close(hold) }}
				other := h.session(nil)
				h.settle()
				armed = true
				first := make(chan error, 1)
				go func() {
					_, err := other.TryLock("a", nil)
					first <- err
				}()
				h.settle()
				updated := c.during(len(tt.keys), tt.end, func(i int) (err error) {
					c.locks[i], err = c.s.TryLock(tt.keys[i], nil)
					return err
				})
				for i, err := range append(c.errs, <-first, updated) {
					if !errors.Is(err, lockd.ErrCommit) {
						t.Errorf("call %d: got %v, want %v", i, err, lockd.ErrCommit)
					}
				}
				h.lock(c.s, "a") // nothing is left of the grant
			})
		})
	}
}

// Ensure that a panic while somebody else's call is decided is that call's, which is made again by
// its own caller.
func TestCombining_Panic(t *testing.T) {
	onFile(t, func(h *harness) {
		watch := &callingClock{Mock: h.clock}
		h.opts.Clock = watch
		h.reopen()
		c := &crowd{harness: h, s: h.session(nil)}
		h.must(c.during(3, func(tx *lockd.Txn) error {
			watch.read = func() {
				watch.read = nil
				panic(errOwn)
			}
			return nil
		}, c.tryLock))
		h.must(errors.Join(c.errs...))
		h.must(c.during(3, put, c.unlock))
		h.must(errors.Join(c.errs...))
	})
}

// Ensure that calls are decided although others wait for the database so long that each hands it on
// to the next, and it is never free.
func TestCombining_NeverFree(t *testing.T) {
	db, s := realDB(t)
	var over atomic.Bool
	var others, pairs sync.WaitGroup
	turn := make(chan struct{})
	for range 4 {
		others.Go(func() {
			for !over.Load() {
				_ = db.Update(func(*lockd.Txn) error {
					time.Sleep(2 * time.Millisecond) // as a slow function does
					select {
					case turn <- struct{}{}:
					default:
					}
					return nil
				})
			}
		})
	}
	pairs.Go(func() {
		for range 50 { // until then it may be free in between
			<-turn
		}
		for range 20 {
			lock, err := s.TryLock("k", nil)
			if err == nil {
				err = lock.Unlock()
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	done := make(chan struct{})
	go func() {
		pairs.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("calls are not decided while others have the database in turn")
	}
	over.Store(true)
	others.Wait()
	<-done
}

// Ensure that a crowd that runs as it comes, some of it refused, ends, with one holder at a time.
func TestCombining_Crowd(t *testing.T) {
	db, s := realDB(t)
	var holders [4]atomic.Int64
	var running sync.WaitGroup
	for worker := range 64 {
		running.Go(func() {
			for i := range 100 {
				key := (worker + i) % len(holders)
				lock, err := s.TryLock(fmt.Sprint(key), nil)
				if held := new(lockd.LockedError); errors.As(err, &held) {
					continue
				}
				if err == nil {
					if holders[key].Add(1) != 1 {
						t.Error("two hold one lock")
					}
					holders[key].Add(-1)
					err = lock.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if err := db.Err(); err != nil {
		t.Error(err)
	}
}

// realDB is a database in a file on the real clock, outside a bubble, and a session.
func realDB(t *testing.T) (*lockd.DB, *lockd.Session) {
	t.Helper()
	db, err := lockd.Open(filepath.Join(t.TempDir(), "lockd.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := db.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	return db, s
}

// callingClock has something done when it is read.
type callingClock struct {
	*clock.Mock
	read func()
}

func (c *callingClock) Now() time.Time {
	if c.read != nil {
		c.read()
	}
	return c.Mock.Now()
}

// Ensure that who serves others goes on with his own work after a while, if they come again and
// again: as those do who are refused, which is an answer at once.
func TestCombining_ServesForAWhile(t *testing.T) {
	onFile(t, func(h *harness) {
		watch := &callingClock{Mock: h.clock}
		h.opts.Clock = watch
		h.reopen()
		s := h.session(nil)
		h.lock(s, "held")
		h.settle()

		const calls = 100
		var made atomic.Int64
		var running sync.WaitGroup
		poll := func() {
			made.Add(1)
			running.Go(func() {
				var held *lockd.LockedError
				if _, err := s.TryLock("held", nil); !errors.As(err, &held) {
					t.Errorf("got %v, want that it is held", err)
				}
			})
			h.settle()
		}
		h.must(h.Update(func(*lockd.Txn) error {
			poll()
			watch.read = func() { // each of them comes while the one before is refused
				if made.Load() < calls {
					poll()
				}
			}
			return nil
		}))
		served := made.Load()
		running.Wait()
		if made.Load() != calls || served > calls/2 {
			t.Errorf("%d of %d calls were served by the first", served, made.Load())
		}
	})
}
