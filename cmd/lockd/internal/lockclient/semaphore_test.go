package lockclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

const slotFlags = 0xe0f69a2baa414de0

// holders returns the limit of the semaphore, and the holders that its key names.
func (h *harness) holders(prefix string) (limit int, holders map[string]bool) {
	h.t.Helper()
	e, _ := h.db.Get(prefix + "/.lock")
	if e.Flags != slotFlags || e.Session != (lockd.SessionID{}) {
		h.t.Fatalf("semaphore: %+v", e)
	}
	var value struct {
		Limit   int
		Holders map[string]bool
	}
	h.must(json.Unmarshal(e.Value, &value))
	return value.Limit, value.Holders
}

// slot takes a slot that is free.
func (h *harness) slot(k *lockclient.Keeper, prefix string, limit int) *lockclient.Lock {
	h.t.Helper()
	l, err := k.Acquire(h.t.Context(), prefix, limit, lockclient.AtOnce)
	h.must(err)
	if _, holders := h.holders(prefix); !holders[k.ID()] || h.holder(prefix+"/"+k.ID()) != k.ID() {
		h.t.Fatalf("%s is not among %v, or has not locked its key", k.ID(), holders)
	}
	return l
}

// Ensure that there are as many slots as the limit says, and that a waiter has a slot as soon as a
// slot is released.
func TestSemaphore(t *testing.T) {
	run(t, func(h *harness) {
		a, b, c := h.keep(0), h.keep(0), h.keep(0)
		h.slot(a, "jobs", 2)
		l := h.slot(b, "jobs", 2)
		if e := l.Pair(); e.Key != "jobs/"+b.ID() || e.LockIndex != 1 || e.Flags != slotFlags {
			t.Errorf("entry %+v", e)
		}
		if limit, holders := h.holders("jobs"); limit != 2 || len(holders) != 2 {
			t.Errorf("limit %d, holders %v", limit, holders)
		}
		_, err := c.Acquire(h.t.Context(), "jobs", 2, lockclient.AtOnce)
		if !errors.Is(err, lockclient.ErrNotAcquired) ||
			!strings.Contains(err.Error(), "all slots") {
			t.Errorf("third: got %v", err)
		}
		if _, there := h.db.Get("jobs/" + c.ID()); there {
			t.Error("the contender key of who gave up is still there")
		}
		began := time.Now()
		time.AfterFunc(90*time.Second, func() { h.must(l.Unlock(context.Background())) })
		_, err = c.Acquire(h.t.Context(), "jobs", 2, lockclient.UntilDone)
		h.must(err)
		if got := time.Since(began); got != 90*time.Second {
			t.Errorf("acquired after %v", got)
		}
		synctest.Wait() // the release also deletes the contender key
		if _, there := h.db.Get("jobs/" + b.ID()); there || b.Err() != nil {
			t.Errorf("the contender key is still there: %v; %v", there, b.Err())
		}
		h.close(a)
		h.close(b)
		h.close(c)
	})
}

// Ensure that a server counts and logs the release of a slot as a release, and not as a lock that
// was lost because somebody deleted its key.
func TestSemaphore_ReleaseIsNoLoss(t *testing.T) {
	run(t, func(h *harness) {
		a, b := h.keep(0), h.keep(0)
		l := h.slot(a, "jobs", 1)
		_, err := b.Acquire(h.t.Context(), "jobs", 1, lockclient.AtOnce)
		if !errors.Is(err, lockclient.ErrNotAcquired) {
			t.Errorf("second: got %v", err)
		}
		h.must(l.Unlock(h.t.Context()))
		for _, k := range []*lockclient.Keeper{a, b} {
			if _, there := h.db.Get("jobs/" + k.ID()); there {
				t.Error("the contender key is still there")
			}
		}
		if ends := h.db.Stats().Ends; ends.KeyDeleted != 0 || ends.Unlocked != 2 {
			t.Errorf("%d keys deleted, %d locks released, want 0 and 2",
				ends.KeyDeleted, ends.Unlocked)
		}
		h.close(a)
		h.close(b)
	})
}

