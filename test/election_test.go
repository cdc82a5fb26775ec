package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// campaign has the session elected, by an election that is free.
func (h *harness) campaign(s *lockd.Session, key, value string) *lockd.Leader {
	h.t.Helper()
	l, err := s.Campaign(h.t.Context(), key, []byte(value))
	h.must(err)
	return l
}

// Ensure that candidates are elected one after the other, in the order in which they stood, and
// that the key shows the leader.
func TestCampaign_G9_InOrder(t *testing.T) {
	each(t, func(h *harness) {
		sessions := h.sessions(5)
		leader := h.campaign(sessions[0], "k", "0")
		leaders := make([]*lockd.Leader, len(sessions))
		var calls []*call
		for i, s := range sessions[1:] {
			calls = append(calls, start(func() (err error) {
				leaders[i+1], err = s.Campaign(h.t.Context(), "k", fmt.Append(nil, i+1))
				return err
			}))
			h.settle()
		}
		for i, call := range calls {
			before := leader
			h.must(before.Resign())
			h.must(call.wait())
			leader = leaders[i+1]
			e := h.entry("k")
			if string(e.Value) != fmt.Sprint(i+1) || e.Sequencer() != leader.Sequencer() {
				h.t.Errorf("leader %d: got %+v, want %v", i+1, e, leader.Sequencer())
			}
			if q := leader.Sequencer(); q.Fence <= before.Sequencer().Fence || q.Key != "k" {
				h.t.Errorf("%v after %v", leader.Sequencer(), before.Sequencer())
			}
		}
	})
}

// Ensure that the value is the leader's own, as it was at the call, and not the one before.
func TestCampaign_Value(t *testing.T) {
	each(t, func(h *harness) {
		first, second := h.session(nil), h.session(nil)
		leader := h.campaign(first, "k", "the first's")
		value := []byte("second")
		waits := start(func() error {
			_, err := second.Campaign(h.t.Context(), "k", value)
			return err
		})
		h.settle()
		copy(value, "xxxxxx")
		h.must(leader.Resign())
		h.must(waits.wait())
		if got := h.entry("k").Value; string(got) != "second" {
			h.t.Errorf("got %q", got)
		}
		h.must(second.Close())
		h.must(h.campaignNil(first).Resign())
		if got := h.entry("k").Value; len(got) != 0 {
			h.t.Errorf("no value: got %q", got)
		}
	})
}

func (h *harness) campaignNil(s *lockd.Session) *lockd.Leader {
	h.t.Helper()
	l, err := s.Campaign(h.t.Context(), "k", nil)
	h.must(err)
	return l
}

// Ensure that the key has the flags by which Consul's client knows a lock, and keeps others.
func TestCampaign_Flags(t *testing.T) {
	each(t, func(h *harness) {
		leader := h.campaign(h.session(nil), "k", "v")
		if got := h.entry("k").Flags; got != 3304740253564472344 {
			h.t.Errorf("got %d", got)
		}
		h.put("k", "v", 5)
		h.must(leader.Proclaim([]byte("new")))
		if e := h.entry("k"); e.Flags != 5 || string(e.Value) != "new" {
			h.t.Errorf("got %+v", e)
		}
	})
}

// Ensure that a leader is notified of its loss, whatever the cause, and cannot proclaim after it.
func TestLeader_G10_Loss(t *testing.T) {
	losses := map[string]struct {
		do    func(h *harness, l *lockd.Leader) error
		cause error
	}{
		"session ended": {func(h *harness, l *lockd.Leader) error {
			return h.EndSession(l.Sequencer().Session)
		}, lockd.ErrDestroyed},
		"forced": {func(h *harness, l *lockd.Leader) error {
			return h.ForceUnlock("k", l.Sequencer().Fence, "in a test")
		}, lockd.ErrForced},
		"deleted": {func(h *harness, _ *lockd.Leader) error {
			return second(h.Delete("k"))
		}, lockd.ErrKeyDeleted},
		"closed": {func(h *harness, _ *lockd.Leader) error { return h.Close() }, lockd.ErrClosed},
	}
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				leader := h.campaign(h.session(nil), "k", "v")
				ctx := leader.Context(h.t.Context())
				if leader.Err() != nil || ctx.Err() != nil || isClosed(leader.Done()) {
					h.t.Fatalf("at first: %v, %v", leader.Err(), ctx.Err())
				}
				h.must(loss.do(h, leader))
				proclaimed, resigned := leader.Proclaim([]byte("late")), leader.Resign()
				for what, err := range map[string]error{
					"err": leader.Err(), "cause": context.Cause(ctx),
					"proclaim": proclaimed, "resign": resigned,
				} {
					if !errors.Is(err, loss.cause) || !errors.Is(err, lockd.ErrNotHeld) {
						h.t.Errorf("%s: got %v", what, err)
					}
				}
				if !isClosed(leader.Done()) || !isClosed(ctx.Done()) {
					h.t.Error("a channel is open")
				}
				if e, _ := h.Get("k"); string(e.Value) == "late" {
					h.t.Error("a lost leader has proclaimed")
				}
			})
		})
	}
}

