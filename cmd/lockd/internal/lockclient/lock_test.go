package lockclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// lock takes a lock that is free.
func (h *harness) lock(k *lockclient.Keeper, key string) *lockclient.Lock {
	h.t.Helper()
	l, err := k.Lock(h.t.Context(), key, lockclient.AtOnce)
	h.must(err)
	if got := h.holder(key); got != k.ID() {
		h.t.Fatalf("key %q is locked by %q, not %q", key, got, k.ID())
	}
	return l
}

// Ensure that a lock's key exists while the lock is held, with what proves it, and then is gone.
func TestLock(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(time.Minute)
		l := h.lock(k, "dir/ä b%")
		e, _ := h.db.Get("dir/ä b%")
		if got := l.Pair(); got.ModifyIndex != e.Fence || got.LockIndex != 1 ||
			got.Key != e.Key || e.Flags != 0x2ddccbc058a50c18 {
			t.Errorf("got %+v of %+v", got, e)
		}
		h.must(l.Unlock(h.t.Context()))
		if e, there := h.db.Get("dir/ä b%"); there {
			t.Errorf("left behind: %+v", e)
		}
		if k.Err() != nil {
			t.Error("lost:", k.Err())
		}
		other := h.keep(0)
		again := h.lock(other, "dir/ä b%") // there is no lock-delay
		if again.Pair().ModifyIndex <= l.Pair().ModifyIndex {
			t.Errorf("fence %d after %d", again.Pair().ModifyIndex, l.Pair().ModifyIndex)
		}
		h.close(k)
		h.close(other)
	})
}

// Ensure that an existing key keeps its value and flags through a lock and an unlock, also a value
// that is written meanwhile, and is not deleted.
func TestLock_KeepsTheKey(t *testing.T) {
	run(t, func(h *harness) {
		_, err := h.db.Put("k", []byte("mine"), &lockd.PutOptions{Flags: 5})
		h.must(err)
		k := h.keep(0)
		l := h.lock(k, "k")
		if e, _ := h.db.Get("k"); string(e.Value) != "mine" || e.Flags != 5 {
			t.Errorf("locked: %+v", e)
		}
		_, err = h.db.Put("k", []byte("new"), &lockd.PutOptions{Flags: 6})
		h.must(err)
		h.must(l.Unlock(h.t.Context()))
		if e, _ := h.db.Get("k"); string(e.Value) != "new" || e.Flags != 6 ||
			h.holder("k") != "" {
			t.Errorf("unlocked: %+v", e)
		}
		made := h.lock(k, "made")
		_, err = h.db.Put("made", []byte("by another"), nil)
		h.must(err)
		h.must(made.Unlock(h.t.Context()))
		if e, _ := h.db.Get("made"); string(e.Value) != "by another" || h.holder("made") != "" {
			t.Errorf("unlocked: %+v", e)
		}
		h.close(k)
	})
}

// Ensure that Unlock deletes no key that was made for the lock and to which another client has
// written since: a value, or flags.
func TestLock_KeepsWhatWasWritten(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		for _, want := range []lockd.Entry{
			{Key: "value", Value: []byte("v"), Flags: api.LockFlagValue}, {Key: "flags", Flags: 6},
		} {
			l := h.lock(k, want.Key)
			_, err := h.db.Put(want.Key, want.Value, &lockd.PutOptions{Flags: want.Flags})
			h.must(err)
			h.must(l.Unlock(h.t.Context()))
			got, _ := h.db.Get(want.Key)
			if !bytes.Equal(got.Value, want.Value) || got.Flags != want.Flags {
				t.Errorf("unlocked: %+v, want %+v", got, want)
			}
		}
		h.close(k)
	})
}

