package lockclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Party is a session that holds a lock, or waits for one. The zero value is no session.
type Party struct {
	Session string `json:",omitempty"`
	Name    string `json:",omitempty"`
	Node    string `json:",omitempty"`
}

// LockInfo is a lock that is held, delayed or waited for. Of a server that is not lockd it has the
// key, the holder and two indexes, and nothing else. The zero value is none.
type LockInfo struct {
	Key  string
	Mode string `json:",omitempty"` // in which it is held: exclusive or shared
	Party
	LockIndex    uint64        `json:",omitempty"`
	ModifyIndex  uint64        `json:",omitempty"`
	Fence        uint64        `json:",omitempty"`
	Since        time.Time     `json:",omitzero"` // zero: unknown, or not held
	Held         time.Duration `json:",omitempty"`
	Holders      []HolderInfo  `json:",omitempty"` // that share it; the first is also above
	DelayedUntil time.Time     `json:",omitzero"`
	DelayedMode  string        `json:",omitempty"` // in which it was lost
	Limit        int           `json:",omitempty"` // of the semaphore
	Queue        []WaiterInfo  `json:",omitempty"` // the next to be served first
}

// HolderInfo is one of the sessions that share a lock.
type HolderInfo struct {
	Party
	Fence uint64
	Since time.Time     `json:",omitzero"` // zero: unknown
	Held  time.Duration `json:",omitempty"`
}

// WaiterInfo is a call that waits for a lock.
type WaiterInfo struct {
	Party
	Mode   string `json:",omitempty"`
	Since  time.Time
	Waited time.Duration
	Keys   []string
}

// Locks lists the locks of the keys that begin with the prefix, in the order of the keys. A server
// that is not lockd has no list of locks, so there the keys and the sessions are read, one after
// the other: a session that ends in between has no name.
func (c *Client) Locks(ctx context.Context, prefix string) ([]LockInfo, error) {
	locks, err := c.ownLocks(ctx, prefix)
	if !errors.Is(err, errors.ErrUnsupported) {
		return locks, err
	}
	entries, _, err := c.List(ctx, prefix, Wait{})
	if err != nil {
		return nil, err
	}
	sessions, _, err := c.Session().List(reading(ctx, Wait{}))
	if err != nil {
		return nil, err
	}
	parties := make(map[string]Party, len(sessions))
	for _, s := range sessions {
		parties[s.ID] = Party{s.ID, s.Name, s.Node}
	}
	for _, e := range entries {
		if e.Session != "" {
			locks = append(locks, LockInfo{
				Key: e.Key, Party: cmp.Or(parties[e.Session], Party{Session: e.Session}),
				LockIndex: e.LockIndex, ModifyIndex: e.ModifyIndex,
			})
		}
	}
	return locks, nil
}

// ownLocks asks lockd for its locks. It returns errors.ErrUnsupported if the server is not lockd.
func (c *Client) ownLocks(ctx context.Context, prefix string) ([]LockInfo, error) {
	query := url.Values{"prefix": {prefix}}
	var locks []LockInfo
	err := c.ask(ctx, http.MethodGet, "/v1/lockd/locks", query, nil, &locks)
	if refused, ok := errors.AsType[*Error](err); ok && refused.Status == http.StatusNotFound {
		return nil, errors.ErrUnsupported
	}
	return locks, err
}

// String says who holds the lock and for how long, or until when it is delayed, and how many wait.
func (l LockInfo) String() string {
	text := fmt.Sprintf("key %q is free", l.Key)
	switch {
	case len(l.Holders) > 1:
		text = fmt.Sprintf("key %q is shared by %d holders, the first of them %v", l.Key,
			len(l.Holders), l.Party)
	case len(l.Holders) == 1:
		text = fmt.Sprintf("key %q is shared by %v", l.Key, l.Party)
	case l.Session != "":
		text = fmt.Sprintf("key %q is locked by %v", l.Key, l.Party)
	case !l.DelayedUntil.IsZero():
		text = fmt.Sprintf("key %q has a lock-delay until %s", l.Key,
			l.DelayedUntil.UTC().Format(time.RFC3339))
	}
	if l.Held > 0 {
		text += fmt.Sprintf(", for %v", l.Held.Round(time.Millisecond))
	}
	if n := len(l.Queue); n > 0 {
		text += fmt.Sprintf(", and %d wait for it", n)
	}
	return text
}

// String names the session, and says where it is.
func (p Party) String() string {
	text := "session " + p.Session
	if p.Name != "" {
		text += fmt.Sprintf(" (%q)", p.Name)
	}
	if p.Node != "" {
		text += fmt.Sprintf(" on node %q", p.Node)
	}
	return text
}
