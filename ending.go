package lockd

import (
	"context"
	"sync"
)

// ending is how a session or a lock tells its end: once, with a cause. The zero value has not
// ended.
type ending struct {
	mu       sync.Mutex // protects what follows; nothing is called under it but cancel functions
	done     chan struct{}
	err      error
	contexts map[context.Context]context.CancelCauseFunc
}

// Done returns a channel that is closed at the end.
func (e *ending) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.err != nil {
			close(e.done)
		}
	}
	return e.done
}

// Err returns nil before the end, and the cause after it.
func (e *ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// end tells it. Only the first call counts.
func (e *ending) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	e.err = err
	if e.done != nil {
		close(e.done)
	}
	for _, cancel := range e.contexts {
		cancel(err)
	}
	e.contexts = nil
}

// plain hides every method of a context but the four: ending a child of it calls no code of the
// user's, which matters because that happens under the database's lock.
type plain struct{ context.Context }

// context returns a child of parent that is cancelled, with the cause, at the end.
func (e *ending) context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(plain{parent})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		cancel(e.err)
		return ctx
	}
	if e.contexts == nil {
		e.contexts = make(map[context.Context]context.CancelCauseFunc)
	}
	e.contexts[ctx] = cancel
	// A parent that ends first takes its child out of the map.
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.contexts, ctx)
	})
	return ctx
}
