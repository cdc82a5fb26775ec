package lockd

import (
	"context"
	"sync"
)

// ending is how a session or a lock tells its end: once, with a cause. The zero value has not
// ended.
type ending struct {
	mu       sync.Mutex // protects what follows; nothing is called under it but cancel functions
	err      error
	audience *audience // nil: nobody has asked to be told
}

// audience is who waits for an end.
type audience struct {
	done     chan struct{}
	contexts map[context.Context]context.CancelCauseFunc
}

// hear returns the audience, and makes it if need be; mu is held.
func (e *ending) hear() *audience {
	if e.audience == nil {
		e.audience = &audience{done: make(chan struct{})}
		if e.err != nil {
			close(e.audience.done)
		}
	}
	return e.audience
}

// Done returns a channel that is closed at the end.
func (e *ending) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hear().done
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
	if e.audience == nil {
		return
	}
	close(e.audience.done)
	for _, cancel := range e.audience.contexts {
		cancel(err)
	}
	e.audience.contexts = nil
}

// context returns a child of parent that is cancelled, with the cause, at the end.
//
// A child that is cancelled leaves its parent, and asks it for Done and Value for that: code of the
// user's, if the parent is of the user's own type, and an end is told under the database's lock. So
// there is a context between the two. It alone leaves the parent, when the child has ended, on a
// goroutine that has no lock.
func (e *ending) context(parent context.Context) context.Context {
	between, leave := context.WithCancelCause(parent)
	ctx, cancel := context.WithCancelCause(between)
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.hear()
	// A parent that ends first takes its child out of the map.
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		delete(told.contexts, ctx)
		e.mu.Unlock()
		leave(nil)
	})
	if e.err != nil {
		cancel(e.err)
		return ctx
	}
	if told.contexts == nil {
		told.contexts = make(map[context.Context]context.CancelCauseFunc)
	}
	told.contexts[ctx] = cancel
	return ctx
}
