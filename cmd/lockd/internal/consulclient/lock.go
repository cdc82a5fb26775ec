package consulclient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// lockFlags are on a key that Consul's own client made to lock it. It refuses a key without.
	lockFlags = 0x2ddccbc058a50c18

	// longPoll is how long a read waits for a change.
	longPoll = time.Minute

	// retry is how long a read waits for a change of a key that is free and cannot be locked,
	// because of a lock-delay, whose end changes no key; and the pause after an error.
	retry = time.Second
)

// ErrNotAcquired is returned when the lock, or a slot, was not to be had in the time that there
// was for it.
var ErrNotAcquired = errors.New("not acquired")

// Patience says how long to wait for a lock or a slot.
type Patience uint8

// The degrees.
const (
	// UntilDone waits until it is there, or ctx ends.
	UntilDone Patience = iota
	// AtOnce does not wait.
	AtOnce
)

// Lock is the lock of a key, or a slot of a semaphore. The zero value is not usable; Keeper.Lock
// and Keeper.Acquire give one.
type Lock struct {
	entry  Entry
	unlock func(context.Context) error
}

// Entry is the key that was locked, as it was then: for a slot, the contender key. Its ModifyIndex
// is above that of every grant before, and below that of every one after.
func (l *Lock) Entry() Entry { return l.entry }

// Unlock gives the lock or the slot back, with no lock-delay. It blocks until that is done or has
// gone wrong. It is no error if it was lost before.
func (l *Lock) Unlock(ctx context.Context) error { return l.unlock(ctx) }

// Lock takes the lock of a key. The key keeps its value and its flags; one that is made for it has
// no value, and the flags that Consul's own client wants on it, and Unlock deletes it unless
// somebody has written to it. If the lock is lost, Keeper.Done is closed.
//
// It blocks until the lock is held; while it waits, errors that may pass do not end it, as long as
// the session is known to live. It returns ErrNotAcquired if the lock could not be had, wrapping
// the cause of ctx if that ended, Keeper.Err if the session was lost, or the error of a request.
// Then nothing is held.
func (k *Keeper) Lock(ctx context.Context, key string, patience Patience) (*Lock, error) {
	bound, cancel := k.bound(ctx)
	t := taking{Keeper: k, key: key, patience: patience}
	err := t.take(bound)
	cancel()
	if err != nil {
		if t.unknown {
			longer, cancel := lingering(ctx)
			defer cancel()
			_ = k.release(longer, key, t.created) // or it ends with the session
		}
		return nil, err
	}
	stop := k.watch(func(ctx context.Context, wait Wait) (uint64, string, error) {
		read, err := k.client.Get(ctx, key, wait)
		return read.Index, lost(read, key, k.id), err
	})
	return &Lock{t.entry, func(ctx context.Context) error {
		stop()
		return k.release(ctx, key, t.created)
	}}, nil
}

// lost says how the lock of a key was lost, or nothing.
func lost(read Read, key, session string) string {
	switch {
	case !read.Found:
		return fmt.Sprintf("key %q was deleted", key)
	case read.Entry.Session == "":
		return fmt.Sprintf("the lock of key %q was released", key)
	case read.Entry.Session != session:
		return fmt.Sprintf("key %q is locked by session %s", key, read.Entry.Session)
	}
	return ""
}

// taking is the taking of one lock.
type taking struct {
	*Keeper
	key      string
	patience Patience

	entry    Entry // as it was granted
	created  bool  // by this
	unknown  bool  // whether an attempt whose answer did not arrive took it
	obstacle error // the last
}

func (t *taking) take(ctx context.Context) error {
	wait := Wait{}
	for {
		read, err := t.client.Get(ctx, t.key, wait)
		switch {
		case err != nil:
		case read.Found && read.Entry.Session == t.id:
			t.entry = read.Entry // by an attempt whose answer did not arrive
			return nil
		case read.Found && read.Entry.Session != "":
			t.obstacle = &obstacle{fmt.Sprintf("key %q is locked", t.key), t.key,
				[]string{read.Entry.Session}}
		default:
			if err = t.attempt(ctx, read); err == nil {
				return nil
			}
		}
		if err := t.proceed(ctx, t.key, err, t.patience, t.obstacle); err != nil {
			return err
		}
		refused, isRefusal := errors.AsType[*refusal](err)
		wait = Wait{Index: read.Index, For: retry}
		switch {
		case isRefusal:
			t.obstacle = refused
		case err == nil:
			wait.For = longPoll
		default:
			wait = Wait{}
			_ = pause(ctx, retry) // if ctx ends, the next read says so
		}
	}
}

// attempt takes the lock of the key if that is as it was read.
func (t *taking) attempt(ctx context.Context, read Read) error {
	ops := []op{
		{Verb: "check-not-exists", Key: t.key},
		{Verb: "lock", Key: t.key, Flags: lockFlags, Session: t.id},
	}
	if read.Found {
		ops[0] = op{Verb: "check-index", Key: t.key, Index: read.Entry.ModifyIndex}
		ops[1].Value, ops[1].Flags = read.Entry.Value, read.Entry.Flags
	}
	if !read.Found {
		t.created = true
	} else if !t.unknown {
		t.created = false
	}
	longer, cancel := lingering(ctx)
	defer cancel()
	entries, err := t.client.txn(longer, ops...)
	if err == nil {
		t.entry, err = granted(t.key, entries)
	}
	if _, refused := errors.AsType[*refusal](err); err != nil && !refused {
		t.unknown = true
	}
	return err
}

// proceed returns nil if the waiting is to go on after an error or an obstacle, else the error to
// end it with. The key is that of the lock, and empty for a slot.
func (k *Keeper) proceed(
	ctx context.Context, key string, err error, patience Patience, obstacle error,
) error {
	refused, isRefusal := errors.AsType[*refusal](err)
	if isRefusal {
		obstacle = refused
	}
	switch {
	case k.Err() != nil:
		return k.Err()
	case isRefusal && refused.noSession():
		return fmt.Errorf("%w: %w", ErrNoSession, refused)
	case ctx.Err() != nil && obstacle != nil:
		return fmt.Errorf("%w: %w: %w", ErrNotAcquired, k.client.explain(ctx, key, obstacle),
			context.Cause(ctx))
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrNotAcquired, context.Cause(ctx))
	case err != nil && !isRefusal && (patience == AtOnce || lasting(err)):
		return err
	case err == nil && patience == AtOnce, isRefusal && patience == AtOnce:
		return fmt.Errorf("%w: %w", ErrNotAcquired, k.client.explain(ctx, key, obstacle))
	}
	return nil
}

// release gives a lock back: it deletes the key if it was made for it and is as it was made, else
// it leaves its value and flags as they are.
func (k *Keeper) release(ctx context.Context, key string, created bool) error {
	for {
		read, err := k.client.Get(ctx, key, Wait{})
		if err != nil || !read.Found || read.Entry.Session != k.id {
			return err
		}
		e := read.Entry
		ops := []op{
			{Verb: "check-index", Key: key, Index: e.ModifyIndex},
			{Verb: "unlock", Key: key, Value: e.Value, Flags: e.Flags, Session: k.id},
		}
		if created && len(e.Value) == 0 && e.Flags == lockFlags {
			ops = append(ops, op{Verb: "delete", Key: key})
		}
		_, err = k.client.txn(ctx, ops...)
		if _, changed := errors.AsType[*refusal](err); !changed {
			return err
		}
	}
}
