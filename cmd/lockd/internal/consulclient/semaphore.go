package consulclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
)

const (
	// slotFlags are on the keys of a semaphore. Consul's own client refuses others.
	slotFlags = 0xe0f69a2baa414de0

	// semaphoreKey, after the prefix, has the limit and the holders.
	semaphoreKey = "/.lock"
)

// holders is what the semaphore's key has.
type holders struct {
	Limit   int
	Holders map[string]bool // sessions
}

// Acquire takes a slot of the semaphore at the prefix, of which there are limit, or as many as the
// semaphore says if limit is 0. It follows the protocol of Consul's own client: the semaphore's key
// prefix/.lock has the limit and the holders, and each session that holds a slot or waits for one
// has locked a key prefix/session. If the slot is lost, Keeper.Done is closed: no lock-delay guards
// it.
//
// It blocks and fails as Lock does. It also returns an error for a limit below 0, a prefix that is
// no clean path, a key prefix/.lock that is not of a semaphore or has another limit, and a limit of
// 0 if there is no such key.
func (k *Keeper) Acquire(
	ctx context.Context, prefix string, limit int, patience Patience,
) (*Lock, error) {
	if limit < 0 {
		return nil, fmt.Errorf("the limit is %d, below 0", limit)
	}
	if prefix == "" || prefix == "." || path.Join("/", prefix) != "/"+prefix {
		return nil, fmt.Errorf("prefix %q is no clean path", prefix)
	}
	k.mu.Lock()
	k.delay = 0
	k.mu.Unlock()
	s := &slot{Keeper: k, prefix: prefix, limit: limit}
	bound, cancel := k.bound(ctx)
	err := s.acquire(bound, patience)
	cancel()
	if err != nil {
		longer, cancel := lingering(ctx)
		defer cancel()
		_ = s.release(longer) // or it ends with the session
		return nil, err
	}
	stop := k.watch(func(ctx context.Context, wait Wait) (uint64, string, error) {
		state, err := s.read(ctx, wait)
		if err != nil || slices.Contains(state.live, k.id) {
			return state.index, "", err
		}
		return state.index, fmt.Sprintf("the slot of semaphore %q was taken away", prefix), nil
	})
	return &Lock{s.contender, func(ctx context.Context) error {
		stop()
		return s.release(ctx)
	}}, nil
}

// slot is a slot that is being taken, or was.
type slot struct {
	*Keeper
	prefix    string
	limit     int // 0: the semaphore's own
	contender Entry
}

func (s *slot) key() string          { return s.prefix + semaphoreKey }
func (s *slot) contenderKey() string { return s.prefix + "/" + s.id }

// acquire puts the contender key there, and then the session among the holders.
func (s *slot) acquire(ctx context.Context, patience Patience) error {
	var err error
	for s.contender.Key == "" {
		if err = s.contend(ctx); err != nil {
			if err := s.proceed(ctx, "", err, patience, nil); err != nil {
				return err
			}
			_ = pause(ctx, retry)
		}
	}
	wait := Wait{}
	var inTheWay error
	for {
		state, err := s.read(ctx, wait)
		switch {
		case err != nil:
		case slices.Contains(state.live, s.id):
			return nil // by an attempt whose answer did not arrive
		case len(state.live) >= state.limit:
			inTheWay = &obstacle{
				what:    fmt.Sprintf("all slots of semaphore %q are held", s.prefix),
				holders: state.live,
			}
		default:
			var done bool
			longer, cancel := lingering(ctx)
			done, err = s.put(longer, state, append(state.live, s.id))
			cancel()
			if done {
				return nil
			}
			if err == nil {
				wait = Wait{}
				continue // somebody else was quicker
			}
		}
		if errors.Is(err, errSemaphore) {
			return err
		}
		if err := s.proceed(ctx, "", err, patience, inTheWay); err != nil {
			return err
		}
		wait = Wait{Index: state.index, For: longPoll}
		if err != nil {
			wait = Wait{}
			_ = pause(ctx, retry)
		}
	}
}

// contend locks the contender key, which is the session's own.
func (s *slot) contend(ctx context.Context) error {
	longer, cancel := lingering(ctx)
	defer cancel()
	entries, err := s.client.txn(longer,
		op{Verb: "lock", Key: s.contenderKey(), Flags: slotFlags, Session: s.id})
	if err == nil {
		s.contender, err = granted(s.contenderKey(), entries)
	}
	return err
}

// semaphore is a semaphore as it was read.
type semaphore struct {
	index uint64   // for the next read
	limit int      // at least 1
	key   Read     // prefix/.lock
	live  []string // the holders whose contender keys are locked
}

// errSemaphore is returned when the semaphore's key has something else.
var errSemaphore = errors.New("not such a semaphore")

// read reads the semaphore. A holder whose contender key is not locked any more has lost its slot.
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
			state.key = Read{Entry: e, Found: true}
		case e.Session != "":
			contenders[e.Session] = true
		}
	}
	if !state.key.Found {
		if s.limit == 0 {
			return state, fmt.Errorf("%w: %q has no limit yet: name one", errSemaphore, s.prefix)
		}
		return state, nil
	}
	if flags := state.key.Entry.Flags; flags != slotFlags {
		return state, fmt.Errorf("%w: key %q has the flags %d", errSemaphore, s.key(), flags)
	}
	var was holders
	if err := json.Unmarshal(state.key.Entry.Value, &was); err != nil {
		return state, fmt.Errorf("%w: key %q: %w", errSemaphore, s.key(), err)
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

// put writes the holders, unless somebody has written since the semaphore was read.
func (s *slot) put(ctx context.Context, state semaphore, live []string) (bool, error) {
	next := holders{state.limit, make(map[string]bool)}
	for _, session := range live {
		next.Holders[session] = true
	}
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	index := state.key.Entry.ModifyIndex
	return s.client.Put(ctx, s.key(), value, PutOptions{Flags: slotFlags, CAS: &index})
}

// release takes the session off the holders, and then deletes its contender key.
func (s *slot) release(ctx context.Context) error {
	for {
		state, err := s.read(ctx, Wait{})
		if errors.Is(err, errSemaphore) || err == nil && !slices.Contains(state.live, s.id) {
			break
		}
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(state.live, func(id string) bool { return id == s.id })
		if done, err := s.put(ctx, state, rest); done {
			break
		} else if err != nil {
			return err
		}
	}
	_, err := s.client.Delete(ctx, s.contenderKey(), DeleteOptions{})
	return err
}
