//go:build !invariants

package lockd_test

import (
	"runtime"
	"testing"

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
