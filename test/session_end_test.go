package lockd_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// sessionEnd is one of the ways in which a session ends.
type sessionEnd struct {
	name  string
	end   func(h *harness, s *lockd.Session) error
	cause error
}

// inCatalog is a change of the catalog that ends sessions.
func inCatalog(op func(tx *lockd.Txn) error) func(*harness, *lockd.Session) error {
	return func(h *harness, _ *lockd.Session) error { return h.Update(op) }
}

var sessionEnds = []sessionEnd{
	{"Close", func(_ *harness, s *lockd.Session) error { return s.Close() }, lockd.ErrClosed},
	{"EndSession", func(h *harness, s *lockd.Session) error {
		return h.EndSession(s.ID())
	}, lockd.ErrDestroyed},
	{"EndSessionInTxn", func(h *harness, s *lockd.Session) error {
		return h.txn(func(tx *lockd.Txn) error { return tx.EndSession(s.ID()) })
	}, lockd.ErrDestroyed},
	{"TTL", func(h *harness, _ *lockd.Session) error {
		h.advance(10 * time.Second)
		return nil
	}, lockd.ErrExpired},
	{"NodeRemoved", inCatalog(func(tx *lockd.Txn) error {
		return second(tx.Catalog().DeleteNode("db1"))
	}), catalog.ErrNodeGone},
	{"NodeRenamed", inCatalog(func(tx *lockd.Txn) error {
		return tx.Catalog().PutNode(catalog.Node{Name: "db2", ID: "id-of-db1"})
	}), catalog.ErrNodeGone},
	{"ServiceRemoved", inCatalog(func(tx *lockd.Txn) error {
		return second(tx.Catalog().DeleteService("db1", "mysql"))
	}), catalog.ErrCheckGone},
	{"CheckRemoved", inCatalog(func(tx *lockd.Txn) error {
		return second(tx.Catalog().DeleteCheck("db1", "disk"))
	}), catalog.ErrCheckGone},
	{"CheckCritical", inCatalog(func(tx *lockd.Txn) error {
		return tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "disk"})
	}), catalog.ErrCheckCritical},
}

// doomed is a session that every one of sessionEnds ends, with all that a session can have: the
// locks "a" and "b", one attachment, and a call that waits.
func doomed(h *harness, behavior lockd.Behavior) (*lockd.Session, []*lockd.Lock, *call) {
	h.register()
	s := h.session(&lockd.SessionOptions{
		TTL: 10 * time.Second, LockDelay: 5 * time.Second, Behavior: behavior,
		Node: "db1", Checks: []string{"disk", "ping"},
	})
	locks := []*lockd.Lock{h.lock(s, "a"), h.lock(s, "b")}
	h.must(h.txn(func(tx *lockd.Txn) error { return tx.Catalog().Attach(s.ID(), "note", nil) }))
	h.lock(h.session(nil), "busy")
	waiting := start(func() error { return second(s.Lock(h.t.Context(), "busy", nil)) })
	h.settle()
	return s, locks, waiting
}

// Ensure that a session ends by each cause, that Done and Err of the session, its locks and its
// waits tell it, and that all of it is one step at one index: the keys, the attachments, and the
// change of the catalog that caused it.
func TestSession_S30S31_Ends(t *testing.T) {
	for _, end := range sessionEnds {
		for name, behavior := range map[string]lockd.Behavior{
			"Release": lockd.ReleaseKeys, "Delete": lockd.DeleteKeys,
		} {
			t.Run(end.name+"_"+name, func(t *testing.T) {
				each(t, func(h *harness) {
					s, locks, waiting := doomed(h, behavior)
					before := h.Snapshot().Index()
					if s.Err() != nil || closed(s.Done()) {
						h.t.Fatalf("ended before: %v", s.Err())
					}
					h.must(end.end(h, s))
					h.settle()
					h.checkEnded(s, end.cause)
					for _, l := range locks {
						h.lost(l, end.cause)
					}
					if err := waiting.wait(); !errors.Is(err, end.cause) ||
						!errors.Is(err, lockd.ErrNoSession) {
						h.t.Errorf("the wait: got %v", err)
					}
					h.checkOneStep(s, before+1, end.cause, behavior)
				})
			})
		}
	}
}

