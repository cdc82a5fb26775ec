package table_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/table"
)

// Ensure that rows come in order whatever is put and deleted, and that a snapshot stays as it was.
func TestOrder_Model(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := store.New()
	want := make(map[string]uint64)
	put := func(key string) {
		want[key] = s.Next()
		s.Keys.Put(key, schema.Key{Key: key, ModifyIndex: s.Next()})
	}
	remove := func(key string) {
		if _, there := want[key]; there {
			delete(want, key)
			s.Keys.Delete(key)
		}
	}
	for round, step := range []func(){
		func() { each(1000, func(i int) { put(leafKey(i)) }) },               // in order
		func() { each(1000, func(i int) { put(leafKey(9000 - i)) }) },        // the other way round
		func() { each(3000, func(int) { put(leafKey(random.IntN(9999))) }) }, // anywhere
		func() { each(5000, func(int) { remove(leafKey(random.IntN(9999))) }) },
		func() { each(500, func(i int) { put(leafKey(4000)); put(leafKey(4000 + i)) }) },
		func() { each(9000, func(i int) { remove(leafKey(i)) }) }, // from the front
		func() { each(9999, func(i int) { remove(leafKey(9999 - i)) }) },
		func() { each(100, func(int) { put(leafKey(random.IntN(9999))) }) },
	} {
		before, wantBefore := s.Snapshot(), maps.Clone(want)
		step()
		s.Seal()
		s.PublishMemory()
		if err := s.Check(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		testOrder(t, before.Keys, wantBefore)
		testOrder(t, s.Snapshot().Keys, want)
	}
}

// Ensure that a block that has lost most of its rows takes in no full one.
func TestOrder_SmallBlockBesideAFullOne(t *testing.T) {
	s := store.New()
	each(300, func(i int) { s.Keys.Put(leafKey(i), schema.Key{Key: leafKey(i)}) })
	s.Seal()
	s.PublishMemory()
	_ = s.Snapshot() // fills the blocks in order
	each(60, func(i int) {
		s.Keys.Delete(leafKey(i))
		s.Seal()
		s.PublishMemory()
		if err := s.Check(); err != nil {
			t.Fatalf("without the first %d: %v", i+1, err)
		}
	})
}

func each(count int, fn func(i int)) {
	for i := range count {
		fn(i)
	}
}

func testOrder(t *testing.T, view table.View[schema.Key], want map[string]uint64) {
	t.Helper()
	var got []string
	for key, row := range view.Ascend("") {
		got = append(got, key)
		if row.ModifyIndex != want[key] || view.Get(key) != row {
			t.Errorf("%s is of %d, want %d", key, row.ModifyIndex, want[key])
		}
	}
	keys := slices.Sorted(maps.Keys(want))
	if !slices.Equal(got, keys) || view.Len() != len(keys) {
		t.Fatalf("%d rows of %d, want %d", len(got), view.Len(), len(keys))
	}
	for i, from := range keys {
		if i%97 == 0 {
			next := 0
			for range view.Ascend(from + "\x00") {
				next++
			}
			if next != len(keys)-i-1 {
				t.Errorf("%d rows after %s, want %d", next, from, len(keys)-i-1)
			}
		}
	}
}
