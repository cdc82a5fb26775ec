package lockdtest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// Ensure that a world knows events that break a promise about grants from those that keep it.
func TestExplore_JudgesGrants(t *testing.T) {
	const x, s = lockd.Exclusive, lockd.Shared
	start := time.Unix(0, 0)
	session := func(number byte) lockd.SessionInfo {
		return lockd.SessionInfo{ID: lockd.SessionID{15: number}, LockDelay: 15 * time.Second}
	}
	event := func(index uint64, mode lockd.LockMode, second int) lockd.Event {
		return lockd.Event{
			Index: index, Key: "k", Time: start.Add(time.Duration(second) * time.Second),
			Share: lockd.Sequencer{Key: "k", Mode: mode},
		}
	}
	granted := func(number byte, mode lockd.LockMode, index uint64, second int) lockd.Event {
		e := event(index, mode, second)
		e.Granted, e.Share.Fence = session(number), index
		return e
	}
	ended := func(number byte, mode lockd.LockMode, cause error, index uint64) lockd.Event {
		e := event(index, mode, 0)
		e.Ended, e.Cause = session(number), cause
		return e
	}
	soon := func(e lockd.Event) lockd.Event {
		e.Ended.LockDelay = 5 * time.Second
		return e
	}
	at := func(e lockd.Event, key string, index uint64) lockd.Event {
		e.Key, e.Share.Key, e.Index = key, key, index
		return e
	}
	for name, test := range map[string]struct {
		events []lockd.Event
		want   string
	}{
		"one after another": {[]lockd.Event{
			granted(1, x, 1, 0), ended(1, x, lockd.ErrUnlocked, 2), granted(2, x, 3, 0),
		}, ""},
		"two exclusively": {[]lockd.Event{granted(1, x, 1, 0), granted(2, x, 2, 0)}, "G1"},
		"two share":       {[]lockd.Event{granted(1, s, 1, 0), granted(2, s, 2, 0)}, ""},
		"a writer beside a reader": {
			[]lockd.Event{granted(1, s, 1, 0), granted(2, x, 2, 0)}, "G1",
		},
		"a reader beside a writer": {
			[]lockd.Event{granted(1, x, 1, 0), granted(2, s, 2, 0)}, "G1",
		},
		"a writer beside the second of two readers": {[]lockd.Event{
			granted(1, s, 1, 0), granted(2, s, 2, 0), ended(1, s, lockd.ErrUnlocked, 3),
			granted(3, x, 4, 0),
		}, "G1"},
		"a writer after both readers": {[]lockd.Event{
			granted(1, s, 1, 0), granted(2, s, 2, 0), ended(1, s, lockd.ErrUnlocked, 3),
			ended(2, s, lockd.ErrUnlocked, 4), granted(3, x, 5, 0),
		}, ""},
		"a reader within a writer's delay": {[]lockd.Event{
			granted(1, x, 1, 0), ended(1, x, lockd.ErrExpired, 2), granted(2, s, 3, 14),
		}, "G7"},
		"a writer within a reader's delay": {[]lockd.Event{
			granted(1, s, 1, 0), ended(1, s, lockd.ErrExpired, 2), granted(2, x, 3, 14),
		}, "G7"},
		"a reader within a reader's delay": {[]lockd.Event{
			granted(1, s, 1, 0), ended(1, s, lockd.ErrExpired, 2), granted(2, s, 3, 14),
		}, ""},
		"a writer within the longer delay of two readers": {[]lockd.Event{
			granted(1, s, 1, 0), granted(2, s, 2, 0), ended(1, s, lockd.ErrExpired, 3),
			soon(ended(2, s, lockd.ErrExpired, 4)), granted(3, x, 5, 14),
		}, "G7"},
		"after a delay": {[]lockd.Event{
			granted(1, x, 1, 0), ended(1, x, lockd.ErrExpired, 2), granted(2, x, 3, 15),
		}, ""},
		"after a delete of the key, which sets no delay": {[]lockd.Event{
			granted(1, x, 1, 0), ended(1, x, lockd.ErrKeyDeleted, 2), granted(2, x, 3, 0),
		}, ""},
		"a fence that falls": {[]lockd.Event{
			granted(1, x, 2, 0), ended(1, x, lockd.ErrUnlocked, 3), granted(2, x, 1, 0),
		}, "G8"},
		"a fence that stays": {[]lockd.Event{
			granted(1, x, 2, 0), ended(1, x, lockd.ErrUnlocked, 3), at(granted(2, x, 2, 0), "k", 4),
		}, "G8"},
		"a share's fence that stays": {[]lockd.Event{
			granted(1, s, 2, 0), at(granted(2, s, 2, 0), "k", 4),
		}, "G8"},
		"two shares of one transaction": {[]lockd.Event{
			granted(1, s, 2, 0), granted(2, s, 2, 0),
		}, ""},
		"a fence below another key's": {[]lockd.Event{
			granted(1, x, 3, 0), at(granted(2, x, 2, 0), "other", 4),
		}, "G8"},
		"two keys of one transaction": {[]lockd.Event{
			granted(1, x, 3, 0), at(granted(2, x, 3, 0), "other", 3),
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lockdtest.Judge(test.events...); got != test.want {
				t.Errorf("broken: got %q, want %q", got, test.want)
			}
		})
	}
}