// checkEnded looks at what the session tells of its end.
func (h *harness) checkEnded(s *lockd.Session, cause error) {
	h.t.Helper()
	var ended *lockd.EndedError
	err := s.Err()
	if !closed(s.Done()) || !errors.As(err, &ended) || ended.Session != s.ID() ||
		ended.Key != "" || !errors.Is(err, cause) || !errors.Is(err, lockd.ErrNoSession) ||
		errors.Is(err, lockd.ErrNotHeld) {
		h.t.Errorf("done %v, err %v, want %v", closed(s.Done()), err, cause)
	}
	for _, other := range []error{
		lockd.ErrClosed, lockd.ErrDestroyed, lockd.ErrExpired, catalog.ErrNodeGone,
		catalog.ErrCheckGone, catalog.ErrCheckCritical, lockd.ErrProcessGone,
	} {
		if other != cause && errors.Is(err, other) {
			h.t.Errorf("err is %v too", other)
		}
	}
	closing := s.Close() // has nothing to do any more, and says how it ended
	if (cause == lockd.ErrClosed) != (closing == nil) ||
		closing != nil && !errors.Is(closing, cause) {
		h.t.Errorf("close afterwards: got %v", closing)
	}
}

// checkOneStep looks at what the end of the session left, and at what index.
func (h *harness) checkOneStep(
	s *lockd.Session, index uint64, cause error, behavior lockd.Behavior,
) {
	h.t.Helper()
	snap := h.Snapshot()
	for name, scope := range map[string]lockd.Scope{
		"a": lockd.KeyScope("a"), "b": lockd.KeyScope("b"), "one": lockd.SessionScope(s.ID()),
		"sessions": lockd.SessionsScope(), "catalog": lockd.CatalogScope(),
	} {
		if got := snap.IndexOf(scope); got != index {
			h.t.Errorf("%s moved at %d, want %d", name, got, index)
		}
	}
	if snap.Index() != index {
		h.t.Errorf("the store moved on to %d, want %d", snap.Index(), index)
	}
	if _, ok := snap.Catalog().Attachment("note"); ok {
		h.t.Errorf("the attachment is still there")
	}
	for _, key := range []string{"a", "b"} {
		e, ok := snap.Get(key)
		if ok != (behavior == lockd.ReleaseKeys) || !e.Session.IsZero() {
			h.t.Errorf("%s: got %+v", key, e)
		}
	}
	events := h.events(lockd.SessionScope(s.ID()), index-1)
	if len(events) != 1 || events[0].Kind != lockd.SessionEnded || events[0].Index != index ||
		!errors.Is(events[0].Cause, cause) || events[0].Session.ID != s.ID() {
		h.t.Errorf("told: got %+v", events)
	}
}

// Ensure that a session is not ended by a warning, another node's check, or an address.
func TestSession_S30_DoesNotEnd(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}})
		for name, op := range map[string]func(tx *lockd.Txn) error{
			"warning": func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{
					Node: "db1", Name: "disk", Status: catalog.Warning,
				})
			},
			"check that it is not bound to": func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "ping"})
			},
			"service without its check": func(tx *lockd.Txn) error {
				return second(tx.Catalog().DeleteService("db1", "mysql"))
			},
			"other node": func(tx *lockd.Txn) error {
				return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "db2"}),
					tx.Catalog().PutCheck(catalog.Check{Node: "db2", Name: "disk"}),
					second(tx.Catalog().DeleteNode("db2")))
			},
			"address": func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{
					Name: "db1", ID: "id-of-db1", Address: "10.0.0.7",
				})
			},
		} {
			h.must(h.txn(op))
			if s.Err() != nil {
				h.t.Fatalf("%s: %v", name, s.Err())
			}
		}
	})
}

