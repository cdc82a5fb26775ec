package table

import (
	"slices"
	"sync/atomic"
)

// leaves is what a table has as it was read. Readers take no lock: a leaf is there, or it was
// unfolded, and all its rows have cells. The writer unfolds a leaf when it looks for a key where
// that is: it knows cells only, and what it does not touch stays small.
type leaves[T any] struct {
	firsts []string // the first key of each
	places []atomic.Pointer[leaf[T]]
	left   int // how many are there
}

func newLeaves[T any](read []*leaf[T]) *leaves[T] {
	l := &leaves[T]{
		firsts: make([]string, len(read)),
		places: make([]atomic.Pointer[leaf[T]], len(read)),
		left:   len(read),
	}
	for i, leaf := range read {
		l.firsts[i] = leaf.first
		l.places[i].Store(leaf)
	}
	return l
}

// place returns the place of the leaf where the key is or belongs.
func (l *leaves[T]) place(key string) *atomic.Pointer[leaf[T]] {
	at, there := slices.BinarySearch(l.firsts, key)
	if !there && at > 0 {
		at--
	}
	return &l.places[at]
}

// get makes the row of the key where it is told to; it returns nil if no leaf has it.
func (l *leaves[T]) get(key string, into *T) *T {
	leaf := l.place(key).Load()
	if leaf == nil {
		return nil
	}
	at, there := leaf.find(key)
	if !there {
		return nil
	}
	*into = leaf.row(at)
	return into
}

// unfold gives cells to the rows of the leaf where the key is or belongs, and reports whether it
// was there.
func (t *Table[T]) unfold(key string) bool {
	leaves := t.leaves.Load()
	if leaves == nil {
		return false
	}
	place := leaves.place(key)
	leaf := place.Load()
	if leaf == nil {
		return false
	}
	for _, cells := range leaf.unfold() {
		t.order.unfold(cells)
	}
	place.Store(nil) // from now on readers look for cells only
	if leaves.left--; leaves.left == 0 {
		t.leaves.Store(nil)
	}
	return true
}
