package table_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

const memoryKeys = 50_000

func memoryKey(i int) string { return fmt.Sprintf("service/lock/%08d", i) }

func memoryValue(i, round int) []byte { return fmt.Appendf(nil, "value-%d-%08d", round, i) }

// memoryFile makes a file with many keys, and returns its path.
func memoryFile(t *testing.T) string {
	t.Helper()
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	err := write(s, func() {
		for i := range memoryKeys {
			s.Keys.Put(memoryKey(i), schema.Key{Key: memoryKey(i), Value: memoryValue(i, 0)})
		}
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// memory returns the bytes of the heap in use, and the number of allocations.
func memory() (inUse, taken uint64) {
	runtime.GC()
	runtime.GC() // what pools held back
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc, stats.Mallocs
}

// Ensure that a row that was read and then written to takes no more memory than one that was never
// in a file. Nothing of the old row is kept: not beside the new one, not by the order of the rows,
// and not by a caller that keeps some old rows, as a history does.
func TestLeaf_MemoryOfWrittenRows(t *testing.T) {
	const most = 260 // bytes for a row, beyond key and value
	path := memoryFile(t)
	before, _ := memory()
	s := reopened(t, path)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Rehearse(store.Hooks{}) // so that what the log of a file keeps in memory is not counted
	var kept []*schema.Key
	random := rand.New(rand.NewPCG(1, 2))
	for some := range slices.Chunk(random.Perm(memoryKeys), 500) {
		err := write(s, func() {
			for n, i := range some {
				d := s.Keys.Draft(memoryKey(i))
				if n%100 == 0 {
					kept = append(kept, s.Keys.Newest(memoryKey(i)))
				}
				d.Row().Value = memoryValue(i, 1)
				s.Keys.Write(memoryKey(i), d)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		inUse, _ := memory()
		data := len(memoryKey(0)) + len(memoryValue(0, 0))
		each := (int(inUse)-int(before))/memoryKeys - data
		t.Logf("%s: %d bytes for a row, beyond key and value", when, each)
		if each > most {
			t.Errorf("%s: got %d bytes for a row, want %d at most", when, each, most)
		}
	}
	check("written")
	if got := s.Snapshot().Keys.Len(); got != memoryKeys {
		t.Fatalf("%d rows", got)
	}
	check("with a snapshot")
	runtime.KeepAlive(kept)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that the first write to a page allocates less often than the page has rows.
func TestLeaf_FirstWriteAllocates(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	s := reopened(t, memoryFile(t))
	keys := make([]string, memoryKeys)
	for i := range keys {
		keys[i] = memoryKey(i)
	}
	_, before := memory()
	for _, key := range keys {
		if s.Keys.Newest(key) == nil {
			t.Fatalf("%s is missing", key)
		}
	}
	_, after := memory()
	each := float64(after-before) / memoryKeys
	t.Logf("%.2f allocations for a row", each)
	if s.Keys.Leaves() > 0 || each > 0.9 {
		t.Errorf("%d pages are left, %.2f allocations for a row", s.Keys.Leaves(), each)
	}
}
