package lockd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"pgregory.net/rapid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

// Ensure that locks are granted in the order in which their waiters began to wait, whatever else
// goes on: waiters give up, sessions end, locks are delayed, keys deleted, commits fail, and other
// calls try to take the lock; and that no waiter that stays waits for ever. Only a session that
// held another lock, as the events tell, may have passed a call for several.
func TestG9_OrderUnderEverything(t *testing.T) {
	programs := "60"
	if raced { // in so many, too, the goroutines meet often
		programs = "20"
	}
	setFlag(t, "rapid.checks", programs)
	setFlag(t, "rapid.steps", "80")
	for name, dir := range map[string]string{"Memory": "", "File": t.TempDir()} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			rapid.SyncTest(t, func(t *rapid.T) { newRivals(t, dir).run() })
		}))
	}
}

// rivals are the waiters for two locks, in the order in which they began to wait.
type rivals struct {
	t        *rapid.T
	db       *lockd.DB
	clock    *clock.Mock
	inside   *hook.Clock // on the clock
	file     bool
	failures atomic.Int64 // how many of the next commits fail
	sessions []*lockd.Session
	places   []*place

	mu     sync.Mutex
	events []lockd.Event // of the locks; mu protects it
}

// place is one call of Lock or LockAll.
type place struct {
	session *lockd.Session
	keys    []string
	began   uint64 // the index at that time
	cancel  context.CancelFunc
	done    chan struct{}
	locks   []*lockd.Lock // valid once done is closed, as err
	err     error
}

func (p *place) returned() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// holds reports whether the call got its locks, and still has one.
func (p *place) holds() bool {
	return p.returned() && slices.ContainsFunc(p.locks, func(l *lockd.Lock) bool {
		return l.Err() == nil
	})
}

func newRivals(t *rapid.T, dir string) *rivals {
	w := &rivals{t: t, clock: clock.NewMock()}
	w.inside = probe(w.clock, store.Hooks{BeforeCommit: func() error {
		if w.failures.Load() == 0 {
			return nil
		}
		w.failures.Add(-1)
		return errors.New("disk is full")
	}})
	opts := &lockd.Options{Clock: w.inside}
	var err error
	if dir == "" {
		w.db, err = lockd.New(opts)
	} else {
		w.file = true
		sub, failed := os.MkdirTemp(dir, "")
		if failed != nil {
			t.Fatal(failed)
		}
		t.Cleanup(func() { os.RemoveAll(sub) })
		w.db, err = lockd.Open(filepath.Join(sub, "lockd.db"), opts)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go w.watch(ctx)
	t.Cleanup(func() {
		stop()
		w.failures.Store(0)
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
		for _, p := range w.places {
			p.cancel()
			<-p.done
		}
	})
	return w
}

func (w *rivals) watch(ctx context.Context) {
	for e, err := range w.db.Watch(ctx, lockd.PrefixScope(""), 0) {
		if err != nil {
			return // the test is over
		}
		w.mu.Lock()
		w.events = append(w.events, e)
		w.mu.Unlock()
	}
}

// lineKeys are the locks; some calls wait for both.
var lineKeys = [][]string{{"k"}, {"k", "l"}, {"l"}, {"l", "k"}, {"k"}}

// run makes a random schedule, and then lets every waiter have a turn.
func (w *rivals) run() {
	w.t.Repeat(map[string]func(*rapid.T){
		"":        w.check,
		"Abandon": w.giveUp,
		"Begin": func(t *rapid.T) {
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				w.begin(w.session(t), pick(t, lineKeys))
			}
		},
		"Cede": w.unlock,
		"Clock": func(t *rapid.T) {
			w.clock.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
		},
		"Delete": func(t *rapid.T) { _, _ = w.db.Delete(pick(t, lineKeys)[0]) },
		"End":    w.end,
		"Fail": func(t *rapid.T) {
			w.failures.Store(int64(rapid.IntRange(1, 3).Draw(t, "commits")))
		},
		"Outside": w.outside,
	})
	w.drain()
}

func pick[T any](t *rapid.T, from []T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, "which")]
}

// session picks a session, or makes one more.
func (w *rivals) session(t *rapid.T) *lockd.Session {
	live := slices.DeleteFunc(slices.Clone(w.sessions), func(s *lockd.Session) bool {
		return s.Err() != nil
	})
	n := rapid.IntRange(0, 3).Draw(t, "session")
	if n < len(live) {
		return live[n]
	}
	for {
		s, err := w.db.NewSession(&lockd.SessionOptions{
			TTL: []time.Duration{0, 20 * time.Second}[n%2], LockDelay: 5 * time.Second,
			Behavior: lockd.Behavior(n / 2),
		})
		if err == nil {
			w.sessions = append(w.sessions, s)
			return s
		} // else its commit failed, as few do
	}
}

func (w *rivals) begin(s *lockd.Session, keys []string) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &place{
		session: s, keys: keys, began: w.db.Stats().Index, cancel: cancel,
		done: make(chan struct{}),
	}
	go func() {
		defer close(p.done)
		p.locks, p.err = s.LockAll(ctx, keys, nil)
	}()
	synctest.Wait()
	w.places = append(w.places, p)
}

