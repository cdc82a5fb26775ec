package writer

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
)

// Outcome is the outcome of a write that was decided, and may not be durable yet.
type Outcome struct {
	writer *Writer
	done   <-chan struct{} // of the caller's context
	batch  *batch          // the batch that it depends on; nil: none
	lead   bool
	err    error
}

// Start does fn as a write, and returns when the write is decided. If fn reports that its caller is
// queued, and so waits for more than a commit, Start reports that too. Otherwise the caller has to
// call Wait. The channel done, which may be nil, is the Done of the context whose end makes the
// caller give up.
func (w *Writer) Start(
	done <-chan struct{}, fn func(tx *engine.Txn) (queued bool, err error),
) (o Outcome, queued bool) {
	w.Lock()
	defer w.unlock()
	err := w.run(func() error {
		return w.Apply(func(tx *engine.Txn) (err error) {
			queued, err = fn(tx)
			return err
		})
	})
	o = Outcome{writer: w, done: done, err: err}
	switch {
	case err == nil && queued:
		return o, true
	case done == nil:
		o.batch, o.lead = w.join()
	default:
		o.batch = w.follow()
	}
	return o, false
}

// Wait returns the outcome when it is durable. If ctx, whose Done Start was given, ends before
// that, Wait does giveUp as a write, does not wait for the commit of that write, and returns ctx's
// error. It leaves giveUp out if that is nil, or if the write was refused: then there is nothing to
// give up.
func (o Outcome) Wait(ctx context.Context, giveUp func(tx *engine.Txn)) error {
	b := o.batch
	if b == nil || o.lead {
		return o.writer.settle(b, o.lead, o.err)
	}
	defer b.leave()
	end := o.writer.Wait(hook.Commit, nil)
	select {
	case <-b.done:
		end()
	case <-o.done:
		end()
		if giveUp == nil || o.err != nil || o.writer.takeBackFrom(b, giveUp) {
			return BeforeDurable(ctx.Err())
		}
		end := o.writer.Wait(hook.Commit, nil)
		<-b.done
		end()
	}
	return cmp.Or(b.err, o.err)
}

// BeforeDurable returns the error of a call whose context ended while it waited only for a commit.
func BeforeDurable(ended error) error {
	return fmt.Errorf("%w, before the answer was durable", ended)
}

// takeBackFrom does giveUp unless the batch is decided, or nothing is written any more.
func (w *Writer) takeBackFrom(b *batch, giveUp func(tx *engine.Txn)) bool {
	w.mutex.Lock()
	defer w.unlock()
	return !b.decided && w.run(func() error { return w.Apply(certain(giveUp)) }) == nil
}
