package lockclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"
)

// refusal is returned when a transaction was not done, because of the state that it found.
type refusal []string

// Error returns the reasons.
func (r refusal) Error() string { return "refused: " + strings.Join(r, "; ") }

// ErrDelayed is returned, with ErrNotAcquired, for a lock that no session gets until its lock-delay
// has passed.
var ErrDelayed = errors.New("lock-delay")

// Is reports whether the target is ErrDelayed or ErrNoSession, and that is why it was refused.
func (r refusal) Is(target error) bool {
	return slices.ContainsFunc(r, func(reason string) bool {
		return target == ErrDelayed && strings.HasSuffix(reason, " due to lock delay") ||
			target == ErrNoSession && strings.Contains(reason, "invalid session")
	})
}

// txn does the operations, all or none, and returns the key that the last one answers with, nil if
// it answers with none. It returns a refusal if none was done.
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
		return nil, r
	}
	if len(answer.Results) == 0 {
		return nil, nil
	}
	return answer.Results[len(answer.Results)-1], nil
}

// lock takes the lock of a key by a transaction whose last operation does so, and returns the key
// as it was granted.
func (c *Client) lock(ctx context.Context, ops ...*api.KVTxnOp) (*api.KVPair, error) {
	longer, cancel := lingering(ctx)
	defer cancel()
	pair, err := c.txn(longer, ops...)
	if key := ops[len(ops)-1].Key; err == nil && (pair == nil || pair.Key != key) {
		return nil, fmt.Errorf("the transaction's answer does not have the key %q", key)
	}
	return pair, err
}
