package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// term is one run of a leader's function.
type term struct {
	h     *harness
	ctx   context.Context
	proof lockd.Sequencer
	end   chan func() error // how the function is to end
}

// candidate leads whenever it can, on a goroutine of its own.
type candidate struct {
	h      *harness
	keeper *lockd.Keeper
	stop   context.CancelFunc
	call   *call
	terms  chan *term
}

// stands has a new keeper lead in the election "k", until the test stops it.
func (h *harness) stands(opts *lockd.SessionOptions) *candidate {
	h.t.Helper()
	return h.standsWith(h.keeper(opts))
}

func (h *harness) standsWith(k *lockd.Keeper) *candidate {
	h.t.Helper()
	c := &candidate{h: h, keeper: k, terms: make(chan *term, 1)}
	ctx, cancel := context.WithCancel(h.t.Context())
	c.stop = cancel
	c.call = start(func() error {
		return k.Lead(ctx, "k", []byte("v"),
			func(ctx context.Context, proof lockd.Sequencer) error {
				t := &term{h: h, ctx: ctx, proof: proof, end: make(chan func() error)}
				c.terms <- t
				return (<-t.end)()
			})
	})
	h.settle()
	return c
}

// leads returns the term that the candidate must have begun.
func (c *candidate) leads() *term {
	c.h.t.Helper()
	c.h.settle()
	select {
	case t := <-c.terms:
		if e := c.h.entry("k"); e.Sequencer() != t.proof || string(e.Value) != "v" {
			c.h.t.Fatalf("leads with %v, and the key is %+v", t.proof, e)
		}
		return t
	default:
		c.h.t.Fatalf("does not lead; returned %v (%v)", c.call.returned(), c.call.err)
		return nil
	}
}

// waits fails the test if the candidate leads, or has returned.
func (c *candidate) waits() {
	c.h.t.Helper()
	c.h.settle()
	if len(c.terms) != 0 || c.call.returned() {
		c.h.t.Fatalf("leads, or has returned %v", c.call.err)
	}
}

// ends ends the term: its function returns err.
func (t *term) ends(err error) { t.finish(func() error { return err }) }

// finish ends the term by what fn does, and returns when everything that follows has happened.
func (t *term) finish(fn func() error) {
	t.end <- fn
	t.h.settle()
}

// lost fails the test unless the term's context has ended for this cause.
func (t *term) lost(cause error) {
	h := t.h
	h.t.Helper()
	h.settle()
	if !errors.Is(context.Cause(t.ctx), cause) {
		h.t.Fatalf("context: got %v, want %v", context.Cause(t.ctx), cause)
	}
}

// Ensure that the function is notified of the loss, that Lead waits for it, and then stands again
// with the next session.
func TestLead_StandsAgain(t *testing.T) {
	each(t, func(h *harness) {
		c := h.stands(&lockd.SessionOptions{TTL: 10 * time.Second, LockDelay: 20 * time.Second})
		first := c.leads()
		h.advance(time.Minute)
		if first.ctx.Err() != nil {
			h.t.Fatalf("it is not kept alive: %v", context.Cause(first.ctx))
		}
		h.must(h.EndSession(first.proof.Session))
		first.lost(lockd.ErrDestroyed)
		h.advance(time.Minute)
		c.waits() // for the function
		if _, ok := c.keeper.Current(); ok {
			h.t.Error("it has a session before it stands again")
		}
		first.ends(errOfFn)
		second := c.leads()
		if second.proof.Session == first.proof.Session || second.proof.Fence <= first.proof.Fence {
			h.t.Errorf("got %v after %v", second.proof, first.proof)
		}
		h.must(h.ForceUnlock("k", second.proof.Fence, "in a test"))
		second.lost(lockd.ErrForced)
		second.ends(nil)
		c.waits() // for the lock-delay
		h.advance(20 * time.Second)
		third := c.leads()
		if third.proof.Session != second.proof.Session {
			h.t.Error("its session lives, and it stood with another one")
		}
		c.stop()
		third.lost(context.Canceled)
		third.ends(third.ctx.Err())
		if err := c.call.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
		mustBeDelayed(h, "k", false)
	})
}

