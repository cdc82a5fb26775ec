package table_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/table"
)

const leafKeys = 3000

func leafKey(i int) string { return fmt.Sprintf("key/%05d", i) }

// newRead returns a store that has just read a file with many pages of keys: those with the even
// numbers below 2*leafKeys.
func newRead(t *testing.T) *store.Store {
	t.Helper()
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	err := write(s, func() {
		for i := range leafKeys {
			key := leafKey(2 * i)
			s.Keys.Put(key, schema.Key{Key: key, Value: fmt.Append(nil, i), ModifyIndex: s.Next()})
		}
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return reopened(t, path)
}

func reopened(t *testing.T, path string) *store.Store {
	t.Helper()
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// keysOf returns the values of the keys.
func keysOf(rows func(yield func(string, *schema.Key) bool)) values {
	got := values{}
	for key, row := range rows {
		if row.Key != key {
			got[key] = "a row of " + row.Key
			continue
		}
		got[key] = string(row.Value)
	}
	return got
}

// Ensure that readers leave the rows as they were read, and see all of them.
func TestLeaf_Reads(t *testing.T) {
	s := newRead(t)
	want := values{}
	for i := range leafKeys {
		want[leafKey(2*i)] = fmt.Sprint(i)
	}
	leaves := s.Keys.Leaves()
	if leaves < 20 {
		t.Fatalf("leaves: got %d", leaves)
	}
	snapshot := s.Snapshot()
	for i := range 2*leafKeys + 2 {
		key := leafKey(i - 1)
		value, there := want[key]
		for name, row := range map[string]*schema.Key{
			"Get": s.Keys.Get(key), "Snapshot": snapshot.Keys.Get(key),
		} {
			if (row != nil) != there || there && (row.Key != key || string(row.Value) != value) {
				t.Fatalf("%s %s: got %+v, want %q, %v", name, key, row, value, there)
			}
		}
	}
	for name, got := range map[string]values{
		"newest": keysOf(s.Keys.Ascend("")), "snapshot": keysOf(snapshot.Keys.Ascend("")),
	} {
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %d rows, want %d", name, len(got), len(want))
		}
	}
	for _, from := range []int{0, 1, 2, 999, 1000, 2*leafKeys - 2, 2*leafKeys - 1} {
		for key := range snapshot.Keys.Ascend(leafKey(from)) {
			if next := leafKey((from + 1) / 2 * 2); key != next {
				t.Errorf("from %d: got %s, want %s", from, key, next)
			}
			break
		}
	}
	if got := s.Keys.Leaves(); got != leaves || s.Keys.Cells() != 0 {
		t.Errorf("after reading: %d leaves of %d, %d cells", got, leaves, s.Keys.Cells())
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a Get of a row as it was read does not allocate.
func TestLeaf_GetDoesNotAllocate(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	s := newRead(t)
	key := leafKey(1000)
	if n := testing.AllocsPerRun(100, func() {
		if s.Keys.Get(key) == nil {
			t.Fatal("missing")
		}
	}); n != 0 {
		t.Errorf("allocations: got %v", n)
	}
}

// Ensure that a snapshot shows the rows as they were read for as long as it is kept, whatever is
// written beside it.
func TestLeaf_SnapshotStays(t *testing.T) {
	s := newRead(t)
	before := s.Snapshot()
	want := keysOf(before.Keys.Ascend(""))
	err := write(s, func() {
		for i := range leafKeys {
			switch key := leafKey(2 * i); i % 3 {
			case 0:
				s.Keys.Delete(key)
			case 1:
				s.Keys.Put(key, schema.Key{Key: key, Value: []byte("new")})
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := keysOf(before.Keys.Ascend("")); !maps.Equal(got, want) {
		t.Errorf("snapshot: got %d rows, want %d", len(got), len(want))
	}
	if got := s.Snapshot().Keys.Len(); got != leafKeys*2/3 {
		t.Errorf("after it: got %d rows", got)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a snapshot shows the rows of pages that were written to before it, except the deleted
// rows, and that it stays so whatever is written after it.
func TestLeaf_SnapshotOfWrittenPages(t *testing.T) {
	s := newRead(t)
	const gone = 60 // most of the first page, so that it has to take in rows of the next page
	want := values{}
	err := write(s, func() {
		for i := range leafKeys {
			key := leafKey(2 * i)
			if i < gone {
				s.Keys.Delete(key)
				continue
			}
			want[key] = string(s.Keys.Newest(key).Value)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Keys.Leaves(); got > 0 {
		t.Fatalf("%d pages are as they were read", got)
	}
	before := s.Snapshot()
	err = write(s, func() {
		for i := gone; i < leafKeys; i++ {
			s.Keys.Put(leafKey(2*i), schema.Key{Key: leafKey(2 * i), Value: []byte("new")})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := keysOf(before.Keys.Ascend("")); !maps.Equal(got, want) {
		t.Errorf("snapshot: got %d rows, want %d as they were", len(got), len(want))
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a row that was read and then deleted does not come back when its cell is forgotten,
// nor when the file is read again.
func TestLeaf_DeletedRowsStayAway(t *testing.T) {
	s := newRead(t)
	gone := []int{0, 2, 700, 702, 704, 2*leafKeys - 2}
	for _, i := range gone {
		if err := write(s, func() { s.Keys.Delete(leafKey(i)) }); err != nil {
			t.Fatal(err)
		}
		cells := s.Keys.Cells()
		_ = s.Snapshot()
		if s.Keys.Cells() != cells-1 {
			t.Errorf("%d: its cell is still there", i)
		}
	}
	for _, i := range gone {
		if s.Keys.Get(leafKey(i)) != nil || s.Keys.Newest(leafKey(i)) != nil ||
			s.Snapshot().Keys.Get(leafKey(i)) != nil {
			t.Errorf("%d is back", i)
		}
	}
	if got := len(keysOf(s.Keys.Ascend(""))); got != leafKeys-len(gone) {
		t.Errorf("%d rows", got)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that rows go one by one from a page that was read, and none from the unread page after it.
func TestLeaf_DeletedUpToTheNextPage(t *testing.T) {
	s := newRead(t)
	for i := range 200 {
		if err := write(s, func() { s.Keys.Delete(leafKey(2 * i)) }); err != nil {
			t.Fatal(err)
		}
		if got := len(keysOf(s.Snapshot().Keys.Ascend(""))); got != leafKeys-i-1 {
			t.Fatalf("after %d: got %d rows, want %d", i+1, got, leafKeys-i-1)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if s.Keys.Leaves() == 0 {
		t.Error("every page was written to")
	}
}

// Ensure that a row comes back where a whole page was deleted, after a page that is as it was read.
func TestLeaf_RowWhereAPageWas(t *testing.T) {
	s := newRead(t)
	firsts := s.Keys.Firsts()
	want := keysOf(s.Keys.Ascend(""))
	err := write(s, func() {
		for key := range want {
			if firsts[1] <= key && key < firsts[2] {
				s.Keys.Delete(key)
				delete(want, key)
			}
		}
	})
	_ = s.Snapshot()
	want[firsts[1]] = "new"
	err = errors.Join(err, write(s, func() {
		s.Keys.Put(firsts[1], schema.Key{Key: firsts[1], Value: []byte("new")})
	}))
	if got := keysOf(s.Snapshot().Keys.Ascend("")); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %d rows, want %d (%v)", len(got), len(want), err)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// Ensure that the rows as read are let go when all of them have been written to: a store keeps no
// row twice.
func TestLeaf_LetGo(t *testing.T) {
	s := newRead(t)
	memory := s.Keys.LeafMemory()
	err := write(s, func() {
		for i := range leafKeys {
			key := leafKey(2 * i)
			s.Keys.Put(key, schema.Key{Key: key, Value: []byte("new")})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Keys.Leaves(); got != 0 {
		t.Errorf("%d leaves are left", got)
	}
	if got := s.Keys.Cells(); got != leafKeys {
		t.Errorf("%d cells", got)
	}
	_ = s.Snapshot()
	runtime.GC()
	kept := 0
	for _, p := range memory {
		if p.Value() != nil {
			kept++
		}
	}
	if kept > 0 {
		t.Errorf("%d of %d pages are kept", kept, len(memory))
	}
	runtime.KeepAlive(s)
}

// Ensure that rows, published rows and snapshots agree with plain maps, while some rows are as they
// were read, and others are new, changed, deleted, undone or dropped.
func TestLeaf_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newRead(t)
	published := keysOf(s.Keys.Ascend(""))
	newest, taken := maps.Clone(published), values(nil)
	var flying *table.Batch
	transaction := func() {
		before := maps.Clone(newest)
		from, many := random.IntN(2*leafKeys), 1+random.IntN(3)*random.IntN(30)
		for i := range many {
			key := leafKey(min(from+i*random.IntN(3), 2*leafKeys))
			if _, there := newest[key]; there && random.IntN(2) == 0 {
				s.Keys.Delete(key)
				delete(newest, key)
			} else if random.IntN(3) > 0 {
				value := fmt.Sprint(random.IntN(1000))
				s.Keys.Put(key, schema.Key{Key: key, Value: []byte(value)})
				newest[key] = value
			} else if (s.Keys.Newest(key) != nil) != there {
				t.Fatalf("%s: there is %v", key, !there)
			}
		}
		if random.IntN(4) == 0 {
			s.Undo()
			newest = before
			return
		}
		s.Seal()
	}
	commit := func() {
		switch {
		case flying == nil:
			flying, taken = s.Take(), maps.Clone(newest)
		case random.IntN(3) == 0:
			s.Drop(flying)
			flying, newest = nil, maps.Clone(published)
		default:
			if err := s.Write(flying); err != nil {
				t.Fatal(err)
			}
			s.Publish(flying)
			flying, published = nil, taken
		}
	}
	mixed := 0
	for round := range 200 {
		transaction()
		if s.Keys.Leaves() > 0 && s.Keys.Cells() > 0 {
			mixed++
		}
		if random.IntN(2) == 0 {
			commit()
		}
		for range 20 {
			key := leafKey(random.IntN(2*leafKeys + 1))
			value, want := published[key]
			row := s.Keys.Get(key)
			if (row != nil) != want || want && string(row.Value) != value {
				t.Fatalf("round %d, published %s: got %+v, want %q, %v", round, key, row, value,
					want)
			}
		}
		if round%10 > 0 {
			continue
		}
		if got := keysOf(s.Keys.Ascend("")); !maps.Equal(got, newest) {
			t.Fatalf("round %d: newest: got %d rows, want %d", round, len(got), len(newest))
		}
		if got := keysOf(s.Snapshot().Keys.Ascend("")); !maps.Equal(got, published) {
			t.Fatalf("round %d: published: got %d rows, want %d", round, len(got), len(published))
		}
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if mixed < 20 {
		t.Errorf("some rows were as they were read in %d rounds only", mixed)
	}
}

// Ensure that readers without a lock see every row all the time, and never one that went away,
// while the rows that were read are written to around them.
func TestLeaf_ReadersBesideTheWriter(t *testing.T) {
	s := newRead(t)
	var wait sync.WaitGroup
	done := make(chan struct{})
	for reader := range 2 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(reader), 0))
			seen := map[int]uint64{}
			for {
				select {
				case <-done:
					return
				default:
				}
				i := random.IntN(leafKeys)
				row := s.Keys.Get(leafKey(2 * i))
				switch {
				case i%3 == 0 && row == nil:
					seen[i] = 1 << 40 // it never comes back
				case row == nil || row.ModifyIndex < seen[i] || row.Key != leafKey(2*i):
					t.Errorf("key %d: got %+v after %d", i, row, seen[i])
					return
				default:
					seen[i] = row.ModifyIndex
				}
				if snapshot := s.Cached(); snapshot != nil && i%50 == 0 {
					prefix := leafKey(i)[:7]
					for key := range snapshot.Keys.Prefix(prefix) {
						if !strings.HasPrefix(key, prefix) {
							t.Errorf("prefix %s: got %s", prefix, key)
						}
					}
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(9, 9))
	for n, i := range random.Perm(leafKeys) {
		err := write(s, func() {
			if key := leafKey(2 * i); i%3 == 0 {
				s.Keys.Delete(key)
			} else {
				s.Keys.Put(key, schema.Key{Key: key, ModifyIndex: s.Next()})
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if n%20 == 0 {
			_ = s.Snapshot() // forgets the cells of rows that are gone
		}
	}
	close(done)
	wait.Wait()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}
