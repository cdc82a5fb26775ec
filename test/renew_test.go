package lockd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a renewal by ID begins the TTL anew, from the moment of its call.
func TestRenew_S26_ByID(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		index := h.Snapshot().Index()
		for range 3 {
			h.advance(10*time.Second - 1)
			h.must(h.Renew(s.ID()))
		}
		if h.Snapshot().Index() != index {
			h.t.Errorf("index: was %d, is %d", index, h.Snapshot().Index())
		}
		h.advance(10*time.Second - 1)
		h.must(s.Err())
		h.advance(1)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			h.t.Errorf("lives on: %v", s.Err())
		}
		h.must(h.Renew(h.session(nil).ID())) // S25
	})
}

// Ensure that a renewal by ID neither waits for the commit of another call nor fails with it.
func TestRenew_S26_WaitsForNoCommit(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: time.Minute})
		put := func() error { return second(h.Put("k", nil, nil)) }
		held := c.held(put)
		begun := c.begun()
		h.must(h.Renew(s.ID())) // in a bubble, a wait for the held commit would be a deadlock
		if c.begun() != begun {
			t.Errorf("a renewal made %d commits", c.begun()-begun)
		}
		h.advance(time.Minute - 1)
		h.must(h.Renew(s.ID()))
		c.release(errDisk)
		mustFail(t, "put", held.wait())
		c.fail(errDisk)
		h.must(h.Renew(s.ID()))
		c.fail(nil)
		h.advance(time.Minute - 1)
		h.must(s.Err())
	})
}

// Ensure that a renewal does not find a session whose creation is not durable, and that a renewal
// of a session whose end is not durable waits for the commit of the end.
func TestRenew_G3_KnowsWhatIsDurable(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		var made *lockd.Session
		held := c.held(func() (err error) {
			made, err = h.NewSession(nil)
			return err
		})
		sessions := h.NewestSessions()
		if len(sessions) != 1 {
			t.Fatalf("%d sessions", len(sessions))
		}
		for _, id := range sessions {
			if err := h.Renew(id); !errors.Is(err, lockd.ErrNoSession) {
				t.Errorf("not durable: %v", err)
			}
		}
		c.release(nil)
		h.must(held.wait())
		h.must(h.Renew(made.ID()))

		held = c.held(made.Close)
		renewal := start(func() error { return h.Renew(made.ID()) })
		h.settle()
		if isClosed(renewal.done) {
			t.Errorf("answered before the end is durable: %v", renewal.err)
		}
		c.release(nil)
		h.must(held.wait())
		if err := renewal.wait(); !errors.Is(err, lockd.ErrNoSession) {
			t.Errorf("ended: %v", err)
		}
	})
}

// Ensure that a renewal of a session that does not live says so, and changes nothing.
func TestRenew_S24(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: time.Second})
		h.must(s.Close())
		unknown := lockd.SessionID{1}
		for name, id := range map[string]lockd.SessionID{"ended": s.ID(), "unknown": unknown} {
			var failed *lockd.Error
			err := h.Renew(id)
			if !errors.Is(err, lockd.ErrNoSession) || !errors.As(err, &failed) ||
				failed.Op != "renew" || failed.Key != id.String() {
				h.t.Errorf("%s: %v", name, err)
			}
		}
		if err := h.Renew(lockd.SessionID{}); !errors.Is(err, lockd.ErrInvalid) {
			h.t.Errorf("zero: %v", err)
		}
		late := h.session(&lockd.SessionOptions{TTL: time.Second})
		h.advance(time.Second)
		if err := h.Renew(late.ID()); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("late: %v", err)
		}
		h.must(h.Close())
		for _, id := range []lockd.SessionID{{}, unknown, late.ID()} {
			if err := h.Renew(id); !errors.Is(err, lockd.ErrClosed) {
				h.t.Errorf("closed: %v", err)
			}
		}
	})
}

// Ensure that a renewal that comes too late returns when the end is durable (G3), also if more
// sessions are due before that one than one write ends.
func TestRenew_G3_InACrowdThatIsDue(t *testing.T) {
	for name, renew := range map[string]func(h *harness, s *lockd.Session) error{
		"Session":   func(_ *harness, s *lockd.Session) error { return s.Renew() },
		"DB":        func(h *harness, s *lockd.Session) error { return h.Renew(s.ID()) },
		"KeepAlive": func(h *harness, s *lockd.Session) error { return s.KeepAlive(h.t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				h.slowly()
				for range 250 {
					h.session(&lockd.SessionOptions{TTL: time.Second})
				}
				s := h.session(&lockd.SessionOptions{TTL: time.Second})
				lock := h.lock(s, "k")
				h.clock.Add(time.Second)
				if err := renew(h, s); !errors.Is(err, lockd.ErrExpired) {
					h.t.Errorf("got %v, want ErrExpired", err)
				}
				for what, handle := range map[string]interface {
					Done() <-chan struct{}
					Err() error
				}{"session": s, "lock": lock} {
					if !closed(handle.Done()) || !errors.Is(handle.Err(), lockd.ErrExpired) {
						h.t.Errorf("%s: got %v, want ErrExpired", what, handle.Err())
					}
				}
			})
		})
	}
}

// Ensure that a renewal that came in time counts (G6), although a transaction had ended the session
// by then, if that end is taken back; and that the longest TTL of several counts.
func TestRenew_G6_EndIsTakenBack(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		u := h.updating()
		u.step(func(tx *lockd.Txn) error { return tx.EndSession(s.ID()) })
		h.advance(4 * time.Second)
		renewing := []*call{start(s.Renew)}
		h.settle()
		h.advance(time.Second)
		renewing = append(renewing, start(func() error { return h.Renew(s.ID()) }))
		h.settle()
		h.advance(7 * time.Second)
		u.fail()
		for _, r := range renewing {
			h.must(r.wait())
		}
		h.settle()
		h.endsIn(s, 3*time.Second)
	})
}

// Ensure that Renew begins the TTL anew from the moment of the call (G6), however late the call
// comes to the session.
func TestRenew_G6_FromTheMomentOfTheCall(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		called := h.clock.Now()
		h.probe.Hooks.Renewal = func([16]byte) error { // the call is on its way
			h.clock.Add(time.Second)
			return nil
		}
		h.must(s.Renew())
		h.probe.Hooks.Renewal = nil
		if at, _ := s.Deadline(); !at.Equal(called.Add(10 * time.Second)) {
			h.t.Errorf("the deadline is %v after the call, want 10s", at.Sub(called))
		}
	})
}

// Ensure that a KeepAlive whose context ends before it is known whether the session lives keeps
// nothing alive: the session ends at its TTL, as any other.
func TestSession_G6_KeepAliveThatGaveUpKeepsNothing(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		s := h.session(&lockd.SessionOptions{TTL: 10 * time.Second})
		writing := c.held(func() error { return second(h.Put("k", nil, nil)) })
		u := h.updating()
		u.step(func(tx *lockd.Txn) error { return tx.EndSession(s.ID()) })
		ctx, cancel := context.WithCancel(h.t.Context())
		keeping := start(func() error { return s.KeepAlive(ctx) })
		h.settle()
		u.steps <- nil // it fails: the session lives after all
		h.settle()
		cancel()
		if err := keeping.wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("keep alive: got %v", err)
		}
		c.release(nil)
		h.must(writing.wait())
		if err := u.call.wait(); !errors.Is(err, errTest) {
			t.Errorf("update: got %v", err)
		}
		h.advance(10 * time.Second)
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			t.Errorf("after its TTL: got %v, want ErrExpired", s.Err())
		}
	})
}
