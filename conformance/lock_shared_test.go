package conformance_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
)

// Ensure that the official client sees a shared key as a free key that cannot be locked, waits as
// it does for the end of a lock-delay, and has the lock after the last share.
func TestR10_AClientWaitsForTheEndOfTheLastShare(t *testing.T) {
	each(t, func(h *harness) {
		opts := asClient
		opts.Mode = lockd.Shared
		a, b := h.native(nil), h.native(nil)
		one, err := a.TryLock("l", &opts)
		check(t, err)
		two, err := b.TryLock("l", &opts)
		check(t, err)
		p := h.get("l")
		equal(h, "session", p.Session, "")
		equal(h, "acquire", h.acquire("l", h.session(nil), "v"), false)
		why := "shared by 2 holders, for longest by session " + a.ID().String()
		if got := h.way.lastRefusal(); !strings.HasPrefix(got, why) {
			h.t.Errorf("reason: got %q, want %q", got, why)
		}
		equal(h, "acquire by one of them", h.acquire("l", a.ID().String(), "v"), false)
		released, _, err := h.KV().Release(&api.KVPair{Key: "l", Session: b.ID().String()}, nil)
		check(h.t, err)
		equal(h, "release by one of them", released, false)

		check(h.t, one.Unlock())
		n := h.way.count("PUT /v1/kv/l?acquire=")
		client := h.lock(api.LockOptions{Key: "l"})
		waiting := locking(client, nil)
		h.waitFor("PUT /v1/kv/l?acquire=", n+1) // refused
		check(h.t, two.Unlock())
		r := receive(h, waiting) // the client retries after its own 5 s
		check(h.t, r.err)
		equal(h, "LockIndex", h.get("l").LockIndex, uint64(2))
		equal(h, "holder", h.info(h.get("l").Session).Name, api.DefaultLockSessionName)

		_, err = a.TryLock("l", &opts)
		h.refused(err, "held by")
		check(h.t, client.Unlock())
	})
}
