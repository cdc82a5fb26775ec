package consulapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/lockd/lockd"
)

// The endpoints under /v1/lockd/ are lockd's own: Consul has no equivalent.

func (h *handler) lockdRoutes() map[string][]method {
	return map[string][]method{
		"lockd/backup": {{http.MethodGet, h.lockdBackup}},
		"lockd/locks":  {{http.MethodGet, h.lockdLocks}},
	}
}

// lockdBackup answers with a backup in lockd's own form, which has all that a restore brings back
// (L2).
func (h *handler) lockdBackup(*request) (answer, error) {
	return answer{read: true, contentType: "application/octet-stream", stream: h.db.Backup}, nil
}

// lock is a lock that is held, delayed or waited for, as it is in JSON. Members that do not apply
// are left out, except Queue, which is an empty array.
type lock struct {
	Key  string
	Mode string `json:",omitempty"` // in which it is held
	party
	LockIndex    uint64        `json:",omitempty"`
	ModifyIndex  uint64        `json:",omitempty"`
	Fence        uint64        `json:",omitempty"`
	Since        time.Time     `json:",omitzero"`
	Held         time.Duration `json:",omitempty"`
	Holders      []holder      `json:",omitempty"` // that share it
	DelayedUntil time.Time     `json:",omitzero"`
	DelayedMode  string        `json:",omitempty"` // in which it was lost
	Limit        int           `json:",omitempty"`
	Queue        []waiter
}

// party is a session that holds a lock, or waits for one. The zero value is no session.
type party struct {
	Session lockd.SessionID `json:",omitzero"`
	Name    string          `json:",omitempty"`
	Node    string          `json:",omitempty"`
}

// holder is one of the sessions that share a lock.
type holder struct {
	party
	Fence uint64
	Since time.Time     `json:",omitzero"`
	Held  time.Duration `json:",omitempty"`
}

// waiter is a call that waits for a lock.
type waiter struct {
	party
	Mode   string
	Since  time.Time
	Waited time.Duration
	Keys   []string
}

func newParty(info lockd.SessionInfo) party { return party{info.ID, info.Name, info.Node} }

func (h *handler) newLock(info lockd.LockInfo) lock {
	l := lock{
		Key: info.Key, party: newParty(info.Holder), Fence: info.Fence, Since: info.Since.UTC(),
		Held: info.Held, DelayedUntil: info.DelayedUntil.UTC(), Limit: info.Limit,
		Queue: []waiter{},
	}
	if !info.DelayedUntil.IsZero() {
		l.DelayedMode = info.DelayedMode.String()
	}
	// The lock may have been granted anew, or the key deleted, since info was read.
	e, _ := h.db.Get(info.Key)
	switch {
	case len(info.Holders) > 0:
		l.Mode, l.LockIndex = lockd.Shared.String(), info.Holders[0].Grant.LockIndex
		if e.LockIndex == l.LockIndex {
			l.ModifyIndex = e.ModifyIndex
		}
		l.Holders = newHolders(&info)
	case info.Fence > 0:
		l.Mode = lockd.Exclusive.String()
		if e.Fence == info.Fence {
			l.LockIndex, l.ModifyIndex = e.LockIndex, e.ModifyIndex
		}
	}
	for _, w := range info.Queue {
		l.Queue = append(l.Queue, waiter{
			newParty(w.Session), w.Mode.String(), w.Since.UTC(), w.Waited, w.Keys,
		})
	}
	return l
}

// newHolders describes the sessions that share the lock.
func newHolders(info *lockd.LockInfo) (holders []holder) {
	for _, one := range info.Holders {
		shown := holder{
			party: newParty(one.Session), Fence: one.Grant.Fence, Since: one.Since.UTC(),
		}
		if !one.Since.IsZero() && !info.Since.IsZero() {
			// info.Since and info.Held are the first holder's, and add up to the present time.
			shown.Held = max(info.Held-one.Since.Sub(info.Since), 0)
		}
		holders = append(holders, shown)
	}
	return holders
}

// lockdLocks lists the locks whose keys begin with the parameter prefix (L1).
func (h *handler) lockdLocks(r *request) (answer, error) {
	prefix := r.query.Get("prefix")
	locks := listed(h.db.Locks(), func(info lockd.LockInfo) bool {
		return strings.HasPrefix(info.Key, prefix)
	}, h.newLock)
	return answer{value: locks, once: true, read: true}, nil
}
