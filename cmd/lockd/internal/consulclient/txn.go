package consulclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// op is one operation of a transaction, on a key.
type op struct {
	Verb    string
	Key     string
	Value   []byte `json:",omitempty"`
	Flags   uint64 `json:",omitempty"`
	Index   uint64 `json:",omitempty"`
	Session string `json:",omitempty"`
}

// refusal is returned when a transaction was not done, because of the state that it found.
type refusal struct {
	Errors []struct {
		OpIndex int
		What    string
	}
}

// Error returns the reasons.
func (r *refusal) Error() string {
	reasons := make([]string, len(r.Errors))
	for i, e := range r.Errors {
		reasons[i] = oneLine(e.What)
	}
	return "refused: " + strings.Join(reasons, "; ")
}

// ErrDelayed is returned, with ErrNotAcquired, for a lock that nobody gets until its lock-delay has
// passed.
var ErrDelayed = errors.New("lock-delay")

// Is reports whether the target is ErrDelayed and that is why it was refused.
func (r *refusal) Is(target error) bool {
	if target == ErrDelayed {
		for _, e := range r.Errors {
			if strings.HasSuffix(e.What, " due to lock delay") { // what is before it has the key
				return true
			}
		}
	}
	return false
}

// noSession reports whether it was refused because the session does not exist.
func (r *refusal) noSession() bool {
	for _, e := range r.Errors {
		if strings.Contains(e.What, "invalid session") {
			return true
		}
	}
	return false
}

// txn does the operations, all or none, and returns the entries that they answer with. It returns
// a *refusal if none was done.
func (c *Client) txn(ctx context.Context, ops ...op) ([]Entry, error) {
	type element struct{ KV op }
	elements := make([]element, len(ops))
	for i, o := range ops {
		elements[i].KV = o
	}
	a, err := c.do(ctx, request{method: http.MethodPut, path: "v1/txn", body: elements},
		http.StatusConflict)
	if err != nil {
		return nil, err
	}
	if a.status == http.StatusConflict {
		r := new(refusal)
		if err := a.decode(r); err != nil {
			return nil, err
		}
		return nil, r
	}
	var done struct{ Results []struct{ KV Entry } }
	if err := a.decode(&done); err != nil {
		return nil, err
	}
	entries := make([]Entry, len(done.Results))
	for i, result := range done.Results {
		entries[i] = result.KV
	}
	return entries, nil
}

// granted returns the entry of a lock that a transaction took, which is the last one of its answer.
func granted(key string, entries []Entry) (Entry, error) {
	if len(entries) == 0 || entries[len(entries)-1].Key != key {
		return Entry{}, fmt.Errorf("the transaction's answer does not have the key %q", key)
	}
	return entries[len(entries)-1], nil
}