// Ensure that Resign can be repeated, and that other calls of a leader that has resigned say what
// to do instead.
func TestLeader_UsedAfterResign(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(nil)
		leader := h.campaign(s, "k", "v")
		h.must(leader.Resign())
		again := h.campaign(s, "k", "w")
		h.nothingMoves("resigning again", func() { h.must(leader.Resign()) })
		err := leader.Proclaim([]byte("late"))
		if !errors.Is(err, lockd.ErrNotHeld) || !errors.Is(err, lockd.ErrUnlocked) ||
			!strings.Contains(err.Error(), "; Campaign stands again") {
			h.t.Errorf("got %v", err)
		}
		if !errors.Is(leader.Err(), lockd.ErrUnlocked) || again.Err() != nil {
			h.t.Errorf("got %v and %v", leader.Err(), again.Err())
		}
		if e := h.entry("k"); string(e.Value) != "w" {
			h.t.Errorf("got %+v", e)
		}
	})
}

// Ensure that a value that is too large is refused, and the leader leads on.
func TestLeader_G11_RefusedValue(t *testing.T) {
	each(t, func(h *harness) {
		leader := h.campaign(h.session(nil), "k", "v")
		h.nothingMoves("a value that is too large", func() {
			err := leader.Proclaim(tooLarge)
			if !errors.Is(err, lockd.ErrInvalid) || leader.Err() != nil ||
				!strings.Contains(err.Error(), `proclaim "k"`) {
				h.t.Errorf("got %v, %v", err, leader.Err())
			}
		})
	})
}

// Ensure that a resignation sets no lock-delay, and keeps the value.
func TestLeader_G7_Resign(t *testing.T) {
	each(t, func(h *harness) {
		leader := h.campaign(h.session(nil), "k", "v")
		h.must(leader.Resign())
		if e := h.entry("k"); string(e.Value) != "v" || !e.Session.IsZero() {
			h.t.Errorf("got %+v", e)
		}
		mustBeDelayed(h, "k", false)
	})
}

// Ensure that after ErrCommit the leader leads on, and Resign and Proclaim can be repeated.
func TestLeader_FailedCommit(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		leader := h.campaign(h.session(nil), "k", "v")
		c.fail(errDisk)
		mustFail(t, "proclaim", leader.Proclaim([]byte("w")))
		mustFail(t, "resign", leader.Resign())
		if leader.Err() != nil || string(h.entry("k").Value) != "v" {
			t.Fatalf("got %v, %+v", leader.Err(), h.entry("k"))
		}
		c.fail(nil)
		h.must(leader.Proclaim([]byte("w")))
		h.must(leader.Resign())
	})
}