// Ensure that a world expects of the next process what the file tells it of a lock: not the holder,
// but what is left of the lock-delay, and never more than its full length.
func TestExplore_G7_JudgesTheNextProcess(t *testing.T) {
	const delay = 15 * time.Second
	event := func(index uint64, at time.Duration) lockd.Event {
		return lockd.Event{Index: index, Key: "k", Time: time.Unix(0, 0).Add(at)}
	}
	granted := func(index uint64, at time.Duration) lockd.Event {
		e := event(index, at)
		e.Granted.ID, e.Share.Fence = lockd.SessionID{15: byte(index)}, index
		return e
	}
	lost := event(2, 0)
	lost.Ended, lost.Cause = lockd.SessionInfo{LockDelay: delay}, lockd.ErrExpired
	lost.Ended.ID[15] = 1
	for name, test := range map[string]struct {
		first        []lockd.Event // after a grant
		dies, begins time.Duration
		granted      time.Duration // by the next process
		want         string
	}{
		"held":           {nil, time.Second, time.Second, time.Second, ""},
		"within a delay": {[]lockd.Event{lost}, time.Second, time.Second, delay - 1, "G7"},
		"after a delay":  {[]lockd.Event{lost}, time.Second, time.Second, delay, ""},
		"set back after a delay": {
			[]lockd.Event{lost}, delay, time.Second, 2 * time.Second, "",
		},
		"set back within a delay": {
			[]lockd.Event{lost}, delay - 1, time.Second, delay - 1, "G7",
		},
		"set back to before a delay, and within it": {
			[]lockd.Event{lost}, time.Second, -5 * time.Second, delay - 5*time.Second - 1, "G7",
		},
		"set back to before a delay, and after it": {
			[]lockd.Event{lost}, time.Second, -5 * time.Second, delay - 5*time.Second, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := append([]lockd.Event{granted(1, 0)}, test.first...)
			next := []lockd.Event{granted(3, test.granted)}
			got := lockdtest.JudgeProcesses(first, test.dies, test.begins, next)
			if got != test.want {
				t.Errorf("broken: got %q, want %q", got, test.want)
			}
		})
	}
}

