package lockclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/hashicorp/consul/api"
)

// holders is what the semaphore's key has.
type holders struct {
	Limit   int
	Holders map[string]bool // sessions
}

// Acquire takes one of limit slots of the semaphore at the prefix; a limit of 0 means the limit
// that the semaphore has. It follows the protocol of the official client's semaphore: the
// semaphore's key prefix/.lock has the limit and the holders, and each session that holds a slot or
// waits for one has locked a key prefix/session. (The official one takes no limit of 0, does not
// tell the holders, and fails when a request fails.) If the slot is lost, Keeper.Done is closed,
// and Deadline leaves no time: no lock-delay keeps another session from the slot.
//
// It blocks and fails as Lock does. It also returns an error for a limit below 0, a prefix that is
// not a clean path, a key prefix/.lock that is not a semaphore's or has another limit, and a limit
// of 0 if there is no such key.
func (k *Keeper) Acquire(
	ctx context.Context, prefix string, limit int, patience Patience,
) (*Lock, error) {
	if limit < 0 {
		return nil, fmt.Errorf("the limit is %d, below 0", limit)
	}
	if prefix == "" || path.Join("/", prefix) != "/"+prefix {
		return nil, fmt.Errorf("prefix %q is no clean path", prefix)
	}
	k.mu.Lock()
	k.delay = 0
	k.mu.Unlock()
	s := &slot{Keeper: k, prefix: prefix, limit: limit}
	if err := k.take(ctx, "", patience, s.attempt); err != nil {
		longer, cancel := lingering(ctx)
		defer cancel()
		_ = s.release(longer) // or it ends with the session
		return nil, err
	}
	s.limit = 0 // the semaphore's own, which may be changed while slots are held
	stop := k.watch(func(ctx context.Context, wait Wait) (uint64, error, error) {
		state, held, err := s.look(ctx, wait)
		if err != nil || held {
			return state.index, nil, err
		}
		return state.index, s.takenAway(), nil
	})
	return &Lock{pair: s.contender, unlock: func(ctx context.Context) error {
		stop()
		return s.release(ctx)
	}}, nil
}

// slot is a slot that is being taken, or was.
type slot struct {
	*Keeper
	prefix    string
	limit     int         // 0: the semaphore's own
	contender *api.KVPair // nil: not there yet
}

func (s *slot) key() string          { return s.prefix + "/" + api.DefaultSemaphoreKey }
func (s *slot) contenderKey() string { return s.prefix + "/" + s.id }

// attempt locks the contender key, which is the session's own, and then adds the session to the
// holders.
func (s *slot) attempt(ctx context.Context, wait Wait) (uint64, error) {
	for {
		var err error
		if s.contender == nil {
			s.contender, err = s.client.lock(ctx, &api.KVTxnOp{Verb: api.KVLock,
				Key: s.contenderKey(), Flags: api.SemaphoreFlagValue, Session: s.id})
			if err != nil {
				return 0, err
			}
		}
		state, err := s.read(ctx, wait)
		switch {
		case err != nil:
			return 0, err
		case !state.contends: // another client has deleted the contender key, or unlocked it
			s.contender, wait = nil, Wait{}
			continue
		case slices.Contains(state.live, s.id):
			return state.index, nil // by an attempt whose answer did not arrive
		case len(state.live) >= state.limit:
			what := fmt.Sprintf("all slots of semaphore %q are held", s.prefix)
			return state.index, &obstacle{what, state.live}
		}
		longer, cancel := lingering(ctx)
		done, err := s.put(longer, state, append(state.live, s.id))
		cancel()
		if done || err != nil {
			return 0, err
		}
		wait = Wait{} // another session was quicker
	}
}

// semaphore is a semaphore as it was read.
type semaphore struct {
	index uint64     // for the next read
	limit int        // at least 1
	key   api.KVPair // prefix/.lock; zero: not there yet
	live  []string   // the holders whose contender keys are locked

	contends bool // whether the contender key of the one that reads is locked
}

