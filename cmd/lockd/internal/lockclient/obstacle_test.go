package lockclient_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// Ensure that the error of a lock or slot that cannot be had names the holder, and with lockd tells
// for how long and until when. With a Consul agent it tells what the agent knows.
func TestNotAcquired_SaysWhoHolds(t *testing.T) {
	for name, path := range map[string]string{"Lockd": "/no such path", "Consul": "/v1/lockd/"} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.fail(absent, path)
				own := name == "Lockd"
				holder, k := h.keep(time.Minute), h.keep(0)
				who := fmt.Sprintf("session %s (%q) on node %q", holder.ID(), t.Name(), h.db.Node())
				says := func(err error, text string) {
					t.Helper()
					if err == nil || !strings.Contains(err.Error(), text) {
						t.Errorf("got %v, want %q", err, text)
					}
				}
				l := h.lock(holder, "k")
				held := `not acquired: key "k" is locked by ` + who
				if time.Sleep(2 * time.Second); own {
					held += ", for 2s"
				}
				_, err := k.Lock(h.t.Context(), "k", lockclient.AtOnce)
				says(err, held)
				ctx, cancel := context.WithTimeout(h.t.Context(), 3*time.Second)
				defer cancel()
				_, err = k.Lock(ctx, "k", lockclient.UntilDone)
				says(err, strings.Replace(held, "2s", "5s", 1)+": context deadline exceeded")
				h.must(l.Unlock(h.t.Context()))

				h.slot(holder, "jobs", 1)
				_, err = k.Acquire(h.t.Context(), "jobs", 1, lockclient.AtOnce)
				says(err, `not acquired: all slots of semaphore "jobs" are held by `+who)
				h.close(holder)

				holder = h.keep(time.Minute)
				h.lock(holder, "delayed")
				h.close(holder)
				until := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
				_, err = k.Lock(h.t.Context(), "delayed", lockclient.AtOnce)
				if says(err, "due to lock delay"); own {
					says(err, "due to lock delay until "+until)
				}
				h.close(k)
			})
		})
	}
}

// Ensure that an error names a few of many holders of slots, and counts the others.
func TestNotAcquired_ManyHolders(t *testing.T) {
	run(t, func(h *harness) {
		var keepers []*lockclient.Keeper
		for range 5 {
			k := h.keep(0)
			h.slot(k, "jobs", 5)
			keepers = append(keepers, k)
		}
		k := h.keep(0)
		_, err := k.Acquire(h.t.Context(), "jobs", 5, lockclient.AtOnce)
		if err == nil || strings.Count(err.Error(), "session ") != 3 ||
			!strings.HasSuffix(err.Error(), ", and 2 more") {
			t.Errorf("got %v", err)
		}
		for _, k := range append(keepers, k) {
			h.close(k)
		}
	})
}

// Ensure that the locks are listed with their holders on lockd and on a Consul agent.
func TestLocks(t *testing.T) {
	for name, path := range map[string]string{"Lockd": "/no such path", "Consul": "/v1/lockd/"} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.fail(absent, path)
				c := h.client()
				holder := h.keep(time.Minute)
				h.lock(holder, "a/held")
				h.lock(holder, "b")
				_, err := h.db.Put("a/free", nil, nil)
				h.must(err)
				locks, err := c.Locks(h.t.Context(), "a/")
				h.must(err)
				e, _ := h.db.Get("a/held")
				want := lockclient.Party{Session: holder.ID(), Name: t.Name(), Node: h.db.Node()}
				if len(locks) != 1 || locks[0].Key != "a/held" || locks[0].Party != want ||
					locks[0].LockIndex != 1 || locks[0].ModifyIndex != e.ModifyIndex {
					t.Fatalf("got %+v", locks)
				}
				if own := name == "Lockd"; own != (locks[0].Fence == e.Fence) ||
					own == locks[0].Since.IsZero() {
					t.Errorf("got %+v", locks)
				}
				h.fail(broken, "/v1/")
				if _, err := c.Locks(h.t.Context(), ""); err == nil {
					t.Error("no error of a server that is broken")
				}
				h.fail(none, "")
				h.close(holder)
			})
		})
	}
}
