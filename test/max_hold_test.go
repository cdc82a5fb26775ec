package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// atMost5s are the options of a lock that may be held for 5 s.
var atMost5s = &lockd.LockOptions{MaxHold: 5 * time.Second}

// maxHoldCalls are the calls that take locks with options, the first of them of the key k.
var maxHoldCalls = map[string]func(h *harness, s *lockd.Session) ([]*lockd.Lock, error){
	"TryLock": func(_ *harness, s *lockd.Session) ([]*lockd.Lock, error) {
		l, err := s.TryLock("k", atMost5s)
		return []*lockd.Lock{l}, err
	},
	"Lock": func(h *harness, s *lockd.Session) ([]*lockd.Lock, error) {
		l, err := s.Lock(h.t.Context(), "k", atMost5s)
		return []*lockd.Lock{l}, err
	},
	"LockAll": func(h *harness, s *lockd.Session) ([]*lockd.Lock, error) {
		return s.LockAll(h.t.Context(), []string{"k", "j"}, atMost5s)
	},
	"Waiting": func(h *harness, s *lockd.Session) ([]*lockd.Lock, error) {
		return h.afterAWait(func() ([]*lockd.Lock, error) {
			return s.LockAll(h.t.Context(), []string{"k", "j"}, atMost5s)
		})
	},
	"WaitingForOne": func(h *harness, s *lockd.Session) ([]*lockd.Lock, error) {
		return h.afterAWait(func() ([]*lockd.Lock, error) {
			l, err := s.Lock(h.t.Context(), "k", atMost5s)
			return []*lockd.Lock{l}, err
		})
	},
}

// afterAWait returns the result of the call, which waits for the key k for a minute.
func (h *harness) afterAWait(call func() ([]*lockd.Lock, error)) ([]*lockd.Lock, error) {
	first := h.lock(h.session(nil), "k")
	waiting := h.lockCall(call)
	h.advance(time.Minute)
	waiting.waits()
	h.must(first.Unlock())
	waiting.held()
	return waiting.locks, waiting.err
}

// Ensure that a lock is lost at its MaxHold after its grant, by whichever call it was taken, and no
// sooner; that its session lives on, and its lock-delay follows.
func TestMaxHold_R11_LosesTheLock(t *testing.T) {
	for name, call := range maxHoldCalls {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
				locks, err := call(h, s)
				h.must(err)
				next := h.wait(h.t.Context(), h.session(nil), "k", nil)
				h.advance(5*time.Second - 1)
				for _, l := range locks {
					h.must(l.Err())
				}
				h.advance(1)
				for _, l := range locks {
					h.lost(l, lockd.ErrHeldTooLong)
					if err := l.Unlock(); !errors.Is(err, lockd.ErrHeldTooLong) ||
						!lockd.Lost(err) || !strings.HasSuffix(err.Error(), "MaxHold is 5s") {
						h.t.Errorf("unlock: got %v", err)
					}
				}
				h.must(s.Err())
				h.advance(10*time.Second - 1)
				next.waits()
				h.advance(1)
				h.must(next.held().Unlock())
				if n := h.Deadlines(); n != 0 {
					h.t.Errorf("%d deadlines are left", n)
				}
			})
		})
	}
}

// Ensure that a loss ends the context of WithLock's function, and is WithLock's error.
func TestMaxHold_R11_WithLock(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		call := start(func() error {
			return s.WithLock(h.t.Context(), "k", atMost5s,
				func(ctx context.Context, _ lockd.Sequencer) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
		})
		h.settle()
		h.advance(5 * time.Second)
		if err := call.wait(); !errors.Is(err, lockd.ErrHeldTooLong) || !lockd.Lost(err) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that a lock that ends in time, in whatever way, leaves no deadline behind.
func TestMaxHold_R11_EndsWithTheHold(t *testing.T) {
	for name, end := range map[string]func(h *harness, s *lockd.Session, l *lockd.Lock) error{
		"Unlock": func(_ *harness, _ *lockd.Session, l *lockd.Lock) error { return l.Unlock() },
		"Close":  func(_ *harness, s *lockd.Session, _ *lockd.Lock) error { return s.Close() },
		"Delete": func(h *harness, _ *lockd.Session, _ *lockd.Lock) error {
			return second(h.Delete("k"))
		},
		"Txn.Unlock": func(h *harness, s *lockd.Session, _ *lockd.Lock) error {
			return h.txn(func(tx *lockd.Txn) error { return second(tx.Unlock("k", s.ID())) })
		},
		"DowngradeAndUnlock": func(h *harness, _ *lockd.Session, l *lockd.Lock) error {
			h.must(l.Downgrade())
			return l.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				s := h.session(nil)
				l, err := s.TryLock("k", atMost5s)
				h.must(err)
				h.must(end(h, s, l))
				if n := h.Deadlines(); n != 0 {
					h.t.Errorf("%d deadlines are left", n)
				}
				h.advance(5 * time.Second)
				if errors.Is(l.Err(), lockd.ErrHeldTooLong) {
					h.t.Errorf("got %v", l.Err())
				}
			})
		})
	}
}