// Ensure that an end that is undone with its transaction has no effect.
func TestSession_S31_Undone(t *testing.T) {
	each(t, func(h *harness) {
		s, locks, waiting := doomed(h, lockd.DeleteKeys)
		mine := errors.New("mine")
		err := h.txn(func(tx *lockd.Txn) error {
			h.must(tx.EndSession(s.ID()))
			if err := tx.EndSession(s.ID()); !errors.Is(err, lockd.ErrNoSession) {
				h.t.Errorf("twice: got %v", err)
			}
			return mine
		})
		if !errors.Is(err, mine) {
			h.t.Fatalf("update: got %v", err)
		}
		h.settle()
		if waiting.returned() || s.Err() != nil || locks[0].Err() != nil ||
			h.entry("b").Session != s.ID() {
			h.t.Errorf("session %v, lock %v", s.Err(), locks[0].Err())
		}
		h.must(s.Renew())
		h.advance(10*time.Second - 1)
		h.must(s.Err())
		h.advance(1)
		h.checkEnded(s, lockd.ErrExpired)
	})
}

// Ensure that Close may be repeated, by many at once, and is done when it returns.
func TestSession_Close(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		l := h.lock(s, "k")
		var all []*call
		for range 4 {
			all = append(all, start(func() error {
				err := s.Close()
				if !closed(s.Done()) || !closed(l.Done()) {
					h.t.Errorf("close returned, and done is open")
				}
				return err
			}))
		}
		for _, c := range all {
			h.must(c.wait())
		}
		h.lock(h.session(nil), "k") // no delay
	})
}

// crash opens a copy of the file, as a new process finds it after the old one was killed. A nil
// clock is the one that the old process had.
func (h *harness) crash(c *clock.Mock) *harness {
	h.t.Helper()
	h.settle()
	image, err := os.ReadFile(h.path)
	h.must(err)
	next := &harness{t: h.t, clock: h.clock, opts: h.opts}
	if c != nil {
		next.clock, next.opts.Clock = c, c
	}
	next.path = filepath.Join(h.t.TempDir(), "copy.db")
	h.must(os.WriteFile(next.path, image, 0o600))
	next.open()
	h.t.Cleanup(func() {
		if err := next.Close(); err != nil {
			h.t.Errorf("close of the copy: %v", err)
		}
	})
	return next
}

// pairOf makes a session bound to the process, which holds "bound", and an independent one, which
// holds "free".
func pairOf(h *harness) (bound, free *lockd.Session) {
	opts := lockd.SessionOptions{
		TTL: 10 * time.Second, Grace: time.Second, LockDelay: 5 * time.Second,
	}
	bound = h.session(&opts)
	opts.Lifetime = lockd.Independent
	free = h.session(&opts)
	h.lock(bound, "bound")
	h.lock(free, "free")
	h.must(h.txn(func(tx *lockd.Txn) error {
		return errors.Join(tx.Catalog().Attach(bound.ID(), "bound", nil),
			tx.Catalog().Attach(free.ID(), "free", nil))
	}))
	return bound, free
}

// Ensure that Close of the database ends the sessions bound to it without a delay, and that the
// others live on in the file, with all that they have.
func TestSession_S28_Reopen(t *testing.T) {
	onFile(t, func(h *harness) {
		bound, free := pairOf(h)
		index := h.Snapshot().Index()
		h.advance(9 * time.Second)
		h.must(h.Close())
		h.checkEnded(bound, lockd.ErrClosed)
		if !closed(free.Done()) || !errors.Is(free.Err(), lockd.ErrClosed) {
			h.t.Errorf("the handle of the other: %v", free.Err())
		}
		h.clock.Add(24 * time.Hour) // a TTL does not run while the file is closed
		h.open()
		if err := second(h.DB.Session(bound.ID())); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("the bound one: got %v", err)
		}
		if got := h.Snapshot().IndexOf(lockd.SessionScope(bound.ID())); got != index+1 {
			h.t.Errorf("it ended at %d, want %d", got, index+1)
		}
		h.lock(h.session(nil), "bound") // no delay
		h.liveOn(free.ID())
	})
}

