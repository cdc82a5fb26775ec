package consulapi_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// shownLock is what /v1/lockd/locks says of one lock.
type shownLock struct {
	Key  string
	Mode string
	shownParty
	LockIndex    uint64
	ModifyIndex  uint64
	Fence        uint64
	Since        *time.Time
	Held         time.Duration
	Holders      []shownHolder
	DelayedUntil *time.Time
	DelayedMode  string
	Limit        int
	Queue        []struct {
		shownParty
		Mode   string
		Since  time.Time
		Waited time.Duration
		Keys   []string
	}
}

type shownParty struct{ Session, Name, Node string }

type shownHolder struct {
	shownParty
	Fence uint64
	Since time.Time
	Held  time.Duration
}

// Ensure that the endpoint shows the holder of a lock and since when, its waiters, in order, and
// until when the lock is delayed.
func TestLockd_L1_Locks(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("GET /v1/lockd/locks", "", 200, "[]")
		a := h.session(&lockd.SessionOptions{Name: "a", LockDelay: 20 * time.Second})
		b := h.session(&lockd.SessionOptions{Name: "b"})
		c := h.session(&lockd.SessionOptions{Name: "c"})
		began := h.clock.Now()
		for _, key := range []string{"dir/held", "dir/\x00 +&", "other"} {
			_, err := a.TryLock(key, nil)
			h.must(err)
		}
		e, _ := h.db.Get("dir/held")
		h.advance(2 * time.Second)
		for _, s := range []*lockd.Session{b, c} {
			ended := make(chan error)
			go func() {
				_, err := s.LockAll(h.t.Context(), []string{"dir/held", "free"}, nil)
				ended <- err
			}()
			h.t.Cleanup(func() { <-ended })
			h.settle()
		}
		h.advance(3 * time.Second)

		locks := decode[[]shownLock](h, h.send("GET /v1/lockd/locks?prefix=dir/h", ""))
		if len(locks) != 1 {
			t.Fatalf("%+v", locks)
		}
		l := locks[0]
		if l.Key != "dir/held" || l.shownParty != (shownParty{a.ID().String(), "a", h.db.Node()}) ||
			l.Fence != e.Fence || l.LockIndex != 1 || l.ModifyIndex != e.ModifyIndex ||
			!l.Since.Equal(began) || l.Held != 5*time.Second || l.Mode != "exclusive" ||
			l.Holders != nil || l.DelayedMode != "" ||
			l.DelayedUntil != nil || len(l.Queue) != 2 {
			t.Fatalf("%+v", l)
		}
		for i, s := range []*lockd.Session{b, c} {
			w := l.Queue[i]
			if w.Session != s.ID().String() || w.Name != s.Info().Name ||
				!w.Since.Equal(began.Add(2*time.Second)) || w.Waited != 3*time.Second ||
				len(w.Keys) != 2 {
				t.Errorf("waiter %d: %+v", i, w)
			}
		}
		locks = decode[[]shownLock](h, h.send("GET /v1/lockd/locks?prefix=dir%2F%00+%2B%26", ""))
		if len(locks) != 1 || locks[0].Key != "dir/\x00 +&" {
			t.Errorf("%+v", locks)
		}

		h.must(h.db.EndSession(a.ID()))
		until := h.clock.Now().Add(20 * time.Second)
		h.settle()
		locks = decode[[]shownLock](h, h.send("GET /v1/lockd/locks?prefix=dir/held", ""))
		if len(locks) != 1 || locks[0].shownParty != (shownParty{}) || locks[0].Fence != 0 ||
			locks[0].Since != nil || locks[0].Mode != "" || locks[0].DelayedMode != "exclusive" ||
			!locks[0].DelayedUntil.Equal(until) || len(locks[0].Queue) != 2 {
			t.Errorf("%+v", locks)
		}
		h.want("GET /v1/lockd/else", "", 404,
			"Invalid URL path: not a recognized HTTP API endpoint\n")
		h.must(b.Close())
		h.must(c.Close())
	})
}

// Ensure that the backup is a backup of the database.
func TestLockd_L2_Backup(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("k", "v")
		r := h.send("GET /v1/lockd/backup", "")
		var want bytes.Buffer
		h.must(h.db.Backup(&want))
		if r.code != 200 || r.body != want.String() || r.header.Get("Content-Encoding") != "" {
			t.Errorf("%d %v: %q", r.code, r.header, r.body)
		}
		h.want("PUT /v1/lockd/backup", "", 405, "method PUT not allowed")
	})
}