// Ensure that a lock that is free is taken at once also if another client writes to its key, makes
// it or deletes it meanwhile, and is refused if another session takes the lock meanwhile.
func TestLock_AtOnce_KeyChangesMeanwhile(t *testing.T) {
	run(t, func(h *harness) {
		other := h.keep(0)
		k := h.keep(0)
		h.fail(slow, "/txn")
		meanwhile := func(do func() error) {
			time.AfterFunc(100*time.Millisecond, func() { h.must(do()) })
			h.must(h.lock(k, "k").Unlock(h.t.Context()))
		}
		write := func() error { _, err := h.db.Put("k", []byte("v"), nil); return err }
		meanwhile(write) // the first one makes the key
		meanwhile(write)
		meanwhile(func() error { _, err := h.db.Delete("k"); return err })

		time.AfterFunc(100*time.Millisecond, func() {
			id := h.sessionID(other.ID())
			h.must(h.db.Update(func(tx *lockd.Txn) error {
				_, err := tx.Lock("k", id, nil)
				return err
			}))
		})
		_, err := k.Lock(h.t.Context(), "k", lockclient.AtOnce)
		if !errors.Is(err, lockclient.ErrNotAcquired) ||
			!strings.Contains(err.Error(), "locked by session "+other.ID()) {
			t.Errorf("got %v, want who holds the lock", err)
		}
		h.fail(none, "")
		h.close(k)
		h.close(other)
	})
}

// Ensure that Unlock deletes a key that this lock has made, also if the answer to that was lost and
// the lock was taken again, and no key that another client has made while the lock was being taken.
func TestLock_WhoMadeTheKey(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.fail(slow, "/txn")
		time.AfterFunc(100*time.Millisecond, func() {
			_, err := h.db.Put("theirs", nil, &lockd.PutOptions{Flags: api.LockFlagValue})
			h.must(err) // it looks like one that is made for a lock
		})
		theirs, err := k.Lock(h.t.Context(), "theirs", lockclient.UntilDone)
		h.must(err)
		h.fail(lost, "/txn")
		time.AfterFunc(100*time.Millisecond, func() {
			h.fail(none, "")
			e, _ := h.db.Get("ours")
			h.must(h.db.ForceUnlock("ours", e.Fence, "wanted elsewhere"))
		})
		ours, err := k.Lock(h.t.Context(), "ours", lockclient.UntilDone)
		h.must(err)

		_, err = h.db.Put("there", nil, &lockd.PutOptions{Flags: api.LockFlagValue})
		h.must(err)
		h.fail(lost, "/txn")
		time.AfterFunc(100*time.Millisecond, func() {
			h.fail(none, "")
			e, _ := h.db.Get("there")
			h.must(h.db.ForceUnlock("there", e.Fence, "wanted elsewhere"))
		})
		there, err := k.Lock(h.t.Context(), "there", lockclient.UntilDone)
		h.must(err)
		h.must(there.Unlock(h.t.Context()))
		h.must(theirs.Unlock(h.t.Context()))
		h.must(ours.Unlock(h.t.Context()))
		for _, key := range []string{"theirs", "there"} {
			if _, there := h.db.Get(key); !there {
				t.Errorf("key %q of another client was deleted", key)
			}
		}
		if _, there := h.db.Get("ours"); there {
			t.Error("the key that was made for the lock is left")
		}
		h.close(k)
	})
}