// Ensure that when ctx ends, Lead waits for the function before it resigns, and returns its error
// too.
func TestLead_EndsWithItsContext(t *testing.T) {
	each(t, func(h *harness) {
		c, next := h.stands(nil), h.stands(nil)
		only := c.leads()
		c.stop()
		only.lost(context.Canceled)
		h.advance(time.Hour)
		c.waits()
		next.waits()
		if h.entry("k").Sequencer() != only.proof {
			h.t.Error("it has resigned before the function returned")
		}
		only.ends(errOfFn)
		err := c.call.wait()
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errOfFn) ||
			!strings.HasPrefix(err.Error(), `lockd: lead "k": `) {
			h.t.Errorf("got %v", err)
		}
		if s, ok := c.keeper.Current(); !ok || s.Err() != nil {
			h.t.Error("its session has ended")
		}
		second := next.leads()
		next.stop()
		second.ends(nil)
		if err := next.call.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that Lead says the context's error once when its function returns that error.
func TestLead_ReturnsTheContextsErrorOnce(t *testing.T) {
	each(t, func(h *harness) {
		c := h.stands(nil)
		only := c.leads()
		c.stop()
		only.finish(only.ctx.Err)
		if err := c.call.wait(); err == nil || err.Error() != `lockd: lead "k": context canceled` {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that Lead returns the errors that its function joins with the context's error.
func TestLead_ReturnsWhatIsJoinedWithTheContextsError(t *testing.T) {
	each(t, func(h *harness) {
		c := h.stands(nil)
		only := c.leads()
		c.stop()
		only.finish(func() error { return errors.Join(only.ctx.Err(), errOfFn) })
		err := c.call.wait()
		if !errors.Is(err, errOfFn) || !errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that Lead is refused with a DeadlockError also when its function has panicked before.
func TestLead_R14_DeadlockAfterAPanic(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		outer := h.lock(s, "outer")
		k := h.keeper(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
		call := start(func() error {
			return k.Lead(outer.Context(h.t.Context()), "k", nil,
				func(context.Context, lockd.Sequencer) error { panic("of fn") })
		})
		h.settle()
		held := h.lock(other, "k") // while Lead rests
		h.wait(held.Context(h.t.Context()), other, "outer", nil).waits()
		h.advance(time.Second)
		err := call.wait()
		if d, ok := errors.AsType[*lockd.DeadlockError](err); !ok || len(d.Steps) == 0 {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that the function is not called for a term that is over when Lead hears of it.
func TestLead_NotCalledAfterItsTerm(t *testing.T) {
	onFile(t, func(h *harness) {
		commits := h.commits()
		other := h.session(nil)
		lock := h.lock(other, "k")
		c := h.stands(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
		first, _ := c.keeper.Current()
		busy := commits.held(func() error { return second(h.Put("x", nil, nil)) })
		granted := start(lock.Unlock) // with the next commit, and taken away in it
		h.settle()
		ended := start(func() error { return h.EndSession(first.ID()) })
		h.settle()
		commits.release(nil)
		h.must(errors.Join(busy.wait(), granted.wait(), ended.wait()))
		only := c.leads()
		if only.proof.Session == first.ID() {
			h.t.Error("called with the sequencer of a session that has ended")
		}
		only.ends(nil)
		h.must(c.call.wait())
	})
}

// Ensure that a call that waits to be elected gives up with its context, and that a call whose
// context has ended before makes nothing at all.
func TestLead_G11_GivingUp(t *testing.T) {
	each(t, func(h *harness) {
		h.lock(h.session(nil), "k")
		c := h.stands(nil)
		c.waits()
		c.stop()
		if err := c.call.wait(); !errors.Is(err, context.Canceled) || h.Waiters("k") != 0 {
			h.t.Errorf("got %v, %d waiting", err, h.Waiters("k"))
		}
		ended, cancel := context.WithCancel(h.t.Context())
		cancel()
		k := h.keeper(nil)
		h.nothingMoves("a context that has ended", func() {
			err := k.Lead(ended, "free", nil, func(context.Context, lockd.Sequencer) error {
				return errors.New("called")
			})
			if !errors.Is(err, context.Canceled) {
				h.t.Errorf("got %v", err)
			}
		})
	})
}

// Ensure that an error that the function returns of its own accord comes back as it is, after Lead
// has resigned.
func TestLead_FunctionReturns(t *testing.T) {
	each(t, func(h *harness) {
		for _, own := range []error{nil, errOfFn} {
			c, next := h.stands(nil), h.stands(nil)
			c.leads().ends(own)
			if err := c.call.wait(); err != own {
				h.t.Errorf("got %v, want %v", err, own)
			}
			next.leads().ends(nil)
			h.must(next.call.wait())
		}
	})
}

// Ensure that a panic ends only the term: others may lead, and Lead stands again after a rest,
// which grows.
func TestLead_SurvivesAPanic(t *testing.T) {
	each(t, func(h *harness) {
		c, other := h.stands(nil), h.stands(nil)
		panics := func() error { panic(errOfFn) }
		c.leads().finish(panics)
		between := other.leads()
		h.advance(time.Second)
		c.waits()
		between.ends(nil)
		h.must(other.call.wait())
		c.leads().finish(panics)
		for _, rest := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
			h.advance(rest*time.Second - 1)
			c.waits()
			h.advance(1)
			c.leads().finish(func() error { panic("another") })
		}
		h.advance(time.Minute)
		goesWell := c.leads()
		h.advance(time.Hour)
		goesWell.finish(panics)
		h.advance(time.Second)
		last := c.leads()
		c.stop()
		last.ends(nil)
		err := c.call.wait()
		if !errors.Is(err, errOfFn) || !errors.Is(err, context.Canceled) ||
			!strings.Contains(err.Error(), "before that, the leader's function panicked: "+
				errOfFn.Error()) {
			h.t.Errorf("got %v", err)
		}
	})
}

// Ensure that later terms write the value as it was at the call, whatever the caller does to it
// afterwards.
func TestLead_ValueIsItsOwn(t *testing.T) {
	each(t, func(h *harness) {
		value := []byte("v")
		k := h.keeper(&lockd.SessionOptions{LockDelay: lockd.NoLockDelay})
		terms := 0
		h.must(k.Lead(h.t.Context(), "k", value,
			func(_ context.Context, proof lockd.Sequencer) error {
				if e := h.entry("k"); string(e.Value) != "v" {
					h.t.Errorf("term %d: value %q", terms, e.Value)
				}
				value[0] = 'w'
				if terms++; terms == 1 {
					h.must(h.EndSession(proof.Session))
				}
				return nil
			}))
		if terms != 2 {
			h.t.Errorf("%d terms", terms)
		}
	})
}

// Ensure that a panic while ctx ends is returned, also a panic with a value that is no error.
func TestLead_PanicAtTheEnd(t *testing.T) {
	each(t, func(h *harness) {
		c := h.stands(nil)
		only := c.leads()
		c.stop()
		only.finish(func() error { panic("boom") })
		err := c.call.wait()
		if !strings.HasSuffix(err.Error(), "before that, the leader's function panicked: boom") ||
			!errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
		h.must(h.lock(h.session(nil), "k").Unlock())
	})
}

// Ensure that a function that ends its goroutine leaves no leader behind.
func TestLead_Goexit(t *testing.T) {
	each(t, func(h *harness) {
		c := h.stands(nil)
		c.leads().finish(func() error {
			runtime.Goexit()
			return nil
		})
		<-c.call.done
		h.must(h.lock(h.session(nil), "k").Unlock())
	})
}

// Ensure that the end of the keeper, or of the database, ends Lead.
func TestLead_G12_Close(t *testing.T) {
	each(t, func(h *harness) {
		c, waits := h.stands(nil), h.stands(nil)
		first := c.leads()
		h.must(c.keeper.Close())
		first.lost(lockd.ErrClosed)
		first.ends(errOfFn)
		if err := c.call.wait(); !errors.Is(err, lockd.ErrClosed) || errors.Is(err, errOfFn) {
			h.t.Errorf("keeper: got %v", err)
		}
		second := waits.leads()
		third := h.stands(nil)
		h.must(h.Close())
		second.lost(lockd.ErrClosed)
		second.ends(nil)
		for _, c := range []*candidate{waits, third} {
			if err := c.call.wait(); !errors.Is(err, lockd.ErrClosed) {
				h.t.Errorf("database: got %v", err)
			}
		}
	})
}

// Ensure that a Lead that rests after a panic, or waits to try again, is woken by the keeper's end.
func TestLead_G12_CloseDuringARest(t *testing.T) {
	each(t, func(h *harness) {
		c := h.stands(nil)
		c.leads().finish(func() error { panic("boom") })
		c.waits()
		h.must(c.keeper.Close())
		err := c.call.wait()
		if !strings.Contains(err.Error(), "panicked: boom") || !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("got %v", err)
		}
		if h.Deadlines() != 0 {
			h.t.Errorf("%d deadlines are left", h.Deadlines())
		}
	})
}

// Ensure that a resignation that cannot be committed is tried again until it can, and that after
// the end of the context, or of the goroutine, the next commit does it: no caller can resign then.
func TestLead_ResignsAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		a, b := h.stands(nil), h.stands(nil)
		only := a.leads()
		c.fail(errDisk)
		only.ends(errOfFn)
		a.waits()
		h.advance(time.Second)
		a.waits()
		c.fail(nil)
		h.advance(2*time.Second - 1)
		a.waits()
		h.advance(1)
		if err := a.call.wait(); err != errOfFn {
			t.Errorf("got %v", err)
		}
		last := b.leads()
		c.fail(errDisk)
		b.stop()
		last.ends(nil)
		err := b.call.wait()
		mustFail(t, "resign", err)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		h.settle() // the database has tried to release the lock
		c.fail(nil)
		if h.entry("k").Sequencer() != last.proof {
			t.Error("the lock is free")
		}
		h.must(h.lock(h.session(nil), "k").Unlock())
		h.must(b.keeper.Close())

		goes := h.stands(nil)
		goes.leads().finish(func() error {
			c.fail(errDisk)
			runtime.Goexit()
			return nil
		})
		<-goes.call.done
		h.settle()
		c.fail(nil)
		h.must(h.lock(h.session(nil), "k").Unlock())
	})
}

// Ensure that an election that cannot be committed is tried again.
func TestLead_StandsAgainAfterErrCommit(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(nil)
		h.kept(k)
		c.fail(errDisk)
		a := h.standsWith(k)
		a.waits()
		c.fail(nil)
		h.advance(time.Second)
		a.leads().ends(nil)
		h.must(a.call.wait())
	})
}

// Ensure that a critical check costs the lead, and a passing one gives another try.
func TestLead_S30_Check(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		status := func(status catalog.Status) {
			h.t.Helper()
			h.must(h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db1", ID: "disk", Status: status})
			}))
		}
		c := h.stands(&lockd.SessionOptions{
			Node: "db1", Checks: []string{"disk"}, LockDelay: lockd.NoLockDelay,
		})
		first := c.leads()
		status(catalog.Critical)
		first.lost(catalog.ErrCheckCritical)
		first.ends(nil)
		c.waits()
		status(catalog.Passing)
		c.leads().ends(nil)
		h.must(c.call.wait())
	})
}

// Ensure that of many leaders, with sessions that end and locks that are taken away, no two have a
// live context, and that each write under a sequencer has a larger fence than the last.
func TestLead_G1G8_OneAtATime(t *testing.T) {
	each(t, func(h *harness) {
		ctx, cancel := context.WithCancel(h.t.Context())
		var mu sync.Mutex // protects what follows
		var leading context.Context
		var fences []uint64
		var calls []*call
		for i := range 5 {
			k := h.keeper(&lockd.SessionOptions{
				Name: fmt.Sprint(i), TTL: 10 * time.Second, LockDelay: lockd.NoLockDelay,
			})
			calls = append(calls, start(func() error {
				return k.Lead(ctx, "k", nil, func(ctx context.Context, q lockd.Sequencer) error {
					mu.Lock()
					if leading != nil && leading.Err() == nil && ctx.Err() == nil {
						h.t.Error("two lead")
					}
					leading = ctx
					if second(h.If(q).Put("work", fmt.Append(nil, q.Fence), nil)) == nil {
						fences = append(fences, q.Fence)
					}
					mu.Unlock()
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}))
			h.settle()
		}
		const rounds = 60
		for i := range rounds {
			e := h.entry("k")
			switch i % 3 {
			case 0:
				h.must(h.EndSession(e.Session))
			case 1:
				h.must(h.ForceUnlock("k", e.Fence, "in a test"))
			case 2:
				h.must(second(h.Delete("k")))
			}
			h.advance(time.Second)
		}
		cancel()
		for _, call := range calls {
			if err := call.wait(); !errors.Is(err, context.Canceled) {
				h.t.Errorf("got %v", err)
			}
		}
		if len(fences) < rounds || !slices.IsSorted(fences) ||
			len(slices.Compact(slices.Clone(fences))) != len(fences) {
			h.t.Errorf("fences: got %v", fences)
		}
	})
}

// Ensure that Lead returns ErrCommit, beside the panic, if the function has panicked and the
// resignation is not durable by the end of ctx: the caller has to know that the lock may be held
// on.
func TestLead_PanicAndNoResignation(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		only := h.stands(nil)
		term := only.leads()
		c.fail(errDisk)
		only.stop()
		term.finish(func() error { panic("boom") })
		err := only.call.wait()
		mustFail(t, "resign", err)
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "panicked: boom") {
			t.Errorf("got %v", err)
		}
		c.fail(nil)
	})
}
