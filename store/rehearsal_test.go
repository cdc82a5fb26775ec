package store_test

import (
	"errors"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/table"
)

// Ensure that a rehearsal takes batches as a file does: they are not published before they are
// written, a batch can fail, and the index of the last batch that did not fail is known.
func TestRehearse(t *testing.T) {
	errBefore, errAfter := errors.New("before"), errors.New("after")
	var before, after error
	s := store.New()
	s.Rehearse(store.Hooks{
		BeforeCommit: func() error { return before },
		AfterCommit:  func() error { return after },
	})
	if !s.Durable() {
		t.Fatal("no batches")
	}
	write := func(key string) (*table.Batch, error) {
		s.Keys.Put(key, schema.Key{Key: key})
		s.Seal()
		b := s.Take()
		return b, s.Write(b)
	}
	last := func(want uint64) {
		t.Helper()
		if index, err := s.FileIndex(); index != want || err != nil {
			t.Fatalf("last index: got %d and %v, want %d", index, err, want)
		}
	}
	last(schema.FirstIndex)

	first, err := write("a")
	if err != nil || s.Keys.Get("a") != nil {
		t.Fatalf("got %v; published before its time: %v", err, s.Keys.Get("a"))
	}
	s.Publish(first)
	if s.Keys.Get("a") == nil {
		t.Fatal("not published")
	}
	last(first.Index())

	before = errBefore
	failed, err := write("b")
	if !errors.Is(err, errBefore) {
		t.Fatalf("got %v, want %v", err, errBefore)
	}
	s.Drop(failed)
	last(first.Index())

	before, after = nil, errAfter
	doubtful, err := write("c")
	if !errors.Is(err, errAfter) {
		t.Fatalf("got %v, want %v", err, errAfter)
	}
	last(doubtful.Index())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
