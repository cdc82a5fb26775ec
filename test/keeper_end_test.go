package lockd_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/lockd/lockd"
)

// Ensure that Close ends the session without a lock-delay, that Done is closed after that, and that
// no session is handed out any more.
func TestKeeper_G7_Close(t *testing.T) {
	each(t, func(h *harness) {
		k := h.keeper(&lockd.SessionOptions{Name: "mine", TTL: time.Minute})
		s := h.kept(k)
		lock := h.lock(s, "k")
		if k.Err() != nil || isClosed(k.Done()) {
			h.t.Errorf("before: got %v", k.Err())
		}
		h.must(k.Close())
		h.lost(lock, lockd.ErrClosed)
		h.checkEnded(s, lockd.ErrClosed)
		mustBeDelayed(h, "k", false)
		h.nothingMoves("closing again", func() { h.must(k.Close()) })
		if !isClosed(k.Done()) || !errors.Is(k.Err(), lockd.ErrClosed) {
			h.t.Errorf("done %v, err %v", isClosed(k.Done()), k.Err())
		}
		if s, ok := k.Current(); ok || s != nil {
			h.t.Errorf("current: got %v", s)
		}
		got, err := k.Session(h.t.Context())
		if got != nil || !errors.Is(err, lockd.ErrClosed) ||
			!strings.Contains(err.Error(), `"mine": keeper closed`) ||
			!strings.Contains(err.Error(), "NewKeeper gives another") {
			h.t.Errorf("session: got %v, %v", got, err)
		}
		err = k.Lead(h.t.Context(), "k", nil, func(context.Context, lockd.Sequencer) error {
			return errors.New("called")
		})
		if !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("lead: got %v", err)
		}
		unused := h.keeper(nil)
		h.nothingMoves("closing one that made none", func() { h.must(unused.Close()) })
		ended := h.keeper(nil)
		h.must(h.EndSession(h.kept(ended).ID()))
		h.nothingMoves("closing one whose session has ended", func() { h.must(ended.Close()) })
		if !isClosed(unused.Done()) || !isClosed(ended.Done()) || h.Deadlines() != 0 {
			h.t.Errorf("open, or %d deadlines are left", h.Deadlines())
		}
	})
}

// Ensure that a Close while a session is being made ends that session too.
func TestKeeper_G12_CloseWhileMaking(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(&lockd.SessionOptions{TTL: 10 * time.Second})
		var s *lockd.Session
		makes := c.held(func() (err error) {
			s, err = k.Session(h.t.Context())
			return err
		})
		closes := start(k.Close)
		h.settle()
		c.release(nil)
		h.must(closes.wait())
		if err := makes.wait(); err == nil && s.Err() == nil ||
			err != nil && !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("got %v, %v", s, err)
		}
		h.settle()
		for info := range h.Snapshot().Sessions() {
			t.Errorf("left: %+v", info)
		}
		if h.Deadlines() != 0 {
			t.Errorf("%d deadlines are left", h.Deadlines())
		}
	})
}

// Ensure that the database keeps nothing of a keeper that was closed.
func TestKeeper_CloseFreesIt(t *testing.T) {
	each(t, func(h *harness) {
		k := h.keeper(nil)
		h.kept(k)
		freed := weak.Make(k)
		h.must(k.Close())
		k = nil
		for range 2 { // what has a finalizer is freed by the second cycle
			runtime.GC()
		}
		if freed.Value() != nil {
			h.t.Error("it is still in memory")
		}
	})
}

// Ensure that the end of the database ends its keepers.
func TestKeeper_G12_CloseOfTheDatabase(t *testing.T) {
	each(t, func(h *harness) {
		k := h.keeper(&lockd.SessionOptions{TTL: time.Minute})
		alone := h.keeper(&lockd.SessionOptions{
			Lifetime: lockd.Independent, TTL: 10 * time.Second,
		})
		sessions := []*lockd.Session{h.kept(k), h.kept(alone)}
		unused := h.keeper(nil)
		h.must(h.Close())
		for _, k := range []*lockd.Keeper{k, alone, unused} {
			if !isClosed(k.Done()) || !errors.Is(k.Err(), lockd.ErrClosed) {
				h.t.Errorf("done %v, err %v", isClosed(k.Done()), k.Err())
			}
			if _, err := k.Session(h.t.Context()); !errors.Is(err, lockd.ErrClosed) {
				h.t.Errorf("session: got %v", err)
			}
		}
		for _, s := range sessions {
			h.checkEnded(s, lockd.ErrClosed)
		}
		for _, k := range []*lockd.Keeper{k, alone, unused} {
			h.must(k.Close())
		}
		if k, err := h.NewKeeper(nil); k != nil || !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("new keeper: got %v, %v", k, err)
		}
		h.open()
	})
}