// Ensure that the slot of a session that has ended is free.
func TestSemaphore_HolderDies(t *testing.T) {
	run(t, func(h *harness) {
		a, b := h.keep(0), h.keep(0)
		h.slot(a, "jobs", 1)
		time.AfterFunc(time.Minute, func() { h.must(h.db.EndSession(h.sessionID(a.ID()))) })
		began := time.Now()
		_, err := b.Acquire(h.t.Context(), "jobs", 1, lockclient.UntilDone)
		h.must(err)
		if got := time.Since(began); got != time.Minute {
			t.Errorf("acquired after %v", got)
		}
		if _, holders := h.holders("jobs"); len(holders) != 1 {
			t.Errorf("holders %v", holders)
		}
		<-a.Done()
		h.close(a)
		h.close(b)
	})
}

// Ensure that the loss of a slot is told at once, and that no time is left, whatever the
// lock-delay.
func TestSemaphore_Lost(t *testing.T) {
	for name, take := range map[string]func(h *harness, id lockd.SessionID) error{
		"SessionEnded": func(h *harness, id lockd.SessionID) error { return h.db.EndSession(id) },
		"Removed": func(h *harness, _ lockd.SessionID) error {
			_, err := h.db.Put("jobs/.lock", []byte(`{"Limit":1,"Holders":{}}`),
				&lockd.PutOptions{Flags: slotFlags})
			return err
		},
		"RemovedWithAnotherLimit": func(h *harness, _ lockd.SessionID) error {
			_, err := h.db.Put("jobs/.lock", []byte(`{"Limit":2,"Holders":{}}`),
				&lockd.PutOptions{Flags: slotFlags})
			return err
		},
		"SemaphoreDeleted": func(h *harness, _ lockd.SessionID) error {
			_, err := h.db.Delete("jobs/.lock")
			return err
		},
		"SemaphoreOverwritten": func(h *harness, _ lockd.SessionID) error {
			_, err := h.db.Put("jobs/.lock", []byte("no semaphore"), nil)
			return err
		},
		"KeyDeleted": func(h *harness, id lockd.SessionID) error {
			_, err := h.db.Delete("jobs/" + id.String())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				k := h.keep(time.Minute)
				l := h.slot(k, "jobs", 1)
				time.Sleep(time.Minute + time.Second)
				h.must(take(h, h.sessionID(k.ID())))
				if left := doneAfter(t, k, 0); left != 0 {
					t.Errorf("%v left", left)
				}
				h.wasLost(l)
				h.close(k)
			})
		})
	}
}

// Ensure that a call that waits for a slot locks its contender key again if another client has
// deleted that: a slot counts only with it.
func TestSemaphore_ContenderDeleted(t *testing.T) {
	run(t, func(h *harness) {
		a, b := h.keep(0), h.keep(0)
		l := h.slot(a, "jobs", 1)
		time.AfterFunc(time.Second, func() {
			_, err := h.db.Delete("jobs/" + b.ID())
			h.must(err)
			time.Sleep(time.Second)
			h.must(l.Unlock(h.t.Context()))
		})
		_, err := b.Acquire(h.t.Context(), "jobs", 1, lockclient.UntilDone)
		h.must(err)
		if h.holder("jobs/"+b.ID()) != b.ID() {
			t.Error("the slot has no contender key")
		}
		time.Sleep(time.Minute)
		h.must(b.Err())
		h.close(a)
		h.close(b)
	})
}

