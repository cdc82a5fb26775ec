package table_test

import (
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Ensure that a large value that was deleted leaves no memory in use.
func TestBatch_LargeValueLeavesNothing(t *testing.T) {
	const size, most = 32 << 20, 8 << 20
	s := store.New()
	err := s.Open(newPath(t), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	before, _ := memory()
	for _, step := range []func(){
		func() { s.Keys.Put("large", schema.Key{Key: "large", Value: make([]byte, size)}) },
		func() { s.Keys.Delete("large") },
	} {
		if err := write(s, step); err != nil {
			t.Fatal(err)
		}
	}
	if after, _ := memory(); after > before+most {
		t.Errorf("%d bytes are left of %d", after-before, size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