// Ensure that a candidate that gives up standing, or whose session ends, is not elected.
func TestCampaign_G11_GivingUp(t *testing.T) {
	each(t, func(h *harness) {
		leader := h.campaign(h.session(nil), "k", "v")
		ctx, cancel := context.WithCancel(h.t.Context())
		first, gone, third := h.session(nil), h.session(nil), h.session(nil)
		stand := func(ctx context.Context, s *lockd.Session) *call {
			c := start(func() error {
				l, err := s.Campaign(ctx, "k", nil)
				if (l == nil) != (err != nil) {
					h.t.Errorf("got %v, %v", l, err)
				}
				return err
			})
			h.settle()
			return c
		}
		calls := []*call{stand(ctx, first), stand(h.t.Context(), gone), stand(h.t.Context(), third)}
		cancel()
		if err := calls[0].wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
		h.must(gone.Close())
		if err := calls[1].wait(); !errors.Is(err, lockd.ErrNoSession) {
			h.t.Errorf("got %v", err)
		}
		h.must(leader.Resign())
		h.must(calls[2].wait())
		if got := h.entry("k").Session; got != third.ID() {
			h.t.Errorf("got %v", got)
		}
	})
}

// Ensure that a leader whose session lives on in the file leads on after a restart, by the same
// grant, when it stands again.
func TestCampaign_S28_TakenOverAfterARestart(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{Lifetime: lockd.Independent})
		leader := h.campaign(s, "k", "v")
		h.reopen()
		again, err := h.Session(s.ID())
		h.must(err)
		if got := h.campaign(again, "k", "w"); got.Sequencer() != leader.Sequencer() {
			t.Errorf("got %v, want %v", got.Sequencer(), leader.Sequencer())
		}
		if got := h.entry("k").Value; string(got) != "w" {
			t.Errorf("got %q", got)
		}
	})
}

func TestElection_RefusedInput(t *testing.T) {
	campaign := func(key string, value []byte) func(*harness, *lockd.Session) error {
		return func(h *harness, s *lockd.Session) error {
			return second(s.Campaign(h.t.Context(), key, value))
		}
	}
	observe := func(key string) func(*harness, *lockd.Session) error {
		return func(h *harness, _ *lockd.Session) error {
			for _, err := range h.Observe(h.t.Context(), key) {
				return err
			}
			return nil
		}
	}
	lead := func(key string, value []byte) func(*harness, *lockd.Session) error {
		return func(h *harness, _ *lockd.Session) error {
			k, err := h.NewKeeper(nil)
			if err != nil {
				return err
			}
			return k.Lead(h.t.Context(), key, value,
				func(context.Context, lockd.Sequencer) error { return nil })
		}
	}
	keeper := func(opts *lockd.SessionOptions) func(*harness, *lockd.Session) error {
		return func(h *harness, _ *lockd.Session) error { return second(h.NewKeeper(opts)) }
	}
	with := func(key string) func(*harness, *lockd.Session) error {
		return func(h *harness, s *lockd.Session) error {
			return s.WithLock(h.t.Context(), key, nil,
				func(context.Context, lockd.Sequencer) error { return nil })
		}
	}
	refuseAll(t, slices.Concat([]badInput{
		{"campaign, value", campaign("k", tooLarge), lockd.ErrInvalid, "value has 67108865 bytes"},
		{"lead, value", lead("k", tooLarge), lockd.ErrInvalid, "value has 67108865 bytes"},
		{"keeper", keeper(&lockd.SessionOptions{TTL: -1}), lockd.ErrInvalid, "TTL is -1ns"},
		{"keeper, for ever", keeper(&lockd.SessionOptions{Lifetime: lockd.Independent}),
			lockd.ErrInvalid, "SessionOptions.Lifetime is independent, and there is no TTL"},
		{"keeper of nowhere", func(h *harness, _ *lockd.Session) error {
			k, err := h.NewKeeper(&lockd.SessionOptions{Node: "nowhere"})
			if err != nil {
				return err
			}
			return second(k.Session(h.t.Context()))
		}, catalog.ErrNoNode, "nowhere"},
	}, badKeys("campaign", func(key string) func(*harness, *lockd.Session) error {
		return campaign(key, nil)
	}), badKeys("observe", observe), badKeys("with lock", with),
		badKeys("lead", func(key string) func(*harness, *lockd.Session) error {
			return lead(key, nil)
		})))
}

// badKeys are calls with invalid keys.
func badKeys(
	name string, call func(key string) func(*harness, *lockd.Session) error,
) []badInput {
	return []badInput{
		{name + ", empty", call(""), lockd.ErrInvalid, "key is empty"},
		{name + ", too long", call(tooLong), lockd.ErrInvalid, "key has 16385 bytes"},
	}
}
