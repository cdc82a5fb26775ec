package lockclient_test

import (
	"context"
	"fmt"
	"net/http"
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
				} else if strings.Contains(err.Error(), "until") {
					t.Errorf("got %v, which the agent does not know", err)
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

// Ensure that an error names a holder by its ID if nothing else can be learned of it: its session
// has just ended, or the server says nothing of sessions.
func TestNotAcquired_UnknownHolder(t *testing.T) {
	run(t, func(h *harness) {
		holder := h.keep(0)
		h.slot(holder, "jobs", 1)
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/session/info/") {
				h.must(h.db.EndSession(h.sessionID(holder.ID())))
			}
			return h.RoundTrip(r)
		})
		says := func(text string) {
			t.Helper()
			_, err := k.Acquire(h.t.Context(), "jobs", 1, lockclient.AtOnce)
			if err == nil || !strings.HasSuffix(err.Error(), text) {
				t.Errorf("got %v, want %q", err, text)
			}
		}
		says("are held by session " + holder.ID())
		h.close(holder)
		holder = h.keep(0)
		h.slot(holder, "jobs", 1)
		h.fail(broken, "/session/info/")
		says("are held by session " + holder.ID())
		h.fail(none, "")
		h.close(holder)
		h.close(k)
	})
}

// Ensure that on a Consul agent locks are listed in full or not at all.
func TestLocks_Consul_Fails(t *testing.T) {
	run(t, func(h *harness) {
		for _, path := range []string{"/v1/kv/", "/v1/session/list"} {
			h.fail(broken, path)
			_, err := over(t, roundTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasPrefix(r.URL.Path, "/v1/lockd/") {
					return (&script{status: http.StatusNotFound}).RoundTrip(r)
				}
				return h.RoundTrip(r)
			})).Locks(h.t.Context(), "")
			if err == nil {
				t.Errorf("no error without %s", path)
			}
		}
	})
}
