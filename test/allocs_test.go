//go:build !invariants && !race

// Builds that check themselves allocate for that.

package lockd_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// Ensure that the most frequent writes allocate only what they keep: two versions of the key's row
// and the handle for a lock and its unlock, one version and a copy of the value for a Put.
func TestAllocations_OfSingleWrites(t *testing.T) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := db.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	values := [][]byte{[]byte("one"), []byte("two")}
	n := 0
	for _, tt := range []struct {
		name string
		most float64
		do   func() error
	}{
		{"TryLock and Unlock", 3, func() error {
			lock, err := s.TryLock("lock", nil)
			if err != nil {
				return err
			}
			return lock.Unlock()
		}},
		{"Put", 2, func() error {
			n++
			_, err := db.Put("key", values[n%2], nil)
			return err
		}},
		{"Put that changes nothing", 0, func() error {
			_, err := db.Put("same", nil, nil)
			return err
		}},
	} {
		got := testing.AllocsPerRun(1000, func() {
			if err := tt.do(); err != nil {
				t.Fatal(err)
			}
		})
		if got > tt.most {
			t.Errorf("%s: got %v allocations, want %v at most", tt.name, got, tt.most)
		}
	}
}

// Ensure that the index of an absent name costs no copy of each of its prefixes. A client can send
// a name of a megabyte, and the copies took a minute.
func TestAllocations_OfIndexOf(t *testing.T) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Put("dir/key", nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := db.DeletePrefix("dir/"); err != nil {
		t.Fatal(err)
	}
	s, name := db.Snapshot(), strings.Repeat("k", 1<<10)
	for _, scope := range []lockd.Scope{lockd.KeyScope(name), lockd.PrefixScope(name)} {
		if got := testing.AllocsPerRun(10, func() { s.IndexOf(scope) }); got > 20 {
			t.Errorf("a long name: got %v allocations, want 20 at most", got)
		}
	}
}

// Ensure that MostAwaited describes no more locks than it was asked for: it allocates as much
// beside ten thousand others as beside ten.
func TestAllocations_OfMostAwaited(t *testing.T) {
	const few, many = 10, 10_000
	var allocations [2]float64
	for i, others := range []int{few, many} {
		db, err := lockd.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := db.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range others {
			if _, err := s.TryLock(fmt.Sprint("k", n), nil); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := start(func() error { return second(s.Lock(ctx, "k0", nil)) })
		for db.Stats().Waiters == 0 {
			runtime.Gosched()
		}
		allocations[i] = testing.AllocsPerRun(10, func() {
			if most := db.MostAwaited(10); len(most) != 1 || most[0].Key != "k0" {
				t.Errorf("most awaited: %+v", most)
			}
		})
		cancel()
		_ = waiting.wait()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if allocations[1] != allocations[0] {
		t.Errorf("got %v allocations beside %d locks, and %v beside %d", allocations[1], many,
			allocations[0], few)
	}
}

// Ensure that a slot is taken and released without a look at each holder: a thousand others add
// little to what that allocates beside ten.
func TestAllocations_OfSlot(t *testing.T) {
	const few, many = 10, 1000
	var allocations [2]float64
	for i, others := range []int{few, many} {
		db, err := lockd.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		var s *lockd.Session
		for n := range others + 1 {
			if s, err = db.NewSession(nil); err != nil {
				t.Fatal(err)
			}
			if n == others {
				break
			}
			if _, err := s.TryAcquire("pool", others+1); err != nil {
				t.Fatal(err)
			}
		}
		allocations[i] = testing.AllocsPerRun(100, func() {
			slot, err := s.TryAcquire("pool", 0)
			if err == nil {
				err = slot.Release()
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if allocations[1] > 2*allocations[0] {
		t.Errorf("got %v allocations beside %d holders, and %v beside %d", allocations[1], many,
			allocations[0], few)
	}
}
