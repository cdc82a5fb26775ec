package lockclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// share takes a share that is free.
func (h *harness) share(k *lockclient.Keeper, key string) *lockclient.Lock {
	h.t.Helper()
	l, err := k.Share(h.t.Context(), key, lockclient.AtOnce)
	h.must(err)
	if !l.Shared() {
		h.t.Fatalf("key %q is not shared", key)
	}
	return l
}

// sharers returns how many holders share the key's lock.
func (h *harness) sharers(key string) (n int) {
	for holder := range h.db.Snapshot().Holders(key) {
		if holder.Grant.Mode != lockd.Shared {
			h.t.Errorf("holder %+v", holder)
		}
		n++
	}
	return n
}

// Ensure that sessions share a lock, each with a proof of its own, that the key keeps its value and
// flags, and that an exclusive caller has the lock at most a second after the last share.
func TestShare(t *testing.T) {
	run(t, func(h *harness) {
		const key = "dir/ä b%"
		_, err := h.db.Put(key, []byte("mine"), &lockd.PutOptions{Flags: 5})
		h.must(err)
		a, b, writer := h.keep(time.Minute), h.keep(time.Minute), h.keep(0)
		one, two := h.share(a, key), h.share(b, key)
		for k, l := range map[*lockclient.Keeper]*lockclient.Lock{a: one, b: two} {
			h.proves(k, l)
		}
		if e, _ := h.db.Get(key); string(e.Value) != "mine" || e.Flags != 5 ||
			one.Pair().ModifyIndex >= two.Pair().ModifyIndex {
			t.Errorf("shared: %+v", e)
		}
		time.Sleep(10 * time.Minute)
		began := time.Now()
		time.AfterFunc(time.Second, func() { h.must(one.Unlock(context.Background())) })
		time.AfterFunc(100*time.Second, func() { h.must(two.Unlock(context.Background())) })
		alone, err := writer.Lock(h.t.Context(), key, lockclient.UntilDone)
		h.must(err)
		if got := time.Since(began); got < 100*time.Second || got > 102*time.Second {
			t.Errorf("locked after %v", got)
		}
		if a.Err() != nil || b.Err() != nil || alone.Shared() {
			t.Errorf("lost: %v, %v", a.Err(), b.Err())
		}
		h.close(a)
		h.close(b)
		h.close(writer)
	})
}

// Ensure that all callers that wait to share have the lock together as soon as an exclusive holder
// releases it, and that the official client can lock a key that is made for them.
func TestShare_Waits(t *testing.T) {
	run(t, func(h *harness) {
		holder := h.keep(0)
		l := h.lock(holder, "k")
		began := time.Now()
		time.AfterFunc(100*time.Second, func() { h.must(l.Unlock(context.Background())) })
		shared := make(chan error)
		var keepers []*lockclient.Keeper
		for range 2 {
			k := h.keep(0)
			keepers = append(keepers, k)
			go func() {
				_, err := k.Share(h.t.Context(), "k", lockclient.UntilDone)
				shared <- err
			}()
		}
		for range 2 {
			h.must(<-shared)
		}
		if got := time.Since(began); got != 100*time.Second || h.sharers("k") != 2 {
			t.Errorf("%d share after %v", h.sharers("k"), got)
		}
		if e, _ := h.db.Get("k"); e.Flags != 0x2ddccbc058a50c18 {
			t.Errorf("made: %+v", e)
		}
		for _, k := range append(keepers, holder) {
			h.close(k)
		}
	})
}

// Ensure that a refusal says what is in the way, and leaves nothing held.
func TestShare_NotAcquired(t *testing.T) {
	run(t, func(h *harness) {
		a, b, k := h.keep(time.Minute), h.keep(0), h.keep(0)
		refused := func(text string, err error) {
			t.Helper()
			if !errors.Is(err, lockclient.ErrNotAcquired) || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %q", err, text)
			}
		}
		share := func() error {
			_, err := k.Share(h.t.Context(), "k", lockclient.AtOnce)
			return err
		}
		lock := func() error {
			_, err := k.Lock(h.t.Context(), "k", lockclient.AtOnce)
			return err
		}
		l := h.lock(a, "k")
		refused("locked by session "+a.ID(), share())
		h.must(l.Unlock(h.t.Context()))
		h.share(a, "k")
		refused(`key "k" is shared by session `+a.ID(), lock())
		h.share(b, "k")
		refused(`key "k" is shared by 2 holders, the first of them session `+a.ID(), lock())

		native, err := h.db.NewSession(nil)
		h.must(err)
		ctx, cancel := context.WithCancel(h.t.Context())
		ended := make(chan error)
		go func() {
			_, err := native.Lock(ctx, "k", nil)
			ended <- err
		}()
		synctest.Wait()
		refused("and 1 wait for it", share())
		cancel()
		<-ended
		h.close(b)
		h.close(a) // its lock-delay begins, and keeps out exclusive calls
		if err := lock(); !errors.Is(err, lockclient.ErrDelayed) {
			t.Errorf("got %v, want ErrDelayed", err)
		}
		h.must(share())
		h.close(k)
		a = h.keep(time.Minute)
		h.lock(a, "alone")
		h.close(a)
		k = h.keep(0)
		if _, err := k.Share(h.t.Context(), "alone", lockclient.AtOnce); !errors.Is(err,
			lockclient.ErrDelayed) || !strings.Contains(err.Error(), "due to lock delay until ") {
			t.Errorf("got %v, want ErrDelayed", err)
		}
		h.must(native.Close())
		h.close(k)
	})
}

