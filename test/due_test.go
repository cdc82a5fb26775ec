package lockd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// dues are the calls that depend on a session, its lock of "k" or its leadership of "e", and what
// each returns once the session has ended.
var dues = map[string]struct {
	call func(h *harness, d *dueSession) error
	want error
}{
	"If.Put": {func(h *harness, d *dueSession) error {
		return second(h.If(d.lock.Sequencer()).Put("k", []byte("late"), nil))
	}, lockd.ErrNotHeld},
	"If.Update": {func(h *harness, d *dueSession) error {
		return h.If(d.lock.Sequencer()).Update(func(tx *lockd.Txn) error {
			return second(tx.Put("k", []byte("late"), nil))
		})
	}, lockd.ErrNotHeld},
	"If of a share": {func(h *harness, d *dueSession) error {
		return second(h.If(d.share.Sequencer()).Put("shared", []byte("late"), nil))
	}, lockd.ErrNotHeld},
	"Txn.CheckSequencer": {func(h *harness, d *dueSession) error {
		return h.Update(func(tx *lockd.Txn) error { return tx.CheckSequencer(d.lock.Sequencer()) })
	}, lockd.ErrNotHeld},
	"Proclaim": {func(_ *harness, d *dueSession) error {
		return d.leader.Proclaim([]byte("late"))
	}, lockd.ErrExpired},
	"Downgrade": {func(_ *harness, d *dueSession) error { return d.lock.Downgrade() },
		lockd.ErrExpired},
	"TryLock": {func(_ *harness, d *dueSession) error { return second(d.TryLock("new", nil)) },
		lockd.ErrExpired},
	"Lock": {func(h *harness, d *dueSession) error {
		return second(d.Lock(h.t.Context(), "new", nil))
	}, lockd.ErrExpired},
	"Lock that waits": {func(h *harness, d *dueSession) error {
		return second(d.Lock(h.t.Context(), "k", nil))
	}, lockd.ErrExpired},
	"LockAll": {func(h *harness, d *dueSession) error {
		return second(d.LockAll(h.t.Context(), []string{"new", "newer"}, nil))
	}, lockd.ErrExpired},
	"Acquire": {func(h *harness, d *dueSession) error {
		return second(d.Acquire(h.t.Context(), "semaphore", 1))
	}, lockd.ErrExpired},
	"TryAcquire": {func(_ *harness, d *dueSession) error {
		return second(d.TryAcquire("semaphore", 1))
	}, lockd.ErrExpired},
	"Txn.Lock": {func(h *harness, d *dueSession) error {
		return h.Update(func(tx *lockd.Txn) error {
			return second(tx.Lock("new", d.ID(), nil))
		})
	}, lockd.ErrNoSession},
	"Attach": {func(h *harness, d *dueSession) error {
		return h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().Attach(d.ID(), "record", nil)
		})
	}, lockd.ErrNoSession},
	"DB.Session": {func(h *harness, d *dueSession) error { return second(h.Session(d.ID())) },
		lockd.ErrNoSession},
}

// dueSession is a session that is due, and whose turn to be ended has not come.
type dueSession struct {
	*lockd.Session
	lock, share *lockd.Lock
	leader      *lockd.Leader
}

// inDueCrowd makes a session that is the last of those that are due at one instant, more than two
// writes end, and moves the clock there. No timer rings.
func (h *harness) inDueCrowd() *dueSession {
	h.t.Helper()
	h.opts.Sync = lockd.SyncNever
	h.slowly()
	for range 250 {
		h.session(&lockd.SessionOptions{TTL: time.Second})
	}
	d := &dueSession{Session: h.session(&lockd.SessionOptions{TTL: time.Second})}
	d.lock, d.leader = h.lock(d.Session, "k"), h.campaign(d.Session, "e", "v")
	var err error
	d.share, err = d.TryLock("shared", &lockd.LockOptions{Mode: lockd.Shared})
	h.must(err)
	h.clock.Add(time.Second)
	return d
}

// Ensure that no call succeeds with a session whose TTL has passed, or by its proof, although it is
// not its turn to be ended; that the call's answer is given when the end is durable (G3); and that
// the end has an index of its own (G5).
func TestSession_S29G3G5_DueDoesNothing(t *testing.T) {
	for name, test := range dues {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				d := h.inDueCrowd()
				if err := test.call(h, d); !errors.Is(err, test.want) {
					h.t.Errorf("got %v, want %v", err, test.want)
				}
				if !closed(d.Done()) || !errors.Is(d.Err(), lockd.ErrExpired) {
					h.t.Errorf("session: got %v, want ErrExpired", d.Err())
				}
				h.lost(d.lock, lockd.ErrExpired)
				snapshot := h.Snapshot()
				ended := snapshot.IndexOf(lockd.SessionScope(d.ID()))
				if e := h.entry("k"); e.ModifyIndex != ended || len(e.Value) != 0 {
					h.t.Errorf("key: got %+v, and the session ended at %d", e, ended)
				}
				if _, there := h.Get("new"); there {
					h.t.Error("a lock was granted to a session that was due")
				}
				h.settle()
				if got := h.remaining(h.session(nil), "k"); got != lockd.DefaultLockDelay {
					h.t.Errorf("delay: got %v", got)
				}
			})
		})
	}
}