// Ensure that a world knows a lock that a call must not return from one that it may: beside the
// lock that another call has returned, before it is published, and ahead of a call that has waited
// for longer. It also knows that the end of a lock has to be told when that is published.
func TestExplore_JudgesReturns(t *testing.T) {
	type returned = lockdtest.Returned
	const x, s = lockd.Exclusive, lockd.Shared
	for name, test := range map[string]struct {
		mode     lockd.LockMode // in which another session has the lock of key k
		returned returned
		want     string
	}{
		"a writer beside a writer":  {x, returned{Key: "k"}, "G1"},
		"a reader beside a writer":  {x, returned{Key: "k", Shared: true}, "G1"},
		"a writer beside a reader":  {s, returned{Key: "k"}, "G1"},
		"a reader beside a reader":  {s, returned{Key: "k", Shared: true}, ""},
		"another key":               {x, returned{Key: "other"}, ""},
		"lost on its way":           {x, returned{Key: "k", Lost: lockd.ErrExpired}, ""},
		"not published":             {x, returned{Key: "other", Unpublished: true}, "G3"},
		"a writer ahead of another": {x, returned{Key: "awaited"}, "G9"},
		"lost, and not told":        {x, returned{Key: "other", Gone: true}, "G10"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := &lockdtest.ExploreOptions{Schedules: 1, Without: noFaults}
			found := lockdtest.Search(t, opts, func(w *lockdtest.World) {
				session := func() *lockd.Session {
					s, err := w.DB().NewSession(nil)
					if err != nil {
						w.Errorf("%v", err)
					}
					return s
				}
				holder, waiter := session(), session()
				if _, err := holder.TryLock("k", &lockd.LockOptions{Mode: test.mode}); err != nil {
					w.Errorf("%v", err)
				}
				// A lock without a handle, so that no call has returned it.
				if err := w.DB().Update(func(tx *lockd.Txn) error {
					_, err := tx.Lock("awaited", holder.ID(), nil)
					return err
				}); err != nil {
					w.Errorf("%v", err)
				}
				w.Go("waits", func() { _, _ = waiter.Lock(context.Background(), "awaited", nil) })
				w.Await(func() bool { return len(w.DB().MostAwaited(1)) == 1 })
				w.Return(session().ID(), test.returned)
				_ = holder.Close()
			})
			if (found.Text == "") != (test.want == "") ||
				!strings.HasPrefix(found.Text, "lockdtest: "+test.want) && test.want != "" {
				t.Errorf("want %q, found %q", test.want, found.Text)
			}
		})
	}
}

// Ensure that a world knows every lock and slot that a call has returned, whatever call it was: it
// takes a second holder for a broken promise.
func TestExplore_G1_KnowsWhatCallsReturned(t *testing.T) {
	type session = *lockd.Session
	ctx := context.Background()
	for name, test := range map[string]struct {
		key  string // that the session has then; the key of a slot ends with the session's ID
		take func(w *lockdtest.World, s, other session) error
	}{
		"TryLock": {"k", func(_ *lockdtest.World, s, _ session) error {
			_, err := s.TryLock("k", nil)
			return err
		}},
		"Lock": {"k", func(_ *lockdtest.World, s, _ session) error {
			_, err := s.Lock(ctx, "k", nil)
			return err
		}},
		"Lock that waits": {"k", func(w *lockdtest.World, s, other session) (err error) {
			first, err := other.TryLock("k", nil)
			if err != nil {
				return err
			}
			w.Go("unlocks", func() {
				w.Await(func() bool { return w.DB().Stats().Waiters == 1 })
				_ = first.Unlock()
			})
			_, err = s.Lock(ctx, "k", nil)
			return err
		}},
		"LockAll": {"b", func(_ *lockdtest.World, s, _ session) error {
			_, err := s.LockAll(ctx, []string{"a", "b"}, nil)
			return err
		}},
		"TryAcquire": {"pool/", func(_ *lockdtest.World, s, _ session) error {
			_, err := s.TryAcquire("pool", 1)
			return err
		}},
		"Acquire": {"pool/", func(_ *lockdtest.World, s, _ session) error {
			_, err := s.Acquire(ctx, "pool", 1)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := &lockdtest.ExploreOptions{Schedules: 1, Without: noFaults}
			found := lockdtest.Search(t, opts, func(w *lockdtest.World) {
				s, err1 := w.DB().NewSession(nil)
				other, err2 := w.DB().NewSession(nil)
				if err := errors.Join(err1, err2, test.take(w, s, other)); err != nil {
					w.Errorf("%v", err)
				}
				key := test.key
				if strings.HasSuffix(key, "/") {
					key += s.ID().String()
				}
				w.Return(other.ID(), lockdtest.Returned{Key: key})
			})
			if !strings.HasPrefix(found.Text, "lockdtest: G1: ") {
				t.Errorf("want G1, found %q", found.Text)
			}
		})
	}
}

