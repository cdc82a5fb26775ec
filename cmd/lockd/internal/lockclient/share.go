package lockclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
)

// Share takes a share of the lock of a key, beside others that share it. The key keeps its value
// and its flags. A key that is made for the share has no value, and the flags that the official
// client wants on a lock; that key stays. On a server that is not lockd, which has exclusive locks
// only, Share is Lock, and the Lock says that it is not shared.
//
// It blocks and fails as Lock does. The loss of a share changes no key, unless the key is deleted:
// so Keeper.Done is closed within a fifth of the session's TTL, and not at once.
func (k *Keeper) Share(ctx context.Context, key string, patience Patience) (*Lock, error) {
	t := sharing{Keeper: k, key: key}
	err := k.take(ctx, key, patience, t.attempt)
	if errors.Is(err, errors.ErrUnsupported) {
		return k.Lock(ctx, key, patience)
	}
	if err != nil {
		if t.unknown {
			longer, cancel := lingering(ctx)
			defer cancel()
			_ = k.unshare(longer, key) // or it ends with the session
		}
		return nil, err
	}
	stop := k.watch(t.look)
	return &Lock{pair: t.pair, shared: true, unlock: func(ctx context.Context) error {
		stop()
		return k.unshare(ctx, key)
	}}, nil
}

// sharing is the taking of a share.
type sharing struct {
	*Keeper
	key string

	isLockd bool        // whether the server is known to have shares
	pair    *api.KVPair // as it was when the share was granted, with the fence as its ModifyIndex
	unknown bool        // whether an attempt whose answer did not arrive may have taken it
}

// attempt takes a share of the lock if no session holds the lock exclusively.
func (t *sharing) attempt(ctx context.Context, wait Wait) (uint64, error) {
	if !t.isLockd {
		if _, err := t.client.ownLocks(ctx, t.key); err != nil {
			return 0, err
		}
		t.isLockd = true
	}
	pair, index, err := t.client.Get(ctx, t.key, wait)
	switch {
	case err != nil:
		return 0, err
	case pair == nil:
		var absent uint64 // if the key exists by now, it is as another session wants it
		_, err := t.client.Put(ctx, &api.KVPair{Key: t.key, Flags: api.LockFlagValue}, &absent)
		if err != nil {
			return 0, err
		}
	case pair.Session != "":
		return index, &obstacle{fmt.Sprintf("key %q is locked", t.key), []string{pair.Session}}
	}
	t.unknown = true
	longer, cancel := lingering(ctx)
	defer cancel()
	fence, err := t.share(longer)
	if err != nil {
		t.unknown = !inTheWay(err)
		return index, err
	}
	// While the share lasts, the lock index stays. If the share does not last, look finds out.
	pair, _, err = t.client.Get(longer, t.key, Wait{})
	if err != nil {
		return index, err
	}
	t.pair = cmp.Or(pair, &api.KVPair{Key: t.key})
	t.pair.ModifyIndex = fence
	return index, nil
}

// share asks for the share, and returns its fence. It returns a refusal if the server refuses it.
func (t *sharing) share(ctx context.Context) (uint64, error) {
	response, err := t.client.send(ctx, http.MethodPut, "/v1/kv/"+t.key,
		inMode("acquire", t.id), nil)
	if e, ok := errors.AsType[*Error](err); ok &&
		strings.HasPrefix(e.Text, "raft apply failed: "+invalidSession) {
		return 0, fmt.Errorf("%w: %w", ErrNoSession, err)
	}
	if err == nil {
		err = response.Body.Close()
	}
	if err != nil {
		return 0, err
	}
	why := response.Header.Get("X-Lockd-Refusal")
	switch {
	case strings.HasPrefix(why, "delayed "):
		return 0, refusal{fmt.Sprintf("failed to share key %q due to lock delay", t.key)}
	case why != "":
		return 0, refusal{fmt.Sprintf("failed to share key %q: %s", t.key, why)}
	}
	fence, err := strconv.ParseUint(response.Header.Get("X-Lockd-Fence"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the answer has no fence: %w", err)
	}
	return fence, nil
}

// unshare releases the session's share of the key's lock, or returns notHeld.
func (k *Keeper) unshare(ctx context.Context, key string) error {
	var done bool
	err := k.client.ask(ctx, http.MethodPut, "/v1/kv/"+key, inMode("release", k.id), nil, &done)
	if err == nil && !done {
		err = notHeld(fmt.Errorf("the share of key %q was lost", key))
	}
	return err
}

// inMode returns the parameters of an acquire or a release of a share.
func inMode(what, session string) url.Values {
	return url.Values{what: {session}, "lockd-mode": {lockd.Shared.String()}}
}

// look reads whether the share is still held. Only the list of locks tells that.
func (t *sharing) look(ctx context.Context, wait Wait) (index uint64, loss, err error) {
	wait.For = min(wait.For, t.ttl/6) // to which the server may add a sixteenth
	pair, index, err := t.client.Get(ctx, t.key, wait)
	if err != nil {
		return 0, nil, err
	}
	if pair == nil {
		return index, fmt.Errorf("key %q was deleted", t.key), nil
	}
	locks, err := t.client.ownLocks(ctx, t.key)
	if err != nil {
		return 0, nil, err
	}
	for _, l := range locks {
		for _, holder := range l.Holders {
			if l.Key == t.key && holder.Session == t.id && holder.Fence == t.pair.ModifyIndex {
				return index, nil, nil
			}
		}
	}
	return index, fmt.Errorf("the share of key %q was released", t.key), nil
}
