//go:build !invariants

package lockd_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// Ensure that a caller which has seen a change by Get, in the moment before watchers are notified,
// is not woken for it again. A build with the tag invariants looks for misuse under the lock that
// is held in that moment, so no call begins to wait then.
func TestWait_B4B6_SeenBeforeItIsTold(t *testing.T) {
	watched := probe(nil, store.Hooks{})
	db, err := lockd.New(&lockd.Options{Clock: watched})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	put := func(value string) lockd.Entry {
		entry, err := db.Put("k", []byte(value), nil)
		if err != nil {
			t.Fatal(err)
		}
		return entry
	}
	put("a")
	type answer struct {
		index uint64
		err   error
	}
	told := make(chan answer, 1)
	watched.Hooks.Published = func() {
		seen, _ := db.Get("k")
		go func() {
			_, index, err := db.Wait(t.Context(), lockd.KeyScope("k"), seen.ModifyIndex, 0)
			told <- answer{index, err}
		}()
		for watched.Controls.Topics() == 0 {
			runtime.Gosched() // until it waits
		}
	}
	seen := put("b")
	watched.Hooks.Published = nil
	for len(told) == 0 && watched.Controls.Topics() == 0 {
		runtime.Gosched() // until it has returned, or waits again
	}
	next := put("c")
	if got := <-told; got.err != nil || got.index != next.ModifyIndex {
		t.Fatalf("told of index %d (%v), having seen %d; want %d", got.index, got.err,
			seen.ModifyIndex, next.ModifyIndex)
	}
}

// Ensure that the limit of a Wait runs from the call on, also if the call is woken for a change
// that its caller has seen, and goes on waiting.
func TestWait_B4_LimitOfACallThatGoesOn(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		h.put("k", "a", 0)
		var waiting *call
		h.probe.Hooks.Published = func() {
			seen, _ := h.Get("k")
			waiting = start(func() error {
				_, _, err := h.Wait(h.t.Context(), lockd.KeyScope("k"), seen.ModifyIndex,
					10*time.Second)
				return err
			})
			h.settle() // until it waits
			h.clock.Add(6 * time.Second)
		}
		h.put("k", "b", 0)
		h.probe.Hooks.Published = nil
		h.settle()
		if waiting.returned() {
			h.t.Fatal("it was woken for what its caller has seen")
		}
		h.advance(4 * time.Second)
		if !waiting.returned() {
			h.t.Error("it waits for longer than its limit")
		}
		h.must(h.Close()) // which ends it
	})
}