// Ensure that a session that is due can still give up what it has: until its turn its locks are its
// own.
func TestSession_S29_DueGivesUp(t *testing.T) {
	for name, giveUp := range map[string]func(h *harness, d *dueSession) error{
		"Unlock": func(_ *harness, d *dueSession) error { return d.lock.Unlock() },
		"Txn.Unlock": func(h *harness, d *dueSession) error {
			return h.Update(func(tx *lockd.Txn) error { return second(tx.Unlock("k", d.ID())) })
		},
		"Close": func(_ *harness, d *dueSession) error { return d.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				d := h.inDueCrowd()
				h.must(giveUp(h, d))
				h.settle()
				h.lock(h.session(nil), "k") // without a delay
			})
		})
	}
}

// Ensure that the end of a session that a call has named stands although the function of the Update
// fails, or goes on after the refusal.
func TestSession_S29_DueEndsWhateverTheFunctionDoes(t *testing.T) {
	for name, outcome := range map[string]error{"fails": errTest, "goes on": nil} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				d := h.inDueCrowd()
				err := h.Update(func(tx *lockd.Txn) error {
					if err := tx.CheckSequencer(d.lock.Sequencer()); err == nil {
						h.t.Error("the sequencer proves the lock")
					}
					h.must(second(tx.Put("written", nil, nil)))
					return outcome
				})
				if !errors.Is(err, outcome) {
					h.t.Errorf("update: got %v, want %v", err, outcome)
				}
				if _, there := h.Get("written"); there != (outcome == nil) {
					h.t.Errorf("written: got %t", there)
				}
				h.lost(d.lock, lockd.ErrExpired)
			})
		})
	}
}

// Ensure that a session that KeepAlive has to renew is not taken for one that is due, because the
// timer is late and others are renewed first.
func TestSession_S29_DueToBeRenewedDoesAll(t *testing.T) {
	each(t, func(h *harness) {
		h.slowly()
		ctx, cancel := context.WithCancel(h.t.Context())
		var keeping []*call
		var last *lockd.Session
		for range 250 {
			last = h.session(&lockd.SessionOptions{TTL: time.Second})
			s := last
			keeping = append(keeping, start(func() error { return s.KeepAlive(ctx) }))
			h.settle()
		}
		lock := h.lock(last, "k")
		h.clock.Add(time.Hour)
		h.must(second(h.If(lock.Sequencer()).Put("k", []byte("v"), nil)))
		h.lock(last, "other")
		cancel()
		for _, k := range keeping {
			_ = k.wait()
		}
	})
}

// Ensure that at one instant ends come before grants, also before the grant that follows from
// another end: a call whose session is due takes no lock, which its lock-delay would then keep from
// those behind it.
func TestSession_S26_DueIsGrantedNothing(t *testing.T) {
	type take func(ctx context.Context, s *lockd.Session) error
	lock := func(ctx context.Context, s *lockd.Session) error {
		return second(s.Lock(ctx, "k", nil))
	}
	all := func(ctx context.Context, s *lockd.Session) error {
		return second(s.LockAll(ctx, []string{"k", "l"}, nil))
	}
	share := func(ctx context.Context, s *lockd.Session) error {
		return second(s.Lock(ctx, "k", &lockd.LockOptions{Mode: lockd.Shared}))
	}
	slot := func(ctx context.Context, s *lockd.Session) error {
		return second(s.Acquire(ctx, "s", 1))
	}
	for name, test := range map[string]struct{ hold, wait take }{
		"Lock": {lock, lock}, "LockAll": {lock, all}, "Shared": {lock, share},
		"Acquire": {slot, slot},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				holder := h.session(&lockd.SessionOptions{
					TTL: 5 * time.Second, LockDelay: lockd.NoLockDelay,
				})
				ctx := h.t.Context()
				h.must(test.hold(ctx, holder))
				due, next := h.session(&lockd.SessionOptions{TTL: 5 * time.Second}), h.session(nil)
				dying := start(func() error { return test.wait(ctx, due) })
				h.settle()
				waiting := start(func() error { return test.wait(ctx, next) })
				h.advance(5 * time.Second)
				if err := dying.wait(); !errors.Is(err, lockd.ErrExpired) {
					h.t.Errorf("the one whose session is due: got %v", err)
				}
				if !waiting.returned() {
					h.t.Fatal("the next one still waits")
				}
				h.must(waiting.wait())
			})
		})
	}
}

// Ensure that one write ends no more sessions than it may although it frees a lock that hundreds of
// due sessions wait for, and that the others end in their turn, each at an index of its own (G5).
func TestSession_S29G5_DueWaitersEndInTheirTurn(t *testing.T) {
	each(t, func(h *harness) {
		h.opts.Sync = lockd.SyncNever
		h.slowly()
		const crowd = 350
		opts := &lockd.SessionOptions{TTL: time.Second, LockDelay: lockd.NoLockDelay}
		h.lock(h.session(opts), "k")
		var waiting []*call
		for range crowd {
			s := h.session(opts)
			waiting = append(waiting, start(func() error {
				return second(s.Lock(h.t.Context(), "k", nil))
			}))
		}
		h.settle()
		before := h.Snapshot().Index()
		h.clock.Add(time.Second)
		other := h.put("other", "v", 0)
		if ended := other.ModifyIndex - before - 1; ended != 100 {
			h.t.Errorf("the write has ended %d sessions, want 100", ended)
		}
		h.settle()
		for _, w := range waiting {
			if err := w.wait(); !errors.Is(err, lockd.ErrExpired) {
				h.t.Fatalf("got %v, want ErrExpired", err)
			}
		}
		if made := h.Snapshot().Index() - before; made != crowd+2 {
			h.t.Errorf("%d sessions and a write at %d indexes", crowd+1, made)
		}
	})
}
