package lockclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/hashicorp/consul/api"
)

// Lock is the lock of a key, a share of it, or a slot of a semaphore. The zero value is not usable;
// Keeper.Lock, Keeper.Share and Keeper.Acquire give one.
type Lock struct {
	pair   *api.KVPair
	shared bool
	unlock func(context.Context) error
}

// Pair is the key that was locked, as it was then: for a slot, the contender key. Its ModifyIndex
// is above that of every grant before, and below that of every one after; for a share it is the
// fence.
func (l *Lock) Pair() *api.KVPair { return l.pair }

// Shared reports whether the lock is shared.
func (l *Lock) Shared() bool { return l.shared }

// ErrNotHeld is returned by Lock.Unlock when the lock, the share or the slot was lost before.
var ErrNotHeld = errors.New("not held")

// notHeld returns the error of a release that has found a loss.
func notHeld(loss error) error { return fmt.Errorf("%w%.0w", loss, ErrNotHeld) } // adds no text

// Unlock releases the lock or the slot, with no lock-delay. It blocks until that is done or has
// failed; errors that may pass do not end it before ctx does. It returns ErrNotHeld, with how the
// lock was lost, if it was lost before.
func (l *Lock) Unlock(ctx context.Context) error {
	deadline, limited := ctx.Deadline()
	for first := true; ; first = false {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if limited {
			attempt, cancel = oneOfSeveral(ctx, deadline)
		}
		err := l.unlock(attempt)
		cancel()
		if errors.Is(err, ErrNotHeld) && !first {
			return nil // released by an attempt whose answer did not arrive
		}
		if err == nil || lasting(err) || pause(ctx, retry) != nil {
			return err
		}
	}
}

// Lock takes the lock of a key. The key keeps its value and its flags, which the official client's
// lock does not allow. A key that is made for the lock has no value, and the flags that the
// official client wants on it. Unlock deletes such a key unless it has been written to. If the lock
// is lost, Keeper.Done is closed.
//
// It blocks until the lock is held; while it waits, errors that may pass do not end it, as long as
// the session is known to live. It returns ErrNotAcquired if the lock could not be had, wrapping
// the cause of ctx if that ended, Keeper.Err if the session was lost, or the error of a request.
// Then nothing is held. A key whose value is so large that the transaction has no room for it, of
// about 384 KiB, cannot be locked.
func (k *Keeper) Lock(ctx context.Context, key string, patience Patience) (*Lock, error) {
	t := taking{Keeper: k, key: key}
	if err := k.take(ctx, key, patience, t.attempt); err != nil {
		if t.unknown {
			longer, cancel := lingering(ctx)
			defer cancel()
			_ = k.release(longer, key, t.created) // or it ends with the session
		}
		return nil, err
	}
	stop := k.watch(func(ctx context.Context, wait Wait) (uint64, error, error) {
		pair, index, err := k.client.Get(ctx, key, wait)
		return index, lost(pair, key, k.id), err
	})
	return &Lock{pair: t.pair, unlock: func(ctx context.Context) error {
		stop()
		return k.release(ctx, key, t.created)
	}}, nil
}

// lost says how the lock of a key was lost, if it was.
func lost(pair *api.KVPair, key, session string) error {
	switch {
	case pair == nil:
		return fmt.Errorf("key %q was deleted", key)
	case pair.Session == "":
		return fmt.Errorf("the lock of key %q was released", key)
	case pair.Session != session: // %.0w wraps, and adds no text
		return fmt.Errorf("key %q is locked by session %s%.0w", key, pair.Session, errTaken)
	}
	return nil
}

// taking is the taking of one lock.
type taking struct {
	*Keeper
	key string

	pair    *api.KVPair // as it was granted
	created bool        // by this taking
	unknown bool        // whether an attempt whose answer did not arrive may have taken it
}

// attempt takes the lock of the key, if the lock is free and the key is as it was read.
func (t *taking) attempt(ctx context.Context, wait Wait) (uint64, error) {
	pair, index, err := t.client.Get(ctx, t.key, wait)
	ops := []*api.KVTxnOp{
		{Verb: api.KVCheckNotExists, Key: t.key},
		{Verb: api.KVLock, Key: t.key, Flags: api.LockFlagValue, Session: t.id},
	}
	switch {
	case err != nil:
		return 0, err
	case pair == nil:
		t.created = true
	case pair.Session == t.id:
		t.pair = pair // by an attempt whose answer did not arrive
		return index, nil
	case pair.Session != "":
		return index, &obstacle{fmt.Sprintf("key %q is locked", t.key), []string{pair.Session}}
	default:
		t.created = t.created && t.unknown
		ops[0] = &api.KVTxnOp{Verb: api.KVCheckIndex, Key: t.key, Index: pair.ModifyIndex}
		ops[1].Value, ops[1].Flags = pair.Value, pair.Flags
	}
	t.pair, err = t.client.lock(ctx, ops...)
	if isTooLarge(err) {
		err = fmt.Errorf("the value of key %.80q has %d bytes, too many for a transaction that "+
			"locks the key: %w", t.key, len(ops[1].Value), err)
	}
	if err != nil && !inTheWay(err) {
		t.unknown = true
	}
	return index, err
}

// release releases a lock, or returns notHeld. It deletes the key if that was made for the lock and
// has not been changed, else it leaves the key's value and flags as they are.
func (k *Keeper) release(ctx context.Context, key string, created bool) error {
	for {
		pair, _, err := k.client.Get(ctx, key, Wait{})
		if err != nil {
			return err
		}
		if loss := lost(pair, key, k.id); loss != nil {
			return notHeld(loss)
		}
		ops := []*api.KVTxnOp{
			{Verb: api.KVCheckIndex, Key: key, Index: pair.ModifyIndex},
			{Verb: api.KVUnlock, Key: key, Value: pair.Value, Flags: pair.Flags, Session: k.id},
		}
		if created && len(pair.Value) == 0 && pair.Flags == api.LockFlagValue {
			ops = append(ops, &api.KVTxnOp{Verb: api.KVDelete, Key: key})
		}
		_, err = k.client.txn(ctx, ops...)
		switch {
		case isTooLarge(err):
			return k.releaseLarge(ctx, pair)
		case !inTheWay(err):
			return err
		}
	}
}

// releaseLarge releases the lock of a key whose value has grown while the lock was held, so that a
// transaction, which has the value in base64, has no room for it. The request that it sends instead
// checks no index: it writes the value and the flags as they were read just before, and what
// another client wrote in between is lost. Without it the lock would be held until the session
// ends, and then be delayed.
func (k *Keeper) releaseLarge(ctx context.Context, pair *api.KVPair) error {
	query := url.Values{
		"release": {k.id}, "flags": {strconv.FormatUint(pair.Flags, 10)},
	}
	var done bool
	err := k.client.ask(ctx, http.MethodPut, "/v1/kv/"+pair.Key, query,
		bytes.NewReader(pair.Value), &done)
	if err == nil && !done {
		err = notHeld(fmt.Errorf("the lock of key %q was lost", pair.Key))
	}
	return err
}

// isTooLarge reports whether the server refused a request for its size.
func isTooLarge(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusRequestEntityTooLarge
}
