package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// longPoll is how long a read waits for a change.
	longPoll = time.Minute

	// retry is how long a read waits for a change of a key that is free but cannot be locked,
	// because of a lock-delay or of shares, whose end changes no key. It is also the pause after an
	// error.
	retry = time.Second
)

// ErrNotAcquired is returned when the lock, or a slot, could not be taken in the time that there
// was for it.
var ErrNotAcquired = errors.New("not acquired")

// Patience says how long to wait for a lock or a slot.
type Patience uint8

// The degrees.
const (
	// UntilDone waits until the lock or slot is taken, or ctx ends.
	UntilDone Patience = iota
	// AtOnce does not wait for a lock or a slot that is held or delayed.
	AtOnce
)

// attempt tries to take a lock or a slot, after a read that waits as wait says. It returns nil if
// it has taken it, an *obstacle or a refusal if it cannot be taken now, with the index of the read,
// or any other error.
type attempt func(ctx context.Context, wait Wait) (index uint64, err error)

// inTheWay reports whether err says that the state keeps the lock or the slot from being taken. The
// state may change.
func inTheWay(err error) bool {
	_, isHeld := errors.AsType[*obstacle](err)
	_, isRefused := errors.AsType[refusal](err)
	return isHeld || isRefused
}

// isStale reports whether an attempt was refused because another client has written to the key, or
// locked it, since the attempt read it: what is in the way, if anything is, the next read will say.
func isStale(err error) bool {
	r, isRefused := errors.AsType[refusal](err)
	return isRefused && r.begins(keyExists, otherIndex, noIndex)
}

// take calls try until it has taken a lock or a slot, or the wait has ended. key is the key of the
// lock, and empty for a slot.
func (k *Keeper) take(
	ctx context.Context, key string, patience Patience, try attempt,
) error {
	bound, cancel := k.bound(ctx)
	defer cancel()
	var wait Wait
	var known error // why the last attempt failed, of those that ctx did not end
	for {
		index, err := try(bound, wait)
		if err == nil {
			return nil
		}
		blocked := inTheWay(err)
		told := known != nil && !inTheWay(known) // the attempt before failed too
		if blocked || bound.Err() == nil {
			known = err
		}
		switch {
		case k.Err() != nil:
			return k.Err()
		case errors.Is(err, ErrNoSession):
			return fmt.Errorf("%w: %w", ErrNoSession, err)
		case bound.Err() != nil && known != nil:
			return fmt.Errorf("%w: %w: %w", ErrNotAcquired, k.client.explain(ctx, key, known),
				context.Cause(bound))
		case bound.Err() != nil:
			return fmt.Errorf("%w: the server has not answered: %w", ErrNotAcquired,
				context.Cause(bound))
		case blocked && patience == AtOnce && !isStale(err):
			return fmt.Errorf("%w: %w", ErrNotAcquired, k.client.explain(ctx, key, known))
		case !blocked && (patience == AtOnce || lasting(err)):
			return err
		case !blocked && !told && k.retrying != nil:
			k.retrying(err)
		}
		wait = Wait{Index: index, For: retry}
		if _, isHeld := errors.AsType[*obstacle](err); isHeld {
			wait.For = longPoll
		} else if !blocked || index == 0 {
			wait = Wait{}
			_ = pause(bound, retry) // if ctx ends, the next read says so
		}
	}
}

// lasting reports whether the same attempt would fail again.
func lasting(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return errors.Is(err, errSemaphore) || errors.Is(err, ErrNotHeld) ||
		errors.Is(err, errors.ErrUnsupported) ||
		ok && e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests
}