// liveOn checks the independent session of pairOf after its process was gone: it has its locks and
// attachments, and a whole TTL and grace from the Open on.
func (h *harness) liveOn(id lockd.SessionID) {
	h.t.Helper()
	s, err := h.DB.Session(id)
	h.must(err)
	_, attached := h.Snapshot().Catalog().Attachment("free")
	if h.entry("free").Session != id || !attached {
		h.t.Errorf("got %+v, attached %v", h.entry("free"), attached)
	}
	h.advance(11*time.Second - 1)
	h.must(s.Err())
	h.advance(1)
	h.checkEnded(s, lockd.ErrExpired)
	if got := h.refusal(h.session(nil), "free").Remaining; got != 5*time.Second {
		h.t.Errorf("delay: got %v", got)
	}
}

// Ensure that after a crash the next Open ends the sessions that were bound to the process, each at
// an index of its own and with its delays, before any call; and that the others live on.
func TestSession_S28S30_Crash(t *testing.T) {
	onFile(t, func(h *harness) {
		bound, free := pairOf(h)
		another := h.session(&lockd.SessionOptions{Behavior: lockd.DeleteKeys})
		h.lock(another, "another")
		h.advance(9 * time.Second)
		index := h.Snapshot().Index()

		next := h.crash(nil)
		events := next.events(lockd.SessionsScope(), index)
		if len(events) != 2 || events[0].Index != index+1 || events[1].Index != index+2 ||
			events[0].Session.ID != bound.ID() || events[1].Session.ID != another.ID() {
			h.t.Fatalf("sessions after the crash: %+v", events)
		}
		for _, e := range events {
			if e.Kind != lockd.SessionEnded || !errors.Is(e.Cause, lockd.ErrProcessGone) {
				h.t.Errorf("got %+v", e)
			}
		}
		next.watches(h.t.Context(), lockd.SessionsScope(), index-1).ends(lockd.ErrCompacted)
		for _, key := range []string{"bound", "another"} {
			lost := next.History(key)
			if len(lost) != 1 || !errors.Is(lost[0].Cause, lockd.ErrProcessGone) {
				h.t.Errorf("history of %s: got %v", key, lost)
			}
		}
		if e := next.entry("bound"); !e.Session.IsZero() || e.ModifyIndex != index+1 {
			h.t.Errorf("bound: got %+v", e)
		}
		if _, ok := next.Get("another"); ok {
			h.t.Errorf("the key of a session that deletes is there")
		}
		if _, ok := next.Snapshot().Catalog().Attachment("bound"); ok {
			h.t.Errorf("the attachment is there")
		}
		locks := next.events(lockd.PrefixScope(""), index)
		if lockChange(locks[0]) != lockLost || lockChange(locks[1]) != lockDeleted ||
			!errors.Is(locks[0].Cause, lockd.ErrProcessGone) ||
			!errors.Is(locks[1].Cause, lockd.ErrProcessGone) {
			h.t.Errorf("locks: got %+v", locks)
		}
		s := next.session(nil)
		for key, left := range map[string]time.Duration{
			"bound": 5 * time.Second, "another": 15 * time.Second,
		} {
			if got := next.refusal(s, key); got.Remaining != left {
				h.t.Errorf("delay of %s: got %v, want %v", key, got.Remaining, left)
			}
		}
		next.liveOn(free.ID())
	})
}

