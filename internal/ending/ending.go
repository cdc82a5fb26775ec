// Package ending tells the end of something, such as a lock, once and with a cause: by a channel,
// an error, and contexts. It knows nothing of what ends.
package ending

import (
	"context"
	"sync"
)

// Ending is the end of one thing. Its methods may be called by many goroutines. The zero value has
// not ended.
type Ending struct {
	mu       sync.Mutex // protects what follows; nothing is called under it but cancel functions
	err      error
	audience *audience // nil: no call has asked to be told
}

// audience is what is told of an end.
type audience struct {
	done     chan struct{}
	contexts map[context.Context]context.CancelCauseFunc
}

// hear returns the audience, and makes it if need be; mu is held.
func (e *Ending) hear() *audience {
	if e.audience == nil {
		e.audience = &audience{done: make(chan struct{})}
		if e.err != nil {
			close(e.audience.done)
		}
	}
	return e.audience
}

// Done returns a channel that is closed at the end.
func (e *Ending) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hear().done
}

// Err returns nil before the end, and the cause after it.
func (e *Ending) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// End tells the end. Only the first call counts.
func (e *Ending) End(err error) {
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

// Context returns a child of parent that is cancelled, with the cause, at the end.
//
// A child that is cancelled leaves its parent, and for that calls the parent's Done and Value. If
// the parent is of the user's own type, that is the user's code, and End may be called under a
// lock. So there is a context between the two. Only that context leaves the parent, when the child
// has ended, on a goroutine that has no lock.
func (e *Ending) Context(parent context.Context) context.Context {
	between, leave := context.WithCancelCause(parent)
	ctx, cancel := context.WithCancelCause(between)
	e.mu.Lock()
	defer e.mu.Unlock()
	audience := e.hear()
	// If the parent ends first, this takes the child out of the map.
	context.AfterFunc(ctx, func() {
		e.mu.Lock()
		delete(audience.contexts, ctx)
		e.mu.Unlock()
		leave(nil)
	})
	if e.err != nil {
		cancel(e.err)
		return ctx
	}
	if audience.contexts == nil {
		audience.contexts = make(map[context.Context]context.CancelCauseFunc)
	}
	audience.contexts[ctx] = cancel
	return ctx
}
