package conformance_test

import (
	"encoding/json"
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// semaphore makes a handle, which is released when the test is over.
func (h *harness) semaphore(opts api.SemaphoreOptions) *api.Semaphore {
	h.t.Helper()
	semaphore, err := h.SemaphoreOpts(&opts)
	check(h.t, err)
	h.t.Cleanup(func() {
		if err := semaphore.Release(); err != nil && !errors.Is(err, api.ErrSemaphoreNotHeld) {
			h.t.Error(err)
		}
	})
	return semaphore
}

// acquiring takes a slot in a goroutine.
func acquiring(semaphore *api.Semaphore, stop <-chan struct{}) <-chan taken {
	return call(func() taken {
		lost, err := semaphore.Acquire(stop)
		return taken{lost, err}
	})
}

// slot takes a slot, which must succeed, and returns the channel that tells of its loss.
func (h *harness) slot(semaphore *api.Semaphore) <-chan struct{} {
	h.t.Helper()
	r := receive(h, acquiring(semaphore, nil))
	check(h.t, r.err)
	if r.lost == nil {
		h.t.Fatal("given up")
	}
	return r.lost
}

// holders returns the sessions that the semaphore's key names as holders.
func (h *harness) holders(prefix string) map[string]bool {
	h.t.Helper()
	p := h.get(path.Join(prefix, api.DefaultSemaphoreKey))
	equal(h, "flags", p.Flags, uint64(api.SemaphoreFlagValue))
	equal(h, "C5: never locked", p.Session, "")
	var text struct{ Holders map[string]bool }
	check(h.t, json.Unmarshal(p.Value, &text))
	return text.Holders
}

func TestC5_AcquireAndRelease(t *testing.T) {
	each(t, func(h *harness) {
		s := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2, Value: []byte("me")})
		equal(h, "release of none", s.Release(), api.ErrSemaphoreNotHeld)
		lost := h.slot(s)
		_, err := s.Acquire(nil)
		equal(h, "acquire again", err, api.ErrSemaphoreHeld)
		for id := range h.holders("s") {
			p := h.get("s/" + id)
			if p.Session != id || string(p.Value) != "me" || h.info(id).Behavior != "delete" {
				h.t.Fatal(brief(p))
			}
		}
		equal(h, "holders", len(h.holders("s")), 1)
		equal(h, "held", open(lost), true)
		check(h.t, s.Release())
		equal(h, "release again", s.Release(), api.ErrSemaphoreNotHeld)
		receive(h, lost)
		equal(h, "holders", len(h.holders("s")), 0)
		keys, _, err := h.KV().Keys("s/", "", nil)
		check(h.t, err)
		equal(h, "keys", len(keys), 1)
	})
}

func TestC5_ASlotPassesOnWhenItIsReleased(t *testing.T) {
	each(t, func(h *harness) {
		one := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
		two := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
		h.slot(one)
		h.slot(two)
		waiting := acquiring(h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2}), nil)
		h.advance(time.Second)
		select {
		case r := <-waiting:
			h.t.Fatalf("a third slot of two: %+v", r)
		default:
		}
		check(h.t, one.Release())
		check(h.t, receive(h, waiting).err)
		equal(h, "holders", len(h.holders("s")), 2)
	})
}

func TestC5_ASlotPassesOnWhenItsSessionEnds(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(&api.SessionEntry{Behavior: api.SessionBehaviorDelete})
		lost := h.slot(h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1, Session: id}))
		next := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1})
		waiting := acquiring(next, nil)
		h.monitored("s")
		h.destroy(id)
		receive(h, lost)
		check(h.t, receive(h, waiting).err)
		if holders := h.holders("s"); len(holders) != 1 || holders[id] {
			h.t.Fatalf("holders %v, one of which is gone: %s", holders, id)
		}
	})
}

func TestC5_ADeletedPrefixLosesItsSlots(t *testing.T) {
	each(t, func(h *harness) {
		for range 10 {
			s := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
			lost := h.slot(s)
			_, err := h.KV().DeleteTree("s", nil)
			check(h.t, err)
			receive(h, lost)
			check(h.t, s.Release())
		}
	})
}

