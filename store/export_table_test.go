package store

// Cells is how many cells the table's hash has.
func (t *Table[T]) Cells() int {
	n := 0
	for i := range t.cells.shards {
		n += t.cells.shards[i].live
	}
	return n
}