// Ensure that a lock is given back also if the key's value has grown too large for a transaction,
// with no lock-delay, and that the value stays.
func TestLock_LargeValue(t *testing.T) {
	run(t, func(h *harness) {
		large := bytes.Repeat([]byte{7}, 400_000)
		k := h.keep(time.Minute)
		for _, key := range []string{"there", "made"} {
			if key == "there" {
				_, err := h.db.Put(key, []byte("small"), nil)
				h.must(err)
			}
			l := h.lock(k, key)
			_, err := h.db.Put(key, large, &lockd.PutOptions{Flags: 6})
			h.must(err)
			h.must(l.Unlock(h.t.Context()))
			if e, _ := h.db.Get(key); !bytes.Equal(e.Value, large) || e.Flags != 6 ||
				h.holder(key) != "" {
				t.Errorf("unlocked: %d bytes, flags %d, held by %q", len(e.Value), e.Flags,
					h.holder(key))
			}
		}
		for l := range h.db.Locks() {
			t.Errorf("left: %+v", l)
		}
		_, err := k.Lock(h.t.Context(), "there", lockclient.UntilDone)
		const text = `the value of key "there" has 400000 bytes, too many for a transaction`
		if err == nil || !strings.HasPrefix(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
		h.close(k)
	})
}

// Ensure that the release of a lock whose key has a large value is repeated if the server is away,
// which is no loss.
func TestLock_LargeValue_ServerAway(t *testing.T) {
	run(t, func(h *harness) {
		failures := 0
		k := h.keepOver(func(r *http.Request) (*http.Response, error) {
			if r.URL.Query().Has("release") && failures < 2 {
				failures++
				return nil, errors.New("connection refused")
			}
			return h.RoundTrip(r)
		})
		l := h.lock(k, "k")
		_, err := h.db.Put("k", make([]byte, 400_000), nil)
		h.must(err)
		h.must(l.Unlock(h.t.Context()))
		if holder := h.holder("k"); failures != 2 || holder != "" {
			t.Errorf("after %d failures: held by %q", failures, holder)
		}
		h.close(k)
	})
}

// Ensure that a waiter has the lock as soon as it is released, and after a lock-delay within a
// second of its end.
func TestLock_Waits(t *testing.T) {
	run(t, func(h *harness) {
		first, second, third := h.keep(0), h.keep(10*time.Second), h.keep(0)
		l := h.lock(first, "k")
		began := time.Now()
		time.AfterFunc(100*time.Second, func() { h.must(l.Unlock(context.Background())) })
		_, err := second.Lock(h.t.Context(), "k", lockclient.UntilDone)
		h.must(err)
		if got := time.Since(began); got != 100*time.Second {
			t.Errorf("locked after %v", got)
		}
		synctest.Wait()
		began = time.Now()
		h.close(second) // holding it
		_, err = third.Lock(h.t.Context(), "k", lockclient.UntilDone)
		h.must(err)
		if got := time.Since(began); got < 10*time.Second || got > 11*time.Second {
			t.Errorf("locked after %v, want the lock-delay of 10s", got)
		}
		h.close(first)
		h.close(third)
	})
}

// Ensure that a caller that gives up, or does not wait, says what was in the way, and leaves no
// lock held and no key.
func TestLock_NotAcquired(t *testing.T) {
	run(t, func(h *harness) {
		holder, k := h.keep(time.Minute), h.keep(0)
		l := h.lock(holder, "held")
		refused := func(
			key string, ctx context.Context, patience lockclient.Patience, text string,
		) {
			t.Helper()
			_, err := k.Lock(ctx, key, patience)
			if !errors.Is(err, lockclient.ErrNotAcquired) ||
				!strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %q", err, text)
			}
			if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
				t.Errorf("got %v, want the cause", err)
			}
			if h.holder(key) == k.ID() {
				t.Errorf("holds %q", key)
			}
		}
		refused("held", h.t.Context(), lockclient.AtOnce, "locked by session "+holder.ID())
		ctx, cancel := context.WithTimeout(h.t.Context(), 7*time.Second)
		began := time.Now()
		refused("held", ctx, lockclient.UntilDone, "locked by session "+holder.ID())
		if got := time.Since(began); got != 7*time.Second {
			t.Errorf("gave up after %v", got)
		}
		cancel()
		const named = "its name is no lock delay"
		l2 := h.lock(holder, named)
		_, err := k.Lock(h.t.Context(), named, lockclient.AtOnce)
		if err == nil || errors.Is(err, lockclient.ErrDelayed) {
			t.Errorf("got %v, want that it is held", err)
		}
		if err := l2.Unlock(h.t.Context()); err != nil {
			t.Error(err)
		}
		h.close(holder)
		refused("held", h.t.Context(), lockclient.AtOnce, "delay")
		_, err = k.Lock(h.t.Context(), "held", lockclient.AtOnce)
		if !errors.Is(err, lockclient.ErrDelayed) {
			t.Errorf("got %v, want ErrDelayed", err)
		}
		ctx, cancel = context.WithTimeout(h.t.Context(), 7*time.Second)
		refused("held", ctx, lockclient.UntilDone, "delay")
		cancel()
		refused("free", ctx, lockclient.UntilDone, "")
		if _, there := h.db.Get("free"); there {
			t.Error("a key is left behind")
		}
		h.wasLost(l)
		h.close(k)
	})
}

