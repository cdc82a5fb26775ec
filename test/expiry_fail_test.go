package lockd_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// failing opens the file with a hook that fails as many commits as the number that it returns.
func failing(h *harness) (commits *int) {
	h.t.Helper()
	commits = new(int)
	h.hook(store.Hooks{BeforeCommit: func() error {
		if *commits == 0 {
			return nil
		}
		*commits--
		return errors.New("disk is full")
	}})
	return commits
}

// Ensure that, once commits succeed again, a session ends at its very instant, although the timer
// was set for the next try of an expiry that had failed.
func TestS26S29_OnTimeAfterTheRecovery(t *testing.T) {
	onFile(t, func(h *harness) {
		fail := failing(h)
		first := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		second := h.session(&lockd.SessionOptions{TTL: 10500 * time.Millisecond})
		*fail = 1
		h.advance(10 * time.Second) // to be tried again after 1 s
		if first.Err() != nil {
			t.Fatalf("the commit failed, but the session has ended: %v", first.Err())
		}
		_, err := h.Put("k", []byte("v"), nil)
		h.must(err)
		if !errors.Is(first.Err(), lockd.ErrExpired) {
			t.Fatalf("after the next write: got %v", first.Err())
		}
		h.advance(500 * time.Millisecond)
		if !errors.Is(second.Err(), lockd.ErrExpired) {
			t.Fatalf("at its deadline: got %v, want that it has expired", second.Err())
		}
	})
}

// Ensure that sessions end in the order of their deadlines, also those that were renewed, if
// several are due by the time at which they can be ended.
func TestS26S29_LateEndsAreInOrder(t *testing.T) {
	onFile(t, func(h *harness) {
		fail := failing(h)
		h.session(&lockd.SessionOptions{Name: "at 7 s", TTL: 7 * time.Second})
		renewed := h.session(&lockd.SessionOptions{Name: "at 13 s", TTL: 11 * time.Second})
		h.session(&lockd.SessionOptions{Name: "at 12 s", TTL: 12 * time.Second})
		from := h.Snapshot().Index()
		h.advance(2 * time.Second)
		h.must(renewed.Renew())
		*fail = 3 // at 7 s, at 8 s, and at 10 s
		h.advance(12*time.Second - 1)
		if n := h.Snapshot().Index(); n != from || *fail != 0 {
			t.Fatalf("before 14 s: at index %d, %d commits are still to fail", n, *fail)
		}
		h.advance(1)
		var names []string
		for e, err := range h.Watch(context.Background(), lockd.SessionsScope(), from) {
			h.must(err)
			if names = append(names, e.Session.Name); len(names) == 3 {
				break
			}
		}
		if want := []string{"at 7 s", "at 12 s", "at 13 s"}; !slices.Equal(names, want) {
			t.Fatalf("ends: got %q, want %q", names, want)
		}
	})
}

// Ensure that a keeper tries again when its rest is over, although a failed expiry waits for
// longer: the keeper's write commits the expiry too.
func TestKeeper_S29_RestsNoLongerThanItself(t *testing.T) {
	onFile(t, func(h *harness) {
		fail := failing(h)
		expired := h.session(&lockd.SessionOptions{TTL: time.Second})
		k, err := h.NewKeeper(nil)
		h.must(err)
		*fail = 5
		h.advance(10 * time.Second) // tried at 1 s, 2 s, 4 s and 8 s, and to be tried at 16 s
		if *fail != 1 || expired.Err() != nil {
			h.t.Fatalf("%d commits are still to fail, session: %v", *fail, expired.Err())
		}
		keeping := start(func() error { return second(k.Session(h.t.Context())) })
		h.settle()
		h.advance(time.Second - 1)
		if keeping.returned() || *fail != 0 {
			h.t.Fatalf("too early: %v, %d commits are still to fail", keeping.err, *fail)
		}
		h.advance(1)
		if !keeping.returned() || !errors.Is(expired.Err(), lockd.ErrExpired) {
			h.t.Fatalf("1 s later: returned: %t; session: %v", keeping.returned(), expired.Err())
		}
		h.must(keeping.err)
	})
}

// Ensure that a session which the first commit after a failed expiry makes ends at its very
// instant, although that is before the next try of the expiry would have been.
func TestS26S29_OnTimeIfMadeByTheRecovery(t *testing.T) {
	onFile(t, func(h *harness) {
		fail := failing(h)
		h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		*fail = 1
		h.advance(10 * time.Second) // to be tried again after 1 s
		short := h.session(&lockd.SessionOptions{TTL: 500 * time.Millisecond})
		h.advance(500*time.Millisecond - 1)
		h.must(short.Err())
		h.advance(1)
		if !errors.Is(short.Err(), lockd.ErrExpired) {
			t.Fatalf("at its deadline: got %v, want that it has expired", short.Err())
		}
	})
}

// Ensure that the database's goroutine rests if the commit of another call, which has ended what
// was to be tried again, is on its way when that next try is due.
func TestS29_RestsBesideTheCommitOfACall(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		c.fail(errTest)
		h.advance(10 * time.Second) // to be tried again after 1 s
		c.fail(nil)
		put := c.held(func() error { return second(h.Put("k", nil, nil)) })
		h.clock.Add(time.Second) // returns only if all goroutines of the bubble rest
		c.release(nil)
		h.must(put.wait())
	})
}
