package lockd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that who gave up a lock or a slot while it was being granted does not keep it when the
// grant succeeds and what gives it back does not: that is tried again.
func TestG11_DroppedGivingUp(t *testing.T) {
	for name, take := range map[string]func(ctx context.Context, s *lockd.Session) error{
		"Lock": func(ctx context.Context, s *lockd.Session) error {
			_, err := s.Lock(ctx, "sem/.lock", nil)
			return err
		},
		"Slot": func(ctx context.Context, s *lockd.Session) error {
			_, err := s.Acquire(ctx, "sem", 1)
			return err
		},
	} {
		for _, when := range []string{"at once", "a second later", "with the next write"} {
			t.Run(name+" "+when, func(t *testing.T) {
				onFile(t, func(h *harness) { droppedGivingUp(h, when, take) })
			})
		}
	}
}

func droppedGivingUp(
	h *harness, when string, take func(ctx context.Context, s *lockd.Session) error,
) {
	c := h.commits()
	s, next := h.session(nil), h.session(nil)
	ctx, cancel := context.WithCancel(h.t.Context())
	giveUp := c.held(func() error { return take(ctx, s) })
	waiting := start(func() error { return take(context.Background(), next) })
	h.settle()
	cancel()
	if err := giveUp.wait(); !errors.Is(err, context.Canceled) {
		h.t.Fatalf("take: got %v", err)
	}
	failures := 1
	if when != "at once" {
		failures = 2 // the first try of the database's own too
	}
	c.failBy(func() error { // one committer at a time
		if failures--; failures >= 0 {
			return errDisk
		}
		return nil
	})
	c.release(nil)
	h.settle()
	switch when {
	case "a second later":
		h.advance(time.Second - 1)
		if waiting.returned() {
			h.t.Fatalf("tried again too early: %v", waiting.err)
		}
		h.advance(1)
	case "with the next write":
		_, err := h.Put("other", nil, nil)
		h.must(err)
	}
	h.settle()
	if !waiting.returned() {
		h.t.Fatal("nobody holds it, but who waits for it does not get it")
	}
	h.must(waiting.err)
	if failures >= 0 {
		h.t.Fatalf("%d more commits should have failed", failures+1)
	}
}