// Ensure that after a lost answer no caller holds a lock without knowing it.
func TestLock_AnswerLost(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(time.Minute)
		h.fail(lost, "/txn")
		_, err := k.Lock(h.t.Context(), "k", lockclient.AtOnce)
		if _, there := h.db.Get("k"); err == nil || there {
			t.Errorf("got %v, and the key is there: %v", err, there)
		}
		l, err := k.Lock(h.t.Context(), "k", lockclient.UntilDone)
		h.must(err) // it has the lock
		h.proves(k, l)
		h.fail(none, "")
		h.close(k)

		k = h.keep(time.Minute)
		h.fail(lost, "/txn")
		time.AfterFunc(100*time.Millisecond, func() { h.fail(none, "") })
		ctx, cancel := context.WithTimeout(h.t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err = k.Lock(ctx, "other", lockclient.UntilDone); err == nil {
			t.Error("got the lock, want the time to have passed")
		}
		if _, there := h.db.Get("other"); there {
			t.Error("what was taken is not given back")
		}
		h.close(k)
	})
}

// Ensure that a server that is away, or has too much to do, for a while does not end a wait, that a
// refusal does, and that the end of the wait tells what went wrong.
func TestLock_ServerAway(t *testing.T) {
	run(t, func(h *harness) {
		for _, f := range []fault{broken, busy} {
			k := h.keep(0)
			h.fail(f, "/v1/kv/")
			time.AfterFunc(30*time.Second, func() { h.fail(none, "") })
			began := time.Now()
			_, err := k.Lock(h.t.Context(), "k", lockclient.UntilDone)
			h.must(err)
			if got := time.Since(began); got < 30*time.Second || got > 31*time.Second {
				t.Errorf("locked after %v", got)
			}
			h.close(k)
		}

		k := h.keep(0)
		for f, text := range map[fault]string{
			broken: "500: broken", cut: "connection refused", mute: "the server has not answered",
		} {
			h.fail(f, "/v1/kv/")
			ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Second)
			_, err := k.Lock(ctx, "k", lockclient.UntilDone)
			cancel()
			if !errors.Is(err, lockclient.ErrNotAcquired) ||
				!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), text) {
				t.Errorf("got %v, want %q", err, text)
			}
		}
		h.fail(cut, "")
		began := time.Now()
		if _, err := k.Lock(h.t.Context(), "k", lockclient.UntilDone); err == nil ||
			!strings.Contains(err.Error(), "could not be renewed") {
			t.Errorf("got %v, want that of the renewals", err)
		}
		if got := time.Since(began); got > ttl*2/3+time.Second {
			t.Errorf("gave up after %v", got)
		}
		h.fail(none, "")
		h.close(k)
	})
}

