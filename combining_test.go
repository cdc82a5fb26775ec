package lockd_test

import (
	"errors"
	"fmt"
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
// ride in one commit, whatever became of the one that had it (G9).
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
