package lockclient_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// wasLost releases a lock that was lost, and fails the test if Unlock does not say so.
func (h *harness) wasLost(l *lockclient.Lock) {
	h.t.Helper()
	if err := l.Unlock(h.t.Context()); !errors.Is(err, lockclient.ErrNotHeld) {
		h.t.Errorf("Unlock after the loss: %v, want ErrNotHeld", err)
	}
}

// Ensure that the release of a lock whose key has a large value finds a loss that comes just before
// it.
func TestLock_LargeValue_Lost(t *testing.T) {
	run(t, func(h *harness) {
		var fence uint64
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("release") {
				h.must(h.db.ForceUnlock("k", fence, "wanted elsewhere"))
			}
			return h.RoundTrip(r)
		})
		l := h.lock(k, "k")
		fence = l.Pair().ModifyIndex
		_, err := h.db.Put("k", make([]byte, 400_000), nil)
		h.must(err)
		h.wasLost(l)
		h.close(k)
	})
}

// Ensure that a wait ends when its session does.
func TestLock_SessionEnds(t *testing.T) {
	run(t, func(h *harness) {
		holder, k := h.keep(0), h.keep(0)
		h.lock(holder, "k")
		time.AfterFunc(time.Second, func() { h.must(h.db.EndSession(h.sessionID(k.ID()))) })
		_, err := k.Lock(h.t.Context(), "k", lockclient.UntilDone)
		if !errors.Is(err, lockclient.ErrNoSession) {
			t.Errorf("got %v", err)
		}
		_, err = k.Lock(h.t.Context(), "free", lockclient.UntilDone)
		if !errors.Is(err, lockclient.ErrNoSession) {
			t.Errorf("after that: got %v", err)
		}
		h.close(k)
		h.close(holder)
	})
}

// Ensure that the loss of a lock is told at once, with its reason and with no time left: another
// client may have the lock.
func TestLock_Lost(t *testing.T) {
	for _, test := range []struct {
		name, text string
		take       func(h *harness, fence uint64) error
	}{
		{"Deleted", "was deleted", func(h *harness, _ uint64) error {
			_, err := h.db.Delete("k")
			return err
		}},
		{"Forced", "was released", func(h *harness, fence uint64) error {
			return h.db.ForceUnlock("k", fence, "wanted elsewhere")
		}},
		{"Taken", "is locked by session", func(h *harness, _ uint64) error {
			s, err := h.db.NewSession(nil)
			if err != nil {
				return err
			}
			return h.db.Update(func(tx *lockd.Txn) error {
				_, err1 := tx.Delete("k")
				_, err2 := tx.Lock("k", s.ID(), nil)
				return errors.Join(err1, err2)
			})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, func(h *harness) {
				k := h.keep(time.Minute)
				l := h.lock(k, "k")
				h.fail(broken, "/v1/kv/") // for a while
				time.Sleep(time.Second)
				h.fail(none, "")
				time.Sleep(5 * time.Minute)
				h.must(test.take(h, l.Pair().ModifyIndex))
				if left := doneAfter(t, k, 0); left != 0 {
					t.Errorf("%v left", left)
				}
				if !strings.Contains(k.Err().Error(), test.text) {
					t.Errorf("got %v, want %q", k.Err(), test.text)
				}
				before, _ := h.db.Get("k")
				h.wasLost(l)
				if after, _ := h.db.Get("k"); after.ModifyIndex != before.ModifyIndex {
					t.Errorf("unlock changed %+v to %+v", before, after)
				}
				h.close(k)
			})
		})
	}
}

// Ensure that a lock that another session holds is lost at once, with no time left, also while the
// server answers no renewal and the lock-delay would leave time.
func TestLock_Lost_ToAnother(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(time.Minute)
		l := h.lock(k, "k")
		other, err := h.db.NewSession(nil)
		h.must(err)
		h.fail(mute, "/renew/")
		synctest.Wait() // the watch has begun
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			_, err1 := tx.Unlock("k", h.sessionID(k.ID()))
			_, err2 := tx.Lock("k", other.ID(), nil)
			return errors.Join(err1, err2)
		}))
		if left := doneAfter(t, k, 0); left != 0 {
			t.Errorf("%v left", left)
		}
		h.fail(none, "")
		h.wasLost(l)
		h.close(k)
	})
}

// Ensure that the loss of a lock with its session is reported as such, or as possible if there is
// no time to ask.
func TestLock_Lost_WithSession(t *testing.T) {
	for delay, text := range map[time.Duration]string{
		time.Minute: ` was destroyed, or its TTL of 15s has passed; by that the lock of key "k"`,
		0:           `the lock of key "k" was released; it may be that session `,
	} {
		run(t, func(h *harness) {
			k := h.keep(delay)
			h.lock(k, "k")
			synctest.Wait() // the watch has begun
			h.must(h.db.EndSession(h.sessionID(k.ID())))
			doneAfter(t, k, 0)
			err := k.Err()
			told := strings.Contains(err.Error(), text) && strings.Contains(err.Error(), k.ID())
			if !told || errors.Is(err, lockclient.ErrNoSession) != (delay > 0) {
				t.Errorf("delay %v: got %v", delay, err)
			}
			h.close(k)
		})
	}
}

// Ensure that a wait ends as soon as its session is lost, also while a read waits for a change.
func TestLock_SessionNotRenewed(t *testing.T) {
	run(t, func(h *harness) {
		holder := h.keep(0)
		h.lock(holder, "k")
		k := h.keep(0)
		h.fail(cut, "/renew/"+k.ID())
		began := time.Now()
		_, err := k.Lock(h.t.Context(), "k", lockclient.UntilDone)
		if took := time.Since(began); err == nil || took != ttl*2/3 || err != k.Err() {
			t.Errorf("got %v after %v", err, took)
		}
		h.fail(none, "")
		h.close(k)
		h.close(holder)
	})
}