func TestM1_ContendersHoldNoMoreSlotsThanThereAre(t *testing.T) {
	each(t, func(h *harness) {
		const contenders, limit = 6, 2
		var holders atomic.Int32
		results := make(chan error, contenders)
		for range contenders {
			s := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: limit})
			go func() {
				_, err := s.Acquire(nil)
				if err == nil {
					err = hold(&holders, limit, s.Release)
				}
				results <- err
			}()
		}
		for range contenders {
			check(h.t, receive(h, results))
		}
		equal(h, "holders", len(h.holders("s")), 0)
	})
}

func TestSemaphore_AllNameTheSameLimit(t *testing.T) {
	each(t, func(h *harness) {
		h.slot(h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1}))
		_, err := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2}).Acquire(nil)
		h.refused(err, "semaphore limit conflict (lock: 1, local: 2)")
	})
}

func TestSemaphore_Destroy(t *testing.T) {
	each(t, func(h *harness) {
		one := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
		other := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
		check(h.t, one.Destroy())
		h.slot(one)
		equal(h, "own", one.Destroy(), api.ErrSemaphoreHeld)
		equal(h, "another's", other.Destroy(), api.ErrSemaphoreInUse)
		check(h.t, one.Release())
		check(h.t, other.Destroy())
		h.missing("s/" + api.DefaultSemaphoreKey)
	})
}

func TestX3_AKeyThatIsNoSemaphoreIsAConflict(t *testing.T) {
	each(t, func(h *harness) {
		lock := h.lock(api.LockOptions{Key: "s/" + api.DefaultSemaphoreKey})
		h.locked(lock)
		s := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 2})
		_, err := s.Acquire(nil)
		equal(h, "acquire", err, api.ErrSemaphoreConflict)
		check(h.t, lock.Unlock())
		equal(h, "destroy", s.Destroy(), api.ErrSemaphoreConflict)
	})
}

func TestC5_AMonitorOfASlotRidesOutFailures(t *testing.T) {
	each(t, func(h *harness) {
		const monitor = "GET /v1/kv/s?consistent="
		lost := h.slot(h.semaphore(api.SemaphoreOptions{
			Prefix: "s", Limit: 2, MonitorRetries: 3, MonitorRetryTime: 10 * time.Millisecond,
		}))
		h.monitored("s")
		n := h.way.count(monitor)
		h.way.fail(monitor, 3)
		h.put("s/other", "wakes it")
		h.waitForBegun(monitor, n+6) // three of them failed; the last one waits
		h.put("s/other", "again")
		h.waitFor(monitor, n+6)
		equal(h, "held", open(lost), true)
		h.way.fail(monitor, 1_000)
		h.put("s/other", "once more")
		receive(h, lost)
	})
}

func TestB3_SemaphoreTryOnceGivesUpInTime(t *testing.T) {
	each(t, func(h *harness) {
		h.slot(h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1}))
		const wait = 250 * time.Millisecond
		began, beganHere := h.now(), time.Now()
		r := await(h, acquiring(h.semaphore(api.SemaphoreOptions{
			Prefix: "s", Limit: 1, SemaphoreTryOnce: true, SemaphoreWaitTime: wait,
		}), nil), wait/50)
		if r.lost != nil || r.err != nil {
			h.t.Fatalf("%+v", r)
		}
		if took := h.now().Sub(began); took < wait {
			h.t.Fatalf("gave up after %v of the server's time", took)
		}
		if took := time.Since(beganHere); took < wait {
			h.t.Fatalf("gave up after %v", took)
		}
		equal(h, "holders", len(h.holders("s")), 1)
	})
}

func TestC6_AnAbandonedContenderIsNoHolder(t *testing.T) {
	each(t, func(h *harness) {
		one := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1})
		h.slot(one)
		id := h.session(&api.SessionEntry{Behavior: api.SessionBehaviorDelete})
		stop := make(chan struct{})
		close(stop)
		gave := h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1, Session: id})
		if r := receive(h, acquiring(gave, stop)); r.lost != nil || r.err != nil {
			h.t.Fatalf("%+v", r)
		}
		equal(h, "its entry is left", h.get("s/"+id).Session, id)
		check(h.t, one.Release())
		h.slot(h.semaphore(api.SemaphoreOptions{Prefix: "s", Limit: 1}))
		if h.holders("s")[id] {
			h.t.Fatal("who gave up holds a slot")
		}
	})
}
