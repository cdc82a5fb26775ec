package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockd/lockd"
)

// The part of the crash test that is about shared locks: what a child does with them, and what its
// parent checks.

// shareKeys are the keys of their locks. Shares of the first are kept for a while.
var shareKeys = []string{"share/0", "share/1"}

// share takes a share of a lock, or downgrades an exclusive lock, and lets go of the share in one
// way or another. It never waits for an exclusive lock, because a writer keeps shares.
func (w *crashWriter) share() error {
	s, err := w.begin()
	if err != nil {
		return err
	}
	key := shareKeys[w.random.IntN(len(shareKeys))]
	var lock *lockd.Lock
	if w.random.IntN(3) > 0 {
		lock, err = s.Lock(context.Background(), key, &lockd.LockOptions{Mode: lockd.Shared})
	} else {
		lock, err = w.downgraded(s, key)
	}
	if _, refused := errors.AsType[*lockd.LockedError](err); refused {
		return nil
	}
	if err != nil {
		return err
	}
	report("shared %v", lock.Sequencer())
	w.kept = append(w.kept, lock)
	switch {
	case key == shareKeys[0] && len(w.kept) < 3:
		return nil // for a while
	case w.random.IntN(3) == 0:
		return w.end()
	}
	return w.unshare()
}

// downgraded takes the lock exclusively, and downgrades it.
func (w *crashWriter) downgraded(s *lockd.Session, key string) (*lockd.Lock, error) {
	lock, err := s.TryLock(key, nil)
	if err != nil {
		return nil, err
	}
	report("locked %s %d %v", key, lock.Sequencer().Fence, s.ID())
	report("releasing %s", key)
	return lock, lock.Downgrade()
}

// unshare lets go of all shares.
func (w *crashWriter) unshare() (err error) {
	for _, lock := range w.kept {
		report("unsharing %v", lock.Sequencer())
		err = errors.Join(err, lock.Unlock())
	}
	w.kept = nil
	return err
}

// forsake says that all shares are on their way out with their session.
func (w *crashWriter) forsake() {
	for _, lock := range w.kept {
		report("unsharing %v", lock.Sequencer())
	}
	w.kept = nil
}

// shared takes in the report of a share.
func (c *crashed) shared(text string) error {
	q, err := lockd.ParseSequencer(text)
	if err != nil {
		return err
	}
	if other, held := c.holder[q.Key]; held {
		return fmt.Errorf("session %v holds it alone", other)
	}
	if q.Fence <= c.alone[q.Key] {
		return fmt.Errorf("the fence of the exclusive holder before was %d", c.alone[q.Key])
	}
	c.shares[q] = true
	c.fences[q.Key] = max(c.fences[q.Key], q.Fence)
	c.index = max(c.index, q.Fence)
	return nil
}

// unsharing takes in the report that a share is on its way out.
func (c *crashed) unsharing(text string) error {
	q, err := lockd.ParseSequencer(text)
	delete(c.shares, q)
	return err
}

// sharedBy returns an error if a share of the key's lock cannot be on its way out.
func (c *crashed) sharedBy(key string) error {
	for q := range c.shares {
		if q.Key == key {
			return fmt.Errorf("it is shared: %v", q)
		}
	}
	return nil
}

// checkShares checks that every share that was reported is in the file, and proves its lock.
func (c *crashed) checkShares(db *lockd.DB, left *lockd.Snapshot) {
	c.t.Helper()
	c.found += len(c.shares)
	for q := range c.shares {
		if !slices.Contains(grantsOf(left, q.Key), q) {
			c.t.Errorf("share %v: in the file %v", q, grantsOf(left, q.Key))
		}
		if err := db.CheckSequencer(q); err != nil {
			c.t.Errorf("share %v: %v", q, err)
		}
	}
}

func grantsOf(s *lockd.Snapshot, key string) (grants []lockd.Sequencer) {
	for holder := range s.Holders(key) {
		grants = append(grants, holder.Grant)
	}
	return grants
}

// checkSharesEnd checks what the next Open makes of shares: those of bound sessions have ended,
// with a delay that keeps out exclusive requests only, and the others can be taken over, each once.
func (c *crashed) checkSharesEnd(db *lockd.DB, left *lockd.Snapshot) {
	c.t.Helper()
	probe := c.session(db)
	now := db.Snapshot()
	toShare := &lockd.LockOptions{Mode: lockd.Shared}
	for _, key := range shareKeys {
		var kept, lost []lockd.Sequencer
		for holder := range left.Holders(key) {
			if holder.Session.Lifetime == lockd.Independent {
				kept = append(kept, holder.Grant)
			} else {
				lost = append(lost, holder.Grant)
			}
		}
		if got := grantsOf(now, key); !slices.Equal(got, kept) {
			c.t.Errorf("%s: held by %v, want %v", key, got, kept)
		}
		if len(kept)+len(lost) == 0 || (append(kept, lost...))[0].Mode == lockd.Exclusive {
			continue
		}
		_, err := probe.TryLock(key, nil)
		refusal, _ := errors.AsType[*lockd.LockedError](err)
		want := lockd.ObstacleDelay
		if len(lost) == 0 {
			want = lockd.ObstacleHolder
		}
		if refusal == nil || refusal.Obstacle != want {
			c.t.Errorf("%s, lost %v, kept %v: got %v", key, lost, kept, err)
		}
		lock, err := probe.TryLock(key, toShare)
		if err != nil {
			c.t.Errorf("%s: a reader after a lost reader: %v", key, err)
		} else if err := lock.Unlock(); err != nil {
			c.t.Error(err)
		}
		var taken []lockd.Sequencer
		for _, q := range kept {
			s, err := db.Session(q.Session)
			if err != nil {
				c.t.Fatal(err)
			}
			lock, err := s.TryLock(key, toShare)
			if err != nil {
				c.t.Fatalf("take over %v: %v", q, err)
			}
			taken = append(taken, lock.Sequencer())
			c.taken++
		}
		order := func(a, b lockd.Sequencer) int { return strings.Compare(a.String(), b.String()) }
		slices.SortFunc(taken, order)
		slices.SortFunc(kept, order)
		if !slices.Equal(taken, kept) {
			c.t.Errorf("%s: taken over %v, want %v", key, taken, kept)
		}
	}
}