// errSemaphore is returned when the semaphore's key is not a semaphore, or not the one asked for.
var errSemaphore = errors.New("not such a semaphore")

// read reads the semaphore. A holder whose contender key is no longer locked has lost its slot.
func (s *slot) read(ctx context.Context, wait Wait) (semaphore, error) {
	entries, index, err := s.client.List(ctx, s.prefix+"/", wait)
	if err != nil {
		return semaphore{}, err
	}
	state := semaphore{index: index, limit: s.limit}
	contenders := make(map[string]bool)
	for _, e := range entries {
		switch {
		case e.Key == s.key():
			state.key = *e
		case e.Session != "":
			contenders[e.Session] = true
		}
	}
	state.contends = contenders[s.id]
	if state.key.Key == "" {
		if s.limit == 0 {
			return state, fmt.Errorf("%w: %q has no limit yet: name one", errSemaphore, s.prefix)
		}
		return state, nil
	}
	if flags := state.key.Flags; flags != api.SemaphoreFlagValue {
		return state, fmt.Errorf("%w: key %q has the flags %d", errSemaphore, s.key(), flags)
	}
	var was holders
	if err := json.Unmarshal(state.key.Value, &was); err != nil {
		// Not %w: a syntax error that a caller finds is that of an answer.
		return state, fmt.Errorf("%w: key %q: %v", errSemaphore, s.key(), err)
	}
	switch {
	case was.Limit < 1:
		return state, fmt.Errorf("%w: %q has the limit %d", errSemaphore, s.prefix, was.Limit)
	case s.limit == 0:
		state.limit = was.Limit
	case was.Limit != s.limit:
		return state, fmt.Errorf("%w: %q has the limit %d, not %d", errSemaphore, s.prefix,
			was.Limit, s.limit)
	}
	for _, session := range slices.Sorted(maps.Keys(was.Holders)) {
		if contenders[session] {
			state.live = append(state.live, session)
		}
	}
	return state, nil
}

// look reads the semaphore, and whether the session is among its holders. If the key is gone, or is
// no semaphore's any more, there are no holders.
func (s *slot) look(ctx context.Context, wait Wait) (state semaphore, held bool, err error) {
	state, err = s.read(ctx, wait)
	if errors.Is(err, errSemaphore) {
		err = nil
	}
	return state, slices.Contains(state.live, s.id), err
}

// put writes the holders, unless the key has changed since the semaphore was read.
func (s *slot) put(ctx context.Context, state semaphore, live []string) (bool, error) {
	next := holders{state.limit, make(map[string]bool)}
	for _, session := range live {
		next.Holders[session] = true
	}
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	pair := &api.KVPair{Key: s.key(), Value: value, Flags: api.SemaphoreFlagValue}
	return s.client.Put(ctx, pair, &state.key.ModifyIndex)
}

// takenAway is the loss of the slot.
func (s *slot) takenAway() error {
	return fmt.Errorf("the slot of semaphore %q was taken away", s.prefix)
}

// release removes the session from the holders, and then unlocks and deletes its contender key. A
// delete alone would be the loss of a lock for the server: it logs and counts those. If the session
// was no holder, release returns notHeld after that.
func (s *slot) release(ctx context.Context) error {
	var loss error
	for {
		state, held, err := s.look(ctx, Wait{})
		if err != nil {
			return err
		}
		if !held {
			loss = notHeld(s.takenAway())
			break
		}
		rest := slices.DeleteFunc(state.live, func(id string) bool { return id == s.id })
		if done, err := s.put(ctx, state, rest); done {
			break
		} else if err != nil {
			return err
		}
	}
	_, err := s.client.txn(ctx,
		&api.KVTxnOp{Verb: api.KVUnlock, Key: s.contenderKey(),
			Flags: api.SemaphoreFlagValue, Session: s.id},
		&api.KVTxnOp{Verb: api.KVDelete, Key: s.contenderKey()})
	if inTheWay(err) { // the lock was lost, or released by an attempt whose answer did not arrive
		_, err = s.client.Delete(ctx, s.contenderKey(), nil)
	}
	return cmp.Or(err, loss)
}
