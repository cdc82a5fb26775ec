package conformance_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd/consulapi"
)

// lock makes a handle, which is unlocked when the test is over.
func (h *harness) lock(opts api.LockOptions) *api.Lock {
	h.t.Helper()
	lock, err := h.LockOpts(&opts)
	check(h.t, err)
	h.t.Cleanup(func() {
		if err := lock.Unlock(); err != nil && !errors.Is(err, api.ErrLockNotHeld) {
			h.t.Error(err)
		}
	})
	return lock
}

// locked takes the lock, which must succeed, and returns the channel that tells of its loss.
func (h *harness) locked(lock *api.Lock) <-chan struct{} {
	h.t.Helper()
	r := receive(h, locking(lock, nil))
	check(h.t, r.err)
	if r.lost == nil {
		h.t.Fatal("given up")
	}
	return r.lost
}

// taken is the result of a call for a lock or a slot.
type taken struct {
	lost <-chan struct{} // nil if the call gave up
	err  error
}

// locking takes the lock in a goroutine.
func locking(lock *api.Lock, stop <-chan struct{}) <-chan taken {
	return call(func() taken {
		lost, err := lock.Lock(stop)
		return taken{lost, err}
	})
}

// monitored waits until the holder of the lock, or of a slot, waits for its loss. The first request
// of its monitor is answered at once, the second one waits.
func (h *harness) monitored(key string) {
	h.t.Helper()
	h.waitForBegun("GET /v1/kv/"+key+"?consistent=", 2)
}

func TestC3_LockAndUnlock(t *testing.T) {
	each(t, func(h *harness) {
		lock := h.lock(api.LockOptions{Key: "l", Value: []byte("mine")})
		equal(h, "unlock of one that is not held", lock.Unlock(), api.ErrLockNotHeld)
		lost := h.locked(lock)
		p := h.get("l")
		if p.Flags != api.LockFlagValue || string(p.Value) != "mine" || p.LockIndex != 1 {
			h.t.Fatal(brief(p))
		}
		s := h.info(p.Session)
		equal(h, "session", s.Name+s.TTL, api.DefaultLockSessionName+api.DefaultLockSessionTTL)
		_, err := lock.Lock(nil)
		equal(h, "lock again", err, api.ErrLockHeld)
		equal(h, "held", open(lost), true)

		check(h.t, lock.Unlock())
		equal(h, "unlock again", lock.Unlock(), api.ErrLockNotHeld)
		receive(h, lost)
		h.waitFor("PUT /v1/session/destroy/"+s.ID, 1)
		if h.info(s.ID) != nil {
			h.t.Fatal("the session outlives the lock")
		}
		free := h.get("l")
		if free.Session != "" || string(free.Value) != "mine" || free.LockIndex != 1 {
			h.t.Fatal(brief(free))
		}
		h.locked(lock) // at once, for an unlock sets no delay
		equal(h, "LockIndex", h.get("l").LockIndex, uint64(2))
	})
}

func TestC3_ADestroyedSessionLosesItsLock(t *testing.T) {
	each(t, func(h *harness) {
		lock := h.lock(api.LockOptions{Key: "l"})
		lost := h.locked(lock)
		h.monitored("l")
		h.destroy(h.get("l").Session)
		receive(h, lost)
		_, err := lock.Lock(nil)
		equal(h, "C4: still held by the handle", err, api.ErrLockHeld)
		check(h.t, lock.Unlock())
	})
}

func TestC3_ASessionThatIsNotRenewedLosesItsLock(t *testing.T) {
	each(t, func(h *harness) {
		h.way.fail("/v1/session/renew/", 1_000)
		began := h.now()
		lost := h.locked(h.lock(api.LockOptions{Key: "l"}))
		h.monitored("l")
		h.advance(15*time.Second - h.now().Sub(began) - time.Millisecond)
		equal(h, "held before the TTL is over", open(lost), true)
		h.advance(time.Millisecond)
		receive(h, lost)
	})
}

func TestC3_ADeletedKeyLosesItsLock(t *testing.T) {
	each(t, func(h *harness) {
		for range 10 {
			lock := h.lock(api.LockOptions{Key: "l"})
			lost := h.locked(lock) // no earlier round has left a delay
			_, err := h.KV().Delete("l", nil)
			check(h.t, err)
			receive(h, lost)
			check(h.t, lock.Unlock())
		}
	})
}

func TestG1_ContendersHoldALockOneAtATime(t *testing.T) {
	each(t, func(h *harness) {
		const contenders = 4
		var holders atomic.Int32
		results := make(chan error, contenders)
		for range contenders {
			lock := h.lock(api.LockOptions{Key: "l"})
			go func() {
				_, err := lock.Lock(nil)
				if err == nil {
					err = hold(&holders, 1, lock.Unlock)
				}
				results <- err
			}()
		}
		for range contenders {
			check(h.t, receive(h, results))
		}
		equal(h, "LockIndex", h.get("l").LockIndex, uint64(contenders))
	})
}

func TestLock_Destroy(t *testing.T) {
	each(t, func(h *harness) {
		one := h.lock(api.LockOptions{Key: "l"})
		other := h.lock(api.LockOptions{Key: "l"})
		check(h.t, one.Destroy())
		h.locked(one)
		equal(h, "own", one.Destroy(), api.ErrLockHeld)
		equal(h, "another's", other.Destroy(), api.ErrLockInUse)
		check(h.t, one.Unlock())
		check(h.t, other.Destroy())
		h.missing("l")
	})
}

