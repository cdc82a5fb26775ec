package lockd_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// endsIn fails the test unless the session is due after that time.
func (h *harness) endsIn(s *lockd.Session, want time.Duration) {
	h.t.Helper()
	deadline, ok := s.Deadline()
	if got := deadline.Sub(h.clock.Now()); !ok || got != want {
		h.t.Fatalf("deadline: got %v from now, %v, want %v", got, ok, want)
	}
}

// Ensure that the deadline is the instant at which a session ends, that a renewal moves it on from
// its call, and that it stays when the session has ended.
func TestSession_S26_Deadline(t *testing.T) {
	each(t, func(h *harness) {
		h.advance(time.Hour)
		opts := lockd.SessionOptions{TTL: 10 * time.Second, Grace: 5 * time.Second}
		s, other := h.session(&opts), h.session(&opts)
		h.endsIn(s, 15*time.Second)
		h.advance(6 * time.Second)
		h.endsIn(s, 9*time.Second)
		h.must(s.Renew())
		h.endsIn(s, 15*time.Second)
		h.endsIn(other, 9*time.Second)
		h.must(h.Renew(other.ID()))
		h.endsIn(other, 15*time.Second)

		deadline, _ := s.Deadline()
		h.advance(deadline.Sub(h.clock.Now()) - 1)
		h.must(s.Err())
		h.advance(1)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("at the deadline: got %v", s.Err())
		}
		h.advance(time.Minute)
		h.endsIn(s, -time.Minute)

		if deadline, ok := h.session(nil).Deadline(); ok || !deadline.IsZero() {
			h.t.Errorf("without a TTL: got %v, %v", deadline, ok)
		}
	})
}

// Ensure that a session that is kept alive has its deadline moved on at half of its TTL, and ends
// at it once nothing renews it.
func TestSession_DeadlineKeptAlive(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		h.advance(3 * time.Second)
		ctx, cancel := context.WithCancel(h.t.Context())
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		h.endsIn(s, 10*time.Second)
		h.advance(4 * time.Second)
		h.endsIn(s, 6*time.Second)
		h.advance(time.Second)
		h.endsIn(s, 10*time.Second)
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
		h.advance(9 * time.Second)
		h.endsIn(s, time.Second)
		h.advance(time.Second)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("at the deadline: got %v", s.Err())
		}
	})
}

// Ensure that an Open begins the TTL anew, and that a failed commit of an end leaves the deadline.
func TestSession_S28_Deadline(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second, Lifetime: lockd.Independent})
		h.advance(7 * time.Second)
		c := h.commits() // which opens the file anew
		s, err := h.DB.Session(s.ID())
		h.must(err)
		h.endsIn(s, 10*time.Second)
		h.advance(2 * time.Second)
		c.fail(errDisk)
		mustFail(t, "close", s.Close())
		c.fail(nil)
		h.must(s.Err())
		h.endsIn(s, 8*time.Second)
	})
}

// handles are the sessions that Sessions yields.
func (h *harness) handles() []*lockd.Session { return slices.Collect(h.Sessions()) }

// Ensure that the handles of the sessions that live are yielded, the oldest first, as they are when
// the loop begins; and that a loop may be left.
func TestDB_Sessions(t *testing.T) {
	each(t, func(h *harness) {
		if got := h.handles(); len(got) != 0 {
			h.t.Errorf("at first: got %v", got)
		}
		a, b, c := h.named("a"), h.named("b"), h.named("c")
		h.must(b.Close())
		if got := h.handles(); !slices.Equal(got, []*lockd.Session{a, c}) {
			h.t.Errorf("got %v, want the handles of a and c", got)
		}
		for s := range h.Sessions() {
			h.must(s.Close()) // no lock is held meanwhile
			h.named("d")
			if s != a && s != c {
				h.t.Errorf("%q began after the loop", s.Info().Name)
			}
		}
		for range h.Sessions() {
			break
		}
		if got := h.handles(); len(got) != 2 {
			h.t.Errorf("got %d, want both named d", len(got))
		}
	})
}

// Ensure that a session is yielded from when its creation is durable until its end is (G3), without
// a wait for the commit.
func TestDB_Sessions_G3(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		made := c.held(func() error { return second(h.NewSession(nil)) })
		if got := h.handles(); len(got) != 0 {
			h.t.Errorf("before it is durable: got %v", got)
		}
		c.release(nil)
		h.must(made.wait())
		live := h.handles()
		if len(live) != 1 {
			h.t.Fatalf("got %v", live)
		}
		ended := c.held(live[0].Close)
		if got := h.handles(); !slices.Equal(got, live) {
			h.t.Errorf("before its end is durable: got %v", got)
		}
		c.release(nil)
		h.must(ended.wait())
		if got := h.handles(); len(got) != 0 {
			h.t.Errorf("after its end: got %v", got)
		}
	})
}

// Ensure that sessions and their deadlines are seen while the function of an Update runs, by it
// too, as they were before.
func TestDB_Sessions_WhileAnUpdateRuns(t *testing.T) {
	each(t, func(h *harness) {
		old := h.session(&lockd.SessionOptions{TTL: time.Minute})
		u := h.updating()
		look := func() {
			h.t.Helper()
			if got := h.handles(); !slices.Equal(got, []*lockd.Session{old}) {
				h.t.Errorf("got %v", got)
			}
			h.endsIn(old, time.Minute)
		}
		u.step(func(tx *lockd.Txn) error {
			err := tx.EndSession(old.ID())
			look()
			return err
		})
		look()
		u.end()
		if got := h.handles(); len(got) != 0 {
			h.t.Errorf("after it: got %v", got)
		}
	})
}

// Ensure that a database that is closed goes on showing the sessions that its file keeps, and in
// memory all that have not ended.
func TestDB_Sessions_Closed(t *testing.T) {
	each(t, func(h *harness) {
		kept := h.session(&lockd.SessionOptions{TTL: time.Minute, Lifetime: lockd.Independent})
		h.session(nil)
		h.must(h.Close())
		if got := h.handles(); !slices.Equal(got, []*lockd.Session{kept}) {
			h.t.Errorf("got %v", got)
		}
		h.endsIn(kept, time.Minute)
	})
}

// Ensure that many sessions are yielded in the order of their ages.
func TestDB_Sessions_OldestFirst(t *testing.T) {
	each(t, func(h *harness) {
		var made []*lockd.Session
		for range 50 {
			made = append(made, h.named("one of many"))
		}
		if !slices.Equal(h.handles(), made) {
			h.t.Error("they are not in the order in which they were made")
		}
	})
}