// Ensure that a wait tells of the first of the failures in a row that do not end it, and of the
// next one after the server has answered.
func TestLock_TellsOfRetries(t *testing.T) {
	run(t, func(h *harness) {
		var told []string
		k, err := h.client().Keep(h.t.Context(), lockclient.SessionOptions{
			Name: "waits", TTL: ttl,
			Retrying: func(err error) { told = append(told, err.Error()) },
		})
		h.must(err)
		holder := h.keep(0)
		first := h.lock(holder, "k")
		h.fail(broken, "/v1/kv/")
		for at, f := range map[time.Duration]fault{
			5 * time.Second: none, 30 * time.Second: busy, 100 * time.Second: none,
		} {
			time.AfterFunc(at, func() { h.fail(f, "/v1/kv/") })
		}
		time.AfterFunc(2*time.Minute, func() { h.must(first.Unlock(h.t.Context())) })
		_, err = k.Lock(h.t.Context(), "k", lockclient.UntilDone)
		h.must(err)
		if len(told) != 2 || !strings.Contains(told[0], "500: broken") ||
			!strings.Contains(told[1], "429: busy") {
			t.Errorf("told %q, want one failure of each of the two times", told)
		}

		told = nil
		h.fail(broken, "/v1/kv/")
		_, err = k.Lock(h.t.Context(), "other", lockclient.AtOnce)
		if err == nil || told != nil {
			t.Errorf("got %v, told %q, of a call that does not try again", err, told)
		}
		h.fail(none, "")
		h.close(k)
		h.close(holder)
	})
}

// takings take a lock, a share or a slot at a key.
var takings = map[string]func(*harness, *lockclient.Keeper, string) *lockclient.Lock{
	"Lock": (*harness).lock, "Share": (*harness).share,
	"Slot": func(h *harness, k *lockclient.Keeper, key string) *lockclient.Lock {
		return h.slot(k, key, 1)
	},
}

// Ensure that a lock and a slot that no session will ever be granted are refused at once.
func TestLock_RefusedForever(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		long := strings.Repeat("k", lockd.MaxKeySize+1)
		prefix := long[:lockd.MaxKeySize-len("/"+api.DefaultSemaphoreKey)]
		began := time.Now()
		_, err1 := k.Lock(h.t.Context(), long, lockclient.UntilDone)
		_, err2 := k.Acquire(h.t.Context(), prefix, 1, lockclient.UntilDone)
		_, err3 := k.Share(h.t.Context(), long, lockclient.UntilDone)
		for _, err := range []error{err1, err2, err3} {
			text := fmt.Sprint(err)
			if !strings.Contains(text, "invalid argument") || len(text) > 400 ||
				errors.Is(err, lockclient.ErrNotAcquired) {
				t.Errorf("got %.500s", text)
			}
		}
		if got := time.Since(began); got != 0 {
			t.Errorf("refused after %v", got)
		}
		h.close(k)
	})
}

// Ensure that a key's name cannot make its session look ended.
func TestLock_NamedAsARefusal(t *testing.T) {
	run(t, func(h *harness) {
		const key = "an invalid session "
		first, second := h.keep(10*time.Second), h.keep(0)
		h.lock(first, key)
		h.close(first) // holding it
		_, err := second.Lock(h.t.Context(), key, lockclient.UntilDone)
		h.must(err)
		h.close(second)
	})
}