func TestX3_AKeyThatIsNoLockIsAConflict(t *testing.T) {
	each(t, func(h *harness) {
		h.put("l", "plain")
		lock := h.lock(api.LockOptions{Key: "l"})
		_, err := lock.Lock(nil)
		equal(h, "lock", err, api.ErrLockConflict)
		equal(h, "destroy", lock.Destroy(), api.ErrLockConflict)
	})
}

func TestX33_HandlesOfOneSessionShareTheLock(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(nil)
		one := h.lock(api.LockOptions{Key: "l", Session: id})
		two := h.lock(api.LockOptions{Key: "l", Session: id})
		lost := h.locked(one)
		h.locked(two)
		equal(h, "LockIndex", h.get("l").LockIndex, uint64(1))
		check(h.t, two.Unlock())
		receive(h, lost)
	})
}

func TestC3_AMonitorRidesOutFailuresAndWrites(t *testing.T) {
	each(t, func(h *harness) {
		const monitor = "GET /v1/kv/l?consistent="
		lost := h.locked(h.lock(api.LockOptions{
			Key: "l", MonitorRetries: 3, MonitorRetryTime: 10 * time.Millisecond,
		}))
		h.monitored("l")
		n := h.way.count(monitor)
		h.way.fail(monitor, 3)
		h.put("l", "plain")          // wakes it, and then three requests fail
		h.waitForBegun(monitor, n+6) // the last one waits for the next change
		h.put("l", "again")
		h.waitFor(monitor, n+6)
		equal(h, "held", open(lost), true)
		h.way.fail(monitor, 1_000)
		h.put("l", "once more")
		receive(h, lost)
	})
}

// stopping answers requests by a handler, as a server does that ends what they wait for when it
// stops, and that then serves again.
type stopping struct {
	http.Handler
	stops context.Context
}

func (s stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if s.stops.Err() == nil {
		defer context.AfterFunc(s.stops, cancel)()
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, r.Method, r.URL.String(), r.Body))
	return w.Result(), nil
}

// The monitor tries again after a 500, and after no other status.
func TestC3_AMonitorRidesOutAServerThatStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := inProcess(t, short)
		handler, err := consulapi.Handler(h.db, &short)
		check(t, err)
		stops, stop := context.WithCancel(t.Context())
		h.way.next = stopping{handler, stops}
		lost := h.locked(h.lock(api.LockOptions{
			Key: "l", MonitorRetries: 1, MonitorRetryTime: time.Second,
		}))
		synctest.Wait()
		stop()
		h.advance(time.Minute)
		equal(h, "held", open(lost), true)
	})
}

func TestB3_LockTryOnceGivesUpInTime(t *testing.T) {
	each(t, func(h *harness) {
		h.locked(h.lock(api.LockOptions{Key: "l"}))
		const wait = 250 * time.Millisecond
		lock := h.lock(api.LockOptions{Key: "l", LockTryOnce: true, LockWaitTime: wait})
		began, beganHere := h.now(), time.Now()
		r := await(h, locking(lock, nil), wait/50)
		if r.lost != nil || r.err != nil {
			h.t.Fatalf("%+v", r)
		}
		if took := h.now().Sub(began); took < wait {
			h.t.Fatalf("gave up after %v of the server's time", took)
		}
		if took := time.Since(beganHere); took < wait {
			h.t.Fatalf("gave up after %v", took)
		}
		keys, _, err := h.KV().Keys("", "", nil)
		check(h.t, err)
		equal(h, "keys", strings.Join(keys, " "), "l")
	})
}

func TestK18_LockWaitsForTheEndOfALockDelay(t *testing.T) {
	each(t, func(h *harness) {
		lock := h.lock(api.LockOptions{Key: "l", LockDelay: time.Second})
		lost := h.locked(lock)
		h.monitored("l")
		h.destroy(h.get("l").Session)
		receive(h, lost)
		check(h.t, lock.Unlock())

		n := h.way.count("PUT /v1/kv/l?acquire=")
		next := h.lock(api.LockOptions{Key: "l"})
		waiting := locking(next, nil)
		h.waitFor("PUT /v1/kv/l?acquire=", n+1) // refused
		h.advance(time.Second)
		r := receive(h, waiting) // the client retries after its own 5 s
		check(h.t, r.err)
		equal(h, "holder", h.info(h.get("l").Session).Name, api.DefaultLockSessionName)
	})
}

func TestLock_IsGivenUpWhenToldTo(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(nil)
		equal(h, "acquire", h.acquire("l", id, ""), true)
		_, err := h.KV().Put(&api.KVPair{Key: "l", Flags: api.LockFlagValue}, nil)
		check(h.t, err)
		h.destroy(id) // the lock is delayed
		stop := make(chan struct{})
		waiting := locking(h.lock(api.LockOptions{Key: "l"}), stop)
		h.waitFor("PUT /v1/kv/l?acquire=", 2)
		close(stop)
		if r := receive(h, waiting); r.lost != nil || r.err != nil {
			h.t.Fatalf("%+v", r)
		}
		equal(h, "holder", h.get("l").Session, "")
	})
}