// Ensure that a limit of 0 stands for the semaphore's own limit, also if that changes while a call
// waits for a slot, and is an error if the semaphore has none.
func TestSemaphore_OwnLimit(t *testing.T) {
	run(t, func(h *harness) {
		a, b, c := h.keep(0), h.keep(0), h.keep(0)
		_, err := a.Acquire(h.t.Context(), "jobs", 0, lockclient.UntilDone)
		if err == nil || !strings.Contains(err.Error(), `"jobs" has no limit yet: name one`) {
			t.Errorf("got %v", err)
		}
		for key := range h.db.Snapshot().Prefix("") {
			t.Errorf("left behind: %q", key)
		}
		h.slot(a, "jobs", 1)
		_, err = b.Acquire(h.t.Context(), "jobs", 0, lockclient.AtOnce)
		if !errors.Is(err, lockclient.ErrNotAcquired) {
			t.Errorf("got %v", err)
		}
		var l *lockclient.Lock
		time.AfterFunc(time.Minute, func() {
			_, err := h.db.Put("jobs/.lock", []byte(`{"Limit":2,"Holders":{"`+a.ID()+`":true}}`),
				&lockd.PutOptions{Flags: slotFlags})
			h.must(err)
		})
		began := time.Now()
		l, err = b.Acquire(h.t.Context(), "jobs", 0, lockclient.UntilDone)
		h.must(err)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("acquired after %v", took)
		}
		if limit, holders := h.holders("jobs"); limit != 2 || len(holders) != 2 {
			t.Errorf("limit %d, holders %v", limit, holders)
		}
		h.must(l.Unlock(h.t.Context()))
		h.slot(c, "jobs", 0)
		if limit, holders := h.holders("jobs"); limit != 2 || len(holders) != 2 {
			t.Errorf("limit %d, holders %v", limit, holders)
		}
		synctest.Wait() // all have seen that
		if err := a.Err(); err != nil {
			t.Errorf("a slot was lost with the old limit: %v", err)
		}
		h.close(a)
		h.close(b)
		h.close(c)
	})
}

// Ensure that a key that does not belong to the semaphore is not touched.
func TestSemaphore_Refused(t *testing.T) {
	run(t, func(h *harness) {
		a, b := h.keep(0), h.keep(0)
		h.slot(a, "jobs", 2)
		_, err := h.db.Put("other/.lock", []byte("{}"), nil)
		h.must(err)
		_, err = h.db.Put("third/.lock", []byte("-"), &lockd.PutOptions{Flags: slotFlags})
		h.must(err)
		for prefix, text := range map[string]string{
			"jobs": "has the limit 2, not 3", "other": "has the flags 0", "third": "third/.lock",
			"": "no clean path", "/jobs": "no clean path", "jobs/": "no clean path",
			".":    "no clean path",
			"a//b": "no clean path",
		} {
			_, err := b.Acquire(h.t.Context(), prefix, 3, lockclient.UntilDone)
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%q: got %v, want %q", prefix, err, text)
			}
		}
		for _, prefix := range []string{"jobs", "new"} {
			_, err := b.Acquire(h.t.Context(), prefix, -1, lockclient.AtOnce)
			if err == nil || !strings.Contains(err.Error(), "below 0") {
				t.Errorf("%q: got %v of a limit of -1", prefix, err)
			}
		}
		if e, _ := h.db.Get("other/.lock"); string(e.Value) != "{}" || e.Flags != 0 {
			t.Errorf("other/.lock is %+v", e)
		}
		for key := range h.db.Snapshot().Prefix("") {
			if strings.Contains(key, b.ID()) {
				t.Errorf("left behind: %q", key)
			}
		}
		h.close(a)
		h.close(b)
	})
}

