package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// outlook is what an Observe has yielded.
type outlook struct {
	h    *harness
	stop context.CancelFunc

	mu   sync.Mutex // protects what follows
	seen []lockd.Leadership
	err  error // that it ended with
}

// outlook observes the election of the key until the test is over.
func (h *harness) outlook(key string) *outlook {
	h.t.Helper()
	o := &outlook{h: h}
	ctx, cancel := context.WithCancel(h.t.Context())
	o.stop = cancel
	go func() {
		for l, err := range h.Observe(ctx, key) {
			o.mu.Lock()
			if o.err = err; err == nil {
				o.seen = append(o.seen, l)
			}
			o.mu.Unlock()
		}
	}()
	h.settle()
	return o
}

// fresh returns what was yielded since the last call.
func (o *outlook) fresh() []lockd.Leadership {
	o.h.settle()
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

// inShort is a leadership in words.
func inShort(l lockd.Leadership) string {
	switch {
	case !l.Vacant():
		return fmt.Sprintf("%s: %s", l.Name, l.Value)
	case l.Until.IsZero():
		return "vacant"
	}
	return fmt.Sprintf("vacant until %d s", l.Until.Unix())
}

// tells fails the test unless this was yielded since the last call.
func (o *outlook) tells(want ...string) []lockd.Leadership {
	o.h.t.Helper()
	fresh := o.fresh()
	var got []string
	for _, l := range fresh {
		got = append(got, inShort(l))
	}
	if !slices.Equal(got, want) {
		o.h.t.Fatalf("got %q, want %q", got, want)
	}
	return fresh
}

func (h *harness) named(name string) *lockd.Session {
	h.t.Helper()
	return h.session(&lockd.SessionOptions{Name: name, LockDelay: 10 * time.Second})
}

// Ensure that each leader, each value and each vacancy is yielded once, with its fields.
func TestObserve_Story(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.named("a"), h.named("b")
		o := h.outlook("k")
		if l := o.tells("vacant")[0]; l.Fence != 0 || l.Cause != nil {
			h.t.Errorf("at first: got %+v", l)
		}
		first := h.campaign(a, "k", "1")
		if l := o.tells("a: 1")[0]; l.Leader != first.Sequencer() ||
			l.Fence != first.Sequencer().Fence || l.Cause != nil {
			h.t.Errorf("leader: got %+v", l)
		}
		h.must(first.Proclaim([]byte("2")))
		if l := o.tells("a: 2")[0]; l.Leader != first.Sequencer() {
			h.t.Errorf("proclaimed: got %+v", l)
		}
		h.must(first.Proclaim([]byte("2")))
		h.put("k", "2", 5)
		h.put("k2", "", 0)
		o.tells()
		h.must(first.Resign())
		l := o.tells("vacant")[0]
		if !errors.Is(l.Cause, lockd.ErrUnlocked) || l.Fence != first.Sequencer().Fence ||
			l.Value != nil {
			h.t.Errorf("resigned: got %+v", l)
		}
		h.put("k", "3", 0)
		o.tells()
		h.campaign(b, "k", "4")
		o.tells("b: 4")
		h.must(h.EndSession(b.ID()))
		l = o.tells("vacant until 10 s")[0]
		if !errors.Is(l.Cause, lockd.ErrDestroyed) {
			h.t.Errorf("lost: got %+v", l)
		}
		h.advance(10 * time.Second)
		h.put("k", "5", 0)
		o.tells()
	})
}

// Ensure that sessions that share the lock do not lead, and that a leader that downgrades leaves a
// vacancy.
func TestObserve_SharesDoNotLead(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.named("a"), h.named("b")
		o := h.outlook("k")
		o.tells("vacant")
		one, two := h.share(a, "k"), h.share(b, "k")
		h.must(one.Unlock())
		h.must(h.ForceUnlock("k", two.Sequencer().Fence, "")) // its delay keeps leaders out
		o.tells()
		late := h.outlook("k")
		late.tells("vacant")
		h.advance(10 * time.Second)
		lock := h.lock(a, "k")
		o.tells("a: ")
		h.must(lock.Downgrade())
		if l := o.tells("vacant")[0]; !errors.Is(l.Cause, lockd.ErrUnlocked) {
			h.t.Errorf("downgraded: got %+v", l)
		}
	})
}

// Ensure that a leader that hands over leaves no vacancy.
func TestObserve_HandedOver(t *testing.T) {
	each(t, func(h *harness) {
		leader := h.campaign(h.named("a"), "k", "1")
		waits := start(func() error {
			return second(h.named("b").Campaign(h.t.Context(), "k", []byte("2")))
		})
		o := h.outlook("k")
		o.tells("a: 1")
		h.must(leader.Resign())
		h.must(waits.wait())
		if l := o.tells("b: 2")[0]; l.Cause != nil || !l.Until.IsZero() {
			h.t.Errorf("got %+v", l)
		}
		h.must(second(h.Delete("k")))
		if l := o.tells("vacant")[0]; !errors.Is(l.Cause, lockd.ErrKeyDeleted) {
			h.t.Errorf("got %+v", l)
		}
	})
}

