package lockd_test

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"

	"github.com/lockd/lockd"
)

// Several operations in a crowd: while the commit of the first is held, others are decided on
// what it did, and ride in the next batch. Then the commits succeed, or the first fails, and with
// it all, or the second.

// follower is one of the later operations.
type follower struct {
	tx     *twinTx   // if it is a transaction
	call   *twinCall // if it begins to wait, or gives up waiting
	gaveUp bool
	queued bool
	failed error // by the rules
	rides  int   // in which of the two batches
	err    error // valid once done is closed
	done   chan struct{}
}

func (w *twin) doCrowd(o op) error {
	first := w.deed(o.of[0])
	if first.rule == nil || w.m.unserved || w.anythingDue() {
		return w.do(o.of[0]) // it commits nothing, or more than itself
	}
	if w.m.failures = 0; o.c%3 > 0 {
		w.m.failures = 1
	}
	w.failures.Store(int64(w.m.failures))
	w.spared = o.c%3 == 2
	var want any
	var failed error
	var batches [2]modelBatch
	var others []*follower
	w.during = func() {
		w.m.begin()
		failed = w.m.decide(func(tx *modelTx) (err error) {
			want, err = first.rule(tx)
			return err
		})
		batches[0] = w.m.open
		w.m.flying = &batches[0]
		w.m.open = modelBatch{before: w.m.clone()}
		for _, part := range o.of[1:] {
			if f := w.follow(part); f != nil {
				others = append(others, f)
			}
		}
		batches[1] = w.m.open
		w.m.flying = nil
	}
	got, err := first.call()
	synctest.Wait()
	if w.during != nil { // there was nothing to commit
		w.during, w.spared = nil, false
		failed = w.m.write(func(tx *modelTx) (err error) {
			want, err = first.rule(tx)
			return err
		})
	} else if failedFirst := w.settle(batches, others, o.c%3 == 2); failedFirst != nil {
		failed = failedFirst
	}
	if failed == nil && first.then != nil {
		failed = first.then()
	}
	w.m.rouse() // what a drop left free may have been served: a slot can be lost to that already
	if err := w.same(got, err, want, failed); err != nil {
		return err
	}
	return w.sameFollowers(others)
}

func (w *twin) anythingDue() bool {
	for _, d := range w.m.pending() {
		if !w.m.now.Before(d.at) {
			return true
		}
	}
	return false
}

// settle does to the model what the commits of both batches do. It returns what becomes of the
// first.
func (w *twin) settle(batches [2]modelBatch, others []*follower, spared bool) error {
	failures := w.m.failures
	if spared {
		w.m.failures = 0
	}
	first := w.m.commit(batches[0])
	if spared {
		w.m.failures = failures
	}
	second := first
	if first == nil {
		second = w.m.commit(batches[1])
	}
	for _, f := range others {
		outcome := []error{first, second}[f.rides]
		switch {
		case f.gaveUp:
			w.m.gone(f.call.model)
		case f.call == nil:
			if outcome != nil {
				f.failed = outcome
			}
		case f.queued && second != nil && !slices.Contains(w.m.queue, f.call.model):
			w.m.queue = append(w.m.queue, f.call.model) // its place in line stays
		case !f.queued && outcome != nil:
			f.call.model.told, f.call.model.err = true, outcome
		case !f.queued && f.failed != nil: // a slot can be refused
			f.call.model.told, f.call.model.err = true, f.failed
		}
	}
	for _, f := range others {
		if f.gaveUp {
			w.m.gone(f.call.model)
		}
	}
	return first
}

// follow has one more operation decided, on both sides, and returns when it is.
func (w *twin) follow(o op) *follower {
	f := &follower{done: make(chan struct{})}
	var rule func(tx *modelTx) error
	switch o.kind {
	case "transaction":
		if o.c%8 == 6 {
			o.c = 0 // a panic would not wait for the commit
		}
		f.tx = w.newTx(o)
		rule = f.tx.rule
		w.startUpdate(f)
	case "cancel":
		if f.call = w.cancelled(o); f.call == nil {
			return nil
		}
		f.gaveUp = true
		f.call.cancel()
		<-f.call.done
		rule = func(tx *modelTx) error {
			tx.withdraw(f.call.model)
			return nil
		}
	default:
		if s, ok := w.session(o); !ok || w.m.session(s.model.info.ID) == nil {
			return nil
		}
		if f.call = w.startCall(o, cancellable); f.call == nil {
			return nil
		}
		rule = func(tx *modelTx) (err error) {
			f.queued, err = tx.acquire(f.call.model)
			return err
		}
		synctest.Wait() // until it waits for its locks, or for the commit
	}
	w.inside.Controls.Waiters("") // waits until the present decision is made
	f.failed = w.m.decide(rule)
	if w.m.open.wrote {
		f.rides = 1
	}
	if f.gaveUp {
		f.call.model.told = true // no later operation can cancel it again
	}
	return f
}

func (w *twin) startUpdate(f *follower) {
	deciding := make(chan struct{})
	go func() {
		defer close(f.done)
		f.err = w.db.Update(func(tx *lockd.Txn) error {
			defer close(deciding)
			return f.tx.real(tx)
		})
	}()
	<-deciding
}

// cancellable gives the call a context that can be cancelled.
func cancellable(call *twinCall) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	call.cancel = cancel
	return ctx
}

func (w *twin) sameFollowers(others []*follower) error {
	for _, f := range others {
		if f.tx == nil {
			continue // its call is compared with all others
		}
		<-f.done
		if err := sameError(f.err, f.failed); err != nil {
			return fmt.Errorf("transaction in a crowd: %w", err)
		}
		if err := f.tx.same(w); err != nil {
			return fmt.Errorf("in a crowd: %w", err)
		}
	}
	return nil
}
