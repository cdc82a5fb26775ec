package lockclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"
)

// refusal is returned when the server refused something because of the state that it found.
type refusal []string

// Error returns the reasons.
func (r refusal) Error() string { return "refused: " + strings.Join(r, "; ") }

// ErrDelayed is returned, with ErrNotAcquired, for a lock that is not granted until its lock-delay
// has passed.
var ErrDelayed = errors.New("lock-delay")

// ofState reports whether all the reasons are in the state, which may change: the same transaction
// may succeed later.
func (r refusal) ofState() bool {
	return !slices.ContainsFunc(r, func(reason string) bool {
		return !refusal{reason}.begins("failed to lock key ", "failed to unlock key ", keyExists,
			otherIndex, noIndex, invalidSession)
	})
}

// begins reports whether any of the reasons begins with any of the texts.
func (r refusal) begins(texts ...string) bool {
	return slices.ContainsFunc(r, func(reason string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			return strings.HasPrefix(reason, text)
		})
	})
}

// The texts that begin a reason. A reason may contain them elsewhere too: it names a key.
const (
	keyExists      = "key "                        // though it was not there when it was read
	otherIndex     = "failed index check for key " // it was written to since it was read
	noIndex        = "failed to check index, key " // it was deleted since it was read
	invalidSession = "invalid session "            // there is no such session
)

// Is reports whether the target is ErrDelayed or ErrNoSession, and is among the reasons.
func (r refusal) Is(target error) bool {
	return target == ErrNoSession && r.begins(invalidSession) ||
		target == ErrDelayed && slices.ContainsFunc(r, func(reason string) bool {
			return strings.HasSuffix(reason, " due to lock delay")
		})
}

// txn does the operations, all or none, and returns the last key in the results, nil if there is
// none. It returns a refusal if the state keeps them from being done, and an *Error if they can
// never be done.
func (c *Client) txn(ctx context.Context, ops ...*api.KVTxnOp) (*api.KVPair, error) {
	q := new(api.QueryOptions).WithContext(ctx)
	done, answer, _, err := c.KV().Txn(ops, q)
	if err != nil {
		return nil, err
	}
	if !done {
		var r refusal
		for _, e := range answer.Errors {
			r = append(r, oneLine(e.What))
		}
		if !r.ofState() {
			return nil, &Error{http.StatusConflict, r.Error()}
		}
		return nil, r
	}
	if len(answer.Results) == 0 {
		return nil, nil
	}
	return answer.Results[len(answer.Results)-1], nil
}

// Set sets the value and flags of a key, whatever characters the key has. A server takes one that
// cannot be printed in no path, but in a transaction, where the value has to be shorter.
func (c *Client) Set(ctx context.Context, pair *api.KVPair) error {
	if !strings.ContainsFunc(pair.Key, isUnprintable) {
		_, err := c.Put(ctx, pair, nil)
		return err
	}
	_, err := c.txn(ctx, &api.KVTxnOp{
		Verb: api.KVSet, Key: pair.Key, Value: pair.Value, Flags: pair.Flags,
	})
	return brief(err)
}

// lock takes the lock of a key by a transaction whose last operation locks the key, and returns the
// key as it was granted.
func (c *Client) lock(ctx context.Context, ops ...*api.KVTxnOp) (*api.KVPair, error) {
	longer, cancel := lingering(ctx)
	defer cancel()
	pair, err := c.txn(longer, ops...)
	if key := ops[len(ops)-1].Key; err == nil && (pair == nil || pair.Key != key) {
		return nil, fmt.Errorf("the transaction's answer does not have the key %q", key)
	}
	return pair, err
}