// Ensure that a leader that is elected when a lock-delay is over is yielded.
func TestObserve_G7_AfterADelay(t *testing.T) {
	each(t, func(h *harness) {
		h.campaign(h.named("a"), "k", "1")
		o := h.outlook("k")
		waits := start(func() error {
			return second(h.named("b").Campaign(h.t.Context(), "k", []byte("2")))
		})
		o.tells("a: 1")
		h.must(h.ForceUnlock("k", h.entry("k").Fence, "in a test"))
		if l := o.tells("vacant until 10 s")[0]; !errors.Is(l.Cause, lockd.ErrForced) {
			h.t.Errorf("got %+v", l)
		}
		h.advance(10*time.Second - 1)
		o.tells()
		h.advance(1)
		o.tells("b: 2")
		h.must(waits.wait())
	})
}

// Ensure that the present state comes first, whatever it is.
func TestObserve_PresentFirst(t *testing.T) {
	each(t, func(h *harness) {
		deletes := h.session(&lockd.SessionOptions{
			Name: "d", Behavior: lockd.DeleteKeys, LockDelay: 20 * time.Second,
		})
		h.outlook("never").tells("vacant")
		h.put("value", "v", 0)
		h.outlook("value").tells("vacant")
		h.campaign(h.named("a"), "led", "1")
		h.outlook("led").tells("a: 1")
		h.must(second(h.named("locks").TryLock("locked", nil)))
		h.outlook("locked").tells("locks: ")
		was := h.campaign(h.named("r"), "resigned", "1")
		h.must(was.Resign())
		l := h.outlook("resigned").tells("vacant")[0]
		if l.Fence != was.Sequencer().Fence || l.Cause != nil {
			h.t.Errorf("got %+v", l)
		}
		h.campaign(deletes, "gone", "1")
		h.must(h.EndSession(deletes.ID()))
		h.advance(5 * time.Second)
		h.outlook("gone").tells("vacant until 20 s")
		h.advance(15 * time.Second)
		h.outlook("gone").tells("vacant")
	})
}

// Ensure that after a restart a lock-delay is yielded by the wall clock, but never as longer than
// it was.
func TestObserve_G7_AfterARestart(t *testing.T) {
	onFile(t, func(h *harness) {
		h.campaign(h.named("a"), "k", "1")
		h.must(h.EndSession(h.entry("k").Session))
		h.advance(4 * time.Second)
		h.reopen()
		h.outlook("k").tells("vacant until 10 s")
		h.must(h.Close())
		h.clock.Set(time.Unix(-100, 0))
		h.open()
		h.outlook("k").tells("vacant until -90 s")
	})
}

