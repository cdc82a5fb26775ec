package store

import "unsafe"

// add takes a page that has rows, in the order of the file, and returns it to be verified.
func (t *Table[T]) add(content []byte) page {
	leaf := newLeaf(t, content)
	t.read = append(t.read, leaf)
	return leaf
}

// loaded ends the loading, when all is verified: the rows are found from now on.
func (t *Table[T]) loaded() error {
	read := t.read
	t.read = nil
	for _, leaf := range read {
		t.size += leaf.rows()
		if t.layout == nil {
			continue
		}
		if err := t.insert(leaf); err != nil {
			return err
		}
	}
	if t.layout == nil && len(read) > 0 {
		t.leaves.Store(newLeaves(read))
		t.order.fill(read)
	}
	if t.moved != nil {
		t.order.ascend("", func(_ string, row *T) bool {
			t.moved(nil, row)
			return true
		})
	}
	return nil
}

// insert puts the rows of a leaf in their places, in a table whose rows have another order in the
// file.
func (t *Table[T]) insert(leaf *leaf[T]) error {
	at := 0
	for _, cells := range leaf.unfold() {
		for i := range cells {
			it, place := cells[i].item(), leaf.key(at)
			switch {
			case t.place(it.key, it.version) != place:
				return rowError(t.number, place, errPlace)
			case t.order.get(it.key) != nil:
				return rowError(t.number, place, errTwice)
			}
			t.order.set(it)
			at++
		}
	}
	return nil
}

// clear drops what was read.
func (t *Table[T]) clear() {
	t.read, t.picked, t.size = nil, nil, 0
	t.leaves.Store(nil)
	t.cells = cells[T]{seed: t.cells.seed, keyOf: t.cells.keyOf}
	if t.order.size > 0 {
		t.order = newOrder[T]()
	}
}

// stringOf returns the bytes, which nobody changes, as a string.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