// Ensure that a downgrade prolongs nothing, that only the share is lost, and that its delay keeps
// out exclusive requests.
func TestMaxHold_R11R5_Downgraded(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: 10 * time.Second})
		l, err := s.TryLock("k", atMost5s)
		h.must(err)
		h.advance(3 * time.Second)
		h.must(l.Downgrade())
		other := h.share(h.session(nil), "k")
		h.advance(2*time.Second - 1)
		h.must(l.Err())
		h.advance(1)
		h.lost(l, lockd.ErrHeldTooLong)
		h.must(other.Err())
		h.must(h.share(h.session(nil), "k").Unlock())
		h.must(other.Unlock())
		if got := h.remaining(s, "k"); got != 10*time.Second {
			h.t.Errorf("the delay: got %v", got)
		}
	})
}

// Ensure that a loss whose commit fails has not happened, is tried again, and is notified when it
// is durable.
func TestMaxHold_R11_FailedLossIsTriedAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		fail := failing(h)
		l, err := h.session(nil).TryLock("k", atMost5s)
		h.must(err)
		*fail = 2 // at 5 s and at 6 s
		h.advance(5 * time.Second)
		h.advance(time.Second)
		if l.Err() != nil || *fail != 0 {
			h.t.Fatalf("got %v, and %d commits are still to fail", l.Err(), *fail)
		}
		h.advance(2*time.Second - 1)
		h.must(l.Err())
		h.advance(1)
		h.lost(l, lockd.ErrHeldTooLong)
	})
}

// Ensure that a grant whose commit fails takes its deadline back.
func TestMaxHold_R11G11_FailedGrant(t *testing.T) {
	onFile(t, func(h *harness) {
		fail := failing(h)
		s := h.session(nil)
		*fail = 1
		if l, err := s.TryLock("k", atMost5s); !errors.Is(err, lockd.ErrCommit) {
			h.t.Fatalf("got %v, %v", l, err)
		}
		if n := h.Deadlines(); n != 0 {
			h.t.Errorf("%d deadlines are left", n)
		}
	})
}

// Ensure that a MaxHold is not in the file: a lock that outlives its handle has none until it is
// taken over, and then the MaxHold of that call.
func TestMaxHold_R11_IsTheHandles(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		_, err := s.TryLock("k", atMost5s)
		h.must(err)
		h.reopen()
		h.advance(time.Minute)
		if e := h.entry("k"); e.Session != s.ID() {
			h.t.Fatalf("entry: got %+v", e)
		}
		s, err = h.Session(s.ID())
		h.must(err)
		l, err := s.TryLock("k", atMost5s)
		h.must(err)
		h.advance(5*time.Second - 1)
		h.must(l.Err())
		h.advance(1)
		h.lost(l, lockd.ErrHeldTooLong)
	})
}

// Ensure that the loss is reported like others: by one event, in the history, the counts, the log.
func TestMaxHold_R11_IsToldEverywhere(t *testing.T) {
	each(t, func(h *harness) {
		log := &logged{level: slog.LevelWarn}
		h.log(log)
		s := h.named("a")
		l, err := s.TryLock("k", atMost5s)
		h.must(err)
		fence := l.Sequencer().Fence
		h.advance(5 * time.Second)
		events := h.events(lockd.KeyScope("k"), fence)
		if len(events) != 1 || lockChange(events[0]) != lockLost ||
			!errors.Is(events[0].Cause, lockd.ErrHeldTooLong) {
			h.t.Errorf("got %+v", events)
		}
		if n := h.Stats().Ends.HeldTooLong; n != 1 {
			h.t.Errorf("ends: got %d", n)
		}
		h.mustHistory("k", `0s granted to "a"`,
			`5s lost by "a": held too long: MaxHold is 5s`)
		h.mustLog(log, map[string]*lockd.Session{"a": s},
			fmt.Sprintf("5 WARN lock lost: index=%d key=k fence=%d session=<a> name=a "+
				"cause=held too long: MaxHold is 5s", fence+1, fence))
	})
}