// Ensure that EndBoundWithoutDelay ends the sessions of a process that crashed, and that others are
// granted their locks at once, except during a delay that had begun before.
func TestSession_S28S32_EndBoundWithoutDelay(t *testing.T) {
	onFile(t, func(h *harness) {
		bound, free := pairOf(h)
		lost := h.session(nil)
		h.lock(lost, "delayed")
		h.must(h.EndSession(lost.ID()))
		h.opts.Reopen = lockd.EndBoundWithoutDelay
		next := h.crash(nil)
		if err := second(next.DB.Session(bound.ID())); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("the session that was bound: got %v", err)
		}
		s := next.session(nil)
		next.lock(s, "bound")
		if next.entry("free").Session != free.ID() {
			h.t.Errorf("the lock of the other session is gone: %+v", next.entry("free"))
		}
		held := new(lockd.LockedError)
		if err := second(s.TryLock("delayed", nil)); !errors.As(err, &held) ||
			held.Obstacle != lockd.ObstacleDelay {
			h.t.Errorf("the delay from before: got %v", err)
		}
	})
}

// Ensure that EndNone keeps the sessions that were bound to a process that crashed, with a whole
// TTL; and that a DB.Close ends them nevertheless.
func TestSession_S28_EndNone(t *testing.T) {
	onFile(t, func(h *harness) {
		bound, free := pairOf(h)
		h.advance(9 * time.Second)
		index := h.Snapshot().Index()
		h.opts.Reopen = lockd.EndNone
		next := h.crash(nil)
		if got := next.Snapshot().Index(); got != index {
			h.t.Errorf("index: was %d, is %d", index, got)
		}
		s, err := next.DB.Session(bound.ID())
		h.must(err)
		next.advance(11*time.Second - 1)
		h.must(s.Renew())
		if next.entry("bound").Session != s.ID() {
			h.t.Errorf("the lock is gone: %+v", next.entry("bound"))
		}
		kept, err := next.DB.Session(free.ID())
		h.must(err)
		h.must(kept.Renew())
		next.reopen()
		if err := second(next.DB.Session(bound.ID())); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("after Close: got %v", err)
		}
		h.must(second(next.DB.Session(free.ID())))
	})
}

// Ensure that a crash loses no end that was reported, and brings no session back.
func TestSession_S36_StaysDeadAfterACrash(t *testing.T) {
	onFile(t, func(h *harness) {
		_, free := pairOf(h)
		h.must(h.EndSession(free.ID()))
		next := h.crash(nil)
		if err := second(next.DB.Session(free.ID())); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that Close of a session answers beside a Close of the database as it does after that.
func TestSession_Close_BesideTheDatabase(t *testing.T) {
	each(t, func(h *harness) {
		bound, free := pairOf(h)
		function, release := make(chan struct{}), make(chan struct{})
		update := start(func() error {
			return h.Update(func(*lockd.Txn) error {
				close(function)
				<-release
				return nil
			})
		})
		<-function
		var calls []*call
		for _, fn := range []func() error{h.Close, bound.Close, free.Close} {
			calls = append(calls, start(fn))
			h.settle() // the calls wait for the function, one behind the other
		}
		close(release)
		h.must(update.wait())
		h.must(calls[0].wait())
		h.must(calls[1].wait())
		if err := calls[2].wait(); errors.Is(err, lockd.ErrClosed) != (h.path != "") {
			h.t.Errorf("close of a session that only a file keeps: got %v", err)
		}
	})
}

// Ensure that Close does not say that a session has ended that lives on in the file, because the
// database was closed before.
func TestSession_Close_AfterTheDatabase(t *testing.T) {
	onFile(t, func(h *harness) {
		bound, free := pairOf(h)
		h.must(h.Close())
		h.must(bound.Close()) // has ended, and cleanly
		if err := free.Close(); !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("close: got %v", err)
		}
		h.open()
		h.must(second(h.DB.Session(free.ID())))
	})
}
