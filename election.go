package lockd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/writer"
)

// electionFlags are the flags of an election's key. By these flags Consul's own client recognizes
// its kind of lock, so it can stand for the same election over HTTP.
const electionFlags = 0x2ddccbc058a50c18

// Leader is the handle on a leadership, which lasts while the session holds the lock of the
// election's key.
type Leader struct{ lock *Lock }

// Campaign stands for the election that the key names: it acquires the key's lock as Session.Lock
// does, and writes the value with it.
func (s *Session) Campaign(ctx context.Context, key string, value []byte) (*Leader, error) {
	leader, err := s.campaign(ctx, key, value)
	return result(leader, "campaign", key, err)
}

func (s *Session) campaign(ctx context.Context, key string, value []byte) (*Leader, error) {
	if err := engine.CheckValue(value); err != nil {
		return nil, s.db.refused(err)
	}
	value = append([]byte{}, value...) // not nil, and safe from the caller while the call waits
	opts := &LockOptions{Value: value, Flags: electionFlags}
	var lock [1]*Lock
	if err := s.acquire(ctx, []string{key}, opts, lock[:]); err != nil {
		return nil, err
	}
	return &Leader{lock[0]}, nil
}

// Sequencer is as Lock.Sequencer.
func (l *Leader) Sequencer() Sequencer { return l.lock.Sequencer() }

// Done is as Lock.Done (G10).
func (l *Leader) Done() <-chan struct{} { return l.lock.Done() }

// Err is as Lock.Err. It is ErrUnlocked after Resign.
func (l *Leader) Err() error { return l.lock.Err() }

// Context is as Lock.Context.
func (l *Leader) Context(parent context.Context) context.Context { return l.lock.Context(parent) }

// Proclaim writes another value to the key; the flags stay. If the leadership is over, it returns
// ErrNotHeld and the cause.
func (l *Leader) Proclaim(value []byte) error {
	key := l.lock.Key()
	err := l.Err()
	if err == nil {
		err = l.lock.session().db.update(func(tx *engine.Txn) error {
			if err := cmp.Or(engine.CheckValue(value), proves(tx, l.Sequencer())); err != nil {
				return err
			}
			tx.Put(key, value, tx.Get(key).Flags)
			return nil
		})
	}
	if ended := l.Err(); ended != nil && errors.Is(err, ErrNotHeld) {
		err = fmt.Errorf("%w; Campaign stands again", ended)
	}
	return wrap("proclaim", key, err)
}

// Resign ends the leadership as Lock.Unlock releases a lock. The key keeps its value.
func (l *Leader) Resign() error {
	return wrap("resign", l.lock.Key(), l.lock.unlock())
}

// panicError is a panic of the function that Lead ran.
type panicError struct{ value any }

func (e *panicError) Error() string {
	return fmt.Sprintf("the leader's function panicked: %v", e.value)
}

// Unwrap returns what the function panicked with, if that is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// Lead campaigns as Session.Campaign does, with the keeper's current session, and runs fn whenever
// it leads, until ctx ends or fn returns by itself. It calls fn on the caller's goroutine, with the
// proof of the leadership and a context that is cancelled when the leadership is lost or ctx ends.
// When fn has returned, Lead resigns if it still leads, and:
//
//   - If the leadership had ended, it ignores what fn returned and campaigns again.
//   - If ctx has ended, it returns ctx's error, joined with fn's error if that is another.
//   - If fn panicked, it logs the stack and campaigns again after a backoff, from 1 s up to 1 min.
//     The error that Lead returns in the end has the last panic. If fn called runtime.Goexit, Lead
//     resigns and ends with the goroutine.
//   - Otherwise it returns what fn returned.
//
// A commit that does not succeed is tried again until ctx ends. If a resignation is not durable by
// then, the error is also ErrCommit, and the next commit that succeeds releases the lock. Lead's
// other errors are Keeper.Session's and a *DeadlockError.
func (k *Keeper) Lead(
	ctx context.Context, key string, value []byte,
	fn func(ctx context.Context, proof Sequencer) error,
) error {
	mustHave(ctx != nil, "context")
	mustHave(fn != nil, "function")
	err := k.db.refused(errors.Join(checkKey(key), engine.CheckValue(value)))
	if err != nil {
		return wrap("lead", key, err)
	}
	value = bytes.Clone(value)
	var last *panicError
	var wait backoff
	for {
		leader, err := k.campaign(ctx, key, value)
		if err != nil {
			return wrap("lead", key, after(last, err))
		}
		began := k.db.writer.Time()
		panicked, err := leader.serve(ctx, fn)
		lost := leader.Err() != nil
		resigned := k.resign(ctx, leader)
		switch {
		case panicked != nil:
			last = panicked
			if k.db.writer.Time().Sub(began) > writer.LastBackoff {
				wait = 0 // fn had run well for a while
			}
			err = k.pause(ctx, wait.next())
			if err = errors.Join(err, resigned); err != nil {
				return wrap("lead", key, after(last, err))
			}
		case ctx.Err() != nil:
			return wrap("lead", key, after(last, stopped(ctx.Err(), err, resigned)))
		case !lost:
			return joined(err, wrap("lead", key, resigned))
		}
	}
}

// after adds the last panic, if there was one.
func after(last *panicError, err error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w; before that, %w", refusal(err), last)
}

// stopped returns the error of Lead for a ctx that ended while fn ran.
func stopped(ended, err, resigned error) error {
	if errors.Is(err, ended) { // fn's error may be ended joined with another error
		ended, err = err, nil
	}
	return errors.Join(ended, err, resigned)
}

// serve runs fn for one term, unless the term is over already. It returns fn's error or its panic.
func (l *Leader) serve(
	ctx context.Context, fn func(ctx context.Context, proof Sequencer) error,
) (panicked *panicError, err error) {
	ctx = l.Context(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		if reason := recover(); reason != nil {
			panicked = &panicError{reason}
			l.lock.session().db.logPanic(l.lock, reason, debug.Stack())
			return
		}
		_ = l.lock.abandon() // fn ended its goroutine: no caller is left to be told
	}()
	err = fn(ctx, l.Sequencer())
	returned = true
	return nil, err
}

// resign tries to resign until it succeeds. It returns an error if ctx or the keeper ends first.
func (k *Keeper) resign(ctx context.Context, l *Leader) error {
	var wait backoff
	for {
		err := wrap("resign", l.lock.Key(), l.lock.abandon())
		if !errors.Is(err, ErrCommit) {
			return nil // l has resigned, or had lost the leadership
		}
		if k.pause(ctx, wait.next()) != nil {
			return err
		}
	}
}

// campaign campaigns with one session after the other until it leads.
func (k *Keeper) campaign(ctx context.Context, key string, value []byte) (*Leader, error) {
	var wait backoff
	for {
		s, err := k.session(ctx)
		if err != nil {
			return nil, err
		}
		leader, err := s.campaign(ctx, key, value)
		switch {
		case err == nil:
			return leader, nil
		case errors.Is(err, ErrCommit):
			if err := k.pause(ctx, wait.next()); err != nil {
				return nil, err
			}
		case !errors.Is(err, ErrNoSession):
			return nil, err
		}
	}
}