// Ensure that the session of a closed keeper is in no file, whatever its lifetime, and that the
// session of an open one ends by its TTL: else each restart would leave one, with its locks.
func TestKeeper_S28_LeavesNoSession(t *testing.T) {
	onFile(t, func(h *harness) {
		opts := &lockd.SessionOptions{
			Lifetime: lockd.Independent, TTL: 10 * time.Second, LockDelay: 5 * time.Second,
		}
		restart := func(end func(k *lockd.Keeper, s *lockd.Session) error) {
			k := h.keeper(opts)
			s := h.kept(k)
			h.lock(s, "k")
			h.must(end(k, s))
			h.must(h.Close())
			h.open()
			for info := range h.Snapshot().Sessions() {
				h.t.Errorf("after the restart: %+v", info)
			}
			h.must(h.lock(h.session(nil), "k").Unlock()) // no delay
		}
		restart(func(k *lockd.Keeper, _ *lockd.Session) error { return k.Close() })
		restart(func(*lockd.Keeper, *lockd.Session) error { return nil })
		restart(func(k *lockd.Keeper, s *lockd.Session) error { // the second session of a keeper
			h.must(s.Close())
			h.lock(h.kept(k), "k")
			return nil
		})

		s := h.kept(h.keeper(opts))
		h.lock(s, "k")
		next := h.crash(nil)
		next.advance(10*time.Second - 1)
		if e := next.entry("k"); e.Session != s.ID() {
			h.t.Errorf("within its TTL: got %+v", e)
		}
		next.advance(1)
		if e := next.entry("k"); !e.Session.IsZero() {
			h.t.Errorf("after its TTL: got %+v", e)
		}
		if got := next.refusal(next.session(nil), "k").Remaining; got != 5*time.Second {
			h.t.Errorf("delay: got %v", got)
		}
	})
}

// Ensure that the end of a keeper's session that Close could not make durable is known to be in
// doubt: the file keeps the session, and the next Open goes on with it.
func TestKeeper_S28_CloseFails(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(&lockd.SessionOptions{Lifetime: lockd.Independent, TTL: 10 * time.Second})
		s := h.kept(k)
		h.lock(s, "k")
		c.fail(errDisk)
		mustFail(h.t, "close", h.Close())
		for _, err := range []error{s.Err(), k.Err(), k.Close(), s.Close()} {
			if !errors.Is(err, lockd.ErrClosed) {
				h.t.Errorf("got %v", err)
			}
		}
		c.fail(nil)
		h.open()
		h.advance(10*time.Second - 1)
		if e := h.entry("k"); e.Session != s.ID() {
			h.t.Errorf("within its TTL: got %+v", e)
		}
		h.advance(1)
		if e := h.entry("k"); !e.Session.IsZero() {
			h.t.Errorf("after its TTL: got %+v", e)
		}
	})
}

// Ensure that a database that has failed ends its keepers, and the calls that wait for a session.
func TestKeeper_G12_Failed(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k, other := h.keeper(nil), h.keeper(nil)
		s := h.kept(k)
		c.fail(errDisk)
		waits := h.keeps(h.t.Context(), other)
		c.fail(nil)
		c.failAfter(errDisk)
		mustFail(t, "put", second(h.Put("k", nil, nil)))
		if err := waits.wait(); !errors.Is(err, lockd.ErrFailed) {
			t.Errorf("session: got %v", err)
		}
		for _, err := range []error{
			k.Err(), k.Close(), s.Err(), second(h.NewKeeper(nil)), second(k.Session(h.t.Context())),
		} {
			if !errors.Is(err, lockd.ErrFailed) {
				t.Errorf("got %v", err)
			}
		}
		if s, ok := k.Current(); ok {
			t.Errorf("current: got %v, which has ended", s.ID())
		}
	})
}

// Ensure that the Close of a keeper which has no session returns nil if the database fails while
// the call waits for its turn: nothing of the keeper's is left in the file.
func TestKeeper_G12_FailedDuringClose(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(nil)
		writing := c.held(func() error { return second(h.Put("k", nil, nil)) })
		u := h.updating()
		c.failAfter(errDisk)
		c.release(nil) // but the failure is told only when the function has returned
		h.settle()
		closing := start(k.Close)
		h.settle()
		u.steps <- nil
		mustFail(t, "put", writing.wait())
		if err := u.call.wait(); err == nil {
			t.Error("update: got no error")
		}
		if !errors.Is(h.Err(), lockd.ErrFailed) {
			t.Fatalf("the database: got %v", h.Err())
		}
		h.must(closing.wait())
	})
}

// Ensure that a call of Session that is in the queue for the writer behind Close makes no session:
// nobody would close it.
func TestKeeper_G12_SessionBehindClose(t *testing.T) {
	each(t, func(h *harness) {
		k := h.keeper(nil)
		u := h.updating()
		closes := start(k.Close)
		h.settle()
		session := h.keeps(h.t.Context(), k)
		u.end()
		h.must(closes.wait())
		if err := session.wait(); !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("session: got %v, want ErrClosed", err)
		}
		if got := h.NewestSessions(); len(got) > 0 {
			h.t.Errorf("left: %v", got)
		}
	})
}

// Ensure that the Close of a keeper returns nil if the database closes first and leaves no session
// of the keeper's in its file.
func TestKeeper_G12_CloseBehindTheDatabases(t *testing.T) {
	each(t, func(h *harness) {
		k, unused := h.keeper(nil), h.keeper(nil)
		h.kept(k)
		u := h.updating()
		closes := start(h.Close)
		h.settle()
		calls := []*call{start(k.Close), start(unused.Close)}
		h.settle()
		u.end()
		h.must(closes.wait())
		for i, call := range calls {
			if err := call.wait(); err != nil {
				h.t.Errorf("keeper %d: got %v", i, err)
			}
		}
		h.open()
	})
}