// Ensure that a lock-delay that is over stays over for a world whose process dies while the wall
// clock is set back: the next process may grant the lock (S34).
func TestExplore_S34_DelayThatIsOver(t *testing.T) {
	session := func(w *lockdtest.World, name string) *lockd.Session {
		s, _ := w.DB().NewSession(&lockd.SessionOptions{
			Name: name, TTL: 10 * time.Second, LockDelay: 5 * time.Second,
		})
		return s
	}
	opts := &lockdtest.ExploreOptions{Schedules: 3000, Changes: 1}
	found := lockdtest.Search(t, opts, func(w *lockdtest.World) {
		s := session(w, "lost")
		if s == nil {
			return
		}
		_, _ = s.TryLock("k", nil)
		_ = w.DB().EndSession(s.ID())
		w.Sleep(6 * time.Second)
		_, _ = w.DB().Put("other", nil, nil) // the row of the delay goes with it
		w.Restart(func() {
			if s := session(w, "next"); s != nil {
				_, _ = s.Lock(context.Background(), "k", nil)
			}
		})
		w.Yield()
	})
	if found.Text != "" {
		t.Error(found.Text)
	}
}

// Ensure that a world takes it for no fault that a holder has passed a call for several locks, and
// those behind it, when that call's context has ended meanwhile (R13).
func TestExplore_R13_PassedAndGaveUp(t *testing.T) {
	opts := &lockdtest.ExploreOptions{Schedules: 300, Without: lockdtest.FailedCommits}
	found := lockdtest.Search(t, opts, func(w *lockdtest.World) {
		lock := func(ctx context.Context, keys ...string) {
			s, err := w.DB().NewSession(nil)
			if err != nil {
				return
			}
			locks, err := s.LockAll(ctx, keys, nil)
			if err != nil {
				return
			}
			w.Sleep(time.Second)
			_, _ = s.TryLock("b", nil)
			_ = locks[0].Unlock()
			_ = s.Close()
		}
		w.Go("holds", func() { lock(context.Background(), "a") })
		w.Go("several", func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			lock(ctx, "a", "b")
		})
		w.Go("passed", func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			lock(ctx, "b")
		})
	})
	if found.Text != "" {
		t.Error(found.Text)
	}
}

// Ensure that the command which repeats a failure finds the test, whatever its name is, and no
// other test: go test matches each part of a name alone.
func TestExplore_CommandOfAnyName(t *testing.T) {
	t.Run("2 of 3 (a+b) [it's]", func(t *testing.T) {
		found := lockdtest.Search(t, nil, func(w *lockdtest.World) { w.Errorf("found") })
		_, command, _ := strings.Cut(found.Text, "Again: go test -run '")
		pattern, _, _ := strings.Cut(command, "' -lockdtest.seed=")
		parts, names := strings.Split(pattern, "/"), strings.Split(t.Name(), "/")
		if len(parts) != len(names) || strings.Contains(pattern, "'") {
			t.Fatalf("the pattern %q is not one of %q", pattern, t.Name())
		}
		for i, name := range names {
			for _, text := range []string{name, name + "2", "a" + name} {
				is, err := regexp.MatchString(parts[i], text)
				if err != nil || is != (text == name) {
					t.Errorf("the pattern %q matches %q: %t, %v", parts[i], text, is, err)
				}
			}
		}
	})
}

