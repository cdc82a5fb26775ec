package store

// Cells is how many cells the table's hash has.
func (t *Table[T]) Cells() int {
	n := 0
	if shards := t.cells.shards.Load(); shards != nil {
		for i := range shards {
			n += shards[i].live
		}
	}
	return n
}
