package lockclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a release within a limited time is repeated if one request is never answered, as when
// a connection has died.
func TestUnlock_OneRequestIsNotAnswered(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(time.Minute)
		l := h.lock(k, "k")
		h.fail(mute, "/v1/kv/")
		time.AfterFunc(time.Second, func() { h.fail(none, "") })
		ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Second)
		defer cancel()
		h.must(l.Unlock(ctx))
		h.lock(k, "k") // which no lock-delay prevents
		h.close(k)
	})
}

// Ensure that a release finds a loss that the watch has not seen, and does not take for a loss what
// an attempt of its own has released whose answer was lost.
func TestUnlock_FindsTheLoss(t *testing.T) {
	for name, take := range takings {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				k := h.keep(0)
				l := take(h, k, "k")
				h.must(h.db.Update(func(tx *lockd.Txn) error {
					_, err := tx.DeletePrefix("k")
					return err
				}))
				h.wasLost(l)
				h.close(k)
				k = h.keep(0) // the watch of the one before may have seen the loss all the same
				l = take(h, k, "k")
				h.fail(lost, "/v1/")
				time.AfterFunc(3*time.Second, func() { h.fail(none, "") })
				h.must(l.Unlock(h.t.Context()))
				h.close(k)
			})
		})
	}
}

// Ensure that a release that fails because the server is away, or has too much to do, is repeated
// until ctx ends, and one that is refused is not.
func TestUnlock_ServerAway(t *testing.T) {
	for name, take := range takings {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				for f, longest := range map[fault]time.Duration{
					cut: 4 * time.Second, lost: 4 * time.Second, broken: 4 * time.Second,
					busy: 4 * time.Second, mute: 11 * time.Second,
				} {
					k := h.keep(time.Minute)
					l := take(h, k, "k")
					h.fail(f, "/v1/")
					time.AfterFunc(3*time.Second, func() { h.fail(none, "") })
					began := time.Now()
					h.must(l.Unlock(h.t.Context()))
					if took := time.Since(began); took > longest {
						t.Errorf("fault %d: released after %v", f, took)
					}
					take(h, k, "k") // which no lock-delay prevents
					h.close(k)
					time.Sleep(time.Minute) // the lock-delay after that
				}
				k := h.keep(0)
				l := take(h, k, "k")
				h.fail(cut, "/v1/kv/")
				ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				if err := l.Unlock(ctx); err == nil || time.Since(began) != 5*time.Second {
					t.Errorf("away: %v after %v", err, time.Since(began))
				}
				h.fail(absent, "/v1/kv/")
				began = time.Now()
				if err := l.Unlock(h.t.Context()); err == nil || time.Since(began) != 0 {
					t.Errorf("refused: %v after %v", err, time.Since(began))
				}
				h.fail(none, "")
				h.close(k)
			})
		})
	}
}

// Ensure that a release sees what is written to the key meanwhile, and is done at once all the
// same.
func TestUnlock_KeyChangesMeanwhile(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		l := h.lock(k, "k")
		h.fail(slow, "/txn")
		time.AfterFunc(100*time.Millisecond, func() {
			_, err := h.db.Put("k", []byte("new"), nil)
			h.must(err)
		})
		began := time.Now()
		h.must(l.Unlock(h.t.Context()))
		took := time.Since(began) // that of two transactions
		if e, _ := h.db.Get("k"); string(e.Value) != "new" || h.holder("k") != "" ||
			took != time.Second {
			t.Errorf("unlocked after %v: %+v", took, e)
		}
		h.fail(none, "")
		h.close(k)
	})
}
