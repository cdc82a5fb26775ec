package lockdtest_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

const year = 365 * 24 * time.Hour

// lockers returns a body with two goroutines that take one lock, in sessions with that TTL.
func lockers(ttl time.Duration, unlocks bool) func(w *lockdtest.World) {
	return func(w *lockdtest.World) {
		for _, name := range []string{"ann", "bob"} {
			w.Go(name, func() {
				s, err := w.DB().NewSession(&lockd.SessionOptions{Name: name, TTL: ttl})
				if err != nil {
					return
				}
				l, err := s.Lock(context.Background(), "k", nil)
				if err == nil && unlocks {
					for errors.Is(l.Unlock(), lockd.ErrCommit) {
					}
				}
			})
		}
	}
}

// Ensure that a deadline which the bubble's clock cannot show is never reached, in no schedule: who
// waits for it waits for ever, and all others go on.
func TestExplore_DeadlinesForEver(t *testing.T) {
	for _, test := range []struct {
		name string
		want string // of the failure; empty: none
		body func(w *lockdtest.World)
	}{
		{"TTL", "", lockers(math.MaxInt64, true)},
		{"TTL of 100 years", "", lockers(100*year, true)},
		{"TTL, no Unlock", "these wait for ever: bob for the lock of k",
			lockers(math.MaxInt64, false)},
		{"Sleep", "these wait for ever: body for the end of its sleep", func(w *lockdtest.World) {
			w.Sleep(math.MaxInt64)
		}},
		{"Sleep beside KeepAlive", "body for the end of its sleep", func(w *lockdtest.World) {
			if s, err := w.DB().NewSession(nil); err == nil {
				w.Go("alive", func() { _ = s.KeepAlive(context.Background()) })
				w.Sleep(math.MaxInt64)
			}
		}},
		{"MaxHold", "", func(w *lockdtest.World) {
			if s, err := w.DB().NewSession(nil); err == nil {
				opts := &lockd.LockOptions{MaxHold: math.MaxInt64}
				_, _ = s.Lock(context.Background(), "k", opts)
				w.Sleep(time.Minute)
			}
		}},
	} {
		opts := &lockdtest.ExploreOptions{Schedules: 200}
		got := lockdtest.Search(t, opts, test.body).Text
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// Ensure that a schedule has as much time as the ones before it, however long they took.
func TestExplore_SchedulesOfYears(t *testing.T) {
	opts := &lockdtest.ExploreOptions{Schedules: 300}
	lockdtest.Explore(t, opts, func(w *lockdtest.World) { w.Sleep(10 * year) })
	runs := 0
	found := lockdtest.Search(t, opts, func(w *lockdtest.World) {
		w.Sleep(10 * year)
		if runs++; runs > 100 {
			w.Errorf("the answer is 42")
		}
	})
	if !strings.Contains(found.Text, "the answer is 42") {
		t.Errorf("got %q", found.Text)
	}
}

// Ensure that a wait which has a far end is not said to last for ever, where so much happens
// meanwhile that the schedule does not come to it.
func TestExplore_WaitTooLong(t *testing.T) {
	opts := &lockdtest.ExploreOptions{Schedules: 1}
	found := lockdtest.Search(t, opts, func(w *lockdtest.World) {
		holder, err := w.DB().NewSession(&lockd.SessionOptions{TTL: 15 * time.Second})
		if err != nil {
			return
		}
		w.Go("alive", func() { _ = holder.KeepAlive(context.Background()) })
		s, err := w.DB().NewSession(&lockd.SessionOptions{TTL: 48 * time.Hour})
		if err != nil {
			return
		}
		w.Sleep(time.Minute) // is not part of the wait
		if _, err := holder.TryLock("k", nil); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
			defer cancel()
			_, _ = s.Lock(ctx, "k", nil)
		}
	})
	const want = "wait: nothing has gone on for 2h5m0s of the clock, in 1000 steps; these wait: " +
		"body for the lock of k; alive for the end of the session"
	if !strings.Contains(found.Text, want) {
		t.Errorf("got %q, want %q", found.Text, want)
	}
}

// Ensure that a context runs by the clock in a process too before which the wall clock was set
// back: a call waits for as long as its context says, and not for as long as the clock was set.
func TestExplore_ClockAfterItWasSetBack(t *testing.T) {
	waited := time.Duration(0)
	found := lockdtest.Replay(t, "0.b4", func(w *lockdtest.World) {
		w.Restart(func() {
			holder, err1 := w.DB().NewSession(nil)
			waiter, err2 := w.DB().NewSession(nil)
			if errors.Join(err1, err2) != nil {
				return
			}
			if _, err := holder.TryLock("k", nil); err != nil {
				w.Errorf("%v", err)
			}
			began := w.Clock().Now()
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			if _, err := waiter.Lock(ctx, "k", nil); !errors.Is(err, context.DeadlineExceeded) {
				w.Errorf("%v", err)
			}
			waited = w.Clock().Now().Sub(began)
		})
		_, _ = w.DB().NewSession(&lockd.SessionOptions{LockDelay: time.Minute})
		w.Yield()
	})
	if waited < 3*time.Second || waited > 3*time.Second+100*time.Millisecond {
		t.Errorf("waited for %v:\n%s", waited, found.Text)
	}
}