// Ensure that of many clients one has the lock at a time, each with a higher fence.
func TestLock_OneAtATime(t *testing.T) {
	run(t, func(h *harness) {
		const clients, rounds = 8, 5
		var wg sync.WaitGroup
		var inside, fence uint64
		for n := range clients {
			wg.Go(func() {
				k := h.keep(0)
				for range rounds {
					l, err := k.Lock(h.t.Context(), "k", lockclient.UntilDone)
					if err != nil {
						t.Error(err)
						break
					}
					// Without a Go mutex the race detector sees two inside.
					if inside++; inside != 1 || l.Pair().ModifyIndex <= fence {
						t.Errorf("%d inside, fence %d after %d", inside,
							l.Pair().ModifyIndex, fence)
					}
					fence = l.Pair().ModifyIndex
					time.Sleep(time.Duration(n) * time.Millisecond)
					inside--
					if err := l.Unlock(h.t.Context()); err != nil {
						t.Error(err)
					}
				}
				if err := k.Close(h.t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, there := h.db.Get("k"); there || fence == 0 {
			t.Errorf("key left behind: %v", there)
		}
		synctest.Wait()
	})
}

// Ensure that the time that a slow answer takes does not count as time of the session.
func TestKeeper_TimeFromTheRequest(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		time.Sleep(4 * time.Second)
		h.fail(mute, fmt.Sprintf("/renew/%s", k.ID()))
		if left := doneAfter(t, k, 6*time.Second); left != ttl/6 {
			t.Errorf("%v left", left)
		}
		h.fail(none, "")
		h.close(k)
	})
}

// Ensure that a server that does no transaction for a while is not taken for one that finds the
// value too large: a lock is taken and released as soon as there are transactions again.
func TestLock_NoTransactions(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.fail(broken, "/txn")
		_, err := k.Lock(h.t.Context(), "k", lockclient.AtOnce)
		if text := fmt.Sprint(err); !strings.HasSuffix(text, "/v1/txn\": 500: broken") ||
			strings.Contains(text, "too many") || errors.Is(err, lockclient.ErrNotAcquired) {
			t.Errorf("got %q", text)
		}
		h.fail(none, "")
		l := h.lock(k, "k")
		h.fail(broken, "/txn")
		time.AfterFunc(2500*time.Millisecond, func() { h.fail(none, "") })
		began := time.Now()
		h.must(l.Unlock(h.t.Context()))
		_, there := h.db.Get("k")
		if took := time.Since(began); there || took != 3*time.Second {
			t.Errorf("released after %v, the key that was made is left: %t", took, there)
		}
		h.close(k)
	})
}

// Ensure that a failure of the reads alone is no loss, as long as the session is renewed.
func TestLock_ReadsFail(t *testing.T) {
	for name, take := range takings {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				k := h.keep(0)
				l := take(h, k, "k")
				for _, path := range []string{"/v1/kv/", "/v1/lockd/"} {
					h.fail(broken, path)
					time.Sleep(3 * time.Minute)
					h.must(k.Err())
				}
				h.fail(none, "")
				h.must(l.Unlock(h.t.Context()))
				h.close(k)
			})
		})
	}
}

// Ensure that a session that has ended takes nothing, and is told that at once, before a renewal
// finds out.
func TestLock_SessionGone(t *testing.T) {
	run(t, func(h *harness) {
		k := h.keep(0)
		h.must(h.db.EndSession(h.sessionID(k.ID())))
		began := time.Now()
		_, err1 := k.Lock(h.t.Context(), "k", lockclient.UntilDone)
		_, err2 := k.Acquire(h.t.Context(), "jobs", 1, lockclient.UntilDone)
		_, err3 := k.Share(h.t.Context(), "k", lockclient.UntilDone)
		for i, err := range []error{err1, err2, err3} {
			if !errors.Is(err, lockclient.ErrNoSession) || errors.Is(err, lockclient.ErrDelayed) {
				t.Errorf("%d: got %v, want ErrNoSession", i, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("told after %v", took)
		}
		h.close(k)
	})
}

// Ensure that no lock is taken by a transaction whose answer does not have the key.
func TestLock_AnswerWithoutKey(t *testing.T) {
	run(t, func(h *harness) {
		for _, answer := range []string{`{}`, `{"Results":[{"KV":{"Key":"other"}}]}`} {
			k := h.keepOver(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/v1/txn" {
					return (&script{status: http.StatusOK, body: answer}).RoundTrip(r)
				}
				return h.RoundTrip(r)
			})
			_, err := k.Lock(h.t.Context(), "k", lockclient.AtOnce)
			if !strings.Contains(fmt.Sprint(err), `does not have the key "k"`) {
				t.Errorf("%s: got %v", answer, err)
			}
			h.close(k)
		}
	})
}