// Ensure that a call which takes over a share of its session, ahead of a writer that waits, is not
// taken for one that overtakes, although another session has a newer share.
func TestExplore_R7_TakesOverAnOlderShare(t *testing.T) {
	shared := &lockd.LockOptions{Mode: lockd.Shared}
	lockdtest.Explore(t, &lockdtest.ExploreOptions{Schedules: 300}, func(w *lockdtest.World) {
		db, took := w.DB(), false
		older, err1 := db.NewSession(nil)
		newer, err2 := db.NewSession(nil)
		if err1 != nil || err2 != nil {
			return
		}
		for _, s := range []*lockd.Session{older, newer} {
			if db.Update(func(tx *lockd.Txn) error {
				_, err := tx.Lock("k", s.ID(), shared)
				return err
			}) != nil {
				return
			}
		}
		w.Go("writer", func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if s, err := db.NewSession(nil); err == nil {
				_, _ = s.Lock(ctx, "k", nil)
			}
		})
		w.Go("reader", func() {
			w.Sleep(time.Second)
			_, err := older.Lock(context.Background(), "k", shared)
			took = err == nil || errors.Is(err, lockd.ErrCommit)
		})
		w.Await(func() bool { return took })
	})
}

// Ensure that the same holds for a grant of the process before, of which nobody was told.
func TestExplore_R7_TakesOverFromTheProcessBefore(t *testing.T) {
	opts := &lockd.SessionOptions{Lifetime: lockd.Independent, TTL: time.Hour}
	lockdtest.Explore(t, &lockdtest.ExploreOptions{Schedules: 2000}, func(w *lockdtest.World) {
		s, err := w.DB().NewSession(opts)
		w.Restart(func() {
			db := w.DB()
			w.Go("waiter", func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if s, err := db.NewSession(nil); err == nil {
					_, _ = s.Lock(ctx, "k", nil)
				}
			})
			w.Go("owner", func() {
				w.Sleep(time.Second)
				for s := range db.Sessions() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					_, _ = s.Lock(ctx, "k", nil)
					cancel()
				}
			})
		})
		if err == nil {
			_ = w.DB().Update(func(tx *lockd.Txn) error {
				_, err := tx.Lock("k", s.ID(), nil)
				return err
			})
		}
	})
}

// Ensure that a state of the database that is not consistent fails the schedule when the body has
// ended.
func TestExplore_ChecksTheState(t *testing.T) {
	opts := &lockdtest.ExploreOptions{Schedules: 1}
	found := lockdtest.Search(t, opts, func(w *lockdtest.World) {
		w.FeignBug(errors.New("a row is missing"))
		_ = put1(w.DB(), 1)
	})
	if !strings.HasPrefix(found.Text, "lockdtest: state: a row is missing\n") {
		t.Errorf("got %q", found.Text)
	}
}

// Ensure that a commit that is under way when the process dies is lost in one schedule and in the
// file in another, without an answer in either, and that there is no other difference.
func TestExplore_DiesDuringACommit(t *testing.T) {
	written := func(seed string) (there bool) {
		lockdtest.Replay(t, seed, func(w *lockdtest.World) {
			answered := false
			w.Restart(func() {
				if _, there = w.DB().Get("counter"); !there && answered {
					w.Errorf("an answered write is lost")
				}
			})
			answered = put1(w.DB(), 1) == nil
		})
		return there
	}
	differ := 0
	for step := 1; step < 10; step++ {
		without := written(fmt.Sprintf("0.d%d", step))
		switch with := written(fmt.Sprintf("0.w%d", step)); {
		case without && !with:
			t.Errorf("step %d: the write is there only if the commit under way is lost", step)
		case without != with:
			differ++
		}
	}
	if differ != 1 {
		t.Errorf("the commit is under way in %d steps, want 1", differ)
	}
}