// Ensure that after a lost answer no caller holds a slot without knowing it, and that a caller that
// gives up leaves no slot behind.
func TestSemaphore_AnswerLost(t *testing.T) {
	run(t, func(h *harness) {
		for _, path := range []string{"/txn", "/.lock"} {
			k := h.keep(0)
			h.fail(lost, path)
			if _, err := k.Acquire(h.t.Context(), "jobs", 1, lockclient.AtOnce); err == nil {
				t.Errorf("%s: got a slot, want the error", path)
			}
			h.fail(lost, path)
			timer := time.AfterFunc(3500*time.Millisecond, func() { h.fail(none, "") })
			l, err := k.Acquire(h.t.Context(), "jobs", 1, lockclient.UntilDone)
			h.must(err)
			timer.Stop()
			h.fail(none, "")
			h.proves(k, l)
			h.must(l.Unlock(h.t.Context()))
			if _, holders := h.holders("jobs"); len(holders) != 0 {
				t.Errorf("%s: holders %v", path, holders)
			}
			h.close(k)
		}
	})
}

// Ensure that a semaphore's key without a limit is refused, also if no limit is asked for: no
// caller could ever have a slot.
func TestSemaphore_KeyWithoutLimit(t *testing.T) {
	run(t, func(h *harness) {
		_, err := h.db.Put("jobs/.lock", []byte(`{"Holders":{}}`),
			&lockd.PutOptions{Flags: slotFlags})
		h.must(err)
		k := h.keep(0)
		_, err = k.Acquire(h.t.Context(), "jobs", 0, lockclient.AtOnce)
		if err == nil || !strings.Contains(err.Error(), `"jobs" has the limit 0`) {
			t.Errorf("got %v", err)
		}
		h.close(k)
	})
}

// Ensure that of two callers who find the same slot free one has it.
func TestSemaphore_AnotherWasQuicker(t *testing.T) {
	run(t, func(h *harness) {
		a := h.keep(0)
		quicker := sync.OnceFunc(func() { h.slot(a, "jobs", 1) })
		b := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/.lock") {
				quicker()
			}
			return h.RoundTrip(r)
		})
		_, err := b.Acquire(h.t.Context(), "jobs", 1, lockclient.AtOnce)
		if !errors.Is(err, lockclient.ErrNotAcquired) {
			t.Errorf("got %v, want ErrNotAcquired", err)
		}
		if _, holders := h.holders("jobs"); len(holders) != 1 || !holders[a.ID()] {
			t.Errorf("holders %v, want %s", holders, a.ID())
		}
		h.close(a)
		h.close(b)
	})
}

// Ensure that a release of a slot leaves no holder behind if another session takes a slot
// meanwhile, and requests fail after that for a while.
func TestSemaphore_TakenMeanwhile(t *testing.T) {
	run(t, func(h *harness) {
		b := h.keep(0)
		releasing, puts, began := false, 0, time.Now()
		a := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if releasing && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/.lock") {
				switch puts++; {
				case puts == 1:
					h.slot(b, "jobs", 2)
				case time.Since(began) < 3*time.Second:
					return nil, errors.New("connection reset")
				}
			}
			return h.RoundTrip(r)
		})
		l := h.slot(a, "jobs", 2)
		releasing = true
		h.must(l.Unlock(h.t.Context()))
		_, holders := h.holders("jobs")
		if _, there := h.db.Get("jobs/" + a.ID()); there || len(holders) != 1 || !holders[b.ID()] {
			t.Errorf("after %d writes: holders %v, the contender key is left: %t", puts, holders,
				there)
		}
		h.close(a)
		h.close(b)
	})
}

// Ensure that a call waits for its contender key as it does for a slot if another session has
// locked that key.
func TestSemaphore_ContenderLocked(t *testing.T) {
	run(t, func(h *harness) {
		other, k := h.keep(0), h.keep(0)
		l := h.lock(other, "jobs/"+k.ID())
		time.AfterFunc(10*time.Second, func() { h.must(l.Unlock(h.t.Context())) })
		began := time.Now()
		_, err := k.Acquire(h.t.Context(), "jobs", 1, lockclient.UntilDone)
		h.must(err)
		if took := time.Since(began); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("acquired after %v", took)
		}
		h.close(k)
		h.close(other)
	})
}