// Ensure that after a lost answer no session shares a lock without knowing it.
func TestShare_AnswerLost(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.fail(lost, "/v1/kv/other")
		if _, err := k.Share(h.t.Context(), "other", lockclient.AtOnce); err == nil {
			t.Error("shared, want an error")
		}
		time.AfterFunc(5*time.Second, func() { h.fail(none, "") })
		l, err := k.Share(h.t.Context(), "other", lockclient.UntilDone)
		h.must(err)
		if h.sharers("other") != 1 {
			t.Errorf("%d share it", h.sharers("other"))
		}
		h.proves(k, l)
		h.must(l.Unlock(h.t.Context()))
		if h.sharers("other") != 0 {
			t.Errorf("%d share it", h.sharers("other"))
		}
		h.close(k)
	})
}

// Ensure that a caller leaves no share behind if the share is granted, and the read after that
// fails.
func TestShare_FailsOnceGranted(t *testing.T) {
	run(t, func(h *harness) {
		granted := false
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			switch r.Method + " " + r.URL.Path {
			case "PUT /v1/kv/k":
				granted = granted || r.URL.Query().Has("acquire")
			case "GET /v1/kv/k":
				if granted {
					return nil, errors.New("connection reset")
				}
			}
			return h.RoundTrip(r)
		})
		_, err := k.Share(h.t.Context(), "k", lockclient.AtOnce)
		if n := h.sharers("k"); err == nil || !granted || n != 0 {
			t.Errorf("got %v, granted: %t, %d share it", err, granted, n)
		}
		h.close(k)
	})
}

// Ensure that the loss of a share is told also if its session shares the lock again at once.
func TestShare_Lost_SharedAgain(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		l := h.share(k, "k")
		synctest.Wait() // the watch has begun
		h.must(h.db.ForceUnlock("k", l.Pair().ModifyIndex, "wanted elsewhere"))
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			_, err := tx.Lock("k", h.sessionID(k.ID()), &lockd.LockOptions{Mode: lockd.Shared})
			return err
		}))
		time.Sleep(ttl / 5)
		synctest.Wait()
		if err := k.Err(); err == nil || !strings.Contains(err.Error(), "was released") {
			t.Errorf("got %v, want that the share was released", err)
		}
		h.close(k)
	})
}

// Ensure that the loss of a share is told within a fifth of the TTL, with its reason.
func TestShare_Lost(t *testing.T) {
	for _, test := range []struct {
		name, text string
		within     time.Duration
		take       func(h *harness, k *lockclient.Keeper, fence uint64) error
	}{
		{"Deleted", "was deleted", 0,
			func(h *harness, _ *lockclient.Keeper, _ uint64) error {
				_, err := h.db.Delete("k")
				return err
			}},
		{"Forced", "was released", ttl / 5,
			func(h *harness, _ *lockclient.Keeper, fence uint64) error {
				return h.db.ForceUnlock("k", fence, "wanted elsewhere")
			}},
		{"SessionEnded", "was destroyed", ttl / 5,
			func(h *harness, k *lockclient.Keeper, _ uint64) error {
				return h.db.EndSession(h.sessionID(k.ID()))
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, func(h *harness) {
				k, other := h.keep(time.Minute), h.keep(0)
				l := h.share(k, "k")
				h.share(other, "k")
				time.Sleep(5 * time.Minute)
				h.must(test.take(h, k, l.Pair().ModifyIndex))
				taken := time.Now()
				<-k.Done()
				if got := time.Since(taken); got > test.within {
					t.Errorf("done after %v", got)
				}
				if !strings.Contains(k.Err().Error(), test.text) {
					t.Errorf("got %v, want %q", k.Err(), test.text)
				}
				h.wasLost(l)
				h.close(k)
				h.close(other)
			})
		})
	}
}

// Ensure that the failure of one request for a share ends neither the wait nor the session.
func TestShare_RequestFails(t *testing.T) {
	run(t, func(h *harness) {
		failed := false
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("acquire") && !failed {
				failed = true
				return (&script{status: http.StatusBadGateway}).RoundTrip(r)
			}
			return h.RoundTrip(r)
		})
		l, err := k.Share(h.t.Context(), "k", lockclient.UntilDone)
		h.must(err)
		h.proves(k, l)
		h.close(k)
	})
}

// Ensure that an answer without a fence is no share, and leaves none.
func TestShare_NoFence(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			response, err := h.RoundTrip(r)
			if err == nil {
				response.Header.Del("X-Lockd-Fence")
			}
			return response, err
		})
		_, err := k.Share(h.t.Context(), "k", lockclient.AtOnce)
		if n := h.sharers("k"); n != 0 || !strings.Contains(fmt.Sprint(err), "no fence") {
			t.Errorf("got %v, %d share it", err, n)
		}
		h.close(k)
	})
}

// Ensure that a server of lockd that fails for a while is not taken for one without shares.
func TestShare_ServerAway(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.fail(broken, "/v1/lockd/")
		time.AfterFunc(3*time.Second, func() { h.fail(none, "") })
		l, err := k.Share(h.t.Context(), "k", lockclient.UntilDone)
		h.must(err)
		if !l.Shared() {
			t.Error("it is not shared")
		}
		h.close(k)
	})
}

// Ensure that a server without shares gives an exclusive lock, and that the key keeps its value.
func TestShare_Consul(t *testing.T) {
	run(t, func(h *harness) {
		_, err := h.db.Put("k", []byte("mine"), nil)
		h.must(err)
		h.fail(absent, "/v1/lockd/")
		k := h.keep(0)
		l, err := k.Share(h.t.Context(), "k", lockclient.UntilDone)
		h.must(err)
		if e, _ := h.db.Get("k"); l.Shared() || h.holder("k") != k.ID() ||
			string(e.Value) != "mine" {
			t.Errorf("got %+v, shared: %t", e, l.Shared())
		}
		h.must(l.Unlock(h.t.Context()))
		h.close(k)
	})
}