// choose picks one of the places for which from is true, or returns nil.
func (w *rivals) choose(t *rapid.T, from func(p *place) bool) *place {
	var all []*place
	for _, p := range w.places {
		if from(p) {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return pick(t, all)
}

func (w *rivals) giveUp(t *rapid.T) {
	if p := w.choose(t, func(p *place) bool { return !p.returned() }); p != nil {
		p.cancel()
	}
}

func (w *rivals) unlock(t *rapid.T) {
	if p := w.choose(t, (*place).holds); p != nil {
		for _, l := range p.locks {
			_ = l.Unlock() // it may have been lost, or fail
		}
	}
}

func (w *rivals) end(t *rapid.T) {
	s := w.session(t)
	if rapid.Bool().Draw(t, "by its owner") {
		_ = s.Close()
		return
	}
	_ = w.db.EndSession(s.ID())
}

// outside tries to take a lock at once. That may succeed only if no call waits for the lock.
func (w *rivals) outside(t *rapid.T) {
	s, key := w.session(t), pick(t, lineKeys)[0]
	synctest.Wait()
	before := w.entry(key)
	var err error
	if rapid.Bool().Draw(t, "in a transaction") {
		err = w.db.Update(func(tx *lockd.Txn) error {
			before, _ = tx.Get(key) // what was due has been done by now
			_, err := tx.Lock(key, s.ID(), nil)
			return err
		})
	} else {
		_, err = s.TryLock(key, nil)
	}
	waiting, after := w.inside.Controls.Waiters(key), w.entry(key)
	synctest.Wait()
	if err == nil && waiting > 0 && before.Session != s.ID() &&
		!w.mayPass(s, []string{key}, after.Fence, w.places) {
		w.t.Fatalf("%q was taken, but %d are waiting for it", key, waiting)
	}
	if err == nil && after.Session == s.ID() {
		_ = w.db.Update(func(tx *lockd.Txn) error { // it has no handle
			_, err := tx.Unlock(key, s.ID())
			return err
		})
	}
}

func (w *rivals) entry(key string) lockd.Entry {
	e, _ := w.db.Get(key)
	return e
}

// check compares every two calls for the same lock.
func (w *rivals) check(t *rapid.T) {
	synctest.Wait()
	for i, first := range w.places {
		for _, second := range w.places[i+1:] {
			keys, fence := second.granted()
			_, before := first.granted()
			if !share(first.keys, keys) || first.returned() && before < fence ||
				w.mayPass(second.session, keys, fence, w.places[:i+1]) { // last: it takes longest
				continue
			}
			if !first.returned() {
				t.Fatalf("%q was granted to one, and another has waited longer for %q",
					second.keys, first.keys)
			}
			t.Fatalf("%q was granted with fence %d, and %q before it with fence %d",
				first.keys, before, second.keys, fence)
		}
	}
	if !w.file {
		w.checkMoving(t)
	}
}

// mayPass reports whether a grant of the keys to the session may have passed the calls that began
// before: one of them is a call for several locks, and the session held another one at the grant.
// The call that was granted that other lock may have given up since.
func (w *rivals) mayPass(
	s *lockd.Session, keys []string, fence uint64, before []*place,
) bool {
	return slices.ContainsFunc(before, func(q *place) bool {
		return len(q.keys) > 1 && share(q.keys, keys)
	}) && w.heldAnother(s.ID(), keys, fence)
}

// heldAnother reports whether the session held another lock after the transaction with the index.
func (w *rivals) heldAnother(id lockd.SessionID, keys []string, index uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(map[string]bool)
	for _, e := range w.events {
		if e.Index > index || slices.Contains(keys, e.Key) {
			continue
		}
		if e.Ended.ID == id {
			delete(held, e.Key)
		}
		if e.Granted.ID == id {
			held[e.Key] = true
		}
	}
	return len(held) > 0
}

// checkMoving finds calls that wait although they are first in every queue, and nothing is in their
// way. After a failed commit that is so until the next try.
func (w *rivals) checkMoving(t *rapid.T) {
	ahead := map[string]bool{}
	for _, p := range w.places {
		if p.returned() {
			continue
		}
		first, free := true, true
		for _, key := range p.keys {
			first = first && !ahead[key]
			free = free && w.entry(key).Session.IsZero() && !w.delayed(key)
			ahead[key] = true
		}
		if first && free {
			t.Fatalf("one waits for %q, which is free", p.keys)
		}
	}
}

func (w *rivals) delayed(key string) bool {
	err := w.db.Update(func(tx *lockd.Txn) error {
		_, err := tx.Lock(key, lockd.SessionID{}, nil)
		return err
	})
	var locked *lockd.LockedError
	return errors.As(err, &locked) && locked.Obstacle == lockd.ObstacleDelay
}

// granted returns what the call was granted, and with which fence. A lock that its session had
// before, without a handle, was not granted to it.
func (p *place) granted() (keys []string, fence uint64) {
	if !p.returned() {
		return nil, 0
	}
	for _, l := range p.locks {
		if grant := l.Sequencer(); grant.Fence > p.began {
			keys, fence = append(keys, grant.Key), grant.Fence
		}
	}
	return keys, fence
}

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(key string) bool { return slices.Contains(b, key) })
}

// drain releases what is held until no call waits.
func (w *rivals) drain() {
	w.failures.Store(0)
	if _, err := w.db.Put("other", []byte("a write that succeeds"), nil); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	w.checkMoving(w.t)
	for range 2*len(w.places) + 2 {
		for _, p := range w.places {
			if p.holds() {
				for _, l := range p.locks {
					if err := l.Unlock(); err != nil && !errors.Is(err, lockd.ErrNotHeld) {
						w.t.Fatalf("unlock: %v", err)
					}
				}
			}
		}
		w.clock.Add(2 * time.Minute) // longer than any delay, and any backoff
		w.check(w.t)
	}
	for _, p := range w.places {
		if !p.returned() {
			w.t.Fatalf("one still waits for %q, which nobody holds", p.keys)
		}
	}
}