// Ensure that an observer that looks late gets every change nevertheless, with the names of
// sessions that have ended, as long as the history reaches back.
func TestObserve_LateButComplete(t *testing.T) {
	each(t, func(h *harness) {
		next, stop := iter.Pull2(h.Observe(h.t.Context(), "k"))
		defer stop()
		read := func() lockd.Leadership {
			l, err, _ := next()
			h.must(err)
			return l
		}
		if l := read(); !l.Vacant() {
			h.t.Fatalf("got %+v", l)
		}
		want := []string{}
		for i := range 50 {
			s := h.session(&lockd.SessionOptions{Name: fmt.Sprint(i)})
			h.campaign(s, "k", "v")
			h.must(s.Close())
			want = append(want, fmt.Sprintf("%d: v", i), "vacant")
		}
		var got []string
		last := uint64(0)
		for range want {
			l := read()
			got = append(got, inShort(l))
			if l.Fence < last {
				h.t.Errorf("fence %d after %d", l.Fence, last)
			}
			last = l.Fence
		}
		if !slices.Equal(got, want) {
			h.t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Ensure that the session that got the election's own lock is named, whatever else is granted.
func TestObserve_SeveralInOneTransaction(t *testing.T) {
	each(t, func(h *harness) {
		a, b := h.named("a"), h.named("b")
		one, other := h.outlook("1"), h.outlook("2")
		h.must(h.Update(func(tx *lockd.Txn) error {
			_, first := tx.Lock("1", a.ID(), nil)
			_, then := tx.Lock("2", b.ID(), nil)
			return errors.Join(first, then)
		}))
		one.tells("vacant", "a: ")
		other.tells("vacant", "b: ")
	})
}

// Ensure that an observer that falls behind the history goes on from the present state, and never
// sees a state older than the one it has seen.
func TestObserve_G8_BehindTheHistory(t *testing.T) {
	for _, history := range []int{1, 2, 7} {
		inBubble(t, "", func(h *harness) {
			h.must(h.Close())
			h.opts.History = history
			h.open()
			seed := rand.Uint64()
			h.t.Logf("history %d, seed %d", history, seed)
			random := rand.New(rand.NewPCG(seed, 0))
			next, stop := iter.Pull2(h.Observe(h.t.Context(), "k"))
			defer stop()
			var last lockd.Leadership
			told := 0
			read := func() {
				l, err, _ := next()
				h.must(err)
				if l.Fence < last.Fence || l.Fence == last.Fence && last.Vacant() && !l.Vacant() {
					h.t.Fatalf("got %+v after %+v", l, last)
				}
				last = l
				told++
			}
			read()
			for i := range 300 {
				for range random.IntN(6) {
					s := h.session(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
					h.campaign(s, "k", "v")
					if random.IntN(2) == 0 {
						h.must(second(h.Delete("k")))
					}
					h.must(h.EndSession(s.ID()))
				}
				s := h.session(nil)
				h.campaign(s, "k", fmt.Sprint(i))
				for last.Leader != h.entry("k").Sequencer() {
					read()
				}
				h.must(s.Close())
			}
			if told < 300 {
				h.t.Errorf("told only of %d", told)
			}
		})
	}
}

// Ensure that an observer that falls behind the history gets the present vacancy with its delay,
// also if the key has gone and takes the fence with it, and never with a smaller fence.
func TestObserve_G7G8_VacancyBehindTheHistory(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		h.must(h.Close())
		h.opts.History = 1
		h.open()
		next, stop := iter.Pull2(h.Observe(h.t.Context(), "k"))
		defer stop()
		read := func(want string, fence uint64) {
			h.t.Helper()
			l, err, _ := next()
			h.must(err)
			if inShort(l) != want || l.Fence != fence {
				h.t.Fatalf("got %+v, want %s with fence %d", l, want, fence)
			}
		}
		loses := func() {
			s := h.named("a")
			h.campaign(s, "k", "v")
			h.must(h.EndSession(s.ID()))
			h.must(second(h.Delete("k")))
			h.put("other", "v", 0)
		}
		read("vacant", 0)
		loses()
		read("vacant until 10 s", 0)
		h.advance(10 * time.Second)
		leader := h.campaign(h.named("b"), "k", "v")
		fence := leader.Sequencer().Fence
		read("b: v", fence)
		h.must(leader.Resign())
		h.must(second(h.Delete("k")))
		h.put("other", "w", 0)
		read("vacant", fence)

		leader = h.campaign(h.named("c"), "k", "v")
		fence = leader.Sequencer().Fence
		h.must(leader.Resign())
		h.put("other", "x", 0)
		read("vacant", fence) // after another leader

		loses()
		read("vacant until 20 s", fence)
		h.advance(10 * time.Second)
		h.put("k", "v", 0)
		h.put("other", "y", 0)
		var last lockd.Leadership
		reading := start(func() (err error) { last, err, _ = next(); return err })
		h.settle() // it is told neither of the end of the delay nor of the value
		h.campaign(h.named("d"), "k", "v")
		if h.must(reading.wait()); inShort(last) != "d: v" {
			h.t.Errorf("got %+v, want the next leader", last)
		}
	})
}

// Ensure that an Observe ends with the reason, and leaves nothing.
func TestObserve_G12_Ends(t *testing.T) {
	each(t, func(h *harness) {
		left, stopped, closed := h.outlook("k"), h.outlook("k"), h.outlook("k")
		left.stop()
		h.settle()
		for range h.Observe(h.t.Context(), "other") {
			break // at the first
		}
		for range h.Observe(h.t.Context(), "other") {
			h.put("other", "v", 0)
			s := h.session(nil)
			h.campaign(s, "other", "w")
			h.must(s.Close())
			break
		}
		if !errors.Is(left.err, context.Canceled) || h.Topics() != 1 {
			h.t.Errorf("stopped: got %v, %d topics", left.err, h.Topics())
		}
		stopped.tells("vacant")
		h.must(h.Close())
		h.settle()
		if !errors.Is(closed.err, lockd.ErrClosed) || !errors.Is(stopped.err, lockd.ErrClosed) {
			h.t.Errorf("closed: got %v and %v", closed.err, stopped.err)
		}
		ended, cancel := context.WithCancel(h.t.Context())
		cancel()
		n := 0
		for _, err := range h.Observe(ended, "k") {
			if n++; !errors.Is(err, context.Canceled) {
				h.t.Errorf("ended before: got %v", err)
			}
		}
		if n != 1 {
			h.t.Errorf("ended before: %d yielded", n)
		}
	})
}

// Ensure that no observer gets a change that a failed commit took back.
func TestObserve_G3_FailedCommit(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		a, b := h.named("a"), h.named("b")
		leader := h.campaign(a, "k", "1")
		o := h.outlook("k")
		o.tells("a: 1")
		elected := start(func() error {
			return second(b.Campaign(h.t.Context(), "k", []byte("2")))
		})
		h.settle() // it waits for its turn before that is given, and taken back
		resigns := c.held(leader.Resign)
		if got := o.seen; len(got) != 0 {
			t.Fatalf("before the commit: %+v", got)
		}
		c.release(errDisk)
		mustFail(t, "resign", resigns.wait())
		h.settle()
		o.tells()
		h.must(leader.Resign())
		h.must(elected.wait())
		if got := o.fresh(); inShort(got[len(got)-1]) != "b: 2" {
			t.Errorf("got %+v", got)
		}
	})
}
